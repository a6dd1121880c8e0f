"""The arrows that SCXML and XState are made of do what `step` does, in every configuration that is reached."""

from collections import Counter

from crowds import crowded_machines
from each_row import each_row
from hypothesis import given, settings
from oracle import possible, reached
from repository import all_machines
from sample_sizes import sample_size

from dsa.expr import evaluate
from dsa.machine import Machine, environment
from dsa.semantics import Taken, pending_values, step
from dsa.system import counter
from dsa.targets.state_tree import Leaves

#: Machines with effects, and one that reads the pending effects.
SMALL = {
    name: machine
    for name, machine in all_machines().items()
    if name in {"s03_pending", "s07_answers", "s10_fold", "s05_updates", "s07_at_once"}
}


@each_row("machine", SMALL.values(), ids=SMALL)
def test_first_enabled_arrow_is_the_row_that_step_takes(machine: Machine) -> None:
    arrows_agree(machine)


@settings(max_examples=sample_size(15, full=200), deadline=None)
@given(crowded_machines())
def test_arrows_agree_where_several_of_an_effect_are_outstanding(machine: Machine) -> None:
    arrows_agree(machine, sample_size(18, full=200))


def arrows_agree(machine: Machine, most: int = 200) -> None:
    leaves = Leaves(machine)
    for here in reached(machine, most):
        names = {**environment(machine, here.values), **pending_values(machine, here.outstanding)}
        names |= {counter(effect).name: here.outstanding.count(effect) for effect in machine.numbered_effects}
        for occurrence in possible(machine, here):
            names_there = {**names, **dict(occurrence.verdicts)}
            arrows = [each for each in leaves.arrows(here.state) if each.key == (occurrence.source, occurrence.event)]
            first = next((each for each in arrows if evaluate(each.condition, names_there)), None)
            result = step(machine, here, occurrence)
            assert (first is None) == (not isinstance(result, Taken)), (here, occurrence)
            if isinstance(result, Taken):
                assert first.row is result.transition
                numbers = {effect: here.outstanding.count(effect) for effect in machine.answers} | dict(first.flags)
                numbers |= {effect: evaluate(number, names) for effect, number in first.numbers}
                assert {e: number for e, number in numbers.items() if number} == Counter(
                    result.configuration.outstanding
                )
