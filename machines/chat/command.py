"""The counters of a conversation (seed 002, workstream F): what was skipped, kept once, mended, retried.

Takes a conversation, gives numbers. They follow from the ledger: nobody has to have counted at the time.

`dsa chat [DATA...]`: talk with a model about data; a table decides what it may do.

Interactive, or with `--ask` for scripts. Lines that are typed are said; those that begin with a slash are for the program. The conversation is kept
and can be taken up again after whatever has happened; a branch is another one that begins like it, up to the end of a turn.
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

from dsa.cli.command_line import INTERRUPTED, note_run, write
from dsa.cli.ledger_view import terminal
from dsa.cli.run_options import (
    RunOptions,
    RunWatchers,
    faults_told,
    find,
    opened,
    options_saying,
    runs_option,
    watching_options,
)
from dsa.cli.run_view import JsonRunCommand, MachineExtension, rest_report
from dsa.edge.processes import environment_secrets
from dsa.errors import DsaError
from dsa.expr import show_value
from dsa.runs.place import new_run_id
from dsa.runs.runs import Runs, length_before, open_runs
from dsa.runtime.ledger import Entry
from dsa.runtime.timeline import Moment
from machines.chat.chat_display import ChatDisplay, TranscriptDisplay
from machines.chat.chat_session import NAME, Chat, ChatStart
from machines.chat.conversation import ChatConversation, ChatTurn, conversation_of
from machines.tool_use.records import as_data
from machines.tool_use.transcript import LEAST_TOKENS


@attrs.frozen
class RetryCounts:
    """How often the model was told how to try again, and how often that has helped."""

    guided: int
    succeeded: int


@attrs.frozen
class ConversationCounters:
    """All counters, as `--json` and `/counters` show them; `retry_success_rate` is None where nothing was retried."""

    turns: int
    model_answers: int
    calls: Mapping[str, int]
    reasons: Mapping[str, int]
    rescues: Mapping[str, int]
    artifacts: int
    retries: RetryCounts
    retry_success_rate: float | None


def counted(entries: Iterable[Entry]) -> dict[str, int | float | str]:
    """Return what `dsa show --counters` says of a conversation beside what it counts of any run."""
    found = counters_of(conversation_of(entries))
    rate = found.retry_success_rate
    return {
        "turns": found.turns,
        "answers of the model": found.model_answers,
        "artifacts": found.artifacts,
        "duplicate skips": found.reasons.get("duplicate_tool_call_skipped", 0),
        "artifact dedups": found.reasons.get("duplicate_artifact_prevented", 0),
        "rescues": sum(found.rescues.values()),
        "guided retries": found.retries.guided,
        "of these succeeded": found.retries.succeeded,
        "retry success rate": "none were made" if rate is None else rate,
    }


def counters_of(conversation: ChatConversation) -> ConversationCounters:
    """Count what a conversation has seen."""
    guided, helped = conversation.guided, conversation.guided_well
    return ConversationCounters(
        len(conversation.turns),
        conversation.transcript.answers,
        dict(sorted(conversation.tools.items())),
        dict(sorted(conversation.reasons.items())),
        dict(sorted(conversation.transcript.rescues.items())),
        len(conversation.inventory),
        RetryCounts(guided, helped),
        helped / guided if guided else None,
    )


def branch(runs: Runs, run_id: str, turn: int) -> str:
    """Make a branch of a conversation after a turn (0: before the first), and return its id.

    What was made until then goes with it. Raises BranchError where the conversation did not rest, UnknownRunError.
    """
    assert runs.root is not None, "conversations are kept in a folder"
    name, length = new_run_id(NAME), length_before(runs.recorded(run_id).entries, "message", turn + 1)
    try:
        _copy(runs.root / run_id, runs.root / name)
        return runs.branch(run_id, length, name)
    except BaseException:
        shutil.rmtree(runs.root / name, ignore_errors=True)
        raise


def _copy(old: Path, new: Path) -> None:
    """Return the branch its own folder with the same contents; they never change, so they are links where that is possible."""
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
/artifacts         what was made          /counters        what was skipped, mended, retried
/state             the phase              /branch [TURN]   another conversation, up to the end of a turn
/cancel            (while a turn goes on: Ctrl-C)   /export [DIR]    copy the files, and what was said
/retry, /dismiss   after an error         /rerun TEXT      say TEXT; work may be done again
/end               end it for good        /quit            leave it; it can be resumed"""


