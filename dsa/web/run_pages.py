"""The pages of a run: its timeline, its questions, what a person can do about it, and its attempts with their texts.

Nothing here replays a ledger: the status comes from the run's summary, which is sealed with each commit. A `RunFeed` reads the entries of one run once for
all pages that show it. Answers, decisions and starts go to `dsa.runs`, which judges them.
"""

import asyncio
import difflib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dsa.errors import DsaError, MachineError, ParameterError
from dsa.expr import show_value
from dsa.lang import loads
from dsa.machine import Machine
from dsa.runs.archive import text_of
from dsa.runs.handle import RunHandle
from dsa.runs.machine_extension import MachineExtension, RunView, extension_of
from dsa.runs.runs import Resumption, Runs
from dsa.runtime import ledger
from dsa.runtime.artifacts import ArtifactStore, AttemptRecord
from dsa.runtime.json_text import data_of
from dsa.runtime.ledger import Handling, Intents, part_in
from dsa.runtime.ledger_story import (
    due_text,
    entry_text,
    event_text,
    outcome_text,
    question_of,
    started_at,
    status_text,
)
from dsa.runtime.run_store import Posted, RunSummary
from dsa.runtime.status import is_question
from dsa.runtime.timeline import EventRecord, Piece
from dsa.semantics import Occurrence, Refusal, Taken
from dsa.text import plural, shorten
from dsa.web.document_markup import diagram, picture_marks
from dsa.web.machine_page import event
from dsa.web.markup import (
    EMPTY,
    Fragments,
    Markup,
    badge,
    diff_lines,
    hidden_field,
    join,
    message_page,
    page,
    post_form,
    tag,
)

#: The time between two reads of a run that a page shows, in seconds.
_POLL_S = 0.02
_MOMENTS_A_PAGE, _MOMENTS_AT_ONCE = 200, 500
_MOST_JSON = 20_000
#: The most attempts on a page, the most characters of one, and the most lines of texts that are compared.
_ATTEMPTS_A_PAGE, _MOST_TEXT, _MOST_COMPARED = 20, 20_000, 2_000
_SECOND_MS = 1_000
#: The decisions about an effect in doubt, as forms send them.
_HANDLINGS: dict[str, Handling] = {"retry": "retry", "fail": "fail", "done": "done"}
#: The pictures that pages show, by the endings of their files.
_PICTURES = {"png": "image/png", "svg": "image/svg+xml", "jpg": "image/jpeg", "jpeg": "image/jpeg"}
#: The digits of a number in an address that are read: a longer one is beyond everything.
_MOST_DIGITS = 12
Number = TypeVar("Number", int, None)
Form = Mapping[str, str]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def run_address(run_id: str, more: str = "") -> str:
    """Return the address of a run."""
    return f"/runs/{quote(run_id, safe='')}{more}"


def whole_number(text: str, otherwise: Number) -> int | Number:
    """Return the number of digits in an address, up to a bound; of another text, what is given for it."""
    return int(text[:_MOST_DIGITS]) if text.isdecimal() else otherwise


