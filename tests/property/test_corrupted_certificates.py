"""Corrupted certificates: each is refused, or what it still claims is true.

The claims of one that is accepted are recomputed here by other code, and must be true of the machine it carries.
"""

import copy
import hashlib
import json
import random
from itertools import product

import pytest
from claims_truth import comes_to_rest, is_guarded, stuck, walked, with_spec, written

from dsa.checks.certificate_proofs import require_same_steps
from dsa.checks.certificate_writer import FAULTLESS, Certifier, behaviour, certify_proofs, certify_verdicts
from dsa.checks.proof.prover import judge_at, prove
from dsa.checks.report import check
from dsa.errors import ParameterError
from dsa.kernel import DEFINITION_4, NO_DEADLOCK, REST, TABLE, Claim, verify
from dsa.lang import dumps, read_machine
from dsa.machine import Machine
from dsa.system import closed_system


def certificate_of(name: str) -> dict:
    """Certify all that is proved, and all that holds at the defaults and minima."""
    machine = with_spec(name)
    about, text, _ = written(machine)
    certifier = Certifier(about, text)
    certify_proofs(certifier, prove(machine))
    certify_verdicts(certifier, check(machine))
    return certifier.draft().certificate


def places(value, path=()):
    """Return every place in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def at_place(value, path):
    for key in path:
        value = value[key]
    return value


def corrupted(certificate: dict, random: random.Random) -> tuple[str, str]:
    """Change one thing in a certificate of one of the claims; return the text, and what kind of change it was."""
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
    """Change, drop, double or swap the value at a key of a JSON object or array."""
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
    """Return why it is right that this certificate is accepted; fails when there is no reason."""
    content = json.loads(text)
    if set(sentences) <= original:
        return "it says nothing that the original does not say"
    machine = read_machine(content["machine"], "certificate").machine
    if machine is None:
        return "its table is not a valid document, so the certificate has no claims about any machine"
    for claim, sentence in zip(content["claims"], sentences[1:], strict=True):
        try:
            everywhere = list(valuations(machine, claim.get("at")))
        except ParameterError:
            return "it names a value that its parameter does not have, so the certificate has no claims"
        forms = read_forms(content["machine"], claim)
        if not forms:
            return "its claim is not a sentence of the language, so the certificate has no claims"
        assert all(is_true(there, form, claim) for there in everywhere for form in forms), sentence
    return "its claims are true of the machine it carries"


def read_forms(text: str, claim: dict) -> list:
    """Return the properties that a claim spells, or what the kernel knows by a text."""
    if claim["form"] in {FAULTLESS, NO_DEADLOCK, REST, DEFINITION_4, TABLE}:
        return [claim["form"]]
    said = claim["form"].format(*claim["parts"])
    read = read_machine(f"{text}\n## Properties\n\n- {said}\n", "certificate").machine
    return [] if read is None else [declared.form for declared in read.properties]


def is_true(machine: Machine, form, claim: dict) -> bool:
    """Judge a claim by other code than the kernel's, at the machine's parameter values."""
    if form == TABLE:  # of this machine, whose code is here
        return require_same_steps(machine, Claim(dumps(behaviour(machine)), claim)) is None
    if form == DEFINITION_4:
        return is_guarded(machine)
    known = walked(machine, 20_000)
    if not isinstance(known, set):
        return False
    if form == NO_DEADLOCK:
        return not any(stuck(machine, here) for here in known)
    if form == REST:
        return comes_to_rest(machine, known)
    return form == FAULTLESS or judge_at(closed_system(machine), form, 20_000).verdict == "HOLDS"


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


def test_corrupted_certificate_is_refused_or_still_true():
    reasons = corrupt("dual_state", 500)
    print(reasons)
    assert sum(reasons.values()) == 500
    assert sum(n for what, n in reasons.items() if what.endswith("refused")) > 300


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "count"), [("specs/dual_state", 5_000), ("workflow", 4_000), ("examples/jugs", 1_000)]
)
def test_ten_thousand_corrupted_certificates_are_refused_or_still_true(name, count):
    reasons = corrupt(name, count)
    print(reasons)
    assert sum(reasons.values()) == count


#: Properties that the shipped dual_state breaks, or of which nothing is true.
FALSE_CLAIMS = (
    ("always {}", "retries < rmax"), ("always {}", "idle"), ("always {}", "false"), ("never {}", "failed"), ("never {}", "g.fatal"),
    ("never {}", "retries == rmax and validating"), ("possible {}", "succeeded and not satisfied"), ("possible {}", "failed and retries > rmax"),
    ("possible {}", "false"), ("from everywhere possible {}", "succeeded"), ("from everywhere possible {}", "idle"),
    ("{} leads to {}", "specification", "succeeded"), ("{} leads to {}", "verdict", "escalated"), ("{} leads to {}", "true", "false"),
    ("{} leads to {} assuming fair {}", "specification", "succeeded", "artifact"), ("{} only after {}", "failed", "escalated"),
    ("{} only after {}", "query_llm", "g.failed"), ("at most {} {}", "rmax", "query_llm"), ("at most {} {}", "0", "verdict"),
    ("at most {} {}", "rmax - 1", "execute_guard"), ("at most {} {} between {} and {}", "0", "verdict", "specification", "succeeded"),
    ("on {}: {} unchanged", "verdict", "retries"), ("on {}: {} unchanged", "g.passed", "satisfied, retries"),
)  # fmt: skip


def test_false_claim_is_refused_with_any_evidence():
    assert bent(1, 600) == 600


@pytest.mark.full
def test_ten_thousand_false_claims_are_refused_with_any_evidence():
    assert bent(2, 10_000) == 10_000


def bent(seed: int, count: int) -> int:
    """Claim what is false with the evidence of true claims, often bent; return how many such certificates were refused."""
    certificate, source, refused = certificate_of("dual_state"), random.Random(seed), 0
    machine = read_machine(certificate["machine"], "certificate").machine
    assert machine is not None
    small = [machine.at(rmax=rmax) for rmax in (0, 1, 2)]
    for form, *parts in FALSE_CLAIMS:  # each of them is false at one value at least
        (claim,) = read_forms(certificate["machine"], {"form": form, "parts": parts}) or [None]
        assert claim is not None, (form, parts)
        assert not all(is_true(there, claim, {}) for there in small), (form, parts)
    for _ in range(count):
        form, *parts = source.choice(FALSE_CLAIMS)
        donor, other = source.choice(certificate["claims"]), source.choice(certificate["claims"])
        spoilt = copy.deepcopy({"form": form, "parts": parts, "proofs": donor["proofs"]})
        spoilt |= {
            name: copy.deepcopy(each[name]) for each in (other, donor) for name in ("lemmas", "ranks") if name in each
        }
        if "at" in donor and source.random() < 0.3:
            spoilt["at"] = {"rmax": source.choice(["1", "2"])}
        for _ in range(source.randrange(4)):
            inner = [path for path in places(spoilt) if len(path) > 1 and path[0] in {"lemmas", "ranks", "proofs"}]
            if inner:
                path = source.choice(inner)
                changed(at_place(spoilt, path[:-1]), path[-1], source)
        text = json.dumps(certificate | {"claims": [spoilt]})
        try:
            said = list(verify(text))
        except Exception:  # noqa: BLE001  (whatever it raises is a refusal)
            refused += 1
        else:
            at = spoilt.get("at")
            here = small if at is None else [machine.at(rmax=int(at["rmax"]))]
            (claim,) = read_forms(certificate["machine"], spoilt)
            assert all(is_true(there, claim, {}) for there in here), said
            refused += 1  # at this value it is true
    return refused
