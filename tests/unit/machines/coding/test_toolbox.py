"""Every tool that is offered is one that is done."""

from machines.coding.coding_tools import COMPLETE, TOOLS
from machines.coding.tools.file_arguments import FILE_TOOLS


def test_each_tool_is_of_a_kind_that_something_does():
    others = {"run_cmd", "write_tested", "git_status", "git_diff", "git_log", "git_commit", COMPLETE}
    assert {tool.name for tool in TOOLS} == set(FILE_TOOLS) | others
