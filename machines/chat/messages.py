"""What a model is sent: instructions, the data, what exists already, what is known of the latest results, and the conversation.

Takes a conversation, gives messages in OpenAI's form. Inventory and summary stand in every request (seed 002, Option A), and every call has
its result right behind it. Old turns are left out where the conversation is longer than the request may be; what they made is still named.
Pure.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from machines.chat.conversation import Conversation, Message, Turn
from machines.chat.inventory import MOST_SHOWN, REUSE, Artifact
from machines.talking.context import CHARS_PER_TOKEN, within

INSTRUCTIONS = (
    "You analyse data for a user, with tools. Look at the data with SQL before you speak of it; never invent figures. "
    "SQL reads the tables below and nothing else. Python sees the latest SQL result as the DataFrame df. "
    "Name the files that you have made by their names. When you have what the user wants, answer in a few sentences, without a call."
)
#: How many tokens of conversation a request has at most; what is older is left out.
CONTEXT_TOKENS = 20_000
_LEFT_OUT = "[{count} earlier turns are left out here; what they made is in the inventory.]"


def messages_for(
    conversation: Conversation,
    tables: Sequence[Mapping[str, Any]],
    *,
    offered: Iterable[str] = (),
    context_chars: int = CONTEXT_TOKENS * CHARS_PER_TOKEN,
    shortens: bool = False,
) -> list[Message]:
    """Give the messages of the next request. `tables` describes the data, `offered` are the tools that come with the request.

    A last turn that is too long by itself is sent whole, unless it `shortens` its largest texts.
    """
    turns, left_out = _that_fit(conversation.turns, context_chars)
    system: Message = {"role": "system", "content": _system(conversation, tables, tuple(offered))}
    said = [message for turn in turns for message in turn.messages]
    if shortens and sum(turn.size for turn in turns) > context_chars:
        said = within(said, context_chars)
    if left_out and said:
        said[0] = {**said[0], "content": f"{_LEFT_OUT.format(count=left_out)}\n{said[0]['content']}"}
    return [system, *said]


def _that_fit(turns: Sequence[Turn], context_chars: int) -> tuple[list[Turn], int]:
    """Give the newest turns that fit, the last one always, and how many are left out."""
    kept: list[Turn] = []
    size = 0
    for turn in reversed(turns):
        size += turn.size
        if kept and size > context_chars:
            break
        kept.append(turn)
    return kept[::-1], len(turns) - len(kept)


def _system(conversation: Conversation, tables: Sequence[Mapping[str, Any]], offered: tuple[str, ...]) -> str:
    inventory = conversation.inventory
    count = f" (the newest {MOST_SHOWN} of {len(inventory)})" if len(inventory) > MOST_SHOWN else ""
    parts = [
        INSTRUCTIONS,
        f"Tables:\n{_lines(tables)}",
        f"Artifacts that exist{count}. {REUSE}\n{_joined(map(_described, inventory.newest()))}",
        f"Latest results of SQL, newest last:\n{_lines(conversation.intents)}",
    ]
    if not offered:
        parts.append("No tool can be called now: answer with what you have.")
    return "\n\n".join(parts)


def _lines(things: Iterable[Mapping[str, Any]]) -> str:
    return _joined(json.dumps(thing, ensure_ascii=False) for thing in things)


@lru_cache(maxsize=1_024)
def _described(artifact: Artifact) -> str:
    """Write what is told of an artifact; the next requests tell the same."""
    return json.dumps(artifact.described(), ensure_ascii=False)


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) or "none"
