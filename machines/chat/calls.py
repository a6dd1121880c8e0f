"""What a model asks of a tool, made into the arguments that the tool takes (seed 002, workstream D).

Takes the name and arguments of a call as they came, gives them as they are meant, and the kind of each thing that was mended on the way:
a name that means the same, arguments inside arguments, a fence around code, JSON in the place of code, numbers written as words. What
cannot be read as a call of a tool keeps its fault. Nothing is completed: arguments that were cut off are never mended. Pure.
"""

import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from machines.chat.python import compiles, is_empty
from machines.talking.arguments import object_in, unnested
from machines.talking.names import name_told
from machines.talking.texts import parse_json

#: Every kind of thing that is mended, with what it means to a reader.
RESCUES: dict[str, str] = {
    "tool_name": "The tool was called by another name of it.",
    "alias": "The argument had another name (`query`, `script`, ..).",
    "nested": "The arguments stood inside an argument (`arguments`, `input`, ..).",
    "text_arguments": "The arguments were the bare SQL or code, not an object.",
    "broken_json": "The arguments were broken JSON in which the SQL or code was whole.",
    "fence": "The SQL or code stood in a fence.",
    "json_in_code": "JSON arguments stood in the place of the SQL or code.",
    "lines": "The SQL or code was a list of lines.",
    "indentation": "The code was indented as a whole.",
    "escaped_newlines": "Line breaks were written as `\\n`.",
    "number": "A limit or a time limit was no number, or out of range.",
}


@attrs.frozen
class Tool:
    """A tool as a model sees it, and the names under which models call it. `text` is its argument that is SQL or code, `number` the other.

    `event` is the call as the machine's table names it, `effect` what performs it.
    """

    name: str
    event: str
    effect: str
    text: str
    number: str
    least: float
    most: float
    default: float
    names: frozenset[str]
    text_names: tuple[str, ...]
    number_names: tuple[str, ...]
    description: str
    explained: Mapping[str, str]

    def described(self) -> dict[str, Any]:
        """Give the tool in OpenAI's form."""
        properties = {
            self.text: {"type": "string", "description": self.explained[self.text]},
            self.number: {
                "type": "integer",
                "minimum": int(self.least),
                "maximum": int(self.most),
                "description": self.explained[self.number],
            },
        }
        schema = {"type": "object", "properties": properties, "required": [self.text]}
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": schema},
        }


SQL = Tool(
    "run_sql", "sql_call", "run_sql", "sql", "limit", 1, 10_000, 100,
    frozenset({"runsql", "sql", "sqlquery", "query", "executesql", "duckdb"}),
    ("query", "statement", "sql_query", "q"),
    ("max_rows", "row_limit", "rows"),
    "Run one SELECT over the tables and see the first rows, the true number of rows and what they are about.",
    {"sql": "one SELECT statement in DuckDB's SQL", "limit": "how many rows to see"},
)  # fmt: skip
PYTHON = Tool(
    "run_python", "python_call", "run_python", "code", "timeout", 1, 120, 30,
    frozenset({"runpython", "python", "py", "executepython", "codeinterpreter", "ipython"}),
    ("python", "script", "source", "input", "query"),
    ("timeout_s", "timeout_seconds", "time_limit", "seconds"),
    "Run Python with pandas (pd), numpy (np) and matplotlib (plt). The latest SQL result is the DataFrame df. "
    "Files that it writes into the working folder, and open figures, are kept as artifacts.",
    {"code": "Python code", "timeout": "seconds it may take"},
)  # fmt: skip
TOOLS = {tool.name: tool for tool in (SQL, PYTHON)}

_FENCE = re.compile(r"(?:^|\n) {0,3}```[ \t]*+[\w+.-]*+[ \t]*+\n")
_FENCE_END = re.compile(r"\n? {0,3}```[ \t]*+(?:\n|$)")


@attrs.frozen
class Call:
    """A call as it is meant. `tool` is empty, and `fault` says why, for one that is of no tool or cannot be read."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    rescues: tuple[str, ...] = ()
    fault: str = ""

    @property
    def text(self) -> str:
        """The SQL or code; empty where there is none."""
        return str(self.arguments.get(TOOLS[self.tool].text, "")) if self.tool else ""


def tool_meant(name: str) -> Tool | None:
    """Give the tool that a model means by a name."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    return TOOLS.get(name) or next((tool for tool in TOOLS.values() if plain in tool.names), None)


