"""Ends and costs of runs: closed forms, exact worst cases, and unknown odds."""

from math import inf

import pytest
from each_row import each_row
from families import any_order, ordered
from odds_documents import TOOLS, UNLIMITED, chain, closed_form

import dsa
from dsa.checks.odds.run_odds import odds
from dsa.errors import ParameterError
from dsa.lang import loads

CLOSE = 1e-9


def ends_of(found):
    return {end.state: bounds.low for end, bounds in found.ends}


@pytest.mark.parametrize("rmax", [3, 10])
@pytest.mark.parametrize("n", [3, 10, 100])
def test_steps_in_order_match_the_closed_form(n, rmax):
    success, failed, fatal, calls = closed_form([(0.6, 0.02)] * n, rmax)
    found = odds(ordered(n, rmax), passes={"g": [0.6]}, fatals={"g": [0.02]})
    ends = ends_of(found)
    assert found.success.low == found.success.high == pytest.approx(success, abs=CLOSE)
    assert (ends["failed"], ends["escalated"]) == pytest.approx((failed, fatal), abs=CLOSE)
    assert found.effect("query_llm").average.low == pytest.approx(calls, abs=CLOSE)
    assert found.effect("query_llm").worst == n * (rmax + 1)
    assert found.unknown == ()


def test_every_step_of_a_steps_document_has_its_own_odds():
    steps = {"a": (0.9, 0.01), "b": (0.3, 0.05), "c": (0.6, 0.0)}
    machine = chain(*steps)
    passes = {name: [p] for name, (p, _) in steps.items()}
    found = odds(machine, passes=passes, fatals={name: [q] for name, (_, q) in steps.items()})
    success, failed, fatal, calls = closed_form(list(steps.values()), 3)
    ends = ends_of(found)
    assert found.success.low == pytest.approx(success, abs=CLOSE)
    assert ends["failed"] == pytest.approx(failed, abs=CLOSE)
    assert sum(ends[f"escalated.{name}"] for name in steps) == pytest.approx(fatal, abs=CLOSE)
    assert found.effect("query_llm").average.low == pytest.approx(calls, abs=CLOSE)
    assert {end.kind for end, _ in found.ends if end.state.startswith("escalated")} == {"waits"}


def test_odds_may_differ_by_retry_number():
    found = odds(ordered(2, 4), passes={"g": [0.3, 0.5, 0.8]}, fatals={"g": [0.1, 0.02]})
    passed, calls, here = 0.0, 0.0, 1.0
    for p, q in [(0.3, 0.1), (0.5, 0.02), (0.8, 0.02), (0.8, 0.02), (0.8, 0.02)]:
        calls += here
        passed += here * p
        here *= 1 - p - q
    assert found.success.low == pytest.approx(passed**2, abs=CLOSE)  # from 0 again after a pass
    assert found.effect("query_llm").average.low == pytest.approx(calls * (1 + passed), abs=CLOSE)


def test_odds_of_the_caller_override_those_of_the_document():
    text = dsa.dumps(ordered(1, 0)).replace("| judges  |", "| judges  | pass | fatal |")
    text = text.replace("| g     | verdict |", "| g     | verdict | 0.8 | 0.1 |").replace(
        "| guard | judges  | pass | fatal |\n| ----- | ------- |",
        "| guard | judges  | pass | fatal |\n| - | - | - | - |",
    )
    machine = loads(text)
    assert ends_of(odds(machine)) == pytest.approx({"succeeded": 0.8, "failed": 0.1, "escalated": 0.1})
    given = odds(machine, passes={"g": [0.5]})
    assert ends_of(given) == pytest.approx({"succeeded": 0.5, "failed": 0.4, "escalated": 0.1})


def test_odds_of_a_composition_are_combined_from_its_parts():
    machine = loads(
        dsa.dumps(ordered(1, 0)).partition("## Guards")[0]
        + """## Guards
| guard | judges  | is       | options        | pass | fatal |
| ----- | ------- | -------- | -------------- | ---- | ----- |
| g     | verdict | KIND     | of = a, b; K   |      |       |
| a     |         | syntax   |                | 0.9  | 0.02  |
| b     |         | syntax   |                | 0.5  | 0.1   |
""".replace("KIND", "in_order").replace("; K ", "   ")
        + "\n## States"
        + dsa.dumps(ordered(1, 0)).partition("## States")[2]
    )
    ends = ends_of(odds(machine))
    assert ends["succeeded"] == pytest.approx(0.45)
    assert ends["escalated"] == pytest.approx(0.02 + 0.9 * 0.1)  # b is not asked when a does not pass


