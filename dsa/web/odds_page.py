"""The odds page: a form for the assumptions about a machine, the answer of `dsa odds`, and a plot of it that the server draws.

The assumptions are in the address, so every answer has one. The numbers come from the functions that `dsa odds` calls; where messages of the command name
its options, those of the page name its fields.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence

import attrs
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dsa.checks.odds.odds_report import (
    OddsAnswer,
    numbers_text,
    odds_answer,
    plotted_curve,
    success_note,
    unknown_sentences,
)
from dsa.checks.odds.run_odds import SUCCESS_STATE, RunOdds
from dsa.errors import DsaError
from dsa.expr import Interval, concrete, read_value, show_value
from dsa.machine import Machine
from dsa.web.machine_page import WatchedDocument
from dsa.web.markup import Markup, alert, badge, join, long_text, message, page, prose, tag, words_explained

#: The sizes of a plot in pixels: its panels, and the room for the numbers on its left and below.
_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE = 440, 150, 60, 20, 24
_MOST_LABELS = 11
#: The smallest upper end of a parameter's slider.
_SLIDER_SPAN = 10
#: Costs from here on are written without digits after the point.
_LARGE = 100
#: The labels of fields that messages name.
_SUCCESS, _OUTSIDE = "The state that counts as success", "Any outside event may come wherever the run waits"
_VARY = "The parameter that the plot and the search vary"
#: The options of `dsa odds` in messages, and the fields of this page that do the same.
_FIELDS_FOR_OPTIONS = (
    (r"or give --pass (\S+)=0\.7", r"or fill in '\1 passes', for example with 0.7"),
    (r"name the state that counts as success with --success;", f"choose the one that counts in '{_SUCCESS}';"),
    (r"\(--vary\)", f"(the field '{_VARY}')"),
    (r"\(--vary (\S+)\)", rf"(write \1 into the field '{_VARY}')"),
    (r"with --outside, a target", f"with '{_OUTSIDE}', a target"),
    (r"such as --event (\w+)=0\.8", r"such as 0.8 in '\1 comes'"),
)


@attrs.frozen
class Curve:
    """The data of a plot: a title, the values of a parameter, the lowest and highest result at each, the top of the scale, and the present value."""

    title: str
    values: tuple[int, ...]
    bounds: tuple[tuple[float, float], ...]
    top: float
    now: object = None


@attrs.frozen
class OddsForm:
    """The fields of the form, by their names: `p.NAME`, `pass.GUARD`, `fatal.GUARD`, `event.EVENT`, `target`, `vary`, `success`, `outside`."""

    fields: Mapping[str, str]

    def of(self, prefix: str) -> dict[str, str]:
        """Return the fields with a prefix that are filled in."""
        pairs = (
            (name.removeprefix(prefix), value.strip()) for name, value in self.fields.items() if name.startswith(prefix)
        )
        return {name: value for name, value in pairs if value}

    def numbers(self, prefix: str) -> dict[str, tuple[float, ...]]:
        """Return lists of numbers. Raises ValueError."""
        return {
            name: tuple(_number(name, part) for part in value.split(",")) for name, value in self.of(prefix).items()
        }

    def answer(self, machine: Machine) -> OddsAnswer:
        """Compute the odds. Raises ParameterError and other errors of dsa, and ValueError for a field that cannot be read."""
        target = self.fields.get("target", "").strip()
        return odds_answer(
            machine.at({name: read_value(value) for name, value in self.of("p.").items()}),
            target=_number("target", target) if target else None,
            vary=self.fields.get("vary") or None,
            passes=self.numbers("pass."),
            fatals=self.numbers("fatal."),
            events={name: values[0] for name, values in self.numbers("event.").items()},
            outside=self.fields.get("outside") == "1",
            success=self.fields.get("success") or None,
        )


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(
            f"{name}: '{text.strip()}' is not a number; write 0.7, or a list by retry number: 0.7, 0.8, 0.9"
        ) from None


async def show(request: Request, document: WatchedDocument) -> Response:
    """Answer with the odds of a machine under the assumptions in the address: a page, or with `part=answer` only the answer, for a page that is already shown."""
    form, machine = OddsForm(dict(request.query_params)), None
    is_part = form.fields.get("part") == "answer"
    try:
        machine = document.required_machine()
        answer = await asyncio.to_thread(form.answer, machine)
        result = await asyncio.to_thread(_answer, answer, form)
    except (DsaError, ValueError) as fault:
        words = alert(in_fields(str(fault)))
        return HTMLResponse((words if is_part else _page(document, machine, form, words)).html, 409)
    return HTMLResponse((result if is_part else _page(document, machine, form, result)).html)


def _page(document: WatchedDocument, machine: Machine | None, form: OddsForm, result: Markup) -> Markup:
    back = tag("p", tag("a", "The machine", href=document.address))
    fields = _form(document, machine, form) if machine is not None else None
    content = tag(
        "div",
        tag("section", fields, words_explained(result, fields), aria_label="What is assumed", class_="right"),
        tag("section", result, id="answer", aria_label="The answer", aria_live="polite"),
        class_="columns",
    )
    name = machine.name if machine is not None else document.file
    return page(f"Odds of {name}", tag("h1", f"Odds of {name}"), back, content, here="/")


# -- the form --------------------------------------------------------------------------------------------------------------


def _form(document: WatchedDocument, machine: Machine, form: OddsForm) -> Markup:
    def field(label: str, name: str, value: str = "", hint: str = "") -> Markup:
        text = form.fields.get(name, value)
        return tag("label", label, tag("input", name=name, value=text, placeholder=hint or None, autocomplete="off"))

    guards = [guard.name for guard in machine.guards if guard.judges]
    document_hint = "as in the document"
    passes = [
        (
            field(f"{name} passes, by retry number", f"pass.{name}", hint=document_hint),
            _slider(f"pass.{name}", form.fields.get(f"pass.{name}", ""), (0.0, 1.0), "0.01"),
        )
        for name in guards
    ]
    parameters = [
        (
            field(name, f"p.{name}", show_value(value)),
            _parameter_slider(machine, name, form.fields.get(f"p.{name}", "")),
        )
        for name, value in machine.constants.items()
    ]
    fatals = [field(f"{name} is fatal", f"fatal.{name}", hint=document_hint) for name in guards]
    events = [field(f"{name} comes", f"event.{name}", hint=document_hint) for name in machine.events_from_outside]
    outside = tag("input", type="checkbox", name="outside", value="1", checked=form.fields.get("outside") == "1")
    return tag(
        "form",
        tag("h2", "What is assumed"),
        parameters,
        passes,
        tag("label", _SUCCESS, _success_choice(machine, form)),
        field(_VARY, "vary", hint=", ".join(_numbers(machine))),
        field("Search for the smallest value of this parameter at which success is at least this likely", "target", hint="0.95"),
        tag("details", tag("summary", "More"), fatals, events, tag("label", outside, _OUTSIDE, class_="choice")),
        tag("button", "Work out", type="submit"),
        method="get", action=f"{document.address}/odds", class_="card", data_answer="answer",
    )  # fmt: skip


def _numbers(machine: Machine) -> list[str]:
    """Return the parameters that can vary in a plot."""
    return [each.name for each in machine.parameters if isinstance(concrete(each.domain, {}), Interval)]


def _success_choice(machine: Machine, form: OddsForm) -> Markup:
    finals = ["", *sorted(machine.final_states | machine.ends.keys())]
    usual = SUCCESS_STATE if any(each.rpartition(".")[2] == SUCCESS_STATE for each in finals) else "none is chosen"
    options = [
        tag("option", name or usual, value=name, selected=name == form.fields.get("success", "")) for name in finals
    ]
    return tag("select", options, name="success")


def _parameter_slider(machine: Machine, name: str, text: str) -> Markup | None:
    """Return the slider of a number among the parameters: over its domain, or to some number above its value if the domain is large or has no end."""
    parameter = next(each for each in machine.parameters if each.name == name)
    domain, value = concrete(parameter.domain, {}), machine.constants[name]
    if not isinstance(domain, Interval) or not isinstance(value, int):
        return None
    most = max(domain.low + _SLIDER_SPAN, 2 * value)
    return _slider(
        f"p.{name}", text or str(value), (domain.low, most if domain.high is None else min(most, domain.high)), "1"
    )


def _slider(name: str, text: str, bounds: tuple[float, float], step: str) -> Markup:
    """Return a slider that writes into the field of this name. A script shows it, because without scripts it would do nothing."""
    low, high = bounds
    try:
        value = min(max(float(text), low), high)
    except ValueError:
        value = (low + high) / 2
    return tag(
        "input", type="range", min=f"{low:g}", max=f"{high:g}", step=step, value=f"{value:g}", data_twin=name,
        aria_label=f"{name.partition('.')[2]}, as a slider", hidden=True, autocomplete="off",
    )  # fmt: skip


# -- the answer ------------------------------------------------------------------------------------------------------------


def in_fields(text: str) -> str:
    """Return a message of `dsa odds` with the fields of this page in place of the command's options."""
    for option, field in _FIELDS_FOR_OPTIONS:
        text = re.sub(option, field, text)
    return text


