"""The machine page: a document as written, its diagram, and each verdict at the line that it speaks of.

A `WatchedDocument` follows its file. When the file changes, it is read again, drawn, and checked in a thread; the check can be stopped. Pages wait for
the next version of its fragments.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from dsa.checks.report import CheckReport, PropertyResult, check, explored_text, totals_text
from dsa.edge.document_files import locate, read_document, read_text
from dsa.edge.images import RenderError, svg
from dsa.errors import Diagnostic, DocumentError, DsaError, MachineError
from dsa.lang import DocumentReading
from dsa.lang.markdown import Block, Bullet, Fence, Heading, MarkdownTable, ParagraphLine
from dsa.lang.markdown import read as read_markdown
from dsa.machine import Machine
from dsa.targets import dot
from dsa.targets.picture import picture
from dsa.text import plural, shorten
from dsa.trace import Trace, show_loop, show_occurrence, show_values
from dsa.web.markup import EMPTY, Fragments, Markup, badge, drawing, hidden_field, join, page, post_form, tag

#: The time between two looks at a file, and between two reports of progress, in seconds.
_LOOK_S = 0.25
#: The time limit of a check that nobody stops: none, but a clock can go beyond it.
_NO_LIMIT_S = 1e9
#: The most lines of a document that a page shows.
_MOST_LINES = 3_000
#: The most findings that are listed above a document.
_MOST_ITEMS = 20
_NOTHING = DocumentReading(None, ())


class WatchedDocument:
    """A document that pages show. `document_reading` is its last reading, `fault` why there is none, `report` the result of the last check."""

    def __init__(self, number: int, file: str) -> None:
        self.file, self.address = file, f"/machines/{number}"
        self.text, self.document_reading, self.fault = "", _NOTHING, ""
        self.report: CheckReport | None = None
        self._picture, self._table = EMPTY, EMPTY
        self._parts_shown: tuple[str, str, CheckReport | None] = ("", "", None)
        self._signature: tuple[int, int] | None = None
        self._activity = ""
        self._is_stopped = False
        self._work: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._change = asyncio.Event()

    @property
    def machine(self) -> Machine | None:
        """The machine of the document; None while it is not one."""
        return self.document_reading.machine

    def required_machine(self) -> Machine:
        """Return the machine as the file has it now. Raises DocumentError and MachineError."""
        self._read()
        if self.fault:
            raise DocumentError(self.file, self.fault)
        if self.document_reading.machine is None:
            raise MachineError(self.document_reading.diagnostics)
        return self.document_reading.machine

    def open(self) -> None:
        """Begin to follow the file, if nobody has yet."""
        self._read()
        if self._watch is None:
            self._watch = asyncio.create_task(self._follow())

    def check_again(self) -> None:
        """Check and draw the document anew; a check under way is stopped."""
        self.stop()
        self._signature = None
        self._read()

    def stop(self) -> None:
        """Stop the check; what it has found so far stays."""
        self._is_stopped = True

    @property
    def next_change(self) -> asyncio.Event:
        """The event that is set at the next change."""
        return self._change

    def fragments(self) -> Fragments:
        """Return the parts of the page as they are now."""
        parts = (self.text, self.fault, self.report)
        if self._parts_shown != parts:
            fault = tag("p", self.fault, class_="message", role="alert") if self.fault else None
            self._table = fault or join(document_markup(self.text, self.document_reading, self.report, self.address))
            self._parts_shown = parts
        return Fragments({"status": self._status(), "table": self._table, "diagram": self._picture})

    def _status(self) -> Markup:
        """Return what the check is doing or has found; each finding leads to its line."""
        stop = post_form(f"{self.address}/stop", hidden_field("stop", "1"), label="Stop the check")
        links = _links(self.address) if self.machine is not None else None
        if self._activity:
            return join(links, tag("p", self._activity, class_="activity"), stop)
        again = post_form(f"{self.address}/check", hidden_field("check", "1"), label="Check again", class_="quiet")
        report = self.report
        if report is None:
            count = plural(len(self.document_reading.diagnostics), "mistake")
            words = tag("p", badge("not a machine"), f" {count}: nothing is drawn or run until the document is one.")
            return join(words, _overview(self.document_reading, None), again)
        lines = [explored_text(each) for each in report.explorations]
        lines += [f"rests in: {', '.join(report.rests)}"] if report.rests else []
        totals = totals_text((*self.document_reading.diagnostics, *report.diagnostics), report)
        more = tag("details", tag("summary", "What was explored"), [tag("p", line) for line in lines])
        words = tag("p", badge(self.word), " ", totals)
        return join(links, words, _overview(self.document_reading, report), more if lines else None, again)

    @property
    def word(self) -> str:
        """What is known of the document, in a word or two."""
        if self.fault:
            return "error"
        if self._signature is None:
            return "not opened yet"
        if self.machine is None:
            return "not a machine"
        if self.report is None:
            return "checking"
        return "findings" if self.report.failed else "good"

    # -- following ---------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            self._read()

    def _read(self) -> None:
        """Read the file if it is not as it was."""
        signature = self._signature_now()
        if signature == self._signature and signature is not None:
            return
        self._signature, self.fault = signature, ""
        try:
            self.text, self.document_reading = read_text(locate(self.file)), read_document(self.file)
        except DocumentError as fault:
            self.text, self.document_reading, self.fault = "", _NOTHING, str(fault)
        self.report = None
        self.stop()
        if self.document_reading.machine is None:
            self._activity, self._picture = "", EMPTY
        else:
            self._activity, self._is_stopped = "checking", False
            self._work = asyncio.create_task(self._examine(self.document_reading.machine, self._work))
        self._tell()

    def _signature_now(self) -> tuple[int, int] | None:
        try:
            status = locate(self.file).stat()
        except (DocumentError, OSError):
            return (0, 0)
        return status.st_mtime_ns, status.st_size

    def _tell(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def _examine(self, machine: Machine, before: "asyncio.Task[None] | None") -> None:
        """Draw and check a machine, each in a thread; show the progress meanwhile."""
        if before is not None:
            await asyncio.wait({before})
        if machine is not self.document_reading.machine:
            return
        self._is_stopped, progress = False, list[str]()
        self._picture = await asyncio.to_thread(diagram, machine)
        self._tell()
        work = asyncio.create_task(asyncio.to_thread(self._check, machine, progress))
        while not work.done():
            await asyncio.wait({work}, timeout=_LOOK_S)
            if progress:
                self._activity = progress.pop()
                progress.clear()
                self._tell()
        if machine is self.document_reading.machine:
            self._activity = ""
            try:
                self.report = work.result()
            except DsaError as fault:
                self.fault = str(fault)
            self._tell()

    def _check(self, machine: Machine, progress: list[str]) -> CheckReport:
        def clock() -> float:
            return math.inf if self._is_stopped else time.perf_counter()

        def report_progress(states: int, depth: int) -> None:
            progress.append(f"checking: {plural(states, 'configuration')}, {plural(depth, 'step')} deep")

        return check(machine, time_limit_s=_NO_LIMIT_S, clock=clock, progress=report_progress)


def _links(address: str) -> Markup:
    number = address.rpartition("/")[2]
    explore = tag("a", "Explore", href=f"{address}/explore")
    return tag("p", explore, " · ", tag("a", "Start a run", href=f"/runs/new?machine={number}"))


def _overview(document: DocumentReading, report: CheckReport | None) -> Markup | None:
    """Return a list of what is wrong, each with a link to its line; None if nothing is."""
    findings = (*document.diagnostics, *(report.diagnostics if report else ()))
    items: list[tuple[str, int, str]] = [
        (each.severity, each.span.line, each.message) for each in findings if each.severity != "info"
    ]
    items += [(each.verdict, each.line, each.text) for each in (report.properties if report else ()) if each.failed]
    items += [("VIOLATED", each.line, each.message) for each in (report.scenarios if report else ()) if not each.ok]
    lines = [
        tag("li", badge(word), " ", tag("a", f"line {line}", href=f"#line{line}"), " ", shorten(text))
        for word, line, text in items[:_MOST_ITEMS]
    ]
    more = tag("li", f"{len(items) - _MOST_ITEMS} more below") if len(items) > _MOST_ITEMS else None
    return tag("ul", lines, more, class_="plain overview") if items else None


@lru_cache(maxsize=32)
def _svg(dot_text: str) -> str:
    return svg(dot_text)


def diagram(machine: Machine, marks: Mapping[str, str] | None = None) -> Markup:
    """Return the diagram of a machine, or why it cannot be drawn; `marks` are classes of its nodes."""
    try:
        return drawing(_svg(dot(machine)), f"Diagram of {machine.name}", marks)
    except (RenderError, SyntaxError) as fault:  # a SyntaxError: what was drawn is not XML
        return tag("p", f"The diagram cannot be drawn: {fault}", class_="message")


def picture_marks(machine: Machine, lines: Sequence[int], states: Sequence[str]) -> dict[str, str]:
    """Return the classes of a diagram's nodes after rows of these lines were taken through these states, the last of which is the present one."""
    from_lines = _arrows_by_line(machine)
    marks = {from_lines[line]: "past" for line in lines if line in from_lines}
    marks |= dict.fromkeys(states, "past")
    return marks | {states[-1]: "now"}


