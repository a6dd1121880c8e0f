"""One trial: a task, an arm, a sample. The real driver runs the task's machine; nothing here decides what comes next.

Takes a task, an arm, a sample and the calls of a model, gives a `Trial`, a row of the raw data.
"""

from collections.abc import Iterator

import attrs
from benchmarks.tasks.arms import Arm
from benchmarks.tasks.calls import Calls
from benchmarks.tasks.models import Question
from benchmarks.tasks.prompts import Compose
from benchmarks.tasks.tasks import Task

from dsa.data_use import SPECIFICATION
from dsa.edge.binding import Bindings
from dsa.edge.sandbox import SandboxError
from dsa.generators.model_options import derive_seed
from dsa.machine import Machine
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, Context, GeneratorInterface, PromptTemplate
from dsa.runtime.ledger import ArtifactEntry, VerdictEntry
from dsa.runtime.status import Rest
from dsa.semantics import Occurrence
from machines.dual_state.agent import in_memory, now
from machines.dual_state.bindings import effects

ACCEPTED, REJECTED, ERROR = "accepted", "rejected", "error"
RIGHT, WRONG = "right", "wrong"


@attrs.frozen
class Trial:
    """What became of one trial, as it stands in the raw data.

    `outcome` is the guards': accepted, rejected (no attempt passed), error (a model or a guard failed, which is not a verdict).
    `oracle` is right or wrong, for what was accepted only, and `fault` is the message of the oracle or of the failure. `attempts` are those
    of each step; `calls` of the `generations` were made for this trial, the others had been made for another arm of the same sample.
    Seconds are those of the calls when they were made, and of the guards.
    """

    task: str
    arm: str
    sample: int
    seed: int
    outcome: str
    oracle: str
    generations: int
    attempts: str
    calls: int
    model_s: float
    guard_s: float
    failed_step: str
    digest: str
    fault: str


def sample_seed(seed: int, task: str, sample: int) -> int:
    """Return the seed of a sample, the same in every arm."""
    return derive_seed(seed, task, sample, "sample")


@attrs.define
class Asking(GeneratorInterface):
    """The generator of a trial: it composes the prompt as the arm says and asks the model, with a seed for each step and attempt."""

    task: Task
    arm: Arm
    seed: int
    calls: Calls
    compose: Compose
    made: int = 0

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Ask for the next attempt. Raises what the model raises."""
        attempt = len(context.feedback_history) + 1
        has_feedback = self.arm.feedback and attempt > 1
        shown = context if has_feedback else attrs.evolve(context, feedback_history=(), current_artifact=None)
        prompt = self.compose(shown, template)
        seed = derive_seed(self.seed, context.step, attempt, self.task.name)
        artifact, is_new = self.calls.answer(Question(self.task.machine, context.step, seed, prompt, has_feedback))
        self.made += is_new
        return artifact


def perform(
    task: Task, arm: Arm, sample: int, seed: int, calls: Calls, compose: Compose
) -> tuple[Trial, Artifact | None]:
    """Run one trial; give its row, and the artifact of its last step if that was accepted. Raises what the store of calls raises."""
    own = sample_seed(seed, task.name, sample)
    asking = Asking(task, arm, own, calls, compose)
    machine: Machine = task.machine.at(rmax=arm.attempts - 1)
    generators = {step.generator or "llm": asking for step in machine.steps}
    artifacts = MemoryArtifacts()
    handle = in_memory(machine, Bindings(effects, task.guards, generators), artifacts, None)
    rest = now(handle.drive(Occurrence(SPECIFICATION, data="")))
    accepted = _accepted(task, rest)
    artifact = artifacts.get_artifact(accepted) if accepted else None
    row = attrs.evolve(_row(task, arm, sample, own, rest), calls=asking.made)
    return (row, None) if artifact is None else (_scored(task, row, artifact), artifact)


def _accepted(task: Task, rest: Rest) -> str | None:
    """Return the id of what the last step came to, if all steps have passed."""
    if rest.failure is not None or rest.run.outcome != "succeeded":
        return None
    return rest.run.step(task.steps[-1]).accepted


def _row(task: Task, arm: Arm, sample: int, seed: int, rest: Rest) -> Trial:
    run = rest.run
    made = [entry for entry in run.ledger if isinstance(entry, ArtifactEntry)]
    judged = [entry for entry in run.ledger if isinstance(entry, VerdictEntry)]
    outcome = ERROR if rest.failure else ACCEPTED if run.outcome == "succeeded" else REJECTED
    return Trial(
        task=task.name,
        arm=arm.name,
        sample=sample,
        seed=seed,
        outcome=outcome,
        oracle="",
        generations=len(made),
        attempts=" ".join(f"{step}:{run.step(step).attempts}" for step in task.steps),
        calls=0,
        model_s=round(sum(entry.seconds for entry in made), 4),
        guard_s=round(sum(entry.seconds for entry in judged), 4),
        failed_step=next(_not_passed(task, rest), "") if outcome != ACCEPTED else "",
        digest="",
        fault=_on_a_line(f"{rest.failure.code}: {rest.failure}") if rest.failure else "",
    )


def _not_passed(task: Task, rest: Rest) -> Iterator[str]:
    return (step for step in task.steps if rest.run.step(step).accepted is None)


def _scored(task: Task, row: Trial, artifact: Artifact) -> Trial:
    """Return the row with what the oracle says of the artifact; an oracle that cannot run is an error, and no verdict."""
    row = attrs.evolve(row, digest=artifact.content_digest[:16])
    try:
        fault = task.oracle.fault(artifact)
    except SandboxError as error:
        return attrs.evolve(row, outcome=ERROR, fault=_on_a_line(f"oracle: {error}"))
    return attrs.evolve(row, oracle=WRONG if fault else RIGHT, fault=_on_a_line(fault))


def _on_a_line(text: str) -> str:
    return " ".join(text.split())
