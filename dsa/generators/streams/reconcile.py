"""A provider's stream, chunk by chunk, and what it comes to.

`StreamReconciler` takes chunks of OpenAI's protocol, in all the shapes that servers give it, and of Ollama's own; it gives what
can be shown of the text while it still comes, and in the end the calls. All that is shown is the beginning of the text that remains in the
end, but for white space around the calls that are taken out, and for JSON whose tag was never opened: only its end tells. Pure: no clock, no random, no network; the same chunks give the same
result, ids that had to be made included. Whatever the chunks hold, it raises nothing but TypeError for what is no chunk.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dsa.generators.streams.ending import Gathered, conclude
from dsa.generators.streams.result import StreamError, StreamResult
from dsa.generators.streams.slots import Slots
from dsa.generators.streams.text_calls import FENCE_BEGIN
from dsa.generators.streams.tools import Tools, offered

#: What a call written into the text begins with; from here on nothing is shown until the end.
_OPENERS = (
    "<tool_call", "<toolcall", "<function=", "<function name", "<function_call", "<invoke", "<minimax:", "<seed:", "<|tool_call",
    "<|python_tag|>", "[TOOL_CALLS]", "<\uff5ctool\u2581call", "</tool_call>", "</function_call>",
)  # fmt: skip
_MARKS = re.compile("|".join(map(re.escape, _OPENERS)))
_BEGINNINGS = frozenset(mark[:size] for mark in _OPENERS for size in range(1, len(mark)))
_LONGEST = max(map(len, _BEGINNINGS))
_FIRST = re.compile(r"[<\[]")


class Display:
    """Feed it pieces, show what it gives. Without offered tools all is given at once: nothing can be a call."""

    __slots__ = ("_begun", "_held", "_holding", "_tools")

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._held = ""
        self._begun = False
        self._holding = False

    def feed(self, text: str) -> str:
        """Take the next piece, give what can be shown now."""
        if not self._tools:
            return text
        if self._holding:
            return ""
        if self._begun and not self._held and "<" not in text and "[" not in text:
            return text
        text = self._held + text
        self._held = ""
        if not self._begun and not self._begins(text):
            return ""
        return self._up_to_a_mark(text)

    def _begins(self, text: str) -> bool:
        """Decide by its beginning whether a text may be nothing but a call; keep it while that is open."""
        said = text.lstrip()
        if said.startswith(("{", "[")) or FENCE_BEGIN.match(said):
            self._holding = True
        elif not said or (said.startswith("`") and "\n" not in said and "```".startswith(said[:3])):
            self._held = text
        else:
            self._begun = True
        return self._begun

    def _up_to_a_mark(self, text: str) -> str:
        mark = _MARKS.search(text)
        if mark is None:
            safe = len(text) - _pending(text)
            self._held = text[safe:]
            return text[:safe]
        self._holding = True
        return text[: mark.start()]


def _pending(text: str) -> int:
    """Give how many characters at the end may become a mark."""
    for first in _FIRST.finditer(text, max(0, len(text) - _LONGEST)):
        if text[first.start() :] in _BEGINNINGS:
            return len(text) - first.start()
    return 0


_NOTHING: dict[str, Any] = {}
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_THOUGHT_PARTS = ("thinking", "reasoning")
_DEEPEST = 3


class StreamReconciler:
    """Feed it the chunks of one stream, then ask for the result.

    `tools` are the tools that were offered: as the request has them, a mapping of names to JSON schemas, or names. Without
    them no call is looked for in the text. Only the first choice of a stream with several is read. With
    `text_calls=False` what is written into the text stays there.
    """

    def __init__(self, tools: object = (), *, text_calls: bool = True) -> None:
        self._tools = offered(tools)
        readable = self._tools if text_calls else offered(())
        self._slots = Slots(self._tools)
        self._display = Display(readable)
        self._gathered = Gathered(self._slots, self._tools, readable)
        self._speech = self._gathered.speech

    def feed(self, chunk: object) -> str:
        """Take the next chunk; give the text that can be shown now. Raises TypeError for what can be no chunk."""
        if type(chunk) is dict:
            return self._feed(chunk)
        try:
            return "".join([self._feed(part) for part in _objects_of(chunk)])
        except _BadChunkError as error:
            self._gathered.fail(StreamError("bad_chunk", str(error)))
            return ""

    def fail(self, code: str, message: str) -> None:
        """Say that the stream broke off: a lost connection (`interrupted`), a time limit (`timeout`).

        After the finish reason nothing of the answer can be missing: then that is no error.
        """
        if not self._gathered.over:
            self._gathered.fail(StreamError(code, message))

    def finish(self) -> StreamResult:
        """Give the result of all that was fed."""
        return conclude(self._gathered)

    def _feed(self, chunk: Mapping[str, Any]) -> str:
        gathered, shown = self._gathered, ""
        choices = chunk.get("choices")
        if type(choices) is list:
            for choice in choices:
                if isinstance(choice, dict) and not choice.get("index"):
                    shown += self._choice(choice)
        elif "message" in chunk and "choices" not in chunk and isinstance(chunk["message"], dict):
            shown = self._native(chunk)
        if usage := chunk.get("usage"):
            gathered.usage = usage if isinstance(usage, dict) else gathered.usage
        if gathered.stream_id is None and isinstance(chunk.get("id"), str):
            gathered.stream_id = chunk["id"]
        if not gathered.model and isinstance(chunk.get("model"), str):
            gathered.model = chunk["model"]
        if chunk.get("error") or chunk.get("object") == "error":
            gathered.fail(_error_of(chunk))
        return shown

    def _choice(self, choice: Mapping[str, Any]) -> str:
        delta, shown = choice.get("delta"), ""
        if delta:
            shown = self._said(delta) if isinstance(delta, dict) else ""
        elif isinstance(message := choice.get("message"), dict) and message:
            self._gathered.kinds.add("message_for_delta")
            shown = self._said(message, snapshot=True)
        if reason := choice.get("finish_reason"):
            self._gathered.finished(reason)
        if choice.get("error"):
            self._gathered.fail(_error_of(choice))
        return shown

    def _native(self, chunk: Mapping[str, Any]) -> str:
        """Take a line of Ollama's own protocol: a message per line, each call whole, counts in the last line."""
        shown = self._said(chunk["message"], whole=True)
        if chunk.get("done"):
            self._gathered.finished(chunk.get("done_reason") or "stop")
            counts = {"prompt_tokens": chunk.get("prompt_eval_count"), "completion_tokens": chunk.get("eval_count")}
            self._gathered.usage = {name: count for name, count in counts.items() if count is not None} or None
        return shown

    def _said(self, delta: Mapping[str, Any], *, whole: bool = False, snapshot: bool = False) -> str:
        """Take what a delta, or a message, says."""
        entries = delta.get("tool_calls")
        if entries:
            self._gathered.over = False
            self._slots.take(entries if isinstance(entries, list) else [entries], whole=whole)
            if len(delta) == 1:  # the usual chunk of a call
                return ""
        if len(delta) == 1 and "content" in delta:  # the usual chunk of a text
            return self._answered(delta["content"], snapshot=snapshot)
        if legacy := delta.get("function_call"):
            self._gathered.kinds.add("legacy_function_call")
            self._slots.take([{"index": 0, "function": legacy}])
        if isinstance(extra := delta.get("extra_content"), dict):
            self._slots.attach({"extra_content": extra})
        for key in _REASONING_KEYS:
            if isinstance(thought := delta.get(key), str) and thought:
                self._gathered.reasoning.append(thought)
                break
        return self._answered(delta.get("content"), snapshot=snapshot)

    def _answered(self, content: object, *, snapshot: bool) -> str:
        """Take what a content says."""
        if not content:
            return ""
        text = content if isinstance(content, str) else self._text_of(content)
        gathered, speech = self._gathered, self._speech
        gathered.over = False
        if snapshot:
            text = gathered.grown(text)
        gathered.content.append(text)
        said = speech.feed(text)
        if speech.begins_anew:
            self._display = Display(gathered.text_tools)
        return self._display.feed(said) if said else ""

    def _text_of(self, parts: object, depth: int = 0) -> str:
        """Give the text of a content that comes in parts, as Mistral's does; thoughts among them go with the reasoning."""
        texts = []
        for part in parts if isinstance(parts, list) and depth < _DEEPEST else []:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict):
                thought = part.get("type") in _THOUGHT_PARTS
                text = next((part[key] for key in ("text", "thinking", "reasoning") if part.get(key)), "")
                text = text if isinstance(text, str) else self._text_of(text, depth + 1)
                (self._gathered.reasoning if thought else texts).append(text)
        return "".join(texts)


