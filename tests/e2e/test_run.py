"""The shipped machines, run for real: driver, policies, table; the model alone follows a list of texts.

What a run does is compared as text, one line an event: the event with its verdicts, the effects it led to, the state
reached. The expected texts stand here, so a row of a shipped table that is changed or lost is noticed.
"""

import ast
import asyncio
from functools import cache

import attrs
import pytest

from dsa.edge.binding import Binding, bind
from dsa.edge.driver import Driver
from dsa.edge.files import load, locate
from dsa.expr import show_value
from dsa.lang import loads
from dsa.meaning import Occurrence, Taken, start, step
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.ledger import (
    ArtifactEntry,
    EventEntry,
    IntentEntry,
    RefusalEntry,
    StepEntry,
    VerdictEntry,
    dump_line,
    load_lines,
)
from dsa.runtime.run import begin, replay
from dsa.testing.doubles import StillClock, Texts
from machines.dual_state.bindings import effects

GOOD, BAD, AWFUL = "def add(a, b):\n    return a + b\n", "def add(a, b):\n    return a - b\n", "import os\n"


class ReadsTheText(GuardInterface):
    """Says of a text what the text says of itself."""

    def validate(self, artifact, **dependencies):
        if artifact.content == "bad":
            return GuardResult(passed=False, feedback="it is bad")
        return GuardResult(passed=artifact.content != "awful", feedback="", fatal=artifact.content == "awful")


def drive(machine, binding, specification, *sent):
    """Run a machine; what is sent is sent one by one, whenever it waits."""
    run, commands = begin(machine, "r")
    artifacts = MemoryArtifacts()
    driver = Driver(run, binding, artifacts, commands=commands, clock=StillClock())

    async def play():
        rest = await driver.drive(Occurrence("specification", data=specification))
        for event, data in sent:
            if rest.kind == "waiting":
                rest = await driver.drive(Occurrence(event, data=data))
        return rest

    return asyncio.run(play()), artifacts


def story(rest):
    """Tell a run: one line for each event."""
    lines = []
    for entry in rest.run.ledger:
        match entry:
            case EventEntry(event=event, verdicts=verdicts):
                said = " ".join(f"{guard}.{outcome}" for guard, outcome in verdicts)
                lines.append(" ".join(filter(None, (event, said))) + ":")
            case RefusalEntry(reason=reason):
                lines[-1] += f" refused {reason}"
            case StepEntry(target=target, changed=changed):
                shown = "".join(f", {name} = {show_value(value)}" for name, value in changed)
                lines[-1] += f" -> {target}{shown}"
            case IntentEntry(effect=effect):
                head, arrow, tail = lines[-1].partition(" -> ")
                lines[-1] = f"{head} {effect}{arrow}{tail}"
    return "\n".join([*lines, rest.kind if rest.failure is None else str(rest.failure)])


# -- percept tables 1, 2, 3 and 3.5, with the real guard ------------------------------------------------------------


class NoSystem(GuardInterface):
    """Fatal for code that imports os; else what the other guard says (table 3.5)."""

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
    context, _ = generator.asked[0]
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
    context, _ = generator.asked[1]
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
    assert [len(context.feedback_history) for context, _ in generator.asked] == [0, 1, 2]


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


def test_no_retry_at_all():
    rest, _, _ = dual_state([BAD, GOOD], rmax=0)
    assert (rest.run.outcome, rest.run.step("g").attempts) == ("failed", 1)


def test_code_that_no_guard_can_read_is_rejected_not_a_crash():
    rest, _, _ = dual_state(["def add(a, b: return", GOOD])
    assert rest.kind == "stopped", "the guard of this test raises on it"
    assert rest.failure.what == "execute_guard"
    assert [type(e) for e in rest.run.ledger if isinstance(e, ArtifactEntry | VerdictEntry)] == [ArtifactEntry]


# -- the workflow, with its own guards --------------------------------------------------------------------------------

TEST_ADD = "def test_add():\n    assert add(1, 2) == 3, 'one and two'\n"


def test_the_workflow_hands_the_test_on_and_keeps_all_attempts():
    machine = load("workflow")
    texts = Texts(["def test_add(:", TEST_ADD, BAD, GOOD])
    bound = bind(machine, path=locate("workflow"), model="local")
    rest, artifacts = drive(machine, attrs.evolve(bound, generators={"llm": texts}), "add")
    assert (rest.kind, rest.run.outcome) == ("finished", "succeeded")
    assert rest.run.sigma == {"sigma.g_test": True, "sigma.g_impl": True}
    context, template = texts.asked[3]
    assert template.task == "Implement {specification} to pass {test}"
    assert context.dependencies["test"].content == TEST_ADD
    assert context.feedback_history[0][0] == BAD
    assert "one and two" in context.feedback_history[0][1]
    assert [len(asked.feedback_history) for asked, _ in texts.asked] == [0, 1, 0, 1]
    contents = [a.content for a in artifacts.get_provenance(rest.run.step("g_impl").accepted)]
    assert contents == ["def test_add(:", TEST_ADD, BAD, GOOD]


