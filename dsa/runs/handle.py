"""Handles: a run that this process drives, or has driven until it came to rest."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import attrs

from dsa.edge.clock import Clock
from dsa.edge.driver import Driver
from dsa.edge.logs import LedgerLog
from dsa.errors import DsaError
from dsa.expr import Outcome
from dsa.meaning import Occurrence, Refusal, Taken
from dsa.runs.folder import RunFolder, accepted_artifacts
from dsa.runs.place import Place
from dsa.runs.record import replayed
from dsa.runs.setup import Setup
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.journal import Journal
from dsa.runtime.ledger import Entry, Handling
from dsa.runtime.moment import Moment, OnMoment
from dsa.runtime.recovery import Unfinished, unfinished
from dsa.runtime.rest import Rest
from dsa.runtime.run import Command, Run


class NotTakenError(DsaError):
    """Raised for an event that a run did not take before it stopped or was interrupted; nothing was recorded of it."""


@attrs.frozen
class Setting:
    """What surrounds a run: the place that keeps it, its clock, who watches it, the runs that this process holds."""

    place: Place
    clock: Clock | None
    on_moment: OnMoment | None
    held: dict[str, "RunHandle"]
    log: LedgerLog | None = None


class RunHandle:
    """One run in this process. `Runs` makes it.

    A task of its own drives the run, so that whoever reads moments or waits for its rest may go away. While the run rests nobody holds it,
    and another process may drive it; then this one goes on from where that one has got.
    """

    def __init__(
        self,
        setting: Setting,
        setup: Setup,
        run: Run,
        journal: Journal,
        *,
        commands: tuple[Command, ...] = (),
        left: Unfinished | None = None,
        known: int = 0,
    ) -> None:
        self._setting, self._setup, self._journal = setting, setup, journal
        self._is_held = True
        self._artifacts = setting.place.artifacts(run.run_id)
        self._folder = None if setting.place.root is None else RunFolder(setting.place.root, run, setup.text)
        self._count, self._known = 0, known
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._rest: Rest | None = None
        self._fault: BaseException | None = None
        self.id = run.run_id
        setting.held[self.id] = self
        self._driver = self._made(run, commands, left)

    def _made(self, run: Run, commands: tuple[Command, ...], left: Unfinished | None) -> Driver:
        return Driver(
            run,
            self._setup.binding,
            self._artifacts,
            commands=commands,
            left=left,
            journal=self._journal,
            limits=self._setup.limits,
            clock=self._setting.clock,
            observe=self._observe,
            on_rest=self._waits_for_timers,
        )

    # -- reading ----------------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self._driver.run

    @property
    def artifacts(self) -> ArtifactStore:
        """What the run generated."""
        return self._artifacts

    @property
    def folder(self) -> RunFolder | None:
        """The run's folder, for people; None in memory."""
        return self._folder

    @property
    def is_driven(self) -> bool:
        """Return whether the run is being driven in this process."""
        return self._task is not None and not self._task.done()

    async def rest(self, *, through_timers: bool = False) -> Rest:
        """Wait until the run rests, and return how. `through_timers`: a run that waits for a timer goes on, so wait further.

        Cancelling this stops no run. Raises what stopped the driver: StoreError, and what `on_moment` raises.
        """
        while True:
            if self._fault is not None:
                raise self._fault
            rest = self._rest
            if rest is not None and not (through_timers and rest.due_ms is not None and self.is_driven):
                return attrs.evolve(rest, accepted=tuple(accepted_artifacts(rest.run, self._artifacts)))
            await self._change()

    async def moments(self, *, after: int = 0) -> AsyncIterator[Moment]:
        """Iterate over what happened after the first `after` entries, then over what happens, until the run rests.

        Each moment is durable. A slow reader reads from the ledger; nothing is queued for it.
        """
        while True:
            for entry in self.run.ledger[after : self._count]:
                after += 1
                yield Moment(self.id, after, entry)
            if after >= self._count:
                if self._rest is not None or self._fault is not None:
                    return
                await self._change()

    async def _change(self) -> None:
        """Wait until something happens."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _observe(self, entry: Entry) -> None:
        """Pass a durable entry on to whoever watches."""
        self._count += 1
        self._rest = None
        if self._folder is not None:
            self._folder.observe(entry, self._artifacts)
        if self._setting.on_moment is not None:
            self._setting.on_moment(Moment(self.id, self._count, entry), self._count > self._known)
        if self._waiters:
            self._wake()

    def _waits_for_timers(self) -> None:
        self._rest = Rest("waiting", self.run, due_ms=self._driver.next_deadline_ms)
        self._wake()

    # -- driving ----------------------------------------------------------------------------------------------------------

    async def drive(self, *occurrences: Occurrence, decided: Mapping[str, Handling] | None = None) -> Rest:
        """Take the occurrences and drive the run in the caller's own task until it rests, through timers; cancelling it interrupts the run.

        Raises what `Driver.drive` does.
        """
        self._hold()
        self._rest, self._fault = None, None
        rest: Rest | None = None
        try:
            rest = await self._driver.drive(*occurrences, decided=decided)
            if rest.failure is not None and self._setting.log is not None:
                self._setting.log.stopped(rest.failure.what, rest.failure.line, rest.failure.code, rest.failure.message)
        except asyncio.CancelledError:
            rest = Rest("interrupted", self.run)
            raise
        except BaseException as fault:
            self._fault = fault
            raise
        finally:
            self._rest = rest
            self.release()
            self._wake()
        return rest

    def start(self, *occurrences: Occurrence, decided: Mapping[str, Handling] | None = None) -> None:
        """Begin to drive the run in a task of its own; `rest` and `moments` tell how it goes on."""
        assert not self.is_driven, "one task drives a run"
        self._hold()
        self._rest, self._fault = None, None
        self._task = asyncio.create_task(self._driven(occurrences, decided))

    async def _driven(self, occurrences: tuple[Occurrence, ...], decided: Mapping[str, Handling] | None) -> None:
        try:
            await self.drive(*occurrences, decided=decided)
        except asyncio.CancelledError:
            if self._rest is None:  # cancelled before its first step
                self._rest = Rest("interrupted", self.run)
            raise
        except Exception:  # noqa: BLE001  (kept in `_fault`: `rest` raises it)
            return

    async def send(
        self, event: str, data: object = None, *, verdicts: Mapping[str, Outcome] | None = None, at: str | None = None
    ) -> Taken | Refusal:
        """Send an event from outside, and wait until the run has taken or refused it; the run goes on by itself.

        `at` names the question that this answers (`rest.waits_for[event]`): when that has passed, the event is refused as late. Raises
        OccurrenceError for an event that does not come from outside, or whose data is not what it has to be; NotTakenError.
        """
        return await self.hand(Occurrence(event, verdicts or {}, data=data), at)

    async def hand(self, occurrence: Occurrence, at: str | None = None) -> Taken | Refusal:
        """Do what `send` does with an occurrence."""
        if not self.is_driven:
            self._hold()
        answer = self._driver.hand(occurrence, at)
        if not self.is_driven:
            self.start()
        while not answer.done():
            if not self.is_driven:
                raise NotTakenError(f"run {self.id} came to rest before it took '{occurrence.event}'")
            assert self._task is not None, "it is driven"
            waiting: set[asyncio.Future[Any]] = {answer, self._task}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return answer.result()

    async def interrupt(self) -> None:
        """Stop driving the run; the ledger keeps it, and it can be resumed."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        self.release()

    # -- holding ----------------------------------------------------------------------------------------------------------

    def _hold(self) -> None:
        """Become the run's writer again, if it was released; go on from where others have got with it meanwhile."""
        if self._is_held:
            return
        journal, recorded = self._setting.place.store.hold(self.id)
        self._journal, self._is_held = journal, True
        self._setting.held[self.id] = self
        if len(recorded.entries) == len(self.run.ledger):
            self._driver.write_to(journal)
            return
        run, _ = replayed(recorded)
        self._known, self._count = len(recorded.entries), 0
        self._driver = self._made(run, (), unfinished(run))

    def release(self) -> None:
        """Give up the right to write the run; it can be taken up again, by this or another process."""
        if self._is_held:
            self._is_held = False
            self._journal.release()
            if self._setting.held.get(self.id) is self:
                del self._setting.held[self.id]
