"""Resources of a coding run: its settings, its tools, its model, its work, and the messages of a request.

The resources are made from the settings of the run, once per process, and are the same after a crash. Settings come from the command line and from
`[code]` of a file; the ledger has them as JSON, and None means not set. `messages_for` makes a request (seed 003, context structure): instructions, the
state of the work, and the last exchanges. Older exchanges are shortened first, then left out. The last one is always there, with all its results.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from dsa.errors import BindingError
from dsa.runs.door import Runs
from dsa.runtime.ledger import MachineEntry
from dsa.runtime.policy.policies import PolicyContext
from dsa.runtime.run import Run
from dsa.runtime.run_store import StoredRun
from dsa.runtime.timeline import OnMoment
from machines.coding.coding_tools import CallAction
from machines.coding.coding_work import Work
from machines.coding.task_plan import Approval
from machines.coding.toolbox import Toolbox
from machines.tool_use.chat_model import Model, ModelOptions, model_of
from machines.tool_use.machine_session import Listener, RunResources
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.transcript import CHARS_PER_TOKEN, ChatMessage, join_neighbours, shorten, size_of

#: The number of exchanges in a request (seed 003: HISTORY_KEEP).
HISTORY_KEEP = 5
#: The limit of a request, in tokens.
CONTEXT_TOKENS = 16_000
_SHORT, _SHORTER = 1_200, 300
_MOST_FILES, _MOST_BLOCKED = 40, 5

INSTRUCTIONS = (
    "You are a coding agent. You work in one folder, the workspace, by calling tools. Work only on the ACTIVE SUBTASK, in small steps, and "
    "read the results of the tools. When the subtask is done, call mark_subtask_complete(success=true); when it cannot be done, call it with "
    "success=false and the reason. A program runs without a shell. Do not repeat a call that was blocked: try something else."
)

TEST_FIRST = "Write every new Python module with write_tested, never with write_file, because its tests come first."


def messages_for(
    work: Work,
    *,
    context_chars: int = CONTEXT_TOKENS * CHARS_PER_TOKEN,
    test_first: bool = False,
    files: Sequence[str] = (),
) -> list[ChatMessage]:
    """Return the messages of the next request. With `test_first` new modules need tests; `files` are those of earlier runs."""
    head = [
        ChatMessage("system", f"{INSTRUCTIONS} {TEST_FIRST}" if test_first else INSTRUCTIONS),
        ChatMessage("user", where_it_stands(work, files)),
    ]
    room = context_chars - size_of(head)
    exchanges = [list(exchange.messages) for exchange in work.transcript.exchanges if exchange.messages]
    newest = [message for exchange in _fit(exchanges[-HISTORY_KEEP:], room) for message in exchange]
    return join_neighbours([*head, *newest], "\n\n", {"user"})  # two in a row come from notes on empty answers


def where_it_stands(work: Work, files: Sequence[str] = ()) -> str:
    """Return goal, task, subtask, files, the facts of the probe, and the blocked calls, as text."""
    active = work.active
    task, subtask = (active[0].description, active[1].description) if active else ("(none)", "(none)")
    lines = [
        f"GOAL: {work.goal}",
        f"CURRENT TASK: {task}",
        f"ACTIVE SUBTASK: {subtask}",
        f"FILES CREATED: {_paths_text(list(dict.fromkeys([*files, *work.files_written])))}",
        f"STATE: {json.dumps(attrs.asdict(work.probe) if work.probe else {}, ensure_ascii=False)}",
    ]
    if work.blocked_calls:
        blocked_calls = list(work.blocked_calls.values())[-_MOST_BLOCKED:]
        lines.append("BLOCKED, try something else:\n" + "\n".join(f"- {each}" for each in blocked_calls))
    return "\n".join(lines)


def _paths_text(paths: Sequence[str]) -> str:
    text = ", ".join(paths[-_MOST_FILES:]) or "(none yet)"
    return f"{text} and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else text


def _fit(exchanges: list[list[ChatMessage]], room: int) -> list[list[ChatMessage]]:
    """Return exchanges that fit: older ones are shortened, then left out, then the last one is shortened."""
    if _sizes(exchanges) <= room or not exchanges:
        return exchanges
    *older, last = exchanges
    for most in (_SHORT, _SHORTER):
        shorter = [[shorten(message, most) for message in exchange] for exchange in older]
        if _sizes([*shorter, last]) <= room:
            return [*shorter, last]
    while shorter and _sizes([*shorter, last]) > room:
        shorter = shorter[1:]
    most = max(_SHORTER, room // max(1, 2 * len(last)))
    return [*shorter, last if _sizes([*shorter, last]) <= room else [shorten(each, most) for each in last]]


def _sizes(exchanges: Iterable[list[ChatMessage]]) -> int:
    return sum(map(size_of, exchanges))


def _texts(values: Any) -> tuple[str, ...] | None:  # noqa: ANN401  (a list of JSON)
    return None if values is None else tuple(values)


@attrs.frozen
class CodingSettings:
    """Settings of the work on a goal. `commands` has rules of programs and `mcp` has servers, for the modules that read them.

    A part has `part_of`, the run of the whole; `allowed`, the permissions given there; and `files_before`, the files written before.
    """

    temperature: float | None = None
    seed: int | None = None
    mode: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    context_tokens: int | None = None
    json_mode: bool | None = None
    commit: bool | None = None
    test_first: bool | None = None
    unconfined: bool | None = None
    network: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    protected: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    polling: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    budget: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    parallel: int | None = None
    commands: JsonObject | None = None
    mcp: Mapping[str, JsonObject] | None = None
    workspace: str = ""
    part_of: str | None = None
    allowed: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    files_before: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)

    def over(self, other: "CodingSettings") -> "CodingSettings":
        """Return these settings, with those of the other for the ones that are not set."""
        return attrs.evolve(other, **dict(self.items()))

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield the settings that are set, with their names."""
        for field in attrs.fields(type(self)):
            if (value := getattr(self, field.name)) != field.default:
                yield field.name, value


