"""Recorded runs: replayed with the machine that their own text gives, and where they stand."""

from collections.abc import Callable, Iterable
from functools import lru_cache

import attrs

from dsa.durations import spelled_like
from dsa.errors import DsaError, MachineError, ParameterError
from dsa.expr import Value
from dsa.lang import digest, loads
from dsa.machine import Machine
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import ChangeEntry, Entry, MachineEntry
from dsa.runtime.run import Run, replay
from dsa.runtime.secret_names import SecretError
from dsa.runtime.secrets import Secrets
from dsa.runtime.standing import Standing, standing


class OtherMachineError(DsaError):
    """Raised when a recorded run's machine reads differently now: its ledger cannot be trusted to mean the same. `run` names it."""

    def __init__(self, run: str, recorded: str, now: str) -> None:
        self.run = run
        super().__init__(
            f"run {run} is one of another machine: it was recorded as {recorded[:12]}, and its document reads as {now[:12]} now"
        )


def require_no_secret(text: str, secrets: Secrets) -> None:
    """Raise SecretError when a document has a secret in it, with its line."""
    for place, name in secrets.places(text):
        line = text.count("\n", 0, place) + 1
        raise SecretError(
            f"line {line} of the document has the secret {name} in it, and a run keeps its document: take it out, and let programs "
            f"read it from their environment. If it is none, say --not-secret {name}"
        )


def replayed(recorded: Recorded, fold: Callable[..., Run] = replay) -> tuple[Run, MachineEntry]:
    """Give a recorded run as it was when it was last written, and its first entry as it would read for the machine that runs now.

    `fold` is `replay`, or `rederive` for whoever compares. Raises OtherMachineError or ReplayError.
    """
    first = recorded.entries[0]
    assert isinstance(first, MachineEntry), "a run of a machine begins with it"

    machines = [_machine_read(recorded.run, recorded.text, first)]

    def machine_of(entry: ChangeEntry) -> Machine:
        machines.append(spelled_like(_machine_read(recorded.run, entry.text, entry), machines[-1]))
        return machines[-1]

    run = fold(machines[0], recorded.entries, machine_of)
    for entry in recorded.entries:
        first = _as_changed(first, entry) if isinstance(entry, ChangeEntry) else first
    return run, first


def _machine_read(run: str, text: str, entry: MachineEntry | ChangeEntry) -> Machine:
    """Read the machine that an entry names. Raises OtherMachineError when it reads otherwise now."""
    try:
        machine, read = _machine_of(text, entry.parameters)
    except (MachineError, ParameterError) as fault:
        raise OtherMachineError(run, entry.digest, "no machine") from fault
    if read != entry.digest:
        raise OtherMachineError(run, entry.digest, read)
    return machine


def _as_changed(first: MachineEntry, change: ChangeEntry) -> MachineEntry:
    """Give the first entry as it would read for another machine."""
    started = {**dict(first.started), "file": change.file}
    return attrs.evolve(first, name=change.name, digest=change.digest, parameters=change.parameters, started=started)


def text_of(begun: str, entries: Iterable[Entry]) -> str:
    """Give the document that runs, of a run that was begun with another one or the same."""
    changed = [entry.text for entry in entries if isinstance(entry, ChangeEntry)]
    return changed[-1] if changed else begun


@lru_cache(maxsize=64)
def _machine_of(text: str, parameters: tuple[tuple[str, Value], ...]) -> tuple[Machine, str]:
    """Give a run's machine and its digest; many runs have the same one."""
    machine = loads(text, "machine.md").at(dict(parameters))
    return machine, digest(machine)


@attrs.frozen
class RunRecord:
    """A recorded run: what is stored, its first entry as it would read for the machine that runs now, the run, how it stands."""

    recorded: Recorded
    first: MachineEntry
    run: Run
    standing: Standing


def record_of(recorded: Recorded) -> RunRecord:
    """Replay a recorded run. Raises OtherMachineError or ReplayError."""
    run, first = replayed(recorded)
    return RunRecord(recorded, first, run, standing(run, recorded.holder))


def changed(run: Run, first: MachineEntry, change: Callable[[Run], ChangeEntry | None]) -> tuple[Run, MachineEntry]:
    """Let a run go on under another machine, if `change` gives one; return it with its first entry. Raises OtherMachineError."""
    entry = change(run)
    if entry is None:
        return run, first
    machine = spelled_like(_machine_read(run.run_id, entry.text, entry), run.machine)
    return run.under(machine, entry), _as_changed(first, entry)
