"""The command `dsa chat [DATA...]`: talk with a model about data, while a table decides what the model may do.

It is interactive, or with `--ask` for scripts. A typed line is a message; a line that starts with a slash is a command for the program. The conversation is stored and
can be resumed after any end; a branch is another conversation that starts with the first turns of this one. The counters (seed 002, workstream F) are
computed from the ledger.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.cli.command_line import EXIT_INTERRUPTED, note_run, write
from dsa.cli.ledger_view import terminal
from dsa.cli.run_options import (
    RunOptions,
    RunWatchers,
    exit_on_faults,
    find,
    open_run_folder,
    options_saying,
    runs_option,
    watching_options,
)
from dsa.cli.run_view import JsonRunCommand, rest_report
from dsa.edge.processes import environment_secrets
from dsa.errors import DsaError
from dsa.expr import show_value
from dsa.runs.door import Runs
from dsa.runs.machine_extension import MachineExtension
from dsa.runs.place import new_run_id
from dsa.runs.runs import length_before, open_runs
from dsa.runtime.ledger import Entry
from dsa.runtime.timeline import Moment
from machines.chat.chat_display import START_FORM, ChatDisplay, ChatPage, TranscriptDisplay
from machines.chat.chat_session import NAME, RESOURCES, Chat, ChatStart
from machines.chat.conversation import ChatConversation, ChatTurn, conversation_of
from machines.tool_use.machine_session import SessionListeners, files_folder, resume_command
from machines.tool_use.records import as_data
from machines.tool_use.transcript import LEAST_TOKENS


@attrs.frozen
class RetryCounts:
    """The number of guided retries, and of those that succeeded."""

    guided: int
    succeeded: int


@attrs.frozen
class ConversationCounters:
    """The counters of `--json` and `/counters`; `retry_success_rate` is None without retries."""

    turns: int
    model_answers: int
    calls: Mapping[str, int]
    reasons: Mapping[str, int]
    rescues: Mapping[str, int]
    artifacts: int
    retries: RetryCounts
    retry_success_rate: float | None


def show_counters(entries: Iterable[Entry]) -> dict[str, int | float | str]:
    """Return the counters that `dsa show --counters` adds for a conversation."""
    counters = counters_of(conversation_of(entries))
    rate = counters.retry_success_rate
    return {
        "turns": counters.turns,
        "answers of the model": counters.model_answers,
        "artifacts": counters.artifacts,
        "duplicate skips": counters.reasons.get("duplicate_tool_call_skipped", 0),
        "artifact dedups": counters.reasons.get("duplicate_artifact_prevented", 0),
        "rescues": sum(counters.rescues.values()),
        "guided retries": counters.retries.guided,
        "of these succeeded": counters.retries.succeeded,
        "retry success rate": "no retries were made" if rate is None else rate,
    }


def counters_of(conversation: ChatConversation) -> ConversationCounters:
    """Return the counters of a conversation."""
    retries, successes = conversation.retry_count, conversation.retry_successes
    return ConversationCounters(
        len(conversation.turns),
        conversation.transcript.answers,
        dict(sorted(conversation.tools.items())),
        dict(sorted(conversation.reasons.items())),
        dict(sorted(conversation.transcript.rescues.items())),
        len(conversation.inventory),
        RetryCounts(retries, successes),
        successes / retries if retries else None,
    )


def branch(runs: Runs, run_id: str, turn: int) -> str:
    """Make a branch of a conversation after a turn (0: before the first), and return its id.

    The branch has the artifacts up to that turn. Raises DsaError when the conversation did not rest there, UnknownRunError.
    """
    name, length = new_run_id(NAME), length_before(runs.stored_run(run_id).entries, "message", turn + 1)
    try:
        _copy(files_folder(runs, run_id), files_folder(runs, name))
        return runs.branch(run_id, length, name)
    except BaseException:
        shutil.rmtree(files_folder(runs, name), ignore_errors=True)
        raise


def _copy(old: Path, new: Path) -> None:
    """Copy the contents to the branch's own folder, as links if possible: they never change."""
    for path in sorted(old.rglob("*")):
        place = new / path.relative_to(old)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path.parent.name == "contents" or path.name.startswith("data-"):
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, place)
            except OSError:
                shutil.copyfile(path, place)


Perform = Callable[[Coroutine[Any, Any, Any]], Any]

HELP = """\
/artifacts         list the artifacts     /counters        count skips, fixes and retries
/state             show the phase         /branch [TURN]   branch the conversation after a turn
/cancel            (Ctrl-C stops a turn)  /export [DIR]    copy the files and the messages
/retry, /dismiss   after an error         /rerun TEXT      send TEXT, and allow repeated work
/end               end for good           /quit            leave, and resume later"""


