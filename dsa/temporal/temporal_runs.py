"""Runs on Temporal: the entry point of `dsa.runs`, where a server keeps the runs, workflows drive them and workers perform their effects.

`open_runs("temporal://HOST:PORT/NAMESPACE")` makes a `TemporalRuns`. It reads answers of workflows, whose state is the only one: nothing
is kept here that could be lost.

A run whose bindings other processes can find has its effects performed by any worker (`dsa work --runs temporal://..`), or, with `?queue=NAME` in the
address, by the workers of that queue, on the machine with what the effects need. Bindings that are objects of this process are known only here, so
such a run has a task queue of this process for its effects, and workflows are driven here as well.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import attrs

from dsa.checks.table_faults import require_sound
from dsa.edge.binding import Bindings, data_readers
from dsa.edge.event_loop import Clock, MonotonicClock
from dsa.edge.telemetry import LedgerLog
from dsa.errors import BindingError, DsaError
from dsa.expr import Outcome
from dsa.lang import digest
from dsa.runs.archive import RunFilter, RunNews, change_machine, record_of, require_no_secret, text_of
from dsa.runs.bindings import import_kinds
from dsa.runs.child_runs import keep_parts_in
from dsa.runs.handle import require_place
from dsa.runs.machine_extension import release_resources
from dsa.runs.place import RunPlace, own_or_new_id
from dsa.runs.runs import BoundRuns, Resumption, TakeUp, Worker, branch_of, copy_artifacts
from dsa.runs.setup import Options, RunSetup, Source
from dsa.runtime.costs import BudgetLimit
from dsa.runtime.ledger import MachineEntry, to_json
from dsa.runtime.policy.policies import Step
from dsa.runtime.run import Run
from dsa.runtime.run_store import HeldError, Posted, RunSummary, StoreError, UnknownRunError
from dsa.runtime.timeline import OnMoment, Piece
from dsa.semantics import Occurrence, Refusal, Taken
from dsa.temporal import payloads
from dsa.temporal.activity_calls import StoredArtifacts
from dsa.temporal.effect_activities import EffectActivities, RunCopy
from dsa.temporal.part_links import effect_at_work, whole_of
from dsa.temporal.payloads import PAGE_QUEUE, PROCESS_QUEUE, QUEUE, Json, StartPayload
from dsa.temporal.run_workflow import RunWorkflow
from dsa.temporal.server_link import ServerLink
from dsa.temporal.story_pages import PageWorkflow
from dsa.temporal.story_store import StoryReader, TemporalStore
from dsa.temporal.temporal_handle import TemporalHandle

#: The workflows that every worker of a namespace drives, and those that it does not remember.
WORKFLOWS, PAGE_WORKFLOWS = (RunWorkflow,), (PageWorkflow,)
#: The time between two looks of a worker at the runs that it works for, in seconds.
_EVERY_S = 0.2
#: The longest wait for a worker when the process ends, in seconds.
_LAST_S = 3.0
#: The longest time between two looks at one run, in seconds.
_LONGEST_S = 30.0


@attrs.frozen
class KnownBindings:
    """The bindings and the budget of a run on this worker, for its machine with this digest."""

    digest: str
    binding: Bindings
    limits: tuple[BudgetLimit, ...]

    @classmethod
    def of(cls, setup: RunSetup, digest: str) -> "KnownBindings":
        """Return those of a run that was set up."""
        return cls(digest, setup.binding, setup.limits)


class TemporalRuns(BoundRuns):
    """The runs of a namespace. Leaving its `async with` stops the workers of this process; the runs themselves stay with the server."""

    poll_s = 0.25

    def __init__(
        self, where: str, *, bindings: Source | Mapping[str, Source] | None = None, clock: Clock | None = None
    ) -> None:
        self.link = ServerLink(where)
        self.store = TemporalStore(self.link)
        store: Any = self.store
        place = RunPlace(lambda: store, lambda run_id: self.store.reader(run_id).artifacts, close=self.link.close)
        super().__init__(place, bindings=bindings, clock=clock)
        self.clock = clock or MonotonicClock()
        self._address = where
        self._queue = f"{PROCESS_QUEUE}{token_hex(6)}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._known_bindings: dict[str, KnownBindings] = {}
        self._log = LedgerLog()
        self._options = Options()
        self._require_allowed: Callable[[MachineEntry], None] = lambda _first: None
        #: The number of history events after which runs begun here continue in a new execution; None: when the server suggests it.
        self.most_events: int | None = None
        #: The runs whose effects were recently performed here.
        self.active_runs: dict[str, NextLook] = {}
        #: The lock that is held while a module is imported for a run.
        self.imports = asyncio.Lock()
        #: The runs whose bindings this process cannot have, and why.
        self.unbound_runs: dict[str, str] = {}

    @property
    def where(self) -> Path:
        """The address of the namespace, as a path."""
        return Path(self._address)

    async def close(self, *, interrupts: bool = False) -> None:
        """Stop the workers of this process, and interrupt the runs that it has begun if a person wants that; then close the link.

        A run cannot be interrupted while no worker answers: it continues with the next one, and its id is in `uninterrupted_ids`.
        """
        for run_id in reversed(tuple(self._held_runs)) if interrupts else ():
            await _interrupt_last(self, run_id)
        for handle in {*self._held_runs.values(), *self._handles.values()}:
            await handle.let_go()
        await asyncio.to_thread(self._place.close)

    # -- driving ----------------------------------------------------------------------------------------------------------

    def begin(self, setup: RunSetup, *, run_id: str = "", on_moment: OnMoment | None = None) -> "TemporalHandle":
        """Return a new run that nothing drives yet. It exists once its workflow has begun. Raises MachineError, DsaError for a secret."""
        require_sound(setup.machine)
        require_no_secret(setup.text, setup.binding.secrets)
        run_id = own_or_new_id(run_id, setup.machine.name)
        binding = setup.binding
        self._bind_part(run_id, setup)
        if setup.source is not None:
            self._sources[run_id] = setup.source
        start = StartPayload(
            run=run_id,
            settings=binding.secrets.value(dict(setup.settings)),
            queue=self._queue_of(run_id),
            most_events=self.most_events,
            **_about_machine(setup),
        )
        return TemporalHandle(self, run_id, on_moment, start=start, binding=binding)

    def _queue_of(self, run_id: str) -> str:
        """Return the task queue for the effects of a run: that of this process, if its bindings are known only here."""
        effect = effect_at_work()
        if effect is not None and whole_of(run_id):  # the work on a part is done where its whole is
            return effect.queue
        return self._queue if run_id in self._sources else self.link.effect_queue

    def _bind_part(self, run_id: str, setup: RunSetup) -> None:
        """Perform the effects of a part here with the bindings of its generator."""
        if effect_at_work() is None or not whole_of(run_id):
            return
        self._known_bindings[run_id] = KnownBindings.of(setup, setup.digest)
        if self._queue_of(run_id) == self._queue:
            self._sources[run_id] = lambda _machine, _settings: setup.binding

    def _hold(
        self, run_id: str, options: Options, resumption: Resumption, on_moment: OnMoment | None
    ) -> "TemporalHandle":
        reader = self.store.reader(run_id)
        is_part = effect_at_work() is not None and whole_of(run_id) != ""
        if reader.rest is None and not is_part:
            if not resumption.take:
                raise HeldError(run_id, "Temporal")
            reader = _interrupted_reader(self, run_id)
        record = record_of(reader.stored_run)
        source = options.bindings or self._bindings_of(record.run.machine.name)
        if source is not None and not isinstance(source, str | Path) and not is_part:
            self._sources[run_id] = source
        self._known_bindings.pop(run_id, None)
        run, first = change_machine(record.run, record.first, resumption.change)
        queue = _queue_again(self._queue_of(run_id), reader)
        changes = resumption.decisions or resumption.answers or (options != Options() and not is_part)
        changes = changes or run is not record.run or queue != reader.queue
        is_waiting = reader.rest is not None and reader.rest["kind"] == "waiting"
        is_over = is_part and reader.run.is_finished
        goes_on = reader.rest is None or (is_waiting and reader.is_driven) or is_over
        try:
            setup = self._setup_again(run, first, text_of(reader.text, run.ledger), options)
        except BindingError:
            if changes or is_part or not (goes_on or is_waiting) or queue == self._queue:
                raise
            return TemporalHandle(self, run_id, on_moment)  # events can be sent: its worker has what its bindings need
        self._bind_part(run_id, setup)
        if goes_on and not changes:
            return TemporalHandle(self, run_id, on_moment, binding=setup.binding)  # it continues by itself
        how = {
            **_resumption_to_json(resumption, setup),
            "queue": queue,
            "queue_before": queue if reader.queue.startswith(PROCESS_QUEUE) or queue == self._queue else reader.queue,
            "change": None if run is record.run else _change_to_json(setup, run, len(reader.entries)),
        }
        return TemporalHandle(self, run_id, on_moment, how=how, binding=setup.binding)

    def attach(self, run_id: str) -> "TemporalHandle":
        """Return the handle of a run that continues by itself."""
        handle = self._handles.get(run_id)
        return handle if isinstance(handle, TemporalHandle) else TemporalHandle(self, run_id)

    async def send(
        self,
        run_id: str,
        event: str,
        data: object = None,
        *,
        verdicts: Mapping[str, Outcome] | None = None,
        at: str | None = None,
        patience_s: float = 10.0,  # noqa: ARG002  (the server's patience has no end)
    ) -> Taken | Refusal | Posted:
        """Send an event to a run, and wait until it is taken or refused, as `Runs.send` does."""
        return await self.attach(run_id).hand(Occurrence(event, verdicts or {}, data=data), at)

    def post(self, run_id: str, occurrence: Occurrence, at: str | None = None, options: Options | None = None) -> str:  # noqa: ARG002
        """Raise StoreError, because a run on Temporal has no inbox and takes events at once. Raises TypeError for a place that is not a string."""
        require_place(at)
        raise StoreError(f"run {run_id} has no inbox, because runs on Temporal take each event immediately")

    def branch(self, run_id: str, length: int, new_id: str = "") -> str:
        """Make a run that begins as another one did, as `Runs.branch` does."""
        start = _start_of_branch(self.store.reader(run_id), length, new_id)
        self.link.run(self.store.begin_workflow(start))
        return start.run

    async def interrupt(self, run_id: str) -> None:
        """Stop driving a run until it is resumed. Raises UnknownRunError."""
        await self.link.wait(self.store.update(run_id, payloads.INTERRUPT))

    async def remove(self, run_id: str) -> None:
        """Remove a run from the server. Raises UnknownRunError, and HeldError for a run that continues by itself."""
        await self.link.wait(self.store.remove(run_id))
        self._held_runs.pop(run_id, None)

    async def _summaries(self, selection: RunFilter) -> tuple[RunSummary, ...]:
        return await self.link.wait(self.store.summaries(selection))

    async def count(self) -> int:
        """Return the number of all runs, as the server knows it."""
        return await self.link.wait(self.store.count())

    async def look(self, run_id: str, *, after: int = 0) -> RunNews:
        """Return the status of a run, and its entries after the first `after`. Raises UnknownRunError, StoreError."""
        reader = await self.link.wait(self.store.look_at(run_id))
        return RunNews(reader.summary, reader.entries[after:], reader.text, is_driven=reader.is_driven)

    async def wanted_worker(self, run_id: str) -> str:
        """Return which worker a run under way waits for, and how to start it; "" if there is one."""
        return await self.link.wait(self.store.wanted_worker(run_id))

    async def _change(self, run_id: str) -> None:
        await self.attach(run_id).change()

    # -- the work of this process ----------------------------------------------------------------------------------------

    def worker(self, **how: Any) -> "TemporalWorker":  # noqa: ANN401  (as `Worker` takes it)
        """Return a worker for the runs of the namespace."""
        return TemporalWorker(self, **how)

    async def work_for_all(
        self, options: Options, require_allowed: Callable[[MachineEntry], None], at_once: int
    ) -> None:
        """Drive workflows, and perform the effects of one queue, `at_once` at the same time, for runs whose bindings can be found by their names."""
        self._loop, self._options, self._require_allowed = asyncio.get_running_loop(), options, require_allowed
        import_kinds()  # before there is work, because the slots of the first effects would wait for it
        await _begin_work(self, self.link.effect_queue, at_once)

    def forget(self, run_id: str) -> None:
        """Forget what is known here of a run that rests, because it may never come back to this worker."""
        self.active_runs.pop(run_id, None)
        bindings = self._known_bindings.pop(run_id, None)
        if bindings is not None and run_id not in self._handles:
            release_resources(self.store.reader_so_far(run_id).run.machine.name, bindings.binding.config, run_id)
        if run_id not in self._handles:
            self.store.forget(run_id)

    async def work_here(self) -> None:
        """Drive workflows, and perform the effects of runs whose bindings are known only here."""
        self._loop = asyncio.get_running_loop()
        await _begin_work(self, self._queue)

    async def look_at(self, run_id: str, digest: str) -> RunCopy:
        """Return what is known of a run, in the worker's loop, as `Workplace.look_at` does. Raises BindingError for documents and modules that this worker may not read."""
        reader, bindings = self.store.reader_so_far(run_id), self._known_bindings.get(run_id)
        if not reader.entries or bindings is None or bindings.digest != digest:
            reader = await self.store.look_at(run_id)
            bindings = await _bind_again(self, reader, digest)
        self.active_runs[run_id] = NextLook.soon()
        return RunCopy(
            reader.run, reader.artifacts, bindings.binding, bindings.limits, lambda: self.store.reader(run_id).run
        )

    async def own_queue(self) -> str:
        """Also perform effects of the queue of this process; return its name."""
        await self.link.work_on(self._queue, EffectActivities(self).all)
        return self._queue

    async def in_policy_loop(self, work: Coroutine[Any, Any, Json]) -> Json:
        """Do work in the loop in which this entry point is used, and wait for it in the worker's loop."""
        assert self._loop is not None, "a worker has been started"

        async def work_with_parts() -> Json:
            keep_parts_in(self)
            return await work

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work_with_parts(), self._loop))

    def show(self, run_id: str, key: str, text: str) -> None:
        """Show a piece of text to those who watch the run here."""
        handle = self._handles.get(run_id)
        if isinstance(handle, TemporalHandle):
            handle.watchers.show(Piece(run_id, key, text))

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work in the worker's loop beside its activities."""
        self.link.keep(work)

    def fault(self, run_id: str, where: str, traceback: str) -> None:
        """Log an error in users' code."""
        self._log.fault(run_id, where, traceback)


