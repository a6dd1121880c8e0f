"""The context of a request: what of a conversation is sent, and that less is sent where a model says that it cannot read so much.

Texts are shortened, the largest first, and of these the oldest. How long a request may be nobody can know for certain: a token has three characters or more,
in English and in code, no tokenizer of the model is asked, and some servers have less room than their model.
"""

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs

from dsa.edge.http.failures import ServerError
from dsa.errors import GenerationError
from dsa.generators.streams import StreamResult
from dsa.runtime.speech import each_text
from machines.tool_use.answers import Room
from machines.tool_use.call import ToolCall
from machines.tool_use.message import Message, size_of
from machines.tool_use.records import JsonObject
from machines.tool_use.texts import cut
from machines.tool_use.transcript import Exchange

CHARS_PER_TOKEN = 3
#: The least that can be wanted: what a model is to know before anything is done takes a few hundred tokens.
LEAST_TOKENS = 1_000
#: How often less is sent, and how much less where nobody says how much would do.
_MOST_TRIES, _LESS, _STEP, _LEAST_CHARS = 12, 0.7, 0.85, 100
_MARGIN = 1.1
#: Numbers of tokens in the words of a server.
_NUMBER = re.compile(r"(?<![\w.:])\d{1,3}(?:,\d{3})+(?!\w)|(?<![\w.:])\d{3,9}(?!\w)")


def room_known(room: Room | None, wanted: int, model: str) -> int:
    """Return the characters to begin with, by what the last request took and by what is wanted."""
    is_same = room is not None and (room.wanted, room.model) == (wanted, model)
    return min(wanted, room.chars) if room is not None and is_same else wanted


def room_taken(took: int, wanted: int, model: str) -> Room | None:
    """Return what is to be kept with an answer; None where it took what was wanted."""
    return Room(took, wanted, model) if took < wanted else None


async def asked_within(
    ask: Callable[[list[Message]], Awaitable[StreamResult]],
    messages_within: Callable[[int], list[Message]],
    room: int,
    *,
    beside: int,
    notice: Callable[[str], object],
) -> tuple[StreamResult, int]:
    """Ask with the messages that a room has, and with less each time that the model cannot read so much. Return the answer, and the room that it took.

    `room` is in characters, as `beside` is: what the request has beside its messages. `notice` is told before each further try. Raises GenerationError, also
    where nothing can be left out any more.
    """
    messages = messages_within(room)
    for _ in range(_MOST_TRIES):
        try:
            return await ask(messages), room
        except GenerationError as error:
            if error.reason != "context_too_long":
                raise
            sent = size_of(messages)
            room, messages = _less(messages_within, room, _target(error, sent, beside))
            size = size_of(messages)
            if size >= sent:
                raise
            notice(f"The model cannot read so much; it is asked again with {size:,} of {sent:,} characters.")
    return await ask(messages), room


def _less(messages_within: Callable[[int], list[Message]], room: int, target: int) -> tuple[int, list[Message]]:
    """Return a smaller room, and the messages that it has: those that are no longer than is wanted, or the fewest."""
    messages = messages_within(room)
    while size_of(messages) > target and room > _LEAST_CHARS:
        room = int(room * _STEP)
        messages = messages_within(room)
    return room, messages


def _target(error: GenerationError, sent: int, beside: int) -> int:
    """Return how long messages may be, by the numbers of tokens that a server has said: of how many were sent, and of how many it takes."""
    said = error.detail if isinstance(error, ServerError) else ""
    numbers = sorted({int(number.replace(",", "")) for number in _NUMBER.findall(said)}, reverse=True)
    guess = int(sent * _LESS)
    if len(numbers) < 2:  # noqa: PLR2004  (how many there are, and how many there may be)
        return guess
    over = (sent + beside) * (1 - numbers[1] / numbers[0])
    return max(min(int(sent - over * _MARGIN), sent - 1), sent // 10)


def newest_that_fit(exchanges: Sequence[Exchange], chars: int) -> Sequence[Exchange]:
    """Return the newest exchanges that have no more characters than these, the last one always."""
    size, count = 0, 0
    for exchange in reversed(exchanges):
        size += exchange.size
        if count and size > chars:
            break
        count += 1
    return exchanges[len(exchanges) - count :]


def within(messages: Sequence[Message], room: int, levels: Sequence[int] = (4_000, 1_200, 300, 100)) -> list[Message]:
    """Return messages whose texts are shortened until all are no longer than a room, as far as that can be; what the user says stays as it is."""
    found = list(messages)
    left = size_of(found) - room
    for most in levels:
        for at, message in enumerate(found):
            if left <= 0:
                return found
            if message.role != "user":
                found[at] = shortened_to(message, most)
                left -= message.size - found[at].size
    return found


def shortened_to(message: Message, most: int) -> Message:
    """Return a message whose texts have at most so many characters, a mark in the middle of each that was cut."""
    shorten = _result_shortened if message.role == "tool" else cut
    content = None if message.content is None else shorten(message.content, most)
    calls = tuple(_call_shortened(call, most) for call in message.calls)
    is_same = content == message.content and calls == message.calls
    return message if is_same else attrs.evolve(message, content=content, calls=calls)


def _result_shortened(text: str, most: int) -> str:
    """Shorten the texts in a result, which stays JSON and says so; of one of many small texts the beginning is kept."""
    if len(text) <= most:
        return text
    result = json.loads(text)
    shorter = (_texts_cut(result, most * tenths // 20) for tenths in (16, 8, 4, 2) if isinstance(result, dict))
    beginnings = ({"beginning": text[: most * tenths // 20]} for tenths in (16, 12, 8, 4, 2, 1, 0))
    said = [_result_said(each, len(text)) for each in (*shorter, *beginnings)]
    return next((each for each in said if len(each) <= most), said[-1])


def _result_said(cut_to: JsonObject, length: int) -> str:
    """Write a result that was cut: it says so, with how much, and how to get the rest."""
    left = max(1, length - len(json.dumps(cut_to, ensure_ascii=False)))
    said = {**cut_to, "shortened": f"{left:,} of {length:,} characters left out: call again for them"}
    if "truncated" in said:
        said["truncated"] = True
    return json.dumps(said, ensure_ascii=False)


def _call_shortened(call: ToolCall, most: int) -> ToolCall:
    """Shorten the texts in a call's arguments, which stay JSON."""
    whole = json.dumps(call.arguments or {}, ensure_ascii=False)
    if len(whole) <= most:
        return call
    shorter = _texts_cut(call.arguments, most)
    is_short = len(json.dumps(shorter, ensure_ascii=False)) <= 2 * most + len(shorter)
    return attrs.evolve(call, arguments=shorter if is_short else {"beginning": whole[: most // 2]})


def _texts_cut(value: Any, most: int) -> Any:  # noqa: ANN401  (JSON)
    return each_text(value, lambda text: cut(text, most))
