"""Tool calls: tools as a model sees them, its answers, the calls in them as tools take them, and the results. Pure.

A tool has a name, a purpose, and parameters of different kinds. A kind (texts, files, numbers, yes and no, lists of words) reads a value in the forms that
models write it, and adds what it fixed to a list. A foreign tool has a JSON schema instead of parameters, and its arguments are passed on unchanged.

`answer_of` turns an answer of the stream reconciler into the data of an event, and decides one thing: whether it asks for calls, says something, or broke
off. `read_call` turns a call into arguments that the tool takes. It fixes other names of tools and arguments, arguments inside arguments, and numbers as
text, and names each kind of fix. It never completes arguments that were cut off. A call that it cannot read has a fault.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, Generic, Literal, Self, TypeVar

import attrs

from dsa.generators import streams
from dsa.generators.streams.offered_tools import read_tools
from dsa.generators.streams.text_calls import misplaced_call
from dsa.runtime.json_text import WrittenJson
from machines.tool_use.records import JsonObject, innermost, is_writable, list_in, object_in, parse_json

#: The names that models use for a path.
PATH_NAMES = ("path", "file", "filename", "file_path", "filepath", "name")
_LONGEST = 64
_NONE = "unnamed"
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]+")
_STRING = {"type": "string"}
_FENCE = re.compile(r"\s*```[\w+.-]*[ \t]*\n(?P<body>.*?)\n?```\s*", re.DOTALL)
#: A number in a text, with an optional unit.
_NUMERAL = re.compile(
    r"\s*(?P<sign>-?)(?P<whole>\d{1,3}(?:,\d{3})+|\d{1,300})(?P<part>\.\d{1,9})?(?P<unit>[\s%€$£A-Za-z]*)"
)
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_FILE = {"type": "object", "properties": {"path": _STRING, "content": _STRING}, "required": ["path", "content"]}


#: Reads a model's value for a parameter, and adds what it fixed to the list. Raises ValueError for a value that it cannot read.
Reader = Callable[[Any, "Parameter", list[str]], object]


@attrs.frozen
class ArgumentKind:
    """A kind of argument: its JSON schema and its reader. `has_bounds` says that the parameter's `least` and `most` limit it."""

    schema: JsonObject = attrs.field(eq=False)
    read: Reader
    has_bounds: bool = False


@attrs.frozen
class Parameter:
    """A parameter of a tool. The model has to give a required one; if it is missing anyway, its default is used if it has one.

    `aliases` are other names that models use for it; `least` and `most` limit a number.
    """

    name: str
    kind: ArgumentKind
    about: str
    default: object = None
    required: bool = False
    least: int | None = None
    most: int | None = None
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its names: its own first, then the aliases."""
        return (self.name, *self.aliases)

    def has_within(self, number: float) -> bool:
        """Return whether a number is within the bounds."""
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)

    def schema(self) -> JsonObject:
        """Return its JSON schema."""
        limits = {"minimum": self.least, "maximum": self.most} if self.kind.has_bounds else {}
        bounds = {name: limit for name, limit in limits.items() if limit is not None}
        return {**self.kind.schema, **bounds, "description": self.about}


@attrs.frozen
class Tool:
    """A tool. `names` are other names that models use for it, in lower-case letters and digits.

    `text` names the parameter that receives the arguments when a model sends a text, or lines, instead of an object. `schema` is the JSON schema of a
    foreign tool, whose arguments are passed on unchanged.
    """

    name: str
    about: str
    parameters: tuple[Parameter, ...] = ()
    names: frozenset[str] = frozenset()
    text: str = ""
    schema: JsonObject | None = attrs.field(default=None, eq=False)

    @classmethod
    def of_openai(cls, entry: Mapping[str, Any]) -> Self:
        """Return the foreign tool that a request describes in OpenAI's form."""
        function = entry["function"]
        return cls(function["name"], function.get("description", ""), schema=function["parameters"])

    @property
    def required_names(self) -> tuple[str, ...]:
        """The names of the arguments that a call must have."""
        return tuple(each.name for each in self.parameters if each.required)

    def arguments_schema(self) -> JsonObject:
        """Return the JSON schema of its arguments."""
        properties = {each.name: each.schema() for each in self.parameters}
        return self.schema or {"type": "object", "properties": properties, "required": list(self.required_names)}

    @cached_property
    def as_openai(self) -> WrittenJson:
        """The tool in OpenAI's form; the same object each time."""
        function = {"name": self.name, "description": self.about, "parameters": dict(self.arguments_schema())}
        return WrittenJson({"type": "function", "function": function})

    @property
    def size(self) -> int:
        """Its length in a request, in characters."""
        return len(self.as_openai.text)


