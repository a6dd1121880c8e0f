"""Messages of a conversation with a model, and how much room they take.

What was said between a user, a model and its tools, in order; the calls that wait for a result, and the one that is made.

Whoever reads a run's ledger tells it what has happened. Every call has its result behind it: a provider refuses a conversation in which one has none.

What a machine tells where nothing is done: to people, and to the model.

A notice is a step of an effect without answers; whoever reads the run's ledger takes it from there.

The context of a request: what of a conversation is sent, and that less is sent where a model says that it cannot read so much.

Texts are shortened, the largest first, and of these the oldest. How long a request may be nobody can know for certain: a token has three characters or more,
in English and in code, no tokenizer of the model is asked, and some servers have less room than their model.
"""

import json
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import attrs

from dsa.edge.http.model_server import ServerError
from dsa.errors import GenerationError
from dsa.generators.streams import StreamResult
from dsa.runtime.json_text import WrittenJson
from dsa.runtime.ledger import ResultEntry
from dsa.runtime.policy.policies import Step, text_step
from dsa.runtime.speech import each_text
from machines.tool_use.records import JsonObject, as_data, cut, read_record
from machines.tool_use.tool import name_told
from machines.tool_use.tool_call import ModelAnswer, Room, ToolCall, ToolResult

Role = Literal["system", "user", "assistant", "tool"]


@attrs.frozen
class ChatMessage:
    """One message. `calls` are what the model asks for in it, `answers` the provider's id of the call whose result it is."""

    role: Role
    content: str | None
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""

    @cached_property
    def as_openai(self) -> WrittenJson:
        """The message in OpenAI's form; the same object each time."""
        calls = {"tool_calls": [call.as_part() for call in self.calls]} if self.calls else {}
        answers = {"tool_call_id": self.answers} if self.role == "tool" else {}
        return WrittenJson({"role": self.role, **answers, "content": self.content, **calls})

    @cached_property
    def size(self) -> int:
        """How many characters it has as JSON."""
        return len(self.as_openai.text)


def size_of(messages: Iterable[ChatMessage]) -> int:
    """Return how many characters messages have as JSON."""
    return sum(message.size for message in messages)


def joined(messages: Iterable[ChatMessage], between: str, roles: Container[Role]) -> list[ChatMessage]:
    """Join neighbouring messages of the same role, where that is one of these: some templates refuse turns that do not alternate."""
    found: list[ChatMessage] = []
    for message in messages:
        if found and found[-1].role == message.role and message.role in roles:
            found[-1] = attrs.evolve(found[-1], content=f"{found[-1].content}{between}{message.content}")
        else:
            found.append(message)
    return found


@attrs.define
class CallSummary:
    """A call as the user sees it. `status` is waiting, running, done, failed, or the reason why it was not made; `result` is what the model is told."""

    call_id: str
    tool: str
    provider_id: str
    status: str = "waiting"
    result: JsonObject | None = None


AnyCalled = TypeVar("AnyCalled", bound=CallSummary)


class Exchange:
    """Messages that belong together. The model is reminded in them of each tool by its own name, whatever it has called it."""

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
        """How many characters they have as JSON."""
        if self._names:
            self._rename()
        return self._size

    def add(self, message: ChatMessage) -> None:
        """Add a message."""
        self._messages.append(message)
        self._size += message.size

    def name(self, call_id: str, tool: str) -> None:
        """Have a call under the name of its tool; it is written when somebody asks for the messages, once for all calls."""
        self._names[call_id] = tool

    def _rename(self) -> None:
        names, self._names = self._names, {}
        for at, message in enumerate(self._messages):
            if any(call.id in names for call in message.calls):
                calls = tuple(attrs.evolve(call, name=names.get(call.id, call.name)) for call in message.calls)
                self._messages[at] = attrs.evolve(message, calls=calls)
                self._size += self._messages[at].size - message.size


