"""Proofs for all parameter values: the shipped machines, mutants of them, and machines that are wrong in one way each."""

import itertools
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from dsa.checks.evidence import Explored, Fair, Inductive, Ranked
from dsa.checks.mutants import mutants
from dsa.checks.proof.searched import judged
from dsa.checks.prove import Proof, ProofReport, prove
from dsa.edge.files import load
from dsa.expr import Value
from dsa.lang import loads, read_spec
from dsa.machine import Machine
from dsa.system import closed_system

ROOT = Path(__file__).parents[3]
HEAD = """# m

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| n         | 0..    | 5       |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| x        | 0..n   | 0       |
| y        | 0..n   | 0       |

"""
LOOP = """# m

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| again | ask     |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| busy  |         |

## Transitions
| source | event | effects | target |
| ------ | ----- | ------- | ------ |
| idle   | go    | ask     | busy   |
| busy   | again | ask     | =      |
"""
ANSWERED = """# m

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| n         | 1..    | 2       |

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| x        | 0..n   | 0       |

## Events
| event  | from    |
| ------ | ------- |
| ask    | outside |
| ping   | outside |
| person | outside |
| answer | think   |

"""
ASKING = """
idle    | ask    |       | x = 0  | think | busy
busy    | ping   |       |        |       | =
busy    | answer | x < n | x += 1 | think | =
busy    | answer | else  |        |       | waiting
waiting | ping   |       |        |       | =
waiting | person |       |        |       | done
done    | ask    |       |        |       | =
"""


def machine(head: str, rows: str, *claims: str) -> Machine:
    """Give a machine of rows `source | event | if | update | effects | target`, with properties."""
    table = "".join(f"| {row.strip()} |\n" for row in rows.strip().split("\n"))
    columns = "| source | event | if | update | effects | target |\n| - | - | - | - | - | - |\n"
    listed = "".join(f"- {claim}\n" for claim in claims)
    return loads(f"{head}## Transitions\n{columns}{table}\n## Properties\n{listed}")


def one(head: str, rows: str, claim: str) -> Proof:
    """Prove one property of a machine."""
    (proof,) = prove(machine(head, rows, claim)).properties
    return proof


def obligation(report: ProofReport, name: str) -> Proof:
    return next(proof for proof in report.obligations if proof.name == name)


# -- the shipped machines -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dual_state() -> ProofReport:
    return prove(load("specs/dual_state"), clock=time.perf_counter)


@pytest.fixture(scope="module")
def workflow() -> ProofReport:
    return prove(load("specs/workflow"))


def test_everything_about_dual_state_is_proved_without_exploring(dual_state: ProofReport) -> None:
    proofs = (*dual_state.obligations, *dual_state.properties)
    assert [(proof.text, proof.how) for proof in proofs if proof.verdict != "PROVED"] == []
    assert dual_state.proved
    assert all(isinstance(proof.evidence, Inductive | Ranked) for proof in proofs)
    assert all(proof.milliseconds is not None for proof in proofs)


def test_everything_about_the_workflow_is_proved(workflow: ProofReport) -> None:
    assert [(proof.text, proof.how) for proof in workflow.properties if proof.verdict != "PROVED"] == []
    assert workflow.proved


def explored_at(report: ProofReport, values: list[dict[str, Value]]) -> None:
    for given in values:
        system = closed_system(report.machine.at(given))
        for proof in report.properties:
            assert proof.form is not None
            assert judged(system, proof.form, 100_000).verdict == "HOLDS", (proof.text, given)


def test_what_is_proved_of_dual_state_holds_at_rmax_0_to_5(dual_state: ProofReport) -> None:
    explored_at(dual_state, [{"rmax": rmax} for rmax in range(6)])


def test_what_is_proved_of_the_workflow_holds_at_some_values(workflow: ProofReport) -> None:
    explored_at(workflow, [{"rmax": 0, "grants": 2}, {"rmax.g_test": 2, "rmax.g_impl": 1, "grants": 1}])


@pytest.mark.full
def test_what_is_proved_of_the_workflow_holds_at_rmax_0_to_5(workflow: ProofReport) -> None:
    for rmax in range(6):
        values = [{"rmax.g_test": rmax, "rmax.g_impl": impl, "grants": 1 + impl % 2} for impl in range(6)]
        explored_at(workflow, [{**given} for given in values])


def lost(machines: Iterable[Machine], texts: set[str]) -> set[str]:
    """Give the properties that stay PROVED, or open only because the table itself is wrong, in every machine."""
    for mutant in machines:
        texts = texts - {p.text for p in prove(mutant).properties if p.verdict in {"VIOLATED", "NOT INDUCTIVE"}}
        if not texts:
            break
    return texts


