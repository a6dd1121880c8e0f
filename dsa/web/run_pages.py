"""The pages of runs, and the list of them: their frames and addresses, what people send there, and its attempts with their texts; the rest of their content is in `run_feed.py`.

Answers, decisions and starts go to `dsa.runs`, which checks them.

The list comes from the summaries of the newest runs that match; no ledger is read. Its filters are in the address.
"""

import asyncio
import difflib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dsa.errors import DsaError
from dsa.expr import Value, read_value, show_value
from dsa.runs.door import Runs
from dsa.runs.machine_extension import StartField, StartForm, extension_of, extensions
from dsa.runs.runs import Resumption
from dsa.runs.setup import Options
from dsa.runtime import ledger
from dsa.runtime.artifacts import ArtifactStore, AttemptRecord
from dsa.runtime.json_text import data_of
from dsa.runtime.ledger import Handling
from dsa.runtime.ledger_story import status_text
from dsa.runtime.run_store import STATUSES, DamageError, Posted, RunSummary
from dsa.semantics import Occurrence, Refusal, Taken
from dsa.text import plural, shorten
from dsa.web.machine_page import WatchedDocument, event
from dsa.web.markup import (
    EMPTY,
    Markup,
    alert,
    badge,
    diff_lines,
    hidden_field,
    join,
    long_text,
    message,
    message_page,
    page,
    post_form,
    prose,
    tag,
    words_explained,
)
from dsa.web.run_feed import RunFeed, data_field, run_address

_MOMENTS_A_PAGE, _MOMENTS_AT_ONCE = 200, 500
_MOST_JSON = 20_000
#: The most attempts on a page, the most characters of one, and the most lines of texts that are compared.
_ATTEMPTS_A_PAGE, _MOST_TEXT, _MOST_COMPARED = 20, 20_000, 2_000
#: The decisions about an effect in doubt, as forms send them.
_HANDLINGS: dict[str, Handling] = {"retry": "retry", "fail": "fail", "done": "done"}
#: The pictures that pages show, by the endings of their files.
_PICTURES = {"png": "image/png", "svg": "image/svg+xml", "jpg": "image/jpeg", "jpeg": "image/jpeg"}
#: The most digits of a number in an address; a longer one is beyond every limit.
_MOST_DIGITS = 12
Number = TypeVar("Number", int, None)
Form = Mapping[str, str]
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def whole_number(text: str, otherwise: Number) -> int | Number:
    """Return the whole number in a part of an address, up to a limit; `otherwise` for another text."""
    return int(text[:_MOST_DIGITS]) if text.isdecimal() else otherwise


