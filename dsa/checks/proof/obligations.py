"""What must hold of every machine before its properties mean anything, as sights.

Takes a system, gives obligations: starts and updates stay inside domains, never two rows at once, every answer and timer handled, nothing emitted
while it is outstanding, no deadlock.
"""

from collections.abc import Iterator

import attrs

from dsa.checks.observers import Observed, Sight
from dsa.declarations import OUTSIDE
from dsa.meaning import Occurrence
from dsa.simplify import FALSE, any_of, negated
from dsa.system import Fault, System, in_domain, start_values


@attrs.frozen
class Obligation:
    """Something a table owes its readers: what it is, what must never be seen, and the occurrence that each sight refuses."""

    name: str
    text: str
    found: Observed
    faults: tuple[Fault, ...] = ()

    def fault(self, sight: Sight | None) -> Fault | None:
        """Give the fault behind a sight."""
        for fault, its in zip(self.faults, self.found.sights, strict=False):
            if its is sight:
                return fault
        return None


_TEXTS = {
    "determinism": "never two rows at once",
    "completeness": "every answer and every timer has a row",
    "domains": "every update stays in its domain",
    "emission": "no effect is emitted while it is outstanding",
}


def obligations(system: System) -> Iterator[Obligation]:
    """Give the obligations of a system, the start's first."""
    initial = start_values(system)
    outside = any_of(negated(in_domain(v, initial[v.name])) for v in system.machine.variables)
    yield Obligation("start", "every variable starts in its domain", Observed(system, outside, ()))
    sorted_out: dict[str, list[Fault]] = {name: [] for name in _TEXTS}
    for fault in system.faults:
        name = _obligation_of(system, fault)
        if name:
            sorted_out[name].append(fault)
    for name, faults in sorted_out.items():
        sights = tuple(Sight(fault.location, fault.condition) for fault in faults)
        yield Obligation(name, _TEXTS[name], Observed(system, FALSE, sights), tuple(faults))
    yield Obligation("deadlock", "no deadlock", Observed(system, FALSE, tuple(_stuck(system))))


def _obligation_of(system: System, fault: Fault) -> str:
    match fault.reason:
        case "ambiguous":
            return "determinism"
        case "out_of_domain":
            return "domains"
        case "emitted_twice":
            return "emission"
        case _:
            return "" if _is_outside(system, fault.occurrence) else "completeness"


def _is_outside(system: System, occurrence: Occurrence) -> bool:
    return occurrence.source is None and system.machine.event_named[occurrence.event].origin == OUTSIDE


def _stuck(system: System) -> Iterator[Sight]:
    """Give where nothing can happen any more, although the state is not final and nothing is awaited."""
    for place in range(len(system.locations)):
        if system.may_rest(place) and not system.is_final(place):
            stuck = negated(any_of(command.condition for command in system.commands_at[place]))
            if stuck != FALSE:
                yield Sight(place, stuck)