class Talk:
    """A conversation with somebody at a terminal."""

    def __init__(self, chat: Chat, display: ChatDisplay) -> None:
        self._chat, self._display = chat, display

    def hold(self, perform: Perform, read: Callable[[str], str] = input) -> int:
        """Read and say lines until the user leaves. Gives the exit code."""
        chat, say = self._chat, self._display.say
        say(f"{chat.run_id}   /help lists what else there is; Ctrl-C stops a turn, Ctrl-D leaves")
        if chat.is_under_way:
            say("the last turn was cut off; it goes on")
            perform(chat.go_on())
        while not chat.is_over:
            try:
                line = read("> ").strip()
            except EOFError:
                break
            except KeyboardInterrupt:
                say("no turn goes on; Ctrl-D leaves")
                continue
            if line in {"/quit", "/exit"}:
                break
            if line:
                self._said(line, perform)
        say("ended" if chat.is_over else f"go on with: dsa chat --resume {chat.run_id}")
        return 1 if chat.has_failed else 0

    def _said(self, line: str, perform: Perform) -> None:
        name, _, rest = line.partition(" ")
        try:
            if not line.startswith("/"):
                perform(self._chat.say(line))
            elif name == "/rerun":
                perform(self._chat.say(rest.strip(), rerun=True))
            elif name in _TELLING:
                perform(self._chat.tell(_TELLING[name]))
            elif name in _SHOWING:
                self._display.say(_SHOWING[name](self._chat, rest.strip()))
            else:
                self._display.say(f"there is no {name}\n{HELP}")
        except (DsaError, OSError) as error:
            self._display.say(str(error))


def _state(chat: Chat, _rest: str) -> str:
    return f"{chat.state}   {', '.join(f'{name} = {show_value(value)}' for name, value in chat.values.items())}"


def _artifacts(chat: Chat, _rest: str) -> str:
    lines = []
    for each in chat.conversation.inventory:
        also = "".join(f"; also {alias}" for alias, _ in each.aliases)
        made = f"{each.kind}  {each.size_bytes:,} bytes  by {each.producer}, call {each.source_call_id}"
        lines.append(f"{each.artifact_id:<5} {each.file_name}  {made}{also}")
    return "\n".join(lines) or "nothing was made yet"


def _branch(chat: Chat, rest: str) -> str:
    turns = len(chat.conversation.turns)
    if rest and not (rest.isdigit() and int(rest) <= turns):
        return f"/branch takes the number of a turn, 0 to {turns}, not '{rest}'"
    number = int(rest) if rest else turns
    name = branch(chat.runs, chat.run_id, number)
    return f"{name} is this conversation up to the end of turn {number}; go on with it: dsa chat --resume {name}"


def _export(chat: Chat, rest: str) -> str:
    folder = Path(rest or f"{chat.run_id}-export")
    conversation, files = chat.conversation, chat.resources.files
    names = ["conversation.md", *(each.file_name for each in conversation.inventory)]
    if there := [name for name in names if (folder / name).exists()]:
        return f"nothing was written: {', '.join(there[:5])} {'is' if len(there) == 1 else 'are'} in {folder} already; name another folder"
    folder.mkdir(parents=True, exist_ok=True)
    for each in conversation.inventory:
        shutil.copyfile(files.path(each.digest), folder / each.file_name)
    turns = [f"## {turn.number}. {turn.text}\n\n{turn.answer or '(no answer)'}" for turn in conversation.turns]
    text = "\n\n".join([f"# {chat.run_id}", *turns])
    (folder / "conversation.md").write_text(f"{text}\n", encoding="utf-8")
    return f"{len(conversation.inventory)} files and conversation.md are in {folder}"


_TELLING = {"/retry": "retried", "/dismiss": "dismissed", "/end": "ended"}
_SHOWING: dict[str, Callable[[Chat, str], str]] = {
    "/state": _state,
    "/artifacts": _artifacts,
    "/counters": lambda chat, _rest: json.dumps(as_data(counters_of(chat.conversation)), indent=2),
    "/cancel": lambda _chat, _rest: "no turn goes on; Ctrl-C stops one that does",
    "/branch": _branch,
    "/export": _export,
    "/help": lambda _chat, _rest: HELP,
}


_AS_BEGUN = "--resume goes on as the conversation was begun: it takes no DATA, --format, --param or --no-.."
_MODELS = "http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE. A conversation has no other default than its own."


