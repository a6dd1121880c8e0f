"""Ranks: every step that counts makes them smaller, which a second evaluation confirms."""

import pytest

from dsa.checks.proof.induction import RankEvidence
from dsa.checks.proof.liveness import comes_to_rest, from_outside
from dsa.checks.proof.proof_session import ProofSession
from dsa.edge.document_files import load
from dsa.expr import evaluate, unparse
from dsa.lang import loads

NESTED = """# nested

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| n         | 0..    | 2       |
| rmax      | 0..    | 2       |

## Variables
| variable | domain  | initial |
| -------- | ------- | ------- |
| done     | 0..n    | 0       |
| retries  | 0..rmax | 0       |
| warm     | bool    | false   |

## Events
| event | from    |
| ----- | ------- |
| start | outside |
| ready | make    |

## Transitions
| source | event | if                                   | update                 | effects | target |
| ------ | ----- | ------------------------------------ | ---------------------- | ------- | ------ |
| idle   | start |                                      |                        | make    | busy   |
| busy   | ready | not warm                             | warm = true            | make    | =      |
| busy   | ready | warm and retries < rmax              | retries += 1           | make    | =      |
| busy   | ready | warm and retries == rmax and done < n | retries = 0; done += 1 | make    | =      |
| busy   | ready | else                                 |                        |         | over   |
"""


def assert_falls(session: ProofSession, evidence: RankEvidence) -> None:
    """Check by examples, without z3, that a rank falls with every step that is not an event from outside."""

    def rank(sample: object, place: int) -> tuple[int, ...]:
        location, values = sample.configurations[place]  # type: ignore[attr-defined]  # a Sample
        there = session.sampler.environment(sample, (location, values))  # type: ignore[arg-type]  # a Sample
        return tuple(int(evaluate(part, there)) for part in evidence.ranks[location])

    checked = 0
    for sample in session.own_samples:
        for source, command, target in sample.edges:
            if not from_outside(session.system, session.system.commands[command].occurrence):
                assert rank(sample, target) < rank(sample, source)
                assert min(rank(sample, source)) >= 0
                checked += 1
    assert checked


@pytest.mark.parametrize(
    "machine", [load("dual_state"), load("workflow"), loads(NESTED)], ids=lambda machine: machine.name
)
def test_rank_of_a_retry_loop_falls(machine) -> None:
    session = ProofSession(machine, lambda: False)
    evidence = comes_to_rest(session)
    assert evidence is not None
    assert_falls(session, evidence)


def test_nested_loops_are_ranked_lexicographically() -> None:
    session = ProofSession(loads(NESTED), lambda: False)
    evidence = comes_to_rest(session)
    assert evidence is not None
    busy = next(place for place, location in enumerate(session.system.locations) if location.state == "busy")
    assert [unparse(part) for part in evidence.ranks[busy]] == ["1", "n - done", "rmax - retries", "not warm"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("retries += 1 ", "             "),
        ("retries = 0; done += 1", "retries = 0           "),
        ("| warm = true ", "| done = 0; warm = false "),
        # It goes up and down again, neither of them for ever, so no number falls all the way round.
        (
            "| busy   | ready | else  ",
            "| busy   | ready | warm and retries == rmax and done == n and n > 0 | done -= 1 | make | = |\n| busy | ready | else  ",
        ),
    ],
)
def test_endless_loop_has_no_rank(old: str, new: str) -> None:
    assert old in NESTED
    assert comes_to_rest(ProofSession(loads(NESTED.replace(old, new)), lambda: False)) is None
