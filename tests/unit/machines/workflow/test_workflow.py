"""Workflows of seed 000 in Python."""

import asyncio

import pytest

import dsa
from machines import (
    ActionPair,
    Artifact,
    GeneratorInterface,
    GuardInterface,
    GuardResult,
    InMemoryArtifactDAG,
    PromptTemplate,
    Workflow,
    WorkflowStatus,
    WorkflowStep,
    always,
)

PASSED, FAILED = GuardResult(passed=True), GuardResult(passed=False, feedback="no")
FATAL = GuardResult(passed=False, feedback="forbidden", fatal=True)


class Writes(GeneratorInterface):
    def __init__(self, word):
        self.word, self.calls = word, 0

    def generate(self, context, template=None):
        self.calls += 1
        return Artifact(f"{self.word} {self.calls}")


class Says(GuardInterface):
    def __init__(self, *results):
        self.results, self.given = list(results), []

    def validate(self, artifact, **dependencies):
        self.given.append({name: each.content for name, each in dependencies.items()})
        return self.results.pop(0) if self.results else PASSED


def step(name, guard_id, *results, rho=always, uses=()):
    return WorkflowStep(name, ActionPair(rho, Writes(name), Says(*results)), guard_id, uses)


def test_steps_run_in_order_and_give_artifacts_by_guard_id():
    second = step("code", "g_impl", FAILED, uses=("g_test",))
    workflow = Workflow([step("tests", "g_test"), second], InMemoryArtifactDAG())
    result = workflow.execute("adder")
    assert result.status is WorkflowStatus.SUCCESS
    assert {name: each.content for name, each in result.artifacts.items()} == {"g_test": "tests 1", "g_impl": "code 2"}
    assert second.action_pair.guard.given == [{"test": "tests 1"}, {"test": "tests 1"}]
    assert (result.failed_step, result.provenance, result.escalation_artifact) == (None, (), None)
    assert (result.escalation_feedback, result.reason) == ("", "")
    assert workflow.workflow_state.is_satisfied("g_impl")


def test_exhausted_retries_name_the_step_and_list_all_rejections():
    steps = [step("tests", "g_test"), step("code", "g_impl", FAILED, FAILED), step("docs", "g_docs")]
    result = Workflow(steps, InMemoryArtifactDAG(), rmax=1).execute("adder")
    assert (result.status, result.failed_step) == (WorkflowStatus.FAILED, "code")
    assert [(each.content, said) for each, said in result.provenance] == [("code 1", "no"), ("code 2", "no")]
    assert result.reason == "Failed after 1 retries; the last feedback: no"
    assert set(result.artifacts) == {"g_test"}
    assert steps[2].action_pair.generator.calls == 0


def test_escalation_brings_artifact_feedback_and_earlier_rejections():
    result = Workflow([step("code", "g_impl", FAILED, FATAL)], InMemoryArtifactDAG()).execute("adder")
    assert (result.status, result.failed_step) == (WorkflowStatus.ESCALATION, "code")
    assert (result.escalation_artifact.content, result.escalation_feedback) == ("code 2", "forbidden")
    assert result.reason == "forbidden"
    assert [said for _, said in result.provenance] == ["no", "forbidden"]


@pytest.mark.parametrize(
    ("event", "data", "status", "content"),
    [
        ("approved", None, "success", "code 1"),
        ("rejected", "use +", "success", "code 2"),
        ("amended", {"content": "by hand"}, "success", "by hand"),
        ("granted", None, "success", "code 2"),
        ("aborted", None, "failed", None),
    ],
)
def test_person_can_answer_an_escalation(event, data, status, content):
    dag = InMemoryArtifactDAG()
    workflow = Workflow([step("code", "g_impl", FATAL)], dag)
    assert workflow.execute("adder").status is WorkflowStatus.ESCALATION
    result = workflow.answer(event, data)
    assert result.status.value == status
    assert (result.artifacts["g_impl"].content if content else None) == content
    answered = [
        entry for entry in workflow.run.ledger if getattr(entry, "event", None) == event and hasattr(entry, "data")
    ]
    assert [entry.data for entry in answered] == [data]


