"""Effect activities: the work of a worker for runs on Temporal, which performs effects, asks guards, and reads the data of events.

The policy of an effect runs in the event loop of the entry point, beside those of other runs; the activity waits for it in the loop of the worker,
and sends heartbeats in the meantime. A policy sees the run as it was when the effect began, with what it has recorded itself. What it records goes
back with its steps, in order, and becomes part of the run with them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import attrs
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from dsa.edge.binding import Bindings, ask_guard, data_readers
from dsa.edge.event_loop import Clock
from dsa.edge.performer import Performer, traceback_of
from dsa.errors import DsaError, code_of
from dsa.runtime.artifacts import AttemptRecord, MemoryArtifacts
from dsa.runtime.content import Artifact
from dsa.runtime.costs import BudgetLimit, Meter
from dsa.runtime.ledger import VerdictEntry, to_json
from dsa.runtime.policy.policies import Action, RedactingArtifacts, Step, reject_redacted
from dsa.runtime.run import Run
from dsa.runtime.secrets import Secrets
from dsa.temporal import payloads
from dsa.temporal.part_links import EffectAtWork, begin_work_of
from dsa.temporal.payloads import Json

_LOGGER = logging.getLogger("dsa.temporal")
#: The time between two heartbeats of an activity, in seconds. A cancelled effect notices the cancellation at that moment.
_EVERY_S = 1.0
#: The type of the error of an effect whose worker ended, as the SDK calls it.
WORKER_SHUTDOWN = "WorkerShutdown"


@attrs.frozen
class RunCopy:
    """A run as a worker has it: the run and its artifacts as they were last read, its bindings on this worker, and its budget.

    `read` reads the run again, and waits for it; it is for the loop of policies.
    """

    run: Run
    artifacts: MemoryArtifacts
    binding: Bindings
    limits: tuple[BudgetLimit, ...]
    read: Callable[[], Run]


class Workplace(Protocol):
    """The entry point as its activities see it."""

    clock: Clock

    async def look_at(self, run_id: str, digest: str) -> RunCopy:
        """Return a run as it was last read, bound for the machine with this digest; in the worker's loop. Raises BindingError."""

    async def in_policy_loop(self, work: Coroutine[Any, Any, Json]) -> Json:
        """Do work in the loop of policies, and wait for it in the worker's."""

    def show(self, run_id: str, key: str, text: str) -> None:
        """Show a piece of text of a policy to those who watch the run here."""

    async def own_queue(self) -> str:
        """Also work on a queue of this process only, and return its name; in the worker's loop."""

    def fault(self, run_id: str, where: str, traceback: str) -> None:
        """Report an error in users' code, with its traceback."""

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work in the worker's loop beside its activities; the worker ends after it."""


class RecordedArtifacts(MemoryArtifacts):
    """The artifacts of a run as an effect sees them, read with the run; those that it stores itself are records for the workflow, too."""

    def __init__(self, artifacts: MemoryArtifacts, host: "EffectHost") -> None:
        super().__init__()
        self._attempts, self._artifacts = artifacts._attempts, artifacts._artifacts  # noqa: SLF001  (of its own class)
        self._host, self._records = host, host.records

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version. Raises KeyError for an unknown id."""
        self._host.read()
        return super().get_artifact(artifact_id)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return all records, without texts, in the order in which they were stored."""
        self._host.read()
        return super().attempts()

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return the records of an artifact and its ancestors, oldest first. Raises KeyError for an unknown artifact."""
        self._host.read()
        return super().lineage(artifact_id)

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store a verdict on an artifact. Raises KeyError for an unknown artifact."""
        self._host.read()
        super().record_verdict(verdict)

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version and return it with its id."""
        self._host.read()
        count = len(self._artifacts)
        stored_artifact = super().store(artifact, author, run_id)
        if len(self._artifacts) > count:
            self._records.append(payloads.artifact_record(stored_artifact, author, run_id))
        return stored_artifact


class EffectHost:
    """The host of one try of an effect (`dsa.edge.performer.Host`): the run, and what was recorded since the try began.

    `run` is what is known of the run until `begin`; after that it is read when it is first needed. Most policies never need it, and reading it takes
    as long as the effect.
    """

    def __init__(self, view: RunCopy, show: Callable[[str, str], None], fault: Callable[[str, str], None]) -> None:
        self._run, self._read = view.run, view.read
        self._has_begun = self._is_read = False
        self._entries: list[Any] = []
        self.records: list[Json] = []
        self._show, self._fault = show, fault

    def begin(self) -> None:
        """From now on, read the run when it is needed."""
        self._has_begun = True

    def read(self) -> None:
        """Read the run, once."""
        if not self._is_read:
            self._run, self._is_read = self._read(), True

    @property
    def run(self) -> Run:
        """The run, with what was recorded here."""
        if self._has_begun:
            self.read()
        run = self._run
        for entry in self._entries:
            run = run.record(entry)
        return run

    def record(self, entry: Any) -> None:  # noqa: ANN401  (a Record)
        """Append what the policy did."""
        self._entries.append(entry)
        self.records.append(to_json(entry))

    keep = settle = record

    def show(self, key: str, text: str) -> None:
        """Show a piece of text from the policy at work."""
        self._show(key, text)

    def require_able(self) -> None:
        """Do nothing, because the server writes."""

    def fault(self, where: str, error: BaseException) -> None:
        """Report an error in users' code, with its traceback."""
        if text := traceback_of(error):
            self._fault(where, text)


