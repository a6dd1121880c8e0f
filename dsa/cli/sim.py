"""`dsa sim FILE`: a machine's runs in a world where everything goes wrong, each told by a seed."""

import json
import os
import sys
import time
from functools import partial

import click

from dsa.checks.table_faults import require_sound
from dsa.cli.parameters import param_option, parse_parameters
from dsa.cli.progress import show_line
from dsa.cli.run import machine_document
from dsa.cli.simulated import Asked, as_json, shown, told
from dsa.cli.terminal import say
from dsa.cli.warned import warn_of_errors
from dsa.edge.files import load, locate, read_text
from dsa.errors import DocumentError
from dsa.runs.bindings import handlers_of
from dsa.testing.simulation.campaign import enough, simulate
from dsa.testing.simulation.story import Story
from dsa.testing.simulation.subject import Subject, monitored

#: What the gate asks for when nobody says otherwise, in percent.
_COVERAGE = 95.0
_MOST_WORKERS = 8


@click.command("sim")
@click.argument("file")
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="Play so many. [enough to cover everything]")
@click.option("--seed", type=click.IntRange(min=0), metavar="S", help="Begin with this one; without --seeds, tell it.")
@param_option("Set a parameter, such as rmax=1.")
@click.option(
    "--coverage",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit 1 when a smaller share of row x boundary x fault is hit. [95, unless seeds are chosen]",
)
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes that play. [as many as processors]")
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object.")
def command(
    file: str,
    seeds: int | None,
    seed: int | None,
    parameters: tuple[str, ...],
    coverage: float | None,
    workers: int | None,
    *,
    json_wanted: bool,
) -> None:
    """Run FILE with the real driver in a simulated world: crashes at every boundary, disks that fail, two holders, wild clocks.

    FILE is a machine, or a spec whose properties are watched too. What is printed depends on FILE and the seeds alone; a seed always
    tells the same story. Exit 0 good, 1 an oracle was broken or too little was covered, 2 FILE cannot be read or is too large.
    """
    subject, asked = _subject(file, parameters), Asked(file, parameters)
    if seed is not None and seeds is None:
        if coverage is not None:
            raise click.UsageError("--coverage is about many seeds; add --seeds N")
        sys.exit(_one(asked, subject, seed, json_wanted=json_wanted))
    first, count = seed or 0, seeds or enough(subject)
    workers = workers or min(os.cpu_count() or 1, _MOST_WORKERS)
    began_s = time.perf_counter()
    outcome = simulate(subject, range(first, first + count), workers=workers, progress=partial(_show_progress, count))
    seconds = time.perf_counter() - began_s
    least = coverage if coverage is not None else _COVERAGE if seeds is None else 0.0
    if json_wanted:
        say(json.dumps(as_json(file, subject, outcome, first, seconds), indent=2))
    else:
        for line in shown(asked, subject, outcome, first, least):
            say(line)
        say(f"{seconds:.1f} s, {count / seconds:,.0f} runs a second with {workers} workers", err=True)
    is_too_little = outcome.coverage(subject) * 100 < least
    sys.exit(int(bool(outcome.found) or is_too_little))


def _subject(file: str, parameters: tuple[str, ...]) -> Subject:
    """Give what is simulated: the machine as its own document says it, with the properties of FILE. Raises DocumentError, MachineError, TooLargeError."""
    document = machine_document(file)
    values = parse_parameters(parameters)
    machine = load(file if document == locate(file) else str(document)).at(values)
    require_sound(machine)
    warn_of_errors(file, machine, "what is found may be the table's fault")
    subject = Subject(machine, read_text(document), handlers_of(machine), monitored(load(file)))
    if not subject.triples:
        raise DocumentError(file, "has no row that can be taken: there is nothing to simulate")
    return subject


def _one(asked: Asked, subject: Subject, seed: int, *, json_wanted: bool) -> int:
    """Play one seed and tell its story; give the exit code."""
    story = Story(subject, seed, telling=True).play()
    if json_wanted:
        outcome = simulate(subject, (seed,))
        say(json.dumps(as_json(asked.file, subject, outcome, seed, 0.0, story), indent=2))
    else:
        for line in told(asked, subject, story):
            say(line)
    return int(story.violation is not None)


def _show_progress(count: int, done: int) -> None:
    """Show how many seeds were played; take it away at the end."""
    show_line("" if done == count else f"{done:,} of {count:,} seeds")
