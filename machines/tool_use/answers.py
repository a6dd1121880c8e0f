"""What a model's answer brings, as the data of an event.

Takes an answer as the stream reconciler gives it. Whether it asks for calls, says something or broke off is all that is decided here. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal

import attrs

from dsa.generators import streams
from dsa.generators.streams.text_calls import misplaced_call
from dsa.generators.streams.tools import offered
from machines.tool_use.call import ToolCall
from machines.tool_use.json_values import is_writable
from machines.tool_use.tool import Tool

#: It asks for calls · it says something, and asks for nothing · it broke off, says nothing at all, or writes a call as text
AnswerKind = Literal["asked", "said", "cut_off"]
#: Gives an id of a call that no other call has, nor those beside it: providers repeat theirs.
FreeId = Callable[[str, Collection[str]], str]


@attrs.frozen
class Usage:
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
class Answer:
    """An answer. `calls` are what it asks for; `why` it cannot be used, and `advice` what the model is to do then; `misplaced` names a call in its text.

    `offered` names the tools that came with the request, where these are not all.
    """

    content: str = ""
    rescues: Mapping[str, int] = attrs.field(factory=dict)
    usage: Usage = Usage()
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
) -> tuple[AnswerKind, Answer]:
    """Return what kind of answer came, and the answer.

    A text that seems to call one of `tools` is no answer, unless the last answers have been such texts `MOST_MISPLACED` times (`misplaced`).
    """
    count = result.count
    usage = Usage(count("prompt_tokens"), count("completion_tokens"), result.cost_usd)
    answer = Answer(result.content, dict(result.rescues), usage, result.model)
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


def _calls(calls: tuple[streams.ToolCall, ...], free_id: FreeId) -> tuple[ToolCall, ...]:
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
