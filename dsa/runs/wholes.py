"""Wholes: the runs that nothing is a part of. Parts are driven by them alone; whatever comes for a part makes its whole due."""

from collections.abc import Iterable, Mapping

from dsa.runs.archive import RunArchive
from dsa.runs.handle import require_place
from dsa.runs.place import PART_OF
from dsa.runtime.journal import RunSummary, UnknownRunError
from dsa.runtime.parts import asking_run


def asked_run(runs: RunArchive, run_id: str, event: str, at: str | None) -> tuple[str, str | None]:
    """Return the run that an event for `run_id` is meant for, and the place of the question there.

    That is a part of it where the place names one, or, without a place, where the part alone waits for the event. Raises UnknownRunError; TypeError for a place that is no text.
    """
    require_place(at)
    if at is not None:
        return (asking_run(at), at.rpartition("@")[2]) if asking_run(at) else (run_id, at)
    handle = runs.handle(run_id)
    waited = handle.waits_for if handle is not None and handle.is_driven else runs.summary(run_id).summary.waits_for
    place = waited.get(event, "")
    return (asking_run(place), place.rpartition("@")[2]) if asking_run(place) else (run_id, None)


def driving_run(runs: RunArchive, run_id: str) -> str:
    """Return the run that has to be driven so that this one goes on: the one that waits for it as for a part, or else itself."""
    if PART_OF not in run_id:
        return run_id
    whole = run_id.partition(PART_OF)[0]
    try:
        found = runs.summary(whole)
    except UnknownRunError:
        return run_id
    return whole if run_id in found.summary.parts or found.holder is not None else run_id


def due_runs(found: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the runs that a worker takes up: no parts, and nothing that a person has interrupted. A run is due as soon as a part that it waits for is."""
    known = {each.run: each for each in found}
    return [each for each in known.values() if each.summary.parent is None and _is_due(each, known)]


def _is_due(found: RunSummary, known: Mapping[str, RunSummary]) -> bool:
    if found.status == "waiting":
        return any(_has_moved(known[part]) for part in found.summary.parts if part in known)
    return found.is_due and found.summary.status != "interrupted"


def _has_moved(part: RunSummary) -> bool:
    """Tell whether there is something to do in a part, or something has come of it: its whole has not heard of that."""
    return part.status not in {"waiting", "under way", "interrupted", "damaged"}
