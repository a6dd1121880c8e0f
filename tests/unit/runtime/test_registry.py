import pytest

from dsa.errors import BindingError
from dsa.runtime.policy.policies import Action
from dsa.runtime.policy.policy_registry import Registry

QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string", "minLength": 1}, "limit": {"$ref": "#/$defs/count"}},
    "required": ["query"],
    "additionalProperties": False,
    "$defs": {"count": {"type": "integer", "minimum": 1}},
}


async def search(action, context):
    """Search the files.

    At length.
    """
    return []


@pytest.fixture
def registry():
    found = Registry()
    found.register("search", schema=QUERY)(search)
    found.register("say", "Say it.", actions=["search"])(search)
    return found


def test_policy_is_found_by_name_with_its_description_and_actions(registry):
    assert (registry["search"].policy, registry["search"].description) == (search, "Search the files.")
    assert (registry["say"].description, registry["say"].actions) == ("Say it.", {"search"})
    assert (list(registry), len(registry), "say" in registry, "sing" in registry) == (["search", "say"], 2, True, False)
    assert list(Registry({"a": search, "b": search})) == ["a", "b"]


def test_unregistered_name_gets_a_suggestion(registry):
    with pytest.raises(BindingError, match=r"no policy 'serach' is registered\n.*did you mean 'search'"):
        registry["serach"]


@pytest.mark.parametrize(
    ("payload", "where", "why"),
    [
        ({}, "$", "'query' is a required property"),
        ({"query": 5}, "$.query", "5 is not of type 'string'"),
        ({"query": "x", "limit": 0}, "$.limit", "0 is less than the minimum of 1"),
        ({"query": "x", "colour": 1}, "$", "'colour' was unexpected"),
    ],
)
def test_invalid_payload_is_an_error_step_with_place_and_reason(registry, payload, where, why):
    step = registry.fault(Action("search", payload))
    assert (step.actor, step.type) == ("search", "action_result")
    assert step.payload["error"] is True
    assert step.payload["code"] == "INVALID_PAYLOAD"
    assert step.payload["where"] == where
    assert why in step.payload["message"]


def test_valid_payload_has_no_fault(registry):
    assert registry.fault(Action("search", {"query": "x", "limit": 3})) is None
    assert registry.fault(Action("say", {"anything": [1]})) is None


def test_long_payload_is_not_repeated_in_the_message(registry):
    step = registry.fault(Action("search", {"query": ["x" * 5000]}))
    assert len(step.payload["message"]) < 400


def test_tools_are_sorted_and_in_the_openai_format(registry):
    assert registry.tools({"search", "say"}) == [
        {"type": "function", "function": {"name": "say", "description": "Say it.", "parameters": {"type": "object"}}},
        {
            "type": "function",
            "function": {"name": "search", "description": "Search the files.", "parameters": QUERY},
        },
    ]
    with pytest.raises(BindingError, match="no policy 'sing'"):
        registry.tools(["sing"])
    registry.register("a.b")(search)
    with pytest.raises(ValueError, match=r"'a\.b' cannot be a tool"):
        registry.tools(["a.b"])


@pytest.mark.parametrize("policy", [None, "search", dict])
def test_invalid_policy_is_not_registered(registry, policy):
    with pytest.raises(BindingError, match="not an async function"):
        registry.register("new")(policy)


def test_name_can_be_registered_only_once(registry):
    with pytest.raises(BindingError, match="there is already a policy 'say'"):
        registry.register("say")(search)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "objekt"}, r"at \$\.type: 'objekt' is not valid"),
        ({"properties": {"a": {"$ref": "#/$defs/no"}}}, "refers to '#/.defs/no', which the schema does not contain"),
        ({"items": [{"$ref": "https://example.org/schema"}], "type": "object"}, "is not a valid JSON Schema"),
        ({"allOf": [{"$ref": "https://example.org/schema"}]}, "refers to 'https://example.org/schema'"),
    ],
)
def test_invalid_schema_and_external_reference_are_refused(registry, schema, why):
    with pytest.raises(BindingError, match=why):
        registry.register("new", schema=schema)


def test_unregistered_name_is_reported_with_known_names(registry):
    with pytest.raises(BindingError, match=r"hint: did you mean 'search'\?$"):
        registry["serach"]
    with pytest.raises(BindingError, match=r"hint: known here: 'say', 'search'$"):
        registry["xyz"]
    with pytest.raises(BindingError, match=r"hint: none are known here$"):
        Registry()["xyz"]


def test_in_doubt_setting_is_declared_at_registration(registry):
    registry.register("pay", in_doubt="ask")(search)
    assert [registry[name].in_doubt for name in ("search", "pay")] == ["retry", "ask"]
    with pytest.raises(BindingError, match="in_doubt of 'mail' is 'done'; it must be one of retry, ask, fail"):
        registry.register("mail", in_doubt="done")


def test_union_prefers_the_first_registry(registry):
    async def other(action, context):
        return []

    both = registry.union(Registry({"say": other, "sing": other}))
    assert {name: both[name].policy for name in both} == {"search": search, "say": search, "sing": other}
    assert both["say"].actions == {"search"}
    assert (len(registry), len(both)) == (2, 3)
