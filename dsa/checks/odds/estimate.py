"""Odds from recorded runs: points, and bounds that hold together at a stated confidence.

Takes a machine and recorded attempts, gives an `Estimate`. Each guard's odds are bounded exactly (Clopper-Pearson), the risks of all
these bounds add up to what is allowed (Bonferroni), and the bound on success is its least value over all odds within them: at every
verdict anything may be true that the bounds allow, so it is valid for any machine.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import ceil
from typing import Unpack

import attrs

from dsa.checks.odds.assumed import Numbers, OddsError, left_over
from dsa.checks.odds.averages import Bounds
from dsa.checks.odds.binomial import at_least, at_most
from dsa.checks.odds.chain import Says
from dsa.checks.odds.reckon import Given, Question, Reckoning, question
from dsa.checks.odds.recorded import Attempt, Independence, Recorded, independence
from dsa.expr import Outcome
from dsa.machine import Machine

_MOST_SCALE = 1 << 20


@attrs.frozen
class Counts:
    """What one guard said in all recorded runs. `fatal_odds` are assumed, and so not estimated, unless None."""

    guard: str
    passed: int
    failed: int
    fatal: int
    fatal_odds: float | None = None

    @property
    def seen(self) -> int:
        """How many verdicts there are."""
        return self.passed + self.failed + self.fatal

    @property
    def bounds(self) -> int:
        """How many odds of this guard are estimated: those of passing, and those of fatal unless they are assumed."""
        return 1 if self.fatal_odds is not None else 2

    def scaled(self, times: float) -> "Counts":
        """Give the counts of so many times as much of the same."""
        passed, failed, fatal = (round(count * times) for count in (self.passed, self.failed, self.fatal))
        return attrs.evolve(self, passed=passed, failed=failed, fatal=fatal)


@attrs.frozen
class Within:
    """A guard's odds when only bounds on them are known, the same for every retry number."""

    passed: tuple[float, float]
    fatal: tuple[float, float]
    memory: int = 1
    is_memoryless: bool = False

    def corners(self, retry: int) -> tuple[dict[Outcome, float], ...]:  # noqa: ARG002  (the same for every retry)
        """Give the corners of the odds that the bounds allow, each of which adds up to 1."""
        found: dict[tuple[float, float], dict[Outcome, float]] = {}
        for passed, fatal in product(self.passed, self.fatal):
            over = max(0.0, passed + fatal - 1)
            for less in ((0.0, over), (over, 0.0)):
                p, q = passed - less[0], fatal - less[1]
                if p >= self.passed[0] - 1e-15 and q >= self.fatal[0] - 1e-15:
                    found[p, q] = {"passed": p, "failed": left_over(p, q), "fatal": q}
        return tuple(found.values())


@attrs.frozen
class GuardEstimate:
    """One guard's counts, its point, and the interval of its odds of passing and of fatal at the confidence."""

    counts: Counts
    passed: float
    interval: tuple[float, float]
    fatal: float
    fatal_interval: tuple[float, float]


@attrs.frozen
class Estimate:
    """What recorded runs say of a machine.

    `point` is at the rates seen. `lower` bounds success from below at `confidence`; `interval` has it on both sides. `most` bounds
    how often each effect is expected. `if_fatal` is the lower bound when what was never seen to be fatal may yet be.
    `whole_runs` is the lower bound from the recorded runs' ends alone, which needs no independence within runs (None when no ends
    are known). `missing_runs` says how many more runs like these bring the bound to the target: None when none does, or without a
    target.
    """

    point: Reckoning
    confidence: float
    guards: tuple[GuardEstimate, ...]
    runs: int
    lower: float
    interval: tuple[float, float]
    if_fatal: float | None
    whole_runs: float | None
    most: tuple[tuple[str, float], ...]
    independence: tuple[Independence, Independence]
    missing_runs: int | None = None
    notes: tuple[str, ...] = ()


@attrs.frozen
class Estimator:
    """Counts of a machine's guards, ready to be asked at parameter values."""

    asked: Question
    counts: tuple[Counts, ...]
    confidence: float
    given: Mapping[str, Says]

    def bounded(self, *, sides: int = 1, scale: float = 1.0, fatal: bool = False) -> Question:
        """Give the question with bounds for odds: from below on passing and from above on fatal, or on both sides.

        With `fatal`, also what was assumed never to be fatal is bounded by what was seen.
        """
        counts = [count.scaled(scale) for count in self.counts]
        counts = [attrs.evolve(count, fatal_odds=None) if fatal else count for count in counts]
        risk = (1 - self.confidence) / (sides * max(1, sum(count.bounds for count in counts)))
        guards = {count.guard: _within(count, risk, both=sides == 2) for count in counts}  # noqa: PLR2004
        return attrs.evolve(self.asked, world=attrs.evolve(self.asked.world, guards={**self.given, **guards}))

    def point(self) -> Question:
        """Give the question at the rates seen."""
        points = {count.guard: _point(count) for count in self.counts}
        return attrs.evolve(self.asked, world=attrs.evolve(self.asked.world, guards={**self.given, **points}))


