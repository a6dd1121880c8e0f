"""Workflows of action pairs in Python (seed 000): the steps become a document with a Steps table, and that document runs.

`Workflow` takes steps with their action pairs, and returns a `WorkflowResult`. `Workflow.document` is the table; check, prove and draw it like any other.
This module writes the table and reads the result from the run.
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
    ArtifactDAGInterface,
    PairGenerator,
    RejectedArtifact,
    WorkflowState,
    in_memory,
    now,
    rejections_of,
    store_of,
    workflow_state_of,
)
from machines.dual_state.bindings import effects

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLUMNS = ("step", "requires", "generator", "guard", "uses", "rmax")


def _name_pairs(dependencies: Mapping[str, str] | Iterable[str | tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return pairs of the guard's name for an artifact, and the guard id of the step that made it.

    A guard id alone gets its own name without the prefix `g_`.
    """
    if isinstance(dependencies, Mapping):
        return tuple(dependencies.items())
    return tuple((each.removeprefix("g_"), each) if isinstance(each, str) else each for each in dependencies)


@attrs.frozen
class WorkflowStep:
    """A step: its name for people, its action pair, the id of its guard in sigma, and the earlier artifacts that it uses.

    `guard_artifact_deps` are the guard ids of the steps that made them. A mapping gives each artifact its name in the prompt and
    the guard: `{"test": "g_test"}`.
    """

    name: str
    action_pair: ActionPair
    guard_id: str
    guard_artifact_deps: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_name_pairs)


class WorkflowStatus(enum.Enum):
    """The end of a workflow."""

    SUCCESS = "success"
    FAILED = "failed"
    ESCALATION = "escalation"


@attrs.frozen(field_transformer=immutable)
class WorkflowResult:
    """The result of a workflow. `artifacts` are those that passed, by guard id.

    `failed_step` is the name of the step that did not pass, and `provenance` its rejected artifacts, the last and a fatal one included.
    `reason` says in a sentence what went wrong.
    """

    status: WorkflowStatus
    artifacts: Mapping[str, Artifact]
    failed_step: str | None = None
    provenance: tuple[RejectedArtifact, ...] = ()
    escalation_artifact: Artifact | None = None
    escalation_feedback: str = ""
    reason: str = ""


class Workflow:
    """A sequence of steps, each with its own retries.

    `rmax` counts the retries after each step's first attempt. Raises ValueError for steps that cannot form a table, and for a placeholder of a step's prompt
    that is neither the specification nor the name of an artifact that the step uses.
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

        rho of each step is evaluated here: at its turn every step before it has passed and none after it, so its value is known.
        A step whose rho does not hold then requires `false`.
        """
        rows = [self._row(position) for position in range(len(self._steps))]
        lines = [f"| {' | '.join(row)} |" for row in (_COLUMNS, ("---",) * len(_COLUMNS), *rows)]
        return "\n".join(["# workflow", "", "## Steps", *lines, ""])

    def _row(self, position: int) -> tuple[str, ...]:
        step, before = self._steps[position], self._steps[:position]
        state = WorkflowState({each.guard_id: True for each in before}, {each.guard_id: "" for each in before})
        requires = before[-1].guard_id if before else ""
        if not step.action_pair.can_execute(state):
            requires = "false"
        uses = ", ".join(f"{name} = {guard_id}" for name, guard_id in step.guard_artifact_deps)
        return step.guard_id, requires, f"of_{step.guard_id}", f"by_{step.guard_id}", uses, str(self._rmax)

    @property
    def workflow_state(self) -> WorkflowState:
        """S_workflow after the last row."""
        if self.run is None:
            return WorkflowState()
        return workflow_state_of(self.run, {step.guard_id: f"sigma.{step.guard_id}" for step in self._steps})

    def execute(self, specification: str) -> WorkflowResult:
        """Run all steps. Failures are in the result; only a mistake in the program raises an exception.

        Raises RuntimeError inside an event loop (use `execute_async` there).
        """
        return now(self.execute_async(specification))

    async def execute_async(self, specification: str) -> WorkflowResult:
        """Do what `execute` does, in the caller's event loop."""
        machine = attrs.evolve(loads(self.document), constraints=self._constraints)
        binding = Bindings(effects, self._guards, self._generators)
        self._handle = in_memory(machine, binding, self._store, self._on_moment)
        return self._result(await self._handle.drive(Occurrence(SPECIFICATION, data=specification)))

    def answer(self, event: str, data: object = None) -> WorkflowResult:
        """Answer an escalation: `approved`, `rejected` (data: why), `amended` (data: `{"content": ..}`), `granted`, `aborted`.

        Raises OccurrenceError for any other event, and RuntimeError when no escalation waits.
        """
        return now(self.answer_async(event, data))

    async def answer_async(self, event: str, data: object = None) -> WorkflowResult:
        """Do what `answer` does, in the caller's event loop."""
        if self._handle is None or not self._handle.run.configuration.state.startswith("escalated"):
            raise RuntimeError("no escalation waits for an answer; execute the workflow first")
        return self._result(await self._handle.drive(Occurrence(event, data=data)))

    def _result(self, rest: Rest) -> WorkflowResult:
        self.run = run = rest.run
        ids = self.workflow_state.artifact_ids
        artifacts = {guard_id: self._store.get_artifact(artifact_id) for guard_id, artifact_id in ids.items()}
        if run.outcome == "succeeded":
            return WorkflowResult(WorkflowStatus.SUCCESS, artifacts)
        step = next(step for step in self._steps if step.guard_id not in artifacts)
        rejections = tuple(rejections_of(run, step.guard_id, self._store))
        status, reason = WorkflowStatus.FAILED, _reason(rest, step.guard_id)
        artifact, feedback = None, ""
        if rest.failure is None and run.configuration.state.startswith("escalated"):
            status, (artifact, feedback) = WorkflowStatus.ESCALATION, rejections[-1]
        return WorkflowResult(status, artifacts, step.name, rejections, artifact, feedback, reason)


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
    """Raise ValueError when the steps cannot form a table."""
    if not steps:
        raise ValueError("a workflow needs at least one step")
    if rmax < 0:
        raise ValueError(f"rmax counts retries: use 0 or more, not {rmax}")
    earlier: list[str] = []
    for step in steps:
        if not _NAME.fullmatch(step.guard_id):
            raise ValueError(f"step {step.name}: '{step.guard_id}' is not a valid guard id; use letters, digits and _")
        if step.guard_id in earlier:
            raise ValueError(f"step {step.name}: the guard id {step.guard_id} belongs to another step")
        names = [name for name, _ in step.guard_artifact_deps]
        if len(set(names)) < len(names):
            hint = "use a mapping from names to guard ids"
            raise ValueError(f"step {step.name} uses two artifacts under one name; {hint}")
        for _, guard_id in step.guard_artifact_deps:
            if guard_id not in earlier:
                raise ValueError(
                    f"step {step.name} uses the artifact of {guard_id}, but no earlier step has that guard id"
                )
        _require_prompt(step, names)
        earlier.append(step.guard_id)


def _require_prompt(step: WorkflowStep, names: list[str]) -> None:
    """Raise ValueError for a placeholder of the step's prompt that has no value."""
    template = step.action_pair.prompt_template
    if template is not None:
        try:
            template.require(names)
        except ValueError as error:
            raise ValueError(f"step {step.name}: {error}") from error
