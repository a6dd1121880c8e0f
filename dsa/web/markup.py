"""Markup: HTML and SVG in which a text cannot become an element, an attribute or a program.

A page consists of `Markup`, which only `tag` makes: a `str` inside is a text and is always escaped. Texts of models, people and
files are strings. `tag` also refuses what would run code: attributes `on..` and `style`, and addresses that lead elsewhere.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from hashlib import blake2b
from html import escape
from pathlib import Path
from typing import TypeAlias
from xml.etree import ElementTree as ET

import attrs

from dsa.text import printable

#: Texts up to this size are shown whole; longer ones scroll.
_SHORT_TEXT, _FEW_LINES = 600, 12
#: The attributes with addresses; each must be a path of this server.
_ADDRESSES = frozenset({"href", "src", "action", "formaction"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9:-]*")
_VOID = frozenset({"input", "img", "link", "meta", "br", "hr"})
_FORBIDDEN_TAGS = frozenset({"iframe", "object", "embed", "base", "style", "foreignObject"})


@attrs.frozen
class Markup:
    """A piece of HTML. `tag`, `join` and `drawing` make it."""

    html: str

    @property
    def digest(self) -> str:
        """A short digest of the piece, from which pages know whether they already show it."""
        return blake2b(self.html.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


Content: TypeAlias = "Markup | str | int | Iterable[Content] | None"
Attribute = str | int | bool | None
EMPTY = Markup("")


def join(*content: Content) -> Markup:
    """Return the pieces one after the other; strings and numbers are escaped."""
    return Markup("".join(_pieces(content)))


def _pieces(content: Content) -> Iterable[str]:
    if content is None:
        return
    if isinstance(content, Markup):
        yield content.html
    elif isinstance(content, str | int):
        yield escape(printable(str(content)))
    else:
        for each in content:
            yield from _pieces(each)


def tag(name: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """Return an element. `class_` is the attribute `class`, `data_row` is `data-row`; True is an attribute without a value; None and False leave it out."""
    attributes_text = [_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()]
    return _element(name, "".join(attributes_text), join(*content))


def _element(name: str, attributes: str, content: Markup) -> Markup:
    assert _NAME.fullmatch(name), name
    assert name not in _FORBIDDEN_TAGS, name
    opening = f"<{name}{attributes}>"
    return Markup(opening if name in _VOID else f"{opening}{content.html}</{name}>")


def _attribute(name: str, value: Attribute) -> str:
    assert _NAME.fullmatch(name), name
    assert not name.startswith("on"), f"{name} would run code"
    assert name not in {"style", "srcdoc"}, f"{name} would run code"
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = str(value)
    if name in _ADDRESSES:
        assert text[:1] in {"/", "?", "#"}, f"an address of this server must begin with /: {text}"
        assert text[:2] not in {"//", "/\\"}, f"an address of another server: {text}"
    return f' {name}="{escape(printable(text))}"'


# -- pages ---------------------------------------------------------------------------------------------------------------


def page(title: str, *content: Content, live: str | None = None, here: str = "") -> Markup:
    """Return a complete page. `live` is the address of its server-sent events, `here` the address of its entry in the navigation."""
    entries = [("/", "Machines"), ("/runs", "Runs")]
    links = [tag("a", name, href=at, aria_current="page" if at == here else None) for at, name in entries]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · dsa"),
        tag("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="/static/page.css"),
        tag("script", src="/static/page.js", defer=True),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#content", class_="skip"),
        tag(
            "header", tag("strong", "dsa"), tag("nav", links, aria_label="Pages"), tag("span", id="link", role="status")
        ),
        tag("main", content, id="content", tabindex="-1"),
        data_live=live,
    )
    return Markup("<!doctype html>" + tag("html", head, body, lang="en").html)


def message_page(title: str, text: "str | Markup", *content: Content, here: str = "") -> Markup:
    """Return a page with one message: what is wrong, and what to do."""
    return page(title, tag("h1", title), alert(text), content, here=here)


def prose(text: str) -> Markup:
    """Return a text with its code in backticks as code. It is not for texts that quote what a person typed: they keep their backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return join(text)  # one of them is unpaired
    return join(tag("code", part) if number % 2 else part for number, part in enumerate(parts))


def message(text: str) -> Markup:
    """Return a message on a page without a fault: why there is nothing yet, and what to do."""
    return tag("p", prose(text), class_="message")


