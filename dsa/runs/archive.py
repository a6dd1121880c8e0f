"""Archives: the reading half of the door. Nothing here drives a run."""

import asyncio
import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from dsa.runs.place import PART_OF, Place
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.inbox import Delivered, delivered
from dsa.runtime.journal import Recorded, RunSummary
from dsa.runtime.ledger import Entry
from dsa.runtime.moment import Moment

if TYPE_CHECKING:  # a list of runs needs neither the driver nor the language
    from dsa.runs.handle import RunHandle
    from dsa.runs.record import RunRecord

#: How long a follower of another process's run waits between two looks, in seconds.
POLL_S = 0.01


class RunArchive:
    """The runs of one place as they are recorded, whichever process drives them."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._known: WeakValueDictionary[str, RunHandle] = WeakValueDictionary()

    @property
    def root(self) -> Path | None:
        """The folder where the runs are kept; None in memory."""
        return self._place.root

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order they were begun."""
        return self._place.store.runs() if self._place.is_made else ()

    def handle(self, run_id: str) -> "RunHandle | None":
        """Return the handle of a run that this process drives, or that somebody here still has; else None."""
        return self._known.get(run_id)

    def get(self, run_id: str) -> "RunRecord":
        """Read a run. Raises UnknownRunError, DamageError, OtherMachineError, ReplayError."""
        record: RunRecord = importlib.import_module("dsa.runs.record").record_of(self._place.store.read(run_id))
        return record

    def recorded(self, run_id: str) -> Recorded:
        """Read what is stored of a run, without replaying it. Raises UnknownRunError, DamageError."""
        return self._place.store.read(run_id)

    def entries(self, run_id: str, *, after: int = 0) -> tuple[Entry, ...]:
        """Read a run's entries after the first `after`. Raises UnknownRunError, DamageError."""
        return self._place.store.read_after(run_id, after)

    def summary(self, run_id: str) -> RunSummary:
        """Return how a run stands, without reading its ledger. Raises UnknownRunError."""
        return self._place.store.summary(run_id)

    async def list(
        self,
        *,
        status: str | None = None,
        waiting_for: str | None = None,
        machine: str | None = None,
        now_ms: int | None = None,
    ) -> tuple[RunSummary, ...]:
        """Return how all runs stand, or those that the filter asks for, in the order they were begun. Reads no ledger.

        `status` is one of: under way, waiting, due, in doubt, stopped, interrupted, cut off, finished, damaged; `waiting_for` an event that they
        wait for. Runs that wait are due if `now_ms` (milliseconds since 1970) is past their deadline.
        """
        if not self._place.is_made:
            return ()
        return self._place.store.summaries(status=status, waiting_for=waiting_for, machine=machine, now_ms=now_ms)

    def delivery(self, message: str) -> Delivered | None:
        """Return what came of a message that was posted to a run's inbox; None while it waits there. Raises StoreError when there is none of that id."""
        outcome = self._place.store.outcome_of(message)
        return None if outcome is None else delivered(outcome)

    def lost(self) -> int:
        """Return how many runs were kept here and cannot be found any more."""
        return self._place.lost()

    def artifacts(self, run_id: str) -> ArtifactStore:
        """Return what a run generated."""
        return self._place.artifacts(run_id)

    def folder(self, run_id: str) -> Path | None:
        """Return the folder of a run, for people; None in memory."""
        return None if self.root is None else self.root / run_id

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[Moment]:
        """Iterate over what happened in a run after the first `after` entries, and over what happens, until it is finished.

        Each moment is durable; a slow reader reads from the store, and nothing is queued for it. Raises UnknownRunError, DamageError.
        """
        store = self._place.store
        while True:
            is_over = store.summary(run_id).summary.status == "finished"
            if store.version(run_id) > after:
                for entry in store.read_after(run_id, after):
                    after += 1
                    yield Moment(run_id, after, entry)
            elif is_over:
                return
            else:
                await self._change(run_id)

    async def _change(self, run_id: str) -> None:
        """Wait until something may have happened in a run."""
        handle = self._known.get(run_id)
        if handle is not None and handle.is_driven:
            await handle.change()
        else:
            await asyncio.sleep(POLL_S)

    async def remove(self, run_id: str) -> None:
        """Remove a run, the runs that are parts of it, what they generated and their folders. The ids are not used again.

        The ledgers go first, all at once: a removal that was cut off leaves files at most, and no run. Raises UnknownRunError, and HeldError
        for a run that somebody drives; then nothing has changed.
        """
        store = self._place.store
        parts = [each for each in store.runs() if each.startswith(f"{run_id}{PART_OF}")]
        store.remove(run_id, *parts)
        for each in (run_id, *parts):
            self._place.forget(each)
