"""The door: what callers see of runs, wherever they are kept.

`Runs` is the protocol that commands, pages and programs are written for, `RecordedRuns` is the part of it that only reads. Two classes implement it: `dsa.runs.runs.LocalRuns` for a folder or memory, and
`dsa.temporal.temporal_runs.TemporalRuns` for a Temporal namespace. Their docstrings say what the methods promise; `tests/conformance/test_door.py` checks it.
"""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from dsa.edge.binding import Bindings
from dsa.expr import Outcome
from dsa.machine import Machine
from dsa.runs.archive import RunNews, RunRecord
from dsa.runs.handle import RunHandle
from dsa.runs.setup import MachineDocument, Options, RunSetup, Source
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.ledger import Entry
from dsa.runtime.run_store import Delivery, Posted, RunSummary, StoredRun
from dsa.runtime.timeline import Moment, OnMoment
from dsa.semantics import Occurrence, Refusal, Taken

if TYPE_CHECKING:
    from dsa.runs.runs import Resumption, Worker


class RecordedRuns(Protocol):
    """The reading half: runs as they are recorded, whichever process drives them. `poll_s` is the time between two looks at a run, in seconds."""

    poll_s: float

    @property
    def root(self) -> Path | None:
        """The folder where the runs are kept; None in memory and on a server."""

    @property
    def where(self) -> Path:
        """The name of the place, as `--runs` takes it."""

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order in which they were begun."""

    def handle(self, run_id: str) -> RunHandle | None:
        """Return the handle of a run that is in use in this process."""

    def get(self, run_id: str) -> RunRecord:
        """Read and replay a run."""

    def stored_run(self, run_id: str) -> StoredRun:
        """Read what is stored of a run."""

    def entries(self, run_id: str, *, after: int = 0) -> tuple[Entry, ...]:
        """Read a run's entries after the first `after`."""

    def summary(self, run_id: str) -> RunSummary:
        """Return the summary of a run."""

    async def look(self, run_id: str, *, after: int = 0) -> RunNews:
        """Return the status of a run, and its entries after the first `after`."""

    async def list(
        self,
        *,
        status: str | None = None,
        waiting_for: str | None = None,
        machine: str | None = None,
        now_ms: int | None = None,
        newest: int | None = None,
    ) -> tuple[RunSummary, ...]:
        """Return the summaries of all runs that match the filter."""

    async def wanted_worker(self, run_id: str) -> str:
        """Return which worker a run waits for, and how to start it; "" if it waits for none."""

    async def count(self) -> int:
        """Return the number of all runs."""

    def delivery(self, message: str) -> Delivery | None:
        """Return the outcome of a message that was posted to a run's inbox; None while it waits there."""

    def lost_count(self) -> int:
        """Return the number of runs that were kept here and cannot be found any more."""

    def artifacts(self, run_id: str) -> ArtifactStore:
        """Return the store of a run's artifacts."""

    def folder(self, run_id: str) -> Path | None:
        """Return the folder of a run, for people; None where there are none."""

    def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[Moment]:
        """Yield the moments of a run after the first `after` entries, then new ones as they come, until it is finished."""

    async def remove(self, run_id: str) -> None:
        """Remove a run."""


class RunMaker(RecordedRuns, Protocol):
    """The place where runs are made and held, for effects that have runs of their own."""

    def setup(self, document: MachineDocument, options: Options) -> RunSetup:
        """Bind a document for a run in this place."""

    def begin(self, setup: RunSetup, *, run_id: str = "", on_moment: OnMoment | None = None) -> RunHandle:
        """Return a new run that nothing drives yet."""

    def hold(
        self,
        run_id: str,
        *,
        options: Options | None = None,
        resumption: "Resumption | None" = None,
        on_moment: OnMoment | None = None,
    ) -> RunHandle:
        """Hold a run without driving it yet."""


class Runs(RunMaker, Protocol):
    """The runs of one place. `open_runs` makes it; use it in `async with`.

    `uninterrupted_ids` are the runs that Ctrl-C could not interrupt, because no worker answered.
    """

    uninterrupted_ids: tuple[str, ...]

    async def __aenter__(self) -> Self:
        """Begin to use the runs."""

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        """Release the runs that are driven here; after Ctrl-C, interrupt them."""

    async def close(self, *, interrupts: bool = False) -> None:
        """Release the runs that are driven here, or interrupt them; then close the place."""

    def __enter__(self) -> Self:
        """Begin to read the runs."""

    def __exit__(self, *_: object) -> None:
        """Close the place, for readers."""

    async def start(
        self,
        file: str | Path | Machine,
        data: object = None,
        *,
        bindings: Source | None = None,
        model: str | None = None,
        options: Options | None = None,
        run_id: str = "",
        on_moment: OnMoment | None = None,
    ) -> RunHandle:
        """Start a run, and drive it in the background."""

    async def resume(
        self,
        run_id: str,
        *occurrences: Occurrence,
        options: Options | None = None,
        resumption: "Resumption | None" = None,
        on_moment: OnMoment | None = None,
    ) -> RunHandle:
        """Resume a run where it was cut off, where a failure stopped it, or where it waits."""

    async def send(
        self,
        run_id: str,
        event: str,
        data: object = None,
        *,
        verdicts: Mapping[str, Outcome] | None = None,
        at: str | None = None,
        patience_s: float = 10.0,
    ) -> Taken | Refusal | Posted:
        """Send an event to a run, and wait until it is taken or refused."""

    def post(self, run_id: str, occurrence: Occurrence, at: str | None = None, options: Options | None = None) -> str:
        """Put an event into a run's inbox, and return the message's id."""

    def binding_of(self, run_id: str, options: Options | None = None) -> Bindings:
        """Bind a recorded run as it was started, except for what the options change."""

    def branch(self, run_id: str, length: int, new_id: str = "") -> str:
        """Make a run that begins as another one did; return its id."""

    def worker(self, **how: Any) -> "Worker":  # noqa: ANN401  (as `Worker` takes it)
        """Return a worker for these runs."""

    async def interrupt(self, run_id: str) -> None:
        """Stop driving a run until it is resumed."""

    def now_ms(self) -> int:
        """Return the time by the clock of the runs, in milliseconds since 1970."""
