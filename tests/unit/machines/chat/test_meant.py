"""Arguments of calls: as models send them, and as they are meant."""

import json

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st

from machines.chat.chat_tools import PYTHON, RESCUES, SQL, TOOLS, text_of
from machines.tool_use.tool_call import ToolCall, read_call, tool_of

CODE = "x = 1\nprint(x)"
QUERY = "SELECT 1"


def meant(name, arguments, text="", error=""):
    return read_call(ToolCall("c1", "c1", name, arguments, error, text), TOOLS)


@each_row(
    ("name", "arguments", "text", "rescues"),
    [
        ("run_sql", {"sql": QUERY}, QUERY, ()),
        ("run_sql", {"query": QUERY}, QUERY, ("alias",)),
        ("run_sql", {"statement": QUERY}, QUERY, ("alias",)),
        ("run_sql", {"sql": f"```sql\n{QUERY}\n```"}, QUERY, ("fence",)),
        ("run_sql", {"sql": f"Here it is:\n```\n{QUERY}\n```\n"}, QUERY, ("fence",)),
        ("run_sql", {"arguments": {"sql": QUERY}}, QUERY, ("nested",)),
        ("run_sql", {"input": json.dumps({"query": QUERY})}, QUERY, ("nested", "alias")),
        ("run_sql", {"parameters": {"arguments": {"sql": QUERY}}}, QUERY, ("nested",)),
        ("run_sql", {"sql": json.dumps({"sql": QUERY})}, QUERY, ("json_in_code",)),
        ("run_sql", {"sql": ["SELECT", " 1"]}, "SELECT\n 1", ("lines",)),
        ("RunSQL", {"sql": QUERY}, QUERY, ("tool_name",)),
        ("sql", {"sql": QUERY}, QUERY, ("tool_name",)),
        ("run_python", {"code": CODE}, CODE, ()),
        ("run_python", {"script": CODE}, CODE, ("alias",)),
        ("run_python", {"python": CODE}, CODE, ("alias",)),
        ("run_python", {"code": f"```python\n{CODE}\n```"}, CODE, ("fence",)),
        ("run_python", {"code": "    x = 1\n    print(x)"}, CODE, ("indentation",)),
        ("run_python", {"code": "x = 1\\nprint(x)"}, CODE, ("escaped_newlines",)),
        ("run_python", {"code": json.dumps({"code": CODE})}, CODE, ("json_in_code",)),
        ("run_python", {"code": CODE.splitlines()}, CODE, ("lines",)),
        ("run_python", {"code": "\n\n" + CODE + "\n"}, CODE, ()),
        ("run_python", {"code": ""}, "", ()),
        ("run_python", {}, "", ()),
        ("run_python", {"code": 7}, "", ()),
        ("run_python", {"code": "print('a\\nb')"}, "print('a\\nb')", ()),  # these are two characters of a string
    ],
)
def test_arguments_are_read_as_they_are_meant(name, arguments, text, rescues):
    call = meant(name, arguments)
    assert (text_of(call), call.rescues, call.fault) == (text, rescues, "")


@each_row(
    ("given", "number", "is_fixed"),
    [
        ({}, 30, False),
        ({"timeout": None}, 30, False),
        ({"timeout": 5}, 5, False),
        ({"timeout": "5"}, 5, True),
        ({"timeout": "45s"}, 45, True),
        ({"timeout": " 7.2 seconds"}, 8, True),
        ({"timeout": 2.5}, 3, True),
        ({"timeout": 0}, 1, True),
        ({"timeout": 100_000}, 120, True),
        ({"timeout": "soon"}, 30, True),
        ({"timeout": True}, 30, True),
        ({"timeout": float("inf")}, 120, True),
        ({"timeout": float("nan")}, 30, True),
        ({"timeout_s": 9}, 9, False),
    ],
)
def test_time_limit_is_a_whole_number_within_bounds(given, number, is_fixed):
    call = meant("run_python", {"code": CODE, **given})
    assert call.arguments["timeout"] == number
    assert "number" in call.rescues if is_fixed else "number" not in call.rescues


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (json.dumps(QUERY), QUERY),
        ('{"sql": "SELECT 1", "limit": 10 rows}', QUERY),
        ('{"sql": "SELECT \\"a\\" FROM t", limit}', 'SELECT "a" FROM t'),
    ],
)
def test_broken_json_keeps_its_complete_text(text, meaning):
    call = meant("run_sql", None, text, "invalid_arguments")
    assert (text_of(call), call.fault) == (meaning, "")
    assert call.rescues in {("text_arguments",), ("broken_json",)}


@pytest.mark.parametrize("text", ['{"sql": "SELECT 1', "[1, 2]", "nonsense", ""])
def test_broken_json_without_a_complete_text_gives_no_call(text):
    call = meant("run_sql", None, text, "invalid_arguments")
    assert (call.tool, text_of(call)) == (None, "")
    assert "not a JSON object" in call.fault


@pytest.mark.parametrize("text", ['{"sql": "SELECT 1", "lim', '{"sql": "DELETE", "limit": 1', json.dumps(QUERY)])
def test_truncated_arguments_are_never_fixed(text):
    call = meant("run_sql", None, text, "truncated_arguments")
    assert call.tool is None
    assert "end before they are complete" in call.fault


def test_call_of_an_unknown_tool_lists_the_tools():
    call = meant("send_mail", {"to": "all"})
    assert call.fault == "there is no tool 'send_mail'; the tools are: run_sql, run_python"
    for fault in (meant("x" * 200_000, {}).fault, meant("-" * 200_000 + "run_sql", None).fault):
        assert len(fault) < 200
    assert tool_of("run_sqlite", TOOLS) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["sql", "code", "query", "arguments", "input", "limit", "timeout", "x"]) | st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(
    st.sampled_from(["run_sql", "run_python", "python"]),
    st.dictionaries(
        st.sampled_from(["sql", "code", "query", "arguments", "input", "limit", "timeout", "script"]), JSON, max_size=4
    ),
)
def test_any_arguments_give_a_call_and_rereading_changes_only_nested_text(name, arguments):
    call = meant(name, arguments)
    assert call.tool in {SQL, PYTHON}
    text, number = call.tool.parameters
    assert isinstance(call.arguments[text.name], str)
    assert number.least <= call.arguments[number.name] <= number.most
    assert set(call.rescues) <= set(RESCUES)
    again = meant(call.tool.name, dict(call.arguments))
    if text_of(again) != text_of(call):  # a fence inside a fence, JSON inside JSON: each reading removes one
        assert again.rescues
    else:
        assert again.arguments == call.arguments