def _answer(answer: OddsAnswer, form: OddsForm) -> Markup:
    """Return what is assumed, what is unknown, the plot if there is something to vary, and the numbers of `dsa odds`."""
    numbers = long_text("The odds", numbers_text(answer, has_notes=False), is_table=True)
    note = success_note(answer) if answer.odds.is_known else ""
    assumptions = [tag("li", sentence) for sentence in answer.odds.assumptions]
    first = join(
        tag("p", "These numbers assume:") if assumptions else None,
        tag("ul", assumptions, class_="assumed") if assumptions else None,
        [tag("p", badge("UNKNOWN"), " ", prose(in_fields(sentence))) for sentence in unknown_sentences(answer)],
        message(in_fields(note)) if note else None,
    )
    try:
        what, points = plotted_curve(answer, form.fields.get("vary") or None)
    except DsaError as fault:
        return join(first, numbers, tag("p", f"No plot: {in_fields(str(fault))}", class_="hint"))
    if not points:
        why = "Fill in how often guards pass." if answer.question.success else f"Choose '{_SUCCESS}'."
        why = f"No plot: the odds of success are not known. {why}"
        return join(first, numbers, tag("p", why, class_="hint"))
    now = answer.question.system.machine.constants.get(what.name)
    return join(first, _plot(what.name, points, now), numbers)


