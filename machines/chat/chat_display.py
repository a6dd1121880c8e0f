"""The display of a conversation on a terminal: the model's text as it comes, a line for each call and its result, badges for what was not done.

It takes moments and pieces of text in order, and only prints.
"""

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsa.runtime.ledger import EffectEntry, Entry, EventEntry, RefusalEntry, ResultEntry, RowEntry
from dsa.runtime.timeline import Moment
from dsa.text import on_one_line, printable
from machines.chat.chat_resources import FILES_FOLDER
from machines.chat.conversation import (
    BADGES,
    DONE_EVENTS,
    FAILURE_EVENTS,
    REASONS,
    ChatCall,
    ChatConversation,
    ChatResult,
    DataCall,
    UserMessage,
)
from machines.chat.sql import TableInfo
from machines.tool_use.machine_session import Lines
from machines.tool_use.records import one_line, read_record
from machines.tool_use.tool_call import ModelAnswer

_MOST_ROWS, _MOST_COLUMNS, _LONGEST_CELL, _LONGEST_CALL = 10, 8, 40, 100
_LONGEST_ERROR = 800


class ChatDisplay(Lines):
    """The display of a conversation. Pass its methods to `Chat` as `on_moment`, `listen` and `notice`.

    `folder` contains the conversation's own folder. With `is_verbose` the display has phases, and the fixes in calls. A call has its line
    when it begins, or when it is refused. Its result is right below that line, or below another one that names the call again.
    """

    def __init__(self, console: Console, folder: Path, *, is_verbose: bool = False) -> None:
        super().__init__(console)
        self._folder, self._is_verbose = folder, is_verbose
        self._conversation = ChatConversation()
        self._last_event: EventEntry | None = None
        self._failure = ""
        self._file_count = 0
        #: The call that was taken, until its effect says whether it begins or waits; and the call that the lines above are about.
        self._taken_call: ChatCall | None = None
        self._shown_call_id = ""

    def tables(self, tables: Iterable[TableInfo]) -> None:
        """Show the tables that were loaded."""
        for table in tables:
            columns = ", ".join(f"{name} {kind}" for name, kind in table.columns[:_MOST_COLUMNS])
            more = f" and {len(table.columns) - _MOST_COLUMNS} more" if len(table.columns) > _MOST_COLUMNS else ""
            text = f"table {table.name} ({table.source}): {table.row_count:,} rows; {columns}{more}"
            self.line(on_one_line(text), "dim")

    def notice(self, text: str) -> None:
        """Show why the model is being asked again."""
        self.line(f"model: {text}", "yellow")

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show a moment. Older moments of a resumed conversation are only read."""
        self.console.quiet = not is_new
        self._conversation.take([moment.entry])
        self._show(moment.entry, moment.run)
        self.console.quiet, self.is_in_line = False, self.is_in_line and is_new

    def _show(self, entry: Entry, run_id: str) -> None:
        if isinstance(entry, EventEntry):
            self._last_event = entry
        elif isinstance(entry, RowEntry) and self._last_event is not None:
            self._take_event(self._last_event, entry)
            self._files(run_id)
        elif isinstance(entry, EffectEntry) and self._taken_call is not None:
            if entry.effect != "hold_call":
                self._show_call(self._taken_call)
            self._taken_call = None
        elif isinstance(entry, RefusalEntry) and self._last_event is not None and self._last_event.key is None:
            self.line(f"not now: {self._last_event.event} is refused ({entry.reason})", "yellow")
        elif isinstance(entry, ResultEntry):
            self._take_result(entry)

    def _take_event(self, event: EventEntry, step: RowEntry) -> None:
        before, after = (state.rpartition(".")[2] for state in (step.source, step.target))
        if event.event in {"asked", "answered", "cut_off"} and not self.has_text:
            # another process finished the turn, so this text is new here
            self.listen(read_record(ModelAnswer, event.data).content)
        if event.event in {"sql_call", "python_call"}:
            self._taken_call = read_record(ChatCall, event.data)
        elif event.event == "unknown_call":
            self._shown_call_id = ""
        if before != after and self._is_verbose:
            self.line(f"{before} -> {after}", "dim")
        if event.event in DONE_EVENTS | FAILURE_EVENTS:
            result = read_record(ChatResult, event.data)
            self._name_call(result.call_id)
            self._result(result.result)
        self.has_text = False

    def _show_call(self, call: ChatCall) -> None:
        fixes = f" [fixed: {', '.join(call.rescues)}]" if self._is_verbose and call.rescues else ""
        self.line(f"{_call_line(call)}{fixes}", "cyan")
        self._shown_call_id = call.call_id

    def _name_call(self, call_id: str) -> None:
        """Name a call again, unless the lines above are about it."""
        call = self._conversation.transcript.call(call_id)
        if call is not None and call.text and call_id != self._shown_call_id:
            self.line(f"result of {_call_line(call)}", "cyan")
            self._shown_call_id = call_id

    def _result(self, result: Any) -> None:  # noqa: ANN401  (JSON)
        if "error" in result:
            self.line(f"{result['error']['code']}: {one_line(result['error']['message'], _LONGEST_ERROR)}", "red")
        if "columns" in result:
            self._table(result)
        for name in ("output", "value"):
            if result.get(name):
                self.line(printable(result[name].rstrip("\n")), "")

    def _files(self, run_id: str) -> None:
        """Show the paths of the files that are new since the last time."""
        for artifact in islice(self._conversation.inventory, self._file_count, None):
            self._file_count += 1
            path = self._folder / run_id / FILES_FOLDER / artifact.file_name
            self.line(f"file: {path} ({artifact.size_bytes:,} bytes)", "green")

    def _table(self, result: Any) -> None:  # noqa: ANN401  (JSON)
        self.end()
        table = Table(show_edge=False)
        columns = result["columns"][:_MOST_COLUMNS]
        for column in columns:
            table.add_column(Text(printable(str(column))))
        for row in result["rows"][:_MOST_ROWS]:
            table.add_row(*(Text(one_line(printable(_cell(cell)), _LONGEST_CELL)) for cell in row[: len(columns)]))
        self.console.print(table)
        left = result["row_count"] - min(len(result["rows"]), _MOST_ROWS)
        more = len(result["columns"]) - len(columns)
        rest = [f"{left:,} more rows"] * (left > 0) + [f"{more} more columns"] * (more > 0)
        if rest:
            self.line(f"and {', '.join(rest)}", "dim")

    def _take_result(self, entry: ResultEntry) -> None:
        for step in entry.steps:
            payload = step["payload"]
            if isinstance(payload, dict) and payload.get("reason") in REASONS and payload.get("text") != self._failure:
                text = one_line(str(payload.get("text")), _LONGEST_ERROR)
                if len(payload.get("results") or ()) == 1:
                    self._name_call(*payload["results"])
                self.line(f"[{BADGES[payload['reason']]}] {payload['reason']}: {text}", "yellow")
            if entry.has_failed and isinstance(payload, dict) and payload.get("error") is True:
                self._failure = str(payload.get("message"))
                who = "the model" if step["actor"] == "ask_model" else step["actor"]
                self.line(f"{who} failed: {one_line(self._failure, _LONGEST_ERROR)}", "red")

    def rests(self, _directory: Path) -> None:
        """Do nothing: the prompt shows that the conversation waits for a message."""


def _call_line(call: ChatCall | DataCall) -> str:
    return f"{call.tool}  {one_line(call.text, _LONGEST_CALL)}"


def _cell(cell: Any) -> str:  # noqa: ANN401  (JSON)
    """Return the text of a cell: NULL for None; texts unchanged, but in quotes when they would look like a missing value."""
    if cell is None:
        return "NULL"
    if isinstance(cell, str):
        return f'"{cell}"' if cell in {"", "NULL"} else cell
    return json.dumps(cell, ensure_ascii=False)


class TranscriptDisplay(ChatDisplay):
    """A display that has the user's messages too, for conversations without a prompt."""

    def _show(self, entry: Entry, run_id: str) -> None:
        if isinstance(entry, EventEntry) and entry.event == "message":
            self.say(f"> {read_record(UserMessage, entry.data).text}")
        super()._show(entry, run_id)
