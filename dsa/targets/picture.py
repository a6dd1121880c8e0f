"""The picture: the frames, boxes and arrows that every diagram of a machine shows, the effects that a state waits for, and the widths of texts.

`picture` returns frozen values in table order, without any syntax; `mermaid` and `dot` write them. The picture of a large machine is folded, so that it
fits a page: all rows from one state to another are one arrow, which names their events and numbers, and `folded_list` has their texts.

A row with target `=` leaves nothing (S11), so it is a line inside its source's box (an internal transition), not an
arrow. A row of a parent or of `*` starts at a box that stands for the states it applies to.

`text_width` has the widths of Adobe's font metrics (AFM) for Helvetica and Helvetica-Bold, in thousandths of the font's size, from the space to the
tilde: texts fit the boxes that Graphviz makes for them. Arial and Liberation Sans have the same; DejaVu Sans and Verdana are wider by a sixth.

The step picture of a Steps machine has a box for each step, and arrows for what leads from one step to another. For the rows behind the steps, draw
`dsa.lang.spell_out(machine)`.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import attrs

from dsa.data_use import DEFAULT_GENERATOR
from dsa.declarations import STAR, STAY, StepRow, Transition, without_index, written_row
from dsa.expr import Count, Not, Outcome, Verdict, names, unparse, walk
from dsa.machine import Machine
from dsa.semantics import may_be_outstanding
from dsa.trace import condition_text, effect_texts, update_texts

_FIRST = ord(" ")
_REGULAR = (
    278, 278, 355, 556, 556, 889, 667, 222, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 222, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
)  # fmt: skip
_BOLD = (
    278, 333, 474, 556, 556, 889, 722, 278, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 333, 333, 584, 584, 584, 611, 975, 722, 722, 722, 722, 667, 611, 778, 722, 278,
    556, 722, 611, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 333, 278, 333, 584,
    556, 278, 556, 611, 556, 611, 556, 333, 611, 611, 278, 278, 556, 278, 889, 611, 611, 611, 611, 389, 556,
    333, 611, 556, 778, 556, 556, 500, 389, 280, 389, 584,
)  # fmt: skip


def text_width(text: str, size: float, *, bold: bool = False) -> float | None:
    """Return how wide a text is in the unit of the font's size; None for one with letters beyond ASCII."""
    if not (text.isascii() and text.isprintable()):
        return None
    return sum((_BOLD if bold else _REGULAR)[ord(letter) - _FIRST] for letter in text) * size / 1000


WaitingEffects = Mapping[str, frozenset[str]]
LineKind = Literal["event", "if", "update", "effects"]


@attrs.frozen
class LabelLine:
    """One line of a label: which part of the row it belongs to, and the text."""

    kind: LineKind
    text: str


@attrs.frozen
class RowTexts:
    """What a row says besides its states: the event, the condition (may be empty), each update, each effect."""

    event: str
    condition: str = ""
    updates: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()


@attrs.frozen
class PictureRow:
    """A row, its number and its texts. `number` is its place in the table of rows, from 1.

    A row with families is one, with the texts that it was written with; `row` is the first that it stands for.
    """

    number: int
    row: Transition
    texts: RowTexts


@attrs.frozen
class Box:
    """A state without children, or (`stands_for_all`) the source of its frame's own rows.

    `source` is the text of source cells. `waits_for` are the effects that may be outstanding, sorted;
    `internal` the rows with target `=`; `end` is `end when P`, or empty.
    """

    source: str
    stands_for_all: bool
    is_final: bool
    waits_for: tuple[str, ...]
    internal: tuple[PictureRow, ...]
    end: str = ""


@attrs.frozen
class Frame:
    """A parent state, or the whole picture (`name` empty), with its boxes and frames; `entry` is its initial child."""

    name: str
    entry: str | None
    inside: "tuple[Box | Frame, ...]"


@attrs.frozen
class PictureArrow:
    """An arrow for a row, from a source to a state or a parent; in a folded picture for all rows from one to the other."""

    source: str
    target: str
    rows: tuple[PictureRow, ...]


#: The places where a text may be broken.
_BREAKS = re.compile(r"(?<=,) | (?=(?:and|or) )")
#: A machine with more rows is drawn folded. So is one where the texts of the rows that leave one state are together wider
#: than this, in units of a font that is 10 units high, as they are beside each other.
MOST_ROWS, _MOST_BESIDE = 25, 800
_GAP = 25  # between two of them


