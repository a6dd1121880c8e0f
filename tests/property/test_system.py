"""The closed system says exactly what `step` says: on random machines, in every configuration that is reached, whatever effects it counts."""

from collections import Counter
from itertools import product

from crowds import crowded_machines
from family_documents import family_machines
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import possible, reached
from sample_sizes import sample_size

from dsa.declarations import expressions
from dsa.expr import Environment, Value, evaluate, holds, simplify
from dsa.ground_system import ground
from dsa.machine import Machine, environment, read_guards
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, pending_values, start, step
from dsa.system import System, after, at_location, at_start, closed_system, counter, location_of
from dsa.testing.strategies import machines

MANY = settings(max_examples=sample_size(30, full=150), deadline=None)


@st.composite
def systems(draw: st.DrawFn, *, claims: bool = True) -> System:
    """Draw the system of a machine, and which of its effects are counted: often none or all."""
    machine = draw(machines(claims=claims) | crowded_machines(claims=3 if claims else 0))
    effects = machine.effects_with_answers
    some = st.lists(st.sampled_from(effects), unique=True) if effects else st.just([])
    return closed_system(machine, counted_effects=draw(st.just(()) | st.just(effects) | some))


def values_known(system: System, here: Configuration) -> dict[str, Value]:
    """The values at a configuration, the numbers outstanding among them."""
    numbers = {counter(effect).name: here.outstanding.count(effect) for effect in system.counted_effects}
    return {**environment(system.machine, here.values), **numbers}


@MANY
@given(systems(claims=False))
def test_commands_are_the_steps_taken_and_faults_the_refusals(system: System) -> None:
    machine, grounded = system.machine, ground(system)
    rows = {id(row): number for number, row in enumerate(machine.transitions)}
    for here in reached(machine):
        place, taken, refused = location_of(system, here), set(), set()
        known = values_known(system, here)
        for occurrence in possible(machine, here):
            result = step(machine, here, occurrence)
            if isinstance(result, Taken):
                moment = (occurrence, rows[id(result.transition)], result.effects, result.configuration)
                taken.add(moment)
            else:
                refused.add((occurrence, result.reason))
        commands = [c for c in system.commands_at[place] if holds(c.condition, known)]
        for command in commands:
            target = system.locations[command.target]
            values = tuple(
                evaluate(command.after[v.name], known) if v.name in command.after else known[v.name]
                for v in machine.variables
            )
            numbers = {
                name.removeprefix("pending "): value for name, value in known.items() if name.startswith("pending ")
            }
            numbers |= {
                e: evaluate(command.after[counter(e).name], known) for e in numbers if counter(e).name in command.after
            }
            outstanding = [*target.outstanding, *(effect for effect, number in numbers.items() for _ in range(number))]
            there = Configuration(target.state, values, outstanding, target.precedence)
            assert (command.occurrence, command.row, command.effects, there) in taken
        assert len(commands) == len(taken)
        faults = {(f.occurrence, f.reason) for f in system.faults if f.location == place and holds(f.condition, known)}
        assert faults == refused
        number = grounded.encode(here)
        assert grounded.decode(number) == here
        leads_to = Counter(grounded.decode(to) for _, to in grounded.successors(number))
        assert leads_to == Counter(configuration for *_, configuration in taken)


@MANY
@given(systems(claims=False))
def test_rows_of_a_fault_are_those_that_step_names(system: System) -> None:
    machine = system.machine
    for here in reached(machine, 20):
        known = values_known(system, here)
        place = location_of(system, here)
        for fault in system.faults:
            if fault.location == place and holds(fault.condition, known):
                refusal = step(machine, here, fault.occurrence)
                assert isinstance(refusal, Refusal)
                rows = [machine.transitions[number] for number in fault.rows]
                assert fault.reason == "invalid_state" or all(any(r is row for r in refusal.rows) for row in rows)


def moment_names(
    machine: Machine, here: Configuration, occurrence: Occurrence | None, taken: Taken | None
) -> Environment:
    """Everything a property may name, at one moment."""
    inside = {*machine.ancestry(here.state)}
    said = dict(occurrence.verdicts) if occurrence else {}
    emitted = taken.effects if taken else ()
    return {
        **environment(machine, here.values),
        **{state.name: state.name in inside for state in machine.states},
        **{f"pending {effect}": effect in here.outstanding for effect in machine.answers},
        "pending": bool(here.outstanding),
        **{effect.name: effect.name in emitted for effect in machine.effects},
        **{event: bool(occurrence) and occurrence.event == event for event in machine.event_named},
        **{guard.name: said.get(guard.name, "not asked") for guard in machine.guards},
    }


@MANY
@given(systems())
def test_expressions_of_properties_have_the_value_of_what_they_name(system: System) -> None:
    machine = system.machine
    exprs = [expr for claim in machine.properties for expr in expressions(claim.form)]
    first = moment_names(machine, start(machine), None, None)
    for expr in exprs:
        assert evaluate(at_start(system, expr), machine.constants) == evaluate(expr, first)
    for here in reached(machine, 25):
        known = values_known(system, here)
        quiet = moment_names(machine, here, None, None)
        for expr in exprs:
            assert evaluate(at_location(system, location_of(system, here), expr), known) == evaluate(expr, quiet)
        for command in system.commands_at[location_of(system, here)]:
            if holds(command.condition, known):
                taken = step(machine, here, command.occurrence)
                assert isinstance(taken, Taken)
                then = moment_names(machine, taken.configuration, command.occurrence, taken)
                for expr in exprs:
                    assert evaluate(after(system, command, expr), known) == evaluate(expr, then)


@MANY
@given(st.data())
def test_simplified_condition_has_the_same_value(data: st.DataObject) -> None:
    machine = data.draw(machines(claims=False) | crowded_machines() | family_machines())
    for row in machine.transitions:
        small = simplify(row.condition)
        for here in reached(machine, 5):
            known = {**environment(machine, here.values), **pending_values(machine, here.outstanding)}
            for said in product(*(machine.guard_named[guard].outcomes for guard in read_guards((row,)))):
                there = {**known, **dict(zip(read_guards((row,)), said, strict=True))}
                assert evaluate(small, there) == evaluate(row.condition, there)
        assert small == simplify(small)
