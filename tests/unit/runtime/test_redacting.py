import attrs
import pytest

from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, GuardResult, Usage
from dsa.runtime.ledger import (
    ArtifactEntry,
    EventEntry,
    GuardVerdict,
    MachineEntry,
    ResultEntry,
    VerdictEntry,
    dump_line,
)
from dsa.runtime.policy.policies import (
    Action,
    RedactingArtifacts,
    Step,
    fail_redacted,
    flag_redacted,
    redact_action,
    redact_entry,
    redact_step,
    reject_redacted,
)
from dsa.runtime.secrets import Secrets

SECRETS = Secrets({"WORD": 'open"sesame'}, ())
WORD, MARK = 'open"sesame', "[secret WORD]"


def test_step_is_redacted_in_all_its_parts_or_returned_unchanged():
    clean = Step("1", "a", "text", {"text": "fine"})
    assert redact_step(SECRETS, clean) is clean
    step = Step(WORD, WORD, WORD, {WORD: [WORD, {"a": f"x{WORD}y"}]})
    assert redact_step(SECRETS, step) == Step(MARK, MARK, MARK, {MARK: [MARK, {"a": f"x{MARK}y"}]})


def test_redacted_request_has_the_same_digest_after_a_key_change():
    action = Action("get", {"key": WORD}, frozenset({"x"}))
    other = Secrets({"WORD": "changed!"}, ())
    assert redact_action(SECRETS, action) == Action("get", {"key": MARK}, frozenset({"x"}))
    rotated = redact_action(other, Action("get", {"key": "changed!"}, frozenset({"x"})))
    assert redact_action(SECRETS, action).digest == rotated.digest
    assert redact_action(other, action) is action


@pytest.mark.parametrize("entry", [
    MachineEntry("r", "m", "d", {"n": 1}, {"file": f"/home/{WORD}/x.md", "seed": 0}),
    EventEntry(1, "e", {"g": "passed"}, None, {WORD: [WORD]}, "1/1"),
    ResultEntry("1/1", [{"id": "1", "actor": "a", "type": "t", "payload": {"text": WORD}}], 0.5),
    ArtifactEntry("1/1", "g", 1, "id", "digest", ("p",), f"by {WORD}", WORD, 0.5, 3, None, 0.1, WORD),
    VerdictEntry("1/1", "g", 1, "id", [GuardVerdict("g", "failed", f"not {WORD}"), GuardVerdict("h", "passed")], 0.5),
])  # fmt: skip
def test_entry_is_redacted_wherever_it_has_texts(entry):
    clean = redact_entry(SECRETS, entry)
    assert type(clean) is type(entry)
    assert "sesame" not in dump_line(clean)
    assert MARK in dump_line(clean)
    assert redact_entry(SECRETS, clean) is clean


def test_entry_with_nan_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        redact_entry(SECRETS, ArtifactEntry("k", "s", 1, "a", "d", seconds=float("nan")))


def test_text_is_stored_without_secrets_and_marked_as_redacted():
    inner = MemoryArtifacts()
    store = RedactingArtifacts(inner, SECRETS)
    given = Artifact(f"key = {WORD}", step="g", usage=Usage(f"m-{WORD}", 1.0, response_model=WORD))
    stored = store.store(given, f"by {WORD}")
    assert (stored.content, stored.redacted) == (f"key = {MARK}", ("WORD",))
    assert stored.usage == Usage(f"m-{MARK}", 1.0, response_model=MARK)
    assert inner.get_artifact(stored.artifact_id) == stored == store.get_artifact(stored.artifact_id)
    assert store.store(given, f"by {WORD}").artifact_id == stored.artifact_id
    (attempt,) = store.attempts()
    assert (attempt.author, attempt.redacted, attempt.content_digest) == (
        f"by {MARK}",
        ("WORD",),
        stored.content_digest,
    )
    store.record_verdict(VerdictEntry("k", "g", 1, stored.artifact_id, [GuardVerdict("g", "failed", WORD)]))
    assert store.attempts()[0].verdicts[0].feedback == MARK
    assert store.get_provenance(stored.artifact_id) == [stored]
    assert [each.artifact_id for each in store.lineage(stored.artifact_id)] == [stored.artifact_id]


def test_artifact_entry_names_the_secrets_that_its_text_had():
    entry = ArtifactEntry("k", "g", 1, "id", "d")
    assert flag_redacted(entry, Artifact("fine")) is entry
    assert flag_redacted(entry, Artifact(f"a {MARK}")) == attrs.evolve(entry, redacted=("WORD",))


def test_text_that_had_secrets_passes_no_guard():
    text, clean = Artifact(f"a {MARK}"), Artifact("a")
    passed = GuardResult(passed=True)
    assert reject_redacted(passed, clean) is passed
    result = reject_redacted(passed, text)
    assert (result.passed, result.fatal) == (False, False)
    assert result.feedback.startswith("The text contains a secret (WORD), which must not be in it")
    failed = reject_redacted(GuardResult(passed=False, feedback="not this"), Artifact(f"{MARK} [secret B]"))
    assert failed.feedback.startswith("not this\nThe text contains secrets (B, WORD)")
    assert reject_redacted(GuardResult(passed=False, fatal=True), text).fatal


def test_verdict_of_a_person_on_redacted_text_is_unchanged():
    said = [GuardVerdict("g", "passed"), GuardVerdict("person", "passed"), GuardVerdict("h", "fatal", "no")]
    entry = fail_redacted(VerdictEntry("k", "g", 1, "id", said), ("WORD",))
    assert [(each.guard, each.outcome) for each in entry.judgements] == [
        ("g", "failed"),
        ("person", "passed"),
        ("h", "fatal"),
    ]
    assert "WORD" in entry.judgements[0].feedback
