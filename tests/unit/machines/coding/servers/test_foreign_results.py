"""Results of calls to MCP servers: real servers as processes, good and bad."""

import json
import os
import sys

import pytest
from conftest import require_package
from foreign_servers import TESTS, Foreign, real, refused, rogue, text

from dsa.errors import ToolError
from machines.coding.tools.mcp_results import McpServer

require_package("mcp", "the package mcp asks MCP servers")


def test_call_gives_text_and_structured_values(shared):
    assert shared.call("test__word_count", {"text": "a b c"}) == {"text": "3", "structured": {"result": 3}}
    assert shared.call("test__lookup", {"key": "dsa"}) == {"text": "a framework of state machines"}


def test_long_text_keeps_its_beginning_and_end(shared):
    said = shared.call("test__big", {"chars": 100_000})
    assert said["text"].startswith("<xxx")
    assert said["text"].endswith("xxx>")
    assert said["omitted"] == 84_000
    assert said["left_out"] == "84,000 characters of the text are left out: ask the tool for less"
    assert len(said["text"]) < 16_100


def test_image_is_described_by_kind_and_size(shared):
    said = shared.call("test__image", {})
    assert said == {"text": "", "attachments": [{"kind": "image", "type": "image/png", "size_bytes": 70}]}


def test_mixed_result_is_json_without_bytes_or_control_codes(opened):
    said = opened(odd=rogue("blocks")).call("odd__good", {})
    assert said == {
        "text": "first\nof a file\nlast",
        "attachments": [
            {"kind": "image", "type": "image/ng", "size_bytes": 3},
            {"kind": "audio", "type": "audio/wav", "size_bytes": 2},
            {"kind": "blob", "type": "x/y", "uri": "file:///a.bin", "size_bytes": 1},
            {"kind": "link", "type": "", "uri": "https://example.org/a"},
        ],
    }


def test_many_attachments_are_counted(opened):
    said = opened(odd=rogue("many_images")).call("odd__good", {})
    assert (len(said["attachments"]), said["attachments_omitted"]) == (20, 30)


def test_long_structured_value_is_counted(opened):
    assert opened(odd=rogue("structured_big")).call("odd__good", {}) == {
        "text": "", "structured_omitted": 100_009, "left_out": "100,009 characters of a structured value are left out: ask the tool for less",
    }  # fmt: skip


def test_secrets_are_removed_from_everything_a_server_sends():
    def redact(said):
        return said.replace("key-1234", "[secret]").replace("not today", "[secret]")

    servers = {"odd": rogue("structured"), "bad": rogue("refuses"), "test": real(env={"TOKEN": "key-1234"})}
    with Foreign(servers, redact) as foreign:
        assert foreign.call("odd__good", {})["structured"] == {"a": ["[secret]", {"[secret]": None}], "b": 1.5}
        assert "TOKEN=[secret]" in text(foreign, "test__environment")
        assert refused(foreign.call, "bad__good", {})[1].endswith("refuses the call: [secret]")
    assert "key-1234" not in repr(servers["test"])


@pytest.mark.parametrize("how", ["half_a_character", "deep", "not_a_number"])
def test_odd_values_become_json_or_are_refused(opened, how):
    foreign = opened(odd=rogue(how))
    try:
        json.dumps(foreign.call("odd__good", {}), allow_nan=False).encode("ascii")
    except ToolError as error:
        if error.code not in {"bad_result", "server_garbled", "too_large"} or how == "half_a_character":
            raise


@pytest.mark.parametrize(
    ("server", "name", "arguments", "code", "says"),
    [
        ("test", "fail", {}, "tool_error", "Error executing tool fail"),
        ("test", "word_count", {"txt": 1}, "tool_error", "Field required"),
        ("empty_error", "good", {}, "tool_error", "the tool failed without giving a reason"),
        ("refuses", "good", {}, "tool_error", "the MCP server 'refuses' refuses the call: not today"),
        ("no_content", "good", {}, "server_garbled", "'no_content' answers in a form that is not valid MCP: content"),
        ("no_result", "good", {}, "server_garbled", "'no_result' answers in a form that is not valid MCP: content.0"),
        ("test", "fail", {"a": {1, 2}}, "bad_arguments", "the arguments of test__fail are not valid JSON"),
        ("test", "fail", {"a": float("inf")}, "bad_arguments", "the arguments of test__fail are not valid JSON"),
        ("test", "none", {}, "unknown_tool", "there is no tool 'test__none'; the tools are: test__ask, test__big"),
    ],
)  # fmt: skip
def test_failed_calls_say_why(shared, opened, server, name, arguments, code, says):
    foreign = shared if server == "test" else opened(**{server: rogue(server)})
    found, said = refused(foreign.call, f"{server}__{name}", arguments)
    assert (found, says in said) == (code, True), said


@pytest.mark.parametrize("how", ["modern", "modern_asks"])
def test_server_without_a_handshake_is_understood(opened, how):
    foreign = opened(new=rogue(how))
    assert [tool.name for tool in foreign.tools()] == ["new__good"]
    if how == "modern":
        assert text(foreign, "new__good") == "2026-07-28"
    else:  # there, a question arrives as a result
        assert refused(foreign.call, "new__good", {})[0] == "tool_asks"


@pytest.mark.parametrize("what", ["elicitation", "roots", "sampling"])
def test_requests_from_a_server_are_refused(shared, what):
    code, said = refused(shared.call, "test__ask", {"what": what})
    assert (code, "not supported" in said) == ("tool_error", True)


def test_server_that_must_never_be_called_is_not_called(opened):
    foreign = opened(odd=rogue("fine", approve="never"))
    assert foreign.tools()[0].approve == "never"
    assert refused(foreign.call, "odd__good", {})[0] == "not_allowed"


def test_environment_of_a_server_is_minimal(opened, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    server = McpServer([sys.executable, str(TESTS / "mcp_server.py")], env={"TOKEN": "x", "LANG": "C"})
    said = text(opened(test=server), "test__environment")
    found = dict(line.split("=", 1) for line in said.splitlines())
    found.pop("LC_CTYPE", None)  # Python sets it
    assert found == {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"], "TOKEN": "x", "LANG": "C"}
