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


def test_a_policy_is_found_under_its_name_with_all_that_was_said_of_it(registry):
    assert (registry["search"].policy, registry["search"].description) == (search, "Search the files.")
    assert (registry["say"].description, registry["say"].actions) == ("Say it.", {"search"})
    assert (list(registry), len(registry), "say" in registry, "sing" in registry) == (["search", "say"], 2, True, False)
    assert list(Registry({"a": search, "b": search})) == ["a", "b"]


def test_a_name_that_is_not_registered_is_told_with_the_one_that_was_meant(registry):
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
def test_a_payload_that_breaks_the_schema_is_an_error_step_that_says_where_and_why(registry, payload, where, why):
    step = registry.fault(Action("search", payload))
    assert (step.actor, step.type) == ("search", "action_result")
    assert step.payload["error"] is True
    assert step.payload["code"] == "INVALID_PAYLOAD"
    assert step.payload["where"] == where
    assert why in step.payload["message"]


def test_a_payload_that_keeps_to_the_schema_has_no_fault(registry):
    assert registry.fault(Action("search", {"query": "x", "limit": 3})) is None
    assert registry.fault(Action("say", {"anything": [1]})) is None


def test_what_a_model_wrote_is_not_repeated_at_length(registry):
    step = registry.fault(Action("search", {"query": ["x" * 5000]}))
    assert len(step.payload["message"]) < 400


def test_tools_are_in_openais_format_and_sorted(registry):
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
def test_what_is_no_policy_is_not_registered(registry, policy):
    with pytest.raises(BindingError, match="not an async function"):
        registry.register("new")(policy)


def test_a_name_is_registered_once(registry):
    with pytest.raises(BindingError, match="there is already a policy 'say'"):
        registry.register("say")(search)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "objekt"}, r"at \$\.type: 'objekt' is not valid"),
        ({"properties": {"a": {"$ref": "#/$defs/no"}}}, "refers to '#/.defs/no', which is not in it"),
        ({"items": [{"$ref": "https://example.org/schema"}], "type": "object"}, "is not a valid JSON Schema"),
        ({"allOf": [{"$ref": "https://example.org/schema"}]}, "refers to 'https://example.org/schema'"),
    ],
)
def test_a_schema_that_is_none_or_needs_another_is_refused(registry, schema, why):
    with pytest.raises(BindingError, match=why):
        registry.register("new", schema=schema)


def test_what_there_is_is_told_with_a_name_that_is_not_registered(registry):
    with pytest.raises(BindingError, match=r"hint: did you mean 'search'\?$"):
        registry["serach"]
    with pytest.raises(BindingError, match=r"hint: known here: 'say', 'search'$"):
        registry["xyz"]
    with pytest.raises(BindingError, match=r"hint: none are known here$"):
        Registry()["xyz"]


def test_what_is_done_about_a_call_in_doubt_is_declared(registry):
    registry.register("pay", in_doubt="ask")(search)
    assert [registry[name].in_doubt for name in ("search", "pay")] == ["retry", "ask"]
    with pytest.raises(BindingError, match="in_doubt of 'mail' is 'done'; it must be one of retry, ask, fail"):
        registry.register("mail", in_doubt="done")


def test_of_a_name_that_two_registries_have_the_first_one_counts(registry):
    async def other(action, context):
        return []

    both = registry.union(Registry({"say": other, "sing": other}))
    assert {name: both[name].policy for name in both} == {"search": search, "say": search, "sing": other}
    assert both["say"].actions == {"search"}
    assert (len(registry), len(both)) == (2, 3)
