"""The step picture: a box for each step of a Steps machine, and arrows for what leads from one step to another.

`step_picture` returns frozen values in table order, without any syntax; `mermaid` and `dot` write them. For the rows behind the steps, draw
`dsa.lang.spell_out(machine)`.
"""

from collections.abc import Collection
from typing import Literal

import attrs

from dsa.data_use import DEFAULT_GENERATOR
from dsa.declarations import StepRow, Transition
from dsa.expr import names, unparse
from dsa.machine import Machine
from dsa.targets.picture import wrap_text

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
