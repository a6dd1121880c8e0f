"""Reconciliation of a stream: a provider's chunks, one by one, and the tool calls and text that they add up to.

`StreamReconciler` takes chunks of OpenAI's protocol, in all the shapes that servers give it, and of Ollama's own; it returns the text that
can be shown while the stream goes on, and in the end the result. What was shown is always the beginning of the final text, except for
white space around the calls that are taken out, and for JSON whose tag was never opened: only its end shows what it is.

At the end `conclude` settles the calls, finds those in the text, makes ids unique, and corrects the finish reason. It uses no clock, no chance and
no network; the same chunks give the same result, including the ids that had to be made. Whatever the chunks hold, it raises only
TypeError, for a value that cannot be a chunk.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from dsa.generators.streams.call_slots import Slot, Slots
from dsa.generators.streams.offered_tools import Tools, read_tools
from dsa.generators.streams.stream_result import (
    INVALID_ARGUMENTS,
    MISSING_NAME,
    TRUNCATED_ARGUMENTS,
    StreamCall,
    StreamError,
    StreamResult,
)
from dsa.generators.streams.text_calls import FENCE_BEGIN, recover, without_markers
from dsa.runtime.speech import FunctionText, Speech, SpeechParts, as_unicode, join_halves

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
#: Which of several finish reasons counts: some servers send `stop` with every chunk.
_RANKS = {"error": 3, "content_filter": 2, "length": 2}
#: The finish reasons of a model that finished.
_NORMAL_ENDS = frozenset({"stop", "tool_calls"})
#: The beginning of a provider's finish reason for a malformed answer (`malformed_function_call`, `malformed_response`).
_MALFORMED_PREFIX = "malformed"
#: Ids that are made have nine letters and digits: Mistral accepts only these, and all others accept them too.
_ID_LENGTH = 9


def plain_reason(reason: object) -> str | None:
    """Return a finish reason in the words of `StreamResult`; None if there is none."""
    if not isinstance(reason, str) or reason in {"null", "None"}:
        return None
    return _REASONS.get(reason.lower(), reason.lower())


@attrs.define(eq=False)
class StreamState:
    """The content of the chunks so far. `text_tools` are the tools whose calls are looked for in the text."""

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
    over: bool = False  # a finish reason came, and nothing after it

    def new_part(self, text: str) -> str:
        """Return the new part of a text that may be all the text so far and more, or only the next part."""
        self.content = ["".join(self.content)]
        return text.removeprefix(self.content[0])

    def take_finish(self, reason: object) -> None:
        """Take a finish reason; the last counts, unless an earlier one was worse."""
        plain = plain_reason(reason)
        if plain is not None:
            if _RANKS.get(plain, 1) >= _RANKS.get(self.finish or "", 0):
                self.finish, self.finish_said = plain, str(reason)
            self.over = True

    def fail(self, error: StreamError) -> None:
        """Take an error; the first counts."""
        self.error = self.error or error


def conclude(state: StreamState) -> StreamResult:
    """Return the result."""
    has_ended = state.error is None and state.finish in _NORMAL_ENDS
    rescues = Counter(state.kinds)
    parts = state.speech.finish()
    reasoning = "\n".join(filter(None, ("".join(state.reasoning), parts.drafts)))
    calls = [call for slot in state.slots for call in _calls_of_slot(slot, state.tools, rescues, cut=not has_ended)]
    content = parts.answer
    if calls:
        clean_text = without_markers(content, state.text_tools) if content else content
        rescues["marker_leak"] += clean_text != content or bool(parts.calls)
        content = clean_text
    else:
        calls, content = _calls_in_text(parts, reasoning, state, rescues, has_ended=has_ended)
    calls = [_clean_call(call) for call in _with_ids(calls, state.stream_id or "", rescues)]
    finish = _finish(state.finish, calls, rescues)
    error = _error(state, calls)
    return StreamResult(
        tool_calls=tuple(calls),
        content=content,
        finish_reason=finish,
        error=error and attrs.evolve(error, message=join_halves(error.message)),
        rescues={kind: rescues[kind] for kind in sorted(rescues) if rescues[kind]},
        reasoning=join_halves(reasoning),
        usage=as_unicode(state.usage),
        model=join_halves(state.model),
    )


def _clean_call(call: StreamCall) -> StreamCall:
    """Return a call without halves of characters. Arguments are cleaned after they are read, because JSON writes halves as escapes."""
    about = attrs.evolve(call, id=join_halves(call.id), name=join_halves(call.name), extra=as_unicode(call.extra))
    try:
        return attrs.evolve(about, arguments=as_unicode(call.arguments), text=join_halves(call.text))
    except RecursionError:  # nested too deeply to be walked
        return attrs.evolve(about, arguments=None, error=call.error or INVALID_ARGUMENTS, text=join_halves(call.text))


def _calls_of_slot(slot: Slot, tools: Tools, rescues: Counter[str], *, cut: bool) -> list[StreamCall]:
    """Return the call of a slot, or those that were sent as one; empty for an empty slot."""
    if slot.name is None and slot.arguments.empty:
        return []
    arguments = slot.arguments.settle(cut=cut)
    raw_name = slot.name or ""
    plain = tools.resolve_name(raw_name)
    name = tools.once(plain)
    name_rescues = [
        kind for kind, is_so in (("marked_name", plain != raw_name), ("repeated_name", name != plain)) if is_so
    ]
    rescues.update({*slot.kinds, *arguments.rescues, *name_rescues})
    text = slot.arguments.text
    error = arguments.error if name else MISSING_NAME
    if cut and arguments.values == ({},) and tools.needs_arguments(name):  # some servers send an empty object first
        error = error or TRUNCATED_ARGUMENTS
    if error is not None:
        return [StreamCall(slot.id or "", name, None, error, text, slot.extra)]
    first, *more = arguments.values
    call = StreamCall(slot.id or "", name, first, text=text, extra=slot.extra)
    return [call, *(StreamCall("", name, values, text=text) for values in more)]


def _calls_in_text(
    parts: SpeechParts, reasoning: str, state: StreamState, rescues: Counter[str], *, has_ended: bool
) -> tuple[list[StreamCall], str]:
    """Return the calls that are written into the text, and the rest of it; look in the reasoning only if the text is empty."""
    channel_calls = [
        call
        for each in parts.calls
        if state.tools
        for call in _calls_in_channel(each, state.tools, rescues, cut=not has_ended)
    ]
    text_calls = recover(parts.answer, state.text_tools, has_ended=has_ended)
    kind = "text_call"
    if not parts.answer.strip() and not channel_calls and has_ended:
        text_calls = attrs.evolve(recover(reasoning, state.text_tools, has_ended=has_ended), rest=parts.answer)
        kind = "reasoning_call"
    for call in text_calls.calls:
        rescues.update({kind, *call.kinds})
    calls = [StreamCall(call.id or "", call.name, call.arguments, call.error, call.text) for call in text_calls.calls]
    return [*channel_calls, *calls], text_calls.rest


def _calls_in_channel(
    function_text: FunctionText, tools: Tools, rescues: Counter[str], *, cut: bool
) -> list[StreamCall]:
    """Return the call that was written in a channel of its own."""
    slot = Slot(None, function_text.recipient, None)
    slot.arguments.append(function_text.text)
    slot.kinds.add("channel_call")
    kinds = Counter[str]()
    calls = _calls_of_slot(slot, tools, kinds, cut=cut)
    rescues.update(kind for kind in kinds if kind != "marked_name")  # a prefix is how such a call names a function
    return calls


def _with_ids(calls: list[StreamCall], stream_id: str, rescues: Counter[str]) -> list[StreamCall]:
    """Return every call an id of its own: the provider's if it is usable, else one made from what is known."""
    taken_ids = {call.id for call in calls if call.id}
    seen_ids: set[str] = set()
    result = []
    for place, call in enumerate(calls):
        if call.id and call.id not in seen_ids:
            seen_ids.add(call.id)
            result.append(call)
            continue
        rescues["duplicate_id" if call.id else "missing_id"] += 1
        new_id = _new_id(f"{stream_id}\n{place}\n{call.name}\n{call.text}", taken_ids)
        taken_ids.add(new_id)
        result.append(attrs.evolve(call, id=new_id))
    return result


