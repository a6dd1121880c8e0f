"""`dsa sim FILE`: a machine's runs in a simulated world where everything goes wrong, each determined by a seed.

The report has faults and coverage in figures, and the story of a seed as rows of the table. It depends only on FILE and the seeds; the time is
printed apart.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial

import attrs
import click

from dsa.checks.places import line_of
from dsa.checks.table_faults import require_sound
from dsa.cli.command_line import family_option, param_option, parse_families, parse_parameters, say, show_line
from dsa.cli.export import warn_of_errors
from dsa.cli.run import machine_document
from dsa.edge.document_files import load, locate, read_text
from dsa.errors import DocumentError
from dsa.lang import dumps
from dsa.runs.bindings import handlers_of
from dsa.runtime.ledger import EventEntry, Intents, MachineEntry, RefusalEntry, RowEntry, to_json
from dsa.runtime.ledger_story import entry_text, outcome_text
from dsa.semantics import Occurrence
from dsa.testing.explored_graph import row_label
from dsa.testing.simulation.oracles import ORACLES
from dsa.testing.simulation.seed_plan import FAULTS, RUN_ID, Subject, Triple, monitored_properties
from dsa.testing.simulation.story import CampaignResult, SeedResult, Story, enough, simulate
from dsa.trace import show_occurrence, show_values

_MOST_MISSED, _MOST_FOUND = 20, 10
_INDENT = "     "


@attrs.frozen
class SimArguments:
    """The arguments that the user has typed: FILE, the values of parameters, and the indices of families."""

    file: str
    parameters: tuple[str, ...] = ()
    families: tuple[str, ...] = ()

    def again(self, seed: int) -> str:
        """Return the command that shows a seed's story."""
        values = (word for value in self.parameters for word in ("--param", value))
        indices = (word for index in self.families for word in ("--family", index))
        return shlex.join(("dsa", "sim", self.file, *values, *indices, "--seed", str(seed)))


def report_lines(
    arguments: SimArguments, subject: Subject, outcome: CampaignResult, first: int, least: float
) -> Iterator[str]:
    """Yield the report on seeds: figures, triples that were not hit, and violations with the story of the first one."""
    values = show_values(subject.machine.constants.items())
    last = first + outcome.seeds - 1
    yield (
        f"{arguments.file}: {outcome.seeds:,} runs{f' at {values}' if values else ''} (seeds {first} to {last}), "
        f"{outcome.rows:,} rows taken, {outcome.processes:,} processes"
    )
    yield f"policies  {_policies(subject)}"
    width = max(len(fault) for fault in FAULTS)
    yield from (f"  {fault:<{width}}  {outcome.faults[fault]:>8,}" for fault in FAULTS if outcome.faults[fault])
    yield from _coverage(subject, outcome, least)
    yield from _oracles(arguments, subject, outcome)
    yield f"fingerprint {outcome.fingerprint:016x}"


def _policies(subject: Subject) -> str:
    return f"real ones for the effects {', '.join(sorted(subject.handlers))}" if subject.handlers else "made up"


def _coverage(subject: Subject, outcome: CampaignResult, least: float) -> Iterator[str]:
    triples, every = outcome.missed_triples(subject), len(subject.triples)
    share = outcome.coverage(subject)
    gate = f", fewer than {least:g}%" if share * 100 < least else ""
    yield f"row x boundary x fault: {every - len(triples):,} of {every:,} triples hit ({share:.1%}{gate})"
    yield from (f"  not hit: {_triple_text(subject, triple)}" for triple in triples[:_MOST_MISSED])
    if len(triples) > _MOST_MISSED:
        yield f"  and {len(triples) - _MOST_MISSED:,} more"


def _triple_text(subject: Subject, triple: Triple) -> str:
    return f"{row_label(subject.machine.transitions[triple.row], triple.row)}, {triple.boundary}, {triple.fault}"


def _oracles(arguments: SimArguments, subject: Subject, outcome: CampaignResult) -> Iterator[str]:
    if not outcome.breaches:
        yield f"oracles: all {len(ORACLES)} hold"
        return
    seeds = {violation.seed for violation in outcome.breaches}
    yield f"oracles: broken by {len(seeds):,} seeds"
    for violation in outcome.breaches[:_MOST_FOUND]:
        yield f"  seed {violation.seed}: {violation.oracle} ({violation.cites}): {violation.message}"
    if len(outcome.breaches) > _MOST_FOUND:
        yield f"  and {len(outcome.breaches) - _MOST_FOUND:,} more"
    yield ""
    yield from seed_story_lines(arguments, subject, Story(subject, outcome.breaches[0].seed, keep_log=True).play())
    yield ""


# -- a story ----------------------------------------------------------------------------------------------------------


def seed_story_lines(arguments: SimArguments, subject: Subject, story: SeedResult) -> Iterator[str]:
    """Yield a seed's story: rows of the table, the results of their effects, and the faults between them."""
    yield f"seed {story.seed} of {arguments.file}, aimed at {_triple_text(subject, story.aim)}"
    event: EventEntry | None = None
    intents = Intents()
    for item in story.log:
        if not isinstance(item, str):
            intents.take(item)
        match item:
            case str():
                yield f"{_INDENT}{item}"
            case MachineEntry():
                pass
            case EventEntry():
                event = item
            case RowEntry() | RefusalEntry() if event is not None:
                yield f"{event.seq:>3}  {_event(event)}  {outcome_text(item)}"
            case _:
                yield f"{_INDENT}{entry_text(item, RUN_ID, intents)}"
    violation = story.violation
    yield f"broken: {violation}" if violation else f"all oracles hold; {story.rows} rows, {story.lives} processes"
    yield f"again: {arguments.again(story.seed)}"


