"""Agents that call tools: the tools that a model is offered, its calls and their results. Chat, coding and search share this package.

`ToolAgent` gives a table of your own its effects; docs/how-to/tools.md shows one. JSON appears at the edge only: in the data of events and in requests to
providers.
"""

from dsa.errors import ToolError
from machines.tool_use.tool_agent import AgentCall, FunctionGuard, FunctionTool, ToolAgent
from machines.tool_use.tool_call import (
    CONTENT,
    LIMIT,
    NUMBER,
    TEXT,
    TRUTH,
    ArgumentKind,
    ModelAnswer,
    Parameter,
    Tool,
    ToolCall,
    ToolResult,
)
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