def settings_of(config: object) -> CodingSettings:
    """Return the settings in the configuration of a run. Raises BindingError when they are not valid."""
    try:
        return read_record(CodingSettings, config)
    except ValueError as error:
        raise BindingError(f"the settings of the run cannot be read: {error}") from error


def workspace_fault(settings: CodingSettings) -> str:
    """Return why the workspace cannot be used now, or an empty text when it exists or none is set."""
    workspace = settings.workspace
    if not workspace or Path(workspace).is_dir():
        return ""
    return f"{workspace}: the run's workspace is missing; restore the folder to continue the run"


def settings_at_start(stored_run: StoredRun) -> CodingSettings:
    """Return the settings at the start of a run, with its budget."""
    first = stored_run.entries[0]
    start = dict(first.started) if isinstance(first, MachineEntry) else {}
    return settings_of({**(start.get("config") or {}), "budget": start.get("budget")})


#: The limit of an answer in seconds: less than the 10 minutes of `ask_model` and `decompose`.
_ANSWER_S = 580.0
#: A request needs room beside the messages: for the tools, and for the answer.
_BESIDE_TOKENS = 8_192
MODES = ("ask", "auto-edit", "full-auto", "read-only")


def polled_command(text: str) -> tuple[str, ...]:
    """Return the words of a command in `polling`. Raises ValueError for an unclosed quote."""
    return tuple(shlex.split(text))


