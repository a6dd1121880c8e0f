"""Archives: the reading half of the entry point. Nothing here drives a run.

A recorded run is replayed with the machine from its own text. Its ledger alone determines its status; the store knows who holds it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import attrs

from dsa.errors import DsaError, MachineError, ParameterError
from dsa.expr import Value
from dsa.lang import digest, loads
from dsa.machine import Machine, spelled_like
from dsa.runs.place import MEMORY, PART_OF, RunPlace
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.ledger import ChangeEntry, Entry, MachineEntry
from dsa.runtime.run import Run, replay
from dsa.runtime.run_store import Delivery, RunSummary, StoredRun, read_delivery
from dsa.runtime.secrets import Secrets, secret_error
from dsa.runtime.status import RunStatus, status_of
from dsa.runtime.timeline import Moment

if TYPE_CHECKING:
    from dsa.runs.handle import RunHandle

#: The time between two reads of a run that another process drives, in seconds.
POLL_S = 0.01


class RunArchive:
    """The runs of one place as they are recorded, whichever process drives them. `poll_s` is the time between two looks at a run, in seconds."""

    poll_s = 0.02

    def __init__(self, place: RunPlace) -> None:
        self._place = place
        self._handles: WeakValueDictionary[str, RunHandle] = WeakValueDictionary()

    @property
    def root(self) -> Path | None:
        """The folder where the runs are kept; None in memory."""
        return self._place.root

    @property
    def where(self) -> Path:
        """The name of the place, as `--runs` takes it: the folder, `memory:`, or the address of a server as a path."""
        return self.root or Path(MEMORY)

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order in which they were begun."""
        return self._place.store.runs() if self._place.is_made else ()

    def handle(self, run_id: str) -> "RunHandle | None":
        """Return the handle of a run that is in use in this process, driven or not; None if there is none."""
        return self._handles.get(run_id)

    def get(self, run_id: str) -> "RunRecord":
        """Read a run. Raises UnknownRunError, DamageError, OtherMachineError, ReplayError."""
        return record_of(self._place.store.read(run_id))

    def stored_run(self, run_id: str) -> StoredRun:
        """Read what is stored of a run, without replaying it. Raises UnknownRunError, DamageError."""
        return self._place.store.read(run_id)

    def entries(self, run_id: str, *, after: int = 0) -> tuple[Entry, ...]:
        """Read a run's entries after the first `after`. Raises UnknownRunError, DamageError."""
        return self._place.store.read_after(run_id, after)

    def summary(self, run_id: str) -> RunSummary:
        """Return the summary of a run, without reading its ledger. Raises UnknownRunError."""
        return self._place.store.summary(run_id)

    async def look(self, run_id: str, *, after: int = 0) -> "RunNews":
        """Return the status of a run, and its entries after the first `after`. Raises UnknownRunError, DamageError, StoreError."""
        summary, handle = self.summary(run_id), self._handles.get(run_id)
        is_driven = handle is not None and handle.is_driven
        if after == 0:
            stored_run = self.stored_run(run_id)
            return RunNews(summary, tuple(stored_run.entries), stored_run.text, is_driven=is_driven)
        entries = self.entries(run_id, after=after) if summary.entries > after else ()
        return RunNews(summary, entries, is_driven=is_driven)

    async def list(
        self,
        *,
        status: str | None = None,
        waiting_for: str | None = None,
        machine: str | None = None,
        now_ms: int | None = None,
        newest: int | None = None,
    ) -> tuple[RunSummary, ...]:
        """Return the summaries of all runs that match the filter, in the order in which they were begun. Reads no ledger.

        `status` is one of: under way, waiting, due, in doubt, stopped, interrupted, cut off, finished, damaged; `waiting_for` an event that they
        wait for. Waiting runs are due if `now_ms` (milliseconds since 1970) is past their deadline. `newest` is how many of the runs that
        were begun last are wanted (at least 1).
        """
        return await self._summaries(RunFilter(status, waiting_for, machine, now_ms, newest))

    async def _summaries(self, selection: "RunFilter") -> tuple[RunSummary, ...]:
        if not self._place.is_made:
            return ()
        status, event, machine = selection.status, selection.waiting_for, selection.machine
        summaries = self._place.store.summaries(
            status=status, waiting_for=event, machine=machine, now_ms=selection.now_ms
        )
        return summaries[-(selection.newest or 0) :]

    async def count(self) -> int:
        """Return the number of all runs."""
        return len(self.ids())

    def delivery(self, message: str) -> Delivery | None:
        """Return the outcome of a message that was posted to a run's inbox; None while it waits there. Raises StoreError for an unknown id."""
        outcome = self._place.store.outcome_of(message)
        return None if outcome is None else read_delivery(outcome)

    def lost_count(self) -> int:
        """Return the number of runs that were kept here and cannot be found any more."""
        return self._place.lost_count()

    def artifacts(self, run_id: str) -> ArtifactStore:
        """Return the store of a run's artifacts."""
        return self._place.artifacts(run_id)

    def folder(self, run_id: str) -> Path | None:
        """Return the folder of a run, for people; None in memory."""
        return None if self.root is None else self.root / run_id

    async def follow(self, run_id: str, *, after: int = 0) -> AsyncIterator[Moment]:
        """Yield the moments of a run after the first `after` entries, then new ones as they come, until it is finished.

        Each moment is durable. A slow reader reads from the store; nothing is queued for it. Raises UnknownRunError, DamageError.
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

    async def wanted_worker(self, run_id: str) -> str:  # noqa: ARG002  (as elsewhere)
        """Return which worker a run waits for, and how to start it. A run in a folder or in memory needs none: any process can drive it."""
        return ""

    async def _change(self, run_id: str) -> None:
        """Wait until something may have happened in a run."""
        handle = self._handles.get(run_id)
        if handle is not None and handle.is_driven:
            await handle.change()
        else:
            await asyncio.sleep(POLL_S)

    async def remove(self, run_id: str) -> None:
        """Remove a run, its parts, their artifacts and their folders. The ids are not used again.

        The ledgers go first, all at once: a removal that is cut off leaves at most files, but no run. Raises UnknownRunError, and HeldError
        for a run that a process drives; then nothing has changed.
        """
        store = self._place.store
        parts = [each for each in store.runs() if each.startswith(f"{run_id}{PART_OF}")]
        store.remove(run_id, *parts)
        for each in (run_id, *parts):
            self._place.forget(each)


@attrs.frozen
class RunFilter:
    """The runs that a list shows, as in `RunArchive.list`."""

    status: str | None = None
    waiting_for: str | None = None
    machine: str | None = None
    now_ms: int | None = None
    newest: int | None = None


@attrs.frozen
class RunNews:
    """The news of a run: its status, its new entries, and whether `interrupt` can stop what drives it.

    `text` is that of its machine when the run began; it comes with the first entries.
    """

    summary: RunSummary
    entries: tuple[Entry, ...]
    text: str = ""
    is_driven: bool = attrs.field(default=False, kw_only=True)


class OtherMachineError(DsaError):
    """Raised when a recorded run's machine reads differently now, so that its ledger may mean something else. `run` is its id.

    `digest_now` is empty if the document is not a machine any more.
    """

    def __init__(self, run: str, digest_then: str, digest_now: str) -> None:
        self.run = run
        now = f"now has the digest {digest_now[:12]}" if digest_now else "is no longer a machine"
        super().__init__(
            f"run {run} belongs to another machine: the recorded digest is {digest_then[:12]}, but the document {now}"
        )


def require_no_secret(text: str, secrets: Secrets) -> None:
    """Raise DsaError, with the line, when a document has a secret in it."""
    for place, name in secrets.places(text):
        line = text.count("\n", 0, place) + 1
        raise secret_error(
            f"line {line} of the document contains the secret {name}, which every run would store: remove the secret, and let programs "
            f"read it from their environment. If it is not a secret, add --not-secret {name}"
        )


def replay_stored(stored_run: StoredRun, fold: Callable[..., Run] = replay) -> tuple[Run, MachineEntry]:
    """Return a recorded run as it was when it was last written, and its first entry as it would read for the current machine.

    `fold` is `replay`, or `rederive` to compare the ledger with what the machine does. Raises OtherMachineError or ReplayError.
    """
    first = stored_run.entries[0]
    assert isinstance(first, MachineEntry), "a run of a machine begins with it"

    machines = [_required_machine(stored_run.run, stored_run.text, first)]

    def machine_of(entry: ChangeEntry) -> Machine:
        machines.append(spelled_like(_required_machine(stored_run.run, entry.text, entry), machines[-1]))
        return machines[-1]

    run = fold(machines[0], stored_run.entries, machine_of)
    for entry in stored_run.entries:
        first = _first_entry_after(first, entry) if isinstance(entry, ChangeEntry) else first
    return run, first


def _required_machine(run: str, text: str, entry: MachineEntry | ChangeEntry) -> Machine:
    """Read the machine that an entry names. Raises OtherMachineError if it reads differently now."""
    try:
        machine, read = recorded_machine(text, entry.parameters)
    except (MachineError, ParameterError) as fault:
        raise OtherMachineError(run, entry.digest, "") from fault
    if read != entry.digest:
        raise OtherMachineError(run, entry.digest, read)
    return machine


def _first_entry_after(first: MachineEntry, change: ChangeEntry) -> MachineEntry:
    """Return the first entry as it would read for another machine."""
    settings = {**dict(first.started), "file": change.file}
    return attrs.evolve(first, name=change.name, digest=change.digest, parameters=change.parameters, started=settings)


def text_of(first_text: str, entries: Iterable[Entry]) -> str:
    """Return the text of a run's current machine: that of the last change, or else the one that the run began with."""
    texts = [entry.text for entry in entries if isinstance(entry, ChangeEntry)]
    return texts[-1] if texts else first_text