class RunFeed:
    """A run as pages show it: its entries as far as they were read, its summary, and its machine. One feed serves all pages of a run."""

    def __init__(self, runs: Runs, run_id: str) -> None:
        self.runs, self.id = runs, run_id
        self.entries: list[ledger.Entry] = []
        self.intents = Intents()
        self.questions: dict[str, str] = {}
        #: How many rows had been taken with each entry that is one, by the number of the entry.
        self.rows: dict[int, int] = {}
        self.lines: dict[int, None] = {}
        self.states: dict[str, None] = {}
        self.machine: Machine | None = None
        self.picture: Markup = EMPTY
        self.attempts, self.watchers = 0, 0
        #: The machine's own view, and what its model is saying now.
        self.extension, self.speech = MachineExtension(), ""
        self.view: RunView | None = None
        self._talk, self._talk_entries = EMPTY, 0
        self._listener: asyncio.Task[None] | None = None
        self._has_news = False
        self._next = asyncio.Event()
        self._text = ""
        self.summary = self._summary_now()
        stored_run = runs.stored_run(run_id)
        self._text = stored_run.text
        self._take(stored_run.entries)

    def _summary_now(self) -> RunSummary:
        return self.runs.summary(self.id).at(self.runs.now_ms())

    @property
    def next_change(self) -> asyncio.Event:
        """The event that is set at the next change."""
        return self._next

    @property
    def first(self) -> ledger.MachineEntry:
        """The first entry."""
        first = self.entries[0]
        assert isinstance(first, ledger.MachineEntry), "a run of a machine begins with it"
        return first

    def read(self) -> None:
        """Read what is new, and tell the pages."""
        summary = self._summary_now()
        if summary == self.summary and summary.entries <= len(self.entries):
            return
        self.summary = summary
        if summary.entries > len(self.entries):
            self._take(self.runs.entries(self.id, after=len(self.entries)))
        self._tell()

    def _tell(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    async def follow(self) -> None:
        """Read the run again and again, while pages show it."""
        while self.watchers:
            if self.picture is EMPTY and self.machine is not None:
                self.picture = await asyncio.to_thread(diagram, self.machine)
                self._tell()
            self.read()
            self._listen()
            await asyncio.sleep(_POLL_S)

    def _listen(self) -> None:
        """Listen to a run that this server drives, if nobody does yet; tell the pages what was said since the last time."""
        handle = self.runs.handle(self.id)
        if self.view is not None and handle is not None and handle.is_driven and self._listener is None:
            self._listener = asyncio.create_task(self._hear(handle))
        if self._has_news:
            self._has_news = False
            self._tell()

    async def _hear(self, handle: RunHandle) -> None:
        """Collect what the model says, up to its next event."""
        try:
            async for each in handle.moments_and_text(after=len(handle.run.ledger)):
                if isinstance(each, Piece):
                    self.speech = (self.speech + each.text)[-_MOST_TEXT:]
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
            elif isinstance(entry, ledger.ResultEntry) and is_question(entry):
                self.questions[entry.key] = question_of(entry)
            elif isinstance(entry, ledger.ArtifactEntry):
                self.attempts += 1
            elif isinstance(entry, ledger.ChangeEntry):
                changes = True
                self.lines.clear()  # those of the document before
        if changes:
            self.machine, self.picture = self._machine_now(), EMPTY

    def _show(self, entry: ledger.Entry) -> None:
        """Pass an entry on to the machine's own view. A machine that only has the name of one with a view has none."""
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
            machine = loads(text_of(self._text, self.entries), "machine.md")
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
        """Return the parts of the page as they are now."""
        speech = tag("p", self.speech, class_="speech") if self.speech else EMPTY
        parts = {"status": _status(self), "talk": self.talk(), "speech": speech, "asks": _asks(self)}
        return Fragments({**parts, "diagram": self.picture}, self.marks())

    def marked_picture(self) -> Markup:
        """Return the diagram, if it is drawn already, with its marks of now."""
        return EMPTY if self.picture is EMPTY or self.machine is None else diagram(self.machine, self.marks())

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
    part = part_in(entry) if isinstance(entry, ledger.ResultEntry) else None
    child = tag("p", tag("a", part.run, href=run_address(part.run))) if part is not None else None
    explore = (
        tag("p", tag("a", "Explore from here", href=run_address(feed.id, f"/explore?at={feed.rows[number]}")))
        if number in feed.rows
        else None
    )
    details = tag("details", tag("summary", text), child, explore, tag("pre", whole[:_MOST_JSON]))
    cells = (tag("td", number), tag("td", since), tag("td", kind), tag("td", details))
    return tag("tr", cells, id=f"moment{number}", class_=kind)


def _status(feed: RunFeed) -> Markup:
    summary, whole = feed.summary.summary, feed.summary
    facts: list[tuple[str, str | Markup]] = [
        ("state", summary.state),
        ("machine", join(summary.machine, f" at {show_values_of(feed.first)}" if feed.first.parameters else "")),
        ("started", started_at(feed.id)),
        ("due", due_text(summary.due_ms) if summary.due_ms else ""),
        ("about", summary.about),
        ("held by", (whole.holder or "") if whole.status != "under way" else ""),
    ]
    facts_shown = [(tag("dt", name), tag("dd", fact)) for name, fact in facts if fact]
    words = tag("p", badge(whole.status, status_text(whole)))
    handle = feed.runs.handle(feed.id)
    is_driven_here = handle is not None and handle.is_driven
    stop = (
        post_form(run_address(feed.id, "/interrupt"), hidden_field("run", feed.id), label="Interrupt")
        if is_driven_here
        else None
    )
    can_resume = whole.holder is None and whole.status in {"stopped", "interrupted", "cut off", "due"}
    go_on = (
        post_form(run_address(feed.id, "/resume"), hidden_field("run", feed.id), label="Resume") if can_resume else None
    )
    count = plural(feed.attempts, "attempt")
    attempts = tag("p", tag("a", count, href=run_address(feed.id, "/attempts"))) if feed.attempts else None
    explore = tag("p", tag("a", "Explore from here", href=run_address(feed.id, "/explore"))) if feed.machine else None
    has_diff = extension_of(feed.first.name).diff is not None
    changes = (
        tag("p", tag("a", "What it has changed outside", href=run_address(feed.id, "/changes"))) if has_diff else None
    )
    return join(words, tag("dl", facts_shown), attempts, explore, changes, stop, go_on)


def show_values_of(first: ledger.MachineEntry) -> str:
    """Return the parameters of a run as text."""
    return ", ".join(f"{name} = {show_value(value)}" for name, value in first.parameters)


def _asks(feed: RunFeed) -> Markup:
    """Return the forms for what a person can say now: answers to questions, and decisions about effects in doubt."""
    summary = feed.summary.summary
    is_asking = summary.status in {"waiting", "due"} and feed.summary.damage is None
    texts = feed.view.texts if feed.view is not None else {}
    names = sorted(summary.waits_for, key=lambda name: name not in texts)  # what a person writes comes first
    answers = [_answer_form(feed, name, summary.waits_for[name]) for name in names] if is_asking else []
    is_doubtful = feed.summary.holder is None and summary.status == "in doubt"
    doubts = [_doubt_form(feed, key, name) for key, name in summary.in_doubt.items()] if is_doubtful else []
    return join(answers, doubts)


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
        tag("p", question, class_="question") if question else None,
        hidden_field("event", name),
        hidden_field("place", place),
        data,
        label=f"Send {name}",
        class_="card",
        data_keep=f"{name}@{place}",
    )