@attrs.frozen
class NextLook:
    """The time when a worker next looks at a run whose effects it performs, by its own clock, and the interval in seconds."""

    at_s: float
    after_s: float

    @classmethod
    def soon(cls) -> "NextLook":
        """Return the first look after an effect has begun."""
        return cls(time.monotonic() + _EVERY_S, _EVERY_S)

    def later(self) -> "NextLook":
        """Return the next look: after twice the time, at most half a minute."""
        after_s = min(_LONGEST_S, 2 * self.after_s)
        return NextLook(time.monotonic() + after_s, after_s)

    @property
    def is_due(self) -> bool:
        """Return whether it is time to look."""
        return time.monotonic() >= self.at_s


async def _interrupt_last(runs: TemporalRuns, run_id: str) -> None:
    """Interrupt a run if it continues by itself and a worker answers soon."""
    try:
        async with asyncio.timeout(_LAST_S):
            if (await runs.link.wait(runs.store.look_at(run_id))).is_driven:
                await runs.interrupt(run_id)
    except UnknownRunError:
        return  # it has ended, or was removed
    except (StoreError, TimeoutError):
        runs.uninterrupted_ids += (run_id,)


async def _begin_work(runs: TemporalRuns, queue: str, at_once: int | None = None) -> None:
    """Begin to drive the workflows of runs, to hold the pages of their stories, and to perform the effects of a queue."""
    activities, link = EffectActivities(runs).all, runs.link
    if queue == QUEUE:
        await link.wait(link.work_on(QUEUE, activities, workflows=WORKFLOWS, at_once=at_once))
    else:
        await link.wait(link.work_on(QUEUE, workflows=WORKFLOWS))
        await link.wait(link.work_on(queue, activities, at_once=at_once))
    await link.wait(link.work_on(PAGE_QUEUE, workflows=PAGE_WORKFLOWS, most_cached=0))


