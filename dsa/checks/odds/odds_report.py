"""Odds reports: everything that `dsa odds` answers about one machine, as one frozen value.

Takes a machine, assumptions, and recorded runs when there are any; reads no files and prints nothing. `cheapest_order` takes a Steps
machine and gives the order of steps with the least expected cost that every `requires` and `uses` allows: steps that are likely to stop the
workflow and cost little come first. Success does not depend on the order; what is spent on runs that fail does.
"""

from collections.abc import Mapping
from functools import cache
from math import ceil
from typing import Unpack

import attrs

from dsa.checks.odds.estimation import Estimate, RecordedAttempts, estimate, estimator
from dsa.checks.odds.retry_target import TargetResult, VariedParameter, curve, smallest, varied_parameter
from dsa.checks.odds.run_odds import CALL, OddsAssumptions, Question, RunOdds, question
from dsa.declarations import StepRow
from dsa.expr import evaluate
from dsa.machine import Machine

#: With more steps than this the order is built step by step, the riskiest ready one first.
MOST_EXACT = 14
_PER_ATTEMPT = (CALL, "execute_guard")
#: The number of values that are plotted after the smallest one, and the most points.
_PLOT_SPAN, _MOST_POINTS = 10, 60


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
    def share_saved(self) -> float:
        """The share of the cost that the best order saves."""
        return 1 - self.cost_best / self.cost_now if self.cost_now else 0.0


@attrs.frozen
class _Step:
    """What one step does to a run: it goes on with probability `passes`, and costs `cost` on average."""

    passes: float
    cost: float


def cheapest_order(question: Question) -> Order | str:
    """Return the cheapest order of a Steps machine's steps, or a sentence that says why there is none."""
    machine = question.system.machine
    if not machine.steps:
        return "only documents with Steps have an order of steps"
    if machine.goal is not None or any(step.optional for step in machine.steps):
        return "with a Goal or optional steps, no order is compared"
    if missing := [step.name for step in machine.steps if step.name not in question.world.guards]:
        return f"no odds of {', '.join(missing)}"
    steps = {step.name: _step(question, step.name) for step in machine.steps}
    now = _table_order(machine)
    if now is None:
        return "some steps can never start"
    exact = len(steps) <= MOST_EXACT
    best = _exact(machine, steps) if exact else _riskiest(machine, steps)
    cost_now, cost_best = _cost(now, steps), _cost(best, steps)
    if cost_best >= cost_now * (1 - 1e-12):
        best, cost_best = now, cost_now
    return Order(now, best, cost_now, cost_best, exact)


def _step(question: Question, name: str) -> _Step:
    """Add up a step's attempts: each retry is made when all before it have failed."""
    prices: Mapping[str, float] = question.prices or {CALL: 1.0}
    attempt = sum(prices.get(effect, 0.0) for effect in _PER_ATTEMPT)
    max_retries = question.system.machine.constants[f"rmax.{name}"]
    assert isinstance(max_retries, int), "rmax is a number"
    passes = cost = 0.0
    here = 1.0
    for retry in range(max_retries + 1):
        (odds,) = question.world.guards[name].corners(retry)
        cost += here * (attempt + odds["failed"] * prices.get("refine_context", 0.0))
        passes += here * odds["passed"]
        here *= odds["failed"]
    return _Step(passes, cost)


def _ready(machine: Machine, done_steps: frozenset[str]) -> list[str]:
    return [
        step.name for step in machine.steps if step.name not in done_steps and _may_start(machine, step, done_steps)
    ]


def _may_start(machine: Machine, step: StepRow, done_steps: frozenset[str]) -> bool:
    if not done_steps.issuperset(name for _, name in step.uses):
        return False
    if isinstance(step.requires, tuple):
        return done_steps.issuperset(step.requires)
    return evaluate(step.requires, {other.name: other.name in done_steps for other in machine.steps}) is True


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
    def left(done_steps: frozenset[str]) -> tuple[float, tuple[str, ...]]:
        if len(done_steps) == len(steps):
            return 0.0, ()
        candidates = [(float("inf"), tuple(steps))]
        for name in _ready(machine, done_steps):
            cost, rest = left(done_steps | {name})
            if cost < float("inf"):
                candidates.append((steps[name].cost + steps[name].passes * cost, (name, *rest)))
        return min(candidates, key=lambda each: each[0])  # of equal costs the table's first

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
    """The odds, and the answers beside them.

    With recorded runs the odds are those at the rates seen, and `estimate` has the bounds; `target_result` is then
    about the lower bound of success, `target_result_at_point` about the rates seen. `order` is None where there are no
    numbers to order by, a sentence where no order is looked for.
    """

    question: Question
    odds: RunOdds
    order: Order | str | None
    target: float | None = None
    target_result: TargetResult | None = None
    estimate: Estimate | None = None
    target_result_at_point: TargetResult | None = None

    @property
    def failed(self) -> bool:
        """Return whether something is unknown, or a target missed: by the bound, where there is one."""
        if self.odds.unknown or (self.target_result is not None and self.target_result.answer != "reached"):
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
    record: RecordedAttempts | None = None,
    confidence: float = 0.95,
    **assumptions: Unpack[OddsAssumptions],
) -> OddsAnswer:
    """Answer everything at once; the arguments are those of `odds` and of `estimator`. Raises ParameterError."""
    if record is not None:
        this = estimator(machine, record, confidence=confidence, **assumptions)
        run_estimate = estimate(this, record, target=target)
        point_question, bound_question = this.point(), this.bounded_question()
    else:
        run_estimate = None
        point_question = bound_question = question(machine, **assumptions)
    what = None if target is None else varied_parameter(machine, vary)
    run_odds = point_question.at()
    return OddsAnswer(
        point_question,
        run_odds,
        cheapest_order(point_question) if run_odds.is_known else None,
        target,
        None if what is None or target is None else smallest(bound_question, target, what),
        run_estimate,
        None if what is None or target is None or run_estimate is None else smallest(point_question, target, what),
    )


def plotted_curve(
    answer: OddsAnswer, vary: str | None = None
) -> tuple[VariedParameter, tuple[tuple[int, RunOdds], ...]]:
    """Return the parameter of a plot, and the odds at its values from the smallest on, where all are known. Raises ParameterError.

    Values at which the table has a fault are left out.
    """
    what = varied_parameter(answer.question.system.machine, vary)
    last = what.low + _PLOT_SPAN
    if answer.target_result is not None and answer.target_result.value is not None:
        last = max(last, answer.target_result.value + 2)
    last = last if what.high is None else min(last, what.high)
    values = {*range(what.low, last + 1, ceil((last - what.low) / _MOST_POINTS) or 1), last}
    points = tuple(
        (value, run_odds)
        for value, run_odds in curve(answer.question, what, sorted(values))
        if run_odds.success is not None
        and run_odds.is_known
        and not any(end.kind == "refused" for end, _ in run_odds.ends)
    )
    return what, points
