"""Calling asynchronous code from code that is not.

The dual-state agent of seed 000 in Python: an action pair, and the agent that drives the shipped table with it.

Takes a generator, a guard and a place for artifacts; gives the artifact that passed, or raises what says why there is none. Names
and fields are the agent program's. Which state follows which stands in `machine.md` alone; this module decides nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import lru_cache
from secrets import token_hex
from typing import Any, TypeVar

import attrs

from dsa.data_use import SPECIFICATION
from dsa.edge.binding import Bindings
from dsa.edge.document_files import load
from dsa.errors import DsaError
from dsa.expr import Value
from dsa.guards.feedback import verdict_of
from dsa.machine import Machine
from dsa.runs.handle import RunHandle
from dsa.runs.place import new_run_id
from dsa.runs.runs import runs_in_memory
from dsa.runs.setup import RunSetup
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import Artifact, Context, GeneratorInterface, GuardInterface, GuardResult, PromptTemplate
from dsa.runtime.run import Run
from dsa.runtime.speech import strip_drafts
from dsa.runtime.status import Failure, Rest
from dsa.runtime.timeline import OnMoment
from dsa.semantics import Occurrence
from machines.dual_state.bindings import effects
from machines.dual_state.dag import ArtifactDAGInterface, EnvironmentState, WorkflowState, handed_in, store_of

T = TypeVar("T")


def now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and give its result. RuntimeError inside an event loop, which cannot wait for itself."""
    if _is_in_a_loop():
        work.close()
        raise RuntimeError(
            "this is called inside an event loop: await `execute_async(..)` or `answer_async(..)` instead"
        )
    return asyncio.run(work)


def _is_in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


Precondition = Callable[[WorkflowState], bool]

#: An artifact that was turned down, and why.
Rejected = tuple[Artifact, str]

_GENERATOR, _GUARD = "llm", "g"


class PreconditionNotMet(DsaError):  # noqa: N818  (the agent program's name)
    """Raised when rho of an action pair does not hold: nothing was generated."""


class RmaxExhausted(DsaError):  # noqa: N818  (the agent program's name)
    """Raised when the last retry was turned down too. `provenance` has every artifact with its feedback, oldest first."""

    def __init__(self, message: str, provenance: list[Rejected]) -> None:
        self.provenance = provenance
        super().__init__(message)
        for _, feedback in provenance[-1:]:
            self.add_note(f"the last feedback: {feedback or 'none'}")


class EscalationRequired(DsaError):  # noqa: N818  (the agent program's name)
    """Raised on a fatal verdict: a person has to look. `provenance` ends with the artifact itself."""

    def __init__(self, artifact: Artifact, feedback: str, provenance: list[Rejected]) -> None:
        self.artifact, self.feedback, self.provenance = artifact, feedback, provenance
        super().__init__(feedback)


class Interrupted(DsaError):  # noqa: N818  (a state of affairs, as its sisters)
    """Raised when generator or guard failed themselves, which is no verdict. `failure` says what happened and in which row."""

    def __init__(self, failure: Failure, provenance: list[Rejected]) -> None:
        self.failure, self.provenance = failure, provenance
        super().__init__(str(failure))


def always(_state: WorkflowState) -> bool:
    """Hold in every workflow state."""
    return True


