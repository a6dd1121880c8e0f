"""What a model is sent: instructions, where the work stands, what the workspace holds, and the last exchanges (seed 003, context structure).

Takes the work, gives messages, at most as long as the budget: what is older is shortened first, then left out. The last exchange
is always there, with every result that it has brought. Pure.

The settings of a coding run: what policies read of how it was begun, and what `[code]` of a file and the command line say of it.

A setting that nobody has said is None. What a run is begun with is JSON in its ledger, and read by `settings_of` alone.

What the policies of one run work with: its tools, its model, its settings, and what its ledger says so far.

Made from the settings that its run was started with, once in a process, and made again the same after a crash.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

from dsa.errors import BindingError
from dsa.runs.runs import Runs
from dsa.runtime.ledger import MachineEntry
from dsa.runtime.run import Run
from dsa.runtime.run_store import StoredRun
from dsa.runtime.timeline import OnMoment
from machines.coding.coding_tools import Did
from machines.coding.coding_work import Work
from machines.coding.task_plan import Approval
from machines.coding.toolbox import Toolbox
from machines.tool_use.chat_model import Model, ModelOptions, model_of
from machines.tool_use.machine_session import RunResources
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.transcript import CHARS_PER_TOKEN, ChatMessage, joined, shortened_to, size_of

#: Exchanges that are kept (seed 003: HISTORY_KEEP).
HISTORY_KEEP = 5
#: How long a request may be.
CONTEXT_TOKENS = 16_000
_SHORT, _SHORTER = 1_200, 300
_MOST_FILES, _MOST_BLOCKED = 40, 5

INSTRUCTIONS = (
    "You are a coding agent. You work in one folder, the workspace, by calling tools. Work at the ACTIVE SUBTASK alone, one small step after the "
    "other, and read what the tools answer. When the subtask is done, call mark_subtask_complete(success=true); when it cannot be done, call it with "
    "success=false and the reason. A program runs without a shell. A call that was blocked is not to be tried again: take "
    "another way."
)

TEST_FIRST = "Write every new Python module with write_tested, never with write_file: its tests come first."


def messages_for(
    work: Work,
    *,
    context_chars: int = CONTEXT_TOKENS * CHARS_PER_TOKEN,
    test_first: bool = False,
    files: Sequence[str] = (),
) -> list[ChatMessage]:
    """Return the messages of the next request; `test_first` where new modules are to be written with their tests, `files` were there before."""
    head = [
        ChatMessage("system", f"{INSTRUCTIONS} {TEST_FIRST}" if test_first else INSTRUCTIONS),
        ChatMessage("user", where_it_stands(work, files)),
    ]
    room = context_chars - size_of(head)
    said = [list(exchange.messages) for exchange in work.transcript.exchanges if exchange.messages]
    kept = [message for exchange in _fitted(said[-HISTORY_KEEP:], room) for message in exchange]
    return joined([*head, *kept], "\n\n", {"user"})  # such as notes on empty answers


def where_it_stands(work: Work, files: Sequence[str] = ()) -> str:
    """Say goal, task, subtask, files, what the probe has found, and which calls were blocked."""
    active = work.active
    task, subtask = (active[0].description, active[1].description) if active else ("(none)", "(none)")
    lines = [
        f"GOAL: {work.goal}",
        f"CURRENT TASK: {task}",
        f"ACTIVE SUBTASK: {subtask}",
        f"FILES CREATED: {_listed(list(dict.fromkeys([*files, *work.files_written])))}",
        f"STATE: {json.dumps(attrs.asdict(work.probe) if work.probe else {}, ensure_ascii=False)}",
    ]
    if work.blocked:
        blocked = list(work.blocked.values())[-_MOST_BLOCKED:]
        lines.append("BLOCKED, take another way:\n" + "\n".join(f"- {each}" for each in blocked))
    return "\n".join(lines)


def _listed(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[-_MOST_FILES:]) or "(none yet)"
    return f"{shown} and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else shown


def _fitted(exchanges: list[list[ChatMessage]], room: int) -> list[list[ChatMessage]]:
    """Shorten, then leave out, then shorten the last one, until it fits."""
    if _sizes(exchanges) <= room or not exchanges:
        return exchanges
    *older, last = exchanges
    for most in (_SHORT, _SHORTER):
        shortened = [[shortened_to(message, most) for message in exchange] for exchange in older]
        if _sizes([*shortened, last]) <= room:
            return [*shortened, last]
    while shortened and _sizes([*shortened, last]) > room:
        shortened = shortened[1:]
    most = max(_SHORTER, room // max(1, 2 * len(last)))
    return [*shortened, last if _sizes([*shortened, last]) <= room else [shortened_to(each, most) for each in last]]


def _sizes(exchanges: Iterable[list[ChatMessage]]) -> int:
    return sum(map(size_of, exchanges))


def _texts(given: Any) -> tuple[str, ...] | None:  # noqa: ANN401  (a list of JSON)
    return None if given is None else tuple(given)


@attrs.frozen
class CodingSettings:
    """How a goal is worked at. `commands` are rules of programs and `mcp` servers, as their own modules read them.

    Of a part are `part_of`, the run of the whole; `allowed`, what was let happen in it; and `files_before`, what had been written before.
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
        """Return these, and those of the other where these say nothing."""
        return attrs.evolve(other, **dict(self.items()))

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield what somebody has said, by its name."""
        for field in attrs.fields(type(self)):
            if (value := getattr(self, field.name)) != field.default:
                yield field.name, value


def settings_of(config: object) -> CodingSettings:
    """Return the settings that stand in what a run was begun with. Raises BindingError for what means nothing."""
    try:
        return read_record(CodingSettings, config)
    except ValueError as error:
        raise BindingError(f"the settings of the run cannot be read: {error}") from error


def workspace_fault(settings: CodingSettings) -> str:
    """Return why nobody can go on in the workspace now; nothing where it is there, or none is set."""
    workspace = settings.workspace
    if not workspace or Path(workspace).is_dir():
        return ""
    return f"{workspace}: the run's workspace is gone; the run stays as it is until the folder is back"


def settings_recorded(recorded: StoredRun) -> CodingSettings:
    """Return the settings that a run was begun with, its budget among them; of one without any, none."""
    first = recorded.entries[0]
    started = dict(first.started) if isinstance(first, MachineEntry) else {}
    return settings_of({**(started.get("config") or {}), "budget": started.get("budget")})


Listener = Callable[[str], object]
#: `ask_model` and `decompose` have 10 minutes: what came of an answer has to be there before.
_ANSWER_S = 580.0
#: Beside the messages there has to be room for what is said of the tools, and for the answer.
_BESIDE_TOKENS = 8_192
MODES = ("ask", "auto-edit", "full-auto", "read-only")


def polled_command(text: str) -> tuple[str, ...]:
    """Return the words of a command in `polling`. ValueError for a quote that is not closed."""
    return tuple(shlex.split(text))


class CodingResources:
    """Everything of one run. `config` is what it was started with (see `CodingSettings`), `folder` its own folder.

    `listen` is called with the model's text as it comes, `notice` with why a model that failed is asked again, `watch_part` with the moments of its parts, `others` gives what
    was done by those who work beside this run. `runs` are those of the session that holds it; None where no session does.
    """

    def __init__(self, config: Mapping[str, Any], folder: Path) -> None:
        self.config, self.settings = config, settings_of(config)
        self._folder = folder.parent / self.settings.part_of if self.settings.part_of else folder
        self._work = Work()
        self.listen: Listener = lambda _text: None
        self.notice: Listener = lambda _text: None
        self.watch_part: OnMoment | None = None
        self.runs: Runs | None = None
        self.others: Callable[[], Iterable[Did]] = tuple

    def work(self, run: Run) -> Work:
        """Return what the run's ledger says."""
        if self._work.taken > len(run.ledger):
            self._work = Work()
        self._work.take(run.ledger.after(self._work.taken))
        return self._work

    @property
    def past(self) -> tuple[Did, ...]:
        """Its last actions."""
        return tuple(self._work.past)

    @cached_property
    def toolbox(self) -> Toolbox:
        """The tools. Raises as `Toolbox` does."""
        return Toolbox(self.config, self._folder)

    @cached_property
    def model(self) -> Model:
        """Who answers. Raises ModelUnavailable, DocumentError."""
        settings = self.settings
        wanted = ModelOptions(
            settings.seed or 0,
            settings.temperature,
            settings.max_tokens,
            bool(settings.json_mode),
            _ANSWER_S,
            self.tell,
            self.context_tokens + _BESIDE_TOKENS + (settings.max_tokens or 0),
        )
        return model_of(self.asked_model, wanted)

    @property
    def context_tokens(self) -> int:
        """How long a request may be."""
        return self.settings.context_tokens or CONTEXT_TOKENS

    @property
    def context_chars(self) -> int:
        """The same in characters."""
        return self.context_tokens * CHARS_PER_TOKEN

    @property
    def asked_model(self) -> str:
        """The model as it is named."""
        return self.settings.model or ""

    def tell(self, text: str) -> None:
        """Tell whoever watches how the model is asked."""
        self.notice(text)

    @property
    def parallel(self) -> int:
        """How many subtasks may be worked at together."""
        return self.settings.parallel or 1

    @property
    def files_before(self) -> tuple[str, ...]:
        """What had been written before this run began, where it is a part."""
        return self.settings.files_before or ()

    @property
    def is_test_first(self) -> bool:
        """Return whether new modules are to be written with their tests."""
        return bool(self.settings.test_first)

    def polls(self, argv: Sequence[str]) -> bool:
        """Return whether a command is declared as polling: it begins with the words of a command in `polling`."""
        declared = map(polled_command, self.settings.polling or ())
        return any(words and tuple(argv[: len(words)]) == words for words in declared)

    def approval(self, needs: str, asks: str, allowed: set[str]) -> Approval:
        """Return whether a call may happen in this mode: yes, ask, never, and why."""
        mode = self.settings.mode or MODES[0]
        allowed = {*allowed, *(self.settings.allowed or ())}
        if needs == "never":
            return Approval("never", "the configuration does not allow this tool")
        if needs == "look" or asks in allowed:
            return Approval("yes")
        if needs == "ask":
            return self._asking('approve = "ask"')
        if mode == "full-auto" or (mode == "auto-edit" and needs == "edit"):
            return Approval("yes")
        if mode == "read-only":
            return Approval("never", "this run only reads (--mode read-only): look, and answer")
        return self._asking(f"--mode {mode}")

    def _asking(self, said: str) -> Approval:
        """Have the user asked, as was `said`; in a part nobody can be."""
        if self.settings.part_of:
            why = f"leave would be asked for it ({said}), and nobody is asked while several work at once"
            return Approval("never", why)
        return Approval("ask", f"the user is asked first ({said})")

    def close(self) -> None:
        """Let go of the tools."""
        if "toolbox" in self.__dict__:
            self.toolbox.close()


KNOWN = RunResources(CodingResources)
resources_in = KNOWN.of
