"""`dsa diff OLD NEW`: what another table means otherwise, and which runs in flight may go on under it."""

import json
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

import attrs
import click

from dsa.checks.engines.found import Limits
from dsa.cli.comparing import Diff, compared, judged
from dsa.cli.diff_json import as_json
from dsa.cli.diff_shown import tell
from dsa.cli.faults import JsonCommand
from dsa.cli.fitting import MAX_STATES
from dsa.cli.parameters import SECONDS, parse_parameters
from dsa.cli.progress import meter
from dsa.cli.terminal import say
from dsa.edge.files import load
from dsa.edge.runs import DEFAULT_RUNS, LEDGER


@click.command("diff", cls=JsonCommand)
@click.argument("old")
@click.argument("new")
@click.option("--runs", "root", metavar="DIR", help="Judge the runs that are kept there, and exit by them alone.")
@click.option(
    "--param", "parameters", multiple=True, metavar="NAME=VALUE", help="Compare at this value only; repeatable."
)
@click.option(
    "--max-states",
    type=click.IntRange(min=1),
    default=MAX_STATES,
    show_default=True,
    help="Stop each search after so many configurations.",
)
@click.option("--time-limit", type=SECONDS, metavar="S", help="Stop searching after so many seconds in all.")
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object and nothing else.")
def command(
    old: str,
    new: str,
    root: str | None,
    parameters: tuple[str, ...],
    *,
    max_states: int,
    time_limit: float | None,
    json_wanted: bool,
) -> None:
    """Say what NEW means otherwise than OLD, whether it behaves otherwise, and which runs in flight may go on under it.

    Runs are judged that are kept in .dsa, if there are any. Exit 0: the same behaviour, and every run in flight is compatible; 1: not, or UNKNOWN. With
    --runs, 0 when every run in flight is compatible, whatever the behaviour. 2: unreadable.
    """
    found = _found((old, new), root, parameters, max_states, time_limit)
    if json_wanted:
        say(json.dumps(as_json(found), indent=2))
    else:
        tell(found)
    sys.exit(exit_code(found, by_runs=root is not None))


def exit_code(found: Diff, *, by_runs: bool) -> int:
    """Give the exit code; `by_runs`: the user asks about runs alone."""
    is_fit = found.runs is None or found.runs.fit
    return int(not (is_fit and (by_runs or found.verdict == "EQUAL")))


def _found(
    files: tuple[str, str], root: str | None, parameters: tuple[str, ...], max_states: int, time_limit_s: float | None
) -> Diff:
    machines = load(files[0]), load(files[1])
    values, progress = parse_parameters(parameters), meter()
    limits = Limits(max_states, _expired(time_limit_s))
    if progress:
        limits = attrs.evolve(limits, progress=progress)
    try:
        found = compared(files, machines, values, limits)
        folder = Path(root or DEFAULT_RUNS)
        if root is None and not (folder / LEDGER).is_file():
            return found
        return attrs.evolve(found, runs=judged(folder, machines, limits))
    finally:
        if progress:
            progress.clear()


def _expired(time_limit_s: float | None) -> Callable[[], bool]:
    ends_s = inf if time_limit_s is None else time.monotonic() + time_limit_s
    return lambda: time.monotonic() >= ends_s