class Transcript(Generic[AnyCalled]):
    """A conversation, in exchanges. `called` makes what is remembered of a call."""

    def __init__(self, called: Callable[[ToolCall], AnyCalled]) -> None:
        self.exchanges: list[Exchange] = []
        self.queue: deque[ToolCall] = deque()
        self.current: AnyCalled | None = None
        self.calls: list[AnyCalled] = []
        self.rescues: Counter[str] = Counter()
        #: How many answers the model has given, how many of the last ones had a call in their text, what the last request took.
        self.answers = self.misplaced = 0
        self.room: Room | None = None
        self._called = called
        self._open: dict[str, AnyCalled] = {}
        self._ids: set[str] = set()
        self._asked_in: dict[str, Exchange] = {}

    def begin(self) -> Exchange:
        """Begin an exchange."""
        self.exchanges.append(Exchange())
        return self.exchanges[-1]

    def say(self, text: str) -> None:
        """Take what the user says, or what the model is told in his place."""
        self._add(ChatMessage("user", text))

    def count(self, answer: ModelAnswer) -> None:
        """Record an answer that is no part of the conversation."""
        self.answers += 1
        self.rescues.update(answer.rescues)

    def answered(self, answer: ModelAnswer) -> None:
        """Take an answer; its calls wait."""
        self.count(answer)
        self.misplaced = self.misplaced + 1 if answer.misplaced else 0
        self.room = answer.room or self.room
        if answer.calls:
            self.queue = deque(answer.calls)
        for call in answer.calls:
            called = self._called(call)
            self._open[call.id] = called
            self._ids.add(call.id)
            self.calls.append(called)
        if answer.content or answer.calls:
            exchange = self._add(ChatMessage("assistant", answer.content or None, answer.calls))
            self._asked_in |= {call.id: exchange for call in answer.calls}

    def take_next(self, tool: str, rescues: Collection[str] = ()) -> AnyCalled | None:
        """Begin with the first call that waits, of which it is known now what it means; None where none waits."""
        if not self.queue:
            return None
        called = self._open[self.queue.popleft().id]
        if tool and tool != called.tool:
            self._asked_in[called.call_id].name(called.call_id, tool)
            called.tool = tool
        called.status = "running"
        self.current = called
        self.rescues.update(rescues)
        return called

    def result(self, result: ToolResult) -> None:
        """Take what came of a call that has no result yet."""
        called = self._open.pop(result.call_id, None)
        self._asked_in.pop(result.call_id, None)
        if called is not None:
            called.result = result.content
            self._add(ChatMessage("tool", result.as_text(), answers=called.provider_id))
        if self.current is not None and self.current.call_id == result.call_id:
            self.current = None

    def drop(self) -> None:
        """Make no call any more that waits."""
        self.queue.clear()

    def waiting(self) -> tuple[str, ...]:
        """Name the calls that have no result yet, in the order in which they were asked for."""
        return tuple(self._open)

    def open_call(self, call_id: str) -> AnyCalled | None:
        """Return a call that has no result yet."""
        return self._open.get(call_id)

    def call(self, call_id: str) -> AnyCalled | None:
        """Return the latest call of an id."""
        return next((call for call in reversed(self.calls) if call.call_id == call_id), None)

    def free_id(self, call_id: str, beside: Collection[str] = ()) -> str:
        """Return an id of a call that no other call has, nor those beside it: providers repeat theirs."""
        number, name = 1, call_id
        while name in self._ids or name in beside:
            number += 1
            name = f"{call_id}-{number}"
        return name

    def _add(self, message: ChatMessage) -> Exchange:
        exchange = self.exchanges[-1] if self.exchanges else self.begin()
        exchange.add(message)
        return exchange


def called_of(call: ToolCall) -> dict[str, Any]:
    """Return what is known of a call that has just been asked for."""
    return {"call_id": call.id, "tool": name_told(call.name), "provider_id": call.provider_id}


@attrs.frozen
class Notice:
    """Why something was not done as the model or the user asked: a reason by its name, and words for people.

    `note` is for the model; `results` are of calls that were not made, by the calls' ids; `drops` says that no call waits any more.
    """

    reason: str
    text: str
    note: str = ""
    results: Mapping[str, JsonObject] = attrs.field(factory=dict)
    drops: bool = False

    def as_step(self, actor: str) -> Step:
        """Return it as the step of an effect."""
        told = as_data(self)
        return text_step(actor, told.pop("text"), about=told)


def results_told(*results: ToolResult) -> dict[str, JsonObject]:
    """Return results as a notice has them."""
    return {result.call_id: result.content for result in results}


AnyNotice = TypeVar("AnyNotice", bound=Notice)


def notices_in(entry: ResultEntry, kind: type[AnyNotice], reasons: Mapping[str, str]) -> Iterator[AnyNotice]:
    """Yield the notices of an effect, whose reasons are known."""
    for step in entry.steps:
        told = step["payload"]
        if isinstance(told, dict) and isinstance(told.get("reason"), str) and told["reason"] in reasons:
            yield read_record(kind, {"text": "", **told})


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
    ask: Callable[[list[ChatMessage]], Awaitable[StreamResult]],
    messages_within: Callable[[int], list[ChatMessage]],
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


def _less(messages_within: Callable[[int], list[ChatMessage]], room: int, target: int) -> tuple[int, list[ChatMessage]]:
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


def within(
    messages: Sequence[ChatMessage], room: int, levels: Sequence[int] = (4_000, 1_200, 300, 100)
) -> list[ChatMessage]:
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


def shortened_to(message: ChatMessage, most: int) -> ChatMessage:
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
