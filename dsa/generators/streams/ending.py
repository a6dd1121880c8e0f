"""How a stream ends: the calls settled, those in the text found, ids made unique, the finish reason made to fit.

Takes what was gathered, gives the result. It is asked once, at the end.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from dsa.generators.streams.result import INVALID, NAMELESS, TRUNCATED, StreamError, StreamResult, ToolCall
from dsa.generators.streams.slots import Slot, Slots
from dsa.generators.streams.text_calls import recover, without_markers
from dsa.generators.streams.tools import Tools
from dsa.runtime.speech import Addressed, Speech, Spoken, as_unicode, joined

#: Finish reasons of all providers, by what they mean.
_REASONS = {
    "stop": "stop", "eos": "stop", "eos_token": "stop", "end_turn": "stop", "stop_sequence": "stop", "complete": "stop",
    "length": "length", "max_tokens": "length", "max_output_tokens": "length", "model_length": "length",
    "model_context_window_exceeded": "length", "error_limit": "length",
    "tool_calls": "tool_calls", "tool_call": "tool_calls", "tool_use": "tool_calls", "function_call": "tool_calls",
    "content_filter": "content_filter", "content_filtered": "content_filter", "guardrail_intervened": "content_filter",
    "safety": "content_filter", "image_safety": "content_filter", "recitation": "content_filter", "blocklist": "content_filter",
    "prohibited_content": "content_filter", "spii": "content_filter", "refusal": "content_filter", "error_toxic": "content_filter",
    "error": "error", "network_error": "error", "insufficient_system_resource": "error", "abort": "error",
}  # fmt: skip
#: Which of several finish reasons holds: some servers send `stop` with every chunk.
_RANKS = {"error": 3, "content_filter": 2, "length": 2}
#: After these the model had said all it wanted to.
_ENDED = frozenset({"stop", "tool_calls"})
#: What a provider calls an answer that is malformed begins so (`malformed_function_call`, `malformed_response`).
_MALFORMED = "malformed"
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
    speech: Speech = attrs.field(factory=Speech)
    content: list[str] = attrs.field(factory=list)
    reasoning: list[str] = attrs.field(factory=list)
    kinds: set[str] = attrs.field(factory=set)
    finish: str | None = None
    finish_said: str = ""  # the same in the provider's word
    usage: Mapping[str, Any] | None = None
    stream_id: str | None = None
    model: str = ""
    error: StreamError | None = None
    over: bool = False  # a finish reason came, and nothing was said after it

    def grown(self, text: str) -> str:
        """Return what of a text is new that may be all the text so far and more, or only the next part."""
        self.content = ["".join(self.content)]
        return text.removeprefix(self.content[0])

    def finished(self, reason: object) -> None:
        """Take a finish reason; the last holds, unless one before was worse."""
        plain = plain_reason(reason)
        if plain is not None:
            if _RANKS.get(plain, 1) >= _RANKS.get(self.finish or "", 0):
                self.finish, self.finish_said = plain, str(reason)
            self.over = True

    def fail(self, error: StreamError) -> None:
        """Take an error; the first holds."""
        self.error = self.error or error


def conclude(gathered: Gathered) -> StreamResult:
    """Give the result."""
    ended = gathered.error is None and gathered.finish in _ENDED
    rescues = Counter(gathered.kinds)
    said = gathered.speech.finish()
    reasoning = "\n".join(filter(None, ("".join(gathered.reasoning), said.drafts)))
    calls = [call for slot in gathered.slots for call in _settled(slot, gathered.tools, rescues, cut=not ended)]
    content = said.answer
    if calls:
        cleaned = without_markers(content, gathered.text_tools) if content else content
        rescues["marker_leak"] += cleaned != content or bool(said.calls)
        content = cleaned
    else:
        calls, content = _written(said, reasoning, gathered, rescues, ended=ended)
    calls = [_cleaned(call) for call in _with_ids(calls, gathered.stream_id or "", rescues)]
    finish = _finish(gathered.finish, calls, rescues)
    error = _error(gathered, calls)
    return StreamResult(
        tool_calls=tuple(calls),
        content=content,
        finish_reason=finish,
        error=error and attrs.evolve(error, message=joined(error.message)),
        rescues={kind: rescues[kind] for kind in sorted(rescues) if rescues[kind]},
        reasoning=joined(reasoning),
        usage=as_unicode(gathered.usage),
        model=joined(gathered.model),
    )


def _cleaned(call: ToolCall) -> ToolCall:
    """Return a call without halves of characters. Arguments are cleaned once they are read: JSON writes halves as escapes."""
    about = attrs.evolve(call, id=joined(call.id), name=joined(call.name), extra=as_unicode(call.extra))
    try:
        return attrs.evolve(about, arguments=as_unicode(call.arguments), text=joined(call.text))
    except RecursionError:  # nested too deeply for anyone who walks it
        return attrs.evolve(about, arguments=None, error=call.error or INVALID, text=joined(call.text))


def _settled(slot: Slot, tools: Tools, rescues: Counter[str], *, cut: bool) -> list[ToolCall]:
    """Give the call of a slot, or those that were sent as one; none of a slot that says nothing."""
    if slot.name is None and slot.arguments.empty:
        return []
    settled = slot.arguments.settle(cut=cut)
    written = slot.name or ""
    plain = tools.meant(written)
    name = tools.once(plain)
    mended = [kind for kind, is_so in (("marked_name", plain != written), ("repeated_name", name != plain)) if is_so]
    rescues.update({*slot.kinds, *settled.rescues, *mended})
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
    said: Spoken, reasoning: str, gathered: Gathered, rescues: Counter[str], *, ended: bool
) -> tuple[list[ToolCall], str]:
    """Give the calls that are written into the text, and the rest of it; into the reasoning only when there is no text."""
    addressed = [
        call
        for each in said.calls
        if gathered.tools
        for call in _addressed(each, gathered.tools, rescues, cut=not ended)
    ]
    recovered = recover(said.answer, gathered.text_tools, ended=ended)
    kind = "text_call"
    if not said.answer.strip() and not addressed and ended:
        recovered = attrs.evolve(recover(reasoning, gathered.text_tools, ended=ended), rest=said.answer)
        kind = "reasoning_call"
    for call in recovered.calls:
        rescues.update({kind, *call.kinds})
    calls = [ToolCall(call.id or "", call.name, call.arguments, call.error, call.text) for call in recovered.calls]
    return [*addressed, *calls], recovered.rest


def _addressed(said: Addressed, tools: Tools, rescues: Counter[str], *, cut: bool) -> list[ToolCall]:
    """Give the call that stands in a channel of its own."""
    slot = Slot(None, said.recipient, None)
    slot.arguments.append(said.text)
    slot.kinds.add("channel_call")
    kinds = Counter[str]()
    calls = _settled(slot, tools, kinds, cut=cut)
    rescues.update(kind for kind in kinds if kind != "marked_name")  # a prefix is how such a call names a function
    return calls


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
    if calls and finish in _ENDED - {"tool_calls"}:
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
    why = f"the finish reason is {gathered.finish_said}"
    if gathered.finish.startswith(_MALFORMED):
        return StreamError("malformed", f"the provider calls the answer malformed: {why}")
    if not calls or gathered.finish in _ENDED:
        return None
    code, told = _NOT_ENDED.get(gathered.finish, ("unknown_end", "nobody knows whether the calls are whole"))
    return StreamError(code, f"{told}: {why}")


#: Finish reasons after which no call is executed.
_NOT_ENDED = {
    "length": ("truncated", "the model reached its limit of tokens with a call in its answer"),
    "content_filter": ("filtered", "a content filter stopped the model with a call in its answer"),
}