@click.command("chat", cls=JsonRunCommand)
@click.argument("data", nargs=-1, metavar="[DATA]...", type=click.Path(path_type=Path))
@click.option("--ask", "asked", multiple=True, metavar="TEXT", help="Say this and end; several are said in turn.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other answers.")
@click.option(
    "--context-tokens",
    type=click.IntRange(LEAST_TOKENS),
    metavar="N",
    help="Send at most about N tokens of the conversation in a request. It can be another one each time that it is resumed.",
)
@click.option("--resume", "run", metavar="RUN", help="Go on with a conversation: its name, a part of it, or last.")
@click.option("--take", is_flag=True, help="Take it from a process that holds it.")
@click.option("-v", "--verbose", is_flag=True, help="Show phases too, and what was mended in calls.")
@click.option("--format", "format_", type=click.Choice(["none", "report"]), default="none", show_default=True, help="report: each answer also as Markdown and PDF.")  # fmt: skip
@click.option("--no-dedup", is_flag=True, help="Let everything be done again: to see what the guards are worth.")
@click.option("--no-normalise", is_flag=True, help="Take calls as they are sent: to see what mending is worth.")
@runs_option
@watching_options
@partial(options_saying, model=_MODELS, parameter="Set a bound, such as max_rounds=8.")
def command(
    asked: tuple[str, ...],
    run: str | None,
    root: str,
    *,
    take: bool,
    verbose: bool,
    context_tokens: int | None,
    options: RunOptions,
    **said: Any,  # noqa: ANN401  (options)
) -> None:
    """Talk with a model about DATA: CSV, Parquet, JSON, SQLite or DuckDB files.

    The model asks with SQL and Python; both run where they can do no harm, files are kept under DIR/RUN/files. With --json one object is printed a
    turn, on a line. Exit code 0: the last turn was answered; 1: it ended with an error, or there is no model; 2: DATA or RUN cannot be used; 130: a
    turn was stopped by Ctrl-C.
    """
    is_other = any(said[name] for name in ("data", "no_dedup", "no_normalise")) or bool(options.parameters)
    if run is not None and (is_other or said["format_"] != "none"):
        raise click.UsageError(_AS_BEGUN)
    if any(not text.strip() for text in asked) or (options.json_wanted and not asked):
        raise click.UsageError("say something: --ask TEXT")
    folder = Path(root)
    display = ChatDisplay(terminal(), folder, is_verbose=verbose)
    if context_tokens is not None:
        options = attrs.evolve(options, config={"context_tokens": context_tokens})
    if run is None:
        sys.exit(_held(display, folder, options, asked, partial(Chat.begin, _settings(options, **said)), is_new=True))
    with opened(folder) as runs:
        run = find(runs.ids(), run, folder)
    sys.exit(resumed(run, folder, options, take=take, asked=asked, display=display))


def resumed(
    run_id: str,
    root: Path,
    options: RunOptions,
    *,
    take: bool,
    asked: tuple[str, ...] = (),
    display: ChatDisplay | None = None,
) -> int:
    """Go on with a conversation, at the terminal unless something is asked; return the exit code. `dsa resume` does it too."""
    note_run(root / run_id)
    with opened(root) as runs:
        options = options.continuing(runs.recorded(run_id))
    begin = partial(Chat.resume, run_id, options=options.changes, take=take)
    return _held(display or ChatDisplay(terminal(), root), root, options, asked, begin, is_new=False)


def _settings(
    options: RunOptions, *, data: tuple[Path, ...], seed: int, format_: str, no_normalise: bool, no_dedup: bool
) -> ChatStart:
    """Put together what the command line says."""
    return ChatStart(
        options.model or "", data, seed, format_, not no_normalise, not no_dedup, options.parameters,
        options.config.get("context_tokens"), budget=options.budget, module=options.module, chosen=options.watching.chosen,
    )  # fmt: skip


