"""Workflows of action pairs in Python (seed 000): steps become a Steps document, and that document is what runs.

Takes steps with their action pairs, gives a `WorkflowResult`. `Workflow.document` is the table, to be checked, proved and drawn like
any other; this module writes it and reads the outcome off the run.
"""

import enum
import re
from collections.abc import Iterable, Mapping

import attrs

from dsa.data_use import SPECIFICATION
from dsa.edge.binding import Bindings
from dsa.immutable import immutable
from dsa.lang import loads
from dsa.runs.handle import RunHandle
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface
from dsa.runtime.run import Run
from dsa.runtime.status import Rest
from dsa.runtime.timeline import OnMoment
from dsa.semantics import Occurrence
from machines.dual_state.agent import (
    ActionPair,
    PairGenerator,
    Rejected,
    in_memory,
    now,
    rejected_in,
    workflow_state_of,
)
from machines.dual_state.bindings import effects
from machines.dual_state.dag import ArtifactDAGInterface, WorkflowState, store_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLUMNS = ("step", "requires", "generator", "guard", "uses", "rmax")


def _scoped(given: Mapping[str, str] | Iterable[str | tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return pairs of the name under which a guard is given an artifact, and the guard id of the step that made it.

    A guard id alone stands under its own name, without the prefix `g_`.
    """
    if isinstance(given, Mapping):
        return tuple(given.items())
    return tuple((each.removeprefix("g_"), each) if isinstance(each, str) else each for each in given)


@attrs.frozen
class WorkflowStep:
    """One step: its name for people, its action pair, the id of its guard in sigma, and the earlier artifacts it uses.

    `guard_artifact_deps` are the guard ids of the steps that made them; a mapping gives each the name that prompt and guard
    know it by: `{"test": "g_test"}`.
    """

    name: str
    action_pair: ActionPair
    guard_id: str
    guard_artifact_deps: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_scoped)


class WorkflowStatus(enum.Enum):
    """How a workflow ended."""

    SUCCESS = "success"
    FAILED = "failed"
    ESCALATION = "escalation"


@attrs.frozen(field_transformer=immutable)
class WorkflowResult:
    """What a workflow came to. `artifacts` are those that passed, by guard id.

    `failed_step` is the name of the step that did not pass, `provenance` what was turned down in it, the last and a fatal one included;
    `reason` says in a sentence what was the matter.
    """

    status: WorkflowStatus
    artifacts: Mapping[str, Artifact]
    failed_step: str | None = None
    provenance: tuple[Rejected, ...] = ()
    escalation_artifact: Artifact | None = None
    escalation_feedback: str = ""
    reason: str = ""


class Workflow:
    """Steps, one after the other, each with its own retries.

    `rmax` counts the retries after each step's first attempt. ValueError for steps that make no table, and for a placeholder of a step's prompt that
    is neither the specification nor the name of an artifact that the step uses.
    """

    def __init__(
        self,
        steps: list[WorkflowStep],
        artifact_dag: ArtifactDAGInterface,
        rmax: int = 3,
        constraints: str = "",
        *,
        on_moment: OnMoment | None = None,
    ) -> None:
        _require_table(steps, rmax)
        self._steps, self._rmax, self._constraints = tuple(steps), rmax, constraints
        self._store, self._on_moment = store_of(artifact_dag), on_moment
        self._guards: dict[str, GuardInterface] = {step.guard_id: step.action_pair.guard for step in steps}
        self._generators: dict[str, GeneratorInterface] = {
            f"of_{step.guard_id}": PairGenerator(step.action_pair) for step in steps
        }
        self.run: Run | None = None
        self._handle: RunHandle | None = None

    @property
    def document(self) -> str:
        """The workflow as a Markdown document, for `dsa.loads`, and for `dsa check`, `dsa prove` and `dsa draw` once it is in a file.

        rho of each step is asked here: when its turn comes, every step before it has passed and none after it, so that its value
        is known. A step whose rho does not hold then requires what never is.
        """
        rows = [self._row(position) for position in range(len(self._steps))]
        lines = [f"| {' | '.join(row)} |" for row in (_COLUMNS, ("---",) * len(_COLUMNS), *rows)]
        return "\n".join(["# workflow", "", "## Steps", *lines, ""])

    def _row(self, position: int) -> tuple[str, ...]:
        step, before = self._steps[position], self._steps[:position]
        passed = WorkflowState({each.guard_id: True for each in before}, {each.guard_id: "" for each in before})
        requires = before[-1].guard_id if before else ""
        if not step.action_pair.can_execute(passed):
            requires = "false"
        uses = ", ".join(f"{name} = {guard_id}" for name, guard_id in step.guard_artifact_deps)
        return step.guard_id, requires, f"of_{step.guard_id}", f"by_{step.guard_id}", uses, str(self._rmax)

    @property
    def workflow_state(self) -> WorkflowState:
        """S_workflow as the last row left it."""
        if self.run is None:
            return WorkflowState()
        return workflow_state_of(self.run, {step.guard_id: f"sigma.{step.guard_id}" for step in self._steps})

    def execute(self, specification: str) -> WorkflowResult:
        """Run all steps. What goes wrong is in the result; only a mistake in the program raises.

        RuntimeError inside an event loop, where `execute_async` is meant.
        """
        return now(self.execute_async(specification))

    async def execute_async(self, specification: str) -> WorkflowResult:
        """Do what `execute` does, in the event loop of the caller."""
        machine = attrs.evolve(loads(self.document), constraints=self._constraints)
        binding = Bindings(effects, self._guards, self._generators)
        self._handle = in_memory(machine, binding, self._store, self._on_moment)
        return self._result(await self._handle.drive(Occurrence(SPECIFICATION, data=specification)))

    def answer(self, event: str, data: object = None) -> WorkflowResult:
        """Answer an escalation: `approved`, `rejected` (data: why), `amended` (data: `{"content": ..}`), `granted`, `aborted`.

        Raises OccurrenceError for anything else, and RuntimeError when no escalation waits.
        """
        return now(self.answer_async(event, data))

    async def answer_async(self, event: str, data: object = None) -> WorkflowResult:
        """Do what `answer` does, in the event loop of the caller."""
        if self._handle is None or not self._handle.run.configuration.state.startswith("escalated"):
            raise RuntimeError("no escalation waits for an answer; execute the workflow first")
        return self._result(await self._handle.drive(Occurrence(event, data=data)))

    def _result(self, rest: Rest) -> WorkflowResult:
        self.run = run = rest.run
        accepted = self.workflow_state.artifact_ids
        artifacts = {guard_id: self._store.get_artifact(found) for guard_id, found in accepted.items()}
        if run.outcome == "succeeded":
            return WorkflowResult(WorkflowStatus.SUCCESS, artifacts)
        step = next(step for step in self._steps if step.guard_id not in artifacts)
        rejected = tuple(rejected_in(run, step.guard_id, self._store))
        status, reason = WorkflowStatus.FAILED, _reason(rest, step.guard_id)
        artifact, feedback = None, ""
        if rest.failure is None and run.configuration.state.startswith("escalated"):
            status, (artifact, feedback) = WorkflowStatus.ESCALATION, rejected[-1]
        return WorkflowResult(status, artifacts, step.name, rejected, artifact, feedback, reason)


def _reason(rest: Rest, guard_id: str) -> str:
    if rest.failure is not None:
        return str(rest.failure)
    history = rest.run.step(guard_id).history
    if not history:
        return "Precondition not met"
    feedback = history[-1].feedback or "none"
    if history[-1].outcome == "fatal":
        return feedback
    return f"Failed after {len(history) - 1} retries; the last feedback: {feedback}"


def _require_table(steps: list[WorkflowStep], rmax: int) -> None:
    """Raise ValueError with what keeps the steps from being a table."""
    if not steps:
        raise ValueError("a workflow needs at least one step")
    if rmax < 0:
        raise ValueError(f"rmax counts retries: {rmax} is less than none")
    seen: list[str] = []
    for step in steps:
        if not _NAME.fullmatch(step.guard_id):
            raise ValueError(f"step {step.name}: '{step.guard_id}' is no guard id; use letters, digits and _")
        if step.guard_id in seen:
            raise ValueError(f"step {step.name}: the guard id {step.guard_id} belongs to another step")
        names = [name for name, _ in step.guard_artifact_deps]
        if len(set(names)) < len(names):
            hint = "give a mapping from names to guard ids"
            raise ValueError(f"step {step.name} uses two artifacts under one name; {hint}")
        for _, used in step.guard_artifact_deps:
            if used not in seen:
                raise ValueError(f"step {step.name} uses what {used} made, and no earlier step has that guard id")
        _require_prompt(step, names)
        seen.append(step.guard_id)


def _require_prompt(step: WorkflowStep, names: list[str]) -> None:
    """Raise ValueError for a placeholder of the step's prompt that nothing fills in."""
    template = step.action_pair.prompt_template
    if template is not None:
        try:
            template.require(names)
        except ValueError as error:
            raise ValueError(f"step {step.name}: {error}") from error
