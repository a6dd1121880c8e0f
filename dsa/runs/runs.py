"""Runs: the entry point that starts, resumes, follows and removes the runs of one place.

`LocalRuns` does this in a folder or in memory; `open_runs`, `runs_in_memory` and `run` make one, or that of a Temporal namespace. There are three more things:

- A branch is a new run that begins as another one did: with the same entries, up to a place where nothing was under way. Artifacts keep their
  ids. Replaying the entries checks whether the cut makes sense.
- A decision is what a person says about an effect in doubt. It is checked and recorded, but nothing is performed here.
- A `Worker` takes up the runs of a place that are due, and drives each to its next rest. Any number of workers may share a place, because only one
  process holds a run. A run that a person has interrupted is left alone, and a part is reached through the run that it belongs to.
"""

import asyncio
import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import attrs

from dsa.checks.table_faults import require_sound
from dsa.edge.binding import Bindings
from dsa.edge.event_loop import Clock, run_to_end
from dsa.edge.performer import result_of
from dsa.edge.telemetry import LedgerLog
from dsa.errors import BindingError, DocumentError, DsaError, OccurrenceError, install_hint
from dsa.expr import Outcome
from dsa.lang import digest
from dsa.machine import Machine
from dsa.runs.archive import POLL_S, RunArchive, change_machine, replay_stored, require_no_secret, text_of
from dsa.runs.bindings import require_policy
from dsa.runs.child_runs import Machines, driving_run, due_runs, target_run
from dsa.runs.door import Runs
from dsa.runs.handle import InboxReader, RunEnvironment, RunHandle, post_message, require_place
from dsa.runs.machine_extension import release_resources
from dsa.runs.place import DEFAULT_RUNS, SERVER, RunPlace, open_place, own_or_new_id, place_in_memory
from dsa.runs.setup import (
    MachineDocument,
    Options,
    RunSetup,
    Source,
    bindings_for,
    document_of,
    first_event,
    limits_of,
    present_settings,
    resumed_options,
    setup_of,
    skip_replies,
)
from dsa.runs.summary import SummaryJournal
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.ledger import (
    ArtifactEntry,
    CallEntry,
    CallResultEntry,
    ChangeEntry,
    DecidedEntry,
    Entry,
    EventEntry,
    Handling,
    Ledger,
    MachineEntry,
    RowEntry,
    VerdictEntry,
)
from dsa.runtime.policy.call_tree import call_key, number_steps, outcome_step
from dsa.runtime.policy.policies import Step, event_step, redact_step
from dsa.runtime.run import Run, begin
from dsa.runtime.run_store import HeldError, NewJournal, Posted, RunSummary, StoredRun, UnknownRunError
from dsa.runtime.secrets import Secrets
from dsa.runtime.status import InFlight, Rest, UnfinishedWork, status_of, unfinished_work
from dsa.runtime.timeline import OnMoment, TelemetrySpan
from dsa.semantics import Occurrence, Refusal, Taken, require_known


def branch_of(stored_run: StoredRun, length: int, name: str) -> StoredRun:
    """Return the branch `name` of a run: its first `length` entries. Raises DsaError if something was under way after them."""
    whole = len(stored_run.entries)
    if not 1 <= length <= whole:
        raise _branch_error(f"run {stored_run.run} has {whole} entries; it cannot be branched after entry {length}")
    first, *others = stored_run.entries[:length]
    assert isinstance(first, MachineEntry), "a run of a machine begins with it"
    settings = {**dict(first.started), "branched_from": {"run": stored_run.run, "entries": length}}
    entries = Ledger[Entry]((attrs.evolve(first, run=name, started=settings), *others))
    branch = attrs.evolve(stored_run, run=name, entries=entries, epoch=0, holder=None)
    run, _ = replay_stored(branch)
    if len(run.ledger) > length:
        raise _branch_error(
            f"run {stored_run.run} cannot be branched between entries {length} and {length + 1}: they belong together"
        )
    if run.configuration.outstanding or unfinished_work(run).in_flight:
        raise _branch_error(
            f"run {stored_run.run} cannot be branched after {length} entries, because effects were under way then; choose an entry after which no effect was under way"
        )
    return branch


def _branch_error(message: str) -> DsaError:
    return DsaError(message, code="BranchError")


