"""Contradictions in the agent program and its published code, one test each: how `dsa` resolves them."""

import asyncio
import inspect

import pytest

import dsa
from dsa.guards.cases import CasesGuard
from dsa.guards.code import SyntaxGuard
from dsa.runtime.content import render
from machines import (
    ActionPair,
    AmbientEnvironment,
    Artifact,
    Context,
    DualStateAgent,
    EscalationRequired,
    GeneratorInterface,
    GitArtifactDAG,
    GuardInterface,
    GuardResult,
    InMemoryArtifactDAG,
    PromptTemplate,
    RmaxExhausted,
    Workflow,
    WorkflowStatus,
    WorkflowStep,
    always,
)

FAILED, FATAL = GuardResult(passed=False, feedback="no"), GuardResult(passed=False, feedback="stop", fatal=True)


class Gives(GeneratorInterface):
    """Returns the texts in turn, then the last one forever."""

    def __init__(self, *texts):
        self.texts, self.contexts, self.calls = texts, [], 0

    def generate(self, context, template=None):
        self.contexts.append(context)
        self.calls += 1
        return Artifact(self.texts[min(self.calls, len(self.texts)) - 1])


class Says(GuardInterface):
    def __init__(self, *results):
        self.results = list(results)

    def validate(self, artifact, **dependencies):
        return self.results.pop(0) if self.results else GuardResult(passed=True)


def pair(*results, text="text", rho=always):
    return ActionPair(rho, Gives(text), Says(*results))


def test_01_precondition_is_checked_on_the_state_of_the_workflow():
    """There, the agent looked at its own empty state: a step that follows another could never start."""
    steps = [
        WorkflowStep("tests", pair(), "g_test"),
        WorkflowStep("code", pair(rho=lambda state: state.is_satisfied("g_test")), "g_impl"),
    ]
    assert Workflow(steps, InMemoryArtifactDAG()).execute("adder").status is WorkflowStatus.SUCCESS


def test_02_advancing_sets_sigma():
    """There, `_advance_state` cited Definition 8 and set nothing."""
    agent = DualStateAgent(pair(FAILED), InMemoryArtifactDAG())
    assert not agent.workflow_state.is_satisfied("g")
    agent.execute("x")
    assert agent.workflow_state.is_satisfied("g")


def test_03_generator_and_guard_have_one_interface_each():
    """There, each was defined twice, with different signatures, and the first one did not fit."""
    assert list(inspect.signature(GeneratorInterface.generate).parameters) == ["self", "context", "template"]
    assert list(inspect.signature(GuardInterface.validate).parameters) == ["self", "artifact", "dependencies"]
    import dsa.guards
    import dsa.runtime.content

    assert GuardInterface is dsa.runtime.content.GuardInterface is dsa.guards.GuardInterface


def test_04_second_execution_starts_afresh():
    """There, retries and feedback remained after exhaustion: a second execution made no attempt and raised the old provenance."""
    generator = Gives("a", "b", "c")
    agent = DualStateAgent(ActionPair(always, generator, Says(FAILED, FAILED)), InMemoryArtifactDAG(), rmax=1)
    with pytest.raises(RmaxExhausted):
        agent.execute("first")
    assert agent.execute("second").content == "c"
    assert generator.contexts[2].feedback_history == ()
    assert generator.contexts[2].specification == "second"


def test_05_parents_are_linked_by_id_without_cycles():
    """There, parents were found by version number over all artifacts: provenance crossed into other tasks, or never ended."""
    dag = InMemoryArtifactDAG()
    other = DualStateAgent(pair(FAILED, text="other"), dag).execute("a")
    same = DualStateAgent(pair(FAILED, FAILED, text="same"), dag).execute("b")
    lineage = dag.get_provenance(same.artifact_id)
    assert [(each.content, each.version) for each in lineage] == [("same", 1), ("same", 2), ("same", 3)]
    assert len({each.artifact_id for each in lineage}) == 3
    assert other.artifact_id not in {each.artifact_id for each in lineage}


def test_06_git_store_keeps_versions_and_parents_and_finds_its_ids(tmp_path):
    """There, provenance had one entry, version and parent were lost, and no method accepted the id that `store` returned."""
    dag = GitArtifactDAG(tmp_path / "r.git")
    found = dag.store(Artifact("by hand"))
    assert dag.get_artifact(found).content == "by hand"
    artifact = DualStateAgent(pair(FAILED), dag).execute("x")
    assert [each.version for each in dag.get_provenance(artifact.artifact_id)] == [1, 2]
    assert dag.get_artifact(artifact.artifact_id).parent_id == dag.get_provenance(artifact.artifact_id)[0].artifact_id


