"""The faults that are made are small, said in words, and each a difference where they are one."""

from collections import Counter

from each_row import each_row
from repository import shipped_machines

from dsa.checks.mutation import differences, row_mutants
from dsa.lang import loads
from dsa.machine import Machine
from dsa.system import closed_system

TIMER = """# t
## Transitions
| source | event     | target |
| ------ | --------- | ------ |
| idle   | ping      | {}     |
| idle   | after 30s | over   |
## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| over  | final   |
"""


def differ(one: Machine, other: Machine) -> bool:
    return bool(differences(closed_system(one), closed_system(other)))


def what(machine: Machine, row: int) -> set[str]:
    return {mutant.what for mutant in row_mutants(machine) if mutant.at is machine.transitions[row]}


def test_every_row_of_the_shipped_machines_has_five_mutants() -> None:
    for machine in shipped_machines().values():
        rows = Counter(id(mutant.at) for mutant in row_mutants(machine))
        assert min(rows[id(row)] for row in machine.transitions) >= 5, machine.name


def test_the_faults_of_a_row_are_said_in_its_words() -> None:
    machine = loads(RETRY)
    assert what(machine, 0) == {
        "row deleted",
        "'n < top' dropped",
        "'n <= top' instead of 'n < top'",
        "'n < top + 1' instead of 'n < top'",
        "'n < top - 1' instead of 'n < top'",
        "update of n dropped",
        "n = n + 1 + 1, its update doubled",
        "n = n + 1 - 1 instead of n + 1",
        "effect ring dropped",
        "effect ring duplicated",
        "effects ring and beep swapped",
        "effect beep dropped",
        "effect beep instead of ring",
        "effect ring instead of beep",
        "effect beep duplicated",
        "target b instead of =",
    } | {text for text in what(machine, 0) if text.startswith("target")}
    assert "'else' dropped" in what(machine, 1)


RETRY = """# m
## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| top       | 0..    | 2       |
## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..top | 0       |
## Transitions
| source | event | if      | update | effects    | target |
| ------ | ----- | ------- | ------ | ---------- | ------ |
| a      | go    | n < top | n += 1 | ring, beep | =      |
| a      | go    | else    |        |            | b      |
## States
| state | kind    |
| ----- | ------- |
| a     | initial |
| b     | final   |
"""


def test_starting_a_timer_anew_is_a_difference() -> None:
    stays, again = loads(TIMER.format("=")), loads(TIMER.format("idle"))
    assert differ(stays, again)
    assert not differ(stays, stays)


@each_row("machine", shipped_machines().values(), ids=lambda machine: machine.name)
def test_a_machine_does_not_differ_from_itself(machine: Machine) -> None:
    assert not differ(machine, machine)
