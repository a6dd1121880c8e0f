"""The explorer: a walk through a machine, event by event. Every place has its address, and `step` decides where each event leads.

The address has the events so far (`do`) and the values of parameters (`p.NAME`). Only events that are offered at a place are taken, so an address
cannot lead anywhere that the machine does not.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, product
from urllib.parse import urlencode

import attrs
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from dsa.checks.places import RowView, rows_at
from dsa.errors import DsaError
from dsa.expr import Value, read_value, show_value
from dsa.machine import Machine, read_guards
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, candidates, is_over, start, step
from dsa.text import plural
from dsa.trace import show_occurrence, show_values
from dsa.web.document_markup import diagram, picture_marks
from dsa.web.machine_page import with_document
from dsa.web.markup import Markup, badge, hidden_field, join, page, tag
from dsa.web.watched_document import WatchedDocument

#: The most combinations of verdicts that are offered for an event, and the most events of a walk.
_MOST_VERDICTS, _MOST_STEPS = 81, 500


@attrs.frozen
class MachineWalk:
    """A walk: the machine at its parameters, the occurrences so far, and what each led to. `fault` says why the address leads no further."""

    machine: Machine
    names: tuple[str, ...]
    steps: tuple[Taken, ...]
    fault: str = ""

    @property
    def here(self) -> Configuration:
        """The configuration that it has come to."""
        return self.steps[-1].configuration if self.steps else start(self.machine)


def walk(machine: Machine, names: Sequence[str]) -> MachineWalk:
    """Walk through a machine by events as `show_occurrence` writes them; stop where one is not taken."""
    here, steps = start(machine), list[Taken]()
    for name in names[:_MOST_STEPS]:
        outcome = next(
            (step(machine, here, each) for each in occurrences(machine, here.state) if show_occurrence(each) == name),
            None,
        )
        if not isinstance(outcome, Taken):
            why = outcome.message if isinstance(outcome, Refusal) else "there is no such event here"
            return MachineWalk(
                machine, tuple(names[: len(steps)]), tuple(steps), f"'{name}' leads no further from {here.state}: {why}"
            )
        steps.append(outcome)
        here = outcome.configuration
    return MachineWalk(machine, tuple(names[: len(steps)]), tuple(steps))


def occurrences(machine: Machine, state: str) -> Iterator[Occurrence]:
    """Yield what may happen in a state, taken or refused: each event and armed timer, with each combination of the verdicts that its rows read."""
    events = [Occurrence(event.name) for event in machine.events]
    timers = [Occurrence(event, source=source) for source, event in machine.armed_timers(state)]
    for each in (*events, *timers):
        guards = read_guards(candidates(machine, state, each))
        choices = product(*(machine.guard_named[guard].outcomes for guard in guards))
        for outcomes in islice(choices, _MOST_VERDICTS):
            yield attrs.evolve(each, verdicts=tuple(zip(guards, outcomes, strict=True)))


def explorer_routes(documents: Sequence[WatchedDocument]) -> list[Route]:
    """Return the routes of the explorer."""
    return [Route("/machines/{number:int}/explore", with_document(documents, _show))]


def _show(request: Request, document: WatchedDocument) -> Response:
    query = request.query_params
    values = {key.removeprefix("p."): value for key, value in query.items() if key.startswith("p.") and value.strip()}
    try:
        parameters = {name: read_value(value.strip()) for name, value in values.items()}
        machine = document.required_machine().at(parameters)
    except (DsaError, ValueError) as fault:
        back = tag("p", tag("a", "Back to the machine", href=document.address))
        text = tag("p", str(fault), class_="message", role="alert")
        return HTMLResponse(page("Explorer", tag("h1", "Explorer"), text, back).html, 409)
    return HTMLResponse(_page(document, walk(machine, query.getlist("do")), parameters).html)


def _address(document: WatchedDocument, names: Sequence[str], parameters: dict[str, Value]) -> str:
    pairs = [
        *((f"p.{name}", show_value(value)) for name, value in parameters.items()),
        *(("do", name) for name in names),
    ]
    return f"{document.address}/explore?{urlencode(pairs)}"


def _page(document: WatchedDocument, path: MachineWalk, parameters: dict[str, Value]) -> Markup:
    machine, here = path.machine, path.here
    over = tag("p", badge("finished"), " A run ends here: every event is refused.") if is_over(machine, here) else None
    lines = [taken.transition.span.line if taken.transition.span else 0 for taken in path.steps]
    states = [start(machine).state, *(taken.configuration.state for taken in path.steps)]
    marks = picture_marks(machine, lines, states)
    now = tag(
        "section",
        _facts(path),
        over,
        tag("h2", "What can happen"),
        _choices(document, path, parameters),
        aria_label="Here",
    )
    picture = tag("section", diagram(machine, marks), aria_label="Diagram", class_="beside")
    steps = tag("h2", f"The way here: {plural(len(path.steps), 'step')}")
    way = tag(
        "section",
        steps,
        _way(document, path, parameters),
        _parameter_form(document, path, parameters),
        aria_label="The way here",
    )
    return page(
        f"{machine.name}: {here.state}",
        tag("h1", f"Explore {machine.name}"),
        _moves(document, path, parameters),
        tag("p", path.fault, class_="message", role="alert") if path.fault else None,
        tag("div", now, picture, way, class_="columns"),
        here="/",
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


def _moves(document: WatchedDocument, path: MachineWalk, parameters: dict[str, Value]) -> Markup:
    back = _address(document, path.names[:-1], parameters)
    links: list[Markup | str] = [tag("a", "← Back", href=back, rel="prev", id="back"), " "] if path.names else []
    again = tag("a", "Start again", href=_address(document, (), parameters))
    return tag("p", links, again, " ", tag("a", "The machine", href=document.address))


def _choices(document: WatchedDocument, path: MachineWalk, parameters: dict[str, Value]) -> Markup:
    taken, refused_items = list[Markup](), list[Markup]()
    for occurrence in occurrences(path.machine, path.here.state):
        outcome = step(path.machine, path.here, occurrence)
        views = rows_at(path.machine, path.here, occurrence)
        name = show_occurrence(occurrence)
        if isinstance(outcome, Taken):
            link = tag("a", name, href=_address(document, (*path.names, name), parameters), class_="choice")
            effects = f", asks for {', '.join(outcome.effects)}" if outcome.effects else ""
            taken.append(tag("li", link, f" → {outcome.configuration.state}{effects}", _rows(views, document)))
        elif views or occurrence.event in path.machine.events_from_outside:
            refused_items.append(
                tag("li", tag("b", name), f" {outcome.reason}: {outcome.message}", _rows(views, document))
            )
    empty = tag("p", "Nothing is accepted here.", class_="message") if not taken else None
    refusals = (
        tag("details", tag("summary", f"Refused: {len(refused_items)}"), tag("ul", refused_items, class_="plain"))
        if refused_items
        else None
    )
    return join(tag("ul", taken, class_="plain"), empty, refusals)


def _rows(views: Sequence[RowView], document: WatchedDocument) -> Markup:
    items = [_row(view, document) for view in views]
    return tag("ul", items, class_="rows") if items else join()


def _row(view: RowView, document: WatchedDocument) -> Markup:
    wrong = [text for text, is_true in view.conjuncts if not is_true]
    line = view.row.span.line if view.row.span else None
    link = tag("a", f"line {line}", href=f"{document.address}#line{line}") if line else None
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


def _way(document: WatchedDocument, path: MachineWalk, parameters: dict[str, Value]) -> Markup:
    items = [tag("li", tag("a", "start", href=_address(document, (), parameters)))]
    for number, (name, taken) in enumerate(zip(path.names, path.steps, strict=True), 1):
        link = tag("a", name, href=_address(document, path.names[:number], parameters))
        items.append(tag("li", link, f" → {taken.configuration.state}"))
    return tag("ol", items, start=0)


def _parameter_form(document: WatchedDocument, path: MachineWalk, parameters: dict[str, Value]) -> Markup | None:
    if not path.machine.parameters:
        return None
    fields = [
        tag("label", name, tag("input", name=f"p.{name}", value=show_value(value)))
        for name, value in {**path.machine.constants, **parameters}.items()
    ]
    button = tag("button", "Use these parameters", type="submit")
    return tag(
        "form",
        fields,
        [hidden_field("do", name) for name in path.names],
        button,
        method="get",
        action=f"{document.address}/explore",
    )
