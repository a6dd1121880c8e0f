"""The result of a model's stream: frozen values, and the names of its errors and rescues.

Source: the stream shapes of public issue reports, which `tests/streams/` holds as data, each with its report.
"""

import json
from collections.abc import Mapping
from typing import Any

import attrs

from dsa.immutable import immutable

#: The largest count or cost that a server is believed: a budget is a sum of them.
_MOST_COUNTED = 10**12


def count_in(value: object) -> int | None:
    """Return a value as a count of tokens; None if it is not one."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_COUNTED:
        return value
    return None


#: Why a call must not be executed.
TRUNCATED_ARGUMENTS, INVALID_ARGUMENTS, MISSING_NAME = "truncated_arguments", "invalid_arguments", "missing_name"
CALL_ERRORS: dict[str, str] = {
    TRUNCATED_ARGUMENTS: "The arguments end before they are complete.",
    INVALID_ARGUMENTS: "The arguments are complete but not a JSON object.",
    MISSING_NAME: "No name came with the call.",
}

#: What may be wrong with a stream as a whole: then none of its calls is executable.
STREAM_ERRORS: dict[str, str] = {
    "interrupted": "The stream ended without a finish reason.",
    "truncated": "The model reached its limit of tokens in an answer that has a call.",
    "filtered": "A content filter stopped the model in an answer that has a call.",
    "malformed": "The provider calls the answer malformed.",
    "unknown_end": "The answer has a call, but its finish reason is unknown.",
    "provider_error": "The provider sent an error, or the finish reason `error`.",
    "bad_chunk": "A piece of the stream is not a JSON object.",
    "timeout": "Nothing came for longer than the time limit.",
}

#: Every way in which a stream is repaired. `rescues` counts the calls it happened to, or 1 for what belongs to no call.
RESCUES: dict[str, str] = {
    "null_id": "An id was the text `null` or `None`; it is read as no id.",
    "missing_id": "No id was sent, so a new id was made.",
    "duplicate_id": "Another call already had the id, so a new id was made.",
    "repeated_id": "The id came again with later pieces of its call.",
    "changed_id": "Later pieces of a call had other ids; the first id was used.",
    "late_id": "The id came after the first piece of its call.",
    "id_in_function": "The id was inside `function`.",
    "missing_index": "No index was sent, so the calls were separated by order, ids and names.",
    "reused_index": "Another call already had the index.",
    "drifted_index": "A later piece of a call had an index that no call has.",
    "index_in_function": "The index was inside `function`.",
    "repeated_name": "The name came again, or was written twice.",
    "marked_name": "The name had white space, a prefix or marks of a channel around it.",
    "split_name": "The name came in pieces.",
    "late_name": "The name came after the first piece of the arguments.",
    "object_arguments": "The arguments were an object, not JSON text.",
    "empty_arguments": "The arguments were missing, an empty text, or `null`, so the call has no arguments.",
    "repeated_arguments": "The arguments, or their last piece, were sent again.",
    "cumulative_arguments": "Each piece had all of the arguments so far.",
    "placeholder_arguments": "An empty object came before the arguments.",
    "joined_calls": "Several calls were sent as one, their arguments one after the other.",
    "double_encoded": "The arguments were JSON text inside JSON text.",
    "control_characters": "A string in the arguments had a raw line break or a similar character.",
    "python_literal": "The arguments were written as Python writes them.",
    "trailing_comma": "There was a comma before a closing bracket.",
    "extra_later": "Data that a provider expects back with a call (a thought signature) came in a separate piece.",
    "message_for_delta": "A piece had `message` in place of `delta`.",
    "legacy_function_call": "The call was sent as `function_call`, the older form of `tool_calls`.",
    "finish_with_calls": "The finish reason was not `tool_calls`, but there are calls.",
    "finish_without_calls": "The finish reason was `tool_calls`, but there are no calls.",
    "text_call": "The call was written into the text.",
    "channel_call": "The call was written in a channel of its own, as gpt-oss does.",
    "reasoning_call": "The call was written into the reasoning.",
    "marker_leak": "The text had markers of a call that was also sent properly; the markers were removed.",
}


@attrs.frozen(field_transformer=immutable)
class StreamCall:
    """One call of a tool.

    `id` is the provider's own, unchanged, if it sent a usable one. `arguments` is None exactly when `error`,
    one of CALL_ERRORS, says why the call must not be executed; `text` is what was sent for the arguments. `extra` holds
    what the provider sent with the call and may expect back (`extra_content` with Gemini's thought signature).
    """

    id: str
    name: str
    arguments: dict[str, object] | None
    error: str | None = None
    text: str = attrs.field(default="", repr=False)
    extra: Mapping[str, Any] = attrs.field(factory=dict)

    def as_message_part(self) -> dict[str, object]:
        """Return the call in the form of OpenAI's messages; one that must not be executed has no arguments there."""
        function = {"name": self.name, "arguments": json.dumps(self.arguments or {}, ensure_ascii=False)}
        return {**self.extra, "id": self.id, "type": "function", "function": function}


@attrs.frozen
class StreamError:
    """What is wrong with a stream: `code` (one of STREAM_ERRORS), what the provider said, and its status or code if any."""

    code: str
    message: str
    status: int | str | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@attrs.frozen(field_transformer=immutable)
class StreamResult:
    """A complete stream: calls in the order in which they began, the text, why it ended, the error, the rescues.

    `finish_reason` is None if none came. `rescues` counts by kind (RESCUES). `usage` is the provider's own, unchanged;
    `model` is the one that answered, according to the provider.
    """

    tool_calls: tuple[StreamCall, ...] = ()
    content: str = ""
    finish_reason: str | None = None
    error: StreamError | None = None
    rescues: Mapping[str, int] = attrs.field(factory=dict)
    reasoning: str = attrs.field(default="", repr=False)
    usage: Mapping[str, Any] | None = None
    model: str = ""

    @property
    def executable(self) -> tuple[StreamCall, ...]:
        """The calls that may be executed: those without an error, or none if the stream broke off."""
        return () if self.error else tuple(call for call in self.tool_calls if call.error is None)

    def count(self, name: str) -> int | None:
        """Return a count of tokens in `usage`; None if it is missing or not a count."""
        return count_in((self.usage or {}).get(name))

    @property
    def cost_usd(self) -> float | None:
        """The cost of the answer in dollars, as OpenRouter reports it (`usage.cost`); other servers do not report one."""
        cost = (self.usage or {}).get("cost")
        if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= _MOST_COUNTED:
            return float(cost)
        return None

    def as_message(self) -> dict[str, object]:
        """Return the answer in the form of OpenAI's messages, for the next request, with ids and extras unchanged."""
        message: dict[str, object] = {"role": "assistant", "content": self.content or None}
        if self.tool_calls:
            message["tool_calls"] = [call.as_message_part() for call in self.tool_calls]
        return message
