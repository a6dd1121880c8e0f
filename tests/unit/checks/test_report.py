"""`check` on the shipped dual_state with one fault planted: each is found at its line, with a witness."""

from pathlib import Path

import pytest
from example_machines import dual_state, emits, jugs, placed, states

from dsa.checks.report import check
from dsa.declarations import Event, Transition
from dsa.errors import ParameterError
from dsa.lang import loads
from dsa.machine import Machine

REFINE = "g.failed and retries < rmax | retries += 1                  | refine_context, query_llm     | generating |"
FATAL = "| validating | verdict       | g.fatal                     |                               | escalate_to_user              | escalated  |\n"
ELSE = "| validating | verdict       | else                        |                               | refine_context, reply_failure | failed     |\n"
ARTIFACT = "| generating | artifact      |                             |                               | execute_guard                 | validating |"


def line(text, part):
    (found,) = [number for number, content in enumerate(text.split("\n"), 1) if part in content]
    return found


def test_shipped_machine_is_clean(plant):
    _, found = plant()
    assert not found


def test_off_by_one_bound_leaves_the_domain(plant):
    text, found = plant((REFINE, REFINE.replace("retries < rmax", "retries <= rmax")))
    overflow = found["DSA306"]
    assert overflow.span.line == line(text, "retries <= rmax |")
    assert overflow.span.text[overflow.span.column - 1 :].startswith("retries += 1")
    assert "retries = 4 lies outside 0..3" in overflow.message
    assert "retries = 3, rmax = 3" in overflow.message
    assert "specification, artifact, verdict g.failed" in overflow.message
    assert "state 'failed' is not reached (explored only with rmax = 3 and with rmax = 0)" in found["DSA301"].message


def test_fault_that_the_defaults_hide_is_found_at_the_minima(plant):
    _, found = plant(("g.failed and retries < rmax", "g.failed and (retries < rmax or rmax == 0)"))
    assert "retries = 0, rmax = 0" in found["DSA306"].message


def test_missing_fatal_row_is_an_unhandled_answer(plant):
    text, found = plant((FATAL, ""), (ELSE, ELSE.replace("else ", "g.failed and retries == rmax ")))
    unhandled = found["DSA305"]
    assert unhandled.severity == "error"
    assert text.split("\n")[unhandled.span.line - 1].startswith("| validating | verdict")
    assert (
        "'verdict g.fatal' (answer of execute_guard) is not handled in state 'validating', where retries = 0"
        in unhandled.message
    )
    assert "reached by: specification, artifact" in unhandled.message


def test_every_missing_case_of_a_group_is_named(plant):
    _, found = plant((FATAL, ""), (ELSE, ""))
    assert "g.fatal" in found["DSA305"].message
    assert "also not handled: verdict g.failed in state 'validating'" in found["DSA305"].message


def test_workflow_state_set_without_a_pass_is_an_error(plant):
    text, found = plant((ELSE, ELSE.replace("|                               |", "| satisfied = false |")))
    broken = found["DSA210"]
    assert broken.span.line == line(text, "satisfied = false")
    assert "satisfied" in broken.message
    assert "g.failed" in broken.message


def test_unhandled_answer_is_reported_where_its_effect_is_emitted(plant):
    text, found = plant(
        ("| artifact      | query_llm     | a        |", "| artifact | query_llm | a |\n| progress | query_llm | |"),
        (ARTIFACT, ARTIFACT + "\n| validating | progress | | | | = |"),
    )
    unhandled = found["DSA305"]
    assert unhandled.span.line == line(text, "| idle       | specification |")
    assert unhandled.span.text[unhandled.span.column - 1 :].startswith("query_llm")
    assert (
        "'progress' (answer of query_llm) is not handled in state 'generating'; reached by: specification"
        in unhandled.message
    )


def test_unreachable_state_is_the_only_finding(plant):
    text, found = plant(("| failed     | final   |", "| failed     | final   |\n| limbo      |         |"))
    assert found["DSA301"].span.line == line(text, "limbo")
    assert found["DSA301"].message.startswith("state 'limbo' cannot be reached")
    assert "other values of" not in found["DSA301"].hint, "no value leads there"
    assert "DSA303" not in found
    assert "DSA302" not in found


def test_unreachable_parent_is_reported_once(plant):
    text, found = plant(
        ("| failed     | final   |", "| failed | final |\n| review | |\n| review.a | initial |\n| review.b | |"),
        (ARTIFACT, ARTIFACT + "\n| review | specification |  |  |  | review.b |"),
    )
    assert found["DSA301"].span.line == line(text, "| review | |")
    assert found["DSA301"].message.startswith("state 'review' cannot be reached")


def test_dead_end_is_reported(plant):
    text, found = plant(("| escalated  | final   |", "| escalated  |         |"))
    assert found["DSA303"].span.line == line(text, "| escalated  |         |")
    assert "DSA308" not in found  # the dead end explains it