def data_field(label: str, value: str = "") -> Markup:
    """Return the fields for data of an event: the data, and how to read it."""
    kinds = tag(
        "select",
        tag("option", "JSON if it is JSON, else text", value="auto"),
        tag("option", "text", value="text"),
        name="form",
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
    data = data_field("Data of the answer, if it gave one") if answers else None
    fields = tag("fieldset", legend, radios, data)
    return post_form(
        run_address(feed.id, "/resume"),
        hidden_field("key", key),
        fields,
        label="Decide and resume",
        class_="card",
        data_keep=key,
    )


def _run_page(feed: RunFeed, before: int | None) -> Markup:
    fragments, total = feed.fragments(), len(feed.entries)
    end = total if before is None else max(0, min(before, total))
    after = max(0, end - _MOMENTS_A_PAGE)
    base = run_address(feed.id)
    older = tag("a", f"The moments before {after + 1}", href=f"{base}?before={after}") if after else None
    newest = tag("a", "The newest moments", href=base) if before is not None else None
    heads = tag("tr", [tag("th", name, scope="col") for name in ("", "time", "kind", "what")])
    table = tag("table", tag("thead", heads), tag("tbody", feed.moments(after, end), id="moments"), class_="moments")
    live = f"{base}/live?have={'.'.join(fragments.digests)}&after={total if before is None else -1}"
    return page(
        feed.id,
        tag("h1", feed.id),
        tag(
            "div",
            tag(
                "section",
                tag("div", fragments.holders("status"), role="status"),
                fragments.holders("talk", "speech", "asks"),
                aria_label="The run",
            ),
            tag("section", tag("div", feed.marked_picture(), id="diagram"), aria_label="Diagram", class_="beside"),
            tag(
                "section",
                tag("h2", "What has happened"),
                tag("p", older, " ", newest),
                tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="Timeline"),
                aria_label="What has happened",
            ),
            class_="columns",
        ),
        live=live,
        here="/runs",
    )