def _new_id(text: str, taken_ids: set[str]) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    while digest[:_ID_LENGTH] in taken_ids:
        digest = hashlib.sha256(digest.encode()).hexdigest()
    return digest[:_ID_LENGTH]


def _finish(finish: str | None, calls: list[StreamCall], rescues: Counter[str]) -> str | None:
    """Correct a provider's finish reason that does not say what is there."""
    if finish == "tool_calls" and not calls:
        rescues["finish_without_calls"] += 1
        return "stop"
    if calls and finish in _NORMAL_ENDS - {"tool_calls"}:
        rescues["finish_with_calls"] += 1
        return "tool_calls"
    return finish


def _error(state: StreamState, calls: list[StreamCall]) -> StreamError | None:
    if state.error is not None:
        return state.error
    if state.finish == "error":
        return StreamError("provider_error", "the provider ended the stream with the finish reason 'error'")
    if state.finish is None:
        return StreamError("interrupted", "the stream ended without a finish reason")
    why = f"the finish reason is {state.finish_said}"
    if state.finish.startswith(_MALFORMED_PREFIX):
        return StreamError("malformed", f"the provider calls the answer malformed: {why}")
    if not calls or state.finish in _NORMAL_ENDS:
        return None
    code, message = _NOT_ENDED.get(state.finish, ("unknown_end", "it is not known whether the calls are complete"))
    return StreamError(code, f"{message}: {why}")