def rewritten(*changes: tuple[str, str]) -> Machine:
    """Give dual_state, as its spec checks it, with changes to its text."""
    text = (ROOT / "machines" / "dual_state" / "machine.md").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    reading = read_spec((ROOT / "specs" / "dual_state.md").read_text(encoding="utf-8"), loads(text), "dual_state.md")
    assert reading.machine is not None
    return reading.machine


#: Faults that take a whole new update, effect or domain.
BY_HAND = (
    (("| refine_context, reply_failure | failed     |", "| refine_context, reply_failure | escalated  |"),),
    (("| refine_context, query_llm     | generating |", "| advance_state, refine_context, query_llm | generating |"),),
    (("0..rmax | 0 ", "0..rmax + 1 | 0 "), ("retries < rmax", "retries <= rmax")),
    (
        (
            "| validating | verdict       | g.fatal                     |  ",
            "| validating | verdict | g.fatal | retries = 0 ",
        ),
    ),
    (("| query_llm                     | generating |\n| generating", "| execute_guard | validating |\n| generating"),),
    (
        (
            "| generating | artifact      |                             |                   ",
            "| generating | artifact | retries < rmax | retries += 1 | query_llm | generating |\n| generating | artifact | else | ",
        ),
    ),
)


def test_every_property_of_dual_state_is_lost_in_a_mutant() -> None:
    original = load("specs/dual_state")
    every = [*(rewritten(*changes) for changes in BY_HAND), *(m.machine for m in list(mutants(original))[1::5])]
    assert lost(every, {proof.text for proof in prove(original).properties}) == set()


@pytest.mark.full
def test_every_property_of_the_workflow_is_no_longer_proved_in_a_mutant() -> None:
    original = load("specs/workflow")
    texts = {proof.text for proof in prove(original).properties}
    for mutant in list(mutants(original))[::23]:
        texts -= {proof.text for proof in prove(mutant.machine).properties if proof.verdict != "PROVED"}
    assert texts == set()


# -- what a table owes --------------------------------------------------------------------------------------------------


def with_rows(rows: str) -> ProofReport:
    columns = "| source | event | if | update | effects | target |\n| - | - | - | - | - | - |\n"
    return prove(loads(f"{DUAL_STATE}## Transitions\n{columns}{rows}\n"))


DUAL_STATE = """# d

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| rmax      | 0..    | 3       |

## Variables
| variable  | scope       | domain  | initial |
| --------- | ----------- | ------- | ------- |
| satisfied | workflow    | bool    | false   |
| retries   | environment | 0..rmax | 0       |

## Events
| event         | from          |
| ------------- | ------------- |
| specification | outside       |
| artifact      | query_llm     |
| verdict       | execute_guard |

## Guards
| guard | judges  |
| ----- | ------- |
| g     | verdict |

## States
| state      | kind    |
| ---------- | ------- |
| idle       | initial |
| generating |         |
| validating |         |
| succeeded  | final   |
| failed     | final   |

"""
ROWS = """| idle       | specification |                             |                  | query_llm     | generating |
| generating | artifact      |                             |                  | execute_guard | validating |
| validating | verdict       | g.passed                    | satisfied = true |               | succeeded  |
| validating | verdict       | g.failed and retries < rmax | retries += 1     | query_llm     | generating |
| validating | verdict       | else                        |                  |               | failed     |"""


@pytest.mark.parametrize(
    ("old", "new", "name", "told"),
    [
        ("retries < rmax", "retries <= rmax", "domains", "verdict g.failed is refused in validating (out_of_domain)"),
        ("else       ", "g.failed and retries >= rmax", "completeness", "verdict g.fatal is refused in validating"),
        ("else       ", "g.failed or g.fatal", "determinism", "verdict g.failed is refused in validating (ambiguous)"),
        ("| query_llm     | generating |\n| generating", "| query_llm, execute_guard | generating |\n| generating",
         "emission", "artifact is refused in generating (emitted_twice)"),
        ("|                  |               | failed ", "| satisfied = true |               | failed ",
         "definition4", "the row can be taken on g.failed"),
    ],
)  # fmt: skip
def test_a_fault_of_the_table_is_violated_with_a_trace(old: str, new: str, name: str, told: str) -> None:
    assert old in ROWS
    report = with_rows(ROWS.replace(old, new))
    broken = [proof.name for proof in report.obligations if proof.verdict != "PROVED"]
    proof = obligation(report, name)
    assert name in broken
    assert proof.verdict == "VIOLATED"
    assert told in proof.how
    assert not report.proved
    assert proof.trace is not None or name == "definition4"


def test_the_trace_of_a_fault_is_shortest_and_at_the_smallest_values() -> None:
    proof = obligation(with_rows(ROWS.replace("retries < rmax", "retries <= rmax")), "domains")
    assert proof.values == (("rmax", 0),)
    assert proof.trace is not None
    assert [step.occurrence.event for step in proof.trace.steps] == ["specification", "artifact"]


