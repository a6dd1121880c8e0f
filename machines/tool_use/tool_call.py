"""Calls of tools: as a model asks for them, as they are meant, and what came of them.

What a model asks of a tool, made into the arguments that the tool takes.

Takes a call as it came, gives it as it is meant, and the kind of each thing that was mended on the way: a name that means the same, arguments inside
arguments, numbers written as words. What cannot be read as a call of a tool keeps its fault. Nothing is completed: arguments that were cut off are
never mended. Pure.

What a model's answer brings, as the data of an event.

Takes an answer as the stream reconciler gives it. Whether it asks for calls, says something or broke off is all that is decided here. Pure.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Generic, Literal, TypeVar

import attrs

from dsa.generators import streams
from dsa.generators.streams.offered_tools import offered
from dsa.generators.streams.text_calls import misplaced_call
from machines.tool_use.records import JsonObject, is_writable, parse_json, unnested
from machines.tool_use.tool import Parameter, Tool, name_sent, name_told

AnyTool = TypeVar("AnyTool", bound=Tool)


@attrs.frozen
class ToolCall:
    """A call as a model has asked for it. `id` is ours, which no other call of the run has; `provider_id` is the provider's.

    `arguments` is None exactly when `error` (`dsa.generators.streams.CALL_ERRORS`) says why there are none; then `text` is what was sent for them.
    `extra` is what the provider wants back.
    """

    id: str
    provider_id: str
    name: str
    arguments: JsonObject | None
    error: str = ""
    text: str = ""
    extra: JsonObject = attrs.field(factory=dict)

    def as_part(self) -> JsonObject:
        """Return it as OpenAI's messages have it; the name is one that providers take."""
        function = {
            "name": name_sent(self.name),
            "arguments": json.dumps(self.arguments or {}, ensure_ascii=False),
        }
        return {**self.extra, "id": self.provider_id, "type": "function", "function": function}


@attrs.frozen
class ToolRequest(Generic[AnyTool]):
    """A call as it is meant: a tool, and arguments as that takes them. `tool` is None, and `fault` says why, for one that is of no tool or cannot be read.

    `rescues` names each kind of thing that was mended.
    """

    call_id: str
    tool: AnyTool | None
    arguments: JsonObject = attrs.field(factory=dict)
    rescues: tuple[str, ...] = ()
    fault: str = ""


@attrs.frozen
class CallFault:
    """Why a call was not made, or not to its end: a code, and words for the model."""

    code: str
    message: str


@attrs.frozen
class ToolResult:
    """What the model is told of a call: the JSON that the tool gave, or `error` with a code and a message."""

    call_id: str
    content: JsonObject

    @cached_property
    def fault(self) -> CallFault | None:
        """Why it was not made, or not to its end; None where it was."""
        error = self.content.get("error")
        is_fault = isinstance(error, dict) and {"code", "message"} <= error.keys()
        return CallFault(str(error["code"]), str(error["message"])) if isinstance(error, dict) and is_fault else None

    @property
    def is_left_out(self) -> bool:
        """Return whether the call was left out, behind another one or for want of room."""
        return self.fault is not None and self.fault.code == LEFT_OUT

    def as_text(self) -> str:
        """Return it as the model reads it."""
        return json.dumps(self.content, ensure_ascii=False)


#: Why a call was not made that stood behind another one, or for which there was no room.
LEFT_OUT = "too_many_calls"


def refused(call_id: str, code: str, message: str, **more: object) -> ToolResult:
    """Return the result of a call that was not made, or not to its end."""
    return ToolResult(call_id, {"error": {"code": code, "message": message}, **more})


#: Kinds of things that are mended in a call of any tool, with what they mean to a reader.
RESCUES: dict[str, str] = {
    "tool_name": "The tool was called by another name of it.",
    "alias": "The argument had another name (`query`, `file`, `command`, ..).",
    "nested": "The arguments stood inside an argument (`arguments`, `input`, ..).",
    "text_arguments": "The arguments were the bare text, not an object.",
    "broken_json": "The arguments were broken JSON in which the text was whole.",
    "text": "A text was written as lines, or as another value.",
    "number": "A number was written as a text, or out of range.",
    "truth": "Yes or no was written as a text or a number.",
    "list": "A list was written as a JSON text, or one thing stood for a list.",
    "fence": "The content of a file stood in a fence.",
}
_TRUNCATED = "truncated_arguments"


