"""Odds as text: the numbers of an answer, its assumptions, and what is unknown, in lines for people."""

from math import isfinite

from dsa.checks.odds.chain_solver import OddsRange, number_text
from dsa.checks.odds.estimation import Estimate, GuardEstimate, Independence
from dsa.checks.odds.odds_report import OddsAnswer, Order
from dsa.checks.odds.retry_target import TargetResult
from dsa.checks.odds.run_odds import SUCCESS_STATE, RunOdds
from dsa.trace import align_rows, show_values

#: Numbers from the first on are written in full, and from the second on with an exponent.
_LARGE, _HUGE = 1e5, 1e15
_ENDS = {"final": "", "waits": " (waits for outside)", "refused": " (refused: a fault of the table)"}


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
        return f"no final state is called {SUCCESS_STATE}: --success names the one that counts, of: {finals}"
    if success is None or success.high > 0:
        return ""
    return f"success 0: no run ends in {' or '.join(answer.question.success)}"


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
        if_fatal = f"  at least {_number(estimate.if_fatal)} if what was never fatal may yet be"
        lines.append(f"{if_fatal} (--fatal assumes it is not)")
    if estimate.whole_runs is not None:
        lines.append(
            f"  at least {_number(estimate.whole_runs)} from how whole runs ended alone, however attempts depend"
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
        return f"target {target:g}: the bound is there with these runs"
    if estimate.missing_runs is None:
        return f"target {target:g}: no number of runs like these brings the bound there"
    return (
        f"target {target:g}: about {estimate.missing_runs} more runs like these are missing for the bound to be there"
    )


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
    tends = f"; it tends to {_number(result.ceiling)}" if result.ceiling is not None else ""
    return f"{start}: UNKNOWN, {result.reason}{tends}"


def _order(order: Order) -> str:
    if order.best == order.now:
        return f"order of steps: {'none that is allowed is cheaper' if order.is_exact else 'none cheaper found'}"
    saves = f"saves {_percent(order.share_saved)}: {_number(order.cost_best)} for {_number(order.cost_now)}"
    how = "the cheapest" if order.is_exact else "cheaper (riskiest first; not all were compared)"
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