async def _bind_again(runs: TemporalRuns, reader: StoryReader, digest: str) -> KnownBindings:
    """Bind a run that was read, as it was started, unless that is done. Raises BindingError, and lets its entry point remember why.

    A module may take long to import. Meanwhile the worker's loop sends heartbeats for other effects; one module is imported at a time.
    """
    run_id, record, how = reader.run_id, record_of(reader.stored_run), runs._options  # noqa: SLF001  (its own worker)
    text, bind = text_of(reader.text, reader.entries), runs._setup_again  # noqa: SLF001
    async with runs.imports:
        bindings = runs._known_bindings.get(run_id)  # noqa: SLF001
        if bindings is not None and bindings.digest == digest:
            return bindings
        try:
            runs._require_allowed(record.first)  # noqa: SLF001
            setup = await asyncio.to_thread(bind, reader.run, record.first, text, how, even_over=True)
        except DsaError as error:
            runs.unbound_runs[run_id] = str(error)
            raise
        runs.unbound_runs.pop(run_id, None)
        bindings = runs._known_bindings[run_id] = KnownBindings.of(setup, digest)  # noqa: SLF001
        return bindings


def _queue_again(queue: str, reader: StoryReader) -> str:
    """Return the task queue of a run that continues: it keeps its own, unless the address names another."""
    return reader.queue if queue == QUEUE and not reader.queue.startswith(PROCESS_QUEUE) else queue