def read_call(call: ToolCall, tools: Mapping[str, AnyTool]) -> ToolRequest[AnyTool]:
    """Return a call as it is meant."""
    tool = tool_meant(call.name, tools)
    if tool is None:
        told = f"there is no tool '{name_told(call.name)}'; the tools are: {', '.join(tools)}"
        return ToolRequest(call.id, None, fault=told)
    mended = [] if call.name == tool.name else ["tool_name"]
    arguments = _arguments(call, tool, mended)
    if arguments is None:
        why = "end before they are complete" if call.error == _TRUNCATED else "are no JSON object"
        fault = f"the arguments of {name_told(call.name)} {why}; send them again, whole"
        return ToolRequest(call.id, None, {}, tuple(mended), fault)
    if tool.schema is not None:
        return ToolRequest(call.id, tool, dict(arguments), tuple(mended))
    known = {tool.text} if tool.text else {name for each in tool.parameters for name in each.names}
    given = unnested(arguments, known, mended)
    try:
        found = {each.name: _argument(each, given, tool, mended) for each in tool.parameters}
    except Exception as error:  # noqa: BLE001  (kinds are foreign code, and a model must not end a run)
        return ToolRequest(call.id, None, {}, tuple(dict.fromkeys(mended)), f"{tool.name}: {error}")
    said = {name: value for name, value in found.items() if value is not None}
    if not is_writable(said):
        fault = f"{tool.name}: an argument has a number beyond all bounds, or is nested too deep"
        return ToolRequest(call.id, None, {}, tuple(dict.fromkeys(mended)), fault)
    return ToolRequest(call.id, tool, said, tuple(dict.fromkeys(mended)))


def read_strictly(call: ToolCall, tools: Mapping[str, AnyTool]) -> ToolRequest[AnyTool]:
    """Return a call as it stands, with nothing mended: what measures how much mending does."""
    tool, given = tools.get(call.name), call.arguments
    if tool is None or given is None:
        return ToolRequest(call.id, None, fault="there is no such tool, or its arguments are no JSON object")
    kept = {each.name: _as_it_stands(each, given.get(each.name)) for each in tool.parameters}
    return ToolRequest(call.id, tool, kept)


def _as_it_stands(parameter: Parameter, value: object) -> object:
    """Return a text or a number within its bounds as it is, else the default."""
    if parameter.kind.has_bounds:
        is_one = isinstance(value, int) and not isinstance(value, bool) and parameter.has_within(value)
        return value if is_one else parameter.default
    return value if isinstance(value, str) else parameter.default


def tool_meant(name: str, tools: Mapping[str, AnyTool]) -> AnyTool | None:
    """Return the tool that a model means by a name."""
    plain = _plain(name)
    same = (each for each in tools.values() if plain in each.names or plain == _plain(each.name))
    return tools.get(name) or (next(same, None) if plain else None)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _arguments(call: ToolCall, tool: Tool, mended: list[str]) -> JsonObject | None:
    """Return the arguments, also those that are no object where a text is meant; None for what cannot be read."""
    if call.arguments is not None or not tool.text or call.error == _TRUNCATED:
        return call.arguments
    said = parse_json(call.text)
    is_lines = isinstance(said, list) and said and all(isinstance(line, str) for line in said)
    if is_lines or (isinstance(said, str) and said.strip()):
        mended.append("text_arguments")
        return {tool.text: said}
    text = next(each for each in tool.parameters if each.name == tool.text)
    names = "|".join(map(re.escape, text.names))
    whole = re.search(rf'["\'](?:{names})["\']\s*:\s*(?P<text>"(?:[^"\\]|\\.)*+")', call.text, re.DOTALL)
    found = None if said is not None or whole is None else parse_json(whole["text"], strict=False)
    if found is None:
        return None
    mended.append("broken_json")
    return {tool.text: found}


def _argument(parameter: Parameter, given: JsonObject, tool: Tool, mended: list[str]) -> object:
    """Return one argument. Raises ValueError where it is missing, or cannot be meant."""
    empty = (None,) if parameter.default is None else (None, "")
    name = next((each for each in parameter.names if given.get(each) not in empty), None)
    if name is None:
        if parameter.required and parameter.default is None:
            asked = {each.name: each.schema() for each in tool.parameters if each.required}
            raise ValueError(f"the argument '{parameter.name}' is missing; it takes {json.dumps(asked)}")
        return parameter.default
    if name != parameter.name:
        mended.append("alias")
    return parameter.kind.read(given[name], parameter, mended)


