"""The list of runs with its filters, and the form that starts a run of an open document.

The list comes from the summaries of the newest runs that match; no ledger is read. The filters are in the address.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from dsa.errors import DsaError
from dsa.expr import Value, read_value, show_value
from dsa.runs.door import Runs
from dsa.runs.machine_extension import StartField, StartForm, extension_of, extensions
from dsa.runs.setup import Options
from dsa.runtime.ledger_story import status_text
from dsa.runtime.run_store import STATUSES, RunSummary
from dsa.text import plural, shorten
from dsa.web.markup import (
    Markup,
    alert,
    badge,
    hidden_field,
    join,
    message,
    message_page,
    page,
    post_form,
    prose,
    tag,
    words_explained,
)
from dsa.web.run_feed import data_field, run_address
from dsa.web.run_pages import Form, form_fields, typed_data, whole_number
from dsa.web.watched_document import WatchedDocument

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
    """Return the fields of a run of a document; of one that is not a machine, a link to what is wrong with it."""
    machine = document.machine
    if machine is None:
        link = tag("a", "its page", href=document.address)
        return alert(join(document.file, " is not a machine now, so no run of it can be started: ", link, " says why."))
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
        text = "Nothing is begun at this address. The page that starts runs has links to what can be."
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
    """Return which runs are shown, from the first one on. How many match is not known: the list reads no further than its page."""
    last = first + count - 1
    numbers = f"{first} to {last}" if count > 1 else f"{first}"
    runs = plural(total, "run")
    if is_filtered:
        return f"{numbers} of the runs that match, the newest first; {runs} in all"
    return f"{numbers} of {runs}, the newest first"


async def _newest(runs: Runs, filters_now: Form, most: int, *, is_due: bool) -> list[RunSummary]:
    """Return the newest runs that match the filters, the newest first: at most this many, except where only due ones are wanted."""
    status, event, machine = (filters_now[name] or None for name in ("status", "waiting", "machine"))
    newest = None if is_due else most
    summaries = await runs.list(status=status, waiting_for=event, machine=machine, now_ms=runs.now_ms(), newest=newest)
    return [each for each in reversed(summaries) if each.is_due or not is_due][:most]


def _suggestion(label: str, name: str, words: Sequence[str], present: str) -> Markup:
    """Return a field for a word, with those that the list has now to choose from."""
    options = tag("datalist", [tag("option", value=word) for word in words], id=f"{name}-words")
    field = tag("input", name=name, value=present, list=f"{name}-words", autocomplete="off")
    return join(tag("label", label, field), options)


def _choice(label: str, name: str, words: Sequence[str], present: str) -> Markup:
    words = words if not present or present in words else (*words, present)
    options = [tag("option", word or "any", value=word, selected=word == present) for word in ("", *words)]
    return tag("label", label, tag("select", options, name=name))


def _run_table(summaries: Sequence[RunSummary], total: int) -> Markup:
    if not summaries:
        empty = "No run is kept here yet. Start one here with the link above, or in a terminal with `dsa run FILE`."
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
