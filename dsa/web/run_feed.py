"""The feed of a run: its status, facts about it, its questions and its entries, read once for all who look at its page.

Nothing here replays a ledger: the status comes from the run's summary, which is sealed with each commit.
"""

import asyncio
import json
from collections.abc import Iterable
from urllib.parse import quote

from dsa.declarations import STAY
from dsa.errors import DsaError, MachineError, ParameterError
from dsa.expr import show_value
from dsa.lang import loads
from dsa.machine import Machine
from dsa.runs.archive import RunNews, text_of
from dsa.runs.door import Runs
from dsa.runs.handle import RunHandle
from dsa.runs.machine_extension import MachineExtension, RunView, extension_of
from dsa.runs.place import PART_OF
from dsa.runtime import ledger
from dsa.runtime.ledger import Intents, part_in
from dsa.runtime.ledger_story import (
    due_text,
    entry_text,
    event_text,
    outcome_text,
    question_of,
    remarks_of,
    started_at,
    status_text,
)
from dsa.runtime.run_store import RunSummary, StoreError
from dsa.runtime.status import is_question
from dsa.runtime.timeline import EventRecord, Piece
from dsa.text import plural, shorten
from dsa.web.document_markup import MachineDrawing, diagram, picture_marks
from dsa.web.markup import EMPTY, Fragments, Markup, alert, badge, hidden_field, join, meaning_of, post_form, tag

#: The time after a read that failed, in seconds.
_AFTER_FAULT_S = 2.0
#: The most characters of an entry as JSON, and of what a model is saying.
_MOST_JSON, _MOST_SPEECH = 20_000, 20_000
#: The most texts of effects that are shown above the questions of a run.
_MOST_REMARKS = 5
_SECOND_MS = 1_000
_OTHER_RELEASE = (
    "This run's document is not a machine for this release of dsa. What was recorded can be read here; "
    "the release that began the run can continue it."
)


def run_address(run_id: str, more: str = "") -> str:
    """Return the address of a run."""
    return f"/runs/{quote(run_id, safe='')}{more}"


