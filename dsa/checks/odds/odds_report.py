"""Odds reports: everything that `dsa odds` answers about one machine, as one frozen value, and as lines for people.

Takes a machine, assumptions, and recorded runs when there are any; reads no files and prints nothing. `cheapest_order` takes a Steps
machine and gives the order of steps with the least expected cost that every `requires` and `uses` allows: steps that are likely to stop the
workflow and cost little come first. Success does not depend on the order; what is spent on runs that fail does.
"""

from collections.abc import Mapping
from functools import cache
from math import ceil, isfinite
from typing import Unpack

import attrs

from dsa.checks.odds.chain_solver import OddsRange, number_text
from dsa.checks.odds.estimation import Estimate, GuardEstimate, Independence, RecordedAttempts, estimate, estimator
from dsa.checks.odds.retry_target import TargetResult, VariedParameter, curve, smallest, varied_parameter
from dsa.checks.odds.run_odds import CALL, SUCCESS_STATE, OddsAssumptions, Question, RunOdds, question
from dsa.declarations import StepRow
from dsa.expr import evaluate
from dsa.machine import Machine
from dsa.trace import align_rows, show_values

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
        return f"no odds are given for {', '.join(missing)}"
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


# --- the answer as text ---

#: Numbers from the first on are written in full, and from the second on with an exponent.
_LARGE, _HUGE = 1e5, 1e15
_ENDS = {"final": "", "waits": " (waits for an outside event)", "refused": " (refused: a fault of the table)"}


def answer_text(answer: OddsAnswer) -> str:
    """Return the answer as text: the numbers, the assumptions, and what is unknown."""
    assumptions = "\n".join(f"assumed: {sentence}" for sentence in answer.odds.assumptions)
    unknown = "\n".join(f"UNKNOWN: {sentence}" for sentence in unknown_sentences(answer))
    return "\n\n".join(filter(None, (numbers_text(answer), assumptions, unknown)))


def numbers_text(answer: OddsAnswer, *, has_notes: bool = True) -> str:
    """Return the numbers of the answer as text; without `has_notes`, without the sentence of `success_note`."""
    run_odds, blocks = answer.odds, []
    at = f" at {show_values(run_odds.parameters)}" if run_odds.parameters else ""
    blocks.append([f"{run_odds.machine}{at}: {run_odds.configurations} configurations"])
    if run_odds.is_known:
        note = success_note(answer) if has_notes else ""
        blocks.append(_ends(run_odds) + (["", note] if note else []))
    blocks.append(_effects(answer))
    if answer.estimate is not None:
        blocks.append(_estimate(answer.estimate))
    blocks.append(_target_lines(answer))
    return "\n\n".join("\n".join(block) for block in blocks if block)


def unknown_sentences(answer: OddsAnswer) -> list[str]:
    """Return what is not known, in sentences."""
    sentences = list(answer.odds.unknown)
    tests = answer.estimate.independence if answer.estimate else ()
    sentences += [
        f"attempts are not independent, so no bound holds: {test.finding}" for test in tests if test.is_broken
    ]
    return sentences


def _ends(run_odds: RunOdds) -> list[str]:
    rows = [("ends in", "probability")]
    rows += [(f"{end.state}{_ENDS.get(end.kind, '')}", _bounds(bounds)) for end, bounds in run_odds.ends]
    if run_odds.never_ends.high > 0:
        rows.append(("never", _bounds(run_odds.never_ends)))
    return list(align_rows(rows))


def success_note(answer: OddsAnswer) -> str:
    """Return a sentence that no run succeeds, or that no state counts as success; empty if some do."""
    success, machine = answer.odds.success, answer.question.system.machine
    if not answer.question.success:
        finals = ", ".join(sorted(machine.final_states | machine.ends.keys())) or "none"
        return f"no final state is called {SUCCESS_STATE}: name the state that counts as success with --success; final states: {finals}"
    if success is None or success.high > 0:
        return ""
    return f"success is 0, because no run ends in {' or '.join(answer.question.success)}"


def _effects(answer: OddsAnswer) -> list[str]:
    run_odds, most = answer.odds, dict(answer.estimate.most) if answer.estimate else {}
    bound_heading = f"expected, {_percent(answer.estimate.confidence)} bound" if answer.estimate else ""
    heading = (
        ("effect", "expected", bound_heading, "per success", "at most") if run_odds.is_known else ("effect", "at most")
    )
    rows: list[tuple[str, ...]] = []
    for effect in run_odds.effects:
        per = run_odds.per_success(effect.average)
        cells = (_bounds(effect.average), _number(most[effect.effect]) if most else "", _bounds(per) if per else "")
        rows.append((effect.effect, *(cells if run_odds.is_known else ()), _number(effect.worst)))
    if run_odds.prices:
        per = run_odds.per_success(run_odds.cost) if run_odds.cost else None
        cells = (_bounds(run_odds.cost) if run_odds.cost else "", "", _bounds(per) if per else "")
        rows.append(("cost", *(cells if run_odds.is_known else ()), _number(run_odds.worst_cost)))
    return list(align_rows([heading, *rows])) if rows else []


