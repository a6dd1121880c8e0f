"""The kernel agrees with `step` and with the judges of properties on any machine, and accepts every verdict of the shipped ones."""

import json
import random
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import attrs
import pytest
from claims_truth import comes_to_rest, stuck, walked, with_spec, written
from crowds import crowded_machines
from hypothesis import HealthCheck, event, given, settings
from repository import ROOT, machine_in
from sample_sizes import sample_size

import dsa.kernel
from dsa.checks.certificate_proofs import explore_claim, require_few_cases, require_same_steps
from dsa.checks.certificate_writer import (
    FAULTLESS,
    Certifier,
    behaviour,
    certify_proofs,
    certify_verdicts,
    kernel_claim,
)
from dsa.checks.mutants import row_mutants
from dsa.checks.proof.prover import judge_at, prove
from dsa.checks.report import check
from dsa.checks.table_faults import definition4
from dsa.declarations import AtMost, ExpectedCount, Probability
from dsa.edge.document_files import shipped_documents
from dsa.errors import UndecidedError
from dsa.expr import EnumDomain, evaluate
from dsa.kernel import DEFINITION_4, NO_DEADLOCK, REST, TABLE, Claim, verify
from dsa.lang import read_machine, spell_out
from dsa.machine import Machine
from dsa.semantics import Configuration
from dsa.system import closed_system
from dsa.testing.strategies import machines

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much)
MOST = 400
ODDS = Probability | ExpectedCount


def agree(machine: Machine, most: int = MOST) -> str:
    """Compare the kernel with the reference and with the judges of properties, at the parameters' values; say what was seen."""
    about, text, at = written(machine)
    guarded_and_same_steps(about, text, at)
    expected = walked(machine, most)
    if expected is None:
        return "too large"
    claim = Claim(text, {"form": FAULTLESS, "parts": [], "at": at, "proofs": []})
    if expected == "fault":
        with pytest.raises(AssertionError, match="a fault is possible"):
            claim.explore()
        return "a fault is reachable"
    claim.explore()
    assert {key.partition(" :flag")[0] for key in claim.keys} == {told(machine, here) for here in expected}
    accepts(
        text, {"form": NO_DEADLOCK, "parts": [], "at": at}, is_true=not any(stuck(machine, here) for here in expected)
    )
    accepts(text, {"form": REST, "parts": [], "at": at}, is_true=comes_to_rest(machine, expected))
    for declared in machine.properties:
        property_agrees(machine, declared.form, text, at)
    return f"{min(len(expected), 9)} configurations"


def about_limits(machine: Machine):
    """Return the effects whose numbers the kernel knows, in its order."""
    return [effect for effect in behaviour(machine).effects if effect.at_once is not None]


def told(machine: Machine, here: Configuration) -> str:
    """Write a configuration as the kernel does, which numbers the values of all enumerations."""
    domains = [declared.domain for declared in (*machine.parameters, *machine.variables)]
    symbols = [value for domain in domains if isinstance(domain, EnumDomain) for value in domain.values]
    number = {value: place for place, value in enumerate(symbols)}
    values = (
        f"{variable.name}={number[value] if isinstance(value, str) else int(value)}"
        for variable, value in zip(machine.variables, here.values, strict=True)
    )
    waits = sorted(f"{' '.join(timer)}>{' '.join(first)}" for first, timer in here.precedence)
    several = [effect.name for effect in about_limits(machine)]
    numbers = (f":number.{effect}={here.outstanding.count(effect)}" for effect in several)
    single = sorted(effect for effect in here.outstanding if effect not in several)
    return " ".join([here.state, *single, *waits, *values, *numbers])


def accepts(text: str, claim: dict, *, is_true: bool) -> None:
    if is_true:
        explore_claim(text, claim, MOST * 10)
    else:
        with pytest.raises(UndecidedError, match="refuses"):
            explore_claim(text, claim, MOST * 10)


def guarded_and_same_steps(machine: Machine, text: str, at: dict) -> None:
    """Check that the kernel accepts Definition 4 where every row obeys it, and that the compiled step agrees with its table of steps."""
    if all(found.severity != "error" for found in definition4(machine)):
        explore_claim(text, {"form": DEFINITION_4, "parts": []}, MOST * 10)
    claim = Claim(text, {"form": TABLE, "parts": [], "at": at, "proofs": []})
    try:
        require_few_cases(machine, claim, MOST * 10)
    except UndecidedError as why:
        assert "more than" in str(why) or "has no greatest value" in str(why)  # noqa: PT017
    else:
        require_same_steps(machine, claim)


def property_agrees(machine, form, text, at):
    if isinstance(form, ODDS):
        assert kernel_claim(form) is None
        return
    if isinstance(form, AtMost) and evaluate(form.bound, machine.constants) < 0:
        return  # no number of moments is below 0; the observers only look where E is true
    verdict = judge_at(closed_system(machine), form, MOST * 10).verdict
    if verdict in {"HOLDS", "VIOLATED"}:
        accepts(text, kernel_claim(form) | {"at": at}, is_true=verdict == "HOLDS")


