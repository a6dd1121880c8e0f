"""The moments of one run, as properties see them: what every name of a property is worth at each.

Takes a machine and the steps of a trace, gives a `Moment` for the start and for each step (specs/semantics.md, "What properties
mean"). Where `dsa.moments` decides names for all runs at once, here everything has a value.
"""

from collections.abc import Iterable

import attrs

from dsa.declarations import Emit
from dsa.expr import Environment, Expr, Value, evaluate, holds
from dsa.machine import Machine, environment
from dsa.meaning import Configuration, Occurrence, Taken, start, step

#: What a guard that was not asked has said: none of its verdicts.
_NOT_ASKED = "not asked"


@attrs.frozen
class Moment:
    """A row taken, or the start, and the configuration after it; `names` has the value of every name there."""

    configuration: Configuration
    names: Environment = attrs.field(repr=False)

    def holds(self, condition: Expr) -> bool:
        """Tell whether a condition is true at this moment."""
        return holds(condition, self.names)

    def value(self, expr: Expr) -> Value:
        """Give the value of an expression at this moment."""
        return evaluate(expr, self.names)


def moments(machine: Machine, occurrences: Iterable[Occurrence]) -> tuple[Moment, ...]:
    """Run a machine from its start; raises ValueError at an occurrence that is refused."""
    quiet = _nothing_happens(machine)
    first = start(machine)
    found = [Moment(first, quiet | _lasting(machine, first))]
    for occurrence in occurrences:
        taken = step(machine, found[-1].configuration, occurrence)
        if not isinstance(taken, Taken):
            raise ValueError(f"{occurrence.event} is refused: {taken.message}")  # noqa: TRY004  (not its type)
        happened = {occurrence.event: True, **dict.fromkeys(taken.effects, True), **dict(occurrence.verdicts)}
        after = taken.configuration
        found.append(Moment(after, {**quiet, **_lasting(machine, after), **happened}))
    return tuple(found)


def _lasting(machine: Machine, here: Configuration) -> dict[str, Value]:
    """Give the names that a configuration decides."""
    inside = set(machine.ancestry(here.state))
    return {
        **environment(machine, here.values),
        **{state.name: state.name in inside for state in machine.states},
        **{f"pending {effect}": effect in here.outstanding for effect in machine.answers},
    }


def _nothing_happens(machine: Machine) -> dict[str, Value]:
    """Give events, effects and verdicts as they are at the start."""
    emitted = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    return {
        **dict.fromkeys((effect.name for effect in machine.effects), False),
        **dict.fromkeys(sorted(emitted), False),
        **dict.fromkeys(machine.event_named, False),
        **{guard.name: _NOT_ASKED for guard in machine.guards},
    }