def _estimate(estimate: Estimate) -> list[str]:
    level = _percent(estimate.confidence)
    rows: list[tuple[str, ...]] = [("guard", "seen", "passed", f"{level} interval", "fatal", f"{level} interval")]
    rows += [_guard(guard) for guard in estimate.guards]
    point = estimate.point.success
    lines = [
        *align_rows(rows),
        "",
        f"success, from {estimate.runs} recorded runs: {_bounds(point) if point else 'not known'} at these rates",
        *_success_bounds(estimate, level),
    ]
    if estimate.if_fatal is not None:
        if_fatal = f"  at least {_number(estimate.if_fatal)} if guards that never were fatal may be fatal"
        lines.append(f"{if_fatal} (with --fatal, you assume that they are not)")
    if estimate.whole_runs is not None:
        lines.append(
            f"  at least {_number(estimate.whole_runs)} from the ends of whole runs alone, even if attempts are not independent"
        )
    lines += [f"  {_test(test)}" for test in estimate.independence]
    return [*lines, *(f"  {note}" for note in estimate.notes)]


def _success_bounds(estimate: Estimate, level: str) -> list[str]:
    low, high = estimate.interval
    if estimate.point.is_known and low == high:
        return [f"  {_number(low)} whatever the guards' odds are"]
    return [
        f"  at least {_number(estimate.lower)} with {level} confidence, if attempts are independent",
        f"  between {_number(low)} and {_number(high)} with {level} confidence",
    ]


def _guard(estimate: GuardEstimate) -> tuple[str, ...]:
    counts = estimate.counts
    intervals = [f"{_number(low)} to {_number(high)}" for low, high in (estimate.interval, estimate.fatal_interval)]
    fatal = f"{counts.fatal}" + ("" if counts.fatal_odds is None else f" (assumed {_number(counts.fatal_odds)})")
    return (counts.guard, str(counts.total), f"{counts.passed}", intervals[0], fatal, intervals[1])


def _test(test: Independence) -> str:
    if test.rare is None:
        return f"{test.question}: {test.finding}"
    return f"{test.question}: {test.finding} (p = {test.rare:.2g}, level {test.level:g})"


def _target_lines(answer: OddsAnswer) -> list[str]:
    lines = []
    if answer.target_result_at_point is not None and answer.estimate is not None:
        lines.append(f"{_target_text(answer.target_result_at_point)}, at the rates seen")
    if answer.target_result is not None:
        bound_text = f", by the {_percent(answer.estimate.confidence)} bound" if answer.estimate else ""
        lines.append(_target_text(answer.target_result) + bound_text)
    if answer.estimate is not None and answer.target is not None:
        lines.append(_missing(answer.estimate, answer.target))
    if isinstance(answer.order, Order):
        lines.append(_order(answer.order))
    return lines


def _missing(estimate: Estimate, target: float) -> str:
    if estimate.missing_runs == 0:
        return f"target {target:g}: these runs are enough for the bound"
    if estimate.missing_runs is None:
        return f"target {target:g}: no number of runs like these would be enough for the bound"
    return f"target {target:g}: the bound needs about {estimate.missing_runs} more runs like these"


def _target_text(result: TargetResult) -> str:
    start = f"target {result.target:g}"
    if result.answer == "reached" and result.odds is not None:
        name, cost = result.odds.main_cost
        success = result.odds.success
        success_text = _number(success.low) if success else ""
        return f"{start}: the smallest {result.parameter} is {result.value}, success {success_text}, {name} {_bounds(cost)}"
    if result.answer == "impossible":
        why = f" ({result.reason})" if result.reason else ""
        return f"{start}: impossible, ceiling {_number(result.ceiling or 0.0)}{why}"
    tends = f"; success tends to {_number(result.ceiling)}" if result.ceiling is not None else ""
    return f"{start}: UNKNOWN, {result.reason}{tends}"


def _order(order: Order) -> str:
    if order.best == order.now:
        return f"order of steps: {'no allowed order is cheaper' if order.is_exact else 'no cheaper order was found'}"
    saves = f"saves {_percent(order.share_saved)}: {_number(order.cost_best)} for {_number(order.cost_now)}"
    how = "the cheapest" if order.is_exact else "cheaper (the riskiest steps first; not all orders were compared)"
    return f"order of steps: {', '.join(order.best)} is {how}, {saves}"


def _bounds(odds_range: OddsRange) -> str:
    low, high = _number(odds_range.low), _number(odds_range.high)
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    if not isfinite(value):
        return "no bound"
    return f"{value:.0f}" if _LARGE <= value < _HUGE else number_text(value, 5)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if f"{100 * share:.3g}" != "100" or share == 1 else f"{100 * share:.10g} %"