def alert(text: "str | Markup") -> Markup:
    """Return a message: what is wrong, and what to do. One with several lines may point at a column, so it has characters of one width, and its lines are not broken."""
    if isinstance(text, Markup) or "\n" not in text:
        return tag("p", text, class_="message", role="alert")
    lines = tag("div", tag("pre", text), class_="scroll asis", tabindex="0", role="region", aria_label="The message")
    return tag("div", lines, class_="message", role="alert")


def post_form(action: str, *content: Content, label: str, **attributes: Attribute) -> Markup:
    """Return a form that is posted, with its button."""
    return tag("form", content, tag("button", label, type="submit"), method="post", action=action, **attributes)


def diff_lines(text: str) -> Markup:
    """Return a text with the colours of a diff: lines that begin with + and -."""
    kinds = {"+": "added", "-": "removed"}
    return tag("pre", [tag("span", f"{line}\n", class_=kinds.get(line[:1])) for line in text.splitlines()])


def long_text(label: str, text: str, *, is_table: bool = False) -> Markup:
    """Return a text unchanged. A long one, or one in columns, scrolls in a region with this label, so that the page stays short and the columns stay aligned."""
    block = tag("pre", text)
    if not is_table and len(text) <= _SHORT_TEXT and text.count("\n") < _FEW_LINES:
        return block
    kind = "scroll asis" if is_table else "scroll tall"
    return tag("div", block, class_=kind, tabindex="0", role="region", aria_label=label)


def hidden_field(name: str, value: str) -> Markup:
    """Return a hidden field of a form."""
    return tag("input", type="hidden", name=name, value=value)


def badge(word: str, text: str = "") -> Markup:
    """Return a word in a box whose colour depends on the word, followed by the rest of a text that begins with the word."""
    if text:
        return join(badge(word), " ", text.removeprefix(word).lstrip(":, "))
    kind = re.sub("[^a-z]+", "-", word.lower())
    return tag("span", word, class_=f"badge {kind}", title=meaning_of(word.lower()) or None)


