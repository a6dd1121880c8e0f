import pytest

from dsa.checks.mutate import Judged, mutate, prover
from dsa.edge.files import load
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


def found(strength, what: str) -> Judged:
    (one,) = (one for one in strength.judged if one.mutant.what == what)
    return one


def test_everything_in_the_dual_state_agent_is_pinned_by_its_spec() -> None:
    strength = mutate(load("specs/dual_state.md"))
    assert strength.score == 1.0
    assert len(strength.judged) == 85
    assert {one.kind for one in strength.judged} == {"noticed"}


def test_what_notices_a_mutant_is_named() -> None:
    strength = mutate(loads(COUNTER))
    assert (
        found(strength, "update of n dropped").kind == "survived"
    )  # b is reached at top = 0, and nothing says it must be
    assert found(strength, "'n < top - 1' instead of 'n < top'").by == "DSA308"  # a deadlock at top - 1
    assert found(strength, "'n < top + 1' instead of 'n < top'").by == "DSA306"


def test_without_its_property_and_checks_a_fault_survives() -> None:
    weak = loads(COUNTER.replace("- never b and n < top\n", "").replace("else and n == top", "else"))
    strength = mutate(weak)
    early = found(strength, "'n < top - 1' instead of 'n < top'")
    assert (early.kind, early.by) == ("survived", "")
    assert 0 < strength.score < 1
    strong = mutate(loads(COUNTER.replace("else and n == top", "else")))
    assert found(strong, "'n < top - 1' instead of 'n < top'").by == "never b and n < top"


def test_a_mutant_is_equal_for_all_parameters_only_when_that_is_proved() -> None:
    machine = loads(COUNTER)
    what = "'n == top' dropped"  # what is left says n >= top, and the domain the rest
    explored = found(mutate(machine), what)
    assert explored.kind == "survived"
    assert "none is excluded" in explored.by
    proved = found(mutate(machine, prove=prover(machine)), what)
    assert (proved.kind, proved.by) == ("equal", "the same steps, proved for all parameter values")
    assert "proved" in {
        word for one in mutate(machine, prove=prover(machine)).of_kind("equal") for word in one.by.split()
    }


def test_a_difference_beyond_the_explored_values_is_not_called_equal() -> None:
    """At top = 0 and at top = 2 the two are the same; at 3 they are not."""
    rows = "| a      | go    | n < top           | n += 1 | =      |"
    text = COUNTER.replace(rows, rows.replace("n < top  ", "n < top and n < 3"))
    text = text.replace("else and n == top", "else")
    machine = loads(text.replace("- never b and n < top\n", ""))
    strength = mutate(machine, prove=prover(machine))
    assert found(strength, "'n < 3' dropped").kind == "survived"


def test_a_machine_that_does_not_pass_is_not_mutated() -> None:
    with pytest.raises(ValueError, match="itself does not pass: DSA306"):
        mutate(loads(COUNTER.replace("n < top    ", "n <= top   ")))