@attrs.frozen
class Picture:
    """A machine, ready to be written: the outermost frame, and the arrows in the order of their first rows."""

    frame: Frame
    arrows: tuple[PictureArrow, ...]
    is_folded: bool = False


@attrs.frozen
class ListedRow:
    """A row in the list of a folded picture, its target (`to STATE` or `stays`) and its text."""

    row: PictureRow
    leads: str
    text: str


def picture(machine: Machine, waiting_effects: WaitingEffects | None = None, *, full: bool = True) -> Picture:
    """Return the picture of a machine. Unless `full`, a machine that is too large for a page is folded.

    `waiting_effects` maps states to the effects outstanding there; None estimates it (`may_be_outstanding`).
    """
    effects = may_be_outstanding(machine) if waiting_effects is None else waiting_effects
    is_folded = not full and _is_large(machine)
    bundles: dict[tuple[str, str, int], list[PictureRow]] = {}
    rows = picture_rows(machine)
    for each in rows:
        if each.row.target != STAY:
            key = each.row.source, each.row.target, 0 if is_folded else each.number
            bundles.setdefault(key, []).append(each)
    arrows = (PictureArrow(source, target, tuple(rows)) for (source, target, _), rows in bundles.items())
    inside = _Boxes(machine, rows, effects, _children(machine)).frame("")
    return Picture(inside, tuple(arrows), is_folded)


def picture_rows(machine: Machine) -> tuple[PictureRow, ...]:
    """Return the rows of a machine as they were written, in table order."""
    firsts: dict[object, Transition] = {}
    for row in machine.transitions:
        firsts.setdefault(written_row(row), row)
    with_families = bool(machine.families)
    return tuple(
        PictureRow(number, row, _written_texts(row) if with_families and row.spans else row_texts(row))
        for number, row in enumerate(firsts.values(), 1)
    )


def row_texts(row: Transition) -> RowTexts:
    """Return the texts of one of the rows that a machine has."""
    return RowTexts(row.event, condition_text(row), update_texts(row), effect_texts(row))


def _written_texts(row: Transition) -> RowTexts:
    """Return the texts of the cells of the document."""
    cells = {
        column: " ".join(span.text[span.column - 1 : span.end - 1].replace(r"\|", "|").split())
        for column, span in row.spans
    }
    events = (re.sub(r"\[ *(.*?) *\]", r"[\1]", event.strip()) for event in cells["event"].split(","))
    event = next((each for each in events if without_index(each) == without_index(row.event)), row.event)
    updates, effects = cells.get("update", ""), cells.get("effects", "")
    return RowTexts(
        event,
        cells.get("if", ""),
        tuple(re.split(r" *; *", updates)) if updates else (),
        tuple(re.split(r" *, *", effects)) if effects else (),
    )


def _is_large(machine: Machine) -> bool:
    widths: dict[str, float] = {}
    rows = picture_rows(machine)
    for each in rows if len(rows) <= MOST_ROWS else ():
        if each.row.target != STAY:
            lines = (text_width(line.text, 10, bold=line.kind == "event") or 0 for line in label_lines(each.texts))
            widths[each.row.source] = widths.get(each.row.source, 0) + max(lines) + _GAP
    return len(rows) > MOST_ROWS or max(widths.values(), default=0) > _MOST_BESIDE


def folded_lines(rows: Iterable[PictureRow], width: int = 30) -> tuple[str, ...]:
    """Return rows as lines of about `width` characters: each event with the numbers of its rows."""
    numbers: dict[str, list[str]] = {}
    for each in rows:
        numbers.setdefault(each.texts.event, []).append(str(each.number))
    texts = [f"{event} {', '.join(row_numbers)}" for event, row_numbers in numbers.items()]
    return tuple(line for text in texts for line in wrap_text(text, width))


def folded_list(machine: Machine) -> dict[str, tuple[ListedRow, ...]]:
    """Return for each source, in the order of their first rows, the rows that the labels of a folded picture leave out."""
    listed_rows: dict[str, list[ListedRow]] = {}
    for each in picture_rows(machine):
        leads = "stays" if each.row.target == STAY else f"to {each.row.target}"
        listed_rows.setdefault(each.row.source, []).append(ListedRow(each, leads, label_text(each.texts)))
    return {source: tuple(rows) for source, rows in listed_rows.items()}