def _run_page(feed: RunFeed, before: int | None) -> Markup:
    fragments, total = feed.fragments(), len(feed.entries)
    end = total if before is None else max(0, min(before, total))
    after = max(0, end - _MOMENTS_A_PAGE)
    base = run_address(feed.id)
    older = tag("a", f"The entries before {after + 1}", href=f"{base}?before={after}") if after else None
    newest = tag("a", "The newest entries", href=base) if before is not None else None
    heads = tag("tr", [tag("th", name, scope="col") for name in ("", "time", "kind", "what")])
    moments = feed.moments(after, end)
    table = tag("table", tag("thead", heads), tag("tbody", moments, id="moments"), class_="moments")
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
                words_explained(moments),
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

    async def feed(self, request: Request) -> RunFeed:
        """Return the feed of the run that an address names. Raises UnknownRunError, DamageError, StoreError."""
        run_id = request.path_params["run"]
        feed = self._feeds.get(run_id)
        if feed is None:
            return await RunFeed.for_run(request.app.state.runs, run_id)
        await feed.read()
        return feed

    async def changes(self, feed: RunFeed, have: str, after: int) -> AsyncIterator[str]:
        """Yield the events of a page: new moments, and the parts that differ. With `after` -1, no moments."""
        feed = self._watch(feed)
        present, is_first = tuple(have.split(".")), True
        try:
            yield "retry: 500\n\n"
            await feed.drawing.wait()
            while True:
                change, now = feed.next_change, feed.fragments()
                end = min(len(feed.entries), after + _MOMENTS_AT_ONCE)
                has_moments = 0 <= after < end
                if now.digests != present or has_moments or is_first:  # the first one has the current marks
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

    def _watch(self, feed: RunFeed) -> RunFeed:
        """Return the feed that all pages of a run share, and count one more page. Pages that come at the same time have each read the run."""
        feed = self._feeds.setdefault(feed.id, feed)
        feed.watchers += 1
        if not feed.is_followed:
            feed.is_followed = True
            feed.drawing.draw(feed.machine)
            task = asyncio.create_task(feed.follow())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return feed

    async def show(self, request: Request) -> Response:
        """Answer with the page of a run."""
        feed, before = await self.feed(request), request.query_params.get("before", "")
        feed.drawing.draw(feed.machine)
        await feed.drawing.wait()
        return HTMLResponse(_run_page(feed, whole_number(before, None)).html)

    async def file(self, request: Request) -> Response:
        """Answer with a file of a run. The browser shows only pictures; all other files are bytes to download, never pages."""
        name, view = request.path_params["name"], (await self.feed(request)).view
        content = None if view is None else await asyncio.to_thread(view.file, name)
        if content is None:
            return HTMLResponse(message_page("No such file", "The page of the run has links to its files.").html, 404)
        kind = _PICTURES.get(name.rpartition(".")[2].lower(), "application/octet-stream")
        disposition = f"attachment; filename*=UTF-8''{quote(name, safe='')}"
        return Response(content, media_type=kind, headers={"content-disposition": disposition})

    async def earlier(self, request: Request) -> Response:
        """Answer with an earlier part of the machine's own view."""
        feed = await self.feed(request)
        before = whole_number(request.query_params.get("before", ""), 1)
        parts = EMPTY if feed.view is None else feed.view.earlier(before)
        empty = message("There is nothing before this. Everything is on the page of the run.")
        title, back = f"Earlier in {feed.id}", tag("p", tag("a", "The run", href=run_address(feed.id)))
        whole = page(
            title,
            tag("h1", title),
            back,
            tag("h2", "What came before"),
            parts if parts != EMPTY else empty,
            here="/runs",
        )
        return HTMLResponse(whole.html)

    async def live(self, request: Request) -> Response:
        """Answer with the events of a run's page; a page that connects again continues after its last one."""
        number, _, have = request.headers.get("last-event-id", "").partition(":")
        after = number or request.query_params.get("after", "-1")
        feed = await self.feed(request)
        events = self.changes(feed, have or request.query_params.get("have", ""), whole_number(after, -1))
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
        raise ValueError(f"the data{fault}; correct it, or choose 'text' to send it unchanged") from None


def _in_words(handler: Handler) -> Handler:
    """Answer with a page that says why something cannot be done."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except DamageError:
            raise  # it has a page of its own
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
        raise ValueError("an answer must name the place of its question: send it from the page of the run")
    outcome = await runs.send(run_id, name, typed_data(form), at=place)
    why = _why_not_taken(outcome)
    if not why:
        return RedirectResponse(run_address(run_id), 303)
    back = tag("p", tag("a", "Back to the run", href=run_address(run_id)))
    return HTMLResponse(message_page(f"{name} was not taken", why, back).html, 409)


def _why_not_taken(outcome: Taken | Refusal | Posted) -> str:
    """Return why an event was not taken; "" if it was."""
    end = outcome.delivery if isinstance(outcome, Posted) else outcome
    if end is None:
        return "the event is waiting in the run's inbox; the process that holds the run has not taken it yet"
    return "" if isinstance(end, Taken) or not end.reason else f"{end.reason}: {end.message}"


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
    news = await runs.look(run_id)
    if not news.is_driven:
        holder = news.summary.holder
        raise DsaError(
            f"the run is held by {holder}: interrupt the run there" if holder else "the run is not under way"
        )
    await runs.interrupt(run_id)
    return RedirectResponse(run_address(run_id), 303)


# -- changes ---------------------------------------------------------------------------------------------------------------


@_in_words
async def _changes(request: Request) -> Response:
    """Answer with what a run has changed outside, according to its machine's package."""
    run_id, runs = request.path_params["run"], request.app.state.runs
    first = (await runs.look(run_id)).entries[0]
    diff = extension_of(first.name).diff if isinstance(first, ledger.MachineEntry) else None
    text = "" if diff is None else diff(runs, run_id)  # in this thread, which has the store
    content = diff_lines(text[:_MOST_JSON]) if text else message("The run has changed nothing outside.")
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
    await runs.look(run_id)  # raises UnknownRunError
    store = runs.artifacts(run_id)
    attempts = store.attempts()
    end = min(whole_number(before, len(attempts)), len(attempts))
    first = max(0, end - _ATTEMPTS_A_PAGE)
    by_id = {each.artifact_id: each for each in attempts}
    items = [_attempt(each, by_id, store) for each in reversed(attempts[first:end])]
    older = tag("a", "Older attempts", href=run_address(run_id, f"/attempts?before={first}")) if first else None
    empty = message("This run has generated nothing.") if not items else None
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
        summary = tag("summary", f"Changes from {parent.step} {parent.version}")
        change = tag("details", summary, _difference(store.get_artifact(parent.artifact_id).content, text))
    more = f"\n.. {len(text) - _MOST_TEXT:,} more characters" if len(text) > _MOST_TEXT else ""
    return tag(
        "section",
        tag("h2", f"{attempt.step} {attempt.version} ", badge(verdict.word if verdict is not None else "no verdict")),
        feedback,
        tag("dl", [(tag("dt", name), tag("dd", fact)) for name, fact in facts if fact]),
        change,
        tag(
            "details",
            tag("summary", "The text"),
            long_text(f"The text of {attempt.step} {attempt.version}", text[:_MOST_TEXT] + more),
            open=True,
        ),
        class_="card",
        aria_label=f"{attempt.step} {attempt.version}",
    )