#: Finish reasons after which no call is executed.
_NOT_ENDED = {
    "length": ("truncated", "the model reached its limit of tokens in an answer that has a call"),
    "content_filter": ("filtered", "a content filter stopped the model in an answer that has a call"),
}


#: The beginnings of a call in the text; from here on nothing is shown until the end.
_OPENERS = (
    "<tool_call", "<toolcall", "<function=", "<function name", "<function_call", "<invoke", "<minimax:", "<seed:", "<|tool_call",
    "<|python_tag|>", "[TOOL_CALLS]", "<\uff5ctool\u2581call", "</tool_call>", "</function_call>",
)  # fmt: skip
_MARKS = re.compile("|".join(map(re.escape, _OPENERS)))
_BEGINNINGS = frozenset(mark[:size] for mark in _OPENERS for size in range(1, len(mark)))
_LONGEST = max(map(len, _BEGINNINGS))
_FIRST = re.compile(r"[<\[]")


class StreamText:
    """The text that can be shown, piece by piece. Without offered tools all of it can be, because nothing can be a call."""

    __slots__ = ("_has_begun", "_is_holding", "_kept_text", "_tools")

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._kept_text = ""
        self._has_begun = False
        self._is_holding = False

    def feed(self, text: str) -> str:
        """Take the next piece, return what can be shown now."""
        if not self._tools:
            return text
        if self._is_holding:
            return ""
        if self._has_begun and not self._kept_text and "<" not in text and "[" not in text:
            return text
        text = self._kept_text + text
        self._kept_text = ""
        if not self._has_begun and not self._begins(text):
            return ""
        return self._up_to_a_mark(text)

    def _begins(self, text: str) -> bool:
        """Decide by its beginning whether a text may be only a call; keep it until that is decided."""
        start = text.lstrip()
        if start.startswith(("{", "[")) or FENCE_BEGIN.match(start):
            self._is_holding = True
        elif not start or (start.startswith("`") and "\n" not in start and "```".startswith(start[:3])):
            self._kept_text = text
        else:
            self._has_begun = True
        return self._has_begun

    def _up_to_a_mark(self, text: str) -> str:
        mark = _MARKS.search(text)
        if mark is None:
            safe = len(text) - _pending(text)
            self._kept_text = text[safe:]
            return text[:safe]
        self._is_holding = True
        return text[: mark.start()]


def _pending(text: str) -> int:
    """Return how many characters at the end may become a mark."""
    for first in _FIRST.finditer(text, max(0, len(text) - _LONGEST)):
        if text[first.start() :] in _BEGINNINGS:
            return len(text) - first.start()
    return 0


_NOTHING: dict[str, object] = {}
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_THOUGHT_PARTS = ("thinking", "reasoning")
_DEEPEST = 3