def test_prices_weigh_effects_and_failed_runs_cost_too():
    found = odds(ordered(2, 1), passes={"g": [0.5]}, prices={"query_llm": 10.0, "execute_guard": 1.0})
    calls = 1.5 * (1 + 0.75)
    assert found.cost.low == pytest.approx(11 * calls)
    assert found.per_success(found.cost).low == pytest.approx(11 * calls / 0.75**2)
    assert found.worst_cost == 44


def test_worst_cost_is_that_of_one_run_not_of_each_effect():
    machine = loads("""# fork

## Events
| event | from |
| ----- | ---- |
| go    | outside |
| left  | ask |
| right | ask |

## Effects
| effect |
| ------ |
| ask    |
| dear   |
| cheap  |

## States
| state | kind |
| ----- | ---- |
| idle  | initial |
| asked |  |
| succeeded | final |

## Transitions
| source | event | effects     | target    |
| ------ | ----- | ----------- | --------- |
| idle   | go    | ask         | asked     |
| asked  | left  | dear        | succeeded |
| asked  | right | cheap, cheap | succeeded |
""")
    found = odds(machine, prices={"dear": 5.0, "cheap": 2.0})
    assert (found.effect("dear").worst, found.effect("cheap").worst, found.worst_cost) == (1, 2, 5)
    assert (found.cost.low, found.cost.high) == (4, 5)  # the answer may be left or right


def test_only_the_worst_case_is_known_without_odds():
    found = odds(ordered(2, 3))
    assert not found.is_known
    assert found.success is None
    assert found.effect("query_llm").worst == 8
    assert found.unknown == ("guard g has no odds: write them in the column `pass` of Guards, or give --pass g=0.7",)


def test_unlimited_retries_are_named_and_have_no_bound():
    assert "the odds of g are the same after any number of failures" in odds(loads(UNLIMITED)).assumptions
    assert odds(loads(UNLIMITED)).unknown == ()
    found = odds(loads(UNLIMITED.replace("| 0.6  |", "| 0.5, 0.6 |")))
    (sentence,) = found.unknown
    assert sentence.startswith("retries are unlimited (line 30)")
    found = odds(loads(UNLIMITED))
    assert found.effect("query_llm").worst == inf
    assert found.success.low == pytest.approx(6 / 7)  # a cycle is solved exactly
    assert found.effect("query_llm").average.low == pytest.approx(1 / 0.7)


def test_run_that_goes_round_for_ever_never_ends():
    found = odds(loads(UNLIMITED), passes={"g": [0.0]}, fatals={"g": [0.0]})
    assert found.never_ends.low == 1
    assert found.effect("query_llm").average.low == inf
    half = odds(loads(UNLIMITED), passes={"g": [0.5, 0.0]}, fatals={"g": [0.0]})
    assert (half.success.low, half.never_ends.low) == pytest.approx((0.5, 0.5))


def test_answers_without_odds_are_free_choices():
    found = odds(loads(TOOLS))
    assert (found.success.low, found.success.high) == (0, 1)
    assert (found.effect("run_tool").average.low, found.effect("run_tool").average.high) == (0, 3)
    assert [(end.state, end.kind) for end, _ in found.ends] == [
        ("succeeded", "final"),
        ("waiting", "waits"),
    ]


def test_answers_failures_and_people_may_have_odds():
    world = {"call": 0.5, "ask.failed": 0.1}
    found = odds(loads(TOOLS), events=world)
    asked = 1 + 0.5 + 0.25 + 0.125
    assert found.success.low == found.success.high == pytest.approx(0.4 * asked)
    assert ends_of(found)["failed"] == pytest.approx(0.1 * asked)
    assert ends_of(found)["waiting"] == pytest.approx(0.5**4)
    helped = odds(loads(TOOLS), events={**world, "allowed": 0.8})
    again = 0.5**4 * 0.8  # the odds of one more round: allowed to go on after three tools
    assert helped.success.low == pytest.approx(0.4 * asked / (1 - again), abs=CLOSE)
    assert ends_of(helped)["waiting"] == pytest.approx(0.5**4 * 0.2 / (1 - again), abs=CLOSE)


