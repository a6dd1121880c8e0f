"""Executions that share one DAG: each has separate ids, verdicts, versions and parents."""

import asyncio

import pytest

from dsa.edge.binding import Bindings
from dsa.edge.document_files import load
from dsa.edge.driver import Driver
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.ledger import ArtifactEntry, VerdictEntry
from dsa.runtime.run import begin, replay
from dsa.runtime.status import unfinished_work
from dsa.semantics import Occurrence
from machines import (
    ActionPair,
    Artifact,
    ArtifactDAGInterface,
    DualStateAgent,
    GeneratorInterface,
    GitArtifactDAG,
    GuardInterface,
    GuardResult,
    InMemoryArtifactDAG,
    RmaxExhausted,
    Workflow,
    WorkflowStatus,
    WorkflowStep,
    always,
)
from machines.dual_state.bindings import effects

FAILED = GuardResult(passed=False, feedback="no")


class Repeats(GeneratorInterface):
    """Returns the same artifact forever, and records the feedback on earlier ones."""

    def __init__(self, artifact=Artifact("same")):  # noqa: B008  (it is frozen)
        self.artifact, self.histories = artifact, []

    def generate(self, context, template=None):
        self.histories.append(list(context.feedback_history))
        return self.artifact


class Says(GuardInterface):
    def __init__(self, *results):
        self.results = list(results)

    def validate(self, artifact, **dependencies):
        return self.results.pop(0) if self.results else GuardResult(passed=True)


class OwnDAG(ArtifactDAGInterface):
    """A custom DAG: artifacts by id, and their verdicts."""

    def __init__(self):
        self.kept, self.said = {}, {}

    def store(self, artifact, metadata=""):
        assert self.kept.setdefault(artifact.artifact_id, artifact) == artifact
        return artifact.artifact_id

    def get_artifact(self, artifact_id):
        return self.kept[artifact_id]

    def get_provenance(self, artifact_id):
        artifact = self.kept[artifact_id]
        above = [each for parent in artifact.parents for each in self.get_provenance(parent)]
        return [*above, artifact]

    def record_verdict(self, artifact_id, result):
        self.said.setdefault(artifact_id, []).append("passed" if result.passed else "failed")


@pytest.fixture(params=["memory", "git", "own"])
def dag(request, tmp_path):
    if request.param == "git":
        return GitArtifactDAG(tmp_path / "r.git")
    return OwnDAG() if request.param == "own" else InMemoryArtifactDAG()


def verdicts_in(dag):
    """Return the verdicts on each artifact, by its id."""
    if isinstance(dag, OwnDAG):
        return dag.said
    return {each.artifact_id: [verdict.outcome for verdict in each.verdicts] for each in dag.attempts()}


def agent(dag, *results, rmax=3, generator=None):
    return DualStateAgent(ActionPair(always, generator or Repeats(), Says(*results)), dag, rmax)


def test_equal_artifacts_of_two_agents_have_separate_verdicts(dag):
    passing, failing = agent(dag), agent(dag, FAILED, rmax=0)
    passed = passing.execute("x")
    with pytest.raises(RmaxExhausted) as caught:
        failing.execute("x")
    [(rejected, _)] = caught.value.provenance
    assert passed.content == rejected.content
    assert verdicts_in(dag) == {passed.artifact_id: ["passed"], rejected.artifact_id: ["failed"]}
    assert passed.artifact_id.startswith(f"{passing.run.run_id}/")
    assert rejected.artifact_id.startswith(f"{failing.run.run_id}/")


def test_two_executions_of_one_agent_have_separate_histories(dag):
    generator = Repeats()
    one = agent(dag, FAILED, FAILED, GuardResult(passed=True), FAILED, generator=generator)
    first, second = one.execute("x"), one.execute("x")
    lineages = [dag.get_provenance(each.artifact_id) for each in (first, second)]
    assert [[each.version for each in lineage] for lineage in lineages] == [[1, 2, 3], [1, 2]]
    assert len({each.artifact_id for lineage in lineages for each in lineage}) == 5
    assert all(each.parent_id in {None, *(e.artifact_id for e in lineage)} for lineage in lineages for each in lineage)
    assert [len(history) for history in generator.histories] == [0, 1, 2, 0, 1]
    assert list(verdicts_in(dag).values()) == [["failed"], ["failed"], ["passed"], ["failed"], ["passed"]]


def test_concurrent_executions_do_not_mix(dag):
    async def together():
        agents = [agent(dag, *[FAILED] * number) for number in range(3)]
        return await asyncio.gather(*(each.execute_async("x") for each in agents))

    made = asyncio.run(together())
    assert [each.version for each in made] == [1, 2, 3]
    assert [len(dag.get_provenance(each.artifact_id)) for each in made] == [1, 2, 3]
    assert sorted(verdicts_in(dag).values()) == [["failed"]] * 3 + [["passed"]] * 3


