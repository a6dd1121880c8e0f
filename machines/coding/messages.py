"""What a model is sent: instructions, where the work stands, what the workspace holds, and the last exchanges (seed 003, context structure).

Takes the work, gives messages, at most as long as the budget: what is older is shortened first, then left out. The last exchange
is always there, with every result that it has brought. Pure.
"""

import json
from collections.abc import Iterable, Sequence

import attrs

from machines.coding.work import Work
from machines.tool_use.context import CHARS_PER_TOKEN, shortened_to
from machines.tool_use.message import Message, joined, size_of

#: Exchanges that are kept (seed 003: HISTORY_KEEP).
HISTORY_KEEP = 5
#: How long a request may be.
CONTEXT_TOKENS = 16_000
_SHORT, _SHORTER = 1_200, 300
_MOST_FILES, _MOST_BLOCKED = 40, 5

INSTRUCTIONS = (
    "You are a coding agent. You work in one folder, the workspace, by calling tools. Work at the ACTIVE SUBTASK alone, one small step after the "
    "other, and read what the tools answer. When the subtask is done, call mark_subtask_complete(success=true); when it cannot be done, call it with "
    "success=false and the reason. A program runs without a shell. A call that was blocked is not to be tried again: take "
    "another way."
)

TEST_FIRST = "Write every new Python module with write_tested, never with write_file: its tests come first."


def messages_for(
    work: Work,
    *,
    context_chars: int = CONTEXT_TOKENS * CHARS_PER_TOKEN,
    test_first: bool = False,
    files: Sequence[str] = (),
) -> list[Message]:
    """Give the messages of the next request; `test_first` where new modules are to be written with their tests, `files` were there before."""
    head = [
        Message("system", f"{INSTRUCTIONS} {TEST_FIRST}" if test_first else INSTRUCTIONS),
        Message("user", where_it_stands(work, files)),
    ]
    room = context_chars - size_of(head)
    said = [list(exchange.messages) for exchange in work.transcript.exchanges if exchange.messages]
    kept = [message for exchange in _fitted(said[-HISTORY_KEEP:], room) for message in exchange]
    return joined([*head, *kept], "\n\n", {"user"})  # such as notes on empty answers


def where_it_stands(work: Work, files: Sequence[str] = ()) -> str:
    """Say goal, task, subtask, files, what the probe has found, and which calls were blocked."""
    active = work.active
    task, subtask = (active[0].description, active[1].description) if active else ("(none)", "(none)")
    lines = [
        f"GOAL: {work.goal}",
        f"CURRENT TASK: {task}",
        f"ACTIVE SUBTASK: {subtask}",
        f"FILES CREATED: {_listed(list(dict.fromkeys([*files, *work.files_written])))}",
        f"STATE: {json.dumps(attrs.asdict(work.probe) if work.probe else {}, ensure_ascii=False)}",
    ]
    if work.blocked:
        blocked = list(work.blocked.values())[-_MOST_BLOCKED:]
        lines.append("BLOCKED, take another way:\n" + "\n".join(f"- {each}" for each in blocked))
    return "\n".join(lines)


def _listed(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[-_MOST_FILES:]) or "(none yet)"
    return f"{shown} and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else shown


def _fitted(exchanges: list[list[Message]], room: int) -> list[list[Message]]:
    """Shorten, then leave out, then shorten the last one, until it fits."""
    if _sizes(exchanges) <= room or not exchanges:
        return exchanges
    *older, last = exchanges
    for most in (_SHORT, _SHORTER):
        shortened = [[shortened_to(message, most) for message in exchange] for exchange in older]
        if _sizes([*shortened, last]) <= room:
            return [*shortened, last]
    while shortened and _sizes([*shortened, last]) > room:
        shortened = shortened[1:]
    most = max(_SHORTER, room // max(1, 2 * len(last)))
    return [*shortened, last if _sizes([*shortened, last]) <= room else [shortened_to(each, most) for each in last]]


def _sizes(exchanges: Iterable[list[Message]]) -> int:
    return sum(map(size_of, exchanges))
