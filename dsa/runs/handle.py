"""Handles: a run that this process drives, or has driven until it came to rest."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import attrs

from dsa.errors import DsaError
from dsa.expr import Outcome
from dsa.meaning import Occurrence, Refusal, Taken
from dsa.runs.folder import accepted_artifacts
from dsa.runs.held import HeldRun
from dsa.runs.place import PART_OF
from dsa.runtime.journal import MessagesWaitError
from dsa.runtime.moment import Moment, Piece
from dsa.runtime.rest import Rest


class NotTakenError(DsaError):
    """Raised for an event that a run did not take before it stopped or was interrupted; nothing was recorded of it."""


def require_place(at: str | None) -> None:
    """Raise TypeError for a place that is no text: it is written into the ledger as it is."""
    if at is not None and not isinstance(at, str):
        raise TypeError(f'a place is a text, such as "3" or "3/1", not {at!r}')


class RunHandle(HeldRun):
    """One run in this process. `Runs` makes it.

    A task of its own drives the run, so that whoever reads moments or waits for its rest may go away. While the run rests nobody holds it,
    and another process may drive it; then this one goes on from where that one has got. Whoever watches sees every moment once.
    """

    _task: asyncio.Task[None] | None = None
    _is_driven = _lets_go = False
    _fault: BaseException | None = None

    @property
    def is_driven(self) -> bool:
        """Return whether the run is being driven in this process."""
        return self._is_driven

    async def rest(self, *, through_timers: bool = False) -> Rest:
        """Wait until the run rests, and return how. `through_timers`: a run that waits for a timer goes on, so wait further.

        Cancelling this stops no run. Raises what stopped the driver: StoreError, and what `on_moment` raises.
        """
        while True:
            if self._fault is not None:
                raise self._fault
            rest = self._rest
            if rest is not None and not (through_timers and rest.due_ms is not None and self.is_driven):
                return attrs.evolve(rest, accepted=tuple(accepted_artifacts(rest.run, self.artifacts)))
            await self.change()

    async def rest_within(self, wait_s: float) -> Rest:
        """Wait as `rest` does, also for timers that are due within so many seconds; for a later one let go of the run, and return."""
        while True:
            rest = await self.rest()
            if rest.due_ms is None or not self.is_driven:
                return rest
            if rest.due_ms - self._driver.clock.wall_ms() > wait_s * 1000:
                await self.let_go()
                return rest
            await self.change()

    async def exists(self) -> None:
        """Wait until the first entry of a new run is durable. Raises what keeps it from being written."""
        while self._count == 0 and self._fault is None and self._rest is None:
            await self.change()
        if self._fault is not None:
            raise self._fault

    async def moments(self, *, after: int = 0) -> AsyncIterator[Moment]:
        """Iterate over what happened after the first `after` entries, then over what happens, until the run rests.

        Each moment is durable. A slow reader reads from the ledger; nothing is queued for it.
        """
        async for moment in self.moments_and_text(after=after):
            if isinstance(moment, Moment):
                yield moment

    async def moments_and_text(self, *, after: int = 0) -> AsyncIterator[Moment | Piece]:
        """Iterate as `moments` does, with the pieces of text that policies show meanwhile. A slow reader misses the oldest of these."""
        with self._watchers.reading() as pieces:
            while True:
                for entry in self.run.ledger[after : self._count]:
                    after += 1
                    yield Moment(self.id, after, entry)
                while pieces:
                    yield pieces.popleft()
                if after >= self._count and not pieces:
                    if self._rest is not None or self._fault is not None:
                        return
                    await self.change()

    async def change(self) -> None:
        """Wait until something happens in the run."""
        await self._watchers.change()

    # -- driving ----------------------------------------------------------------------------------------------------------

    async def drive(self, *occurrences: Occurrence, through_timers: bool = True) -> Rest:
        """Take the occurrences and drive the run in the caller's own task until it rests; cancelling it interrupts the run.

        `through_timers`: wait for timers as well. Raises what `Driver.drive` does, and HeldError where another process has the run.
        """
        assert not self._is_driven, "one task drives a run"
        return await self._drive(occurrences, through_timers=through_timers)

    def start(self, *occurrences: Occurrence) -> None:
        """Begin to drive the run in a task of its own; `rest` and `moments` tell how it goes on. Raises HeldError."""
        assert not self._is_driven, "one task drives a run"
        self._hold()
        self._rest, self._fault, self._is_driven = None, None, True
        self._task = asyncio.create_task(self._driven(occurrences))

    async def _drive(self, occurrences: tuple[Occurrence, ...], *, through_timers: bool = True) -> Rest:
        self._hold()
        self._rest, self._fault, self._is_driven = None, None, True
        try:
            self._rest = await self._until_rest(occurrences, through_timers=through_timers)
        except asyncio.CancelledError:
            self._rest = self._rest if self._lets_go else Rest("interrupted", self.run)
            raise
        except BaseException as fault:
            self._fault = fault
            raise
        finally:
            self._is_driven = False
            self._watchers.wake()
        return self._rest

    async def _until_rest(self, occurrences: tuple[Occurrence, ...], *, through_timers: bool) -> Rest:
        rest: Rest | None = None
        try:
            if self._setting.inbox is not None:
                self._setting.inbox.start()
            if self._setting.inbox is not None or PART_OF in self.id:  # in memory, parts alone are sent messages
                self.take_messages()
            rest = await self._driver.drive(*occurrences, through_timers=through_timers)
            while rest.kind == "waiting" and not self._released(rest):
                self.take_messages()
                rest = await self._driver.drive(through_timers=through_timers)
            if rest.failure is not None and self._setting.log is not None:
                self._setting.log.stopped(rest.failure.what, rest.failure.line, rest.failure.code, rest.failure.message)
        except asyncio.CancelledError:
            interrupted = Rest("interrupted", self.run, due_ms=self._driver.next_deadline_ms)
            rest = self._rest if self._lets_go else interrupted
            raise
        finally:
            if not self._released(rest):
                self.release()  # it was let go of: whoever has sent the messages takes it up
        return rest

    def _released(self, rest: Rest | None) -> bool:
        """Release the run, unless it waits and messages have come meanwhile."""
        try:
            self.release(rest)
        except MessagesWaitError:
            return False
        return True

    async def _driven(self, occurrences: tuple[Occurrence, ...]) -> None:
        with suppress(Exception):  # kept in `_fault`: `rest` raises it
            await self._drive(occurrences)

    async def send(
        self, event: str, data: object = None, *, verdicts: Mapping[str, Outcome] | None = None, at: str | None = None
    ) -> Taken | Refusal:
        """Send an event from outside, and wait until the run has taken or refused it; the run goes on by itself.

        `at` names the question that this answers (`rest.waits_for[event]`): when that has passed, the event is refused as late. Raises
        OccurrenceError for an event that does not come from outside, or whose data is not what it has to be; NotTakenError.
        """
        return await self.hand(Occurrence(event, verdicts or {}, data=data), at)

    async def hand(self, occurrence: Occurrence, at: str | None = None) -> Taken | Refusal:
        """Do what `send` does with an occurrence. TypeError for a place that is no text."""
        require_place(at)
        if not self._is_driven:
            self._hold()
        answer = self.offer(occurrence, at)
        if not self._is_driven:
            self.start()
        return await self.became(occurrence.event, answer)

    async def became(self, event: str, answer: "asyncio.Future[Taken | Refusal]") -> Taken | Refusal:
        """Wait for what becomes of an event that was offered. Raises what `send` does."""
        while not answer.done():
            if not self._is_driven:
                raise NotTakenError(f"run {self.id} came to rest before it took '{event}'")
            await self.change()
        return answer.result()

    async def interrupt(self) -> None:
        """Stop driving the run, if a task of its own does; the ledger keeps it, and it can be resumed."""
        await self._stop()
        self.release()
        self._watchers.wake()

    async def let_go(self) -> None:
        """Stop driving the run, if a task of its own does, and leave it to others: one that waits is waiting, another one is cut off."""
        self._lets_go = True
        try:
            await self._stop()
            self.release()
            self._rest = self._rest or Rest("interrupted", self.run)  # whoever waits here waits no more
            self._watchers.wake()
        finally:
            self._lets_go = False

    async def _stop(self) -> None:
        """Stop the task that drives the run, if there is one."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
            if self._is_driven:  # cancelled before its first step
                self._rest, self._is_driven = Rest("interrupted", self.run), False
