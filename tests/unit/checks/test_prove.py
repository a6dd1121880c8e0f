"""Properties for all parameter values: the verdict of each, its evidence, and the limits of a proof."""

import itertools

import pytest
from each_row import each_row
from proving import HEAD, machine, one

from dsa.checks.proof import safety
from dsa.checks.proof.conclusion import InductionGap, explain_gap
from dsa.checks.proof.induction import ExhaustiveEvidence, Fair, Inductive, RankEvidence
from dsa.checks.proof.proof_session import Sample
from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.edge.document_files import load
from dsa.expr import Compare, Name, Symbol, walk
from dsa.lang import loads
from dsa.system import closed_system


@pytest.fixture
def little_effort(monkeypatch):
    """Let Spacer give up early, for claims that it cannot prove with any effort."""
    monkeypatch.setattr(safety, "SPACER_EFFORT", 500_000)


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
PARITY = """
here | go   | x + 2 <= n | x += 2; y += 2 | | =
here | go   | else       |                | | =
here | back | x >= 2     | x -= 2; y -= 2 | | =
here | back | else       |                | | =
"""


@pytest.mark.usefixtures("little_effort")
def test_start_that_no_run_reaches_is_not_shown_as_a_bug() -> None:
    proof = one(HEAD, PARITY, "never x == 3")
    assert proof.verdict == "NOT INDUCTIVE"
    assert proof.trace is None
    assert proof.evidence is None
    assert proof.how == "not shown, and not refuted: the row on line 17 (go) breaks the claim from here, x = 1, y = 1"
    assert proof.gap is not None
    assert (
        proof.gap.why
        == "that configuration satisfies the claim, but no run reaches it at n = 3: in here, x is 0 or 2, y is 0 or 2"
    )
    assert proof.gap.hint.endswith("it should imply: never here and x == 1 and y == 1 and n == 3")


@pytest.mark.usefixtures("little_effort")
@pytest.mark.parametrize(
    "claim",
    [
        "never x == 3",
        pytest.param("never x == 5", marks=pytest.mark.full),
        "always x != 1 or y != 1",
        "on go: x == 3 unchanged",
    ],
)
def test_hint_suggests_a_property_that_is_true(claim: str) -> None:
    proof = one(HEAD, PARITY, claim)
    assert proof.gap is not None
    suggested = proof.gap.hint.rpartition("imply: ")[2]
    for n in range(8):
        (judged,) = check(machine(HEAD, PARITY, suggested).at(n=n)).properties
        assert judged.verdict == "HOLDS"


@pytest.mark.usefixtures("little_effort")
def test_hint_is_true_even_if_the_state_is_reached_only_at_other_values() -> None:
    """At n = 3 no run reaches b; at n = 4 one does."""
    rows = """
a | go   | x + 4 <= n | x += 4 | | b
a | go   | else       |        | | =
b | more | x + 2 <= n | x += 2 | | =
b | more | else       |        | | =
b | less | x >= 2     | x -= 2 | | =
b | less | else       |        | | a
"""
    gap = one(HEAD, rows, "never x == 3").gap
    assert gap is not None
    suggested = gap.hint.rpartition("imply: ")[2]
    for n in range(8):
        (judged,) = check(machine(HEAD, rows, suggested).at(n=n)).properties
        assert judged.verdict == "HOLDS"


@pytest.mark.usefixtures("little_effort")
def test_hint_does_not_name_the_hidden_memory_of_a_property() -> None:
    """Only the open scope is unreachable here, and a property cannot name it."""
    gap = one(HEAD, PARITY, "at most 0 go between x == 1 and back").gap
    assert gap is not None
    assert dict(gap.values) == {"x": 0, "y": 0, "scope open": True, "count": 0}
    assert "add a variable that remembers the past events in the claim" in gap.hint
    assert "never" not in gap.hint


def test_unreached_location_is_named_by_its_outstanding_effects() -> None:
    head = HEAD.replace(
        "## Variables", "## Events\n| event | from |\n| - | - |\n| go | outside |\n| seen | look |\n\n## Variables"
    )
    rows = PARITY.replace("here | back |", "here | seen |").replace("y += 2 | | =", "y += 2 | look | =")
    system = closed_system(machine(head, rows))
    place = next(n for n, here in enumerate(system.locations) if here.outstanding)
    command = next(command for command in system.commands if command.source == place)
    sample = Sample((3,), ((0, (0, 0)),), (), (None,), complete=True)
    gap = explain_gap(system, InductionGap(place, {"x": 1, "y": 0}, command), sample, ["x", "y"])
    assert gap.outstanding == ("look",)
    assert gap.reach_text == "here with look outstanding is never reached"
    assert gap.hint.endswith("never here and pending look and n == 3")


def test_violation_far_from_small_values_is_found_by_the_failing_step() -> None:
    proof = one(HEAD, PARITY, "never x == 8")
    assert proof.verdict == "VIOLATED"
    assert proof.values == (("n", 8),)
    assert proof.trace is not None
    assert len(proof.trace.steps) == 4


