"""The document as written, with each finding, verdict and note below the line that it is about; and its diagram.

The diagram is markup, with classes for where a run is and was. It is drawn once, by a program of its own, in parallel with the page: pages show their other
parts in the meantime.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from urllib.parse import urlencode

import attrs

from dsa.checks.report import CheckReport, PropertyResult
from dsa.edge.images import svg
from dsa.errors import Diagnostic, DsaError, Span
from dsa.lang import DocumentReading
from dsa.lang.markdown import Block, Bullet, Fence, Heading, MarkdownTable, ParagraphLine
from dsa.lang.markdown import read as read_markdown
from dsa.machine import Machine
from dsa.targets import dot
from dsa.targets.picture import picture
from dsa.text import plural, shorten
from dsa.trace import Trace, show_loop, show_occurrence, show_values
from dsa.web.markup import EMPTY, Markup, badge, drawing, join, message, prose, tag

#: The most lines of a document that a page shows, and the most findings that are listed above it.
_MOST_LINES, _MOST_ITEMS = 3_000, 20
#: The most characters of a cell that stays on one line, and the number from which a cell gets extra width.
_SHORT_CELL, _LONG_CELL = 14, 40


@attrs.frozen
class DocumentVerdicts:
    """The knowledge about a document: its reading, the result of the check once there is one, and further notes by their lines."""

    document_reading: DocumentReading
    report: CheckReport | None = None
    notes: Mapping[int, Sequence[Markup]] = attrs.field(factory=dict)


def all_findings(document: DocumentReading, report: CheckReport | None) -> tuple[Diagnostic, ...]:
    """Return the findings of a document: those of its reading, and those of its check."""
    return (*document.diagnostics, *(report.diagnostics if report else ()))


def overview(document: DocumentReading, report: CheckReport | None) -> Markup | None:
    """Return a list of the faults, each with a link to its line; None if there are none."""
    properties, own = report.properties if report else (), own_path(document.machine)
    items: list[tuple[str, Markup | str | None, str]] = [
        (each.verdict, line_link(each.claim.span, own) if each.claim else _link(each.line), each.text)
        for each in properties
        if each.failed
    ]
    items += [
        ("VIOLATED", _link(each.line), each.message) for each in (report.scenarios if report else ()) if not each.ok
    ]
    items += [
        (each.severity, line_link(each.span, own or each.span.path), each.message)
        for each in all_findings(document, report)
        if each.severity != "info"
    ]
    lines = [tag("li", badge(word), " ", link, " ", shorten(text)) for word, link, text in items[:_MOST_ITEMS]]
    more = tag("li", f"{len(items) - _MOST_ITEMS} more below") if len(items) > _MOST_ITEMS else None
    return tag("ul", lines, more, class_="plain overview") if items else None


def own_path(machine: Machine | None) -> str | None:
    """Return the path of the document that a machine was read from; for a spec, the spec's own path. None for a machine built in Python."""
    if machine is None:
        return None
    rows = machine.span.path if machine.span else None
    spans = [each.span for each in (*machine.properties, *machine.scenarios) if each.span]
    return next((span.path for span in spans if span.path != rows), rows)


def line_link(span: Span | None, path: str | None) -> Markup | str | None:
    """Return a link to a line of the document with this path; for a line of another document, its name."""
    if span is None:
        return None
    return _link(span.line) if span.path == path else f"{span.path}:{span.line}"


def _link(line: int) -> Markup:
    return tag("a", f"line {line}", href=f"#line{line}")


def _last_row_markup(result: PropertyResult, row: Markup | str) -> Markup | None:
    """Return what the counterexample of a violated property does with the row at its end; None if it has no row. `row` names the row."""
    if result.verdict != "VIOLATED" or result.trace is None or not result.trace.steps:
        return None
    count = len(result.trace.steps)
    ends = join("the counterexample ends with ", row, f", in step {count}")
    if result.loop is None:
        return ends
    if result.loop == count:
        return join(ends, "; then nothing happens, for ever")
    where = f"where it was after step {result.loop}" if result.loop else "its start"
    return join("with ", row, f", in step {count}, the counterexample returns to {where}, and repeats for ever")


# -- the document as written -----------------------------------------------------------------------------------------------


