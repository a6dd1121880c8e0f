"""Messages of a conversation with a model, and how much room they take."""

from collections.abc import Container, Iterable
from functools import cached_property
from typing import Literal

import attrs

from dsa.runtime.json_text import Written
from machines.tool_use.call import ToolCall

Role = Literal["system", "user", "assistant", "tool"]


@attrs.frozen
class Message:
    """One message. `calls` are what the model asks for in it, `answers` the provider's id of the call whose result it is."""

    role: Role
    content: str | None
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""

    @cached_property
    def as_openai(self) -> Written:
        """The message in OpenAI's form; the same object each time."""
        calls = {"tool_calls": [call.as_part() for call in self.calls]} if self.calls else {}
        answers = {"tool_call_id": self.answers} if self.role == "tool" else {}
        return Written({"role": self.role, **answers, "content": self.content, **calls})

    @cached_property
    def size(self) -> int:
        """How many characters it has as JSON."""
        return len(self.as_openai.text)


def size_of(messages: Iterable[Message]) -> int:
    """Return how many characters messages have as JSON."""
    return sum(message.size for message in messages)


def joined(messages: Iterable[Message], between: str, roles: Container[Role]) -> list[Message]:
    """Join neighbouring messages of the same role, where that is one of these: some templates refuse turns that do not alternate."""
    found: list[Message] = []
    for message in messages:
        if found and found[-1].role == message.role and message.role in roles:
            found[-1] = attrs.evolve(found[-1], content=f"{found[-1].content}{between}{message.content}")
        else:
            found.append(message)
    return found
