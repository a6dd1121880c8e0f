"""Edits of a machine, as people make them in a table that is in use; and runs of a machine that are in flight.

Takes a machine and a source of chance, gives a machine that is a valid document too, and the edit's name.
"""

import random

import attrs
from oracle import possible

from dsa.declarations import STAY, TIMER_PREFIX, Assign, Emit, Event, State, Transition, Variable
from dsa.errors import MachineError, OccurrenceError, Span
from dsa.expr import (
    OUTCOMES,
    TRUE,
    And,
    Arithmetic,
    Boolean,
    BooleanDomain,
    Integer,
    Interval,
    Name,
    RangeDomain,
    Verdict,
    concrete,
    negation,
)
from dsa.lang import dumps, loads
from dsa.machine import Machine
from dsa.runtime.run import Run, begin, oldest_key
from dsa.semantics import Occurrence

RUN = "r"


def edited(machine: Machine, chance: random.Random) -> tuple[str, Machine]:
    """Make one edit, or, once in four times, two."""
    names, now = [], machine
    for _ in range(chance.choice((1, 1, 1, 2))):
        name, now = _one(now, chance)
        names.append(name)
    return " and ".join(names), now


def _one(machine: Machine, chance: random.Random) -> tuple[str, Machine]:
    while True:
        edit = chance.choice(EDITS)
        try:
            changed = edit(machine, chance)
            loads(dumps(changed))
        except (
            MachineError,
            IndexError,
            StopIteration,
        ):  # there is nothing of this kind to edit, or the edit is not a valid machine
            continue
        return edit.__name__, changed


def with_rows(machine: Machine, rows) -> Machine:
    return attrs.evolve(machine, transitions=tuple(rows))


def in_a_row(change):
    """Make an edit of one row an edit of a machine."""

    def edit(machine, chance):
        rows = list(machine.transitions)
        place = chance.choice(range(len(rows)))
        rows[place] = change(machine, rows[place], chance)
        return with_rows(machine, rows)

    edit.__name__ = change.__name__
    return edit


def retarget(machine, row, chance):
    return attrs.evolve(row, target=chance.choice([*machine.leaves, STAY]))


def move_source(machine, row, chance):
    return attrs.evolve(row, source=chance.choice([s for s in machine.leaves if s not in machine.final_states]))


def change_event(machine, row, chance):
    return attrs.evolve(row, event=chance.choice([*machine.event_named, "after 30s"]), condition=TRUE)


def change_update(machine, row, chance):
    if row.updates and chance.random() < 0.4:
        return attrs.evolve(row, updates=row.updates[1:])
    variable = chance.choice(machine.variables)
    others = [update for update in row.updates if update.variable != variable.name]
    return attrs.evolve(row, updates=(*others, Assign(variable.name, _value(variable, chance))))


def _value(variable, chance):
    if isinstance(variable.domain, RangeDomain):
        moved = Arithmetic("+", Name(variable.name, "variable"), Integer(1))
        return chance.choice([Integer(chance.randint(0, 2)), moved])
    return Boolean(chance.random() < 0.5) if isinstance(variable.domain, BooleanDomain) else variable.initial


def change_effects(machine, row, chance):
    effects = list(row.effects)
    if effects and chance.random() < 0.5:
        effects.pop(chance.choice(range(len(effects))))
    else:
        effects.insert(chance.randint(0, len(effects)), Emit(chance.choice(machine.effects).name))
    return attrs.evolve(row, effects=tuple(effects))


def swap_effects(_machine, row, chance):
    effects = list(row.effects)
    chance.shuffle(effects)
    return attrs.evolve(row, effects=tuple(effects))


def change_condition(machine, row, chance):
    told = [v for v in machine.variables if isinstance(v.domain, BooleanDomain)]
    options = [TRUE, negation(row.condition)]
    options += [And((row.condition, Name(chance.choice(told).name, "variable")))] if told else []
    judging = [g for g in machine.guards if row.event in g.judges]
    options += [Verdict(g.name, chance.choice(g.outcomes)) for g in judging]
    return attrs.evolve(row, condition=chance.choice(options))


def toggle_else(_machine, row, _chance):
    return attrs.evolve(row, is_else=not row.is_else)


def drop_row(machine, chance):
    rows = list(machine.transitions)
    rows.pop(chance.choice(range(len(rows))))
    return with_rows(machine, rows)


def add_row(machine, chance):
    source = chance.choice([s for s in machine.leaves if s not in machine.final_states])
    event = chance.choice([*machine.event_named, "after 30s"])
    row = Transition(source, event, chance.choice([*machine.leaves, STAY]))
    return with_rows(machine, [*machine.transitions, row])


def reorder_rows(machine, chance):
    rows = list(machine.transitions)
    chance.shuffle(rows)
    return with_rows(machine, rows)


def add_note(machine, _chance):
    """Leave everything as it is, in other lines."""
    rows = (attrs.evolve(row, span=Span("m.md", 90 + n, 1, 2, "")) for n, row in enumerate(machine.transitions))
    return with_rows(machine, rows)


def change_domain(machine, chance):
    place = chance.choice(range(len(machine.variables)))
    variable = machine.variables[place]
    if not isinstance(variable.domain, RangeDomain):
        raise IndexError
    domain = attrs.evolve(variable.domain, high=Arithmetic("+", variable.domain.high, Integer(chance.choice((1, -1)))))
    return _with_variable(machine, place, attrs.evolve(variable, domain=domain))


