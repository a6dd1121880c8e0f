"""`dsa mutate FILE`: the small faults of a machine that its checks, properties and scenarios would notice."""

import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec

import click

from dsa.checks.mutants import GROUPS
from dsa.checks.mutation import MutantResult, Strength, counts_text, mutate, prover
from dsa.checks.places import line_of
from dsa.checks.search.exploration import MAX_STATES, limits_until
from dsa.cli.command_line import (
    EXIT_UNREADABLE,
    SECONDS,
    CommandExit,
    JsonCommand,
    ProgressLine,
    json_option,
    max_states_option,
    param_option,
    parse_parameters,
    print_json,
    say,
)
from dsa.edge.document_files import load
from dsa.edge.processes import spread


@click.command("mutate", cls=JsonCommand)
@click.argument("file")
@param_option(
    "Explore with this parameter value, and a second time with the smallest values of all parameters; repeatable."
)
@click.option(
    "--at-least",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Exit with 1 if less than SHARE (such as 0.95) of the faults planted in rows are noticed.",
)
@max_states_option(MAX_STATES, "exploration")
@click.option(
    "--time-limit", type=SECONDS, metavar="S", help="Stop after S seconds; the remaining faults are not judged."
)
@json_option
def command(
    file: str,
    parameters: tuple[str, ...],
    *,
    at_least: float | None,
    max_states: int,
    time_limit: float | None,
    json_wanted: bool,
) -> None:
    """Measure how strong a spec is: make small faults in the machine, and count those that are noticed.

    FILE is a machine, or a spec that adds properties and scenarios to one. Exit code 0: good; 1: fewer are noticed than --at-least asks for, or some
    were not judged within --time-limit; 2: wrong usage, or the machine does not itself pass `dsa check`.
    """
    values = parse_parameters(parameters) or None
    machine = load(file)
    try:
        with ProgressLine("comparing rows") as progress:
            prove = prover(machine) if find_spec("z3") else None  # for values of parameters that are not explored
            report_progress = lambda done_count, every: progress.tell(f"{done_count} of {every} mutants")  # noqa: E731
            limits = limits_until(max_states, time_limit, time.monotonic)
            strength = mutate(
                machine, parameters=values, limits=limits, prove=prove, progress=report_progress, spread=spread
            )
    except ValueError as fault:
        raise CommandExit(f"{file}: {fault}; fix that first (dsa check {file})", EXIT_UNREADABLE) from None
    if json_wanted:
        print_json(_as_json(file, strength))
    else:
        for line in _result_lines(file, strength):
            say(line)
    too_few = at_least is not None and (strength.score or 0) < at_least
    sys.exit(int(too_few or bool(strength.of_kind("not judged"))))


def _result_lines(file: str, strength: Strength) -> Iterator[str]:
    survivors, equal = strength.of_kind("survived"), strength.of_kind("equal")
    for what, ones in (("survives", survivors), ("equal", equal)):
        for one in ones:
            reason = f"  ({one.by})" if one.by else ""
            yield f"{file}: {what}: {_place(one)}: {one.mutant.what}{reason}"
    for group in GROUPS:
        if text := counts_text(strength, group):
            yield f"{file}: {text}"
    yield f"{file}: of the mutants, {len(survivors)} survive, and {len(equal)} are equal to the machine"
    if late := strength.of_kind("not judged"):
        yield f"{file}: {len(late)} of {len(strength.results)} mutants were not judged: {late[0].by}; allow more time (--time-limit)"


def _place(one: MutantResult) -> str:
    span = one.mutant.at.span
    return f"line {span.line}, {one.mutant.place}" if span else one.mutant.place


def _as_json(file: str, strength: Strength) -> dict[str, object]:
    mutants = [
        {
            "group": one.mutant.group,
            "place": one.mutant.place,
            "line": line_of(one.mutant.at) or None,
            "what": one.mutant.what,
            "kind": one.kind,
            "by": one.by,
        }
        for one in strength.results
    ]
    shares = {group: strength.share(group) for group in GROUPS}
    return {
        "file": file,
        "machine": strength.machine.name,
        "score": strength.score,
        "shares": shares,
        "mutants": mutants,
    }
