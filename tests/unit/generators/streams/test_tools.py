import pytest
from each_row import each_row

from dsa.generators.streams.offered_tools import read_tools

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "maybe": {"type": ["string", "null"]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "one": {"enum": ["1", "2"]},
        "open": {},
    },
}


class Described:
    """A tool as MCP's package returns it."""

    def model_dump(self):
        return {"name": "f", "inputSchema": SCHEMA}


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        [{"name": "f", "input_schema": SCHEMA}],
        {"f": SCHEMA},
        [Described()],
        read_tools({"f": SCHEMA}),
    ],
)
def test_tools_are_read_in_many_forms(tools):
    read = read_tools(tools)
    assert "f" in read
    assert read.parameters("f") == set(SCHEMA["properties"])
    values = {name: read.parse_value("f", name, "1") for name in SCHEMA["properties"]}
    assert values == {"text": "1", "count": 1, "maybe": "1", "either": 1, "one": "1", "open": 1}


def test_tool_names_alone_are_enough():
    read = read_tools(["f", "g"])
    assert "g" in read
    assert not read_tools(None)
    assert read.parameters("f") == frozenset()


@pytest.mark.parametrize("tools", ["f", 5, [5], [{"type": "function"}], [{"name": 5}]])
def test_value_that_is_not_a_tool_is_refused(tools):
    with pytest.raises(TypeError, match="a tool is a name"):
        read_tools(tools)


@each_row(
    ("text", "value"),
    [
        ("5", 5), (" true ", True), ("True", True), ("None", None), ('{"a": 1}', {"a": 1}), ("{'a': 1}", {"a": 1}), ("[1]", [1]),
        ("Paris", "Paris"), ("{x", "{x"), ('"Paris"', '"Paris"'), ("", ""), ("1.5", 1.5), ("[" * 100_000, "[" * 100_000),
    ],
)  # fmt: skip
def test_untyped_value_is_read_as_json_where_possible(text, value):
    assert read_tools(["f"]).parse_value("f", "x", text) == value


def test_repeated_name_is_read_once():
    read = read_tools(["ab", "abab", "c"])
    assert [read.once(name) for name in ("ab", "abab", "ababab", "cc", "d", "")] == ["ab", "abab", "ab", "c", "d", ""]


def test_name_may_arrive_in_pieces():
    read = read_tools(["get_weather"])
    assert read.goes_on("get_", "wea")
    assert not read.goes_on("get_", "time")
    assert not read.goes_on("get_weather", "")
