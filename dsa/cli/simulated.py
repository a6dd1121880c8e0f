"""What a simulation found, for people and programs: faults and coverage in figures, a seed's story as rows of the table.

Takes outcomes and stories, gives lines and objects. They depend on nothing but the seeds; times are told apart.
"""

import shlex
from collections.abc import Iterator
from typing import Any

import attrs

from dsa.checks.places import line_of
from dsa.cli.timeline import entry_text, outcome_text
from dsa.meaning import Occurrence
from dsa.runtime.intents import Intents
from dsa.runtime.ledger import EventEntry, MachineEntry, RefusalEntry, RowEntry, to_json
from dsa.testing.coverage import described
from dsa.testing.simulation.campaign import Outcome
from dsa.testing.simulation.faults import FAULTS, Triple
from dsa.testing.simulation.oracles import ORACLES
from dsa.testing.simulation.story import Story, Told
from dsa.testing.simulation.subject import RUN, Subject
from dsa.trace import show_occurrence, show_values

_MOST_MISSED, _MOST_FOUND = 20, 10
_INDENT = "     "


@attrs.frozen
class Asked:
    """What a person has typed: FILE, and parameters' values."""

    file: str
    parameters: tuple[str, ...] = ()

    def again(self, seed: int) -> str:
        """Give the command that tells a seed's story."""
        values = (word for value in self.parameters for word in ("--param", value))
        return shlex.join(("dsa", "sim", self.file, *values, "--seed", str(seed)))


def shown(asked: Asked, subject: Subject, outcome: Outcome, first: int, least: float) -> Iterator[str]:
    """Say what came of seeds: figures, what was not covered, what was found with the story of the first."""
    values = show_values(subject.machine.constants.items())
    last = first + outcome.seeds - 1
    yield (
        f"{asked.file}: {outcome.seeds:,} runs{f' at {values}' if values else ''} (seeds {first} to {last}), "
        f"{outcome.rows:,} rows taken, {outcome.processes:,} processes"
    )
    yield f"policies  {_policies(subject)}"
    width = max(len(fault) for fault in FAULTS)
    yield from (f"  {fault:<{width}}  {outcome.struck[fault]:>8,}" for fault in FAULTS if outcome.struck[fault])
    yield from _coverage(subject, outcome, least)
    yield from _oracles(asked, subject, outcome)
    yield f"fingerprint {outcome.fingerprint:016x}"


def _policies(subject: Subject) -> str:
    return f"real ones of {', '.join(sorted(subject.handlers))}" if subject.handlers else "made up"


def _coverage(subject: Subject, outcome: Outcome, least: float) -> Iterator[str]:
    missed, every = outcome.missed(subject), len(subject.triples)
    share = outcome.coverage(subject)
    gate = f", fewer than {least:g}%" if share * 100 < least else ""
    yield f"row x boundary x fault: {every - len(missed):,} of {every:,} triples hit ({share:.1%}{gate})"
    yield from (f"  not hit: {_named(subject, triple)}" for triple in missed[:_MOST_MISSED])
    if len(missed) > _MOST_MISSED:
        yield f"  and {len(missed) - _MOST_MISSED:,} more"


def _named(subject: Subject, triple: Triple) -> str:
    return f"{described(subject.machine.transitions[triple.row], triple.row)}, {triple.boundary}, {triple.fault}"


def _oracles(asked: Asked, subject: Subject, outcome: Outcome) -> Iterator[str]:
    if not outcome.found:
        yield f"oracles: all {len(ORACLES)} kept"
        return
    seeds = {found.seed for found in outcome.found}
    yield f"oracles: broken by {len(seeds):,} seeds"
    for found in outcome.found[:_MOST_FOUND]:
        yield f"  seed {found.seed}: {found.oracle} ({found.cites}): {found.message}"
    if len(outcome.found) > _MOST_FOUND:
        yield f"  and {len(outcome.found) - _MOST_FOUND:,} more"
    yield ""
    yield from told(asked, subject, Story(subject, outcome.found[0].seed, telling=True).play())
    yield ""


# -- a story ----------------------------------------------------------------------------------------------------------


def told(asked: Asked, subject: Subject, story: Told) -> Iterator[str]:
    """Tell a seed's story: rows of the table, what came of their effects, and what went wrong between them."""
    yield f"seed {story.seed} of {asked.file}, aimed at {_named(subject, story.aim)}"
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
                yield f"{_INDENT}{entry_text(item, RUN, intents)}"
    broken = story.violation
    yield f"broken: {broken}" if broken else f"all oracles kept; {story.rows} rows, {story.lives} processes"
    yield f"again: {asked.again(story.seed)}"


def _event(event: EventEntry) -> str:
    answered = "" if event.key is None else f" (of {event.key})"
    return f"{show_occurrence(Occurrence(event.event, event.verdicts, event.source))}{answered}"


# -- for programs -----------------------------------------------------------------------------------------------------


def as_json(
    file: str, subject: Subject, outcome: Outcome, first: int, seconds: float, story: Told | None = None
) -> dict[str, Any]:
    """Give all of it as one object; `story` only where one seed was asked for."""
    rows = subject.machine.transitions
    found = {
        "file": file,
        "machine": subject.machine.name,
        "run": RUN,
        "parameters": subject.machine.constants,
        "seeds": {"first": first, "count": outcome.seeds},
        "rows_taken": outcome.rows,
        "processes": outcome.processes,
        "policies": sorted(subject.handlers),
        "faults": {fault: outcome.struck[fault] for fault in FAULTS},
        "coverage": {
            "triples": len(subject.triples),
            "hit": len(subject.triples) - len(outcome.missed(subject)),
            "missed": [
                {
                    "row": str(rows[t.row]),
                    "line": line_of(rows[t.row]) or None,
                    "boundary": t.boundary,
                    "fault": t.fault,
                }
                for t in outcome.missed(subject)
            ],
        },
        "oracles": [{"name": oracle.name, "cites": oracle.cites} for oracle in ORACLES],
        "broken": [
            {"seed": each.seed, "oracle": each.oracle, "cites": each.cites, "message": each.message}
            for each in outcome.found
        ],
        "fingerprint": f"{outcome.fingerprint:016x}",
        "seconds": round(seconds, 3),
    }
    log = () if story is None else story.log
    items = [item if isinstance(item, str) else to_json(item) for item in log]
    return found | ({} if story is None else {"story": items})
