"""Markers of blocks in Markdown pages: which are read, which are faults, and the contents between them."""

import pytest

from dsa.docs.pages import BLOCKS, may_have_markers, read_markers

PAGE = """# A page

<!-- dsa:diagram machine.md format=svg file="two words.svg" -->
old
<!-- /dsa -->

<!--dsa:table ../m.md grouped rows-->
<!-- /dsa -->
"""


def faults_of(text):
    return [(fault.span.line, fault.message) for fault in read_markers(text, "p.md").faults]


def test_blocks_are_read_with_documents_options_and_lines():
    page = read_markers(PAGE, "p.md")
    assert page.faults == ()
    assert [(b.kind, b.document, b.options, b.line, b.last) for b in page.blocks] == [
        ("diagram", "machine.md", (("format", "svg"), ("file", "two words.svg")), 3, 5),
        ("table", "../m.md", (("grouped", ""), ("rows", "")), 7, 8),
    ]


def test_contents_replace_the_text_between_the_markers():
    page = read_markers(PAGE, "p.md")
    new = page.with_contents(["a\nb", "c"])
    assert new == PAGE.replace("old\n", "\na\nb\n\n").replace("rows-->\n", "rows-->\n\nc\n\n")
    assert page.stale(["a\nb", "c"]) == (True, True)
    assert read_markers(new, "p.md").stale(["a\nb", "d"]) == (False, True)


def test_line_ends_are_those_of_the_opening_marker():
    page = read_markers("x\n<!-- dsa:table m -->\r\n<!-- /dsa -->", "p.md")
    assert page.with_contents(["a\nb"]) == "x\n<!-- dsa:table m -->\r\n\r\na\r\nb\r\n\r\n<!-- /dsa -->"


@pytest.mark.parametrize(
    "text",
    [
        "```\n<!-- dsa:diagramm x -->\n```\n",
        "~~~markdown\n<!-- dsa:diagram x -->\n~~~\n",
        "    <!-- dsa:diagram x -->\n",
        "- a\n\n  ```\n  <!-- /dsa -->\n  ```\n",
        "in `<!-- dsa:diagram x -->` code\n",
        "<!-- dsa is a program -->\n",
        "<!-- example: dsa:diagram -->\n",
        "dsa:diagram machine.md\n",
    ],
)
def test_markers_in_code_and_other_comments_are_ignored(text):
    page = read_markers(text, "p.md")
    assert (page.blocks, page.faults) == ((), ())


END = "\n<!-- /dsa -->\n"


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("<!-- dsa:diagram m -->\n", 1, "the block diagram is not closed before the end of the page", "write <!-- /dsa -->"),
        ("<!-- dsa:table m -->\n<!-- dsa:diagram m -->" + END, 1, "the block table is not closed before the next one in line 2", "write <!-- /dsa -->"),
        ("a\n\n<!-- /dsa -->\n", 3, "this marker closes nothing", "or delete it"),
        ("<!-- dsa:diagramm m -->" + END, 1, "there is no block 'diagramm'", "did you mean 'diagram'?"),
        ("<!-- dsa: -->" + END, 1, "there is no block ''", "'diagram', 'scenarios', 'table', 'verdicts'"),
        ("<!-- dsa:diagram -->" + END, 1, "the block diagram does not name a document", "dsa:diagram PATH"),
        ("<!-- dsa:diagram m formt=svg -->" + END, 1, "the block diagram has no option 'formt'", "did you mean 'format'?"),
        ("<!-- dsa:scenarios m rows -->" + END, 1, "the block scenarios has no option 'rows'", "it has no options"),
        ("<!-- dsa:diagram m format=png -->" + END, 1, "'png' is not a value of the option 'format'", "format=mermaid, format=svg"),
        ("<!-- dsa:diagram m format -->" + END, 1, "the option 'format' needs a value", "format=mermaid"),
        ("<!-- dsa:table m rows=2 -->" + END, 1, "the option 'rows' takes no value", "write rows alone"),
        ("<!-- dsa:table m rows rows -->" + END, 1, "the option 'rows' is there twice", "delete one"),
        ("<!-- dsa:diagram m file=x.svg -->" + END, 1, "only a diagram with format=svg is written to a file", "add format=svg"),
        ("<!-- dsa:diagram m format=svg direction=LR -->" + END, 1, "the option 'direction' is for Mermaid", "delete direction"),
        ('<!-- dsa:diagram "m -->' + END, 1, "a quotation mark is not closed", '"two words"'),
        ("- a\n\n  <!-- dsa:diagram m -->\n  <!-- /dsa -->\n", 3, "this marker is not read", "at the left margin"),
        ("> <!-- dsa:diagram m -->\n> <!-- /dsa -->\n", 1, "this marker is not read", "at the left margin"),
        ("<details>\n<!-- dsa:diagram m -->\n</details>\n", 2, "this marker is not read", "with an empty line before it"),
        ("text <!-- dsa:diagram m -->\n", 1, "this marker is not read", "in one line of its own"),
        ("a\nb <!-- /dsa -->\n", 2, "this marker is not read", "write <!-- /dsa --> in one line of its own"),
        ("| a |\n|---|\n| <!-- dsa:diagram m --> |\n", 3, "this marker is not read", "in one line of its own"),
        ("<!-- dsa:diagram m -->" + END.replace("-->", "--> text"), 2, "this marker is not read", "write <!-- /dsa -->"),
        ("<!-- dsa:diagram\nm -->" + END, 1, "this marker is not read", "in one line of its own"),
        ("<!-- dsa:diagram m\n", 1, "this marker is not read", "in one line of its own"),
        ("<!-- dsa:diagram m -->\n<!-- /dsa:diagram -->\n", 2, "this marker is not read", "write <!-- /dsa -->"),
        ("<!-- dsa:table a --> <!-- dsa:table b -->" + END, 1, "this marker is not read", "in one line of its own"),
    ],
)  # fmt: skip
def test_bad_marker_is_one_fault_with_its_line_and_a_hint(text, line, message, hint):
    (fault,) = read_markers(text, "p.md").faults
    assert fault.span.line == line
    assert message in fault.message
    assert hint in fault.hint
    assert str(fault).startswith(f"p.md:{line}:{fault.span.column}: ")


def test_every_fault_of_a_page_is_reported():
    text = "<!-- dsa:x m -->\n<!-- /dsa -->\n\na <!-- dsa:table m -->\nb <!-- dsa:table m -->\n\n<!-- dsa:table m -->\n"
    assert [line for line, _ in faults_of(text)] == [1, 4, 5, 7]


def test_open_fence_hides_the_closing_marker():
    text = "<!-- dsa:diagram m -->\n```mermaid\n<!-- /dsa -->\n"
    assert faults_of(text) == [(1, "the block diagram is not closed before the end of the page")]


def test_byte_order_mark_does_not_hide_a_marker():
    page = read_markers("\ufeff<!-- dsa:table m -->\n<!-- /dsa -->\n", "p.md")
    assert [block.line for block in page.blocks] == [1]
    assert page.with_contents(["x"]).startswith("\ufeff<!-- dsa:table m -->\n\nx\n")


@pytest.mark.parametrize("kind", BLOCKS)
def test_each_block_is_read_without_options(kind):
    assert [block.kind for block in read_markers(f"<!-- dsa:{kind} m -->{END}", "p.md").blocks] == [kind]


def test_only_pages_with_marker_like_text_may_have_markers():
    assert not may_have_markers("# dsa:diagram <!-- comment -->")
    assert may_have_markers("<!--dsa:x-->")
    assert may_have_markers("<!-- / dsa -->")