def _arrows_by_line(machine: Machine) -> dict[int, str]:
    """Return the name of the arrow in the diagram for each row, by its line."""
    if machine.steps:
        return {}
    arrows = enumerate(picture(machine).arrows, 1)
    return {row.row.span.line: f"arrow {number}" for number, arrow in arrows for row in arrow.rows if row.row.span}


# -- the document as written -----------------------------------------------------------------------------------------------


def document_markup(text: str, result: DocumentReading, report: CheckReport | None, address: str) -> Iterator[Markup]:
    """Yield a document block by block, with findings and verdicts below the lines that they speak of."""
    document = read_markdown(text, "")
    notes, elsewhere = _notes(result, report, len(document.lines), address)
    if elsewhere:
        yield tag("section", elsewhere, aria_label="Findings elsewhere")
    lines_shown = set[int]()
    for title in document.titles:
        yield tag("h2", title.text, id=f"line{title.line}")
        yield from _below(notes, title.line, lines_shown)
    yield from _blocks(document.preamble, notes, lines_shown)
    for section in document.sections:
        heading = section.heading
        yield tag("h3", heading.text, id=f"line{heading.line}")
        yield from _below(notes, heading.line, lines_shown)
        yield from _blocks(section.blocks, notes, lines_shown)
        if section.last > _MOST_LINES:
            yield tag("p", f"The lines after {section.last} are not shown here.", class_="message")
            break
    left_over = [note for line, each in sorted(notes.items()) if line not in lines_shown for note in each]
    if left_over:
        yield tag("section", left_over, aria_label="More findings")