@attrs.frozen
class _LineNotes:
    """The notes of a document by their lines, those about other documents, the lines of the rows with which a counterexample ends, and the lines shown so far."""

    below: dict[int, list[Markup]] = attrs.field(factory=dict)
    elsewhere: list[Markup] = attrs.field(factory=list)
    last_rows: set[int] = attrs.field(factory=set)
    lines_shown: set[int] = attrs.field(factory=set)

    def add(self, line: int, *notes: Markup) -> None:
        """Add notes below a line."""
        self.below.setdefault(line, []).extend(notes)

    def take(self, line: int) -> list[Markup]:
        """Return the notes below a line that is being shown."""
        self.lines_shown.add(line)
        return self.below.get(line, [])

    def left_over(self) -> list[tuple[int, list[Markup]]]:
        """Return the notes of the lines that were not shown, with their lines."""
        return [(line, each) for line, each in sorted(self.below.items()) if line not in self.lines_shown]


def document_markup(text: str, verdicts: DocumentVerdicts, address: str) -> Iterator[Markup]:
    """Yield a document block by block, with findings and verdicts below the lines that they are about."""
    document = read_markdown(text, "")
    notes = _notes(verdicts, len(document.lines), address)
    if notes.elsewhere:
        yield tag("section", notes.elsewhere, aria_label="Findings elsewhere")
    for title in document.titles:
        yield tag("h2", title.text, id=f"line{title.line}")
        yield from notes.take(title.line)
    yield from _blocks(document.preamble, notes)
    for section in document.sections:
        heading = section.heading
        yield tag("h3", heading.text, id=f"line{heading.line}")
        yield from notes.take(heading.line)
        yield from _blocks(section.blocks, notes)
        if section.last > _MOST_LINES:
            yield message(f"The lines after {section.last} are not shown here.")
            break
    left_over = [tag("div", each, id=f"line{line}") for line, each in notes.left_over()]
    if left_over:
        yield tag("section", left_over, aria_label="More findings")


def _notes(verdicts: DocumentVerdicts, lines: int, address: str) -> _LineNotes:
    """Return the findings and verdicts by their lines, and those of other documents."""
    document, report, notes = verdicts.document_reading, verdicts.report, _LineNotes()
    own = own_path(document.machine)
    for number, result in enumerate(report.properties if report else (), 1):
        place = _VerdictPlace(own, f"counterexample{number}", address)
        span = result.claim.span if result.claim else None
        verdict = _verdict(result, place)
        if span is not None and own is not None and span.path != own:
            notes.elsewhere.append(join(tag("p", f"{span.path}:{span.line}"), verdict))
        else:
            notes.add(result.line, verdict)
        last = result.trace.steps[-1] if result.trace is not None and result.trace.steps else None
        if (
            last is not None
            and last.line
            and last.row.span
            and last.row.span.path == own
            and result.verdict == "VIOLATED"
        ):
            notes.last_rows.add(last.line)
            notes.add(last.line, _last_row(result, place))
    for finding in all_findings(document, report):
        is_here = (own is None or finding.span.path == own) and finding.span.line <= lines
        markup = _finding(finding, "" if is_here else f"{finding.span}: ")
        (notes.below.setdefault(finding.span.line, []) if is_here else notes.elsewhere).append(markup)
    for scenario in report.scenarios if report else ():
        about = "runs as written" if scenario.ok else scenario.message
        word = "HOLDS" if scenario.ok else "VIOLATED"
        notes.add(scenario.line, tag("div", badge(word), " ", about, class_="note"))
    for line, more in verdicts.notes.items():
        notes.add(line, *more)
    return notes


def _blocks(blocks: Iterable[Block], notes: _LineNotes) -> Iterator[Markup]:
    for is_prose, group in groupby(blocks, key=lambda block: isinstance(block, ParagraphLine)):
        yield from (_paragraphs if is_prose else _other_blocks)(tuple(group), notes)


def _cell(text: str) -> Markup:
    """Return a cell of a table. A short one stays on one line, and a long one is wide enough to be read."""
    width = "nowrap" if len(text) <= _SHORT_CELL else "wide" if len(text) > _LONG_CELL else None
    return tag("td", prose(text), class_=width)


def _paragraphs(blocks: Iterable[Block], notes: _LineNotes) -> Iterator[Markup]:
    """Yield paragraphs: consecutive lines form one."""
    cells = [block.text for block in blocks if isinstance(block, ParagraphLine)]
    for _, pairs in groupby(enumerate(cells), key=lambda each: each[1].line - each[0]):
        lines = [cell for _, cell in pairs]
        yield tag("p", prose(" ".join(cell.text for cell in lines)), id=f"line{lines[0].line}")
        for cell in lines:
            yield from notes.take(cell.line)


