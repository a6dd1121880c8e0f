"""Real runs of workflows: artifacts that are passed on, actions of a person, and the choice of steps."""

import attrs
import pytest
from click.testing import CliRunner
from machine_transcripts import ReadsTheText, drive, story

import dsa
from dsa.cli.main import program
from dsa.edge.binding import Bindings
from dsa.edge.document_files import load, locate
from dsa.guards.code import SyntaxGuard
from dsa.lang import loads
from dsa.runs.bindings import bind
from dsa.runtime.ledger import ArtifactEntry
from dsa.runtime.run import replay
from dsa.testing.doubles import Texts
from machines.dual_state.bindings import effects

GOOD, BAD = "def add(a, b):\n    return a + b\n", "def add(a, b):\n    return a - b\n"
TEST_ADD = "def test_add():\n    assert add(1, 2) == 3, 'one and two'\n"


def test_workflow_passes_the_test_on_and_keeps_all_attempts():
    machine = load("workflow")
    texts = Texts(["def test_add(:", TEST_ADD, BAD, GOOD])
    bound = bind(machine, path=locate("workflow"), model="local")
    rest, artifacts = drive(machine, attrs.evolve(bound, generators={"llm": texts}), "add")
    assert (rest.kind, rest.run.outcome) == ("finished", "succeeded")
    assert rest.run.sigma == {"sigma.g_test": True, "sigma.g_impl": True}
    context, template = texts.calls[3]
    assert template.task == "Implement {specification} to pass {test}"
    assert context.dependencies["test"].content == TEST_ADD
    assert context.feedback_history[0][0] == BAD
    assert "one and two" in context.feedback_history[0][1]
    assert [len(asked.feedback_history) for asked, _ in texts.calls] == [0, 1, 0, 1]
    contents = [a.content for a in artifacts.get_provenance(rest.run.step("g_impl").accepted)]
    assert contents == ["def test_add(:", TEST_ADD, BAD, GOOD]


@pytest.mark.parametrize(
    ("useless", "said"),
    [
        (GOOD, "There is no test in the answer. It defines add instead"),
        (f"{BAD}{TEST_ADD.replace('== 3', '== -1')}", "The tests pass without the code"),
        ("def test_add():\n    assert True\n", "The tests pass without the code"),
        ("# pytest tests for add\n", "There is no test in the answer."),
    ],
)
def test_workflow_spends_no_code_retry_on_useless_tests(useless, said):
    machine = load("workflow")
    texts = Texts([useless, TEST_ADD, GOOD])
    bound = bind(machine, path=locate("workflow"), model="local")
    rest, _ = drive(machine, attrs.evolve(bound, generators={"llm": texts}), "add")
    assert (rest.run.outcome, len(texts.calls)) == ("succeeded", 3)
    assert [asked.step for asked, _ in texts.calls] == ["g_test", "g_test", "g_impl"]
    assert texts.calls[1][0].feedback_history[0][1].startswith(said)


def test_percepts_show_what_the_step_in_progress_uses(tmp_path):
    (tmp_path / "replies.md").write_text(f"```\n{TEST_ADD}```\n```\n{GOOD}```\n")
    rest = dsa.run("workflow", "add", where=tmp_path / "runs", model=f"scripted:{tmp_path / 'replies.md'}")
    told = CliRunner().invoke(program, ["show", rest.run.run_id, "--percepts", "--runs", str(tmp_path / "runs")]).output
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in told.splitlines()]
    assert [(percept, deps) for percept, _, _, deps, _ in rows if percept.startswith(("artifact", "verdict"))] == [
        ("artifact", "-"),
        ("verdict g_test.passed", "test = g_test"),
        ("artifact", "test = g_test"),
        ("verdict g_impl.passed", "-"),
    ]


def test_feedback_template_may_use_the_placeholders_of_prompts():
    machine = loads(
        "# m\n## Steps\n| step | guard | rmax |\n| - | - | - |\n| g | syntax | 1 |\n"
        "## Prompt: g\n### Feedback\n```\nStill {specification}: {feedback}\n```\n"
    )
    texts = Texts(["def f(:", "f = 1"])
    rest, _ = drive(machine, Bindings(effects, {"g": SyntaxGuard()}, {"llm": texts}), "Psi")
    assert rest.run.outcome == "succeeded"
    context, template = texts.calls[1]
    assert "Still Psi: The code has a syntax error" in template.render(context)


def escalated_workflow(*sent, texts):
    machine, generator = load("workflow"), Texts(texts)
    guards = {guard.name: ReadsTheText() for guard in machine.guards}
    rest, artifacts = drive(machine, Bindings(effects, guards, {"llm": generator}), "Psi", *sent)
    return rest, artifacts, generator


def test_rejected_artifact_is_in_the_history_with_the_persons_words():
    rest, _, generator = escalated_workflow(("rejected", "not like this"), texts=["awful", "good", "good"])
    assert rest.run.outcome == "succeeded"
    context, _ = generator.calls[1]
    assert context.feedback_history == (("awful", ""), ("awful", "not like this"))


def test_amended_artifact_is_stored_judged_and_used():
    rest, artifacts, generator = escalated_workflow(("amended", {"content": "mine"}), texts=["awful", "good"])
    accepted = artifacts.get_artifact(rest.run.step("g_test").accepted)
    assert (accepted.content, accepted.version) == ("mine", 2)
    assert [a.content for a in artifacts.get_provenance(accepted.artifact_id)] == ["awful", "mine"]
    assert [e.author for e in rest.run.ledger if isinstance(e, ArtifactEntry)] == ["llm", "person", "llm"]
    context, _ = generator.calls[1]
    assert context.dependencies["test"] == accepted


def test_approved_artifact_is_the_one_that_was_escalated():
    rest, artifacts, _ = escalated_workflow(("approved", None), texts=["awful", "good"])
    assert artifacts.get_artifact(rest.run.step("g_test").accepted).content == "awful"


CHOOSING = """# choosing
## Steps
| step | requires | guard | rmax | optional | task |
| - | - | - | - | - | - |
| draft | | syntax | 0 | | Draft |
| polish | draft | syntax | 0 | yes | Polish |
| fallback | draft and not polish | syntax | 0 | | Fall back |
| never | fallback and polish | syntax | 0 | | Never |

Goal: GOAL
"""


@pytest.mark.parametrize(
    ("goal", "texts", "expected"),
    [
        ("polish or fallback", ["good", "good"], "succeeded"),
        ("polish or fallback", ["good", "bad", "good"], "succeeded"),
        ("never", ["good", "good"], "failed"),
        ("polish", ["good", "bad", "good"], "failed"),
    ],
)
def test_workflow_with_optional_steps_ends_as_expected(goal, texts, expected):
    machine = loads(CHOOSING.replace("GOAL", goal))
    guards = {guard.name: ReadsTheText() for guard in machine.guards}
    rest, _ = drive(machine, Bindings(effects, guards, {"llm": Texts(texts)}), "Psi")
    assert (rest.kind, rest.run.outcome) == ("finished", expected), story(rest)
    assert replay(machine, rest.run.ledger) == rest.run
    if expected == "failed":
        assert story(rest).splitlines()[-2] == "advanced: reply_precondition_not_met -> failed"