def _within(count: Counts, risk: float, *, both: bool) -> Within:
    passed = (at_least(count.passed, count.seen, risk), at_most(count.passed, count.seen, risk) if both else 1.0)
    if count.fatal_odds is not None:
        fatal = (count.fatal_odds, count.fatal_odds)
        return Within((min(passed[0], 1 - fatal[0]), max(min(passed[1], 1 - fatal[0]), 0.0)), fatal)
    least = at_least(count.fatal, count.seen, risk) if both else 0.0
    return Within(passed, (least, at_most(count.fatal, count.seen, risk)))


def estimator(machine: Machine, seen: Recorded, *, confidence: float = 0.95, **given: Unpack[Given]) -> Estimator:
    """Count what each guard that can be asked has said; a guard with `passes` keeps these.

    Odds of fatal that are given or declared are taken as they are; else they are estimated where fatal was seen, and 0 where it
    never was. Raises OddsError for a guard that can be asked, and has neither said anything nor been given odds.
    """
    if not 0 < confidence < 1:
        raise OddsError(f"{confidence:g} is no confidence: it lies between 0 and 1")
    free = question(machine, **given)
    asked = attrs.evolve(free, world=attrs.evolve(free.world, guards={})).chain().missing
    fixed: dict[str, Says] = {name: free.world.guards[name] for name in given.get("passes") or {}}
    fatals = given.get("fatals") or {}
    counts = tuple(_counts(machine, seen.attempts, name, fatals) for name in asked if name not in fixed)
    for count in counts:
        if not count.seen:
            raise OddsError(
                f"no verdict of guard {count.guard} is recorded: record at least one run that asks it, or give --pass "
                f"{count.guard}=0.7"
            )
    return Estimator(free, counts, confidence, fixed)


def _counts(machine: Machine, attempts: Sequence[Attempt], guard: str, fatals: Mapping[str, Numbers]) -> Counts:
    said = [attempt.outcome for attempt in attempts if attempt.guard == guard]
    passed, failed, fatal = (said.count(outcome) for outcome in ("passed", "failed", "fatal"))
    declared = tuple(fatals.get(guard, machine.guard_named[guard].fatal_odds))
    if len(set(declared)) > 1:
        raise OddsError(f"beside recorded runs, fatal of guard {guard} has one number for all retries")
    assumed = declared[0] if declared else 0.0
    return Counts(guard, passed, failed, fatal, None if fatal and not declared else assumed)


def estimate(this: Estimator, seen: Recorded, *, target: float | None = None) -> Estimate:
    """Work out points, intervals and bounds, at the machine's parameter values."""
    estimated = {count.guard for count in this.counts}
    point = this.point().at()
    low = this.bounded().at()
    wide = this.bounded(sides=2).at()
    success, both = low.success or Bounds(0.0, 1.0), wide.success or Bounds(0.0, 1.0)
    guards = this.asked.system.machine.guard_named
    quiet = any(count.fatal_odds == 0 and "fatal" in guards[count.guard].outcomes for count in this.counts)
    return Estimate(
        point,
        this.confidence,
        tuple(_guard(count, this.confidence) for count in this.counts),
        len(seen.runs),
        success.low,
        (both.low, both.high),
        this.bounded(fatal=True).success_at() if quiet and point.known else None,
        _whole_runs(this, seen),
        tuple((effect.effect, effect.expected.high) for effect in low.effects),
        independence([a for a in seen.attempts if a.guard in estimated]),
        None if target is None else missing_runs(this, len(seen.runs), point, success.low, target),
        seen.notes,
    )


def _point(count: Counts) -> Within:
    fatal = count.fatal / count.seen if count.fatal_odds is None else count.fatal_odds
    passed = min(count.passed / count.seen, 1 - fatal)
    return Within((passed, passed), (fatal, fatal))


def _guard(count: Counts, confidence: float) -> GuardEstimate:
    risk = (1 - confidence) / 2
    sides = [(at_least(n, count.seen, risk), at_most(n, count.seen, risk)) for n in (count.passed, count.fatal)]
    return GuardEstimate(count, count.passed / count.seen, sides[0], count.fatal / count.seen, sides[1])


def _whole_runs(this: Estimator, seen: Recorded) -> float | None:
    total = sum(seen.ended.values())
    good = sum(count for state, count in seen.ended.items() if state in this.asked.success)
    return at_least(good, total, 1 - this.confidence) if total else None


def missing_runs(this: Estimator, runs: int, point: Reckoning, lower: float, target: float) -> int | None:
    """Say how many more runs at the same rates bring the lower bound to the target: 0 when it is there, None when none does."""
    if lower >= target:
        return 0
    if point.success is None or point.success.low <= target or not runs:
        return None

    def enough(total: int) -> bool:
        return this.bounded(scale=total / runs).success_at() >= target

    low = high = runs
    while not enough(high):
        low, high = high, high * 2
        if high > runs * _MOST_SCALE:
            return None
    while high - low > 1:
        middle = ceil((low + high) / 2)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high - runs
