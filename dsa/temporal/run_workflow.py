"""The run workflow: one workflow that drives a run of any document and takes or refuses events from outside, with the driver that drives runs on one machine.

The driver is deterministic where its clock, its performer and its guards are: here these are the workflow's clock, timers and activities. So rows,
keys, retries, timers and sleeps mean the same as elsewhere, and no second interpreter has to agree with the first. Modules of users are never
imported here: `StartPayload` says what the driver has to know about the bindings.

Events from outside are updates. The validator asks the table: what it refuses leaves nothing in the history, unless a guard has to be asked first.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, cast

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from collections.abc import Callable

    import attrs

    from dsa.edge.binding import Bindings, FromOutside, answered_key, effect_names, exact_already
    from dsa.edge.driver import Driver, outcome_of_last
    from dsa.edge.performer import EffectPlan, Performer
    from dsa.errors import DsaError, OccurrenceError
    from dsa.machine import Machine
    from dsa.runs.archive import recorded_machine, replay_stored
    from dsa.runs.runs import record_decisions, require_decidable
    from dsa.runs.setup import limits_of
    from dsa.runtime.artifacts import MemoryArtifacts
    from dsa.runtime.content import Artifact, GuardInterface, GuardResult
    from dsa.runtime.costs import counters
    from dsa.runtime.ledger import Ledger, ResumedEntry, VerdictEntry, from_json, to_json
    from dsa.runtime.policy.call_tree import IN_DOUBT
    from dsa.runtime.policy.policies import Action, Step, error_step, question_step
    from dsa.runtime.run import Command, Run, begin
    from dsa.runtime.run_store import StoredRun
    from dsa.runtime.secrets import Secrets
    from dsa.runtime.status import Rest, UnfinishedWork, doubt_of, status_of, unfinished_work
    from dsa.semantics import Occurrence, Refusal, Taken
    from dsa.temporal import payloads
    from dsa.temporal.payloads import Json, StartPayload

T = TypeVar("T")

#: How long a worker may be silent while it performs an effect, before the effect is in doubt.
SILENCE = timedelta(seconds=15)
#: How much longer than its time limit an effect may seem to take: the worker keeps the limit, and says so.
_GRACE = timedelta(seconds=60)
_NO_LIMIT = timedelta(days=365)
_CUT_OFF = "the run was cut off while it was under way; it counts as failed"
_ONCE = RetryPolicy(maximum_attempts=1)
#: The length of one page of a story, in characters of JSON.
_PAGE = 500_000


class WorkflowClock:
    """The clock of a workflow: it stands still between tasks, and shows the same times in every replay."""

    def now_s(self) -> float:
        """Return the seconds since 1970."""
        return workflow.time()

    def wall_ms(self) -> int:
        """Return the milliseconds since 1970."""
        return round(workflow.time() * 1000)

    async def sleep(self, seconds: float) -> None:
        """Wait, by a timer of the server."""
        await asyncio.sleep(seconds)


async def call_activity(
    name: str, request: Json, *, queue: str, activity_id: str | None = None, limit: timedelta = _NO_LIMIT
) -> Json:
    """Call an activity once. Raises ActivityError; CancelledError of asyncio when the caller was cancelled."""
    try:
        return cast(
            Json,
            await workflow.execute_activity(
                name,
                request,
                task_queue=queue,
                activity_id=activity_id,
                retry_policy=_ONCE,
                start_to_close_timeout=limit,
                heartbeat_timeout=SILENCE,
            ),
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        raise


def is_lost(error: ActivityError) -> bool:
    """Return whether nobody knows how an activity ended: its worker fell silent, or ended with it."""
    cause = error.cause
    return not isinstance(cause, ApplicationError) or cause.type == "WorkerShutdown"


@attrs.frozen
class ActivityPerformer(Performer):
    """A performer whose tries are activities with the ids `SEQ:ORDINAL:EFFECT`, and `SEQ:ORDINAL:EFFECT:TRY` from the second try on."""

    _queue: str = attrs.field(kw_only=True)

    async def try_once(
        self, key: str, action: Action, plan: EffectPlan, root: int, conclude: Callable[[list[Step]], T]
    ) -> T:
        """Call the policy once, on a worker. An effect that is lost with its worker is in doubt, and handled as the table says."""
        effect, meter = action.policy, self._meter
        request = {
            "run": self._host.run.run_id,
            "key": key,
            "effect": effect,
            "root": root,
            "payload": action.payload,
        }
        place = f"{key.replace('/', ':')}:{effect}{f':{root}' if root > 1 else ''}"
        limit = self._limit_of(plan.about)
        within = _NO_LIMIT if limit is None else timedelta(seconds=limit.seconds) + _GRACE
        while True:
            if meter.has_limits:
                meter.begins(effect)
            try:
                answer = await call_activity(
                    payloads.PERFORM, request, queue=self._queue, activity_id=place, limit=within
                )
            except ActivityError as error:
                if not is_lost(error):
                    return conclude([_step_of(effect, error)])
                handling = doubt_of(plan.about)
                if handling == "ask":  # nothing is recorded: the run rests, and its status says why
                    return cast(T, (question_step(effect, IN_DOUBT, about={"code": IN_DOUBT}), True))
                self._host.keep(ResumedEntry(at_ms=self._clock.wall_ms(), effects=((key, handling),)))
                if handling == "fail":
                    return cast(T, (cast(Any, conclude([error_step(effect, IN_DOUBT, _CUT_OFF)]))[0], True))
                continue
            finally:
                if meter.has_limits:
                    meter.ends(effect)
            self._record(answer["records"])
            return conclude([Step(**step) for step in answer["steps"]])

    def _record(self, records: Iterable[Json]) -> None:
        """Store and record what a policy did, in its order."""
        for record in records:
            if "artifact" in record:
                payloads.store_artifact(self._artifacts, record)
                continue
            entry = from_json(record)
            if isinstance(entry, VerdictEntry):
                self._artifacts.record_clean_verdict(entry)
            self._host.record(cast(Any, entry))


def _step_of(effect: str, error: ActivityError) -> Step:
    """Return the error step of an activity that failed before its policy was called: the worker could not bind the document, say."""
    cause = error.cause
    return error_step(
        effect, getattr(cause, "type", None) or type(cause).__name__, getattr(cause, "message", str(cause))
    )


@attrs.frozen
class ActivityGuard(GuardInterface):
    """A guard that judges on a worker."""

    blocks = False
    _name: str
    _run: str
    _queue: Callable[[], str]

    async def validate(self, artifact: Artifact, **dependencies: Any) -> GuardResult:  # noqa: ANN401  (JSON)
        """Return the verdict. Raises an error with the name and the message of the guard's own."""
        artifacts = {name: each for name, each in dependencies.items() if isinstance(each, Artifact)}
        request = {
            "run": self._run,
            "guard": self._name,
            "artifact": payloads.artifact_to_json(artifact),
            "artifacts": {name: payloads.artifact_to_json(each) for name, each in artifacts.items()},
            "data": {name: each for name, each in dependencies.items() if name not in artifacts},
        }
        try:
            return GuardResult(**await call_activity(payloads.JUDGE, request, queue=self._queue()))
        except ActivityError as error:
            cause = error.cause  # a run that stops names the class of the guard's own error
            name = getattr(cause, "type", None) or type(cause).__name__
            raise type(name, (RuntimeError,), {})(getattr(cause, "message", str(cause))) from error


