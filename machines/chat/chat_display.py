"""Displays of a conversation: on a terminal, the model's text as it comes, a line for each call and its result, badges for what was not done; and its page.

`ChatDisplay` takes moments and pieces of text in order, and only prints. `ChatPage` has the messages, each call with its badges and its result, tables, plots
and files, and the form that begins a conversation, all drawn from the run's ledger. Texts of the model and of people are strings of markup, so none can become
an element.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsa.runs.door import Runs
from dsa.runs.handle import RunHandle
from dsa.runs.machine_extension import StartField, StartForm
from dsa.runtime.ledger import EffectEntry, Entry, EventEntry, RefusalEntry, ResultEntry, RowEntry
from dsa.runtime.timeline import Moment
from dsa.semantics import Occurrence
from dsa.text import on_one_line, plural, printable
from dsa.web.markup import Markup, badge, join, long_text, tag
from machines.chat.chat_session import FILES_FOLDER, NAME, RESOURCES, ChatStart, Files
from machines.chat.conversation import (
    BADGES,
    DONE_EVENTS,
    FAILURE_EVENTS,
    REASONS,
    ChatArtifact,
    ChatCall,
    ChatConversation,
    ChatResult,
    ChatTurn,
    DataCall,
    UserMessage,
)
from machines.chat.sql import TableInfo
from machines.tool_use.machine_session import Lines, begin_run
from machines.tool_use.records import one_line, read_record
from machines.tool_use.tool_call import ModelAnswer
from machines.tool_use.transcript import Notice, notices_in

_MOST_ROWS, _MOST_COLUMNS, _LONGEST_CELL, _LONGEST_CALL = 10, 8, 40, 100
_LONGEST_ERROR = 800


class ChatDisplay(Lines):
    """The display of a conversation. Pass its methods to `Chat` as `on_moment`, `listen` and `notice`.

    `folder` contains the conversation's own folder. With `is_verbose` it also shows phases, and the fixes in calls. The line of a call is
    printed when the call begins or is refused. Its result is right below that line, or below another one that names the call again.
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
        """Show the paths of the files that are new since the last call."""
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
        """Do nothing: the prompt already shows that the conversation waits for a message."""


def _call_line(call: ChatCall | DataCall) -> str:
    return f"{call.tool}  {one_line(call.text, _LONGEST_CALL)}"


def _cell(cell: Any) -> str:  # noqa: ANN401  (JSON)
    """Return the text of a cell: NULL for None; a text unchanged, but in quotes when it would look like a missing value."""
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


# -- the page --------------------------------------------------------------------------------------------------------------

#: The newest turns that a page shows, the most rows and columns of a table, and the most characters of a text.
_MOST_TURNS, _PAGE_ROWS, _PAGE_COLUMNS, _MOST_TEXT = 20, 20, 12, 20_000
_PICTURES = (".png", ".svg", ".jpg", ".jpeg")
#: Why a call has no result yet.
_NOT_YET = {"waiting": "This call waits until earlier calls are done.", "running": "It is under way."}


