"""The kernel agrees with `step` and with the judges of properties on any machine; certificates cannot be bent.

What a corrupted certificate may still be: its claims are recomputed here by other code, and must be true of the machine it carries.
"""

import copy
import hashlib
import json
import random
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import attrs
import pytest
from hypothesis import HealthCheck, event, given, settings
from repository import ROOT

import dsa.kernel
from dsa.checks.certify import FAULTLESS, Certifier, behaviour, certify_proofs, certify_verdicts, spelled
from dsa.checks.certify_proofs import NoProofError
from dsa.checks.certify_ranks import compared, explored
from dsa.checks.certify_steps import steps_digest
from dsa.checks.definition4 import definition4
from dsa.checks.mutants import mutants
from dsa.checks.proof.searched import judged
from dsa.checks.prove import prove
from dsa.checks.report import check
from dsa.claims import AtMost, Expected, Probability
from dsa.declarations import OUTSIDE, Assign
from dsa.edge.files import load, read_document, shipped
from dsa.errors import ParameterError
from dsa.expr import EnumDomain, evaluate, guards_read, show_value
from dsa.kernel import GUARDED, REST, STUCK, TABLE, Claim, verify
from dsa.lang import dumps, expanded, read_machine
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence, Refusal, Taken, start, step
from dsa.system import closed_system, location_of
from dsa.testing.strategies import machines

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much)
MOST = 400
ODDS = Probability | Expected


def possible(machine: Machine, here: Configuration):
    """Give every occurrence that can come, and whether it must be handled (S2, S3, S7, S11, S12), by `step`'s own facts."""
    if here.state in machine.final_states:
        return
    named = {row.event for row in machine.transitions}
    for name, said in machine.event_named.items():
        answers = said.origin != OUTSIDE
        if answers and said.origin not in here.outstanding:
            continue
        if name.endswith(".failed") and answers and name not in named and name not in {e.name for e in machine.events}:
            continue
        rows = machine.rows_for(here.state, name)
        if rows or answers:
            yield from ((Occurrence(name, verdicts), answers) for verdicts in combined(machine, rows))
    for source, timer in machine.armed(here.state):
        rows = machine.rows_from[source, timer]
        yield from ((Occurrence(timer, verdicts, source), True) for verdicts in combined(machine, rows))


def combined(machine, rows):
    guards = read_guards(rows)
    for outcomes in product(*(machine.guard_named[guard].outcomes for guard in guards)):
        yield tuple(zip(guards, outcomes, strict=True))


def walked(machine: Machine, most: int):
    """Explore by the reference: the configurations; "fault" when one is reachable; None when there are too many."""
    first = start(machine)
    if not all(machine.values_of[v.name].contains(x) for v, x in zip(machine.variables, first.values, strict=True)):
        return "fault"
    known, todo = {first}, [first]
    while todo:
        here = todo.pop()
        for occurrence, must in possible(machine, here):
            answer = step(machine, here, occurrence)
            if isinstance(answer, Refusal):
                if must or answer.reason != "invalid_state":
                    return "fault"
            elif answer.configuration not in known:
                known.add(answer.configuration)
                todo.append(answer.configuration)
                if len(known) > most:
                    return None
    return known


def written(machine: Machine):
    about = behaviour(expanded(machine))
    return about, dumps(about), {name: show_value(value) for name, value in about.constants.items()}


def agree(machine: Machine, most: int = MOST) -> str:
    """Compare the kernel with the reference and with the judges of properties, at the parameters' values; say what was seen."""
    about, text, at = written(machine)
    guarded_and_same_steps(about, text, at)
    expected = walked(machine, most)
    if expected is None:
        return "too large"
    claim = Claim(text, {"form": FAULTLESS, "parts": [], "at": at, "proofs": []})
    if expected == "fault":
        with pytest.raises(AssertionError, match="a fault is not excluded"):
            claim.explore()
        return "a fault is reachable"
    claim.explore()
    assert {key.partition(" :flag")[0] for key in claim.keys} == {told(machine, here) for here in expected}
    accepts(text, {"form": STUCK, "parts": [], "at": at}, is_true=not any(stuck(machine, here) for here in expected))
    accepts(text, {"form": REST, "parts": [], "at": at}, is_true=comes_to_rest(machine, expected))
    for declared in machine.properties:
        property_agrees(machine, declared.form, text, at)
    return f"{min(len(expected), 9)} configurations"


