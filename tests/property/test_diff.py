"""`dsa diff` compared with `fits`, which walks through everything: it calls a run compatible exactly when it is."""

import random
from collections import Counter
from itertools import count

import fits
import pytest
from crowds import crowded_machines
from edits import edited, in_flight
from family_documents import family_machines
from hypothesis import HealthCheck, Phase, given, seed, settings
from property.test_driver import BUSY_MACHINES

from dsa.checks.document_diff import changes, same_control
from dsa.checks.equivalence import Pair, compare
from dsa.checks.search.engine import SearchLimits
from dsa.edge.document_files import load
from dsa.runs.migration import FitJudge
from dsa.semantics import Taken, step
from dsa.testing.strategies import machines

LIMITS = SearchLimits(100_000)
RUNS = 20
#: With the number of edits.
SHIPPED = (("dual_state", 25), ("workflow", 8), ("examples/polling", 25))


def require_parting_is_real(old, new, here, parting):
    """Both take the way alike; what comes then they take otherwise."""
    at = list(here)
    for occurrence in parting.way:
        taken = [step(machine, one, occurrence) for machine, one in zip((old, new), at, strict=True)]
        assert all(isinstance(each, Taken) for each in taken)
        at = [each.configuration for each in taken]
    assert [parting.old.here, parting.new.here] == at
    told = [
        (
            r.outcome
            if not isinstance(r.outcome, Taken)
            else (r.outcome.effects, r.outcome.cancelled, r.outcome.configuration),
            r.words,
        )
        for r in (parting.old, parting.new)
    ]
    timers = (parting.old.timers_started, parting.new.timers_started, parting.old.ends, parting.new.ends)
    assert told[0] != told[1] or len(set(timers[:2])) + len(set(timers[2:])) > 2


def require_right(old, new, chance, runs, seen):
    fitting = FitJudge(new, LIMITS)
    pair = Pair(old, new)
    try:
        apart = fits.told_apart(old, new, *pair.start)
    except fits.TooLargeError:
        return
    found = compare(pair, pair.start, LIMITS)
    assert found.verdict == ("EQUAL" if apart is None else "DIFFERENT")
    if found.divergence is not None:
        steps = len(found.divergence.way) + (found.divergence.occurrence is not None)
        assert steps == apart
        require_parting_is_real(old, new, pair.start, found.divergence)
    if same_control(changes(old, new)):
        assert found.verdict == "EQUAL"
        seen["same control"] += 1
    seen[found.verdict] += 1
    for _ in range(runs):
        run = in_flight(old, chance)
        fit = fitting.judge(run)
        try:
            expected = fits.fits(old, new, run.ledger)
        except fits.TooLargeError:
            continue
        assert fit.verdict == ("compatible" if expected else "incompatible"), (fit.why, fit.difference, fit.trouble)
        kind = "by history" if fit.difference else "by fault" if fit.trouble else "by place" if fit.why else ""
        seen[f"{fit.verdict} {kind}".strip()] += 1
        if expected:
            apart = fits.told_apart(old, new, run.configuration, fits.where(new, run.ledger))
            assert fit.future.verdict == ("EQUAL" if apart is None else "DIFFERENT")
            seen[f"compatible, {fit.future.verdict}"] += 1


def edit_and_compare(machine, number, runs, seen):
    chance = random.Random(number)
    name, new = edited(machine, chance)
    seen[f"edit {name}"] += 1
    require_right(machine, new, chance, runs, seen)


@pytest.mark.parametrize(("name", "edits"), SHIPPED)
def test_diff_is_right_for_edits_of_shipped_machines(name, edits):
    machine, seen = load(name), Counter()
    for number in range(edits):
        edit_and_compare(machine, number, 6, seen)
    assert seen["compatible"] > edits
    assert seen["incompatible by history"] > 0


def require_every_kind(seen):
    for kind in (
        "compatible, EQUAL",
        "compatible, DIFFERENT",
        "incompatible by history",
        "incompatible by fault",
        "incompatible by place",
        "EQUAL",
        "DIFFERENT",
        "same control",
    ):
        assert seen[kind] > 3, seen


def run_many(examples, runs):
    """Edit `examples` random machines, and a quarter as many with many effects at once; each edit has its own seed."""
    seen, numbers = Counter(), count()

    @seed(20260131)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(machines(claims=False) | crowded_machines() | family_machines())
    def compare_one(machine):
        edit_and_compare(machine, next(numbers), runs, seen)

    compare_one()
    for number in range(examples // 4):
        edit_and_compare(BUSY_MACHINES[number % len(BUSY_MACHINES)], number, runs, seen)
    require_every_kind(seen)


def test_diff_is_right_for_edits_of_any_machine():
    run_many(24, 5)


@pytest.mark.full
def test_diff_is_right_for_three_hundred_edits_with_twenty_runs_each():
    run_many(300, RUNS)
