"""What was said between a user, a model and its tools, in order; the calls that wait for a result, and the one that is made.

Whoever reads a run's ledger tells it what has happened. Every call has its result behind it: a provider refuses a conversation in which one has none.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Generic, TypeVar

import attrs

from machines.tool_use.answers import Answer, Room
from machines.tool_use.call import ToolCall, ToolResult
from machines.tool_use.message import Message
from machines.tool_use.names import name_told
from machines.tool_use.records import JsonObject


@attrs.define
class Called:
    """A call as the user sees it. `status` is waiting, running, done, failed, or the reason why it was not made; `result` is what the model is told."""

    call_id: str
    tool: str
    provider_id: str
    status: str = "waiting"
    result: JsonObject | None = None


AnyCalled = TypeVar("AnyCalled", bound=Called)


class Exchange:
    """Messages that belong together. The model is reminded in them of each tool by its own name, whatever it has called it."""

    __hash__ = None  # type: ignore[assignment]  # it grows

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._size = 0
        self._names: dict[str, str] = {}

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exchange) and self.messages == other.messages

    def __repr__(self) -> str:
        return f"Exchange({list(self.messages)!r})"

    @property
    def messages(self) -> Sequence[Message]:
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

    def add(self, message: Message) -> None:
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
        self._add(Message("user", text))

    def count(self, answer: Answer) -> None:
        """Take note of an answer that is no part of the conversation."""
        self.answers += 1
        self.rescues.update(answer.rescues)

    def answered(self, answer: Answer) -> None:
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
            exchange = self._add(Message("assistant", answer.content or None, answer.calls))
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
            self._add(Message("tool", result.as_text(), answers=called.provider_id))
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

    def _add(self, message: Message) -> Exchange:
        exchange = self.exchanges[-1] if self.exchanges else self.begin()
        exchange.add(message)
        return exchange


def called_of(call: ToolCall) -> dict[str, Any]:
    """Return what is known of a call that has just been asked for."""
    return {"call_id": call.id, "tool": name_told(call.name), "provider_id": call.provider_id}
