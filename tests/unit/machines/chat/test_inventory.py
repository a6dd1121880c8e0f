import attrs
import pytest
from chat_ledgers import things
from hypothesis import given
from hypothesis import strategies as st

from machines.chat.conversation import MOST_DESCRIBED, Inventory, NewArtifact


def made(name="a.csv", content="1", key="sql:1", equal_to=None):
    return NewArtifact(name, "csv", content, 10, key, equal_to)


def added(inventory, *given_things):
    return [inventory.add(each, call_id="c1", producer="sql", created_at="then") for each in given_things]


def taken(inventory, given_things):
    """Add new artifacts as the conversation does: each content once."""
    for each in inventory.compare(given_things):
        if each.equal_to is None:
            added(inventory, each)
        else:
            inventory.alias(each)


def test_artifact_description_has_all_fields_for_the_model():
    (artifact,) = added(Inventory(), made())
    assert artifact.description() == {
        "artifact_id": "a1", "name": "a.csv", "type": "csv", "created_at": "then", "source_call_id": "c1", "producer": "sql",
        "logical_key": "sql:1",
    }  # fmt: skip


def test_new_content_under_the_same_key_is_the_next_version():
    inventory = Inventory()
    versions = [each.version for each in added(inventory, made(), made(content="2"), made(content="3", key="sql:2"))]
    assert versions == [1, 2, 1]
    assert [each.description().get("version") for each in inventory] == [None, 2, None]


def test_same_content_under_another_name_is_an_alias_with_its_reason():
    inventory = Inventory()
    added(inventory, made())
    artifact = inventory.alias(made("b.csv", equal_to="a1"))
    assert artifact.aliases == (("b.csv", "duplicate_artifact_prevented: it has the same content as a1 (a.csv)"),)
    assert artifact.description()["also_named"] == ["b.csv"]
    assert inventory["a1"] == inventory.by_name("b.csv") == artifact
    assert (len(inventory), artifact.version) == (1, 1)


@pytest.mark.parametrize("name", ["a.csv", "b.csv"])
def test_known_name_is_not_added_as_an_alias_again(name):
    inventory = Inventory()
    added(inventory, made())
    inventory.alias(made("b.csv", equal_to="a1"))
    inventory.alias(made(name, equal_to="a1"))
    assert [alias for alias, _ in inventory["a1"].aliases] == ["b.csv"]


def test_alias_of_a_missing_artifact_raises_a_key_error():
    with pytest.raises(KeyError):
        Inventory().alias(made(equal_to="a1"))


def test_name_finds_its_newest_artifact_and_an_id_its_own():
    inventory = Inventory()
    added(inventory, made(), made(content="2"))
    assert inventory.by_name("a.csv").artifact_id == "a2"
    inventory.alias(made(equal_to="a1"))
    assert inventory.by_name("a.csv").artifact_id == "a1"
    assert inventory.by_name("a2").artifact_id == "a2"
    assert inventory.by_name("b.csv") is None


def test_new_artifacts_are_compared_with_the_inventory_and_each_other():
    inventory = Inventory()
    added(inventory, made())
    found = inventory.compare([made("b"), made("c", "2"), made("d", "3"), made("e", "3"), made("f", "2"), made("g")])
    assert [each.equal_to for each in found] == ["a1", None, None, "a3", "a2", "a1"]
    assert [each.artifact_id for each in inventory] == ["a1"]


@given(st.lists(st.lists(things, max_size=4), max_size=6))
def test_content_is_stored_once_under_all_its_names(results):
    inventory = Inventory()
    for each in results:
        taken(inventory, each)
    made_ever = [each for result in results for each in result]
    assert [each.digest for each in inventory] == list(dict.fromkeys(each.digest for each in made_ever))
    assert [each.artifact_id for each in inventory] == [f"a{number}" for number in range(1, len(inventory) + 1)]
    for artifact in inventory:
        names = [artifact.name, *(name for name, _ in artifact.aliases)]
        assert names == list(dict.fromkeys(each.name for each in made_ever if each.digest == artifact.digest))
        assert inventory.equal(artifact.digest) == inventory[artifact.artifact_id] == artifact
    for name in {each.name for each in made_ever}:
        assert inventory.by_name(name).digest == [each.digest for each in made_ever if each.name == name][-1]
    for key in {each.logical_key for each in inventory}:
        versions = [each.version for each in inventory if each.logical_key == key]
        assert versions == list(range(1, len(versions) + 1))


def test_newest_artifacts_are_described_oldest_first():
    inventory = Inventory()
    added(inventory, *(made(content=str(number)) for number in range(MOST_DESCRIBED + 2)))
    assert [each["artifact_id"] for each in inventory.descriptions()] == [f"a{n}" for n in range(3, MOST_DESCRIBED + 3)]


@given(things)
def test_new_artifact_can_be_written_and_read_back(each):
    assert NewArtifact(**attrs.asdict(each)) == each
