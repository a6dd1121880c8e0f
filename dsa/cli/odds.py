"""`dsa odds FILE`: how runs end, what they cost, and how many retries a target needs.

Odds come from the document, the command line, or recorded runs. `recordings` reads files such as `dsa show RUN --jsonl` prints, and `digests` are the
machines whose runs count; `dsa.checks.odds.estimation` estimates the odds from them.
"""

import sys
from collections.abc import Iterable, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any

import attrs
import click

from dsa.checks.odds.chain_solver import OddsRange
from dsa.checks.odds.estimation import Estimate, read_attempts
from dsa.checks.odds.odds_report import OddsAnswer, Order, answer_text, odds_answer, plotted_curve, unknown_sentences
from dsa.checks.odds.retry_target import TargetResult
from dsa.cli.command_line import (
    JsonCommand,
    ProgressLine,
    family_option,
    json_option,
    param_option,
    parse_families,
    parse_parameters,
    print_json,
    say,
)
from dsa.cli.run_options import open_run_folder
from dsa.cli.run_view import story_lines
from dsa.edge.document_files import load, read_text
from dsa.edge.images import Labels, Point, plot, require_format
from dsa.errors import DocumentError, ParameterError, UndecidedError
from dsa.lang import digest
from dsa.machine import Machine
from dsa.runs.place import LEDGER
from dsa.runtime.ledger import MachineEntry


def recordings(path: Path) -> list[tuple[str, str]]:
    """Read a file of recorded lines, or every `*.jsonl` below a folder. Raises DocumentError if there is none."""
    if path.is_file():
        return [(str(path), read_text(path))]
    paths = sorted(path.rglob("*.jsonl"))
    if not paths:
        what = "has no recorded run (*.jsonl)" if path.is_dir() else "there is no such file or folder"
        raise DocumentError(str(path), what)
    return [(str(file), read_text(file)) for file in paths]


def digests(machine: Machine) -> frozenset[str]:
    """Return the digests that runs of a machine may have: also those without the odds and properties of its document."""
    without = attrs.evolve(
        machine, guards=tuple(attrs.evolve(guard, pass_odds=(), fatal_odds=()) for guard in machine.guards)
    )
    variants = (machine, without)
    return frozenset(digest(each) for each in (*variants, *(attrs.evolve(each, properties=()) for each in variants)))


@click.command("odds", cls=JsonCommand)
@click.argument("file")
@click.option(
    "--pass",
    "passes",
    multiple=True,
    metavar="GUARD=P[,P..]",
    help="The probability that GUARD passes: at the first attempt, at the first retry and so on; the last P counts for all further retries. If you leave out `GUARD=`, this applies to all guards.",
)
@click.option(
    "--fatal", "fatals", multiple=True, metavar="GUARD=P[,P..]", help="The odds of a fatal verdict, as for --pass."
)
@click.option(
    "--event",
    "events",
    multiple=True,
    metavar="EVENT=P",
    help="The probability of EVENT. If EVENT is an answer or a failure (EFFECT.failed): the probability that the effect ends with it. If EVENT comes from outside: the probability that it comes before the timer of the state is due.",
)
@click.option(
    "--outside",
    is_flag=True,
    help="Assume nothing about outside events: any of them may come whenever the run waits, also before a timer. Each result is then a range, from the lowest to the highest value that is possible.",
)
@click.option("--price", "prices", multiple=True, metavar="EFFECT=N", help="What an effect costs, in tokens or money.")
@click.option("--success", metavar="STATE", help="The final state that counts as success (default: succeeded).")
@click.option(
    "--target",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="Find the smallest bound on retries with which success has at least this probability.",
)
@click.option("--vary", metavar="NAME", help="The parameter that --target and --plot vary (default: rmax).")
@param_option("A parameter's value.")
@family_option()
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
    help="With --from-runs: the confidence level of the intervals that are estimated.",
)
@click.option(
    "--plot",
    "picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT",
    help="Draw success and cost against the parameter (svg, png, pdf).",
)
@json_option
def command(file: str, *, target: float | None, json_wanted: bool, **options: Any) -> None:  # noqa: ANN401  (click's options)
    """Compute how runs of a machine end and what they cost.

    The odds of a guard's verdicts are in the columns `pass` and `fatal` of the table Guards, or in --pass and --fatal. Exit code 0: good; 1: the probability of --target is not reached or something is
    UNKNOWN; 2: wrong usage.
    """
    try:
        with ProgressLine("computing odds"):
            answer = _compute_answer(load(file, parse_families(options.pop("families"))), target, options)
            picture = options["picture"]
            has_plot = picture is None or _plot(answer, picture, options["vary"])
    except (ParameterError, UndecidedError) as fault:
        raise click.UsageError(str(fault)) from fault
    if picture:
        say(f"wrote {picture}" if has_plot else f"UNKNOWN: nothing to plot, so {picture} is not written", err=True)
    if json_wanted:
        print_json(as_json(file, answer))
    else:
        say(answer_text(answer))
    sys.exit(int(answer.failed or not has_plot))


def _recordings(path: Path) -> list[tuple[str, str]]:
    """Read the runs of machines in a folder of runs, or recorded lines in files. Raises CommandExit and DocumentError."""
    if not (path / LEDGER).is_file():
        return recordings(path)
    with open_run_folder(path) as runs:
        stored_runs = [runs.stored_run(run_id) for run_id in runs.ids()]
        return [
            (each.run, "\n".join(story_lines(each)))
            for each in stored_runs
            if isinstance(each.entries[0], MachineEntry)
        ]


