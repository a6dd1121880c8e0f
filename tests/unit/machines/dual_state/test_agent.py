"""The agent of seed 000 in Python."""

import asyncio

import pytest

from dsa.generators.substitutes import ScriptedGenerator
from dsa.runtime.content import render
from machines import (
    ActionPair,
    AmbientEnvironment,
    Artifact,
    ArtifactDAGInterface,
    Context,
    DualStateAgent,
    EscalationRequired,
    GeneratorInterface,
    GitArtifactDAG,
    GuardInterface,
    GuardResult,
    InMemoryArtifactDAG,
    Interrupted,
    PreconditionNotMet,
    PromptTemplate,
    RmaxExhausted,
    WorkflowState,
    always,
)


class Writes(GeneratorInterface):
    """Returns `text 1`, `text 2` and so on, and records its prompts and contexts."""

    def __init__(self, *, same=False):
        self.prompts, self.contexts, self.same = [], [], same

    def generate(self, context, template=None):
        self.contexts.append(context)
        self.prompts.append(render(template, context))
        return Artifact("text" if self.same else f"text {len(self.prompts)}")


class Says(GuardInterface):
    """Returns the results in order, then passes; records the artifacts it has judged."""

    def __init__(self, *results):
        self.results, self.given = list(results), []

    def validate(self, artifact, **dependencies):
        self.given.append((artifact.content, {name: each.content for name, each in dependencies.items()}))
        return self.results.pop(0) if self.results else GuardResult(passed=True)


def failed(feedback="no"):
    return GuardResult(passed=False, feedback=feedback)


def agent_of(*results, rmax=3, dag=None, **more):
    generator, guard = Writes(), Says(*results)
    dag = dag or InMemoryArtifactDAG()
    return DualStateAgent(ActionPair(always, generator, guard), dag, rmax, **more), generator, guard, dag


def test_first_artifact_that_passes_is_returned():
    agent, generator, _, dag = agent_of(failed("too short"))
    artifact = agent.execute("Write a text")
    assert (artifact.content, artifact.version) == ("text 2", 2)
    assert [each.content for each in dag.get_provenance(artifact.artifact_id)] == ["text 1", "text 2"]
    assert "too short" in generator.prompts[1]
    assert agent.workflow_state.is_satisfied("g")
    assert agent.workflow_state.get_artifact_id("g") == artifact.artifact_id
    assert agent.environment_state.artifact == artifact
    assert agent.environment_state.context.feedback_history == [("text 1", "too short")]


@pytest.mark.parametrize("rmax", [0, 1, 3])
def test_rmax_counts_retries_after_the_first_attempt(rmax):
    agent, generator, _, _ = agent_of(*[failed(f"no {n}") for n in range(9)], rmax=rmax)
    with pytest.raises(RmaxExhausted) as caught:
        agent.execute("Write")
    assert (str(caught.value), caught.value.__notes__) == (
        f"Failed after {rmax} retries",
        [f"the last feedback: no {rmax}"],
    )
    assert len(generator.prompts) == rmax + 1
    assert [(each.content, said) for each, said in caught.value.provenance] == [
        (f"text {n + 1}", f"no {n}") for n in range(rmax + 1)
    ]
    assert not agent.workflow_state.is_satisfied("g")
    assert agent.environment_state.retry_count == rmax


def test_fatal_verdict_escalates_at_once_with_all_rejections():
    agent, generator, _, dag = agent_of(failed("first"), GuardResult(passed=False, feedback="os.system", fatal=True))
    with pytest.raises(EscalationRequired, match=r"os\.system") as caught:
        agent.execute("Write")
    assert caught.value.artifact.content == "text 2"
    assert caught.value.feedback == "os.system"
    assert [said for _, said in caught.value.provenance] == ["first", "os.system"]
    assert len(generator.prompts) == 2
    assert [each.outcome for each in dag.attempts()] == ["failed", "fatal"]


