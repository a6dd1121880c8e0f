"""The semantics: `start`, and `step`, the one definition of how a machine moves (specs/semantics.md, S1 to S12).

`step` takes a machine, a configuration and an occurrence, and returns `Taken` or `Refusal`. It is total and pure: no clock, no chance, no model
(S8). Everything else in this package that executes a machine is tested to agree with `step`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Literal

import attrs

from dsa.declarations import OUTSIDE, STAY, TIMER_PREFIX, Assign, Cancel, Transition
from dsa.errors import OccurrenceError
from dsa.expr import Environment, Outcome, Value, evaluate, holds, pending_text, show_value
from dsa.immutable import immutable
from dsa.machine import (
    Machine,
    Precedence,
    environment,
    precedence_after,
    precedence_at_start,
    read_guards,
    timers_after,
    timers_before,
)
from dsa.text import closest

Reason = Literal["finished", "late", "early", "invalid_state", "ambiguous", "out_of_domain", "emitted_twice"]


def _outstanding(effects: Iterable[str]) -> tuple[str, ...]:
    return effects if type(effects) is tuple and len(effects) < 2 else tuple(sorted(effects))  # noqa: PLR2004  (nothing to sort)


@attrs.frozen(field_transformer=immutable)
class Configuration:
    """S1: a state without children, the variables' values in declared order, the outstanding effects, the order of timers.

    `outstanding` is sorted, and has an effect once for each of its emissions that is outstanding; it may be given in any order. `precedence` has a pair for
    each armed timer that precedes another (S11); it is empty where no two timers of different durations are armed.
    """

    state: str
    values: tuple[Value, ...]
    outstanding: tuple[str, ...] = attrs.field(converter=_outstanding)
    precedence: Precedence = frozenset()


def _verdicts(pairs: Mapping[str, Outcome] | Iterable[tuple[str, Outcome]]) -> tuple[tuple[str, Outcome], ...]:
    return tuple(sorted(pairs.items() if isinstance(pairs, Mapping) else pairs)) if pairs else ()


@attrs.frozen
class Occurrence:
    """S2: an event that happened. `event` is an event's name, `E.failed`, or a timer's `after 30s`.

    `verdicts` maps each guard that the rows read to `passed`, `failed` or `fatal`. `source` is the state of a timer
    (S11). `data` is opaque: `step` never looks at it.
    """

    event: str
    verdicts: tuple[tuple[str, Outcome], ...] = attrs.field(default=(), converter=_verdicts)
    source: str | None = None
    data: Any = attrs.field(default=None, eq=False)


@attrs.frozen(field_transformer=immutable)
class Taken:
    """The result of a step that took the one enabled row: the next configuration and the emitted effects.

    `effects` are in the order written; `cancelled` are the outstanding effects that were
    dropped, sorted.
    """

    configuration: Configuration
    transition: Transition
    effects: tuple[str, ...]
    cancelled: tuple[str, ...]


@attrs.frozen(field_transformer=immutable)
class Refusal:
    """The result of a step that changed nothing, with the reason (S4).

    `rows` are those enabled at once, or the one with the impossible update or effect. `accepted`
    are the events that have rows in this state.
    """

    reason: Reason
    configuration: Configuration
    message: str = attrs.field(eq=False)
    rows: tuple[Transition, ...] = ()
    accepted: tuple[str, ...] = ()


def start(machine: Machine) -> Configuration:
    """Return the initial configuration at the machine's parameter values: nothing is outstanding (S1)."""
    state = machine.entry_leaf(machine.initial)
    return Configuration(state, machine.initial_values, (), precedence_at_start(machine, state))