class Talk:
    """A conversation with a person at a terminal."""

    def __init__(self, chat: Chat, display: ChatDisplay) -> None:
        self._chat, self._display = chat, display

    def hold(self, perform: Perform, read_line: Callable[[str], str] = input) -> int:
        """Read lines and send them until the user leaves. Return the exit code."""
        chat, say = self._chat, self._display.say
        say(f"{chat.run_id}   /help lists the commands; Ctrl-C stops a turn, Ctrl-D leaves")
        if chat.is_under_way:
            say("the last turn was interrupted; continuing it")
            perform(chat.go_on())
        while not chat.is_over:
            try:
                line = read_line("> ").strip()
            except EOFError:
                break
            except KeyboardInterrupt:
                say("no turn is under way; Ctrl-D leaves")
                continue
            if line in {"/quit", "/exit"}:
                break
            if line:
                self._handle(line, perform)
        say("ended" if chat.is_over else f"to continue: {resume_command(chat.command, chat.runs, chat.run_id)}")
        return 1 if chat.has_failed else 0

    def _handle(self, line: str, perform: Perform) -> None:
        name, _, rest = line.partition(" ")
        try:
            if not line.startswith("/"):
                perform(self._chat.say(line))
            elif name == "/rerun":
                perform(self._chat.say(rest.strip(), rerun=True))
            elif name in _EVENTS:
                perform(self._chat.tell(_EVENTS[name]))
            elif name in _VIEWS:
                self._display.say(_VIEWS[name](self._chat, rest.strip()))
            else:
                self._display.say(f"unknown command {name}\n{HELP}")
        except (DsaError, OSError) as error:
            self._display.say(str(error))


def _state(chat: Chat, _rest: str) -> str:
    return f"{chat.state}   {', '.join(f'{name} = {show_value(value)}' for name, value in chat.values.items())}"


def _artifacts(chat: Chat, _rest: str) -> str:
    lines = []
    for each in chat.conversation.inventory:
        also = "".join(f"; also {alias}" for alias, _ in each.aliases)
        facts = f"{each.kind}  {each.size_bytes:,} bytes  by {each.producer}, call {each.source_call_id}"
        lines.append(f"{each.artifact_id:<5} {each.file_name}  {facts}{also}")
    return "\n".join(lines) or "there are no artifacts yet"


def _branch(chat: Chat, rest: str) -> str:
    turns = len(chat.conversation.turns)
    if rest and not (rest.isdigit() and int(rest) <= turns):
        return f"/branch takes the number of a turn, 0 to {turns}, not '{rest}'"
    number = int(rest) if rest else turns
    name = branch(chat.runs, chat.run_id, number)
    return f"{name} is this conversation up to the end of turn {number}; to continue it: {resume_command(chat.command, chat.runs, name)}"


def _export(chat: Chat, rest: str) -> str:
    folder = Path(rest or f"{chat.run_id}-export")
    conversation, files = chat.conversation, chat.resources.files
    names = ["conversation.md", *(each.file_name for each in conversation.inventory)]
    if there := [name for name in names if (folder / name).exists()]:
        return f"nothing was written: {folder} already contains {', '.join(there[:5])}; name another folder"
    folder.mkdir(parents=True, exist_ok=True)
    for each in conversation.inventory:
        shutil.copyfile(files.path(each.digest), folder / each.file_name)
    turns = [f"## {turn.number}. {turn.text}\n\n{turn.answer or '(no answer)'}" for turn in conversation.turns]
    text = "\n\n".join([f"# {chat.run_id}", *turns])
    (folder / "conversation.md").write_text(f"{text}\n", encoding="utf-8")
    return f"{len(conversation.inventory)} files and conversation.md are in {folder}"


_EVENTS = {"/retry": "retried", "/dismiss": "dismissed", "/end": "ended"}
_VIEWS: dict[str, Callable[[Chat, str], str]] = {
    "/state": _state,
    "/artifacts": _artifacts,
    "/counters": lambda chat, _rest: json.dumps(as_data(counters_of(chat.conversation)), indent=2),
    "/cancel": lambda _chat, _rest: "no turn is under way; Ctrl-C stops one",
    "/branch": _branch,
    "/export": _export,
    "/help": lambda _chat, _rest: HELP,
}


_RESUME_ALONE = (
    "--resume continues with the settings of the conversation: leave out DATA, --format, --param and --no-.."
)
_MODELS = "http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE. A resumed conversation keeps its model by default."


