"""Effect activities: what a worker does for runs on Temporal, which is to perform effects, ask guards, and read the data of events.

The policy of an effect runs in the event loop of the entry point, beside those of other runs; the activity waits for it in the loop of the worker,
and says meanwhile that it is alive. A policy sees the run as it was when the effect began, with what it has recorded itself. What it records goes
back with its steps, in order, and becomes part of the run with them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import attrs
from temporalio import activity
from temporalio.exceptions import ApplicationError

from dsa.edge.binding import Bindings, ask_guard, data_readers
from dsa.edge.event_loop import Clock
from dsa.edge.performer import Performer, traceback_of
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact
from dsa.runtime.costs import BudgetLimit, Meter
from dsa.runtime.ledger import to_json
from dsa.runtime.policy.policies import Action, RedactingArtifacts, Step
from dsa.runtime.run import Run
from dsa.runtime.secrets import Secrets
from dsa.temporal import payloads
from dsa.temporal.payloads import Json

#: How often an activity says that it is alive, in seconds. A cancelled effect hears of it at that moment.
_EVERY_S = 1.0


@attrs.frozen
class RunView:
    """What a worker has of a run: the run and its artifacts as they were read last, its bindings on this worker, and its budget."""

    run: Run
    artifacts: MemoryArtifacts
    binding: Bindings
    limits: tuple[BudgetLimit, ...]


class Workplace(Protocol):
    """The entry point, as its activities see it."""

    clock: Clock

    async def look_at(self, run_id: str) -> RunView:
        """Read a run as it is now, in the worker's loop. Raises BindingError."""

    async def in_policy_loop(self, work: Coroutine[Any, Any, Json]) -> Json:
        """Do work in the loop of policies, and wait for it in the worker's."""

    def show(self, run_id: str, key: str, text: str) -> None:
        """Show a piece of text of a policy to those who watch the run here."""

    def fault(self, run_id: str, where: str, traceback: str) -> None:
        """Report an error in users' code, with its traceback."""


class RecordedArtifacts(MemoryArtifacts):
    """The artifacts of a run as an effect sees them; those that it stores itself are records for the workflow, too."""

    def __init__(self, artifacts: MemoryArtifacts, records: list[Json]) -> None:
        super().__init__()
        self._attempts, self._artifacts = artifacts._attempts, artifacts._artifacts  # noqa: SLF001  (of its own class)
        self._records = records

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version and return it with its id."""
        count = len(self._artifacts)
        stored_artifact = super().store(artifact, author, run_id)
        if len(self._artifacts) > count:
            self._records.append(payloads.artifact_record(stored_artifact, author, run_id))
        return stored_artifact


class EffectHost:
    """The host of one try of an effect (`dsa.edge.performer.Host`): the run as it was when the try began, and what was recorded since."""

    def __init__(self, run: Run, show: Callable[[str, str], None], fault: Callable[[str, str], None]) -> None:
        self.run = run
        self.records: list[Json] = []
        self._show, self._fault = show, fault

    def record(self, entry: Any) -> None:  # noqa: ANN401  (a Record)
        """Append what the policy did."""
        self.run = self.run.record(entry)
        self.records.append(to_json(entry))

    keep = settle = record

    def show(self, key: str, text: str) -> None:
        """Show a piece of text from the policy at work."""
        self._show(key, text)

    def require_able(self) -> None:
        """Do nothing: the server writes."""

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
        return self.perform, self.judge, self.read

    @activity.defn(name=payloads.PERFORM)
    async def perform(self, request: Json) -> Json:
        """Call the policy of an effect once; return its steps, and what it recorded."""
        view = await self._workplace.look_at(request["run"])
        return await self._within_reach(self._perform(view, request))

    async def _perform(self, view: RunView, request: Json) -> Json:
        run_id, workplace, binding = request["run"], self._workplace, view.binding
        text = binding.secrets.text
        host = EffectHost(
            view.run,
            lambda key, piece: workplace.show(run_id, key, piece),
            lambda where, traceback: workplace.fault(run_id, where, text(traceback)),
        )
        artifacts = RedactingArtifacts(RecordedArtifacts(view.artifacts, host.records), binding.secrets, run_id)
        meter = Meter(view.limits, view.run.machine.answers, binding.spenders)
        meter.follow(view.run.ledger)
        performer = Performer(host, binding, artifacts, workplace.clock, meter)
        effect = request["effect"]
        action = Action(effect, request["payload"], frozenset(view.run.machine.answers.get(effect, ())))
        steps = await performer.try_once(request["key"], action, performer.plan(effect), request["root"], list[Step])
        return {"steps": [step.to_json() for step in steps], "records": host.records}

    @activity.defn(name=payloads.JUDGE)
    async def judge(self, request: Json) -> Json:
        """Ask a guard for its verdict."""
        view = await self._workplace.look_at(request["run"])
        return await self._within_reach(self._judge(view.binding, request))

    async def _judge(self, binding: Bindings, request: Json) -> Json:
        uses = {name: payloads.artifact_from(each) for name, each in request["artifacts"].items()}
        artifact, name = payloads.artifact_from(request["artifact"]), request["guard"]
        with clean_errors(binding.secrets):
            result = await ask_guard(name, binding.guards[name], artifact, {**uses, **request["data"]})
        return attrs.asdict(attrs.evolve(result, feedback=binding.secrets.text(result.feedback)))

    @activity.defn(name=payloads.READ)
    async def read(self, request: Json) -> Json:
        """Read the data of an event from outside, as the policy says that waits for it."""
        view = await self._workplace.look_at(request["run"])
        secrets = view.binding.secrets
        with clean_errors(secrets):
            return {"data": secrets.value(data_readers(view.binding)[request["event"]](request["data"]))}

    async def _within_reach(self, work: Coroutine[Any, Any, Json]) -> Json:
        """Wait for work in the loop of policies, and say meanwhile that it is alive; cancelling this cancels the work."""
        task = asyncio.ensure_future(self._workplace.in_policy_loop(work))
        try:
            while not (await asyncio.wait({task}, timeout=_EVERY_S))[0]:
                activity.heartbeat()
        except asyncio.CancelledError:
            task.cancel()
            raise
        return task.result()


@contextmanager
def clean_errors(secrets: Secrets) -> Iterator[None]:
    """Turn an error of users' code into an application error of the same name, without secrets."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (users' code may raise anything)
        raise ApplicationError(secrets.text(str(error)), type=type(error).__name__) from None
