"""Several emissions of one effect in checks, proofs, odds, mutants and comparisons, on small machines with known answers."""

import itertools
from functools import cache

import pytest

from dsa.checks.document_diff import changes
from dsa.checks.equivalence import Pair, compare
from dsa.checks.mutants import mutants
from dsa.checks.mutation import mutate, prover
from dsa.checks.odds.run_odds import odds
from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.checks.search.engine import SearchLimits
from dsa.checks.search.exploration import explore, explore_system
from dsa.checks.search.incremental_search import IncrementalEngine
from dsa.errors import DsaError, ParameterError
from dsa.lang import loads
from dsa.machine import read_guards
from dsa.semantics import Configuration, Occurrence, start, step
from dsa.system import closed_system
from dsa.targets import emit

CREW = """# crew

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| side      | 0..4   | 1       |

## Variables
| variable | domain  | initial |
| -------- | ------- | ------- |
| begun    | 0..side | 0       |

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| done  | look    |

## Effects
| effect | at once |
| ------ | ------- |
| look   | LIMIT   |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| busy  |         |
| over  | final   |

## Transitions
| source | event       | if           | update     | effects | target |
| ------ | ----------- | ------------ | ---------- | ------- | ------ |
| idle   | go          |              |            | look    | busy   |
| busy   | go          | begun < side | begun += 1 | EMITS   | =      |
| busy   | done        | pending look |            | AGAIN   | =      |
| busy   | done        | else         |            |         | over   |
| busy   | look.failed | FAILED       |            |         | over   |

## Properties
PROPERTIES
"""


def crew(limit="side + 1", emits="look", again="", failed="", properties="- go leads to over"):
    """Return a machine in which up to side + 1 of `look` are outstanding, with some of its cells changed."""
    text = CREW.replace("LIMIT", limit).replace("EMITS", emits).replace("AGAIN", again).replace("FAILED", failed)
    return loads(text.replace("PROPERTIES", properties))


def test_pending_in_an_answer_row_is_flagged_only_at_a_limit_of_one():
    found = {limit: [each.code for each in check(crew(limit)).diagnostics if each.code == "DSA213"] for limit in ("side + 1", "2", "1")}  # fmt: skip
    assert found == {"side + 1": [], "2": [], "1": ["DSA213"]}


# -- proofs for all values of the parameter ---------------------------------------------------------------------------

OBLIGATIONS = {
    "as many as can be outstanding": (crew(), set()),
    "only one": (crew("1"), {"emission"}),
    "a constant that is too small": (crew("2"), {"emission"}),
    "a constant that is enough": (crew("5"), set()),
    "two from one row": (crew(emits="look, look"), {"emission"}),
    "two from one row, and room for them": (crew("2 * side + 1", emits="look, look"), set()),
    "three after a cancellation": (crew(emits="cancel look, look, look, look"), {"emission"}),
    "three after a cancellation, and room": (crew("side + 2", emits="cancel look, look, look, look"), set()),
    "an answer asks again": (crew(again="look"), set()),
    "an answer asks twice": (crew(again="look, look"), {"emission"}),
    "a failure that only the last answer handles": (crew(failed="not pending"), {"completeness"}),
    "a failure handled twice": (crew(failed="pending or not pending"), set()),
}


@pytest.mark.parametrize(("machine", "open_obligations"), OBLIGATIONS.values(), ids=OBLIGATIONS)
def test_proved_obligations_match_the_checks_at_every_value(machine, open_obligations):
    proofs = {proof.name: proof.verdict for proof in prove(machine).obligations}
    assert {name for name, verdict in proofs.items() if verdict == "VIOLATED"} == open_obligations
    assert all(verdict == "PROVED" for name, verdict in proofs.items() if name not in open_obligations)
    found = set()
    for side in range(5):
        report = check(machine, parameters={"side": side})
        found |= {diagnostic.code for diagnostic in report.diagnostics if diagnostic.severity == "error"}
    assert found == {{"emission": "DSA307", "completeness": "DSA305"}[name] for name in open_obligations}