def step(machine: Machine, configuration: Configuration, occurrence: Occurrence) -> Taken | Refusal:
    """Take the one row that is enabled, or refuse and change nothing.

    Raises OccurrenceError when the occurrence is malformed: an unknown event or guard, an impossible verdict, or
    verdicts other than those of the guards that the rows read (S2).
    """
    require_known(machine, occurrence)
    if configuration.state in machine.final_states:
        return _refuse(machine, configuration, "finished", f"{configuration.state} is final")
    if why := _late(machine, configuration, occurrence):
        return _refuse(machine, configuration, "late", why)
    if why := early(configuration.precedence, occurrence.source, occurrence.event):
        return _refuse(machine, configuration, "early", why)
    rows = candidates(machine, configuration.state, occurrence)
    if not rows:
        return _refuse(machine, configuration, "invalid_state", f"no row for {occurrence.event} here")
    _require_exact_verdicts(rows, occurrence)
    valuation = known_values(machine, configuration, occurrence)
    matches = enabled_rows(rows, valuation)
    if not matches:
        return _refuse(machine, configuration, "invalid_state", f"no row for {occurrence.event} is enabled", rows)
    if len(matches) > 1:
        return _refuse(machine, configuration, "ambiguous", f"{len(matches)} rows are enabled at once", matches)
    return _take(machine, configuration, matches[0], valuation)


def require_known(machine: Machine, occurrence: Occurrence) -> None:
    """Raise OccurrenceError unless the event, its guards and their verdicts exist (S4)."""
    if occurrence.event.startswith(TIMER_PREFIX):
        if (occurrence.source, occurrence.event) not in machine.rows_from:
            raise OccurrenceError(f"machine {machine.name} has no timer '{occurrence.event}' in {occurrence.source}")
    elif occurrence.event not in machine.event_named:
        raise OccurrenceError(
            f"machine {machine.name} has no event '{occurrence.event}'; {closest(occurrence.event, machine.event_named)}"
        )
    elif occurrence.source is not None:
        raise OccurrenceError(f"only a timer has a source; '{occurrence.event}' is an event")
    for guard, outcome in occurrence.verdicts:
        if guard not in machine.guard_named:
            raise OccurrenceError(
                f"machine {machine.name} has no guard '{guard}'; {closest(guard, machine.guard_named)}"
            )
        if outcome not in machine.guard_named[guard].outcomes:
            outcomes = ", ".join(machine.guard_named[guard].outcomes)
            raise OccurrenceError(f"guard {guard} cannot say '{outcome}'; it says: {outcomes}")


def _require_exact_verdicts(rows: tuple[Transition, ...], occurrence: Occurrence) -> None:
    required_guards, actual_guards = read_guards(rows), tuple(guard for guard, _ in occurrence.verdicts)
    if required_guards != actual_guards:
        raise OccurrenceError(
            f"'{occurrence.event}' needs one verdict each from: {', '.join(required_guards) or 'no guard'}; "
            f"given: {', '.join(actual_guards) or 'none'}"
        )


def _late(machine: Machine, configuration: Configuration, occurrence: Occurrence) -> str:
    """Return why an answer or a timer comes too late, or return the empty text (S7, S11)."""
    if occurrence.source is not None:
        is_armed = (occurrence.source, occurrence.event) in machine.armed_timers(configuration.state)
        return "" if is_armed else f"the timer '{occurrence.event}' of {occurrence.source} is not armed"
    origin = machine.event_named[occurrence.event].origin
    if origin == OUTSIDE or origin in configuration.outstanding:
        return ""
    return f"{occurrence.event} answers {origin}, which is not outstanding"


def early(precedence: Precedence, source: str | None, event: str) -> str:
    """Return which timers must fire before this one, as text; it is empty for anything but a timer (S11)."""
    first = timers_before(precedence, (source, event)) if source is not None else ()
    names = ", ".join(f"'{other}' of {owner}" for owner, other in first)
    return f"the timer '{event}' of {source} must not fire before {names}" if first else ""


def candidates(machine: Machine, state: str, occurrence: Occurrence) -> tuple[Transition, ...]:
    """Return the candidate rows of an occurrence: a timer's own (S11), else the innermost source's (S3)."""
    if occurrence.source is not None:
        return machine.rows_from[occurrence.source, occurrence.event]
    return machine.rows_for(state, occurrence.event)


def known_values(machine: Machine, configuration: Configuration, occurrence: Occurrence) -> Environment:
    """Return what the conditions of rows for an occurrence may read: values, verdicts, and what is outstanding (S3)."""
    origin = OUTSIDE if occurrence.source is not None else machine.event_named[occurrence.event].origin
    pending = pending_values(machine, without_one(configuration.outstanding, origin))
    return {**environment(machine, configuration.values), **dict(occurrence.verdicts), **pending}