@click.command("chat", cls=JsonRunCommand)
@click.argument("data", nargs=-1, metavar="[DATA]...", type=click.Path(path_type=Path))
@click.option(
    "--ask",
    "messages",
    multiple=True,
    metavar="TEXT",
    help="Send TEXT and end; repeat the option to send several messages one after the other.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="The seed of the model: another seed gives other answers."
)
@click.option(
    "--context-tokens",
    type=click.IntRange(LEAST_TOKENS),
    metavar="N",
    help="Send at most about N tokens of the conversation in a request. You can change it at each --resume.",
)
@click.option(
    "--resume", "run", metavar="RUN", help="Continue the conversation RUN: its name, a part of its name, or `last`."
)
@click.option("--take", is_flag=True, help="Take over the conversation, even if another process is driving it.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Also show the phases of each turn, and how malformed calls were corrected."
)
@click.option("--format", "format_", type=click.Choice(["none", "report"]), default="none", show_default=True, help="report: write each answer as Markdown and PDF too.")  # fmt: skip
@click.option(
    "--no-dedup",
    is_flag=True,
    help="Do not detect repeated work. For measurements: this shows how much the detection helps.",
)
@click.option(
    "--no-normalise",
    is_flag=True,
    help="Do not correct malformed calls. Use this to measure what the corrections are worth.",
)
@runs_option
@watching_options
@partial(options_saying, model=_MODELS, parameter="Set a bound, such as max_rounds=8.")
def command(
    messages: tuple[str, ...],
    run: str | None,
    root: str,
    *,
    take: bool,
    verbose: bool,
    context_tokens: int | None,
    options: RunOptions,
    **choices: Any,  # noqa: ANN401  (options)
) -> None:
    """Talk with a model about DATA: CSV, Parquet, JSON, SQLite or DuckDB files.

    The model uses SQL and Python. Both run in a sandbox. Files made by SQL or Python are in the folder `files` of the run's own folder. With --json, each turn
    prints one line, which is a JSON object. Exit code 0: the last turn was answered; 1: it ended with an error, or there is no model; 2: DATA or RUN cannot be used; 130: Ctrl-C stopped a turn.
    """
    is_other = any(choices[name] for name in ("data", "no_dedup", "no_normalise")) or bool(options.parameters)
    if run is not None and (is_other or choices["format_"] != "none"):
        raise click.UsageError(_RESUME_ALONE)
    if any(not text.strip() for text in messages) or (options.json_wanted and not messages):
        raise click.UsageError("give a message that is not empty: --ask TEXT")
    folder = Path(root)
    display = ChatDisplay(terminal(), folder, is_verbose=verbose)
    if context_tokens is not None:
        options = attrs.evolve(options, config={"context_tokens": context_tokens})
    if run is None:
        sys.exit(
            _hold(display, folder, options, messages, partial(Chat.begin, _settings(options, **choices)), is_new=True)
        )
    with open_run_folder(folder) as runs:
        run = find(runs.ids(), run, folder)
    sys.exit(resume(run, folder, options, take=take, messages=messages, display=display))


def resume(
    run_id: str,
    root: Path,
    options: RunOptions,
    *,
    take: bool,
    messages: tuple[str, ...] = (),
    display: ChatDisplay | None = None,
) -> int:
    """Continue a conversation, at the terminal unless `messages` is not empty; return the exit code. `dsa resume` calls this too."""
    note_run(root / run_id)
    with open_run_folder(root) as runs:
        options = options.as_started(runs.stored_run(run_id))
    begin = partial(Chat.resume, run_id, options=options.changes, take=take)
    return _hold(display or ChatDisplay(terminal(), root), root, options, messages, begin, is_new=False)


def _settings(
    options: RunOptions, *, data: tuple[Path, ...], seed: int, format_: str, no_normalise: bool, no_dedup: bool
) -> ChatStart:
    """Return the settings of the command line."""
    return ChatStart(
        options.model or "", data, seed, format_, not no_normalise, not no_dedup, options.parameters,
        options.config.get("context_tokens"), budget=options.budget, module=options.module, secrets=options.watch_options.secret_options,
    )  # fmt: skip


