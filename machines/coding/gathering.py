"""The work on a goal with what its parts have done so far: they are runs of their own, and the whole's ledger tells of them when all are over.

Takes the entries of the whole and the folder of runs, gives the work. It changes nothing.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from dsa.runs.folder import PART_OF
from dsa.runs.place import open_store
from dsa.runtime.journal import UnknownRunError
from dsa.runtime.ledger import Entry
from machines.coding.summary import added, summary_of
from machines.coding.work import Work, work_of


def name_of(run_id: str, place: str) -> str:
    """Name the run of a part by its place."""
    return f"{run_id}{PART_OF}{place}"


def kept_parts(runs: Path, run_id: str, places: Iterable[str]) -> Iterator[tuple[str, Work]]:
    """Give the work of the parts that were begun, by their places. Raises StoreError."""
    with open_store(runs, must_exist=True) as store:
        for place in places:
            with suppress(UnknownRunError):
                yield place, work_of(store.read(name_of(run_id, place)).entries)


def gathered(entries: Iterable[Entry], runs: Path, run_id: str) -> Work:
    """Give the work of a run, that of parts with it whose group is not over. Raises StoreError."""
    work = work_of(entries)
    parts = {place: part for place, part in open_parts(work, runs, run_id).items() if part.chapters}
    told = [
        {**summary_of(place, name_of(run_id, place), part, ""), "status": "apart", "reason": ""}
        for place, part in parts.items()
    ]
    work.join(told, added(part.usage for part in parts.values()))
    work.under_way += [key for part in parts.values() for key in part.under_way]
    return work


def open_parts(work: Work, runs: Path, run_id: str) -> dict[str, Work]:
    """Give the work of parts whose group is not over, by their places. Raises StoreError."""
    apart = [place for place, _, subtask in work.places if subtask.status == "apart"]
    return dict(kept_parts(runs, run_id, apart)) if apart else {}
