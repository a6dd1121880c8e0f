"""The explorer: a walk through a machine, event by event. Every place has an address, and `step` decides where each event leads.

The address has the events so far (`do`) and the values of parameters (`p.NAME`). Only events that are offered at a place are taken, so an address
cannot lead anywhere that the machine does not lead. A walk may begin with the record of a run: `at` is the number of rows that it had taken.
"""

import asyncio
from collections.abc import Sequence
from itertools import islice

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from dsa.checks.places import RowView, rows_at
from dsa.errors import DsaError
from dsa.expr import read_value, show_value
from dsa.runtime.ledger import ChangeEntry, RowEntry
from dsa.runtime.timeline import event_records
from dsa.semantics import Taken, is_over, start, step
from dsa.text import plural
from dsa.trace import show_occurrence, show_values
from dsa.web.document_markup import diagram, own_path, picture_marks
from dsa.web.machine_page import WatchedDocument, with_document
from dsa.web.machine_walk import MachineWalk, WalkPlace, occurrences, walk
from dsa.web.markup import Markup, alert, badge, hidden_field, join, message, message_page, page, tag, words_explained
from dsa.web.run_feed import RunFeed, run_address
from dsa.web.run_pages import whole_number

#: The most steps that are listed.
_MOST_LISTED = 200


def explorer_routes(documents: Sequence[WatchedDocument]) -> list[Route]:
    """Return the routes of the explorer."""
    return [
        Route("/machines/{number:int}/explore", with_document(documents, _show)),
        Route("/runs/{run}/explore", _show_run),
    ]


async def _show(request: Request, document: WatchedDocument) -> Response:
    query = request.query_params
    values = {key.removeprefix("p."): value for key, value in query.items() if key.startswith("p.") and value.strip()}
    try:
        parameters = {name: read_value(value.strip()) for name, value in values.items()}
        machine = document.required_machine().at(parameters)
    except (DsaError, ValueError) as fault:
        return _refusal(str(fault), document.file, tag("a", "The machine", href=document.address))
    pairs = tuple((f"p.{name}", show_value(value)) for name, value in parameters.items())
    home = document.address
    has_rows = machine.span is not None and own_path(machine) == machine.span.path  # those of a spec are elsewhere
    place = WalkPlace(machine, f"{home}/explore", home, pairs, home if has_rows else None)
    path = await asyncio.to_thread(walk, place, query.getlist("do"), 0)
    return HTMLResponse((await asyncio.to_thread(_page, path)).html)


async def _show_run(request: Request) -> Response:
    """Answer with the explorer at a place of a run: after `at` rows, or where the run is now."""
    feed = await RunFeed.for_run(request.app.state.runs, request.path_params["run"])
    home = run_address(feed.id)
    the_run = tag("a", "The run", href=home)
    if feed.machine is None:
        return _refusal("This run's document is not a machine for this release of dsa.", feed.id, the_run)
    if any(isinstance(entry, ChangeEntry) for entry in feed.entries):
        fault = "The table of this run was changed during the run, so no single machine can walk through all of it."
        return _refusal(fault, feed.id, the_run)
    records = event_records(feed.entries)
    run_occurrences = tuple(each.occurrence for each in records if isinstance(each.outcome, RowEntry))
    at = request.query_params.get("at", "")
    lines = await asyncio.to_thread(_address_of, feed.text, request.app.state.documents)
    address = run_address(feed.id, "/explore")
    place = WalkPlace(feed.machine, address, home, lines=lines, occurrences=run_occurrences)
    rows = whole_number(at, len(run_occurrences))
    path = await asyncio.to_thread(walk, place, request.query_params.getlist("do"), rows)
    return HTMLResponse((await asyncio.to_thread(_page, path)).html)


def _address_of(text: str, documents: Sequence[WatchedDocument]) -> str | None:
    """Return the address of the open document that has this text; None if no file has it any more."""
    return next((each.address for each in documents if each.has(text)), None)


def _refusal(fault: str, name: str, home: Markup) -> Response:
    return HTMLResponse(message_page(f"Explore {name}", fault, tag("p", home)).html, 409)


def _page(path: MachineWalk) -> Markup:
    machine, here = path.machine, path.here
    over = tag("p", badge("finished"), " A run ends here: every event is refused.") if is_over(machine, here) else None
    lines = [taken.transition.span.line if taken.transition.span else 0 for taken in path.steps]
    states = [start(machine).state, *(taken.configuration.state for taken in path.steps)]
    marks = picture_marks(machine, lines, states)
    facts, choices = join(_facts(path), over), _choices(path)
    now = tag(
        "section", facts, tag("h2", "What can happen"), choices, words_explained(facts, choices), aria_label="Here"
    )
    picture = tag("section", diagram(machine, marks), aria_label="Diagram", class_="beside")
    steps = tag("h2", f"The way here: {plural(len(path.steps), 'step')}")
    way = tag("section", steps, _way(path), _parameter_form(path), aria_label="The way here")
    return page(
        f"{machine.name}: {here.state}",
        tag("h1", f"Explore {machine.name}"),
        _moves(path),
        alert(path.fault) if path.fault else None,
        tag("div", now, picture, way, class_="columns"),
        here="/" if path.place.occurrences is None else "/runs",
    )


