"""The tools of the coding machine as a model sees them, and its calls as they are meant.

Takes the name and arguments of a call as they came, gives them as the tool takes them, and the kind of each thing that was mended on the way. What
cannot be read as a call of a tool keeps its fault; arguments that were cut off are never completed. Pure.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from machines.coding.loops import Kind
from machines.talking.arguments import list_in, object_in, unnested
from machines.talking.names import name_told

#: Every kind of thing that is mended, with what it means to a reader.
RESCUES: dict[str, str] = {
    "tool_name": "The tool was called by another name of it.",
    "alias": "The argument had another name (`file`, `command`, ..).",
    "nested": "The arguments stood inside an argument (`arguments`, `input`, ..).",
    "text": "A text was written as lines, or as another value.",
    "number": "A number was written as a text, or out of range.",
    "truth": "Yes or no was written as a text or a number.",
    "list": "A list was written as a JSON text, or one thing stood for a list.",
    "fence": "The content of a file stood in a fence.",
}
COMPLETE = "mark_subtask_complete"


@attrs.frozen
class Parameter:
    """An argument of a tool. `is_a` is text, content, number, truth, command or files; `most` bounds numbers."""

    name: str
    is_a: str
    about: str
    default: Any = None
    required: bool = False
    least: int = 0
    most: int = 0
    aliases: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Give it as a JSON schema."""
        match self.is_a:
            case "number":
                return {"type": "integer", "minimum": self.least, "maximum": self.most, "description": self.about}
            case "truth":
                return {"type": "boolean", "description": self.about}
            case "command":
                return {"type": "array", "items": {"type": "string"}, "description": self.about}
            case "files":
                text = {"type": "string"}
                file = {
                    "type": "object",
                    "properties": {"path": text, "content": text},
                    "required": ["path", "content"],
                }
                return {"type": "array", "items": file, "description": self.about}
        return {"type": "string", "description": self.about}


@attrs.frozen
class Tool:
    """A tool. `kind` is what it does to the workspace.

    `needs` is look, edit or run, which the mode has to permit, or ask or never, whatever the mode is. `schema` is that of a tool whose arguments are passed on as they are.
    """

    name: str
    kind: Kind
    needs: str
    about: str
    parameters: tuple[Parameter, ...] = ()
    names: frozenset[str] = frozenset()
    schema: Mapping[str, Any] | None = attrs.field(default=None, eq=False)

    def described(self) -> dict[str, Any]:
        """Give the tool in OpenAI's form."""
        properties = {each.name: each.schema() for each in self.parameters}
        required = [each.name for each in self.parameters if each.required]
        schema = dict(self.schema or {"type": "object", "properties": properties, "required": required})
        return {"type": "function", "function": {"name": self.name, "description": self.about, "parameters": schema}}


@attrs.frozen
class Call:
    """A call as it is meant. `tool` is None, and `fault` says why, for one that is of no tool or cannot be read."""

    call_id: str
    tool: Tool | None
    arguments: Mapping[str, Any]
    rescues: tuple[str, ...] = ()
    fault: str = ""


def meant(asked: Mapping[str, Any], tools: Mapping[str, Tool]) -> Call:
    """Give a call, as it stands in the event `asked`, as it is meant."""
    call_id, name, arguments = asked["id"], asked["name"], asked["arguments"]
    tool = _tool_meant(name, tools)
    if tool is None:
        return Call(call_id, None, {}, fault=f"there is no tool '{name_told(name)}'; the tools are: {', '.join(tools)}")
    rescues: list[str] = [] if name == tool.name else ["tool_name"]
    if arguments is None:
        why = "end before they are complete" if asked.get("error") == "truncated_arguments" else "are no JSON object"
        fault = f"the arguments of {name_told(name)} {why}; send them again, whole"
        return Call(call_id, None, {}, tuple(rescues), fault)
    if tool.schema is not None:
        return Call(call_id, tool, dict(arguments), tuple(rescues))
    known = {each for parameter in tool.parameters for each in (parameter.name, *parameter.aliases)}
    given = unnested(arguments, known, rescues)
    try:
        found = {each.name: _argument(each, given, tool, rescues) for each in tool.parameters}
    except ValueError as error:
        return Call(call_id, None, {}, tuple(dict.fromkeys(rescues)), f"{tool.name}: {error}")
    said = {name: value for name, value in found.items() if value is not None}
    return Call(call_id, tool, said, tuple(dict.fromkeys(rescues)))


def _tool_meant(name: str, tools: Mapping[str, Tool]) -> Tool | None:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    same = (
        each for each in tools.values() if plain in each.names or plain == re.sub(r"[^a-z0-9]", "", each.name.lower())
    )
    return tools.get(name) or next(same, None)