def _held(
    display: ChatDisplay,
    root: Path,
    options: RunOptions,
    asked: tuple[str, ...],
    begin: Callable[..., Chat],
    *,
    is_new: bool,
) -> int:
    """Hold a conversation until it is left; return the exit code."""
    is_shown = not options.shows_nothing

    def show(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        if moment.number == 1:
            note_run(root / moment.run)
        if is_shown:
            display.on_moment(moment, is_new)

    with ExitStack() as entered:
        entered.enter_context(faults_told(root))
        runs = entered.enter_context(open_runs(root, must_exist=not is_new))
        watched = entered.enter_context(options.watching.watched(environment_secrets(options.watching.chosen)))
        how = {"listen": display.listen, "notice": display.notice} if is_shown else {}
        chat = entered.enter_context(begin(runs, on_moment=watched.observing(show), **how))
        if is_new and is_shown:
            display.tables(chat.resources.database.tables)
        chat.resources.warm()
        spoken = _ChatSession(chat, display, options, watched, entered.enter_context(asyncio.Runner()))
        code = spoken.ask(asked) if asked else Talk(chat, display).hold(spoken.hear, spoken.read)
        if chat.rest is not None:
            watched.rested(chat.rest)
    return code


@attrs.frozen
class _ChatSession:
    """A conversation on the command line, and how it is shown."""

    chat: Chat
    display: ChatDisplay
    options: RunOptions
    watched: RunWatchers
    runner: asyncio.Runner

    def read(self, prompt: str) -> str:
        """Read what the user types."""
        text = input(prompt)
        self.watched.note("what was typed", text)
        return text

    def hear(self, work: Any) -> Any:  # noqa: ANN401  (a coroutine, and what it gives)
        """Do something with the conversation; where nothing else is shown, what was answered is all the same."""
        found = _heard(self.runner, self.chat, work)
        if isinstance(found, ChatTurn) and self.options.shows_nothing and not self.options.json_wanted:
            self.display.say(found.answer or found.why or found.ended)
        return found

    def ask(self, texts: tuple[str, ...]) -> int:
        """Return what was given, one after the other; return the exit code."""
        chat, code, began = self.chat, 0, time.monotonic()
        if chat.is_under_way:
            self.hear(chat.go_on())
        for text in texts:
            self.watched.note("--ask", text)
            if not self.options.shows_nothing:
                self.display.say(f"> {text}")
            turn = self.hear(chat.say(text))
            code = INTERRUPTED if turn.ended == "turn_cancelled" else int(chat.has_failed)
            if self.options.json_wanted:
                self._write(turn, code, time.monotonic() - began)
            if code == INTERRUPTED:
                break
        if not self.options.json_wanted:
            retry = " (there /retry goes on with the turn)" if chat.has_failed else ""
            state = chat.state.rpartition(".")[2]
            self.display.say(f"{chat.run_id}: {state}; go on with: dsa chat --resume {chat.run_id}{retry}")
        return code

    def _write(self, turn: ChatTurn, code: int, seconds: float) -> None:
        """Write the run as a JSON object, with the turn."""
        assert self.chat.rest is not None, "a turn is over when the run rests"
        assert self.chat.runs.root is not None, "commands keep their runs in a folder"
        report = rest_report(self.chat.rest, self.chat.runs.root / self.chat.run_id, seconds)
        told = attrs.evolve(report, exit_code=code).to_json() | {"turn": as_data(turn_report(self.chat, turn))}
        write(f"{json.dumps(told, ensure_ascii=False)}\n")


def _heard(runner: asyncio.Runner, chat: Chat, work: Any) -> Any:  # noqa: ANN401  (a coroutine, and what it gives)
    """Do something with the conversation; Ctrl-C stops the turn, a second one the program."""

    async def heard() -> Any:  # noqa: ANN401
        with _stopped_by_ctrl_c(chat):
            return await work

    return runner.run(heard())


@contextmanager
def _stopped_by_ctrl_c(chat: Chat) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        chat.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, ValueError, RuntimeError):  # elsewhere, or not in the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@attrs.frozen
class CallReport:
    """A call as `--json` tells of it; `error` is what a tool that failed gave."""

    call_id: str
    tool: str
    status: str
    rescues: tuple[str, ...]
    artifacts: tuple[str, ...]
    text: str
    error: object


@attrs.frozen
class TurnReport:
    """A turn as `--json` tells of it: what was said, the answer or why there is none; `artifacts` as the model sees them."""

    number: int
    said: str
    answer: str
    why: str
    calls: tuple[CallReport, ...]
    artifacts: object
    counters: ConversationCounters


def turn_report(chat: Chat, turn: ChatTurn) -> TurnReport:
    """Return what is told of a turn."""
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
        turn.number, turn.text, turn.answer, turn.why, calls, conversation.inventory.described(), counters_of(conversation)
    )  # fmt: skip


extension = MachineExtension(NAME, TranscriptDisplay, resumed, counted)