@attrs.frozen
class EffectActivities:
    """The activities of one worker."""

    _workplace: Workplace

    @property
    def all(self) -> tuple[Callable[..., Any], ...]:
        """The activities, for the worker."""
        return self.perform, self.judge, self.read, self.bind

    @activity.defn(name=payloads.PERFORM)
    async def perform(self, request: Json) -> Json:
        """Call the policy of an effect once; return its steps, and what it recorded."""
        view = await self._copy_of(request)
        effect = EffectAtWork(request["queue"], request["at_ms"])
        return await self._within_reach(self._perform(view, request, effect), effect)

    async def _perform(self, view: RunCopy, request: Json, at_work: EffectAtWork) -> Json:
        begin_work_of(at_work)
        run_id, workplace, binding = request["run"], self._workplace, view.binding
        text = binding.secrets.text
        host = EffectHost(
            view,
            lambda key, piece: workplace.show(run_id, key, piece),
            lambda where, traceback: workplace.fault(run_id, where, text(traceback)),
        )
        artifacts = RedactingArtifacts(RecordedArtifacts(view.artifacts, host), binding.secrets, run_id)
        meter = Meter(view.limits, view.run.machine.answers, binding.spenders)
        if view.limits:
            meter.follow(view.read().ledger)
        performer = Performer(host, binding, artifacts, workplace.clock, meter)
        effect = request["effect"]
        action = Action(effect, request["payload"], frozenset(view.run.machine.answers.get(effect, ())))
        plan = performer.plan(effect)  # it needs only the machine, which does not have to be read
        host.begin()
        steps = await performer.try_once(request["key"], action, plan, request["root"], list[Step])
        return {
            "steps": [step.to_json() for step in steps],
            "records": host.records,
            "seen_rests": at_work.seen_rests,
        }

    @activity.defn(name=payloads.JUDGE)
    async def judge(self, request: Json) -> Json:
        """Ask a guard for its verdict."""
        view = await self._copy_of(request)
        return await self._within_reach(self._judge(view, request))

    async def _judge(self, view: RunCopy, request: Json) -> Json:
        binding, name = view.binding, request["guard"]
        with clean_errors(binding.secrets):
            uses = {name: _whole(payloads.artifact_from(each), view) for name, each in request["artifacts"].items()}
            artifact = _whole(payloads.artifact_from(request["artifact"]), view)
            result = await ask_guard(name, binding.guards[name], artifact, {**uses, **request["data"]})
            result = reject_redacted(result, artifact)
        return attrs.asdict(attrs.evolve(result, feedback=binding.secrets.text(result.feedback)))

    @activity.defn(name=payloads.READ)
    async def read(self, request: Json) -> Json:
        """Read the data of an event from outside with the function of the policy that waits for it."""
        view = await self._copy_of(request)
        secrets = view.binding.secrets
        with clean_errors(secrets):
            return {"data": secrets.value(data_readers(view.binding)[request["event"]](request["data"]))}

    @activity.defn(name=payloads.BIND)
    async def bind(self, request: Json) -> Json:
        """Find the bindings of a run, and return the queue of only this worker. Raises what `perform` does if it cannot."""
        await self._copy_of(request)
        return {"queue": await self._workplace.own_queue()}

    async def _copy_of(self, request: Json) -> RunCopy:
        """Return what is known of a run, and send heartbeats in the meantime: importing a module may take long.

        Raises ApplicationError of the type `UNBOUND` for a run whose bindings this worker cannot have.
        """
        task = asyncio.ensure_future(self._workplace.look_at(request["run"], request["digest"]))
        while not (await asyncio.wait({task}, timeout=_EVERY_S))[0]:
            activity.heartbeat()
        try:
            return task.result()
        except DsaError as error:
            benign = ApplicationErrorCategory.BENIGN  # another worker can, and the entry point reports it
            raise ApplicationError(str(error), type=payloads.UNBOUND, category=benign) from None

    async def _within_reach(self, work: Coroutine[Any, Any, Json], effect: EffectAtWork | None = None) -> Json:
        """Wait for work in the loop of policies, and send heartbeats in the meantime; cancelling this cancels the work.

        An effect that waits for a part continues without its place at the worker.
        """
        task = asyncio.ensure_future(self._workplace.in_policy_loop(work))
        alarm = None if effect is None else asyncio.ensure_future(effect.waits_for_part.wait())
        try:
            while not task.done():
                both: list[asyncio.Future[Any]] = [task] if alarm is None else [task, alarm]
                await asyncio.wait(both, timeout=_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
                if effect is not None and effect.waits_for_part.is_set() and not task.done():
                    break
                activity.heartbeat()
        except asyncio.CancelledError:
            if effect is not None:
                effect.is_leaving = activity.is_worker_shutdown()
            task.cancel()
            raise
        finally:
            if alarm is not None:
                alarm.cancel()
        if effect is None or task.done():
            return task.result()
        self._workplace.keep(_complete_later(task, effect))
        activity.raise_complete_async()


async def _complete_later(task: "asyncio.Future[Json]", effect: EffectAtWork) -> None:
    """Wait for the work of an effect that has no place at the worker, and report how it ends; send heartbeats in the meantime."""
    handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
    ending = asyncio.ensure_future(activity.wait_for_worker_shutdown())
    try:
        while not task.done() and not ending.done():
            either: list[asyncio.Future[Any]] = [task, ending]
            await asyncio.wait(either, timeout=_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
            await handle.heartbeat()
        if task.done():
            await _report(handle, task)
            return
        effect.is_leaving = True
        task.cancel()
        await handle.fail(ApplicationError("the worker has ended", type=WORKER_SHUTDOWN))
    except AsyncActivityCancelledError:
        task.cancel()
        await asyncio.wait({task})
        await handle.report_cancellation()
    except RPCError as error:  # the run has ended, or the server has given up the effect
        task.cancel()
        _LOGGER.info("the run no longer waits for an effect that was waiting for its part: %s", error.message)
    finally:
        ending.cancel()


async def _report(handle: AsyncActivityHandle, task: "asyncio.Future[Json]") -> None:
    """Report the outcome of finished work."""
    try:
        answer = task.result()
    except Exception as error:  # noqa: BLE001  (as an activity reports it)
        await handle.fail(error)
    else:
        await handle.complete(answer)


def _whole(artifact: Artifact, view: RunCopy) -> Artifact:
    """Return an artifact with its text, which the workflow may have left to workers. Raises KeyError for an unknown one."""
    if artifact.content or not artifact.artifact_id:
        return artifact
    view.read()
    return view.artifacts.get_artifact(artifact.artifact_id)


@contextmanager
def clean_errors(secrets: Secrets) -> Iterator[None]:
    """Turn an error of users' code into an application error of the same name, without secrets."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (users' code may raise anything)
        raise ApplicationError(secrets.text(str(error)), type=code_of(error)) from None
