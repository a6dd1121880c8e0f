"""Transcripts: the messages between a user, a model and its tools, the calls that wait, and the part of a conversation that fits a request.

A reader of a run's ledger fills the transcript. Every call has its result after it: a provider refuses a conversation with open calls. A `Notice` says why
something was not done; it is recorded as a step of an effect. `ask_within` sends less when a model says that a request is too long. It shortens the
largest texts first, and the oldest of these. Nobody knows the limit for certain: a token has three characters or more, no tokenizer is asked, and some
servers have less room than their model.
"""

import json
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import attrs

from dsa.generators.streams import StreamResult
from dsa.runtime.generation import GenerationError
from dsa.runtime.json_text import WrittenJson
from dsa.runtime.ledger import ResultEntry
from dsa.runtime.policy.policies import Step, text_step
from dsa.runtime.speech import each_text
from machines.tool_use.records import JsonObject, as_data, cut_middle, read_record
from machines.tool_use.tool_call import ModelAnswer, Room, ToolCall, ToolResult, display_name

CHARS_PER_TOKEN = 3
#: The smallest limit of a request: instructions and tools alone take a few hundred tokens.
LEAST_TOKENS = 1_000
#: The number of shorter requests, and how they shrink when the server does not name its limit.
_MOST_TRIES, _LESS, _STEP, _LEAST_CHARS = 12, 0.7, 0.85, 100
_MARGIN = 1.1
#: Numbers of tokens in a server's message.
_NUMBER = re.compile(r"(?<![\w.:])\d{1,3}(?:,\d{3})+(?!\w)|(?<![\w.:])\d{3,9}(?!\w)")


Role = Literal["system", "user", "assistant", "tool"]


@attrs.frozen
class ChatMessage:
    """A message. `calls` are the calls that the model asks for in it; `answers` is the provider's id of the call whose result it is."""

    role: Role
    content: str | None
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""

    @cached_property
    def as_openai(self) -> WrittenJson:
        """The message in OpenAI's form; each access returns the same object."""
        calls = {"tool_calls": [call.as_part() for call in self.calls]} if self.calls else {}
        answers = {"tool_call_id": self.answers} if self.role == "tool" else {}
        return WrittenJson({"role": self.role, **answers, "content": self.content, **calls})

    @cached_property
    def size(self) -> int:
        """Its length as JSON, in characters."""
        return len(self.as_openai.text)


def size_of(messages: Iterable[ChatMessage]) -> int:
    """Return the length of messages as JSON, in characters."""
    return sum(message.size for message in messages)


def join_neighbours(messages: Iterable[ChatMessage], between: str, roles: Container[Role]) -> list[ChatMessage]:
    """Return the messages with neighbours of the same role joined, for these roles: some templates refuse turns that do not alternate."""
    result: list[ChatMessage] = []
    for message in messages:
        if result and result[-1].role == message.role and message.role in roles:
            result[-1] = attrs.evolve(result[-1], content=f"{result[-1].content}{between}{message.content}")
        else:
            result.append(message)
    return result


@attrs.define
class CallSummary:
    """A call as the user sees it. `status` is waiting, running, done, failed, or the reason why it was not made; `result` is for the model."""

    call_id: str
    tool: str
    provider_id: str
    status: str = "waiting"
    result: JsonObject | None = None


AnyCall = TypeVar("AnyCall", bound=CallSummary)


class Exchange:
    """Messages that belong together, usually a question and the work on it. Calls have the tool's own name, even if the model used another."""

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __init__(self) -> None:
        self._messages: list[ChatMessage] = []
        self._size = 0
        self._names: dict[str, str] = {}

    def __iter__(self) -> Iterator[ChatMessage]:
        return iter(self.messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exchange) and self.messages == other.messages

    def __repr__(self) -> str:
        return f"Exchange({list(self.messages)!r})"

    @property
    def messages(self) -> Sequence[ChatMessage]:
        """The messages, in order."""
        if self._names:
            self._rename()
        return self._messages

    @property
    def size(self) -> int:
        """Their length as JSON, in characters."""
        if self._names:
            self._rename()
        return self._size

    def add(self, message: ChatMessage) -> None:
        """Add a message."""
        self._messages.append(message)
        self._size += message.size

    def name(self, call_id: str, tool: str) -> None:
        """Set the tool name of a call. The messages change when they are read next, once for all calls."""
        self._names[call_id] = tool

    def _rename(self) -> None:
        names, self._names = self._names, {}
        for at, message in enumerate(self._messages):
            if any(call.id in names for call in message.calls):
                calls = tuple(attrs.evolve(call, name=names.get(call.id, call.name)) for call in message.calls)
                self._messages[at] = attrs.evolve(message, calls=calls)
                self._size += self._messages[at].size - message.size