def _other_blocks(blocks: Iterable[Block], notes: _LineNotes) -> Iterator[Markup]:
    for block in blocks:
        if isinstance(block, MarkdownTable):
            yield _table(block, notes)
        elif isinstance(block, Fence):
            yield tag("pre", block.content)
        else:
            cell = block.title if isinstance(block, Heading) else block.text
            name = "h4" if isinstance(block, Heading) else "p"
            yield tag(
                name, prose(cell.text), id=f"line{cell.line}", class_="claim" if isinstance(block, Bullet) else None
            )
            yield from notes.take(cell.line)


def _table(table: MarkdownTable, notes: _LineNotes) -> Markup:
    width = len(table.header.cells)
    heads = [tag("th", cell.text, scope="col") for cell in table.header.cells]
    head = tag("tr", tag("th", "line", scope="col", class_="line"), heads)
    rows = list[Markup]()
    for row in table.rows:
        line = row.span.line
        is_last = line in notes.last_rows
        number = tag("td", "✗ " if is_last else None, line, class_="line")
        cells = [_cell(cell.text) for cell in row.cells]
        rows.append(tag("tr", number, cells, id=f"line{line}", class_="last-row" if is_last else None))
        below = notes.take(line)
        rows += [tag("tr", tag("td", below, colspan=1 + width), class_="notes")] if below else []
    body = tag("table", tag("thead", head), tag("tbody", rows))
    of_header = notes.take(table.header.span.line)
    return join(tag("div", body, class_="scroll", tabindex="0", role="region", aria_label="Table"), of_header)


def _finding(finding: Diagnostic, where: str = "") -> Markup:
    hint = tag("p", "Hint: ", finding.hint, class_="hint") if finding.hint else None
    text = tag("p", badge(finding.severity), " ", tag("code", finding.code), " ", where, finding.message)
    return tag("div", text, hint, class_="note")


@attrs.frozen
class _VerdictPlace:
    """The place of a verdict: the path of the document, the id of its counterexample, and the address of the page; empty without a server."""

    path: str | None
    id: str
    address: str


def _last_row(result: PropertyResult, place: _VerdictPlace) -> Markup:
    """Return the note below the row with which a counterexample ends."""
    link = tag("a", "Counterexample", href=f"#{place.id}")
    words = tag("p", badge(result.verdict), " ", result.text, ": ", _last_row_markup(result, "this row"))
    return tag("div", words, tag("p", link), class_="note")


def _verdict(result: PropertyResult, place: _VerdictPlace) -> Markup:
    last = result.trace.steps[-1] if result.trace is not None and result.trace.steps else None
    facts: list[Markup | str] = [
        result.reason,
        f"{result.verdict} if {result.condition}" if result.condition else "",
        f"assuming: {'; '.join(result.assumes)}" if result.assumes else "",
        f"at {'; '.join(filter(None, map(show_values, result.values)))}" if any(result.values) else "",
    ]
    row = join("the row in ", line_link(last.row.span, place.path)) if last is not None else ""
    ends = _last_row_markup(result, row)
    facts += [ends] if ends is not None else []
    word = "Example" if result.verdict == "HOLDS" else "Counterexample"
    views = [TraceView(word, result.trace, result.loop, place.id)] if result.trace is not None else []
    views += [TraceView(word, trace, loop) for trace, loop in result.more]
    if result.passing_run is not None:
        views.append(TraceView("The nearest run that passes", result.passing_run))
    traces_markup = [view.markup(place.path, place.address) for view in views]
    lines = [tag("p", fact) for fact in facts if fact]
    return tag("div", tag("p", badge(result.verdict), " ", result.text), lines, traces_markup, class_="note")