@attrs.frozen
class Fragments:
    """The parts of a page that change while it is shown, by the ids of their elements, and the classes of the drawing's nodes by their names."""

    parts: Mapping[str, Markup]
    marks: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of the parts, with which a page says what it shows."""
        return tuple(part.digest for part in self.parts.values())

    def holders(self, *names: str) -> tuple[Markup, ...]:
        """Return the elements with the parts of these names."""
        return tuple(tag("div", self.parts[name], id=name) for name in names)

    def news(self, present: Iterable[str]) -> str:
        """Return as JSON what a page that shows the parts with these digests must replace."""
        digests = frozenset(present)
        parts = {name: part.html for name, part in self.parts.items() if part.digest not in digests}
        return json.dumps({"replace": parts, "marks": dict(self.marks)})


# -- words ---------------------------------------------------------------------------------------------------------------

#: The words of the glossary that a page explains where they occur. The others are also everyday words.
EXPLAINED_WORDS = frozenset(
    [
        "actuator",
        "artifact",
        "attempt",
        "configuration",
        "counterexample",
        "cut off",
        "damaged",
        "deadlock",
        "definition 4",
        "domain",
        "due",
        "effect",
        "environment state",
        "event",
        "fatal",
        "finished",
        "guard",
        "holds",
        "in doubt",
        "interrupted",
        "ledger",
        "mutant",
        "not inductive",
        "omega",
        "outside",
        "outstanding",
        "parameter",
        "percept",
        "proved",
        "psi",
        "refusal",
        "rests in",
        "rmax",
        "row",
        "scenario",
        "sigma",
        "specification",
        "stopped",
        "timer",
        "under way",
        "unknown",
        "verdict",
        "violated",
        "waiting",
        "waits only for a timer",
        "workflow state",
    ]
)
#: How words are written on pages where that differs from their form in the glossary.
_OTHER_FORMS = {
    "environment state": "environment", "workflow state": "workflow", "refusal": "refused|refusal", "mutant": "mutants?|survives",
    "holds": "HOLDS?", "proved": "PROVED", "violated": "VIOLATED|violated", "unknown": "UNKNOWN", "not inductive": "NOT INDUCTIVE",
}  # fmt: skip
_ENTRY = re.compile(r"^\*\*(.+?)\*\*: (.+?)(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
_LINK, _MARKS, _POINTER = (
    re.compile(r"\[([^\]]*)\]\([^)]*\)"),
    re.compile(r"[*`]"),
    re.compile(r" ?(?:See|What it holds)\b[^.]*\.$"),
)


@cache
def glossary() -> Mapping[str, str]:
    """Return the explained words with their meanings, as in docs/glossary.md, without links."""
    in_package = Path(__file__).with_name("static") / "glossary.md"
    path = in_package if in_package.exists() else Path(__file__).parents[2] / "docs" / "glossary.md"
    entries = {}
    for word, text in _ENTRY.findall(path.read_text(encoding="utf-8")):
        if word.lower() in EXPLAINED_WORDS:
            plain = _MARKS.sub("", _LINK.sub(r"\1", " ".join(text.split())))
            entries[word] = _POINTER.sub("", plain).strip()
    return entries


def words_explained(*content: Content) -> Markup:
    """Return a list, to be opened, of the words in a piece of a page that a newcomer may not know, with their meanings; nothing if there are none."""
    words = frozenset[str]().union(*(_words_in(join(each).html) for each in content))
    entries = [(tag("dt", tag("dfn", word)), tag("dd", glossary()[word])) for word in sorted(words)]
    summary = tag("summary", "What the words mean")
    return tag("details", summary, tag("dl", entries), class_="words") if entries else EMPTY


@lru_cache(maxsize=32)
def _words_in(html: str) -> frozenset[str]:
    """Return the words of the glossary in a piece of a page; most pieces stay the same while others change."""
    text = re.sub("<pre.*?</pre>|<[^>]*>", " ", html, flags=re.DOTALL)  # code and JSON have words of their own
    return frozenset(word for word in glossary() if _occurs(word, text))


def meaning_of(word: str) -> str:
    """Return what a word means, as a sentence; empty for one that is not explained."""
    return next((text for each, text in glossary().items() if each.lower() == word), "")


def _occurs(word: str, text: str) -> bool:
    other = _OTHER_FORMS.get(word.lower())
    pattern = other or f"(?i:{re.escape(word)}s?)"
    return re.search(rf"(?<![\w-])(?:{pattern})(?![\w-])", text) is not None


# -- drawings ------------------------------------------------------------------------------------------------------------

_SHAPES = frozenset({"svg", "g", "path", "polygon", "polyline", "ellipse", "text"})
_SHAPE_ATTRIBUTES = frozenset(
    """
    viewBox transform fill stroke stroke-width stroke-dasharray points d cx cy rx ry x y text-anchor font-family font-weight font-style font-size
    textLength lengthAdjust class
    """.split()  # noqa: SIM905  (a list that people read)
)
_POINTS_IN_PIXELS = 4 / 3


def drawing(svg: str, label: str, marks: Mapping[str, str] | None = None) -> Markup:
    """Return a Graphviz drawing for a page: only known shapes, each group with its name; `marks` are classes of groups by their names."""
    root = ET.fromstring(svg)  # noqa: S314  (written by our own program)
    width = float((root.get("width") or "0").removesuffix("pt")) * _POINTS_IN_PIXELS
    shapes = _shape(root, marks or {}, f' role="img" aria-label="{escape(printable(label))}" width="{width:.0f}"')
    return tag("div", shapes, class_="drawing", tabindex="0", role="region", aria_label=label)


def _shape(element: ET.Element, marks: Mapping[str, str], more: str = "") -> Markup:
    name = element.tag.rpartition("}")[2]
    if name not in _SHAPES:
        return EMPTY
    title = next((child.text or "" for child in element if child.tag.endswith("}title")), None)
    values = {key: value for key, value in element.attrib.items() if key in _SHAPE_ATTRIBUTES}
    if title is not None:
        values["class"] = " ".join(filter(None, (values.get("class"), _mark(title, marks))))
        values["data-name"] = title
    attributes_text = "".join(_attribute(key, value) for key, value in values.items())
    children = (_shape(child, marks) for child in element)
    text = element.text if name == "text" else None
    return _element(name, attributes_text + more, join(text, children))


def _mark(title: str, marks: Mapping[str, str]) -> str | None:
    """Return the class of a group; the two halves of an arrow have that of the text between them."""
    halves = title.split("->")
    arrow = next((each for each in halves if each.startswith("arrow ")), "") if len(halves) > 1 else ""
    return marks.get(title) or marks.get(arrow)
