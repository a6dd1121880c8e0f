"""The toolbox: every tool on offer is implemented."""

from machines.coding.coding_tools import COMPLETE, TOOLS
from machines.coding.tools.file_arguments import FILE_TOOLS


def test_every_tool_on_offer_is_implemented():
    others = {"run_cmd", "write_tested", "git_status", "git_diff", "git_log", "git_commit", COMPLETE}
    assert {tool.name for tool in TOOLS} == set(FILE_TOOLS) | others
