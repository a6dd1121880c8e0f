"""Counterexamples explained: what is wrong at the end of one, others that take other rows, and the nearest run that passes."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs

from dsa.checks.concrete import Moment, moments
from dsa.checks.engines.found import Engine, Limits
from dsa.checks.observers import Sight
from dsa.checks.searching import Searched, search_ground
from dsa.claims import Always, AtMost, EverywherePossible, Form, LeadsTo, Never, OnlyAfter, Unchanged
from dsa.expr import Expr, evaluate, show_value, unparse
from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.simplify import FALSE, any_of
from dsa.system import Command
from dsa.trace import Trace, show_loop

#: So many searches without some rows are made for each counterexample that is asked for.
_SEARCHES_EACH = 8


def reason_for(form: Form, machine: Machine, trace: Trace, loop: int | None = None) -> str:
    """Say what is wrong at the end of a counterexample."""
    run = moments(machine, [taken.occurrence for taken in trace.steps])
    last = len(trace.steps)
    where = f"at step {last}" if last else "at the start"
    match form:
        case Always(condition):
            return f"{unparse(condition)} is false {where}"
        case Never(condition):
            return f"{unparse(condition)} is true {where}"
        case Unchanged(_, expressions):
            return f"{_changes(run, expressions)} {where}"
        case OnlyAfter(later, earlier):
            return f"{unparse(later)} {where}, and {unparse(earlier)} never before"
        case AtMost(bound, counted, _):
            most = run[-1].value(bound)
            assert isinstance(most, int), "a bound is a number"
            return f"{unparse(counted)} {where} is one more than {most}"
        case LeadsTo():
            return _never_comes(form, machine, run, len(run) - 1 if loop is None else loop)
        case EverywherePossible(condition):
            return f"{unparse(condition)} cannot come any more {'after step ' + str(last) if last else where}"
        case _:
            return ""


def _changes(run: tuple[Moment, ...], expressions: Sequence[Expr]) -> str:
    changed = []
    for expr in expressions:
        before, after = run[-2].value(expr), run[-1].value(expr)
        if before != after:
            changed.append(f"{unparse(expr)} changes from {show_value(before)} to {show_value(after)}")
    return ", ".join(changed)


def _never_comes(form: LeadsTo, machine: Machine, run: tuple[Moment, ...], loop: int) -> str:
    caused = next(place for place in range(loop, -1, -1) if run[place].holds(form.cause))
    first = f"at step {caused}" if caused else "at the start"
    state, last = run[-1].configuration.state, len(run) - 1
    if loop == last:
        rest = f"the run ends in {state}" if state in machine.final_states else f"the run may rest in {state} for ever"
    else:
        rest = f"{show_loop(loop, last)} can repeat for ever"
    return f"{unparse(form.cause)} {first}, then never {unparse(form.goal)}: {rest}"


Found = TypeVar("Found")


def similar(
    searched: Searched,
    first: Sequence[Command],
    look: Callable[[Searched], tuple[Sequence[Command], Found] | None],
    most: int,
    limits: Limits,
    engine: Engine | None = None,
    sights: Sequence[Sight] = (),
) -> tuple[Found, ...]:
    """Give up to so many further counterexamples, each a shortest one without some rows of the others.

    `look` is asked of searches that leave out rows, one after the other: it gives the commands of a counterexample found there,
    and what is wanted of it. Each takes other rows than those before.
    """
    found: list[Found] = []
    known, tried = {_rows(first)}, set[frozenset[int]]()
    todo = deque(frozenset({row}) for row in sorted(_rows(first), reverse=True))
    while todo and len(found) < most and len(tried) < _SEARCHES_EACH * most:
        without = todo.popleft()
        if without in tried:
            continue
        tried.add(without)
        seen = look(_without(searched, sights, without, limits, engine))
        if seen is not None:
            way, wanted = seen
            if _rows(way) not in known:
                known.add(_rows(way))
                found.append(wanted)
            todo.extend(without | {row} for row in sorted(_rows(way), reverse=True))
    return tuple(found)


def _rows(way: Sequence[Command]) -> frozenset[int]:
    return frozenset(command.row for command in way)


def _without(
    searched: Searched, sights: Sequence[Sight], rows: frozenset[int], limits: Limits, engine: Engine | None
) -> Searched:
    """Search what can happen when some rows are never taken."""
    commands = searched.system.commands
    left = tuple(rule for rule in searched.ground.rules if commands[rule.command].row not in rows)
    seen = [sight for sight in sights if sight.command is None or sight.command.row not in rows]
    return search_ground(attrs.evolve(searched.ground, rules=left), [seen], limits, engine)


def passing(
    searched: Searched, way: Sequence[Command], sights: Sequence[Sight], well: Callable[[int], bool] = lambda _: True
) -> Trace | None:
    """Give a run that begins like a counterexample for as long as possible, and comes to rest without a violation.

    Rest: in a final state, or where only outside events could go on. None when there is no such run.
    """
    bad = _Bad(searched, sights)
    along = _along(searched, way)
    hopeless: set[int] = set()
    for kept in range(len(way) - 1, -1, -1):
        rest = _rest_from(searched, along[kept], way[kept], bad, well, hopeless)
        if rest is not None:
            return searched.trace((*way[:kept], *rest))
    return None


class _Bad:
    """Tells the moments that break a property."""

    def __init__(self, searched: Searched, sights: Sequence[Sight]) -> None:
        self._ground = searched.ground
        self._conditions: dict[object, Expr] = {}
        for sight in sights:
            key = _key(sight.command) if sight.command else sight.location
            self._conditions[key] = any_of([self._conditions.get(key, FALSE), sight.condition])

    def __call__(self, before: int, command: Command, after: int) -> bool:
        """Tell whether taking a command at a configuration is such a moment."""
        return self._true(_key(command), before) or self._true(after // self._ground.volume, after)

    def _true(self, key: object, number: int) -> bool:
        if key not in self._conditions:
            return False
        condition = self._ground.grounded(self._conditions[key])
        return evaluate(condition, self._ground.values(number)) is True


def _key(command: Command) -> tuple[int, Occurrence, int]:
    """Give what a command and its copies in a system with observers have in common."""
    return command.source, command.occurrence, command.row


def _along(searched: Searched, way: Sequence[Command]) -> list[int]:
    """Give the configurations that a way goes through, the start first."""
    found = [searched.ground.start]
    for command in way[:-1]:
        found.append(next(after for taken, after in searched.moves(found[-1]) if _key(taken) == _key(command)))
    return found


def _rest_from(
    searched: Searched, start: int, other_than: Command, bad: _Bad, well: Callable[[int], bool], hopeless: set[int]
) -> list[Command] | None:
    """Give a shortest way from a configuration, not by one command, to where a run may rest; remember what has none."""
    arrived: dict[int, list[Command]] = {}
    todo: deque[int] = deque()
    for command, after in searched.moves(start):
        fresh = after not in arrived and after not in hopeless
        if fresh and _key(command) != _key(other_than) and not bad(start, command, after):
            arrived[after] = [command]
            todo.append(after)
    while todo:
        number = todo.popleft()
        if searched.system.may_rest(number // searched.ground.volume) and well(number):
            return arrived[number]
        for command, after in searched.moves(number):
            if after not in arrived and after not in hopeless and not bad(number, command, after):
                arrived[after] = [*arrived[number], command]
                todo.append(after)
    hopeless |= arrived.keys()
    return None