def told(machine: Machine, here: Configuration) -> str:
    """Write a configuration as the kernel does, which numbers the values of all enumerations."""
    domains = [declared.domain for declared in (*machine.parameters, *machine.variables)]
    symbols = [value for domain in domains if isinstance(domain, EnumDomain) for value in domain.values]
    number = {value: place for place, value in enumerate(symbols)}
    values = (
        f"{variable.name}={number[value] if isinstance(value, str) else int(value)}"
        for variable, value in zip(machine.variables, here.values, strict=True)
    )
    return " ".join([here.state, *sorted(here.outstanding), *values])


def accepts(text: str, claim: dict, *, is_true: bool) -> None:
    if is_true:
        explored(text, claim, MOST * 10)
    else:
        with pytest.raises(NoProofError, match="refuses"):
            explored(text, claim, MOST * 10)


def taken(machine: Machine, here: Configuration):
    """Give every step that can be taken, with its occurrence."""
    answers = ((occurrence, step(machine, here, occurrence)) for occurrence, _ in possible(machine, here))
    return [(occurrence, answer) for occurrence, answer in answers if isinstance(answer, Taken)]


def stuck(machine: Machine, here: Configuration) -> bool:
    """Tell whether nothing is outstanding or armed, the state is not final, and nothing from outside has a row."""
    waits = here.outstanding or machine.armed(here.state) or here.state in machine.final_states
    return not waits and not taken(machine, here)


def comes_to_rest(machine: Machine, known) -> bool:
    """Tell whether S12 allows no endless run without events from outside: whatever could go round leaves a promise unkept."""
    system = closed_system(machine)
    steps = {here: [] for here in known}
    for here in known:
        commands = system.commands_at[location_of(system, here)]
        for occurrence, answer in taken(machine, here):
            row = next(place for place, row in enumerate(machine.transitions) if row is answer.transition)
            (ended,) = [c.ended for c in commands if (c.occurrence, c.row) == (occurrence, row)]
            if occurrence.source is not None or machine.event_named[occurrence.event].origin != OUTSIDE:
                steps[here].append((answer.configuration, ended))
    after = {here: following(steps, here) for here in known}
    for here in known:
        circle = [other for other in after[here] if here in after[other]]
        ended = {promise for other in circle for target, ends in steps[other] if target in circle for promise in ends}
        promises = [system.promises(location_of(system, other)) - ended for other in circle]
        if circle and not frozenset.intersection(*promises):
            return False
    return True


def following(steps, here):
    """Give what can follow after one step or more."""
    found, todo = set(), [here]
    while todo:
        new = {target for target, _ in steps[todo.pop()]} - found
        found |= new
        todo += new
    return found


def guarded_and_same_steps(machine: Machine, text: str, at: dict) -> None:
    """See that the kernel knows Definition 4 where every row keeps it, and finds the generated step's hash in the rows."""
    if all(found.severity != "error" for found in definition4(machine)):
        explored(text, {"form": GUARDED, "parts": []}, MOST * 10)
    steps = same_steps(machine)
    if steps is not None:
        compared(text, {"form": TABLE, "parts": [], "at": at, "steps": steps})


def same_steps(machine: Machine):
    """Give the hash of the generated step, or None where there are too many cases."""
    try:
        return steps_digest(machine, MOST * 10)
    except NoProofError as why:
        if "more than" not in str(why):
            raise
        return None