class Transcript(Generic[AnyCall]):
    """A conversation in exchanges. `called` makes the summary of a call."""

    def __init__(self, summary_of: Callable[[ToolCall], AnyCall]) -> None:
        self.exchanges: list[Exchange] = []
        self.queue: deque[ToolCall] = deque()
        #: The call that was taken from the queue last, until it has a result or runs by itself.
        self.current: AnyCall | None = None
        self.calls: list[AnyCall] = []
        self.rescues: Counter[str] = Counter()
        #: The count of the model's answers, the count of the last ones with a call in their text, the size of the last request.
        self.answers = self.misplaced_count = 0
        self.room: Room | None = None
        self._summary_of = summary_of
        self._open: dict[str, AnyCall] = {}
        self._results: dict[str, ToolResult] = {}
        self._taken_call: ToolCall | None = None
        self._ids: set[str] = set()
        self._exchange_of: dict[str, Exchange] = {}

    def begin(self) -> Exchange:
        """Begin an exchange."""
        self.exchanges.append(Exchange())
        return self.exchanges[-1]

    def say(self, text: str) -> None:
        """Add a message of the user, or a note to the model in the user's place."""
        self._add(ChatMessage("user", text))

    def count(self, answer: ModelAnswer) -> None:
        """Count an answer that is not part of the conversation."""
        self.answers += 1
        self.rescues.update(answer.rescues)

    def take_answer(self, answer: ModelAnswer) -> None:
        """Add an answer and queue its calls."""
        self.count(answer)
        self.misplaced_count = self.misplaced_count + 1 if answer.misplaced else 0
        self.room = answer.room or self.room
        if answer.calls:
            self.queue = deque(answer.calls)
        for call in answer.calls:
            summary = self._summary_of(call)
            self._open[call.id] = summary
            self._ids.add(call.id)
            self.calls.append(summary)
        if answer.content or answer.calls:
            exchange = self._add(ChatMessage("assistant", answer.content or None, answer.calls))
            self._exchange_of |= {call.id: exchange for call in answer.calls}

    def take_next(self, tool: str, rescues: Collection[str] = ()) -> AnyCall | None:
        """Start the first call of the queue and return it; None when the queue is empty. `tool` is the tool's own name."""
        if not self.queue:
            return None
        self._taken_call = self.queue.popleft()
        summary = self._open[self._taken_call.id]
        if tool and tool != summary.tool:
            self._exchange_of[summary.call_id].name(summary.call_id, tool)
            summary.tool = tool
        summary.status = "running"
        self.current = summary
        self.rescues.update(rescues)
        return summary

    def put_back(self) -> None:
        """Return the call that was taken last to the front of the queue."""
        if self.current is not None and self._taken_call is not None:
            self.current.status, self.current = "waiting", None
            self.queue.appendleft(self._taken_call)

    def result(self, result: ToolResult) -> list[AnyCall]:
        """Take the result of an open call; one for any other call only ends the current call.

        The model reads results in the order in which it asked, so a result waits for those before it. Return the calls whose results were added.
        """
        if self.current is not None and self.current.call_id == result.call_id:
            self.current = None
        summary = self.open_call(result.call_id)
        if summary is not None:
            summary.result = result.content
            self._results[result.call_id] = result
        return self._add_results()

    def _add_results(self) -> list[AnyCall]:
        calls = []
        while self._open and (call_id := next(iter(self._open))) in self._results:
            call, result = self._open.pop(call_id), self._results.pop(call_id)
            self._exchange_of.pop(call_id, None)
            self._add(ChatMessage("tool", result.as_text(), answers=call.provider_id))
            calls.append(call)
        return calls

    def drop(self) -> None:
        """Empty the queue of calls."""
        self.queue.clear()

    def open_ids(self) -> tuple[str, ...]:
        """Return the ids of the open calls, those without a result, in order."""
        return tuple(call_id for call_id in self._open if call_id not in self._results)

    def open_calls(self) -> tuple[AnyCall, ...]:
        """Return the calls whose results the model does not read yet, in order."""
        return tuple(self._open.values())

    def open_call(self, call_id: str) -> AnyCall | None:
        """Return the open call of an id, or None."""
        return None if call_id in self._results else self._open.get(call_id)

    def waiting_ids(self) -> tuple[str, ...]:
        """Return the ids of the current call and of those in the queue, in order."""
        current = () if self.current is None else (self.current.call_id,)
        return (*current, *(call.id for call in self.queue))

    def call(self, call_id: str) -> AnyCall | None:
        """Return the latest call of an id, or None."""
        return next((call for call in reversed(self.calls) if call.call_id == call_id), None)

    def free_id(self, call_id: str, beside: Collection[str] = ()) -> str:
        """Return an unused id for a call, different from those in `beside` too: providers repeat theirs."""
        number, name = 1, call_id
        while name in self._ids or name in beside:
            number += 1
            name = f"{call_id}-{number}"
        return name

    def _add(self, message: ChatMessage) -> Exchange:
        exchange = self.exchanges[-1] if self.exchanges else self.begin()
        exchange.add(message)
        return exchange


