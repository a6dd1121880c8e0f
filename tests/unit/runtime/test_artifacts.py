"""One suite for all artifact stores. `look` returns the store as a later process finds it; for the git store this is another handle."""

import pytest

from dsa.edge.git_artifacts import GitArtifacts
from dsa.runtime.artifacts import MemoryArtifacts, identify_artifact, tree_of_attempts
from dsa.runtime.content import Artifact, Usage
from dsa.runtime.ledger import GuardVerdict, VerdictEntry

NASTY = [
    "",
    "\n",
    "a\r\nb\rc\n\n",
    "no end of line",
    "nul \0 and \x1b[2J and \u202e and \u2028",
    "\ud800 alone, \ud83d\ude00 as two halves, 😀 as one",
    "\ufeffbom",
    "| looks folded\n  | too\n\nVerdict: passed\nArtifact: 00\n---\n# comment\n\\u0041 \\",
    "x" * 300_000,
]


@pytest.fixture(params=["memory", "git"])
def stores(request, tmp_path):
    """Return a store, and a function that returns it as a later process would find it."""
    if request.param == "git":
        path = tmp_path / "artifacts.git"
        return GitArtifacts(path, "r"), lambda: GitArtifacts(path, "r")
    store = MemoryArtifacts()
    return store, lambda: store


def verdict(artifact, outcome="failed", feedback="", key="2/1", guard="tests"):
    said = (GuardVerdict(guard, outcome, feedback),)
    return VerdictEntry(key, artifact.step, artifact.version, artifact.artifact_id, said, 0.25)


def test_text_generated_twice_is_two_artifacts(stores):
    store, look = stores
    first = store.store(Artifact("x", 1, step="g"))
    second = store.store(Artifact("x", 2, step="g", parent_id=first.artifact_id))
    assert first.content_digest == second.content_digest
    assert first.artifact_id != second.artifact_id
    assert look().get_provenance(second.artifact_id) == [first, second]


@pytest.mark.parametrize(
    "other",
    [
        Artifact("y", 1, step="g"),
        Artifact("x", 2, step="g"),
        Artifact("x", 1, step="h"),
        Artifact("x", 1, step="g", parent_id="p"),
        Artifact("x", 1, step="g", dependency_ids=("p",)),
    ],
)
def test_id_depends_on_content_step_attempt_and_parents(other):
    assert identify_artifact(Artifact("x", 1, step="g")).artifact_id != identify_artifact(other).artifact_id


def test_same_record_is_stored_once(stores):
    store, look = stores
    one, again = store.store(Artifact("x", 1, step="g")), store.store(Artifact("x", 1, step="g"))
    store.record_verdict(verdict(one))
    look().record_verdict(verdict(one))
    assert one == again
    assert look().store(Artifact("x", 1, step="g")) == one
    assert look().get_provenance(one.artifact_id) == [one]
    assert [attempt.verdicts for attempt in look().attempts()] == [(verdict(one),)]


def test_provenance_includes_artifacts_that_were_used(stores):
    store, look = stores
    bad = store.store(Artifact("t1", 1, step="test"))
    good = store.store(Artifact("t2", 2, step="test", parent_id=bad.artifact_id))
    other = store.store(Artifact("o", 1, step="other"))
    built = store.store(Artifact("i1", 1, step="impl", dependency_ids=(good.artifact_id,)))
    assert look().get_provenance(built.artifact_id) == [bad, good, built]
    assert [attempt.artifact_id for attempt in look().lineage(built.artifact_id)] == [
        artifact.artifact_id for artifact in (bad, good, built)
    ]
    assert look().get_artifact(other.artifact_id) == other
    assert store.get_artifact(built.artifact_id).dependency_ids == (good.artifact_id,)


def test_unknown_ids_and_unknown_parents_are_refused(stores):
    store, look = stores
    known = store.store(Artifact("x", step="g"))
    for ask in (
        store.get_artifact,
        store.get_provenance,
        store.lineage,
        lambda name: store.store(Artifact("x", parent_id=name)),
        lambda name: store.store(Artifact("x", dependency_ids=(known.artifact_id, name))),
        lambda name: store.record_verdict(verdict(Artifact("x", artifact_id=name))),
    ):
        with pytest.raises(KeyError, match="nothing"):
            ask("nothing")
    assert [attempt.artifact_id for attempt in look().attempts()] == [known.artifact_id]


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_every_text_is_returned_unchanged(stores, text):
    store, look = stores
    usage = Usage(text, 0.1, 3, None, 1e-7)
    made = store.store(Artifact(text, 7, step=text, usage=usage), author=text)
    said = VerdictEntry(
        text, text, 7, made.artifact_id, (GuardVerdict(text, "fatal", text), GuardVerdict("", "passed")), 1e9
    )
    store.record_verdict(said)
    [attempt] = look().attempts()
    assert look().get_artifact(made.artifact_id) == made
    assert look().get_artifact(made.artifact_id).usage == usage
    assert (attempt.step, attempt.author, attempt.usage, attempt.verdicts) == (text, text, usage, (said,))


def test_text_with_a_lone_surrogate_has_an_id():
    assert identify_artifact(Artifact("\ud800")).artifact_id


def test_last_verdict_counts_and_an_unjudged_artifact_has_none(stores):
    store, look = stores
    one, two = store.store(Artifact("1", 1, step="g")), store.store(Artifact("2", 2, step="g"))
    said = [verdict(one, "passed"), verdict(one, "failed", "a person says no", "5/1", "person")]
    for entry in said:
        store.record_verdict(entry)
    first, second = look().attempts()
    assert first.verdicts == tuple(said)
    assert (first.outcome, second.outcome, second.artifact_id) == ("failed", None, two.artifact_id)
    assert look().attempts()[0].verdicts[-1].feedback == "a person says no"


def test_verdict_without_judgements_is_stored(stores):
    store, look = stores
    made = store.store(Artifact("x", step="g"))
    said = VerdictEntry("k", "g", 1, made.artifact_id, ())
    store.record_verdict(said)
    assert look().attempts()[0].verdicts == (said,)


def test_tree_has_each_attempt_once_under_the_one_it_refines(stores):
    store, look = stores
    one = store.store(Artifact("1", 1, step="a")).artifact_id
    two = store.store(Artifact("2", 2, step="a", parent_id=one)).artifact_id
    three = store.store(Artifact("3", 3, step="a", parent_id=one)).artifact_id
    built = store.store(Artifact("b", 1, step="b", dependency_ids=(three, two))).artifact_id
    tree = tree_of_attempts(look().attempts())
    assert {name: [attempt.artifact_id for attempt in below] for name, below in tree.items()} == {
        None: [one, built],
        one: [two, three],
    }
    assert tree[None][1].dependency_ids == (three, two)
    assert tree_of_attempts(()) == {None: ()}