CLAIMS = {
    "always begun <= side": True,
    "always not idle or not pending": True,
    "always pending look == busy": True,
    "never over and pending": True,
    "always begun < 4": False,
    "at most side + 1 look": True,
    "at most side look": False,
    "go leads to over": True,
    "from everywhere possible over": True,
    "on done: begun unchanged": True,
    "over only after done": False,
    "done leads to not pending even if look never answers": False,
}


@pytest.mark.parametrize(("claim", "is_true"), CLAIMS.items(), ids=CLAIMS)
def test_proved_claims_match_the_checks_at_every_value(claim, is_true):
    machine = crew(properties=f"- {claim}")
    (proof,) = prove(machine).properties
    assert proof.verdict == ("PROVED" if is_true else "VIOLATED")
    verdicts = {p.verdict for side in range(5) for p in check(machine, parameters={"side": side}).properties}
    assert ("VIOLATED" in verdicts) == (not is_true)


def test_violated_obligations_are_found_whatever_the_default_is():
    machine = crew(emits="look, look", failed="pending").at({"side": 0})
    assert {"emission", "completeness"} <= {p.name for p in prove(machine).obligations if p.verdict == "VIOLATED"}


# -- mutants ----------------------------------------------------------------------------------------------------------


def limit_mutants(machine, **options):
    results = mutate(machine, **options).results
    found = [result for result in results if result.mutant.what.startswith("at once")]
    assert all(result.mutant.group == "declarations" for result in found)
    return {result.mutant.what: (result.kind, result.by) for result in found}


def test_higher_limit_is_an_equal_mutant_if_the_machine_passes():
    machine = crew()
    proved = ("equal", "the same steps, proved for all parameter values")
    assert limit_mutants(machine, prove=prover(machine)) == {"at once side + 2 instead of side + 1": proved}


def test_lower_limit_is_an_equal_mutant_only_if_nothing_needs_the_limit():
    roomy = crew("side + 2")
    found = limit_mutants(roomy, prove=prover(roomy))
    assert {what: kind for what, (kind, _) in found.items()} == {
        "at once side + 3 instead of side + 2": "equal",
        "at once side + 1 instead of side + 2": "equal",
    }
    assert limit_mutants(crew("5").at({"side": 4}))["at once 4 instead of 5"] == ("noticed", "DSA307")
    assert limit_mutants(crew("5"), prove=prover(crew("5")))["at once 4 instead of 5"][0] == "survived"


@pytest.mark.parametrize("limit", ["2", "side + 2"])
def test_incremental_search_respects_the_changed_limit(limit):
    machine = crew(limit)
    for mutant in mutants(machine):
        if mutant.what.startswith("at once"):
            engine, system = IncrementalEngine(), closed_system(machine)
            explore_system(system, SearchLimits(10_000), engine=engine)
            other = explore_system(closed_system(mutant.machine, like=system), SearchLimits(10_000), engine=engine)
            fresh = explore(mutant.machine)
            assert (other.configurations, other.transitions) == (fresh.configurations, fresh.transitions)
            assert len(other.refusals) == len(fresh.refusals)


def test_limit_of_one_is_not_mutated():
    for limit in ("1", ""):
        assert not [
            mutant for mutant in mutants(crew(limit, emits="cancel look, look")) if mutant.what.startswith("at once")
        ]


# -- comparisons ------------------------------------------------------------------------------------------------------


def test_changed_limit_is_a_change_of_control_with_a_trace():
    old, new = crew("2").at({"side": 2}), crew("3").at({"side": 2})
    assert [(change.aspect, change.what, change.name) for change in changes(old, new)] == [
        ("control", "effect", "look")
    ]
    pair = Pair(old, new)
    found = compare(pair, pair.start, SearchLimits(10_000))
    assert found.verdict == "DIFFERENT"
    assert [each.event for each in (*found.divergence.way, found.divergence.occurrence)] == ["go", "go", "go"]
    assert found.divergence.old.outcome.reason == "emitted_twice"
    assert found.divergence.new.outcome.configuration.outstanding == ("look", "look", "look")
    assert not changes(crew(""), crew("1"))
    alike = Pair(crew("3").at({"side": 2}), crew("4").at({"side": 2}))
    assert compare(alike, alike.start, SearchLimits(10_000)).verdict == "EQUAL"