def _interrupted_reader(runs: TemporalRuns, run_id: str) -> StoryReader:
    """Interrupt a run that is under way, and return its story."""
    runs.link.run(runs.store.update(run_id, payloads.INTERRUPT))
    return runs.store.reader(run_id)


def _about_machine(setup: RunSetup) -> Json:
    """Return what a workflow needs to know about a machine and its bindings, as fields of `StartPayload`."""
    binding = setup.binding
    return {
        "text": setup.text,
        "digest": setup.digest or digest(setup.machine),
        "parameters": tuple(dict(setup.machine.constants).items()),
        "guards": tuple(sorted(binding.guards)),
        "reads": tuple(sorted(data_readers(binding))),
        "spenders": None if binding.spenders is None else tuple(sorted(binding.spenders)),
    }


def _start_of_branch(reader: StoryReader, length: int, new_id: str) -> StartPayload:
    """Return the start of a run that begins like the one that was read. Raises BranchError."""
    assert reader.start is not None, "it was read"
    new = branch_of(reader.stored_run, length, own_or_new_id(new_id, record_of(reader.stored_run).first.name))
    artifacts = StoredArtifacts()
    copy_artifacts(new, reader.artifacts, artifacts)
    entries = tuple(to_json(entry) for entry in new.entries)
    return attrs.evolve(reader.start, run=new.run, first=(), entries=entries, artifacts=tuple(artifacts.records))