def caption(box: Box) -> str:
    """Return the title of a box."""
    return _many(box.source) if box.stands_for_all else box.source


def source_caption(source: str, machine: Machine) -> str:
    """Return the title of a source in a list."""
    return source if source in machine.leaves else _many(source)


def _many(source: str) -> str:
    return "any state that is not final" if source == STAR else f"any state of {source}"


def waiting_lines(box: Box, width: int = 30) -> tuple[str, ...]:
    """Return the effects that a box waits for as lines of about `width` characters; no lines if it waits for nothing."""
    units = ["waits for", *re.split(r"(?<=,) ", ", ".join(box.waits_for))]
    return tuple(line.text for line in _fill_lines("effects", units, width)) if box.waits_for else ()


def wrap_text(text: str, width: int = 30) -> tuple[str, ...]:
    """Return a text as lines of about `width` characters, broken after commas and before `and` and `or`; no lines if it is empty."""
    return tuple(line.text for line in _fill_lines("if", _BREAKS.split(text), width)) if text else ()


def is_around(parent: str, state: str) -> bool:
    """Return whether `state` is `parent` or lies inside it."""
    return state == parent or state.startswith(f"{parent}.")


def _children(machine: Machine) -> dict[str, list[str]]:
    """Return the names directly inside each parent, `""` for the top; parents that are not declared are included."""
    children: dict[str, list[str]] = {"": []}
    for state in machine.states:
        parts = state.name.split(".")
        for depth in range(len(parts)):
            parent, name = ".".join(parts[:depth]), ".".join(parts[: depth + 1])
            siblings = children.setdefault(parent, [])
            if name not in siblings:
                siblings.append(name)
    return children


@attrs.frozen
class _Boxes:
    """What the frames and boxes of a machine are made from; `children` has the names directly inside each parent."""

    machine: Machine
    rows: tuple[PictureRow, ...]
    waiting_effects: WaitingEffects
    children: Mapping[str, Sequence[str]]

    def frame(self, name: str) -> Frame:
        """Return a parent with all inside it; without a name the whole picture."""
        inside: list[Box | Frame] = []
        source = name or STAR
        if any(each.row.source == source for each in self.rows):
            inside.append(self._box(source, stands_for_all=True))
        for child in self.children[name]:
            if child not in self.children:
                inside.append(self._box(child, stands_for_all=False))
                continue
            frame = self.frame(child)
            inside += [frame] if _means_something(frame) else frame.inside
        states = self.machine.state_named
        initial = [child for child in self.children[name] if child in states]
        entry = next((child for child in initial if states[child].kind == "initial"), None)
        return Frame(name, entry if name else self.machine.initial, tuple(inside))

    def _box(self, source: str, *, stands_for_all: bool) -> Box:
        internal = tuple(each for each in self.rows if each.row.source == source and each.row.target == STAY)
        waits_for = () if stands_for_all else tuple(sorted(self.waiting_effects.get(source, frozenset())))
        end = None if stands_for_all else self.machine.ends.get(source)
        words = "" if end is None else f"end when {unparse(end)}"
        return Box(source, stands_for_all, source in self.machine.final_states, waits_for, internal, words)


def _means_something(frame: Frame) -> bool:
    """Return whether a parent can be entered or has rows; any other is only a prefix of names."""
    return frame.entry is not None or any(isinstance(item, Box) and item.stands_for_all for item in frame.inside)


def label_lines(texts: RowTexts, width: int = 30) -> tuple[LabelLine, ...]:
    """Return a row as lines: the event, [condition], each update, the effects; `/ ` begins what the row does.

    Conditions and effects fill lines of about `width` characters; an operand longer than that stays whole.
    """
    asks = _fill_lines("if", _BREAKS.split(f"[{texts.condition}]"), width) if texts.condition else []
    updates = [LabelLine("update", text) for text in texts.updates]
    effects = _fill_lines("effects", re.split(r"(?<=,) ", ", ".join(texts.effects)), width) if texts.effects else []
    does = [*updates, *effects]
    if does:
        does[0] = attrs.evolve(does[0], text=f"/ {does[0].text}")
    return (LabelLine("event", texts.event), *asks, *does)


def label_text(texts: RowTexts) -> str:
    """Return a row as one line: `event [condition] / updates, effects`."""
    condition, does = texts.condition, ", ".join([*texts.updates, *texts.effects])
    return texts.event + (f" [{condition}]" if condition else "") + (f" / {does}" if does else "")


