"""Agents that call tools: what a model is offered and asks for, read, made and told; what chat, coding and search share.

A table of your own gets its effects from `ToolAgent`; docs/how-to/tools.md shows one. JSON stands at the edge only: in the data of events, and in what
providers are sent.
"""

from machines.tool_use.agent import CallRead, FunctionTool, ToolAgent, ToolError
from machines.tool_use.answers import Answer
from machines.tool_use.call import ToolCall, ToolResult
from machines.tool_use.function_guard import FunctionGuard
from machines.tool_use.kinds import CONTENT, LIMIT, NUMBER, TEXT, TRUTH
from machines.tool_use.notice import Notice
from machines.tool_use.tool import Kind, Parameter, Tool
from machines.tool_use.transcript import Transcript

__all__ = [
    "CONTENT", "LIMIT", "NUMBER", "TEXT", "TRUTH",
    "Answer", "CallRead", "FunctionGuard", "FunctionTool", "Kind", "Notice", "Parameter", "Tool", "ToolAgent", "ToolCall", "ToolError", "ToolResult", "Transcript",
]  # fmt: skip
