"""The tools of the chat machine as a model sees them, and how SQL and code are read that models write (seed 002, workstream D).

A fence around code, JSON in the place of code, line breaks written as two characters: what is meant is kept, and the kind of each thing that was mended.
Nothing is completed. Pure.

What a model is sent: instructions, the data, what exists already, what is known of the latest results, and the conversation.

Takes a conversation, gives messages. Inventory and summary stand in every request (seed 002, Option A), and every call has
its result right behind it. Old turns are left out where the conversation is longer than the request may be; what they made is still named.
Pure.
"""

import json
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache

import attrs

from machines.chat.conversation import MOST_SHOWN, REUSE, ChatArtifact, ChatConversation
from machines.chat.python import compiles, is_empty
from machines.chat.sql import QueryIntent, TableInfo
from machines.tool_use import tool_call
from machines.tool_use.records import as_data, object_in
from machines.tool_use.tool import LIMIT, ArgumentKind, Parameter, Tool
from machines.tool_use.tool_call import ToolRequest
from machines.tool_use.transcript import CHARS_PER_TOKEN, ChatMessage, newest_that_fit, within

#: Every kind of thing that is mended, with what it means to a reader.
RESCUES: dict[str, str] = {
    **{
        name: tool_call.RESCUES[name]
        for name in ("tool_name", "alias", "nested", "text_arguments", "broken_json", "number")
    },
    "fence": "The SQL or code stood in a fence.",
    "json_in_code": "JSON arguments stood in the place of the SQL or code.",
    "lines": "The SQL or code was a list of lines.",
    "indentation": "The code was indented as a whole.",
    "escaped_newlines": "Line breaks were written as `\\n`.",
}


@attrs.frozen
class DataTool(Tool):
    """A tool over the data. `event` is the call as the machine's table names it, `effect` what performs it."""

    event: str = attrs.field(kw_only=True)
    effect: str = attrs.field(kw_only=True)


def text_of(call: ToolRequest[DataTool]) -> str:
    """Return the SQL or code of a call; empty where there is none."""
    return str(call.arguments.get(call.tool.text, "")) if call.tool else ""


_FENCE = re.compile(r"(?:^|\n) {0,3}```[ \t]*+[\w+.-]*+[ \t]*+\n")
_FENCE_END = re.compile(r"\n? {0,3}```[ \t]*+(?:\n|$)")


def _sql(value: object, parameter: Parameter, mended: list[str]) -> str:
    return _plain(value, parameter, mended).strip("\n")


def _code(value: object, parameter: Parameter, mended: list[str]) -> str:
    """Mend how code is laid out: indented as a whole, or its line breaks written as two characters."""
    text = _plain(value, parameter, mended)
    if _is_python(text):
        return text.strip("\n")
    dedented = textwrap.dedent(text).strip("\n")
    if dedented != text.strip("\n") and _is_python(dedented):
        mended.append("indentation")
        return dedented
    broken = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    if "\n" not in text.strip("\n") and _is_python(broken):
        mended.append("escaped_newlines")
        return broken.strip("\n")
    return text.strip("\n")


