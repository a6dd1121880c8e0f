"""The dual-state agent of seed 000 in Python: an action pair, the agent that drives the shipped table with it, and its store of artifacts.

The agent takes a generator, a guard and a place for artifacts. It returns the artifact that passed, or raises an exception that says why there is none.
Names and fields are those of the agent program. `machine.md` alone has the transitions; this module decides nothing.

The store is R of Definition 2 under the names of the agent program, in memory and in git. It stores an artifact before its guard runs, and the verdict is a
second record, so every generated version is there even if the guard fails. `WorkflowState` and `EnvironmentState` are S_workflow and S_env of Definition 1:
frozen views of a run, because only a row of the table sets sigma.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import Any, TypeVar

import attrs

from dsa.data_use import SPECIFICATION
from dsa.edge.binding import Bindings
from dsa.edge.document_files import load
from dsa.edge.git_artifacts import GitArtifacts
from dsa.errors import DsaError
from dsa.expr import Value
from dsa.guards.feedback import verdict_of
from dsa.machine import Machine
from dsa.runs.handle import RunHandle
from dsa.runs.place import new_run_id
from dsa.runs.runs import runs_in_memory
from dsa.runs.setup import RunSetup
from dsa.runtime.artifacts import ArtifactStore, AttemptRecord, MemoryArtifacts, attempt_of, identify_artifact
from dsa.runtime.content import Artifact, Context, GeneratorInterface, GuardInterface, GuardResult, PromptTemplate
from dsa.runtime.ledger import VerdictEntry
from dsa.runtime.run import Run
from dsa.runtime.speech import strip_drafts
from dsa.runtime.status import Failure, Rest
from dsa.runtime.timeline import OnMoment
from dsa.semantics import Occurrence
from machines.dual_state.bindings import effects


class ArtifactDAGInterface(ABC):
    """A store of every generated version. Implement it to keep them in a place of your own."""

    @abstractmethod
    def store(self, artifact: Artifact, metadata: str = "") -> str:
        """Store one version under its `artifact_id` and return that id. Storing the same version again changes nothing.

        `metadata` is the name of the generator.
        """

    @abstractmethod
    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version. Raises KeyError for an unknown id."""

    @abstractmethod
    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, itself last. Raises KeyError for an unknown id."""

    def record_verdict(self, artifact_id: str, result: GuardResult) -> None:  # noqa: B027  # optional on purpose
        """Record a guard's verdict on a version. This method is optional: the run's ledger has the verdicts too."""


class _StoreDag(ArtifactDAGInterface):
    """A DAG on a store of runs."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self.artifacts = artifacts

    def store(self, artifact: Artifact, metadata: str = "") -> str:
        """Store one version and return its id. Raises KeyError when a parent is unknown."""
        return self.artifacts.store(artifact, metadata).artifact_id

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version. Raises KeyError for an unknown id."""
        try:
            return self.artifacts.get_artifact(artifact_id)
        except KeyError:
            raise KeyError(f"Artifact not found: {artifact_id}") from None

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, itself last. Raises KeyError for an unknown id."""
        return self.artifacts.get_provenance(artifact_id)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return every version without its text and with its verdicts, in the order in which they were stored."""
        return self.artifacts.attempts()


class InMemoryArtifactDAG(_StoreDag):
    """A DAG in memory, which ends with the program."""

    def __init__(self) -> None:
        super().__init__(MemoryArtifacts())


class GitArtifactDAG(_StoreDag):
    """A DAG in the bare git repository at `repo_path`, which is created when it is missing: the branch `runs/RUN`, a commit for each record.

    A record is durable when the call returns; any number of processes may use one repository. Raises StoreError when git cannot use it.
    """

    def __init__(self, repo_path: str | Path, run: str = "agent") -> None:
        super().__init__(GitArtifacts(repo_path, run))


class _DagStore(MemoryArtifacts):
    """The store of a run that passes its versions on to a DAG."""

    def __init__(self, dag: ArtifactDAGInterface) -> None:
        super().__init__()
        self._dag = dag

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        if artifact.artifact_id and artifact.artifact_id not in self._attempts:
            with suppress(KeyError):
                self._dag.get_artifact(artifact.artifact_id)
                artifact = identify_artifact(artifact, run_id)  # another execution has that id
        artifact = super().store(artifact, author, run_id)
        self._dag.store(artifact, author)
        return artifact

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version; the caller's own dependencies are in the DAG."""
        return self._artifacts.get(artifact_id) or self._dag.get_artifact(artifact_id)

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        return self._dag.get_provenance(artifact_id)

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        versions = ((each, each.artifact_id) for each in self.get_provenance(artifact_id))
        return [self._attempts[name] if name in self._attempts else attempt_of(each) for each, name in versions]

    def record_verdict(self, verdict: VerdictEntry) -> None:
        super().record_verdict(verdict)
        outcome = verdict.outcome
        result = GuardResult(outcome == "passed", verdict.feedback, outcome == "fatal", verdict.label == "review")
        self._dag.record_verdict(verdict.artifact_id, result)


