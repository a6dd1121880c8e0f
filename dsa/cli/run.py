"""`dsa run FILE [SPECIFICATION]`: run a machine with a model; every attempt is checked by its guard and kept.

`dsa run --policy NAME TEXT` runs a policy instead, as a run of the shipped machine `policy`. Progress is shown as a table on a terminal and as lines
elsewhere, or by the machine's own display. A display is made with a console and the folder of the runs, and gets moments. A machine that people talk
with may have its own `resume` as well (`MachineExtension` in `dsa.runs.machine_extension`). Nothing here imports a machine: displays and commands of
machines are found by their entry points.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import attrs
import click
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dsa.cli.command_line import note_run, read_data, require_text, say
from dsa.cli.ledger_view import CallDisplay, terminal
from dsa.cli.run_options import RunOptions, RunWatchers, exit_on_faults, run_options, runs_option, watching_options
from dsa.cli.run_view import FinishedRun, JsonRunCommand, exit_code, perform, print_result
from dsa.data_use import GENERATING_EFFECT, SPECIFICATION
from dsa.declarations import OUTSIDE
from dsa.edge.binding import Bindings
from dsa.edge.document_files import load, locate, read_text
from dsa.edge.plugins import installed_points
from dsa.errors import DocumentError
from dsa.generators.local_model import LocalGenerator
from dsa.generators.model_options import SCRIPT_PREFIX
from dsa.lang import machine_of
from dsa.machine import ArmTimer, DropTimer, Machine, arm_commands, sleeping_effects, step_of, timers_after
from dsa.runs.bindings import DEFAULT_MODEL, request, require_policy
from dsa.runs.door import Runs
from dsa.runs.handle import RunHandle
from dsa.runs.machine_extension import extension_of
from dsa.runs.place import new_run_id
from dsa.runs.runs import open_runs
from dsa.runs.setup import MachineDocument, Options, first_event, takes_specification
from dsa.runtime import ledger
from dsa.runtime.content import placeholders
from dsa.runtime.ledger import Intents, part_in
from dsa.runtime.ledger_story import due_text
from dsa.runtime.policy.call_tree import POLICY
from dsa.runtime.timeline import Moment
from dsa.semantics import accepted_events
from dsa.text import printable

_STYLES = {"passed": "green", "rejected": "yellow", "review": "bold yellow", "fatal": "bold red", "error": "bold red"}
_VERDICT_WIDTH = 9
_PLAIN_FEEDBACK = 70
_ATTEMPT_EFFECTS = (GENERATING_EFFECT, "execute_guard")  # an attempt ends when one of these fails
_MOST_TEXT, _SECOND_MS = 2000, 1000
_NARROW = 50  # columns; below, a table would show nothing of the feedback
_MARGIN = 3  # the table's head, and the lines above it


@attrs.frozen
class AttemptRow:
    """One attempt so far. An empty verdict means that it is under way."""

    step: str
    attempt: int
    artifact_id: str = ""
    verdict: str = ""
    feedback: str = ""
    seconds: float = 0.0

    @property
    def activity(self) -> str:
        """The present activity."""
        return "checking" if self.artifact_id else "generating"


class Progress:
    """The progress of a run: attempts with their verdicts. Pass `on_moment` to the run; as a context manager it restores the terminal."""

    def __init__(self, machine: Machine, console: Console, *, quiet: bool = False, wait_s: float = math.inf) -> None:
        self._machine = machine
        self._console = console
        self._quiet, self._wait_s = quiet, wait_s
        self._state = machine.entry_leaf(machine.initial)
        self._intents = Intents()
        self._last_event = ledger.EventEntry(0, "")
        self._rows: list[AttemptRow] = []
        self._attempt_counts: Counter[str] = Counter()
        self._row_of: dict[str, int] = {}
        self._width = max((len(step.name) for step in machine.steps), default=len(step_of(machine, "")))
        self._live = Live(console=console, refresh_per_second=8, transient=False) if self._draws else None
        self._spinner = Spinner("dots")

    @property
    def _draws(self) -> bool:
        return self._console.is_terminal and not self._quiet and self._console.width >= _NARROW

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Draw the whole table, and restore the terminal."""
        if self._live is not None:
            self._live.update(self._table(len(self._rows)))
            self._live.stop()

    def rests(self, _directory: Path) -> None:
        """Show nothing more, because the command prints the questions of a run."""

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show what a moment changes. A moment from before the run was resumed has no line."""
        quiet, self._quiet = self._quiet, self._quiet or not is_new
        self._show(moment.entry)
        self._quiet = quiet

    def _show(self, entry: ledger.Entry) -> None:
        self._intents.take(entry)
        match entry:
            case ledger.EffectEntry(effect=effect) if effect in sleeping_effects(self._machine):
                due_ms = self._last_event.at_ms + sleeping_effects(self._machine)[effect]
                self._waits([(self._machine.answers[effect][0], due_ms)], self._last_event.at_ms)
            case ledger.EffectEntry(effect=effect) if effect == GENERATING_EFFECT:
                step = step_of(self._machine, self._state)
                self._attempt_counts[step] += 1
                self._rows.append(AttemptRow(step, self._attempt_counts[step]))
            case ledger.ArtifactEntry():
                self._add_artifact(entry)
            case ledger.VerdictEntry():
                self._add_verdict(entry)
            case ledger.ResultEntry(key=key) if self._intents.effect(key) in _ATTEMPT_EFFECTS:
                self._add_error(entry)
            case ledger.EventEntry():
                self._last_event = entry
                return
            case ledger.RowEntry(target=target):
                self._state = target
                at_ms = self._last_event.at_ms
                self._waits(_deadlines(self._timers_of(entry), at_ms), at_ms)
                return
            case ledger.MachineEntry(at_ms=at_ms):
                timers = arm_commands(self._machine, self._machine.armed_timers(self._state))
                self._waits(_deadlines(timers, at_ms), at_ms)
                return
            case _:
                return
        if self._live is not None:
            self._live.update(self._table(self._console.height - _MARGIN))

    def _timers_of(self, row: ledger.RowEntry) -> tuple[ArmTimer | DropTimer, ...]:
        """Return the changes of timers by the row that took the last event."""
        for each in self._machine.transitions:
            is_there = each.event == self._last_event.event and each.source in self._machine.ancestry(row.source)
            if is_there and (each.span.line if each.span else None) == row.line:
                return timers_after(self._machine, row.source, each, row.target)
        return ()

    def _waits(self, deadlines: Iterable[tuple[str, int]], at_ms: int) -> None:
        """Print what a run waits for while a timer runs or an effect sleeps for which the command waits, too.

        Without this line nobody would know why nothing happens. If the command does not wait, it says so at its end.
        """
        events = self._machine.event_named
        accepted = accepted_events(self._machine, self._state)
        outside = [event for event in accepted if event in events and events[event].origin == OUTSIDE]
        soon = [(event, due_ms) for event, due_ms in deadlines if due_ms - at_ms <= self._wait_s * _SECOND_MS]
        for event, due_ms in soon if outside and not self._quiet else ():
            waits = f"waiting in {self._state} for: {', '.join(outside)}"
            self._console.print(Text(printable(f"{waits}; {event} is due {due_text(due_ms)}")), soft_wrap=True)

    def _add_artifact(self, entry: ledger.ArtifactEntry) -> None:
        row = AttemptRow(entry.step, entry.attempt, entry.artifact_id, seconds=entry.seconds)
        if self._rows and not self._rows[-1].artifact_id and self._rows[-1].step == entry.step:
            self._rows[-1] = row
        else:
            self._rows.append(row)  # a person's text, which no effect asked for
        self._attempt_counts[entry.step] = entry.attempt
        self._row_of[entry.artifact_id] = len(self._rows) - 1

    def _add_verdict(self, entry: ledger.VerdictEntry) -> None:
        number = self._row_of.get(entry.artifact_id)
        if number is not None:
            row, feedback = self._rows[number], _one_line(entry.feedback)
            seconds = row.seconds + entry.seconds
            self._rows[number] = attrs.evolve(row, verdict=entry.word, feedback=feedback, seconds=seconds)
            self._print(self._rows[number])

    def _add_error(self, entry: ledger.ResultEntry) -> None:
        """Show an attempt that ended with an error, or that waits for a part of the run."""
        part = part_in(entry)
        faults = [step["payload"] for step in entry.steps if step["payload"].get("error") is True]
        if faults and self._rows and not self._rows[-1].verdict:
            message = _one_line(str(faults[0].get("message", ""))) if part is None else f"for {part.run}"
            word = "error" if part is None else "waits"
            self._rows[-1] = attrs.evolve(self._rows[-1], verdict=word, feedback=message)
            self._print(self._rows[-1])

    def _print(self, row: AttemptRow) -> None:
        """Print a finished attempt as a line."""
        if self._quiet or self._draws:
            return
        feedback = row.feedback if len(row.feedback) <= _PLAIN_FEEDBACK else row.feedback[:_PLAIN_FEEDBACK] + "..."
        line = (
            f"{row.step:<{self._width}}  attempt {row.attempt:>2}  {row.verdict:<{_VERDICT_WIDTH}}"
            f"{row.seconds:6.1f} s  {feedback}"
        )
        self._console.print(line.rstrip(), highlight=False, markup=False, soft_wrap=True)

    def _table(self, most: int) -> Table:
        """Return the table of the newest `most` rows; while the run goes on, that is what the terminal has room for."""
        table = Table(box=None, pad_edge=False)
        table.add_column("step", style="bold", no_wrap=True)
        table.add_column("attempt", justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        table.add_column("seconds", justify="right", no_wrap=True)
        table.add_column("feedback", overflow="ellipsis", no_wrap=True, ratio=1)
        for row in self._rows[-max(1, most) :]:
            verdict = Text(row.verdict, _STYLES.get(row.verdict, "")) if row.verdict else self._activity_spinner(row)
            seconds = f"{row.seconds:.1f}" if row.seconds else ""
            table.add_row(row.step, str(row.attempt), verdict, seconds, Text(row.feedback, "dim"))
        return table

    def _activity_spinner(self, row: AttemptRow) -> Spinner:
        self._spinner.update(text=Text(row.activity, "dim"))
        return self._spinner


def _deadlines(changes: Iterable[ArmTimer | DropTimer], at_ms: int) -> Iterator[tuple[str, int]]:
    """Yield the timers that are started at a time, with the times at which they are due."""
    for change in changes:
        if isinstance(change, ArmTimer):
            yield change.event, at_ms + change.duration_ms


def _one_line(text: str) -> str:
    """Return a text as one printable line, cut to a bounded length."""
    return printable(" ".join(text[:_MOST_TEXT].split()))


class RunDisplay(Protocol):
    """The display of runs of one machine."""

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show a moment; a moment from before the run was resumed is only recorded."""

    def rests(self, directory: Path, /) -> None:
        """Show the whole question to people if the run has come to rest at one; `directory` is the run's folder."""

    def end(self) -> None:
        """End an incomplete line."""


