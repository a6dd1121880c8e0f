"""The hash of what the generated step does: of all that it takes, and of nothing that it must not look at."""

import pytest
from example_machines import dual_state

import dsa.checks.certify_steps
from dsa.checks.certify_proofs import NoProofError
from dsa.checks.certify_steps import Sealed, steps_digest
from dsa.fast import compile_groups
from dsa.lang import loads
from dsa.meaning import Taken

MACHINE = loads("""# far

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
""")


def replaced(monkeypatch, change):
    """Put a changed function in the place of the generated one for `go`."""

    def compiled(machine):
        groups = compile_groups(machine)
        own = groups["a", "go"]
        return groups | {("a", "go"): lambda here, occurrence: change(here, own(here, occurrence))}

    monkeypatch.setattr(dsa.checks.certify_steps, "compile_groups", compiled)


def test_it_is_the_same_each_time():
    assert steps_digest(MACHINE, 1_000) == steps_digest(MACHINE, 1_000)
    assert steps_digest(dual_state(rmax=3), 1_000) != steps_digest(dual_state(rmax=2), 1_000)


def test_a_variable_that_no_row_names_is_not_gone_through():
    """x has 4 values, y 10; `work` and all other effects are pending or not. In b, `go` has no rows; y alone counts for `done`."""
    with pytest.raises(NoProofError, match=r"there are 70 cases of state, event, verdicts and values, more than 69"):
        steps_digest(MACHINE, 69)
    steps_digest(MACHINE, 70)


@pytest.mark.parametrize(
    "looks", [lambda y: y == 1, lambda y: y < 1, bool, hash, lambda y: y + 1, lambda y: -y, lambda y: [1][y]]
)
def test_it_must_not_look_at_other_variables(monkeypatch, looks):
    replaced(monkeypatch, lambda here, result: (looks(here.values[1]), result)[1])
    with pytest.raises(NoProofError, match="looks at a variable"):
        steps_digest(MACHINE, 1_000)


@pytest.mark.parametrize(
    "change",
    [
        lambda here, result: "late" if here.values[0] == 1 else result,
        lambda here, result: "invalid_state" if isinstance(result, Taken) and ":other" in here.outstanding else result,
        lambda here, result: result if isinstance(result, Taken) else "ambiguous",
    ],
)
def test_it_must_do_what_step_does(monkeypatch, change):
    replaced(monkeypatch, change)
    with pytest.raises(NoProofError, match="is not `step` in a on go"):
        steps_digest(MACHINE, 1_000)


def test_it_must_leave_other_variables_as_they_are(monkeypatch):
    def swapped(_, result):
        if not isinstance(result, Taken):
            return result
        after = result.configuration
        return type(result)(
            type(after)(after.state, (after.values[0], 0), after.outstanding),
            result.transition,
            result.effects,
            result.cancelled,
        )

    replaced(monkeypatch, swapped)
    with pytest.raises(NoProofError, match="is not `step` in a on go"):
        steps_digest(MACHINE, 1_000)


def test_a_sealed_value_can_only_be_handed_on():
    one = Sealed()
    assert (one,)[0] is one