def _event(event: EventEntry) -> str:
    answer = "" if event.key is None else f" (of {event.key})"
    return f"{show_occurrence(Occurrence(event.event, event.verdicts, event.source))}{answer}"


# -- for programs -----------------------------------------------------------------------------------------------------


def as_json(
    file: str, subject: Subject, outcome: CampaignResult, first: int, seconds: float, story: SeedResult | None = None
) -> dict[str, object]:
    """Return the report as one object; `story` only for a single seed."""
    rows = subject.machine.transitions
    report = {
        "file": file,
        "machine": subject.machine.name,
        "run": RUN_ID,
        "parameters": subject.machine.constants,
        "seeds": {"first": first, "count": outcome.seeds},
        "rows_taken": outcome.rows,
        "processes": outcome.processes,
        "policies": sorted(subject.handlers),
        "faults": {fault: outcome.faults[fault] for fault in FAULTS},
        "coverage": {
            "triples": len(subject.triples),
            "hit": len(subject.triples) - len(outcome.missed_triples(subject)),
            "missed": [
                {
                    "row": str(rows[t.row]),
                    "line": line_of(rows[t.row]) or None,
                    "boundary": t.boundary,
                    "fault": t.fault,
                }
                for t in outcome.missed_triples(subject)
            ],
        },
        "oracles": [{"name": oracle.name, "cites": oracle.cites} for oracle in ORACLES],
        "broken": [
            {"seed": each.seed, "oracle": each.oracle, "cites": each.cites, "message": each.message}
            for each in outcome.breaches
        ],
        "fingerprint": f"{outcome.fingerprint:016x}",
        "seconds": round(seconds, 3),
    }
    log = () if story is None else story.log
    items = [item if isinstance(item, str) else to_json(item) for item in log]
    return report | ({} if story is None else {"story": items})


#: The default of the least coverage, in percent.
_COVERAGE = 95.0
_MOST_WORKERS = 8


@click.command("sim")
@click.argument("file")
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of seeds. [default: enough to cover everything]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="S",
    help="The first seed. Without --seeds, simulate only this seed and print its events.",
)
@param_option("Set a parameter, such as rmax=1.")
@family_option()
@click.option(
    "--coverage",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit with 1 if fewer than PERCENT of all combinations were simulated. A combination is a row, a moment while this row is taken, and a fault at that moment. [default: 95; with --seed or --seeds: none]",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="The number of worker processes. [default: as many as processors]",
)
@click.option("--json", "json_wanted", is_flag=True, help="Print one JSON object.")
def command(
    file: str,
    seeds: int | None,
    seed: int | None,
    parameters: tuple[str, ...],
    families: tuple[str, ...],
    coverage: float | None,
    workers: int | None,
    *,
    json_wanted: bool,
) -> None:
    """Run FILE in a simulated world of crashes before and after every step, failing disks, two processes that hold one run, and clocks that jump. The code that drives this run (the driver) is the code that drives real runs.

    FILE is a machine, or a spec; the properties of a spec are watched as well. With the same FILE and seeds, the output is
    always the same. Exit code 0: good; 1: a property of the spec or a guarantee of the driver was violated, or fewer combinations were simulated than --coverage asks for; 2: FILE cannot be read or is too large.
    """
    subject, arguments = _subject(file, parameters, parse_families(families)), SimArguments(file, parameters, families)
    if seed is not None and seeds is None:
        if coverage is not None:
            raise click.UsageError("--coverage is about many seeds; add --seeds N")
        sys.exit(_one(arguments, subject, seed, json_wanted=json_wanted))
    first, count = seed or 0, seeds or enough(subject)
    workers = workers or min(os.cpu_count() or 1, _MOST_WORKERS)
    began_s = time.perf_counter()
    outcome = simulate(subject, range(first, first + count), workers=workers, progress=partial(_show_progress, count))
    seconds = time.perf_counter() - began_s
    least = coverage if coverage is not None else _COVERAGE if seeds is None else 0.0
    if json_wanted:
        say(json.dumps(as_json(file, subject, outcome, first, seconds), indent=2))
    else:
        for line in report_lines(arguments, subject, outcome, first, least):
            say(line)
        say(f"{seconds:.1f} s, {count / seconds:,.0f} runs a second with {workers} workers", err=True)
    is_too_little = outcome.coverage(subject) * 100 < least
    sys.exit(int(bool(outcome.breaches) or is_too_little))


def _subject(file: str, parameters: tuple[str, ...], families: Mapping[str, str]) -> Subject:
    """Return the subject: the machine of its own document, with the properties of FILE. Raises DocumentError, MachineError, StoreError."""
    document = machine_document(file)
    values = parse_parameters(parameters)
    machine = load(file if document == locate(file) else str(document), families).at(values)
    require_sound(machine)
    warn_of_errors(file, machine, "faults in the report may come from the table")
    text = dumps(load(str(document), families)) if families else read_text(document)
    subject = Subject(machine, text, handlers_of(machine), monitored_properties(load(file, families)))
    if not subject.triples:
        raise DocumentError(file, "has no row that can be taken: there is nothing to simulate")
    return subject


def _one(arguments: SimArguments, subject: Subject, seed: int, *, json_wanted: bool) -> int:
    """Play one seed and print its story; return the exit code."""
    story = Story(subject, seed, keep_log=True).play()
    if json_wanted:
        outcome = simulate(subject, (seed,))
        say(json.dumps(as_json(arguments.file, subject, outcome, seed, 0.0, story), indent=2))
    else:
        for line in seed_story_lines(arguments, subject, story):
            say(line)
    return int(story.violation is not None)


def _show_progress(count: int, seeds_played: int) -> None:
    """Show the number of seeds that were played; remove it at the end."""
    show_line("" if seeds_played == count else f"{seeds_played:,} of {count:,} seeds")
