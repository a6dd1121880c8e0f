"""The models that are asked: any that `dsa run` takes, and scripted ones that draw their answers.

Takes what `--model` says, gives a `Model`: one question, one answer. A model that is said to be deterministic gives one answer to one
question with one seed, whenever it is asked; `command` tries that before it is relied upon.
"""

import hashlib
from pathlib import Path
from typing import Protocol

import attrs

from dsa.errors import DsaError
from dsa.generators.generator_kinds import build_generator
from dsa.generators.model_options import SCRIPT_PREFIX
from dsa.generators.substitutes import parse_script
from dsa.machine import Machine
from dsa.runs.bindings import generator_name
from dsa.runtime.content import AmbientEnvironment, Artifact, Context, Usage

AFTER_FEEDBACK = " after feedback"
#: The scripts beside this file, as a model.
SHIPPED, SCRIPTS = "scripted", Path(__file__).parent / "scripts"


@attrs.frozen
class Question:
    """One question to a model: for a step of a machine, with a seed. `has_feedback` says whether there is feedback in the prompt."""

    machine: Machine = attrs.field(repr=False)
    step: str
    seed: int
    prompt: str
    has_feedback: bool = False


class Model(Protocol):
    """Who answers. `is_deterministic` says that equal questions have equal answers."""

    name: str
    is_deterministic: bool

    def answer(self, question: Question) -> Artifact:
        """Answer. Raises GenerationError, ModelUnavailable."""

    def parameters(self, question: Question) -> dict[str, str]:
        """Return what else the answer depends on, beside seed and prompt."""

    def script(self, task: str) -> str:
        """Return a text that changes when what the model says at a task is changed here; empty where that cannot be."""


@attrs.frozen
class AskedModel:
    """A model that `dsa run --model` takes, with the options of the document's table Generators."""

    name: str

    @property
    def is_deterministic(self) -> bool:
        """Whether it is the local model: servers batch, and providers ignore seeds."""
        return self.name == "local"

    def answer(self, question: Question) -> Artifact:
        """Ask by the generator that the document means; the whole prompt is its specification."""
        name = generator_name(question.machine, question.step)
        generator = build_generator(name, question.machine, model=self.name, seed=question.seed)
        return generator.generate(Context(AmbientEnvironment(), question.prompt, step=question.step))

    def parameters(self, question: Question) -> dict[str, str]:
        """Return the options of the generator."""
        name = generator_name(question.machine, question.step)
        return {"step": question.step} | next(
            (dict(row.options) for row in question.machine.generators if row.name == name), {}
        )

    def script(self, task: str) -> str:
        """Return an empty text: a real model follows no script."""
        return ""


@attrs.frozen
class DrawnModel:
    """A folder of scripts, `TASK.md` each: the seed draws one of the replies under `## STEP`.

    Where there is feedback in the prompt, it draws from those under `## STEP after feedback`, if there are any.
    """

    name: str
    _replies: dict[str, dict[str, list[str]]]
    is_deterministic: bool = True

    def answer(self, question: Question) -> Artifact:
        """Draw a reply. KeyError never: `read_model` has seen that there is one for each step."""
        replies = self._replies[question.machine.name]
        told = replies.get(f"{question.step}{AFTER_FEEDBACK}") if question.has_feedback else None
        drawn = told or replies[question.step]
        usage = Usage("scripted", seconds=0.0, cost_usd=0.0)
        return Artifact(content=f"```python\n{drawn[question.seed % len(drawn)]}```\n", usage=usage)

    def parameters(self, question: Question) -> dict[str, str]:
        """Return what chooses among the headings."""
        return {"step": question.step, "told": str(question.has_feedback), "script": self.script(question.machine.name)}

    def script(self, task: str) -> str:
        """Return a digest of the replies."""
        return hashlib.sha256(repr(self._replies[task]).encode()).hexdigest()[:16]


class ModelError(DsaError):
    """Raised when `--model` names no model: a folder of scripts that does not exist, or has no replies for a task."""


def read_model(name: str, machines: tuple[Machine, ...]) -> Model:
    """Return the model of a name. Raises ModelError, BindingError; a provider's model that does not exist is found when it is asked."""
    if name != SHIPPED and not name.startswith(SCRIPT_PREFIX):
        for machine in machines:
            for step in machine.steps:
                # Says what is wrong with an address.
                build_generator(generator_name(machine, step.name), machine, model=name)
        return AskedModel(name)
    folder, replies = SCRIPTS if name == SHIPPED else Path(name.removeprefix(SCRIPT_PREFIX)), {}
    if not folder.is_dir():
        raise ModelError(
            f"{folder} is not a folder; scripted:DIR takes a folder with a script for each task, such as {machines[0].name}.md"
        )
    for machine in machines:
        path = folder / f"{machine.name}.md"
        try:
            replies[machine.name] = parse_script(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as fault:
            raise ModelError(
                f"{path} cannot be read: {getattr(fault, 'strerror', None) or 'it is not UTF-8'}"
            ) from fault
        for step in (step.name for step in machine.steps):
            if not replies[machine.name].get(step):
                raise ModelError(
                    f"{path} has no replies for step {step}: write fenced blocks under a heading '## {step}'"
                )
    return DrawnModel(name, replies)
