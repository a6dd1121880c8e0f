"""Activity calls: how a workflow lets workers perform effects and ask guards, and the clock that it uses.

The driver of a run in a workflow has this performer, these guards and this clock: they are deterministic, and have no users' code.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar, cast

import attrs
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType, is_cancelled_exception  # noqa: A004  (the SDK's name)

from dsa.edge.performer import EffectPlan, Performer
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from dsa.runtime.json_text import text_of
from dsa.runtime.ledger import DecidedEntry, Intent, ResumedEntry, VerdictEntry, from_json
from dsa.runtime.policy.call_tree import IN_DOUBT
from dsa.runtime.policy.policies import Action, Step, error_step, question_step
from dsa.runtime.run import Run
from dsa.runtime.run_store import StoreError
from dsa.runtime.status import MOST_TAKE_UPS, doubt_of
from dsa.semantics import Occurrence
from dsa.temporal import continuation, payloads
from dsa.temporal.continuation import WorkGate
from dsa.temporal.effect_activities import WORKER_SHUTDOWN
from dsa.temporal.part_links import PartNews
from dsa.temporal.payloads import Json

T = TypeVar("T")

#: How long a worker may be silent while it performs an effect, before the effect is in doubt.
SILENCE = timedelta(seconds=15)
#: How much longer than its time limit an effect may seem to take: the worker enforces the limit, and reports it.
_GRACE = timedelta(seconds=60)
_NO_LIMIT = timedelta(days=365)
_CUT_OFF = "the run was cut off while this effect was under way; the effect counts as failed"
#: How often in a row a guard may be lost with its worker before its event is refused or the run stops.
_MOST_LOSSES = 3
_ONCE = RetryPolicy(maximum_attempts=1)
#: The time between two questions to workers whether they can bind a run, until one can. The server waits in whole seconds. The worker that drives the
#: run may take the first question; the server gives each later one to any worker.
_UNTIL_BOUND = RetryPolicy(timedelta(seconds=0.2), backoff_coefficient=1.3, maximum_interval=timedelta(seconds=15))
#: How long a call waits for the one worker that reported that it can bind a run, before others are asked.
_MOST_WAIT = timedelta(seconds=10)
#: The most bytes that one task of a workflow sends to the server, apart from answers to readers.
_MOST_OF_TASK = payloads.MOST_OF_VALUE
#: The time until the next task of a workflow that has nothing else to do, in seconds.
NEXT_TASK_S = 0.001


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
    name: str,
    request: Json,
    *,
    queue: str,
    activity_id: str | None = None,
    limit: timedelta = _NO_LIMIT,
    begins_within: timedelta | None = None,
) -> Json:
    """Call an activity, once (`bind` until it succeeds). Raises ActivityError; asyncio's CancelledError if the caller was cancelled."""
    try:
        return cast(
            Json,
            await workflow.execute_activity(
                name,
                request,
                task_queue=queue,
                activity_id=activity_id,
                retry_policy=_UNTIL_BOUND if name == payloads.BIND else _ONCE,
                start_to_close_timeout=limit,
                schedule_to_start_timeout=begins_within,
                heartbeat_timeout=SILENCE,
            ),
        )
    except ActivityError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        raise


def is_lost(error: ActivityError) -> bool:
    """Return whether it is not known how an activity ended, because its worker fell silent or ended with it."""
    cause = error.cause
    return not isinstance(cause, ApplicationError) or cause.type == WORKER_SHUTDOWN