def change_initial(machine, chance):
    place = chance.choice(range(len(machine.variables)))
    variable = machine.variables[place]
    values = concrete(variable.domain, machine.constants)
    if isinstance(values, Interval):
        return _with_variable(
            machine, place, attrs.evolve(variable, initial=Integer(chance.randint(values.low, values.high or 0)))
        )
    if isinstance(variable.domain, BooleanDomain):
        return _with_variable(machine, place, attrs.evolve(variable, initial=Boolean(chance.random() < 0.5)))
    raise IndexError


def _with_variable(machine, place, variable):
    variables = list(machine.variables)
    variables[place] = variable
    return attrs.evolve(machine, variables=tuple(variables))


def add_variable(machine, chance):
    variable = Variable("added_here", "environment", RangeDomain(Integer(0), Integer(1)), Integer(0))
    if any(v.name == variable.name for v in machine.variables):
        raise IndexError
    rows = list(machine.transitions)
    place = chance.choice(range(len(rows)))
    counted = Assign(variable.name, Arithmetic("+", Name(variable.name, "variable"), Integer(1)))
    rows[place] = attrs.evolve(rows[place], updates=(*rows[place].updates, counted))
    return attrs.evolve(with_rows(machine, rows), variables=(variable, *machine.variables))


def drop_variable(machine, chance):
    used = {u.variable for row in machine.transitions for u in row.updates}
    unused = [v for v in machine.variables if v.name not in used]
    gone = chance.choice(unused)
    return attrs.evolve(machine, variables=tuple(v for v in machine.variables if v != gone))


def begin_elsewhere(machine, chance):
    tops = [s.name for s in machine.states if s.parent is None and s.kind != "final"]
    state = chance.choice(tops)
    kinds = {machine.initial: "", state: "initial"}
    states = tuple(attrs.evolve(s, kind=kinds[s.name]) if s.name in kinds else s for s in machine.states)
    return attrs.evolve(machine, states=states, initial=state)


def make_final(machine, chance):
    states = list(machine.states)
    place = chance.choice(range(len(states)))
    state = states[place]
    states[place] = attrs.evolve(state, kind="" if state.kind == "final" else "final")
    return attrs.evolve(machine, states=tuple(states))


def rename_state(machine, chance):
    old = chance.choice([s for s in machine.leaves if "." not in s])
    new = "called_otherwise"
    if new in machine.state_named:
        raise IndexError
    rows = [
        attrs.evolve(
            row, source=new if row.source == old else row.source, target=new if row.target == old else row.target
        )
        for row in machine.transitions
    ]
    states = tuple(State(new, s.kind) if s.name == old else s for s in machine.states)
    initial = new if machine.initial == old else machine.initial
    return attrs.evolve(with_rows(machine, rows), states=states, initial=initial)


def change_origin(machine, chance):
    place = chance.choice(range(len(machine.events)))
    events = list(machine.events)
    origin = chance.choice(["outside", *(effect.name for effect in machine.effects)])
    events[place] = Event(events[place].name, origin)
    return attrs.evolve(machine, events=tuple(events))


def add_answer(machine, chance):
    """Let an effect be answered otherwise too, mostly with a row for it."""
    effect = chance.choice(list(machine.answers))
    event = Event("answered_otherwise", effect)
    if event.name in machine.event_named:
        raise IndexError
    changed = attrs.evolve(machine, events=(*machine.events, event))
    if chance.random() < 0.3:
        return changed
    row = Transition("*", event.name, chance.choice(machine.leaves))
    return with_rows(changed, [*changed.transitions, row])


def narrow_guard(machine, chance):
    guards = list(machine.guards)
    place = chance.choice(range(len(guards)))
    wide = guards[place].outcomes == OUTCOMES
    guards[place] = attrs.evolve(guards[place], outcomes=("passed", "failed") if wide else OUTCOMES, fatal_odds=())
    return attrs.evolve(machine, guards=tuple(guards))


def change_timer(_machine, row, chance):
    if not row.event.startswith(TIMER_PREFIX):
        raise IndexError
    return attrs.evolve(row, event=chance.choice(("after 30s", "after 5m")))


_IN_A_ROW = (
    retarget, retarget, move_source, change_event, change_update, change_update, change_effects, change_effects, swap_effects,
    change_condition, change_condition, toggle_else, change_timer,
)  # fmt: skip
EDITS = (
    *map(in_a_row, _IN_A_ROW), drop_row, add_row, add_row, reorder_rows, add_note, change_domain, change_initial, add_variable, drop_variable,
    begin_elsewhere, make_final, rename_state, change_origin, add_answer, narrow_guard,
)  # fmt: skip


def in_flight(machine: Machine, chance: random.Random) -> Run:
    """Let a run go some way, by what may come and now and then by what may not; it is not finished."""
    run, _ = begin(machine, RUN)
    for _ in range(chance.randint(0, 7)):
        comes = list(possible(machine, run.configuration))
        comes += [Occurrence(event.name) for event in machine.events if chance.random() < 0.15]
        if not comes:
            break
        further = _fed(run, chance.choice(comes), chance)
        if further.is_finished:
            break
        run = further
    return run


def _fed(run: Run, occurrence: Occurrence, chance: random.Random) -> Run:
    """Feed an event under the key of what it answers, or, at times, under one that is over."""
    event = run.machine.event_named.get(occurrence.event)
    origin = event.origin if event else "outside"
    key = None if origin == "outside" else (oldest_key(run.keys, origin) or "0/1")
    if key is not None and chance.random() < 0.1:
        key = "0/1"
    try:
        return run.feed(occurrence, key)[0]
    except OccurrenceError:  # it lacks verdicts there
        return run