def store_of(dag: ArtifactDAGInterface) -> ArtifactStore:
    """Return a run's store for a DAG."""
    return dag.artifacts if isinstance(dag, _StoreDag) else _DagStore(dag)


def adopt(store: ArtifactStore, artifact: Artifact) -> Artifact:
    """Return a caller's artifact as the run's store has it, and store it there first when it is missing.

    It keeps its id. An artifact from another store loses its ancestors unless they are here too.
    """
    try:
        for parent in artifact.parents:
            store.get_artifact(parent)
    except KeyError:
        artifact = attrs.evolve(artifact, parent_id=None, dependency_ids=())
    with suppress(KeyError):
        if store.get_artifact(artifact.artifact_id) == artifact:
            return artifact
    return store.store(artifact)


def _read_only(values: Mapping[str, object]) -> Mapping[str, object]:
    return MappingProxyType(dict(values))


@attrs.frozen
class WorkflowState:
    """sigma: the guards that have passed, and the artifact that passed each."""

    guards: Mapping[str, bool] = attrs.field(factory=dict, converter=_read_only)
    artifact_ids: Mapping[str, str] = attrs.field(factory=dict, converter=_read_only)

    def is_satisfied(self, guard_id: str) -> bool:
        """Return whether a guard has passed; False for an unknown one."""
        return self.guards.get(guard_id, False)

    def get_artifact_id(self, guard_id: str) -> str | None:
        """Return the id of the artifact that passed a guard, or None."""
        return self.artifact_ids.get(guard_id)


@attrs.frozen
class EnvironmentState:
    """s_env = <a, C>: the newest artifact, its context with the rejected attempts, and the number of retries."""

    artifact: Artifact | None = None
    context: Context | None = None
    retry_count: int = 0


T = TypeVar("T")


