"""The meaning of a certificate's claims, by the reference and by S12, independent of the kernel: tests compare the kernel with it."""

from collections import defaultdict
from itertools import product

import attrs
from oracle import is_end

from dsa.checks.certificate_writer import behaviour
from dsa.declarations import OUTSIDE, Assign
from dsa.edge.document_files import load
from dsa.expr import guards_read, show_value
from dsa.lang import dumps, spell_out
from dsa.machine import Machine, read_guards
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step
from dsa.system import closed_system, location_of


def possible(machine: Machine, here: Configuration):
    """Return every occurrence that can come, and whether it must be handled (S2, S3, S7, S11, S12), by `step`'s own facts."""
    if here.state in machine.final_states:
        return
    named = {row.event for row in machine.transitions}
    for name, said in machine.event_named.items():
        answers = said.origin != OUTSIDE
        if answers and said.origin not in here.outstanding:
            continue
        if name.endswith(".failed") and answers and name not in named and name not in {e.name for e in machine.events}:
            continue
        rows = machine.rows_for(here.state, name)
        if rows or answers:
            yield from ((Occurrence(name, verdicts), answers) for verdicts in combined(machine, rows))
    behind = {then for _, then in here.precedence}
    for source, timer in (each for each in machine.armed_timers(here.state) if each not in behind):
        rows = machine.rows_from[source, timer]
        yield from ((Occurrence(timer, verdicts, source), True) for verdicts in combined(machine, rows))


def combined(machine, rows):
    guards = read_guards(rows)
    for outcomes in product(*(machine.guard_named[guard].outcomes for guard in guards)):
        yield tuple(zip(guards, outcomes, strict=True))


def walked(machine: Machine, most: int):
    """Explore by the reference: the configurations; "fault" when one is reachable; None when there are too many."""
    first = start(machine)
    if not all(machine.values_of[v.name].contains(x) for v, x in zip(machine.variables, first.values, strict=True)):
        return "fault"
    known, todo = {first}, [first]
    while todo:
        here = todo.pop()
        for occurrence, must in possible(machine, here):
            answer = step(machine, here, occurrence)
            if isinstance(answer, Refusal):
                if must or answer.reason != "invalid_state":
                    return "fault"
            elif answer.configuration not in known:
                known.add(answer.configuration)
                todo.append(answer.configuration)
                if len(known) > most:
                    return None
    return known


def written(machine: Machine):
    about = behaviour(spell_out(machine))
    return about, dumps(about), {name: show_value(value) for name, value in about.constants.items()}


def taken(machine: Machine, here: Configuration):
    """Return every step that can be taken, with its occurrence."""
    answers = ((occurrence, step(machine, here, occurrence)) for occurrence, _ in possible(machine, here))
    return [(occurrence, answer) for occurrence, answer in answers if isinstance(answer, Taken)]


def stuck(machine: Machine, here: Configuration) -> bool:
    """Return whether nothing is outstanding or armed, no run is finished here, and nothing from outside has a row."""
    waits = here.outstanding or machine.armed_timers(here.state) or here.state in machine.final_states
    return not waits and not taken(machine, here) and not is_end(machine, here)


def comes_to_rest(machine: Machine, known) -> bool:
    """Return whether S12 allows no endless run without events from outside: whatever could go round leaves a promise unkept."""
    system = closed_system(machine)
    steps, numbers = {here: [] for here in known}, {id(row): place for place, row in enumerate(machine.transitions)}
    for here in known:
        commands = defaultdict(list)
        for command in system.commands_at[location_of(system, here)]:
            commands[command.occurrence, command.row].append(command.endings)
        for occurrence, answer in taken(machine, here):
            (ended,) = commands[occurrence, numbers[id(answer.transition)]]
            if occurrence.source is not None or machine.event_named[occurrence.event].origin != OUTSIDE:
                steps[here].append((answer.configuration, ended))
    after = {here: following(steps, here) for here in known}
    for here in known:
        circle = [other for other in after[here] if here in after[other]]
        ended = {promise for other in circle for target, ends in steps[other] if target in circle for promise in ends}
        promises = [{*other.outstanding, *machine.armed_timers(other.state)} - ended for other in circle]
        if circle and not set.intersection(*promises):
            return False
    return True


def following(steps, here):
    """Return what can follow after one step or more."""
    found, todo = set(), [here]
    while todo:
        new = {target for target, _ in steps[todo.pop()]} - found
        found |= new
        todo += new
    return found


def is_guarded(machine: Machine) -> bool:
    """Return whether no step of any run sets workflow state on a judged event unless the guards that its row reads have passed."""
    workflow = {variable.name for variable in machine.variables if variable.scope == "workflow"}
    asked = {row.event for row in machine.transitions if guards_read(row.condition)}
    known, todo = {start(machine)}, [start(machine)]
    while todo:
        here = todo.pop()
        for occurrence, answer in taken(machine, here):
            row, said = answer.transition, dict(occurrence.verdicts)
            sets = any(isinstance(update, Assign) and update.variable in workflow for update in row.updates)
            guards = (
                read_guards(machine.rows_from[row.source, row.event]) if row.is_else else guards_read(row.condition)
            )
            passed = bool(guards) and all(said[guard] == "passed" for guard in guards)
            if sets and not passed and occurrence.event in machine.judged_events | asked:
                return False
            if answer.configuration not in known:
                known.add(answer.configuration)
                todo.append(answer.configuration)
    return True


def with_spec(name: str) -> Machine:
    machine = load(name)
    return attrs.evolve(spell_out(machine), properties=machine.properties)
