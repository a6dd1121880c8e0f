"""A run that begins as another one did: the same entries up to a place where nothing is under way, under a name of its own.

Takes a recorded run, gives the entries of the branch. Keys name their run, so they are written anew; artifacts keep the ids that they once
got. The fold is taken over them again, which finds out whether what was cut makes sense.
"""

from collections.abc import Iterable
from itertools import pairwise

import attrs

from dsa.errors import DsaError
from dsa.runs.record import replayed
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import (
    ArtifactEntry,
    Entry,
    EventEntry,
    Ledger,
    MachineEntry,
    RefusalEntry,
    ResultEntry,
    StepEntry,
    VerdictEntry,
    from_json,
    to_json,
)
from dsa.runtime.recovery import unfinished


class BranchError(DsaError):
    """Raised when a run cannot be branched at a place."""


def branched(recorded: Recorded, length: int, name: str) -> Recorded:
    """Give the branch `name` of a run: its first `length` entries. Raises BranchError where something was under way then."""
    whole = len(recorded.entries)
    if not 1 <= length <= whole:
        raise BranchError(f"run {recorded.run} has {whole} entries; it cannot be branched after {length}")
    entries = [_renamed(entry, recorded.run, name) for entry in recorded.entries[:length]]
    first = entries[0]
    assert isinstance(first, MachineEntry), "a run of a machine begins with it"
    started = {**dict(first.started), "branched_from": {"run": recorded.run, "entries": length}}
    entries[0] = attrs.evolve(first, started=started)
    branch = attrs.evolve(recorded, run=name, entries=Ledger(entries), epoch=0, holder=None)
    run, _ = replayed(branch)
    if len(run.ledger) > length:
        raise BranchError(
            f"entry {length + 1} of run {recorded.run} belongs to the one before: it cannot be branched between them"
        )
    if run.configuration.outstanding or unfinished(run).in_flight:
        raise BranchError(
            f"run {recorded.run} had effects under way after {length} entries; it can be branched where it rests"
        )
    return branch


def copy_artifacts(branch: Recorded, old: ArtifactStore, new: ArtifactStore) -> None:
    """Store what a branch's ledger names in the branch's own store, under the same ids, with the verdicts of that ledger."""
    named = {entry.artifact_id for entry in branch.entries if isinstance(entry, ArtifactEntry)}
    for attempt in old.attempts():
        if attempt.artifact_id in named:
            new.store(old.get_artifact(attempt.artifact_id), attempt.author, attempt.run_id)
    for entry in branch.entries:
        if isinstance(entry, VerdictEntry):
            new.record_verdict(entry)


def _renamed(entry: Entry, old: str, new: str) -> Entry:
    """Give an entry as the other run has it."""
    written = to_json(entry)
    if isinstance(entry, MachineEntry):
        written["run"] = new
    if isinstance(written.get("key"), str):
        written["key"] = _name(written["key"], old, new)
    if isinstance(entry, RefusalEntry):
        written["message"] = _name(entry.message, old, new)  # of a late answer: it begins with the key
    if isinstance(entry, ResultEntry):
        written["steps"] = [{**step, "id": _name(step["id"], old, new)} for step in entry.steps]
    return from_json(written)


def _name(text: str, old: str, new: str) -> str:
    return f"{new}{text.removeprefix(old)}" if text.startswith(f"{old}/") else text


def length_before(entries: Iterable[Entry], event: str, number: int) -> int:
    """Give how many entries stand before the `number`th time that an event was taken, from 1; all of them where it was taken less often."""
    known, seen = list(entries), 0
    for at, (entry, following) in enumerate(pairwise(known)):
        seen += isinstance(entry, EventEntry) and entry.event == event and isinstance(following, StepEntry)
        if seen == number:
            return at
    return len(known)
