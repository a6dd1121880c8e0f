"""Pages with blocks: writing them twice is the same as once, and no text outside the blocks ever changes."""

import re
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sample_sizes import sample_size

from dsa.docs.pages import Library, MarkedText, draft, read_markers

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=sample_size(48, full=300))
END = "<!-- /dsa -->"

LIBRARY = Library()  # of shipped documents alone, which do not change
_AFTER_LINE = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")

pieces = st.sampled_from(
    ("a", "*b*", "| x | y |", "|---|---|", "```", "````", "~~~", "    ", "  ", "- ", "> ", "# ", "<details>", "</details>", "<!--", "-->", "<!-- x -->", "`", "<pre>", "\t", "\x0c", "\x85", "\u2028", "\ufeff", "é", "\x00", END, "<!-- dsa:table dual_state -->", "<!-- dsa:x -->")
)  # fmt: skip
lines = st.lists(pieces, max_size=4).map("".join)
ends = st.sampled_from(("\n", "\n", "\r\n", "\r"))
openings = st.sampled_from(
    (
        "<!-- dsa:diagram dual_state -->",
        "<!-- dsa:table workflow -->",
        "  <!--dsa:table dual_state grouped-->",
        "<!-- dsa:verdicts dual_state format=line -->",
        "<!-- dsa:verdicts specs/dual_state -->",
        "<!-- dsa:scenarios dual_state -->",
    )
)


@st.composite
def pages(draw, prose):
    """Draw a page: prose, and blocks with something old in them; lines end in any way, the last one perhaps not at all."""
    found = []
    for _ in range(draw(st.integers(0, 4))):
        found += draw(st.lists(prose, max_size=4))
        if draw(st.booleans()):
            found += ["", draw(openings), *draw(st.lists(prose, max_size=3)), "", END]
    return "".join(line + draw(ends) for line in found) + draw(prose)


def outside(page: MarkedText) -> list[str]:
    """Return the text outside the blocks of a page, their markers included."""
    kept = re.split(_AFTER_LINE, page.text)
    for block in reversed(page.blocks):
        kept[block.line : block.last - 1] = ["(block)"]
    return kept


@SLOW
@given(pages(lines), st.text("ab\n<>!-` ", max_size=12))
def test_text_outside_blocks_is_unchanged(text, content):
    page = read_markers(text, "p.md")
    new = page.with_contents([content for _ in page.blocks])
    found = re.split(_AFTER_LINE, new)
    added, shift = len(content.split("\n")) + 2, 0
    for block in page.blocks:
        found[block.line - shift : block.line - shift + added] = ["(block)"]
        shift += block.last - block.line - 2
    assert found == outside(page)


@SLOW
@given(pages(st.sampled_from(("", "words", "| x |", "é\u2028", "- item", "# title", "> quoted", "`<!-- dsa:x -->`"))))
def test_written_page_is_fresh(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "p.md")
        path.write_bytes(text.encode("utf-8"))
        first = draft(path, LIBRARY)
        assume(not first.faults)  # an indented marker may have come into a list
        first.write()
        written = path.read_bytes()
        second = draft(path, LIBRARY)
        assert (second.faults, second.is_stale) == ((), False)
        second.write()
        assert path.read_bytes() == written
        assert outside(read_markers(written.decode(), "p.md")) == outside(read_markers(text, "p.md"))