def test_agent_and_workflow_can_share_a_dag(dag):
    steps = [WorkflowStep("g", ActionPair(always, Repeats(), Says(FAILED)), "g")]
    alone = agent(dag).execute("x")
    result = Workflow(steps, dag).execute("x")
    assert result.status is WorkflowStatus.SUCCESS
    assert result.artifacts["g"].version == 2
    assert verdicts_in(dag)[alone.artifact_id] == ["passed"]
    assert [each.version for each in dag.get_provenance(result.artifacts["g"].artifact_id)] == [1, 2]


# -- ids that stay ------------------------------------------------------------------------------------------------------


def test_dependency_from_another_execution_keeps_its_id_and_is_found(dag):
    test = agent(dag, FAILED, FAILED, generator=Repeats(Artifact("test"))).execute("x")
    code = agent(dag, FAILED).execute("x", {"test": test})
    assert code.dependency_ids == (test.artifact_id,)
    assert dag.get_artifact(test.artifact_id) == test
    contents = [each.content for each in dag.get_provenance(code.artifact_id)]
    assert contents.count("same") == 2
    assert "test" in contents
    assert verdicts_in(dag)[test.artifact_id] == ["passed"]


def test_dependency_from_another_dag_keeps_its_id(dag):
    test = agent(InMemoryArtifactDAG(), FAILED, generator=Repeats(Artifact("test"))).execute("x")
    for _ in range(2):
        code = agent(dag).execute("x", {"test": test})
        assert code.dependency_ids == (test.artifact_id,)
        assert dag.get_artifact(test.artifact_id).content == "test"


def test_dependency_with_a_taken_id_and_another_text_gets_a_new_id(dag):
    test = agent(dag, generator=Repeats(Artifact("test"))).execute("x")
    code = agent(dag).execute("x", {"test": Artifact("another", artifact_id=test.artifact_id)})
    [used] = code.dependency_ids
    assert (dag.get_artifact(used).content, dag.get_artifact(test.artifact_id).content) == ("another", "test")


def test_id_from_a_generator_is_used(dag):
    made = agent(dag, generator=Repeats(Artifact("x", artifact_id="mine"))).execute("x")
    assert made.artifact_id == "mine"
    assert dag.get_artifact("mine") == made
    assert verdicts_in(dag) == {"mine": ["passed"]}


def test_repeated_id_from_a_generator_is_used_once(dag):
    generator = Repeats(Artifact("x", artifact_id="mine"))
    one, two = agent(dag, FAILED, generator=generator), agent(dag, generator=generator)
    second, third = one.execute("x"), two.execute("x")
    assert second.parent_id == "mine"
    assert second.artifact_id.startswith(f"{one.run.run_id}/")
    assert third.artifact_id.startswith(f"{two.run.run_id}/")
    assert list(verdicts_in(dag).values()) == [["failed"], ["passed"], ["passed"]]


@pytest.mark.parametrize("odd", [7, "", "two\nlines", "\x1b[2J", "x" * 2000, None], ids=range(6))
def test_invalid_id_is_ignored(odd):
    one = agent(InMemoryArtifactDAG(), generator=Repeats(Artifact("x", artifact_id=odd)))
    assert one.execute("x").artifact_id.startswith(f"{one.run.run_id}/")


# -- one run ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["", "mine"])
def test_repeated_effect_after_a_crash_gives_its_artifact_the_same_id(given):
    """The crash comes between storing the artifact and recording it."""
    artifacts, machine = MemoryArtifacts(), load("dual_state").at({"rmax": 0})
    binding = Bindings(effects, {"g": Says()}, {"llm": Repeats(Artifact("same", artifact_id=given))})
    run, commands = begin(machine, "r1")
    first = Driver(run, binding, artifacts, commands=commands)
    whole = asyncio.run(first.drive(Occurrence("specification", data="x"))).run
    [stored] = artifacts.attempts()
    entries = list(whole.ledger)
    cut_off = replay(machine, entries[: next(n for n, e in enumerate(entries) if isinstance(e, ArtifactEntry))])
    rest = asyncio.run(Driver(cut_off, binding, artifacts, left=unfinished_work(cut_off)).drive())
    assert rest.run.outcome == "succeeded"
    assert [each.artifact_id for each in artifacts.attempts()] == [stored.artifact_id]
    assert [entry.artifact_id for entry in rest.run.ledger if isinstance(entry, VerdictEntry)] == [stored.artifact_id]
