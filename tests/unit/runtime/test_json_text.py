import json

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from dsa.runtime import json_text
from dsa.runtime.json_text import WrittenJson, _encoder, request_text, sorted_text_of, text_of, value_of

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
VALUES = [
    None,
    True,
    -0.0,
    1e300,
    10**30,
    "",
    '\ud800 \u20ac \0 " \\',
    [],
    {},
    {"b": [1, {"a": ()}], "a": None},
    [[1.5, "x"], {"": {"": []}}],
]


@each_row("value", VALUES, ids=repr)
def test_text_is_json_without_spaces(value):
    assert text_of(value) == json.dumps(value, separators=(",", ":"))
    assert sorted_text_of(value) == json.dumps(value, separators=(",", ":"), sort_keys=True)
    assert json.dumps(value_of(text_of(value))) == json.dumps(value)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("-inf"), object(), {(1, 2): 3}, [{"deep": {1, 2}}]],
    ids=["nan", "infinity", "object", "tuple as a key", "set"],
)
def test_value_outside_json_is_refused(value):
    with pytest.raises((TypeError, ValueError)):
        text_of(value)


def test_python_encoder_gives_the_same_text(monkeypatch):
    monkeypatch.setattr(json_text, "_make_encoder", None)
    for sort_keys, made in ((False, text_of), (True, sorted_text_of)):
        plain = _encoder(sort_keys=sort_keys)
        assert [plain(value) for value in VALUES] == [made(value) for value in VALUES]


@given(st.dictionaries(st.text(), json_values | st.lists(json_values)))
def test_request_body_decodes_to_its_input(body):
    assert json.loads(request_text(body)) == body
    written = {
        name: [WrittenJson({"of": each}) for each in value] for name, value in body.items() if isinstance(value, list)
    }
    assert json.loads(request_text(body | written)) == body | {
        name: [{"of": each} for each in value] for name, value in body.items() if isinstance(value, list)
    }


def test_body_with_nan_or_infinity_is_refused():
    for value in (float("nan"), [float("inf")], [{"deep": float("nan")}]):
        with pytest.raises(ValueError, match="not JSON compliant"):
            request_text({"value": value})