def test_no_property_is_proved_while_an_obligation_is_open() -> None:
    proof = one(HEAD, "here | go | x <= n | x += 1 | | =", "always x >= 0")
    assert proof.verdict == "UNKNOWN"
    assert proof.how == "not before this is proved: every update stays in its domain"


def test_the_table_of_these_faults_is_proved_without_them() -> None:
    assert with_rows(ROWS).proved


def test_a_start_outside_its_domain_is_violated_where_it_is() -> None:
    with_start = machine(HEAD.replace("| 0..n   | 0       |\n\n", "| 0..7   | n       |\n\n"), "here | go | | | | =")
    proof = obligation(prove(with_start), "start")
    assert (proof.verdict, proof.values) == ("VIOLATED", (("n", 8),))
    assert proof.how == "starts with x = 0, y = 8"


def test_a_deadlock_is_violated() -> None:
    report = prove(machine(HEAD, "here | go | x < n | x += 1 | | ="))
    proof = obligation(report, "deadlock")
    assert (proof.verdict, proof.how, proof.values) == ("VIOLATED", "nothing can happen in here", (("n", 0),))


# -- properties ---------------------------------------------------------------------------------------------------------

PARITY = """
here | go   | x + 2 <= n | x += 2; y += 2 | | =
here | go   | else       |                | | =
here | back | x >= 2     | x -= 2; y -= 2 | | =
here | back | else       |                | | =
"""


def test_a_start_that_no_run_reaches_is_not_shown_as_a_bug() -> None:
    proof = one(HEAD, PARITY, "never x == 3")
    assert proof.verdict == "NOT INDUCTIVE"
    assert proof.trace is None
    assert proof.evidence is None
    assert "x = 1" in proof.how
    assert "at n = 3" in proof.how
    assert "x is 0 or 2" in proof.how


def test_a_violation_far_from_small_values_is_found_by_the_failing_step() -> None:
    proof = one(HEAD, PARITY, "never x == 8")
    assert proof.verdict == "VIOLATED"
    assert proof.values == (("n", 8),)
    assert proof.trace is not None
    assert len(proof.trace.steps) == 4


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("always x == y", "PROVED"),
        ("never x == 5 and y == 3", "PROVED"),
        ("x >= 2 only after go", "PROVED"),
        ("at most 1 go between back and go", "PROVED"),
        ("possible back and x == 0", "PROVED"),
        ("possible x == 2", "VIOLATED"),
        ("go leads to x == n", "VIOLATED"),
        ("at most n go", "VIOLATED"),
        ("on back: x unchanged", "VIOLATED"),
        ("x == 7 with probability >= 0.5", "UNKNOWN"),
        ("expected go <= 3", "UNKNOWN"),
    ],
)
def test_verdicts(claim: str, verdict: str) -> None:
    proof = one(HEAD, PARITY, claim)
    assert proof.verdict == verdict
    assert (proof.evidence is not None) == (verdict == "PROVED")


def test_odds_are_said_not_to_be_proved_for_all_values() -> None:
    proof = one(HEAD, PARITY, "x == 7 with probability >= 0.5")
    assert (proof.is_asked, proof.how) == (False, "not for prove: odds hold at given values; dsa check judges them")


def test_odds_are_no_part_of_what_has_to_be_proved() -> None:
    report = prove(
        loads(LOOP + "\n## Properties\n- busy with probability >= 0.5\n- expected ask <= 2\n- never busy and idle\n")
    )
    assert [proof.verdict for proof in report.properties] == ["UNKNOWN", "UNKNOWN", "PROVED"]
    assert report.properties[1].text == "expected ask <= 2"
    assert report.proved


@pytest.mark.parametrize(
    ("claim", "verdict", "awaited"),
    [
        ("ask and busy leads to waiting", "PROVED", {"think"}),
        ("ask leads to waiting", "VIOLATED", set()),
        ("waiting leads to done", "VIOLATED", set()),
        ("waiting leads to done assuming fair person", "PROVED", {Fair("person")}),
        ("waiting leads to done assuming fair ping", "VIOLATED", set()),
        ("ask and busy leads to done assuming fair person", "PROVED", {"think", Fair("person")}),
    ],
)
def test_leads_to_rests_on_ranks_promises_and_fairness(claim: str, verdict: str, awaited: set[object]) -> None:
    proof = one(ANSWERED, ASKING, claim)
    assert proof.verdict == verdict
    if verdict == "PROVED":
        assert isinstance(proof.evidence, Ranked)
        assert {item for item in proof.evidence.awaited if item is not None} == awaited
    else:
        assert proof.loop is not None