def _facts(path: MachineWalk) -> Markup:
    names = [variable.name for variable in path.machine.variables]
    facts = [
        ("state", path.here.state),
        ("values", show_values(zip(names, path.here.values, strict=True))),
        ("outstanding", ", ".join(path.here.outstanding) or "nothing"),
        ("parameters", show_values(path.machine.constants.items())),
    ]
    return tag("dl", [(tag("dt", name), tag("dd", fact)) for name, fact in facts if fact])


def _moves(path: MachineWalk) -> Markup:
    count = len(path.steps)
    links: list[Markup | str] = (
        [tag("a", "← Back", href=path.address(count - 1), rel="prev", id="back"), " · "] if count else []
    )
    is_of_run, total = path.place.occurrences is not None, len(path.place.occurrences or ())
    onwards = (
        tag("a", "The next step of the run →", href=path.place.at((), path.rows + 1)) if path.rows < total else None
    )
    links += [onwards, " · "] if onwards is not None else []
    again = tag("a", "Start again", href=path.address(0))
    return tag("p", links, again, " · ", tag("a", "The run" if is_of_run else "The machine", href=path.place.home))


def _choices(path: MachineWalk) -> Markup:
    taken, refused_items = list[Markup](), list[Markup]()
    for occurrence in occurrences(path.machine, path.here.state):
        outcome = step(path.machine, path.here, occurrence)
        views = rows_at(path.machine, path.here, occurrence)
        name = show_occurrence(occurrence)
        if isinstance(outcome, Taken):
            link = tag("a", name, href=path.place.at((*path.names, name), path.rows), class_="choice")
            effects = f", asks for {', '.join(outcome.effects)}" if outcome.effects else ""
            taken.append(tag("li", link, f" → {outcome.configuration.state}{effects}", _rows(views, path.place)))
        elif views or occurrence.event in path.machine.events_from_outside:
            refused_items.append(
                tag("li", tag("b", name), f" {outcome.reason}: {outcome.message}", _rows(views, path.place))
            )
    empty = message("Nothing is accepted here.") if not taken else None
    refusals = (
        tag("details", tag("summary", f"Refused: {len(refused_items)}"), tag("ul", refused_items, class_="plain"))
        if refused_items
        else None
    )
    return join(tag("ul", taken, class_="plain"), empty, refusals)


def _rows(views: Sequence[RowView], place: WalkPlace) -> Markup:
    items = [_row(view, place) for view in views]
    return tag("ul", items, class_="rows") if items else join()


def _row(view: RowView, place: WalkPlace) -> Markup:
    wrong = [text for text, is_true in view.conjuncts if not is_true]
    span = view.row.span
    link: Markup | str | None = None if span is None else f"line {span.line}"
    if span is not None and place.lines is not None:
        link = tag("a", link, href=f"{place.lines}#line{span.line}")
    elif span is not None and place.occurrences is None:
        link = f"{span.path}:{span.line}"  # for a spec: its rows are those of another document
    false = join(" false: ", [tag("code", text, " ") for text in wrong]) if wrong else None
    return tag(
        "li",
        "✓ " if view.is_enabled else "✗ ",
        link,
        " ",
        str(view.row),
        false,
        class_="enabled" if view.is_enabled else "disabled",
    )


def _way(path: MachineWalk) -> Markup:
    count = len(path.steps)
    first = max(0, count - _MOST_LISTED)
    items = [] if first else [tag("li", tag("a", "start", href=path.address(0)))]
    run_names = map(show_occurrence, path.place.occurrences or ())
    names = [*islice(run_names, path.rows), *path.names]
    for number, (name, taken) in enumerate(zip(names[first:], path.steps[first:], strict=True), first + 1):
        link = tag("a", name, href=path.address(number))
        items.append(tag("li", link, f" → {taken.configuration.state}"))
    left_out = (
        tag("p", f"The first {first} steps are not listed: go back step by step, or start again.") if first else None
    )
    return join(left_out, tag("ol", items, start=first + 1 if first else 0))


def _parameter_form(path: MachineWalk) -> Markup | None:
    if not path.machine.parameters or path.place.occurrences is not None:
        return None
    fields = [
        tag("label", name, tag("input", name=f"p.{name}", value=show_value(value)))
        for name, value in path.machine.constants.items()
    ]
    button = tag("button", "Use these parameters", type="submit")
    walk_fields = [hidden_field("do", name) for name in path.names]
    return tag("form", fields, walk_fields, button, method="get", action=path.place.address)
