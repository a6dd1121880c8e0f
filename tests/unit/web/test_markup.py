"""Markup: any text stays a text, and drawings keep only known shapes."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsa.edge.images import svg
from dsa.lang import loads
from dsa.targets import dot
from dsa.text import printable
from dsa.web.markup import Fragments, Markup, badge, drawing, join, page, tag


class Reader(HTMLParser):
    """Collects what a browser reads: elements with attributes, and texts."""

    def __init__(self, markup: Markup) -> None:
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(markup.html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)


@given(st.text())
def test_text_and_attribute_values_are_escaped(text):
    reader = Reader(tag("p", text, title=text, data_name=text))
    assert reader.elements == [("p", {"title": printable(text), "data-name": printable(text)})]
    assert "".join(reader.texts) == printable(text)


@given(st.text())
def test_text_of_a_page_makes_no_element(text):
    plain, mean = Reader(page("a", tag("h1", "a"))), Reader(page(text, tag("h1", text)))
    assert [tag for tag, _ in mean.elements] == [tag for tag, _ in plain.elements]


@pytest.mark.parametrize("name", ["onclick", "style", "srcdoc"])
def test_attribute_that_runs_code_is_refused(name):
    with pytest.raises(AssertionError, match="would run code"):
        tag("p", **{name: "x"})


@pytest.mark.parametrize("at", ["javascript:alert(1)", "//evil.example", "https://evil.example", "/\\evil.example", ""])
def test_address_of_another_server_is_refused(at):
    with pytest.raises(AssertionError, match="address"):
        tag("a", "x", href=at)


@pytest.mark.parametrize("name", ["iframe", "object", "base", "style", "p onclick"])
def test_element_that_loads_or_styles_is_refused(name):
    with pytest.raises(AssertionError):
        tag(name)


def test_true_attributes_have_no_value_and_false_ones_are_omitted():
    assert tag("input", checked=True, required=False, value=None, name="a").html == '<input checked name="a">'


def test_content_may_be_nested():
    assert join("<", 1, None, [tag("b", "&"), ["x"]]).html == "&lt;1<b>&amp;</b>x"


def test_badge_is_followed_by_the_rest_of_its_text():
    assert badge("granted", "granted: 3 days").html == '<span class="badge granted">granted</span> 3 days'


def test_fragments_send_only_what_differs():
    fragments = Fragments({"status": tag("p", "a"), "table": tag("p", "b")}, {"idle": "now"})
    assert fragments.news(fragments.digests[:1]) == '{"replace": {"table": "<p>b</p>"}, "marks": {"idle": "now"}}'


def test_drawing_keeps_known_shapes_and_marks_groups():
    text = (
        "# m\n\n## Events\n| event | from |\n| --- | --- |\n| go | outside |\n\n## States\n| state | kind |\n| --- | --- |\n| idle | initial |\n"
        "| done | final |\n\n## Transitions\n| source | event | target |\n| --- | --- | --- |\n| idle | go | done |\n"
    )
    figure = drawing(svg(dot(loads(text, "m.md"))), "A picture", {"idle": "now"})
    elements = Reader(figure).elements
    assert {tag for tag, _ in elements} <= {"div", "svg", "g", "path", "polygon", "ellipse", "text"}
    assert {values["data-name"] for _, values in elements if "now" in values.get("class", "").split()} == {"idle"}
    assert not any(name in values for _, values in elements for name in ("style", "onload", "href", "xlink:href"))


def test_drawing_omits_elements_that_are_not_shapes():
    mean = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><a href="x"><text onclick="y">t</text></a><text style="z">u</text></svg>'
    figure = drawing(mean, "A picture")
    assert "<script" not in figure.html
    assert "onclick" not in figure.html
    assert figure.html.endswith("<text>u</text></svg></div>")
