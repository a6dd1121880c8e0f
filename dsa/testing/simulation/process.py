"""One simulated process: the real driver of one run, on a loop of its own, with the store and the world that it meets.

Takes what the store gives for a run, drives it until it rests, dies, or can write no more. Who watches is told at every boundary of an
append, and may end the process there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from dsa.edge.binding import Binding
from dsa.edge.deciding import require_decidable, settled
from dsa.edge.driver import Driver
from dsa.meaning import Occurrence
from dsa.runs.record import replayed
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.budgets import Limit
from dsa.runtime.journal import Beginning, HeldError, Journal, Recorded, StoreError
from dsa.runtime.ledger import Entry, Handling
from dsa.runtime.recovery import unfinished
from dsa.runtime.rest import Rest
from dsa.runtime.run import begin
from dsa.testing.simulation.disk import File
from dsa.testing.simulation.faults import Boundary
from dsa.testing.simulation.loop import Time, VirtualClock, VirtualLoop
from dsa.testing.simulation.store import DiskStore, Stage
from dsa.testing.simulation.subject import RUN, Subject

#: The boundary of a row at each stage of an append.
Boundaries = Mapping[Stage, Boundary]


class KilledError(BaseException):
    """Raised where a process ends; nothing that it does afterwards reaches anything."""


class Watch(Protocol):
    """Who looks after processes. Whatever these raise, the process meets in its store."""

    def appending(self, process: "Process", stage: Stage, entries: Sequence[Entry], epoch: int) -> None:
        """Tell of an append."""

    def holding(self, process: "Process", stage: Stage, epoch: int) -> None:
        """Tell of a run that is being held."""

    def begins(self, process: "Process", key: str, effect: str) -> None:
        """Tell of a policy that is called."""

    def shown(self, process: "Process", entry: Entry) -> None:
        """Tell of an entry that the driver shows."""


@attrs.frozen
class Surroundings:
    """What all processes of a story share. `is_alive` tells whether the process of a name lives, `is_shown` whether somebody watches the run."""

    subject: Subject
    time: Time
    files: dict[str, File]
    artifacts: ArtifactStore
    limits: tuple[Limit, ...]
    watch: Watch
    is_alive: Callable[[str], bool]
    is_shown: bool


@attrs.frozen
class Said:
    """What a person says as a run is taken up: events from outside, and about effects in doubt, by their keys."""

    sent: tuple[Occurrence, ...] = ()
    decided: Mapping[str, Handling] = attrs.field(factory=dict)
    answers: Mapping[str, Occurrence] = attrs.field(factory=dict)


class Process:
    """A process that drives the run. `ending` is how its driver rested, or what it raised; None while it is at work.

    `may_write` turns false when its store fails or says that another process has the run; `is_stale` when another one has it and
    this one may not know. `rival` is that other one. `is_quiet` keeps faults away while it takes the run over.
    """

    def __init__(self, number: int, around: Surroundings) -> None:
        self.name, self.number = f"process {number}", number
        self.is_alive = self.may_write = True
        self.is_stale = self.is_quiet = False
        self.rival: Process | None = None
        self.ending: Rest | BaseException | None = None
        self.driver: Driver | None = None
        self.journal: Journal | None = None
        self.passing: list[tuple[Boundaries, int | None]] = []
        self.sent_at = -1
        self.seen = 0
        self.loop = VirtualLoop(around.time)  # type: ignore[abstract]  # what it lacks raises NotImplementedError
        self._clock = VirtualClock(around.time)
        self._around = around
        self._task: asyncio.Task[Rest] | None = None

    # -- what its store tells it --------------------------------------------------------------------------------------

    def before(self, entries: Sequence[Entry]) -> None:
        """Entries are about to be written."""
        self._require_able()
        self._around.watch.appending(self, "before", entries, 0)

    def unsynced(self, entries: Sequence[Entry]) -> None:
        """They are written and not synced."""
        self._around.watch.appending(self, "unsynced", entries, 0)

    def durable(self, epoch: int, entries: Sequence[Entry]) -> None:
        """They are on the disk for good."""
        self._around.watch.appending(self, "durable", entries, epoch)

    def refused(self) -> None:
        """Somebody else holds the run."""
        self.may_write = False

    def holding(self, stage: Stage, epoch: int) -> None:
        """The run is being held."""
        self._around.watch.holding(self, stage, epoch)

    def begins(self, key: str, effect: str) -> None:
        """A policy is called."""
        self._around.watch.begins(self, key, effect)

    def _require_able(self) -> None:
        if not self.is_alive:
            raise KilledError
        if not self.may_write:
            raise StoreError("this handle is closed; open the file again")

    def _show(self, entry: Entry) -> None:
        self._around.watch.shown(self, entry)
        self.seen += 1

    # -- its life -----------------------------------------------------------------------------------------------------

    def begin(self, binding: Binding, sent: tuple[Occurrence, ...]) -> None:
        """Begin the run, as `dsa run` does."""
        subject = self._around.subject
        at_ms = self._around.time.wall_ms()
        run, commands = begin(subject.machine, RUN, digest=subject.digest, at_ms=at_ms)
        self.journal = Beginning(self._store(), RUN, subject.text)
        self._drive(sent, {}, run=run, binding=binding, commands=commands)

    def hold(self, *, take: bool = False) -> Recorded:
        """Become the run's writer. Raises what the store raises, and KilledError."""
        self.journal, recorded = self._store().hold(RUN, take=take)
        return recorded

    def take_up(self, recorded: Recorded, binding: Binding, said: Said) -> None:
        """Go on with the run that it holds, as `dsa resume` and `dsa send` do. Raises what these raise."""
        assert self.journal is not None, "it holds the run"
        run, _ = replayed(recorded)
        require_decidable(run.machine, unfinished(run), said.decided, said.answers)
        run = settled(run, {}, said.answers)
        self.journal.append(run.ledger[len(recorded.entries) :])
        self._drive(said.sent, said.decided, run=run, binding=binding, left=unfinished(run))

    def _drive(self, sent: tuple[Occurrence, ...], decided: Mapping[str, Handling], **given: Any) -> None:  # noqa: ANN401  (the driver's)
        around = self._around
        self.driver = Driver(
            artifacts=around.artifacts,
            journal=self.journal,
            limits=around.limits,
            clock=self._clock,
            observe=self._show if around.is_shown else None,
            **given,
        )
        self._task = self.loop.create_task(self.driver.drive(*sent, decided=decided))

    def drive_again(self, *sent: Occurrence) -> None:
        """Let the driver go on after it has rested."""
        assert self.driver is not None, "it has rested"
        self.ending = None
        self._task = self.loop.create_task(self.driver.drive(*sent))

    def play(self, idle: Callable[[], bool]) -> None:
        """Run until it ends or `idle` gives False; then `ending` says how, or is None."""
        task = self._task
        if task is None or not self.loop.play(task, idle):
            return
        self._task = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.ending = error if error is not None else task.result()

    def die(self) -> None:
        """End it where it is: whatever waits in it is given up."""
        self.is_alive = False
        if self._task is not None:
            self._task.cancel()

    def bury(self) -> None:
        """Let what waits in it come to its end; nothing of that reaches anything."""
        self.die()
        self.play(lambda: False)

    def release(self) -> None:
        """Give up the right to write, as a process does that ends in order."""
        if self.is_alive and self.journal is not None:
            self.journal.release()
        self.is_alive = False

    def is_refused(self) -> bool:
        """Ask for the run without taking it, while another process has it; tell whether that was refused."""
        try:
            self._store().hold(RUN)
        except HeldError:
            return True
        return False

    def _store(self) -> DiskStore:
        return DiskStore(self._around.files, self, self._around.is_alive)