def property_agrees(machine, form, text, at):
    if isinstance(form, ODDS):
        assert spelled(form) is None
        return
    if isinstance(form, AtMost) and evaluate(form.bound, machine.constants) < 0:
        return  # no number of moments is below 0; the observers only look where E is true
    verdict = judged(closed_system(machine), form, MOST * 10).verdict
    if verdict in {"HOLDS", "VIOLATED"}:
        accepts(text, spelled(form) | {"at": at}, is_true=verdict == "HOLDS")


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(machines())
def test_the_kernel_agrees_on_any_machine(machine):
    event(agree(machine))


#: Timers, nested states, cancelling, an effect that fails, fairness: what the shipped machines do not have.
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
def test_the_kernel_agrees_where_there_are_timers_and_fairness(values):
    assert agree(watched().at(values)).endswith("configurations")


@pytest.mark.parametrize("text", [NESTED, RINGING.replace("STAYS", "="), RINGING.replace("STAYS", "ringing")])
def test_the_kernel_agrees_on_when_timers_end(text):
    assert agree(read_machine(text, "small.md").machine) == "2 configurations" or "nested" in text


def readable():
    paths = [
        *sorted((ROOT / "specs" / "mistakes").glob("*.md")),
        *sorted((ROOT / "specs" / "conformance").glob("*.md")),
    ]
    for path in paths:
        machine = read_machine(path.read_text(encoding="utf-8"), path.name).machine
        if machine is not None:
            yield pytest.param(machine, id=path.stem)


@pytest.mark.parametrize("machine", list(readable()))
def test_the_kernel_agrees_on_every_machine_of_the_specs(machine):
    agree(attrs.evolve(expanded(machine), properties=machine.properties))


def with_spec(name: str) -> Machine:
    machine = load(name)
    return attrs.evolve(expanded(machine), properties=machine.properties)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("watched", 8),
        ("specs/dual_state", 12),
        pytest.param("watched", 150, marks=pytest.mark.full),
        pytest.param("specs/workflow", 40, marks=pytest.mark.full),
    ],
)
def test_the_kernel_agrees_on_machines_with_one_fault(source, count):
    machine = watched() if source == "watched" else with_spec(source)
    every = [mutant.machine for mutant in mutants(machine)]
    seen = [agree(mutated) for mutated in random.Random(1).sample(every, min(count, len(every)))]
    assert any(what.endswith("configurations") for what in seen)
    assert any(what == "a fault is reachable" for what in seen)


# -- the shipped machines ----------------------------------------------------------------------------------------------


def documents():
    """Give the name or the path of every machine and spec here; those that take seconds belong to `make test-full`."""
    others = [str(path) for path in sorted((ROOT / "specs").glob("*.md")) if f"specs/{path.stem}" not in shipped()]
    for name in [*sorted(shipped()), *others]:
        if read_document(name).machine is not None:
            is_slow = any(word in name for word in ("peterson", "katas/katas", "specs/katas", "specs/workflow"))
            yield pytest.param(name, id=name.removeprefix(f"{ROOT}/"), marks=[pytest.mark.full] if is_slow else [])


@pytest.mark.parametrize("name", list(documents()))
def test_every_verdict_of_the_shipped_machines_is_accepted_by_the_kernel_alone(name, tmp_path):
    """All that is PROVED or HOLDS, and nothing else; what is left out is another verdict, or speaks of odds."""
    machine = with_spec(name)
    about, text, _ = written(machine)
    certifier, proofs, verdicts = Certifier(about, text), prove(machine), check(machine)
    certify_proofs(certifier, proofs)
    certify_verdicts(certifier, verdicts)
    made = certifier.certified()
    explored_at = [exploration.parameters for exploration in verdicts.explorations]
    owed = [FAULTLESS, STUCK, *([REST] if proofs.rest else [])]
    held = [p.text for p in verdicts.properties if p.verdict == "HOLDS" and not isinstance(p.claim.form, ODDS)]
    claimed = Counter([*owed, GUARDED, *(p.text for p in proofs.properties if p.verdict == "PROVED")])
    claimed += Counter([GUARDED, *[TABLE] * 2 * len(explored_at), *[FAULTLESS, STUCK, *held] * len(explored_at)])
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
    assert len(done.stdout.splitlines()) == 1 + made.claims


