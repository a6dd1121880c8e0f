"""Conditions of a verdict: effects that must answer and must not fail, promises that `even if` drops, and the warnings."""

import pytest

from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.lang import loads

HANDOFF = """# handoff

## Events
| event   | from    |
| ------- | ------- |
| approve | outside |
| up      | start_b |
| done_b  | run_b   |

## States
| state    | kind    |
| -------- | ------- |
| waiting  | initial |
| starting |         |
| running  |         |
| finished | final   |

## Transitions
| source   | event   | effects | target   |
| -------- | ------- | ------- | -------- |
| waiting  | approve | start_b | starting |
| starting | up      | run_b   | running  |
| running  | done_b  | bill    | finished |
"""
CLAIM = "approve leads to finished"
PLACE = "finished | final   |\n"


def judged(claim: str, rows: str = "", effects: str = ""):
    text = f"{HANDOFF}{rows}\n## Properties\n- {claim}\n"
    report = check(
        loads(
            text + (f"\n## Effects\n| effect | time limit | on failure |\n| - | - | - |\n{effects}" if effects else "")
        )
    )
    (result,) = report.properties
    return result, [found for found in report.diagnostics if found.code in {"DSA314", "DSA315"}]


def test_verdict_names_the_effects_that_must_answer_and_must_not_fail():
    result, warnings = judged(CLAIM)
    assert (result.verdict, result.condition) == ("HOLDS", "start_b, run_b answer and do not fail")
    assert [found.code for found in warnings] == ["DSA314", "DSA315", "DSA314", "DSA315"]
    assert {found.message.split("'")[1] for found in warnings if found.code == "DSA314"} == {"start_b", "run_b"}


def test_failure_with_a_row_is_not_a_condition():
    result, warnings = judged(CLAIM, "| starting, running | start_b.failed, run_b.failed | | finished |\n")
    assert result.condition == "start_b, run_b answer"
    assert [found.code for found in warnings] == ["DSA314", "DSA314"]
    result, _ = judged(CLAIM, "| starting | start_b.failed | | finished |\n")
    assert result.condition == "start_b, run_b answer, and run_b does not fail"


def test_timer_that_reaches_the_goal_needs_no_answer():
    result, warnings = judged(CLAIM, "| * | after 6h | cancel | finished |\n")
    assert (result.verdict, result.condition, warnings) == ("HOLDS", "", [])


def test_declared_limits_silence_the_warnings_but_not_the_condition():
    effects = "| start_b | 1m | stop |\n| run_b | 1m | stop |\n| bill | | |\n"
    result, warnings = judged(CLAIM, effects=effects)
    assert (result.condition, warnings) == ("start_b, run_b answer and do not fail", [])


@pytest.mark.parametrize(
    ("doubt", "verdict", "reason"),
    [
        ("start_b never answers", "VIOLATED", "start_b may never answer, and the run rests in starting for ever"),
        ("run_b never answers", "VIOLATED", "run_b may never answer, and the run rests in running for ever"),
        ("start_b fails", "VIOLATED", "start_b may fail, and the run stops in starting"),
        ("bill fails", "HOLDS", ""),  # finished at that very moment
    ],
)
def test_even_if_drops_the_promise(doubt, verdict, reason):
    result, _ = judged(f"{CLAIM} even if {doubt}")
    assert result.verdict == verdict
    assert result.reason.endswith(reason)


def test_effect_without_answers_may_fail_at_the_moment_it_is_emitted():
    rows = "| starting | start_b.failed | bill | starting |\n"
    result, _ = judged("start_b.failed leads to finished even if bill fails", rows)
    assert result.verdict == "VIOLATED"
    assert [step.occurrence.event for step in result.trace.steps] == ["approve", "start_b.failed"]


def test_row_for_the_failure_makes_the_doubt_harmless():
    rows = "| starting | start_b.failed | | finished |\n"
    assert judged(f"{CLAIM} even if start_b fails", rows)[0].verdict == "HOLDS"
    assert judged(f"{CLAIM} even if start_b never answers", rows)[0].verdict == "VIOLATED"


def test_ignored_failure_with_nothing_else_outstanding_violates_the_claim():
    result, warnings = judged(CLAIM, "| starting | start_b.failed | | = |\n")
    assert result.verdict == "VIOLATED"
    (ignored,) = [
        found
        for found in warnings
        if "'start_b.failed' does not leave the state, and nothing else is under way" in found.message
    ]
    assert ignored.code == "DSA315"


def test_sleep_is_relied_on_like_a_timer():
    declared = "\n## Effects\n| effect | is | options |\n| - | - | - |\n| start_b | sleep | for = 1h |\n| run_b | | |\n| bill | | |\n"
    machine = loads(f"{HANDOFF}{declared}\n## Properties\n- {CLAIM}\n")
    report = check(machine)
    (result,) = report.properties
    assert (result.verdict, result.condition) == ("HOLDS", "run_b answers and does not fail")
    assert result.assumes == ("the sleep start_b ends or is cancelled",)
    assert {found.message.split("'")[1] for found in report.diagnostics if found.code == "DSA314"} == {"run_b"}
    (proof,) = prove(machine).properties
    assert (proof.verdict, proof.relies_on) == ("PROVED", ("run_b",))


def test_property_may_fail_if_a_sleep_never_ends():
    declared = "\n## Effects\n| effect | is | options |\n| - | - | - |\n| start_b | sleep | for = 1h |\n| run_b | | |\n| bill | | |\n"
    report = check(loads(f"{HANDOFF}{declared}\n## Properties\n- {CLAIM} even if start_b never answers\n"))
    assert report.properties[0].verdict == "VIOLATED"