@attrs.define
class ActivityCalls:
    """The calls of the activities of one run, on the task queue of its effects, for the document with this digest.

    A request of more than `most_bytes` would make the task of the workflow fail again and again, so it is not sent. 0 means that it may have any length.

    A worker that cannot have the run's bindings refuses a call before it calls anything of the run. Then `obstacle` says why, workers are asked until
    one can bind the run, and calls go to its queue as long as it answers: the server would give many to the others.
    """

    run: str
    digest: str
    queue: str
    most_bytes: int
    obstacle: str = ""
    #: The queue of the worker that could bind the run, with the queue on which it was found.
    _worker_of_queue: tuple[str, str] = attrs.field(default=("", ""), init=False)
    #: The length of the history at the task of the workflow that last sent something, and the number of bytes sent.
    _task_bytes: tuple[int, int] = attrs.field(default=(0, 0), init=False)
    #: The ids of activities that were cancelled. The server may keep them open for a moment, and then refuses another one with the same id.
    _cancelled_ids: set[str] = attrs.field(factory=set, init=False)

    def bytes_of(self, value: Json) -> int:
        """Return the bytes of a value as the server gets it; 0 if values may have any length."""
        return len(text_of(value)) if self.most_bytes else 0

    def is_too_long(self, value: Json) -> bool:
        """Return whether a value is longer than the server accepts."""
        return self.bytes_of(value) > self.most_bytes

    async def call(
        self, name: str, request: Json, *, activity_id: str | None = None, limit: timedelta = _NO_LIMIT
    ) -> Json:
        """Call an activity once. Raises what `call_activity` raises, even for a request that is too long."""
        while activity_id in self._cancelled_ids:
            activity_id = f"{activity_id}:again"
        while True:
            about_run = {"run": self.run, "digest": self.digest, "queue": self.queue}
            size = self.bytes_of({**about_run, **request})
            if size > self.most_bytes:
                raise _request_error(name) from ApplicationError("", type=payloads.REQUEST_TOO_LARGE)
            await self.room_for(size)
            worker = self._worker_of_queue[1] if self._worker_of_queue[0] == self.queue else ""
            try:
                return await call_activity(
                    name,
                    {**about_run, **request},
                    queue=worker or self.queue,
                    activity_id=activity_id,
                    limit=limit,
                    begins_within=_MOST_WAIT if worker else None,
                )
            except asyncio.CancelledError:
                self._cancelled_ids |= {activity_id} if activity_id else set()
                raise
            except ActivityError as error:
                cause = error.cause
                has_gone = isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START
                if not has_gone and getattr(cause, "type", None) != payloads.UNBOUND:
                    raise
                self.obstacle = "" if has_gone else getattr(cause, "message", str(cause))
            try:
                answer = await call_activity(payloads.BIND, about_run, queue=self.queue)
            finally:
                self.obstacle = ""
            self._worker_of_queue = about_run["queue"], answer["queue"]

    async def room_for(self, size: int) -> None:
        """Wait for a task of the workflow that may send `size` bytes to the server, and count them. The server ends a workflow that sends more than 4 MB at once."""
        while not self.has_room(size):  # noqa: ASYNC110  (a timer makes the next task)
            await asyncio.sleep(NEXT_TASK_S)
        self.count(size)

    def has_room(self, size: int) -> bool:
        """Return whether this task of the workflow may send `size` more bytes to the server."""
        return self._bytes_of_task + size <= max(size, _MOST_OF_TASK)

    def count(self, size: int) -> None:
        """Count bytes that this task of the workflow sends to the server."""
        self._task_bytes = workflow.info().get_current_history_length(), self._bytes_of_task + size

    @property
    def _bytes_of_task(self) -> int:
        """The bytes that were counted in this task of the workflow."""
        task, count = self._task_bytes
        return count if task == workflow.info().get_current_history_length() else 0

    async def ask(self, name: str, request: Json) -> Json:
        """Call an activity that only answers a question, and ask again if the answer is lost with its worker. Raises ActivityError."""
        for _ in range(_MOST_LOSSES - 1):
            try:
                return await self.call(name, request)
            except ActivityError as error:
                if not is_lost(error):
                    raise
        return await self.call(name, request)