class StreamReconciler:
    """Reads the chunks of one stream: `feed` them, then `finish`.

    `tools` are the tools that were offered: as the request has them, a mapping of names to JSON schemas, or names. Without
    them the text is not searched for calls. Only the first of several choices in a stream is read. With
    `text_calls=False` calls that are written into the text stay there.
    """

    def __init__(self, tools: object = (), *, text_calls: bool = True) -> None:
        self._tools = read_tools(tools)
        readable = self._tools if text_calls else read_tools(())
        self._slots = Slots(self._tools)
        self._display = StreamText(readable)
        self._state = StreamState(self._slots, self._tools, readable)
        self._speech = self._state.speech

    def feed(self, chunk: object) -> str:
        """Take the next chunk; return the text that can be shown now. Raises TypeError for a value that cannot be a chunk."""
        if type(chunk) is dict:
            return self._feed(chunk)
        texts = []
        for part in _objects_of(chunk):
            if isinstance(part, StreamError):
                self._state.fail(part)
                return ""
            texts.append(self._feed(part))
        return "".join(texts)

    def fail(self, code: str, message: str) -> None:
        """Record that the stream broke off: a lost connection (`interrupted`), a time limit (`timeout`).

        After the finish reason nothing of the answer can be missing, so this is not an error then.
        """
        if not self._state.over:
            self._state.fail(StreamError(code, message))

    def finish(self) -> StreamResult:
        """Return the result of everything that was fed."""
        return conclude(self._state)

    def _feed(self, chunk: Mapping[str, Any]) -> str:
        state, text = self._state, ""
        choices = chunk.get("choices")
        if type(choices) is list:
            for choice in choices:
                if isinstance(choice, dict) and not choice.get("index"):
                    text += self._choice(choice)
        elif "message" in chunk and "choices" not in chunk and isinstance(chunk["message"], dict):
            text = self._native(chunk)
        if usage := chunk.get("usage"):
            state.usage = usage if isinstance(usage, dict) else state.usage
        if state.stream_id is None and isinstance(chunk.get("id"), str):
            state.stream_id = chunk["id"]
        if not state.model and isinstance(chunk.get("model"), str):
            state.model = chunk["model"]
        if chunk.get("error") or chunk.get("object") == "error":
            state.fail(_error_of(chunk))
        return text

    def _choice(self, choice: Mapping[str, Any]) -> str:
        delta, text = choice.get("delta"), ""
        if delta:
            text = self._take_message(delta) if isinstance(delta, dict) else ""
        elif isinstance(message := choice.get("message"), dict) and message:
            self._state.kinds.add("message_for_delta")
            text = self._take_message(message, snapshot=True)
        if reason := choice.get("finish_reason"):
            self._state.take_finish(reason)
        if choice.get("error"):
            self._state.fail(_error_of(choice))
        return text

    def _native(self, chunk: Mapping[str, Any]) -> str:
        """Take a line of Ollama's own protocol: a message per line, each call complete, counts in the last line."""
        text = self._take_message(chunk["message"], whole=True)
        if chunk.get("done"):
            self._state.take_finish(chunk.get("done_reason") or "stop")
            counts = {"prompt_tokens": chunk.get("prompt_eval_count"), "completion_tokens": chunk.get("eval_count")}
            self._state.usage = {name: count for name, count in counts.items() if count is not None} or None
        return text

    def _take_message(self, delta: Mapping[str, Any], *, whole: bool = False, snapshot: bool = False) -> str:
        """Take a delta, or a message."""
        entries = delta.get("tool_calls")
        if entries:
            self._state.over = False
            self._slots.take(entries if isinstance(entries, list) else [entries], whole=whole)
            if len(delta) == 1:  # the usual chunk of a call
                return ""
        if len(delta) == 1 and "content" in delta:  # the usual chunk of a text
            return self._take_content(delta["content"], snapshot=snapshot)
        if legacy := delta.get("function_call"):
            self._state.kinds.add("legacy_function_call")
            self._slots.take([{"index": 0, "function": legacy}])
        if isinstance(extra := delta.get("extra_content"), dict):
            self._slots.attach({"extra_content": extra})
        for key in _REASONING_KEYS:
            if isinstance(text := delta.get(key), str) and text:
                self._state.reasoning.append(text)
                break
        return self._take_content(delta.get("content"), snapshot=snapshot)

    def _take_content(self, content: object, *, snapshot: bool) -> str:
        """Take content; return the part of its text that can be shown."""
        if not content:
            return ""
        text = content if isinstance(content, str) else self._text_of(content)
        state, speech = self._state, self._speech
        state.over = False
        if snapshot:
            text = state.new_part(text)
        state.content.append(text)
        piece = speech.feed(text)
        if speech.begins_anew:
            self._display = StreamText(state.text_tools)
        return self._display.feed(piece) if piece else ""

    def _text_of(self, parts: object, depth: int = 0) -> str:
        """Return the text of content that comes in parts, as Mistral's does; thoughts among them go to the reasoning."""
        texts = []
        for part in parts if isinstance(parts, list) and depth < _DEEPEST else []:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict):
                is_thought = part.get("type") in _THOUGHT_PARTS
                text = next((part[key] for key in ("text", "thinking", "reasoning") if part.get(key)), "")
                text = text if isinstance(text, str) else self._text_of(text, depth + 1)
                (self._state.reasoning if is_thought else texts).append(text)
        return "".join(texts)


