"""What the command line says of a run's secrets, logs and traces; for every command that lets a run go on.

Takes options, gives who watches the run: log lines on standard error, spans to a collector. Standard output stays the result's.

Recorded runs as several commands need them: which one is meant, what it holds, why it cannot be read.

Takes what a user wrote for RUN and `--runs`, returns recorded and replayed runs; every fault becomes a sentence and an exit code.

The options that every command takes which starts a run or lets one go on, each with one meaning.
"""

import asyncio
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, cast

import attrs
import click
from click.decorators import FC

from dsa.cli.command_line import (
    INTERRUPTED,
    UNREADABLE,
    CommandExit,
    Word,
    json_option,
    note_run,
    param_option,
    parse_parameters,
    patient,
    say,
)
from dsa.declarations import parse_duration
from dsa.edge.telemetry import LEVELS, Form, Telemetry, TelemetryError, is_configured, log_to, trace_run
from dsa.errors import GenerationError
from dsa.expr import Value
from dsa.generators.model_options import require_model_name
from dsa.runs.archive import OtherMachineError, RunRecord, record_of
from dsa.runs.place import DEFAULT_RUNS, PART_OF
from dsa.runs.runs import Runs, open_runs
from dsa.runs.setup import Options
from dsa.runtime.artifacts import ArtifactStoreError
from dsa.runtime.ledger import MachineEntry, place_in_part
from dsa.runtime.policy.call_tree import ReplayMismatchError
from dsa.runtime.run import ReplayError
from dsa.runtime.run_store import DamageError, HeldError, StoredRun, StoreError
from dsa.runtime.secrets import SecretOptions, Secrets
from dsa.runtime.status import Rest
from dsa.runtime.timeline import OnMoment, to_all
from dsa.text import nearest

_STARTED = "secrets"  # where the first entry of a run keeps what was chosen


@attrs.frozen
class WatchOptions:
    """What was chosen: secrets, the level and form of log lines (None: no lines), and whether to trace (None: if the environment says so)."""

    chosen: SecretOptions = attrs.field(factory=SecretOptions)
    level: str | None = None
    form: Form = "text"
    otel: bool | None = None

    @property
    def is_logging(self) -> bool:
        """Return whether log lines take the place of the progress that is shown."""
        return self.level is not None

    def started(self) -> dict[str, Any]:
        """Return what a run keeps of this, so that it goes on in the same way: nothing when nothing was chosen."""
        return {_STARTED: attrs.asdict(self.chosen)} if self.chosen else {}

    def continuing(self, started: Mapping[str, Any]) -> "WatchOptions":
        """Return this with what was chosen when the run was started."""
        before = {name: tuple(said) for name, said in (started.get(_STARTED) or {}).items()}
        return attrs.evolve(self, chosen=SecretOptions(**before) | self.chosen)

    @contextmanager
    def watched(self, secrets: Secrets) -> Iterator["RunWatchers"]:
        """Log and trace what happens meanwhile. Raises TelemetryError when traces are asked for by option and cannot be made."""
        with ExitStack() as opened:
            if self.level is not None:
                opened.enter_context(log_to(patient(sys.stderr), self.level, self.form, secrets))
            wanted = is_configured() if self.otel is None else self.otel
            yield RunWatchers(secrets, self._traced(secrets, opened) if wanted else None)

    def _traced(self, secrets: Secrets, opened: ExitStack) -> Telemetry | None:
        try:
            return opened.enter_context(trace_run(secrets, lambda lost: say(f"telemetry: {lost}", err=True)))
        except TelemetryError as fault:
            if self.otel:
                raise
            say(f"telemetry: {fault}", err=True)  # the variables may be there for other programs
            return None


@attrs.frozen
class RunWatchers:
    """Who watches a run beside the one who shows it."""

    _secrets: Secrets
    _telemetry: Telemetry | None

    def observing(self, show: OnMoment) -> OnMoment:
        """Return an observer that shows, and traces where that is wanted."""
        telemetry = self._telemetry
        return show if telemetry is None else to_all(show, telemetry.on_moment)

    def rested(self, rest: Rest) -> None:
        """Say to the trace how the run came to rest."""
        if self._telemetry is not None:
            self._telemetry.close(None if rest.failure is None else str(rest.failure))

    def note(self, what: str, data: object) -> None:
        """Say on standard error when something that a person gives to a run has a secret in it."""
        names = sorted({name for text in _texts(data) for _, name in self._secrets.places(text)})
        if names:
            marks = ", ".join(f"[secret {name}]" for name in names)
            say(f"note: {what} has a secret in it; the run, and its model, get {marks} in its place", err=True)


def _texts(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping | list | tuple):
        for item in (*data, *data.values()) if isinstance(data, Mapping) else data:
            yield from _texts(item)


def _require_set(names: Sequence[str]) -> None:
    """Raise UsageError unless all of these are variables that are set. What is none may be a secret itself: it is not repeated."""
    for number, name in enumerate(names, start=1):
        if name not in os.environ:
            which = f" ({number} of {len(names)})" if len(names) > 1 else ""
            told = "--secret takes the name of a variable that is set"
            raise click.UsageError(f"{told}; there is none of the name given{which}")