class ActionPair:
    """A = <rho, a_gen, G> of Definition 6: precondition, generator, guard, and the prompt for it.

    TypeError for what cannot be asked to do its part, before a model is paid.
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
            satisfied = sorted(name for name, is_satisfied in workflow_state.guards.items() if is_satisfied)
            unmet = PreconditionNotMet("Precondition not satisfied for action pair")
            unmet.add_note(f"satisfied are: {', '.join(satisfied) or 'none'}")
            raise unmet

    def execute(
        self, workflow_state: WorkflowState, context: Context, dependencies: Mapping[str, Artifact] | None = None
    ) -> tuple[Artifact, GuardResult]:
        """Generate and judge once, without retries and without a record of it.

        Raises PreconditionNotMet, and what generator and guard raise; TypeError when the guard gives no GuardResult.
        """
        self.require(workflow_state)
        used = dict(dependencies or {})
        asked = attrs.evolve(context, dependencies={**context.dependencies, **used})
        artifact = strip_drafts(self.generator.generate(asked, self.prompt_template))
        return artifact, verdict_of("of the action pair", self.guard, artifact, used)


def _require(what: str, given: object, method: str, hint: str) -> None:
    """Raise TypeError for a class, or something without the method, where an object is meant."""
    if isinstance(given, type):
        raise TypeError(f"the {what} is the class {given.__name__} itself: give an object of it, {given.__name__}()")
    if not callable(getattr(given, method, None)):
        raise TypeError(f"the {what} is {type(given).__name__}, which has no {method}(..): {hint}")


class DualStateAgent:
    """One action pair with retries: it drives the shipped machine `dual_state`.

    `rmax` counts the retries after the first attempt. `constraints` is Omega. `on_moment` is called with each moment of the
    run; `run` is the run as it last stood.
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
        """S_workflow as the last row left it."""
        return WorkflowState() if self.run is None else workflow_state_of(self.run, {_GUARD: "satisfied"})

    @property
    def environment_state(self) -> EnvironmentState:
        """S_env: the newest artifact, the last context, the retries taken."""
        if self.run is None:
            return EnvironmentState()
        latest = self.run.step(_GUARD).latest
        artifact = None if latest is None else self._dag.get_artifact(latest)
        return EnvironmentState(artifact, self._generator.asked, int(self.run.values["retries"]))

    def execute(
        self,
        specification: str,
        dependencies: Mapping[str, Artifact] | None = None,
        workflow_state: WorkflowState | None = None,
    ) -> Artifact:
        """Generate until the guard passes, and give that artifact. Every call starts from no retries and an empty history.

        `dependencies` are earlier artifacts, which prompt and guard are given; rho is asked about `workflow_state`. Raises
        PreconditionNotMet, RmaxExhausted, EscalationRequired, Interrupted; ValueError, before anything is asked or recorded, for a placeholder of the
        pair's prompt that is neither the specification nor one of the dependencies; RuntimeError inside an event loop, where `execute_async` is meant.
        """
        return now(self.execute_async(specification, dependencies, workflow_state))

    async def execute_async(
        self,
        specification: str,
        dependencies: Mapping[str, Artifact] | None = None,
        workflow_state: WorkflowState | None = None,
    ) -> Artifact:
        """Do what `execute` does, in the event loop of the caller."""
        self._pair.require(workflow_state or WorkflowState())
        if self._pair.prompt_template is not None:
            self._pair.prompt_template.require(dependencies or ())
        store = store_of(self._dag)
        used = {name: handed_in(store, artifact) for name, artifact in (dependencies or {}).items()}
        self._generator = PairGenerator(self._pair, used)
        binding = Bindings(effects, {_GUARD: ContextGuard(self._pair.guard, used)}, {_GENERATOR: self._generator})
        artifacts = ScopedStore(store, tuple(artifact.artifact_id for artifact in used.values())) if used else store
        handle = in_memory(self._machine, binding, artifacts, self._on_moment)
        rest = await handle.drive(Occurrence(SPECIFICATION, data=specification))
        self.run = rest.run
        return self._outcome(rest, store)

    def _outcome(self, rest: Rest, store: ArtifactStore) -> Artifact:
        view = rest.run.step(_GUARD)
        rejected = rejected_in(rest.run, _GUARD, store)
        if rest.failure is not None:
            raise Interrupted(rest.failure, rejected)
        if rest.run.outcome == "succeeded":
            assert view.accepted is not None, "the row that sets sigma finalises an artifact"
            return store.get_artifact(view.accepted)
        if rest.run.outcome == "escalated":
            artifact, feedback = rejected[-1]
            raise EscalationRequired(artifact, feedback, rejected)
        raise RmaxExhausted(f"Failed after {len(rejected) - 1} retries", rejected)


class PairGenerator(GeneratorInterface):
    """A pair's generator with the pair's prompt; `asked` is the context it was last given."""

    def __init__(self, pair: ActionPair, dependencies: Mapping[str, Artifact] | None = None) -> None:
        self._pair, self._dependencies = pair, dict(dependencies or {})
        self.blocks = pair.generator.blocks
        self.asked: Context | None = None

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Generate with what the caller handed in."""
        if self._dependencies:
            context = attrs.evolve(context, dependencies={**context.dependencies, **self._dependencies})
        self.asked = context
        return self._pair.generator.generate(context, self._pair.prompt_template or template)


class ContextGuard(GuardInterface):
    """A guard that is given what the caller handed in as well."""

    def __init__(self, guard: GuardInterface, dependencies: Mapping[str, Artifact]) -> None:
        self._guard, self._dependencies = guard, dict(dependencies)
        self.blocks = guard.blocks

    def validate(self, artifact: Artifact, **given: Any) -> GuardResult | Awaitable[GuardResult]:  # noqa: ANN401  (JSON)
        """Judge with all there is."""
        return self._guard.validate(artifact, **self._dependencies, **given)


@attrs.frozen
class ScopedStore:
    """A store whose new artifacts name what the caller handed in as their dependencies."""

    _store: ArtifactStore
    _used: tuple[str, ...]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever a store offers)
        return getattr(self._store, name)

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version with all it depends on."""
        used = tuple(dict.fromkeys((*artifact.dependency_ids, *self._used)))
        return self._store.store(attrs.evolve(artifact, dependency_ids=used), author, run_id)


@lru_cache(maxsize=64)
def _table(rmax: int, constraints: str) -> Machine:
    """Return the shipped table; what is worked out of it once serves all agents of its kind."""
    return attrs.evolve(load("dual_state").at({"rmax": rmax}), constraints=constraints)


def in_memory(machine: Machine, binding: Bindings, artifacts: ArtifactStore, on_moment: OnMoment | None) -> RunHandle:
    """Return a new run that no disk keeps but for its artifacts."""
    run_id = new_run_id(machine.name, entropy=token_hex(8))  # no store refuses an id twice
    return runs_in_memory(artifacts).begin(RunSetup(machine, binding), run_id=run_id, on_moment=on_moment)


def workflow_state_of(run: Run, variables: Mapping[str, str]) -> WorkflowState:
    """Read sigma off a run; `variables` names the workflow variable of each guard."""
    values: Mapping[str, Value] = run.values
    passed = {guard: values[variable] is True for guard, variable in variables.items()}
    accepted = {guard: run.step(guard).accepted for guard in variables}
    return WorkflowState(passed, {guard: found for guard, found in accepted.items() if found is not None})


def rejected_in(run: Run, step: str, artifacts: ArtifactStore) -> list[Rejected]:
    """Return what was turned down in a step since it last passed, the last and a fatal one included, oldest first."""
    return [(artifacts.get_artifact(each.artifact_id), each.feedback) for each in run.step(step).history]