class RunFeeds:
    """The feeds of the runs that pages show now."""

    def __init__(self) -> None:
        self._feeds: dict[str, RunFeed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def feed(self, request: Request) -> RunFeed:
        """Return the feed of the run that an address names. Raises UnknownRunError, DamageError."""
        run_id = request.path_params["run"]
        feed = self._feeds.get(run_id)
        if feed is None:
            return RunFeed(request.app.state.runs, run_id)
        feed.read()
        return feed

    async def changes(self, feed: RunFeed, have: str, after: int) -> AsyncIterator[str]:
        """Yield the events of a page: new moments, and the parts that differ. With `after` -1, no moments."""
        self._watch(feed)
        present, is_first = tuple(have.split(".")), True
        try:
            yield "retry: 500\n\n"
            while True:
                change, now = feed.next_change, feed.fragments()
                end = min(len(feed.entries), after + _MOMENTS_AT_ONCE)
                has_moments = 0 <= after < end
                if now.digests != present or has_moments or is_first:  # the first one has the marks of now
                    is_first = False
                    news = json.loads(now.news(present))
                    news["append"] = {"moments": feed.moments(after, end).html} if has_moments else {}
                    after, present = (end if has_moments else after), now.digests
                    yield event(f"{after}:{'.'.join(present)}", json.dumps(news))
                if not 0 <= after < len(feed.entries):
                    await change.wait()
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                self._feeds.pop(feed.id, None)

    def _watch(self, feed: RunFeed) -> None:
        feed.watchers += 1
        if feed.watchers == 1:
            self._feeds[feed.id] = feed
            task = asyncio.create_task(feed.follow())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def show(self, request: Request) -> Response:
        """Answer with the page of a run."""
        before = request.query_params.get("before", "")
        return HTMLResponse(_run_page(self.feed(request), whole_number(before, None)).html)

    async def file(self, request: Request) -> Response:
        """Answer with a file of a run. Only pictures are more than bytes to the browser, and none is a page."""
        name, view = request.path_params["name"], self.feed(request).view
        content = None if view is None else await asyncio.to_thread(view.file, name)
        if content is None:
            return HTMLResponse(message_page("No such file", "The page of the run has links to its files.").html, 404)
        kind = _PICTURES.get(name.rpartition(".")[2].lower(), "application/octet-stream")
        disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        return Response(content, media_type=kind, headers={"content-disposition": disposition})

    async def live(self, request: Request) -> Response:
        """Answer with the events of a run's page; a page that connects again goes on after its last one."""
        number, _, have = request.headers.get("last-event-id", "").partition(":")
        after = number or request.query_params.get("after", "-1")
        events = self.changes(self.feed(request), have or request.query_params.get("have", ""), whole_number(after, -1))
        return StreamingResponse(events, media_type="text/event-stream")


# -- what people do --------------------------------------------------------------------------------------------------------


async def form_fields(request: Request) -> Form:
    """Return the fields of a posted form; line ends are those of texts."""
    body = (await request.body()).decode("utf-8", "replace")
    pairs = parse_qsl(body, keep_blank_values=True, max_num_fields=200)
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def typed_data(form: Form) -> object:
    """Return the data that a person typed into a form; None if it is empty. Raises ValueError."""
    text = form.get("data", "")
    if not text.strip():
        return None
    if form.get("form") == "text":
        return text
    try:
        return data_of(text)
    except ValueError as fault:
        raise ValueError(f"the data{fault}") from None


def _in_words(handler: Handler) -> Handler:
    """Answer with a page that says why, when something cannot be done."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except (DsaError, ValueError, TypeError, OSError) as fault:
            back = (
                tag("p", tag("a", "Back to the run", href=run_address(request.path_params["run"])))
                if "run" in request.path_params
                else None
            )
            return HTMLResponse(message_page("This cannot be done", str(fault), back).html, 409)

    return answer


@_in_words
async def _answer(request: Request) -> Response:
    """Send a run an event that answers the question of one place."""
    run_id, form = request.path_params["run"], await form_fields(request)
    runs: Runs = request.app.state.runs
    name, place = form.get("event", ""), form.get("place", "")
    if not place:
        raise ValueError("an answer names the place that it answers: send it from the page of the run")
    outcome = await runs.send(run_id, name, typed_data(form), at=place)
    why = ""
    if isinstance(outcome, Refusal):
        why = f"{outcome.reason}: {outcome.message}"
    elif isinstance(outcome, Posted) and outcome.delivery is None:
        why = "it waits in the run's inbox; the process that holds the run has not taken it yet"
    elif isinstance(outcome, Posted) and outcome.delivery is not None and outcome.delivery.reason:
        why = f"{outcome.delivery.reason}: {outcome.delivery.message}"
    else:
        assert isinstance(outcome, Taken | Posted)
        return RedirectResponse(run_address(run_id), 303)
    back = tag("p", tag("a", "Back to the run", href=run_address(run_id)))
    return HTMLResponse(message_page(f"{name} was not taken", why, back).html, 409)


@_in_words
async def _resume(request: Request) -> Response:
    """Resume a run, with a decision about an effect in doubt if the form has one."""
    run_id, form = request.path_params["run"], await form_fields(request)
    runs: Runs = request.app.state.runs
    decisions, answers = dict[str, Handling](), dict[str, Occurrence]()
    key, decision = form.get("key", ""), form.get("decision", "")
    if decision in _HANDLINGS:
        decisions[key] = _HANDLINGS[decision]
    elif decision.startswith("gave "):
        answers[key] = Occurrence(decision.removeprefix("gave "), data=typed_data(form))
    await runs.resume(run_id, resumption=Resumption(decisions, answers))
    return RedirectResponse(run_address(run_id), 303)


@_in_words
async def _interrupt(request: Request) -> Response:
    run_id = request.path_params["run"]
    runs: Runs = request.app.state.runs
    handle = runs.handle(run_id)
    if handle is None or not handle.is_driven:
        holder = runs.summary(run_id).holder
        raise DsaError(f"the run is held by {holder}: end it there" if holder else "the run is not under way")
    await runs.interrupt(run_id)
    return RedirectResponse(run_address(run_id), 303)


# -- changes ---------------------------------------------------------------------------------------------------------------


@_in_words
async def _changes(request: Request) -> Response:
    """Answer with what a run has changed outside, as its machine's package says."""
    run_id, runs = request.path_params["run"], request.app.state.runs
    first = runs.stored_run(run_id).entries[0]
    diff = extension_of(first.name).diff if isinstance(first, ledger.MachineEntry) else None
    text = "" if diff is None else diff(runs, run_id)  # in this thread, which has the store
    content = diff_lines(text[:_MOST_JSON]) if text else tag("p", "It has changed nothing outside.", class_="message")
    rest = (
        tag("p", "The rest is longer than this page; `dsa show --diff` prints it.") if len(text) > _MOST_JSON else None
    )
    back = tag("p", tag("a", "The run", href=run_address(run_id)))
    title = f"Changes of {run_id}"
    return HTMLResponse(page(title, tag("h1", title), back, content, rest, here="/runs").html)


# -- attempts --------------------------------------------------------------------------------------------------------------


async def _attempts(request: Request) -> Response:
    """Answer with what a run has generated: each attempt with its verdict, its text, and what it changed."""
    run_id, before = request.path_params["run"], request.query_params.get("before", "")
    runs: Runs = request.app.state.runs
    runs.summary(run_id)  # raises UnknownRunError
    store = runs.artifacts(run_id)
    attempts = store.attempts()
    end = min(whole_number(before, len(attempts)), len(attempts))
    first = max(0, end - _ATTEMPTS_A_PAGE)
    by_id = {each.artifact_id: each for each in attempts}
    items = [_attempt(each, by_id, store) for each in reversed(attempts[first:end])]
    older = tag("a", "Older attempts", href=run_address(run_id, f"/attempts?before={first}")) if first else None
    empty = tag("p", "This run has generated nothing.", class_="message") if not items else None
    back = tag("p", tag("a", "Back to the run", href=run_address(run_id)))
    title = f"Attempts of {run_id}"
    return HTMLResponse(page(title, tag("h1", title), back, empty, items, tag("p", older), here="/runs").html)


def _attempt(attempt: AttemptRecord, by_id: Mapping[str, AttemptRecord], store: ArtifactStore) -> Markup:
    text = store.get_artifact(attempt.artifact_id).content
    verdict = attempt.verdicts[-1] if attempt.verdicts else None
    feedback = tag("p", verdict.feedback, class_="question") if verdict is not None and verdict.feedback else None
    uses = ", ".join(f"{by_id[each].step} {by_id[each].version}" for each in attempt.dependency_ids if each in by_id)
    facts = [
        ("by", ", ".join(filter(None, (attempt.author, attempt.usage.model if attempt.usage else "")))),
        ("uses", uses),
        ("redacted", ", ".join(attempt.redacted)),
    ]
    parent = by_id.get(attempt.parent_id or "")
    change = None
    if parent is not None:
        summary = tag("summary", f"What it changes of {parent.step} {parent.version}")
        change = tag("details", summary, _difference(store.get_artifact(parent.artifact_id).content, text))
    more = f"\n.. {len(text) - _MOST_TEXT:,} more characters" if len(text) > _MOST_TEXT else ""
    return tag(
        "section",
        tag("h2", f"{attempt.step} {attempt.version} ", badge(verdict.word if verdict is not None else "no verdict")),
        feedback,
        tag("dl", [(tag("dt", name), tag("dd", fact)) for name, fact in facts if fact]),
        change,
        tag("details", tag("summary", "The text"), tag("pre", text[:_MOST_TEXT], more), open=True),
        class_="card",
        aria_label=f"{attempt.step} {attempt.version}",
    )


def _difference(before: str, after: str) -> Markup:
    """Return the lines of a unified diff, each in its colour."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_COMPARED:
        return tag("p", f"Texts of more than {_MOST_COMPARED:,} lines are not compared here.", class_="message")
    lines = list(difflib.unified_diff(old, new, lineterm=""))[2:]
    return diff_lines("\n".join(lines)) if lines else tag("p", "Nothing: the texts are equal.")


def run_routes() -> list[Route]:
    """Return the routes of the pages of a run."""
    feeds = RunFeeds()
    return [
        Route("/runs/{run}", feeds.show),
        Route("/runs/{run}/live", feeds.live),
        Route("/runs/{run}/attempts", _attempts),
        Route("/runs/{run}/files/{name}", feeds.file),
        Route("/runs/{run}/changes", _changes),
        Route("/runs/{run}/answer", _answer, methods=["POST"]),
        Route("/runs/{run}/resume", _resume, methods=["POST"]),
        Route("/runs/{run}/interrupt", _interrupt, methods=["POST"]),
    ]
