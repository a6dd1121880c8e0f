"""The shipped dual-state agent and workflow as they really run: real driver, policies, guards, stores; the model alone is drawn.

What a run must do is said here once more, from the paper, without a look at the tables: `Paper` is the agent function as a loop. Then
faults are planted in the functions that run, and each must be found.
"""

import ast
import asyncio
import traceback
from functools import cache

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from steps_taken import require_definition_4

import dsa
from dsa.compiled_step import CompiledStep, compiled_step
from dsa.edge.binding import Bindings
from dsa.edge.document_files import load
from dsa.guards.code import SyntaxGuard
from dsa.guards.guard_kinds import AllOf
from dsa.runs.setup import RunSetup
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.ledger import ArtifactEntry, EffectEntry, EventEntry, VerdictEntry
from dsa.runtime.run import replay
from dsa.semantics import Occurrence, Refusal
from dsa.testing.doubles import StillClock, Texts
from machines.dual_state import bindings

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


class NoSystem(GuardInterface):
    """Fatal for code that imports os."""

    def validate(self, artifact, **dependencies):
        imported = [n for n in ast.walk(ast.parse(artifact.content)) if isinstance(n, ast.Import)]
        return GuardResult(not imported, "os is forbidden" if imported else "", fatal=bool(imported))


# -- what the paper says ----------------------------------------------------------------------------------------------

GOOD, BAD, AWFUL = "good", "bad", "awful"
TEXT = {GOOD: "x = {n}\n", BAD: "x = = {n}\n", AWFUL: "import os  # {n}\n"}
PERSON = ("approved", "rejected", "granted", "aborted")


@attrs.define
class Paper:
    """The agent function as a loop over what the model writes and what a person says.

    `calls` are the model calls: the step, and the rejected texts that its prompt must contain; `left` is what was never asked for.
    """

    steps: tuple[str, ...]
    rmax: int
    people: list[str] | None
    kinds: list[str]
    grants: int = 1
    calls: list[tuple[str, tuple[str, ...]]] = attrs.field(factory=list)
    passed: list[str] = attrs.field(factory=list)
    outcome: str = "waiting"

    @property
    def texts(self):
        """Return the texts of the model: each is different, so that none can be taken for another."""
        return [TEXT[kind].format(n=n) for n, kind in enumerate(self.kinds)]

    def play(self):
        for name in self.steps:
            if not self.execute(name):
                return self
            self.passed.append(name)
        self.outcome = "succeeded"
        return self

    def execute(self, name):
        """One step: at most rmax retries, counted anew when granted; fatal goes to a person."""
        retries, history = 0, []
        while True:
            written = len(self.calls)
            self.calls.append((name, tuple(history)))
            kind = self.kinds[written]
            if kind == GOOD:
                return True
            history.append(self.texts[written])
            said = "failed"
            if kind == AWFUL:
                said = self.ask()
                if said == "rejected":
                    history.append(self.texts[written])
            if said == "approved":
                return True
            if said == "granted":
                retries = 0
            elif said in {"failed", "rejected"} and retries < self.rmax:
                retries += 1
            else:
                self.outcome = "failed" if said in {"failed", "rejected", "aborted"} else "escalated"
                return False

    def ask(self):
        """Return what the person says; without one the run ends, or waits, escalated."""
        while self.people:
            said = self.people.pop(0)
            if said != "granted":
                return said
            if self.grants:
                self.grants -= 1
                return said
        return "nothing"


# -- the run ----------------------------------------------------------------------------------------------------------


@cache
def shipped(name, rmax):
    return load(name).at(rmax=rmax)


