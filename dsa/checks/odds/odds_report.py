"""The cheapest order of a workflow's steps: those likely to stop it, for little, come first.

Takes a Steps machine and the odds of its guards, gives the order with the least expected cost that every `requires` and `uses` allows.
Success does not depend on the order; what is spent on runs that fail does.

Everything `dsa odds` answers about one machine, as one frozen value.

Takes a machine, assumptions, and recorded runs when there are any; reads no files and prints nothing.
"""

from collections.abc import Mapping
from functools import cache
from typing import Unpack

import attrs

from dsa.checks.odds.estimation import Estimate, RecordedAttempts, estimate, estimator
from dsa.checks.odds.retry_target import TargetResult, smallest, varied
from dsa.checks.odds.run_odds import CALL, OddsAssumptions, Question, RunOdds, question
from dsa.declarations import StepRow
from dsa.expr import evaluate
from dsa.machine import Machine

#: With more steps than this the order is built step by step, the riskiest ready one first.
MOST_EXACT = 14
_PER_ATTEMPT = (CALL, "execute_guard")


@attrs.frozen
class Order:
    """The cheapest order beside the table's, with what a run costs on average in each.

    Costs are in the prices of `query_llm`, `execute_guard` and `refine_context`; without prices, in calls of `query_llm`. `is_exact`:
    every allowed order has been compared.
    """

    now: tuple[str, ...]
    best: tuple[str, ...]
    cost_now: float
    cost_best: float
    is_exact: bool

    @property
    def saving(self) -> float:
        """The share of the cost that the best order saves."""
        return 1 - self.cost_best / self.cost_now if self.cost_now else 0.0


@attrs.frozen
class _Step:
    """What one step does to a run: it goes on with probability `passes`, and costs so much on average."""

    passes: float
    cost: float


def cheapest_order(asked: Question) -> Order | str:
    """Find the cheapest order of a Steps machine's steps; otherwise say why there is none to give."""
    machine = asked.system.machine
    if not machine.steps:
        return "the order of steps is looked at in documents with Steps"
    if machine.goal is not None or any(step.optional for step in machine.steps):
        return "with a Goal or optional steps, the order is not looked at"
    if missing := [step.name for step in machine.steps if step.name not in asked.world.guards]:
        return f"no odds of {', '.join(missing)}"
    steps = {step.name: _step(asked, step.name) for step in machine.steps}
    now = _table_order(machine)
    if now is None:
        return "some steps can never start"
    exact = len(steps) <= MOST_EXACT
    best = _exact(machine, steps) if exact else _riskiest(machine, steps)
    cost_now, cost_best = _cost(now, steps), _cost(best, steps)
    if cost_best >= cost_now * (1 - 1e-12):
        best, cost_best = now, cost_now
    return Order(now, best, cost_now, cost_best, exact)


def _step(asked: Question, name: str) -> _Step:
    """Add up a step's attempts: each retry is made when all before it have failed."""
    prices: Mapping[str, float] = asked.prices or {CALL: 1.0}
    attempt = sum(prices.get(effect, 0.0) for effect in _PER_ATTEMPT)
    bound = asked.system.machine.constants[f"rmax.{name}"]
    assert isinstance(bound, int), "rmax is a number"
    passes = cost = 0.0
    here = 1.0
    for retry in range(bound + 1):
        (odds,) = asked.world.guards[name].corners(retry)
        cost += here * (attempt + odds["failed"] * prices.get("refine_context", 0.0))
        passes += here * odds["passed"]
        here *= odds["failed"]
    return _Step(passes, cost)


def _ready(machine: Machine, done: frozenset[str]) -> list[str]:
    return [step.name for step in machine.steps if step.name not in done and _may_start(machine, step, done)]


def _may_start(machine: Machine, step: StepRow, done: frozenset[str]) -> bool:
    if not done.issuperset(used for _, used in step.uses):
        return False
    if isinstance(step.requires, tuple):
        return done.issuperset(step.requires)
    return evaluate(step.requires, {other.name: other.name in done for other in machine.steps}) is True


def _table_order(machine: Machine) -> tuple[str, ...] | None:
    order: list[str] = []
    while len(order) < len(machine.steps):
        ready = _ready(machine, frozenset(order))
        if not ready:
            return None
        order.append(ready[0])
    return tuple(order)


def _cost(order: tuple[str, ...], steps: Mapping[str, _Step]) -> float:
    total, here = 0.0, 1.0
    for name in order:
        total += here * steps[name].cost
        here *= steps[name].passes
    return total


def _exact(machine: Machine, steps: Mapping[str, _Step]) -> tuple[str, ...]:
    """Compare all allowed orders: what is left to pay depends only on which steps are done."""

    @cache
    def left(done: frozenset[str]) -> tuple[float, tuple[str, ...]]:
        if len(done) == len(steps):
            return 0.0, ()
        found = [(float("inf"), tuple(steps))]
        for name in _ready(machine, done):
            cost, rest = left(done | {name})
            if cost < float("inf"):
                found.append((steps[name].cost + steps[name].passes * cost, (name, *rest)))
        return min(found, key=lambda each: each[0])  # of equal costs the table's first

    return left(frozenset())[1]


def _riskiest(machine: Machine, steps: Mapping[str, _Step]) -> tuple[str, ...]:
    """Take of the ready steps the one that is likeliest to stop the run for its cost: (1 - passes) / cost, descending."""
    order: list[str] = []
    while len(order) < len(steps):
        ready = _ready(machine, frozenset(order))
        order.append(max(ready, key=lambda name: (1 - steps[name].passes) / (steps[name].cost or 1e-300)))
    return tuple(order)


@attrs.frozen
class OddsAnswer:
    """The odds, and what was asked beside them.

    With recorded runs the odds are those at the rates seen, and `estimate` has the bounds; `needed` is then over the lower bound
    of success, `needed_at_point` at the rates seen. `order` is None where there are no numbers to order by, a sentence where
    no order is looked for.
    """

    asked: Question
    reckoning: RunOdds
    order: Order | str | None
    target: float | None = None
    needed: TargetResult | None = None
    estimate: Estimate | None = None
    needed_at_point: TargetResult | None = None

    @property
    def failed(self) -> bool:
        """Return whether something is unknown, or a target missed: by the bound, where there is one."""
        if self.reckoning.unknown or (self.needed is not None and self.needed.answer != "reached"):
            return True
        if self.estimate is None:
            return False
        short = self.target is not None and self.estimate.lower < self.target
        return short or any(test.is_broken for test in self.estimate.independence)


def odds_answer(
    machine: Machine,
    *,
    target: float | None = None,
    vary: str | None = None,
    seen: RecordedAttempts | None = None,
    confidence: float = 0.95,
    **given: Unpack[OddsAssumptions],
) -> OddsAnswer:
    """Answer everything at once; the arguments are those of `odds` and of `estimator`. Raises OddsError."""
    if seen is not None:
        this = estimator(machine, seen, confidence=confidence, **given)
        found = estimate(this, seen, target=target)
        asked, bounded = this.point(), this.bounded()
    else:
        found = None
        asked = bounded = question(machine, **given)
    what = None if target is None else varied(machine, vary)
    reckoning = asked.at()
    return OddsAnswer(
        asked,
        reckoning,
        cheapest_order(asked) if reckoning.known else None,
        target,
        None if what is None or target is None else smallest(bounded, target, what),
        found,
        None if what is None or target is None or found is None else smallest(asked, target, what),
    )
