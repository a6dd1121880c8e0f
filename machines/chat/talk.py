"""The conversation at a terminal: lines are read and said; those that begin with a slash are for the program.

Takes a held conversation and whatever runs its coroutines; gives an exit code.
"""

import json
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from dsa.errors import DsaError
from dsa.expr import show_value
from machines.chat.branches import branch
from machines.chat.counting import counters_of
from machines.chat.display import Display
from machines.chat.session import Chat

Perform = Callable[[Coroutine[Any, Any, Any]], Any]

HELP = """\
/artifacts         what was made          /counters        what was skipped, mended, retried
/state             the phase              /branch [TURN]   another conversation, up to the end of a turn
/cancel            (while a turn goes on: Ctrl-C)   /export [DIR]    copy the files, and what was said
/retry, /dismiss   after an error         /rerun TEXT      say TEXT; work may be done again
/end               end it for good        /quit            leave it; it can be resumed"""


class Talk:
    """A conversation with somebody at a terminal."""

    def __init__(self, chat: Chat, display: Display) -> None:
        self._chat, self._display = chat, display

    def hold(self, perform: Perform, read: Callable[[str], str] = input) -> int:
        """Read and say lines until the user leaves. Gives the exit code."""
        chat, say = self._chat, self._display.say
        say(f"{chat.run_id}   /help lists what else there is; Ctrl-C stops a turn, Ctrl-D leaves")
        if chat.is_under_way:
            say("the last turn was cut off; it goes on")
            perform(chat.go_on())
        while not chat.is_over:
            try:
                line = read("> ").strip()
            except EOFError:
                break
            except KeyboardInterrupt:
                say("no turn goes on; Ctrl-D leaves")
                continue
            if line in {"/quit", "/exit"}:
                break
            if line:
                self._said(line, perform)
        say("ended" if chat.is_over else f"go on with: dsa chat --resume {chat.run_id}")
        return 1 if chat.has_failed else 0

    def _said(self, line: str, perform: Perform) -> None:
        name, _, rest = line.partition(" ")
        try:
            if not line.startswith("/"):
                perform(self._chat.say(line))
            elif name == "/rerun":
                perform(self._chat.say(rest.strip(), rerun=True))
            elif name in _TELLING:
                perform(self._chat.tell(_TELLING[name]))
            elif name in _SHOWING:
                self._display.say(_SHOWING[name](self._chat, rest.strip()))
            else:
                self._display.say(f"there is no {name}\n{HELP}")
        except (DsaError, OSError) as error:
            self._display.say(str(error))


def _state(chat: Chat, _rest: str) -> str:
    return f"{chat.state}   {', '.join(f'{name} = {show_value(value)}' for name, value in chat.values.items())}"


def _artifacts(chat: Chat, _rest: str) -> str:
    lines = []
    for each in chat.conversation.inventory:
        also = "".join(f"; also {alias}" for alias, _ in each.aliases)
        made = f"{each.kind}  {each.size_bytes:,} bytes  by {each.producer}, call {each.source_call_id}"
        lines.append(f"{each.artifact_id:<5} {chat.resources.files.name_of(each)}  {made}{also}")
    return "\n".join(lines) or "nothing was made yet"


def _branch(chat: Chat, rest: str) -> str:
    turns = len(chat.conversation.turns)
    if rest and not (rest.isdigit() and int(rest) <= turns):
        return f"/branch takes the number of a turn, 0 to {turns}, not '{rest}'"
    number = int(rest) if rest else turns
    name = branch(chat.runs, chat.run_id, number)
    return f"{name} is this conversation up to the end of turn {number}; go on with it: dsa chat --resume {name}"


def _export(chat: Chat, rest: str) -> str:
    folder = Path(rest or f"{chat.run_id}-export")
    conversation, files = chat.conversation, chat.resources.files
    names = ["conversation.md", *map(files.name_of, conversation.inventory)]
    if there := [name for name in names if (folder / name).exists()]:
        return f"nothing was written: {', '.join(there[:5])} {'is' if len(there) == 1 else 'are'} in {folder} already; name another folder"
    folder.mkdir(parents=True, exist_ok=True)
    for each in conversation.inventory:
        shutil.copyfile(files.path(each.digest), folder / files.name_of(each))
    turns = [f"## {turn.number}. {turn.text}\n\n{turn.answer or '(no answer)'}" for turn in conversation.turns]
    text = "\n\n".join([f"# {chat.run_id}", *turns])
    (folder / "conversation.md").write_text(f"{text}\n", encoding="utf-8")
    return f"{len(conversation.inventory)} files and conversation.md are in {folder}"


_TELLING = {"/retry": "retried", "/dismiss": "dismissed", "/end": "ended"}
_SHOWING: dict[str, Callable[[Chat, str], str]] = {
    "/state": _state,
    "/artifacts": _artifacts,
    "/counters": lambda chat, _rest: json.dumps(counters_of(chat.conversation), indent=2),
    "/cancel": lambda _chat, _rest: "no turn goes on; Ctrl-C stops one that does",
    "/branch": _branch,
    "/export": _export,
    "/help": lambda _chat, _rest: HELP,
}
