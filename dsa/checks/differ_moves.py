"""What may come to a machine in a configuration, and what the machine makes of it: asked one configuration at a time.

Takes a machine at its parameters' values; knows nothing of another one. What may come is what S12 and the closed system say: events from
outside that have rows there, answers of what is outstanding (`E.failed` where some row names it), armed timers.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import TypeVar

import attrs

from dsa.compiled_step import compiled_step
from dsa.declarations import OUTSIDE
from dsa.errors import OccurrenceError
from dsa.expr import Outcome
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence, Refusal, Taken, is_over
from dsa.system import MAX_COMBINATIONS
from dsa.timers import ArmTimer, Precedence, preceding, timers_after

#: An event by its name, or a timer by `after DURATION` and its source.
Key = tuple[str, str | None]
Timers = frozenset[tuple[str, str]]
Place = TypeVar("Place")
#: Where each place was come to from, and by what; None where the search began.
Came = dict[Place, tuple[Place, Occurrence] | None]


class TooManyVerdictsError(Exception):
    """Raised where more combinations of verdicts are possible than are looked at; its text says of which event."""


@attrs.frozen
class Coming:
    """Something that may come: whether rows are for it there, the guards that they read, whether it must be taken (S7, S11)."""

    has_rows: bool
    guards: tuple[str, ...]
    must_be_taken: bool


class Moves:
    """One machine's moves. What does not depend on the variables' values is found once for each leaf and what is outstanding."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._step = compiled_step(machine).step
        self._coming: dict[tuple[str, frozenset[str], Precedence], dict[Key, Coming]] = {}
        self._ways: dict[tuple[Key, tuple[str, ...]], tuple[Occurrence, ...]] = {}

    def coming(self, here: Configuration) -> dict[Key, Coming]:
        """Give all that may come, in declared order; nothing in a final state."""
        place = (here.state, here.outstanding, here.precedence)
        if place not in self._coming:
            self._coming[place] = {} if here.state in self.machine.final_states else dict(self._may_come(here))
        return self._coming[place]

    def _may_come(self, here: Configuration) -> Iterator[tuple[Key, Coming]]:
        machine = self.machine
        for event in machine.event_named.values():
            rows = machine.rows_for(here.state, event.name)
            is_failure = event.name == f"{event.origin}.failed" and event.origin in machine.answers
            is_read = not is_failure or event.origin in machine.failures_handled
            comes = bool(rows) if event.origin == OUTSIDE else is_read and event.origin in here.outstanding
            if comes:
                yield (event.name, None), Coming(bool(rows), read_guards(rows), event.origin != OUTSIDE)
        for source, timer in machine.armed(here.state):
            if preceding(here.precedence, (source, timer)):
                continue
            guards = read_guards(machine.rows_from[source, timer])
            yield (timer, source), Coming(has_rows=True, guards=guards, must_be_taken=True)

    def ways(self, key: Key, guards: tuple[str, ...]) -> tuple[Occurrence, ...]:
        """Give an event with each combination of what the guards can say. Raises TooManyVerdictsError."""
        if (key, guards) not in self._ways:
            said = [self.machine.guard_named[guard].outcomes for guard in guards]
            self._ways[key, guards] = tuple(occurrences(key, guards, said))
        return self._ways[key, guards]

    def react(self, here: Configuration, occurrence: Occurrence) -> Taken | Refusal | None:
        """Give what `step` gives; None where the occurrence means nothing to the machine."""
        try:
            return self._step(here, occurrence)
        except OccurrenceError:
            return None

    def is_over(self, here: Configuration) -> bool:
        """Return whether a run is finished here."""
        return is_over(self.machine, here)

    def started(self, before: str, taken: Taken) -> Timers:
        """Give the timers that a row starts from zero: those of the states entered, and its own when it stays (S11)."""
        timers = timers_after(self.machine, before, taken.transition, taken.configuration.state)
        return frozenset((timer.source, timer.event) for timer in timers if isinstance(timer, ArmTimer))


def occurrences(key: Key, guards: tuple[str, ...], said: list[tuple[Outcome, ...]]) -> Iterator[Occurrence]:
    """Give an event with each combination of verdicts. Raises TooManyVerdictsError."""
    event, source = key
    if prod(map(len, said)) > MAX_COMBINATIONS:
        raise TooManyVerdictsError(f"{event}: more than {MAX_COMBINATIONS} combinations of verdicts")
    for outcomes in product(*said):
        yield Occurrence(event, tuple(zip(guards, outcomes, strict=True)), source)


def way_to(came: Mapping[Place, tuple[Place, Occurrence] | None], place: Place) -> tuple[Occurrence, ...]:
    """Give what happened on the way to a place."""
    steps = []
    before = came[place]
    while before is not None:
        place, occurrence = before
        steps.append(occurrence)
        before = came[place]
    return tuple(reversed(steps))