class ChatPage:
    """The view of a conversation (`dsa.runs.machine_extension.RunView`). `address` is that of the run's page, `folder` the run's own folder."""

    texts: Mapping[str, str] = {"message": "Your message"}

    def __init__(self, address: str, folder: Path | None) -> None:
        self._address, self._folder = address, folder
        self._conversation = ChatConversation()
        #: Notices about calls, by the ids of the calls, and the others, by the numbers of turns.
        self._of_calls: dict[str, Notice] = {}
        self._of_turns: dict[int, list[Notice]] = {}

    def take(self, entry: Entry) -> None:
        """Read another entry of the run."""
        self._conversation.take([entry])
        if isinstance(entry, ResultEntry):
            for notice in notices_in(entry, Notice, REASONS):
                self._of_calls |= dict.fromkeys(notice.results, notice)
                if not notice.results:
                    self._of_turns.setdefault(len(self._conversation.turns), []).append(notice)

    def file(self, name: str) -> bytes | None:
        """Return the content of an artifact, by the name of its file."""
        artifact = next((each for each in self._conversation.inventory if each.file_name == name), None)
        if artifact is None or self._folder is None:
            return None
        try:
            return Files(self._folder).content(artifact.digest)
        except (OSError, ValueError):
            return None

    def markup(self) -> Markup:
        """Return the conversation, the newest turns of it."""
        turns = self._conversation.turns
        empty = tag("p", "Nothing has been said yet. Write a message below.", class_="message")
        return join(tag("h2", "The conversation"), self.earlier(len(turns) + 1) if turns else empty)

    def earlier(self, before: int) -> Markup:
        """Return the turns before the one with this number, the newest of them, with a link to those before."""
        turns = self._conversation.turns[: max(0, before - 1)]
        first = max(0, len(turns) - _MOST_TURNS)
        address = f"{self._address}/earlier?before={first + 1}"
        link = tag("p", tag("a", f"The {plural(first, 'turn')} before these", href=address)) if first else None
        return join(link, [self._turn(turn) for turn in turns[first:]])

    def _turn(self, turn: ChatTurn) -> Markup:
        notices = [
            tag("p", badge(BADGES[each.reason]), " ", each.text, class_="notice")
            for each in self._of_turns.get(turn.number, ())
            if not _is_of_calls(each, turn)
        ]
        report = f"turn-{turn.number}"
        files = [self._file(each) for each in self._conversation.inventory if each.source_call_id == report]
        return tag(
            "section", tag("h3", f"Turn {turn.number}"), list(self._messages(turn)), notices, files,
            class_="turn", aria_label=f"Turn {turn.number}",
        )  # fmt: skip

    def _messages(self, turn: ChatTurn) -> Iterator[Markup]:
        """Yield what was said in a turn, and the calls below the answer that asked for them."""
        yield tag("p", turn.text, class_="asked")
        for message in list(turn.exchange.messages)[1:]:
            if message.role == "user":
                yield tag("p", "To the model: ", message.content or "", class_="hint")
            elif message.role == "assistant":
                if message.content:
                    yield tag("p", message.content[:_MOST_TEXT], class_="said")
                for each in message.calls:
                    call = self._conversation.transcript.call(each.id)
                    yield self._call(call) if call is not None else tag("p", f"{each.name}: not read", class_="hint")

    def _call(self, call: DataCall) -> Markup:
        """Return a call: what was done with it and why, its text, its result and its files."""
        words: list[Markup | str] = [badge(BADGES.get(call.status, call.status)), " ", tag("code", call.tool), " "]
        facts = []
        if call.rescues:
            facts.append(tag("p", badge("repaired"), f" {', '.join(call.rescues)}"))
        if call.status in REASONS:
            notice = self._of_calls.get(call.call_id)
            why = notice.text if notice is not None else REASONS[call.status]
            facts.append(tag("p", call.status, ": ", why))
        if call.equal_to and not any(call.equal_to in fact.html for fact in facts):
            facts.append(tag("p", f"The same call was made before: {call.equal_to}.", class_="hint"))
        result = tag("p", _NOT_YET[call.status], class_="hint") if call.status in _NOT_YET else None
        if call.result is not None:
            result = _result(call.result, call.status if call.call_id in self._of_calls else "")
        elif result is None:
            result = tag("p", f"It has no result: {REASONS.get(call.status, 'it was cut off')}", class_="hint")
        code = long_text(f"The text of {call.call_id}", call.text[:_MOST_TEXT])
        text = tag("details", tag("summary", call.call_id), code, open=True)
        files = list(self._files_of(call))
        return tag("div", tag("p", words), facts, text if call.text else None, result, files, class_="note")

    def _files_of(self, call: DataCall) -> Iterator[Markup]:
        """Yield the files of a call: each new one in full, and a line for each that existed before."""
        for new in call.new_artifacts:
            artifact = self._conversation.inventory[new.equal_to or ""]
            if (artifact.source_call_id, artifact.name) == (call.call_id, new.name):
                yield self._file(artifact)
                continue
            link = tag("a", artifact.file_name, href=self._file_address(artifact))
            if call.equal_to:
                yield tag("p", "Its file: ", link)
            else:
                other_name = (
                    f"{new.name} has the content of " if new.name != artifact.name else "the same content again: "
                )
                yield tag("p", badge("kept once"), " ", other_name, link)

    def _file_address(self, artifact: ChatArtifact) -> str:
        return f"{self._address}/files/{quote(artifact.file_name, safe='')}"

    def _file(self, artifact: ChatArtifact) -> Markup:
        """Return the link to a file, and a picture of it if it is one."""
        address = self._file_address(artifact)
        size = f" {artifact.size_bytes:,} bytes"
        version = f", version {artifact.version}" if artifact.version > 1 else ""
        is_picture = artifact.file_name.lower().endswith(_PICTURES)
        picture = tag("p", tag("img", src=address, alt=artifact.name)) if is_picture else None
        return join(picture, tag("p", tag("a", artifact.file_name, href=address), size, version))