def _notes(
    document: DocumentReading, report: CheckReport | None, lines: int, address: str
) -> tuple[dict[int, list[Markup]], list[Markup]]:
    """Return the findings and verdicts by their lines, and those of other documents."""
    notes: dict[int, list[Markup]] = {}
    elsewhere: list[Markup] = []
    paths = {each.claim.span.path for each in (report.properties if report else ()) if each.claim and each.claim.span}
    own = next(iter(paths)) if len(paths) == 1 else None
    for result in report.properties if report else ():
        notes.setdefault(result.line, []).append(_verdict(result, address))
    for finding in (*document.diagnostics, *(report.diagnostics if report else ())):
        is_here = (own is None or finding.span.path == own) and finding.span.line <= lines
        target = notes.setdefault(finding.span.line, []) if is_here else elsewhere
        target.append(_finding(finding, "" if is_here else f"{finding.span}: "))
    for scenario in report.scenarios if report else ():
        about = "runs as written" if scenario.ok else scenario.message
        word = "HOLDS" if scenario.ok else "VIOLATED"
        notes.setdefault(scenario.line, []).append(tag("div", badge(word), " ", about, class_="note"))
    return notes, elsewhere


def _below(notes: dict[int, list[Markup]], line: int, lines_shown: set[int]) -> Iterator[Markup]:
    lines_shown.add(line)
    yield from notes.get(line, ())