def _compute_answer(machine: Machine, target: float | None, options: Mapping[str, Any]) -> OddsAnswer:
    if options["picture"]:
        require_format(options["picture"])
    machine = machine.at(parse_parameters(options["parameters"]))
    recording = read_attempts(machine, _recordings(options["runs"]), digests) if options["runs"] else None
    return odds_answer(
        machine,
        target=target,
        vary=options["vary"],
        record=recording,
        confidence=options["confidence"],
        passes=_read_guard_odds(machine, "--pass", options["passes"]),
        fatals=_read_guard_odds(machine, "--fatal", options["fatals"]),
        events={name: value for name, (value,) in _read_numbers("--event", options["events"], most=1).items()},
        outside=options["outside"],
        prices={name: value for name, (value,) in _read_numbers("--price", options["prices"], most=1).items()},
        success=options["success"],
    )


def _read_guard_odds(machine: Machine, option: str, texts: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Read odds such as `g=0.7,0.8`, or `0.7` for every guard that judges."""
    guards = [guard.name for guard in machine.guards if guard.judges]
    odds_by_name: dict[str, tuple[float, ...]] = {}
    for name, values in _read_numbers(option, texts, may_omit_name=True).items():
        odds_by_name |= {name: values} if name else dict.fromkeys(guards, values)
    return odds_by_name


def _read_numbers(
    option: str, texts: Iterable[str], *, most: int | None = None, may_omit_name: bool = False
) -> dict[str, tuple[float, ...]]:
    numbers_by_name: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, equals, cell = text.rpartition("=")
        try:
            values = tuple(float(value) for value in cell.split(","))
        except ValueError:
            values = ()
        if (
            not values
            or (most and len(values) > most)
            or (not equals and not may_omit_name)
            or (equals and not name.strip())
        ):
            more = "" if most else " or NAME=0.7,0.8,0.9"
            raise click.UsageError(f"{option} {text}: write {option} NAME=0.7{more}")
        numbers_by_name[name.strip()] = values
    return numbers_by_name


def _plot(answer: OddsAnswer, path: Path, vary: str | None) -> bool:
    """Plot the values for which all odds are known; return whether there are any."""
    what, run_odds_by_value = plotted_curve(answer, vary)
    points, cost_name = [], ""
    for value, run_odds in run_odds_by_value:
        assert run_odds.success is not None, "it is known where a curve is"
        cost_name, cost = run_odds.main_cost
        per = run_odds.per_success(cost)
        finite = _pair(per) if per is not None and per.high < inf else None
        points.append(Point(value, _pair(run_odds.success), _pair(cost), finite))
    if not points:
        return False
    target_result = answer.target_result
    ceiling = target_result.ceiling if target_result is not None and target_result.answer == "impossible" else None
    labels = Labels(answer.odds.machine, what.name, cost_name)
    plot(points, labels, path, target=target_result.target if target_result else None, ceiling=ceiling)
    return True


def _pair(odds_range: OddsRange) -> tuple[float, float]:
    return odds_range.low, odds_range.high


# -- for programs -------------------------------------------------------------------------------------------------------


def as_json(file: str, answer: OddsAnswer) -> dict[str, object]:
    """Return the answer as an object; a number without a bound is null."""
    run_odds = answer.odds
    report = {
        "file": file,
        "machine": run_odds.machine,
        "parameters": dict(run_odds.parameters),
        "configurations": run_odds.configurations,
        "known": run_odds.is_known,
        "success": _bounds_json(run_odds.success),
        "ends": [
            {"state": end.state, "kind": end.kind, "probability": _bounds_json(bounds)} for end, bounds in run_odds.ends
        ],
        "never_ends": _bounds_json(run_odds.never_ends),
        "effects": [
            {
                "effect": effect.effect,
                "expected": _bounds_json(effect.average),
                "worst": _finite(effect.worst),
                "per_success": _bounds_json(run_odds.per_success(effect.average)),
            }
            for effect in run_odds.effects
        ],
        "prices": dict(run_odds.prices),
        "cost": _bounds_json(run_odds.cost),
        "worst_cost": _finite(run_odds.worst_cost) if run_odds.prices else None,
        "cost_per_success": _bounds_json(run_odds.per_success(run_odds.cost) if run_odds.cost else None),
        "target": _needed_json(answer.target_result),
        "target_at_point": _needed_json(answer.target_result_at_point),
        "order": _order_json(answer.order),
        "estimate": _estimate_json(answer.estimate),
        "assumptions": list(run_odds.assumptions),
        "unknown": unknown_sentences(answer),
    }
    for name in ("success", "cost", "never_ends"):
        if not run_odds.is_known:
            report[name] = None
    return report


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _bounds_json(odds_range: OddsRange | None) -> dict[str, float | None] | None:
    return None if odds_range is None else {"low": _finite(odds_range.low), "high": _finite(odds_range.high)}


def _needed_json(result: TargetResult | None) -> dict[str, object] | None:
    if result is None:
        return None
    report = attrs.asdict(result, filter=lambda field, _: field.name != "odds")
    if result.odds is not None:
        name, cost = result.odds.main_cost
        report |= {"success": _bounds_json(result.odds.success), "cost": _bounds_json(cost), "cost_is": name}
    return report


def _order_json(order: Order | str | None) -> dict[str, object] | None:
    return attrs.asdict(order) | {"saving": order.share_saved} if isinstance(order, Order) else None


def _estimate_json(estimate: Estimate | None) -> dict[str, object] | None:
    if estimate is None:
        return None
    report = attrs.asdict(estimate, filter=lambda field, _: field.name not in {"point", "most"})
    point = estimate.point.success
    return report | {"point": _bounds_json(point), "most": {effect: _finite(most) for effect, most in estimate.most}}