class StoredArtifacts(MemoryArtifacts):
    """The artifacts of one run in memory, and the order in which they came, for readers."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Json] = []

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version and return it with its id."""
        stored_artifact = super().store(artifact, author, run_id)
        if len(self.attempts()) > len(self.records):
            self.records.append(payloads.artifact_record(stored_artifact, author, run_id))
        return stored_artifact


async def _nobody(_action: Action, _context: object) -> list[Step]:
    """Stand for a policy that a worker has."""
    raise AssertionError("effects are activities")


@contextmanager
def typed_errors() -> Iterator[None]:
    """Turn errors of this package into application errors of the same name, which fail an update and not the workflow."""
    try:
        yield
    except (DsaError, TypeError, ValueError) as error:
        raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error


@workflow.defn(name=payloads.WORKFLOW)
class RunWorkflow:
    """The workflow of one run. Its id is the run's."""

    @workflow.init
    def __init__(self, start: Json) -> None:
        self._start = StartPayload(**start)
        self._queue, self._settings = self._start.queue, self._start.settings
        machine, self._digest = recorded_machine(
            self._start.text, tuple((name, value) for name, value in self._start.parameters)
        )
        self._artifacts = StoredArtifacts()
        self._rest: Rest | None = None
        self._task: asyncio.Task[Rest] | None = None
        self._is_called = not self._start.entries
        if self._start.entries:
            self._driver = self._driver_of_branch()
            return
        now_ms = WorkflowClock().wall_ms()
        run, commands = begin(machine, self._start.run, digest=self._digest, settings=self._settings, at_ms=now_ms)
        self._driver = self._new_driver(run, commands)

    def _driver_of_branch(self) -> Driver:
        """Return the driver of a run that begins as another one did, and rests there."""
        start = self._start
        entries = Ledger(from_json(each) for each in start.entries)
        for record in start.artifacts:
            payloads.store_artifact(self._artifacts, record)
        for entry in entries:
            if isinstance(entry, VerdictEntry):
                self._artifacts.record_verdict(entry)
        run, _ = replay_stored(StoredRun(start.run, start.text, entries, 1))
        kind = status_of(run).kind
        driver = self._new_driver(run, left=unfinished_work(run))
        self._rest = Rest("waiting" if kind == "waiting" else "finished" if kind == "finished" else "interrupted", run)
        return driver

    def _new_driver(self, run: Run, commands: tuple[Command, ...] = (), left: UnfinishedWork | None = None) -> Driver:
        binding = self._binding(run.machine)
        self._outside = FromOutside(binding)
        return Driver(
            run,
            binding,
            self._artifacts,
            commands=commands,
            left=left,
            session=lambda: ResumedEntry.from_settings(self._settings, "Temporal"),
            limits=limits_of(run.machine, self._settings.get("budget") or ()),
            clock=WorkflowClock(),
            observe=lambda _entries: self._go_on(),
            on_rest=lambda: self._come_to_rest(Rest("waiting", self._run, due_ms=self._driver.next_deadline_ms)),
            performer=partial(ActivityPerformer, queue=self._queue),
        )

    def _binding(self, machine: Machine) -> Bindings:
        """Return the bindings as the workflow knows them: every name, and no code behind it."""
        start = self._start
        effects = {name: _nobody for name, _ in effect_names(machine)}
        guards = {name: ActivityGuard(name, start.run, lambda: self._queue) for name in start.guards}
        spenders = None if start.spenders is None else frozenset(start.spenders)
        secrets = Secrets(shapes=())  # a worker and a sender have removed them, before anything left their process
        return Bindings(effects, guards, secrets=secrets, spenders=spenders)

    @property
    def _run(self) -> Run:
        return self._driver.run

    def _go_on(self) -> None:
        self._rest = None

    def _come_to_rest(self, rest: Rest) -> None:
        """Rest; an effect that was lost with its worker, and about which a person has to decide, leaves the run in doubt."""
        is_lost_one = rest.kind == "waiting" or (rest.failure is not None and rest.failure.code == IN_DOUBT)
        doubts = status_of(self._run).doubts if is_lost_one else ()
        self._rest = Rest("in doubt", self._run, in_doubt=doubts) if doubts else rest

    @workflow.run
    async def run(self, _start: Json) -> str:
        """Drive the run until it is finished; return the outcome."""
        if self._digest != self._start.digest:
            raise ApplicationError(
                f"run {self._start.run} is of another machine: its document reads otherwise on this worker",
                type="OtherMachineError",
                non_retryable=True,
            )
        first = [payloads.occurrence_from(each) for each in self._start.first]
        while True:
            await workflow.wait_condition(
                lambda: self._is_called or (self._is_over and workflow.all_handlers_finished())
            )
            if not self._is_called:
                return self._run.outcome
            self._is_called = False
            rest = await self._drive(first)
            self._come_to_rest(rest)
            first = []
            if rest.kind in {"waiting", "finished"} and self._driver.has_news:  # it came while the driver was ending
                self._is_called = True

    @property
    def _is_over(self) -> bool:
        return self._rest is not None and self._rest.kind == "finished"

    async def _drive(self, occurrences: list[Occurrence]) -> Rest:
        """Drive the run to its next rest, in a task that `interrupt` can cancel."""
        self._rest = None
        self._task = task = asyncio.create_task(self._driver.drive(*occurrences))
        try:
            return await task
        except asyncio.CancelledError:
            if not task.done():
                task.cancel()  # the whole workflow is cancelled
                raise
            return Rest("interrupted", self._run, due_ms=self._driver.next_deadline_ms)
        finally:
            self._task = None

    # -- events from outside ------------------------------------------------------------------------------------

    @workflow.update(name=payloads.SEND)
    async def send(self, message: Json) -> Json:
        """Take an event, and return its outcome. `message` has the occurrence, and the place of the question that it answers."""
        occurrence, at = payloads.occurrence_from(message["occurrence"]), message.get("at")
        with typed_errors():
            if occurrence.event in self._start.reads:
                occurrence = attrs.evolve(occurrence, data=await self._read(occurrence))
            if self._task is None and self._rest is not None and self._rest.kind not in {"waiting", "finished"}:
                self._renew()
            answer = self._driver.hand(occurrence, at)
            self._is_called = self._is_called or self._task is None
            await workflow.wait_condition(lambda: answer.done() or (self._task is None and not self._is_called))
            if not answer.done():
                name = occurrence.event
                raise ApplicationError(
                    f"run {self._start.run} came to rest before it took '{name}'", type="NotTakenError"
                )
            return payloads.outcome_to_json(self._run.machine, answer.result())

    async def _read(self, occurrence: Occurrence) -> Any:  # noqa: ANN401  (JSON)
        request = {"run": self._start.run, "event": occurrence.event, "data": occurrence.data}
        try:
            return (await call_activity(payloads.READ, request, queue=self._queue))["data"]
        except ActivityError as error:
            raise OccurrenceError(getattr(error.cause, "message", str(error.cause))) from error

    @send.validator
    def refuse_at_once(self, message: Json) -> None:
        """Refuse what cannot be an event of the run, and what the table refuses whatever guards say. Then nothing is in the history."""
        occurrence, at = payloads.occurrence_from(message["occurrence"]), message.get("at")
        with typed_errors():
            event = self._outside.read(self._run, occurrence, at)
            outcome = self._outcome_now(event, at) if self._is_attentive else None
        if isinstance(outcome, Refusal):
            details = payloads.outcome_to_json(self._run.machine, outcome)
            raise ApplicationError(outcome.message, details, type=payloads.REFUSAL, non_retryable=True)

    @property
    def _is_attentive(self) -> bool:
        """Return whether the next event would be taken at once: nothing that came before it is still to be taken."""
        return self._driver.is_listening or (self._task is None and not self._is_called)

    def _outcome_now(self, event: Occurrence, at: str | None) -> Taken | Refusal | None:
        """Return the outcome of an event if it came now; None if a guard has to be asked."""
        run, key = self._run, answered_key(self._run, event, at)
        exact = exact_already(run, event, key)
        if exact is None:
            return None
        after, _ = run.feed(exact, key, at_ms=WorkflowClock().wall_ms(), at=at or key)
        return outcome_of_last(after, run.configuration, exact)

    # -- going on, and stopping ---------------------------------------------------------------------------------

    @workflow.update(name=payloads.RESUME)
    async def resume(self, how: Json) -> None:
        """Go on with a run that was interrupted, was stopped, or is in doubt. `how` has settings, queue, decisions and answers."""
        with typed_errors():
            answers = {key: _answer_from(each) for key, each in how["answers"].items()}
            require_decidable(self._run.machine, unfinished_work(self._run), how["decisions"], answers)
            await self._stop()
            self._queue, self._settings = how["queue"], {**self._settings, **how["settings"]}
            run = record_decisions(self._run, how["decisions"], answers, WorkflowClock().wall_ms())
            self._renew(run)
            for each in how["occurrences"]:
                self._driver.send(payloads.occurrence_from(each))
        self._is_called = True

    @resume.validator
    def require_at_rest(self, how: Json) -> None:  # noqa: ARG002  (the signature of the update)
        """Refuse to resume a run that is under way."""
        if self._rest is None or self._is_called:
            raise ApplicationError("", self._start.run, type="HeldError", non_retryable=True)

    def _renew(self, run: Run | None = None) -> None:
        """Begin a new session of the run, as another process would."""
        run = run or self._run
        self._driver = self._new_driver(run, left=unfinished_work(run))

    @workflow.update(name=payloads.INTERRUPT)
    async def interrupt(self) -> None:
        """Stop driving the run until somebody resumes it."""
        await self._stop()

    async def _stop(self) -> None:
        task = self._task
        if task is not None:
            task.cancel()
            await workflow.wait_condition(lambda: self._task is not task)

    # -- what can be asked --------------------------------------------------------------------------------------

    @workflow.query(name=payloads.STORY)
    def story(self, after: int, artifacts_after: int) -> Json:
        """Return the moments and the artifacts after the first ones, as many as one answer may have, and why the run rests."""
        entries = _page(to_json(entry) for entry in self._run.ledger[after:])
        artifacts = _page(self._artifacts.records[artifacts_after:])
        is_whole = after + len(entries) == len(self._run.ledger) and artifacts_after + len(artifacts) == len(
            self._artifacts.records
        )
        rest = None if self._rest is None or not is_whole else payloads.rest_to_json(self._rest)
        is_driven = self._task is not None or self._is_called
        story: Json = {
            "entries": entries,
            "artifacts": artifacts,
            "rest": rest,
            "driven": is_driven,
            "more": not is_whole,
        }
        return story if after else {**story, "start": self._start.to_json()}

    @workflow.query(name=payloads.STATE)
    def state(self) -> Json:
        """Return the state of the run, the values of its variables, and its outstanding effects by key."""
        return {"state": self._run.configuration.state, "values": self._run.values, "effects": dict(self._run.keys)}

    @workflow.query(name=payloads.COUNTERS)
    def counters(self) -> Json:
        """Return the counts of events, effects and refusals."""
        return cast(Json, counters(self._run.ledger))


def _page(objects: Iterable[Json]) -> list[Json]:
    """Return the first objects of a list, as many as fit an answer, and at least one."""
    page, size = list[Json](), 0
    for each in objects:
        size += len(str(each))
        if page and size > _PAGE:
            break
        page.append(each)
    return page


def _answer_from(answer: Json) -> Occurrence | Step:
    return Step(**answer) if "actor" in answer else payloads.occurrence_from(answer)