def perform(name, rmax, texts, people):
    machine = shipped(name, rmax)
    guard = AllOf({"syntax": SyntaxGuard(), "safe": NoSystem()})
    generator = Texts(texts)
    binding = Bindings(bindings.effects, {g.name: guard for g in machine.guards}, {"llm": generator})

    async def play():
        async with dsa.open_runs("memory:", clock=StillClock()) as runs:
            handle = runs.begin(RunSetup(machine, binding), run_id="r")
            rest = await handle.drive(Occurrence("specification", data="Psi"))
            for said in people:
                if rest.kind != "waiting":
                    break
                rest = await handle.drive(Occurrence(said, data="not like this" if said == "rejected" else None))
            return rest, handle.artifacts, generator

    return asyncio.run(asyncio.wait_for(play(), 60))


def require_escalation(run):
    """After a fatal verdict, nothing is asked of the model until a person has spoken."""
    waiting = False
    for entry in run.ledger:
        if isinstance(entry, VerdictEntry) and entry.outcome == "fatal":
            waiting = True
        elif isinstance(entry, EventEntry) and entry.event in PERSON:
            waiting = False
        elif isinstance(entry, EffectEntry):
            assert not (waiting and entry.effect == "query_llm"), "a fatal artifact was refined"


def require_stored(run, artifacts, texts):
    """Every text that the model wrote can be got, in order, each attempt with those it came from, before its verdict."""
    stored = [entry for entry in run.ledger if isinstance(entry, ArtifactEntry)]
    assert [artifacts.get_artifact(entry.artifact_id).content for entry in stored] == texts
    for entry in stored:
        provenance = [artifact.content for artifact in artifacts.get_provenance(entry.artifact_id)]
        mine = [other for other in stored if other.step == entry.step and other.attempt <= entry.attempt]
        assert provenance[-len(mine) :] == [artifacts.get_artifact(other.artifact_id).content for other in mine]
    judged = [entry.artifact_id for entry in run.ledger if isinstance(entry, VerdictEntry)]
    ids = [entry.artifact_id for entry in stored]
    assert list(dict.fromkeys(judged)) == ids


def paper_of(name, rmax, kinds, people):
    """Return the steps of a shipped machine, and what the loop comes to."""
    steps = ("g",) if name == "dual_state" else ("g_test", "g_impl")
    asked = list(people) if name == "workflow" and people else None
    return steps, Paper(steps, rmax, asked, kinds).play()


def require_the_paper(name, rmax, kinds, people):
    """Run the real agent and compare with the loop."""
    steps, paper = paper_of(name, rmax, kinds, people)
    rest, artifacts, generator = perform(name, rmax, paper.texts, people if name == "workflow" else ())
    assert rest.failure is None, rest.failure
    require_what_was_asked(generator, paper)
    require_agreement(rest.run, artifacts, paper, steps, rmax)


def require_what_was_asked(generator, paper):
    """The model was asked as often as the paper says, each time with all texts that were rejected."""
    calls = [(c.step, tuple(text for text, _ in c.feedback_history)) for c, _ in generator.calls]
    assert calls == paper.calls


def require_retries(run, paper, rmax):
    """No step is tried again more often than Rmax, and what passed starts anew at 0."""
    for variable, value in run.values.items():
        if variable.startswith("retries"):
            assert 0 <= value <= rmax
            passed = variable.rpartition(".")[2] in paper.passed or run.outcome == "succeeded"
            assert value == 0 or not passed, f"{variable} = {value} is left over"


def require_agreement(run, artifacts, paper, steps, rmax):
    """Compare a run that has come to its end with the loop."""
    require_definition_4(run, by_person=("approved",))
    assert run.outcome == paper.outcome or (run.outcome in steps and paper.outcome == "escalated")
    assert list(run.sigma.values()) == [step in paper.passed for step in steps]
    require_escalation(run)
    require_stored(run, artifacts, paper.texts[: len(paper.calls)])
    require_retries(run, paper, rmax)
    assert replay(run.machine, run.ledger) == run


#: Enough for the longest run: two steps, a grant, at most three retries each time.
WORLDS = {
    "name": st.sampled_from(("dual_state", "workflow")),
    "rmax": st.integers(0, 3),
    "kinds": st.lists(st.sampled_from((GOOD, BAD, BAD, AWFUL)), min_size=24, max_size=24),
    "people": st.lists(st.sampled_from(PERSON), max_size=4),
}


