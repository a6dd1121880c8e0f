"""Formatting changes tables of the language and nothing else, and applied twice it changes nothing more."""

import re

from documents import shipped_texts
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from sample_sizes import sample_size

from dsa.lang import format_document, loads, read_machine
from dsa.lang.cells import COLUMNS
from dsa.lang.markdown import read, split_row

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=sample_size(48, full=300))
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")

pieces = st.sampled_from(
    ("|", "|", "\\|", "\\\\|", "\\", "`", "``", " ", "\t", "a", "b c", "é", "-", "---", ":", "*", "#", "<!--", "&amp;", "\x0c", "\x0b", "\x1c", "\x85", "\u2028", "\xa0", "\ufeff", "\u202e", "[x](y)", "0..rmax", "x+1", "not  x", "else  and y", "{a,b}", "g.passed", "a ,b")
)  # fmt: skip
cells = st.lists(pieces, max_size=3).map("".join)
lines = st.lists(pieces, max_size=8).map("".join)
ends = st.sampled_from(("\n", "\r\n", "\r"))


@st.composite
def tables(draw):
    """Draw the lines of a table; some rows have a cell too many or too few, and some outer pipes are missing."""
    header = draw(st.lists(st.sampled_from(("source", "event", "if", "update", "effects", "target", "note", "domain", "x")), min_size=1, max_size=4))  # fmt: skip
    rule = [draw(st.sampled_from(("---", ":-", "-:", ":---:", "-"))) for _ in header]
    body = [[draw(cells) for _ in range(len(header) + draw(st.sampled_from((0, 0, 0, -1, 1))))] for _ in range(draw(st.integers(0, 4)))]  # fmt: skip
    outer = draw(st.sampled_from(("| {} |", "{} |", "| {}", "{}", "  | {} |  ")))
    return [outer.format(" | ".join(row)) for row in (header, rule, *body)]


@st.composite
def documents(draw):
    """Draw prose, tables in sections of the language and elsewhere, with mixed line ends."""
    blocks = draw(
        st.lists(
            st.one_of(
                tables(),
                tables(),
                st.lists(lines, max_size=3),
                st.sampled_from(
                    (*([f"## {kind.title()}"] for kind in COLUMNS), ["## Other"], ["# m"], ["```"], ["<!--"], ["> q"], ["- item"], ["Events", "---"])
                ),
                st.just([""]),
            ),
            max_size=10,
        )
    )  # fmt: skip
    return "".join(line + draw(ends) for block in blocks for line in (*block, ""))


def table_lines_of(text):
    """Return the numbers of the lines of tables in sections of the language, from 0."""
    sections = (section for section in read(text, "").sections if section.kind in COLUMNS)
    return {n for section in sections for table in section.tables for n in range(table.first - 1, table.last)}


@SLOW
@given(documents())
def test_prose_and_other_tables_are_unchanged_byte_for_byte(text):
    laid_out = format_document(text)
    before, after = _LINE.findall(text), _LINE.findall(laid_out)
    assert len(before) == len(after)
    ours = table_lines_of(text)
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if number not in ours:
            assert new == old
        assert new[len(new.rstrip("\r\n")) :] == old[len(old.rstrip("\r\n")) :]


@SLOW
@given(documents())
def test_formatting_twice_changes_nothing_more(text):
    laid_out = format_document(text)
    assert format_document(laid_out) == laid_out


@SLOW
@given(documents())
def test_cells_that_are_not_expressions_keep_their_text(text):
    """Notes, targets and updates are never rewritten, only moved."""
    kept = {"note", "target", "update", "domain", "x"}
    for old, new in zip(_cells(text), _cells(format_document(text)), strict=True):
        assert [c for c in old if c[0] in kept] == [c for c in new if c[0] in kept]


def _cells(text):
    sections = [section for section in read(text, "").sections if section.kind in COLUMNS]
    return [
        [
            (head.text, cell.text)
            for row in table.rows
            for head, cell in zip(table.header.cells, row.cells, strict=False)
        ]
        for section in sections
        for table in section.tables
    ]


@given(st.sampled_from(shipped_texts()), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40, phases=(Phase.generate,))
def test_document_means_the_same_when_its_tables_are_squeezed_and_formatted(text, chance):
    squeezed = re.sub(r" +\|", lambda match: chance.choice((match[0], " |", "|")), text)
    squeezed = re.sub(r"(?<!\\)\| +", lambda match: chance.choice((match[0], "| ", "|")), squeezed)
    machine = read_machine(text).machine
    assert machine is not None
    if read_machine(squeezed).machine is not None:
        assert loads(format_document(squeezed)) == machine
    assert loads(format_document(text)) == machine


READER = MarkdownIt("commonmark").enable("table")


def github_rows(text):
    """Return the rows of the tables at the top level as markdown-it has them: each its line and its cells."""
    rows, cells = [], None
    for token in READER.parse(text):
        if token.type == "tr_open" and token.level <= 2:
            cells = []
            rows.append(cells)
        elif token.type == "tr_close":
            cells = None
        elif token.type == "inline" and cells is not None:
            cells.append(token.content)
    return rows


@settings(deadline=None, max_examples=sample_size(90, full=600))
@given(st.lists(lines, min_size=1, max_size=4), st.integers(1, 3), ends, st.booleans())
def test_cells_are_split_as_on_github(body, count, end, has_pipes):
    # A heading ends the section that is looked at.
    assume(not any(re.match(r" {0,3}#{1,6}(\s|$)", line) for line in body))
    rule = " | ".join(["---"] * count)
    header = "|" + "|".join(["h"] * count) + "|"
    text = end.join([header, f"|{rule}|" if has_pipes or count == 1 else rule, *body])
    theirs = github_rows(text)
    ours = [row for block in read("## s" + end + text, "").sections[0].tables for row in (block.header, *block.rows)]
    assert len(ours) == len(theirs)
    for row, expected in zip(ours, theirs, strict=True):
        # GitHub fills up short rows and drops what is too much; for us both are findings.
        texts = [cell.text for cell in row.cells]
        assert (texts + [""] * len(expected))[: len(expected)] == expected
        for cell in row.cells:
            place = cell.span()
            assert place.text[place.column - 1 : place.end - 1].replace("\\|", "|") == cell.text


@given(lines)
@settings(deadline=None, max_examples=sample_size(48, full=300))
def test_every_character_outside_the_pipes_is_in_some_cell(line):
    cells = split_row(line, "m.md", 1)
    whole = "".join(cell.text for cell in cells)
    assert re.sub(r"[\s|\\]", "", whole) == re.sub(r"[\s|\\]", "", line)
