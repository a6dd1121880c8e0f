"""A conversation with a model on a terminal: text as it comes, in the same line, and lines of our own between. It writes; it decides nothing.

What runs of a machine work with, made once in a process for each run, and found again by every effect.

Takes what makes it from a run's settings and its own folder, gives it by settings and name.

Sessions: a run of a shipped machine that somebody talks with, and goes on with in a task of his own.

What was acknowledged is in the ledger, so a process that is killed loses nothing; while the run rests, nobody holds it.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from rich.console import Console
from rich.text import Text

from dsa.cli.command_line import printable
from dsa.errors import DsaError
from dsa.expr import Value
from dsa.runs.handle import RunHandle
from dsa.runs.runs import Resumption, Runs
from dsa.runs.setup import Options, document_of
from dsa.runtime.ledger import MachineEntry
from dsa.runtime.run import Run
from dsa.runtime.status import Rest
from dsa.runtime.timeline import OnMoment
from dsa.semantics import Occurrence


class Lines:
    """Writes lines, and text that comes in pieces; `part` stands before each line where several write at the same time."""

    def __init__(self, console: Console, part: str = "") -> None:
        self.console, self.part = console, part
        #: Whether text of the model was shown that belongs to the answer that comes now; whoever shows the whole answer sets it back.
        self.has_text = False
        self.is_in_line = False

    def listen(self, text: str) -> None:
        """Show a piece of the model's text."""
        if self.part:  # others write at the same time
            self.line(text.strip())
            return
        self.console.print(Text(printable(text)), end="", soft_wrap=True)
        self.has_text = self.has_text or bool(text)
        self.is_in_line = not text.endswith("\n") if text else self.is_in_line

    def line(self, text: str, style: str = "") -> None:
        """Show lines of our own."""
        self.end()
        for each in text.splitlines() or [""]:
            badge = Text(f"{self.part}| ", style="magenta") if self.part else Text()
            self.console.print(badge + Text(printable(each), style=style), soft_wrap=True)

    def end(self) -> None:
        """End a line that the model has begun."""
        if self.is_in_line:
            self.console.print()
            self.is_in_line = False

    def say(self, text: str) -> None:
        """Show a line of our own."""
        self.line(text)


class ClosingActions(Protocol):
    """What is let go of at the end of a run."""

    def close(self) -> None:
        """Let go."""


T = TypeVar("T", bound=ClosingActions)


class RunResources(Generic[T]):
    """The resources of the runs of one machine."""

    def __init__(self, make: Callable[[Mapping[str, Any], Path], T]) -> None:
        self._make = make
        self._of: dict[tuple[str, str], T] = {}

    def of(self, config: Mapping[str, Any], run_id: str) -> T:
        """Return what a run works with; `config["runs"]` is where runs are kept."""
        runs = os.path.abspath(config.get("runs") or ".dsa")  # noqa: PTH100  (asked for by every effect, and paths are slow)
        if (runs, run_id) not in self._of:
            self._of[runs, run_id] = self._make(config, Path(runs) / run_id)
        return self._of[runs, run_id]

    def let_go(self, resources: T) -> None:
        """Close what a run worked with, and forget it."""
        resources.close()
        for name, known in list(self._of.items()):
            if known is resources:
                del self._of[name]


class StoppedError(DsaError):
    """Raised when a run cannot go on as asked."""


class WrongRunError(DsaError):
    """Raised for a run of another machine than was meant."""


class MachineSession(Generic[T]):
    """A run with what its policies work with (`resources`). Use it as a context manager, or `close` it. `command` takes such a run up again.

    The resources are made at once, before anything is recorded of a new run, and `prepare` is called with them: what is wrong with them is raised here.
    """

    command = ""
    #: How it came to rest the last time that it was driven here.
    rest: Rest | None = None

    def __init__(self, handle: RunHandle, known: RunResources[T], prepare: Callable[[T], object]) -> None:
        self._handle = handle
        with ExitStack() as undone:
            undone.callback(handle.release)
            self.resources = known.of(handle.config, handle.id)
            undone.callback(known.let_go, self.resources)
            prepare(self.resources)
            self._undone = undone.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the run; it can be taken up again."""
        self._undone.close()

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self._handle.id

    @property
    def is_over(self) -> bool:
        """Return whether it is at a final state."""
        return self._handle.run.is_finished

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self._handle.run

    @property
    def values(self) -> dict[str, Value]:
        """The variables' values by name."""
        return self._handle.run.values

    def tell_soon(self, occurrence: Occurrence) -> None:
        """Tell the run an event without waiting, from the event loop's thread; it is taken when its turn comes."""
        self._handle.offer(occurrence).add_done_callback(lambda became: became.cancelled() or became.exception())

    async def drive(self, *occurrences: Occurrence) -> None:
        """Tell the run events, and wait until it rests. Raises StoppedError when a fault of ours has stopped it; the ledger keeps it."""
        rest = self.rest = await self._handle.drive(*occurrences)
        if rest.in_doubt:
            key = rest.in_doubt[0].key
            raise StoppedError(f"it is in doubt what became of {key}: dsa show {self.run_id} says how to decide it")
        if rest.failure is not None:
            raise StoppedError(f"{rest.failure}; the run is kept: {self.command} --resume {self.run_id}")


def begun(runs: Runs, name: str, options: Options, *, run_id: str = "", on_moment: OnMoment | None = None) -> RunHandle:
    """Begin a run of a shipped machine that nothing drives yet. Raises what `Runs.setup` and `Runs.begin` do."""
    return runs.begin(runs.setup(document_of(name), options), run_id=run_id, on_moment=on_moment)


def taken_up(
    runs: Runs, run_id: str, name: str, options: Options, *, take: bool = False, on_moment: OnMoment | None = None
) -> RunHandle:
    """Take up a run that nothing drives yet. Raises WrongRunError for one of another machine, and what `Runs.hold` does."""
    first = runs.recorded(run_id).entries[0]
    if not isinstance(first, MachineEntry) or first.name != name:
        what = f"one of {first.name}" if isinstance(first, MachineEntry) else "no run of a machine"
        raise WrongRunError(f"run {run_id} is {what}, not one of {name}")
    return runs.hold(run_id, options=options, resumption=Resumption(take=take), on_moment=on_moment)
