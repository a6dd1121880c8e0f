"""What can be known of a search before it begins: where configurations must be remembered, which rules do the same.

Takes a `Ground`, gives a `Plan`. A location into which one rule alone leads, different configurations to different ones, is entered
by each configuration once: nothing need be remembered there, and most locations of most machines are like that.
"""

from itertools import product
from math import prod

import attrs

from dsa.checks.engines.sources import Move, moved
from dsa.expr import Expr, evaluate, names
from dsa.ground import Ground, Rule

#: Whether a rule keeps different configurations apart is tried out on at most so many.
_TRIED = 256


@attrs.frozen
class Step:
    """A rule of a location. `places` are the ground's rules that it stands for: they differ in what happens alone.

    Steps with equal conditions and updates have the very same `move`.
    """

    rule: Rule
    move: Move
    places: tuple[int, ...]

    @property
    def stays(self) -> bool:
        """Tell whether it leads back to the configuration that it leaves."""
        return self.rule.source == self.rule.target and self.move.is_constant and self.move.shift == 0


@attrs.frozen
class Plan:
    """The steps of each location that can be entered at all; `remembered` are the locations that can be entered twice."""

    steps: tuple[tuple[Step, ...], ...]
    remembered: frozenset[int]


def plan(ground: Ground) -> Plan:
    """Look at the rules of every location that they lead to."""
    steps = steps_of(ground)
    incoming: dict[int, list[Step]] = {0: []}
    todo = [0]
    while todo:
        for step in steps[todo.pop()]:
            target = step.rule.target
            if target not in incoming:
                incoming[target] = []
                todo.append(target)
            if not step.stays:
                incoming[target].append(step)
    remembered = {place for place, found in incoming.items() if found and _twice(ground, place, found)}
    return Plan(tuple(here if place in incoming else () for place, here in enumerate(steps)), frozenset(remembered))


def steps_of(ground: Ground) -> list[tuple[Step, ...]]:
    """Give the steps of each location."""
    moves: dict[tuple[object, ...], Move] = {}
    shared: dict[tuple[int, int], Move] = {}  # what is equal is mostly one object, which is found faster
    steps: dict[tuple[int, int, int], tuple[Rule, Move, list[int]]] = {}
    for place, rule in enumerate(ground.rules):
        move = shared.get((id(rule.condition), id(rule.updates)))
        if move is None:
            what = (rule.condition, rule.updates)
            move = moves[what] if what in moves else moves.setdefault(what, moved(ground, rule))
            shared[id(rule.condition), id(rule.updates)] = move
        steps.setdefault((rule.source, rule.target, id(move)), (rule, move, []))[2].append(place)
    found: list[list[Step]] = [[] for _ in ground.system.locations]
    for rule, move, places in steps.values():
        found[rule.source].append(Step(rule, move, tuple(places)))
    return [tuple(here) for here in found]


def _twice(ground: Ground, place: int, incoming: list[Step]) -> bool:
    """Tell whether a configuration there may be met twice, as far as this can be told cheaply."""
    return place == 0 or len(incoming) > 1 or not injective(ground, incoming[0])


def injective(ground: Ground, step: Step) -> bool:
    """Tell whether a step leads from different configurations to different ones; False when that is not known."""
    if step.move.is_constant:
        return True
    rule = step.rule
    changed = {ground.fields[index].name: value for index, value in rule.updates}
    read = sorted(names(rule.condition).union(changed, *(names(value) for value in changed.values())))
    fields = [ground.field_named[name] for name in read]
    ranges = [(False, True) if field.is_bool else range(field.low, field.low + field.size) for field in fields]
    if prod(field.size for field in fields) > _TRIED:  # `product` would hold every range
        return False
    met: set[tuple[object, ...]] = set()
    for values in product(*ranges):
        here = dict(zip(read, values, strict=True))
        if evaluate(rule.condition, here) is True:
            after = tuple(_after(changed, name, here) for name in read)
            if after in met:
                return False
            met.add(after)
    return True


def _after(changed: dict[str, Expr], name: str, here: dict[str, bool | int]) -> object:
    return evaluate(changed[name], here) if name in changed else here[name]
