"""Sessions: a run of a shipped machine that somebody talks with, and goes on with in a task of his own.

What was acknowledged is in the ledger, so a process that is killed loses nothing; while the run rests, nobody holds it.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Generic, Self, TypeVar

from dsa.errors import DsaError
from dsa.expr import Value
from dsa.meaning import Occurrence
from dsa.runs.document import document_of
from dsa.runs.handle import RunHandle
from dsa.runs.runs import Resumption, Runs
from dsa.runs.setup import Options
from dsa.runtime.ledger import MachineEntry
from dsa.runtime.moment import OnMoment
from dsa.runtime.rest import Rest
from dsa.runtime.run import Run
from machines.tool_use.known import Closing, Known

T = TypeVar("T", bound=Closing)


class StoppedError(DsaError):
    """Raised when a run cannot go on as asked."""


class WrongRunError(DsaError):
    """Raised for a run of another machine than was meant."""


class Session(Generic[T]):
    """A run with what its policies work with (`resources`). Use it as a context manager, or `close` it. `command` takes such a run up again.

    The resources are made at once, before anything is recorded of a new run, and `prepare` is called with them: what is wrong with them is raised here.
    """

    command = ""
    #: How it came to rest the last time that it was driven here.
    rest: Rest | None = None

    def __init__(self, handle: RunHandle, known: Known[T], prepare: Callable[[T], object]) -> None:
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
        return self._handle.run.finished

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