def _fill_lines(kind: LineKind, units: list[str], width: int) -> list[LabelLine]:
    """Fill lines with whole units, at least one a line."""
    texts = [units[0]]
    for unit in units[1:]:
        if len(texts[-1]) + 1 + len(unit) > width:
            texts.append(unit)
        else:
            texts[-1] += f" {unit}"
    return [LabelLine(kind, text) for text in texts]


def sets_workflow(machine: Machine, row: Transition) -> bool:
    """Return whether the row assigns or revokes workflow state (S9)."""
    workflow = {variable.name for variable in machine.variables if variable.scope == "workflow"}
    return any(update.variable in workflow for update in row.updates)


def outcome_of(row: Transition) -> Outcome | None:
    """Return the one verdict in the row's condition; None if there are none, several, or a negated or counted one."""
    nodes = list(walk(row.condition))
    outcomes = {node.outcome for node in nodes if isinstance(node, Verdict)}
    if len(outcomes) != 1 or any(isinstance(node, Not | Count) for node in nodes):
        return None
    return next(iter(outcomes))


#: The relation of an earlier step: it must have passed; its artifact is used; it only comes before, as the steps run one after the other.
StepRelation = Literal["requires", "uses", "then"]


@attrs.frozen
class StepBox:
    """A step: its name, and one line for each entry of its row."""

    name: str
    lines: tuple[str, ...]
    is_optional: bool
    is_result: bool = False


@attrs.frozen
class StepArrow:
    """An arrow from an earlier step to a later one; `names` are those under which the later step uses its artifact."""

    source: str
    target: str
    relation: StepRelation
    names: tuple[str, ...] = ()


@attrs.frozen
class StepPicture:
    """The boxes, the arrows by their targets in table order, and the goal (empty: every step that is not optional)."""

    boxes: tuple[StepBox, ...]
    arrows: tuple[StepArrow, ...]
    goal: str


def step_picture(machine: Machine) -> StepPicture:
    """Return the picture of a Steps machine."""
    before: dict[str, str] = {}
    if _is_in_a_row(machine):
        before = {later.name: step.name for step, later in zip(machine.steps, machine.steps[1:], strict=False)}
    return StepPicture(
        tuple(_step_box(step, machine) for step in machine.steps),
        tuple(arrow for step in machine.steps for arrow in _arrows(step, before.get(step.name))),
        "" if machine.goal is None else unparse(machine.goal),
    )


def reached_steps(machine: Machine, trace: Collection[int | Transition]) -> frozenset[str]:
    """Return the steps that a trace begins; `trace` holds rows, or the line numbers of steps."""
    targets = {row.target.removeprefix("generating.") for row in trace if isinstance(row, Transition)}
    return frozenset(
        step.name for step in machine.steps if step.name in targets or (step.span and step.span.line in trace)
    )


def _is_in_a_row(machine: Machine) -> bool:
    """Return whether the steps run in table order, with no state in which the next one is chosen."""
    return "choosing" not in machine.state_named


def _step_box(step: StepRow, machine: Machine) -> StepBox:
    texts = [] if step.generator == DEFAULT_GENERATOR else [f"generator {step.generator}"]
    texts += [f"guard {', '.join(step.guards)}", f"rmax {machine.constants[f'rmax.{step.name}']}"]
    texts += [] if isinstance(step.requires, tuple) else [f"requires {unparse(step.requires)}"]
    texts += ["optional"] if step.optional else []
    is_result = step.name == machine.result
    texts += ["result"] if is_result else []
    return StepBox(step.name, tuple(line for text in texts for line in wrap_text(text)), step.optional, is_result)


def _arrows(step: StepRow, before: str | None) -> list[StepArrow]:
    """Return the arrows to a step, one from each step that it requires or uses."""
    requirements = step.requires if isinstance(step.requires, tuple) else tuple(sorted(names(step.requires)))
    names_by_source: dict[str, tuple[str, ...]] = {}
    for name, source in step.uses:
        names_by_source[source] = (*names_by_source.get(source, ()), name)
    arrows = [StepArrow(source, step.name, "requires", names_by_source.get(source, ())) for source in requirements]
    arrows += [
        StepArrow(source, step.name, "uses", use_names)
        for source, use_names in names_by_source.items()
        if source not in requirements
    ]
    if before is not None and before not in requirements and before not in names_by_source:
        arrows.append(StepArrow(before, step.name, "then"))
    return arrows
