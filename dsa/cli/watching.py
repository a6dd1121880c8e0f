"""What the command line says of a run's secrets, logs and traces; for every command that lets a run go on.

Takes options, gives who watches the run: log lines on standard error, spans to a collector. Standard output stays the result's.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, cast

import attrs
import click
from click.decorators import FC

from dsa.cli.parameters import Word
from dsa.cli.terminal import patient, say
from dsa.edge.logs import LEVELS, Form, log_to
from dsa.edge.telemetry import Telemetry, TelemetryError, is_configured, traced
from dsa.runtime.moment import OnMoment, to_all
from dsa.runtime.rest import Rest
from dsa.runtime.secret_names import Chosen
from dsa.runtime.secrets import Secrets

_STARTED = "secrets"  # where the first entry of a run keeps what was chosen


@attrs.frozen
class Watching:
    """What was chosen: secrets, the level and form of log lines (None: no lines), and whether to trace (None: if the environment says so)."""

    chosen: Chosen = attrs.field(factory=Chosen)
    level: str | None = None
    form: Form = "text"
    otel: bool | None = None

    @property
    def is_logging(self) -> bool:
        """Tell whether log lines take the place of the progress that is shown."""
        return self.level is not None

    def started(self) -> dict[str, Any]:
        """Give what a run keeps of this, so that it goes on in the same way: nothing when nothing was chosen."""
        return {_STARTED: attrs.asdict(self.chosen)} if self.chosen else {}

    def continuing(self, started: Mapping[str, Any]) -> "Watching":
        """Give this with what was chosen when the run was started."""
        before = {name: tuple(said) for name, said in (started.get(_STARTED) or {}).items()}
        return attrs.evolve(self, chosen=Chosen(**before) | self.chosen)

    @contextmanager
    def watched(self, secrets: Secrets) -> Iterator["Watched"]:
        """Log and trace what happens meanwhile. Raises TelemetryError when traces are asked for by option and cannot be made."""
        with ExitStack() as opened:
            if self.level is not None:
                opened.enter_context(log_to(patient(sys.stderr), self.level, self.form, secrets))
            wanted = is_configured() if self.otel is None else self.otel
            yield Watched(secrets, self._traced(secrets, opened) if wanted else None)

    def _traced(self, secrets: Secrets, opened: ExitStack) -> Telemetry | None:
        try:
            return opened.enter_context(traced(secrets, lambda lost: say(f"telemetry: {lost}", err=True)))
        except TelemetryError as fault:
            if self.otel:
                raise
            say(f"telemetry: {fault}", err=True)  # the variables may be there for other programs
            return None


@attrs.frozen
class Watched:
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
        chosen = Chosen(names, patterns, spared)
        return command(*arguments, watching=Watching(chosen, level, form, otel), **given)

    return cast(FC, collected)
