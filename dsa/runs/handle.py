"""Handles: a run that this process drives, or has driven until it came to rest.

`RunHandle` is what callers have. It is a `HeldRun`, a run with its driver, which this process writes while it holds the run. `Watchers` are the tasks
that wait for something to happen in the run, or read the text that it shows. `InboxReader` looks for messages of other processes to the runs that
are held here; each goes to its run's driver, or is refused.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import Any
from weakref import WeakValueDictionary

import attrs

from dsa.edge.binding import Bindings, FromOutside
from dsa.edge.driver import Driver
from dsa.edge.event_loop import Clock
from dsa.edge.processes import environment_secrets
from dsa.edge.telemetry import LedgerLog
from dsa.errors import DsaError, OccurrenceError
from dsa.expr import Outcome
from dsa.runs.archive import RunRecord, replay_stored
from dsa.runs.place import PART_OF, RunFolder, RunPlace, accepted_artifacts
from dsa.runs.setup import Options, RunSetup, Source, resumed_options
from dsa.runs.summary import SummaryJournal
from dsa.runtime.ledger import Entry, Intent, ResumedEntry
from dsa.runtime.run import Command, Run
from dsa.runtime.run_store import InboxMessage, Journal, StoredRun, StoreError, error_text
from dsa.runtime.status import Rest, UnfinishedWork, parts, places, unfinished_work
from dsa.runtime.timeline import Moment, OnMoment, Piece
from dsa.semantics import Occurrence, Refusal, Taken

#: The most pieces of text that are kept for a slow reader.
_MOST_PIECES = 1_000


class Watchers:
    """The tasks that watch one run. Any of them may end at any time."""

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []
        self._readers: list[deque[Piece]] = []

    async def change(self) -> None:
        """Wait until `wake` is called."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Wake all tasks that wait in `change`."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def show(self, piece: Piece) -> None:
        """Add a piece of text to the queue of each reader, and wake all tasks. A slow reader loses the oldest pieces."""
        for pieces in self._readers:
            pieces.append(piece)
        self.wake()

    @contextmanager
    def collect_pieces(self) -> Iterator[deque[Piece]]:
        """Collect the pieces that are shown inside the `with` block, in the queue that it returns."""
        pieces: deque[Piece] = deque(maxlen=_MOST_PIECES)
        self._readers.append(pieces)
        try:
            yield pieces
        finally:
            self._readers = [each for each in self._readers if each is not pieces]


#: The time between two reads of the inboxes, in seconds.
_EVERY_S = 0.02


class RunInbox:
    """The inbox of one run."""

    def __init__(self, place: RunPlace, run_id: str) -> None:
        self._place, self._run_id = place, run_id
        self._ids: set[str] = set()

    def clear(self) -> None:
        """Forget which messages were handed over, because there is a new driver."""
        self._ids.clear()

    def hand_to(self, driver: Driver, journal: Journal) -> None:
        """Hand the waiting messages to a run's driver. A message that cannot be an event of the run is refused, and leaves the inbox. Raises StoreError."""
        for message in self._place.store.waiting_messages(self._run_id):
            if message.id in self._ids:
                continue
            self._ids.add(message.id)
            occurrence = Occurrence(message.event, message.verdicts, data=message.data)
            try:
                answer = driver.hand(occurrence, message.at, message.id, message.posted_ms)
            except (OccurrenceError, TypeError, ValueError) as error:
                journal.append((), outcomes=((message.id, error_text(error)),))
            else:
                answer.add_done_callback(_ignore_outcome)


def post_message(
    place: RunPlace, record: RunRecord, occurrence: Occurrence, at: str | None, now_ms: int, options: Options
) -> str:
    """Put an event into a run's inbox, without the secrets of the environment, the run and `options`, and return the message's id.

    `at` is the place of the question that it answers; with None, it answers what the run asks now. Raises OccurrenceError, StoreError.
    """
    run_id = record.run.run_id
    secrets = environment_secrets(resumed_options(record.first, options).secret_options)
    event = FromOutside(Bindings({}, secrets=secrets)).read(record.run, occurrence, at)
    place_name = at or place.store.summary(run_id).summary.waits_for.get(event.event)
    message = InboxMessage(token_hex(16), event.event, event.verdicts, event.data, place_name, now_ms)
    place.store.post(run_id, message)
    return message.id


def _ignore_outcome(answer: "asyncio.Future[Taken | Refusal]") -> None:
    """Retrieve the exception of a message, so that asyncio does not log it: the sender reads the outcome in the store."""
    if not answer.cancelled():
        answer.exception()


