"""Odds of guards: by retry number, and combined from parts."""

import pytest

from dsa.checks.odds.markov_chain import Odds, guard_odds, left_over
from dsa.errors import ParameterError
from dsa.lang import loads


def machine(guards, guard="g"):
    return loads(f"""# m

## Guards
| guard | judges | is | options | verdicts | pass | fatal |
| ----- | ------ | -- | ------- | -------- | ---- | ----- |
{guards}

## States
| state | kind    |
| ----- | ------- |
| here  | initial |

## Transitions
| source | event | if | target |
| ------ | ----- | -- | ------ |
| here   | said  | {guard}.passed | = |
| here   | said  | else | = |
""")


def test_last_number_is_repeated_and_equal_numbers_need_no_memory():
    odds = Odds((0.5, 0.7), (0.1,))
    assert odds.at(0) == pytest.approx({"passed": 0.5, "failed": 0.4, "fatal": 0.1})
    assert odds.at(1) == odds.at(99)
    assert odds.memory == 2
    assert Odds((0.5, 0.5, 0.5), (0.1, 0.1)).memory == 1
    assert Odds((0.5,), (0.1, 0.2, 0.2)).memory == 2


@pytest.mark.parametrize(
    ("kind", "passed", "fatal"),
    [
        ("in_order | of = a, b", 0.8 * 0.5, 0.1 + 0.8 * 0.2),
        ("all | of = a, b", 0.8 * 0.5, 1 - 0.9 * 0.8),
        ("any | of = a, b", 0.9 * 0.8 - 0.1 * 0.3, 1 - 0.9 * 0.8),
        ("at_least | k = 2; of = a, b", 0.8 * 0.5, 1 - 0.9 * 0.8),
        ("a |", 0.8, 0.1),
    ],
)
def test_odds_of_parts_are_combined_as_the_composition_does(kind, passed, fatal):
    rows = f"| g | said | {kind} | | | |\n| a | | x | | | 0.8 | 0.1 |\n| b | | x | | | 0.5 | 0.2 |"
    odds = guard_odds(machine(rows)).odds["g"]
    assert (odds.passed[0], odds.fatal[0]) == pytest.approx((passed, fatal))


def test_composition_with_a_part_without_odds_has_no_odds():
    rows = "| g | said | all | of = a, b | | | |\n| a | | x | | | 0.8 | |\n| b | | x | | | | |"
    assert set(guard_odds(machine(rows)).odds) == {"a"}
    assert set(guard_odds(machine(rows), {"b": [0.5]}).odds) == {"a", "b", "g"}
    changing = rows.replace("0.8", "0.8, 0.9")
    assert "g" not in guard_odds(machine(changing), {"b": [0.5]}).odds  # a part's retry number is not the whole's


def test_guard_with_only_one_unknown_verdict_needs_no_more_odds():
    rows = "| g | said | x | | passed | | |\n| h | said | x | | passed, fatal | 0.9 | |"
    odds = guard_odds(machine(rows)).odds
    assert odds["g"].at(0)["passed"] == 1
    assert odds["h"].at(0)["fatal"] == pytest.approx(0.1)


@pytest.mark.parametrize("given", [{"g": [-0.1]}, {"g": [float("nan")]}, {"strange": [0.5]}])
def test_invalid_odds_are_refused(given):
    with pytest.raises(ParameterError):
        guard_odds(machine("| g | said | x | | | | |"), given)


@pytest.mark.parametrize(
    ("chances", "left"), [((0.7, 0.3), 0), ((0.57, 0.41, 0.02), 0), ((0.9, 0.1), 0), ((0.5, 0.25), 0.25)]
)
def test_decimals_that_add_up_to_1_leave_nothing(chances, left):
    assert left_over(*chances) == left
    assert left_over(*chances[::-1], 0) == left


def test_remainder_of_one_number_is_exact():
    rarely = 1 - 2**-53
    assert left_over(rarely) == left_over(rarely, 0) == 2**-53
    assert Odds((0.7,), (0.3,)).at(0)["failed"] == 0
