"""The compiled step against the kernel's table: the number of cases, and the values that a step must not read.

Faults planted in the code that runs are in `property/test_planted_steps.py`.
"""

import attrs
import pytest
from example_machines import dual_state

from dsa.checks.certificate_proofs import SealedValue, require_few_cases, require_same_steps
from dsa.compiled_step import _StepWriter
from dsa.errors import UndecidedError
from dsa.expr import Integer, RangeDomain
from dsa.kernel import TABLE, Claim
from dsa.lang import dumps, loads

TEXT = """# far

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| x        | 0..3   | 0       |
| y        | 0..9   | 0       |

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| done  | work    |

## Transitions
| source | event | if    | update | effects | target |
| ------ | ----- | ----- | ------ | ------- | ------ |
| a      | go    | x < 2 | x += 1 | work    | b      |
| b      | done  |       | y = 0  |         | a      |
"""
MACHINE = loads(TEXT)
CLAIM = {"form": TABLE, "parts": [], "at": {}, "proofs": []}


@pytest.fixture
def generated(monkeypatch):
    """Return a function that compares the steps after a change of the source generated for `go`."""
    write = _StepWriter.source

    def change(*pairs):
        def source(writer, rows):
            lines = "\n".join(write(writer, rows))
            for old, new in pairs if rows[0].event == "go" else ():
                assert old in lines
                lines = lines.replace(old, new)
            return tuple(lines.split("\n"))

        monkeypatch.setattr(_StepWriter, "source", source)
        require_same_steps(attrs.evolve(MACHINE), Claim(dumps(MACHINE), CLAIM))

    return change


def test_variable_that_no_row_names_adds_no_cases():
    """x has 4 values, y 10; `work` and all other effects are pending or not. In b, `go` has no rows; y alone counts for `done`."""
    claim = Claim(dumps(MACHINE), CLAIM)
    with pytest.raises(
        UndecidedError, match=r"there are 70 combinations of state, event, verdicts and values, which is more than 69"
    ):
        require_few_cases(MACHINE, claim, 69)
    require_few_cases(MACHINE, claim, 70)
    assert len(list(claim.table())) == 70
    with pytest.raises(AssertionError, match="there are 70 combinations"):
        require_same_steps(MACHINE, claim, 69)


def test_variable_without_a_greatest_value_has_too_many_cases():
    """A document cannot declare one, but a machine built in Python can."""
    x, y = MACHINE.variables
    endless = attrs.evolve(MACHINE, variables=(attrs.evolve(x, domain=RangeDomain(Integer(0), None)), y))
    with pytest.raises(UndecidedError, match="x has no greatest value"):
        require_few_cases(endless, Claim(dumps(MACHINE), CLAIM))


def test_step_is_compiled_for_the_values_that_the_claim_names():
    machine = dual_state(rmax=5)
    require_same_steps(machine, Claim(dumps(machine), CLAIM | {"at": {"rmax": "2"}}))
    assert "compiled_step" not in machine.worked_out


@pytest.mark.parametrize("look", ["v1 == 1", "v1 < 1", "bool(v1)", "hash(v1)", "v1 + 1", "-v1", "[1][v1]", "v1 in {1}"])
def test_step_must_not_read_other_variables(generated, look):
    with pytest.raises(AssertionError, match="in a on go: it reads a variable that the rows do not name"):
        generated(("v0, v1, = c.values", f"v0, v1, = c.values; {look}"))


@pytest.mark.parametrize("look", ["v1 == 1", "v1 < 1", "bool(v1)", "v1 in {1}"])
def test_step_must_not_read_other_variables_when_no_row_is_taken(generated, look):
    """When no row is taken, the reference is asked, which may read everything."""
    with pytest.raises(AssertionError, match="in a on go: it reads a variable that the rows do not name"):
        generated(("v0 < 2", f"(v0 < 2 or {look} and False)"))


@pytest.mark.parametrize("other", ["0", "9", "v0", "u0", "None"])
def test_step_must_not_change_other_variables(generated, other):
    with pytest.raises(AssertionError, match="in a on go: y gets another value"):
        generated(("(u0, v1,)", f"(u0, {other},)"))


def test_step_must_treat_all_other_effects_alike(generated):
    with pytest.raises(AssertionError, match="in a on go: one takes a row, the other does not"):
        generated(("v0 < 2", "v0 < 2 and ':other' not in c.outstanding"))


def test_sealed_value_can_only_be_passed_on():
    one = SealedValue()
    assert (one,)[0] is one
    with pytest.raises(UndecidedError):
        _ = one == 1
