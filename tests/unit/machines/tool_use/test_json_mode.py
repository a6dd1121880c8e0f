"""Tools for models that cannot call tools: the request, the schema that constrains the answer, and its meaning."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from machines.coding.coding_tools import TOOLS
from machines.tool_use.chat_model import ModelReply, WrittenCall, as_texts, read_reply, response_format, with_tool_list
from machines.tool_use.tool_call import ToolCall
from machines.tool_use.transcript import ChatMessage


def schema():
    return response_format(TOOLS)["json_schema"]["schema"]


@pytest.mark.parametrize(
    "answer",
    [
        {"tool": "list_dir", "arguments": {}},
        {"tool": "write_file", "arguments": {"path": "a", "content": "x"}},
        {"tool": "run_cmd", "arguments": {"cmd": ["python", "a.py"], "timeout_sec": 5}},
        {"tool": "answer", "arguments": {"text": "It is done."}},
    ],
)
def test_answer_that_fits_the_schema_is_a_call_or_a_text(answer):
    Draft202012Validator(schema()).validate(answer)
    said = read_reply(json.dumps(answer))
    if answer["tool"] == "answer":
        assert said == ModelReply("It is done.")
    else:
        assert said == ModelReply(calls=(WrittenCall(answer["tool"], answer["arguments"]),))


@pytest.mark.parametrize(
    "answer",
    [
        {"tool": "sing", "arguments": {}},
        {"tool": "write_file", "arguments": {"path": "a"}},
        {"tool": "list_dir", "arguments": {"folder": "a"}},
        {"tool": "list_dir"},
        {"arguments": {}},
        [],
    ],
)
def test_invalid_call_does_not_fit_the_schema(answer):
    assert not Draft202012Validator(schema()).is_valid(answer)


@given(st.text() | st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)).map(json.dumps))  # fmt: skip
def test_any_text_is_a_reply_or_none(text):
    found = read_reply(text)
    assert found is None or isinstance(found, ModelReply)


def test_history_is_written_as_the_model_would_write_it():
    call = ToolCall("1", "c1", "read_file", {"path": "a"})
    told = as_texts(
        [
            ChatMessage("system", "S"),
            ChatMessage("user", "U"),
            ChatMessage("assistant", None, (call,)),
            ChatMessage("tool", '{"content": "x"}', answers="c1"),
            ChatMessage("user", "[note]"),
        ]
    )
    assert told == [
        ChatMessage("system", "S"),
        ChatMessage("user", "U"),
        ChatMessage("assistant", '{"tool": "read_file", "arguments": {"path": "a"}}'),
        ChatMessage("user", '[result of read_file] {"content": "x"}\n[note]'),
    ]


def test_tools_are_listed_with_their_arguments():
    first, *_ = with_tool_list([ChatMessage("system", "S"), ChatMessage("user", "U")], TOOLS)
    assert "- write_file(path, content, create_dirs?): Write a whole file" in first.content
    assert "- answer(text)" in first.content