def reconcile_stream(chunks: Iterable[object], tools: object = ()) -> StreamResult:
    """Turn a stream into tool calls, text, the reason why it ended, what is wrong with it, and what was mended.

    `chunks` are mappings, objects with `model_dump`, or JSON as text or bytes; `tools` are what was offered, as for
    StreamReconciler. Raises what reading `chunks` raises, and TypeError for what is no chunk.
    """
    reconciler = StreamReconciler(tools)
    for chunk in chunks:
        reconciler.feed(chunk)
    return reconciler.finish()


def _error_of(chunk: Mapping[str, Any]) -> StreamError:
    """Read an error that came in the stream: an object with message and code, or a text (Ollama)."""
    error = chunk.get("error")
    told = error if isinstance(error, dict) else chunk
    message = error if isinstance(error, str) else told.get("message")
    status = next((told[key] for key in ("code", "status", "type") if isinstance(told.get(key), int | str)), None)
    return StreamError("provider_error", str(message or "the provider sent an error without a message"), status)


#: What lines of server-sent events begin with that say nothing here.
_SILENT = (":", "event:", "id:", "retry:")


class _BadChunkError(ValueError):
    """Raised for a chunk that is no JSON object; TypeError for a value that can be none."""


def _objects_of(chunk: object) -> Iterator[dict[str, Any]]:
    """Give the objects of a chunk: none for a comment or `[DONE]`, several when several lines came as one."""
    if isinstance(chunk, Mapping):
        yield dict(chunk)
    elif isinstance(chunk, str | bytes | bytearray):
        text = chunk if isinstance(chunk, str) else bytes(chunk).decode("utf-8", "replace")
        yield from _objects_of_text(text.lstrip("\ufeff"))
    elif hasattr(chunk, "model_dump"):
        yield chunk.model_dump()
    elif chunk is not None:
        raise TypeError(f"a chunk is a mapping, JSON text, or has model_dump(); not {type(chunk).__name__}")


def _objects_of_text(text: str) -> Iterator[dict[str, Any]]:
    if text.lstrip().startswith("{"):
        try:
            yield json.loads(text)
        except (ValueError, RecursionError):
            pass  # several objects, a line each: read below
        else:
            return
    for line in text.splitlines():
        said = line.strip()
        if said and not said.startswith(_SILENT):
            yield from _objects_of_line(said.removeprefix("data:").strip())


def _objects_of_line(text: str) -> Iterator[dict[str, Any]]:
    if text in {"", "[DONE]"}:
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _BadChunkError(f"a piece of the stream is no JSON: {text[:80]!r}") from error
    for part in value if isinstance(value, list) else [value]:  # Gemini sends errors in a list
        if not isinstance(part, dict):
            raise _BadChunkError(f"a piece of the stream is no JSON object: {text[:80]!r}")
        yield part
