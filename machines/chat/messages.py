"""What a model is sent: instructions, the data, what exists already, what is known of the latest results, and the conversation.

Takes a conversation, gives messages. Inventory and summary stand in every request (seed 002, Option A), and every call has
its result right behind it. Old turns are left out where the conversation is longer than the request may be; what they made is still named.
Pure.
"""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache

import attrs

from machines.chat.conversation import Conversation
from machines.chat.inventory import MOST_SHOWN, REUSE, Artifact
from machines.chat.sql import Intent, TableInfo
from machines.tool_use.context import CHARS_PER_TOKEN, newest_that_fit, within
from machines.tool_use.message import Message
from machines.tool_use.records import as_data

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
    tables: Sequence[TableInfo],
    *,
    offered: Iterable[str] = (),
    context_chars: int = CONTEXT_TOKENS * CHARS_PER_TOKEN,
    shortens: bool = False,
) -> list[Message]:
    """Give the messages of the next request. `tables` describes the data, `offered` are the tools that come with the request.

    A last turn that is too long by itself is sent whole, unless it `shortens` its largest texts.
    """
    turns = conversation.turns
    kept = newest_that_fit([turn.exchange for turn in turns], context_chars)
    left_out = len(turns) - len(kept)
    system = Message("system", _system(conversation, tables, tuple(offered)))
    said = [message for exchange in kept for message in exchange.messages]
    if shortens and sum(exchange.size for exchange in kept) > context_chars:
        said = within(said, context_chars)
    if left_out and said:
        said[0] = attrs.evolve(said[0], content=f"{_LEFT_OUT.format(count=left_out)}\n{said[0].content}")
    return [system, *said]


def _system(conversation: Conversation, tables: Sequence[TableInfo], offered: tuple[str, ...]) -> str:
    inventory = conversation.inventory
    count = f" (the newest {MOST_SHOWN} of {len(inventory)})" if len(inventory) > MOST_SHOWN else ""
    parts = [
        INSTRUCTIONS,
        f"Tables:\n{_joined(map(_table, tables))}",
        f"Artifacts that exist{count}. {REUSE}\n{_joined(map(_described, inventory.newest()))}",
        f"Latest results of SQL, newest last:\n{_joined(map(_intent, conversation.intents))}",
    ]
    if not offered:
        parts.append("No tool can be called now: answer with what you have.")
    return "\n\n".join(parts)


def _table(table: TableInfo) -> str:
    told = {"table": table.name, "rows": table.row_count, "columns": dict(table.columns)}
    return json.dumps(told, ensure_ascii=False)


@lru_cache(maxsize=1_024)
def _intent(intent: Intent) -> str:
    return json.dumps(as_data(intent), ensure_ascii=False)


@lru_cache(maxsize=1_024)
def _described(artifact: Artifact) -> str:
    """Write what is told of an artifact; the next requests tell the same."""
    return json.dumps(artifact.described(), ensure_ascii=False)


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) or "none"
