"""Mutants: small faults, described in words, that change the behaviour unless they are equal."""

from collections import Counter
from pathlib import Path

from each_row import each_row
from repository import shipped_machines

from dsa.checks.mutants import mutants, row_mutants
from dsa.checks.mutation import differences
from dsa.declarations import Transition
from dsa.expr import unparse
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


def mutant_texts(machine: Machine, row: int) -> set[str]:
    return {mutant.what for mutant in row_mutants(machine) if mutant.at is machine.transitions[row]}


def test_every_row_of_the_shipped_machines_has_at_least_five_mutants() -> None:
    for machine in shipped_machines().values():
        rows = Counter(id(mutant.at) for mutant in row_mutants(machine))
        assert min(rows[id(row)] for row in machine.transitions) >= 5, machine.name


def test_faults_of_a_row_are_described_in_its_words() -> None:
    machine = loads(RETRY)
    assert mutant_texts(machine, 0) == {
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
    } | {text for text in mutant_texts(machine, 0) if text.startswith("target")}
    assert "'else' dropped" in mutant_texts(machine, 1)


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


def test_restarting_a_timer_is_a_difference() -> None:
    stays, again = loads(TIMER.format("=")), loads(TIMER.format("idle"))
    assert differ(stays, again)
    assert not differ(stays, stays)


@each_row("machine", shipped_machines().values(), ids=lambda machine: machine.name)
def test_machine_does_not_differ_from_itself(machine: Machine) -> None:
    assert not differ(machine, machine)


CREDIT_CHECK = Path(__file__).parents[2] / "golden" / "families" / "credit_check.md"


def test_mutant_of_a_row_with_families_changes_every_instance() -> None:
    machine = loads(CREDIT_CHECK.read_text(encoding="utf-8"))
    every = [*mutants(machine)]
    of_row = [each for each in every if isinstance(each.at, Transition) and each.at.event == "good[equifax]"]
    assert {each.place for each in of_row} == {
        "checking | good[equifax] | = (at b = equifax)",
        "checking | good[equifax] | deciding (at b = equifax)",
    }
    deleted = next(each.machine for each in of_row if each.what == "row deleted")
    assert len(machine.transitions) - len(deleted.transitions) == 3
    forgetful = next(each.machine for each in of_row if each.what == "update of report[equifax] dropped")
    assert [row.event for row in forgetful.transitions if not row.updates and row.event.startswith("good")] == [
        "good[equifax]",
        "good[experian]",
        "good[transunion]",
    ]
    assert not [each for each in every if isinstance(each.at, Transition) and each.at.event == "good[experian]"]
    assert not [each.what for each in every if "swapped" in each.what]  # `all b: look[b]` has one order


def test_mutant_of_a_declaration_with_families_changes_every_instance() -> None:
    machine = loads(CREDIT_CHECK.read_text(encoding="utf-8"))
    initial = next(each for each in mutants(machine) if each.what == "initial good instead of none")
    assert initial.place == "variable report"
    assert [*initial.machine.initial_values] == ["good", "good", "good"]
    assert len([each for each in mutants(machine) if each.what == "time limit dropped"]) == 2


FOR_EACH = """# m
## Families
| family | index |
| ------ | ----- |
| f      | 1..3  |
## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| x[f]     | 0..2   | 0       |
| y[f]     | bool   | false   |
## Events
| event   | from    |
| ------- | ------- |
| go      | outside |
| seen[f] | look[f] |
## Transitions
| source | event   | if                                                        | update                 | effects      | target |
| ------ | ------- | --------------------------------------------------------- | ---------------------- | ------------ | ------ |
| a      | go      | (count f: y[f]) < 2 and (all f: x[f] < 2 and not y[f+1])   | all f: x[f] += 1       | all f: look[f] | =    |
| a      | seen[f] | x[f] == 1                                                 | y[f] = true; x[1] = 0  |              | =      |
## States
| state | kind    |
| ----- | ------- |
| a     | initial |
"""


def test_quantified_text_is_mutated_once_for_all_indices() -> None:
    machine = loads(FOR_EACH)
    assert {each for each in mutant_texts(machine, 0) if not each.startswith("target")} == {
        "row deleted",
        "'count(y[1], y[2], y[3]) <= 2' instead of 'count(y[1], y[2], y[3]) < 2'",
        "'count(y[1], y[2], y[3]) < 3' instead of 'count(y[1], y[2], y[3]) < 2'",
        "'count(y[1], y[2], y[3]) < 1' instead of 'count(y[1], y[2], y[3]) < 2'",
        "'count(y[1], y[2], y[3]) < 2' dropped",
        "'any f: x[f] < 2 and not y[f+1]' instead of 'all f: x[f] < 2 and not y[f+1]'",
        "'x[1] <= 2' instead of 'x[1] < 2' (for each f)",
        "'x[1] < 3' instead of 'x[1] < 2' (for each f)",
        "'x[1] < 1' instead of 'x[1] < 2' (for each f)",
        "'all f: x[f] < 2 and not y[f+1]' dropped",
        "update of x[1] dropped (for each f)",
        "x[1] = x[1] + 1 + 1, its update doubled (for each f)",
        "x[1] = x[1] + 1 - 1 instead of x[1] + 1 (for each f)",
        "effect look[1] dropped (for each f)",
        "effect look[1] duplicated (for each f)",
        "effect look[2] instead of look[1] (for each f)",
        "effect look[3] instead of look[1] (for each f)",
    }


def row_of(machine: Machine, fault: str, row: int) -> Transition:
    changed = (each.machine for each in mutants(machine) if each.what == fault)
    return next(changed).transitions[row]


def test_fault_in_a_quantified_text_is_in_each_of_its_bodies() -> None:
    machine = loads(FOR_EACH)
    condition = row_of(machine, "'x[1] <= 2' instead of 'x[1] < 2' (for each f)", 0).condition
    assert unparse(condition) == (
        "count(y[1], y[2], y[3]) < 2 and (x[1] <= 2 and not y[2] and x[2] <= 2 and not y[3] and x[3] <= 2 and not y[1])"
    )
    some = row_of(machine, "'any f: x[f] < 2 and not y[f+1]' instead of 'all f: x[f] < 2 and not y[f+1]'", 0)
    assert unparse(some.condition).endswith("(x[1] < 2 and not y[2] or x[2] < 2 and not y[3] or x[3] < 2 and not y[1])")
    assert row_of(machine, "update of x[1] dropped (for each f)", 0).updates == ()
    twice = row_of(machine, "effect look[1] duplicated (for each f)", 0).effects
    assert [*map(str, twice)] == ["look[1]", "look[2]", "look[3]"] * 2


def test_index_is_shifted_within_its_family_unless_a_quantifier_binds_it() -> None:
    machine = loads(FOR_EACH)
    shifted = {each for each in mutant_texts(machine, 1) if "y[2]" in each or "x[2]" in each}
    assert shifted == {
        "'x[2]' instead of 'x[1]'",
        "update of y[2] instead of y[1]",
        "update of x[2] instead of x[1]",
    }
    last = row_of(machine, "'x[2]' instead of 'x[1]'", 3)
    assert (last.event, unparse(last.condition)) == ("seen[3]", "x[1] == 1")
