"""Shapes and their places in an SVG document that Graphviz wrote: the outlines of boxes, texts, lines, heads of arrows.

Gives rectangles (left, top, right, bottom) and points in the document's units. A text is as wide as it says.
"""

import re
from collections.abc import Iterator
from itertools import chain, combinations
from xml.etree import ElementTree as ET

import attrs

_SVG = "{http://www.w3.org/2000/svg}"
_STEPS = 16  # points taken from each Bezier curve

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]


@attrs.frozen
class Text:
    """A line of text, and the id of the node, cluster or edge it belongs to (empty: the legend)."""

    owner: str
    content: str
    where: Rectangle
    size: float


@attrs.frozen
class Line:
    """An edge: the ids of its ends, the points it runs through, and the colours of its arrow heads."""

    ends: tuple[str, str]
    points: tuple[Point, ...]
    heads: tuple[str, ...]


@attrs.frozen
class Drawing:
    """All texts, the outlines of nodes by their ids, all lines, and the width of the whole."""

    texts: tuple[Text, ...]
    outlines: dict[str, Rectangle]
    lines: tuple[Line, ...]
    width: float


def read(svg: str) -> Drawing:
    """Read an SVG document of Graphviz or graphviz-pure."""
    groups = {kind: [] for kind in ("graph", "cluster", "node", "edge")}
    root = ET.fromstring(svg)
    for group in root.iter(f"{_SVG}g"):
        if group.get("class") in groups:
            groups[group.get("class")].append(group)
    texts = [
        text
        for group in chain(groups["cluster"], groups["node"], groups["edge"])
        for text in _texts(group, _title(group))
    ]
    texts += [text for group in groups["graph"] for text in _texts(group, "")]
    outlines = {_title(group): _outline(group) for group in groups["node"]}
    width = float(root.get("viewBox", "").split()[2])
    return Drawing(tuple(texts), outlines, tuple(_line(group) for group in groups["edge"]), width)


def overflows(drawing: Drawing) -> list[str]:
    """Return which texts leave the box they belong to, or the picture."""
    found = []
    for text in drawing.texts:
        left, _, right, _ = drawing.outlines.get(text.owner, (-drawing.width, 0, drawing.width, 0))
        if text.where[0] < left - 0.5 or text.where[2] > right + 0.5:
            found.append(f"{text.content!r} leaves {text.owner or 'the picture'}")
    return found


def faults(drawing: Drawing) -> list[str]:
    """Return which texts and boxes cover each other, and which lines run through a text that they do not lead to."""
    found = [
        f"{one.content!r} and {other.content!r} overlap"
        for one, other in combinations(drawing.texts, 2)
        if _overlap(one.where, other.where)
    ]
    found += [
        f"boxes {one} and {other} overlap"
        for (one, there), (other, here) in combinations(drawing.outlines.items(), 2)
        if _overlap(there, here)
    ]
    for text in drawing.texts:
        boxes = [box for box, outline in drawing.outlines.items() if _overlap(text.where, outline)]
        found += [f"{text.content!r} is in {boxes}"] * (
            boxes != ([text.owner] if text.owner in drawing.outlines else [])
        )
        passing = [line for line in drawing.lines if text.owner not in (*line.ends, "->".join(line.ends))]
        lines = [line.ends for line in passing if any(_inside(point, text.where) for point in line.points)]
        found += [f"{ends} runs through {text.content!r}" for ends in lines]
    return found


def _title(group: ET.Element) -> str:
    return group.findtext(f"{_SVG}title") or ""


def _texts(group: ET.Element, owner: str) -> Iterator[Text]:
    # Those of the graph stand in it directly; those of nodes may be in links.
    for text in group.iterfind(f"{_SVG}text") if not owner else group.iter(f"{_SVG}text"):
        content, size = (text.text or "").strip(), float(text.get("font-size", "0"))
        width = float(text.get("textLength", "0"))
        x, baseline = float(text.get("x", "0")), float(text.get("y", "0"))
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor", "start")]
        yield Text(owner, content, (left, baseline - 0.7 * size, left + width, baseline + 0.1 * size), size)


def _outline(group: ET.Element) -> Rectangle:
    points: list[Point] = []
    for shape in group:
        points += _points(shape.get("d", "") + shape.get("points", ""))
        if shape.tag == f"{_SVG}ellipse":
            x, y, across, down = (float(shape.get(name, "0")) for name in ("cx", "cy", "rx", "ry"))
            points += [(x - across, y - down), (x + across, y + down)]
    across, down = zip(*points, strict=True)
    return min(across), min(down), max(across), max(down)


def _line(group: ET.Element) -> Line:
    tail, head = _title(group).split("->")
    seen = [path for path in group.iter(f"{_SVG}path") if path.get("stroke") not in {"none", "transparent"}]
    curves = [_points(path.get("d", "")) for path in seen]
    heads = [str(shape.get("fill")) for shape in group.iter(f"{_SVG}polygon")]
    return Line((tail, head), tuple(point for curve in curves for point in _along(curve)), tuple(heads))


def _points(numbers: str) -> list[Point]:
    values = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", numbers)]
    return list(zip(values[::2], values[1::2], strict=True))


def _along(curve: list[Point]) -> Iterator[Point]:
    """Yield points on a chain of cubic Bezier curves, each of which ends where the next begins."""
    for begin in range(0, len(curve) - 3, 3):
        for step in range(_STEPS + 1):
            t = step / _STEPS
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
            corners = list(zip(weights, curve[begin : begin + 4], strict=True))
            yield sum(w * x for w, (x, _) in corners), sum(w * y for w, (_, y) in corners)


def _overlap(one: Rectangle, other: Rectangle) -> bool:
    """Return whether two rectangles share more than a rim of one unit."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    return across > 1 and min(one[3], other[3]) - max(one[1], other[1]) > 1


def _inside(point: Point, where: Rectangle) -> bool:
    """Return whether a point is inside a rectangle and not on its rim, which half of a double line may touch."""
    x, y = point
    return where[0] + 1 < x < where[2] - 1 and where[1] + 1 < y < where[3] - 1