def pending_values(machine: Machine, outstanding: Collection[str]) -> dict[str, Value]:
    """Return the value of `pending`, and of `pending E` for each effect with answers."""
    values: dict[str, Value] = {pending_text(effect): effect in outstanding for effect in machine.answers}
    return {**values, pending_text(""): bool(outstanding)}


def enabled_rows(rows: tuple[Transition, ...], valuation: Environment) -> tuple[Transition, ...]:
    """Return the rows whose condition is true; `else` is true when no row without `else` is (S3)."""
    plain = [row for row in rows if not row.is_else and holds(row.condition, valuation)]
    return tuple(plain or [row for row in rows if row.is_else and holds(row.condition, valuation)])


def _take(machine: Machine, before: Configuration, row: Transition, valuation: Environment) -> Taken | Refusal:
    values = _values_after(machine, before.values, row, valuation)
    for variable, value in zip(machine.variables, values, strict=True):
        domain = machine.values_of[variable.name]
        if not domain.contains(value):
            why = f"{variable.name} = {show_value(value)} lies outside {domain}"
            return _refuse(machine, before, "out_of_domain", why, (row,))
    state = before.state if row.target == STAY else machine.entry_leaf(row.target)
    outstanding, cancelled, twice = after_effects(machine, before.outstanding, row, state)
    if twice is not None:
        return _refuse(machine, before, "emitted_twice", too_many_text(machine, twice), (row,))
    effects = tuple(item.effect for item in row.effects if not isinstance(item, Cancel))
    timers = timers_after(machine, before.state, row, state)
    precedence = precedence_after(machine, before.precedence, timers, state)
    return Taken(Configuration(state, values, outstanding, precedence), row, effects, cancelled)


def _values_after(
    machine: Machine, values: tuple[Value, ...], row: Transition, valuation: Environment
) -> tuple[Value, ...]:
    """Return the values after the row's updates; every update reads the values before (S5)."""
    if not row.updates:
        return values
    after = {variable.name: value for variable, value in zip(machine.variables, values, strict=True)}
    initial = {variable.name: value for variable, value in zip(machine.variables, machine.initial_values, strict=True)}
    for update in row.updates:
        name = update.variable
        after[name] = evaluate(update.value, valuation) if isinstance(update, Assign) else initial[name]
    return tuple(after.values())


def too_many_text(machine: Machine, effect: str) -> str:
    """Return why one more of an effect cannot be emitted."""
    limit = machine.most_outstanding[effect]
    return (
        f"the effect '{effect}' is still outstanding"
        if limit == 1
        else f"the effect '{effect}' is still outstanding {limit} times (the limit)"
    )


def without_one(outstanding: tuple[str, ...], effect: str) -> tuple[str, ...]:
    """Return what is outstanding without one emission of an effect, if there is one."""
    if effect not in outstanding:
        return outstanding
    place = outstanding.index(effect)
    return (*outstanding[:place], *outstanding[place + 1 :])


