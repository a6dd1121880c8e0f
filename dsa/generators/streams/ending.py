"""How a stream ends: the calls settled, those in the text found, ids made unique, the finish reason made to fit.

Takes what was gathered, gives the result. It is asked once, at the end.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from dsa.generators.streams.result import NAMELESS, TRUNCATED, StreamError, StreamResult, ToolCall
from dsa.generators.streams.slots import Slot, Slots
from dsa.generators.streams.text_calls import recover, without_markers
from dsa.generators.streams.tools import Tools

#: Finish reasons of all providers, by what they mean.
_REASONS = {
    "stop": "stop", "eos": "stop", "eos_token": "stop", "end_turn": "stop", "stop_sequence": "stop", "complete": "stop",
    "length": "length", "max_tokens": "length", "max_output_tokens": "length", "model_length": "length",
    "tool_calls": "tool_calls", "tool_call": "tool_calls", "tool_use": "tool_calls", "function_call": "tool_calls",
    "content_filter": "content_filter", "safety": "content_filter",
    "error": "error", "network_error": "error", "insufficient_system_resource": "error",
}  # fmt: skip
#: Which of several finish reasons holds: some servers send `stop` with every chunk.
_RANKS = {"error": 3, "content_filter": 2, "length": 2}
#: After these the model had said all it wanted to.
_ENDED = frozenset({"stop", "tool_calls"})
#: Ids that are made have nine letters and digits: Mistral takes no others, and all others take these.
_ID_LENGTH = 9


def plain_reason(reason: object) -> str | None:
    """Give a finish reason in the words of `StreamResult`; None for what is none."""
    if not isinstance(reason, str) or reason in {"null", "None"}:
        return None
    return _REASONS.get(reason.lower(), reason.lower())


@attrs.define(eq=False)
class Gathered:
    """What the chunks have brought so far. `text_tools` are the tools whose calls are looked for in the text."""

    slots: Slots
    tools: Tools
    text_tools: Tools
    content: list[str] = attrs.field(factory=list)
    reasoning: list[str] = attrs.field(factory=list)
    kinds: set[str] = attrs.field(factory=set)
    finish: str | None = None
    usage: Mapping[str, Any] | None = None
    stream_id: str | None = None
    model: str = ""
    error: StreamError | None = None
    over: bool = False  # a finish reason came, and nothing was said after it
    size: int = 0

    def say(self, text: str, *, snapshot: bool = False) -> str:
        """Take text and give what of it is new: a snapshot may be all the text so far and more, or only the next part."""
        if snapshot and len(text) >= self.size:
            self.content = ["".join(self.content)]
            text = text.removeprefix(self.content[0])
        self.content.append(text)
        self.size += len(text)
        return text

    def finished(self, reason: object) -> None:
        """Take a finish reason; the last holds, unless one before was worse."""
        plain = plain_reason(reason)
        if plain is not None:
            if _RANKS.get(plain, 1) >= _RANKS.get(self.finish or "", 0):
                self.finish = plain
            self.over = True

    def fail(self, error: StreamError) -> None:
        """Take an error; the first holds."""
        self.error = self.error or error


def conclude(gathered: Gathered) -> StreamResult:
    """Give the result."""
    ended = gathered.error is None and gathered.finish in _ENDED
    rescues = Counter(gathered.kinds)
    content, reasoning = "".join(gathered.content), "".join(gathered.reasoning)
    calls = [call for slot in gathered.slots for call in _settled(slot, gathered.tools, rescues, cut=not ended)]
    if calls:
        cleaned = without_markers(content, gathered.text_tools) if content else content
        rescues["marker_leak"] += cleaned != content
        content = cleaned
    else:
        calls, content = _written(content, reasoning, gathered.text_tools, rescues, ended=ended)
    calls = _with_ids(calls, gathered.stream_id or "", rescues)
    finish = _finish(gathered.finish, calls, rescues)
    return StreamResult(
        tool_calls=tuple(calls),
        content=content,
        finish_reason=finish,
        error=_error(gathered, calls),
        rescues={kind: rescues[kind] for kind in sorted(rescues) if rescues[kind]},
        reasoning=reasoning,
        usage=gathered.usage,
        model=gathered.model,
    )


def _settled(slot: Slot, tools: Tools, rescues: Counter[str], *, cut: bool) -> list[ToolCall]:
    """Give the call of a slot, or those that were sent as one; none of a slot that says nothing."""
    if slot.name is None and slot.arguments.empty:
        return []
    settled = slot.arguments.settle(cut=cut)
    name = tools.once(slot.name) if slot.name else ""
    rescues.update({*slot.kinds, *settled.rescues, *(["repeated_name"] if name != (slot.name or "") else [])})
    text = slot.arguments.text
    error = settled.error if name else NAMELESS
    if cut and settled.values == ({},) and tools.needs_arguments(name):  # some servers send an empty object first
        error = error or TRUNCATED
    if error is not None:
        return [ToolCall(slot.id or "", name, None, error, text, slot.extra)]
    first, *more = settled.values
    call = ToolCall(slot.id or "", name, first, text=text, extra=slot.extra)
    return [call, *(ToolCall("", name, values, text=text) for values in more)]


def _written(
    content: str, reasoning: str, tools: Tools, rescues: Counter[str], *, ended: bool
) -> tuple[list[ToolCall], str]:
    """Give the calls that are written into the text, and the rest of it; into the reasoning only when there is no text."""
    recovered = recover(content, tools, ended=ended)
    kind = "text_call"
    if not content.strip() and ended:
        recovered = attrs.evolve(recover(reasoning, tools, ended=ended), rest=content)
        kind = "reasoning_call"
    for call in recovered.calls:
        rescues.update({kind, *call.kinds})
    calls = [ToolCall(call.id or "", call.name, call.arguments, call.error, call.text) for call in recovered.calls]
    return calls, recovered.rest


def _with_ids(calls: list[ToolCall], stream_id: str, rescues: Counter[str]) -> list[ToolCall]:
    """Give every call an id of its own: the provider's where it is usable, else one made from what is known."""
    taken = {call.id for call in calls if call.id}
    seen: set[str] = set()
    result = []
    for place, call in enumerate(calls):
        if call.id and call.id not in seen:
            seen.add(call.id)
            result.append(call)
            continue
        rescues["duplicate_id" if call.id else "missing_id"] += 1
        made = _made_id(f"{stream_id}\n{place}\n{call.name}\n{call.text}", taken)
        taken.add(made)
        result.append(attrs.evolve(call, id=made))
    return result


def _made_id(text: str, taken: set[str]) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    while digest[:_ID_LENGTH] in taken:
        digest = hashlib.sha256(digest.encode()).hexdigest()
    return digest[:_ID_LENGTH]


def _finish(finish: str | None, calls: list[ToolCall], rescues: Counter[str]) -> str | None:
    """Make the finish reason say what is there, where the provider's does not."""
    if finish == "tool_calls" and not calls:
        rescues["finish_without_calls"] += 1
        return "stop"
    if calls and finish is not None and finish != "tool_calls" and finish not in _RANKS:
        rescues["finish_with_calls"] += 1
        return "tool_calls"
    return finish


def _error(gathered: Gathered, calls: list[ToolCall]) -> StreamError | None:
    if gathered.error is not None:
        return gathered.error
    if gathered.finish == "error":
        return StreamError("provider_error", "the provider ended the stream with the finish reason 'error'")
    if gathered.finish is None:
        return StreamError("interrupted", "the stream ended without a finish reason")
    if gathered.finish == "length" and any(call.error == TRUNCATED for call in calls):
        return StreamError("truncated", "the model reached its limit in the middle of a call")
    return None