@settings(max_examples=sample_size(12, full=60), deadline=None, suppress_health_check=SLOW)
@given(machines() | crowded_machines(claims=3))
def test_kernel_agrees_on_any_machine(machine):
    event(agree(machine))


#: Timers, nested states, cancelling, an effect that fails, fairness: the shipped machines do not have these.
WATCHED = """# watched

## Parameters
| parameter | domain       | default |
| --------- | ------------ | ------- |
| most      | 0..          | 2       |
| mode      | {fast, slow} | fast    |
| strict    | bool         | false   |

## Variables
| variable | scope       | domain       | initial |
| -------- | ----------- | ------------ | ------- |
| tries    | environment | 0..most      | 0       |
| pace     | environment | {fast, slow} | mode    |
| sound    | workflow    | bool         | strict  |

## Events
| event  | from    |
| ------ | ------- |
| begin  | outside |
| ping   | outside |
| stop   | outside |
| found  | search  |
| nobody | search  |
| beaten | beat    |

## Guards
| guard | judges | verdicts       |
| ----- | ------ | -------------- |
| good  | found  | passed, failed |

## States
| state         | kind    |
| ------------- | ------- |
| idle          | initial |
| busy          |         |
| busy.looking  | initial |
| busy.thinking |         |
| done          | final   |
| lost          | final   |

## Transitions
| source        | event         | if                          | update                    | effects              | target        |
| ------------- | ------------- | --------------------------- | ------------------------- | -------------------- | ------------- |
| idle          | begin         |                             |                           | search, beat         | busy          |
| busy.looking  | found         | good.passed                 | sound = true              | cancel beat, tell    | done          |
| busy.looking  | found         | else and tries < most       | tries += 1; pace = slow   |                      | busy.thinking |
| busy.looking  | found         | else and tries >= most      | revoke sound              | cancel               | lost          |
| busy          | nobody        | pace == slow or tries == most |                         |                      | lost          |
| busy          | nobody        | else                        | pace = slow               | search               | =             |
| busy          | beaten        |                             |                           | beat                 | =             |
| busy          | search.failed |                             |                           |                      | lost          |
| busy.thinking | after 30s     | not (tries == most and strict) | tries -= 0             | search               | busy.looking  |
| busy.thinking | after 30s     | else                        |                           |                      | lost          |
| busy          | after 5m      |                             |                           |                      | lost          |
| busy.thinking | ping          |                             |                           |                      | =             |
| *             | stop          |                             |                           |                      | lost          |

## Properties
- begin leads to done or lost
- begin leads to busy.thinking or done or lost
- begin leads to done or lost assuming fair found, ping
- busy.thinking leads to busy.looking or lost
- busy.thinking leads to busy.looking or lost assuming fair ping
- idle leads to busy
- idle leads to busy or lost assuming fair begin
- always pending beat == busy
- always tries <= most and (pace == slow or tries == 0)
- always tries < 2
- never tell and not good.passed
- on found: sound unchanged
- on ping or beaten: tries, pace, sound unchanged
- on ping or beaten: busy, pending search, tries == most and busy.thinking unchanged
- on begin: idle unchanged
- on beaten: pending search, pending beat unchanged
- on search.failed: pending beat unchanged
- done only after good.passed
- lost only after stop
- at most most + 1 search
- at most 1 search between good.failed and done
- at most 2 search between begin and stop
- possible done and tries == most
- possible lost and pending beat
- from everywhere possible lost
- from everywhere possible done
- sound only after begin
"""


def watched() -> Machine:
    machine = read_machine(WATCHED, "watched.md").machine
    assert machine is not None
    return machine


#: A final state inside a parent with a timer: the timer is not armed there (S11), so the run rests.
NESTED = """# nested

## Events
| event | from    |
| ----- | ------- |
| go    | outside |

## States
| state | kind    |
| ----- | ------- |
| a     | initial |
| a.b   | initial |
| a.c   | final   |
| d     | final   |

## Transitions
| source | event    | target |
| ------ | -------- | ------ |
| a      | after 1s | d      |
| a.b    | go       | a.c    |

## Properties
- a.b leads to d
- a.b leads to d or a.c
"""
#: A row that stays keeps the timer, one that enters the state again starts it again (S11).
RINGING = """# ringing

## States
| state   | kind    |
| ------- | ------- |
| ringing | initial |
| quiet   | final   |

## Transitions
| source  | event    | target |
| ------- | -------- | ------ |
| ringing | after 1s | quiet  |
| ringing | ping     | STAYS  |

## Properties
- ringing leads to quiet
"""


