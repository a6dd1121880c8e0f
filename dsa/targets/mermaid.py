"""Mermaid diagrams: a machine as a `stateDiagram-v2`, and steps as a `flowchart`, as GitHub and many editors render them.

The same machine always gives the same text. Every id is made here (`s_review_draft`) and the
true name is its label: Mermaid's grammar trips over dots and over names such as `end`, `note` and `state`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from dsa.machine import Machine
from dsa.targets.picture import (
    Box,
    Frame,
    Picture,
    PictureRow,
    StepRelation,
    WaitingEffects,
    caption,
    folded_lines,
    folded_list,
    is_around,
    label_lines,
    label_text,
    picture,
    source_caption,
    step_picture,
)

Direction = Literal["LR", "RL", "TB", "BT"]

# Mermaid reads the labels of arrows (only those) as Markdown: `_x_` and `__x__` would be emphasised. Entities would not
# do instead of the backslash: state diagrams show `#95;` as it is.
_LEADING_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9_.])(_+)")
_INDENT = "    "


def mermaid(
    machine: Machine, *, direction: Direction = "TB", waiting_effects: WaitingEffects | None = None, full: bool = False
) -> str:
    """Draw a machine as a Mermaid state diagram, ending in a newline; a Steps machine as a flow chart of its steps.

    A machine that is too large for a page is folded (`picture.MOST_ROWS`), unless `full`: comments list its rows.

    `waiting_effects` maps each state to the effects that may be outstanding in it, as exploration finds them; by default they
    are estimated from the rows (`dsa.semantics.may_be_outstanding`).
    """
    if machine.steps:
        lines = list(_steps(machine))
        return "\n".join([f"flowchart {direction}", *(_INDENT + line for line in lines)]) + "\n"
    diagram = picture(machine, waiting_effects, full=full)
    ids = _Ids()
    ids.give(diagram.frame)
    lines = [f"direction {direction}", *_inside(diagram, diagram.frame, ids)]
    for arrow in diagram.arrows:
        # An arrow from a state to the frame around it breaks Mermaid's layout, so it goes to the leaf that is entered.
        target = machine.entry_leaf(arrow.target) if is_around(arrow.target, arrow.source) else arrow.target
        lines.append(f"{ids.source[arrow.source]} --> {ids.target[target]} : {_label(diagram, arrow.rows)}")
    if standing_for_all := ids.standing_for_all():
        lines += ["classDef every stroke-dasharray:5 4", f"class {','.join(standing_for_all)} every"]
    lines += _row_comments(machine) if diagram.is_folded else []
    return "\n".join(["stateDiagram-v2", *(_INDENT + line for line in lines)]) + "\n"


class _Ids:
    """The ids of the boxes that arrows leave, and of the states and parents that arrows enter."""

    def __init__(self) -> None:
        self.source: dict[str, str] = {}
        self.target: dict[str, str] = {}
        self._ids: set[str] = set()

    def give(self, frame: Frame) -> None:
        """Assign ids to everything in a frame, in drawing order."""
        for item in frame.inside:
            if isinstance(item, Frame):
                self.target[item.name] = self._unique_id(f"s_{item.name}")
                self.give(item)
            elif item.stands_for_all:
                self.source[item.source] = self._unique_id(f"any_{frame.name or 'state'}")
            else:
                self.source[item.source] = self.target[item.source] = self._unique_id(f"s_{item.source}")

    def standing_for_all(self) -> list[str]:
        """Return the ids of the boxes that stand for a parent's or `*`'s states."""
        return [box_id for source, box_id in self.source.items() if self.target.get(source) != box_id]

    def _unique_id(self, box_id: str) -> str:
        """Return an id of letters, digits and `_`; `a.b` and `a_b` get different ones."""
        box_id = box_id.replace(".", "_")
        while box_id in self._ids:
            box_id += "_"
        self._ids.add(box_id)
        return box_id


def _inside(diagram: Picture, frame: Frame, ids: _Ids) -> Iterator[str]:
    if frame.entry is not None:
        yield f"[*] --> {ids.target[frame.entry]}"
    for item in frame.inside:
        if isinstance(item, Box):
            yield from _box(diagram, item, ids)
        else:
            yield f'state "{item.name}" as {ids.target[item.name]} {{'
            yield from (_INDENT + line for line in _inside(diagram, item, ids))
            yield "}"


def _box(diagram: Picture, box: Box, ids: _Ids) -> Iterator[str]:
    box_id = ids.source[box.source]
    yield f'state "{caption(box)}" as {box_id}'
    if box.waits_for:
        yield f"{box_id} : waits for {', '.join(box.waits_for)}"
    if box.end:
        yield f"{box_id} : {box.end}"
    for line in folded_lines(box.internal) if diagram.is_folded else [label_text(each.texts) for each in box.internal]:
        yield f"{box_id} : {_without_colon(line)}"
    if box.is_final:
        yield f"{box_id} --> [*]"


def _label(diagram: Picture, rows: Sequence[PictureRow]) -> str:
    """Return an arrow's label."""
    lines = folded_lines(rows) if diagram.is_folded else [line.text for line in label_lines(rows[0].texts)]
    text = _without_colon("<br/>".join(lines))
    return _LEADING_UNDERSCORE.sub(lambda match: match[0].replace("_", r"\_"), text)


def _without_colon(text: str) -> str:
    """Return a text without colons: a label ends at `:`, `;` and line ends, and `all f:` has the first of them. The sign of a ratio looks the same."""
    return text.replace(":", "\N{RATIO}")


def _row_comments(machine: Machine) -> Iterator[str]:
    """Yield the rows of a folded picture by their numbers, as comments: Mermaid has no place for them in a picture."""
    for source, rows in folded_list(machine).items():
        yield f"%% {source_caption(source, machine)}"
        yield from (f"%% {row.row.number} {row.leads}: {row.text}" for row in rows)


#: The line of each relation. Mermaid has two kinds with a head that differ without colour; the third has a dot.
_STEP_LINES: dict[StepRelation, str] = {"requires": "-->", "uses": "-.->", "then": "-.-o"}
# A quoted label of a flow chart may contain any name or expression over steps.


def _steps(machine: Machine) -> Iterator[str]:
    diagram = step_picture(machine)
    for box in diagram.boxes:
        yield f's_{box.name}["<b>{box.name}</b><br/>{"<br/>".join(box.lines)}"]'
    for arrow in diagram.arrows:
        text = f'|"{", ".join(arrow.names)}"|' if arrow.names else ""
        yield f"s_{arrow.source} {_STEP_LINES[arrow.relation]}{text} s_{arrow.target}"
    if diagram.goal:
        yield f'goal["Goal: {diagram.goal}"]:::goal'
        yield "classDef goal fill:none,stroke:none"
    if optional := [f"s_{box.name}" for box in diagram.boxes if box.is_optional]:
        yield "classDef optional stroke-dasharray:5 4"
        yield f"class {','.join(optional)} optional"
