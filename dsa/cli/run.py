"""A run as people watch it: one row for each attempt, on a terminal as a table that grows, elsewhere as plain lines.

Takes ledger entries as they are appended; prints to the console it is given and decides nothing.

How a run is shown while it goes on, and afterwards: by its machine's own display where it has one, else attempt by attempt.

A display is made of a console and the folder of the runs, is given moments, shows what a run that rests asks of people, and ends the line that it has begun.
A machine that people talk with says how `dsa resume` goes on at the terminal (`MachineExtension`).

`dsa run FILE [SPECIFICATION]`: run a machine with a model, every attempt checked by its guard and kept.

`dsa run --policy NAME TEXT` runs a policy instead: a run of the shipped machine `policy`.

Commands of shipped machines, found by their entry points, since nothing here imports a machine.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from importlib.metadata import entry_points
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

from dsa.cli.command_line import note_run, printable, read_data, require_text, say
from dsa.cli.ledger_view import CallDisplay, due, terminal
from dsa.cli.run_options import RunOptions, RunWatchers, faults_told, run_options, runs_option, watching_options
from dsa.cli.run_view import FinishedRun, JsonRunCommand, exit_code, extension_of, perform, tell
from dsa.data_use import GENERATING_EFFECT, SPECIFICATION
from dsa.declarations import OUTSIDE
from dsa.edge.binding import Bindings
from dsa.edge.document_files import load, locate, read_text
from dsa.errors import DocumentError
from dsa.generators.local_model import LocalGenerator
from dsa.generators.model_options import SCRIPT_PREFIX
from dsa.lang import machine_of
from dsa.machine import ArmTimer, DropTimer, Machine, arm_commands, step_of, timers_after
from dsa.runs.bindings import DEFAULT_MODEL, request, require_policy
from dsa.runs.handle import RunHandle
from dsa.runs.place import new_run_id
from dsa.runs.runs import Runs, open_runs
from dsa.runs.setup import MachineDocument, Options, first_event, takes_specification
from dsa.runtime import ledger
from dsa.runtime.content import placeholders
from dsa.runtime.ledger import Intents, part_in
from dsa.runtime.policy.call_tree import POLICY
from dsa.runtime.timeline import Moment
from dsa.semantics import accepted_events

_STYLES = {"passed": "green", "rejected": "yellow", "review": "bold yellow", "fatal": "bold red", "error": "bold red"}
_VERDICT_WIDTH = 9
_PLAIN_FEEDBACK = 70
_ATTEMPTING = (GENERATING_EFFECT, "execute_guard")  # an attempt ends when one of these fails
_MOST_TEXT = 2000
_NARROW = 50  # columns; below, a table would show nothing of the feedback
_MARGIN = 3  # lines for the table's head, and what stands above it


@attrs.frozen
class AttemptRow:
    """One attempt: what is known of it so far. An empty verdict means that it is under way."""

    step: str
    attempt: int
    artifact_id: str = ""
    verdict: str = ""
    feedback: str = ""
    seconds: float = 0.0

    @property
    def doing(self) -> str:
        """What is being done now."""
        return "checking" if self.artifact_id else "generating"


class Progress:
    """Shows a run. Pass `on_moment` to it; use it as a context manager so that the terminal is given back."""

    def __init__(self, machine: Machine, console: Console, *, quiet: bool = False) -> None:
        self._machine = machine
        self._console = console
        self._quiet = quiet
        self._state = machine.entry_leaf(machine.initial)
        self._intents = Intents()
        self._arrived = ledger.EventEntry(0, "")
        self._rows: list[AttemptRow] = []
        self._asked: Counter[str] = Counter()
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
        """Draw the whole table, and return the terminal back."""
        if self._live is not None:
            self._live.update(self._table(len(self._rows)))
            self._live.stop()

    def rests(self, _directory: Path) -> None:
        """Show nothing more: what a run asks of people is said by the command."""

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show what a moment changes; there is no line for one that was there before the run went on."""
        quiet, self._quiet = self._quiet, self._quiet or not is_new
        self._show(moment.entry)
        self._quiet = quiet

    def _show(self, entry: ledger.Entry) -> None:
        self._intents.take(entry)
        match entry:
            case ledger.EffectEntry(effect=effect) if effect == GENERATING_EFFECT:
                step = step_of(self._machine, self._state)
                self._asked[step] += 1
                self._rows.append(AttemptRow(step, self._asked[step]))
            case ledger.ArtifactEntry():
                self._generated(entry)
            case ledger.VerdictEntry():
                self._judged(entry)
            case ledger.ResultEntry(key=key) if self._intents.effect(key) in _ATTEMPTING:
                self._failed(entry)
            case ledger.EventEntry():
                self._arrived = entry
                return
            case ledger.RowEntry(target=target):
                self._state = target
                self._waits(self._started(entry), self._arrived.at_ms)
                return
            case ledger.MachineEntry(at_ms=at_ms):
                self._waits(arm_commands(self._machine, self._machine.armed_timers(self._state)), at_ms)
                return
            case _:
                return
        if self._live is not None:
            self._live.update(self._table(self._console.height - _MARGIN))

    def _started(self, row: ledger.RowEntry) -> tuple[ArmTimer | DropTimer, ...]:
        """Return what becomes of timers with a row that was taken for what has arrived."""
        for each in self._machine.transitions:
            is_there = each.event == self._arrived.event and each.source in self._machine.ancestry(row.source)
            if is_there and (each.span.line if each.span else None) == row.line:
                return timers_after(self._machine, row.source, each, row.target)
        return ()

    def _waits(self, timers: Iterable[ArmTimer | DropTimer], at_ms: int) -> None:
        """Say for what a run waits that will not wait for ever: otherwise nobody would know why nothing happens."""
        named = self._machine.event_named
        accepted = accepted_events(self._machine, self._state)
        outside = [event for event in accepted if event in named and named[event].origin == OUTSIDE]
        for timer in timers if outside and not self._quiet else ():
            if isinstance(timer, ArmTimer):
                waits = f"waiting in {self._state} for: {', '.join(outside)}"
                told = f"{waits}; {timer.event} is due {due(at_ms + timer.duration_ms)}"
                self._console.print(Text(printable(told)), soft_wrap=True)

    def _generated(self, entry: ledger.ArtifactEntry) -> None:
        row = AttemptRow(entry.step, entry.attempt, entry.artifact_id, seconds=entry.seconds)
        if self._rows and not self._rows[-1].artifact_id and self._rows[-1].step == entry.step:
            self._rows[-1] = row
        else:
            self._rows.append(row)  # a person's text: nobody was asked for it
        self._asked[entry.step] = entry.attempt
        self._row_of[entry.artifact_id] = len(self._rows) - 1

    def _judged(self, entry: ledger.VerdictEntry) -> None:
        number = self._row_of.get(entry.artifact_id)
        if number is not None:
            row, feedback = self._rows[number], _one_line(entry.feedback)
            seconds = row.seconds + entry.seconds
            self._rows[number] = attrs.evolve(row, verdict=entry.word, feedback=feedback, seconds=seconds)
            self._print(self._rows[number])

    def _failed(self, entry: ledger.ResultEntry) -> None:
        """Show an attempt that ended with neither artifact nor verdict, or rests until a part of the run has what it waits for."""
        part = part_in(entry)
        faults = [step["payload"] for step in entry.steps if step["payload"].get("error") is True]
        if faults and self._rows and not self._rows[-1].verdict:
            message = _one_line(str(faults[0].get("message", ""))) if part is None else f"for {part.run}"
            word = "error" if part is None else "waits"
            self._rows[-1] = attrs.evolve(self._rows[-1], verdict=word, feedback=message)
            self._print(self._rows[-1])

    def _print(self, row: AttemptRow) -> None:
        """Print one finished attempt as a plain line."""
        if self._quiet or self._draws:
            return
        feedback = row.feedback if len(row.feedback) <= _PLAIN_FEEDBACK else row.feedback[:_PLAIN_FEEDBACK] + "..."
        line = (
            f"{row.step:<{self._width}}  attempt {row.attempt:>2}  {row.verdict:<{_VERDICT_WIDTH}}"
            f"{row.seconds:6.1f} s  {feedback}"
        )
        self._console.print(line.rstrip(), highlight=False, markup=False, soft_wrap=True)

    def _table(self, most: int) -> Table:
        """Draw the newest rows; while the run goes on, no more than the terminal has room for."""
        table = Table(box=None, pad_edge=False)
        table.add_column("step", style="bold", no_wrap=True)
        table.add_column("attempt", justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        table.add_column("seconds", justify="right", no_wrap=True)
        table.add_column("feedback", overflow="ellipsis", no_wrap=True, ratio=1)
        for row in self._rows[-max(1, most) :]:
            verdict = Text(row.verdict, _STYLES.get(row.verdict, "")) if row.verdict else self._doing(row)
            seconds = f"{row.seconds:.1f}" if row.seconds else ""
            table.add_row(row.step, str(row.attempt), verdict, seconds, Text(row.feedback, "dim"))
        return table

    def _doing(self, row: AttemptRow) -> Spinner:
        self._spinner.update(text=Text(row.doing, "dim"))
        return self._spinner


def _one_line(text: str) -> str:
    """Return a text as one printable line, no longer than anyone will look at."""
    return printable(" ".join(text[:_MOST_TEXT].split()))


class RunDisplay(Protocol):
    """What shows runs of one machine."""

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show what happened; what was there before the run was taken up is only noted."""

    def rests(self, directory: Path, /) -> None:
        """Show what the run asks of people, whole, if it has come to rest at a question; `directory` is its own."""

    def end(self) -> None:
        """End a line that was begun."""


def display_of(machine: str, console: Console, root: Path) -> RunDisplay | None:
    """Return the display of a machine, by its name; None where it has none. `root` is the folder of the runs."""
    if machine == POLICY:
        return CallDisplay(console)
    own = extension_of(machine).display
    return None if own is None else own(console, root)


class ResumeCommand(Protocol):
    """Goes on with a run of one machine in its own display; returns the exit code."""

    def __call__(self, run_id: str, root: Path, options: RunOptions, /, *, take: bool) -> int:
        """Take up the run `run_id` of the folder `root`, from a living process too if `take` says so."""


def resuming_of(machine: str) -> ResumeCommand | None:
    """Return how people go on with a run of a machine; None where it has no way of its own."""
    return extension_of(machine).resume


@contextmanager
def progress_of(machine: Machine, console: Console, root: Path, *, quiet: bool) -> Iterator[RunDisplay]:
    """Yield what shows a run that is taken up, as long as it is driven."""
    display = None if quiet else display_of(machine.name, console, root)
    if display is None:
        with Progress(machine, console, quiet=quiet) as progress:
            yield progress
        return
    try:
        yield display
    finally:
        display.end()


@attrs.frozen
class AskedPolicy:
    """A policy that is asked a text, and what it can read of the command line."""

    policy: str
    text: str
    config: Mapping[str, Any]


def or_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--policy NAME` and `--over DIR` to `dsa run`: with them another thing is run than its FILE."""

    @click.option("--policy", metavar="NAME", help="Run this policy: dsa run --policy NAME TEXT.")
    @click.option("--over", metavar="DIR", help="The folder that the policy works on; by default this one.")
    @wraps(command)
    def run(*, policy: str | None, over: str | None, **given: Any) -> None:  # noqa: ANN401  (the command's own)
        if policy is None:
            if over is not None:
                raise click.UsageError("--over goes with --policy NAME")
            if given["file"] is None:
                raise click.UsageError("Missing argument 'FILE', or --policy NAME.")
            command(**given, policy=None)
        else:
            command(**given, policy=AskedPolicy(policy, _text(given), _config(over, given["model"])))

    return run


def _text(given: Mapping[str, Any]) -> str:
    """Return what a policy is asked. Raises UsageError when it is asked nothing, and for two texts."""
    text, more = given["file"], given["specification"]
    if more is not None:
        said = f"given are '{text}' and '{more}'. A TEXT of several words needs quotes"
        raise click.UsageError(f"--policy takes one TEXT and no FILE; {said}")
    if text is None or not text.strip():
        raise click.UsageError('--policy needs a TEXT, what the policy is asked: dsa run --policy NAME "..."')
    if given["data"] is not None:
        raise click.UsageError("--data goes with FILE: a policy is asked a TEXT")
    return require_text(text, "TEXT")


def _config(over: str | None, model: str | None) -> dict[str, Any]:
    """Return what policies can read of the command line beside model and seed. DocumentError for a folder or script that cannot be read."""
    folder = Path(over or ".")
    if not folder.is_dir():
        missing = "is not a folder" if folder.exists() else "there is no such folder"
        raise DocumentError(str(folder), f"{missing}; --over names the one that is searched")
    if model is not None and model.startswith(SCRIPT_PREFIX):
        read_text(model.removeprefix(SCRIPT_PREFIX))
    return {"over": str(folder.absolute())}


@click.command("run", cls=JsonRunCommand)
@click.argument("file", required=False, metavar="FILE")
@click.argument("specification", required=False)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives other texts.")
@click.option("--data", metavar="DATA", help="What the first event brings, in place of SPECIFICATION: JSON, or a text.")
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
    """Run FILE, a machine document or the name of a shipped machine. `dsa run --policy NAME TEXT` runs a policy instead.

    SPECIFICATION is what the workflow is asked for, in a sentence. It may be left out when no task of a step asks for it, or
    when the machine has cases and no steps: then it is to make the cases' calls work. Exit code 0: succeeded; 1: failed; 3: a person is needed;
    2: FILE cannot be read or bound; 130: interrupted.
    """
    file = file if policy is None else POLICY
    document = machine_document(file)
    machine = load(file if document == locate(file) else str(document)).at(dict(options.parameters))
    asked: object = policy
    if policy is None:
        asked = asked_for(machine, specification) if data is None else start_data(machine, specification, data)
    console = terminal()
    performed = RunRequest(MachineDocument(machine, read_text(document), document), asked, Path(root), seed).run(
        options, console, is_model_told=True
    )
    tell(performed, console, json_wanted=options.json_wanted)
    sys.exit(exit_code(performed.rest))


def machine_document(file: str) -> Path:
    """Return the path of the machine's own document: FILE's, or that of the machine which FILE, a spec, is about."""
    path = locate(file)
    named = machine_of(read_text(path), file)
    return path if named is None else locate(named[0], path.parent)


@attrs.frozen
class RunRequest:
    """A run to be started: a document, what its first event brings (None: nothing), where it is kept, its seed.

    `data` may be a policy that is asked: then it brings the request.
    """

    document: MachineDocument
    data: Any
    root: Path
    seed: int

    def run(self, options: RunOptions, console: Console, *, is_model_told: bool = False) -> FinishedRun:
        """Run the document while its progress is shown. Raises Ended when there is no model, and at Ctrl-C.

        `is_model_told`: print which model is taken when none was chosen.
        """
        machine, watching = self.document.machine, options.watching
        run_id = new_run_id(machine.name)
        directory = self.root / run_id
        with (
            faults_told(self.root, lambda: directory if directory.is_dir() else None),
            progress_of(machine, console, self.root, quiet=options.shows_nothing) as progress,
            ExitStack() as opened,
        ):
            watchers = list[RunWatchers]()

            def on_moment(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
                if moment.number == 1:
                    note_run(directory)
                progress.on_moment(moment, is_new)

            async def begin(runs: Runs) -> RunHandle:
                setup = runs.setup(self.document, self._options(options))
                for note in (*setup.binding.notes, *(_model_note(setup.binding, options) if is_model_told else ())):
                    say(note, err=True)
                watched = opened.enter_context(watching.watched(setup.binding.secrets))  # a module may name more
                watched.note(*self._noted())
                watchers.append(watched)
                first = first_event(machine, self._brought(setup.binding))
                handle = runs.begin(setup, run_id=run_id, on_moment=watched.observing(on_moment))
                handle.start(*first)
                return handle

            performed = perform(partial(open_runs, self.root), begin, options.wait_s)
            watchers[0].rested(performed.rest)
            return performed

    def _options(self, options: RunOptions) -> Options:
        config = self.data.config if isinstance(self.data, AskedPolicy) else {}
        chosen = options.watching.chosen
        return Options(
            options.module, options.model, self.seed, budget=options.budget, secret_options=chosen, config=config
        )

    def _noted(self) -> tuple[str, object]:
        """Return what is searched for secrets, and its name."""
        return ("TEXT", self.data.text) if isinstance(self.data, AskedPolicy) else ("the specification", self.data)

    def _brought(self, binding: Bindings) -> object:
        """Return the data of the first event. Raises BindingError for a policy that is not there."""
        if not isinstance(self.data, AskedPolicy):
            return self.data
        data = request(self.data.policy, {"text": self.data.text}, binding.policies)
        require_policy(data, binding)
        return data


def _model_note(binding: Bindings, options: RunOptions) -> Iterator[str]:
    """Yield which model is asked when nobody has chosen one."""
    if options.model is None and any(isinstance(each, LocalGenerator) for each in binding.generators.values()):
        yield f"model: {DEFAULT_MODEL}, the built-in one; --model takes another"


def start_data(machine: Machine, specification: str | None, written: str) -> Any:  # noqa: ANN401  (JSON)
    """Return what a run's first event brings. Raises click.UsageError for a SPECIFICATION beside it, and where no event brings it."""
    if specification is not None:
        raise click.UsageError("SPECIFICATION and --data are two ways to say the same: give one")
    data = read_data(written)
    try:
        first_event(machine, data)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from fault
    return data


def asked_for(machine: Machine, given: str | None) -> str | None:
    """Return the specification: what the command line says, else what the machine does with; None for a machine that takes none.

    Raises click.UsageError when the machine takes none, when it needs one, and for what is no text.
    """
    if given is None or not given.strip():
        return default_specification(machine) or None
    if not takes_specification(machine):
        raise click.UsageError(f"{machine.name} has no event '{SPECIFICATION}' from outside: it takes no SPECIFICATION")
    return require_text(given, "SPECIFICATION")


def default_specification(machine: Machine) -> str:
    """Return what to ask for when the command line does not say.

    Nothing, when every prompt does without; of a machine without steps, the functions that its cases call. Raises
    click.UsageError when there is nothing to go by.
    """
    if not takes_specification(machine) or not _needs_specification(machine):
        return ""
    calls = [case.call for section in machine.cases for case in section.cases]
    if not calls or machine.steps:
        raise click.UsageError(f"{machine.name} needs a SPECIFICATION: say in a sentence what is to be made")
    return f"Write Python code so that these calls work: {'; '.join(dict.fromkeys(calls))}"


def _needs_specification(machine: Machine) -> bool:
    tasks = {step.name: step.task for step in machine.steps}
    tasks |= {prompt.name: prompt.task for prompt in machine.prompts if prompt.task}
    return not tasks or any(not task or SPECIFICATION in placeholders(task) for task in tasks.values())


def command_of(name: str) -> click.Command:
    """Return a command by its name."""
    found, *_ = entry_points(group="dsa.commands", name=name)
    command: click.Command = found.load()
    return command
