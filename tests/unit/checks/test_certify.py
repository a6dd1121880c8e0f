"""Certificates: the claims in them, the claims left out, and the reasons."""

import json
from collections import Counter
from functools import partial

import pytest

from dsa.checks import certificate_proofs
from dsa.checks.certificate_proofs import require_same_steps
from dsa.checks.certificate_writer import FAULTLESS, Certifier, behaviour, certify_proofs, certify_verdicts
from dsa.checks.proof.prover import prove
from dsa.checks.report import check
from dsa.kernel import DEFINITION_4, NO_DEADLOCK, REST, TABLE, verify
from dsa.lang import dumps, loads

#: The first row is never taken; the rows after it would break every claim.
NEVER = """# never

## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| most      | 0..    | 2       |

## Variables
| variable | domain       | initial |
| -------- | ------------ | ------- |
| pace     | {fast, slow} | fast    |
| tries    | 0..most      | 0       |
| twice    | 0..8         | 0       |

## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| found | search  |

## States
| state | kind    |
| ----- | ------- |
| a     | initial |
| lost  |         |
| b     | final   |

## Transitions
| source | event | if           | update           | effects | target |
| ------ | ----- | ------------ | ---------------- | ------- | ------ |
| a      | go    | CONDITION    |                  | search  | lost   |
| a      | go    | else         |                  |         | b      |
| lost   | found | pace == fast | tries = most + 5 | search  | lost   |
| lost   | found | pace == slow | tries = 0 - 1    |         | a      |

## Properties
- always tries <= most
- never lost
- a leads to a or b
- at most most lost
- at most 0 (found and go)
- possible b
- from everywhere possible b
"""


NOTHING_GUARDED = f"{DEFINITION_4}: for all values, trivially: no variable is workflow state"


def certified(machine, *, checked=False):
    about = behaviour(machine)
    certifier = Certifier(about, dumps(about))
    if checked:
        certify_verdicts(certifier, check(machine))
    else:
        certify_proofs(certifier, prove(machine))
    made = certifier.draft()
    compare = partial(require_same_steps, machine)
    return list(verify(json.dumps(made.certificate), compare))[1:], dict(made.left_out)


@pytest.mark.parametrize(
    "condition",
    [
        "pace == slow and pace == fast",
        "pace == slow and pace in {fast}",
        "not (pace == slow or pace == fast)",
        "tries > most",
        "tries < tries",
        "most < 0",
        "tries < 1 and tries > 1",
        "twice * 2 > 16 and twice < 9",
    ],
)
def test_proved_claims_are_certified_even_if_the_kernel_visits_more_states(condition):
    """The kernel simplifies nothing, so it may visit states that the closed system does not have; a lemma says that no run reaches them."""
    machine = loads(NEVER.replace("CONDITION", condition))
    said, left_out = certified(machine)
    texts = [line.removeprefix("- ") for line in NEVER.split("## Properties\n")[1].splitlines()]
    assert left_out == {}
    assert Counter(said) == Counter(
        [f"{text}: for all values" for text in (FAULTLESS, NO_DEADLOCK, REST, *texts)]
        + [NOTHING_GUARDED]
        + [f"{TABLE}: most = {most}" for most in (2, 0)]
    )


def test_claims_that_only_z3_proves_are_left_out_with_the_reason():
    """No sum of products shows that twice a whole number is never 3."""
    said, left_out = certified(loads(NEVER.replace("CONDITION", "twice + twice == 3")))
    assert set(said) == {NOTHING_GUARDED, f"{TABLE}: most = 2", f"{TABLE}: most = 0"}
    assert left_out[FAULTLESS].startswith("z3 proves the claim, but dsa found no evidence that satisfies the kernel (")
    assert {left_out[said] for said in left_out if said != FAULTLESS} == {
        "it rests on the claim 'no fault', which is not certified"
    }
    assert "never lost" in left_out


def test_unproved_claims_are_left_out_with_their_verdict():
    said, left_out = certified(loads(NEVER.replace("CONDITION", "tries == 0")))
    assert set(said) == {NOTHING_GUARDED, f"{TABLE}: most = 2", f"{TABLE}: most = 0"}
    assert left_out["every update stays in its domain"] == "it is VIOLATED"
    assert left_out["never lost"] == "it is VIOLATED"
    assert left_out["no deadlock"] == "it rests on an obligation that is VIOLATED: every update stays in its domain"