def _text(value: object, parameter: Parameter, rescues: list[str]) -> str:
    if isinstance(value, str):
        return value
    rescues.append("text")
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(line.rstrip("\n") for line in value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, indent=2)
    raise ValueError(f"the argument '{parameter.name}' must be a text, not {_excerpt(value)}")


def _content(value: object, parameter: Parameter, rescues: list[str]) -> str:
    """Return the content of a file, without a code fence around all of it."""
    text = _text(value, parameter, rescues)
    whole = _FENCE.fullmatch(text)
    if whole is None or "```" in whole["body"]:
        return text
    rescues.append("fence")
    return f"{whole['body']}\n"


def _number_in(value: Any) -> float | None:  # noqa: ANN401  (JSON)
    """Return the number of a value, or at the beginning of a text, or None. An integer may be larger than any float."""
    if isinstance(value, str):
        match = _NUMERAL.match(value)
        return None if match is None else _number_of(match)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and not (isinstance(value, float) and not math.isfinite(value)) else None


def _number_of(match: re.Match[str]) -> float:
    whole = int(f"{match['sign']}{match['whole'].replace(',', '')}")
    return float(f"{whole}{match['part']}") if match["part"] else whole


def _number(value: object, parameter: Parameter, rescues: list[str]) -> int:
    """Return a whole number within the bounds. Anything else is an error, because what the model means is not clear."""
    is_text = isinstance(value, str)
    match = _NUMERAL.fullmatch(value) if isinstance(value, str) else None
    number = (None if match is None else _number_of(match)) if is_text else _number_in(value)
    if number is None or number != int(number):
        raise ValueError(f"the argument '{parameter.name}' must be a whole number, not {_excerpt(value)}")
    if not parameter.has_within(number):
        least, most = parameter.least, parameter.most
        bounds = " and ".join(
            [*([f"at least {least}"] if least is not None else []), *([f"at most {most}"] if most is not None else [])]
        )
        raise ValueError(f"the argument '{parameter.name}' must be {bounds}, not {_excerpt(value)}")
    if is_text:
        rescues.append("number")
    return int(number)


def _nearest(value: object, parameter: Parameter, rescues: list[str]) -> int:
    """Return a limit: a whole number, moved to the nearest bound when it is out of bounds."""
    amount = _number_in(value)
    if amount is None:
        raise ValueError(f"the argument '{parameter.name}' must be a whole number, not {_excerpt(value)}")
    least = amount if parameter.least is None else max(amount, parameter.least)
    number = math.ceil(least if parameter.most is None else min(least, parameter.most))
    if number != value:
        rescues.append("number")
    return number


def _excerpt(value: object) -> str:
    return json.dumps(value, default=str)[:80]


def _truth(value: object, parameter: Parameter, rescues: list[str]) -> bool:
    if isinstance(value, bool):
        return value
    truth = _TRUTHS.get(str(value).strip().lower())
    if truth is None:
        raise ValueError(f"the argument '{parameter.name}' must be true or false, not {_excerpt(value)}")
    rescues.append("truth")
    return truth


def _words(value: object, parameter: Parameter, rescues: list[str]) -> str | list[str]:
    """Return a command, as a text or as its words; `program_rules` reads it further."""
    if isinstance(value, str):
        words = list_in(value)
        if words is not None and all(isinstance(part, str) for part in words):
            rescues.append("list")
            return words
        return value
    if isinstance(value, list) and value and all(isinstance(part, str | int | float) for part in value):
        return [str(part) for part in value]
    raise ValueError(f'the argument \'{parameter.name}\' must be a list of texts, such as ["python", "main.py"]')


def _files(value: object, parameter: Parameter, rescues: list[str]) -> list[dict[str, str]]:
    if isinstance(value, str):
        value = list_in(value) or object_in(value) or value
        rescues.append("list")
    if isinstance(value, dict):
        pairs = [value] if "content" in value else [{"path": path, "content": text} for path, text in value.items()]
        rescues.append("list")
        value = pairs
    form = f'the argument \'{parameter.name}\' must be a list of {{"path": .., "content": ..}}'
    if not isinstance(value, list) or not value:
        raise ValueError(form)
    files = []
    for each in value:
        path = next((each[name] for name in PATH_NAMES if each.get(name)), None) if isinstance(each, Mapping) else None
        if not isinstance(path, str) or each.get("content") is None:
            raise ValueError(form)
        files.append({"path": path, "content": _content(each["content"], parameter, rescues)})
    return files