class InboxReader:
    """The task that reads the inboxes of the runs that are held here. It ends with the last of them."""

    def __init__(self, held_runs: "dict[str, RunHandle]") -> None:
        self._held_runs = held_runs
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task, if it does not run."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """Stop the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _read(self) -> None:
        while self._held_runs:
            await asyncio.sleep(_EVERY_S)
            for handle in tuple(self._held_runs.values()):
                try:
                    handle.take_messages()
                except StoreError:
                    continue  # the driver of the run gets this error too, and reports it


@attrs.frozen
class RunEnvironment:
    """The surroundings of a run: the place that keeps it, its clock, and its observers.

    `held_runs` are the runs that this process holds, `handles` those of which it has a handle, `sources` the bindings of the runs that it
    began with objects. `inbox` is None where only parts get messages.
    """

    place: RunPlace
    clock: Clock | None
    on_moment: OnMoment | None
    held_runs: dict[str, Any]
    log: LedgerLog | None = None
    handles: "WeakValueDictionary[str, Any]" = attrs.field(factory=WeakValueDictionary)
    sources: dict[str, Source] = attrs.field(factory=dict)
    inbox: InboxReader | None = None


class HeldRun:
    """A run and its driver. `artifacts` is the store of its artifacts, `folder` its folder for people (None in memory).

    While it is released, another process may hold it; when this process holds it again, it continues from there. Observers see every moment once.
    """

    def __init__(
        self,
        environment: RunEnvironment,
        setup: RunSetup,
        run: Run,
        journal: Journal,
        *,
        commands: tuple[Command, ...] = (),
        left: UnfinishedWork | None = None,
        entries_before: int = 0,
    ) -> None:
        self._environment, self._setup, self._journal = environment, setup, self._summary_journal(journal, run)
        self._is_held = True
        self.artifacts = environment.place.artifacts_when_wanted(run.run_id)
        self.folder = None if environment.place.root is None else RunFolder(environment.place.root, run, setup.text)
        self._messages = RunInbox(environment.place, run.run_id)
        self._count, self._entries_before, self._observed_count = 0, entries_before, 0
        self._watchers = Watchers()
        self._rest: Rest | None = None
        self.id = run.run_id
        environment.held_runs[self.id] = environment.handles[self.id] = self
        if setup.source is not None:
            environment.sources[self.id] = setup.source
        self._driver = self._new_driver(run, commands, left)

    def _new_driver(self, run: Run, commands: tuple[Command, ...], left: UnfinishedWork | None) -> Driver:
        return Driver(
            run,
            self._setup.binding,
            self.artifacts,
            commands=commands,
            left=left,
            session=self._session,
            journal=self._journal,
            limits=self._setup.limits,
            clock=self._environment.clock,
            observe=self._observe,
            on_rest=self._waits_for_timers,
            on_text=lambda key, text: self._watchers.show(Piece(self.id, key, text)),
            on_fault=self._record_fault,
            on_ring=self._look_into_inbox,
        )

    def _session(self) -> ResumedEntry:
        """Return the entry of this session: the process that drives the run, and the settings that it is bound with."""
        settings = self._setup.binding.secrets.value(dict(self._setup.settings))
        return ResumedEntry.from_settings(settings, self._environment.place.by)

    def _look_into_inbox(self) -> None:
        """Hand over the messages that were posted before a timer rang."""
        if self._environment.inbox is not None:
            with suppress(StoreError):  # the driver gets this error when it writes the timer, and reports it
                self.take_messages()

    def _record_fault(self, where: str, traceback: str) -> None:
        """Write a traceback of a user's code to the run's folder, and log it."""
        if self.folder is not None:
            self.folder.keep_error(where, traceback)
        if self._environment.log is not None:
            self._environment.log.fault(self.id, where, traceback)

    def _summary_journal(self, journal: Journal, run: Run) -> SummaryJournal:
        return SummaryJournal(journal, run, lambda: self._driver.run)

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self._driver.run

    @property
    def waits_for(self) -> Mapping[str, str]:
        """The events from outside that the run waits for now, each with its place."""
        return places(self.run)

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that the run's policies read: model, seed, budget and those that it was started with."""
        return self._setup.binding.config

    def _observe(self, entries: Sequence[Entry]) -> None:
        """Pass durable entries on to the observers, each once."""
        self._count += len(entries)
        new = self._count - self._observed_count
        if new <= 0:
            return
        self._observed_count, self._rest = self._count, None
        log, on_moment = self._environment.log, self._environment.on_moment
        if self.folder is None and log is None and on_moment is None:
            self._watchers.wake()
            return
        for number, entry in enumerate(entries[-new:], start=self._count - new + 1):
            if self.folder is not None:
                self.folder.observe(entry, self.artifacts)
            if log is not None:
                log.take(entry, number > self._entries_before)
            if on_moment is not None:
                on_moment(Moment(self.id, number, entry), number > self._entries_before)
        self._watchers.wake()

    def _waits_for_timers(self) -> None:
        self._rest = Rest("waiting", self.run, due_ms=self._driver.next_deadline_ms)
        self._journal.rest(self._rest)
        self._watchers.wake()

    def hear(self, effect: Intent, answer: Occurrence) -> None:
        """Deliver the answer of an effect that is performed elsewhere, or an answer that comes again. It is refused as late if nothing waits for it."""
        self._driver.hear(effect, answer)

    def offer(self, occurrence: Occurrence, at: str | None = None) -> "asyncio.Future[Taken | Refusal]":
        """Hand in an event from outside without waiting, from the event loop's thread. The run takes it in its turn, or when it is driven next.

        `at` names the question that it answers. The future has the outcome. Raises OccurrenceError as `send` does.
        """
        return self._driver.hand(occurrence, at)

    def take_messages(self) -> None:
        """Hand the messages of the inbox to the run, and let it look at parts that have messages. A run without entries has none. Raises StoreError."""
        if self._count:
            self._messages.hand_to(self._driver, self._journal)
            for key, part in tuple(self._driver.parts.items()):
                if any(self._environment.place.store.waiting_messages(run) for run in part.runs):
                    self._driver.look_again(key)

    def _hold(self) -> None:
        """Become the run's writer again, if it was released, and continue from its last entry in the store."""
        if self._is_held:
            return
        snapshot = StoredRun(self.id, self._setup.text, self.run.ledger, self._journal.epoch, head=self._journal.head)
        journal, stored_run = self._environment.place.store.hold(self.id, snapshot=snapshot)
        self._journal, self._is_held = self._summary_journal(journal, self.run), True
        self._environment.held_runs[self.id] = self
        is_same = len(stored_run.entries) == len(self.run.ledger)
        is_at_rest = self._rest is not None and self._rest.kind in {"waiting", "in doubt", "finished"}
        if is_same and is_at_rest and not parts(self.run):
            self._driver.write_to(self._journal)
            return
        run = self.run if is_same else replay_stored(stored_run)[0]
        self._entries_before, self._count = len(stored_run.entries), 0
        self._messages.clear()
        self._driver = self._new_driver(run, (), unfinished_work(run))

    def release(self, rest: Rest | None = None) -> bool:
        """Give up the right to write the run; this or another process can hold it again. `rest` is its status for the summary.

        Returns whether this was done: a run that waits and has messages in its inbox is still held.
        """
        if self._is_held:
            self._is_held = False
            if not self._journal.release(None if rest is None else self._journal.summary_at(rest)):
                self._is_held = True
                return False
            if self._environment.held_runs.get(self.id) is self:
                del self._environment.held_runs[self.id]
            if self.run.is_finished:
                self._environment.sources.pop(self.id, None)
        return True


