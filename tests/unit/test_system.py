"""Systems laid out like another one."""

from each_row import each_row

from dsa.checks.mutation import mutants
from dsa.machine import Machine
from dsa.system import closed_system
from tests.repository import all_machines

MOST_ROWS = 30


@each_row(
    "machine",
    [machine for machine in all_machines().values() if len(machine.transitions) < MOST_ROWS],
    ids=lambda machine: machine.name,
)
def test_a_system_laid_out_like_another_is_the_one_laid_out_alone(machine: Machine) -> None:
    own = closed_system(machine)
    for mutant in mutants(machine):
        alone, like = closed_system(mutant.machine), closed_system(mutant.machine, like=own)
        assert (like.locations, like.commands, like.faults) == (alone.locations, alone.commands, alone.faults)