@pytest.mark.parametrize("values", [{}, {"most": 0}, {"most": 1, "mode": "slow"}, {"strict": True}], ids=str)
def test_kernel_agrees_on_timers_and_fairness(values):
    assert agree(watched().at(values)).endswith("configurations")


@pytest.mark.parametrize("text", [NESTED, RINGING.replace("STAYS", "="), RINGING.replace("STAYS", "ringing")])
def test_kernel_agrees_on_when_timers_end(text):
    assert agree(read_machine(text, "small.md").machine) == "2 configurations" or "nested" in text


def readable():
    paths = [
        *sorted((ROOT / "specs" / "mistakes").glob("*.md")),
        *sorted((ROOT / "specs" / "conformance").glob("*.md")),
    ]
    for path in paths:
        machine = machine_in(path)
        if machine is not None:
            yield pytest.param(machine, id=path.stem)


@pytest.mark.parametrize("machine", list(readable()))
def test_kernel_agrees_on_every_machine_in_the_specs(machine):
    agree(attrs.evolve(spell_out(machine), properties=machine.properties))


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("watched", 8),
        ("specs/dual_state", 12),
        pytest.param("watched", 150, marks=pytest.mark.full),
        pytest.param("specs/workflow", 40, marks=pytest.mark.full),
    ],
)
def test_kernel_agrees_on_machines_with_one_fault(source, count):
    machine = watched() if source == "watched" else with_spec(source)
    every = [mutant.machine for mutant in row_mutants(machine)]
    seen = [agree(mutated) for mutated in random.Random(1).sample(every, min(count, len(every)))]
    assert any(what.endswith("configurations") for what in seen)
    assert any(what == "a fault is reachable" for what in seen)


# -- the shipped machines ----------------------------------------------------------------------------------------------


#: Documents of specs/ that describe the language and are not machines.
PROSE = {"semantics", "table"}


def documents():
    """Return the name or the path of every machine and spec here; those that take seconds belong to `make test-full`."""
    shipped = shipped_documents()
    others = [path for path in sorted((ROOT / "specs").glob("*.md")) if f"specs/{path.stem}" not in shipped]
    for name in [*sorted(shipped), *(str(path) for path in others if path.stem not in PROSE)]:
        if not any(word in name for word in ("chat", "coding")):  # larger at their defaults than what is certified
            is_slow = any(
                word in name
                for word in ("peterson", "katas/katas", "specs/katas", "specs/workflow", "two_phase_commit")
            )
            yield pytest.param(name, id=name.removeprefix(f"{ROOT}/"), marks=[pytest.mark.full] if is_slow else [])


@pytest.mark.parametrize("name", list(documents()))
def test_kernel_alone_accepts_every_verdict_of_the_shipped_machines(name, tmp_path):
    """The certificate has all that is PROVED or HOLDS, and nothing else; it leaves out other verdicts and odds."""
    machine = with_spec(name)
    about, text, _ = written(machine)
    certifier, proofs, verdicts = Certifier(about, text), prove(machine), check(machine)
    certify_proofs(certifier, proofs)
    certify_verdicts(certifier, verdicts)
    made = certifier.draft()
    explored_at = [exploration.parameters for exploration in verdicts.explorations]
    owed = [FAULTLESS, NO_DEADLOCK, *([REST] if proofs.rest else [])]
    held = [p.text for p in verdicts.properties if p.verdict == "HOLDS" and not isinstance(p.claim.form, ODDS)]
    claimed = Counter([*owed, DEFINITION_4, *(p.text for p in proofs.properties if p.verdict == "PROVED")])
    claimed += Counter(
        [DEFINITION_4, *[TABLE] * 2 * len(explored_at), *[FAULTLESS, NO_DEADLOCK, *held] * len(explored_at)]
    )
    assert Counter(claim["form"].format(*claim["parts"]) for claim in made.certificate["claims"]) == claimed
    other = {(p.text, f"it is {p.verdict}") for p in proofs.properties if p.verdict != "PROVED" and p.is_asked}
    other |= {(p.text, f"it is {p.verdict}") for p in verdicts.properties if p.verdict != "HOLDS"}
    other |= {(p.text, "odds are not certified") for p in proofs.properties if isinstance(p.form, ODDS)}
    assert set(made.left_out) == other
    (tmp_path / "kernel.py").write_bytes(Path(dsa.kernel.__file__).read_bytes())
    (tmp_path / "certificate.json").write_text(json.dumps(made.certificate), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", "kernel.py", "certificate.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + made.claims
    established = list(verify(json.dumps(made.certificate), partial(require_same_steps, machine)))
    assert [line for line in lines if TABLE not in line] == [line for line in established if TABLE not in line]
    assert [line for line in established if TABLE in line] == [
        line.removeprefix("not established, because the check needs FILE (`dsa verify CERTIFICATE FILE`): ")
        for line in lines
        if TABLE in line and line.startswith("not established")
    ]
