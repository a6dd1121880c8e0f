"""Hostile texts, and what a page must be whatever its texts are: known elements, known attributes, addresses of this server.

`texts_by_field` puts such a text into one field of all entries of a run after the other, so that no field has to be thought of.
"""

import json
from collections.abc import Iterable, Iterator
from html import escape
from html.parser import HTMLParser

import attrs

from dsa.runs.archive import RunNews
from dsa.runs.door import Runs
from dsa.runtime import ledger
from dsa.web.run_feed import RunFeed
from dsa.web.run_pages import _run_page

HOSTILE = [
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'><svg onload=alert(1)>", "javascript:alert(1)", "</td></table><script>",
    "<!--", "-->", "]]>", "<![CDATA[", "&lt;script&gt;", "&#60;script&#62;", "\x00<script>", "<scr\x00ipt>", "\u202eevil\u202c", "\u2066x\u2069",
    "\x1b[31mred", "</textarea><script>alert(1)</script>", "</title><script>", "</pre><script>", "</script><script>", "<style>*{display:none}</style>",
    "<a href='javascript:alert(1)'>", "<iframe src=//evil.example>", "<base href=//evil.example>", "<meta http-equiv=refresh content=0>",
    "<form action=//evil.example>", "<object data=x>", "<link rel=stylesheet href=//evil.example>", "onfocus=alert(1) autofocus=", "` onload=alert(1)",
    "{{7*7}}", "${7*7}", "%3Cscript%3E", "\u2028<script>\u2029", "\ufeff<script>", "\u00ad<b>", "data:text/html,<script>", "<math><mi//xlink:href=x>",
    "<details open ontoggle=alert(1)>", "<" * 2000,
]  # fmt: skip
#: All of them in one text, as one of them in another: what begins a comment would hide the elements of those behind it, so it is the last one.
ALL_AT_ONCE = " ".join(text[:99] for text in sorted(HOSTILE, key=lambda text: text in {"<!--", "<![CDATA["}))
_ELEMENTS = frozenset(
    """
    html head meta title link script body a header strong nav span main div section h1 h2 h3 h4 p dl dt dd ul ol li table thead tbody tr th td details summary
    pre code form label input textarea select option datalist button fieldset legend dfn img svg g path polygon polyline ellipse circle text b
    """.split()  # noqa: SIM905  (a list that people read)
)
#: Words of the ledger that only dsa writes, and fields with such words alone.
_WORDS, _FIXED = frozenset(["retry", "fail", "done", "again"]), frozenset(["kind"])
_ADDRESSES = {"href", "src", "action", "formaction"}
_OURS = {
    "link": ({"rel": "icon", "href": "/static/icon.svg", "type": "image/svg+xml"}, {"rel": "stylesheet", "href": "/static/page.css"}),
    "script": ({"src": "/static/page.js", "defer": None},),
}  # fmt: skip


class _Reader(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag not in _ELEMENTS:
            self.faults.append(f"<{tag}>")
        if tag in _OURS and values not in _OURS[tag]:
            self.faults.append(f"<{tag} {values}>")
        if tag == "meta" and "http-equiv" in values:
            self.faults.append(f"<meta {values}>")
        if tag == "img" and not (values.get("src") or "").startswith("/runs/"):
            self.faults.append(f"<img {values}>")
        for name, value in values.items():
            if name.startswith("on") or name in {"style", "srcdoc", "autofocus", "xlink:href"}:
                self.faults.append(f"{name}={value}")
            if name in _ADDRESSES and not (
                (value or "").startswith(("/", "?", "#")) and (value or "")[:2] not in {"//", "/\\"}
            ):
                self.faults.append(f"{name}={value}")  # fmt: skip

    def handle_comment(self, data):
        self.faults.append(f"<!--{data[:40]}")

    def handle_decl(self, decl):
        if decl != "doctype html":
            self.faults.append(f"<!{decl[:40]}")

    def unknown_decl(self, data):
        self.faults.append(f"<![{data[:40]}")


def foreign_in(html: str) -> list[str]:
    """Return the elements and attributes of a page that no page has of itself, and characters that are never printed."""
    unprinted = [ascii(each) for each in "\x00\u202e\u2066\u2028\u00ad\x1b\ufeff" if each in html]
    return [*_Reader(html).faults, *unprinted, *(each for each in ("<!--", "<![") if each in html)]


def fields_of(entries: Iterable[ledger.Entry]) -> list[str]:
    """Return the names of all fields of entries that hold texts, however deep."""
    names = set[str]()

    def collect(value: object, field: str) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                collect(each, key)
        elif isinstance(value, list | tuple):
            for each in value:
                collect(each, field)
        elif isinstance(value, str) and value not in _WORDS:
            names.add(field)

    for entry in entries:
        collect(ledger.to_json(entry), "")
    return sorted(names - _FIXED)


def with_text(entries: Iterable[ledger.Entry], field: str, text: str) -> list[ledger.Entry]:
    """Return entries with a text in each of their fields of this name."""

    def change(value: object, name: str) -> object:
        if isinstance(value, dict):
            return {key: change(each, key) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [change(each, name) for each in value]
        return text if isinstance(value, str) and name == field and value not in _WORDS else value

    return [ledger.from_json(json.loads(json.dumps(change(ledger.to_json(entry), "")))) for entry in entries]


def texts_by_field(entries: Iterable[ledger.Entry], *texts: str) -> Iterator[tuple[str, list[ledger.Entry]]]:
    """Yield the entries once for each of their fields and each text, with this text in the field; and the name of the field."""
    entries = list(entries)
    for field in fields_of(entries):
        for text in texts:
            yield field, with_text(entries, field, text)


def faults_of_run(runs: Runs, run: str, news: RunNews, *texts: str) -> tuple[list[str], set[str]]:
    """Put texts into each field of a run's entries, and return what is foreign on its page then, and the fields whose text a person reads."""
    faults, seen = list[str](), set[str]()
    for field, entries in texts_by_field(news.entries, *texts):
        html = _run_page(RunFeed(runs, run, attrs.evolve(news, entries=tuple(entries))), None).html
        faults += [f"{field}: {each}" for each in foreign_in(html)]
        seen |= {field} if any(escape(text[:25]) in html for text in texts) else set()
    return faults, seen
