"""A run that begins as another one did: the same entries up to a place where nothing is under way, under a name of its own.

Takes a recorded run, gives the entries of the branch: only the first names its run. Artifacts keep the ids that they once got. The fold is taken over them again, which finds out whether what was cut makes sense.
"""

from collections.abc import Iterable
from itertools import pairwise

import attrs

from dsa.errors import DsaError
from dsa.runs.record import replayed
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import ArtifactEntry, Entry, EventEntry, Ledger, MachineEntry, RowEntry, VerdictEntry
from dsa.runtime.recovery import unfinished


class BranchError(DsaError):
    """Raised when a run cannot be branched at a place."""


def branched(recorded: Recorded, length: int, name: str) -> Recorded:
    """Give the branch `name` of a run: its first `length` entries. Raises BranchError where something was under way then."""
    whole = len(recorded.entries)
    if not 1 <= length <= whole:
        raise BranchError(f"run {recorded.run} has {whole} entries; it cannot be branched after {length}")
    first, *others = recorded.entries[:length]
    assert isinstance(first, MachineEntry), "a run of a machine begins with it"
    started = {**dict(first.started), "branched_from": {"run": recorded.run, "entries": length}}
    entries = Ledger[Entry]((attrs.evolve(first, run=name, started=started), *others))
    branch = attrs.evolve(recorded, run=name, entries=entries, epoch=0, holder=None)
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


def length_before(entries: Iterable[Entry], event: str, number: int) -> int:
    """Give how many entries stand before the `number`th time that an event was taken, from 1; all of them where it was taken less often."""
    known, seen = list(entries), 0
    for at, (entry, following) in enumerate(pairwise(known)):
        seen += isinstance(entry, EventEntry) and entry.event == event and isinstance(following, RowEntry)
        if seen == number:
            return at
    return len(known)
