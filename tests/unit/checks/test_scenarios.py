from pathlib import Path

import pytest

from dsa.checks.scenarios import from_scenarios, run_scenario, run_scenarios
from dsa.declarations import Scenario, ScenarioStep
from dsa.errors import MachineError
from dsa.lang import loads

SHIPPED = (Path(__file__).parents[3] / "machines" / "dual_state" / "machine.md").read_text(encoding="utf-8")
DUAL_STATE = SHIPPED[: SHIPPED.index("## Scenario")]
BEGIN = ("specification | query_llm | generating", "artifact | execute_guard | validating")


def run(*rows, columns=("percept", "action", "state"), parameters="", text=DUAL_STATE):
    lines = [
        "",
        "## Scenario: s",
        parameters,
        "",
        *(f"| {row} |" for row in (" | ".join(columns), " | ".join("-" * len(columns)), *rows)),
    ]
    machine = loads(text + "\n".join(lines) + "\n", "m.md")
    (result,) = run_scenarios(machine)
    return machine, result


def test_unnamed_guard_has_passed():
    _, result = run(*BEGIN, "verdict | advance_state, reply_to_user | succeeded")
    assert result.ok
    assert result.rows == (0, 1, 2)


@pytest.mark.parametrize(("row", "message"), [
    ("verdict | advance_state | succeeded", "event 'verdict g.passed': expected 'advance_state', but got 'advance_state, reply_to_user'"),
    ("verdict | reply_to_user, advance_state | ", "expected 'reply_to_user, advance_state', but got 'advance_state, reply_to_user'"),
    ("verdict g.fatal | escalate_to_user | failed", "the state after 'verdict': expected 'failed', but got 'escalated'"),
    ("artifact | execute_guard | validating", "expected 'execute_guard', but got 'refused: late"),
    ("artifact | refused: invalid_state | ", "expected 'refused: invalid_state', but got 'refused: late"),
    ("verdict | refused | ", "expected 'refused', but got 'advance_state, reply_to_user'"),
    ("verdict |  | ", "expected 'no effects', but got 'advance_state, reply_to_user'"),
])  # fmt: skip
def test_mismatch_is_reported_at_its_row(row, message):
    machine, result = run(*BEGIN, row)
    assert not result.ok
    assert message in result.message
    (found, *_) = from_scenarios(machine, [result])
    assert (found.code, found.severity, found.span.text) == ("DSA310", "error", f"| {row} |")
    assert found.message.startswith("scenario 's': ")


@pytest.mark.parametrize("row", [
    "artifact | refused | validating",
    "artifact | refused: late |",
    "verdict g.fatal | escalate_to_user |",
])  # fmt: skip
def test_row_that_matches_passes(row):
    assert run(*BEGIN, row)[1].ok


def test_refused_step_changes_nothing():
    assert run(BEGIN[0], "specification | refused | generating", BEGIN[1])[1].ok


def test_only_written_values_are_compared_after_a_step():
    columns = ("percept", "action", "state", "retries", "satisfied")
    rows = [f"{row} | | " for row in BEGIN]
    assert run(*rows, "verdict g.failed | refine_context, query_llm | generating | 1 | false", columns=columns)[1].ok
    _, result = run(*rows, "verdict g.failed | refine_context, query_llm | generating | 0 | ", columns=columns)
    assert result.message == "the value of 'retries' after 'verdict': expected '0', but got '1'"


def test_scenario_runs_at_its_own_parameters():
    exhausted = "verdict g.failed | refine_context, reply_failure | failed"
    assert run(*BEGIN, exhausted, parameters="Parameters: rmax = 0")[1].ok
    assert not run(*BEGIN, exhausted)[1].ok


STEPS = """# w

## Steps
| step | requires | guard  | uses     | task |
| ---- | -------- | ------ | -------- | ---- |
| one  |          | syntax |          | 1    |
| two  | one      | syntax | t = one  | 2    |
"""
FIRST = ("specification | query_llm | generating.one | ", "artifact | execute_guard | validating.one |")


def test_dependencies_are_those_of_the_current_step():
    columns = ("percept", "action", "state", "deps")
    taken = run(*FIRST, columns=columns, text=STEPS)[0]
    action = ", ".join(map(str, next(row for row in taken.transitions if row.target == "generating.two").effects))
    assert run(*FIRST, f"verdict | {action} | generating.two | t = one", columns=columns, text=STEPS)[1].ok
    _, result = run(*FIRST, f"verdict | {action} | generating | u = one", columns=columns, text=STEPS)
    assert result.message == "the dependencies after 'verdict': expected 'u = one', but got 't = one'"


TIMED = """# t

## States
| state | kind |
| ----- | ---- |
| a     | initial |
| a.b   | initial |
| z     | final |

## Transitions
| source | event     | effects | target |
| ------ | --------- | ------- | ------ |
| a      | after 30s | outer   | z      |
| a.b    | after 30s | inner   | =      |
| a.b    | after 1m  |         | z      |
"""


def test_timer_is_the_innermost_armed_one():
    percepts = ("after 30s | inner | a", "after 1m | refused: early | a")
    assert run(*percepts, text=TIMED)[1].ok


def test_timer_without_a_row_is_a_mismatch():
    scenario = Scenario("s", (ScenarioStep("after 5m"),))
    assert run_scenario(loads(TIMED), scenario).message == "no row handles 'after 5m'"


def test_timer_without_a_row_is_quoted_as_written():
    scenario = "## Scenario: s\n| percept | action |\n| --- | --- |\n| after 24h | z |\n"
    with pytest.raises(MachineError, match="no row has the timer 'after 24h'"):
        loads(f"{TIMED}\n{scenario}")


def test_rows_that_no_scenario_takes_are_listed_once():
    machine, result = run(*BEGIN)
    (found,) = from_scenarios(machine, [result])
    assert (found.code, found.severity) == ("DSA311", "warning")
    assert "4 of 6 rows are taken by no scenario: line 48 (validating | verdict | succeeded)" in found.message
    assert from_scenarios(machine, []) == ()


def test_at_most_three_untaken_rows_are_listed_and_none_if_a_scenario_fails():
    machine, result = run(*BEGIN)
    (found,) = from_scenarios(machine, [result])
    assert found.message.count("line ") == 3
    assert found.message.endswith(", and 1 more")
    failing = from_scenarios(machine, [result, run("verdict |  | idle")[1]])
    assert [finding.code for finding in failing] == ["DSA310"]


def test_verdict_that_no_row_reads_is_an_error():
    text = DUAL_STATE.replace(
        "| artifact      | query_llm     | a        |", "| artifact | query_llm | |\n| look | outside | |"
    )
    text = (
        text.replace("| g     | verdict |", "| g     | verdict, look |")
        .replace("## Properties", "| generating | look | | | | = |\n\n## Properties")
        .replace("| failed     |\n\n| generating", "| failed     |\n| generating")
    )
    _, result = run(BEGIN[0], "look g.failed | | generating", text=text)
    assert result.message == "the rows of state 'generating' for the event 'look' do not read any verdict of g"
