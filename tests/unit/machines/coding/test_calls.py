"""Calls as they are meant: names, aliases, nested arguments, texts that are lists, numbers that are words; and what is not fixed."""

import json

import pytest
from each_row import each_row

from machines.coding.coding_tools import RESCUES, TOOLS
from machines.tool_use.tool_call import ToolCall, read_call

KNOWN = {tool.name: tool for tool in TOOLS}


def read(name, arguments, **more):
    return read_call(ToolCall("c1", "c1", name, arguments, **more), KNOWN)


@each_row(
    ("name", "given", "tool", "arguments", "rescues"),
    [
        ("write_file", {"path": "a", "content": "x"}, "write_file", {"path": "a", "content": "x", "create_dirs": True}, ()),
        ("createFile", {"filename": "a", "text": "x"}, "write_file", {"path": "a", "content": "x", "create_dirs": True}, ("tool_name", "alias")),
        ("write_file", {"arguments": {"path": "a", "content": "x"}}, "write_file", {"path": "a", "content": "x", "create_dirs": True}, ("nested",)),
        ("write_file", {"input": '{"path": "a", "content": "x"}'}, "write_file", {"path": "a", "content": "x", "create_dirs": True}, ("nested",)),
        ("write_file", {"path": "a.py", "content": "```python\nx = 1\n```"}, "write_file", {"path": "a.py", "content": "x = 1\n", "create_dirs": True}, ("fence",)),
        ("write_file", {"path": "a.md", "content": "See\n```\nx\n```\n"}, "write_file", {"path": "a.md", "content": "See\n```\nx\n```\n", "create_dirs": True}, ()),
        ("write_file", {"path": "a", "content": ["x", "y"]}, "write_file", {"path": "a", "content": "x\ny", "create_dirs": True}, ("text",)),
        ("write_file", {"path": "a.json", "content": {"x": 1}}, "write_file", {"path": "a.json", "content": '{\n  "x": 1\n}', "create_dirs": True}, ("text",)),
        ("write_file", {"path": "a", "content": "", "create_dirs": "no"}, "write_file", {"path": "a", "content": "", "create_dirs": False}, ("truth",)),
        ("list_dir", {"path": ""}, "list_dir", {"path": ".", "offset": 0}, ()),
        ("ls", {}, "list_dir", {"path": ".", "offset": 0}, ("tool_name",)),
        ("read_file", {"path": "a", "max_bytes": "1e"}, "read_file", {"path": "a", "max_bytes": 1, "offset": 0}, ("number",)),
        ("read_file", {"path": "a", "max_bytes": 10**12}, "read_file", {"path": "a", "max_bytes": 1_000_000, "offset": 0}, ("number",)),
        ("run_cmd", {"cmd": ["python", 1]}, "run_cmd", {"cmd": ["python", "1"], "timeout_sec": 60, "cwd": "."}, ()),
        ("bash", {"command": "python a.py"}, "run_cmd", {"cmd": "python a.py", "timeout_sec": 60, "cwd": "."}, ("tool_name", "alias")),
        ("run_cmd", {"cmd": '["python", "a.py"]', "timeout": "5 s"}, "run_cmd", {"cmd": ["python", "a.py"], "timeout_sec": 5, "cwd": "."}, ("list", "alias", "number")),
        ("write_files", {"files": {"a": "x", "b": "y"}}, "write_files", {"files": [{"path": "a", "content": "x"}, {"path": "b", "content": "y"}], "create_dirs": True}, ("list",)),
        ("mark_subtask_complete", {"success": "true"}, "mark_subtask_complete", {"success": True, "reason": ""}, ("truth",)),
        ("search", {"query": "x"}, "search", {"pattern": "x", "path": ".", "is_regex": False}, ("alias",)),
    ],
)  # fmt: skip
def test_call_is_read_as_it_is_meant(name, given, tool, arguments, rescues):
    call = read(name, given)
    assert (call.fault, call.tool and call.tool.name, dict(call.arguments), call.rescues) == ("", tool, arguments, rescues)  # fmt: skip
    assert set(call.rescues) <= set(RESCUES)


@each_row(
    ("name", "given", "says"),
    [
        ("sing", {}, "there is no tool 'sing'; the tools are: list_dir"),
        ("write_file", {"path": "a"}, "the argument 'content' is missing"),
        ("write_file", {"path": 3, "content": "x"}, "'path' must be a text, not 3"),
        ("read_file", {"path": "a", "max_bytes": "many"}, "'max_bytes' must be a whole number"),
        ("read_file", {"path": "a", "max_bytes": True}, "'max_bytes' must be a whole number"),
        ("run_cmd", {"cmd": []}, "'cmd' must be a list of texts"),
        ("run_cmd", {"cmd": {"a": 1}}, "'cmd' must be a list of texts"),
        ("write_files", {"files": [{"path": "a"}]}, "'files' must be a list of"),
        ("mark_subtask_complete", {}, "the argument 'success' is missing"),
        ("mark_subtask_complete", {"success": "maybe"}, "'success' must be true or false"),
    ],
)
def test_invalid_call_says_why(name, given, says):
    call = read(name, given)
    assert call.tool is None
    assert says in call.fault


def test_truncated_arguments_are_never_completed():
    call = read("write_file", None, error="truncated_arguments", text='{"path": "a", "content": "x"')
    assert call.tool is None
    assert "end before they are complete" in call.fault


@each_row("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_describes_itself_as_a_schema(tool):
    from jsonschema import Draft202012Validator

    schema = tool.as_openai["function"]["parameters"]
    Draft202012Validator.check_schema(schema)
    assert set(schema["required"]) <= set(schema["properties"])
    json.dumps(tool.as_openai)


def test_tool_names_and_aliases_are_unique():
    plain = [name for tool in TOOLS for name in (tool.name.replace("_", ""), *tool.names)]
    assert len(plain) == len(set(plain))


@pytest.mark.parametrize(("name", "given"), [("x" * 200_000, {}), ("-" * 200_000 + "read_file", None)])
def test_fault_shortens_a_long_name(name, given):
    assert len(read(name, given).fault) < 500
