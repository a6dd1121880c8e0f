"""`end when P`: a leaf that is not final, and in which a run may be finished."""

import asyncio
import json
from functools import partial

import pytest

import dsa
from dsa.checks.certificate_proofs import require_same_steps
from dsa.checks.certificate_writer import Certifier, behaviour, certify_proofs, certify_verdicts
from dsa.checks.equivalence import Moves, Pair, compare
from dsa.checks.odds.run_odds import odds
from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.checks.search.engine import SearchLimits
from dsa.errors import MachineError
from dsa.kernel import NO_DEADLOCK, verify
from dsa.lang import digest, dumps, loads
from dsa.runtime.policy.policies import event_step
from dsa.semantics import Configuration, Occurrence, Refusal, is_over, start, step

TABLE = """# tasks
## Parameters
| parameter | domain | default |
| - | - | - |
| n | 1.. | 3 |
## Variables
| variable | domain | initial |
| - | - | - |
| done | 0..n | 0 |
## Events
| event | from |
| - | - |
| next | outside |
| worked | work |
## States
| state | kind |
| - | - |
| ready | initial, end when done == n |
| busy | |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| ready | next | done < n | | work | busy |
| busy | worked | | done += 1 | | ready |
"""
MACHINE = loads(TABLE)


def codes(text):
    return [diagnostic.code for diagnostic in check(loads(text)).diagnostics]


def test_document_with_an_end_survives_a_round_trip():
    assert "initial, end when done == n" in dumps(MACHINE)
    assert loads(dumps(MACHINE)) == MACHINE
    assert digest(MACHINE) != digest(loads(TABLE.replace("done == n |", "done >= n |")))


def test_end_causes_neither_a_deadlock_nor_a_refusal_diagnostic():
    assert codes(TABLE) == []
    assert codes(TABLE.replace(", end when done == n", "")) == ["DSA308", "DSA309"]
    assert codes(TABLE.replace("done == n |", "done == n + 1 |")) == ["DSA308", "DSA309"]


@pytest.mark.parametrize(
    ("values", "outstanding", "over"),
    [((3,), (), True), ((2,), (), False), ((3,), ("work",), False)],
    ids=["at the end", "before", "something is outstanding"],
)
def test_run_is_over_if_its_end_condition_holds_and_nothing_is_outstanding(values, outstanding, over):
    assert is_over(MACHINE, Configuration("ready", values, frozenset(outstanding))) is over


@pytest.mark.parametrize("row", ["| ready | more | | | | ready |", "| ready | after 1h | | | | busy |"])
def test_run_is_not_over_where_something_can_happen(row):
    machine = loads(TABLE.replace("| next | outside |", "| next | outside |\n| more | outside |") + row)
    assert not is_over(machine, Configuration("ready", (3,), frozenset()))


def test_step_ignores_ends():
    refused = step(MACHINE, Configuration("ready", (3,), frozenset()), Occurrence("next"))
    assert isinstance(refused, Refusal)
    assert refused.reason == "invalid_state"
    assert not is_over(MACHINE, start(MACHINE))


def test_finished_run_has_its_leaf_state_as_outcome():
    async def work(action, _context):
        return [event_step(action.policy, "worked")]

    async def play():
        async with dsa.open_runs("memory:") as runs:
            handle = await runs.start(MACHINE, bindings=dsa.Bindings({"work": work}))
            kinds = [(await handle.rest()).kind]
            for _ in range(3):
                await runs.send(handle.id, "next")
                kinds.append((await handle.rest()).kind)
            return kinds, (await handle.rest()).outcome

    assert asyncio.run(play()) == (["waiting", "waiting", "waiting", "finished"], "ready")


@pytest.mark.parametrize("checked", [False, True])
def test_no_deadlock_is_certified_only_with_the_right_ends(checked):
    """The kernel reads `end when` itself."""
    about = behaviour(MACHINE)
    certifier = Certifier(about, dumps(about))
    (certify_verdicts if checked else certify_proofs)(certifier, (check if checked else prove)(MACHINE))
    text = json.dumps(certifier.draft().certificate)
    said = list(verify(text, partial(require_same_steps, MACHINE)))
    assert any(line.startswith(NO_DEADLOCK) for line in said)
    for otherwise in ("", ", end when done == n - 1", ", end when not (done == n)"):
        with pytest.raises(AssertionError):
            list(verify(text.replace(", end when done == n", otherwise), partial(require_same_steps, MACHINE)))


def test_run_that_is_over_in_only_one_table_is_a_difference():
    other = loads(TABLE.replace(", end when done == n", ""))
    pair = Pair(MACHINE, other)
    found = compare(pair, pair.start, SearchLimits(100))
    assert found.verdict == "DIFFERENT"
    assert (found.divergence.old.ends, found.divergence.new.ends) == (True, False)


def test_inputs_of_a_leaf_do_not_depend_on_an_earlier_end():
    moves = Moves(MACHINE)
    moves.inputs(Configuration("ready", (3,), frozenset()))
    assert moves.inputs(start(MACHINE))


def test_odds_count_an_end_as_an_outcome():
    found = odds(MACHINE, success="ready", events={"next": 1.0, "worked": 1.0})
    assert (found.success.low, found.success.high) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("initial, end when work.failed", "work.failed"),
        ("initial, end when done", "expected a condition"),
        ("initial, end done == n", "expected 'when'"),
        ("initial end when done == n", "expected ','"),
        ("final, end when done == n", "expected 'end'"),
        ("finall", "this cell cannot contain 'finall'"),
    ],
)
def test_invalid_end_is_reported(cell, said):
    with pytest.raises(MachineError) as told:
        loads(TABLE.replace("initial, end when done == n", cell))
    assert any(said in diagnostic.message for diagnostic in told.value.diagnostics), told.value.diagnostics


def test_parent_state_cannot_be_an_end():
    text = TABLE.replace("| busy | |", "| busy | end when done == 1 |\n| busy.inner | initial |")
    with pytest.raises(MachineError, match="state 'busy' is an end, but has child states"):
        loads(text)


def test_end_needs_no_row_and_is_a_deadlock_if_its_condition_is_false():
    text = "# over\n## States\n| state | kind |\n| - | - |\n| a | initial |\n| d | end when {} |\n## Transitions\n| source | event | target |\n| - | - | - |\n| a | go | d |\n"
    said = [tuple(found.code for found in check(loads(text.format(end))).diagnostics) for end in ("true", "false")]
    assert said == [(), ("DSA308",)]