def _difference(before: str, after: str) -> Markup:
    """Return the lines of a unified diff, each in its colour."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_COMPARED:
        return message(f"Texts of more than {_MOST_COMPARED:,} lines are not compared here.")
    lines = list(difflib.unified_diff(old, new, lineterm=""))[2:]
    return diff_lines("\n".join(lines)) if lines else tag("p", "Nothing: the texts are equal.")


def run_routes() -> list[Route]:
    """Return the routes of the pages of a run."""
    feeds = RunFeeds()
    return [
        Route("/runs/{run}", feeds.show),
        Route("/runs/{run}/live", feeds.live),
        Route("/runs/{run}/earlier", feeds.earlier),
        Route("/runs/{run}/attempts", _attempts),
        Route("/runs/{run}/files/{name}", feeds.file),
        Route("/runs/{run}/changes", _changes),
        Route("/runs/{run}/answer", _answer, methods=["POST"]),
        Route("/runs/{run}/resume", _resume, methods=["POST"]),
        Route("/runs/{run}/interrupt", _interrupt, methods=["POST"]),
    ]


# --- the list of runs ---

_RUNS_A_PAGE, _MOST_PAGES = 50, 10_000
_SECOND_MS = 1_000


def _start_form(documents: Sequence[WatchedDocument], number: int, form: Form, fault: str = "") -> Markup:
    """Return the page with the form that starts a run."""
    others = _other_forms()
    choice = [tag("option", each.file, value=place, selected=place == number) for place, each in enumerate(documents)]
    if not choice:
        empty = "No machine is open here. Start `dsa web FILE..` with the file of the machine."
        return message_page("Start a run", prose(empty), others, here="/runs")
    start = _start_card(documents[number], number, form)
    return page(
        "Start a run",
        tag("h1", "Start a run"),
        alert(fault) if fault else None,
        tag(
            "form",
            tag("label", "Machine", tag("select", choice, name="machine")),
            tag("button", "Choose", type="submit"),
            method="get",
            action="/runs/new",
        ),
        start,
        others,
        here="/runs",
    )


def _start_card(document: WatchedDocument, number: int, form: Form) -> Markup:
    """Return the fields of a run of a document; for one that is not a machine, a link to the reason."""
    machine = document.machine
    if machine is None:
        link = tag("a", "its page", href=document.address)
        return alert(
            join(document.file, " is currently not a machine, so no run of it can be started: ", link, " says why.")
        )
    parameters = [
        tag("label", parameter.name, tag("input", name=f"p.{parameter.name}", value=form.get(f"p.{parameter.name}", show_value(value)), id=f"p.{parameter.name}"))
        for parameter, value in zip(machine.parameters, machine.constants.values(), strict=False)
    ]  # fmt: skip
    return post_form(
        "/runs/new",
        hidden_field("machine", str(number)),
        tag("fieldset", tag("legend", "Parameters"), parameters) if parameters else None,
        data_field("Data to start with: text or JSON", form.get("data", ""), form.get("form", "auto")),
        tag(
            "label",
            "Model (empty: the local one)",
            tag("input", name="model", value=form.get("model", ""), autocomplete="off"),
        ),
        label="Start",
        class_="card",
    )


class RunStarter:
    """The form that starts runs of the open documents, and of no others."""

    def __init__(self, documents: Sequence[WatchedDocument]) -> None:
        self._documents = documents

    def _number(self, text: str) -> int:
        number = whole_number(text, 0)
        return number if number < len(self._documents) else 0

    async def show(self, request: Request) -> Response:
        """Answer with the form."""
        number = self._number(request.query_params.get("machine", ""))
        if self._documents:
            self._documents[number].open()
        return HTMLResponse(_start_form(self._documents, number, {}).html)

    async def start(self, request: Request) -> Response:
        """Start a run, or show the form again with what is wrong."""
        form = await form_fields(request)
        number = self._number(form.get("machine", ""))
        if not self._documents:
            return HTMLResponse(_start_form(self._documents, number, form).html, 409)
        self._documents[number].open()
        try:
            names = {
                name.removeprefix("p."): value.strip()
                for name, value in form.items()
                if name.startswith("p.") and value.strip()
            }
            parameters: dict[str, Value] = {name: read_value(value) for name, value in names.items()}
            options = Options(model=form.get("model", "").strip() or None, parameters=parameters)
            run = await request.app.state.runs.start(self._documents[number].file, typed_data(form), options=options)
        except (DsaError, ValueError, TypeError, OSError) as fault:
            return HTMLResponse(_start_form(self._documents, number, form, str(fault)).html, 409)
        return RedirectResponse(run_address(run.id), 303)


def _other_forms() -> list[Markup]:
    """Return links to the forms that begin runs of machines with packages."""
    forms = [(each.name, each.start_form.title) for each in extensions() if each.start_form is not None]
    return [tag("p", tag("a", title, href=f"/runs/begin/{quote(name, safe='')}")) for name, title in forms]


# -- forms of machines -----------------------------------------------------------------------------------------------------


def _begin_form(machine: str, start_form: StartForm, form: Form, fault: str = "") -> Markup:
    fields = [_begin_field(name, field, form.get(name, field.value)) for name, field in start_form.fields.items()]
    words = alert(fault) if fault else None
    action = f"/runs/begin/{quote(machine, safe='')}"
    whole = post_form(action, fields, label="Begin", class_="card")
    return page(start_form.title, tag("h1", start_form.title), words, whole, here="/runs")


def _begin_field(name: str, field: StartField, value: str) -> Markup:
    if field.choices:
        options = [tag("option", word, value=word, selected=word == value) for word in field.choices]
        return tag("label", field.label, tag("select", options, name=name))
    if field.lines > 1:
        return tag("label", field.label, tag("textarea", value, name=name, rows=field.lines))
    return tag("label", field.label, tag("input", name=name, value=value, autocomplete="off"))


async def _begin(request: Request) -> Response:
    """Answer with the form of a machine's package, or begin a run with what was typed."""
    name = request.path_params["machine"]
    start_form = extension_of(name).start_form
    if start_form is None:
        link = tag("p", tag("a", "Start a run", href="/runs/new"))
        text = "Nothing can be started at this address. The page that starts runs has the right links."
        return HTMLResponse(message_page("No such form", text, link, here="/runs").html, 404)
    if request.method != "POST":
        return HTMLResponse(_begin_form(name, start_form, {}).html)
    form = await form_fields(request)
    try:
        run = await start_form.begin(request.app.state.runs, form)
    except (DsaError, ValueError, TypeError, OSError) as fault:
        return HTMLResponse(_begin_form(name, start_form, form, str(fault)).html, 409)
    return RedirectResponse(run_address(run.id), 303)