def after_effects(
    machine: Machine, outstanding: tuple[str, ...], row: Transition, state: str
) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Return the outstanding effects after a row, those that it cancelled, and an effect that it emits once too often (S7).

    Cancelled are effects of which an emission older than the row was removed. The answer discharges its emission first; then cancellations and
    emissions act in the order written; entering a final state cancels the rest.
    """
    origin = OUTSIDE if row.is_timer else machine.event_named[row.event].origin
    older = list(without_one(outstanding, origin))
    fresh, cancelled = list[str](), set[str]()
    for item in row.effects:
        if isinstance(item, Cancel):
            cancelled.update(effect for effect in older if item.effect in {None, effect})
            older = [effect for effect in older if item.effect not in {None, effect}]
            fresh = [effect for effect in fresh if item.effect not in {None, effect}]
        elif item.effect in machine.answers:
            if older.count(item.effect) + fresh.count(item.effect) >= machine.most_outstanding[item.effect]:
                return outstanding, (), item.effect
            fresh.append(item.effect)
    if state in machine.final_states:
        return (), tuple(sorted(cancelled.union(older))), None
    return tuple(sorted(older + fresh)), tuple(sorted(cancelled)), None


#: The most pairs of a leaf and a set of outstanding effects that `may_be_outstanding` distinguishes.
_MOST_SETS = 5_000


def may_be_outstanding(machine: Machine) -> dict[str, frozenset[str]]:
    """Return, for each leaf, the effects that may be outstanding there, as far as the rows tell.

    This is an over-approximation: conditions are not evaluated, so a state may wait for effects that exploration would
    rule out, but none is missing. Leaves that no row enters wait for nothing. If there are very many
    sets of outstanding effects, each leaf has their union.
    """
    first = machine.entry_leaf(machine.initial), frozenset[str]()
    effects: dict[str, frozenset[str]] = dict([first])
    visited_pairs, queue = {first}, [first]
    while queue:
        leaf, waits_for = queue.pop()
        is_coarse = len(visited_pairs) > _MOST_SETS
        for row in _rows_at(machine, leaf, waits_for):
            target = leaf if row.target == STAY else machine.entry_leaf(row.target)
            after = _left_outstanding(machine, waits_for, row, target, is_coarse=is_coarse)
            if after is None:
                continue
            union = effects.get(target, frozenset()) | after
            here = (target, union if is_coarse else after)
            effects[target] = union
            if here not in visited_pairs:
                visited_pairs.add(here)
                queue.append(here)
    return {leaf: effects.get(leaf, frozenset()) for leaf in machine.leaves}


def _rows_at(machine: Machine, leaf: str, waits_for: frozenset[str]) -> Iterator[Transition]:
    """Yield the rows that can be taken in a leaf, whatever the values: an answer needs its effect outstanding (S7)."""
    if leaf in machine.final_states:
        return
    for event in machine.event_named.values():
        if event.origin == OUTSIDE or event.origin in waits_for:
            yield from machine.rows_for(leaf, event.name)
    for source, event_name in machine.armed_timers(leaf):
        yield from machine.rows_from[source, event_name]


def _left_outstanding(
    machine: Machine, waits_for: frozenset[str], row: Transition, target: str, *, is_coarse: bool
) -> frozenset[str] | None:
    """Return what is outstanding after a row; None if the row is refused, which a union of sets (`is_coarse`) cannot show.

    How many may be outstanding turns on parameters, which this does not know: an effect of which several may be is never emitted once too often.
    """
    several = machine.numbered_effects
    single_row = attrs.evolve(row, effects=tuple(item for item in row.effects if item.effect not in several))
    emissions = {str(item) for item in row.effects} if is_coarse else frozenset[str]()
    single, _, twice = after_effects(machine, tuple(sorted(waits_for - several - emissions)), single_row, target)
    if twice:
        return None
    others = set(waits_for & several)
    for item in row.effects:
        if isinstance(item, Cancel):
            others.difference_update(several if item.effect is None else {item.effect})
        elif item.effect in several:
            others.add(item.effect)
    return frozenset(single).union(() if target in machine.final_states else others)


def accepted_events(machine: Machine, state: str) -> tuple[str, ...]:
    """Return the events and timers that have rows in a state, sorted."""
    if state in machine.final_states:
        return ()
    return tuple(sorted({event for source in machine.ancestry(state) for event in machine.events_from.get(source, ())}))


def is_over(machine: Machine, configuration: Configuration) -> bool:
    """Return whether a run is finished here: the leaf is final, or it is an end."""
    state = configuration.state
    if state in machine.final_states:
        return True
    end = machine.ends.get(state)
    if end is None or configuration.outstanding or machine.armed_timers(state):
        return False
    valuation = {**environment(machine, configuration.values), **pending_values(machine, ())}
    return holds(end, valuation) and not any(
        _may_take(machine, state, event, valuation) for event in machine.events_from_outside
    )


def _may_take(machine: Machine, state: str, event: str, valuation: Environment) -> bool:
    """Return whether a row is enabled for an event, whatever the guards say."""
    rows = candidates(machine, state, Occurrence(event))
    guards = read_guards(rows)
    combinations = product(*(machine.guard_named[guard].outcomes for guard in guards))
    return any(enabled_rows(rows, {**valuation, **dict(zip(guards, each, strict=True))}) for each in combinations)


def _refuse(
    machine: Machine,
    configuration: Configuration,
    reason: Reason,
    message: str,
    rows: tuple[Transition, ...] = (),
) -> Refusal:
    return Refusal(reason, configuration, message, rows, accepted_events(machine, configuration.state))
