"""Odds from recorded runs: valid bounds, and the number of missing runs."""

import random

import pytest
from odds_documents import ceiling, chain, closed_form
from odds_worlds import World

from dsa.checks.odds.estimation import BoundedOdds, Counts, RecordedAttempts, VerdictSample, estimate, estimator
from dsa.checks.odds.odds_report import odds_answer
from dsa.errors import ParameterError

FIVE = chain(*(f"s{number}" for number in range(5)))


def seen(passed, total, *, fatal=0, steps=5):
    """Return `total` recorded attempts of each step, in runs of one attempt per step."""
    outcomes = ["passed"] * passed + ["fatal"] * fatal + ["failed"] * (total - passed - fatal)
    attempts = [
        VerdictSample(str(run), f"s{step}", 0, outcome) for run, outcome in enumerate(outcomes) for step in range(steps)
    ]
    return RecordedAttempts(tuple(attempts), tuple(map(str, range(total))))


def found(machine, runs, *, target=None, **given):
    return estimate(estimator(machine, runs, **given), runs, target=target)


def test_fifty_attempts_per_step_give_the_expected_bound():
    result = found(FIVE, seen(35, 50), confidence=0.95)
    assert result.point.success.low == pytest.approx(0.960, abs=5e-4)
    assert result.lower == pytest.approx(0.775, abs=5e-4)
    beta = pytest.importorskip("scipy.stats").beta
    assert result.lower == pytest.approx((1 - (1 - beta.ppf(0.05 / 5, 35, 16)) ** 4) ** 5, abs=1e-9)
    low, high = result.interval
    assert low < result.lower < result.point.success.low < high


def test_bound_is_lower_if_unseen_fatal_verdicts_are_possible():
    result = found(FIVE, seen(35, 50))
    assert result.if_fatal < 0.5 < result.lower
    assert found(FIVE, seen(35, 50), fatals={f"s{i}": [0.0] for i in range(5)}).lower == result.lower


def test_fatal_verdicts_that_were_seen_are_bounded_too():
    once = found(FIVE, seen(35, 50, fatal=1))
    assert once.if_fatal is None
    assert once.point.success.low == pytest.approx(closed_form([(0.7, 0.02)] * 5, 3)[0])
    assert once.lower < found(FIVE, seen(35, 50)).lower


def test_more_confidence_and_fewer_runs_give_lower_bounds():
    bounds = [found(FIVE, seen(35, 50), confidence=level).lower for level in (0.5, 0.9, 0.99)]
    assert bounds == sorted(bounds, reverse=True)
    assert found(FIVE, seen(350, 500)).lower > found(FIVE, seen(35, 50)).lower


def test_missing_runs_bring_the_bound_to_the_target_and_fewer_do_not():
    runs = seen(35, 50)
    result = found(FIVE, runs, target=0.9)
    this = estimator(FIVE, runs)
    enough = 50 + result.missing_runs
    assert this.bounded_question(scale=enough / 50).success_at() >= 0.9
    assert this.bounded_question(scale=(enough - 10) / 50).success_at() < 0.9
    assert found(FIVE, runs, target=0.7).missing_runs == 0
    assert found(FIVE, runs, target=0.97).missing_runs is None


def test_target_above_the_ceiling_of_the_bound_is_impossible():
    runs = seen(30, 50, fatal=5)
    answer = odds_answer(FIVE, target=0.9, record=runs)
    assert answer.target_result.answer == "impossible"
    assert (
        answer.target_result.ceiling < ceiling([(0.6, 0.1)] * 5) == pytest.approx(answer.target_result_at_point.ceiling)
    )
    assert answer.failed


def test_expected_calls_are_bounded_from_above():
    result = found(FIVE, seen(35, 50))
    most = dict(result.most)["query_llm"]
    assert result.point.effect("query_llm").average.low < most < 20


def test_guard_without_a_record_needs_assumed_odds():
    runs = seen(35, 50, steps=4)
    with pytest.raises(ParameterError, match="no verdict of guard s4 is recorded"):
        estimator(FIVE, runs)
    given = found(FIVE, runs, passes={"s4": [1.0]})
    assert given.lower > found(FIVE, seen(35, 50)).lower


def test_ends_of_whole_runs_have_their_own_bound():
    runs = RecordedAttempts(seen(35, 50).attempts, tuple(map(str, range(50))), {"succeeded": 48, "failed": 2})
    beta = pytest.importorskip("scipy.stats").beta
    assert found(FIVE, runs).whole_runs == pytest.approx(beta.ppf(0.05, 48, 3), abs=1e-9)
    assert found(FIVE, seen(35, 50)).whole_runs is None


def _covered(world, machine, worlds, seed):
    truth = closed_form([(world.passes, world.fatal)] * world.steps, world.rmax)[0]
    rng = random.Random(seed)
    covered = 0
    for _ in range(worlds):
        runs = world.recorded(rng)
        covered += estimator(machine, runs).bounded_question().success_at() <= truth
    return covered


@pytest.mark.parametrize("world", [World(20, 2), World(40, 2, fatal=0.03), World(15, 1, passes=0.4)], ids=str)
def test_bound_covers_the_truth(world):
    machine = chain(*(f"s{number}" for number in range(world.steps)))
    assert _covered(world, machine, 80, seed=11) >= 0.95 * 80


@pytest.mark.full
@pytest.mark.parametrize(
    ("world", "worlds"),
    [
        (World(50, 5), 1_000),
        (World(20, 2), 1_000),
        (World(30, 3, passes=0.5), 300),
        (World(50, 5, fatal=0.01), 300),
        (World(40, 3, fatal=0.05), 300),
        (World(60, 1, passes=0.2), 300),
    ],
    ids=str,
)
def test_bound_covers_the_truth_in_many_worlds(world, worlds):
    machine = chain(*(f"s{number}" for number in range(world.steps)))
    assert _covered(world, machine, worlds, seed=7) >= 0.95 * worlds


def test_corners_are_odds_and_span_the_bounds():
    corners = BoundedOdds((0.4, 1.0), (0.0, 0.3)).corners(0)
    assert all(sum(corner.values()) == pytest.approx(1) for corner in corners)
    points = {(round(c["passed"], 9), round(c["fatal"], 9)) for c in corners}
    assert points == {(0.4, 0.0), (0.4, 0.3), (1.0, 0.0), (0.7, 0.3)}


def test_counts_report_how_many_odds_they_bound():
    assert Counts("g", 3, 2, 0, fatal_odds=0.0).bounds == 1
    assert Counts("g", 3, 2, 1).bounds == 2
    assert Counts("g", 3, 2, 1).at_scale(2.5) == Counts("g", 8, 5, 2)


@pytest.mark.parametrize(
    ("given", "message"), [({"confidence": 1.0}, "not a confidence"), ({"fatals": {"s0": [0.1, 0.2]}}, "one number")]
)
def test_invalid_options_are_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        estimator(FIVE, seen(35, 50), **given)
