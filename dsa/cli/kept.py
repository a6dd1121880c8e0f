"""Recorded runs as several commands need them: which one is meant, what it holds, why it cannot be read.

Takes what a user wrote for RUN and `--runs`, returns recorded and replayed runs; every fault becomes a sentence and an exit code.
"""

import asyncio
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from dsa.cli.faults import INTERRUPTED, UNREADABLE, Ended, note_run
from dsa.errors import GenerationError
from dsa.runs.place import DEFAULT_RUNS, PART_OF
from dsa.runs.record import OtherMachineError, RunRecord, record_of
from dsa.runs.runs import Runs, open_runs
from dsa.runtime.artifacts import ArtifactStoreError
from dsa.runtime.journal import DamageError, HeldError, Recorded, StoreError
from dsa.runtime.parts import place_in_part
from dsa.runtime.recorded import ReplayMismatchError
from dsa.runtime.run import ReplayError
from dsa.words import nearest

LAST = "last"
_SHOWN = 3
runs_option = click.option("--runs", "root", default=DEFAULT_RUNS, show_default=True, help="Where runs are kept.")
_BUDGET = (
    "At most so much in all, as calls=20 or usd=0.5, or of one effect, as EFFECT.tokens=4000; units: calls, tokens, usd, seconds. "
    "Calls are tries of any effect that has answers, not of the model alone: EFFECT.calls=20 counts those of one."
)
budget_option = click.option("--budget", multiple=True, metavar="LIMIT", help=_BUDGET)


@contextmanager
def opened(root: Path) -> Iterator[Runs]:
    """Open the runs of a folder to read them. Raises Ended, and DocumentError when no run is kept there."""
    with faults_told(root):
        runs = open_runs(root, must_exist=True)
        try:
            yield runs
        finally:
            asyncio.run(runs.close())


def find(ids: Sequence[str], wanted: str, root: Path) -> str:
    """Return the id of the run that a user means, one of `ids`: an id, a part of just one, its folder, or `last`. Raises Ended.

    Runs that are a part of another one are meant when they are named, or a part of their name that the other has not.
    """
    wanted = wanted.rstrip("/").rpartition("/")[2]  # a shell completes the name of a run's folder
    if wanted in ids:
        return wanted
    if not ids:
        raise Ended(f"{root}: no run is kept here", UNREADABLE)
    whole, _, part = wanted.partition(PART_OF)
    if whole == LAST:
        newest = next((run for run in reversed(ids) if PART_OF not in run), ids[-1])
        return find(ids, f"{newest}{PART_OF}{part}", root) if part else newest
    named = [run for run in ids if wanted in run]
    found = [run for run in named if PART_OF not in run] or named
    if len(found) == 1:
        return found[0]
    if found:
        told = f"'{wanted}' is a part of {len(found)} runs in {root}: {_some(found)}"
        raise Ended(f"{told}; write more of it", UNREADABLE)
    meant = nearest(wanted, (LAST, *ids))
    hint = f"did you mean '{meant}'?" if meant else f"the newest: {_some(ids[-_SHOWN:])};"
    raise Ended(f"there is no run '{wanted}' in {root}; {hint} `dsa runs` lists them all", UNREADABLE)


def _some(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else ""
    return ", ".join(runs[:_SHOWN]) + more


def recorded_run(root: Path, wanted: str) -> Recorded:
    """Read the run that a user means. Raises Ended, and DocumentError when no run is kept there."""
    with opened(root) as runs:
        found = find(runs.ids(), wanted, root)
        note_run(root / found)
        return runs.recorded(found)


def told_record(root: Path, recorded: Recorded) -> RunRecord:
    """Replay the run of a machine that was read. Raises Ended."""
    with faults_told(root):
        return machine_record(recorded)


def machine_record(recorded: Recorded) -> RunRecord:
    """Replay a recorded run. Raises OtherMachineError; Ended for a run that is not its machine's."""
    try:
        return record_of(recorded)
    except ReplayError as fault:
        raise Ended(f"damaged: run {recorded.run}, {fault}", 1) from fault


@contextmanager
def faults_told(root: Path, directory: Callable[[], Path | None] = lambda: None) -> Iterator[None]:
    """Turn what can go wrong with a run into a sentence and an exit code.

    `directory` gives the folder of the run that is driven, if one is.
    """
    try:
        yield
    except HeldError as error:
        alive = "that process is alive, and goes on with it; --take takes the run away from it"
        raise Ended(f"{error}: {alive}", 1) from error
    except DamageError as error:
        raise Ended(f"damaged: {error}", 1) from error
    except OtherMachineError as error:
        document = root / error.run / "machine.md"
        told = f"`dsa diff {document} FILE` says what FILE changes, `dsa replay {error.run} --against FILE` whether the run fits it"
        raise Ended(f"{error}; {told}", 1) from error
    except (ReplayMismatchError, GenerationError, StoreError, ArtifactStoreError) as error:
        raise Ended(str(error), 1) from error
    except OSError as error:
        raise Ended(f"the run cannot be written to {directory() or root}: {error.strerror or error}", 1) from error
    except KeyboardInterrupt:
        at = directory()
        kept = f"; what was done so far is kept in {at}: `{line('resume', at)}` goes on" if at else ""
        raise Ended(f"interrupted{kept}", INTERRUPTED, directory=at) from None


def line(verb: str, directory: Path, *words: str, at: str = "") -> str:
    """Give the command that does something with the run of a directory, ready to paste; `at` is the place of the question that it answers, maybe in a part of the run."""
    root = directory.parent
    where = [] if str(root) == DEFAULT_RUNS else ["--runs", str(root)]
    return shlex.join(["dsa", verb, place_in_part(directory.name, at) if at else directory.name, *words, *where])
