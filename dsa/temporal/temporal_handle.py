"""Handles of runs on Temporal: a caller's view of a run that a workflow drives.

Any number of processes may have a handle of the same run. A handle looks at the run repeatedly, often at first.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs
from temporalio.exceptions import ApplicationError

from dsa.edge.binding import Bindings, FromOutside
from dsa.edge.driver import outcome_of_last
from dsa.edge.processes import environment_secrets
from dsa.runs.archive import recorded_machine
from dsa.runs.handle import RunHandle, Watchers, require_place
from dsa.runs.place import accepted_artifacts
from dsa.runtime.ledger import asking_run
from dsa.runtime.run import Run, begin
from dsa.runtime.run_store import StoreError, UnknownRunError
from dsa.runtime.status import Rest, parts, places
from dsa.runtime.timeline import Moment, OnMoment, Piece
from dsa.semantics import Occurrence, Refusal, Taken
from dsa.temporal import payloads
from dsa.temporal.part_links import BEGIN_PART, EffectAtWork, effect_at_work, whole_of
from dsa.temporal.payloads import Json, StartPayload
from dsa.temporal.server_link import PATIENCE_S
from dsa.temporal.story_store import StoryReader

if TYPE_CHECKING:
    from dsa.temporal.temporal_runs import TemporalRuns

#: The time between two looks at a run, in seconds: the first, and the longest.
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.02, 0.25
#: The time between two checks whether there is a worker for a run that a caller waits for, in seconds.
_PATIENT_S = 2.0
_NOTICES = logging.getLogger("dsa.notice")


@attrs.define
class _WorkerWatch:
    """Reports once for which worker a run waits, while a caller waits for the run."""

    _next_s: float = attrs.field(factory=lambda: time.monotonic() + _PATIENT_S)
    _wanted_worker: str = ""

    async def check(self, runs: "TemporalRuns", run_id: str) -> None:
        """Check whether there is a worker for the run, if some time has passed since the last check."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _PATIENT_S
        wanted_worker = await runs.wanted_worker(run_id)
        if wanted_worker and wanted_worker != self._wanted_worker:
            _NOTICES.warning("run %s waits for %s", run_id, wanted_worker)
        self._wanted_worker = wanted_worker