TEXT = ArgumentKind(_STRING, _text)
#: The whole content of a file.
CONTENT = ArgumentKind(_STRING, _content)
#: A whole number; one out of bounds is an error.
NUMBER = ArgumentKind({"type": "integer"}, _number, has_bounds=True)
#: A limit; one out of bounds is moved to the nearest bound.
LIMIT = ArgumentKind({"type": "integer"}, _nearest, has_bounds=True)
TRUTH = ArgumentKind({"type": "boolean"}, _truth)
#: A program and its arguments.
COMMAND = ArgumentKind({"type": "array", "items": _STRING}, _words)
#: Files with their whole contents.
FILES = ArgumentKind({"type": "array", "items": _FILE}, _files)


def provider_name(name: str) -> str:
    """Return a tool's name in a form that every provider accepts.

    Strict providers refuse a conversation with any other name in it (OpenAI: `^[a-zA-Z0-9_-]{1,64}$`), and so every later request.
    """
    return _FOREIGN.sub("_", name)[:_LONGEST] or _NONE


def display_name(name: str) -> str:
    """Return a tool's name for messages, at most 64 characters of it; models have written names of 200,000."""
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}.."


# -- calls -----------------------------------------------------------------------------------------------------------------

#: The code of a call that was left out, after another one or because there was no room.
LEFT_OUT = "too_many_calls"
#: The kinds of fixes in a call of any tool, with an explanation for readers.
RESCUES: dict[str, str] = {
    "tool_name": "The tool was called by another name.",
    "alias": "The argument had another name (`query`, `file`, `command`, ..).",
    "nested": "The arguments were inside an argument (`arguments`, `input`, ..).",
    "text_arguments": "The arguments were a plain text, not an object.",
    "broken_json": "The arguments were broken JSON, but contained the whole text.",
    "text": "A text was written as a list of lines, or as a value of another type.",
    "number": "A number was written as a text, or out of range.",
    "truth": "Yes or no was written as a text or a number.",
    "list": "A list was written as a JSON text, or as a single value.",
    "fence": "The content of a file was inside a code fence.",
}
_TRUNCATION = "truncated_arguments"
SHORTER = "Say it again, shorter."
_CALL_IT = "Call the tool itself; to write about such a call, put it in backticks."
#: Advice for the model after an answer with an error, by code.
_ADVICE = {
    "malformed": "Make the call again, with its arguments as one JSON object.",
    "unknown_end": "Make the call again.",
    "filtered": "Say it in other words.",
}
#: The notices in a row about a call in the text; after them such a text counts as an answer.
MOST_MISPLACED = 2
#: The answer asks for calls · says something without calls · broke off, is empty, or has a call in its text.
AnswerKind = Literal["asked", "said", "cut_off"]
#: Returns an unused id for a call, different from those in the collection too: providers repeat theirs.
FreeId = Callable[[str, Collection[str]], str]


AnyTool = TypeVar("AnyTool", bound=Tool)


@attrs.frozen
class ToolCall:
    """A call as the model wrote it. `id` is our own and unique in the run; `provider_id` is the provider's.

    `arguments` is None exactly when `error` (one of `dsa.generators.streams.CALL_ERRORS`) says why; then `text` is what the model wrote instead.
    `extra` is what the provider needs back.
    """

    id: str
    provider_id: str
    name: str
    arguments: JsonObject | None
    error: str = ""
    text: str = ""
    extra: JsonObject = attrs.field(factory=dict)

    def as_part(self) -> JsonObject:
        """Return the call in the form of OpenAI's messages, with a name that providers accept."""
        function = {
            "name": provider_name(self.name),
            "arguments": json.dumps(self.arguments or {}, ensure_ascii=False),
        }
        return {**self.extra, "id": self.provider_id, "type": "function", "function": function}


@attrs.frozen
class ToolRequest(Generic[AnyTool]):
    """A call as the agent reads it: a tool, and arguments that it takes. When there is no such tool or the call cannot be read, `tool` is None and `fault` says why.

    `rescues` names each kind of fix.
    """

    call_id: str
    tool: AnyTool | None
    arguments: JsonObject = attrs.field(factory=dict)
    rescues: tuple[str, ...] = ()
    fault: str = ""


@attrs.frozen
class CallFault:
    """Why a call failed or was not made: a code, and a message for the model."""

    code: str
    message: str


