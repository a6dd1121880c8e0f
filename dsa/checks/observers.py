"""Properties as something to look out for: each form becomes a system that remembers enough, and conditions that must not come true.

Takes a system and a property's form, gives an `Observer`. What a property must remember (has P been true, how often was E)
becomes variables of the system, updated by its commands: so any engine and any proof that knows always and never knows every form.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from dsa.declarations import (
    Always,
    AtMost,
    EverywherePossible,
    LeadsTo,
    Never,
    OnlyAfter,
    Possible,
    UnchangedClaim,
    Variable,
)
from dsa.expr import (
    FALSE,
    TRUE,
    Arithmetic,
    Boolean,
    BooleanDomain,
    Expr,
    Integer,
    Leaf,
    Name,
    RangeDomain,
    Value,
    all_of,
    any_of,
    comparison,
    constant,
    negation,
    simplify,
    substitute,
    unparse,
)
from dsa.system import GuardedCommand, System, after, at_location, at_start, happens

#: The observers' names; the language knows no name with a colon, so none is a user's.
SEEN, WAITING, NOW, COUNT, OPEN = ":seen", ":waiting", ":now", ":count", ":open"
_OPEN, _COUNT = Name(OPEN, "variable"), Name(COUNT, "variable")


@attrs.frozen
class WatchedCondition:
    """A condition to look out for: at a location, over its values; with a command, at the moment it is taken there."""

    location: int
    condition: Expr
    command: GuardedCommand | None = None


@attrs.frozen
class Observer:
    """A system that remembers what a property needs.

    `sights` are the moments in question: violations for `always`, `never`, `unchanged`, `only after`, `at most`; witnesses for
    `possible`. `at_start` is over parameters: whether the start is such a moment. For `leads to` and `from everywhere
    possible` there are no sights: `state` is the variable to follow (WAITING: Q is owed; NOW: P holds).
    """

    system: System
    at_start: Expr
    sights: tuple[WatchedCondition, ...]
    state: Expr | None = None


Judged = Always | Never | UnchangedClaim | LeadsTo | OnlyAfter | AtMost | Possible | EverywherePossible


class NotDecidedError(Exception):
    """Whether something counts at the start depends on parameters that have no value here."""


def observed(system: System, form: Judged, values: Mapping[str, Value] | None = None) -> Observer:
    """Return what to look out for.

    `values` are the parameters', where they have any. Raises NotDecidedError when the start of a count depends on parameters
    that have none.
    """
    match form:
        case Always(condition):
            return _moments(system, negation(condition))
        case Never(condition) | Possible(condition):
            return _moments(system, condition)
        case UnchangedClaim(trigger, expressions):
            return Observer(system, FALSE, tuple(_changes(system, trigger, expressions)))
        case OnlyAfter(later, earlier):
            return _only_after(system, later, earlier)
        case AtMost(bound, counted, None):
            return _at_most(system, bound, counted, values or {})
        case AtMost():
            return _at_most_between(system, form, values or {})
        case LeadsTo(cause, goal, _):
            return _owed(system, cause, goal)
        case EverywherePossible(condition):
            return _held(system, condition)


def _moments(system: System, condition: Expr) -> Observer:
    """Look out for moments at which a condition is true."""
    start = at_start(system, condition)
    if happens(condition):
        return Observer(system, start, tuple(_taken(system, lambda command: after(system, command, condition))))
    places = ((place, at_location(system, place, condition)) for place in range(len(system.locations)))
    return Observer(system, start, tuple(WatchedCondition(place, here) for place, here in places if here != FALSE))


def _taken(system: System, condition: "_AtCommand") -> Iterator[WatchedCondition]:
    for command in system.commands:
        sight = all_of([command.condition, condition(command)])
        if sight != FALSE:
            yield WatchedCondition(command.source, sight, command)


def _changes(system: System, trigger: Expr, expressions: tuple[Expr, ...]) -> Iterator[WatchedCondition]:
    def changed(command: GuardedCommand) -> Expr:
        here = command.source
        differs = (comparison(at_location(system, here, e), "!=", after(system, command, e)) for e in expressions)
        return all_of([after(system, command, trigger), any_of(differs)])

    return _taken(system, changed)


def _only_after(system: System, later: Expr, earlier: Expr) -> Observer:
    seen = Name(SEEN, "variable")
    start = at_start(system, earlier)

    def early(command: GuardedCommand) -> Expr:
        return all_of([after(system, command, later), negation(after(system, command, earlier)), negation(seen)])

    def update(command: GuardedCommand) -> Iterator["_Case"]:
        yield TRUE, ((SEEN, any_of([seen, after(system, command, earlier)])),)

    remembering = _extended(system, [_flag(SEEN, start)], update)
    at_once = all_of([at_start(system, later), negation(start)])
    return Observer(remembering, at_once, tuple(_taken(system, early)))


def _owed(system: System, cause: Expr, goal: Expr) -> Observer:
    waiting = Name(WAITING, "variable")

    def update(command: GuardedCommand) -> Iterator["_Case"]:
        owed = any_of([waiting, after(system, command, cause)])
        yield TRUE, ((WAITING, all_of([owed, negation(after(system, command, goal))])),)

    start = all_of([at_start(system, cause), negation(at_start(system, goal))])
    return Observer(_extended(system, [_flag(WAITING, start)], update), FALSE, (), waiting)


def _held(system: System, condition: Expr) -> Observer:
    def update(command: GuardedCommand) -> Iterator["_Case"]:
        yield TRUE, ((NOW, after(system, command, condition)),)

    start = at_start(system, condition)
    return Observer(_extended(system, [_flag(NOW, start)], update), FALSE, (), Name(NOW, "variable"))


def _at_most(system: System, bound: Expr, counted: Expr, values: Mapping[str, Value]) -> Observer:
    """Count moments of `counted` up to the bound; one more is a violation, and is not counted."""

    def over(command: GuardedCommand) -> Expr:
        return all_of([after(system, command, counted), comparison(_COUNT, ">=", simplify(bound))])

    def update(command: GuardedCommand) -> Iterator["_Case"]:
        happened = after(system, command, counted)
        room = comparison(_COUNT, "<", simplify(bound))
        yield all_of([happened, room]), ((COUNT, _one_more(_COUNT)),)
        yield negation(all_of([happened, room])), ()

    first = _decided(at_start(system, counted), values)
    counting = _extended(system, [_counter(bound, first=first)], update)
    return Observer(counting, comparison(simplify(bound), "<", Integer(int(first))), tuple(_taken(system, over)))


def _at_most_between(system: System, form: AtMost, values: Mapping[str, Value]) -> Observer:
    """Count within a scope: at one moment it closes, then opens, then E is counted."""
    assert form.between is not None, "the other form has no scope"
    (opens, closes), counted, most = form.between, form.moment, simplify(form.bound)

    def parts(command: GuardedCommand) -> tuple[Expr, Expr, Expr]:
        still = all_of([_OPEN, negation(after(system, command, closes))])
        return still, after(system, command, opens), after(system, command, counted)

    def over(command: GuardedCommand) -> Expr:
        still, opened, happened = parts(command)
        within = all_of([still, happened, comparison(_COUNT, ">=", most)])
        too_many = any_of([comparison(most, "<", Integer(0)), all_of([happened, comparison(most, "<", Integer(1))])])
        return any_of([within, all_of([negation(still), opened, too_many])])

    def update(command: GuardedCommand) -> Iterator["_Case"]:
        still, opened, happened = parts(command)
        room, space = comparison(_COUNT, "<", most), comparison(Integer(0), "<", most)
        more = all_of([happened, room])
        anew = all_of([happened, space])
        yield all_of([still, more]), ((COUNT, _one_more(_COUNT)),)
        yield all_of([still, negation(more)]), ()
        yield all_of([negation(still), opened, anew]), ((OPEN, TRUE), (COUNT, Integer(1)))
        yield all_of([negation(still), opened, negation(anew)]), ((OPEN, TRUE), (COUNT, Integer(0)))
        yield all_of([negation(still), negation(opened)]), ((OPEN, FALSE), (COUNT, Integer(0)))

    opened = at_start(system, opens)
    first = _decided(all_of([opened, at_start(system, counted)]), values)
    counting = _extended(system, [_flag(OPEN, opened), _counter(most, first=first)], update)
    at_once = all_of([opened, comparison(most, "<", Integer(int(first)))])
    return Observer(counting, at_once, tuple(_taken(system, over)))


def _one_more(count: Expr) -> Expr:
    return Arithmetic("+", count, Integer(1))


def _flag(name: str, initial: Expr) -> Variable:
    return Variable(name, "environment", BooleanDomain(), initial)


def _counter(bound: Expr, *, first: bool) -> Variable:
    high = Arithmetic("+", bound, Integer(1)) if first else bound  # a bound of 0 is then broken at the start
    return Variable(COUNT, "environment", RangeDomain(Integer(0), high), Integer(int(first)))


def _decided(condition: Expr, values: Mapping[str, Value]) -> bool:
    def leaf(node: Leaf) -> Expr:
        return constant(values[node.name]) if isinstance(node, Name) and node.name in values else node

    found = substitute(condition, leaf)
    if not isinstance(found, Boolean):
        raise NotDecidedError(f"whether this counts at the start depends on parameters: {unparse(found)}")
    return found.value


_AtCommand = Callable[[GuardedCommand], Expr]
#: A case of a command: when it is this one, and what the observers are then set to.
_Case = tuple[Expr, tuple[tuple[str, Expr], ...]]


def _extended(system: System, variables: list[Variable], update: Callable[[GuardedCommand], Iterable[_Case]]) -> System:
    """Add variables, and their updates to every command; a command with several cases is split."""
    commands = []
    for command in system.commands:
        for condition, updates in update(command):
            enabled = all_of([command.enabled_when, condition])
            changed = tuple((name, value) for name, value in updates if value != Name(name, "variable"))
            if enabled != FALSE:
                commands.append(attrs.evolve(command, enabled_when=enabled, updates=(*command.updates, *changed)))
    return attrs.evolve(system, variables=(*system.variables, *variables), commands=tuple(commands))