class TemporalHandle(RunHandle):
    """One run on Temporal, as this process follows it. Any number of processes may have a handle of the same run."""

    def __init__(
        self,
        runs: "TemporalRuns",
        run_id: str,
        on_moment: OnMoment | None = None,
        *,
        start: StartPayload | None = None,
        how: Json | None = None,
        binding: Bindings | None = None,
    ) -> None:
        # Unlike a `HeldRun`, it has no driver, no journal and no folder.
        self._runs, self.id, self.folder = runs, run_id, None
        self._start, self._how, self._binding = start, how, binding
        self._on_moment, self._shown_count = on_moment, 0
        self._entries_before = 0 if how is None else len(runs.store.reader_so_far(run_id).entries)
        self.watchers = Watchers()
        self._offers: list[tuple[Occurrence, str | None, asyncio.Future[Taken | Refusal]]] = []
        self._begin_task: asyncio.Task[None] | None = None
        self._show_task: asyncio.Task[None] | None = None
        self._wait_s, self._watch = _FIRST_LOOK_S, _WorkerWatch()
        self._is_let_go = False
        runs._handles[run_id] = self  # noqa: SLF001  (its own entry point)

    async def look(self) -> StoryReader:
        """Read what is new of the run."""
        reader: StoryReader = await self._runs.link.wait(self._runs.store.look_at(self.id, is_patient=True))
        return reader

    def another(self, run_id: str) -> "TemporalHandle":
        """Return the handle of another run of the same namespace."""
        return self._runs.attach(run_id)

    @property
    def _reader(self) -> StoryReader:
        return self._runs.store.reader(self.id)

    @property
    def run(self) -> Run:
        """The current run; before its workflow has begun, the run without events."""
        return self._reader.run if self._start is None else _empty_run(self._start)

    @property
    def artifacts(self) -> Any:  # type: ignore[override]  # noqa: ANN401  (an ArtifactStore; elsewhere it is a field)
        """The store of its artifacts."""
        return self._reader.artifacts

    @property
    def waits_for(self) -> Mapping[str, str]:
        """The events from outside that the run waits for now, each with its place."""
        return places(self.run)

    @property
    def config(self) -> Mapping[str, Any]:
        """The settings that the run's policies read."""
        return self._runs.binding_of(self.id).config if self._binding is None else self._binding.config

    @property
    def is_driven(self) -> bool:
        """Return whether the run continues by itself."""
        if self._begin_task is not None and not self._begin_task.done():
            return True
        return not self._is_let_go and self._reader.is_driven

    # -- following --------------------------------------------------------------------------------------------------------

    async def exists(self) -> None:
        """Wait until the run has begun, or continues. Raises the error that prevents it."""
        if self._begin_task is not None:
            await asyncio.shield(self._begin_task)

    async def rest(self, *, through_timers: bool = False) -> Rest:
        """Wait until the run rests, and return the rest. With `through_timers`, also wait while it waits for a timer."""
        await self.exists()
        while True:
            if self._is_let_go:
                return Rest("interrupted", self._runs.store.reader_so_far(self.id).run)
            reader = await self.look()
            if reader.rest is not None and not (through_timers and reader.rest["due_ms"] is not None):
                return self.rest_of(reader)
            await self.change()

    def rest_of(self, reader: StoryReader) -> Rest:
        """Return the rest that was read, with the accepted artifacts."""
        assert reader.rest is not None, "it rests"
        self._show_all(reader)
        rest = payloads.rest_from(reader.run, reader.rest)
        return attrs.evolve(rest, accepted=tuple(accepted_artifacts(rest.run, reader.artifacts)))

    async def rest_within(self, wait_s: float) -> Rest:
        """Wait as `rest` does, and for timers that are due within `wait_s` seconds."""
        while True:
            rest = await self.rest()
            if rest.due_ms is None or rest.due_ms / 1000 - time.time() > wait_s:
                return rest
            await self.change()

    async def change(self) -> None:
        """Wait a moment for something to happen in the run; the next time longer, until this handle sends something."""
        self._wait_s = min(_LONGEST_LOOK_S, 1.5 * self._wait_s)
        if self._start is None:
            await self._watch.check(self._runs, self.id)
        with suppress(TimeoutError):
            await asyncio.wait_for(self.watchers.change(), self._wait_s)

    async def moments_and_text(self, *, after: int = 0) -> AsyncIterator[Moment | Piece]:
        """Yield moments as `moments` does, and the pieces of text that policies show in this process meanwhile."""
        await self.exists()
        with self.watchers.collect_pieces() as pieces:
            while True:
                reader = await self.look()
                self._show_all(reader)
                while pieces:
                    yield pieces.popleft()
                for entry in reader.entries[after:]:
                    after += 1
                    yield Moment(self.id, after, entry)
                if reader.rest is not None and after >= len(reader.entries) and not pieces:
                    return
                await self.change()

    async def _show_moments(self) -> None:
        """Show the moments of the run to the observer, until it rests."""
        while True:
            reader = await self.look()
            self._show_all(reader)
            if reader.rest is not None and reader.rest["due_ms"] is None:
                return
            await self.change()

    def _show_all(self, reader: StoryReader) -> None:
        """Show the moments that came since the last time to the observer."""
        if self._on_moment is None:
            return
        for entry in reader.entries[self._shown_count :]:
            self._shown_count += 1
            self._on_moment(Moment(self.id, self._shown_count, entry), self._shown_count > self._entries_before)

    # -- driving ----------------------------------------------------------------------------------------------------------

    def start(self, *occurrences: Occurrence) -> None:
        """Begin the run, or continue it, in a task of its own."""
        self._begin_task = asyncio.create_task(self._begin(occurrences))

    async def _begin(self, occurrences: tuple[Occurrence, ...]) -> None:
        runs, payload = self._runs, [payloads.occurrence_to_json(self._outside(each)) for each in occurrences]
        if self.id in runs._sources:  # noqa: SLF001  (its own entry point)
            await runs.work_here()
        if self._start is not None:
            await _begin_workflow(runs, attrs.evolve(self._start, first=tuple(payload)))
            self._start = None
        elif self._how is not None:
            how, self._how = _resumption(self._how, payload, moves=not (payload or self._offers)), None
            await runs.link.wait(runs.store.resume(self.id, how))
        elif occurrences and not await self._is_part_under_way():  # otherwise it has its first event
            for occurrence in occurrences:
                await self._send(occurrence, None)
        await self._send_offers()
        runs._held_runs[self.id] = self  # noqa: SLF001
        if self._on_moment is not None:
            self._show_task = asyncio.create_task(self._show_moments())

    async def _is_part_under_way(self) -> bool:
        return whole_of(self.id) != "" and (await self.look()).rest is None

    def _outside(self, occurrence: Occurrence) -> Occurrence:
        """Return an event without secrets, as it may leave this process."""
        secrets = environment_secrets() if self._binding is None else self._binding.secrets
        return attrs.evolve(occurrence, data=secrets.value(occurrence.data))

    async def drive(self, *occurrences: Occurrence, through_timers: bool = True) -> Rest:
        """Continue the run until it rests. An effect that drives a part gives back its place at the worker, and interrupts the part if it is cancelled."""
        effect = effect_at_work()
        if effect is None:
            self.start(*occurrences)
            return await self.rest(through_timers=through_timers)
        effect.give_place_back()
        self.start(*occurrences)
        try:
            return await _rest_for(effect, self)
        except asyncio.CancelledError:
            if not effect.is_leaving:
                await self.interrupt()
            raise

    def offer(self, occurrence: Occurrence, at: str | None = None) -> "asyncio.Future[Taken | Refusal]":
        """Offer an event without waiting; the run takes it in its turn, once it has been started. The future has the outcome."""
        answer: asyncio.Future[Taken | Refusal] = asyncio.get_running_loop().create_future()
        self._offers.append((occurrence, at, answer))
        return answer

    async def outcome_of(self, event: str, answer: "asyncio.Future[Taken | Refusal]") -> Taken | Refusal:  # noqa: ARG002  (as elsewhere)
        """Wait for the outcome of an event that was offered. Raises what `hand` does."""
        await self.exists()
        return await answer

    async def _send_offers(self) -> None:
        """Send the events that were offered, one after the other."""
        offers, self._offers = self._offers, []
        for occurrence, at, answer in offers:
            try:
                answer.set_result(await self._send(occurrence, at))
            except Exception as error:  # noqa: BLE001  (for the one who waits for the outcome)
                answer.set_exception(error)

    async def hand(self, occurrence: Occurrence, at: str | None = None) -> Taken | Refusal:
        """Send an occurrence, and wait until the run has taken or refused it."""
        require_place(at)
        await self.exists()
        return await self._send(occurrence, at)

    async def _send(self, occurrence: Occurrence, at: str | None) -> Taken | Refusal:
        reader = await self.look()
        place = at or places(reader.run).get(occurrence.event, "")
        if asking_run(place):
            return await _send_to_part(self, place, occurrence)
        machine = reader.run.machine
        if reader.run.is_finished and not reader.is_driven:
            return _refused_by_end(reader.run, occurrence, at)
        message = {"occurrence": payloads.occurrence_to_json(self._outside(occurrence)), "at": at}
        try:
            answer = await _send_aloud(self._runs, self.id, message)
        except ApplicationError as refusal:
            answer = refusal.details[0]
        except UnknownRunError:  # its workflow has ended in the meantime
            reader = await self.look()
            return _refused_by_end(reader.run, occurrence, at)
        self._wait_s = _FIRST_LOOK_S
        self.watchers.wake()
        return payloads.outcome_from(machine, answer)

    async def interrupt(self) -> None:
        """Stop what drives the run; the run stays with the server, and can be resumed."""
        await self.exists()
        await self._runs.interrupt(self.id)
        self._runs._held_runs.pop(self.id, None)  # noqa: SLF001
        self.watchers.wake()

    async def let_go(self) -> None:
        """Stop following the run; it continues by itself."""
        await _end(self._begin_task, self._show_task)
        self._is_let_go = True
        self._runs._held_runs.pop(self.id, None)  # noqa: SLF001
        self.watchers.wake()

    def release(self, rest: Rest | None = None) -> bool:  # noqa: ARG002  (the interface)
        """Do nothing, because a run on Temporal has no holder."""
        return True