@attrs.frozen
class ToolResult:
    """The result of a call for the model: the tool's JSON, or `error` with a code and a message."""

    call_id: str
    content: JsonObject

    @cached_property
    def fault(self) -> CallFault | None:
        """Why the call failed or was not made, or None."""
        error = self.content.get("error")
        is_fault = isinstance(error, dict) and {"code", "message"} <= error.keys()
        return CallFault(str(error["code"]), str(error["message"])) if isinstance(error, dict) and is_fault else None

    @property
    def is_left_out(self) -> bool:
        """Whether the call was left out, after another one or because there was no room."""
        return self.fault is not None and self.fault.code == LEFT_OUT

    def as_text(self) -> str:
        """Return the JSON text for the model."""
        return json.dumps(self.content, ensure_ascii=False)


def fault_result(call_id: str, code: str, message: str, **more: object) -> ToolResult:
    """Return the result of a call that failed or was not made."""
    return ToolResult(call_id, {"error": {"code": code, "message": message}, **more})


def read_call(call: ToolCall, tools: Mapping[str, AnyTool]) -> ToolRequest[AnyTool]:
    """Return a call with the fixes that it needs, or with its fault."""
    tool = tool_of(call.name, tools)
    if tool is None:
        reason = f"there is no tool '{display_name(call.name)}'; the tools are: {', '.join(tools)}"
        return ToolRequest(call.id, None, fault=reason)
    rescues = [] if call.name == tool.name else ["tool_name"]
    arguments = _arguments(call, tool, rescues)
    if arguments is None:
        why = "end before they are complete" if call.error == _TRUNCATION else "are not a JSON object"
        fault = f"the arguments of {display_name(call.name)} {why}; send all of them again"
        return ToolRequest(call.id, None, {}, tuple(rescues), fault)
    if tool.schema is not None:
        return ToolRequest(call.id, tool, dict(arguments), tuple(rescues))
    names = {tool.text} if tool.text else {name for each in tool.parameters for name in each.names}
    raw = innermost(arguments, names, rescues)
    try:
        values = {each.name: _argument(each, raw, tool, rescues) for each in tool.parameters}
    except Exception as error:  # noqa: BLE001  (kinds are foreign code, and a model must not end a run)
        return ToolRequest(call.id, None, {}, tuple(dict.fromkeys(rescues)), f"{tool.name}: {error}")
    present = {name: value for name, value in values.items() if value is not None}
    if not is_writable(present):
        fault = f"{tool.name}: an argument has a number that JSON cannot write, or is nested too deep"
        return ToolRequest(call.id, None, {}, tuple(dict.fromkeys(rescues)), fault)
    return ToolRequest(call.id, tool, present, tuple(dict.fromkeys(rescues)))


def read_strictly(call: ToolCall, tools: Mapping[str, AnyTool]) -> ToolRequest[AnyTool]:
    """Return a call without any fixes; benchmarks compare it with `read_call`."""
    tool, raw = tools.get(call.name), call.arguments
    if tool is None or raw is None:
        return ToolRequest(call.id, None, fault="there is no such tool, or its arguments are not a JSON object")
    arguments = {each.name: _as_it_stands(each, raw.get(each.name)) for each in tool.parameters}
    return ToolRequest(call.id, tool, arguments)


def _as_it_stands(parameter: Parameter, value: object) -> object:
    """Return a text, or a number within its bounds, unchanged; otherwise the default."""
    if parameter.kind.has_bounds:
        is_one = isinstance(value, int) and not isinstance(value, bool) and parameter.has_within(value)
        return value if is_one else parameter.default
    return value if isinstance(value, str) else parameter.default


