"""Where two machines would behave differently: as conditions to look out for while one of them runs.

Takes the systems of two machines with the same parameters and variables. If no such condition can come true in a run of the first, both
machines take the same steps for ever: same events, guards asked, effects in order, states and values.
"""

from collections.abc import Iterator

from dsa.checks.observers import Sight
from dsa.expr import TRUE, Expr, Name
from dsa.meaning import Occurrence
from dsa.simplify import FALSE, all_of, any_of, compared, negated
from dsa.system import Command, Promise, System


def differences(one: System, other: System) -> tuple[Sight, ...]:
    """Give when, at each location of `one`, the two do not do the same; none at locations that the other does not have.

    The other has every location that both reach by doing the same, so a first difference is always at one it has.
    """
    if one.variables != other.variables or one.locations[:1] != other.locations[:1]:
        return (Sight(0, TRUE),)
    found = []
    for place, location in enumerate(one.locations):
        if location in other.index:
            condition = any_of(_differences(one, other, place, other.index[location]))
            if condition != FALSE:
                found.append(Sight(place, condition))
    return tuple(found)


def _differences(one: System, other: System, here: int, there: int) -> Iterator[Expr]:
    """Say when a row of either system is taken and no row of the other does the same."""
    mine, theirs = _by_occurrence(one.commands_at[here]), _by_occurrence(other.commands_at[there])
    for occurrence in dict.fromkeys([*mine, *theirs]):
        left, right = mine.get(occurrence, []), theirs.get(occurrence, [])
        for command in left:
            yield _unmatched(one, command, other, right)
        for command in right:
            yield _unmatched(other, command, one, left)


def _by_occurrence(commands: tuple[Command, ...]) -> dict[Occurrence, list[Command]]:
    found: dict[Occurrence, list[Command]] = {}
    for command in commands:
        found.setdefault(command.occurrence, []).append(command)
    return found


def _unmatched(mine: System, command: Command, theirs: System, others: list[Command]) -> Expr:
    if any(other.condition == command.condition and _same(mine, command, theirs, other) == TRUE for other in others):
        return FALSE
    matched = any_of(all_of([other.condition, _same(mine, command, theirs, other)]) for other in others)
    return all_of([command.condition, negated(matched)])


def _same(mine: System, command: Command, theirs: System, other: Command) -> Expr:
    """Say when two commands lead to the same configuration with the same effects, and end the same timers."""
    there = mine.locations[command.target] == theirs.locations[other.target]
    if not there or command.effects != other.effects or _timers(command) != _timers(other):
        return FALSE
    assigned = sorted({*command.after, *other.after})
    values = (Name(name, "variable") for name in assigned)
    return all_of(
        compared(command.after.get(name.name, name), "==", other.after.get(name.name, name)) for name in values
    )


def _timers(command: Command) -> frozenset[Promise]:
    """Give the timers that a command ends: one whose source is left and entered again starts anew (S11)."""
    return frozenset(promise for promise in command.ended if isinstance(promise, tuple))
