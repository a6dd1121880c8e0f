"""The work on a goal with what its parts have done so far: they are runs of their own, and the whole's ledger tells of them when all are over.

Takes the entries of the whole and the runs beside it, gives the work. It changes nothing.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

import attrs

from dsa.runs.place import PART_OF
from dsa.runs.runs import Runs
from dsa.runtime.journal import UnknownRunError
from dsa.runtime.ledger import Entry
from machines.coding.summary import added, summary_of
from machines.coding.work import Work, work_of


def name_of(run_id: str, place: str) -> str:
    """Name the run of a part by its place."""
    return f"{run_id}{PART_OF}{place}"


def kept_parts(runs: Runs, run_id: str, places: Iterable[str]) -> Iterator[tuple[str, Work]]:
    """Give the work of the parts that were begun, by their places. Raises StoreError."""
    for place in places:
        with suppress(UnknownRunError):
            yield place, work_of(runs.recorded(name_of(run_id, place)).entries)


def gathered(entries: Iterable[Entry], runs: Runs, run_id: str) -> Work:
    """Give the work of a run, that of parts with it whose group is not over. Raises StoreError."""
    work = work_of(entries)
    apart = [place for place, _, subtask in work.places if subtask.status == "apart"]
    parts = {place: part for place, part in kept_parts(runs, run_id, apart) if part.chapters}
    told = [
        attrs.evolve(summary_of(place, name_of(run_id, place), part, ""), status="apart", reason="")
        for place, part in parts.items()
    ]
    work.join(told, added(part.usage for part in parts.values()))
    work.under_way += [key for part in parts.values() for key in part.under_way]
    return work
