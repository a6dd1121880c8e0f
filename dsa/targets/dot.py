"""Graphviz DOT: the text of a machine's diagram; `dsa.edge.images` makes pictures of it.

The same machine always gives the same text. It uses only what Graphviz and its port graphviz-pure draw alike. Colour is never the only sign: a verdict
is also a kind of line, and a row that sets workflow state is a double line, so that the picture reads the same in black and white.

A row's text is a node of its own in the middle of its arrow: Graphviz lets labels of edges cover each other, and lines
run through them, but keeps nodes apart and leads lines around them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from html import escape

import attrs

from dsa.declarations import Transition
from dsa.expr import Outcome
from dsa.machine import Machine
from dsa.targets.picture import (
    Box,
    Frame,
    ListedRow,
    Picture,
    PictureArrow,
    PictureRow,
    StepArrow,
    StepBox,
    StepRelation,
    WaitingEffects,
    caption,
    folded_lines,
    folded_list,
    label_lines,
    label_text,
    outcome_of,
    picture,
    reached_steps,
    sets_workflow,
    source_caption,
    step_picture,
    waiting_lines,
    wrap_text,
)

#: For each verdict: colour, style and width of the line, and its name in the legend.
_LINE: dict[Outcome | None, tuple[str, str, str, str]] = {
    "passed": ("#1a6b35", "solid", "1", "green"),
    "failed": ("#8a5a00", "dashed", "1", "dashed"),
    "fatal": ("#a3261b", "dotted", "1.8", "dotted"),
    None: ("#333333", "solid", "1", ""),
}
_LINE_END = "\n"
_LIST_WIDTH = 110  # characters of a listed row in one line
#: The most boxes in a row that a page has room for, with the texts of arrows between them: a folded picture then runs from left to right.
_MOST_RANKS_ACROSS = 3
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


#: For each box, by its source: the next boxes, and the index of the arrow to each; None if no arrow is drawn.
_Successors = Mapping[str, Sequence[tuple[str, int | None]]]


@attrs.frozen
class _Course:
    """The course of an arrow: `frame` is the innermost frame around both ends, `leads_back` whether it closes a cycle."""

    frame: str
    leads_back: bool


def courses(diagram: Picture) -> tuple[_Course, ...]:
    """Return the course of each arrow of a picture, in the picture's order.

    A row's text is between two halves of its arrow. If Graphviz broke cycles itself, it would turn one half and leave the text
    outside both ends. Without the arrows that lead back there is no cycle. They are found depth first, from the start of the run and in
    table order; a frame's own rows count as leaving each of its states.
    """
    around = dict(_around(diagram.frame, ()))
    back_arrows = _back_arrows(_entry_box(diagram.frame.name, around), _successors(diagram, around))
    return tuple(
        _Course(_common_frame(around[arrow.source], around[arrow.target]), index in back_arrows)
        for index, arrow in enumerate(diagram.arrows)
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


def _common_frame(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> str:
    """Return the innermost frame that is in both, by name; the outermost always is."""
    return [left.name for left, right in zip(one, other, strict=False) if left.name == right.name][-1]


def _entry_box(target: str, around: Mapping[str, tuple[Frame, ...]]) -> str:
    """Return the state that is entered: the target, or a parent's initial child."""
    frame = around[target][-1]
    return target if target != frame.name or frame.entry is None else _entry_box(frame.entry, around)


def _successors(diagram: Picture, around: Mapping[str, tuple[Frame, ...]]) -> _Successors:
    successors: dict[str, list[tuple[str, int | None]]] = {}
    for index, arrow in enumerate(diagram.arrows):
        successors.setdefault(arrow.source, []).append((_entry_box(arrow.target, around), index))
    for state, sources in _outer_sources(diagram.frame, ()):
        successors.setdefault(state, []).extend((source, None) for source in sources)
    return successors