# -- corrupted certificates --------------------------------------------------------------------------------------------


def certificate_of(name: str) -> dict:
    """Certify all that is proved, and all that holds at the defaults and minima."""
    machine = with_spec(name)
    about, text, _ = written(machine)
    certifier = Certifier(about, text)
    certify_proofs(certifier, prove(machine))
    certify_verdicts(certifier, check(machine))
    return certifier.certified().certificate


def places(value, path=()):
    """Give every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def at_place(value, path):
    for key in path:
        value = value[key]
    return value


def corrupted(certificate: dict, random: random.Random) -> tuple[str, str]:
    """Change one thing in a certificate of one of the claims; give the text, and what kind of change it was."""
    claims = certificate["claims"]
    spoilt = copy.deepcopy(certificate | {"claims": [random.choice(claims)]})
    kind = random.choice(["value", "value", "value", "machine", "character"])
    if kind == "machine":  # an edited table, with its digest set right: only the proofs can tell
        spoilt["machine"] = edited(spoilt["machine"], random)
        spoilt["digest"] = hashlib.sha256(spoilt["machine"].encode()).hexdigest()
    if kind == "value":
        path = random.choice([path for path in places(spoilt) if path])
        changed(at_place(spoilt, path[:-1]), path[-1], random)
    text = json.dumps(spoilt)
    if kind == "character":
        place = random.randrange(len(text))
        text = text[:place] + random.choice(["", chr(random.randrange(32, 127)), text[place] * 2]) + text[place + 1 :]
    return text, kind


def edited(text: str, random: random.Random) -> str:
    words = text.split(" ")
    place = random.choice([n for n, word in enumerate(words) if word.strip() not in {"", "|"}])
    other = random.choice([word for word in words if word.strip() not in {"", "|"} and "\n" not in word])
    words[place] = random.choice(["", other, words[place] + " " + other, "<=", "0"])
    return " ".join(words)


def changed(holder, key, random: random.Random) -> None:
    """Change, drop, double or swap what stands at a key of a JSON object or array."""
    value = holder[key]
    if random.random() < 0.5 and isinstance(holder, list):
        what = random.randrange(3)
        if what == 0:
            del holder[key]
        elif what == 1:
            holder.insert(key, copy.deepcopy(value))
        else:
            other = random.randrange(len(holder))
            holder[key], holder[other] = holder[other], value
    elif random.random() < 0.3 and isinstance(holder, dict):
        other = random.choice(list(holder))
        holder[key], holder[other] = holder[other], value
    elif isinstance(value, int):
        holder[key] = random.choice([value + 1, value - 1, 0, -value, value + 0.5, 10**9, True])
    elif isinstance(value, str):
        holder[key] = random.choice(
            [value + "1", value[1:], "true", "false", "0", value.replace("<=", "<"), f"not {value}"]
        )
    else:
        holder[key] = random.choice([[], {}, None, 0])


def why_valid(text: str, original: set[str], sentences: list[str]) -> str:
    """Say why an accepted certificate may be accepted, having made sure of it; fails when there is no reason."""
    content = json.loads(text)
    if set(sentences) <= original:
        return "it says nothing that the original does not say"
    machine = read_machine(content["machine"], "certificate").machine
    if machine is None:
        return "its table is no document, so it is nobody's machine"
    for claim, sentence in zip(content["claims"], sentences[1:], strict=True):
        try:
            everywhere = list(valuations(machine, claim.get("at")))
        except ParameterError:
            return "it names a value that its parameter does not have, so it is nobody's claim"
        forms = read_forms(content["machine"], claim)
        if not forms:
            return "its claim is no sentence of the language, so it is nobody's claim"
        assert all(is_true(there, form, claim) for there in everywhere for form in forms), sentence
    return "its claims are true of the machine it carries"


def read_forms(text: str, claim: dict) -> list:
    """Give the properties that a claim spells, or what the kernel knows by a text."""
    if claim["form"] in {FAULTLESS, STUCK, REST, GUARDED, TABLE}:
        return [claim["form"]]
    said = claim["form"].format(*claim["parts"])
    read = read_machine(f"{text}\n## Properties\n\n- {said}\n", "certificate").machine
    return [] if read is None else [declared.form for declared in read.properties]


def is_true(machine: Machine, form, claim: dict) -> bool:
    """Judge a claim by other code than the kernel's, at the machine's parameter values."""
    if form == TABLE:
        return steps_digest(machine, 20_000) == claim["steps"]
    if form == GUARDED:
        return is_guarded(machine)
    known = walked(machine, 20_000)
    if not isinstance(known, set):
        return False
    if form == STUCK:
        return not any(stuck(machine, here) for here in known)
    if form == REST:
        return comes_to_rest(machine, known)
    return form == FAULTLESS or judged(closed_system(machine), form, 20_000).verdict == "HOLDS"


def is_guarded(machine: Machine) -> bool:
    """Tell whether no step of any run sets workflow state on a judged event unless the guards that its row reads have passed."""
    workflow = {variable.name for variable in machine.variables if variable.scope == "workflow"}
    asked = {row.event for row in machine.transitions if guards_read(row.condition)}
    known, todo = {start(machine)}, [start(machine)]
    while todo:
        here = todo.pop()
        for occurrence, answer in taken(machine, here):
            row, said = answer.transition, dict(occurrence.verdicts)
            sets = any(isinstance(update, Assign) and update.variable in workflow for update in row.updates)
            guards = (
                read_guards(machine.rows_from[row.source, row.event]) if row.is_else else guards_read(row.condition)
            )
            passed = bool(guards) and all(said[guard] == "passed" for guard in guards)
            if sets and not passed and occurrence.event in machine.judged_events | asked:
                return False
            if answer.configuration not in known:
                known.add(answer.configuration)
                todo.append(answer.configuration)
    return True


def valuations(machine: Machine, at):
    if at is not None:
        named = {parameter.name for parameter in machine.parameters}
        yield machine.at({name: read_value(text) for name, text in at.items() if name in named})
        return
    names = [parameter.name for parameter in machine.parameters]
    for values in product((0, 1, 2), repeat=len(names)):
        yield machine.at(dict(zip(names, values, strict=True)))


def read_value(text: str):
    return {"true": True, "false": False}.get(text, int(text) if text.lstrip("-").isdigit() else text)


def corrupt(name: str, count: int) -> dict[str, int]:
    certificate, source, reasons = certificate_of(name), random.Random(name), {}
    original = set(verify(json.dumps(certificate)))
    for _ in range(count):
        text, kind = corrupted(certificate, source)
        try:
            sentences = list(verify(text))
        except Exception:  # noqa: BLE001  (whatever it raises is a refusal)
            reason = "refused"
        else:
            reason = why_valid(text, original, sentences)
        reasons[f"{kind}: {reason}"] = reasons.get(f"{kind}: {reason}", 0) + 1
    return reasons


def test_corrupted_certificates_are_refused_or_true():
    reasons = corrupt("dual_state", 500)
    print(reasons)
    assert sum(reasons.values()) == 500
    assert sum(n for what, n in reasons.items() if what.endswith("refused")) > 300


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "count"), [("specs/dual_state", 5_000), ("workflow", 4_000), ("examples/jugs", 1_000)]
)
def test_ten_thousand_corrupted_certificates_are_refused_or_true(name, count):
    reasons = corrupt(name, count)
    print(reasons)
    assert sum(reasons.values()) == count