def _plot(name: str, points: Sequence[tuple[int, RunOdds]], now: object) -> Markup:
    """Return the odds of success above the costs, over the same values, with a line at the present one; and the numbers as a table to open."""
    values = tuple(value for value, _ in points)
    successes = tuple((each.success.low, each.success.high) for _, each in points if each.success is not None)
    costs = tuple((each.main_cost[1].low, each.main_cost[1].high) for _, each in points)
    cost_name = points[0][1].main_cost[0]
    panels = [
        _panel(Curve("probability of success", values, successes, 1.0, now), 0),
        _panel(
            Curve(
                cost_name,
                values,
                costs,
                max([high for _, high in costs if high < float("inf")], default=1.0) or 1.0,
                now,
            ),
            1,
        ),
    ]
    height = 2 * (_HEIGHT + _ABOVE) + 2 * _BELOW
    label = f"Success and cost at {name} = {values[0]} to {values[-1]}"
    below = tag("text", name, x=_LEFT + _WIDTH // 2, y=height - 2, text_anchor="middle")
    svg = tag(
        "svg", panels, below, role="img", aria_label=label, viewBox=f"0 0 {_WIDTH + _LEFT + 12} {height}", class_="plot"
    )
    rows = [
        tag("tr", tag("td", value), tag("td", _bounds(success)), tag("td", _bounds(cost)))
        for value, success, cost in zip(values, successes, costs, strict=True)
    ]
    heads = tag("tr", [tag("th", each, scope="col") for each in (name, "success", cost_name)])
    return join(
        svg, tag("details", tag("summary", "The numbers"), tag("table", tag("thead", heads), tag("tbody", rows)))
    )


def _panel(curve: Curve, number: int) -> Markup:
    """Return one panel: a band from the lowest to the highest result, a line and a dot at each value, and its scales."""
    top = number * (_HEIGHT + _ABOVE + _BELOW // 2) + _ABOVE
    span = max(1, curve.values[-1] - curve.values[0])

    def place(value: int, amount: float) -> str:
        x = _LEFT + (_WIDTH - 8) * (value - curve.values[0]) / span
        return f"{x:.1f},{top + _HEIGHT * (1 - min(amount, curve.top) / curve.top):.1f}"

    lows = [place(value, low) for value, (low, _) in zip(curve.values, curve.bounds, strict=True)]
    highs = [place(value, high) for value, (_, high) in zip(curve.values, curve.bounds, strict=True)]
    dots = [tag("circle", cx=each.partition(",")[0], cy=each.partition(",")[2], r="3") for each in lows]
    lines = []
    for share in (0.0, 0.5, 1.0):
        x_text, y_text = _LEFT - 6, place(curve.values[0], share * curve.top).partition(",")[2]
        lines.append(tag("path", d=f"M{_LEFT},{y_text}H{_LEFT + _WIDTH}", class_="scale"))
        lines.append(tag("text", _short(share * curve.top), x=x_text, y=y_text, text_anchor="end", dy="4"))
    step = -(-len(curve.values) // _MOST_LABELS)
    numbers = [
        tag("text", value, x=place(value, 0).partition(",")[0], y=top + _HEIGHT + 15, text_anchor="middle")
        for value in curve.values[::step]
    ] if number else []  # fmt: skip
    band = tag("polygon", points=" ".join([*lows, *reversed(highs)]), class_="band")
    title = tag("text", curve.title, x=_LEFT, y=top - 8)
    x_now = place(curve.now, 0).partition(",")[0] if isinstance(curve.now, int) and curve.now in curve.values else None
    here = tag("path", d=f"M{x_now},{top}V{top + _HEIGHT}", class_="here") if x_now is not None else None
    return tag("g", lines, numbers, title, here, band, tag("polyline", points=" ".join(lows)), dots)


def _short(amount: float) -> str:
    return f"{amount:.0f}" if amount >= _LARGE else f"{amount:.3g}"


def _bounds(pair: tuple[float, float]) -> str:
    low, high = (f"{each:.5g}" for each in pair)
    return low if low == high else f"{low} to {high}"