class CodingResources:
    """The resources of one run. `config` has its settings (`CodingSettings`), `folder` is its own folder.

    `listen` is called with the model's text as it comes, `notice` with the reason when a model is asked again, `watch_part` with the moments of its parts.
    `others` returns the actions of parts that work at the same time. `runs` are those of the session that holds the run, or None.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        self.config, self.settings = config, settings_of(config)
        self._folder = folder.parent / self.settings.part_of if self.settings.part_of else folder
        self._work = Work()
        self.listen: Listener = lambda _text: None
        self.notice: Listener = lambda _text: None
        self.watch_part: OnMoment | None = None
        self.runs: Runs | None = None
        self.others: Callable[[], Iterable[CallAction]] = tuple

    def work(self, run: Run) -> Work:
        """Return the work up to the end of the run's ledger."""
        if self._work.count > len(run.ledger):
            self._work = Work()
        self._work.take(run.ledger.after(self._work.count))
        return self._work

    @property
    def past(self) -> tuple[CallAction, ...]:
        """The last actions."""
        return tuple(self._work.past)

    @cached_property
    def toolbox(self) -> Toolbox:
        """The tools. Raises what `Toolbox` raises."""
        return Toolbox(self.config, self._folder)

    @cached_property
    def model(self) -> Model:
        """The model. Raises ModelUnavailable, DocumentError."""
        settings = self.settings
        options = ModelOptions(
            settings.seed or 0,
            settings.temperature,
            settings.max_tokens,
            bool(settings.json_mode),
            _ANSWER_S,
            self.tell,
            self.context_tokens + _BESIDE_TOKENS + (settings.max_tokens or 0),
        )
        return model_of(self.model_name, options)

    @property
    def context_tokens(self) -> int:
        """The limit of a request, in tokens."""
        return self.settings.context_tokens or CONTEXT_TOKENS

    @property
    def context_chars(self) -> int:
        """The limit of a request, in characters."""
        return self.context_tokens * CHARS_PER_TOKEN

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self.settings.model or ""

    def tell(self, text: str) -> None:
        """Pass a notice about the model on to the display."""
        self.notice(text)

    @property
    def parallel(self) -> int:
        """The number of subtasks that may run at the same time."""
        return self.settings.parallel or 1

    @property
    def files_before(self) -> tuple[str, ...]:
        """The files that were written before this part began."""
        return self.settings.files_before or ()

    @property
    def is_test_first(self) -> bool:
        """Whether new modules are written with their tests."""
        return bool(self.settings.test_first)

    def polls(self, argv: Sequence[str]) -> bool:
        """Return whether a command starts with the words of a command in the setting `polling`."""
        commands = map(polled_command, self.settings.polling or ())
        return any(words and tuple(argv[: len(words)]) == words for words in commands)

    def approval(self, needs: str, asks: str, permissions: set[str]) -> Approval:
        """Return whether a call may happen in this mode (yes, ask or never), and why not."""
        mode = self.settings.mode or MODES[0]
        permissions = {*permissions, *(self.settings.allowed or ())}
        if needs == "never":
            return Approval("never", "the configuration does not allow this tool")
        if needs == "look" or asks in permissions:
            return Approval("yes")
        if needs == "ask":
            return self._approval_of_user('approve = "ask"')
        if mode == "full-auto" or (mode == "auto-edit" and needs == "edit"):
            return Approval("yes")
        if mode == "read-only":
            return Approval("never", "this run may only read (--mode read-only): look, and answer")
        return self._approval_of_user(f"--mode {mode}")

    def _approval_of_user(self, setting: str) -> Approval:
        """Return that the user has to be asked because of a setting; in a part, which cannot ask, that the call must not happen."""
        if self.settings.part_of:
            why = f"the call needs permission ({setting}), but parts that run at the same time cannot ask for it"
            return Approval("never", why)
        return Approval("ask", f"the user has to be asked first ({setting})")

    def close(self) -> None:
        """Close the tools."""
        if "toolbox" in self.__dict__:
            self.toolbox.close()


RESOURCES = RunResources(CodingResources)
resources_in = RESOURCES.of


def resources_and_work(context: PolicyContext) -> tuple[CodingResources, Work]:
    """Return the resources of the run, and the work."""
    agent = resources_in(context.config, context.run.run_id)
    return agent, agent.work(context.run)
