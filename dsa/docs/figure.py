"""Figures: diagrams as HTML, drawn on this machine and a part of the page."""

from dsa.docs.inline_svg import inline
from dsa.docs.parts import MermaidDiagram, SvgDiagram, label_of
from dsa.edge.images import portable_svg
from dsa.targets import dot


def figure(part: MermaidDiagram | SvgDiagram) -> str:
    """Return a diagram of either kind as a `figure` element without empty lines, which would end it in Markdown. Raises RenderError."""
    return f'<figure class="dsa-diagram">{inline(portable_svg(dot(part.machine)), label_of(part.machine))}</figure>'
