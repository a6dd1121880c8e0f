"""Run options: what commands share to choose, to read, and to drive runs, each option with one meaning.

`WatchOptions` has the choice of secrets, logs and traces, and `RunWatchers` are the log lines on standard error and the spans for a collector;
standard output is for the result. `find` returns the run that a user means, `recorded_run` reads it, and `exit_on_faults` turns every fault of a run
into a sentence and an exit code. `RunOptions` has the options of a command that starts or resumes a run.
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
    EXIT_INTERRUPTED,
    EXIT_UNREADABLE,
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
from dsa.edge.telemetry import LEVELS, Form, Telemetry, is_configured, log_to, trace_run
from dsa.errors import DsaError
from dsa.expr import Value
from dsa.generators.model_options import require_model_name
from dsa.runs.archive import OtherMachineError, RunRecord, record_of
from dsa.runs.door import Runs
from dsa.runs.place import DEFAULT_RUNS, PART_OF, directory_text, is_on_server, place_text
from dsa.runs.runs import open_runs
from dsa.runs.setup import Options
from dsa.runtime.generation import GenerationError
from dsa.runtime.ledger import MachineEntry, place_in_part
from dsa.runtime.policy.call_tree import ReplayMismatchError
from dsa.runtime.run import ReplayError
from dsa.runtime.run_store import DamageError, HeldError, StoredRun, StoreError
from dsa.runtime.secrets import SecretOptions, Secrets
from dsa.runtime.status import Rest
from dsa.runtime.timeline import OnMoment, TelemetrySpan, to_all
from dsa.text import nearest

_SECRETS_SETTING = "secrets"  # the setting in the first entry of a run with the choice of secrets


@attrs.frozen
class WatchOptions:
    """The choice of secrets, of the level and form of log lines (None: no lines), and of traces (None: as the environment says)."""

    secret_options: SecretOptions = attrs.field(factory=SecretOptions)
    level: str | None = None
    form: Form = "text"
    otel: bool | None = None

    @property
    def is_logging(self) -> bool:
        """Return whether log lines replace the display of progress."""
        return self.level is not None

    def as_started(self, settings: Mapping[str, Any]) -> "WatchOptions":
        """Return these options with the secrets that were chosen when the run was started."""
        before = {name: tuple(names) for name, names in (settings.get(_SECRETS_SETTING) or {}).items()}
        return attrs.evolve(self, secret_options=SecretOptions(**before) | self.secret_options)

    @contextmanager
    def watch(self, secrets: Secrets) -> Iterator["RunWatchers"]:
        """Log and trace inside the `with` block. Raises DsaError if `--otel` asks for traces and they cannot be made."""
        with ExitStack() as stack:
            if self.level is not None:
                stack.enter_context(log_to(patient(sys.stderr), self.level, self.form, secrets))
            has_tracing = is_configured() if self.otel is None else self.otel
            yield RunWatchers(secrets, self._open_telemetry(secrets, stack) if has_tracing else None)

    def _open_telemetry(self, secrets: Secrets, stack: ExitStack) -> Telemetry | None:
        try:
            return stack.enter_context(trace_run(secrets, lambda reason: say(f"telemetry: {reason}", err=True)))
        except DsaError as fault:
            if self.otel:
                raise
            say(f"telemetry: {fault}", err=True)  # the variables may be for other programs
            return None


@attrs.frozen
class RunWatchers:
    """The watchers of a run beside its display."""

    _secrets: Secrets
    _telemetry: Telemetry | None

    def observer(self, show: OnMoment) -> OnMoment:
        """Return an observer that calls `show`, and traces if there is a trace."""
        telemetry = self._telemetry
        return show if telemetry is None else to_all(show, telemetry.on_moment)

    @property
    def on_span(self) -> Callable[[TelemetrySpan], None] | None:
        """What takes spans that others make; None without a trace."""
        return None if self._telemetry is None else self._telemetry.emit

    def close(self, rest: Rest) -> None:
        """End the trace with the rest of the run."""
        if self._telemetry is not None:
            self._telemetry.close(None if rest.failure is None else str(rest.failure))

    def note(self, what: str, data: object) -> None:
        """Print a note on standard error if a person's input for a run has a secret in it."""
        names = sorted({name for text in _texts(data) for _, name in self._secrets.places(text)})
        if names:
            marks = ", ".join(f"[secret {name}]" for name in names)
            say(f"note: {what} contains a secret; the run and its model get {marks} instead", err=True)


