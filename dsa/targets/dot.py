"""A machine as Graphviz DOT; `dsa.edge.images` makes pictures of it.

Takes a machine, gives text; the same machine gives the same text. Only what Graphviz and its port graphviz-pure draw
alike is used. Colour never stands alone: a verdict is also a kind of line, and a row that sets workflow state is a
double line, so that the picture reads the same in black and white.

A row's text is a node of its own in the middle of its arrow: Graphviz lets labels of edges cover each other, and lines
run through them, but keeps nodes apart and leads lines around them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape

import attrs

from dsa.declarations import Transition
from dsa.expr import Outcome
from dsa.machine import Machine
from dsa.targets.picture import (
    Box,
    Frame,
    Picture,
    PictureArrow,
    Waiting,
    caption,
    end_lines,
    label_lines,
    label_text,
    outcome_of,
    picture,
    sets_workflow,
    waiting_lines,
)

#: For each verdict: colour, style and width of the line, and how the legend calls it.
_LINE: dict[Outcome | None, tuple[str, str, str, str]] = {
    "passed": ("#1a6b35", "solid", "1", "green"),
    "failed": ("#8a5a00", "dashed", "1", "dashed"),
    "fatal": ("#a3261b", "dotted", "1.8", "dotted"),
    None: ("#333333", "solid", "1", ""),
}
_INK = "#000000"
_FAINT = "#b0b0b0"
_HEAD = (
    'graph [fontname="Helvetica", fontsize=10, nodesep=0.25, ranksep=0.28, pad=0.2]',
    'node [fontname="Helvetica", fontsize=12, shape=box, style=rounded, color="#333333", margin="0.12,0.06"]',
    'edge [color="#333333", arrowsize=0.8]',
)
# A line may cross a frame's name; fewest do in the bottom left corner, for what enters a frame comes from above.
_FRAME = 'labelloc=b; labeljust=l; fontsize=12; style=rounded; color="#808080"; margin=14'
_LABEL = 'style="rounded,filled", color="#f0f0f0", fillcolor="#f0f0f0", width=0, height=0, margin="0.05,0.02"'


#: For each box, by its source: what can come next, and along which arrow (its index); None where no arrow is drawn.
_Leaving = Mapping[str, Sequence[tuple[str, int | None]]]


@attrs.frozen
class _Course:
    """Where an arrow runs: `frame` is the innermost frame around both ends, `leads_back` whether it closes a cycle."""

    frame: str
    leads_back: bool


def courses(drawn: Picture) -> tuple[_Course, ...]:
    """Return the course of each arrow of a picture, in the picture's order.

    A row's text stands between two halves of its arrow: left to break cycles itself, Graphviz would turn one half and leave the text
    outside both ends.
    Without the arrows that lead back no cycle is left. They are found depth first, from where the run begins and in
    table order; a frame's own rows count as leaving each of its states.
    """
    around = dict(_around(drawn.frame, ()))
    closing = _closing(_entered(drawn.frame.name, around), _leaving(drawn, around))
    return tuple(
        _Course(_shared(around[arrow.source], around[arrow.target]), index in closing)
        for index, arrow in enumerate(drawn.arrows)
    )


def _around(frame: Frame, outer: tuple[Frame, ...]) -> Iterator[tuple[str, tuple[Frame, ...]]]:
    """Yield the frames around each box and, for a frame's name, around the dot at which it is entered."""
    frames = (*outer, frame)
    yield frame.name, frames
    for item in frame.inside:
        if isinstance(item, Box):
            yield item.source, frames
        else:
            yield from _around(item, frames)