def _is_of_calls(notice: Notice, turn: ChatTurn) -> bool:
    """Return whether a notice is about files that calls made again: the lines of these calls already say so."""
    names = {new.name for call in turn.calls for new in call.new_artifacts}
    made_again = {text.partition(" is ")[0] for text in notice.text.split("; ")}
    return notice.reason == "duplicate_artifact_prevented" and made_again <= names


def _result(result: Any, code_shown: str = "") -> Markup:  # noqa: ANN401  (JSON)
    """Return the result of a call: its error, its table, and what it printed; for a repeated call, those of the first one.

    An error with the code `code_shown` is left out, because it has been shown.
    """
    parts = []
    error = result.get("error")
    if isinstance(error, dict) and error.get("code") != code_shown:
        parts.append(tag("pre", f"{error.get('code')}: {error.get('message')}"[:_MOST_TEXT], class_="message"))
    if isinstance(result.get("columns"), list) and isinstance(result.get("rows"), list):
        parts.append(_table(result))
    parts += [
        long_text(f"The {name}", str(result[name])[:_MOST_TEXT]) for name in ("output", "value") if result.get(name)
    ]
    if isinstance(result.get("result"), dict):
        parts.append(_result(result["result"]))
    return join(parts)


def _table(result: Any) -> Markup:  # noqa: ANN401  (JSON)
    columns, rows = result["columns"][:_PAGE_COLUMNS], result["rows"][:_PAGE_ROWS]
    heads = tag("tr", [tag("th", str(column), scope="col") for column in columns])
    cells = [tag("tr", [tag("td", _page_cell(cell)) for cell in row[:_PAGE_COLUMNS]]) for row in rows]
    table = tag("table", tag("thead", heads), tag("tbody", cells))
    left_over = int(result.get("row_count", len(rows))) - len(rows)
    more = [f"{left_over:,} more rows"] if left_over > 0 else []
    more += [f"{len(result['columns']) - len(columns)} more columns"] if len(result["columns"]) > len(columns) else []
    rest = tag("p", f"and {', '.join(more)}", class_="hint") if more else None
    return join(tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="Result"), rest)


def _page_cell(cell: Any) -> str:  # noqa: ANN401  (JSON)
    return "NULL" if cell is None else str(cell)


# -- a new conversation ----------------------------------------------------------------------------------------------------


async def begin_conversation(runs: Runs, values: Mapping[str, str]) -> RunHandle:
    """Begin a conversation with the values of the form, and send its first message.

    Raises DocumentError for data that cannot be read, ModelUnavailable, ValueError for an empty message.
    """
    text = values.get("message", "").strip()
    if not text:
        raise ValueError("the first message is empty: write what you want to know")
    data = tuple(Path(line.strip()) for line in values.get("data", "").splitlines() if line.strip())
    handle = begin_run(runs, NAME, ChatStart(values.get("model", "").strip(), data).options())
    resources = RESOURCES.of(handle.config, handle.id)
    try:
        await asyncio.to_thread(lambda: (resources.model, resources.database))
    except BaseException:
        handle.release()
        RESOURCES.release(resources)
        raise
    handle.start(Occurrence("message", data={"text": text}))
    return handle


START_FORM = StartForm(
    "Begin a conversation about data",
    {
        "message": StartField("Your first message", lines=3),
        "data": StartField("Data: the paths of CSV, Parquet, JSON, SQLite or DuckDB files, one path per line", lines=3),
        "model": StartField("Model: http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE"),
    },
    begin_conversation,
)