def test_dead_row_is_reported(plant):
    text, found = plant((ELSE, ELSE + "| validating | verdict | else and retries > rmax | | | failed |\n"))
    assert found["DSA302"].span.line == line(text, "retries > rmax")
    assert found["DSA302"].severity == "error"


ODD = """# odd

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| rmax      | {domain} | 3     |

## Events
| event | from    | otherwise |
| ----- | ------- | --------- |
| go    | outside | refused   |
| two   | outside | refused   |

## States
| state | kind    |
| ----- | ------- |
| here  | initial |
| there | final   |

## Transitions
| source | event | if        | target |
| ------ | ----- | --------- | ------ |
| here   | go    |           | there  |
| here   | two   | rmax == 2 | there  |
"""


@pytest.mark.parametrize(("domain", "way"), [("1..3", "--each-value"), ("1..", "--param NAME=VALUE")])
def test_row_for_other_values_is_dead_only_at_the_explored_ones(domain, way):
    machine = loads(ODD.format(domain=domain))
    (dead,) = check(machine).diagnostics
    assert dead.code == "DSA302"
    assert dead.message.endswith("is not taken (explored only with rmax = 3 and with rmax = 1)")
    assert dead.hint.startswith("the row's condition is never true at these values")
    assert way in dead.hint
    assert not check(machine, parameters={"rmax": 2}).diagnostics


def test_row_that_no_value_takes_can_never_be_taken():
    machine = loads(ODD.format(domain="1..3").replace("rmax == 2", "rmax == 9 and rmax < 5"))
    (dead,) = check(machine, each_value=True).diagnostics
    assert "can never be taken (explored with rmax = 3 and with rmax = 1 and with rmax = 2)" in dead.message
    assert "other values" not in dead.hint


def test_dead_row_is_a_warning_if_parameters_are_set(plant):
    _, found = plant(parameters={"rmax": 0})
    assert found["DSA302"].severity == "warning"


def test_overlap_names_both_rows_and_the_values(plant):
    text, found = plant(("| g.fatal                     |", "| g.fatal or retries == 2 |"))
    overlap = found["DSA304"]
    assert overlap.span.line == line(text, "retries == 2")
    assert "and 50 are enabled at the same time" in overlap.message
    assert "on 'verdict g.passed', where retries = 2" in overlap.message
    assert "reached by: specification" in overlap.message


def test_effect_emitted_twice_is_reported(plant):
    text, found = plant((ARTIFACT, ARTIFACT.replace("execute_guard ", "execute_guard, execute_guard ")))
    twice = found["DSA307"]
    assert twice.span.line == line(text, "execute_guard, execute_guard")
    assert (
        "the effect 'execute_guard' is still outstanding when this row emits it again: in state 'generating' on 'artifact'"
        in twice.message
    )


def test_inner_row_does_not_fall_through_to_its_parent(plant):
    inner = "| generating.fast | artifact | retries > 0 | | execute_guard | validating |"
    text, found = plant(
        ("| generating |         |", "| generating |         |\n| generating.fast | initial |"),
        (ARTIFACT, f"{inner}\n{ARTIFACT}"),
    )
    unhandled = found["DSA305"]
    assert unhandled.span.line == line(text, "| generating.fast | artifact |")
    assert "retries = 0" in unhandled.message
    assert "the rows of 'generating' for 'artifact' do not apply" in unhandled.hint


def test_unhandled_timer_is_reported(plant):
    text, found = plant((ARTIFACT, ARTIFACT + "\n| generating | after 30s | retries > 0 | | | failed |"))
    assert found["DSA305"].span.line == line(text, "after 30s")
    assert (
        "'after 30s of generating' (timer) is not handled in state 'generating', where retries = 0"
        in found["DSA305"].message
    )


def test_failure_handled_once_must_be_handled_everywhere(plant):
    _, found = plant((ARTIFACT, ARTIFACT + "\n| generating | query_llm.failed | | | | failed |"))
    assert "DSA305" not in found
    _, found = plant((ARTIFACT, ARTIFACT + "\n| generating | execute_guard.failed | | | | failed |"))
    assert (
        "'execute_guard.failed' (answer of execute_guard) is not handled in state 'validating'"
        in found["DSA305"].message
    )


def test_outside_event_refused_at_some_values_is_a_warning(plant):
    _, found = plant(
        ("| specification | outside       | Psi      |", "| specification | outside | |\n| abort | outside | |"),
        (ARTIFACT, ARTIFACT + "\n| generating | abort | retries > 0 | | cancel query_llm | failed |"),
    )
    assert found["DSA309"].severity == "warning"
    message = found["DSA309"].message
    assert (
        "event 'abort' is refused in state 'generating', where retries = 0; reached by: specification; no row applies: in line"
        in message
    )