def test_answer_without_an_escalation_is_refused():
    workflow = Workflow([step("code", "g_impl")], InMemoryArtifactDAG())
    with pytest.raises(RuntimeError, match="no escalation waits"):
        workflow.answer("approved")
    workflow.execute("adder")
    with pytest.raises(RuntimeError, match="no escalation waits"):
        workflow.answer("approved")


def test_invalid_answer_changes_nothing():
    workflow = Workflow([step("code", "g_impl", FATAL)], InMemoryArtifactDAG())
    workflow.execute("adder")
    with pytest.raises(dsa.errors.OccurrenceError):
        workflow.answer("aproved")
    assert workflow.answer("approved").status is WorkflowStatus.SUCCESS


def test_unmet_precondition_fails_the_workflow_at_its_step():
    steps = [step("a", "g_a"), step("b", "g_b", rho=lambda state: state.is_satisfied("g_c")), step("c", "g_c")]
    result = Workflow(steps, InMemoryArtifactDAG()).execute("x")
    assert (result.status, result.failed_step, result.provenance) == (WorkflowStatus.FAILED, "b", ())
    assert result.reason == "Precondition not met"
    assert [each.action_pair.generator.calls for each in steps] == [1, 0, 0]


def test_table_of_a_workflow_can_be_checked():
    steps = [step("tests", "g_test"), step("code", "g_impl", uses={"spec": "g_test"})]
    machine = dsa.loads(Workflow(steps, InMemoryArtifactDAG(), rmax=1).document)
    report = dsa.check(machine)
    assert [each for each in report.diagnostics if each.severity == "error"] == []
    assert machine.steps[1].uses == (("spec", "g_test"),)


class Raises(GeneratorInterface):
    def generate(self, context, template=None):
        raise ConnectionError("no network")


def test_generator_that_raises_gives_a_result_not_an_exception():
    steps = [step("a", "g_a"), WorkflowStep("b", ActionPair(always, Raises(), Says()), "g_b")]
    result = Workflow(steps, InMemoryArtifactDAG()).execute("x")
    assert (result.status, result.failed_step) == (WorkflowStatus.FAILED, "b")
    assert "no network" in result.reason
    assert result.artifacts["g_a"].content == "a 1"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "at least one step"),
        ([step("a", "g a")], "'g a' is not a valid guard id"),
        ([step("a", "g"), step("b", "g")], "belongs to another step"),
        ([step("a", "g_a", uses=("g_b",)), step("b", "g_b")], "no earlier step"),
        ([step("a", "g_a"), step("b", "a"), step("c", "c", uses=("g_a", "a"))], "two artifacts under one name"),
    ],
)
def test_invalid_steps_are_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        Workflow(steps, InMemoryArtifactDAG())


def test_workflow_can_be_awaited():
    async def inside():
        workflow = Workflow([step("code", "g_impl", FATAL)], InMemoryArtifactDAG())
        first = await workflow.execute_async("adder")
        return first.status, (await workflow.answer_async("approved")).status

    assert asyncio.run(inside()) == (WorkflowStatus.ESCALATION, WorkflowStatus.SUCCESS)


def prompted(task, uses=()):
    pair = ActionPair(always, Writes("code"), Says(), PromptTemplate(task=task))
    return [step("tests", "g_test"), WorkflowStep("code", pair, "g_impl", uses)]


def test_unknown_placeholder_is_refused_when_the_workflow_is_made():
    with pytest.raises(
        ValueError, match=r"step code: nothing fills in the placeholder \{tset\} of task; did you mean 'test'"
    ):
        Workflow(prompted("Implement {specification} to pass {tset}", ("g_test",)), InMemoryArtifactDAG())
    with pytest.raises(
        ValueError, match=r"step code: nothing fills in the placeholder \{test\} of task; known here: 'specification'"
    ):
        Workflow(prompted("Pass {test}"), InMemoryArtifactDAG())
    result = Workflow(prompted("{specification}: {test}", ("g_test",)), InMemoryArtifactDAG()).execute("adder")
    assert result.status is WorkflowStatus.SUCCESS
