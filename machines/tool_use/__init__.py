"""Agents that call tools: what a model is offered and asks for, read, made and told; what chat, coding and search share.

A table of your own gets its effects from `ToolAgent`; docs/how-to/tools.md shows one. JSON stands at the edge only: in the data of events, and in what
providers are sent.
"""

from machines.tool_use.tool import CONTENT, LIMIT, NUMBER, TEXT, TRUTH, ArgumentKind, Parameter, Tool
from machines.tool_use.tool_agent import AgentCall, FunctionGuard, FunctionTool, ToolAgent, ToolError
from machines.tool_use.tool_call import ModelAnswer, ToolCall, ToolResult
from machines.tool_use.transcript import Notice, Transcript

__all__ = [
    "CONTENT",
    "LIMIT",
    "NUMBER",
    "TEXT",
    "TRUTH",
    "AgentCall",
    "ArgumentKind",
    "FunctionGuard",
    "FunctionTool",
    "ModelAnswer",
    "Notice",
    "Parameter",
    "Tool",
    "ToolAgent",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "Transcript",
]  # fmt: skip