def escalated_workflow(*sent, texts):
    machine, generator = load("workflow"), Texts(texts)
    guards = {guard.name: ReadsTheText() for guard in machine.guards}
    rest, artifacts = drive(machine, Binding(effects, guards, {"llm": generator}), "Psi", *sent)
    return rest, artifacts, generator


def test_what_a_person_rejects_is_in_the_history_with_their_words():
    rest, _, generator = escalated_workflow(("rejected", "not like this"), texts=["awful", "good", "good"])
    assert rest.run.outcome == "succeeded"
    context, _ = generator.asked[1]
    assert context.feedback_history == (("awful", ""), ("awful", "not like this"))


def test_what_a_person_amends_is_stored_judged_and_used():
    rest, artifacts, generator = escalated_workflow(("amended", {"content": "mine"}), texts=["awful", "good"])
    accepted = artifacts.get_artifact(rest.run.step("g_test").accepted)
    assert (accepted.content, accepted.version) == ("mine", 2)
    assert [a.content for a in artifacts.get_provenance(accepted.artifact_id)] == ["awful", "mine"]
    assert [e.author for e in rest.run.ledger if isinstance(e, ArtifactEntry)] == ["llm", "person", "llm"]
    context, _ = generator.asked[1]
    assert context.dependencies["test"] == accepted


def test_what_a_person_approves_is_the_artifact_that_was_escalated():
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
def test_a_workflow_that_chooses(goal, texts, expected):
    machine = loads(CHOOSING.replace("GOAL", goal))
    guards = {guard.name: ReadsTheText() for guard in machine.guards}
    rest, _ = drive(machine, Binding(effects, guards, {"llm": Texts(texts)}), "Psi")
    assert (rest.kind, rest.run.outcome) == ("finished", expected), story(rest)
    assert replay(machine, rest.run.ledger) == rest.run
    if expected == "failed":
        assert story(rest).splitlines()[-2] == "advanced: reply_precondition_not_met -> failed"


# -- every row matters ------------------------------------------------------------------------------------------------

DUAL_STATE = {
    ("good",): """
specification: query_llm -> generating
artifact: execute_guard -> validating
verdict g.passed: advance_state reply_to_user -> succeeded, satisfied = true
finished""",
    ("bad", "bad"): """
specification: query_llm -> generating
artifact: execute_guard -> validating
verdict g.failed: refine_context query_llm -> generating, retries = 1
artifact: execute_guard -> validating
verdict g.failed: refine_context reply_failure -> failed
finished""",
    ("awful",): """
specification: query_llm -> generating
artifact: execute_guard -> validating
verdict g.fatal: escalate_to_user -> escalated
finished""",
}

_TESTED = """
specification: query_llm -> generating.g_test
artifact: execute_guard -> validating.g_test
verdict g_test.passed: advance_state query_llm -> generating.g_impl, sigma.g_test = true"""
_FATAL_TEST = """
specification: query_llm -> generating.g_test
artifact: execute_guard -> validating.g_test
verdict g_test.fatal: escalate_to_user -> escalated.g_test"""
_FATAL_CODE = f"""{_TESTED}
artifact: execute_guard -> validating.g_impl
verdict g_impl.fatal: escalate_to_user -> escalated.g_impl"""
_CODE = """
artifact: execute_guard -> validating.g_impl
verdict g_impl.passed: advance_state reply_to_user -> succeeded, sigma.g_impl = true"""

