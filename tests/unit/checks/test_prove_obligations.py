"""Obligations of a table, which come before its properties: each fault is VIOLATED, with a trace."""

import pytest
from proving import HEAD, machine, one

from dsa.checks.proof.prover import Proof, ProofReport, prove
from dsa.lang import loads


def obligation(report: ProofReport, name: str) -> Proof:
    return next(proof for proof in report.obligations if proof.name == name)


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
         "definition4", "the row can also be taken when the verdict is g.failed"),
    ],
)  # fmt: skip
def test_fault_of_the_table_is_violated_with_a_trace(old: str, new: str, name: str, told: str) -> None:
    assert old in ROWS
    report = with_rows(ROWS.replace(old, new))
    broken = [proof.name for proof in report.obligations if proof.verdict != "PROVED"]
    proof = obligation(report, name)
    assert name in broken
    assert proof.verdict == "VIOLATED"
    assert told in proof.how
    assert not report.is_proved
    assert proof.trace is not None or name == "definition4"


def test_trace_of_a_fault_is_shortest_and_at_the_smallest_values() -> None:
    proof = obligation(with_rows(ROWS.replace("retries < rmax", "retries <= rmax")), "domains")
    assert proof.values == (("rmax", 0),)
    assert proof.trace is not None
    assert [step.occurrence.event for step in proof.trace.steps] == ["specification", "artifact"]


def test_no_property_is_proved_while_an_obligation_is_open() -> None:
    proof = one(HEAD, "here | go | x <= n | x += 1 | | =", "always x >= 0")
    assert proof.verdict == "UNKNOWN"
    assert proof.how == "this obligation must be proved first: every update stays in its domain"


def test_same_table_without_the_faults_is_proved() -> None:
    assert with_rows(ROWS).is_proved


def test_start_outside_its_domain_is_violated_at_those_values() -> None:
    with_start = machine(HEAD.replace("| 0..n   | 0       |\n\n", "| 0..7   | n       |\n\n"), "here | go | | | | =")
    proof = obligation(prove(with_start), "start")
    assert (proof.verdict, proof.values) == ("VIOLATED", (("n", 8),))
    assert proof.how == "starts with x = 0, y = 8"


def test_deadlock_is_violated() -> None:
    report = prove(machine(HEAD, "here | go | x < n | x += 1 | | ="))
    proof = obligation(report, "deadlock")
    assert (proof.verdict, proof.how, proof.values) == ("VIOLATED", "nothing can happen in here", (("n", 0),))
