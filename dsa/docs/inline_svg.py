"""Inline SVG: pictures for pages, without references to other hosts, and SVG files that record what they were drawn from.

`inline` and `seal_svg` take the text that a renderer wrote. `figure` draws a diagram as HTML, on this computer.
"""

import re
from hashlib import sha256
from xml.etree import ElementTree as ET

from dsa.docs.blocks import MermaidDiagram, SvgDiagram, label_of
from dsa.edge.images import portable_svg
from dsa.targets import dot

_NAMESPACE = "http://www.w3.org/2000/svg"
_BETWEEN = re.compile(r">\s*\n\s*<")
_SEAL = re.compile(r"\n<!-- dsa docs: drawn from ([0-9a-f]{64}), drawing ([0-9a-f]{64}) -->\n\Z")


def inline(svg: str, label: str) -> str:
    """Return a renderer's SVG as one `svg` element for HTML.

    It has no references to other hosts (the doctype, the namespaces), and no ids or tooltips, as a page may have several pictures. `label` is
    for people who do not see it.
    """
    root = ET.fromstring(svg)  # noqa: S314  (our renderer wrote it)
    for parent in list(root.iter()):
        parent.tag = parent.tag.removeprefix(f"{{{_NAMESPACE}}}")
        parent.attrib.pop("id", None)
        for child in [child for child in parent if child.tag == f"{{{_NAMESPACE}}}title"]:
            parent.remove(child)
    root.attrib |= {"role": "img", "aria-label": label, "style": "max-width: 100%; height: auto"}
    return _BETWEEN.sub(">\n<", ET.tostring(root, encoding="unicode").strip())


def seal_svg(svg: str, label: str, drawn_from: str) -> str:
    """Return the text of an SVG file that ends with the digests of its source and of the drawing."""
    drawing = inline(svg, label).replace("<svg ", f'<svg xmlns="{_NAMESPACE}" ', 1)
    return f"{drawing}\n<!-- dsa docs: drawn from {_digest(drawn_from)}, drawing {_digest(drawing)} -->\n"


def is_sealed(text: str) -> bool:
    """Return whether `seal_svg` wrote a text, even if it has changed since."""
    return _SEAL.search(text) is not None


def is_fresh(text: str, drawn_from: str) -> bool:
    """Return whether a file was drawn from this text and has not changed since. It calls no renderer, so their releases do not matter."""
    seal = _SEAL.search(text)
    return seal is not None and seal.groups() == (_digest(drawn_from), _digest(text[: seal.start()]))


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8")).hexdigest()


def figure(part: MermaidDiagram | SvgDiagram) -> str:
    """Return a diagram of either kind as a `figure` element without empty lines, which would end it in Markdown. Raises RenderError."""
    return f'<figure class="dsa-diagram">{inline(portable_svg(dot(part.machine)), label_of(part.machine))}</figure>'