def _hold(
    display: ChatDisplay,
    root: Path,
    options: RunOptions,
    messages: tuple[str, ...],
    begin: Callable[[Runs, SessionListeners], Chat],
    *,
    is_new: bool,
) -> int:
    """Hold a conversation until the user leaves it; return the exit code."""
    is_shown = not options.shows_nothing

    def show(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        if moment.number == 1:
            note_run(root / moment.run)
        if is_shown:
            display.on_moment(moment, is_new)

    with ExitStack() as stack:
        stack.enter_context(exit_on_faults(root))
        runs = stack.enter_context(open_runs(root, must_exist=not is_new))
        watchers = stack.enter_context(
            options.watch_options.watch(environment_secrets(options.watch_options.secret_options))
        )
        listeners = SessionListeners(watchers.observer(show))
        if is_shown:
            listeners = attrs.evolve(listeners, listen=display.listen, notice=display.notice)
        chat = stack.enter_context(begin(runs, listeners))
        if is_new and is_shown:
            display.tables(chat.resources.database.tables)
        # While a user types: a script may never need Python, which takes a second to start.
        if not messages and sys.stdin.isatty():
            chat.resources.warm()
        session = _ChatSession(chat, display, options, watchers, stack.enter_context(asyncio.Runner()))
        code = session.ask(messages) if messages else Talk(chat, display).hold(session.hear, session.read_line)
        if chat.rest is not None:
            watchers.close(chat.rest)
    return code


@attrs.frozen
class _ChatSession:
    """A conversation on the command line, with its display."""

    chat: Chat
    display: ChatDisplay
    options: RunOptions
    watchers: RunWatchers
    runner: asyncio.Runner

    def read_line(self, prompt: str) -> str:
        """Return a line that the user types."""
        text = input(prompt)
        self.watchers.note("a typed line", text)
        return text

    def hear(self, work: Any) -> Any:  # noqa: ANN401  (a coroutine, and what it gives)
        """Run a coroutine of the conversation. With `--quiet` only the answer is shown."""
        result = _run_work(self.runner, self.chat, work)
        if isinstance(result, ChatTurn) and self.options.shows_nothing and not self.options.json_wanted:
            self.display.say(result.answer or result.why or result.end_reason)
        return result

    def ask(self, texts: tuple[str, ...]) -> int:
        """Send the texts one after the other; return the exit code."""
        chat, code, start_s = self.chat, 0, time.monotonic()
        if chat.is_under_way:
            self.hear(chat.go_on())
        for text in texts:
            self.watchers.note("--ask", text)
            if not self.options.shows_nothing:
                self.display.say(f"> {text}")
            turn = self.hear(chat.say(text))
            code = EXIT_INTERRUPTED if turn.end_reason == "turn_cancelled" else int(chat.has_failed)
            if self.options.json_wanted:
                self._write(turn, code, time.monotonic() - start_s)
            if code == EXIT_INTERRUPTED:
                break
        if not self.options.json_wanted:
            retry = " (then /retry continues the turn)" if chat.has_failed else ""
            state = chat.state.rpartition(".")[2]
            again = resume_command(chat.command, chat.runs, chat.run_id)
            self.display.say(f"{chat.run_id}: {state}; to continue: {again}{retry}")
        return code

    def _write(self, turn: ChatTurn, code: int, seconds: float) -> None:
        """Print the run as a JSON object, with the turn."""
        assert self.chat.rest is not None, "a turn is over when the run rests"
        report = rest_report(self.chat.rest, self.chat.runs.where / self.chat.run_id, seconds)
        document = attrs.evolve(report, exit_code=code).to_json() | {"turn": as_data(turn_report(self.chat, turn))}
        write(f"{json.dumps(document, ensure_ascii=False)}\n")


def _run_work(runner: asyncio.Runner, chat: Chat, work: Any) -> Any:  # noqa: ANN401  (a coroutine, and what it gives)
    """Run a coroutine of the conversation. Ctrl-C stops the turn, a second one the program."""

    async def work_until_ctrl_c() -> Any:  # noqa: ANN401
        with _ctrl_c_cancels(chat):
            return await work

    return runner.run(work_until_ctrl_c())


@contextmanager
def _ctrl_c_cancels(chat: Chat) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        chat.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, ValueError, RuntimeError):  # another platform, or not the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@attrs.frozen
class CallReport:
    """A call in `--json`; `error` is the result of a tool that failed."""

    call_id: str
    tool: str
    status: str
    rescues: tuple[str, ...]
    artifacts: tuple[str, ...]
    text: str
    error: object


@attrs.frozen
class TurnReport:
    """A turn in `--json`: the message, the answer or why there is none; `artifacts` as the model sees them."""

    number: int
    said: str
    answer: str
    why: str
    calls: tuple[CallReport, ...]
    artifacts: object
    counters: ConversationCounters


def turn_report(chat: Chat, turn: ChatTurn) -> TurnReport:
    """Return the report of a turn."""
    calls = tuple(
        CallReport(
            call.call_id,
            call.tool,
            call.status,
            call.rescues,
            tuple(call.artifacts),
            call.text,
            call.result["error"] if isinstance(call.result, dict) and "error" in call.result else None,
        )
        for call in turn.calls
    )
    conversation = chat.conversation
    return TurnReport(
        turn.number, turn.text, turn.answer, turn.why, calls, conversation.inventory.descriptions(), counters_of(conversation)
    )  # fmt: skip


extension = MachineExtension(
    NAME, TranscriptDisplay, resume, show_counters, view=ChatPage, start_form=START_FORM, release=RESOURCES.release_run
)
