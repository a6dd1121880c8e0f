"""Processes of a simulated run: each has the runs open on the simulated disk, drives the run on a loop of its own, and meets the world.

Runs are begun, held and driven through `dsa.runs`, as by every other program. A `ProcessWatch` hears of every boundary of an append, of
holding and of releasing, and may end the process there.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from dsa.edge.binding import Bindings
from dsa.runs.handle import NotTakenError, RunHandle
from dsa.runs.place import RunPlace
from dsa.runs.runs import LocalRuns, Resumption
from dsa.runs.setup import RunSetup
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.costs import BudgetLimit
from dsa.runtime.ledger import Entry, Handling, Intent
from dsa.runtime.run_store import HeldError, StoredRun, StoreError
from dsa.runtime.status import Rest
from dsa.runtime.timeline import Moment
from dsa.semantics import Occurrence, Refusal, Taken
from dsa.testing.simulation.disk_store import DiskStore, File, Stage
from dsa.testing.simulation.seed_plan import RUN_ID, Boundary, Subject
from dsa.testing.simulation.virtual_loop import Time, VirtualClock, VirtualLoop

#: The boundary of a row at each stage of an append.
Boundaries = Mapping[Stage, Boundary]


class KilledError(BaseException):
    """Raised where a process ends; nothing that it does afterwards reaches anything."""


class ProcessWatch(Protocol):
    """The watcher of processes. What its methods raise comes out of the store of the process."""

    def on_append(self, process: "Process", stage: Stage, entries: Sequence[Entry], epoch: int) -> None:
        """Called at every stage of an append."""

    def on_hold(self, process: "Process", stage: Stage, epoch: int) -> None:
        """Called at every stage of holding the run."""

    def on_run_read(self, process: "Process", stored_run: StoredRun) -> None:
        """Called when the run is held and read."""

    def on_release(self, process: "Process", stage: Stage) -> None:
        """Called at every stage of releasing the run."""

    def on_begin(self, process: "Process", key: str, effect: str, beside: tuple[str, ...]) -> None:
        """Called when a policy is called."""

    def on_show(self, process: "Process", entry: Entry) -> None:
        """Called when the driver shows an entry."""

    def on_reply(self, occurrence: Occurrence, answer: Taken | Refusal) -> None:
        """Called when the sender of an event from outside hears how it was answered."""

    def on_fault(self, fault: BaseException) -> None:
        """Called when a sender meets an error that is not expected."""


@attrs.frozen
class StorySurroundings:
    """What all processes of a story share.

    `bind` returns what a process binds to the names of the table; `is_alive` says whether the process of a name lives, `is_shown` whether
    an observer watches the run.
    """

    subject: Subject
    time: Time
    files: dict[str, File]
    artifacts: ArtifactStore
    limits: tuple[BudgetLimit, ...]
    watch: ProcessWatch
    bind: Callable[["Process"], Bindings]
    is_alive: Callable[[str], bool]
    is_shown: bool


@attrs.frozen
class PersonInput:
    """What a person says as a run is taken up: events from outside, and about effects in doubt, by their keys."""

    events: tuple[Occurrence, ...] = ()
    decisions: Mapping[str, Handling] = attrs.field(factory=dict)
    answers: Mapping[str, Occurrence] = attrs.field(factory=dict)


class Process:
    """A process that drives the run. `ending` is how the run rested there, or what it raised; None while it is at work.

    `may_write` turns false when its store fails or says that another process has the run; `is_stale` when another one has it and
    this one may not know. `rival` is that other one. `has_run` says that it holds the run. `is_quiet` keeps faults away while it takes the run
    over. `boundaries` are the boundaries of the append that it makes, where a fault is due at one of them.
    """

    def __init__(self, number: int, around: StorySurroundings) -> None:
        self.name, self.number = f"process {number}", number
        self.is_alive = self.may_write = True
        self.is_stale = self.is_quiet = self.has_run = False
        self.rival: Process | None = None
        self.ending: Rest | BaseException | None = None
        self.boundaries: Sequence[tuple[Boundaries, int | None]] = ()
        self.sent_at = -1
        self.seen_count = 0
        self.loop = VirtualLoop(around.time)  # type: ignore[abstract]  # what it lacks raises NotImplementedError
        self._around = around
        store: Any = DiskStore(around.files, self, around.is_alive)  # it drives runs, and lists none
        place = RunPlace(lambda: store, lambda _run_id: around.artifacts)
        binder = lambda _machine, _options: around.bind(self)  # noqa: E731  (a function in an argument)
        self._runs = LocalRuns(place, bindings=binder, clock=VirtualClock(around.time))
        self._on_moment = self._show if around.is_shown else None
        self._handle: RunHandle | None = None
        self._task: asyncio.Task[Rest] | None = None

    # -- reports of its store -----------------------------------------------------------------------------------------

    def before_write(self, entries: Sequence[Entry]) -> None:
        """Entries are about to be written."""
        self._require_able()
        self._around.watch.on_append(self, "before", entries, 0)

    def after_write(self, entries: Sequence[Entry]) -> None:
        """They are written and not synced."""
        self._around.watch.on_append(self, "unsynced", entries, 0)

    def after_sync(self, epoch: int, entries: Sequence[Entry]) -> None:
        """They are on the disk for good."""
        self.has_run = True
        self._around.watch.on_append(self, "durable", entries, epoch)

    def on_refusal(self) -> None:
        """Somebody else holds the run."""
        self.may_write = self.has_run = False

    def on_hold(self, stage: Stage, epoch: int) -> None:
        """The run is being held."""
        self._require_able()
        self._around.watch.on_hold(self, stage, epoch)

    def on_run_read(self, stored_run: StoredRun) -> None:
        """The run is held, and this is what was read."""
        self.has_run = True
        self._around.watch.on_run_read(self, stored_run)

    @property
    def may_release(self) -> bool:
        """Return whether it lives, and its store has not failed."""
        return self.is_alive and self.may_write

    def on_release(self, stage: Stage) -> None:
        """The run is being released."""
        self.has_run = stage != "durable"
        self._around.watch.on_release(self, stage)

    def on_begin(self, key: str, effect: str, beside: tuple[str, ...]) -> None:
        """A policy is called, while the process performs other emissions of the effect."""
        self._around.watch.on_begin(self, key, effect, beside)

    def _require_able(self) -> None:
        if not self.is_alive:
            raise KilledError
        if not self.may_write:
            raise StoreError("this handle is closed; open the file again")

    def _show(self, moment: Moment, _is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        if moment.number != self.seen_count + 1:
            raise AssertionError(f"entry {moment.number} is shown after entry {self.seen_count}")
        self._around.watch.on_show(self, moment.entry)
        self.seen_count += 1

    # -- its life -----------------------------------------------------------------------------------------------------

    def begin(self, events: tuple[Occurrence, ...]) -> None:
        """Begin the run, as `dsa run` does."""
        subject, limits = self._around.subject, self._around.limits
        options = {"budget": list(map(_limit_text, limits))} if limits else {}
        setup = RunSetup(subject.machine, self._around.bind(self), subject.text, subject.digest, options, limits)
        self._handle = self._runs.begin(setup, run_id=RUN_ID, on_moment=self._on_moment)
        self.drive(*events)

    def take_up(self, person_input: PersonInput, *, take: bool = False) -> None:
        """Hold the run, as `dsa resume` and `dsa send` do. Raises what these raise, and KilledError."""
        resumption = Resumption(person_input.decisions, person_input.answers, take=take)
        self._handle = self._runs.hold(RUN_ID, resumption=resumption, on_moment=self._on_moment)

    def drive(self, *events: Occurrence) -> None:
        """Drive the run that it holds, or that it has driven until it rested."""
        self.ending = None
        self._task = self.loop.create_task(self.handle.drive(*events))

    @property
    def handle(self) -> RunHandle:
        """Its run."""
        assert self._handle is not None, "it has begun the run, or taken it up"
        return self._handle

    @property
    def has_rested(self) -> bool:
        """Return whether the run came to rest there in order, so that it can go on with it."""
        return self.may_release and not self.is_stale and isinstance(self.ending, Rest)

    def send(self, occurrence: Occurrence) -> None:
        """Send an event to the run that it drives; its sender waits for the answer."""
        self.loop.create_task(self._send(occurrence))

    async def _send(self, occurrence: Occurrence) -> None:
        try:
            answer = await self.handle.hand(occurrence)
        except NotTakenError:
            return
        except Exception as fault:  # noqa: BLE001  (any error is a fault)
            self._around.watch.on_fault(fault)
        else:
            self._around.watch.on_reply(occurrence, answer)

    def hear(self, intent: Intent, answer: Occurrence) -> None:
        """Have an answer of an effect arrive, once more or too late."""
        self.handle.hear(intent, answer)

    def play(self, idle: Callable[[], bool]) -> None:
        """Run until it ends or `idle` returns False; then `ending` says how, or is None."""
        task = self._task
        if task is None or not self.loop.play(task, idle):
            return
        self._task = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.ending = error if error is not None else task.result()

    def die(self) -> None:
        """End it where it is: what waits in it is cancelled."""
        self.is_alive = False
        if self._task is not None:
            self._task.cancel()

    def bury(self) -> None:
        """Let what waits in it end; nothing of that reaches anything."""
        self.die()
        self.play(lambda: False)

    def forget(self) -> None:
        """Take apart what refers to itself; it was buried, and nobody needs it any more."""
        handle = self._handle
        for each in () if handle is None else (handle._driver, handle):  # noqa: SLF001  (nobody else has them)
            vars(each).clear()
        vars(self).clear()

    def may_hold(self) -> bool:
        """Hold the run without taking it from anybody, and release it again; return whether it could be held."""
        try:
            handle = self._runs.hold(RUN_ID)
        except HeldError:
            return False
        handle.release()
        return True


def _limit_text(limit: BudgetLimit) -> str:
    """Return a limit as `--budget` takes it."""
    return f"{limit.effect}{'.' if limit.effect else ''}{limit.unit}={limit.most:g}"
