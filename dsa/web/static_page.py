"""The static page: a machine with its table, its diagram, its verdicts and an explorer, in one file that needs no server and no network.

The explorer walks through a graph that `step` computed in advance; the script only follows it. The page allows the browser only its own
stylesheet and scripts, by their hashes.
"""

import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from dsa.checks.report import check, check_sentences, check_word
from dsa.lang import DocumentReading
from dsa.machine import Machine
from dsa.web.document_markup import DocumentVerdicts, all_findings, arrows_by_line, diagram, document_markup, overview
from dsa.web.machine_walk import walk_graph
from dsa.web.markup import Markup, badge, join, tag, words_explained

_STATIC = Path(__file__).with_name("static")
_STYLES, _SCRIPTS = ("page.css",), ("page.js", "walk.js")


def static_page(text: str, document_reading: DocumentReading, machine: Machine) -> str:
    """Return the page of a machine as HTML: `text` is the document, `reading` the result of reading it. Raises DsaError for a machine with too many places."""
    graph = walk_graph(machine, arrows_by_line(machine))
    report = check(machine)
    verdicts = DocumentVerdicts(document_reading, report)
    words = tag("p", badge(check_word(report)), " ", check_sentences(all_findings(document_reading, report), report))
    result = join(words, overview(document_reading, report))
    document = join(document_markup(text, verdicts, ""))
    content = tag(
        "main",
        tag("h1", machine.name),
        tag(
            "div",
            tag("section", result, words_explained(result, document), _explorer(), aria_label="Result and explorer"),
            tag("section", diagram(machine), aria_label="Diagram", class_="beside"),
            tag("section", document, aria_label="The document", class_="document"),
            class_="columns",
        ),
        id="content",
        tabindex="-1",
    )
    data = json.dumps(graph, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    graph_markup = Markup(f'<script type="application/json" id="graph">{data}</script>')
    return (
        "<!doctype html>\n"
        + tag("html", _head(machine), tag("body", content, graph_markup, _scripts()), lang="en").html
        + "\n"
    )


def _head(machine: Machine) -> Markup:
    styles, scripts = map(_text, _STYLES), map(_text, _SCRIPTS)
    hashes = [" ".join(map(_hash, texts)) for texts in (styles, scripts)]
    policy = f"default-src 'none'; style-src {hashes[0]}; script-src {hashes[1]}; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{machine.name} · dsa"),
        [Markup(f"<style>{_text(name)}</style>") for name in _STYLES],
    )


def _scripts() -> list[Markup]:
    return [Markup(f"<script>{_text(name)}</script>") for name in _SCRIPTS]


def _text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _explorer() -> Markup:
    """Return the explorer, which the script fills."""
    facts = [(tag("dt", name), tag("dd", id=f"walk-{name}")) for name in ("state", "values", "outstanding")]
    return tag(
        "section",
        tag("h2", "Explorer"),
        tag("p", tag("a", "← Back", href="#walk", id="back"), " · ", tag("a", "Start again", href="#walk")),
        tag("dl", facts),
        tag("p", id="walk-over", role="status"),
        tag("ul", id="walk-choices", class_="plain"),
        tag("details", tag("summary", "Refused"), tag("ul", id="walk-refusals", class_="plain")),
        tag("details", tag("summary", "The way here"), tag("ol", id="walk-way")),
        tag("noscript", "The explorer needs JavaScript; everything else does not."),
        id="walk",
        aria_label="Explorer",
    )