def test_certificate_of_a_check_covers_what_every_machine_must_satisfy():
    said, left_out = certified(loads(NEVER.replace("CONDITION", "tries > most")), checked=True)
    assert left_out == {}
    for most in (2, 0):
        for text in (FAULTLESS, NO_DEADLOCK, "never lost", "possible b", TABLE):
            assert f"{text}: most = {most}" in said
    assert NOTHING_GUARDED in said
    assert len(said) == 1 + 2 * (3 + 7)


def test_definition4_is_left_out_if_conditions_have_too_many_paths(monkeypatch):
    monkeypatch.setattr(certificate_proofs, "_MOST_PATHS_OF_A_MOVE", 1_000)
    rows = "".join(f"| a | go | x{place} | a |\n" for place in range(11))
    variables = "".join(f"| x{place} | bool | false |\n" for place in range(11))
    text = "# m\n\n## Variables\n| variable | domain | initial |\n|---|---|---|\n" + variables
    machine = loads(f"{text}\n## Transitions\n| source | event | if | target |\n|---|---|---|---|\n{rows}")
    about = behaviour(machine)
    certifier = Certifier(about, dumps(about))
    assert not certifier.claim_definition4()
    assert certifier.draft().left_out == ((DEFINITION_4, "one step or condition has more than 1000 paths"),)


def test_odds_are_not_certified():
    machine = loads("# m\n\n## Transitions\n| source | event | target |\n|---|---|---|\n| a | go | a |\n\n"
                    "## Properties\n- a with probability >= 0.5\n")  # fmt: skip
    assert certified(machine)[1] == {"a with probability >= 0.5": "odds are not certified"}
    assert certified(machine, checked=True)[1] == {"a with probability >= 0.5": "odds are not certified"}


LARGE = """# large
## Variables
| variable | domain  | initial |
| -------- | ------- | ------- |
| n        | 0..200  | 0       |
| m        | 0..150  | 0       |
## Transitions
| source | event | if      | update       | target |
| ------ | ----- | ------- | ------------ | ------ |
| a      | go    | n < 200 | n += 1       | =      |
| a      | go    | else    |              | b      |
| a      | up    | m < 150 | m += 1       | =      |
| a      | up    | else    |              | b      |
## States
| state | kind    |
| ----- | ------- |
| a     | initial |
| b     | final   |

## Properties
"""


@pytest.mark.limit(30)
def test_kernel_is_not_asked_about_machines_that_check_found_too_large():
    """The kernel would visit 20,000 configurations for each property before it gives up, which takes minutes for these."""
    texts = [f"always n <= {most}" for most in range(200, 300)]
    said, left_out = certified(loads(LARGE + "".join(f"- {text}\n" for text in texts)), checked=True)
    assert said == [NOTHING_GUARDED, f"{TABLE}: for all values"]
    too_many = "the kernel would visit more than 20000 configurations"
    assert left_out == dict.fromkeys((FAULTLESS, NO_DEADLOCK, *texts), too_many)


DETOUR = """# detour
## Parameters
| parameter | domain | default |
| --------- | ------ | ------- |
| most      | 2..    | 3       |
## Variables
| variable | domain  | initial |
| -------- | ------- | ------- |
| n        | 0..most | 1       |
## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| one   | work    |
| other | work    |
## Effects
| effect |
| ------ |
| work   |
## Transitions
| source | event      | if       | update | effects | target |
| ------ | ---------- | -------- | ------ | ------- | ------ |
| idle   | go         |          |        | work    | first  |
| first  | one        |          | n = 0  | work    | a      |
| first  | other      |          |        | work    | second |
| second | one        |          |        | work    | third  |
| second | other      |          |        | work    | b      |
| third  | one, other | n < most | n += 1 |         | over   |
| third  | one, other | else     |        |         | over   |
| b      | one, other |          | n = 0  | work    | a      |
| a      | one, other | n == 0   |        |         | over   |
| a      | one, other | else     |        | work    | b      |
## States
| state  | kind    |
| ------ | ------- |
| idle   | initial |
| first  |         |
| second |         |
| third  |         |
| a      |         |
| b      |         |
| over   | final   |

## Properties
- go leads to over
"""


def test_proofs_follow_the_order_in_which_the_kernel_visits_states():
    """State a leads to b only where n is not 0, which never happens. The kernel knows that, so it visits b after third."""
    said, left_out = certified(loads(DETOUR))
    assert left_out == {}
    assert "go leads to over: for all values" in said
