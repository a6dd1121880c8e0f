"""Tool calls: a model's answers, the calls in them as tools take them, and the results. Pure.

`answer_of` turns an answer of the stream reconciler into the data of an event, and decides one thing: whether it asks for calls, says something, or broke
off. `read_call` turns a call into arguments that the tool takes. It fixes other names of tools and arguments, arguments inside arguments, and numbers as
text, and names each kind of fix. It never completes arguments that were cut off. A call that it cannot read has a fault.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Generic, Literal, TypeVar

import attrs

from dsa.generators import streams
from dsa.generators.streams.offered_tools import read_tools
from dsa.generators.streams.text_calls import misplaced_call
from machines.tool_use.records import JsonObject, innermost, is_writable, parse_json
from machines.tool_use.tool import Parameter, Tool, display_name, provider_name

#: The code of a call that was left out, after another one or because there was no room.
LEFT_OUT = "too_many_calls"
#: The kinds of fixes in a call of any tool, with an explanation for readers.
RESCUES: dict[str, str] = {
    "tool_name": "The tool was called by another name.",
    "alias": "The argument had another name (`query`, `file`, `command`, ..).",
    "nested": "The arguments were inside an argument (`arguments`, `input`, ..).",
    "text_arguments": "The arguments were a plain text, not an object.",
    "broken_json": "The arguments were broken JSON that had the whole text.",
    "text": "A text was written as lines, or as another value.",
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
        fault = f"the arguments of {display_name(call.name)} {why}; send them again, whole"
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
            raise ValueError(f"the argument '{parameter.name}' is missing; it takes {json.dumps(schema)}")
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
        what = "cannot be used" if self.misplaced else "did not arrive whole"
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
        what = "it was only a draft" if result.reasoning.strip() else "it was empty"
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