def copy_artifacts(branch: StoredRun, old: ArtifactStore, new: ArtifactStore) -> None:
    """Copy the artifacts that a branch's ledger names to the branch's own store, under the same ids, with the verdicts of that ledger."""
    ids = {entry.artifact_id for entry in branch.entries if isinstance(entry, ArtifactEntry)}
    for attempt in old.attempts():
        if attempt.artifact_id in ids:
            new.store(old.get_artifact(attempt.artifact_id), attempt.author, attempt.run_id)
    for entry in branch.entries:
        if isinstance(entry, VerdictEntry):
            new.record_verdict(entry)


def length_before(entries: Iterable[Entry], event: str, number: int) -> int:
    """Return the number of entries before the `number`th time, from 1, that an event was taken; all entries if it was taken less often."""
    entry_list, count = list(entries), 0
    for at, (entry, following) in enumerate(pairwise(entry_list)):
        count += isinstance(entry, EventEntry) and entry.event == event and isinstance(following, RowEntry)
        if count == number:
            return at
    return len(entry_list)


_COUNT_AS_DONE: Handling = "done"


def require_decidable(
    machine: Machine, left: UnfinishedWork, decisions: Mapping[str, Handling], answers: Mapping[str, Occurrence | Step]
) -> None:
    """Raise DsaError or OccurrenceError unless all decisions and answers fit effects in doubt, or calls that their policies had under way."""
    effects = {open_effect.intent.key: open_effect for open_effect in left.in_flight if open_effect.in_doubt}
    calls = calls_in_doubt(left)
    for key in (*decisions, *answers):
        if key not in effects and key not in calls:
            raise _doubt_error(
                f"{key} is not in doubt; the effects and calls in doubt are: {', '.join([*effects, *calls]) or 'none'}"
            )
    both = sorted(decisions.keys() & answers.keys())
    if both:
        raise _doubt_error(f"{both[0]} is decided twice")
    for key, handling in decisions.items():
        effect = effects[key].intent.effect if key in effects else ""
        if handling == "done" and effect in machine.answers:
            answers_text = ", ".join(machine.answers[effect])
            raise _doubt_error(
                f"{effect} ends with an answer, so `done` is not enough: say which answer it gave ({answers_text})"
            )
    for key, answer in answers.items():
        if isinstance(answer, Occurrence):
            _require_answer(machine, effects.get(key), answer)
        elif key not in calls:
            raise _doubt_error(f"{key} is an effect: answer it with an event, not with a step")


def _doubt_error(message: str) -> DsaError:
    """Return the error for a decision about an effect that is not in doubt, and for one that this effect cannot have."""
    return DsaError(message, code="DoubtError")


def _require_answer(machine: Machine, open_effect: InFlight | None, occurrence: Occurrence) -> None:
    if open_effect is None:
        raise OccurrenceError(
            f"'{occurrence.event}' is an event, but a call must be answered with a step: `text` or `action_result`"
        )
    effect = open_effect.intent.effect
    answers = machine.answers.get(effect, ())
    if occurrence.event not in answers:
        hint = f"its answers: {', '.join(answers)}" if answers else "it has no answers"
        raise OccurrenceError(f"'{occurrence.event}' is not an answer of {effect}; {hint}")
    require_known(machine, occurrence)


def calls_in_doubt(left: UnfinishedWork) -> Mapping[str, CallEntry]:
    """Return the calls under way in unfinished effects, by their keys."""
    return {call_key(call.key, call.path): call for open_effect in left.in_flight for call in open_effect.calls}


def record_decisions(
    run: Run, decisions: Mapping[str, Handling], answers: Mapping[str, Occurrence | Step], at_ms: int
) -> Run:
    """Record people's decisions about effects in doubt and calls in them, by their keys, and the results that follow from them.

    What is performed again, and an effect that counts as failed or done, gets its result when the run goes on.
    """
    left = unfinished_work(run) if decisions or answers else UnfinishedWork()
    intents, calls = {each.intent.key: each.intent for each in left.in_flight}, calls_in_doubt(left)
    for key, handling in {**decisions, **dict.fromkeys(answers, _COUNT_AS_DONE)}.items():
        answer, call = answers.get(key), calls.get(key)
        if call is None:
            run = run.record(DecidedEntry(key, handling, at_ms=at_ms))
            if isinstance(answer, Occurrence):
                event = event_step(intents[key].effect, answer.event, verdicts=dict(answer.verdicts), data=answer.data)
                run = run.record(result_of(intents[key], [event], at_ms=at_ms))
            continue
        run = run.record(DecidedEntry(call.key, handling, call.path, at_ms))
        if handling in {"fail", "done"}:
            step = answer if isinstance(answer, Step) else outcome_step(call.policy, has_failed=handling == "fail")
            run = run.record(
                CallResultEntry(call.key, call.path, [s.to_json() for s in number_steps([step], call.path)])
            )
    return run


