"""One run from beginning to end, or from where it was cut off: a machine driven in the folder where runs are kept.

Takes a machine with its text, or a run's id, and a binding; gives what became of it. Whatever was acknowledged is durable, however this
ends.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs

from dsa.declarations import OUTSIDE
from dsa.edge.binding import Binding, effect_names
from dsa.edge.deciding import answered, require_decidable, require_sendable
from dsa.edge.driver import Driver, Rest
from dsa.edge.interrupts import run_to_end
from dsa.edge.logs import LedgerLog
from dsa.edge.render import RenderError, svg
from dsa.edge.runs import RunDirectory, accepted_artifacts, new_run_id, open_artifacts, open_store
from dsa.errors import DsaError, MachineError, ParameterError
from dsa.expr import Value
from dsa.lang import digest, loads
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.budgets import Limit, read_limit
from dsa.runtime.content import Artifact
from dsa.runtime.journal import Beginning, Journal, Recorded
from dsa.runtime.ledger import ChangeEntry, Entry, Handling, MachineEntry
from dsa.runtime.recovery import unfinished
from dsa.runtime.run import SPECIFICATION, Run, begin, replay
from dsa.runtime.secret_names import SecretError
from dsa.runtime.secrets import Secrets
from dsa.targets import emit

Observer = Callable[[Entry], None]


@attrs.frozen
class Performed:
    """A run that came to rest: how, where its files are, what it made, how many seconds it took this time.

    `final` and `diagram` are None when no step has passed, and when no renderer is installed.
    """

    rest: Rest
    directory: Path
    accepted: tuple[Artifact, ...]
    final: Path | None
    diagram: Path | None
    seconds: float


class OtherMachineError(DsaError):
    """Raised when a recorded run's machine reads differently now: its ledger cannot be trusted to mean the same. `run` names it."""

    def __init__(self, run: str, recorded: str, now: str) -> None:
        self.run = run
        super().__init__(
            f"run {run} is one of another machine: it was recorded as {recorded[:12]}, and its document reads as {now[:12]} now"
        )


def perform(
    machine: Machine,
    text: str,
    binding: Binding,
    specification: str | None,
    *,
    root: Path,
    started: Mapping[str, Any] | None = None,
    observe: Observer = lambda _entry: None,
) -> Performed:
    """Run a machine until it is finished, waits, or fails.

    `specification` is the data of the event of that name; a machine without it starts by itself, or waits. `started` is kept, and says
    with what the run goes on after a crash; its `budget` is a list of limits as `read_limit` takes them, and raises BudgetError. Raises
    SecretError when the text has one of the binding's secrets in it: it is what the run is replayed with, so nothing can be taken out.
    """
    require_no_secret(text, binding.secrets)
    limits = _limits(machine, (started or {}).get("budget") or ())
    known, now_ms = binding.secrets.value(dict(started or {})), time.time_ns() // 1_000_000
    run, commands = begin(machine, new_run_id(machine.name), digest=digest(machine), started=known, at_ms=now_ms)
    first = [Occurrence(SPECIFICATION, data=specification or "")] if takes_specification(machine) else []
    log, told = _logged(0, observe, observe)
    with open_store(root) as store, kept(root, run, text, told) as (artifacts, directory, watch):
        journal = Beginning(store, run.run_id, text)
        driver = Driver(run, binding, artifacts, commands=commands, journal=journal, limits=limits, observe=watch)
        return _performed(driver, journal, artifacts, directory, first, {}, log)