def _blocks(blocks: Iterable[Block], notes: dict[int, list[Markup]], lines_shown: set[int]) -> Iterator[Markup]:
    for is_prose, group in groupby(blocks, key=lambda block: isinstance(block, ParagraphLine)):
        blocks_here = tuple(group)
        if is_prose:
            yield from _paragraphs(blocks_here, notes, lines_shown)
            continue
        yield from _other_blocks(blocks_here, notes, lines_shown)


def _paragraphs(blocks: Iterable[Block], notes: dict[int, list[Markup]], lines_shown: set[int]) -> Iterator[Markup]:
    """Yield paragraphs: lines that follow each other are one."""
    cells = [block.text for block in blocks if isinstance(block, ParagraphLine)]
    for _, pairs in groupby(enumerate(cells), key=lambda each: each[1].line - each[0]):
        lines = [cell for _, cell in pairs]
        yield tag("p", " ".join(cell.text for cell in lines), id=f"line{lines[0].line}")
        for cell in lines:
            yield from _below(notes, cell.line, lines_shown)


def _other_blocks(blocks: Iterable[Block], notes: dict[int, list[Markup]], lines_shown: set[int]) -> Iterator[Markup]:
    for block in blocks:
        if isinstance(block, MarkdownTable):
            yield _table(block, notes, lines_shown)
        elif isinstance(block, Fence):
            yield tag("pre", block.content)
        else:
            cell = block.title if isinstance(block, Heading) else block.text
            name = "h4" if isinstance(block, Heading) else "p"
            yield tag(name, cell.text, id=f"line{cell.line}", class_="claim" if isinstance(block, Bullet) else None)
            yield from _below(notes, cell.line, lines_shown)


def _table(table: MarkdownTable, notes: dict[int, list[Markup]], lines_shown: set[int]) -> Markup:
    width = len(table.header.cells)
    heads = [tag("th", cell.text, scope="col") for cell in table.header.cells]
    head = tag("tr", tag("th", "line", scope="col", class_="line"), heads)
    rows = list[Markup]()
    for row in table.rows:
        line = row.span.line
        number = tag("td", line, class_="line")
        rows.append(tag("tr", number, [tag("td", cell.text) for cell in row.cells], id=f"line{line}"))
        below = list(_below(notes, line, lines_shown))
        rows += [tag("tr", tag("td", below, colspan=1 + width), class_="notes")] if below else []
    body = tag("table", tag("thead", head), tag("tbody", rows))
    of_header = list(_below(notes, table.header.span.line, lines_shown))
    return join(tag("div", body, class_="scroll", tabindex="0", role="region", aria_label="Table"), of_header)


def _finding(finding: Diagnostic, where: str = "") -> Markup:
    hint = tag("p", "Hint: ", finding.hint, class_="hint") if finding.hint else None
    text = tag("p", badge(finding.severity), " ", tag("code", finding.code), " ", where, finding.message)
    return tag("div", text, hint, class_="note")


def _verdict(result: PropertyResult, address: str) -> Markup:
    facts = [
        result.reason,
        f"{result.verdict} if {result.condition}" if result.condition else "",
        f"assuming: {'; '.join(result.assumes)}" if result.assumes else "",
        f"at {'; '.join(filter(None, map(show_values, result.values)))}" if any(result.values) else "",
    ]
    traces = [(result.trace, result.loop)] if result.trace is not None else []
    word = "Example" if result.verdict == "HOLDS" else "Counterexample"
    traces_markup = [_trace(word, trace, loop, address) for trace, loop in (*traces, *result.more)]
    if result.passing_run is not None:
        traces_markup.append(_trace("The nearest run that passes", result.passing_run, None, address))
    lines = [tag("p", fact) for fact in facts if fact]
    return tag("div", tag("p", badge(result.verdict), " ", result.text), lines, traces_markup, class_="note")