def meant(call_id: str, name: str, arguments: Any, text: str = "", error: str | None = None) -> Call:  # noqa: ANN401  (JSON)
    """Give a call as it is meant.

    `arguments` is None where they are no JSON object: then `text` is what was sent, and `error` why (`CALL_ERRORS`).
    """
    tool = tool_meant(name)
    if tool is None:
        return Call(call_id, "", {}, fault=f"there is no tool '{name_told(name)}'; the tools are: {', '.join(TOOLS)}")
    rescues: list[str] = [] if name == tool.name else ["tool_name"]
    if arguments is None:
        found = None if error == "truncated_arguments" else _from_text(tool, text, rescues)
        if found is None:
            why = "end before they are complete" if error == "truncated_arguments" else "are no JSON object"
            fault = f"the arguments of {name_told(name)} {why}; send them again, whole"
            return Call(call_id, "", {}, tuple(rescues), fault)
        arguments = found
    given = unnested(arguments, {tool.text}, rescues)
    written = _text_in(tool, given, rescues)
    number = _number(given, (tool.number, *tool.number_names), tool, rescues)
    return Call(call_id, tool.name, {tool.text: written, tool.number: number}, tuple(dict.fromkeys(rescues)))


def _from_text(tool: Tool, text: str, rescues: list[str]) -> dict[str, Any] | None:
    """Read arguments that are no JSON object."""
    said = parse_json(text)
    is_lines = isinstance(said, list) and said and all(isinstance(line, str) for line in said)
    if is_lines or (isinstance(said, str) and said.strip()):
        rescues.append("text_arguments")
        return {tool.text: said}
    names = "|".join(map(re.escape, (tool.text, *tool.text_names)))
    whole = re.search(rf'["\'](?:{names})["\']\s*:\s*(?P<text>"(?:[^"\\]|\\.)*+")', text, re.DOTALL)
    if said is None and whole is not None:
        try:
            found = json.loads(whole["text"], strict=False)
        except ValueError:
            return None
        rescues.append("broken_json")
        return {tool.text: found}
    return None


def _text_in(tool: Tool, given: Mapping[str, Any], rescues: list[str]) -> str:
    """Give the SQL or code as it is meant; empty where there is none."""
    name = next((each for each in (tool.text, *tool.text_names) if given.get(each)), tool.text)
    if name != tool.text:
        rescues.append("alias")
    text = given.get(name)
    if isinstance(text, list) and all(isinstance(line, str) for line in text):
        rescues.append("lines")
        text = "\n".join(line.rstrip("\n") for line in text)
    if not isinstance(text, str):
        return ""
    text = _from_json_in(tool, text.replace("\r\n", "\n").replace("\x00", ""), rescues)
    fences = _fences(text)
    if len(fences) == 1:
        rescues.append("fence")
        text = fences[0]
    return _laid_out(tool, text, rescues)


def _fences(text: str) -> list[str]:
    """Give the bodies of all fences that are closed."""
    found, at = [], 0
    while (begun := _FENCE.search(text, at)) and (end := _FENCE_END.search(text, begun.end())):
        found.append(text[begun.end() : end.start()])
        at = end.end()
    return found


def _from_json_in(tool: Tool, text: str, rescues: list[str]) -> str:
    """Give the text inside arguments that stand in its place."""
    inner = object_in(text)
    names: Iterable[str] = (tool.text, *tool.text_names)
    found = None if inner is None else next((inner[name] for name in names if isinstance(inner.get(name), str)), None)
    if found is None:
        return text
    rescues.append("json_in_code")
    return str(found)


def _laid_out(tool: Tool, text: str, rescues: list[str]) -> str:
    """Mend how code is laid out: indented as a whole, or its line breaks written as two characters."""
    if tool is not PYTHON or _is_python(text):
        return text.strip("\n")
    dedented = textwrap.dedent(text).strip("\n")
    if dedented != text.strip("\n") and _is_python(dedented):
        rescues.append("indentation")
        return dedented
    broken = text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')
    if "\n" not in text.strip("\n") and _is_python(broken):
        rescues.append("escaped_newlines")
        return broken.strip("\n")
    return text.strip("\n")


def _is_python(text: str) -> bool:
    return not is_empty(text) and compiles(text) is None


def _number(given: Mapping[str, Any], names: tuple[str, ...], tool: Tool, rescues: list[str]) -> int:
    """Give a whole number within the tool's bounds."""
    name = next((each for each in names if each in given), names[0])
    value = given.get(name)
    if value is None:
        return int(tool.default)
    digits = re.match(r"\s*(\d{1,9}(?:\.\d{1,9})?)", value) if isinstance(value, str) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    said = float(digits[1]) if digits else value if is_number else math.nan
    number = tool.default if said != said else min(max(said, tool.least), tool.most)  # noqa: PLR0124  (NaN; isnan takes no huge integers)
    if not isinstance(value, int) or isinstance(value, bool) or number != value or name != names[0]:
        rescues.append("number")
    return math.ceil(number)
