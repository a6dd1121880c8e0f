"""Recordings: files with recorded runs, such as `dsa show RUN --jsonl` prints, and the digests that a machine's runs may have.

What the lines mean is `dsa.checks.odds.estimation`'s affair.

`dsa odds FILE`: how runs end, what they cost, and how many retries a target needs.
"""

import sys
from collections.abc import Iterable, Mapping
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.checks.odds.assumptions import OddsError
from dsa.checks.odds.chain_solver import OddsRange, number_text
from dsa.checks.odds.estimation import Estimate, GuardEstimate, Independence, read_attempts
from dsa.checks.odds.odds_report import OddsAnswer, Order, odds_answer
from dsa.checks.odds.retry_target import TargetResult, curve, varied_parameter
from dsa.checks.odds.run_odds import SUCCESS_STATE, RunOdds
from dsa.cli.command_line import JsonCommand, ProgressLine, json_option, param_option, parse_parameters, say, tell_json
from dsa.cli.run_options import opened
from dsa.cli.run_view import story_lines
from dsa.edge.document_files import load, read_text
from dsa.edge.images import Labels, Point, plot, require_format
from dsa.errors import DocumentError
from dsa.lang import digest
from dsa.machine import Machine
from dsa.runs.place import LEDGER
from dsa.runtime.ledger import MachineEntry
from dsa.trace import align_rows, show_values


def recordings(path: Path) -> list[tuple[str, str]]:
    """Read a file of recorded lines, or every `*.jsonl` below a folder. Raises DocumentError when there is none."""
    if path.is_file():
        return [(str(path), read_text(path))]
    found = sorted(path.rglob("*.jsonl"))
    if not found:
        what = "holds no recorded run (*.jsonl)" if path.is_dir() else "there is no such file or folder"
        raise DocumentError(str(path), what)
    return [(str(file), read_text(file)) for file in found]


def digests(machine: Machine) -> frozenset[str]:
    """Return the digests of runs of a machine, also from before odds and properties were written into its document."""
    without = attrs.evolve(
        machine, guards=tuple(attrs.evolve(guard, pass_odds=(), fatal_odds=()) for guard in machine.guards)
    )
    kept = (machine, without)
    return frozenset(digest(each) for each in (*kept, *(attrs.evolve(each, properties=()) for each in kept)))


#: So many values are plotted beyond the smallest, and so many at most.
_PLOTTED, _MOST_POINTS = 10, 60


@click.command("odds", cls=JsonCommand)
@click.argument("file")
@click.option(
    "--pass",
    "passes",
    multiple=True,
    metavar="GUARD=P[,P..]",
    help="Odds of passing, by retry number; GUARD= may be left out for all.",
)
@click.option("--fatal", "fatals", multiple=True, metavar="GUARD=P[,P..]", help="Odds of a fatal verdict, likewise.")
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="EVENT=P",
    help="Odds of an answer, of E.failed, or that an outside event comes where the run waits: before the timer, if there is one.",
)
@click.option(
    "--outside",
    is_flag=True,
    help="Where the run waits or a timer is to fire, let outside events come as somebody chooses.",
)
@click.option("--price", "prices", multiple=True, metavar="EFFECT=N", help="What an effect costs, in tokens or money.")
@click.option("--success", metavar="STATE", help="The final state that counts as success (default: succeeded).")
@click.option(
    "--target",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="Find the smallest bound on retries with this success.",
)
@click.option("--vary", metavar="NAME", help="The parameter that a target or a plot varies (default: rmax).")
@param_option("A parameter's value.")
@click.option(
    "--from-runs",
    "runs",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Estimate the odds from recorded runs: a folder such as .dsa, or a file.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Of bounds from recorded runs.",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="Draw success and cost against the parameter (svg, png, pdf).",
)
@json_option
def command(file: str, *, target: float | None, json_wanted: bool, **given: Any) -> None:  # noqa: ANN401  (click's options)
    """Work out how runs of a machine end and what they cost.

    Odds of guards stand in the columns `pass` and `fatal` of Guards, or are given here. Exit 0 good, 1 a target is missed or something is
    UNKNOWN, 2 usage.
    """
    try:
        with ProgressLine("reckoning odds"):
            answer = _answered(load(file), target, given)
            picture = given["picture"]
            drawn = picture is None or _plot(answer, picture, given["vary"])
    except OddsError as fault:
        raise click.UsageError(str(fault)) from fault
    if picture:
        say(f"wrote {picture}" if drawn else f"UNKNOWN: nothing to plot, so {picture} is not written", err=True)
    if json_wanted:
        tell_json(as_json(file, answer))
    else:
        say(show(answer))
    sys.exit(int(answer.failed or not drawn))