def reconcile_stream(chunks: Iterable[object], tools: object = ()) -> StreamResult:
    """Turn a stream into tool calls, text, the reason why it ended, its error, and the rescues that it took.

    `chunks` are mappings, objects with `model_dump`, or JSON as text or bytes; `tools` are the offered tools, as for
    StreamReconciler. Raises what reading `chunks` raises, and TypeError for a value that is not a chunk.
    """
    reconciler = StreamReconciler(tools)
    for chunk in chunks:
        reconciler.feed(chunk)
    return reconciler.finish()


def _error_of(chunk: Mapping[str, Any]) -> StreamError:
    """Read an error that came in the stream: an object with message and code, or a text (Ollama)."""
    error = chunk.get("error")
    source = error if isinstance(error, dict) else chunk
    message = error if isinstance(error, str) else source.get("message")
    status = next((source[key] for key in ("code", "status", "type") if isinstance(source.get(key), int | str)), None)
    return StreamError("provider_error", str(message or "the provider sent an error without a message"), status)


#: The beginnings of lines of server-sent events that have no data.
_SILENT = (":", "event:", "id:", "retry:")


def _objects_of(chunk: object) -> Iterator[dict[str, object] | StreamError]:
    """Yield the objects of a chunk: none for a comment or `[DONE]`, several when several lines came as one.

    The last is an error for a line that is not a JSON object. Raises TypeError for a value that cannot be a chunk.
    """
    if isinstance(chunk, Mapping):
        yield dict(chunk)
    elif isinstance(chunk, str | bytes | bytearray):
        text = chunk if isinstance(chunk, str) else bytes(chunk).decode("utf-8", "replace")
        yield from _objects_of_text(text.lstrip("\ufeff"))
    elif hasattr(chunk, "model_dump"):
        yield chunk.model_dump()
    elif chunk is not None:
        raise TypeError(
            f"a chunk must be a mapping, JSON text, or an object with model_dump(); not {type(chunk).__name__}"
        )


def _objects_of_text(text: str) -> Iterator[dict[str, object] | StreamError]:
    if text.lstrip().startswith("{"):
        try:
            yield json.loads(text)
        except (ValueError, RecursionError):
            pass  # several objects, one on each line: read below
        else:
            return
    for line in text.splitlines():
        content = line.strip()
        if content and not content.startswith(_SILENT):
            yield from _objects_of_line(content.removeprefix("data:").strip())


def _objects_of_line(text: str) -> Iterator[dict[str, object] | StreamError]:
    if text in {"", "[DONE]"}:
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        yield StreamError("bad_chunk", f"a piece of the stream is not valid JSON: {text[:80]!r}")
        return
    for part in value if isinstance(value, list) else [value]:  # Gemini sends errors in a list
        if not isinstance(part, dict):
            yield StreamError("bad_chunk", f"a piece of the stream is not a JSON object: {text[:80]!r}")
            return
        yield part