def call_fields(call: ToolCall) -> dict[str, Any]:
    """Return the fields of the summary of a new call."""
    return {"call_id": call.id, "tool": display_name(call.name), "provider_id": call.provider_id}


@attrs.frozen
class Notice:
    """A notice that something was not done: the name of the reason, and a text for people.

    `note` is for the model. `results` are those of calls that were not made, by id. `drops` says that the queue of calls is emptied.
    """

    reason: str
    text: str
    note: str = ""
    results: Mapping[str, JsonObject] = attrs.field(factory=dict)
    drops: bool = False

    def as_step(self, actor: str) -> Step:
        """Return the notice as the step of an effect."""
        data = as_data(self)
        return text_step(actor, data.pop("text"), about=data)


def result_contents(*results: ToolResult) -> dict[str, JsonObject]:
    """Return the contents of results by call id, for a notice."""
    return {result.call_id: result.content for result in results}


AnyNotice = TypeVar("AnyNotice", bound=Notice)


def notices_in(entry: ResultEntry, kind: type[AnyNotice], reasons: Mapping[str, str]) -> Iterator[AnyNotice]:
    """Yield the notices of an effect that have one of `reasons`."""
    for step in entry.steps:
        data = step["payload"]
        if isinstance(data, dict) and isinstance(data.get("reason"), str) and data["reason"] in reasons:
            yield read_record(kind, {"text": "", **data})


def first_room(room: Room | None, most: int, model: str) -> int:
    """Return the characters for the first request, from the size of the last one and the limit that is wanted."""
    is_same = room is not None and (room.wanted, room.model) == (most, model)
    return min(most, room.chars) if room is not None and is_same else most


def room_of(used_chars: int, most: int, model: str) -> Room | None:
    """Return the room to record with an answer, or None when the whole request fit."""
    return Room(used_chars, most, model) if used_chars < most else None


async def ask_within(
    ask: Callable[[list[ChatMessage]], Awaitable[StreamResult]],
    messages_within: Callable[[int], list[ChatMessage]],
    room: int,
    *,
    beside: int,
    notice: Callable[[str], object],
) -> tuple[StreamResult, int]:
    """Ask with the messages that fit `room` characters, and with fewer each time that the model says it is too long. Return the answer and the room used.

    `beside` is the size of the request besides its messages, in characters. Calls `notice` before each further try. Raises GenerationError, also when nothing
    more can be left out.
    """
    messages = messages_within(room)
    for _ in range(_MOST_TRIES):
        try:
            return await ask(messages), room
        except GenerationError as error:
            if error.reason != "context_too_long":
                raise
            size_before = size_of(messages)
            room, messages = _less(messages_within, room, _target(error, size_before, beside))
            size = size_of(messages)
            if size >= size_before:
                raise
            notice(f"The request is too long for the model; trying again with {size:,} of {size_before:,} characters.")
    return await ask(messages), room