def _outer_sources(frame: Frame, outer: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each state that is not final, and the boxes whose rows apply in it too (S3), the innermost first."""
    boxes = [item for item in frame.inside if isinstance(item, Box)]
    sources = (*(box.source for box in boxes if box.stands_for_all), *outer)
    for item in frame.inside:
        if isinstance(item, Frame):
            yield from _outer_sources(item, sources)
        elif not item.is_final and not item.stands_for_all:
            yield item.source, sources


def _back_arrows(begin: str, successors: _Successors) -> frozenset[int]:
    """Return the arrows that end at something on the path that led to them, going depth first from `begin`."""
    back_arrows, visited_boxes = set(), set[str]()
    for root in (begin, *successors):
        path = {} if root in visited_boxes else {root: iter(successors.get(root, ()))}  # in the order walked
        while path:
            box = next(reversed(path))
            visited_boxes.add(box)
            target, index = next(path[box], ("", None))
            if not target:
                del path[box]
            elif target in path and index is not None:
                back_arrows.add(index)
            elif target not in visited_boxes:
                path[target] = iter(successors.get(target, ()))
    return frozenset(back_arrows)


def dot(
    machine: Machine,
    *,
    waiting_effects: WaitingEffects | None = None,
    trace: Collection[int | Transition] | None = None,
    full: bool = False,
) -> str:
    """Draw a machine as a Graphviz digraph, ending in a newline; a Steps machine as its steps.

    A machine that is too large for a page is folded (`picture.MOST_ROWS`), unless `full`: the list of its rows stands below.

    `waiting_effects` maps each state to the effects that may be outstanding in it, as exploration finds them; by default they
    are estimated from the rows (`dsa.semantics.may_be_outstanding`). `trace` holds rows, or their line numbers: they are drawn
    heavy and all others faint; so are the steps that it begins.
    """
    lines = [
        *_HEAD,
        *(
            _steps(machine, trace)
            if machine.steps
            else _rows(picture(machine, waiting_effects, full=full), machine, trace)
        ),
    ]
    return "\n".join([f"digraph {_quote(machine.name)} {{", *(f"  {line}" for line in lines), "}"]) + "\n"


def _rows(diagram: Picture, machine: Machine, trace: Collection[int | Transition] | None) -> Iterator[str]:
    pens = _Pens(machine, trace, diagram.is_folded)
    routes = [
        _Route(f"arrow {at}", *pair) for at, pair in enumerate(zip(diagram.arrows, courses(diagram), strict=True), 1)
    ]
    if diagram.is_folded:
        yield "nodesep=0.15" + ("; rankdir=LR" if _depth(routes, machine) <= _MOST_RANKS_ACROSS else "")
    yield from pens.legend(diagram)
    yield from _inside(diagram.frame, routes, pens)
    for route in routes:
        yield from _halves(route, pens)


def _depth(routes: Sequence["_Route"], machine: Machine) -> int:
    """Return the number of boxes on the longest path along the arrows, without those that lead back."""
    before: dict[str, set[str]] = {}
    for arrow in (route.arrow for route in routes if not route.course.leads_back):
        before.setdefault(_quote(machine.entry_leaf(arrow.target)), set()).add(_tail(arrow.source, machine))
    depth: dict[str, int] = {}
    for box in TopologicalSorter(before).static_order():
        depth[box] = 1 + max((depth[source] for source in before.get(box, ())), default=0)
    return max(depth.values(), default=0)


@attrs.frozen
class _Pens:
    """The style of each row."""

    machine: Machine
    trace: Collection[int | Transition] | None
    is_folded: bool

    def is_faint(self, *rows: PictureRow) -> bool:
        """Return whether the trace took none of the rows."""
        return self.trace is not None and not any(
            each.row in self.trace or (each.row.span is not None and each.row.span.line in self.trace) for each in rows
        )

    def ink(self, *rows: PictureRow) -> str:
        """Return the colour of the rows' text."""
        return _FAINT if self.is_faint(*rows) else _INK

    def sets_workflow(self, *rows: PictureRow) -> bool:
        """Return whether one of the rows sets workflow state."""
        return any(sets_workflow(self.machine, each.row) for each in rows)

    def line(self, rows: Sequence[PictureRow], *, backwards: bool = False) -> str:
        """Return the attributes of the rows' arrow; `backwards` if its head is at the beginning of the edge."""
        colour, style, width, _ = _LINE[_common_outcome(rows)]
        if self.is_faint(*rows):
            colour = _FAINT
        if self.sets_workflow(*rows):
            colour = f"{colour}:#ffffff:{colour}"
            # Graphviz gives the head at an edge's beginning the second colour of the list.
            colour = f"transparent:{colour}:transparent" if backwards else colour
        if self.trace is not None and not self.is_faint(*rows):
            width = "2.5"
        return f'color="{colour}", style={style}, penwidth={width}'

    def legend(self, diagram: Picture) -> Iterator[str]:
        """Yield a legend for the kinds of line, and for the numbers in a folded picture; nothing if there is nothing to explain."""
        outcomes = {_common_outcome(arrow.rows) for arrow in diagram.arrows}
        parts = [f"{name} = {outcome}" for outcome, (*_, name) in _LINE.items() if outcome and outcome in outcomes]
        if any(sets_workflow(self.machine, row) for row in self.machine.transitions):
            parts.append("double (in boxes: bold) = sets workflow state")
        if self.trace is not None:
            parts.append("heavy = taken")
        lines = f"Lines: {', '.join(parts)}" if parts else ""
        if self.is_folded:
            yield f"label=<{self._list(lines)}>"
        elif lines:
            yield f"label={_quote(lines)}"

    def _list(self, lines: str) -> str:
        """Write a table of all rows by their numbers, under the states that they leave."""
        cells = [
            _wide_cell(escape(line)) for line in (lines, "Numbers: rows, listed by the states that they leave") if line
        ]
        for source, rows in folded_list(self.machine).items():
            cells.append(_wide_cell(f"<B>{escape(source_caption(source, self.machine))}</B>"))
            cells += (self._list_row(row) for row in rows)
        table = "".join(f"<TR>{cell}</TR>" for cell in cells)
        return f'<FONT POINT-SIZE="10"><TABLE BORDER="0" CELLSPACING="0" CELLPADDING="2">{table}</TABLE></FONT>'

    def _list_row(self, row: ListedRow) -> str:
        text = "<BR/>".join(escape(line) for line in wrap_text(row.text, _LIST_WIDTH))
        return "".join(
            f'<TD ALIGN="{side}" BALIGN="LEFT" VALIGN="TOP"><FONT COLOR="{self.ink(row.row)}">{cell}</FONT></TD>'
            for side, cell in (("RIGHT", str(row.row.number)), ("LEFT", escape(row.leads)), ("LEFT", text))
        )


def _common_outcome(rows: Sequence[PictureRow]) -> Outcome | None:
    """Return the common verdict of all the rows, or None if they differ."""
    outcomes = {outcome_of(each.row) for each in rows}
    return outcomes.pop() if len(outcomes) == 1 else None


def _wide_cell(text: str) -> str:
    return f'<TD ALIGN="LEFT" VALIGN="BOTTOM" COLSPAN="3" HEIGHT="20">{text}</TD>'


@attrs.frozen
class _Route:
    """An arrow with the id of its label's node, and its course."""

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
            yield f"subgraph {_quote(f'cluster {item.name}')} {{"
            yield f"  label=<<B>{escape(item.name)}</B>>; {_FRAME}"
            yield from (f"  {line}" for line in _inside(item, routes, pens))
            yield "}"
    for route in routes:
        if route.course.frame == frame.name:
            yield f"{_quote(route.label_id)} [label=<{_label(route.arrow.rows, pens)}>, {_LABEL}]"
    if frame.entry is not None:
        yield f"{_entry(frame.name)} -> {_head(frame.entry, pens.machine)}"


def _box(box: Box, pens: _Pens) -> str:
    cells = [f"<B>{escape(caption(box))}</B>"]
    cells += (f'<FONT POINT-SIZE="10"><I>{escape(line)}</I></FONT>' for line in waiting_lines(box))
    cells += (f'<FONT POINT-SIZE="10"><B>{escape(line)}</B></FONT>' for line in wrap_text(box.end))
    rows = "".join(f"<TR><TD>{cell}</TD></TR>" for cell in cells)
    if box.internal:
        rows += "<HR/>" + "".join(_internal(box, pens))
    label = f'<<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="1">{rows}</TABLE>>'
    kind = ', style="rounded,dashed"' if box.stands_for_all else ", peripheries=2" if box.is_final else ""
    return f"{_tail(box.source, pens.machine)} [label={label}{kind}]"


def _internal(box: Box, pens: _Pens) -> Iterator[str]:
    """Yield the rows that stay in a box, one by one or folded."""
    entries: list[tuple[str, tuple[PictureRow, ...]]]
    if pens.is_folded:
        entries = [(line, box.internal) for line in folded_lines(box.internal)]
    else:
        entries = [("\n".join(wrap_text(label_text(each.texts), _LIST_WIDTH)), (each,)) for each in box.internal]
    for line, rows in entries:
        text = escape(line).replace("\n", "<BR/>")
        text = f"<B>{text}</B>" if pens.sets_workflow(*rows) else text
        font = f'<FONT POINT-SIZE="10" COLOR="{pens.ink(*rows)}">{text}</FONT>'
        yield f'<TR><TD ALIGN="LEFT" BALIGN="LEFT">{font}</TD></TR>'


def _halves(route: _Route, pens: _Pens) -> Iterator[str]:
    """Draw an arrow to its label and on from there; Graphviz puts what an edge names first above what it names last."""
    tail, head = _tail(route.arrow.source, pens.machine), _head(route.arrow.target, pens.machine)
    label, line = _quote(route.label_id), pens.line(route.arrow.rows)
    if route.course.leads_back:
        # A row from a state to itself has its label below.
        yield f"{tail} -> {label} [{line}, dir=none]" if head == tail else f"{label} -> {tail} [{line}, dir=none]"
        yield f"{head} -> {label} [{pens.line(route.arrow.rows, backwards=True)}, dir=back]"
    else:
        yield f"{tail} -> {label} [{line}, dir=none]"
        yield f"{label} -> {head} [{line}]"


def _label(rows: Sequence[PictureRow], pens: _Pens) -> str:
    if pens.is_folded:
        texts = [escape(line) for line in folded_lines(rows)]
    else:
        lines = label_lines(rows[0].texts)
        texts = [f"<B>{escape(line.text)}</B>" if line.kind == "event" else escape(line.text) for line in lines]
    text = "".join(f'{line}<BR ALIGN="LEFT"/>' for line in texts)
    return f'<FONT POINT-SIZE="10" COLOR="{pens.ink(*rows)}">{text}</FONT>'


#: For each relation of two steps: colour and style of the line, and its text in the legend.
_RELATIONS: dict[StepRelation, tuple[str, str, str]] = {
    "requires": ("#333333", "solid", "solid = requires"),
    "uses": ("#1f5fa8", "dashed", "dashed = uses without requiring"),
    "then": ("#808080", "dotted", "dotted = comes next"),
}


def _steps(machine: Machine, trace: Collection[int | Transition] | None) -> Iterator[str]:
    diagram = step_picture(machine)
    active_steps = None if trace is None else reached_steps(machine, trace)
    parts = [words for relation, (*_, words) in _RELATIONS.items() if relation in {a.relation for a in diagram.arrows}]
    parts += (
        ["on grey = the name under which an artifact is used"] if any(arrow.names for arrow in diagram.arrows) else []
    )
    parts += [] if trace is None else ["heavy = begun"]
    legend = [f"Goal: {diagram.goal}"] if diagram.goal else []
    legend += [f"Lines: {', '.join(parts)}"] if parts else []
    if legend:
        yield f"label={_quote(_LINE_END.join(legend))}"
    for box in diagram.boxes:
        yield _step_box(box, active_steps)
    for number, arrow in enumerate(diagram.arrows, 1):
        yield from _step_arrow(number, arrow, active_steps)


def _step_box(box: StepBox, active_steps: Collection[str] | None) -> str:
    ink = _INK if active_steps is None or box.name in active_steps else _FAINT
    cells = [f"<B>{escape(box.name)}</B>"]
    cells += (f'<FONT POINT-SIZE="10">{escape(line)}</FONT>' for line in box.lines)
    rows = "".join(f'<TR><TD><FONT COLOR="{ink}">{cell}</FONT></TD></TR>' for cell in cells)
    style = "rounded,dashed" if box.is_optional else "rounded"
    width = "1" if active_steps is None or box.name not in active_steps else "2.5"
    label = f'<<TABLE BORDER="0" CELLSPACING="0" CELLPADDING="1">{rows}</TABLE>>'
    colour = "#333333" if ink == _INK else _FAINT
    rims = 2 if box.is_result else 1
    return (
        f'{_quote(box.name)} [label={label}, style="{style}", color="{colour}", penwidth={width}, peripheries={rims}]'
    )


def _step_arrow(number: int, arrow: StepArrow, active_steps: Collection[str] | None) -> Iterator[str]:
    colour, style, _ = _RELATIONS[arrow.relation]
    is_faint = active_steps is not None and not {arrow.source, arrow.target}.issubset(active_steps)
    line = f'color="{_FAINT if is_faint else colour}", style={style}'
    tail, head, name = _quote(arrow.source), _quote(arrow.target), _quote(f"use {number}")
    if not arrow.names:
        yield f"{tail} -> {head} [{line}]"
        return
    text = "".join(f'{escape(line_text)}<BR ALIGN="LEFT"/>' for line_text in wrap_text(", ".join(arrow.names)))
    yield f'{name} [label=<<FONT POINT-SIZE="10" COLOR="{_FAINT if is_faint else _INK}">{text}</FONT>>, {_LABEL}]'
    yield f"{tail} -> {name} [{line}, dir=none]"
    yield f"{name} -> {head} [{line}]"


# Names have no spaces, so these ids cannot meet.


def _tail(source: str, machine: Machine) -> str:
    """Return the box of a source: a leaf, or the box for the states of a parent or of `*`."""
    return _quote(source if source in machine.leaves else f"{source} any")


def _head(target: str, machine: Machine) -> str:
    """Return the node that is entered: a leaf, or the dot that leads to a parent's initial child."""
    return _entry(target) if target in machine.parents else _quote(target)


def _entry(frame_name: str) -> str:
    return _quote(f"{frame_name} entry")


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace(_LINE_END, "\\n") + '"'
