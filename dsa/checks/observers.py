"""Observers: each form of property becomes a system that remembers enough, and conditions that must not come true.

Takes a system and a property's form, gives an `Observer`. What a property must remember (whether P has been true, how often E was) becomes
variables of the system, which its commands update. So an engine or a proof that handles `always` and `never` handles every form.
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
from dsa.errors import UndecidedError
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

#: The observers' names; no name of the table language has a colon, so they cannot clash with a user's.
HISTORY, OBLIGATION, NOW, COUNT, OPEN = ":seen", ":waiting", ":now", ":count", ":open"
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
    possible` there are no sights: `state` is the variable to follow (OBLIGATION: Q is owed; NOW: P holds).
    """

    system: System
    at_start: Expr
    sights: tuple[WatchedCondition, ...]
    state: Expr | None = None


ObservableForm = Always | Never | UnchangedClaim | LeadsTo | OnlyAfter | AtMost | Possible | EverywherePossible


def observer_of(system: System, form: ObservableForm, values: Mapping[str, Value] | None = None) -> Observer:
    """Return what to look out for.

    `values` are the parameters', where they have any. Raises UndecidedError when the start of a count depends on parameters
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
            return _obligation_observer(system, cause, goal)
        case EverywherePossible(condition):
            return _truth_observer(system, condition)


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
    def change_condition(command: GuardedCommand) -> Expr:
        here = command.source
        differs = (comparison(at_location(system, here, e), "!=", after(system, command, e)) for e in expressions)
        return all_of([after(system, command, trigger), any_of(differs)])

    return _taken(system, change_condition)


def _only_after(system: System, later: Expr, earlier: Expr) -> Observer:
    history = Name(HISTORY, "variable")
    start = at_start(system, earlier)

    def early(command: GuardedCommand) -> Expr:
        return all_of([after(system, command, later), negation(after(system, command, earlier)), negation(history)])

    def update(command: GuardedCommand) -> Iterator["_Case"]:
        yield TRUE, ((HISTORY, any_of([history, after(system, command, earlier)])),)

    observer_system = _extend_system(system, [_flag(HISTORY, start)], update)
    at_once = all_of([at_start(system, later), negation(start)])
    return Observer(observer_system, at_once, tuple(_taken(system, early)))


def _obligation_observer(system: System, cause: Expr, goal: Expr) -> Observer:
    obligation = Name(OBLIGATION, "variable")

    def update(command: GuardedCommand) -> Iterator["_Case"]:
        is_owed = any_of([obligation, after(system, command, cause)])
        yield TRUE, ((OBLIGATION, all_of([is_owed, negation(after(system, command, goal))])),)

    start = all_of([at_start(system, cause), negation(at_start(system, goal))])
    return Observer(_extend_system(system, [_flag(OBLIGATION, start)], update), FALSE, (), obligation)


def _truth_observer(system: System, condition: Expr) -> Observer:
    def update(command: GuardedCommand) -> Iterator["_Case"]:
        yield TRUE, ((NOW, after(system, command, condition)),)

    start = at_start(system, condition)
    return Observer(_extend_system(system, [_flag(NOW, start)], update), FALSE, (), Name(NOW, "variable"))


def _at_most(system: System, upper_bound: Expr, condition: Expr, values: Mapping[str, Value]) -> Observer:
    """Count moments of `condition` up to the bound; one more is a violation, and is not counted."""

    def over(command: GuardedCommand) -> Expr:
        return all_of([after(system, command, condition), comparison(_COUNT, ">=", simplify(upper_bound))])

    def update(command: GuardedCommand) -> Iterator["_Case"]:
        is_counted = after(system, command, condition)
        room = comparison(_COUNT, "<", simplify(upper_bound))
        yield all_of([is_counted, room]), ((COUNT, _one_more(_COUNT)),)
        yield negation(all_of([is_counted, room])), ()

    first = _truth_of(at_start(system, condition), values)
    observer_system = _extend_system(system, [_counter(upper_bound, first=first)], update)
    return Observer(
        observer_system, comparison(simplify(upper_bound), "<", Integer(int(first))), tuple(_taken(system, over))
    )


def _at_most_between(system: System, form: AtMost, values: Mapping[str, Value]) -> Observer:
    """Count within a scope: at one moment it closes, then opens, then E is counted."""
    assert form.between is not None, "the other form has no scope"
    (opens, closes), condition, most = form.between, form.moment, simplify(form.bound)

    def parts(command: GuardedCommand) -> tuple[Expr, Expr, Expr]:
        still = all_of([_OPEN, negation(after(system, command, closes))])
        return still, after(system, command, opens), after(system, command, condition)

    def over(command: GuardedCommand) -> Expr:
        still, opens_now, is_counted = parts(command)
        within = all_of([still, is_counted, comparison(_COUNT, ">=", most)])
        too_many = any_of([comparison(most, "<", Integer(0)), all_of([is_counted, comparison(most, "<", Integer(1))])])
        return any_of([within, all_of([negation(still), opens_now, too_many])])

    def update(command: GuardedCommand) -> Iterator["_Case"]:
        still, opens_now, is_counted = parts(command)
        room, space = comparison(_COUNT, "<", most), comparison(Integer(0), "<", most)
        more = all_of([is_counted, room])
        anew = all_of([is_counted, space])
        yield all_of([still, more]), ((COUNT, _one_more(_COUNT)),)
        yield all_of([still, negation(more)]), ()
        yield all_of([negation(still), opens_now, anew]), ((OPEN, TRUE), (COUNT, Integer(1)))
        yield all_of([negation(still), opens_now, negation(anew)]), ((OPEN, TRUE), (COUNT, Integer(0)))
        yield all_of([negation(still), negation(opens_now)]), ((OPEN, FALSE), (COUNT, Integer(0)))

    opens_at_start = at_start(system, opens)
    first = _truth_of(all_of([opens_at_start, at_start(system, condition)]), values)
    observer_system = _extend_system(system, [_flag(OPEN, opens_at_start), _counter(most, first=first)], update)
    at_once = all_of([opens_at_start, comparison(most, "<", Integer(int(first)))])
    return Observer(observer_system, at_once, tuple(_taken(system, over)))


def _one_more(count: Expr) -> Expr:
    return Arithmetic("+", count, Integer(1))


def _flag(name: str, initial: Expr) -> Variable:
    return Variable(name, "environment", BooleanDomain(), initial)


def _counter(upper_bound: Expr, *, first: bool) -> Variable:
    # A bound of 0 is then broken at the start.
    high = Arithmetic("+", upper_bound, Integer(1)) if first else upper_bound
    return Variable(COUNT, "environment", RangeDomain(Integer(0), high), Integer(int(first)))


def _truth_of(condition: Expr, values: Mapping[str, Value]) -> bool:
    def leaf(node: Leaf) -> Expr:
        return constant(values[node.name]) if isinstance(node, Name) and node.name in values else node

    truth = substitute(condition, leaf)
    if not isinstance(truth, Boolean):
        raise UndecidedError(f"whether the start is counted depends on parameters: {unparse(truth)}")
    return truth.value


_AtCommand = Callable[[GuardedCommand], Expr]
#: A case of a command: when it is this one, and what the observers are then set to.
_Case = tuple[Expr, tuple[tuple[str, Expr], ...]]


def _extend_system(
    system: System, variables: list[Variable], update: Callable[[GuardedCommand], Iterable[_Case]]
) -> System:
    """Add variables, and their updates to every command; a command with several cases is split."""
    commands = []
    for command in system.commands:
        for condition, updates in update(command):
            new_condition = all_of([command.enabled_when, condition])
            changes = tuple((name, value) for name, value in updates if value != Name(name, "variable"))
            if new_condition != FALSE:
                commands.append(attrs.evolve(command, enabled_when=new_condition, updates=(*command.updates, *changes)))
    return attrs.evolve(system, variables=(*system.variables, *variables), commands=tuple(commands))
