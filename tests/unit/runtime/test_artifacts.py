import pytest

from dsa.runtime.artifacts import MemoryArtifacts, identified
from dsa.runtime.content import Artifact


def test_a_text_that_is_said_twice_is_two_artifacts():
    store = MemoryArtifacts()
    first = store.store(Artifact("x", 1, step="g"))
    second = store.store(Artifact("x", 2, step="g", parent_id=first.artifact_id))
    assert first.content_digest == second.content_digest
    assert first.artifact_id != second.artifact_id
    assert store.get_provenance(second.artifact_id) == [first, second]


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
def test_the_id_addresses_content_step_attempt_and_parents(other):
    assert identified(Artifact("x", 1, step="g")).artifact_id != identified(other).artifact_id


def test_the_same_record_is_stored_once():
    store = MemoryArtifacts()
    one, again = store.store(Artifact("x", 1, step="g")), store.store(Artifact("x", 1, step="g"))
    assert one == again
    assert store.get_provenance(one.artifact_id) == [one]


def test_provenance_crosses_to_the_artifacts_that_were_used():
    store = MemoryArtifacts()
    bad = store.store(Artifact("t1", 1, step="test"))
    good = store.store(Artifact("t2", 2, step="test", parent_id=bad.artifact_id))
    other = store.store(Artifact("o", 1, step="other"))
    built = store.store(Artifact("i1", 1, step="impl", dependency_ids=(good.artifact_id,)))
    assert store.get_provenance(built.artifact_id) == [bad, good, built]
    assert store.get_artifact(other.artifact_id) == other


def test_unknown_ids_and_unknown_parents_are_refused():
    store = MemoryArtifacts()
    with pytest.raises(KeyError):
        store.get_artifact("nothing")
    with pytest.raises(KeyError):
        store.get_provenance("nothing")
    with pytest.raises(KeyError):
        store.store(Artifact("x", parent_id="nothing"))


def test_text_that_is_no_unicode_has_an_identity_too():
    assert identified(Artifact("\ud800")).artifact_id