def test_precondition_is_checked_on_the_workflow_state_before_generation():
    generator = Writes()
    pair = ActionPair(lambda state: state.is_satisfied("g_test"), generator, Says())
    agent = DualStateAgent(pair, InMemoryArtifactDAG())
    with pytest.raises(PreconditionNotMet) as caught:
        agent.execute("Write")
    assert (str(caught.value), caught.value.__notes__) == (
        "Precondition not satisfied for action pair",
        ["satisfied: none"],
    )
    assert generator.prompts == []
    assert agent.execute("Write", workflow_state=WorkflowState({"g_test": True})).content == "text 1"


def test_earlier_artifacts_reach_guard_prompt_and_provenance():
    agent, generator, guard, dag = agent_of()
    artifact = agent.execute("Implement", {"test": Artifact("assert add")})
    assert guard.given == [("text 1", {"test": "assert add"})]
    assert "test:\nassert add" in generator.prompts[0]
    assert [each.content for each in dag.get_provenance(artifact.artifact_id)] == ["assert add", "text 1"]


def test_generator_gets_the_template_of_its_pair():
    generator = Writes()
    template = PromptTemplate("You write.", "Be brief.", "Write about {specification}.")
    DualStateAgent(
        ActionPair(always, generator, Says(), template), InMemoryArtifactDAG(), constraints="No lies."
    ).execute("bees")
    assert generator.prompts == [
        "# ROLE\nYou write.\n\n# CONSTRAINTS\nBe brief.\n\n# CONTEXT\nNo lies.\n\n# TASK\nWrite about bees."
    ]


class Raises(GeneratorInterface):
    def generate(self, context, template=None):
        raise ConnectionError("no network")


def test_error_in_the_generator_interrupts_without_a_verdict():
    with pytest.raises(Interrupted, match="no network") as caught:
        DualStateAgent(ActionPair(always, Raises(), Says()), InMemoryArtifactDAG()).execute("Write")
    assert caught.value.failure.what == "query_llm"
    assert caught.value.failure.code == "ConnectionError"


class Breaks(GuardInterface):
    def validate(self, artifact, **dependencies):
        raise ZeroDivisionError("oh")


def test_artifact_is_stored_when_the_guard_raises():
    dag = InMemoryArtifactDAG()
    with pytest.raises(Interrupted, match="oh"):
        DualStateAgent(ActionPair(always, Writes(), Breaks()), dag).execute("Write")
    assert [each.outcome for each in dag.attempts()] == [None]


def test_agent_can_be_awaited_and_says_so_inside_an_event_loop():
    async def inside():
        agent, _, _, _ = agent_of(failed())
        with pytest.raises(RuntimeError, match="execute_async"):
            agent.execute("Write")
        return await agent.execute_async("Write")

    assert asyncio.run(inside()).content == "text 2"


def test_two_agents_can_run_at_once_on_one_dag():
    async def both():
        dag = InMemoryArtifactDAG()
        one, two = agent_of(failed(), dag=dag)[0], agent_of(failed(), failed(), dag=dag)[0]
        return await asyncio.gather(one.execute_async("a"), two.execute_async("b"))

    assert [each.content for each in asyncio.run(both())] == ["text 2", "text 3"]


def test_action_pair_alone_generates_and_judges_once():
    generator, guard = Writes(), Says(failed("no"))
    pair = ActionPair(lambda state: state.is_satisfied("a"), generator, guard)
    context = Context(AmbientEnvironment(), "Write")
    with pytest.raises(PreconditionNotMet):
        pair.execute(WorkflowState(), context)
    artifact, result = pair.execute(WorkflowState({"a": True}), context, {"test": Artifact("t")})
    assert (artifact.content, result) == ("text 1", failed("no"))
    assert guard.given == [("text 1", {"test": "t"})]