def watching_options(command: FC) -> FC:
    """Add the options about secrets, logs and traces; the command gets them as one argument, `watching`."""

    @click.option(
        "--secret", "names", multiple=True, metavar="NAME", help="The value of the variable NAME is a secret too."
    )
    @click.option("--secret-pattern", "patterns", multiple=True, metavar="REGEX", help="What matches is a secret.")
    @click.option(
        "--not-secret", "spared", multiple=True, metavar="NAME", help="NAME is no secret, whatever it is called."
    )
    @click.option("--log", "level", type=Word(LEVELS), help="Log each ledger entry on standard error.")
    @click.option("--log-format", "form", type=Word(["text", "json"]), default="text", show_default=True)
    @click.option(
        "--otel/--no-otel", default=None, help="Trace with OpenTelemetry; default: if its variables say where to."
    )
    @wraps(command)
    def collected(
        *arguments: Any,  # noqa: ANN401  (the command's own)
        names: tuple[str, ...],
        patterns: tuple[str, ...],
        spared: tuple[str, ...],
        level: str | None,
        form: Form,
        otel: bool | None,
        **given: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        _require_set(names)
        chosen = SecretOptions(names, patterns, spared)
        return command(*arguments, watching=WatchOptions(chosen, level, form, otel), **given)

    return cast(FC, collected)


LAST = "last"
_SHOWN = 3
runs_option = click.option("--runs", "root", default=DEFAULT_RUNS, show_default=True, help="Where runs are kept.")
_BUDGET = (
    "At most so much in all, as calls=20 or usd=0.5, or of one effect, as EFFECT.tokens=4000; units: calls, tokens, usd, seconds. "
    "Calls are tries of any effect that has answers, not of the model alone: EFFECT.calls=20 counts those of one."
)
budget_option = click.option("--budget", multiple=True, metavar="LIMIT", help=_BUDGET)


@contextmanager
def opened(root: Path) -> Iterator[Runs]:
    """Open the runs of a folder to read them. Raises Ended, and DocumentError when no run is kept there."""
    with faults_told(root):
        runs = open_runs(root, must_exist=True)
        try:
            yield runs
        finally:
            asyncio.run(runs.close())


def find(ids: Sequence[str], wanted: str, root: Path) -> str:
    """Return the id of the run that a user means, one of `ids`: an id, a part of just one, its folder, or `last`. Raises Ended.

    Runs that are a part of another one are meant when they are named, or a part of their name that the other has not.
    """
    wanted = wanted.rstrip("/").rpartition("/")[2]  # a shell completes the name of a run's folder
    if wanted in ids:
        return wanted
    if not ids:
        raise CommandExit(f"{root}: no run is kept here", UNREADABLE)
    whole, _, part = wanted.partition(PART_OF)
    if whole == LAST:
        newest = next((run for run in reversed(ids) if PART_OF not in run), ids[-1])
        return find(ids, f"{newest}{PART_OF}{part}", root) if part else newest
    named = [run for run in ids if wanted in run]
    found = [run for run in named if PART_OF not in run] or named
    if len(found) == 1:
        return found[0]
    if found:
        told = f"'{wanted}' is a part of {len(found)} runs in {root}: {_some(found)}"
        raise CommandExit(f"{told}; write more of it", UNREADABLE)
    meant = nearest(wanted, (LAST, *ids))
    hint = f"did you mean '{meant}'?" if meant else f"the newest: {_some(ids[-_SHOWN:])};"
    raise CommandExit(f"there is no run '{wanted}' in {root}; {hint} `dsa runs` lists them all", UNREADABLE)


def _some(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else ""
    return ", ".join(runs[:_SHOWN]) + more


def recorded_run(root: Path, wanted: str) -> StoredRun:
    """Read the run that a user means. Raises Ended, and DocumentError when no run is kept there."""
    with opened(root) as runs:
        found = find(runs.ids(), wanted, root)
        note_run(root / found)
        return runs.stored_run(found)


def told_record(root: Path, recorded: StoredRun) -> RunRecord:
    """Replay the run of a machine that was read. Raises Ended."""
    with faults_told(root):
        return machine_record(recorded)


def machine_record(recorded: StoredRun) -> RunRecord:
    """Replay a recorded run. Raises OtherMachineError; Ended for a run that is not its machine's."""
    try:
        return record_of(recorded)
    except ReplayError as fault:
        raise CommandExit(f"damaged: run {recorded.run}, {fault}", 1) from fault


@contextmanager
def faults_told(root: Path, directory: Callable[[], Path | None] = lambda: None) -> Iterator[None]:
    """Turn what can go wrong with a run into a sentence and an exit code.

    `directory` gives the folder of the run that is driven, if one is.
    """
    try:
        yield
    except HeldError as error:
        alive = "that process is alive, and goes on with it; --take takes the run away from it"
        raise CommandExit(f"{error}: {alive}", 1) from error
    except DamageError as error:
        raise CommandExit(f"damaged: {error}", 1) from error
    except OtherMachineError as error:
        document = root / error.run / "machine.md"
        told = f"`dsa diff {document} FILE` says what FILE changes, `dsa replay {error.run} --against FILE` whether the run fits it"
        raise CommandExit(f"{error}; {told}", 1) from error
    except (ReplayMismatchError, GenerationError, StoreError, ArtifactStoreError) as error:
        raise CommandExit(str(error), 1) from error
    except OSError as error:
        raise CommandExit(
            f"the run cannot be written to {directory() or root}: {error.strerror or error}", 1
        ) from error
    except KeyboardInterrupt:
        at = directory()
        kept = f"; what was done so far is kept in {at}: `{line('resume', at)}` goes on" if at else ""
        raise CommandExit(f"interrupted{kept}", INTERRUPTED, directory=at) from None


def line(verb: str, directory: Path, *words: str, at: str = "") -> str:
    """Return the command that does something with the run of a directory, ready to paste; `at` is the place of the question that it answers, maybe in a part of the run."""
    root = directory.parent
    where = [] if str(root) == DEFAULT_RUNS else ["--runs", str(root)]
    return shlex.join(["dsa", verb, place_in_part(directory.name, at) if at else directory.name, *words, *where])


@attrs.frozen
class RunOptions:
    """What was chosen for a run; of a recorded one, None and empty is as it was started.

    `module` binds names, `parameters` are values by name, `budget` are limits, `watching` says what is secret, logged and traced. `wait_s` is how
    many seconds a timer is waited for. `config` is what policies can read, where it is to be another than at the start.
    """

    model: str | None = None
    module: str | None = None
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    budget: tuple[str, ...] = ()
    quiet: bool = False
    json_wanted: bool = False
    watching: WatchOptions = attrs.field(factory=WatchOptions)
    wait_s: float = math.inf
    config: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def shows_nothing(self) -> bool:
        """Return whether no progress is shown: nobody wants it, or log lines take its place."""
        return self.quiet or self.json_wanted or self.watching.is_logging

    def continuing(self, recorded: StoredRun) -> "RunOptions":
        """Return this with the secrets that were chosen when a run was started."""
        first = recorded.entries[0]
        started = dict(first.started) if isinstance(first, MachineEntry) else {}
        return attrs.evolve(self, watching=self.watching.continuing(started))

    @property
    def changes(self) -> Options:
        """How a recorded run is bound otherwise than as it was started."""
        return Options(
            self.module, self.model, budget=self.budget, secret_options=self.watching.chosen, config=self.config
        )


def model_named(_context: click.Context, _option: click.Parameter, model: str | None) -> str | None:
    """Return the model as it is written; to be used as an option's callback. Raises click.BadParameter for what can be no model."""
    if model is not None:
        try:
            require_model_name(model)
        except ValueError as fault:
            raise click.BadParameter(str(fault)) from fault
    return model


def duration_s(_context: click.Context, _option: click.Parameter, written: str) -> float:
    """Return a duration in seconds; to be used as an option's callback. Raises click.BadParameter."""
    duration_ms = 0 if written == "0" else parse_duration(written)
    if duration_ms is None:
        raise click.BadParameter(f"'{written}' is not a duration; write 0s, 90s, 15m, 24h or 2d")
    return duration_ms / 1000


_MODEL = "local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name. Without it: local, or that of the run."


def options_saying(command: FC, model: str, parameter: str) -> FC:
    """Add the options of a run, with what a command says of its models and of its parameters."""

    @click.option("--model", callback=model_named, help=model)
    @click.option("--with", "module", metavar="MODULE", help="Bind names with this module, by its name or file.")
    @param_option(parameter)
    @budget_option
    @json_option
    @click.option("--quiet", is_flag=True, help="Print no progress.")
    @wraps(command)
    def collected(
        *arguments: Any,  # noqa: ANN401  (the command's own)
        model: str | None,
        module: str | None,
        parameters: tuple[str, ...],
        budget: tuple[str, ...],
        watching: WatchOptions,
        quiet: bool,
        json_wanted: bool,
        **given: Any,  # noqa: ANN401  (the command's own)
    ) -> Any:  # noqa: ANN401
        values = parse_parameters(parameters)
        options = RunOptions(model, module, values, budget, quiet, json_wanted, watching)
        return command(*arguments, options=options, **given)

    return cast(FC, collected)


def run_options(command: FC) -> FC:
    """Add these options; the command gets them as one argument, `options`. `watching_options` goes above."""

    @click.option(
        "--wait",
        "wait_s",
        metavar="DURATION",
        callback=duration_s,
        default="60s",
        show_default=True,
        help="Stay while the next timer is due within DURATION, such as 90s, 15m or 24h.",
    )
    @wraps(command)
    def waiting(*arguments: Any, options: RunOptions, wait_s: float, **given: Any) -> Any:  # noqa: ANN401  (the command's own)
        return command(*arguments, options=attrs.evolve(options, wait_s=wait_s), **given)

    return options_saying(cast(FC, waiting), _MODEL, "Set a parameter, such as rmax=5.")