def _plain(value: object, parameter: Parameter, mended: list[str]) -> str:
    """Return the SQL or code as it is meant; empty where there is none."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        mended.append("lines")
        value = "\n".join(line.rstrip("\n") for line in value)
    if not isinstance(value, str):
        return ""
    text = _from_json_in(parameter, value.replace("\r\n", "\n").replace("\x00", ""), mended)
    fences = _fences(text)
    if len(fences) == 1:
        mended.append("fence")
        text = fences[0]
    return text


def _fences(text: str) -> list[str]:
    """Return the bodies of all fences that are closed."""
    found, at = [], 0
    while (begun := _FENCE.search(text, at)) and (end := _FENCE_END.search(text, begun.end())):
        found.append(text[begun.end() : end.start()])
        at = end.end()
    return found


def _from_json_in(parameter: Parameter, text: str, mended: list[str]) -> str:
    """Return the text inside arguments that stand in its place."""
    inner = object_in(text) or {}
    found = next((inner[name] for name in parameter.names if isinstance(inner.get(name), str)), None)
    if found is None:
        return text
    mended.append("json_in_code")
    return str(found)


def _is_python(text: str) -> bool:
    return not is_empty(text) and compiles(text) is None


def _limit(value: object, parameter: Parameter, mended: list[str]) -> object:
    """Return a limit; the usual one for what is no number, and for what is beyond every number as much as there can be."""
    try:
        return LIMIT.read(value, parameter, mended)
    except ValueError:
        mended.append("number")
    is_endless = isinstance(value, float) and math.isinf(value)
    return parameter.default if not is_endless else parameter.most if value == math.inf else parameter.least


_LIMIT = ArgumentKind(LIMIT.schema, _limit, has_bounds=True)
_STRING = {"type": "string"}
SQL = DataTool(
    "run_sql",
    "Run one SELECT over the tables and see the first rows, the true number of rows and what they are about.",
    (
        Parameter("sql", ArgumentKind(_STRING, _sql), "one SELECT statement in DuckDB's SQL", "", required=True,
                  aliases=("query", "statement", "sql_query", "q")),
        Parameter("limit", _LIMIT, "how many rows to see", 100, least=1, most=10_000, aliases=("max_rows", "row_limit", "rows")),
    ),
    frozenset({"runsql", "sql", "sqlquery", "query", "executesql", "duckdb"}),
    "sql",
    event="sql_call",
    effect="run_sql",
)  # fmt: skip
PYTHON = DataTool(
    "run_python",
    "Run Python with pandas (pd), numpy (np) and matplotlib (plt). The latest SQL result is the DataFrame df. "
    "Files that it writes into the working folder, and open figures, are kept as artifacts.",
    (
        Parameter("code", ArgumentKind(_STRING, _code), "Python code", "", required=True,
                  aliases=("python", "python_code", "script", "source", "input", "query")),
        Parameter("timeout", _LIMIT, "seconds it may take", 30, least=1, most=120,
                  aliases=("timeout_s", "timeout_seconds", "time_limit", "seconds")),
    ),
    frozenset({"runpython", "python", "py", "executepython", "codeinterpreter", "ipython"}),
    "code",
    event="python_call",
    effect="run_python",
)  # fmt: skip
TOOLS = {tool.name: tool for tool in (SQL, PYTHON)}


INSTRUCTIONS = (
    "You analyse data for a user, with tools. Look at the data with SQL before you speak of it; never invent figures. "
    "SQL reads the tables below and nothing else. Python sees the latest SQL result as the DataFrame df. "
    "Name the files that you have made by their names. When you have what the user wants, answer in a few sentences, without a call."
)
#: How many tokens of conversation a request has at most; what is older is left out.
CONTEXT_TOKENS = 20_000
_LEFT_OUT = "[{count} earlier turns are left out here; what they made is in the inventory.]"


def messages_for(
    conversation: ChatConversation,
    tables: Sequence[TableInfo],
    *,
    offered: Iterable[str] = (),
    context_chars: int = CONTEXT_TOKENS * CHARS_PER_TOKEN,
    shortens: bool = False,
) -> list[ChatMessage]:
    """Return the messages of the next request. `tables` describes the data, `offered` are the tools that come with the request.

    A last turn that is too long by itself is sent whole, unless it `shortens` its largest texts.
    """
    turns = conversation.turns
    kept = newest_that_fit([turn.exchange for turn in turns], context_chars)
    left_out = len(turns) - len(kept)
    system = ChatMessage("system", _system(conversation, tables, tuple(offered)))
    said = [message for exchange in kept for message in exchange.messages]
    if shortens and sum(exchange.size for exchange in kept) > context_chars:
        said = within(said, context_chars)
    if left_out and said:
        said[0] = attrs.evolve(said[0], content=f"{_LEFT_OUT.format(count=left_out)}\n{said[0].content}")
    return [system, *said]


def _system(conversation: ChatConversation, tables: Sequence[TableInfo], offered: tuple[str, ...]) -> str:
    inventory = conversation.inventory
    count = f" (the newest {MOST_SHOWN} of {len(inventory)})" if len(inventory) > MOST_SHOWN else ""
    parts = [
        INSTRUCTIONS,
        f"Tables:\n{_joined(map(_table, tables))}",
        f"Artifacts that exist{count}. {REUSE}\n{_joined(map(_described, inventory.newest()))}",
        f"Latest results of SQL, newest last:\n{_joined(map(_intent, conversation.intents))}",
    ]
    if not offered:
        parts.append("No tool can be called now: answer with what you have.")
    return "\n\n".join(parts)


def _table(table: TableInfo) -> str:
    told = {"table": table.name, "rows": table.row_count, "columns": dict(table.columns)}
    return json.dumps(told, ensure_ascii=False)


@lru_cache(maxsize=1_024)
def _intent(intent: QueryIntent) -> str:
    return json.dumps(as_data(intent), ensure_ascii=False)


@lru_cache(maxsize=1_024)
def _described(artifact: ChatArtifact) -> str:
    """Write what is told of an artifact; the next requests tell the same."""
    return json.dumps(artifact.described(), ensure_ascii=False)


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) or "none"