def test_effect_emitted_several_steps_before_is_located():
    rows = placed([
        Transition("a", "go", "b", effects=emits("ask")),
        Transition("b", "answer", "a"),
        Transition("b", "more", "c"),
        Transition("c", "more", "d"),
        Transition("d", "more", "="),
    ])  # fmt: skip
    events = (Event("go"), Event("more"), Event("answer", "ask"))
    machine = Machine("m", rows, states("a", ["b", "c", "d"]), "a", events=events)
    unhandled = [finding for finding in check(machine).diagnostics if finding.code == "DSA305"]
    assert [finding.message.split(";")[0] for finding in unhandled] == [
        "'answer' (answer of ask) is not handled in state 'c'", "'answer' (answer of ask) is not handled in state 'd'",
    ]  # fmt: skip
    assert [(finding.span.line, finding.span.column) for finding in unhandled] == [(40, 43), (40, 43)]


def test_report_lists_states_in_which_a_run_can_rest():
    assert check(dual_state()).rests == ("idle",)
    assert check(jugs()).rests == ("pouring",)


def test_report_lists_states_in_which_only_a_timer_continues():
    text = """# lost

## Events
| event  | from     |
| ------ | -------- |
| begin  | outside  |
| item   | next_one |
| none   | next_one |
| result | work     |

## Effects
| effect   | kind    | at once |
| -------- | ------- | ------- |
| next_one | sensing |         |
| work     | sensing | 1       |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| working |         |
| done    | final   |

## Transitions
| source  | event     | if          | effects  | target  |
| ------- | --------- | ----------- | -------- | ------- |
| idle    | begin     |             | next_one | working |
| working | item      |             | work     | =       |
| working | none      | not pending |          | done    |
| working | none      | pending     |          | =       |
| working | result    |             | {then}   | =       |
| working | after 15m |             |          | done    |

## Properties
- always not working or pending
"""
    forgets, goes_on = (check(loads(text.replace("{then}", then))) for then in ("        ", "next_one"))
    assert (forgets.rests, forgets.timer_waits) == (("idle",), ("working",))
    assert [each.verdict for each in forgets.properties] == ["VIOLATED"]
    assert (goes_on.rests, goes_on.timer_waits) == (("idle",), ())
    assert [each.verdict for each in goes_on.properties] == ["HOLDS"]


def test_deadlock_is_reported(plant):
    text, found = plant(
        ("| escalated  | final   |", "| escalated  |         |"),
        (ELSE, ELSE + "| escalated | specification | retries > rmax | | | failed |\n"),
    )
    assert found["DSA308"].span.line == line(text, "| escalated  |         |")
    assert "stuck in state 'escalated', where satisfied = false, retries = 0" in found["DSA308"].message


def test_start_outside_its_domain_is_reported_and_not_explored():
    # dsa.lang checks this at the defaults and minima; other values come from --param
    text = "# m\n\n## Parameters\n| parameter | domain | default |\n| - | - | - |\n| p | 0..9 | 0 |\n\n## Variables\n"
    text += "| variable | domain | initial |\n| - | - | - |\n| x | p..5 | p |\n\n## Transitions\n"
    text += "| source | event | update | target |\n| - | - | - | - |\n| a | e | x = x | = |\n"
    report = check(loads(text), parameters={"p": 7})
    assert report.explorations == ()
    assert [finding.code for finding in report.diagnostics] == ["DSA205"]
    assert "variable 'x' starts as 7, outside 7..5, at p = 7" in report.diagnostics[0].message


def test_limit_leaves_the_rest_unknown(plant):
    _, found = plant(max_states=3)
    assert found["DSA312"].severity == "error"
    assert "DSA301" not in found


def test_strict_check_fails_on_warnings_and_properties_have_values():

    text = (Path(__file__).parents[3] / "machines/dual_state/machine.md").read_text(encoding="utf-8")
    machine = loads(text)
    assert not check(machine, strict=True).failed
    unbounded = loads(text.replace("| query_llm        | 1h         |", "| query_llm        |            |"))
    assert not check(unbounded).failed
    assert check(unbounded, strict=True).failed
    with pytest.raises(ParameterError):
        check(machine, parameters={"rmin": 1})
    report = check(machine)
    assert [exploration.parameters["rmax"] for exploration in report.explorations] == [3, 0]
    assert report.properties[0].text == "always retries <= rmax"
    assert {claim.verdict for claim in report.properties} == {"HOLDS"}
    assert report.properties[0].values == ((("rmax", 3),), (("rmax", 0),))


def test_defaults_equal_to_the_minima_are_explored_once(plant):
    _, found = plant(("| rmax      | 0..    | 3       |", "| rmax | 0.. | 0 |"))
    assert "(explored only with rmax = 0)" in found["DSA302"].message


def test_diagnostics_are_sorted_by_cause_then_by_line():
    text = "# m\n\n## States\n| state | kind |\n| - | - |\n| a | initial |\n| b | |\n| c | |\n\n## Transitions\n"
    text += "| source | event | target |\n| - | - | - |\n| a | e | = |\n| a | e | b |\n"
    found = [(finding.code, finding.span.line) for finding in check(loads(text)).diagnostics]
    assert found == [("DSA304", 14), ("DSA308", 6), ("DSA301", 7), ("DSA301", 8)]