def now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. Raises RuntimeError inside an event loop, which cannot wait for itself."""
    if _is_in_a_loop():
        work.close()
        raise RuntimeError("this call is inside an event loop: await `execute_async(..)` or `answer_async(..)` instead")
    return asyncio.run(work)


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


Precondition = Callable[[WorkflowState], bool]

#: A rejected artifact, and the feedback.
RejectedArtifact = tuple[Artifact, str]

_GENERATOR, _GUARD = "llm", "g"


class PreconditionNotMet(DsaError):  # noqa: N818  (the agent program's name)
    """Raised when rho of an action pair does not hold; nothing was generated."""


class RmaxExhausted(DsaError):  # noqa: N818  (the agent program's name)
    """Raised when the last retry was rejected too. `provenance` has every artifact with its feedback, oldest first."""

    def __init__(self, message: str, provenance: list[RejectedArtifact]) -> None:
        self.provenance = provenance
        super().__init__(message)
        for _, feedback in provenance[-1:]:
            self.add_note(f"the last feedback: {feedback or 'none'}")


class EscalationRequired(DsaError):  # noqa: N818  (the agent program's name)
    """Raised on a fatal verdict: a person has to decide. `provenance` ends with the artifact itself."""

    def __init__(self, artifact: Artifact, feedback: str, provenance: list[RejectedArtifact]) -> None:
        self.artifact, self.feedback, self.provenance = artifact, feedback, provenance
        super().__init__(feedback)


class Interrupted(DsaError):  # noqa: N818  (named like its siblings)
    """Raised when the generator or the guard itself failed, which is not a verdict. `failure` says what happened and in which row."""

    def __init__(self, failure: Failure, provenance: list[RejectedArtifact]) -> None:
        self.failure, self.provenance = failure, provenance
        super().__init__(str(failure))


def always(_state: WorkflowState) -> bool:
    """Return True: the precondition that holds in every workflow state."""
    return True


class ActionPair:
    """A = <rho, a_gen, G> of Definition 6: precondition, generator, guard, and the prompt for it.

    Raises TypeError for a generator or a guard without its method, before a model is paid.
    """

    def __init__(
        self,
        precondition: Precondition,
        generator: GeneratorInterface,
        guard: GuardInterface,
        prompt_template: PromptTemplate | None = None,
    ) -> None:
        _require("generator", generator, "generate", "wrap a function in dsa.generators.FunctionGenerator")
        _require("guard", guard, "validate", "derive a class from GuardInterface")
        self.precondition, self.generator, self.guard = precondition, generator, guard
        self.prompt_template = prompt_template

    def can_execute(self, workflow_state: WorkflowState) -> bool:
        """Return whether rho holds."""
        return self.precondition(workflow_state)

    def require(self, workflow_state: WorkflowState) -> None:
        """Raise PreconditionNotMet unless rho holds."""
        if not self.can_execute(workflow_state):
            guard_names = sorted(name for name, is_satisfied in workflow_state.guards.items() if is_satisfied)
            unmet = PreconditionNotMet("Precondition not satisfied for action pair")
            unmet.add_note(f"satisfied: {', '.join(guard_names) or 'none'}")
            raise unmet

    def execute(
        self, workflow_state: WorkflowState, context: Context, dependencies: Mapping[str, Artifact] | None = None
    ) -> tuple[Artifact, GuardResult]:
        """Generate and judge once, without retries and without a record.

        Raises PreconditionNotMet, and what generator and guard raise; TypeError when the guard does not return a GuardResult.
        """
        self.require(workflow_state)
        inputs = dict(dependencies or {})
        full_context = attrs.evolve(context, dependencies={**context.dependencies, **inputs})
        artifact = strip_drafts(self.generator.generate(full_context, self.prompt_template))
        return artifact, verdict_of("of the action pair", self.guard, artifact, inputs)


def _require(what: str, value: object, method: str, hint: str) -> None:
    """Raise TypeError for a class, or an object without the method."""
    if isinstance(value, type):
        raise TypeError(f"the {what} is the class {value.__name__}: use an instance, {value.__name__}()")
    if not callable(getattr(value, method, None)):
        raise TypeError(f"the {what} is {type(value).__name__}, which has no {method}(..): {hint}")


class DualStateAgent:
    """One action pair with retries: it drives the shipped machine `dual_state`.

    `rmax` counts the retries after the first attempt. `constraints` is Omega. `on_moment` is called with each moment of the
    run; `run` is the last run, at its last rest.
    """

    def __init__(
        self,
        action_pair: ActionPair,
        artifact_dag: ArtifactDAGInterface,
        rmax: int = 3,
        constraints: str = "",
        *,
        on_moment: OnMoment | None = None,
    ) -> None:
        self._pair, self._dag, self._on_moment = action_pair, artifact_dag, on_moment
        self._machine = _table(rmax, constraints)
        self._generator = PairGenerator(action_pair)
        self.run: Run | None = None

    @property
    def workflow_state(self) -> WorkflowState:
        """S_workflow after the last row."""
        return WorkflowState() if self.run is None else workflow_state_of(self.run, {_GUARD: "satisfied"})

    @property
    def environment_state(self) -> EnvironmentState:
        """S_env: the newest artifact, the last context, the number of retries."""
        if self.run is None:
            return EnvironmentState()
        latest = self.run.step(_GUARD).latest
        artifact = None if latest is None else self._dag.get_artifact(latest)
        return EnvironmentState(artifact, self._generator.context, int(self.run.values["retries"]))

    def execute(
        self,
        specification: str,
        dependencies: Mapping[str, Artifact] | None = None,
        workflow_state: WorkflowState | None = None,
    ) -> Artifact:
        """Generate until the guard passes, and return that artifact. Every call starts from zero retries and an empty history.

        `dependencies` are earlier artifacts for the prompt and the guard; rho is evaluated on `workflow_state`. Raises PreconditionNotMet, RmaxExhausted,
        EscalationRequired or Interrupted. Raises ValueError, before anything happens, for a placeholder of the pair's prompt that is neither the
        specification nor a dependency; RuntimeError inside an event loop (use `execute_async` there).
        """
        return now(self.execute_async(specification, dependencies, workflow_state))

    async def execute_async(
        self,
        specification: str,
        dependencies: Mapping[str, Artifact] | None = None,
        workflow_state: WorkflowState | None = None,
    ) -> Artifact:
        """Do what `execute` does, in the caller's event loop."""
        self._pair.require(workflow_state or WorkflowState())
        if self._pair.prompt_template is not None:
            self._pair.prompt_template.require(dependencies or ())
        store = store_of(self._dag)
        inputs = {name: adopt(store, artifact) for name, artifact in (dependencies or {}).items()}
        self._generator = PairGenerator(self._pair, inputs)
        binding = Bindings(effects, {_GUARD: ContextGuard(self._pair.guard, inputs)}, {_GENERATOR: self._generator})
        artifacts = ScopedStore(store, tuple(artifact.artifact_id for artifact in inputs.values())) if inputs else store
        handle = in_memory(self._machine, binding, artifacts, self._on_moment)
        rest = await handle.drive(Occurrence(SPECIFICATION, data=specification))
        self.run = rest.run
        return self._outcome(rest, store)

    def _outcome(self, rest: Rest, store: ArtifactStore) -> Artifact:
        view = rest.run.step(_GUARD)
        rejections = rejections_of(rest.run, _GUARD, store)
        if rest.failure is not None:
            raise Interrupted(rest.failure, rejections)
        if rest.run.outcome == "succeeded":
            assert view.accepted is not None, "the row that sets sigma finalises an artifact"
            return store.get_artifact(view.accepted)
        if rest.run.outcome == "escalated":
            artifact, feedback = rejections[-1]
            raise EscalationRequired(artifact, feedback, rejections)
        raise RmaxExhausted(f"Failed after {len(rejections) - 1} retries", rejections)


