"""How durations of timers are spelled: as the document does where it names one first. `after 120s` is `after 2m` (S11).

A timer is known by its text, so that all that is shown of it reads as it was written. Machines that are compared are spelled alike before.
"""

from collections.abc import Callable, Mapping

import attrs

from dsa.claims import Scenario
from dsa.declarations import TIMER_PREFIX, Transition, parse_duration, show_duration
from dsa.machine import Machine


def duration_of(event: str) -> int:
    """Return the duration of a timer in milliseconds; 0 for an event that is none."""
    return (parse_duration(event.removeprefix(TIMER_PREFIX)) or 0) if event.startswith(TIMER_PREFIX) else 0


def spelling_of(machine: Machine) -> dict[int, str]:
    """Return how a machine spells its timers, by their durations in milliseconds."""
    return {duration_of(row.event): row.event for row in machine.transitions if row.is_timer}


def spelled(machine: Machine, spelling: Mapping[int, str]) -> Machine:
    """Return a machine whose timers are spelled so, those that have none there as they are."""

    def name(event: str) -> str:
        return spelling.get(duration_of(event), event)

    if all(name(event) == event for event in spelling_of(machine).values()):
        return machine
    rows: tuple[Transition, ...] = tuple(attrs.evolve(row, event=name(row.event)) for row in machine.transitions)
    return attrs.evolve(machine, transitions=rows, scenarios=tuple(_spelled(each, name) for each in machine.scenarios))


def spelled_like(machine: Machine, other: Machine) -> Machine:
    """Return a machine whose timers are spelled as another one spells those of the same durations."""
    return spelled(machine, spelling_of(other))


def spelled_shortest(machine: Machine) -> Machine:
    """Return a machine whose timers have the largest units that fit, however they are written: what it means is the same."""
    known = spelling_of(machine)
    return spelled(machine, {duration_ms: TIMER_PREFIX + show_duration(duration_ms) for duration_ms in known})


def _spelled(scenario: Scenario, name: Callable[[str], str]) -> Scenario:
    return attrs.evolve(scenario, steps=tuple(attrs.evolve(each, event=name(each.event)) for each in scenario.steps))
