"""The document as written: each finding, verdict and further note stands below the line that it speaks of."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from urllib.parse import urlencode

import attrs

from dsa.checks.report import CheckReport, PropertyResult
from dsa.errors import Diagnostic
from dsa.lang import DocumentReading
from dsa.lang.markdown import Block, Bullet, Fence, Heading, MarkdownTable, ParagraphLine
from dsa.lang.markdown import read as read_markdown
from dsa.text import plural, shorten
from dsa.trace import Trace, show_loop, show_occurrence, show_values
from dsa.web.markup import Markup, badge, join, tag

#: The most lines of a document that a page shows.
_MOST_LINES = 3_000
#: The most findings that are listed above a document.
_MOST_ITEMS = 20


@attrs.frozen
class DocumentVerdicts:
    """What is known of a document: its reading, the result of the check once there is one, and further notes by their lines."""

    document_reading: DocumentReading
    report: CheckReport | None = None
    notes: Mapping[int, Sequence[Markup]] = attrs.field(factory=dict)


def overview(document: DocumentReading, report: CheckReport | None) -> Markup | None:
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


# -- the document as written -----------------------------------------------------------------------------------------------


def document_markup(text: str, verdicts: DocumentVerdicts, address: str) -> Iterator[Markup]:
    """Yield a document block by block, with findings and verdicts below the lines that they speak of."""
    document = read_markdown(text, "")
    notes, elsewhere = _notes(verdicts, len(document.lines), address)
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


def _notes(verdicts: DocumentVerdicts, lines: int, address: str) -> tuple[dict[int, list[Markup]], list[Markup]]:
    """Return the findings and verdicts by their lines, and those of other documents."""
    document, report = verdicts.document_reading, verdicts.report
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
    for line, more in verdicts.notes.items():
        notes.setdefault(line, []).extend(more)
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
    traces_markup = [trace_markup(word, trace, loop, address) for trace, loop in (*traces, *result.more)]
    if result.passing_run is not None:
        traces_markup.append(trace_markup("The nearest run that passes", result.passing_run, None, address))
    lines = [tag("p", fact) for fact in facts if fact]
    return tag("div", tag("p", badge(result.verdict), " ", result.text), lines, traces_markup, class_="note")


def trace_markup(word: str, trace: Trace, loop: int | None, address: str) -> Markup:
    """Return a trace as a table to open, with a link that walks through it at an address; its steps from `loop` on go on for ever."""
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
    explore = (
        tag("p", tag("a", "Walk through it in the explorer", href=f"{address}/explore?{query}")) if address else None
    )
    table = tag("div", tag("table", tag("thead", heads), tag("tbody", rows)), class_="scroll", tabindex="0")
    return tag("details", tag("summary", f"{word}: {plural(len(trace.steps), 'step')}"), table, ends, explore)
