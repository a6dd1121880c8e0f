"""Runs: the door. Everything that starts, resumes, follows or removes a run goes through it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from dsa.edge.binding import Binding
from dsa.edge.clock import Clock
from dsa.edge.deciding import require_decidable, settled
from dsa.edge.interrupts import run_to_end
from dsa.edge.logs import LedgerLog
from dsa.expr import Outcome
from dsa.machine import Machine
from dsa.meaning import Occurrence, Refusal, Taken
from dsa.runs.children import Machines
from dsa.runs.document import Document, document_of, first_event
from dsa.runs.folder import new_run_id
from dsa.runs.handle import RunHandle, Setting
from dsa.runs.one_policy import require_policy
from dsa.runs.place import DEFAULT_RUNS, Place, opened_place, place_in_memory
from dsa.runs.record import RunRecord, changed, record_of, require_no_secret, text_of
from dsa.runs.setup import Options, Setup, Source, as_started, bound, limits_of, setup_of, skip_replies
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.journal import Beginning, HeldError, UnknownRunError
from dsa.runtime.ledger import ChangeEntry, Handling
from dsa.runtime.moment import Moment, OnMoment, to_all
from dsa.runtime.policies import Step
from dsa.runtime.recovery import unfinished
from dsa.runtime.redacting import step_without
from dsa.runtime.rest import Rest
from dsa.runtime.run import Run, begin
from dsa.runtime.secrets import Secrets


@attrs.frozen
class Resumption:
    """What is said to a run as it is taken up.

    `decided` says what is done about effects in doubt, and about calls that their policies had under way, by their keys (`KEY/PATH` for a call);
    `answers` are the events with which such effects were answered, and the steps that such calls gave; `change` may give another machine for the
    run; `take` takes it from a process that is alive and holds it.
    """

    decided: Mapping[str, Handling] = attrs.field(factory=dict)
    answers: Mapping[str, Occurrence | Step] = attrs.field(factory=dict)
    change: Callable[[Run], ChangeEntry | None] = lambda _run: None
    take: bool = False


class Runs:
    """The runs of one place. `open_runs` makes it; leaving its `async with` interrupts what it drives, in order.

    It belongs to one event loop and its thread; any number of runs go on side by side. `bindings` says how the runs that it takes up are
    bound, unless `resume` says otherwise: for all of them, or by the names of machines.
    """

    def __init__(
        self, place: Place, *, bindings: Source | Mapping[str, Source] | None = None, clock: Clock | None = None
    ) -> None:
        self._place, self._bindings, self._clock = place, bindings, clock
        self._handles: dict[str, RunHandle] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Interrupt every run that is driven here, newest first, and close the place."""
        for handle in reversed(tuple(self._handles.values())):
            await handle.interrupt()
        self._place.close()

    @property
    def root(self) -> Path | None:
        """The folder where the runs are kept; None in memory."""
        return self._place.root

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
        DocumentError, MachineError, BindingError, ModelUnavailable, BudgetError, SecretError, ValueError; then there is no run.
        """
        given = options or Options()
        given = attrs.evolve(given, bindings=bindings or given.bindings, model=model or given.model)
        document = document_of(file)
        first, setup = first_event(document.machine, data), self.setup(document, given)
        require_policy(document.machine, data, setup.binding.policies)
        handle = self.begin(setup, run_id=run_id, on_moment=on_moment)
        handle.start(*first)
        return handle

    def setup(self, document: Document, options: Options) -> Setup:
        """Bind a document for a run in this place. Raises what `start` does."""
        return setup_of(document, options, self._nested(options, document.path), self._config)

    def begin(self, setup: Setup, *, run_id: str = "", on_moment: OnMoment | None = None) -> RunHandle:
        """Return a new run that nothing drives yet. Nothing of it exists before its first entry is durable. Raises SecretError."""
        require_no_secret(setup.text, setup.binding.secrets)
        machine, secrets = setup.machine, setup.binding.secrets
        run_id = run_id or new_run_id(machine.name)
        known = secrets.value(dict(setup.started)) if setup.started else {}
        run, commands = begin(machine, run_id, digest=setup.digest, started=known, at_ms=self._now_ms())
        journal = Beginning(self._place.store, run_id, setup.text)
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

        Raises UnknownRunError, HeldError, OtherMachineError, ReplayError, DamageError, BindingError; DoubtError and OccurrenceError for what
        cannot be said to it. Then nothing has changed.
        """
        said = resumption or Resumption()
        handle = self.hold(run_id, options=options, resumption=said, on_moment=on_moment)
        handle.start(*occurrences, decided=said.decided)
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
        said = resumption or Resumption()
        if run_id in self._handles and self._handles[run_id].is_driven:
            raise HeldError(run_id, "this process")
        journal, recorded = self._place.store.hold(run_id, take=said.take)
        try:
            record = changed(record_of(recorded), said.change)
            require_decidable(record.run.machine, unfinished(record.run), said.decided, said.answers)
            setup = self._as_started(record, options or Options())
            require_policy(record.run.machine, record.run.specification, setup.binding.policies)
            secrets = setup.binding.secrets
            run = settled(record.run, said.decided, {key: clean(secrets, each) for key, each in said.answers.items()})
            if setup.text != text_of(recorded.text, recorded.entries):
                require_no_secret(setup.text, secrets)
            journal.append(run.ledger[len(recorded.entries) :])
            return RunHandle(
                self._setting(on_moment), setup, run, journal, left=unfinished(run), known=len(recorded.entries)
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
    ) -> Taken | Refusal:
        """Send an event to a run, and wait until it is taken or refused. A run that rests is taken up, and goes on here.

        Raises what `resume` and `RunHandle.send` do.
        """
        handle = self._handles.get(run_id) or self.hold(run_id)
        return await handle.send(event, data, verdicts=verdicts, at=at)

    async def interrupt(self, run_id: str) -> None:
        """Stop driving a run; the ledger keeps it. Raises UnknownRunError for a run that is not driven here."""
        if run_id not in self._handles:
            raise UnknownRunError(f"run {run_id} is not driven here")
        await self._handles[run_id].interrupt()

    # -- reading ----------------------------------------------------------------------------------------------------------

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order they were begun."""
        return self._place.store.runs()

    def handle(self, run_id: str) -> RunHandle | None:
        """Return the run if this process has it in hand."""
        return self._handles.get(run_id)

    def get(self, run_id: str) -> RunRecord:
        """Read a run, whoever drives it. Raises UnknownRunError, DamageError, OtherMachineError, ReplayError."""
        return record_of(self._place.store.read(run_id))

    def bound_again(self, run_id: str, options: Options | None = None) -> Binding:
        """Bind a recorded run as it was started, but for what the options say. Raises what `get` does, and BindingError."""
        return self._as_started(self.get(run_id), options or Options()).binding

    def artifacts(self, run_id: str) -> ArtifactStore:
        """Return what a run generated."""
        return self._place.artifacts(run_id)

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[Moment]:
        """Iterate over what happened in a run after the first `after` entries, and over what happens, until it is finished."""
        while True:
            entries = self._place.store.read(run_id).entries
            for entry in entries[after:]:
                after += 1
                yield Moment(run_id, after, entry)
            if self._is_finished(run_id):
                return
            await asyncio.sleep(POLL_S)

    def _is_finished(self, run_id: str) -> bool:
        handle = self._handles.get(run_id)
        return handle.run.finished if handle is not None else self.get(run_id).run.finished

    # -- within -----------------------------------------------------------------------------------------------------------

    def _as_started(self, record: RunRecord, options: Options) -> Setup:
        """Bind a recorded run as it was started, but for what is to be otherwise."""
        machine, known = record.run.machine, dict(record.first.started)
        if options.bindings is None:
            options = attrs.evolve(options, bindings=self._bindings_of(machine.name))
        now = as_started(record.first, options)
        path = Path(known["file"]) if known.get("file") else None
        now = attrs.evolve(now, config={**now.config, **self._config})
        binding = bound(machine, now, path, self._nested(now, path), known)
        if options.model is None:
            skip_replies(binding, record.run.ledger)
        text = text_of(record.recorded.text, record.run.ledger)
        return Setup(machine, binding, text, record.first.digest, known, limits_of(machine, now.budget))

    def _bindings_of(self, machine: str) -> Source | None:
        given = self._bindings
        return given.get(machine) if isinstance(given, Mapping) else given

    def _nested(self, options: Options, path: Path | None) -> Machines:
        above = () if path is None else (path.resolve(),)
        return Machines(self, options, above)

    @property
    def _config(self) -> Mapping[str, Any]:
        """What every policy here can read."""
        return {} if self.root is None else {"runs": str(self.root.absolute())}

    def _setting(self, on_moment: OnMoment | None) -> Setting:
        if self.root is None:
            return Setting(self._place, self._clock, on_moment, self._handles)
        log = LedgerLog()
        watch = log.on_moment if on_moment is None else to_all(log.on_moment, on_moment)
        return Setting(self._place, self._clock, watch, self._handles, log)

    def _now_ms(self) -> int:
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
    return Runs(opened_place(where, must_exist=must_exist), bindings=bindings, clock=clock)


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

    return run_to_end(whole())


def clean(secrets: Secrets, answer: Occurrence | Step) -> Occurrence | Step:
    """Return what somebody says that an effect or a call gave, without secrets."""
    if isinstance(answer, Step):
        return step_without(secrets, answer)
    return attrs.evolve(answer, data=secrets.value(answer.data))


#: How long a follower of another process's run waits between two looks, in seconds.
POLL_S = 0.01