def _argument(parameter: Parameter, given: Mapping[str, Any], tool: Tool, rescues: list[str]) -> Any:  # noqa: ANN401  (JSON)
    """Give one argument. Raises ValueError where it is missing, or cannot be meant."""
    empty = (None, "") if parameter.default is not None else (None,)
    name = next((each for each in (parameter.name, *parameter.aliases) if given.get(each) not in empty), None)
    if name is None:
        if parameter.required:
            asked = {each.name: each.schema() for each in tool.parameters if each.required}
            raise ValueError(f"the argument '{parameter.name}' is missing; it takes {json.dumps(asked)}")
        return parameter.default
    if name != parameter.name:
        rescues.append("alias")
    return _READ[parameter.is_a](given[name], parameter, rescues)


def _text(value: object, parameter: Parameter, rescues: list[str]) -> str:
    if isinstance(value, str):
        return value
    rescues.append("text")
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(line.rstrip("\n") for line in value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, indent=2)
    raise ValueError(f"the argument '{parameter.name}' is to be a text, not {json.dumps(value)}")


_FENCE = re.compile(r"\s*```[\w+.-]*[ \t]*\n(?P<body>.*?)\n?```\s*", re.DOTALL)


def _content(value: object, parameter: Parameter, rescues: list[str]) -> str:
    """Give what is to stand in a file; one fence around all of it is not meant to."""
    text = _text(value, parameter, rescues)
    whole = _FENCE.fullmatch(text)
    if whole is None or "```" in whole["body"]:
        return text
    rescues.append("fence")
    return f"{whole['body']}\n"


def _number(value: object, parameter: Parameter, rescues: list[str]) -> int:
    digits = re.match(r"\s*(-?\d{1,12}(?:\.\d{1,9})?)", value) if isinstance(value, str) else None
    said = float(digits[1]) if digits else value
    is_odd = isinstance(said, float) and not math.isfinite(said)  # an integer may be larger than any float
    if is_odd or isinstance(said, bool) or not isinstance(said, int | float):
        raise ValueError(f"the argument '{parameter.name}' is to be a whole number, not {json.dumps(value)[:80]}")
    number = math.ceil(min(max(said, parameter.least), parameter.most))
    if number != value:
        rescues.append("number")
    return number


_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _truth(value: object, parameter: Parameter, rescues: list[str]) -> bool:
    if isinstance(value, bool):
        return value
    said = _TRUTHS.get(str(value).strip().lower())
    if said is None:
        raise ValueError(f"the argument '{parameter.name}' is to be true or false, not {json.dumps(value)[:80]}")
    rescues.append("truth")
    return said


def _command(value: object, parameter: Parameter, rescues: list[str]) -> Any:  # noqa: ANN401  (a text or a list: the rules of commands say more)
    if isinstance(value, str):
        listed = list_in(value)
        if listed is not None and all(isinstance(part, str) for part in listed):
            rescues.append("list")
            return listed
        return value
    if isinstance(value, list) and value and all(isinstance(part, str | int | float) for part in value):
        return [str(part) for part in value]
    raise ValueError(f'the argument \'{parameter.name}\' is to be a list of texts, such as ["python", "main.py"]')


def _files(value: object, parameter: Parameter, rescues: list[str]) -> list[dict[str, str]]:
    if isinstance(value, str):
        value = list_in(value) or object_in(value) or value
        rescues.append("list")
    if isinstance(value, dict):
        pairs = [value] if "content" in value else [{"path": path, "content": text} for path, text in value.items()]
        rescues.append("list")
        value = pairs
    form = f'the argument \'{parameter.name}\' is to be a list of {{"path": .., "content": ..}}'
    if not isinstance(value, list) or not value:
        raise ValueError(form)
    found = []
    for each in value:
        path = next((each[name] for name in _PATH if each.get(name)), None) if isinstance(each, dict) else None
        if not isinstance(path, str) or each.get("content") is None:
            raise ValueError(form)
        found.append({"path": path, "content": _content(each["content"], parameter, rescues)})
    return found


_READ: dict[str, Callable[[object, Parameter, list[str]], Any]] = {
    "text": _text, "content": _content, "number": _number, "truth": _truth, "command": _command, "files": _files,
}  # fmt: skip
_PATH = ("path", "file", "filename", "file_path", "filepath", "name")
_CONTENT = ("text", "contents", "data", "body", "code", "source")
_WHERE = Parameter("path", "text", "path in the workspace", required=True, aliases=_PATH[1:])
_HERE = Parameter(
    "path", "text", "folder in the workspace", default=".", aliases=("dir", "directory", "folder", *_PATH[1:3])
)
_FOLDERS = Parameter(
    "create_dirs", "truth", "make folders that are missing", default=True, aliases=("mkdir", "parents")
)