def display_of(machine: str, console: Console, root: Path) -> RunDisplay | None:
    """Return the display of a machine, by its name; None if it has none. `root` is the folder of the runs."""
    if machine == POLICY:
        return CallDisplay(console)
    own = extension_of(machine).display
    return None if own is None else own(console, root)


class ResumeCommand(Protocol):
    """A command that resumes a run of one machine in its own display, and returns the exit code."""

    def __call__(self, run_id: str, root: Path, options: RunOptions, /, *, take: bool) -> int:
        """Resume the run `run_id` of the folder `root`; with `take`, take it from a live process."""


def resuming_of(machine: str) -> ResumeCommand | None:
    """Return the command that resumes a run of a machine in its own display; None if it has none."""
    return extension_of(machine).resume


@contextmanager
def progress_of(machine: Machine, console: Console, root: Path, options: RunOptions) -> Iterator[RunDisplay]:
    """Return the display of a run, for as long as it is driven."""
    quiet = options.shows_nothing
    display = None if quiet else display_of(machine.name, console, root)
    if display is None:
        with Progress(machine, console, quiet=quiet, wait_s=options.wait_s) as progress:
            yield progress
        return
    try:
        yield display
    finally:
        display.end()


@attrs.frozen
class AskedPolicy:
    """A policy, the text for it, and the settings of the command line that it can read."""

    policy: str
    text: str
    config: Mapping[str, Any]


