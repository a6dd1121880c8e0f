"""A run that begins as another one did: the same entries up to a place where nothing is under way, under a name of its own.

Takes a recorded run, gives the entries of the branch: only the first names its run. Artifacts keep the ids that they once got. The fold is taken over them again, which finds out whether what was cut makes sense.

Decisions about effects in doubt, which people make.

Takes a machine, what is left to do in its run, and what is said; gives the run in which it is recorded, or raises. It performs nothing.

Runs: the door. Everything that starts, resumes, follows or removes a run goes through it.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
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
from dsa.errors import BindingError, DsaError, OccurrenceError
from dsa.expr import Outcome
from dsa.lang import digest
from dsa.machine import Machine
from dsa.runs.archive import POLL_S, RunArchive, change_machine, replay_stored, require_no_secret, text_of
from dsa.runs.bindings import require_policy
from dsa.runs.child_runs import Machines, driving_run, target_run
from dsa.runs.handle import InboxReader, RunEnvironment, RunHandle, post_message, require_place
from dsa.runs.place import DEFAULT_RUNS, RunPlace, new_run_id, open_place, place_in_memory
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
from dsa.runtime.run_store import HeldError, NewJournal, Posted, StoredRun, UnknownRunError
from dsa.runtime.secrets import Secrets
from dsa.runtime.status import InFlight, Rest, UnfinishedWork, unfinished_work
from dsa.runtime.timeline import OnMoment
from dsa.semantics import Occurrence, Refusal, Taken, require_known


class BranchError(DsaError):
    """Raised when a run cannot be branched at a place."""


def branch_of(stored_run: StoredRun, length: int, name: str) -> StoredRun:
    """Return the branch `name` of a run: its first `length` entries. Raises BranchError where something was under way then."""
    whole = len(stored_run.entries)
    if not 1 <= length <= whole:
        raise BranchError(f"run {stored_run.run} has {whole} entries; it cannot be branched after {length}")
    first, *others = stored_run.entries[:length]
    assert isinstance(first, MachineEntry), "a run of a machine begins with it"
    settings = {**dict(first.started), "branched_from": {"run": stored_run.run, "entries": length}}
    entries = Ledger[Entry]((attrs.evolve(first, run=name, started=settings), *others))
    branch = attrs.evolve(stored_run, run=name, entries=entries, epoch=0, holder=None)
    run, _ = replay_stored(branch)
    if len(run.ledger) > length:
        raise BranchError(
            f"entry {length + 1} of run {stored_run.run} belongs to the one before: it cannot be branched between them"
        )
    if run.configuration.outstanding or unfinished_work(run).in_flight:
        raise BranchError(
            f"run {stored_run.run} had effects under way after {length} entries; it can be branched where it rests"
        )
    return branch


def copy_artifacts(branch: StoredRun, old: ArtifactStore, new: ArtifactStore) -> None:
    """Store what a branch's ledger names in the branch's own store, under the same ids, with the verdicts of that ledger."""
    ids = {entry.artifact_id for entry in branch.entries if isinstance(entry, ArtifactEntry)}
    for attempt in old.attempts():
        if attempt.artifact_id in ids:
            new.store(old.get_artifact(attempt.artifact_id), attempt.author, attempt.run_id)
    for entry in branch.entries:
        if isinstance(entry, VerdictEntry):
            new.record_verdict(entry)


def length_before(entries: Iterable[Entry], event: str, number: int) -> int:
    """Return how many entries stand before the `number`th time that an event was taken, from 1; all of them where it was taken less often."""
    entry_list, count = list(entries), 0
    for at, (entry, following) in enumerate(pairwise(entry_list)):
        count += isinstance(entry, EventEntry) and entry.event == event and isinstance(following, RowEntry)
        if count == number:
            return at
    return len(entry_list)


_DONE: Handling = "done"


class DoubtError(DsaError):
    """Raised when something is said about an effect that is not in doubt, or something that cannot be said of it."""


def require_decidable(
    machine: Machine, left: UnfinishedWork, decisions: Mapping[str, Handling], answers: Mapping[str, Occurrence | Step]
) -> None:
    """Raise DoubtError or OccurrenceError unless all this can be said of effects in doubt, and of calls that their policies had under way."""
    effects = {flying.intent.key: flying for flying in left.in_flight if flying.in_doubt}
    calls = calls_in_doubt(left)
    for key in (*decisions, *answers):
        if key not in effects and key not in calls:
            raise DoubtError(f"{key} is not in doubt; in doubt: {', '.join([*effects, *calls]) or 'nothing'}")
    both = sorted(decisions.keys() & answers.keys())
    if both:
        raise DoubtError(f"{both[0]} is decided twice")
    for key, handling in decisions.items():
        effect = effects[key].intent.effect if key in effects else ""
        if handling == "done" and effect in machine.answers:
            answers_text = ", ".join(machine.answers[effect])
            raise DoubtError(
                f"{effect} has answers, so it is not enough that it is done: say which it gave ({answers_text})"
            )
    for key, answer in answers.items():
        if isinstance(answer, Occurrence):
            _require_answer(machine, effects.get(key), answer)
        elif key not in calls:
            raise DoubtError(f"{key} is an effect: it is answered with an event, not with a step")


def _require_answer(machine: Machine, flying: InFlight | None, occurrence: Occurrence) -> None:
    if flying is None:
        raise OccurrenceError(f"'{occurrence.event}' is an event; a call gives a step: `text` or `action_result`")
    effect = flying.intent.effect
    answers = machine.answers.get(effect, ())
    if occurrence.event not in answers:
        hint = f"its answers: {', '.join(answers)}" if answers else "it has no answers"
        raise OccurrenceError(f"'{occurrence.event}' is no answer of {effect}; {hint}")
    require_known(machine, occurrence)


def calls_in_doubt(left: UnfinishedWork) -> Mapping[str, CallEntry]:
    """Return the calls under way in the effects that a run has left, by their keys."""
    return {call_key(call.key, call.path): call for flying in left.in_flight for call in flying.calls}


def record_decisions(
    run: Run, decisions: Mapping[str, Handling], answers: Mapping[str, Occurrence | Step], at_ms: int
) -> Run:
    """Record what somebody says became of effects in doubt and of calls in them, by their keys, with the results that this gives.

    What is to be done again, and an effect that counts as failed or done, has its result when the run goes on.
    """
    left = unfinished_work(run) if decisions or answers else UnfinishedWork()
    intents, calls = {flying.intent.key: flying.intent for flying in left.in_flight}, calls_in_doubt(left)
    for key, handling in {**decisions, **dict.fromkeys(answers, _DONE)}.items():
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
    """What is said to a run as it is taken up.

    `decided` says what is done about effects in doubt, and about calls that their policies had under way, by their keys (`KEY/PATH` for a call);
    `answers` are the events with which such effects were answered, and the steps that such calls gave; `change` may give another machine for the
    run; `take` takes it from a process that is alive and holds it.
    """

    decisions: Mapping[str, Handling] = attrs.field(factory=dict)
    answers: Mapping[str, Occurrence | Step] = attrs.field(factory=dict)
    change: Callable[[Run], ChangeEntry | None] = lambda _run: None
    take: bool = False


#: Raised in a block that a person leaves with Ctrl-C.
_STOPPED = (asyncio.CancelledError, KeyboardInterrupt)


class Runs(RunArchive):
    """The runs of one place. `open_runs` makes it; leaving its `async with` lets go of what it drives, in order; Ctrl-C interrupts it.

    It belongs to one event loop and its thread; any number of runs go on side by side. `bindings` says how the runs that it takes up are
    bound, unless `resume` says otherwise: for all of them, or by the names of machines.
    """

    def __init__(
        self, place: RunPlace, *, bindings: Source | Mapping[str, Source] | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(place)
        self._bindings, self._clock = bindings, clock
        self._held_runs: dict[str, RunHandle] = {}
        self._inbox = InboxReader(self._held_runs)
        self._sources: dict[str, Source] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        await self.close(interrupts=error_type is not None and issubclass(error_type, _STOPPED))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the place, for who only reads, or drives runs in tasks of its own that are over."""
        assert not any(handle.is_driven for handle in self._held_runs.values()), (
            "`async with` lets go of what is driven"
        )
        for handle in reversed(tuple(self._held_runs.values())):
            handle.release()
        self._place.close()

    async def close(self, *, interrupts: bool = False) -> None:
        """Let go of every run that is driven here, newest first, so that a worker goes on with it, or interrupt it; close the place."""
        for handle in reversed(tuple(self._held_runs.values())):
            await (handle.interrupt() if interrupts else handle.let_go())
        await self._inbox.stop()
        self._place.close()

    # -- driving ----------------------------------------------------------------------------------------------------------

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
        """Start a run of a document, or of a shipped machine, and go on with it in the background.

        `data` comes with the event that the run begins with: `specification`, or the only one from outside that may come first. `bindings` is a
        module's name or file, or a `dsa.Bindings`; without it `bindings.py` beside the document is used. `options` says more. Raises
        DocumentError, MachineError, BindingError, ModelUnavailable, BudgetError, SecretError, StoreError, ValueError; then there is no run.
        """
        full_options = options or Options()
        full_options = attrs.evolve(
            full_options, bindings=bindings or full_options.bindings, model=model or full_options.model
        )
        document = document_of(file)
        first, setup = first_event(document.machine, data), self.setup(document, full_options)
        require_policy(data, setup.binding)
        handle = self.begin(setup, run_id=run_id, on_moment=on_moment)
        handle.start(*first)
        await handle.exists()
        return handle

    def setup(self, document: MachineDocument, options: Options) -> RunSetup:
        """Bind a document for a run in this place. Raises what `start` does."""
        return setup_of(document, options, self._nested(options, document.path), self._config)

    def begin(self, setup: RunSetup, *, run_id: str = "", on_moment: OnMoment | None = None) -> RunHandle:
        """Return a new run that nothing drives yet. Nothing of it exists before its first entry is durable. Raises SecretError, MachineError."""
        require_sound(setup.machine)
        require_no_secret(setup.text, setup.binding.secrets)
        machine, secrets = setup.machine, setup.binding.secrets
        run_id = run_id or new_run_id(machine.name)
        settings = secrets.value(dict(setup.settings)) if setup.settings else {}
        means = setup.digest or (digest(machine) if setup.text else "")
        run, commands = begin(machine, run_id, digest=means, settings=settings, at_ms=self.now_ms())
        journal = NewJournal(self._place, run_id, setup.text)
        return RunHandle(self._setting(on_moment), setup, run, journal, commands=commands)

    async def resume(
        self,
        run_id: str,
        *occurrences: Occurrence,
        options: Options | None = None,
        resumption: Resumption | None = None,
        on_moment: OnMoment | None = None,
    ) -> RunHandle:
        """Take up a run and go on with it: where it was cut off, where a failure stopped it, or where it waits.

        Raises UnknownRunError, HeldError, OtherMachineError, ReplayError, DamageError, BindingError, MachineError; DoubtError and OccurrenceError
        for what cannot be said to it. Then nothing has changed.
        """
        handle = self.hold(run_id, options=options, resumption=resumption, on_moment=on_moment)
        handle.start(*occurrences)
        return handle

    def hold(
        self,
        run_id: str,
        *,
        options: Options | None = None,
        resumption: Resumption | None = None,
        on_moment: OnMoment | None = None,
    ) -> RunHandle:
        """Take up a run that nothing drives yet. Raises what `resume` does."""
        resumption = resumption or Resumption()
        if run_id in self._held_runs:
            raise HeldError(run_id, "this process")
        journal, stored_run = self._place.store.hold(run_id, take=resumption.take)
        try:
            run, first = change_machine(*replay_stored(stored_run), resumption.change)
            left = unfinished_work(run)
            require_decidable(run.machine, left, resumption.decisions, resumption.answers)
            text = text_of(stored_run.text, run.ledger)
            setup = self._setup_again(run, first, text, options or Options())
            if not run.is_finished:
                require_policy(run.specification, setup.binding)
            if len(run.ledger) != len(stored_run.entries):  # its text is another one now
                require_no_secret(text, setup.binding.secrets)
            if resumption.decisions or resumption.answers:
                answers = {key: _redact_answer(setup.binding.secrets, each) for key, each in resumption.answers.items()}
                run = record_decisions(run, resumption.decisions, answers, self.now_ms())
                left = unfinished_work(run)
            entries_before = len(stored_run.entries)
            if len(run.ledger) > entries_before:
                SummaryJournal(journal, run, lambda: run).append(run.ledger[entries_before:])
            return RunHandle(self._setting(on_moment), setup, run, journal, left=left, entries_before=entries_before)
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
        """Send an event to a run, and wait until it is taken or refused. A run that rests is taken up, and goes on here.

        `at` names the question that this answers (`rest.waits_for[event]`); without it, it is the one that the run waits with now. An event for a
        run that another process holds goes to its inbox; after `patience_s` seconds it is still there. Raises what `resume` and
        `RunHandle.send` do.
        """
        run_id, at = target_run(self, run_id, event, at)
        occurrence, whole = Occurrence(event, verdicts or {}, data=data), driving_run(self, run_id)
        with suppress(HeldError):
            if whole == run_id:
                return await (self._handles.get(run_id) or self.hold(run_id)).hand(occurrence, at)
        return await self._post(run_id, occurrence, at, patience_s, whole)

    async def _post(self, run_id: str, occurrence: Occurrence, at: str | None, most_s: float, whole: str) -> Posted:
        """Put an event into a run's inbox, and wait for what becomes of it; take up who drives it when its holder has let go of it."""
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
        """Put an event into a run's inbox, whoever has the run, and return the message's id. Raises OccurrenceError, UnknownRunError, StoreError; TypeError for a place that is no text."""
        require_place(at)
        return post_message(self._place, self.get(run_id), occurrence, at, self.now_ms(), options or Options())

    def binding_of(self, run_id: str, options: Options | None = None) -> Bindings:
        """Bind a recorded run as it was started, but for what the options say. Raises what `get` does, and BindingError."""
        stored_run = self.stored_run(run_id)
        run, first = replay_stored(stored_run)
        text = text_of(stored_run.text, run.ledger)
        return self._setup_again(run, first, text, options or Options(), even_over=True).binding

    def branch(self, run_id: str, length: int, new_id: str = "") -> str:
        """Make a run that begins as another one did, with its first `length` entries and what it generated until then; return its id.

        Raises BranchError where something was under way then, UnknownRunError, StoreError.
        """
        stored_run = self._place.store.read(run_id)
        machine = self.get(run_id).first.name
        name = new_id or new_run_id(machine)
        new = branch_of(stored_run, length, name)
        copy_artifacts(new, self._place.artifacts(run_id), self._place.artifacts(name))
        self._place.store.create(name, new.text, list(new.entries)).release()
        return name

    async def interrupt(self, run_id: str) -> None:
        """Stop driving a run; the ledger keeps it. Raises UnknownRunError for a run that is not driven here."""
        if run_id not in self._held_runs:
            raise UnknownRunError(f"run {run_id} is not driven here")
        await self._held_runs[run_id].interrupt()

    # -- within -----------------------------------------------------------------------------------------------------------

    def _setup_again(
        self, run: Run, first: MachineEntry, text: str, options: Options, *, even_over: bool = False
    ) -> RunSetup:
        """Bind a recorded run as it was started, but for what is to be otherwise; one that is over only where that is asked for."""
        machine, settings = run.machine, dict(first.started)
        source = self._sources.get(run.run_id) or self._bindings_of(machine.name)
        now = resumed_options(first, options, source, self._config)
        path = Path(settings["file"]) if settings.get("file") else None
        if not run.is_finished:
            require_sound(machine)
        try:
            binding = bindings_for(machine, now, path, self._nested(now, path), settings)
        except BindingError:
            if even_over or not run.is_finished or unfinished_work(run).in_flight:
                raise
            binding = Bindings({})  # nothing is performed any more
        if options.model is None:
            skip_replies(binding, run.ledger)
        return RunSetup(
            machine, binding, text, first.digest, present_settings(settings, now), limits_of(machine, now.budget)
        )

    def _bindings_of(self, machine: str) -> Source | None:
        bindings = self._bindings
        return bindings.get(machine) if isinstance(bindings, Mapping) else bindings

    def _nested(self, options: Options, path: Path | None) -> Machines:
        above = () if path is None else (path.resolve(),)
        return Machines(self, options, above)

    @property
    def _config(self) -> Mapping[str, Any]:
        """What every policy here can read."""
        return {} if self.root is None else {"runs": str(self.root.absolute())}

    def _setting(self, on_moment: OnMoment | None) -> RunEnvironment:
        if self.root is None:
            return RunEnvironment(
                self._place, self._clock, on_moment, self._held_runs, None, self._handles, self._sources
            )
        return RunEnvironment(
            self._place, self._clock, on_moment, self._held_runs, LedgerLog(), self._handles, self._sources, self._inbox
        )

    def now_ms(self) -> int:
        """Return the time by the clock of the runs, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000 if self._clock is None else self._clock.wall_ms()


def open_runs(
    where: str | Path = DEFAULT_RUNS,
    *,
    bindings: Source | Mapping[str, Source] | None = None,
    clock: Clock | None = None,
    must_exist: bool = False,
) -> Runs:
    """Open the runs of a folder, or of memory (`memory:`): `async with dsa.open_runs(".dsa") as runs`.

    Raises DocumentError for a folder in which no runs can be kept; with `must_exist` for one in which none are.
    """
    return Runs(open_place(where, must_exist=must_exist), bindings=bindings, clock=clock)


def runs_in_memory(artifacts: ArtifactStore | None = None) -> Runs:
    """Return runs that are forgotten with their process; what they generate goes to `artifacts`."""
    return Runs(place_in_memory(artifacts))


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
    """Run a document until it is finished, stopped, or waits for an event from outside; timers are waited for. For scripts.

    Raises what `Runs.start` does, RuntimeError inside an event loop, and KeyboardInterrupt after Ctrl-C: then the run can be resumed.
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
    raise RuntimeError("dsa.run has an event loop of its own: inside one, use `async with dsa.open_runs(..) as runs`")


def _redact_answer(secrets: Secrets, answer: Occurrence | Step) -> Occurrence | Step:
    """Return what somebody says that an effect or a call gave, without secrets."""
    if isinstance(answer, Step):
        return redact_step(secrets, answer)
    return attrs.evolve(answer, data=secrets.value(answer.data))
