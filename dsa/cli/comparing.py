"""Two documents compared, for `dsa diff`: what they declare, what they do from their starts, and which runs in flight fit the new one.

Takes machines and a folder of runs, gives a `Diff`; prints nothing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from dsa.checks.differ import Comparison, compare
from dsa.checks.differ_declared import Change
from dsa.checks.differ_pairs import Pair
from dsa.checks.differ_rows import changes, same_control
from dsa.checks.engines.found import Limits
from dsa.cli.faults import Ended
from dsa.cli.fitting import Fit, Fitting
from dsa.cli.kept import machine_record, opened
from dsa.errors import ParameterError
from dsa.expr import Value
from dsa.machine import Machine, minima
from dsa.runs import runs as door
from dsa.runs.record import OtherMachineError, RunRecord
from dsa.runtime.journal import DamageError


@attrs.frozen
class Compared:
    """Both machines at values of their parameters, and whether they do the same from their starts."""

    pair: Pair
    found: Comparison


@attrs.frozen
class Flight:
    """A run in flight, and whether it may go on under the new machine."""

    record: RunRecord
    fit: Fit


@attrs.frozen
class Runs:
    """The runs of a folder: the old machine's, those in flight judged and the finished ones counted.

    `others` counts the runs in flight of other machines; `damaged` says of the runs that cannot be read what is the matter.
    """

    root: Path
    flights: tuple[Flight, ...]
    finished: int
    others: int
    damaged: Mapping[str, str]

    @property
    def fit(self) -> bool:
        """Tell whether every run in flight is compatible; nobody knows of what cannot be read."""
        return not self.damaged and all(flight.fit.verdict == "compatible" for flight in self.flights)


@attrs.frozen
class Diff:
    """All that was found out about two documents. `compared` is empty when nothing that controls a run has changed."""

    files: tuple[str, str]
    machines: tuple[Machine, Machine]
    changes: tuple[Change, ...]
    compared: tuple[Compared, ...]
    runs: Runs | None = None

    @property
    def verdict(self) -> str:
        """EQUAL at all values that were looked at, else DIFFERENT at some, else UNKNOWN."""
        found = {each.found.verdict for each in self.compared}
        return next((verdict for verdict in ("DIFFERENT", "UNKNOWN") if verdict in found), "EQUAL")


def compared(
    files: tuple[str, str], machines: tuple[Machine, Machine], given: Mapping[str, Value], limits: Limits
) -> Diff:
    """Compare two machines: what they declare, and what they do from their starts. Raises ParameterError."""
    found, values = changes(*machines), list(valuations(*machines, given))
    pairs = () if same_control(found) else (Pair(*each) for each in values)
    return Diff(files, machines, found, tuple(Compared(pair, compare(pair, pair.start, limits)) for pair in pairs))


def valuations(old: Machine, new: Machine, given: Mapping[str, Value]) -> Iterator[tuple[Machine, Machine]]:
    """Give both machines at the values to compare at: those given; else each at its defaults, both at the old defaults, each at its minima.

    A parameter that only one of them has is set in that one alone. Raises ParameterError for a name that neither has.
    """
    if given:
        for name in given:
            if not _has(old, name) and not _has(new, name):
                old.at({name: given[name]})  # raises, and names those there are
        yield _set(old, given), _set(new, given)
        return
    pairs = [(old, new), (old, _at_others(new, old)), (old.at(minima(old)), new.at(minima(new)))]
    for place, pair in enumerate(pairs):
        if pair not in pairs[:place]:
            yield pair


def _at_others(machine: Machine, other: Machine) -> Machine:
    """Give a machine at another's values, as far as its own domains have them."""
    for name, value in other.constants.items():
        try:
            machine = _set(machine, {name: value})
        except ParameterError:
            continue  # nobody can run it so
    return machine


def _has(machine: Machine, name: str) -> bool:
    return any(p.name == name or p.name.startswith(f"{name}.") for p in machine.parameters)


def _set(machine: Machine, values: Mapping[str, Value]) -> Machine:
    return machine.at({name: value for name, value in values.items() if _has(machine, name)})


# -- runs in flight ---------------------------------------------------------------------------------------------------


def judged(root: Path, machines: tuple[Machine, Machine], limits: Limits) -> Runs:
    """Judge the runs of the old machine that are kept in a folder. Raises Ended, and DocumentError when no run is kept there."""
    fitting, flights, damaged = Fitting(machines[1], limits), list[Flight](), dict[str, str]()
    finished = others = 0
    with opened(root) as runs:
        for run in runs.ids():
            record = _record(runs, run)
            if isinstance(record, str):
                damaged[run] = record
            elif not _is_of(record, machines[0]):
                others += record.standing.kind != "finished"
            elif record.standing.kind == "finished":
                finished += 1
            else:
                flights.append(Flight(record, fitting.judge(record.run)))
    return Runs(root, tuple(flights), finished, others, damaged)


def _record(runs: door.Runs, run: str) -> RunRecord | str:
    """Read a run; say why it cannot be read."""
    try:
        return machine_record(runs.recorded(run))
    except DamageError as fault:
        if fault.run is None:
            raise
        return f"damaged: {fault}"
    except OtherMachineError as fault:
        return str(fault)
    except Ended as fault:
        return fault.message


def _is_of(record: RunRecord, machine: Machine) -> bool:
    """Tell whether a run is one of a machine, whatever that claims of itself by now."""
    try:
        there = machine.at(dict(record.first.parameters))
    except ParameterError:
        return False
    return without_claims(record.run.machine) == without_claims(there)


def without_claims(machine: Machine) -> Machine:
    """Give a machine without properties and scenarios, which may be added to at any time."""
    return attrs.evolve(machine, properties=(), scenarios=())