async def _end(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel tasks, and wait until they have ended. One that has ended may belong to another thread's loop, which is closed."""
    for task in tasks:
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})


async def _send_aloud(runs: "TemporalRuns", run_id: str, message: Json) -> Json:
    """Send an event, and return its outcome; while waiting, report which worker must be started, if any."""
    task = asyncio.ensure_future(runs.link.wait(runs.store.update(run_id, payloads.SEND, message)))
    watch = _WorkerWatch()
    try:
        while not (await asyncio.wait({task}, timeout=_PATIENT_S))[0]:
            with suppress(StoreError):  # no worker answers; the next one takes the event
                await watch.check(runs, run_id)
    finally:
        task.cancel()
    return task.result()


def _resumption(how: Json, occurrences: list[Json], *, moves: bool) -> Json:
    """Return how a run continues, with events; on its old queue, unless this `moves` it (sending an event does not)."""
    queue = how["queue" if moves else "queue_before"]
    return {**how, "queue": queue, "occurrences": occurrences}


def _refused_by_end(run: Run, occurrence: Occurrence, at: str | None) -> Refusal:
    """Return the refusal of an event by a finished run; it is not recorded."""
    event = FromOutside(Bindings({})).read(run, occurrence, at)
    after, _ = run.feed(event, at=at, at_ms=run.read_ms)
    outcome = outcome_of_last(after, run.configuration, event)
    assert isinstance(outcome, Refusal), "a finished run takes no events"
    return outcome