def tool_of(name: str, tools: Mapping[str, AnyTool]) -> AnyTool | None:
    """Return the tool of a name, also of another name or spelling, or None."""
    plain = _plain(name)
    same = (each for each in tools.values() if plain in each.names or plain == _plain(each.name))
    return tools.get(name) or (next(same, None) if plain else None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _arguments(call: ToolCall, tool: Tool, rescues: list[str]) -> JsonObject | None:
    """Return the arguments, also a plain text for a tool with a `text` parameter; None when they cannot be read."""
    if call.arguments is not None or not tool.text or call.error == _TRUNCATION:
        return call.arguments
    value = parse_json(call.text)
    is_lines = isinstance(value, list) and value and all(isinstance(line, str) for line in value)
    if is_lines or (isinstance(value, str) and value.strip()):
        rescues.append("text_arguments")
        return {tool.text: value}
    text = next(each for each in tool.parameters if each.name == tool.text)
    names = "|".join(map(re.escape, text.names))
    whole = re.search(rf'["\'](?:{names})["\']\s*:\s*(?P<text>"(?:[^"\\]|\\.)*+")', call.text, re.DOTALL)
    content = None if value is not None or whole is None else parse_json(whole["text"], strict=False)
    if content is None:
        return None
    rescues.append("broken_json")
    return {tool.text: content}


def _argument(parameter: Parameter, raw: JsonObject, tool: Tool, rescues: list[str]) -> object:
    """Return one argument. Raises ValueError when it is missing or cannot be read."""
    empty = (None,) if parameter.default is None else (None, "")
    name = next((each for each in parameter.names if raw.get(each) not in empty), None)
    if name is None:
        if parameter.required and parameter.default is None:
            schema = {each.name: each.schema() for each in tool.parameters if each.required}
            raise ValueError(f"the argument '{parameter.name}' is missing; the tool takes {json.dumps(schema)}")
        return parameter.default
    if name != parameter.name:
        rescues.append("alias")
    return parameter.kind.read(raw[name], parameter, rescues)


@attrs.frozen
class ModelUsage:
    """The tokens and the cost of an answer, as far as the provider reports them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None


@attrs.frozen
class Room:
    """The size of a request in characters when the model could not read as much as `wanted`. The next request starts with this size.

    It holds for one model and one `wanted`; when either changes, it is ignored.
    """

    chars: int
    wanted: int
    model: str


@attrs.frozen
class ModelAnswer:
    """A model's answer. `why` says why it cannot be used, and `advice` what the model should do then; `misplaced` names a tool that its text calls.

    `offered` names the tools of the request, when it did not have all.
    """

    content: str = ""
    rescues: Mapping[str, int] = attrs.field(factory=dict)
    usage: ModelUsage = ModelUsage()
    model: str = ""
    calls: tuple[ToolCall, ...] = ()
    why: str = ""
    advice: str = ""
    misplaced: str = ""
    room: Room | None = None
    offered: tuple[str, ...] | None = None

    @property
    def note(self) -> str:
        """The note to the model about an answer that cannot be used."""
        what = "cannot be used" if self.misplaced else "is not complete"
        return f"[Your last answer {what}: {self.why}. {self.advice or SHORTER}]"


def answer_of(
    result: streams.StreamResult, free_id: FreeId, tools: Iterable[Tool] = (), *, misplaced_count: int = 0
) -> tuple[AnswerKind, ModelAnswer]:
    """Return the kind of an answer, and the answer.

    A text that seems to call one of `tools` counts as cut off, unless the last `MOST_MISPLACED` answers were such texts (`misplaced_count` counts them).
    """
    count = result.count
    usage = ModelUsage(count("prompt_tokens"), count("completion_tokens"), result.cost_usd)
    answer = ModelAnswer(result.content, dict(result.rescues), usage, result.model)
    why, advice = _fault_of(result)
    if why:
        return "cut_off", attrs.evolve(answer, why=why, advice=advice)
    if result.tool_calls:
        return "asked", attrs.evolve(answer, calls=_calls(result.tool_calls, free_id))
    registry = read_tools([tool.as_openai for tool in tools])
    if misplaced_count < MOST_MISPLACED and (name := misplaced_call(result.content, registry)):
        why = f"its text contains a call of {name}"
        return "cut_off", attrs.evolve(answer, why=why, advice=_CALL_IT, misplaced=name)
    return "said", answer


def _fault_of(result: streams.StreamResult) -> tuple[str, str]:
    """Return why an answer cannot be used, and advice for the model; two empty texts when it can."""
    if result.error is not None:
        return str(result.error), _ADVICE.get(result.error.code, SHORTER)
    if result.tool_calls:
        return "", ""
    if result.finish_reason == "length":
        return "it reached its limit of tokens", SHORTER
    if result.finish_reason == "content_filter":
        return "a content filter stopped it", _ADVICE["filtered"]
    if not result.content.strip():
        what = "it was only reasoning, without a text" if result.reasoning.strip() else "it was empty"
        is_end = result.finish_reason in {"stop", "tool_calls"}
        return what if is_end else f"{what}: the finish reason is {result.finish_reason}", SHORTER
    return "", ""


def _calls(calls: tuple[streams.StreamCall, ...], free_id: FreeId) -> tuple[ToolCall, ...]:
    """Return the calls with unique ids of our own; the provider's ids stay beside them, unchanged."""
    ids: set[str] = set()
    result = []
    for call in calls:
        name = free_id(call.id, ids)
        ids.add(name)
        error = (call.error or "") if is_writable(call.arguments) else "invalid_arguments"
        extra = dict(call.extra) if is_writable(dict(call.extra)) else {}
        arguments, text = (None, call.text) if error else (call.arguments, "")
        result.append(ToolCall(name, call.id, call.name, arguments, error, text, extra))
    return tuple(result)