def test_a_loop_that_no_promise_ends_is_violated() -> None:
    rows = ASKING.replace(
        "busy    | answer | x < n | x += 1 | think | =", "busy    | answer | x < n |        | think | ="
    )
    proof = one(ANSWERED, rows, "ask and busy leads to waiting")
    assert proof.verdict == "VIOLATED"
    assert proof.trace is not None
    assert proof.loop is not None
    assert proof.loop < len(proof.trace.steps)


def test_a_bound_with_a_product_is_proved_by_a_potential() -> None:
    head = HEAD.replace(
        "| n         | 0..    | 5       |", "| n         | 0..    | 5       |\n| k         | 0..    | 2       |"
    )
    rows = """
    here | go    | x < n             | x += 1        | note | =
    here | go    | else              |               |      | =
    here | again | y < k and y < n   | x = 0; y += 1 |      | =
    here | again | else              |               |      | =
    """
    assert one(head, rows, "at most (k + 1) * n note").verdict == "PROVED"
    assert one(head, rows, "at most k * n note").verdict == "VIOLATED"


def test_what_no_template_says_is_found_by_spacer() -> None:
    rows = """
    here | one  | x < n               | x += 1         | | =
    here | many | x + 2 < n and y < n | x += 3; y += 1 | | =
    here | rest |                     |                | | =
    """
    proof = one(HEAD, rows, "never x == 2 and y == 1")
    assert (proof.verdict, type(proof.evidence)) == ("PROVED", Inductive)


def test_few_values_are_explored_to_the_end() -> None:
    head = HEAD.replace("| n         | 0..    | 5       |", "| n         | 3..4   | 3       |")
    proof = one(head, PARITY, "never x == 3")
    assert proof.verdict == "PROVED"
    assert isinstance(proof.evidence, Explored)
    assert proof.evidence.valuations == ((("n", 3),), (("n", 4),))


def test_a_time_limit_leaves_unknown() -> None:
    ticks = iter(range(100_000))
    report = prove(machine(HEAD, PARITY, "never x == 3"), time_limit_s=1, clock=lambda: float(next(ticks)))
    assert [proof.verdict for proof in report.properties] == ["UNKNOWN"]


def test_a_time_limit_needs_a_clock() -> None:
    with pytest.raises(ValueError, match="needs a clock"):
        prove(load("dual_state"), time_limit_s=1)


def test_retry_loops_come_to_rest(dual_state: ProofReport) -> None:
    assert dual_state.rest is not None
    assert dual_state.rest.how == "rank (rmax - retries)"
    assert dual_state.not_at_rest is None


def test_an_endless_loop_is_told_and_owed_by_no_machine() -> None:
    report = prove(loads(LOOP))
    assert (report.rest, report.proved) == (None, True)
    assert report.not_at_rest is not None
    assert report.not_at_rest.how.startswith("not shown: no rank was found; a loop may go on for ever")


@pytest.mark.parametrize(
    ("ticks", "said"), [(0, "not tried: the time limit was used up before its turn"), (100_000, "")]
)
def test_what_the_time_limit_left_undone_says_so(ticks: int, said: str) -> None:
    """A clock that goes on by a second whenever it is read."""
    clock = itertools.count().__next__
    report = prove(loads(LOOP + "\n## Properties\n- never busy and idle\n"), time_limit_s=ticks, clock=clock)
    (proof,) = report.properties
    assert (proof.verdict, proof.how if said else "") == ("UNKNOWN" if said else "PROVED", said)
    assert report.proved is not bool(said)


def test_what_a_property_speaks_of_and_never_happens_is_told() -> None:
    proof = one(HEAD, PARITY, "on back and x > n: x unchanged")
    assert (proof.verdict, proof.idle) == ("PROVED", "back and x > n")


def test_unhandled_failures_are_assumptions(dual_state: ProofReport) -> None:
    assert any("query_llm.failed" in assumption for assumption in dual_state.assumptions)


STARTS_OUTSIDE = """# outside
## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| p         | 0..    | 0       |
## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| x        | p..2   | {} |
| y        | 0..1   | 0       |
## Transitions
| source | event | if     | update | target |
| ------ | ----- | ------ | ------ | ------ |
| a      | go    | x >= p |        | b      |
| b      | go    | x < p  | y = 1  | a      |
| b      | go    | else   | x = 2  | a      |
## Properties
- possible b
- always x >= p
- always x <= 2
"""


@pytest.mark.parametrize("initial", ["0", "p"])
def test_values_at_which_there_is_no_start_are_no_runs(initial):
    """At p = 1 (initial 0), or at p = 3 (initial p), a variable starts outside its domain: that is the one violation."""
    report = prove(loads(STARTS_OUTSIDE.format(initial)))
    assert [p.verdict for p in report.obligations if p.verdict != "PROVED"] == ["VIOLATED"]
    assert {p.verdict for p in report.properties} == {"UNKNOWN"}