def _empty_run(start: StartPayload) -> Run:
    """Return a run in the state before its workflow has begun."""
    machine, digest = recorded_machine(start.text, start.parameters)
    return begin(machine, start.run, digest=digest, settings=start.settings, at_ms=round(time.time() * 1000))[0]


async def _begin_workflow(runs: "TemporalRuns", start: StartPayload) -> None:
    """Begin a run, a part as a child of the run that it belongs to."""
    start = attrs.evolve(start, most_bytes=await runs.link.wait(runs.link.most_bytes()))
    whole = whole_of(start.run)
    if whole:
        machine = recorded_machine(start.text, start.parameters)[0].name
        with suppress(UnknownRunError):  # that run has ended
            await runs.link.wait(runs.store.update(whole, BEGIN_PART, start.to_json(), machine))
            return
    await runs.link.wait(runs.store.begin_workflow(start))


async def _rest_for(effect: EffectAtWork, part: TemporalHandle) -> Rest:
    """Wait until a part rests and its timers that were due when the effect began have rung."""
    await part.exists()
    while True:
        reader = await part.look()
        due_ms = None if reader.rest is None else reader.rest["due_ms"]
        if reader.rest is not None and (due_ms is None or due_ms > effect.at_ms):
            effect.seen_rests[part.id] = len(reader.entries)
            return part.rest_of(reader)
        await part.change()


async def _send_to_part(whole: TemporalHandle, place: str, occurrence: Occurrence) -> Taken | Refusal:
    """Send an event to the part in a place, and wait until the run around it knows that the part took it."""
    part_id, _, at = place.rpartition("@")
    before = await whole.look()
    outcome = await whole.another(part_id).hand(occurrence, at)
    is_heard = isinstance(outcome, Refusal) or part_id not in {each.run for each in parts(before.run).values()}
    count, until_s = len(before.entries), time.monotonic() + PATIENCE_S
    while not is_heard and time.monotonic() < until_s:
        reader = await whole.look()
        is_heard = reader.rest is None or len(reader.entries) > count or not reader.is_driven
        await asyncio.sleep(0 if is_heard else _FIRST_LOOK_S)
    return outcome