@attrs.frozen
class TraceView:
    """A trace to open: a word for it, its steps (those from `loop` on repeat for ever), and the id of its table."""

    word: str
    trace: Trace
    loop: int | None = None
    id: str = ""

    def markup(self, path: str | None, address: str) -> Markup:
        """Return the trace as a table, for the document with this path, with a link that walks through it at an address."""
        trace = self.trace
        rows = [
            tag("tr", tag("td", "0"), tag("td", "start"), tag("td", trace.state), tag("td", show_values(trace.values)))
        ]
        for number, taken in enumerate(trace.steps, 1):
            effects = [*taken.effects, *(f"cancelled {effect}" for effect in taken.cancelled)]
            facts = ", ".join(filter(None, [show_values(taken.changed), *effects]))
            row = line_link(taken.row.span, path)
            cells = (number, show_occurrence(taken.occurrence), taken.state, join(facts, " " if facts else "", row))
            rows.append(tag("tr", [tag("td", cell) for cell in cells]))
        heads = tag("tr", [tag("th", name, scope="col") for name in ("", "event", "state", "changes")])
        body = tag("table", tag("thead", heads), tag("tbody", rows))
        table = tag("div", body, class_="scroll", tabindex="0", id=self.id or None)
        summary = tag("summary", f"{self.word}: {plural(len(trace.steps), 'step')}")
        return tag("details", summary, table, self._end(), self._walk(address) if address else None)

    def _end(self) -> Markup | None:
        count = len(self.trace.steps)
        if self.loop is None:
            return None
        is_round = self.loop < count
        return tag(
            "p",
            f"Then the run repeats {show_loop(self.loop, count)} for ever."
            if is_round
            else "After that, nothing happens any more.",
        )

    def _walk(self, address: str) -> Markup:
        """Return the link that walks through the trace in the explorer."""
        parameters = [
            (f"p.{name}", str(value).lower() if isinstance(value, bool) else value)
            for name, value in self.trace.parameters
        ]
        query = urlencode([*parameters, *(("do", show_occurrence(taken.occurrence)) for taken in self.trace.steps)])
        return tag("p", tag("a", "Walk through it in the explorer", href=f"{address}/explore?{query}"))


# -- the diagram -----------------------------------------------------------------------------------------------------------

#: How long a page waits for its diagram before it is shown without one, in seconds.
_PATIENCE_S = 0.25
#: The text in place of a diagram that is not drawn yet.
DRAWING = tag("p", "The diagram is being drawn.", class_="hint")


@lru_cache(maxsize=32)
def _svg(dot_text: str) -> str:
    return svg(dot_text)


def diagram(machine: Machine, marks: Mapping[str, str] | None = None) -> Markup:
    """Return the diagram of a machine, or why it cannot be drawn; `marks` are classes of its nodes."""
    try:
        return drawing(_svg(dot(machine)), f"Diagram of {machine.name}", marks)
    except (DsaError, SyntaxError) as fault:  # a SyntaxError: the drawing is not XML
        return tag("p", f"The diagram cannot be drawn: {fault}", class_="message")


def picture_marks(machine: Machine, lines: Sequence[int], states: Sequence[str]) -> dict[str, str]:
    """Return the classes of a diagram's nodes after the rows of these lines led through these states, the last of which is the present one."""
    from_lines = arrows_by_line(machine)
    marks = {from_lines[line]: "past" for line in lines if line in from_lines}
    boxes = [_box(machine, each) for each in states]
    marks |= dict.fromkeys(boxes, "past")
    return marks | {boxes[-1]: "now"}


def _box(machine: Machine, state: str) -> str:
    """Return the name of a state's box in the diagram; for a Steps document, its step."""
    step = state.rpartition(".")[2]
    return step if any(each.name == step for each in machine.steps) else state


def arrows_by_line(machine: Machine) -> dict[int, str]:
    """Return the name of the arrow in the diagram for each row, by its line."""
    if machine.steps:
        return {}
    arrows = enumerate(picture(machine).arrows, 1)
    return {row.row.span.line: f"arrow {number}" for number, arrow in arrows for row in arrow.rows if row.row.span}


class MachineDrawing:
    """The diagram of the newest machine, for a page that does not wait for it. `tell` is called when it is ready.

    One diagram is drawn at a time: while a document changes fast, those in between are left out.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.markup = EMPTY
        self._tell = tell
        self._machine: Machine | None = None
        self._machine_drawn: Machine | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the diagram of the newest machine is drawn."""
        return self._machine is not None and self._machine_drawn is self._machine

    def draw(self, machine: Machine | None) -> None:
        """Draw a machine from now on; None means nothing. The previous diagram stays until the new one is ready."""
        if machine is self._machine:
            return
        self._machine = machine
        if machine is None:
            self.markup = EMPTY
        elif self.markup is EMPTY:
            self.markup = DRAWING
        if machine is not None and self._task is None:
            self._task = asyncio.create_task(self._follow())

    async def wait(self) -> None:
        """Wait for the diagram for a moment: most are ready at once, and a page with its diagram does not jump."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_PATIENCE_S)

    async def _follow(self) -> None:
        """Draw until the newest machine is drawn."""
        try:
            while (machine := self._machine) is not None and not self.is_ready:
                markup = await asyncio.to_thread(diagram, machine)
                if machine is self._machine:
                    self.markup, self._machine_drawn = markup, machine
                    self._tell()
        finally:
            self._task = None
