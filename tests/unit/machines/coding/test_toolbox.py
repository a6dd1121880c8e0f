"""Every tool that is offered is one that is done."""

from machines.coding.calls import COMPLETE, TOOLS
from machines.coding.tools.arguments import FILE_TOOLS


def test_each_tool_is_of_a_kind_that_something_does():
    others = {"run_cmd", "write_tested", "git_status", "git_diff", "git_log", "git_commit", COMPLETE}
    assert {tool.name for tool in TOOLS} == set(FILE_TOOLS) | others