def _recordings(path: Path) -> list[tuple[str, str]]:
    """Read the runs of machines in a folder of runs, or recorded lines in files. Raises Ended and DocumentError."""
    if not (path / LEDGER).is_file():
        return recordings(path)
    with opened(path) as runs:
        found = [runs.stored_run(run_id) for run_id in runs.ids()]
        return [(each.run, "\n".join(story_lines(each))) for each in found if isinstance(each.entries[0], MachineEntry)]


def _answered(machine: Machine, target: float | None, given: Mapping[str, Any]) -> OddsAnswer:
    if given["picture"]:
        require_format(given["picture"])
    machine = machine.at(parse_parameters(given["parameters"]))
    seen = read_attempts(machine, _recordings(given["runs"]), digests) if given["runs"] else None
    return odds_answer(
        machine,
        target=target,
        vary=given["vary"],
        record=seen,
        confidence=given["confidence"],
        passes=_numbers(machine, "--pass", given["passes"]),
        fatals=_numbers(machine, "--fatal", given["fatals"]),
        events={name: value for name, (value,) in _numbered("--event", given["events"], most=1).items()},
        outside=given["outside"],
        prices={name: value for name, (value,) in _numbered("--price", given["prices"], most=1).items()},
        success=given["success"],
    )


def _numbers(machine: Machine, option: str, texts: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Read `g=0.7,0.8`, and `0.7` for every guard that judges."""
    judging = [guard.name for guard in machine.guards if guard.judges]
    found: dict[str, tuple[float, ...]] = {}
    for name, values in _numbered(option, texts, unnamed=True).items():
        found |= {name: values} if name else dict.fromkeys(judging, values)
    return found


def _numbered(
    option: str, texts: Iterable[str], *, most: int | None = None, unnamed: bool = False
) -> dict[str, tuple[float, ...]]:
    found: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, equals, written = text.rpartition("=")
        try:
            values = tuple(float(value) for value in written.split(","))
        except ValueError:
            values = ()
        if not values or (most and len(values) > most) or (not equals and not unnamed) or (equals and not name.strip()):
            more = "" if most else " or NAME=0.7,0.8,0.9"
            raise click.UsageError(f"{option} {text}: write {option} NAME=0.7{more}")
        found[name.strip()] = values
    return found


def _plot(answer: OddsAnswer, path: Path, vary: str | None) -> bool:
    """Draw the values at which all is known; tell whether there are any."""
    machine = answer.question.system.machine
    what = varied_parameter(machine, vary)
    last = what.low + _PLOTTED
    if answer.target_result is not None and answer.target_result.value is not None:
        last = max(last, answer.target_result.value + 2)
    last = last if what.high is None else min(last, what.high)
    values = {*range(what.low, last + 1, ceil((last - what.low) / _MOST_POINTS) or 1), last}
    points, cost_name = [], ""
    for value, found in curve(answer.question, what, sorted(values)):
        if found.success is None or not found.is_known or any(end.kind == "refused" for end, _ in found.ends):
            continue  # a value at which the table has a fault
        cost_name, cost = found.main_cost
        per = found.per_success(cost)
        finite = _pair(per) if per is not None and per.high < inf else None
        points.append(Point(value, _pair(found.success), _pair(cost), finite))
    if not points:
        return False
    needed = answer.target_result
    ceiling = needed.ceiling if needed is not None and needed.answer == "impossible" else None
    labels = Labels(machine.name, what.name, cost_name)
    plot(points, labels, path, target=needed.target if needed else None, ceiling=ceiling)
    return True


def _pair(found: OddsRange) -> tuple[float, float]:
    return found.low, found.high


# -- for people ---------------------------------------------------------------------------------------------------------

#: From the first on, numbers are written in full, and from the second on with an exponent.
_LARGE, _HUGE = 1e5, 1e15
_ENDS = {"final": "", "waits": " (waits for outside)", "refused": " (refused: a fault of the table)"}


def show(answer: OddsAnswer) -> str:
    """Write everything that is known, and in words what is not."""
    found, blocks = answer.odds, []
    at = f" at {show_values(found.parameters)}" if found.parameters else ""
    blocks.append([f"{found.machine}{at}: {found.configurations} configurations"])
    if found.is_known:
        blocks.append(_ends(found) + _no_success(answer))
    blocks.append(_effects(answer))
    if answer.estimate is not None:
        blocks.append(_estimate(answer.estimate))
    blocks.append(_wanted(answer))
    blocks.append([f"assumed: {sentence}" for sentence in found.assumptions])
    blocks.append([f"UNKNOWN: {sentence}" for sentence in _unknown(answer)])
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _unknown(answer: OddsAnswer) -> list[str]:
    found = list(answer.odds.unknown)
    tests = answer.estimate.independence if answer.estimate else ()
    found += [f"attempts are not independent, so no bound holds: {test.finding}" for test in tests if test.is_broken]
    return found


def _ends(found: RunOdds) -> list[str]:
    rows = [("ends in", "probability")]
    rows += [(f"{end.state}{_ENDS.get(end.kind, '')}", _bounds(bounds)) for end, bounds in found.ends]
    if found.never_ends.high > 0:
        rows.append(("never", _bounds(found.never_ends)))
    return list(align_rows(rows))


def _no_success(answer: OddsAnswer) -> list[str]:
    """Return that no run succeeds, where that is so, or that nothing counts as success."""
    success, machine = answer.odds.success, answer.question.system.machine
    if not answer.question.success:
        finals = ", ".join(sorted(machine.final_states | machine.ends.keys())) or "none"
        return ["", f"no final state is called {SUCCESS_STATE}: --success names the one that counts, of: {finals}"]
    if success is None or success.high > 0:
        return []
    return ["", f"success 0: no run ends in {' or '.join(answer.question.success)}"]


def _effects(answer: OddsAnswer) -> list[str]:
    found, most = answer.odds, dict(answer.estimate.most) if answer.estimate else {}
    bound = f"expected, {_percent(answer.estimate.confidence)} bound" if answer.estimate else ""
    heading = ("effect", "expected", bound, "per success", "at most") if found.is_known else ("effect", "at most")
    rows: list[tuple[str, ...]] = []
    for effect in found.effects:
        per = found.per_success(effect.average)
        known = (_bounds(effect.average), _number(most[effect.effect]) if most else "", _bounds(per) if per else "")
        rows.append((effect.effect, *(known if found.is_known else ()), _number(effect.worst)))
    if found.prices:
        per = found.per_success(found.cost) if found.cost else None
        known = (_bounds(found.cost) if found.cost else "", "", _bounds(per) if per else "")
        rows.append(("cost", *(known if found.is_known else ()), _number(found.worst_cost)))
    return list(align_rows([heading, *rows])) if rows else []


def _estimate(found: Estimate) -> list[str]:
    level = _percent(found.confidence)
    rows: list[tuple[str, ...]] = [("guard", "seen", "passed", f"{level} interval", "fatal", f"{level} interval")]
    rows += [_guard(guard) for guard in found.guards]
    point = found.point.success
    lines = [
        *align_rows(rows),
        "",
        f"success, from {found.runs} recorded runs: {_bounds(point) if point else 'not known'} at these rates",
        *_success_bounds(found, level),
    ]
    if found.if_fatal is not None:
        if_fatal = f"  at least {_number(found.if_fatal)} if what was never fatal may yet be"
        lines.append(f"{if_fatal} (--fatal assumes it is not)")
    if found.whole_runs is not None:
        lines.append(f"  at least {_number(found.whole_runs)} from how whole runs ended alone, however attempts depend")
    lines += [f"  {_test(test)}" for test in found.independence]
    return [*lines, *(f"  {note}" for note in found.notes)]


def _success_bounds(found: Estimate, level: str) -> list[str]:
    low, high = found.interval
    if found.point.is_known and low == high:
        return [f"  {_number(low)} whatever the guards' odds are"]
    return [
        f"  at least {_number(found.lower)} with {level} confidence, if attempts are independent",
        f"  between {_number(low)} and {_number(high)} with {level} confidence",
    ]


def _guard(found: GuardEstimate) -> tuple[str, ...]:
    counts = found.counts
    intervals = [f"{_number(low)} to {_number(high)}" for low, high in (found.interval, found.fatal_interval)]
    fatal = f"{counts.fatal}" + ("" if counts.fatal_odds is None else f" (assumed {_number(counts.fatal_odds)})")
    return (counts.guard, str(counts.total), f"{counts.passed}", intervals[0], fatal, intervals[1])


def _test(test: Independence) -> str:
    if test.rare is None:
        return f"{test.question}: {test.finding}"
    return f"{test.question}: {test.finding} (p = {test.rare:.2g}, level {test.level:g})"


def _wanted(answer: OddsAnswer) -> list[str]:
    lines = []
    if answer.target_result_at_point is not None and answer.estimate is not None:
        lines.append(f"{_needed(answer.target_result_at_point)}, at the rates seen")
    if answer.target_result is not None:
        bound = f", by the {_percent(answer.estimate.confidence)} bound" if answer.estimate else ""
        lines.append(_needed(answer.target_result) + bound)
    if answer.estimate is not None and answer.target is not None:
        lines.append(_missing(answer.estimate, answer.target))
    if isinstance(answer.order, Order):
        lines.append(_order(answer.order))
    return lines


def _missing(found: Estimate, target: float) -> str:
    if found.missing_runs == 0:
        return f"target {target:g}: the bound is there with these runs"
    if found.missing_runs is None:
        return f"target {target:g}: no number of runs like these brings the bound there"
    return f"target {target:g}: about {found.missing_runs} more runs like these are missing for the bound to be there"


def _needed(found: TargetResult) -> str:
    start = f"target {found.target:g}"
    if found.answer == "reached" and found.odds is not None:
        name, cost = found.odds.main_cost
        success = found.odds.success
        shown = _number(success.low) if success else ""
        return f"{start}: the smallest {found.parameter} is {found.value}, success {shown}, {name} {_bounds(cost)}"
    if found.answer == "impossible":
        why = f" ({found.reason})" if found.reason else ""
        return f"{start}: impossible, ceiling {_number(found.ceiling or 0.0)}{why}"
    tends = f"; it tends to {_number(found.ceiling)}" if found.ceiling is not None else ""
    return f"{start}: UNKNOWN, {found.reason}{tends}"


def _order(found: Order) -> str:
    if found.best == found.now:
        return f"order of steps: {'none that is allowed is cheaper' if found.is_exact else 'none cheaper found'}"
    saves = f"saves {_percent(found.share_saved)}: {_number(found.cost_best)} for {_number(found.cost_now)}"
    how = "the cheapest" if found.is_exact else "cheaper (riskiest first; not all were compared)"
    return f"order of steps: {', '.join(found.best)} is {how}, {saves}"


def _bounds(found: OddsRange) -> str:
    low, high = _number(found.low), _number(found.high)
    return low if low == high else f"{low} to {high}"


def _number(value: float) -> str:
    if not isfinite(value):
        return "no bound"
    return f"{value:.0f}" if _LARGE <= value < _HUGE else number_text(value, 5)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if f"{100 * share:.3g}" != "100" or share == 1 else f"{100 * share:.10g} %"


# -- for programs -------------------------------------------------------------------------------------------------------


def as_json(file: str, answer: OddsAnswer) -> dict[str, Any]:
    """Return everything as an object; what has no bound is null."""
    found = answer.odds
    written = {
        "file": file,
        "machine": found.machine,
        "parameters": dict(found.parameters),
        "configurations": found.configurations,
        "known": found.is_known,
        "success": _bounds_json(found.success),
        "ends": [
            {"state": end.state, "kind": end.kind, "probability": _bounds_json(bounds)} for end, bounds in found.ends
        ],
        "never_ends": _bounds_json(found.never_ends),
        "effects": [
            {
                "effect": effect.effect,
                "expected": _bounds_json(effect.average),
                "worst": _finite(effect.worst),
                "per_success": _bounds_json(found.per_success(effect.average)),
            }
            for effect in found.effects
        ],
        "prices": dict(found.prices),
        "cost": _bounds_json(found.cost),
        "worst_cost": _finite(found.worst_cost) if found.prices else None,
        "cost_per_success": _bounds_json(found.per_success(found.cost) if found.cost else None),
        "target": _needed_json(answer.target_result),
        "target_at_point": _needed_json(answer.target_result_at_point),
        "order": _order_json(answer.order),
        "estimate": _estimate_json(answer.estimate),
        "assumptions": list(found.assumptions),
        "unknown": _unknown(answer),
    }
    for name in ("success", "cost", "never_ends"):
        if not found.is_known:
            written[name] = None
    return written


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _bounds_json(found: OddsRange | None) -> dict[str, float | None] | None:
    return None if found is None else {"low": _finite(found.low), "high": _finite(found.high)}


def _needed_json(found: TargetResult | None) -> dict[str, Any] | None:
    if found is None:
        return None
    written = attrs.asdict(found, filter=lambda field, _: field.name != "odds")
    if found.odds is not None:
        name, cost = found.odds.main_cost
        written |= {"success": _bounds_json(found.odds.success), "cost": _bounds_json(cost), "cost_is": name}
    return written


def _order_json(found: Order | str | None) -> dict[str, Any] | None:
    return attrs.asdict(found) | {"saving": found.share_saved} if isinstance(found, Order) else None


def _estimate_json(found: Estimate | None) -> dict[str, Any] | None:
    if found is None:
        return None
    written = attrs.asdict(found, filter=lambda field, _: field.name not in {"point", "most"})
    point = found.point.success
    return written | {"point": _bounds_json(point), "most": {effect: _finite(most) for effect, most in found.most}}
