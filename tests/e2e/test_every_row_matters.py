"""Every row of a shipped machine changes what a run does.

The expected stories are written here, so a changed or missing row is noticed.
"""

from functools import cache

import attrs
import pytest
from machine_transcripts import ReadsTheText, drive, story

from dsa.edge.binding import Bindings
from dsa.edge.document_files import load
from dsa.runtime.ledger import EventEntry
from dsa.semantics import Occurrence, Taken, start, step
from dsa.testing.doubles import Texts
from machines.dual_state.bindings import effects

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
#: Texts, then the events that a person sends while the run waits. Every step has one retry and there is one grant.
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
    """Run a script: its texts come from the model, the rest are events from a person."""
    guards = {guard.name: ReadsTheText() for guard in machine.guards}
    generator = Texts(item for item in script if item in TEXTS)
    data = {"amended": {"content": "good"}, "rejected": "not like this"}
    sent = [(item, data.get(item)) for item in script if item not in TEXTS]
    rest, _ = drive(machine, Bindings(effects, guards, {"llm": generator}), "Psi", *sent)
    return rest


def story_of(machine, script):
    """Return the story of a script; a mutant may raise any error, and that is noticed too."""
    try:
        return "\n" + story(play(machine, script))
    except Exception as error:  # noqa: BLE001  (whatever it is)
        return f"\n{type(error).__name__}: {error}"


CASES = [(name, script) for name, scripts in MACHINES.items() for script in scripts]


@pytest.mark.parametrize(
    ("name", "script"), CASES, ids=lambda value: value if isinstance(value, str) else "+".join(value)
)
def test_run_is_as_expected(name, script):
    assert story_of(shipped(name), script) == MACHINES[name][script]


def rows_taken(machine, script):
    """Return the positions of the rows that a script takes."""
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
        now = machine.entry_leaf(row.target) if row.target != "=" else row.source
        for target in machine.leaves:
            if target != now:
                moved = (
                    *machine.transitions[:number],
                    attrs.evolve(row, target=target),
                    *machine.transitions[number + 1 :],
                )
                mutants[f"{row} retargeted to {target}"] = attrs.evolve(machine, transitions=moved)
        for what, mutant in mutants.items():
            if all(story_of(mutant, script) == MACHINES[name][script] for script in scripts):
                unnoticed.append(what)
    assert unnoticed == []