def test_git_dag_can_be_read_by_the_next_process(tmp_path):
    agent, _, _, _ = agent_of(failed("no"), dag=GitArtifactDAG(tmp_path / "r.git"))
    artifact = agent.execute("Write")
    again = GitArtifactDAG(tmp_path / "r.git")
    assert again.get_artifact(artifact.artifact_id) == artifact
    assert [each.outcome for each in again.attempts()] == ["failed", "passed"]


class OwnDAG(ArtifactDAGInterface):
    """A custom DAG with the three methods of the seed, and verdicts."""

    def __init__(self):
        self.kept, self.said = {}, []

    def store(self, artifact, metadata=""):
        self.kept[artifact.artifact_id] = artifact
        return artifact.artifact_id

    def get_artifact(self, artifact_id):
        return self.kept[artifact_id]

    def get_provenance(self, artifact_id):
        artifact = self.kept[artifact_id]
        return [*(self.get_provenance(artifact.parent_id) if artifact.parent_id else []), artifact]

    def record_verdict(self, artifact_id, result):
        self.said.append((self.kept[artifact_id].content, result.passed))


def test_custom_dag_receives_every_version_and_verdict():
    dag = OwnDAG()
    agent, _, _, _ = agent_of(failed("no"), dag=dag)
    artifact = agent.execute("Write")
    assert [each.content for each in dag.get_provenance(artifact.artifact_id)] == ["text 1", "text 2"]
    assert dag.said == [("text 1", False), ("text 2", True)]


def test_dependency_from_a_custom_dag_keeps_its_id():
    dag = OwnDAG()
    first = agent_of(dag=dag)[0].execute("Write tests")
    second = agent_of(failed(), dag=dag)[0].execute("Write code", {"test": first})
    assert second.dependency_ids == (first.artifact_id,)


class Silent(GuardInterface):
    def validate(self, artifact, **dependencies):
        return GuardResult(passed=True)


@pytest.mark.parametrize(
    ("generator", "guard", "said"),
    [
        (
            ScriptedGenerator,
            Silent(),
            r"the class ScriptedGenerator: use an instance, ScriptedGenerator\(\)",
        ),
        (
            lambda _context: "x",
            Silent(),
            r"the generator is function, which has no generate\(\.\.\): wrap .*FunctionGenerator",
        ),
        (ScriptedGenerator(["x"]), Silent, r"the guard is the class Silent:"),
        (ScriptedGenerator(["x"]), None, r"the guard is NoneType, which has no validate\(\.\.\)"),
    ],
)
def test_invalid_part_of_a_pair_is_refused_before_a_model_is_asked(generator, guard, said):
    with pytest.raises(TypeError, match=said):
        ActionPair(always, generator, guard)


def test_error_of_a_guard_has_no_context_or_cause():
    class Raising(GuardInterface):
        def validate(self, artifact, **dependencies):
            raise KeyError("title")

    with pytest.raises(Interrupted, match=r"KeyError: 'title' \(at test_agent\.py:\d+\)") as raised:
        DualStateAgent(ActionPair(always, ScriptedGenerator(["x"]), Raising()), InMemoryArtifactDAG()).execute("x")
    assert (raised.value.__context__, raised.value.__cause__) == (None, None)


def test_unknown_placeholder_fails_before_anything_is_asked_or_recorded():
    class Watched(InMemoryArtifactDAG):
        def store(self, *given, **more):
            raise AssertionError("something was recorded")

    generator, guard = Writes(), Says()
    pair = ActionPair(always, generator, guard, PromptTemplate(task="Pass {test}"))
    agent = DualStateAgent(pair, Watched())
    with pytest.raises(ValueError, match=r"nothing fills in the placeholder \{test\} of task; did you mean 'tests'"):
        agent.execute("adder", {"tests": Artifact("T")})
    assert (generator.contexts, guard.given, agent.run) == ([], [], None)
    assert DualStateAgent(pair, InMemoryArtifactDAG()).execute("adder", {"test": Artifact("T")}).content == "text 1"
    assert "# TASK\nPass T" in generator.prompts[0]
