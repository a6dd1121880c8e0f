"""Mutation testing: mutants that are noticed, the checks that notice them, and their share."""

import pytest

from dsa.checks.mutation import MutantResult, mutate, prover
from dsa.edge.document_files import load
from dsa.lang import loads

COUNTER = """# counter
## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| top       | 0..    | 2       |
## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| n        | 0..top | 0       |
## Transitions
| source | event | if                | update | target |
| ------ | ----- | ----------------- | ------ | ------ |
| a      | go    | n < top           | n += 1 | =      |
| a      | go    | else and n == top |        | b      |
## States
| state | kind    |
| ----- | ------- |
| a     | initial |
| b     | final   |
## Properties
- never b and n < top
"""


def found(strength, what: str) -> MutantResult:
    (one,) = (one for one in strength.results if one.mutant.what == what)
    return one


def test_spec_of_dual_state_notices_every_mutant_of_its_rows() -> None:
    strength = mutate(load("specs/dual_state.md"))
    assert strength.score == 1.0
    assert {one.kind for one in strength.results if one.mutant.group == "rows"} == {"noticed"}
    assert [(one.mutant.place, one.mutant.what) for one in strength.of_kind("survived")] == [
        ("variable satisfied", "scope environment instead of workflow"),
        ("parameter rmax", "default 4 instead of 3"),
        ("parameter rmax", "default 2 instead of 3"),
    ]


def test_check_that_notices_a_mutant_is_named() -> None:
    strength = mutate(loads(COUNTER))
    # `b` is reached at top = 0, and nothing requires it at other values.
    assert found(strength, "update of n dropped").kind == "survived"
    assert found(strength, "'n < top - 1' instead of 'n < top'").by == "DSA308"  # a deadlock at top - 1
    assert found(strength, "'n < top + 1' instead of 'n < top'").by == "DSA306"


def test_fault_survives_without_its_property_and_checks() -> None:
    weak = loads(COUNTER.replace("- never b and n < top\n", "").replace("else and n == top", "else"))
    strength = mutate(weak)
    early = found(strength, "'n < top - 1' instead of 'n < top'")
    assert (early.kind, early.by) == ("survived", "")
    assert 0 < strength.score < 1
    strong = mutate(loads(COUNTER.replace("else and n == top", "else")))
    assert found(strong, "'n < top - 1' instead of 'n < top'").by == "never b and n < top"


def test_mutant_counts_as_equal_for_all_parameters_only_if_that_is_proved() -> None:
    machine = loads(COUNTER)
    what = "'n == top' dropped"  # the rest of the condition says n >= top, and the domain says n <= top
    explored = found(mutate(machine), what)
    assert explored.kind == "survived"
    assert "other values may show a difference" in explored.by
    proved = found(mutate(machine, prove=prover(machine)), what)
    assert (proved.kind, proved.by) == ("equal", "the same steps, proved for all parameter values")
    assert "proved" in {
        word for one in mutate(machine, prove=prover(machine)).of_kind("equal") for word in one.by.split()
    }


def test_difference_beyond_the_explored_values_is_not_called_equal() -> None:
    """At top = 0 and at top = 2 the mutant and the machine are the same; at 3 they are not."""
    rows = "| a      | go    | n < top           | n += 1 | =      |"
    text = COUNTER.replace(rows, rows.replace("n < top  ", "n < top and n < 3"))
    text = text.replace("else and n == top", "else")
    machine = loads(text.replace("- never b and n < top\n", ""))
    strength = mutate(machine, prove=prover(machine))
    assert found(strength, "'n < 3' dropped").kind == "survived"


def test_machine_that_does_not_pass_is_not_mutated() -> None:
    with pytest.raises(ValueError, match="itself does not pass: DSA306"):
        mutate(loads(COUNTER.replace("n < top    ", "n <= top   ")))


DECLARED = """# declared
## Parameters
| parameter | domain | default |
| - | - | - |
| top | 0..3 | 2 |
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| ready | workflow | bool | false |
| pace | environment | {slow, fast} | slow |
| n | environment | 0..3 | 1 |
## Events
| event | from |
| - | - |
| go | outside |
| made | make |
| verdict | judge |
## Guards
| guard | judges |
| - | - |
| g | verdict |
## Effects
| effect | in doubt | time limit |
| - | - | - |
| make | retry | 1h |
| judge | | 1h |
| ring | | |
| beep | | |
## States
| state | kind |
| - | - |
| a | initial |
| b | |
| c | |
| d | final |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| a | go | n == 1 and pace == slow and not ready | | make | b |
| b | made | | | judge | c |
| b | after 1h | | | ring | = |
| b | after 2h | | | cancel | d |
| c | verdict | g.passed | ready = true | ring | d |
| c | verdict | else | | beep | d |
| *  | make.failed, judge.failed | | | | d |
## Properties
- go leads to d
"""


def test_mutants_of_declarations_are_counted_separately() -> None:
    strength = mutate(loads(DECLARED))
    declared = {(one.mutant.place, one.mutant.what): one for one in strength.results if one.mutant.group != "rows"}
    assert {place: [what for there, what in declared if there == place] for place, _ in declared} == {
        "variable ready": ["initial true instead of false", "scope environment instead of workflow"],
        "variable pace": ["initial fast instead of slow", "scope workflow instead of environment"],
        "variable n": ["initial 2 instead of 1", "initial 0 instead of 1", "scope workflow instead of environment"],
        "parameter top": ["default 3 instead of 2", "default 1 instead of 2"],
        "effect make": [
            "time limit dropped",
            "in doubt ask instead of retry",
            "in doubt fail instead of retry",
        ],
        "effect judge": ["time limit dropped"],
    }
    assert declared["variable pace", "initial fast instead of slow"].by == "DSA308"
    assert declared["effect judge", "time limit dropped"].by.startswith("DSA314 (the effect 'judge' ")
    assert declared["effect make", "in doubt ask instead of retry"].kind == "survived"
    assert strength.share("Effects") == 0.25
    assert strength.score == strength.share("rows")


def test_other_effects_and_swapped_timers_are_mutants() -> None:
    whats = {one.mutant.what for one in mutate(loads(DECLARED)).results}
    assert {"effect beep instead of ring", "effect judge instead of make", "after 1h and after 2h swapped"} <= whats


def test_unused_default_is_not_mutated() -> None:
    places = {one.mutant.place for one in mutate(loads(DECLARED), parameters={"top": 3}).results}
    assert "parameter top" not in places
