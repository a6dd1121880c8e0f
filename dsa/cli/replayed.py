"""`dsa check FILE --trace RECORD`: a recorded trace run again, told to people or as JSON to programs."""

from typing import Any

import click

from dsa.checks.replay import Observation, Replay, replay
from dsa.cli.as_json import steps_as_json
from dsa.cli.faults import tell_json
from dsa.cli.records import place_in, read_record
from dsa.cli.terminal import Painted, say
from dsa.cli.told import places_of
from dsa.edge.files import load

_COLOURS = {"satisfied": "green", "violated": "red"}
#: A verdict takes so many columns, so that what follows is aligned.
_WIDTH = len("satisfied")


def replayed(files: tuple[str, ...], trace: str, *, json_wanted: bool) -> int:
    """Run a recorded trace on one machine again and tell what came of it; give the exit code."""
    if len(files) != 1:
        raise click.UsageError("--trace takes one FILE: the machine that the trace is of")
    found = replay(load(files[0]), read_record(trace))
    if json_wanted:
        tell_json(_as_json(files[0], trace, found))
    else:
        _tell(files[0], trace, found)
    return int(found.failed)


def _as_json(file: str, trace: str, found: Replay) -> dict[str, Any]:
    """Give what came of running a recorded trace again as an object."""
    return {
        "file": file,
        "trace": trace,
        "steps": steps_as_json(found.trace),
        "mismatch": {"step": found.mismatch.step, "message": found.mismatch.message} if found.mismatch else None,
        "monitors": [
            {
                "text": seen.text,
                "line": seen.line,
                "verdict": seen.watched.verdict if seen.watched else None,
                "step": seen.watched.step if seen.watched else None,
            }
            for seen in found.observations
        ],
    }


def _tell(file: str, trace: str, found: Replay) -> None:
    """Print what came of running a recorded trace again."""
    for line in found.trace.show(found.loop).split("\n"):
        say(line)
    if found.mismatch:
        say(f"{place_in(trace, found.mismatch.step)}: {found.mismatch.message}")
    places = places_of(seen.claim.span for seen in found.observations)
    for place, seen in zip(places, found.observations, strict=True):
        say(_watched(seen), f"  {place}{seen.text}{_since(seen)}")
    fits = len(found.trace.steps)
    say(f"{file}: {fits} of the {found.total} steps of {trace} are what the table does")


def _watched(seen: Observation) -> Painted:
    verdict = seen.watched.verdict if seen.watched else "-"
    return Painted(verdict.ljust(_WIDTH), _COLOURS.get(verdict))


def _since(seen: Observation) -> str:
    """Say at which step a monitor was decided, or why there is none."""
    if seen.watched is None:
        return "  (about all runs together: no monitor of one)"
    if seen.watched.step is None:
        return ""
    where = f"at step {seen.watched.step}" if seen.watched.step else "at the start"
    return f"  owed since {where.removeprefix('at ')}" if seen.watched.verdict == "pending" else f"  {where}"