def _shared(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> str:
    """Return the innermost frame that is in both, by name; the outermost always is."""
    return [left.name for left, right in zip(one, other, strict=False) if left.name == right.name][-1]


def _entered(target: str, around: Mapping[str, tuple[Frame, ...]]) -> str:
    """Return the state that is entered: the target, or a parent's initial child."""
    frame = around[target][-1]
    return target if target != frame.name or frame.entry is None else _entered(frame.entry, around)


def _leaving(drawn: Picture, around: Mapping[str, tuple[Frame, ...]]) -> _Leaving:
    found: dict[str, list[tuple[str, int | None]]] = {}
    for index, arrow in enumerate(drawn.arrows):
        found.setdefault(arrow.source, []).append((_entered(arrow.target, around), index))
    for state, applying in _applying(drawn.frame, ()):
        found.setdefault(state, []).extend((source, None) for source in applying)
    return found


def _applying(frame: Frame, outer: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each state that is not final, and the boxes whose rows apply in it too (S3), the innermost first."""
    boxes = [item for item in frame.inside if isinstance(item, Box)]
    applying = (*(box.source for box in boxes if box.stands_for_all), *outer)
    for item in frame.inside:
        if isinstance(item, Frame):
            yield from _applying(item, applying)
        elif not item.is_final and not item.stands_for_all:
            yield item.source, applying


def _closing(begin: str, leaving: _Leaving) -> frozenset[int]:
    """Return the arrows that end at something on the path that led to them, going depth first from `begin`."""
    closing, seen = set(), set[str]()
    for root in (begin, *leaving):
        path = {} if root in seen else {root: iter(leaving.get(root, ()))}  # in the order walked
        while path:
            box = next(reversed(path))
            seen.add(box)
            target, index = next(path[box], ("", None))
            if not target:
                del path[box]
            elif target in path and index is not None:
                closing.add(index)
            elif target not in seen:
                path[target] = iter(leaving.get(target, ()))
    return frozenset(closing)


def dot(machine: Machine, *, waiting: Waiting | None = None, trace: Collection[int | Transition] | None = None) -> str:
    """Draw a machine as a Graphviz digraph, ending in a newline.

    `waiting` maps each state to the effects that may be outstanding in it, as exploration finds them; without it they
    are estimated from the rows (`picture.may_wait`). `trace` holds rows, or their line numbers: they are drawn
    heavy and all others faint.
    """
    drawn = picture(machine, waiting)
    pens = _Pens(machine, trace)
    routes = [_Route(f"arrow {at}", *pair) for at, pair in enumerate(zip(drawn.arrows, courses(drawn), strict=True), 1)]
    lines = [*_HEAD, *pens.legend(), *_inside(drawn.frame, routes, pens)]
    for route in routes:
        lines += _halves(route, pens)
    return "\n".join([f"digraph {_quoted(machine.name)} {{", *(f"  {line}" for line in lines), "}"]) + "\n"


@attrs.frozen
class _Pens:
    """How each row is drawn."""

    machine: Machine
    trace: Collection[int | Transition] | None

    def is_faint(self, row: Transition) -> bool:
        """Return whether the row is one that the trace did not take."""
        if self.trace is None:
            return False
        return row not in self.trace and (row.span is None or row.span.line not in self.trace)

    def ink(self, row: Transition) -> str:
        """Return the colour of the row's text."""
        return _FAINT if self.is_faint(row) else _INK

    def line(self, row: Transition, *, backwards: bool = False) -> str:
        """Return the attributes of the row's arrow; `backwards` when its head is where the edge begins."""
        colour, style, width, _ = _LINE[outcome_of(row)]
        if self.is_faint(row):
            colour = _FAINT
        if sets_workflow(self.machine, row):
            colour = f"{colour}:#ffffff:{colour}"
            # Graphviz gives the head at an edge's beginning the second colour of the list.
            colour = f"transparent:{colour}:transparent" if backwards else colour
        if self.trace is not None and not self.is_faint(row):
            width = "2.5"
        return f'color="{colour}", style={style}, penwidth={width}'

    def legend(self) -> Iterator[str]:
        """Explain the kinds of line that occur; nothing when all lines are plain."""
        outcomes = {outcome_of(row) for row in self.machine.transitions}
        parts = [f"{called} = {outcome}" for outcome, (*_, called) in _LINE.items() if outcome and outcome in outcomes]
        if any(sets_workflow(self.machine, row) for row in self.machine.transitions):
            parts.append("double (in boxes: bold) = sets workflow state")
        if self.trace is not None:
            parts.append("heavy = taken")
        if parts:
            yield f"label={_quoted('Lines: ' + ', '.join(parts))}"


@attrs.frozen
class _Route:
    """An arrow with the id of its label's node, and where it runs."""

    label_id: str
    arrow: PictureArrow
    course: _Course


def _inside(frame: Frame, routes: Sequence[_Route], pens: _Pens) -> Iterator[str]:
    if frame.entry is not None:
        yield f'{_entry(frame.name)} [shape=circle, style=filled, fillcolor="#333333", label="", width=0.14]'
    for item in frame.inside:
        if isinstance(item, Box):
            yield _box(item, pens)
        else:
            yield f"subgraph {_quoted(f'cluster {item.name}')} {{"
            yield f"  label=<<B>{escape(item.name)}</B>>; {_FRAME}"
            yield from (f"  {line}" for line in _inside(item, routes, pens))
            yield "}"
    for route in routes:
        if route.course.frame == frame.name:
            row = route.arrow.row
            yield f"{_quoted(route.label_id)} [label=<{_label(row, pens.ink(row))}>, {_LABEL}]"
    if frame.entry is not None:
        yield f"{_entry(frame.name)} -> {_head(frame.entry, pens.machine)}"


def _box(box: Box, pens: _Pens) -> str:
    cells = [f"<B>{escape(caption(box))}</B>"]
    cells += (f'<FONT POINT-SIZE="10"><I>{escape(line)}</I></FONT>' for line in waiting_lines(box))
    cells += (f'<FONT POINT-SIZE="10"><B>{escape(line)}</B></FONT>' for line in end_lines(box))
    rows = "".join(f"<TR><TD>{cell}</TD></TR>" for cell in cells)
    if box.internal:
        rows += "<HR/>" + "".join(_internal(row, pens) for row in box.internal)
    label = f'<<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="1">{rows}</TABLE>>'
    kind = ', style="rounded,dashed"' if box.stands_for_all else ", peripheries=2" if box.is_final else ""
    return f"{_tail(box.source, pens.machine)} [label={label}{kind}]"


def _internal(row: Transition, pens: _Pens) -> str:
    text = escape(label_text(row))
    if sets_workflow(pens.machine, row):
        text = f"<B>{text}</B>"
    return f'<TR><TD ALIGN="LEFT"><FONT POINT-SIZE="10" COLOR="{pens.ink(row)}">{text}</FONT></TD></TR>'


def _halves(route: _Route, pens: _Pens) -> Iterator[str]:
    """Draw an arrow to its label and on from there; Graphviz puts what an edge names first above what it names last."""
    tail, head = _tail(route.arrow.source, pens.machine), _head(route.arrow.target, pens.machine)
    label, line = _quoted(route.label_id), pens.line(route.arrow.row)
    if route.course.leads_back:
        # A row from a state to itself has its label below.
        yield f"{tail} -> {label} [{line}, dir=none]" if head == tail else f"{label} -> {tail} [{line}, dir=none]"
        yield f"{head} -> {label} [{pens.line(route.arrow.row, backwards=True)}, dir=back]"
    else:
        yield f"{tail} -> {label} [{line}, dir=none]"
        yield f"{label} -> {head} [{line}]"


def _label(row: Transition, ink: str) -> str:
    lines = []
    for line in label_lines(row):
        text = escape(line.text)
        lines.append((f"<B>{text}</B>" if line.kind == "event" else text) + '<BR ALIGN="LEFT"/>')
    return f'<FONT POINT-SIZE="10" COLOR="{ink}">{"".join(lines)}</FONT>'


# Names have no spaces, so these ids cannot meet.


def _tail(source: str, machine: Machine) -> str:
    """Return the box that a source's rows leave: a leaf, or the box that stands for a parent's or `*`'s states."""
    return _quoted(source if source in machine.leaves else f"{source} any")


def _head(target: str, machine: Machine) -> str:
    """Return what is entered: a leaf, or the dot that leads to a parent's initial child."""
    return _entry(target) if target in machine.parents else _quoted(target)


def _entry(frame_name: str) -> str:
    return _quoted(f"{frame_name} entry")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