# -- odds -------------------------------------------------------------------------------------------------------------

ASKED = """# asked

## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| good     | 0..7   | 0       |

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| seen  | look    |

## Guards
| guard | judges | verdicts       | pass |
| ----- | ------ | -------------- | ---- |
| fits  | seen   | passed, failed | PASS |

## Effects
| effect | at once |
| ------ | ------- |
| look   | 3       |

## States
| state | kind    |
| ----- | ------- |
| idle  | initial |
| busy  |         |
| won   | final   |
| lost  | final   |

## Transitions
| source | event | if                                          | update    | effects          | target |
| ------ | ----- | ------------------------------------------- | --------- | ---------------- | ------ |
| idle   | go    |                                             |           | look, look, look | busy   |
| busy   | seen  | fits.passed and pending                     | good += 1 |                  | =      |
| busy   | seen  | fits.failed and pending and good == 1       | good = 4  | look             | =      |
| busy   | seen  | fits.failed and pending and good != 1       |           |                  | =      |
| busy   | seen  | not pending and good >= 2                   |           |                  | won    |
| busy   | seen  | not pending and good < 2                    |           |                  | lost   |
"""


def test_odds_match_a_walk_through_all_orders_of_answers():
    machine = loads(ASKED.replace("PASS", "0.25"))
    found = {end.state: bounds for end, bounds in odds(machine).ends}

    @cache
    def chance(here, state):
        if here.state == state or here.state in machine.final_states:
            return float(here.state == state)
        event = "seen" if here.outstanding else "go"
        guards = read_guards(machine.rows_for(here.state, event))
        total = 0.0
        for verdicts in itertools.product(("passed", "failed"), repeat=len(guards)):
            after = step(machine, here, Occurrence(event, tuple(zip(guards, verdicts, strict=True)))).configuration
            weight = 1.0
            for verdict in verdicts:
                weight *= 0.25 if verdict == "passed" else 0.75
            total += weight * chance(after, state)
        return total

    for state in ("won", "lost"):
        assert found[state].low == pytest.approx(chance(start(machine), state), abs=1e-9)
        assert found[state].high == pytest.approx(found[state].low, abs=1e-9)


def test_odds_by_retry_number_are_refused_if_several_answers_are_awaited():
    assert odds(loads(ASKED.replace("PASS", "0.5, 0.5"))).is_known
    with pytest.raises(ParameterError, match=r"line 17: .* fits .* 'seen', .* several of look .* give one number"):
        odds(loads(ASKED.replace("PASS", "0.25, 0.5")))
    with pytest.raises(ParameterError, match="give one number"):
        odds(loads(ASKED.replace("PASS", "0.25")), fatals={"fits": [0.0]}, passes={"fits": [0.25, 0.5]})
    assert odds(
        loads(
            ASKED.replace("PASS", "0.25, 0.5").replace("| 3       |", "|         |").replace("look, look, look", "look")
        )
    ).is_known


def test_prism_export_refuses_odds_by_retry_number_of_several_answers():
    assert "0.25" in emit(loads(ASKED.replace("PASS", "0.25, 0.25")), "prism")
    with pytest.raises(DsaError, match=r"^line \d+: the odds of guard fits change with its retry number"):
        emit(loads(ASKED.replace("PASS", "0.25, 0.5")), "prism")


def test_configuration_ignores_the_order_of_outstanding_effects():
    assert Configuration("busy", (), ("look", "ask", "look")) == Configuration("busy", (), ["ask", "look", "look"])
