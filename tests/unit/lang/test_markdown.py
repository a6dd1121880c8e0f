import pytest
from each_row import each_row

from dsa.errors import Span
from dsa.lang.markdown import Bullet, Cell, Fence, Heading, ParagraphLine, read, split_row

TABLE = "| a | b |\n| - | - |\n| 1 | 2 |\n"


def tables(text):
    return [table for section in read(text, "m.md").sections for table in section.tables]


def texts(line):
    return [cell.text for cell in split_row(line, "m.md", 1)]


def test_table_has_its_cells_and_their_places():
    (table,) = tables("## s\n\n" + TABLE)
    assert [[cell.text for cell in row.cells] for row in (table.header, *table.rows)] == [["a", "b"], ["1", "2"]]
    place = table.rows[0].cells[1].span()
    assert (place.path, place.line, place.column, place.end) == ("m.md", 5, 7, 8)
    assert (table.first, table.last) == (3, 5)


@each_row(
    "text",
    [
        "- item\n\n" + "".join(f"  {line}\n" for line in TABLE.splitlines()),
        "".join(f"> {line}\n" for line in TABLE.splitlines()),
        f"```\n{TABLE}```\n",
        f"~~~\n{TABLE}",
        f"<!--\n{TABLE}-->\n",
        "".join(f"    {line}\n" for line in TABLE.splitlines()),
        "| a | b |\n| - |\n| 1 | 2 |\n",
        "| a | b |\n| 1 | 2 |\n",
        "| a | b |\n| = | = |\n| 1 | 2 |\n",
        "| a | b |\n\n| - | - |\n",
    ],
    ids=["list", "quote", "fence", "open fence", "comment", "indented code", "short dashes", "no dashes", "not dashes", "gap"],
)  # fmt: skip
def test_text_that_github_does_not_show_as_a_table_is_not_a_table(text):
    assert tables("## s\n\n" + text) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_do_not_matter(end):
    text = ("# m\n\n## s\n\n" + TABLE).replace("\n", end)
    (table,) = tables(text)
    assert table.rows[0].cells[1].span().line == 7
    assert tables(text.rstrip("\r\n"))[0].rows == table.rows


@each_row(
    ("line", "expected"),
    [
        ("| a | b |", ["a", "b"]),
        ("a | b", ["a", "b"]),
        ("| a | b", ["a", "b"]),
        ("a | b |", ["a", "b"]),
        ("| a | |", ["a", ""]),
        ("| | b |", ["", "b"]),
        ("||b|", ["", "b"]),
        (r"| a \| b | c |", ["a | b", "c"]),
        (r"| `a \| b` |", ["`a | b`"]),
        ("| `a | b` |", ["`a", "b`"]),
        (r"| a \\| b |", [r"a \| b"]),
        ("|\ta\t|  b  |", ["a", "b"]),
        ("| a\x0cb | c\u2028d |", ["a\x0cb", "c\u2028d"]),
        ("", []),
    ],
)
def test_cells_are_split_as_github_splits_them(line, expected):
    assert texts(line) == expected


def test_columns_are_correct_after_escaped_pipes():
    line = r"| a \| b \| c | d |"
    first, second = split_row(line, "m.md", 1)
    place = first.span(first.text.index("c"))
    assert line[place.column - 1 : place.end - 1] == "c"
    assert line[second.column - 1] == "d"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`x`", "x"),
        ("`` `x` ``", "`x`"),
        ("`a` and `b`", "`a` and `b`"),
        ("x", "x"),
        ("``", "``"),
        ("` x `", "x"),
        ("`x", "`x"),
    ],
)
def test_backticks_around_a_whole_cell_are_removed(text, expected):
    assert Cell(text, "m.md", 1, 1, text).plain == expected


def test_headings_of_both_styles_open_sections():
    document = read("Title\n=====\n\nTransitions: results\n---\n\n## Cases: `g` ##\n\n##\n", "m.md")
    assert [title.text for title in document.titles] == ["Title"]
    assert [(s.kind, s.name) for s in document.sections] == [("transitions", "results"), ("cases", "g"), ("", "")]
    assert document.sections[0].heading.span().line == 4


def test_underlined_heading_does_not_belong_to_its_section():
    (section,) = read("Constraints\n---\nNo network.", "m.md").sections
    assert (section.first, section.last) == (2, 3)


def test_heading_over_two_lines_is_one_line_of_text():
    (section,) = read("Scenario: one\n  two\n---\n", "m.md").sections
    assert section.name == "one two"
    assert section.heading.span().end == len("Scenario: one") + 1


def test_blocks_are_found_with_their_lines():
    (section,) = read("## s\n\none\ntwo\n\n- a\n- b\n  c\n\n### T\n```py\nx\n```\n", "m.md").sections
    one, two, a, b, heading, fence = section.blocks
    assert isinstance(one, ParagraphLine)
    assert isinstance(two, ParagraphLine)
    assert (one.text.line, two.text.line) == (3, 4)
    assert isinstance(a, Bullet)
    assert isinstance(b, Bullet)
    assert (a.text.text, b.text.text) == ("a", "b c")
    assert isinstance(heading, Heading)
    assert heading.level == 3
    assert isinstance(fence, Fence)
    assert fence.content == "x\n"


def test_bullet_over_several_lines_has_the_place_of_each_word():
    (section,) = read("## s\n- always a and\n  b or\nc\n", "m.md").sections
    text = section.blocks[0].text
    assert text.text == "always a and b or c"
    places = [
        (place.line, place.column, place.end) for place in (text.span(*word) for word in ((0, 6), (13, 14), (18, 19)))
    ]
    assert places == [(2, 3, 9), (3, 3, 4), (4, 1, 2)]
    assert text.span().end == len("- always a and") + 1


def test_byte_order_mark_does_not_belong_to_the_text():
    document = read("\ufeff# m\n", "m.md")
    assert document.titles[0].text == "m"
    assert document.titles[0].column == 4


def test_line_may_contain_any_character():
    for character in "\x00\x0b\x0c\x1c\x85\u2028\u2029\ufeff\ud800":
        document = read(f"# m\n\nprose{character}prose\n\n## s\n{TABLE}", "m.md")
        assert document.sections[0].tables[0].rows[0].cells[0].line == 8
        assert len(document.lines) == 9


def test_lines_of_form_feeds_do_not_shift_the_place_of_a_heading():
    document = read("\x0c\nTitle here\n===\n", "m.md")
    assert document.titles[0].text == "Title here"
    assert document.titles[0].span() == Span("m.md", 2, 1, 11, "Title here")
