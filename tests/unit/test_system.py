"""Systems with the layout of another one."""

import pytest
from each_row import each_row
from repository import all_machines

from dsa.checks.mutants import mutants
from dsa.machine import Machine
from dsa.system import closed_system

MOST_ROWS = 30


@pytest.mark.parametrize("share", [6, pytest.param(1, marks=pytest.mark.full)], ids=["a sixth", "all mutants"])
@each_row(
    "machine",
    [machine for machine in all_machines().values() if len(machine.transitions) < MOST_ROWS],
    ids=lambda machine: machine.name,
)
def test_system_built_like_another_equals_the_one_built_alone(machine: Machine, share: int) -> None:
    own = closed_system(machine)
    for mutant in list(mutants(machine))[::share]:
        alone, like = closed_system(mutant.machine), closed_system(mutant.machine, like=own)
        assert (like.locations, like.commands, like.faults) == (alone.locations, alone.commands, alone.faults)