def _less(messages_within: Callable[[int], list[ChatMessage]], room: int, target: int) -> tuple[int, list[ChatMessage]]:
    """Return a smaller room and its messages: at most `target` characters, or the fewest possible."""
    messages = messages_within(room)
    while size_of(messages) > target and room > _LEAST_CHARS:
        room = int(room * _STEP)
        messages = messages_within(room)
    return room, messages


def _target(error: GenerationError, size: int, beside: int) -> int:
    """Return the next size of the messages, from the token counts in the server's message: those sent and those allowed."""
    numbers = sorted({int(number.replace(",", "")) for number in _NUMBER.findall(error.server.detail)}, reverse=True)
    guess = int(size * _LESS)
    if len(numbers) < 2:  # noqa: PLR2004  (the tokens sent, and the limit)
        return guess
    over = (size + beside) * (1 - numbers[1] / numbers[0])
    return max(min(int(size - over * _MARGIN), size - 1), size // 10)


def newest_that_fit(exchanges: Sequence[Exchange], chars: int) -> Sequence[Exchange]:
    """Return the newest exchanges that fit into `chars` characters, and always the last one."""
    size, count = 0, 0
    for exchange in reversed(exchanges):
        size += exchange.size
        if count and size > chars:
            break
        count += 1
    return exchanges[len(exchanges) - count :]


def within(
    messages: Sequence[ChatMessage], room: int, levels: Sequence[int] = (4_000, 1_200, 300, 100)
) -> list[ChatMessage]:
    """Return the messages with texts shortened until all fit into a room, if possible. The user's messages stay whole."""
    result = list(messages)
    left = size_of(result) - room
    for most in levels:
        for at, message in enumerate(result):
            if left <= 0:
                return result
            if message.role != "user":
                result[at] = shorten(message, most)
                left -= message.size - result[at].size
    return result


def shorten(message: ChatMessage, most: int) -> ChatMessage:
    """Return a message with each text cut to about `most` characters, with a mark in its middle."""
    shorten = _shorten_result if message.role == "tool" else cut_middle
    content = None if message.content is None else shorten(message.content, most)
    calls = tuple(_shorten_call(call, most) for call in message.calls)
    is_same = content == message.content and calls == message.calls
    return message if is_same else attrs.evolve(message, content=content, calls=calls)


def _shorten_result(text: str, most: int) -> str:
    """Return a result with its texts shortened, still JSON, which says so. A result of many small texts is cut to its beginning."""
    if len(text) <= most:
        return text
    result = json.loads(text)
    shorter = (_shorten_texts(result, most * tenths // 20) for tenths in (16, 8, 4, 2) if isinstance(result, dict))
    beginnings = ({"beginning": text[: most * tenths // 20]} for tenths in (16, 12, 8, 4, 2, 1, 0))
    candidates = [_result_text(each, len(text)) for each in (*shorter, *beginnings)]
    return next((each for each in candidates if len(each) <= most), candidates[-1])


def _result_text(excerpt: JsonObject, length: int) -> str:
    """Return a shortened result as JSON, with a note on how much is left out and how to get it."""
    left = max(1, length - len(json.dumps(excerpt, ensure_ascii=False)))
    content = {**excerpt, "shortened": f"{left:,} of {length:,} characters left out: call again for them"}
    if "truncated" in content:
        content["truncated"] = True
    return json.dumps(content, ensure_ascii=False)


def _shorten_call(call: ToolCall, most: int) -> ToolCall:
    """Return a call with the texts in its arguments shortened; they stay JSON."""
    whole = json.dumps(call.arguments or {}, ensure_ascii=False)
    if len(whole) <= most:
        return call
    shorter = _shorten_texts(call.arguments, most)
    is_short = len(json.dumps(shorter, ensure_ascii=False)) <= 2 * most + len(shorter)
    return attrs.evolve(call, arguments=shorter if is_short else {"beginning": whole[: most // 2]})


def _shorten_texts(value: Any, most: int) -> Any:  # noqa: ANN401  (JSON)
    return each_text(value, lambda text: cut_middle(text, most))
