"""Tools and requests of the chat machine (seed 002, workstream D). Pure.

The tools read SQL and code in the forms that models write: with a code fence around them, inside JSON, with line breaks as two characters. They name
each kind of fix, and never complete anything. `messages_for` makes a request: instructions, the data, the inventory and the summary of the latest results
(seed 002, Option A), and the conversation with a result right after every call. It leaves old turns out when the conversation is too long; the inventory
still names their artifacts.
"""

import json
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import lru_cache

import attrs

from machines.chat.conversation import MOST_DESCRIBED, REUSE, ChatArtifact, ChatConversation
from machines.chat.interpreter import compiles, is_empty
from machines.chat.sql import QueryIntent, TableInfo
from machines.tool_use import tool_call
from machines.tool_use.records import as_data, object_in
from machines.tool_use.tool_call import LIMIT, ArgumentKind, Parameter, Tool, ToolRequest
from machines.tool_use.transcript import CHARS_PER_TOKEN, ChatMessage, newest_that_fit, within

#: The kinds of fixes, with an explanation for readers.
RESCUES: dict[str, str] = {
    **{
        name: tool_call.RESCUES[name]
        for name in ("tool_name", "alias", "nested", "text_arguments", "broken_json", "number")
    },
    "fence": "The SQL or code was inside a code fence.",
    "json_in_code": "The SQL or code was inside JSON arguments.",
    "lines": "The SQL or code was a list of lines.",
    "indentation": "The code was indented as a whole.",
    "escaped_newlines": "Line breaks were written as `\\n`.",
}


@attrs.frozen
class DataTool(Tool):
    """A tool for the data. `event` and `effect` are the call's event in the machine's table, and the effect that performs it."""

    event: str = attrs.field(kw_only=True)
    effect: str = attrs.field(kw_only=True)


def text_of(call: ToolRequest[DataTool]) -> str:
    """Return the SQL or code of a call, or an empty text."""
    return str(call.arguments.get(call.tool.text, "")) if call.tool else ""


_FENCE = re.compile(r"(?:^|\n) {0,3}```[ \t]*+[\w+.-]*+[ \t]*+\n")
_FENCE_END = re.compile(r"\n? {0,3}```[ \t]*+(?:\n|$)")


def _sql(value: object, parameter: Parameter, rescues: list[str]) -> str:
    return _plain(value, parameter, rescues).strip("\n")


def _code(value: object, parameter: Parameter, rescues: list[str]) -> str:
    """Return code without a common indentation, and with real line breaks."""
    text = _plain(value, parameter, rescues)
    if _is_python(text):
        return text.strip("\n")
    flush_text = textwrap.dedent(text).strip("\n")
    if flush_text != text.strip("\n") and _is_python(flush_text):
        rescues.append("indentation")
        return flush_text
    plain_text = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    if "\n" not in text.strip("\n") and _is_python(plain_text):
        rescues.append("escaped_newlines")
        return plain_text.strip("\n")
    return text.strip("\n")


def _plain(value: object, parameter: Parameter, rescues: list[str]) -> str:
    """Return the SQL or code, without a fence or JSON around it; an empty text when there is none."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        rescues.append("lines")
        value = "\n".join(line.rstrip("\n") for line in value)
    if not isinstance(value, str):
        return ""
    text = _from_json_in(parameter, value.replace("\r\n", "\n").replace("\x00", ""), rescues)
    fences = _fences(text)
    if len(fences) == 1:
        rescues.append("fence")
        text = fences[0]
    return text


def _fences(text: str) -> list[str]:
    """Return the bodies of all complete fences."""
    bodies, at = [], 0
    while (start := _FENCE.search(text, at)) and (end := _FENCE_END.search(text, start.end())):
        bodies.append(text[start.end() : end.start()])
        at = end.end()
    return bodies


def _from_json_in(parameter: Parameter, text: str, rescues: list[str]) -> str:
    """Return the text inside JSON arguments, or the text itself."""
    inner = object_in(text) or {}
    inner_text = next((inner[name] for name in parameter.names if isinstance(inner.get(name), str)), None)
    if inner_text is None:
        return text
    rescues.append("json_in_code")
    return str(inner_text)


def _is_python(text: str) -> bool:
    return not is_empty(text) and compiles(text) is None


def _limit(value: object, parameter: Parameter, rescues: list[str]) -> object:
    """Return a limit: the default for anything that is not a number, and the bound for infinity."""
    try:
        return LIMIT.read(value, parameter, rescues)
    except ValueError:
        rescues.append("number")
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
    "Refer to files that you made by name. When you have what the user wants, answer in a few sentences, without a call."
)
#: The limit of the conversation in a request, in tokens; older turns are left out.
CONTEXT_TOKENS = 20_000
_OMISSION = "[{count} earlier turns are left out here; their artifacts are in the inventory.]"


def messages_for(
    conversation: ChatConversation,
    tables: Sequence[TableInfo],
    *,
    tools: Iterable[str] = (),
    context_chars: int = CONTEXT_TOKENS * CHARS_PER_TOKEN,
    shortens: bool = False,
) -> list[ChatMessage]:
    """Return the messages of the next request. `tables` describes the data; `tools` names the tools of the request.

    A last turn that is too long by itself is sent in full; with `shortens`, its largest texts are shortened.
    """
    turns = conversation.turns
    newest = newest_that_fit([turn.exchange for turn in turns], context_chars)
    missing = len(turns) - len(newest)
    system = ChatMessage("system", _system(conversation, tables, tuple(tools)))
    messages = [message for exchange in newest for message in exchange.messages]
    if shortens and sum(exchange.size for exchange in newest) > context_chars:
        messages = within(messages, context_chars)
    if missing and messages:
        messages[0] = attrs.evolve(messages[0], content=f"{_OMISSION.format(count=missing)}\n{messages[0].content}")
    return [system, *messages]


def _system(conversation: ChatConversation, tables: Sequence[TableInfo], tools: tuple[str, ...]) -> str:
    inventory = conversation.inventory
    count = f" (the newest {MOST_DESCRIBED} of {len(inventory)})" if len(inventory) > MOST_DESCRIBED else ""
    parts = [
        INSTRUCTIONS,
        f"Tables:\n{_join_lines(map(_table, tables))}",
        f"Artifacts that exist{count}. {REUSE}\n{_join_lines(map(_description, inventory.newest()))}",
        f"Latest results of SQL, newest last:\n{_join_lines(map(_intent, conversation.intents))}",
    ]
    if not tools:
        parts.append("No tool can be called now: answer with what you have.")
    return "\n\n".join(parts)


def _table(table: TableInfo) -> str:
    description = {"table": table.name, "rows": table.row_count, "columns": dict(table.columns)}
    return json.dumps(description, ensure_ascii=False)


@lru_cache(maxsize=1_024)
def _intent(intent: QueryIntent) -> str:
    return json.dumps(as_data(intent), ensure_ascii=False)


@lru_cache(maxsize=1_024)
def _description(artifact: ChatArtifact) -> str:
    """Return an artifact's description as JSON. It is cached: later requests have the same."""
    return json.dumps(artifact.description(), ensure_ascii=False)


def _join_lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) or "none"