class NotTakenError(DsaError):
    """Raised for an event that a run did not take before it stopped or was interrupted; nothing of it was recorded."""


def require_place(at: str | None) -> None:
    """Raise TypeError for a place that is not a string: the ledger keeps it unchanged."""
    if at is not None and not isinstance(at, str):
        raise TypeError(f'the place of a question must be a string, such as "3" or "3/1", not {at!r}')


class RunHandle(HeldRun):
    """One run in this process. `Runs` makes it.

    A task of its own drives the run, so that a reader of moments or a caller that waits for its rest may end. While the run rests it has no holder:
    another process may drive it, and this one continues from there later. An observer sees every moment once.
    """

    _task: asyncio.Task[None] | None = None
    _is_driven = _lets_go = False
    _fault: BaseException | None = None

    @property
    def is_driven(self) -> bool:
        """Return whether the run is being driven in this process."""
        return self._is_driven

    async def rest(self, *, through_timers: bool = False) -> Rest:
        """Wait until the run rests, and return the rest. With `through_timers`, also wait while it waits for a timer.

        Cancelling this does not stop the run. Raises what stopped the driver: StoreError, and what `on_moment` raises.
        """
        while True:
            if self._fault is not None:
                raise self._fault
            rest = self._rest
            if rest is not None and not (through_timers and rest.due_ms is not None and self.is_driven):
                return attrs.evolve(rest, accepted=tuple(accepted_artifacts(rest.run, self.artifacts)))
            await self.change()

    async def rest_within(self, wait_s: float) -> Rest:
        """Wait as `rest` does, and for timers that are due within `wait_s` seconds. If the next one is later, release the run and return."""
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
        """Yield the moments after the first `after` entries, then new ones as they come, until the run rests.

        Each moment is durable. A slow reader reads from the ledger; nothing is queued for it.
        """
        async for moment in self.moments_and_text(after=after):
            if isinstance(moment, Moment):
                yield moment

    async def moments_and_text(self, *, after: int = 0) -> AsyncIterator[Moment | Piece]:
        """Yield moments as `moments` does, and the pieces of text that policies show meanwhile. A slow reader loses the oldest pieces."""
        with self._watchers.collect_pieces() as pieces:
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

        With `through_timers`, wait for timers as well. Raises what `Driver.drive` does, and HeldError if another process holds the run.
        """
        assert not self._is_driven, "only one task drives a run"
        return await self._drive(occurrences, through_timers=through_timers)

    def start(self, *occurrences: Occurrence) -> None:
        """Begin to drive the run in a task of its own; follow it with `rest` and `moments`. Raises HeldError."""
        assert not self._is_driven, "only one task drives a run"
        self._hold()
        self._rest, self._fault, self._is_driven = None, None, True
        self._task = asyncio.create_task(self._drive_quietly(occurrences))

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
            if self._environment.inbox is not None:
                self._environment.inbox.start()
            if self._environment.inbox is not None or PART_OF in self.id:  # in memory, only parts get messages
                self.take_messages()
            rest = await self._driver.drive(*occurrences, through_timers=through_timers)
            while rest.kind == "waiting" and not self.release(rest):
                self.take_messages()
                rest = await self._driver.drive(through_timers=through_timers)
            if rest.failure is not None and self._environment.log is not None:
                self._environment.log.failure(
                    rest.failure.what, rest.failure.line, rest.failure.code, rest.failure.message
                )
        except asyncio.CancelledError:
            interruption = Rest("interrupted", self.run, due_ms=self._driver.next_deadline_ms)
            rest = self._rest if self._lets_go else interruption
            raise
        finally:
            if not self.release(rest):
                self.release()  # without a rest: the senders of the messages resume it
        return rest

    async def _drive_quietly(self, occurrences: tuple[Occurrence, ...]) -> None:
        with suppress(Exception):  # kept in `_fault`: `rest` raises it
            await self._drive(occurrences)

    async def send(
        self, event: str, data: object = None, *, verdicts: Mapping[str, Outcome] | None = None, at: str | None = None
    ) -> Taken | Refusal:
        """Send an event from outside, and wait until the run has taken or refused it; the run goes on by itself.

        `at` names the question that this answers (`rest.waits_for[event]`): if the run no longer asks it, the event is refused as late. Raises
        OccurrenceError for an event that does not come from outside or has invalid data; NotTakenError.
        """
        return await self.hand(Occurrence(event, verdicts or {}, data=data), at)

    async def hand(self, occurrence: Occurrence, at: str | None = None) -> Taken | Refusal:
        """Send an occurrence as `send` does. Raises TypeError for a place that is not a string."""
        require_place(at)
        if not self._is_driven:
            self._hold()
        answer = self.offer(occurrence, at)
        if not self._is_driven:
            self.start()
        return await self.outcome_of(occurrence.event, answer)

    async def outcome_of(self, event: str, answer: "asyncio.Future[Taken | Refusal]") -> Taken | Refusal:
        """Wait for the outcome of an event that was offered. Raises what `send` does."""
        while not answer.done():
            if not self._is_driven:
                raise NotTakenError(f"run {self.id} is no longer driven, and has not taken the event '{event}'")
            await self.change()
        return answer.result()

    async def interrupt(self) -> None:
        """Stop the task that drives the run; the run stays in the ledger, and can be resumed."""
        await self._stop()
        self.release()
        self._watchers.wake()

    async def let_go(self) -> None:
        """Stop the task that drives the run, and leave the run to others: its status is `waiting` if it waits, else `cut off`."""
        self._lets_go = True
        try:
            await self._stop()
            self.release()
            self._rest = self._rest or Rest("interrupted", self.run)  # ends the waiting in `rest`
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
