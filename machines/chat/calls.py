"""The tools of the chat machine as a model sees them, and how SQL and code are read that models write (seed 002, workstream D).

A fence around code, JSON in the place of code, line breaks written as two characters: what is meant is kept, and the kind of each thing that was mended.
Nothing is completed. Pure.
"""

import math
import re
import textwrap

import attrs

from machines.chat.python import compiles, is_empty
from machines.tool_use import reading
from machines.tool_use.call import Meant
from machines.tool_use.json_values import object_in
from machines.tool_use.kinds import LIMIT
from machines.tool_use.tool import Kind, Parameter, Tool

#: Every kind of thing that is mended, with what it means to a reader.
RESCUES: dict[str, str] = {
    **{
        name: reading.RESCUES[name]
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


def text_of(call: Meant[DataTool]) -> str:
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


_LIMIT = Kind(LIMIT.schema, _limit, has_bounds=True)
_STRING = {"type": "string"}
SQL = DataTool(
    "run_sql",
    "Run one SELECT over the tables and see the first rows, the true number of rows and what they are about.",
    (
        Parameter("sql", Kind(_STRING, _sql), "one SELECT statement in DuckDB's SQL", "", required=True,
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
        Parameter("code", Kind(_STRING, _code), "Python code", "", required=True,
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