# -- the list --------------------------------------------------------------------------------------------------------------


async def _list(request: Request) -> Response:
    query, runs = request.query_params, request.app.state.runs
    filters_now = {name: query.get(name, "").strip() for name in ("status", "machine", "waiting")}
    is_due, number = query.get("due") == "1", max(1, whole_number(query.get("page", ""), 1))
    summaries = await _newest(runs, filters_now, min(number, _MOST_PAGES) * _RUNS_A_PAGE + 1, is_due=is_due)
    number = min(number, max(1, -(-len(summaries) // _RUNS_A_PAGE)))
    selection = summaries[(number - 1) * _RUNS_A_PAGE : number * _RUNS_A_PAGE]
    filters = tag(
        "form",
        _choice("Status", "status", STATUSES, filters_now["status"]),
        _suggestion("Machine", "machine", sorted({each.summary.machine for each in summaries}), filters_now["machine"]),
        _suggestion("Waits for", "waiting", sorted({name for each in summaries for name in each.summary.waits_for}), filters_now["waiting"]),
        tag("label", tag("input", type="checkbox", name="due", value="1", checked=is_due), "Due", class_="choice"),
        tag("button", "Filter", type="submit"),
        method="get", action="/runs", class_="filters",
    )  # fmt: skip
    pairs = [*((name, value) for name, value in filters_now.items() if value), *([("due", "1")] if is_due else [])]
    pages = [
        tag("a", name, href=f"/runs?{urlencode([*pairs, ('page', str(there))])}")
        for name, there in (("Newer", number - 1), ("Older", number + 1)) if 1 <= there <= -(-len(summaries) // _RUNS_A_PAGE)
    ]  # fmt: skip
    total = await runs.count()
    new = tag("p", tag("a", "Start a run", href="/runs/new"))
    first = (number - 1) * _RUNS_A_PAGE + 1
    counts = tag("p", _counts_text(first, len(selection), total, is_filtered=bool(pairs))) if selection else None
    table = _run_table(selection, total)
    whole = page("Runs", tag("h1", "Runs"), new, (filters, counts) if total else None, table,
                 tag("p", [(each, " ") for each in pages]), words_explained(table), here="/runs")  # fmt: skip
    return HTMLResponse(whole.html)


def _counts_text(first: int, count: int, total: int, *, is_filtered: bool) -> str:
    """Return which runs are shown, from the first one on. The number of matches is not known, because the list reads no further than its page."""
    last = first + count - 1
    numbers = f"{first} to {last}" if count > 1 else f"{first}"
    runs = plural(total, "run")
    if is_filtered:
        return f"{numbers} of the runs that match, the newest first; {runs} in all"
    return f"{numbers} of {runs}, the newest first"


async def _newest(runs: Runs, filters_now: Form, most: int, *, is_due: bool) -> list[RunSummary]:
    """Return the newest runs that match the filters, the newest first: at most this many, unless only due ones are wanted."""
    status, event, machine = (filters_now[name] or None for name in ("status", "waiting", "machine"))
    newest = None if is_due else most
    summaries = await runs.list(status=status, waiting_for=event, machine=machine, now_ms=runs.now_ms(), newest=newest)
    return [each for each in reversed(summaries) if each.is_due or not is_due][:most]


def _suggestion(label: str, name: str, words: Sequence[str], present: str) -> Markup:
    """Return a field for a word, with those in the current list to choose from."""
    options = tag("datalist", [tag("option", value=word) for word in words], id=f"{name}-words")
    field = tag("input", name=name, value=present, list=f"{name}-words", autocomplete="off")
    return join(tag("label", label, field), options)


def _choice(label: str, name: str, words: Sequence[str], present: str) -> Markup:
    words = words if not present or present in words else (*words, present)
    options = [tag("option", word or "any", value=word, selected=word == present) for word in ("", *words)]
    return tag("label", label, tag("select", options, name=name))


def _run_table(summaries: Sequence[RunSummary], total: int) -> Markup:
    if not summaries:
        empty = "There are no runs here yet. Start one with the link above, or in a terminal with `dsa run FILE`."
        return message("No run matches. Choose other filters." if total else empty)
    heads = tag(
        "tr", [tag("th", name, scope="col") for name in ("run", "status", "machine", "state", "changed (UTC)", "about")]
    )
    rows = [
        tag(
            "tr",
            tag("td", tag("a", each.run, href=run_address(each.run))),
            tag("td", badge(each.status, status_text(each))),
            tag("td", each.summary.machine),
            tag("td", each.summary.state),
            tag("td", _time_text(each.summary.changed_ms), class_="nowrap"),
            tag("td", shorten(each.summary.about)),
        )
        for each in summaries
    ]
    return tag(
        "div",
        tag("table", tag("thead", heads), tag("tbody", rows)),
        class_="scroll runs",
        tabindex="0",
        role="region",
        aria_label="Runs",
    )


def _time_text(at_ms: int | None) -> str:
    return f"{datetime.fromtimestamp(at_ms / _SECOND_MS, UTC):%Y-%m-%d %H:%M:%S}" if at_ms else ""


def run_list_routes(documents: Sequence[WatchedDocument]) -> list[Route]:
    """Return the routes of the list, and of the form that starts a run."""
    starter = RunStarter(documents)
    return [
        Route("/runs", _list),
        Route("/runs/new", starter.show, methods=["GET"]),
        Route("/runs/new", starter.start, methods=["POST"]),
        Route("/runs/begin/{machine}", _begin, methods=["GET", "POST"]),
    ]
