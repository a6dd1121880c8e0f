"""The percept tables of dual_state, run with the real guard; only the model follows a list of texts."""

import ast

import attrs
from machine_transcripts import drive, story

from dsa.edge.document_files import load, locate
from dsa.runs.bindings import bind
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.ledger import (
    ArtifactEntry,
    VerdictEntry,
    dump_line,
    load_lines,
)
from dsa.runtime.run import replay
from dsa.testing.doubles import Texts

GOOD, BAD, AWFUL = "def add(a, b):\n    return a + b\n", "def add(a, b):\n    return a - b\n", "import os\n"


class NoSystem(GuardInterface):
    """A guard that is fatal for code that imports os, and otherwise gives the verdict of the other guard (table 3.5)."""

    def __init__(self, guard):
        self.guard = guard

    def validate(self, artifact, **dependencies):
        imported = [a.name for n in ast.walk(ast.parse(artifact.content)) if isinstance(n, ast.Import) for a in n.names]
        if "os" in imported:
            return GuardResult(passed=False, feedback="Security: os.system forbidden", fatal=True)
        return self.guard.validate(artifact, **dependencies)


def dual_state(texts, rmax=3):
    machine = load("dual_state").at(rmax=rmax)
    bound = bind(machine, path=locate("dual_state"), model="local")
    guards = {"g": NoSystem(bound.guards["g"])}
    generator = Texts(texts)
    rest, artifacts = drive(machine, attrs.evolve(bound, guards=guards, generators={"llm": generator}), "Write add")
    assert replay(machine, load_lines("\n".join(map(dump_line, rest.run.ledger)))) == rest.run
    return rest, artifacts, generator


def test_table_1_happy_path():
    rest, artifacts, generator = dual_state([GOOD])
    assert story(rest) == (
        "specification: query_llm -> generating\n"
        "artifact: execute_guard -> validating\n"
        "verdict g.passed: advance_state reply_to_user -> succeeded, satisfied = true\n"
        "finished"
    )
    assert artifacts.get_artifact(rest.run.step("g").accepted).content == GOOD
    context, _ = generator.calls[0]
    assert (context.specification, context.feedback_history, context.step) == ("Write add", (), "g")


def test_table_2_refinement_loop():
    rest, artifacts, generator = dual_state([BAD, GOOD])
    assert story(rest) == (
        "specification: query_llm -> generating\n"
        "artifact: execute_guard -> validating\n"
        "verdict g.failed: refine_context query_llm -> generating, retries = 1\n"
        "artifact: execute_guard -> validating\n"
        "verdict g.passed: advance_state reply_to_user -> succeeded, satisfied = true, retries = 0\n"
        "finished"
    )
    context, _ = generator.calls[1]
    assert context.current_artifact == BAD
    ((text, feedback),) = context.feedback_history
    assert text == BAD
    assert "add(2, 3) gave -1" in feedback
    accepted = rest.run.step("g").accepted
    assert [a.content for a in artifacts.get_provenance(accepted)] == [BAD, GOOD]
    assert [a.version for a in artifacts.get_provenance(accepted)] == [1, 2]


def test_table_3_exhaustion_read_with_rmax_2():
    rest, artifacts, generator = dual_state([BAD, BAD, BAD, GOOD], rmax=2)
    assert story(rest) == (
        "specification: query_llm -> generating\n"
        "artifact: execute_guard -> validating\n"
        "verdict g.failed: refine_context query_llm -> generating, retries = 1\n"
        "artifact: execute_guard -> validating\n"
        "verdict g.failed: refine_context query_llm -> generating, retries = 2\n"
        "artifact: execute_guard -> validating\n"
        "verdict g.failed: refine_context reply_failure -> failed\n"
        "finished"
    )
    view = rest.run.step("g")
    assert (view.attempts, len(view.history), view.accepted) == (3, 3, None)
    assert len({entry.artifact_id for entry in view.history}) == 3, "the same text three times is three attempts"
    assert len(artifacts.get_provenance(view.latest)) == 3
    assert [len(context.feedback_history) for context, _ in generator.calls] == [0, 1, 2]


def test_table_3_5_fatal_escalation():
    rest, artifacts, _ = dual_state([BAD, AWFUL, GOOD])
    assert story(rest).splitlines()[-2:] == ["verdict g.fatal: escalate_to_user -> escalated", "finished"]
    view = rest.run.step("g")
    assert [(e.outcome, artifacts.get_artifact(e.artifact_id).content) for e in view.history] == [
        ("failed", BAD),
        ("fatal", AWFUL),
    ]
    assert view.history[-1].feedback == "Security: os.system forbidden"
    assert rest.run.sigma == {"satisfied": False}


def test_run_without_retries_fails_after_one_attempt():
    rest, _, _ = dual_state([BAD, GOOD], rmax=0)
    assert (rest.run.outcome, rest.run.step("g").attempts) == ("failed", 1)


def test_guard_that_raises_on_unreadable_code_stops_the_run():
    rest, _, _ = dual_state(["def add(a, b: return", GOOD])
    assert rest.kind == "stopped", "the guard of this test raises on it"
    assert rest.failure.what == "execute_guard"
    assert [type(e) for e in rest.run.ledger if isinstance(e, ArtifactEntry | VerdictEntry)] == [ArtifactEntry]
