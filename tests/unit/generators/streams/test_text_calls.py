import pytest
from each_row import each_row

from dsa.generators.streams.offered_tools import read_tools
from dsa.generators.streams.text_calls import misplaced_call, recover, without_markers

TOOLS = read_tools(
    {
        "f": {"properties": {"x": {"type": "string"}, "y": {"type": "integer"}}},
        "g": {},
        "write": {"properties": {"text": {"type": "string"}}},
    }
)
CALL = '<tool_call>{"name": "f", "arguments": {"x": "1"}}</tool_call>'


def found(text, *, ended=True):
    return [(call.name, call.arguments, call.error) for call in recover(text, TOOLS, has_ended=ended).calls]


def test_text_between_calls_stays():
    recovered = recover(f"one {CALL} two {CALL} three", TOOLS, has_ended=True)
    assert len(recovered.calls) == 2
    assert recovered.rest == "one two three"


def test_code_fence_in_arguments_does_not_hide_the_next_call():
    text = '<tool_call>{"name": "write", "arguments": {"text": "```\\n`x`\\n"}}</tool_call>\n' + CALL
    assert [name for name, *_ in found(text)] == ["write", "f"]


def test_code_before_a_call_does_not_hide_it():
    assert found(f"Use `ls`, it`s fine:\n```sh\nls\n```\n{CALL}") == [("f", {"x": "1"}, None)]


def test_parameter_value_that_runs_into_the_next_is_an_error():
    text = "<function=f>\n<parameter=x>\n1\n<parameter=y>\n2\n</parameter>\n</function>"
    assert found(text) == [("f", None, "invalid_arguments")]


def test_value_may_mention_parameters_that_the_tool_does_not_have():
    text = "<function=write>\n<parameter=text>\n<parameter=city>\n</parameter>\n</function>"
    assert found(text) == [("write", {"text": "<parameter=city>"}, None)]


@pytest.mark.parametrize(
    "text",
    [
        "<function=f><parameter=x>1</parameter></function> and then </function>",
        "<function=f> </function>",
    ],
)
def test_text_after_a_call_does_not_matter(text):
    assert len(found(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "<function=f><parameter=x>1</parameter>",
        "<function=f>",
        "<tool_call>f\n<arg_key>x</arg_key>",
        '<tool_call>{"name": "f", "argu',
        '[TOOL_CALLS]f[ARGS]{"x": ',
    ],
)
def test_call_that_breaks_off_is_truncated(text):
    assert found(text, ended=False) == [("f", None, "truncated_arguments")]


def test_call_that_breaks_off_before_its_name_is_ignored():
    assert found('<tool_call>{"na', ended=False) == []


@pytest.mark.parametrize(
    "text", ['<tool_call>{"name": 5}</tool_call>', "<tool_call>5</tool_call>", "<tool_call></tool_call>"]
)
def test_tag_without_a_call_is_text(text):
    assert recover(text, TOOLS, has_ended=True).rest == text


def test_fence_without_a_call_stays_a_fence():
    for text in ("```\n<tool_call>\n```", '```json\n<tool_call>{"name": "rm"}</tool_call>\n```'):
        assert recover(text, TOOLS, has_ended=True).rest == text


def test_arguments_that_are_not_an_object_are_an_error_unless_empty():
    assert found('<tool_call>{"name": "f", "arguments": [1]}</tool_call>') == [("f", None, "invalid_arguments")]
    assert found('<tool_call>{"name": "f", "arguments": "no"}</tool_call>') == [("f", None, "invalid_arguments")]
    assert found('<tool_call>{"name": "f", "arguments": ""}</tool_call>') == [("f", {}, None)]
    assert found('<tool_call>{"name": "f"}</tool_call>') == [("f", {}, None)]


def test_calls_and_markers_are_removed_from_the_text():
    assert without_markers(f"one {CALL}", TOOLS) == "one"
    assert without_markers("one <tool_call>", TOOLS) == "one"
    assert without_markers("one < two", TOOLS) == "one < two"
    assert without_markers("  one  ", TOOLS) == "  one  "


MANY = 3_000
ENDLESS = {
    "openers": "<tool_call>" * MANY,
    "open objects": "<tool_call>{" * MANY,
    "nested": '<tool_call>{"a":' * MANY + "}" * MANY,
    "closers": '\n{"a": 1}</tool_call>' * MANY,
    "functions": "<function=f>" * MANY,
    "open parameters": "<function=f><parameter=x>" * MANY,
    "parameters without ends": "<function=f>" + "\n<parameter=x>\n1" * MANY,
    "many without ends": "<function=f>\n<parameter=x>\n1\n</function> x " * MANY,
    "glm": "<tool_call>f\n<arg_key>x</arg_key>" * MANY,
    "fences": "```\n" * (MANY + 1),
    "backticks": "` `` ``` " * MANY,
    "blanks": " " * MANY * 20 + "<tool_call>",
    "line breaks": "\n" * MANY * 20 + "</tool_call>",
    "fenced blanks": "```json\n" + " " * MANY * 20 + "x```",
    "escapes": '<tool_call>{"name": "f", "arguments": "' + '\\"' * MANY * 10,
    "python": "<tool_call>" + "{'a': " * MANY,
    "commas": "<tool_call>{" + ", " * MANY * 10 + "x}",
    "tokens": "<|tool_call_begin|>" * MANY,
    "mistral": "[TOOL_CALLS]f" * MANY,
    "thoughts": "</think>" * MANY,
    "values": "{}" * MANY,
    "brackets": "[" * MANY * 20,
}


@each_row("name", ENDLESS)
def test_recovery_does_not_rescan_the_text_from_each_marker(name):
    """These 60 kB take milliseconds. A scan from each marker to the end would take minutes."""
    recover(ENDLESS[name], TOOLS, has_ended=True)
    without_markers(ENDLESS[name], TOOLS)


CALL_LIKE = '{"name": "f", "arguments": {"x": "1"}}'


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"I call {CALL_LIKE}", "f"),
        (f"I call {CALL_LIKE} and show code:\n```\n1\n```\nThat is all.", "f"),
        (f"Like this:\n```\n{CALL_LIKE}\n```", "f"),
        (f"Like this:\n```\n{CALL_LIKE}\n```\nThat would call it.", ""),
    ],
    ids=["alone", "before a fence", "in the last fence", "in a fence with text after it"],
)
def test_misplaced_call_is_recognized_except_in_an_example(text: str, name: str):
    assert misplaced_call(text, TOOLS) == name
