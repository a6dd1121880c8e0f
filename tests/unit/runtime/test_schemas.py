"""Schemas of payloads: the faults they find, and payloads made to be slow."""

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from dsa.runtime.policy.policy_registry import MOST_WORK, PayloadSchema

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from((0.0, 1.0, 1.5)) | st.text("ab1", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(("a", "b", "ab", "1")), inner, max_size=3)
    ),
    max_leaves=8,
)
PAIRS = {
    "$defs": {"pair": {"properties": {"a": {"$ref": "#/$defs/pair"}, "b": {"uniqueItems": True}}}},
    "$ref": "#/$defs/pair",
}
SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a+$"}}, "additionalProperties": {"type": "integer"}},
    {"patternProperties": {"^a": {"type": "array"}, "[0-9]$": {"type": "boolean"}}, "additionalProperties": False},
    {"properties": {"a": {"uniqueItems": True}, "b": {"uniqueItems": False}}},
    PAIRS,
    {"anyOf": [{"required": ["a"], "properties": {"a": {"enum": [1, "a"]}}}, {"not": {"required": ["b"]}}]},
    {"properties": {"a": {"multipleOf": 0.5}, "b": {"contains": {"type": "integer"}, "minContains": 2}}},
    {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": {"type": "integer"}},
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
@given(payload=st.dictionaries(st.sampled_from(("a", "b", "ab", "1")), JSON, max_size=3))
def test_payload_is_valid_exactly_when_jsonschema_accepts_it(schema, payload):
    assert (PayloadSchema(schema).fault(payload) is None) == Draft202012Validator(schema).is_valid(payload)


def _nested(depth, inner):
    for _ in range(depth):
        inner = {"a": inner}
    return inner


TRIED_TWICE = {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": [name]} for name in ("x", "y")]}


@each_row(
    ("schema", "payload", "why"),
    [
        ({"properties": {"a": {"pattern": "^([a-zA-Z0-9]+\\.?)+@example\\.com$"}}}, {"a": "a" * 50_000 + "!"}, "does not match"),
        ({"patternProperties": {"^(a+)+$": False}}, {"a" * 50_000 + "!": 1}, ""),
        ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {"a" * 50_000 + "!": 1}, "unexpected"),
        ({"propertyNames": {"pattern": "^(a|aa)+$"}}, {"a" * 50_000 + "!": 1}, "does not match"),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(30_000)]}, ""),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [n * (2**61 - 1) for n in range(30_000)]}, ""),
        (TRIED_TWICE, _nested(60, {}), "could not be checked against its schema"),
        ({**TRIED_TWICE, "$schema": "https://json-schema.org/draft/2020-12/schema"}, _nested(60, {}), "could not be checked"),
        ({"properties": {"a": {"items": {"enum": list(range(9_000))}}}}, {"a": [-1] * 9_000}, "could not be checked"),
        ({"properties": {"a": {"unevaluatedItems": False, "prefixItems": [True]}}}, {"a": [1] * 9_000}, "could not be checked"),
        ({"unevaluatedProperties": False}, {f"k{n}": n for n in range(9_000)}, "could not be checked"),
        ({"properties": {"a": {"items": {"type": "string"}}}}, {"a": [["x" * 10_000]] * 9_000}, "could not be checked"),
        ({"$ref": "#"}, {"a": 1}, "nested too deeply"),
        ({"properties": {"a": {"$ref": "#"}}}, _nested(199, 1), "nested too deeply"),
        ({"properties": {"a": {"multipleOf": 0.5}}}, {"a": 10**400}, ""),
        ({"properties": {"a": {"multipleOf": 1.5}}}, {"a": 10**400}, "is not a multiple of"),
    ],
)  # fmt: skip
def test_payload_made_to_be_slow_is_judged_or_refused(schema, payload, why):
    fault = PayloadSchema(schema).fault(payload)
    assert (fault is not None) == bool(why)
    if fault is not None:
        assert why in fault.why
        assert len(fault.why) + len(fault.where) < 700


def test_large_ordinary_payload_is_judged():
    record = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name"],
    }
    schema = PayloadSchema({"properties": {"people": {"type": "array", "items": record}}})
    people = [{"name": f"Ann {number}", "age": number} for number in range(10_000)]
    assert schema.fault({"people": people}) is None
    assert (schema.fault({"people": [*people, {"age": 1}]}) or people).where == "$.people[10000]"
    assert MOST_WORK == 300_000  # the size that docs/how-to/policies.md states


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (
            {"properties": {"a": {"pattern": "(?=a)b"}}},
            r"has a pattern that cannot be used: '\(\?=a\)b' is not .* allOf",
        ),
        ({"patternProperties": {"(a)\\1": True}}, "has a pattern that cannot be used"),
        ({"patternProperties": {"a": True}, "unevaluatedProperties": False}, "unevaluatedProperties together with"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#"},
            "has the dialect 'http://json-schema.org/draft-07/schema#'",
        ),
        ({"$defs": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}, "only https://json"),
        ({"type": "objekt"}, r"is not a valid JSON Schema: at \$\.type"),
        ({"$ref": "other.json"}, "refers to 'other.json'"),
    ],
)
def test_unsupported_schema_is_refused(schema, why):
    with pytest.raises(ValueError, match=why):
        PayloadSchema(schema)


def test_schema_keyword_inside_a_value_is_plain_data():
    value = {"$schema": "x", "pattern": "(?=a)", "$ref": "y"}
    schema = PayloadSchema(
        {"properties": {"a": {"const": value}, "$schema": {"type": "string"}, "pattern": {"type": "integer"}}}
    )
    assert schema.fault({"a": value, "$schema": "z", "pattern": 1}) is None
    assert (schema.fault({"pattern": "x"}) or value).where == "$.pattern"