def explore(count, **more):
    @settings(max_examples=count, deadline=None, suppress_health_check=SLOW, report_multiple_bugs=False, **more)
    @given(**WORLDS)
    def search(name, rmax, kinds, people):
        require_the_paper(name, rmax, kinds, people)

    search()


COUNTS = [200, pytest.param(2_000, marks=pytest.mark.full)]


@pytest.mark.parametrize("count", COUNTS)
def test_agent_does_what_the_paper_says(count):
    explore(count)


# -- planted faults ---------------------------------------------------------------------------------------------------


def with_values(taken, machine, change):
    """Return the move that was made with other values."""
    move, values = taken
    return move, tuple(change(variable, value) for variable, value in zip(machine.variables, values, strict=True))


def sigma_set_on_failure(patch):
    def faulty(compiled, here, occurrence):
        taken = chosen(compiled, here, occurrence)
        if not isinstance(taken, Refusal) and "failed" in dict(occurrence.verdicts).values():
            return with_values(taken, compiled.machine, lambda v, value: value or v.scope == "workflow")
        return taken

    chosen = CompiledStep.move
    patch.setattr(CompiledStep, "move", faulty)


def one_retry_too_many(patch):
    one_more = {}  # kept, as a machine keeps its rows

    def faulty(compiled, here, occurrence):
        machine = compiled.machine
        name = "rmax" if machine.name == "dual_state" else "rmax.g_impl"
        patient = one_more.setdefault(machine.name, machine.at({name: machine.constants[name] + 1}))
        return chosen(compiled_step(patient), here, occurrence)

    chosen = CompiledStep.move
    patch.setattr(CompiledStep, "move", faulty)


def fatal_retried(patch):
    real = bindings.judge

    async def faulty(*arguments):
        said = await real(*arguments)
        return attrs.evolve(said, outcome="failed") if said.outcome == "fatal" else said

    patch.setattr(bindings, "judge", faulty)


def history_dropped(patch):
    real = bindings.FeedbackHistory
    patch.setattr(bindings, "FeedbackHistory", lambda rejections, artifacts: real(rejections[-1:], artifacts))


def artifact_not_stored(patch):
    real = MemoryArtifacts.store

    def faulty(self, artifact, *about):
        for parent in artifact.parents:  # forgotten once it is refined
            self._artifacts[parent] = attrs.evolve(self._artifacts[parent], content="")
        return real(self, artifact, *about)

    patch.setattr(MemoryArtifacts, "store", faulty)


def stale_retries(patch):
    def faulty(compiled, here, occurrence):
        machine, taken = compiled.machine, chosen(compiled, here, occurrence)
        if not isinstance(taken, Refusal) and (
            occurrence.event == "granted" or "passed" in dict(occurrence.verdicts).values()
        ):
            before = dict(zip((v.name for v in machine.variables), here.values, strict=True))
            keep = lambda v, value: before[v.name] if v.name.startswith("retries") else value  # noqa: E731
            return with_values(taken, machine, keep)
        return taken

    chosen = CompiledStep.move
    patch.setattr(CompiledStep, "move", faulty)


FAULTS = {
    sigma_set_on_failure: "require_definition_4",
    one_retry_too_many: "require_what_was_asked",
    fatal_retried: "require_what_was_asked",
    history_dropped: "require_what_was_asked",
    artifact_not_stored: "require_stored",
    stale_retries: "require_retries",
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_fault_planted_in_the_agent_is_found_by_its_check(plant, count, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError) as found:
        explore(count, phases=[Phase.generate], derandomize=True, database=None)
    checks = [frame.name for frame in traceback.extract_tb(found.tb) if frame.name.startswith("require_")]
    assert checks[-1] == FAULTS[plant], found.value