class PairGenerator(GeneratorInterface):
    """A pair's generator with the pair's prompt; `context` is the last context."""

    def __init__(self, pair: ActionPair, dependencies: Mapping[str, Artifact] | None = None) -> None:
        self._pair, self._dependencies = pair, dict(dependencies or {})
        self.blocks = pair.generator.blocks
        self.context: Context | None = None

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Generate with the caller's dependencies."""
        if self._dependencies:
            context = attrs.evolve(context, dependencies={**context.dependencies, **self._dependencies})
        self.context = context
        return self._pair.generator.generate(context, self._pair.prompt_template or template)


class ContextGuard(GuardInterface):
    """A guard that gets the caller's dependencies too."""

    def __init__(self, guard: GuardInterface, dependencies: Mapping[str, Artifact]) -> None:
        self._guard, self._dependencies = guard, dict(dependencies)
        self.blocks = guard.blocks

    def validate(self, artifact: Artifact, **more: Any) -> GuardResult | Awaitable[GuardResult]:  # noqa: ANN401  (JSON)
        """Judge with the caller's dependencies and the run's."""
        return self._guard.validate(artifact, **self._dependencies, **more)


@attrs.frozen
class ScopedStore:
    """A store that adds the caller's dependencies to those of new artifacts."""

    _store: ArtifactStore
    _inputs: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (a store's attributes are of any type)
        return getattr(self._store, name)

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version with all its dependencies."""
        ids = tuple(dict.fromkeys((*artifact.dependency_ids, *self._inputs)))
        return self._store.store(attrs.evolve(artifact, dependency_ids=ids), author, run_id)


@lru_cache(maxsize=64)
def _table(rmax: int, constraints: str) -> Machine:
    """Return the shipped table. It is cached, so that its caches serve all agents with the same arguments."""
    return attrs.evolve(load("dual_state").at({"rmax": rmax}), constraints=constraints)


def in_memory(machine: Machine, binding: Bindings, artifacts: ArtifactStore, on_moment: OnMoment | None) -> RunHandle:
    """Return a new run in memory; only its artifacts may be on disk."""
    run_id = new_run_id(machine.name, entropy=token_hex(8))  # without a shared store, nothing else prevents equal ids
    return runs_in_memory(artifacts).begin(RunSetup(machine, binding), run_id=run_id, on_moment=on_moment)


def workflow_state_of(run: Run, variables: Mapping[str, str]) -> WorkflowState:
    """Return sigma of a run; `variables` names the workflow variable of each guard."""
    values: Mapping[str, Value] = run.values
    guards = {guard: values[variable] is True for guard, variable in variables.items()}
    ids = {guard: run.step(guard).accepted for guard in variables}
    return WorkflowState(guards, {guard: artifact_id for guard, artifact_id in ids.items() if artifact_id is not None})


def rejections_of(run: Run, step: str, artifacts: ArtifactStore) -> list[RejectedArtifact]:
    """Return the rejected artifacts of a step since it last passed, oldest first, the last and a fatal one included."""
    return [(artifacts.get_artifact(each.artifact_id), each.feedback) for each in run.step(step).history]