def _tool(name: str, kind: Kind, needs: str, about: str, parameters: Iterable[Parameter], names: str = "") -> Tool:
    return Tool(name, kind, needs, about, tuple(parameters), frozenset(names.split()))


#: The seed's five tools, and those that models want beside them.
TOOLS: tuple[Tool, ...] = (
    _tool("list_dir", "looking", "look", "List a folder.", (
        _HERE, Parameter("offset", "number", "names to leave out at the beginning", 0, least=0, most=1 << 40, aliases=("start",)),
    ), "ls listfiles listdirectory dir"),
    _tool("read_file", "looking", "look", "Read a text file.", (
        _WHERE,
        Parameter("max_bytes", "number", "how much of it", 65_536, least=1, most=1_000_000, aliases=("limit", "bytes")),
        Parameter("offset", "number", "bytes to leave out at the beginning", 0, least=0, most=1 << 40, aliases=("start",)),
    ), "cat openfile viewfile view readfiles"),
    _tool("search", "looking", "look", "Find a text in the files of the workspace.", (
        Parameter("pattern", "text", "what to find", required=True, aliases=("query", "text", "regex")),
        _HERE,
        Parameter("glob", "text", "only files of such names, as *.py"),
        Parameter("is_regex", "truth", "the pattern is a regular expression", default=False, aliases=("regexp",)),
    ), "grep find searchfiles rg"),
    _tool("write_file", "changing", "edit", "Write a file, whole; what was in it is replaced.", (
        _WHERE, Parameter("content", "content", "all of the file", required=True, aliases=_CONTENT), _FOLDERS,
    ), "createfile savefile write writetofile"),
    _tool("write_files", "changing", "edit", "Write several files: all of them or none.", (
        Parameter("files", "files", "the files, whole", required=True, aliases=("paths", "contents")), _FOLDERS,
    ), "createfiles savefiles"),
    _tool("edit", "changing", "edit", "Replace a text in a file by another one; it must be there once, exactly.", (
        _WHERE,
        Parameter("old", "text", "the text to replace", required=True, aliases=("old_str", "old_string", "old_text", "find")),
        Parameter("new", "text", "what to put there", required=True, aliases=("new_str", "new_string", "new_text", "replace")),
        Parameter("all", "truth", "replace it wherever it is", default=False, aliases=("replace_all",)),
    ), "editfile strreplace replaceinfile applyedit"),
    _tool("write_tested", "changing", "edit", "Write a Python module, tests first: tests are written, then code until it passes them.", (
        _WHERE,
        Parameter("tests_path", "text", "where the tests go, as tests/test_NAME.py", required=True, aliases=("test_path", "tests", "test_file")),
        Parameter("specification", "text", "what the module is to do, exactly", required=True, aliases=("spec", "task", "description")),
    )),
    _tool("run_cmd", "running", "run", "Run a program of the list, without a shell.", (
        Parameter("cmd", "command", 'program and arguments, as ["python", "main.py"]', required=True, aliases=("command", "argv", "args", "cmdline")),
        Parameter("stdin", "text", "what it reads on standard input", aliases=("input", "standard_input")),
        Parameter("timeout_sec", "number", "seconds it may take", 60, least=1, most=600, aliases=("timeout", "timeout_s", "seconds")),
        Parameter("cwd", "text", "folder to run it in", default=".", aliases=("workdir", "working_dir")),
    ), "bash shell exec execute runcommand runbash terminal runshell"),
    _tool("git_status", "looking", "look", "What git says has changed.", ()),
    _tool("git_diff", "looking", "look", "What has changed in files that git knows, since it was staged or committed.", (
        Parameter("path", "text", "only this file or folder", aliases=_PATH[1:3]),
        Parameter("staged", "truth", "what was staged since the last commit", default=False, aliases=("cached",)),
    )),
    _tool("git_log", "looking", "look", "The last commits.", (
        Parameter("count", "number", "how many", 10, least=1, most=100, aliases=("n", "limit", "max_count")),
        Parameter("path", "text", "only those of this file or folder", aliases=_PATH[1:3]),
    )),
    _tool("git_commit", "running", "run", "Commit what has changed.", (
        Parameter("message", "text", "what the commit says", required=True, aliases=("msg",)),
    )),
    _tool(COMPLETE, "looking", "look", "Say that the active subtask is over. Call it as soon as that is so.", (
        Parameter("success", "truth", "whether it was done", required=True, aliases=("completed", "done", "ok")),
        Parameter("reason", "text", "why, in a sentence", default="", aliases=("message", "summary", "why")),
    ), "marksubtaskcompleted subtaskcomplete completesubtask marktaskcomplete markcomplete"),
)  # fmt: skip