@attrs.frozen
class Resumption:
    """The instructions for resuming a run.

    `decisions` say what to do about effects in doubt, and about calls that their policies had under way, by their keys (`KEY/PATH` for a call).
    `answers` are the events that such effects were answered with, and the steps that such calls returned. `change` may return an entry with another
    machine for the run. `take` takes the run from a live process that holds it.
    """

    decisions: Mapping[str, Handling] = attrs.field(factory=dict)
    answers: Mapping[str, Occurrence | Step] = attrs.field(factory=dict)
    change: Callable[[Run], ChangeEntry | None] = lambda _run: None
    take: bool = False


#: Raised in a block that a person leaves with Ctrl-C.
_INTERRUPTIONS = (asyncio.CancelledError, KeyboardInterrupt)


class BoundRuns(RunArchive, ABC):
    """The common part of the runs of every place: documents are bound here, and recorded runs are bound again.

    `begin` and `_hold` make the handles of runs, each in its own way.
    """

    def __init__(
        self, place: RunPlace, *, bindings: Source | Mapping[str, Source] | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(place)
        self._bindings, self._clock = bindings, clock
        self._held_runs: dict[str, RunHandle] = {}
        self.uninterrupted_ids: tuple[str, ...] = ()
        self._sources: dict[str, Source] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        await self.close(interrupts=error_type is not None and issubclass(error_type, _INTERRUPTIONS))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the place. Only for readers, and for callers whose own driving tasks have ended."""
        assert not any(each.is_driven for each in self._held_runs.values()), "runs are driven here: use `async with`"
        for handle in reversed(tuple(self._held_runs.values())):
            handle.release()
        self._place.close()

    @abstractmethod
    async def close(self, *, interrupts: bool = False) -> None:
        """Release, or interrupt, the runs that are driven here; then close the place."""

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
        """Start a run of a document, or of a shipped machine, and drive it in the background.

        `data` comes with the event that the run begins with: `specification`, or the only one from outside that may come first. `bindings` is a
        module, the name or file of one, or a `dsa.Bindings`; without it `bindings.py` beside the document is used. `options` says more. Raises
        DocumentError, MachineError, BindingError, ModelUnavailable, ParameterError, StoreError, ValueError, DsaError for a secret; then no run exists.
        """
        base = options or Options()
        full_options = attrs.evolve(base, bindings=bindings or base.bindings, model=model or base.model)
        document = document_of(file)
        first, setup = first_event(document.machine, data), self.setup(document, full_options)
        require_policy(data, setup.binding)
        handle = self.begin(setup, run_id=run_id, on_moment=on_moment)
        handle.start(*first)
        await handle.exists()
        return handle

    def setup(self, document: MachineDocument, options: Options) -> RunSetup:
        """Bind a document for a run in this place. Raises what `start` does."""
        return setup_of(document, options, self._nested_machines(options, document.path), self._config)

    @abstractmethod
    def begin(self, setup: RunSetup, *, run_id: str = "", on_moment: OnMoment | None = None) -> RunHandle:
        """Return a new run that nothing drives yet. It exists once its beginning is durable. Raises MachineError, DsaError for a secret."""

    async def resume(
        self,
        run_id: str,
        *occurrences: Occurrence,
        options: Options | None = None,
        resumption: Resumption | None = None,
        on_moment: OnMoment | None = None,
    ) -> RunHandle:
        """Resume a run where it was cut off, where a failure stopped it, or where it waits.

        Raises UnknownRunError, HeldError, OtherMachineError, ReplayError, DamageError, BindingError, MachineError; DsaError and OccurrenceError
        for decisions and answers that do not fit. In these cases nothing has changed.
        """
        handle = self.hold(run_id, options=options, resumption=resumption, on_moment=on_moment)
        handle.start(*occurrences)
        await handle.exists()
        return handle

    def hold(
        self,
        run_id: str,
        *,
        options: Options | None = None,
        resumption: Resumption | None = None,
        on_moment: OnMoment | None = None,
    ) -> RunHandle:
        """Hold a run without driving it yet. Raises what `resume` does."""
        return self._hold(run_id, options or Options(), resumption or Resumption(), on_moment)

    @abstractmethod
    def _hold(self, run_id: str, options: Options, resumption: Resumption, on_moment: OnMoment | None) -> RunHandle:
        """Hold a run, as `hold` says."""

    def binding_of(self, run_id: str, options: Options | None = None) -> Bindings:
        """Bind a recorded run as it was started, except for what the options change. Raises what `get` does, and BindingError."""
        stored_run = self.stored_run(run_id)
        run, first = replay_stored(stored_run)
        text = text_of(stored_run.text, run.ledger)
        return self._setup_again(run, first, text, options or Options(), even_over=True).binding

    # -- within -----------------------------------------------------------------------------------------------------------

    def _setup_again(
        self, run: Run, first: MachineEntry, text: str, options: Options, *, even_over: bool = False
    ) -> RunSetup:
        """Bind a recorded run as it was started, except for what the options change. A run that is over needs no bindings, unless `even_over`."""
        machine, settings = run.machine, dict(first.started)
        source = self._sources.get(run.run_id) or self._bindings_of(machine.name)
        now = resumed_options(first, options, source, self._config)
        path = Path(settings["file"]) if settings.get("file") else None
        if not run.is_finished:
            require_sound(machine)
        try:
            binding = bindings_for(machine, now, path, self._nested_machines(now, path), settings)
        except BindingError:
            if even_over or not run.is_finished or unfinished_work(run).in_flight:
                raise
            binding = Bindings({})  # nothing is performed any more
        if options.model is None:
            skip_replies(binding, run.ledger)
        limits = limits_of(machine, now.budget)
        return RunSetup(machine, binding, text, first.digest, present_settings(settings, now), limits)

    def _bindings_of(self, machine: str) -> Source | None:
        return self._bindings.get(machine) if isinstance(self._bindings, Mapping) else self._bindings

    def _nested_machines(self, options: Options, path: Path | None) -> Machines:
        return Machines(self, options, () if path is None else (path.resolve(),))

    @property
    def _config(self) -> Mapping[str, Any]:
        """The settings that every policy here can read."""
        return {} if self.root is None else {"runs": str(self.root.absolute())}

    def now_ms(self) -> int:
        """Return the time by the clock of the runs, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock.wall_ms()


class LocalRuns(BoundRuns):
    """The runs of one place. `open_runs` makes it. Leaving its `async with` releases the runs that it drives, in order; Ctrl-C interrupts them.

    It belongs to one event loop and its thread; any number of runs go on at the same time. `bindings` binds the runs that it resumes, unless
    `resume` says otherwise: one source for all of them, or a source for each machine, by name.
    """

    def __init__(
        self, place: RunPlace, *, bindings: Source | Mapping[str, Source] | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(place, bindings=bindings, clock=clock)
        self._inbox = InboxReader(self._held_runs)

    async def close(self, *, interrupts: bool = False) -> None:
        """Release every run that is driven here, newest first, so that a worker can continue it, or interrupt it; then close the place."""
        for handle in reversed(tuple(self._held_runs.values())):
            await (handle.interrupt() if interrupts else handle.let_go())
        await self._inbox.stop()
        self._place.close()

    # -- driving ----------------------------------------------------------------------------------------------------------

    def begin(self, setup: RunSetup, *, run_id: str = "", on_moment: OnMoment | None = None) -> RunHandle:
        """Return a new run that nothing drives yet. It exists once its first entry is durable. Raises MachineError, DsaError for a secret."""
        require_sound(setup.machine)
        require_no_secret(setup.text, setup.binding.secrets)
        machine, run_id = setup.machine, own_or_new_id(run_id, setup.machine.name)
        settings = setup.binding.secrets.value(dict(setup.settings)) if setup.settings else {}
        means = setup.digest or (digest(machine) if setup.text else "")
        run, commands = begin(machine, run_id, digest=means, settings=settings, at_ms=self.now_ms())
        journal = NewJournal(self._place, run_id, setup.text)
        return RunHandle(self._environment(on_moment), setup, run, journal, commands=commands)

    def _hold(self, run_id: str, options: Options, resumption: Resumption, on_moment: OnMoment | None) -> RunHandle:
        if run_id in self._held_runs:
            raise HeldError(run_id, "this process")
        journal, stored_run = self._place.store.hold(run_id, take=resumption.take)
        try:
            run, first = change_machine(*replay_stored(stored_run), resumption.change)
            left = unfinished_work(run)
            require_decidable(run.machine, left, resumption.decisions, resumption.answers)
            text = text_of(stored_run.text, run.ledger)
            setup = self._setup_again(run, first, text, options)
            if not run.is_finished:
                require_policy(run.specification, setup.binding)
            if len(run.ledger) != len(stored_run.entries):  # the machine has changed, and with it the text
                require_no_secret(text, setup.binding.secrets)
            if resumption.decisions or resumption.answers:
                answers = {key: _redact_answer(setup.binding.secrets, each) for key, each in resumption.answers.items()}
                run = record_decisions(run, resumption.decisions, answers, self.now_ms())
                left = unfinished_work(run)
            if len(run.ledger) > (entries_before := len(stored_run.entries)):
                SummaryJournal(journal, run, lambda: run).append(run.ledger[entries_before:])
            return RunHandle(
                self._environment(on_moment), setup, run, journal, left=left, entries_before=entries_before
            )
        except BaseException:
            journal.release()
            raise

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
        """Send an event to a run, and wait until it is taken or refused. A run at rest is resumed here.

        `at` names the question that this answers (`rest.waits_for[event]`); without it, the event answers what the run asks now. An event for a
        run that another process holds goes to its inbox; wait at most `patience_s` seconds for its outcome, then leave it there. Raises what
        `resume` and `RunHandle.send` do.
        """
        run_id, at = target_run(self, run_id, event, at)
        occurrence, whole = Occurrence(event, verdicts or {}, data=data), driving_run(self, run_id)
        with suppress(HeldError):
            if whole == run_id:
                return await (self._handles.get(run_id) or self.hold(run_id)).hand(occurrence, at)
        return await self._post(run_id, occurrence, at, patience_s, whole)

    async def _post(self, run_id: str, occurrence: Occurrence, at: str | None, most_s: float, whole: str) -> Posted:
        """Put an event into a run's inbox, and wait for its outcome; resume the whole run when its holder has released it."""
        message, deadline_s = self.post(run_id, occurrence, at), time.monotonic() + most_s
        if (handle := self._handles.get(whole)) is not None and handle.is_driven:
            handle.take_messages()
        while time.monotonic() < deadline_s:
            if (outcome := self.delivery(message)) is not None:
                return Posted(run_id, message, outcome)
            if self.summary(whole).holder is None:
                with suppress(HeldError):
                    (self._handles.get(whole) or self.hold(whole)).start()
            await asyncio.sleep(POLL_S)
        return Posted(run_id, message)

    def post(self, run_id: str, occurrence: Occurrence, at: str | None = None, options: Options | None = None) -> str:
        """Put an event into a run's inbox, and return the message's id. Raises OccurrenceError, UnknownRunError, StoreError, TypeError."""
        require_place(at)
        return post_message(self._place, self.get(run_id), occurrence, at, self.now_ms(), options or Options())

    def branch(self, run_id: str, length: int, new_id: str = "") -> str:
        """Make a run that begins as another one did, with its first `length` entries and their artifacts; return its id.

        Raises DsaError if something was under way after them, UnknownRunError, StoreError.
        """
        stored_run = self._place.store.read(run_id)
        name = own_or_new_id(new_id, self.get(run_id).first.name)
        new = branch_of(stored_run, length, name)
        copy_artifacts(new, self._place.artifacts(run_id), self._place.artifacts(name))
        self._place.store.create(name, new.text, list(new.entries)).release()
        return name

    def worker(self, **how: Any) -> "Worker":  # noqa: ANN401  (as `Worker` takes it)
        """Return a worker for these runs."""
        return Worker(self, **how)

    async def interrupt(self, run_id: str) -> None:
        """Stop driving a run; it stays in the ledger. Raises UnknownRunError for a run that is not driven here."""
        if run_id not in self._held_runs:
            raise UnknownRunError(f"run {run_id} is not driven by this process")
        await self._held_runs[run_id].interrupt()

    def _environment(self, on_moment: OnMoment | None) -> RunEnvironment:
        log, inbox = (None, None) if self.root is None else (LedgerLog(), self._inbox)
        return RunEnvironment(
            self._place, self._clock, on_moment, self._held_runs, log, self._handles, self._sources, inbox
        )


def open_runs(
    where: str | Path = DEFAULT_RUNS,
    *,
    bindings: Source | Mapping[str, Source] | None = None,
    clock: Clock | None = None,
    must_exist: bool = False,
) -> Runs:
    """Open the runs of a folder, of memory (`memory:`), or of a Temporal namespace: `async with dsa.open_runs(".dsa") as runs`.

    A namespace is `temporal://HOST:PORT/NAMESPACE` (extra `temporal`). Raises DocumentError for a folder that cannot keep runs; with `must_exist`,
    also for one that keeps none.
    """
    if str(where).startswith(SERVER):
        return _temporal_runs(str(where), bindings, clock)
    return LocalRuns(open_place(where, must_exist=must_exist), bindings=bindings, clock=clock)


def _temporal_runs(where: str, bindings: Source | Mapping[str, Source] | None, clock: Clock | None) -> Runs:
    """Return the runs of a Temporal namespace. Raises DocumentError without the package, and for another address."""
    try:
        module = importlib.import_module("dsa.temporal.temporal_runs")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "temporalio":
            raise
        raise DocumentError(where, f"runs on Temporal need a package: {install_hint('temporal')}") from error
    runs: Runs = module.TemporalRuns(where, bindings=bindings, clock=clock)
    return runs


def runs_in_memory(artifacts: ArtifactStore | None = None) -> Runs:
    """Return runs in memory, which end with their process; their artifacts go to `artifacts`."""
    return LocalRuns(place_in_memory(artifacts))


def run(
    file: str | Path | Machine,
    data: object = None,
    *,
    where: str | Path = DEFAULT_RUNS,
    bindings: Source | None = None,
    model: str | None = None,
    options: Options | None = None,
    on_moment: OnMoment | None = None,
) -> Rest:
    """Run a document until it finishes, stops, or waits for an event from outside; wait for timers. This is for scripts.

    Raises what `Runs.start` does, RuntimeError inside an event loop, and KeyboardInterrupt after Ctrl-C; the run can then be resumed.
    """

    async def whole() -> Rest:
        async with open_runs(where) as runs:
            how: dict[str, Any] = {"bindings": bindings, "model": model, "options": options, "on_moment": on_moment}
            handle = await runs.start(file, data, **how)
            return await handle.rest(through_timers=True)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_to_end(whole())
    raise RuntimeError(
        "dsa.run starts its own event loop; inside a running event loop, use `async with dsa.open_runs(..) as runs`"
    )


def _redact_answer(secrets: Secrets, answer: Occurrence | Step) -> Occurrence | Step:
    """Return a person's answer for an effect or a call, without secrets."""
    if isinstance(answer, Step):
        return redact_step(secrets, answer)
    return attrs.evolve(answer, data=secrets.value(answer.data))


#: The time between two searches of a worker for runs that are due, in seconds.
_EVERY_S = 1.0
#: The folders with the documents and modules of shipped machines.
_SHIPPED_FOLDERS = tuple(Path(__file__).parents[2] / name for name in ("dsa", "machines"))


@attrs.frozen
class TakeUp:
    """A run that a worker has taken up: its `rest`, or the `fault` because of which it could not be taken up."""

    run: str
    rest: Rest | None = None
    fault: str = ""


class Worker:
    """A worker that takes up the due runs of `runs`, at most `at_once` at the same time, and only those of `machine` if it is given.

    `options` change how the runs are bound. Documents and modules are read only from `folders` (None: from anywhere), shipped machines and
    installed packages: a run's ledger names them, and anyone who can write the ledger could name others.
    """

    def __init__(
        self,
        runs: Runs,
        *,
        machine: str | None = None,
        at_once: int = 16,
        options: Options | None = None,
        folders: Iterable[Path] | None = None,
        on_moment: OnMoment | None = None,
    ) -> None:
        self._runs, self._machine, self._at_once = runs, machine, at_once
        self._options, self._on_moment = options or Options(), on_moment
        self._folders = None if folders is None else (*(each.resolve() for each in folders), *_SHIPPED_FOLDERS)
        self._faulty_runs: set[tuple[str, int]] = set()
        #: Gets a span for each effect that is performed here for a run that is driven elsewhere, as on Temporal.
        self.on_span: Callable[[TelemetrySpan], None] | None = None
        #: Gets a sentence about the work when it begins, if there is more to say than the place: on Temporal.
        self.on_begin: Callable[[str], None] = lambda _text: None

    async def take_up(self, *, once: bool = True) -> AsyncIterator[TakeUp]:
        """Take up due runs; yield a `TakeUp` for each, when it rests or when it cannot be taken up.

        With `once`, end when the runs that were due at the beginning are done; otherwise go on for ever. Leaving early, or cancelling, releases the runs
        that are under way, so that another worker can continue them.
        """
        due, driven = iter(await self._due()), dict[asyncio.Task[Rest], RunHandle]()
        try:
            while True:
                while len(driven) < self._at_once and (run := next(due, None)) is not None:
                    taken = self._take(run)
                    if isinstance(taken, TakeUp):
                        yield taken
                    elif taken is not None:
                        driven[asyncio.create_task(taken.rest_within(0))] = taken
                if once and not driven:
                    return
                for task in await _first_of(driven, None if once else _EVERY_S):
                    yield self._outcome_of(driven.pop(task), task)
                if not once:
                    due = iter(await self._due())
        finally:
            for task, handle in driven.items():
                task.cancel()
                await handle.let_go()

    async def _due(self) -> list[RunSummary]:
        summaries = due_runs(await self._runs.list(now_ms=self._runs.now_ms()))
        matches = (each for each in summaries if self._machine in {None, each.summary.machine})
        return [each for each in matches if (each.run, each.entries) not in self._faulty_runs]

    def _take(self, summary: RunSummary) -> RunHandle | TakeUp | None:
        """Take up a run if it is still there and nobody else holds it. For a run that cannot be taken up, return the reason, once."""
        try:
            first = self._runs.stored_run(summary.run).entries[0]
            assert isinstance(first, MachineEntry), "a run begins with its machine"
            self._require_allowed(first)
            handle = self._runs.hold(summary.run, options=self._options, on_moment=self._on_moment)
        except (HeldError, UnknownRunError):
            return None
        except (DsaError, OSError) as fault:
            self._faulty_runs.add((summary.run, summary.entries))
            return TakeUp(summary.run, fault=str(fault))
        status = status_of(handle.run)
        if status.kind == "stopped" or status.kind == "in doubt" or status.kind == "finished":  # noqa: PLR1714  (for the checker of types)
            rest = Rest(status.kind, handle.run, in_doubt=status.doubts)
            handle.release(rest)
            return (
                TakeUp(summary.run, fault=f"stopped: {status.failure}") if status.failure else TakeUp(summary.run, rest)
            )
        handle.start()
        return handle

    def _outcome_of(self, handle: RunHandle, task: "asyncio.Task[Rest]") -> TakeUp:
        release_resources(handle.run.machine.name, handle.config, handle.id)
        try:
            return TakeUp(handle.id, task.result())
        except (DsaError, OSError) as fault:
            return TakeUp(handle.id, fault=str(fault))

    def _require_allowed(self, first: MachineEntry) -> None:
        """Raise BindingError for a run whose document or module is outside the folders that may be read."""
        if self._folders is None:
            return
        settings = dict(first.started)
        names = (str(name) for name in (settings.get("file"), self._options.bindings or settings.get("module")) if name)
        for name in names:
            is_file = name.endswith((".py", ".md"))  # otherwise it is an installed module
            if is_file and not any(Path(name).resolve().is_relative_to(folder) for folder in self._folders):
                raise BindingError(f"{name} is outside the folders that this worker may read")


async def _first_of(tasks: Collection[asyncio.Task[Rest]], timeout_s: float | None) -> set[asyncio.Task[Rest]]:
    """Wait until one of the tasks is done, at most `timeout_s` seconds, and return the tasks that are done."""
    if not tasks:
        await asyncio.sleep(timeout_s or 0)
        return set()
    finished_tasks, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    return finished_tasks