def _texts(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping | list | tuple):
        for item in (*data, *data.values()) if isinstance(data, Mapping) else data:
            yield from _texts(item)


def _require_set(names: Sequence[str]) -> None:
    """Raise UsageError unless all of these are variables that are set. The message does not repeat another text, which may be a secret."""
    for number, name in enumerate(names, start=1):
        if name not in os.environ:
            which = f" ({number} of {len(names)})" if len(names) > 1 else ""
            message = "--secret takes the name of a variable that is set"
            raise click.UsageError(f"{message}; no such variable is set{which}")


_log_format_option = click.option(
    "--log-format",
    "form",
    type=Word(["text", "json"]),
    default="text",
    show_default=True,
    help="How --log writes an entry.",
)


def watching_options(command: FC) -> FC:
    """Add the options about secrets, logs and traces; the command gets them as one argument, `watch_options`."""

    @click.option(
        "--secret", "names", multiple=True, metavar="NAME", help="Treat the environment variable NAME as a secret."
    )
    @click.option(
        "--secret-pattern", "patterns", multiple=True, metavar="REGEX", help="Treat text that matches REGEX as secret."
    )
    @click.option(
        "--not-secret",
        "not_secret_names",
        multiple=True,
        metavar="NAME",
        help="Do not treat the environment variable NAME as a secret, although its name looks like one.",
    )
    @click.option("--log", "level", type=Word(LEVELS), help="Log each ledger entry on standard error.")
    @_log_format_option
    @click.option(
        "--otel/--no-otel",
        default=None,
        help="Send traces with OpenTelemetry. By default this is done if environment variables OTEL_* name a server.",
    )
    @wraps(command)
    def command_with_watch_options(
        *arguments: Any,  # noqa: ANN401  (the command's own)
        names: tuple[str, ...],
        patterns: tuple[str, ...],
        not_secret_names: tuple[str, ...],
        level: str | None,
        form: Form,
        otel: bool | None,
        **arguments_by_name: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        _require_set(names)
        secret_options = SecretOptions(names, patterns, not_secret_names)
        return command(*arguments, watch_options=WatchOptions(secret_options, level, form, otel), **arguments_by_name)

    return cast(FC, command_with_watch_options)


LAST = "last"
_MOST_NAMED = 3
runs_option = click.option(
    "--runs",
    "root",
    default=DEFAULT_RUNS,
    show_default=True,
    help="The folder of runs, or the address of a Temporal server: temporal://HOST:PORT/NAMESPACE. To choose the workers that perform the effects, add ?queue=NAME to this address.",
)
_BUDGET = (
    "A limit for the whole run, such as calls=20 or usd=0.5, or for one effect, such as EFFECT.tokens=4000. The units are calls, tokens, usd and seconds. "
    "The unit `calls` counts every attempt of an effect, failed or not. Effects that cannot return an event are not counted."
)
budget_option = click.option("--budget", multiple=True, metavar="LIMIT", help=_BUDGET)


@contextmanager
def open_run_folder(root: Path) -> Iterator[Runs]:
    """Open the runs of a folder to read them. Raises CommandExit, and DocumentError if no run is kept there."""
    with exit_on_faults(root):
        runs = open_runs(root, must_exist=True)
        try:
            yield runs
        finally:
            asyncio.run(runs.close())


def find(ids: Sequence[str], name: str, root: Path) -> str:
    """Return the id that a user means, one of `ids`: an id, a piece of just one id, the run's folder, or `last`. Raises CommandExit.

    A run that is a part of another one is meant only if the text has more of its id than that of the other.
    """
    name = name.rstrip("/").rpartition("/")[2]  # a shell completes the name of a run's folder
    if name in ids:
        return name
    if not ids:
        raise CommandExit(f"{place_text(root)}: no run is kept here", EXIT_UNREADABLE)
    whole, _, part = name.partition(PART_OF)
    if whole == LAST:
        newest = next((run for run in reversed(ids) if PART_OF not in run), ids[-1])
        return find(ids, f"{newest}{PART_OF}{part}", root) if part else newest
    matches = [run for run in ids if name in run]
    whole_matches = [run for run in matches if PART_OF not in run] or matches
    if len(whole_matches) == 1:
        return whole_matches[0]
    if whole_matches:
        message = f"'{name}' matches {len(whole_matches)} runs in {place_text(root)}: {_some(whole_matches)}"
        raise CommandExit(f"{message}; write more of the name", EXIT_UNREADABLE)
    suggestion = nearest(name, (LAST, *ids))
    hint = f"did you mean '{suggestion}'?" if suggestion else f"the newest: {_some(ids[-_MOST_NAMED:])};"
    raise CommandExit(
        f"there is no run '{name}' in {place_text(root)}; {hint} `dsa runs` lists all runs", EXIT_UNREADABLE
    )


def _some(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return ", ".join(runs[:_MOST_NAMED]) + more


def recorded_run(root: Path, name: str) -> StoredRun:
    """Read the run that a user means. Raises CommandExit, and DocumentError if no run is kept there."""
    with open_run_folder(root) as runs:
        run_id = find(runs.ids(), name, root)
        note_run(root / run_id)
        return runs.stored_run(run_id)


def replay_record(root: Path, stored_run: StoredRun) -> RunRecord:
    """Replay a stored run. Raises CommandExit."""
    with exit_on_faults(root):
        return machine_record(stored_run)


def machine_record(stored_run: StoredRun) -> RunRecord:
    """Replay a stored run. Raises OtherMachineError, and CommandExit if its entries do not follow from its machine."""
    try:
        return record_of(stored_run)
    except ReplayError as fault:
        raise CommandExit(f"damaged: run {stored_run.run}, {fault}", 1) from fault


@contextmanager
def exit_on_faults(root: Path, directory: Callable[[], Path | None] = lambda: None) -> Iterator[None]:
    """Turn the faults of a run into `CommandExit`.

    `directory` returns the folder of the run that is driven, if there is one.
    """
    try:
        yield
    except HeldError as error:
        if is_on_server(root):
            show = shell_command("show", root / error.run)
            why = f"run {error.run} is under way, and goes on by itself; `{show}` says what it waits for. With --take, it is interrupted first"
            raise CommandExit(why, 1) from error
        alive = "that process is alive and goes on with the run; --take takes over the run"
        raise CommandExit(f"{error}: {alive}", 1) from error
    except DamageError as error:
        raise CommandExit(f"damaged: {error}", 1) from error
    except OtherMachineError as error:
        document = root / error.run / "machine.md"
        fits = f"`{shell_command('replay', root / error.run, '--against', 'FILE')}` says whether the run fits FILE"
        hint = fits if is_on_server(root) else f"`dsa diff {document} FILE` shows what FILE changes, and {fits}"
        raise CommandExit(f"{error}; {hint}", 1) from error
    except (ReplayMismatchError, GenerationError, StoreError) as error:
        raise CommandExit(str(error), 1) from error
    except OSError as error:
        raise CommandExit(
            f"the run cannot be written to {directory() or root}: {error.strerror or error}", 1
        ) from error
    except KeyboardInterrupt:
        at = directory()
        hint = (
            f"; what was done so far is saved in {directory_text(at)}; `{shell_command('resume', at)}` continues the run"
            if at
            else ""
        )
        raise CommandExit(f"interrupted{hint}", EXIT_INTERRUPTED, directory=at) from None


def shell_command(verb: str, directory: Path, *words: str, at: str = "") -> str:
    """Return a command for the run of a directory, ready to paste. `at` is the place of the question that it answers, maybe in a part of the run."""
    root = directory.parent
    where = [] if str(root) == DEFAULT_RUNS else ["--runs", place_text(root)]
    return shlex.join(["dsa", verb, place_in_part(directory.name, at) if at else directory.name, *words, *where])


@attrs.frozen
class RunOptions:
    """The options for a run. For a recorded run, None and empty values mean: as it was started.

    `module` binds names, `parameters` are values by name, `budget` has limits, `watch_options` choose secrets, logs and traces. `wait_s` is the
    longest time in seconds to wait for a timer. `config` replaces settings that policies can read.
    """

    model: str | None = None
    module: str | None = None
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    budget: tuple[str, ...] = ()
    quiet: bool = False
    json_wanted: bool = False
    watch_options: WatchOptions = attrs.field(factory=WatchOptions)
    wait_s: float = math.inf
    config: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def shows_nothing(self) -> bool:
        """Return whether no progress is shown, because of an option or because log lines replace it."""
        return self.quiet or self.json_wanted or self.watch_options.is_logging

    def as_started(self, stored_run: StoredRun) -> "RunOptions":
        """Return these options with the secrets that were chosen when a run was started."""
        first = stored_run.entries[0]
        settings = dict(first.started) if isinstance(first, MachineEntry) else {}
        return attrs.evolve(self, watch_options=self.watch_options.as_started(settings))

    @property
    def changes(self) -> Options:
        """The changes to the options that a recorded run was started with."""
        return Options(
            self.module,
            self.model,
            budget=self.budget,
            secret_options=self.watch_options.secret_options,
            config=self.config,
        )


def read_model(_context: click.Context, _option: click.Parameter, model: str | None) -> str | None:
    """Return a model's name. The callback of an option; raises click.BadParameter for a text that cannot be one."""
    if model is not None:
        try:
            require_model_name(model)
        except ValueError as fault:
            raise click.BadParameter(str(fault)) from fault
    return model


def duration_s(_context: click.Context, _option: click.Parameter, text: str) -> float:
    """Return a duration in seconds. The callback of an option; raises click.BadParameter."""
    duration_ms = 0 if text == "0" else parse_duration(text)
    if duration_ms is None:
        raise click.BadParameter(f"'{text}' is not a duration; write 0s, 90s, 15m, 24h or 2d")
    return duration_ms / 1000


_MODEL = "local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name. Default: "
#: Which model goes on with a run that has been started before.
SAME_MODEL = "the model that the run was started with"


def options_saying(command: FC, model: str, parameter: str) -> FC:
    """Add the options of a run, with a command's own help for `--model` and `--param`."""

    @click.option("--model", callback=read_model, help=model)
    @click.option(
        "--with",
        "module",
        metavar="MODULE",
        help="The Python module with the code of effects and guards. MODULE is its name or its file.",
    )
    @param_option(parameter)
    @budget_option
    @json_option
    @click.option("--quiet", is_flag=True, help="Print no progress.")
    @wraps(command)
    def command_with_options(
        *arguments: Any,  # noqa: ANN401  (the command's own)
        model: str | None,
        module: str | None,
        parameters: tuple[str, ...],
        budget: tuple[str, ...],
        watch_options: WatchOptions,
        quiet: bool,
        json_wanted: bool,
        **arguments_by_name: Any,  # noqa: ANN401  (the command's own)
    ) -> Any:  # noqa: ANN401
        values = parse_parameters(parameters)
        options = RunOptions(model, module, values, budget, quiet, json_wanted, watch_options)
        return command(*arguments, options=options, **arguments_by_name)

    return cast(FC, command_with_options)


def run_options(command: FC, default: str = "local") -> FC:
    """Add these options, with words for the default of `--model`; the command gets them as one argument, `options`. `watching_options` goes above."""

    @click.option(
        "--wait",
        "wait_s",
        metavar="DURATION",
        callback=duration_s,
        default="60s",
        show_default=True,
        help="Wait for a timer only if it is due within DURATION, such as 90s, 15m or 24h; otherwise end, and leave the run waiting.",
    )
    @wraps(command)
    def command_with_wait(*arguments: Any, options: RunOptions, wait_s: float, **arguments_by_name: Any) -> Any:  # noqa: ANN401  (the command's own)
        return command(*arguments, options=attrs.evolve(options, wait_s=wait_s), **arguments_by_name)

    return options_saying(cast(FC, command_with_wait), f"{_MODEL}{default}.", "Set a parameter, such as rmax=5.")
