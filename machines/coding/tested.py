"""Test first: a file of code and its tests, written by the TDD workflow (seed 001) instead of in one go.

Takes a model and what is wanted, gives tests and code that passes them: the first step writes tests, the second code, each with its guard and its
retries; the tests run in the sandbox. What does not pass is never written.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import attrs

from dsa.errors import GenerationError
from dsa.generators.awaiting import waited_for
from dsa.guards.code import SyntaxGuard, extract_code
from dsa.guards.compose import AllOf
from dsa.guards.tested import TDDTestGuard
from dsa.runtime.content import Artifact, Context, GeneratorInterface, PromptTemplate, Usage
from dsa.runtime.prompt import render
from machines.coding.tools.errors import ToolError
from machines.dual_state.agent import ActionPair, always
from machines.dual_state.dag import InMemoryArtifactDAG
from machines.talking.answers import answer_told
from machines.talking.model import Model
from machines.workflow.workflow import Workflow, WorkflowStatus, WorkflowStep

RMAX = 3
_LONGEST_REASON = 1_500
_TESTS = PromptTemplate(
    role="You write tests before the code exists.",
    constraints="Answer with one Python file of pytest functions, in a fence. Import what is tested with: from {module} import ..",
    task="Write pytest tests for: {specification}",
)
_CODE = PromptTemplate(
    role="You write code that passes given tests.",
    constraints="Answer with one Python file, in a fence.",
    task="Write the module for: {specification}\n\nIt must pass these tests:\n{test}",
)


@attrs.frozen
class Tested:
    """Code, its tests, what the model was asked for them, and how many answers that took."""

    code: str
    tests: str
    attempts: int
    usage: Mapping[str, Any]


def write_tested(model: Model, specification: str, path: str, number: int) -> Tested:
    """Have tests written, and then code that passes them. Blocks.

    `path` names the module that the tests import; `number` is how many answers the run has had. Raises ToolError `not_tested` with the last
    feedback, GenerationError when the model gave nothing.
    """
    module = PurePosixPath(path).stem
    if not module.isidentifier():
        raise ToolError("bad_path", f"'{path}' is no module that tests can import: letters, digits and _, then .py")
    generator = _Asked(model, number)
    template = attrs.evolve(_TESTS, constraints=_TESTS.constraints.replace("{module}", module))
    steps = [
        WorkflowStep("tests", ActionPair(always, generator, SyntaxGuard(), template), "g_test"),
        WorkflowStep(
            "code", ActionPair(always, generator, AllOf({"syntax": SyntaxGuard(), "tests": TDDTestGuard(module=module)}), _CODE), "g_impl", {"test": "g_test"}
        ),
    ]  # fmt: skip
    result = Workflow(steps, InMemoryArtifactDAG(), RMAX).execute(specification)
    if result.status is not WorkflowStatus.SUCCESS:
        if generator.failure is not None:
            raise generator.failure
        raise ToolError(
            "not_tested",
            f"nothing was written: the {result.failed_step} did not pass, {result.reason}"[:_LONGEST_REASON],
        )
    tests, code = (extract_code(result.artifacts[name].content).strip("\n") + "\n" for name in ("g_test", "g_impl"))
    return Tested(code, tests, generator.asked, generator.taken)


class _Asked(GeneratorInterface):
    """Asks the model of the run; adds up what that takes."""

    def __init__(self, model: Model, number: int) -> None:
        self._model, self._number = model, number
        self.asked = 0
        self.taken: dict[str, Any] = {}
        self.failure: GenerationError | None = None

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Ask once. Raises GenerationError."""
        messages = [{"role": "user", "content": render(template, context)}]
        number = self._number + self.asked
        self.asked += 1
        try:
            result = waited_for(lambda: self._model.ask(messages, (), number=number, on_text=None))
        except GenerationError as error:
            self.failure = error
            raise
        _, told = answer_told(result, lambda name, _: name)
        usage = {name: value for name, value in told["usage"].items() if isinstance(value, int | float)}
        self.taken = {name: self.taken.get(name, 0) + usage.get(name, 0) for name in {*self.taken, *usage}}
        return Artifact(content=result.content, usage=Usage(model=result.model, seconds=0.0))
