"""`dsa odds FILE`: how runs end, what they cost, and how many retries a target needs."""

import json
import sys
from collections.abc import Iterable, Mapping
from math import ceil, inf
from pathlib import Path
from typing import Any

import click

from dsa.checks.odds.answer import OddsAnswer, odds_answer
from dsa.checks.odds.assumed import OddsError
from dsa.checks.odds.averages import Bounds
from dsa.checks.odds.recorded import recorded
from dsa.checks.odds.target import curve, varied
from dsa.cli.odds_shown import as_json, show
from dsa.cli.parameters import parse_parameters
from dsa.edge.files import load
from dsa.edge.plot import Labels, Point, plot, require_format
from dsa.edge.recordings import digests, recordings
from dsa.machine import Machine

#: So many values are plotted beyond the smallest, and so many at most.
_PLOTTED, _MOST_POINTS = 10, 60


@click.command("odds")
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
@click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter's value.")
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
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object.")
def command(file: str, *, target: float | None, json_wanted: bool, **given: Any) -> None:  # noqa: ANN401  (click's options)
    """Work out how runs of a machine end and what they cost.

    Odds of guards stand in the columns `pass` and `fatal` of Guards, or are given here. Exit 0 good, 1 a target is missed or something is
    UNKNOWN, 2 usage.
    """
    try:
        answer = _answered(load(file), target, given)
        picture = given["picture"]
        drawn = picture is None or _plot(answer, picture, given["vary"])
    except OddsError as fault:
        raise click.UsageError(str(fault)) from fault
    if picture:
        click.echo(f"wrote {picture}" if drawn else f"UNKNOWN: nothing to plot, so {picture} is not written", err=True)
    if json_wanted:
        click.echo(json.dumps(as_json(file, answer), indent=2))
    else:
        click.echo(show(answer))
    sys.exit(int(answer.failed or not drawn))


def _answered(machine: Machine, target: float | None, given: Mapping[str, Any]) -> OddsAnswer:
    if given["picture"]:
        require_format(given["picture"])
    machine = machine.at(parse_parameters(given["parameters"]))
    seen = recorded(machine, recordings(given["runs"]), digests) if given["runs"] else None
    return odds_answer(
        machine,
        target=target,
        vary=given["vary"],
        seen=seen,
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
            raise click.UsageError(
                f"{option} {text}: write {option} NAME=0.7" + ("" if most else " or NAME=0.7,0.8,0.9")
            )
        found[name.strip()] = values
    return found


def _plot(answer: OddsAnswer, path: Path, vary: str | None) -> bool:
    """Draw the values at which all is known; tell whether there are any."""
    machine = answer.asked.system.machine
    what = varied(machine, vary)
    last = what.low + _PLOTTED
    if answer.needed is not None and answer.needed.value is not None:
        last = max(last, answer.needed.value + 2)
    last = last if what.high is None else min(last, what.high)
    values = {*range(what.low, last + 1, ceil((last - what.low) / _MOST_POINTS) or 1), last}
    points, cost_name = [], ""
    for value, found in curve(answer.asked, what, sorted(values)):
        if found.success is None or not found.known or any(end.kind == "refused" for end, _ in found.ends):
            continue  # a value at which the table has a fault
        cost_name, cost = found.main_cost
        per = found.per_success(cost)
        points.append(
            Point(value, _pair(found.success), _pair(cost), _pair(per) if per is not None and per.high < inf else None)
        )
    if not points:
        return False
    needed = answer.needed
    ceiling = needed.ceiling if needed is not None and needed.answer == "impossible" else None
    plot(
        points,
        Labels(machine.name, what.name, cost_name),
        path,
        target=needed.target if needed else None,
        ceiling=ceiling,
    )
    return True


def _pair(found: Bounds) -> tuple[float, float]:
    return found.low, found.high
