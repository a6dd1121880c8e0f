"""Drafts in generated texts: with any generator, guards and artifacts get only the answer."""

import pytest

import dsa
from dsa.generators import FunctionGenerator, ScriptedGenerator
from dsa.guards import SyntaxGuard
from machines.dual_state.agent import ActionPair, DualStateAgent, InMemoryArtifactDAG, always

DOCUMENT = (
    "# f\n\n## Steps\n| step | guard | rmax | task |\n| ---- | ----- | ---- | ---- |\n| f | syntax | 1 | Write it. |\n"
)
SAID = [
    "<think>def f(:</think>\nx = 1",
    "def f(:\n</think>\nx = 1",
    "<|channel|>analysis<|message|>def f(:<|end|><|start|>assistant<|channel|>final<|message|>x = 1<|return|>",
]


@pytest.mark.parametrize("text", SAID)
@pytest.mark.parametrize(
    "generator", [lambda text: ScriptedGenerator([text]), lambda text: FunctionGenerator(lambda _: text)]
)
def test_run_stores_and_judges_only_the_answer(text, generator, tmp_path):
    (tmp_path / "f.md").write_text(DOCUMENT)
    bindings = dsa.Bindings({}, generators={"llm": generator(text)})
    rest = dsa.run(tmp_path / "f.md", where="memory:", bindings=bindings)
    assert [artifact.content for artifact in rest.accepted] == ["x = 1"]


@pytest.mark.parametrize("text", SAID)
def test_pair_judges_only_the_answer(text):
    pair = ActionPair(always, ScriptedGenerator([text]), SyntaxGuard())
    artifact = DualStateAgent(pair, InMemoryArtifactDAG()).execute("x")
    assert artifact.content == "x = 1"