#: Texts, then what a person sends while the run waits. Every step has one retry and there is one grant.
WORKFLOW = {
    ("good", "good"): f"{_TESTED}{_CODE}\nfinished",
    ("bad", "bad"): """
specification: query_llm -> generating.g_test
artifact: execute_guard -> validating.g_test
verdict g_test.failed: refine_context query_llm -> generating.g_test, retries.g_test = 1
artifact: execute_guard -> validating.g_test
verdict g_test.failed: refine_context reply_failure -> failed
finished""",
    ("good", "bad", "bad"): f"""{_TESTED}
artifact: execute_guard -> validating.g_impl
verdict g_impl.failed: refine_context query_llm -> generating.g_impl, retries.g_impl = 1
artifact: execute_guard -> validating.g_impl
verdict g_impl.failed: refine_context reply_failure -> failed
finished""",
    ("awful", "good", "approved"): f"""{_FATAL_TEST}
approved: advance_state query_llm -> generating.g_impl, sigma.g_test = true{_CODE}
finished""",
    ("awful", "good", "amended"): f"""{_FATAL_TEST}
amended: execute_guard -> validating.g_test
verdict g_test.passed: advance_state query_llm -> generating.g_impl, sigma.g_test = true{_CODE}
finished""",
    ("awful", "awful", "rejected", "rejected"): f"""{_FATAL_TEST}
rejected: refine_context query_llm -> generating.g_test, retries.g_test = 1
artifact: execute_guard -> validating.g_test
verdict g_test.fatal: escalate_to_user -> escalated.g_test
rejected: refine_context reply_failure -> failed
finished""",
    ("awful", "awful", "granted", "granted", "aborted"): f"""{_FATAL_TEST}
granted: query_llm -> generating.g_test, grants_used = 1
artifact: execute_guard -> validating.g_test
verdict g_test.fatal: escalate_to_user -> escalated.g_test
granted: escalate_to_user -> escalated.g_test
aborted: reply_failure -> failed
finished""",
    ("good", "awful", "approved"): f"""{_FATAL_CODE}
approved: advance_state reply_to_user -> succeeded, sigma.g_impl = true
finished""",
    ("good", "awful", "amended"): f"""{_FATAL_CODE}
amended: execute_guard -> validating.g_impl
verdict g_impl.passed: advance_state reply_to_user -> succeeded, sigma.g_impl = true
finished""",
    ("good", "awful", "awful", "rejected", "rejected"): f"""{_FATAL_CODE}
rejected: refine_context query_llm -> generating.g_impl, retries.g_impl = 1
artifact: execute_guard -> validating.g_impl
verdict g_impl.fatal: escalate_to_user -> escalated.g_impl
rejected: refine_context reply_failure -> failed
finished""",
    ("good", "awful", "awful", "granted", "granted", "aborted"): f"""{_FATAL_CODE}
granted: query_llm -> generating.g_impl, grants_used = 1
artifact: execute_guard -> validating.g_impl
verdict g_impl.fatal: escalate_to_user -> escalated.g_impl
granted: escalate_to_user -> escalated.g_impl
aborted: reply_failure -> failed
finished""",
}
TEXTS = {"good", "bad", "awful"}
MACHINES = {"dual_state": DUAL_STATE, "workflow": WORKFLOW}


@cache
def shipped(name):
    return load(name).at(rmax=1)


def play(machine, script):
    """Run a script: its texts are the model's, the rest is what a person sends."""
    guards = {guard.name: ReadsTheText() for guard in machine.guards}
    generator = Texts(item for item in script if item in TEXTS)
    data = {"amended": {"content": "good"}, "rejected": "not like this"}
    sent = [(item, data.get(item)) for item in script if item not in TEXTS]
    rest, _ = drive(machine, Binding(effects, guards, {"llm": generator}), "Psi", *sent)
    return rest


def told(machine, script):
    """Tell what a script leads to; a mutant may break anything, and that is noticed too."""
    try:
        return "\n" + story(play(machine, script))
    except Exception as error:  # noqa: BLE001  (whatever it is)
        return f"\n{type(error).__name__}: {error}"


CASES = [(name, script) for name, scripts in MACHINES.items() for script in scripts]


@pytest.mark.parametrize(
    ("name", "script"), CASES, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_the_run_is_as_expected(name, script):
    assert told(shipped(name), script) == MACHINES[name][script]


def rows_taken(machine, script):
    """Give the positions of the rows that a script takes."""
    rest = play(machine, script)
    configuration, found = start(machine), set()
    for entry in rest.run.ledger:
        if isinstance(entry, EventEntry):
            taken = step(machine, configuration, Occurrence(entry.event, entry.verdicts))
            assert isinstance(taken, Taken)
            found.add(next(n for n, row in enumerate(machine.transitions) if row is taken.transition))
            configuration = taken.configuration
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_every_row_is_taken(name):
    machine = shipped(name)
    taken = set().union(*(rows_taken(machine, script) for script in MACHINES[name]))
    assert [str(row) for n, row in enumerate(machine.transitions) if n not in taken] == []


@pytest.mark.parametrize("name", MACHINES)
def test_no_row_can_be_deleted_or_retargeted_unnoticed(name):
    machine = shipped(name)
    taken = {script: rows_taken(machine, script) for script in MACHINES[name]}
    unnoticed = []
    for number, row in enumerate(machine.transitions):
        scripts = [script for script, rows in taken.items() if number in rows]
        others = [*machine.transitions[:number], *machine.transitions[number + 1 :]]
        mutants = {f"{row} deleted": attrs.evolve(machine, transitions=tuple(others))}
        now = machine.entered(row.target) if row.target != "=" else row.source
        for target in machine.leaves:
            if target != now:
                moved = (
                    *machine.transitions[:number],
                    attrs.evolve(row, target=target),
                    *machine.transitions[number + 1 :],
                )
                mutants[f"{row} retargeted to {target}"] = attrs.evolve(machine, transitions=moved)
        for what, mutant in mutants.items():
            if all(told(mutant, script) == MACHINES[name][script] for script in scripts):
                unnoticed.append(what)
    assert unnoticed == []