def or_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--policy NAME` and `--over DIR` to `dsa run`, which run a policy instead of a FILE."""

    @click.option("--policy", metavar="NAME", help="Run this policy: dsa run --policy NAME TEXT.")
    @click.option("--over", metavar="DIR", help="The folder that the policy works on; by default the current folder.")
    @wraps(command)
    def run(*, policy: str | None, over: str | None, **arguments: Any) -> None:  # noqa: ANN401  (the command's own)
        if policy is None:
            if over is not None:
                raise click.UsageError("--over goes with --policy NAME")
            if arguments["file"] is None:
                raise click.UsageError("Missing argument 'FILE', or --policy NAME.")
            command(**arguments, policy=None)
        else:
            command(**arguments, policy=AskedPolicy(policy, _text(arguments), _config(over, arguments["model"])))

    return run


def _text(arguments: Mapping[str, Any]) -> str:
    """Return the text for a policy. Raises UsageError if there is none, and for two texts."""
    text, more = arguments["file"], arguments["specification"]
    if more is not None:
        texts = f"got '{text}' and '{more}'. A TEXT of several words needs quotes"
        raise click.UsageError(f"--policy takes one TEXT and no FILE; {texts}")
    if text is None or not text.strip():
        raise click.UsageError('--policy needs a TEXT for the policy: dsa run --policy NAME "..."')
    if arguments["data"] is not None:
        raise click.UsageError("--data is only for the run of a machine; a policy gets its input as TEXT")
    return require_text(text, "TEXT")


def _config(over: str | None, model: str | None) -> dict[str, Any]:
    """Return the settings that policies can read beside model and seed. Raises DocumentError for a folder or script that cannot be read."""
    folder = Path(over or ".")
    if not folder.is_dir():
        missing = "is not a folder" if folder.exists() else "there is no such folder"
        raise DocumentError(str(folder), f"{missing}; --over names the folder that the policy works on")
    if model is not None and model.startswith(SCRIPT_PREFIX):
        read_text(model.removeprefix(SCRIPT_PREFIX))
    return {"over": str(folder.absolute())}


@click.command("run", cls=JsonRunCommand)
@click.argument("file", required=False, metavar="FILE")
@click.argument("specification", required=False)
@click.option("--seed", type=int, default=0, show_default=True, help="The random seed; another seed gives other texts.")
@click.option(
    "--data", metavar="DATA", help="The data of the first event, as JSON or plain text, in place of SPECIFICATION."
)
@runs_option
@watching_options
@or_policy
@run_options
def command(
    file: str,
    specification: str | None,
    *,
    seed: int,
    data: str | None,
    root: str,
    options: RunOptions,
    policy: AskedPolicy | None,
) -> None:
    """Run FILE, a machine document or the name of a shipped machine. `dsa run --policy NAME TEXT` runs a policy instead: the async Python function that is registered as NAME, with TEXT as its input.

    SPECIFICATION says in a sentence what the workflow should make. You can leave it out if no step's task uses it. You can also leave it out if
    the machine has cases but no steps; the model is then asked for code that passes the cases. Exit code 0: succeeded; 1: failed; 3: a person is needed;
    2: FILE cannot be read, or its code does not fit its table; 130: interrupted.
    """
    file = file if policy is None else POLICY
    document = machine_document(file)
    machine = load(file if document == locate(file) else str(document)).at(dict(options.parameters))
    specification_data: object = policy
    if policy is None:
        specification_data = (
            specification_for(machine, specification) if data is None else start_data(machine, specification, data)
        )
    console = terminal()
    finished_run = RunRequest(
        MachineDocument(machine, read_text(document), document), specification_data, Path(root), seed
    ).run(options, console, prints_model=True)
    print_result(finished_run, console, json_wanted=options.json_wanted)
    sys.exit(exit_code(finished_run.rest))


def machine_document(file: str) -> Path:
    """Return the path of the machine's document: FILE, or the document of the machine that FILE, a spec, is about."""
    path = locate(file)
    reference = machine_of(read_text(path), file)
    return path if reference is None else locate(reference[0], path.parent)


class _NewRun:
    """The run that a command begins: whether it exists, and where."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._exists = directory, False

    def note(self) -> None:
        """Record that it exists."""
        if not self._exists:
            note_run(self._directory)
            self._exists = True

    def place(self) -> Path | None:
        """Return where it is; None as long as it does not exist."""
        return self._directory if self._exists or self._directory.is_dir() else None


@attrs.frozen
class RunRequest:
    """A request for a run: a document, the data of its first event (or None), the folder of its runs, and its seed.

    `data` may be an `AskedPolicy`; the first event then has the request for the policy.
    """

    document: MachineDocument
    data: Any
    root: Path
    seed: int

    def run(self, options: RunOptions, console: Console, *, prints_model: bool = False) -> FinishedRun:
        """Run the document and show its progress. Raises CommandExit if there is no model, and at Ctrl-C.

        With `prints_model`, print which model is used if the user has not chosen one.
        """
        machine, watch_options = self.document.machine, options.watch_options
        run_id = new_run_id(machine.name)
        new_run = _NewRun(self.root / run_id)
        with (
            exit_on_faults(self.root, new_run.place),
            progress_of(machine, console, self.root, options) as progress,
            ExitStack() as stack,
        ):
            watchers = list[RunWatchers]()

            def on_moment(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
                new_run.note()
                progress.on_moment(moment, is_new)

            async def begin(runs: Runs) -> RunHandle:
                setup = runs.setup(self.document, self._options(options))
                for note in (*setup.binding.notes, *(_model_note(setup.binding, options) if prints_model else ())):
                    say(note, err=True)
                secrets = setup.binding.secrets  # a module may have added some
                run_watchers = stack.enter_context(watch_options.watch(secrets))
                run_watchers.note(*self._input_text())
                watchers.append(run_watchers)
                first = first_event(machine, self._first_data(setup.binding))
                handle = runs.begin(setup, run_id=run_id, on_moment=run_watchers.observer(on_moment))
                handle.start(*first)
                await handle.exists()  # a server shows the first moment later
                new_run.note()
                return handle

            finished_run = perform(partial(open_runs, self.root), begin, options.wait_s)
            watchers[0].close(finished_run.rest)
            return finished_run

    def _options(self, options: RunOptions) -> Options:
        config = self.data.config if isinstance(self.data, AskedPolicy) else {}
        secret_options = options.watch_options.secret_options
        return Options(
            options.module,
            options.model,
            self.seed,
            budget=options.budget,
            secret_options=secret_options,
            config=config,
        )

    def _input_text(self) -> tuple[str, object]:
        """Return the name and the text of the input, which is searched for secrets."""
        return ("TEXT", self.data.text) if isinstance(self.data, AskedPolicy) else ("the specification", self.data)

    def _first_data(self, binding: Bindings) -> object:
        """Return the data of the first event. Raises BindingError for a policy that does not exist."""
        if not isinstance(self.data, AskedPolicy):
            return self.data
        data = request(self.data.policy, {"text": self.data.text}, binding.policies)
        require_policy(data, binding)
        return data


def _model_note(binding: Bindings, options: RunOptions) -> Iterator[str]:
    """Yield a note on the model if the user has not chosen one."""
    if options.model is None and any(isinstance(each, LocalGenerator) for each in binding.generators.values()):
        yield f"model: {DEFAULT_MODEL}, the built-in one; --model takes another"


def start_data(machine: Machine, specification: str | None, text: str) -> Any:  # noqa: ANN401  (JSON)
    """Return the data of a run's first event. Raises click.UsageError if there is a SPECIFICATION too, and if no event can have the data."""
    if specification is not None:
        raise click.UsageError("give SPECIFICATION or --data, not both")
    data = read_data(text)
    try:
        first_event(machine, data)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from fault
    return data


def specification_for(machine: Machine, text: str | None) -> str | None:
    """Return the specification of the command line, or else the machine's default one; None for a machine that takes none.

    Raises click.UsageError if one is given and the machine takes none, if the machine needs one, and for bytes that are not UTF-8.
    """
    if text is None or not text.strip():
        return default_specification(machine) or None
    if not takes_specification(machine):
        raise click.UsageError(
            f"in {machine.name}, no event '{SPECIFICATION}' comes from outside, so the argument SPECIFICATION cannot be used"
        )
    return require_text(text, "SPECIFICATION")


def default_specification(machine: Machine) -> str:
    """Return the specification for a command line without one.

    It is "" if no prompt uses one; for a machine without steps, it asks for the functions that the cases call. Raises click.UsageError if the
    machine has neither.
    """
    if not takes_specification(machine) or not _needs_specification(machine):
        return ""
    calls = [case.call for section in machine.cases for case in section.cases]
    if not calls or machine.steps:
        raise click.UsageError(f"{machine.name} needs a SPECIFICATION: say in a sentence what it should make")
    return f"Write Python code so that these calls work: {'; '.join(dict.fromkeys(calls))}"


def _needs_specification(machine: Machine) -> bool:
    tasks = {step.name: step.task for step in machine.steps}
    tasks |= {prompt.name: prompt.task for prompt in machine.prompts if prompt.task}
    return not tasks or any(not task or SPECIFICATION in placeholders(task) for task in tasks.values())


def command_of(name: str) -> click.Command:
    """Return a command of a machine by its name."""
    entry_point, *_ = installed_points("dsa.commands").select(name=name)
    command: click.Command = entry_point.load()
    return command