#: It asks for calls · it says something, and asks for nothing · it broke off, says nothing at all, or writes a call as text
AnswerKind = Literal["asked", "said", "cut_off"]
#: Gives an id of a call that no other call has, nor those beside it: providers repeat theirs.
FreeId = Callable[[str, Collection[str]], str]


@attrs.frozen
class ModelUsage:
    """What an answer took, as far as its provider says it."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None


@attrs.frozen
class Room:
    """The characters that a request took, where these were less than is wanted: the next request begins with them.

    It is that of a model and of what was wanted; where either is another now, it counts for nothing.
    """

    chars: int
    wanted: int
    model: str


@attrs.frozen
class ModelAnswer:
    """An answer. `calls` are what it asks for; `why` it cannot be used, and `advice` what the model is to do then; `misplaced` names a call in its text.

    `offered` names the tools that came with the request, where these are not all.
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
        """The note to the model on an answer that cannot be used."""
        what = "is no answer" if self.misplaced else "did not arrive whole"
        return f"[Your last answer {what}: {self.why}. {self.advice or SHORTER}]"


def answer_of(
    result: streams.StreamResult, free_id: FreeId, tools: Iterable[Tool] = (), *, misplaced: int = 0
) -> tuple[AnswerKind, ModelAnswer]:
    """Return what kind of answer came, and the answer.

    A text that seems to call one of `tools` is no answer, unless the last answers have been such texts `MOST_MISPLACED` times (`misplaced`).
    """
    count = result.count
    usage = ModelUsage(count("prompt_tokens"), count("completion_tokens"), result.cost_usd)
    answer = ModelAnswer(result.content, dict(result.rescues), usage, result.model)
    why, advice = _fault_of(result)
    if why:
        return "cut_off", attrs.evolve(answer, why=why, advice=advice)
    if result.tool_calls:
        return "asked", attrs.evolve(answer, calls=_calls(result.tool_calls, free_id))
    known = offered([tool.as_openai for tool in tools])
    if misplaced < MOST_MISPLACED and (name := misplaced_call(result.content, known)):
        why = f"it has a call of {name} in its text"
        return "cut_off", attrs.evolve(answer, why=why, advice=_CALL_IT, misplaced=name)
    return "said", answer


def _fault_of(result: streams.StreamResult) -> tuple[str, str]:
    """Return why an answer cannot be used, and what the model is to do; two empty texts where it can."""
    if result.error is not None:
        return str(result.error), _ADVICE.get(result.error.code, SHORTER)
    if result.tool_calls:
        return "", ""
    if result.finish_reason == "length":
        return "it reached its limit of tokens", SHORTER
    if result.finish_reason == "content_filter":
        return "a content filter stopped it", _ADVICE["filtered"]
    if not result.content.strip():
        what = "it was nothing but a draft" if result.reasoning.strip() else "it was empty"
        is_end = result.finish_reason in {"stop", "tool_calls"}
        return what if is_end else f"{what}: the finish reason is {result.finish_reason}", SHORTER
    return "", ""


SHORTER = "Say it again, shorter."
_CALL_IT = "Call the tool itself; to speak of such a call, put it into backticks."
#: What a model is to do after an answer with an error, by its code.
_ADVICE = {
    "malformed": "Make the call again, with its arguments as one JSON object.",
    "unknown_end": "Make the call again.",
    "filtered": "Say it in other words.",
}
#: How often in a row a model is told that its text has a call: then the text is an answer, whatever stands in it.
MOST_MISPLACED = 2


def _calls(calls: tuple[streams.StreamCall, ...], free_id: FreeId) -> tuple[ToolCall, ...]:
    """Return the calls with ids of our own, which are unique; the provider's are echoed as they came."""
    taken: set[str] = set()
    found = []
    for call in calls:
        name = free_id(call.id, taken)
        taken.add(name)
        error = (call.error or "") if is_writable(call.arguments) else "invalid_arguments"
        extra = dict(call.extra) if is_writable(dict(call.extra)) else {}
        arguments, text = (None, call.text) if error else (call.arguments, "")
        found.append(ToolCall(name, call.id, call.name, arguments, error, text, extra))
    return tuple(found)