def take_up(
    root: Path,
    run_id: str,
    bind: Callable[[MachineEntry, Machine], Binding],
    *,
    sent: tuple[Occurrence, ...] = (),
    decided: Mapping[str, Handling] | None = None,
    answers: Mapping[str, Occurrence] | None = None,
    take: bool = False,
    budget: Sequence[str] = (),
    change: Callable[[Run], ChangeEntry | None] = lambda _run: None,
    observe: Observer = lambda _entry: None,
    recall: Observer = lambda _entry: None,
) -> Performed:
    """Go on with a run: where it was cut off, where a failure stopped it, or with an event that it waits for.

    `bind` gives the binding for how the run was started. `decided` says what is done about effects in doubt, by their keys; `answers` are the
    events with which such effects were answered. `take` takes the run from a process that holds it and is alive. `budget` takes
    the place of the one that the run was started with. `change` may give another machine for the run; whether it fits is for it to say.
    `recall` is given the entries that are there already, `observe` those that come.

    Raises StoreError, OtherMachineError, ReplayError when the ledger is not the machine's, DoubtError for what cannot be said of
    an effect, OccurrenceError for an event that the run cannot be sent; then nothing has changed.
    """
    with _held(root, run_id, take=take) as (journal, recorded):
        run, first = _changed(*replayed(recorded), change)
        for occurrence in sent:
            require_sendable(run.machine, occurrence)
        require_decidable(run.machine, unfinished(run), decided or {}, answers or {})
        limits = _limits(run.machine, budget or dict(first.started).get("budget") or ())
        binding = bind(first, run.machine)
        text = _document(recorded, run, binding)
        said = {key: _without_secrets(each, binding) for key, each in (answers or {}).items()}
        run = answered(run, said, time.time_ns() // 1_000_000)
        journal.append(run.ledger[len(recorded.entries) :])
        log, told = _logged(len(recorded.entries), recall, observe)
        with kept(root, run, text, told) as (artifacts, directory, watch):
            left = unfinished(run)
            driver = Driver(run, binding, artifacts, left=left, journal=journal, limits=limits, observe=watch)
            return _performed(driver, journal, artifacts, directory, sent, decided or {}, log)


@contextmanager
def _held(root: Path, run_id: str, *, take: bool) -> Iterator[tuple[Journal, Recorded]]:
    """Be the writer of a run."""
    with open_store(root, must_exist=True) as store:
        journal, recorded = store.hold(run_id, take=take)
        try:
            yield journal, recorded
        finally:
            journal.release()


def _document(recorded: Recorded, run: Run, binding: Binding) -> str:
    """Give the document that runs from now on. Raises SecretError when it is a new one and has a secret in it."""
    before, text = (text_of(recorded.text, entries) for entries in (recorded.entries, run.ledger))
    if text != before:
        require_no_secret(text, binding.secrets)
    return text


def require_no_secret(text: str, secrets: Secrets) -> None:
    """Raise SecretError when a document has a secret in it, with its line."""
    for place, name in secrets.places(text):
        line = text.count("\n", 0, place) + 1
        raise SecretError(
            f"line {line} of the document has the secret {name} in it, and a run keeps its document: take it out, and let programs "
            f"read it from their environment. If it is none, say --not-secret {name}"
        )


def _without_secrets(said: Occurrence, binding: Binding) -> Occurrence:
    return attrs.evolve(said, data=binding.secrets.value(said.data))


def _limits(machine: Machine, budget: Sequence[str]) -> list[Limit]:
    effects = [name for name, _ in effect_names(machine)]
    return [read_limit(text, effects) for text in budget]


def all_of(*observers: Observer) -> Observer:
    """Give an observer that hands every entry to each of them, in this order."""

    def watch(entry: Entry) -> None:
        for observe in observers:
            observe(entry)

    return watch


def _logged(count: int, recall: Observer, observe: Observer) -> tuple[LedgerLog, Observer]:
    """Give what logs a run that has so many entries already, and the observer of all of them: it and those given."""
    log = LedgerLog()
    return log, _first(count, all_of(log.recall, recall), all_of(log.observe, observe))


def _first(count: int, first: Observer, then: Observer) -> Observer:
    """Give an observer that hands so many entries to one, and those that follow to another."""
    left = iter(range(count))

    def watch(entry: Entry) -> None:
        is_new = next(left, None) is None
        (then if is_new else first)(entry)

    return watch


def replayed(recorded: Recorded, fold: Callable[..., Run] = replay) -> tuple[Run, MachineEntry]:
    """Give a recorded run as it was when it was last written, and its first entry as it would read for the machine that runs now.

    `fold` is `replay`, or `derived` for whoever compares. Raises OtherMachineError or ReplayError.
    """
    first = recorded.entries[0]
    assert isinstance(first, MachineEntry), "a run of a machine begins with it"

    def machine_of(entry: ChangeEntry) -> Machine:
        return _machine_read(recorded.run, entry.text, entry)

    run = fold(_machine_read(recorded.run, recorded.text, first), recorded.entries, machine_of)
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


def _changed(run: Run, first: MachineEntry, change: Callable[[Run], ChangeEntry | None]) -> tuple[Run, MachineEntry]:
    """Let a run go on under another machine, if it is to."""
    entry = change(run)
    if entry is None:
        return run, first
    return run.under(_machine_read(run.run_id, entry.text, entry), entry), _as_changed(first, entry)


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


@contextmanager
def kept(root: Path, run: Run, text: str, observe: Observer) -> Iterator[tuple[ArtifactStore, RunDirectory, Observer]]:
    """Open what a run generates and the directory that people look at; give both, and who watches on behalf of them."""
    artifacts = open_artifacts(root, run.run_id)
    with RunDirectory(root, run.run_id, run.machine, text, artifacts) as directory:

        def watch(entry: Entry) -> None:
            directory.observe(entry)
            observe(entry)

        yield artifacts, directory, watch


def _performed(
    driver: Driver,
    journal: Journal,
    artifacts: ArtifactStore,
    directory: RunDirectory,
    sent: tuple[Occurrence, ...] | list[Occurrence],
    decided: Mapping[str, Handling],
    log: LedgerLog,
) -> Performed:
    """Drive until the run rests, and write down what it made."""
    began = time.monotonic()
    rest = run_to_end(driver.drive(*sent, decided=decided))
    seconds = time.monotonic() - began
    if rest.failure is not None:
        log.stopped(rest.failure.what, rest.failure.line, rest.failure.code, rest.failure.message)
    journal.release()
    diagram = None
    with suppress(RenderError):
        diagram = directory.write_diagram(svg(emit(rest.run.machine, "dot")))
    accepted = tuple(accepted_artifacts(rest.run, artifacts))
    return Performed(rest, directory.path, accepted, directory.write_final(rest.run), diagram, seconds)


def takes_specification(machine: Machine) -> bool:
    """Tell whether the machine waits for the event `specification`."""
    event = machine.event_named.get(SPECIFICATION)
    return event is not None and event.origin == OUTSIDE