def test_order_of_outside_events_changes_the_cost_but_not_the_success():
    success, _, _, cheapest = closed_form([(0.5, 0.01)] * 3, 2)
    found = odds(any_order(3, 2), passes={"g": [0.5]}, fatals={"g": [0.01]}, outside=True)
    assert found.success.low == pytest.approx(success, abs=CLOSE)
    assert found.success.high == pytest.approx(success, abs=CLOSE)
    calls = found.effect("query_llm").average
    assert calls.low == pytest.approx(cheapest, abs=CLOSE)
    assert calls.high > calls.low + 0.1


def test_run_ends_where_it_waits_for_a_person():
    found = odds(any_order(3, 2), passes={"g": [0.5]})
    assert [(end.kind, end.state) for end, bounds in found.ends if bounds.high > 0] == [("waits", "idle")]


def test_timers_fire_where_no_effect_is_awaited():
    machine = loads("""# timed

## Events
| event | from |
| ----- | ---- |
| go    | outside |
| nudge | outside |
| done  | work |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| working   |         |
| resting   |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source  | event     | effects | target    |
| ------- | --------- | ------- | --------- |
| idle    | go        | work    | working   |
| working | done      |         | resting   |
| working | after 10s |         | failed    |
| resting | after 1m  |         | succeeded |
| resting | nudge     |         | failed    |
""")
    found = odds(machine)
    assert found.success.low == 1
    first = "a timer fires only where no answer is awaited, and "
    assert f"{first}nothing comes from outside before it" in found.assumptions
    asked = odds(machine, events={"nudge": 0.3})
    assert asked.success.low == pytest.approx(0.7)  # the odds that it comes before the timer
    assert f"{first}the odds given for an outside event mean that it comes before the timer" in asked.assumptions
    chosen = odds(machine, outside=True)
    assert (chosen.success.low, chosen.success.high) == (0, 1)
    assert f"{first}an outside event may come before it, by choice" in chosen.assumptions


def test_refused_occurrence_makes_the_odds_unknown():
    text = dsa.dumps(ordered(1, 1)).replace("| else and g.failed           |", "| g.failed and retries > rmax |")
    found = odds(loads(text), passes={"g": [0.5]})
    assert found.unknown == ("the table refuses an event that can come in validating; `dsa check` says which",)


@each_row(
    ("given", "message"),
    [
        ({"passes": {"h": [0.5]}}, "machine ordered has no guard 'h'; known here: 'g'"),
        ({"passes": {"g": [1.5]}}, "1.5 is not a probability of guard g"),
        ({"passes": {"g": [0.5, 0.9]}, "fatals": {"g": [0.2]}}, "add up to 1.1 at retry 1"),
        ({"events": {"verdikt": 0.5}}, "has no event 'verdikt'"),
        ({"events": {"verdict": 0.5}}, "the odds of the answers to execute_guard (verdict) add up to 0.5, not 1"),
        ({"events": {"query_llm.failed": 0.5}}, "no row handles query_llm.failed"),
        ({"prices": {"query": 1.0}}, "no row of ordered emits 'query'"),
        (
            {"success": "nowhere"},
            "'nowhere' is not a final state of ordered; known here: 'escalated', 'failed', 'succeeded'",
        ),
    ],
)
def test_invalid_odds_are_refused_with_a_sentence(given, message):
    with pytest.raises(ParameterError) as refused:
        odds(ordered(2, 2), **{"passes": {"g": [0.5]}, **given})
    assert message in str(refused.value)


def test_odds_of_a_verdict_that_a_guard_cannot_give_are_refused():
    text = dsa.dumps(ordered(1, 1)).replace("| g     | verdict |", "| g     | verdict | passed, failed |")
    text = text.replace("| guard | judges  |\n| ----- | ------- |", "| guard | judges | verdicts |\n| - | - | - |")
    text = "\n".join(line for line in text.split("\n") if "g.fatal" not in line)
    text = text.replace("| escalated  | final   |\n", "")
    with pytest.raises(
        ParameterError, match=r"guard g never says fatal, so the odds of that verdict must be 0, not 0\.1"
    ):
        odds(loads(text), passes={"g": [0.5]}, fatals={"g": [0.1]})


def test_odds_is_a_public_name():
    assert dsa.odds(ordered(1, 0), passes={"g": [0.25]}).success.low == 0.25