@each_row(
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
def test_claims_have_the_known_verdicts(claim: str, verdict: str) -> None:
    proof = one(HEAD, PARITY, claim)
    assert proof.verdict == verdict
    assert (proof.evidence is not None) == (verdict == "PROVED")


def test_odds_are_reported_as_not_for_prove() -> None:
    proof = one(HEAD, PARITY, "x == 7 with probability >= 0.5")
    assert (proof.is_asked, proof.how) == (False, "odds hold at given values only: dsa check judges them")


def test_odds_do_not_keep_a_machine_from_being_proved() -> None:
    report = prove(
        loads(LOOP + "\n## Properties\n- busy with probability >= 0.5\n- expected ask <= 2\n- never busy and idle\n")
    )
    assert [proof.verdict for proof in report.properties] == ["UNKNOWN", "UNKNOWN", "PROVED"]
    assert report.properties[1].text == "expected ask <= 2"
    assert report.is_proved


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
        assert isinstance(proof.evidence, RankEvidence)
        assert {item for item in proof.evidence.expectations if item is not None} == awaited
    else:
        assert proof.loop is not None


def test_rank_proves_no_property_about_an_effects_failure() -> None:
    """A failure stops the run where a rank falls with each answer; a row for the failure may end the wait."""
    claim = "ask and busy leads to waiting even if think fails"
    proof = one(ANSWERED, ASKING, claim)
    assert proof.verdict == "VIOLATED"
    assert proof.evidence is None
    handled = one(ANSWERED, f"{ASKING}busy | think.failed | | | | waiting\n", claim)
    assert handled.verdict == "UNKNOWN"
    assert handled.how == "a property about the failure of an effect is judged only at given values, by dsa check"


def test_loop_that_no_promise_ends_is_violated() -> None:
    rows = ASKING.replace(
        "busy    | answer | x < n | x += 1 | think | =", "busy    | answer | x < n |        | think | ="
    )
    proof = one(ANSWERED, rows, "ask and busy leads to waiting")
    assert proof.verdict == "VIOLATED"
    assert proof.trace is not None
    assert proof.loop is not None
    assert proof.loop < len(proof.trace.steps)


def test_bound_with_a_product_is_proved_by_a_potential() -> None:
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


def test_spacer_finds_invariants_that_no_template_has() -> None:
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
    assert isinstance(proof.evidence, ExhaustiveEvidence)
    assert proof.evidence.valuations == ((("n", 3),), (("n", 4),))


def test_time_limit_leaves_properties_unknown() -> None:
    ticks = iter(range(100_000))
    report = prove(machine(HEAD, PARITY, "never x == 3"), time_limit_s=1, clock=lambda: float(next(ticks)))
    assert [proof.verdict for proof in report.properties] == ["UNKNOWN"]


def test_time_limit_needs_a_clock() -> None:
    with pytest.raises(ValueError, match="needs a clock"):
        prove(load("dual_state"), time_limit_s=1)


def test_endless_loop_is_reported_but_not_an_obligation() -> None:
    report = prove(loads(LOOP))
    assert (report.rest, report.is_proved) == (None, True)
    assert report.not_at_rest is not None
    assert report.not_at_rest.how.startswith("not shown: no rank was found; a loop may go on for ever")


@pytest.mark.parametrize(
    ("ticks", "said"), [(0, "not tried: the time limit was used up before its turn"), (100_000, "")]
)
def test_work_skipped_at_the_time_limit_is_reported(ticks: int, said: str) -> None:
    """The clock advances by a second at each reading."""
    clock = itertools.count().__next__
    report = prove(loads(LOOP + "\n## Properties\n- never busy and idle\n"), time_limit_s=ticks, clock=clock)
    (proof,) = report.properties
    assert (proof.verdict, proof.how if said else "") == ("UNKNOWN" if said else "PROVED", said)
    assert report.is_proved is not bool(said)


def test_proved_property_about_an_impossible_event_is_marked() -> None:
    proof = one(HEAD, PARITY, "on back and x > n: x unchanged")
    assert (proof.verdict, proof.idle) == ("PROVED", "back and x > n")


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
def test_properties_are_unknown_if_a_variable_starts_outside_its_domain(initial):
    """At p = 1 (initial 0), or at p = 3 (initial p), a variable starts outside its domain. That is the only violation."""
    report = prove(loads(STARTS_OUTSIDE.format(initial)))
    assert [p.verdict for p in report.obligations if p.verdict != "PROVED"] == ["VIOLATED"]
    assert {p.verdict for p in report.properties} == {"UNKNOWN"}


#: Only Spacer shows that b is never reached, and its formulas compare the values of x by order.
HUES = """# m
## Parameters
| parameter | domain | default |
| - | - | - |
| p | -2.. | -2 |
## Variables
| variable | domain | initial |
| - | - | - |
| x | {red, green, blue} | red |
## Events
| event | from |
| - | - |
| done | work |
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
| a | after 500ms | else | | log | b |
| a | after 1m | 3 > p + p | x = blue | cancel work, work | c |
| b | done | else | | cancel | = |
| a | after 500ms | x == red | x = green | log, cancel, work | d |
| a | after 1m | else | x = red | log, cancel, work | a |
"""


def test_enumeration_values_are_not_ordered_in_lemmas() -> None:
    report = prove(loads(HUES))
    verdicts = {proof.name: proof.verdict for proof in report.obligations}
    assert verdicts["deadlock"] == "PROVED"
    deadlock = next(proof for proof in report.obligations if proof.name == "deadlock")
    assert isinstance(deadlock.evidence, Inductive)
    for lemma in deadlock.evidence.lemmas:
        for node in walk(lemma.condition):
            if isinstance(node, Compare) and node.first == Name("x", "variable"):
                assert [type(operand) for _, operand in node.rest] == [Symbol]