def _trace(word: str, trace: Trace, loop: int | None, address: str) -> Markup:
    rows = [tag("tr", tag("td", "0"), tag("td", "start"), tag("td", trace.state), tag("td", show_values(trace.values)))]
    for number, taken in enumerate(trace.steps, 1):
        effects = [*taken.effects, *(f"cancelled {effect}" for effect in taken.cancelled)]
        facts = ", ".join(filter(None, [show_values(taken.changed), *effects]))
        row = tag("a", f"line {taken.line}", href=f"#line{taken.line}") if taken.line else None
        cells = (number, show_occurrence(taken.occurrence), taken.state, join(facts, " " if facts else "", row))
        rows.append(tag("tr", [tag("td", cell) for cell in cells]))
    heads = tag("tr", [tag("th", name, scope="col") for name in ("", "event", "state", "changes")])
    ends = None
    if loop is not None:
        is_round = loop < len(trace.steps)
        ends = tag(
            "p", f"Then {show_loop(loop, len(trace.steps))} for ever." if is_round else "Then nothing, for ever."
        )
    query = urlencode([
        *((f"p.{name}", str(value).lower() if isinstance(value, bool) else value) for name, value in trace.parameters),
        *(("do", show_occurrence(taken.occurrence)) for taken in trace.steps),
    ])  # fmt: skip
    explore = tag("a", "Walk through it in the explorer", href=f"{address}/explore?{query}")
    table = tag("div", tag("table", tag("thead", heads), tag("tbody", rows)), class_="scroll", tabindex="0")
    return tag("details", tag("summary", f"{word}: {plural(len(trace.steps), 'step')}"), table, ends, tag("p", explore))


# -- addresses -------------------------------------------------------------------------------------------------------------


def machine_routes(documents: Sequence[WatchedDocument]) -> list[Route]:
    """Return the routes of the machine pages."""
    return [
        Route("/machines/{number:int}", with_document(documents, _show)),
        Route("/machines/{number:int}/live", with_document(documents, _live)),
        Route("/machines/{number:int}/check", with_document(documents, _check), methods=["POST"]),
        Route("/machines/{number:int}/stop", with_document(documents, _stop), methods=["POST"]),
    ]


def with_document(
    documents: Sequence[WatchedDocument], answer: Callable[[Request, WatchedDocument], Response]
) -> Callable[[Request], Response]:
    """Return a handler of requests whose address names a document."""

    async def handler(request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(documents):
            return HTMLResponse(
                page("No such machine", tag("h1", "No such machine"), "Choose one of the list.").html, 404
            )
        documents[number].open()
        return answer(request, documents[number])

    return handler


def _show(_request: Request, document: WatchedDocument) -> Response:
    fragments = document.fragments()
    name = document.machine.name if document.machine else Path(document.file).name
    whole = page(
        name,
        tag("h1", name),
        tag("p", tag("code", document.file)),
        tag(
            "div",
            tag("section", fragments.holders("status"), aria_label="Result of the check", role="status"),
            tag("section", fragments.holders("diagram"), aria_label="Diagram", class_="beside"),
            tag("section", fragments.holders("table"), aria_label="The document", class_="document"),
            class_="columns",
        ),
        live=f"{document.address}/live?have={'.'.join(fragments.digests)}",
        here="/",
    )
    return HTMLResponse(whole.html)


def _live(request: Request, document: WatchedDocument) -> Response:
    have = request.headers.get("last-event-id") or request.query_params.get("have", "")
    return StreamingResponse(_changes(document, have), media_type="text/event-stream")


async def _changes(document: WatchedDocument, have: str) -> AsyncIterator[str]:
    present = tuple(have.split("."))
    yield "retry: 500\n\n"
    while True:
        change = document.next_change
        now = document.fragments()
        if now.digests != present:
            yield event(".".join(now.digests), now.news(present))
            present = now.digests
        await change.wait()


def event(number: str, data: str) -> str:
    """Return a server-sent event; `number` comes back when a page connects again."""
    return f"id: {number}\ndata: {data}\n\n"


def _check(_request: Request, document: WatchedDocument) -> Response:
    document.check_again()
    return RedirectResponse(document.address, 303)


def _stop(_request: Request, document: WatchedDocument) -> Response:
    document.stop()
    return RedirectResponse(document.address, 303)