class RunFeed:
    """A run as pages show it: the entries that were read so far, its summary, and its machine. One feed serves all pages of a run."""

    def __init__(self, runs: Runs, run_id: str, news: RunNews) -> None:
        self.runs, self.id = runs, run_id
        self.entries: list[ledger.Entry] = []
        self.intents = Intents()
        self.questions: dict[str, str] = {}
        #: The texts of effects since the last row; for a waiting run, they say why it asks a person.
        self.remarks: list[str] = []
        #: The number of rows taken up to each entry that is a row, by the number of the entry.
        self.rows: dict[int, int] = {}
        self.lines: dict[int, None] = {}
        self.states: dict[str, None] = {}
        self.machine: Machine | None = None
        self.drawing = MachineDrawing(self._tell)
        self.attempts, self.watchers, self.is_followed = 0, 0, False
        #: The machine's own view, and what its model is saying now.
        self.extension, self.speech = MachineExtension(), ""
        self.view: RunView | None = None
        self._talk, self._talk_entries = EMPTY, 0
        self._listener: asyncio.Task[None] | None = None
        self._has_news = False
        self._next = asyncio.Event()
        #: The status of the run, whether it can be interrupted here, and why it could not be read a moment ago.
        self.summary, self.is_driven, self.fault = self._now(news.summary), news.is_driven, ""
        self._text = news.text
        self._take(news.entries)

    @classmethod
    async def for_run(cls, runs: Runs, run_id: str) -> "RunFeed":
        """Read a run for the first time. Raises UnknownRunError, DamageError, StoreError."""
        return cls(runs, run_id, await runs.look(run_id))

    def _now(self, summary: RunSummary) -> RunSummary:
        return summary.at(self.runs.now_ms())

    @property
    def next_change(self) -> asyncio.Event:
        """The event that is set at the next change."""
        return self._next

    @property
    def text(self) -> str:
        """The current text of the run's machine."""
        return text_of(self._text, self.entries)

    @property
    def first(self) -> ledger.MachineEntry:
        """The first entry."""
        first = self.entries[0]
        assert isinstance(first, ledger.MachineEntry), "a run of a machine begins with it"
        return first

    async def read(self) -> None:
        """Read what is new, and notify the pages. Raises UnknownRunError, DamageError, StoreError."""
        before = len(self.entries)
        news = await self.runs.look(self.id, after=before)
        summary, was = self._now(news.summary), (self.summary, self.is_driven, self.fault)
        self.summary, self.is_driven, self.fault = summary, news.is_driven, ""
        if before == len(self.entries) and news.entries:  # no other page has read them in the meantime
            self._take(news.entries)
        elif was == (summary, news.is_driven, ""):
            return
        self._tell()

    def _tell(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def follow(self) -> None:
        """Read the run repeatedly, and listen to it, while pages show it."""
        try:
            while self.watchers:
                self.drawing.draw(self.machine)
                try:
                    await self.read()
                except StoreError as fault:  # it may answer again later
                    self.fault = str(fault)
                    self._tell()
                    await asyncio.sleep(_AFTER_FAULT_S)
                self._listen()
                await asyncio.sleep(self.runs.poll_s)
        finally:
            self.is_followed = False
            if self._listener is not None:
                self._listener.cancel()

    def _listen(self) -> None:
        """Listen to a run that this server drives, if this is not done yet; notify the pages of new text."""
        handle = self.runs.handle(self.id)
        if self.view is not None and handle is not None and self.is_driven and self._listener is None:
            self._listener = asyncio.create_task(self._hear(handle))
        if self._has_news:
            self._has_news = False
            self._tell()

    async def _hear(self, handle: RunHandle) -> None:
        """Collect what the model says, up to its next event."""
        try:
            async for each in handle.moments_and_text(after=len(self.entries)):
                if isinstance(each, Piece):
                    self.speech = (self.speech + each.text)[-_MOST_SPEECH:]
                elif isinstance(each.entry, ledger.EventEntry):
                    self.speech = ""
                self._has_news = True
        except DsaError:
            pass  # the run's page says why it stopped
        finally:
            self.speech, self._listener, self._has_news = "", None, True

    def _take(self, entries: Iterable[ledger.Entry]) -> None:
        changes = self.machine is None
        for entry in entries:
            self.entries.append(entry)
            self._show(entry)
            self.intents.take(entry)
            if isinstance(entry, ledger.RowEntry):
                self.rows[len(self.entries)] = len(self.rows) + 1
                self.states.pop(entry.target, None)
                self.states |= {entry.source: None, entry.target: None}
                if entry.line is not None:
                    self.lines[entry.line] = None
                self.remarks.clear()
            elif isinstance(entry, ledger.ResultEntry) and is_question(entry):
                self.questions[entry.key] = question_of(entry)
            elif isinstance(entry, ledger.ResultEntry):
                self.remarks += remarks_of(entry)
            elif isinstance(entry, ledger.ArtifactEntry):
                self.attempts += 1
            elif isinstance(entry, ledger.ChangeEntry):
                changes = True
                self.lines.clear()  # those of the previous document
        if changes:
            self.machine = self._machine_now()

    def _show(self, entry: ledger.Entry) -> None:
        """Pass an entry on to the machine's own view. A machine that only has the same name as one with a view has none."""
        if isinstance(entry, ledger.MachineEntry) and len(self.entries) == 1:
            self.extension = extension_of(entry.name)
            view = self.extension.view
            self.view = None if view is None else view(run_address(self.id), self.runs.folder(self.id))
        if self.view is not None:
            try:
                self.view.take(entry)
            except (ValueError, KeyError, TypeError, IndexError, AttributeError):
                self.view = None

    def talk(self) -> Markup:
        """Return the machine's own view, drawn once for each entry."""
        if self.view is not None and self._talk_entries != len(self.entries):
            self._talk, self._talk_entries = self.view.markup(), len(self.entries)
        return EMPTY if self.view is None else self._talk

    def _machine_now(self) -> Machine | None:
        changes = [entry for entry in self.entries if isinstance(entry, ledger.ChangeEntry)]
        try:
            machine = loads(self.text, "machine.md")
            return machine.at(dict((changes[-1] if changes else self.first).parameters))
        except (MachineError, ParameterError):
            return None

    def marks(self) -> dict[str, str]:
        """Return the classes of the diagram's nodes."""
        if self.machine is None:
            return {}
        start = self.machine.entry_leaf(self.machine.initial)
        return picture_marks(self.machine, tuple(self.lines), (start, *self.states))

    def fragments(self) -> Fragments:
        """Return the current parts of the page."""
        speech = tag("p", self.speech, class_="speech") if self.speech else EMPTY
        parts = {"status": _status(self), "talk": self.talk(), "speech": speech, "asks": _asks(self)}
        return Fragments({**parts, "diagram": self.drawing.markup}, self.marks())

    def marked_picture(self) -> Markup:
        """Return the diagram, if it is already drawn, with its current marks."""
        if self.machine is None or not self.drawing.is_ready:
            return self.drawing.markup
        return diagram(self.machine, self.marks())

    def moments(self, after: int, end: int) -> Markup:
        """Return the moments after the first `after`, up to `end`."""
        return join(_moment(self, number, self.entries[number - 1]) for number in range(after + 1, end + 1))


# -- the run ---------------------------------------------------------------------------------------------------------------


def _moment(feed: RunFeed, number: int, entry: ledger.Entry) -> Markup:
    kind, text, at_ms = type(entry).__name__.removesuffix("Entry").lower(), "", 0
    if isinstance(entry, ledger.EventEntry):
        data = "" if entry.data in (None, "") else f": {shorten(entry.data)}"
        text, at_ms = f"{event_text(EventRecord(entry, None))}{data}", entry.at_ms
    elif isinstance(entry, ledger.RowEntry | ledger.RefusalEntry):
        text = outcome_text(entry)
    elif isinstance(entry, ledger.MachineEntry):
        text, at_ms = f"{entry.name}, {entry.digest[:12]}", entry.at_ms
    else:
        text = entry_text(entry, feed.id, feed.intents)
    since = f"{(at_ms - feed.first.at_ms) / _SECOND_MS:.1f} s" if at_ms and feed.first.at_ms else ""
    whole = json.dumps(ledger.to_json(entry), ensure_ascii=False, indent=1, default=str)
    run = _child(feed, entry)
    child = tag("p", tag("a", run, href=run_address(run))) if run is not None else None
    explore = (
        tag("p", tag("a", "Explore from here", href=run_address(feed.id, f"/explore?at={feed.rows[number]}")))
        if number in feed.rows
        else None
    )
    details = tag("details", tag("summary", text), child, explore, tag("pre", whole[:_MOST_JSON]))
    cells = (tag("td", number), tag("td", since), tag("td", kind), tag("td", details))
    return tag("tr", cells, id=f"moment{number}", class_=kind)


def _child(feed: RunFeed, entry: ledger.Entry) -> str | None:
    """Return the run that was begun for an effect and that an entry mentions: one that it waits for, or one that generated an artifact."""
    if isinstance(entry, ledger.ResultEntry):
        part = part_in(entry)
        return None if part is None else part.run
    if isinstance(entry, ledger.ArtifactEntry):
        run = entry.artifact_id.rpartition("/")[0]
        return run if run.startswith(f"{feed.id}{PART_OF}") else None
    return None


def _status(feed: RunFeed) -> Markup:
    summary, now = feed.summary.summary, feed.summary
    whole_run = feed.id.rpartition(PART_OF)[0]
    facts: list[tuple[str, str | Markup]] = [
        ("state", summary.state),
        ("machine", join(summary.machine, f" at {_parameters_text(feed.first)}" if feed.first.parameters else "")),
        ("started", started_at(feed.id)),
        ("part of", tag("a", whole_run, href=run_address(whole_run)) if whole_run else ""),
        ("due", due_text(summary.due_ms) if summary.due_ms else ""),
        ("about", summary.about),
        ("queue", now.queue or ""),
        ("held by", (now.holder or "") if now.status != "under way" else ""),
    ]
    alerts = (alert(feed.fault) if feed.fault else None, None if feed.machine else alert(_OTHER_RELEASE))
    facts_shown = [(tag("dt", name), tag("dd", fact)) for name, fact in facts if fact]
    meaning = meaning_of(now.status)
    words = join(
        tag("p", badge(now.status, status_text(now))),
        tag("p", meaning[:1].upper() + meaning[1:], class_="hint") if meaning else None,
        alerts,
    )
    stop = (
        post_form(run_address(feed.id, "/interrupt"), hidden_field("run", feed.id), label="Interrupt")
        if feed.is_driven
        else None
    )
    can_resume = now.status in {"stopped", "interrupted", "cut off", "due"}
    go_on = (
        post_form(run_address(feed.id, "/resume"), hidden_field("run", feed.id), label="Resume") if can_resume else None
    )
    count = plural(feed.attempts, "attempt")
    attempts = tag("p", tag("a", count, href=run_address(feed.id, "/attempts"))) if feed.attempts else None
    explore = tag("p", tag("a", "Explore from here", href=run_address(feed.id, "/explore"))) if feed.machine else None
    has_diff = extension_of(feed.first.name).diff is not None
    changes = (
        tag("p", tag("a", "What the run changed outside", href=run_address(feed.id, "/changes"))) if has_diff else None
    )
    return join(words, tag("dl", facts_shown), attempts, explore, changes, stop, go_on)


def _parameters_text(first: ledger.MachineEntry) -> str:
    """Return the parameters of a run as text."""
    return ", ".join(f"{name} = {show_value(value)}" for name, value in first.parameters)


def _asks(feed: RunFeed) -> Markup:
    """Return the forms for a person's input: answers to questions, and decisions about effects in doubt."""
    summary = feed.summary.summary
    is_asking = summary.status in {"waiting", "due"} and feed.summary.damage is None
    texts = feed.view.texts if feed.view is not None else {}
    order = [*texts, *sorted(summary.waits_for)]  # what a person writes comes first
    names = sorted(summary.waits_for, key=order.index)
    answers = [_answer_form(feed, name, summary.waits_for[name]) for name in names] if is_asking else []
    is_doubtful = feed.summary.status == "in doubt"
    doubts = [_doubt_form(feed, key, name) for key, name in summary.in_doubt.items()] if is_doubtful else []
    remarks = feed.remarks[-_MOST_REMARKS:] if answers and feed.view is None else []
    return join([tag("p", each[:_MOST_SPEECH], class_="question") for each in remarks], answers, doubts)


def _leads_to(feed: RunFeed, name: str) -> Markup | None:
    """Return where an answer may lead. A machine with a view of its own shows more than that."""
    if feed.machine is None or feed.view is not None:
        return None
    rows = feed.machine.rows_for(feed.summary.summary.state, name)
    states = dict.fromkeys("the same state" if row.target == STAY else row.target for row in rows)
    return tag("p", f"Leads to {' or '.join(states)}.", class_="hint") if states else None


def _answer_form(feed: RunFeed, name: str, place: str) -> Markup:
    question = feed.questions.get(place.rpartition("@")[2])
    label = None if feed.view is None else feed.view.texts.get(name)
    data = tag("details", tag("summary", f"Data of {name}"), data_field("Text or JSON; empty: no data"))
    if label is not None:
        text = tag("textarea", name="data", rows="3")
        data = join(tag("label", label, text), hidden_field("form", "text"))
    return post_form(
        run_address(feed.id, "/answer"),
        tag("h2", name),
        tag("p", question, class_="question") if question else _leads_to(feed, name),
        hidden_field("event", name),
        hidden_field("place", place),
        data,
        label=f"Send {name}",
        class_="card",
        data_keep=f"{name}@{place}",
    )


def data_field(label: str, value: str = "", kind: str = "auto") -> Markup:
    """Return the fields for data of an event: the data, and how to read it."""
    words = {"auto": "JSON if it is JSON, else text", "text": "text"}
    kinds = tag(
        "select", [tag("option", text, value=each, selected=each == kind) for each, text in words.items()], name="form"
    )
    return join(
        tag("label", label, tag("textarea", value, name="data", rows="3")), tag("label", "Read the data as", kinds)
    )


def _doubt_form(feed: RunFeed, key: str, name: str) -> Markup:
    """Return the choices about an effect, or a call, that was under way when the run was cut off."""
    answers = (
        feed.machine.answers.get(name, ()) if feed.machine is not None and "/" not in key.partition("/")[2] else ()
    )
    choices = [("retry", "It has not happened: do it"), ("fail", "It has failed")]
    choices += [(f"gave {each}", f"It gave {each}") for each in answers] or [("done", "It has happened")]
    radios = [
        tag("label", tag("input", type="radio", name="decision", value=value, required=True), text, class_="choice")
        for value, text in choices
    ]
    legend = tag("legend", f"{name} {key} was under way when the run was cut off. What happened?")
    data = data_field("Data of the answer, if there was one") if answers else None
    fields = tag("fieldset", legend, radios, data)
    return post_form(
        run_address(feed.id, "/resume"),
        hidden_field("key", key),
        fields,
        label="Decide and resume",
        class_="card",
        data_keep=key,
    )