@lru_cache(maxsize=64)
def recorded_machine(text: str, parameters: tuple[tuple[str, Value], ...]) -> tuple[Machine, str]:
    """Return a run's machine and its digest; many runs have the same one. Raises MachineError, ParameterError."""
    machine = loads(text, "machine.md").at(dict(parameters))
    return machine, digest(machine)


@attrs.frozen
class RunRecord:
    """A recorded run: what is stored, the first entry as it would read for the current machine, the replayed run, and its status."""

    stored_run: StoredRun
    first: MachineEntry
    run: Run
    status: RunStatus


def record_of(stored_run: StoredRun) -> RunRecord:
    """Replay a recorded run. Raises OtherMachineError or ReplayError."""
    run, first = replay_stored(stored_run)
    return RunRecord(stored_run, first, run, status_of(run, stored_run.holder))


def change_machine(
    run: Run, first: MachineEntry, change: Callable[[Run], ChangeEntry | None]
) -> tuple[Run, MachineEntry]:
    """Put a run under another machine if `change` returns an entry for one; return the run and its first entry. Raises OtherMachineError."""
    entry = change(run)
    if entry is None:
        return run, first
    machine = spelled_like(_required_machine(run.run_id, entry.text, entry), run.machine)
    return run.under(machine, entry), _first_entry_after(first, entry)
