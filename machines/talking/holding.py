"""A run that this process holds: begun, or taken up again from its ledger, with what its policies work with.

Takes a shipped machine by its name and what binds it, gives a driver, and what lets go of everything. What was acknowledged is in the ledger, so a
process that is killed loses nothing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import attrs
from dsa.runs.running import kept

from dsa.edge.binding import Binding
from dsa.edge.driver import Driver
from dsa.edge.files import locate, read_text
from dsa.errors import DsaError
from dsa.expr import Value
from dsa.lang import digest, loads
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.runs.folder import new_run_id
from dsa.runs.place import open_store
from dsa.runs.record import replayed
from dsa.runtime.budgets import Limit, read_limit
from dsa.runtime.journal import Beginning
from dsa.runtime.ledger import Entry
from dsa.runtime.recovery import unfinished
from dsa.runtime.run import begin

Observer = Callable[[Entry], None]
#: Binds a machine by what its run was started with (`model`, `seed`, `config`).
Bind = Callable[[Machine, Mapping[str, Any]], Binding]
#: Makes what the policies of a run work with; what it leaves in the stack is undone at the end.
Prepare = Callable[[Binding, str, ExitStack], None]


class StoppedError(DsaError):
    """Raised when a run cannot go on as asked."""


class WrongRunError(DsaError):
    """Raised for a run that is none of the machine that was meant."""


@attrs.frozen
class Held:
    """A run: its driver, and what lets go of it."""

    driver: Driver
    undone: ExitStack


class Holder:
    """Holds a run: drives it, and lets go of it. Use it as a context manager, or `close` it. `command` is what takes such a run up again."""

    command = ""

    def __init__(self, held: Held) -> None:
        self._driver, self._undone = held.driver, held.undone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the run; it can be taken up again."""
        self._undone.close()

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self._driver.run.run_id

    @property
    def is_over(self) -> bool:
        """Tell whether it is at a final state."""
        return self._driver.run.finished

    @property
    def values(self) -> dict[str, Value]:
        """The variables' values by name."""
        return self._driver.run.values

    async def drive(self, *occurrences: Occurrence) -> None:
        """Tell the run events, and wait until it rests. Raises StoppedError when a fault of ours has stopped it; the ledger keeps it."""
        rest = await self._driver.drive(*occurrences)
        if rest.in_doubt:
            key = rest.in_doubt[0].key
            raise StoppedError(f"it is in doubt what became of {key}: dsa show {self.run_id} says how to decide it")
        if rest.failure is not None:
            raise StoppedError(f"{rest.failure}; the run is kept: {self.command} --resume {self.run_id}")


def begun(
    name: str,
    parameters: Mapping[str, Value],
    started: Mapping[str, Any],
    bind: Bind,
    prepare: Prepare,
    *,
    runs: Path,
    observe: Observer,
    run_id: str = "",
) -> Held:
    """Begin a run of a shipped machine; its budget is that of `started["config"]`.

    What is wrong with its resources is said before anything is kept. `run_id` names it, else it gets a new name. Raises BindingError, StoreError, BudgetError, and what `prepare` raises.
    """
    document = locate(name)
    text = read_text(document)
    machine = loads(text, str(document)).at(dict(parameters))
    limits = limits_of(machine, started)
    binding = bind(machine, started)
    known = binding.secrets.value({"file": str(document), **started})
    now_ms = time.time_ns() // 1_000_000
    run, commands = begin(machine, run_id or new_run_id(name), digest=digest(machine), started=known, at_ms=now_ms)
    with ExitStack() as undone:
        prepare(binding, run.run_id, undone)
        store = undone.enter_context(open_store(runs))
        artifacts, _, watch = undone.enter_context(kept(runs, run, text, observe))
        journal = Beginning(store, run.run_id, text)
        undone.callback(journal.release)
        driver = Driver(run, binding, artifacts, commands=commands, journal=journal, observe=watch, limits=limits)
        return Held(driver, undone.pop_all())


def taken_up(
    run_id: str,
    name: str,
    bind: Bind,
    prepare: Prepare,
    *,
    runs: Path,
    observe: Observer,
    take: bool = False,
    budget: Sequence[str] = (),
) -> Held:
    """Take up a run, within the budget that it was begun with, or another one for all of it. `observe` is given what happens from now on. Raises WrongRunError, StoreError, OtherMachineError, ReplayError, BudgetError."""
    with ExitStack() as undone:
        store = undone.enter_context(open_store(runs, must_exist=True))
        journal, recorded = store.hold(run_id, take=take)
        undone.callback(journal.release)
        run, first = replayed(recorded)
        if run.machine.name != name:
            raise WrongRunError(f"run {run_id} is one of {run.machine.name}, not of {name}")
        started = dict(first.started)
        limits = limits_of(run.machine, {"config": {"budget": budget}} if budget else started)
        binding = bind(run.machine, started)
        prepare(binding, run_id, undone)
        news = _after(len(recorded.entries), observe)
        artifacts, _, watch = undone.enter_context(kept(runs, run, recorded.text, news))
        left = unfinished(run)
        driver = Driver(run, binding, artifacts, left=left, journal=journal, observe=watch, limits=limits)
        return Held(driver, undone.pop_all())


def limits_of(machine: Machine, started: Mapping[str, Any]) -> list[Limit]:
    """Give the budget with which a run was begun. Raises BudgetError."""
    budget: Sequence[str] = started["config"].get("budget") or ()
    return [read_limit(each, machine.answers) for each in budget]


def _after(count: int, observe: Observer) -> Observer:
    """Give an observer that leaves out so many entries: those that were there already."""
    left = iter(range(count))
    return lambda entry: observe(entry) if next(left, None) is None else None