def _resumption_to_json(resumption: Resumption, setup: RunSetup) -> Json:
    """Return the settings with which a run continues, and a person's decisions and answers."""
    return {
        "settings": setup.binding.secrets.value(dict(setup.settings)),
        "decisions": dict(resumption.decisions),
        "answers": {key: _answer_to_json(each) for key, each in resumption.answers.items()},
    }


def _change_to_json(setup: RunSetup, run: Run, length: int) -> Json:
    """Return the change of a run to another machine, which was judged when its story had `length` entries. Raises DsaError for a secret."""
    require_no_secret(setup.text, setup.binding.secrets)
    return {"entry": to_json(run.ledger[-1]), "length": length, "start": _about_machine(setup)}


def _answer_to_json(answer: Occurrence | Step) -> Json:
    return answer.to_json() if isinstance(answer, Step) else payloads.occurrence_to_json(answer)


class TemporalWorker(Worker):
    """A worker of a namespace: it drives workflows, and performs effects of runs of all machines. Raises DsaError if it should serve only one."""

    def __init__(self, runs: TemporalRuns, *, machine: str | None = None, **how: Any) -> None:  # noqa: ANN401  (as `Worker` takes it)
        if machine is not None:
            raise DsaError(
                f"a worker on Temporal cannot be limited to the machine {machine}; to give this machine's runs a worker of their own, add ?queue=NAME to the address (--runs) when you start these runs, "
                "and give the worker the same address"
            )
        super().__init__(runs, **how)
        self._temporal_runs = runs

    async def take_up(self, *, once: bool = True) -> AsyncIterator[TakeUp]:
        """Work; yield a `TakeUp` for each run that this worker has performed effects of, whenever it rests.

        With `once`, end when no run is under way whose effects are for this worker; otherwise go on for ever.
        """
        runs, known_obstacles = self._temporal_runs, dict[str, str]()
        runs.link.on_span = self.on_span
        await runs.work_for_all(self._options, self._require_allowed, self._at_once)
        self.on_begin(runs.link.work_in_words(self._at_once))
        while True:
            for run_id, why in tuple(runs.unbound_runs.items()):
                if known_obstacles.get(run_id) != why:
                    yield TakeUp(run_id, fault=f"{why}; the run waits for another worker")
            known_obstacles = dict(runs.unbound_runs)
            for run_id, look in tuple(runs.active_runs.items()):
                take_up = await self._take_up_of(run_id) if look.is_due else None
                if take_up is not None:
                    if runs.active_runs.get(run_id) is look:  # otherwise an effect has begun in the meantime
                        runs.forget(run_id)
                    if not whole_of(run_id):
                        yield take_up
                elif look.is_due and runs.active_runs.get(run_id) is look:
                    runs.active_runs[run_id] = look.later()
            if once and not runs.active_runs and not await self._has_more():
                return
            await asyncio.sleep(_EVERY_S)

    async def _has_more(self) -> bool:
        """Return whether a run is under way whose effects are for this worker. An effect for a certain machine may wait long for that machine."""
        runs = self._temporal_runs
        readers = [runs.store.reader_so_far(each.run) for each in await runs.list(status="under way")]
        return any(
            reader.queue == runs.link.effect_queue and reader.run_id not in runs.unbound_runs for reader in readers
        )

    async def _take_up_of(self, run_id: str) -> TakeUp | None:
        """Return the report on a run whose effects were performed here; None while it goes on."""
        runs = self._temporal_runs
        try:
            if await runs.link.wait(runs.store.is_at_rest(run_id)):
                handle = runs.attach(run_id)
                reader = await handle.look()  # not `rest`: the run may go on for hours, and others would wait
                return None if reader.rest is None else TakeUp(run_id, handle.rest_of(reader))
        except UnknownRunError:
            return TakeUp(run_id, fault="it was removed")
        except StoreError as error:
            runs.link.note_once(f"{error}; this worker continues when it can")
        return None
