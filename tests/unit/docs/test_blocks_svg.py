"""Drawings in pages: nothing from another host, no ids that could occur twice, and a seal over drawing and source."""

import re

import pytest

from dsa.docs.blocks import inline, is_fresh, is_sealed, seal_svg
from dsa.edge.document_files import load
from dsa.edge.images import portable_svg
from dsa.targets import dot

DOT = dot(load("dual_state"))


@pytest.fixture(scope="module")
def drawn():
    return portable_svg(DOT)


def test_inline_drawing_is_one_element_that_names_no_other_host(drawn):
    text = inline(drawn, 'a "b" <c>')
    assert text.startswith("<svg ")
    assert text.endswith("</svg>")
    assert "//" not in text
    assert not re.search(r"<!|\bid=|<title|ns0:", text)
    assert 'role="img" aria-label="a &quot;b&quot; &lt;c&gt;"' in text


def test_inline_drawing_keeps_every_text(drawn):
    def words(svg):
        return re.findall(r"<text [^>]*>([^<]*)</text>", svg)

    assert words(inline(drawn, "x")) == words(drawn)
    assert "retries &lt; rmax]" in " ".join(words(drawn))


def test_sealed_drawing_is_fresh_until_it_or_its_source_changes(drawn):
    text = seal_svg(drawn, "x", DOT)
    assert text.startswith('<svg xmlns="http://www.w3.org/2000/svg" ')
    assert (is_sealed(text), is_fresh(text, DOT)) == (True, True)
    assert not is_fresh(text, f"{DOT} ")
    changed = text.replace("generating", "GENERATING", 1)
    assert (is_sealed(changed), is_fresh(changed, DOT)) == (True, False)
    assert not is_sealed(drawn)


def test_another_renderer_does_not_make_a_drawing_stale(drawn):
    assert is_fresh(seal_svg(drawn.replace("Helvetica", "Arial"), "x", DOT), DOT)