def test_07_prompt_has_specification_rejected_artifact_and_feedback():
    """There, only the feedback was rendered."""
    context = Context(AmbientEnvironment(None, "omega"), "psi", "rejected", (("rejected", "phi"),))
    prompt = render(PromptTemplate("role", "rules", "task"), context)
    assert [prompt.index(each) for each in ("role", "rules", "omega", "psi", "rejected", "phi", "task")] == sorted(
        prompt.index(each) for each in ("role", "rules", "omega", "psi", "rejected", "phi", "task")
    )


def test_08_failure_without_feedback_is_a_failure():
    """There, the stored record took empty feedback for a pass."""
    dag = InMemoryArtifactDAG()
    with pytest.raises(RmaxExhausted):
        DualStateAgent(pair(GuardResult(passed=False)), dag, rmax=0).execute("x")
    assert [each.outcome for each in dag.attempts()] == ["failed"]


def test_09_dependencies_keep_their_names():
    """There, `replace("g_", "")` made `confix` of `g_config_g_x`, and two ids could collide."""
    steps = [
        WorkflowStep("a", pair(), "g_config_g_x"),
        WorkflowStep("b", pair(), "reg_impl"),
        WorkflowStep("c", pair(), "g_c", ("g_config_g_x", "reg_impl")),
        WorkflowStep("d", pair(), "g_d", {"settings": "g_config_g_x"}),
    ]
    assert [step.guard_artifact_deps for step in steps[2:]] == [
        (("config_g_x", "g_config_g_x"), ("reg_impl", "reg_impl")),
        (("settings", "g_config_g_x"),),
    ]
    Workflow(steps[:2], InMemoryArtifactDAG())
    with pytest.raises(ValueError, match="two artifacts under one name"):
        Workflow(
            [
                WorkflowStep("a", pair(), "g_a"),
                WorkflowStep("b", pair(), "a"),
                WorkflowStep("c", pair(), "c", ("g_a", "a")),
            ],
            InMemoryArtifactDAG(),
        )


@pytest.mark.parametrize(("results", "status"), [([FAILED, FAILED], "failed"), ([FAILED, FATAL], "escalation")])
def test_10_failure_names_its_step_and_lists_all_rejections(results, status):
    """There, a failure named the step or the guard, had a string instead of an artifact, and an escalation lost earlier rejections."""
    steps = [WorkflowStep("write code", pair(*results), "g_impl")]
    result = Workflow(steps, InMemoryArtifactDAG(), rmax=1).execute("x")
    assert (result.status.value, result.failed_step) == (status, "write code")
    assert [type(artifact) for artifact, _ in result.provenance] == [Artifact, Artifact]
    unmet = [WorkflowStep("write code", pair(rho=lambda _: False), "g_impl")]
    assert Workflow(unmet, InMemoryArtifactDAG()).execute("x").provenance == ()


def test_11_fatal_artifact_is_in_the_history_and_exiting_code_does_no_harm():
    """There, a fatal artifact was stored but not in H, and `sys.exit` in an artifact ended the host."""
    agent = DualStateAgent(pair(FAILED, FATAL), InMemoryArtifactDAG())
    with pytest.raises(EscalationRequired) as caught:
        agent.execute("x")
    assert [feedback for _, feedback in caught.value.provenance] == ["no", "stop"]
    judged = CasesGuard([("f()", 1)]).validate(Artifact("import sys\ndef f():\n    sys.exit(0)"))
    assert not judged.passed


def test_12_replies_are_judged_without_fences_and_agents_can_be_awaited():
    """There, nothing was asynchronous, and every fenced reply was a syntax error."""
    assert SyntaxGuard().validate(Artifact("Here you are:\n```python\ndef f(): pass\n```\nGood luck!")).passed
    assert asyncio.run(DualStateAgent(pair(), InMemoryArtifactDAG()).execute_async("x")).content == "text"


def test_13_sigma_remembers_and_only_rows_set_it():
    """In one place of the paper sigma follows the current artifact, in another it remembers: here it remembers."""
    steps = [WorkflowStep("a", pair(), "g_a"), WorkflowStep("b", pair(FAILED, FAILED), "g_b")]
    workflow = Workflow(steps, InMemoryArtifactDAG(), rmax=1)
    workflow.execute("x")
    assert dict(workflow.workflow_state.guards) == {"g_a": True, "g_b": False}
    with pytest.raises(TypeError):
        workflow.workflow_state.guards["g_b"] = True
    machine = dsa.loads(workflow.document)
    unguarded = [each for each in dsa.check(machine).diagnostics if each.code == "DSA210"]
    assert unguarded == []