@attrs.frozen
class ActivityPerformer(Performer):
    """A performer whose tries are activities with the ids `SEQ:ORDINAL:EFFECT`, and `SEQ:ORDINAL:EFFECT:TRY` from the second try on.

    One that replaces a cancelled one has `:again` after its id.

    Effects begin through the `gate`. `costs` is what the run's budget had counted before its ledger begins. `give_up` gets the key of an effect that
    was lost with its workers too often: its policy may end the process each time.
    """

    _activities: ActivityCalls = attrs.field(kw_only=True)
    _gate: WorkGate = attrs.field(kw_only=True)
    _costs: continuation.Costs = attrs.field(kw_only=True)
    _part_news: PartNews = attrs.field(kw_only=True)
    _give_up: Callable[[str], None] = attrs.field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._meter.begin_with(self._costs)

    async def perform(
        self, intent: Intent, action: Action, plan: EffectPlan, tries: int, root: int
    ) -> Occurrence | Step | None:
        """Perform an effect, as `Performer.perform` does."""
        async with self._gate.place():
            return await super().perform(intent, action, plan, tries, root)

    async def try_once(
        self, key: str, action: Action, plan: EffectPlan, root: int, conclude: Callable[[list[Step]], T]
    ) -> T:
        """Call the policy once, on a worker. An effect that is lost with its worker is in doubt, and handled as the table says."""
        effect, meter = action.policy, self._meter
        request = {
            "at_ms": self._clock.wall_ms(),
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
                answer = await self._activities.call(payloads.PERFORM, request, activity_id=place, limit=within)
            except ActivityError as error:
                if not is_lost(error):
                    return conclude([_step_of(effect, error)])
                handling = doubt_of(plan.about)
                is_hopeless = handling == "retry" and _take_ups(self._host.run, key) >= MOST_TAKE_UPS
                if is_hopeless:
                    self._give_up(key)
                if handling == "ask" or is_hopeless:  # nothing is recorded: the run rests, and its status says why
                    return cast(T, (question_step(effect, IN_DOUBT, about={"code": IN_DOUBT}), True))
                self._host.keep(ResumedEntry(at_ms=self._clock.wall_ms(), effects=((key, handling),)))
                if handling == "fail":
                    return cast(T, (cast(Any, conclude([error_step(effect, IN_DOUBT, _CUT_OFF)]))[0], True))
                continue
            finally:
                if meter.has_limits:
                    meter.ends(effect)
            self._record(answer["records"])
            self._part_news.see(answer["seen_rests"])
            return conclude([Step(**step) for step in answer["steps"]])

    def _record(self, records: Iterable[Json]) -> None:
        """Store and record what a policy did, in order."""
        for record in records:
            if "artifact" in record:
                payloads.store_artifact(self._artifacts, record)
                continue
            entry = from_json(record)
            if isinstance(entry, VerdictEntry):
                self._artifacts.record_clean_verdict(entry)
            self._host.record(cast(Any, entry))


def _take_ups(run: Run, key: str) -> int:
    """Return how often an effect was performed again since it, or a try of it, had an entry."""
    count = 0
    for entry in reversed(run.ledger):
        if isinstance(entry, ResumedEntry):
            count += any(each == key for each, _ in entry.effects)
        elif getattr(entry, "key", None) == key and not isinstance(entry, DecidedEntry):
            break
    return count


def _request_error(name: str) -> ActivityError:
    """Return the error of an activity that was not begun."""
    about = {"scheduled_event_id": 0, "started_event_id": 0, "identity": "", "activity_id": "", "retry_state": None}
    return ActivityError("the request is too long", activity_type=name, **cast(Any, about))


def _step_of(effect: str, error: ActivityError) -> Step:
    """Return the error step of an activity that failed outside its policy."""
    return error_step(effect, *_name_and_message(error))


def _name_and_message(error: ActivityError) -> tuple[str, str]:
    """Return the name and the message of the error in an activity, or of the reason why it is not known how it ended."""
    cause = error.cause
    name = cause.type if isinstance(cause, ApplicationError) else None
    if name == payloads.TOO_LARGE:
        return StoreError.__name__, f"its result is too long: {payloads.TOO_LONG}"
    if name == payloads.REQUEST_TOO_LARGE:
        return StoreError.__name__, f"its data is too long: {payloads.TOO_LONG}"
    return name or type(cause).__name__, getattr(cause, "message", str(cause))


@attrs.frozen
class ActivityGuard(GuardInterface):
    """A guard that judges on a worker."""

    blocks = False
    _name: str
    _calls: ActivityCalls
    _gate: WorkGate

    async def validate(self, artifact: Artifact, **dependencies: Any) -> GuardResult:  # noqa: ANN401  (JSON)
        """Return the verdict. Raises an error with the name and the message of the guard's own."""
        artifacts = {name: each for name, each in dependencies.items() if isinstance(each, Artifact)}
        request = {
            "guard": self._name,
            "artifact": payloads.artifact_to_json(artifact),
            "artifacts": {name: payloads.artifact_to_json(each) for name, each in artifacts.items()},
            "data": {name: each for name, each in dependencies.items() if name not in artifacts},
        }
        try:
            with self._gate.at_work():
                return GuardResult(**await self._calls.ask(payloads.JUDGE, request))
        except ActivityError as error:
            # If this stops the run, its status has the class of the guard's own error.
            name, message = _name_and_message(error)
            raise type(name, (RuntimeError,), {})(message) from error


class StoredArtifacts(MemoryArtifacts):
    """The artifacts of one run that its workflow may need, and, for readers, the order in which they came.

    Workers know all of them: a guard gets the id of one that is not here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Json] = []

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version and return it with its id."""
        stored_artifact = super().store(artifact, author, run_id)
        if len(self._artifacts) > len(self.records):
            self.records.append(payloads.artifact_record(stored_artifact, author, run_id))
        return stored_artifact

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version; one without its text if it is not here."""
        return self._artifacts.get(artifact_id) or Artifact("", artifact_id=artifact_id)

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store a verdict on an artifact, if it is here."""
        if verdict.artifact_id in self._artifacts:
            super().record_verdict(verdict)
