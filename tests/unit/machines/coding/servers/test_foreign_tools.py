"""Tools of MCP servers: real servers as processes, good and bad."""

import re

import pytest
from conftest import require_package
from foreign_servers import real, refused, rogue, text

from machines.coding.tools.mcp_results import MOST_TOOLS, read_tool, tool_name, tools_of

require_package("mcp", "the package mcp asks MCP servers")


def test_tools_have_names_descriptions_schemas_and_hints(shared):
    tools = {tool.name: tool for tool in shared.tools()}
    count = tools["test__word_count"]
    assert (count.server, count.tool, count.description) == ("test", "word_count", "Count the words of a text.")
    assert count.schema["required"] == ["text"]
    assert (count.reads_only, count.is_idempotent, count.approve) == (True, True, None)
    assert (tools["test__lookup"].reads_only, tools["test__lookup"].is_idempotent) == (False, True)
    assert (tools["test__slow"].reads_only, tools["test__slow"].is_idempotent) == (False, False)


def test_only_allowed_tools_are_offered(opened):
    foreign = opened(test=real(tools=["lookup", "big"], approve="always"))
    assert [(tool.name, tool.approve) for tool in foreign.tools()] == [
        ("test__lookup", "always"),
        ("test__big", "always"),
    ]
    assert refused(foreign.call, "test__fail", {}) == (
        "unknown_tool",
        "there is no tool 'test__fail'; the tools are: test__big, test__lookup",
    )


def test_allowed_tool_that_does_not_exist_is_reported(opened):
    code, said = refused(opened(test=real(tools=["look_up"])).tools)
    assert code == "bad_tools"
    assert "'test' has no tool 'look_up', which its setting `tools` names; it has: ask, big" in said


def test_tools_of_several_servers_and_pages_are_listed(opened):
    foreign = opened(b=rogue("pages"), a=rogue("fine"))
    assert [tool.name for tool in foreign.tools()] == ["b__t0", "b__t1", "b__t2", "b__t3", "a__good"]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (
            "thousand",
            rf"lists 1,000 tools, but at most {MOST_TOOLS} may be used; in its settings, name the tools to use",
        ),
        ("twins", "lists two tools named 'twin'; in its settings, name the tools to use"),
        (
            "no_object",
            r"lists its tools in a form that is not valid MCP: tools\.1\.inputSchema\.type: Input should be 'object'",
        ),
        ("huge_schema", r"a tool 'odd' whose `inputSchema` has 50,0\d\d characters, but at most 20,000 are allowed"),
        ("no_schema", r"not valid MCP: tools\.1\.inputSchema: Input should be"),
        ("no_list", "not valid MCP: tools: Input should be a valid list"),
        ("endless_list", "has an endless list of tools"),
        ("no_tools", "does not answer as an MCP server: I have no tools"),
        ("deep:201", "was ended: it wrote a message nested more than 200 levels deep; ask it for less"),
        ("deep:300", "was ended: it wrote a message nested more than 200 levels deep; ask it for less"),
        ("deep:3000", "was ended: it wrote a message nested more than 200 levels deep; ask it for less"),
        ("deep:200000", "was ended: it wrote a message nested more than 200 levels deep; ask it for less"),
    ],
)
def test_unusable_list_of_tools_is_refused(opened, how, says):
    code, said = refused(opened(bad=rogue(how)).tools)
    assert code in {"bad_tools", "server_not_started", "too_large"}
    assert said.startswith("the MCP server 'bad' ")
    assert re.search(says, said), said


def test_deeply_nested_list_of_tools_within_the_limit_is_read(opened):
    assert [tool.name for tool in opened(a=rogue("deep:190")).tools()] == ["a__t"]


@pytest.mark.parametrize("schema", [None, "text", {}, {"type": "array"}, {"type": ["object"]}])
def test_schema_of_anything_but_an_object_is_refused(schema):
    code, said = refused(tools_of, "bad", real(), [read_tool({"name": "odd", "inputSchema": schema})])
    assert (code, "'bad' has a tool 'odd' whose `inputSchema` is not the schema of an object" in said) == (
        "bad_tools",
        True,
    )


@pytest.mark.parametrize("how", ["twins", "huge_schema"])
def test_bad_tool_outside_the_allowed_ones_is_ignored(opened, how):
    assert [tool.name for tool in opened(bad=rogue(how, tools=["good"])).tools()] == ["bad__good"]


def test_descriptions_are_cut_and_have_no_control_characters(opened):
    (tool,) = opened(loud=rogue("loud")).tools()
    assert tool.description == "red " + "x" * 1_996 + " [..]"


def test_tool_names_are_made_valid_and_unique(opened):
    foreign = opened(**{"my server": rogue("odd_names"), "odd": rogue("odd_names"), "same": rogue("look_alikes")})
    names = [tool.name for tool in foreign.tools()]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names), names
    assert len(set(names)) == len(names) == 16
    assert "odd__plain_name-1" in names
    assert text(foreign, tool_name("odd", "with a space"))


def test_tool_names_are_stable_and_distinct():
    assert tool_name("a", "b") == "a__b"
    assert tool_name("my server", "b") == "my_server__b_b3149e18"
    apart = [
        ("a", "_b"),
        ("a_", "b"),
        ("a__b", "c"),
        ("a", "b__c"),
        ("x y", "b"),
        ("x_y", "b"),
        ("x", "y" * 80),
        ("x", "y" * 81),
    ]
    assert len({tool_name(*each) for each in apart}) == len(apart)


def test_similar_server_names_are_refused_when_tool_names_clash(opened):
    (twin,) = [tool.name for tool in opened(**{"a b": rogue("fine")}).tools()]
    tool = twin.removeprefix("a_b__")
    code, said = refused(opened(**{"a b": rogue("fine"), "a_b": rogue(f"tool:{tool}")}).tools)
    assert (code, "both become a_b__good" in said) == ("bad_tools", True)
