"""The drawing of a machine: its diagram as markup, with classes for where a run is and was, made beside the work of the page.

A drawing is made once for each diagram, by a program of its own. Pages show their other parts meanwhile.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from dsa.edge.images import svg
from dsa.errors import DsaError
from dsa.machine import Machine
from dsa.targets import dot
from dsa.targets.picture import picture
from dsa.web.markup import EMPTY, Markup, drawing, tag

#: The seconds that a page waits for its diagram before it is shown without.
_PATIENCE_S = 0.25
#: The text in the place of a diagram that is not drawn yet.
DRAWING = tag("p", "The diagram is being drawn.", class_="hint")


@lru_cache(maxsize=32)
def _svg(dot_text: str) -> str:
    return svg(dot_text)


def diagram(machine: Machine, marks: Mapping[str, str] | None = None) -> Markup:
    """Return the diagram of a machine, or why it cannot be drawn; `marks` are classes of its nodes."""
    try:
        return drawing(_svg(dot(machine)), f"Diagram of {machine.name}", marks)
    except (DsaError, SyntaxError) as fault:  # a SyntaxError: what was drawn is not XML
        return tag("p", f"The diagram cannot be drawn: {fault}", class_="message")


def picture_marks(machine: Machine, lines: Sequence[int], states: Sequence[str]) -> dict[str, str]:
    """Return the classes of a diagram's nodes after rows of these lines were taken through these states, the last of which is the present one."""
    from_lines = arrows_by_line(machine)
    marks = {from_lines[line]: "past" for line in lines if line in from_lines}
    boxes = [_box(machine, each) for each in states]
    marks |= dict.fromkeys(boxes, "past")
    return marks | {boxes[-1]: "now"}


def _box(machine: Machine, state: str) -> str:
    """Return the name of a state's box in the diagram: in that of a Steps document, its step."""
    step = state.rpartition(".")[2]
    return step if any(each.name == step for each in machine.steps) else state


def arrows_by_line(machine: Machine) -> dict[int, str]:
    """Return the name of the arrow in the diagram for each row, by its line."""
    if machine.steps:
        return {}
    arrows = enumerate(picture(machine).arrows, 1)
    return {row.row.span.line: f"arrow {number}" for number, arrow in arrows for row in arrow.rows if row.row.span}


class MachineDrawing:
    """The diagram of the newest machine, for a page that does not wait for it. `tell` is called when it is there.

    One diagram is drawn at a time: while a document changes fast, those in between are left out.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        self.markup = EMPTY
        self._tell = tell
        self._machine: Machine | None = None
        self._machine_drawn: Machine | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the diagram of the newest machine is drawn."""
        return self._machine is not None and self._machine_drawn is self._machine

    def draw(self, machine: Machine | None) -> None:
        """Draw a machine from now on; None: nothing. The diagram before stays until the new one is there."""
        if machine is self._machine:
            return
        self._machine = machine
        if machine is None:
            self.markup = EMPTY
        elif self.markup is EMPTY:
            self.markup = DRAWING
        if machine is not None and self._task is None:
            self._task = asyncio.create_task(self._follow())

    async def wait(self) -> None:
        """Wait for the diagram for a moment: most are there at once, and a page with its diagram does not jump."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_PATIENCE_S)

    async def _follow(self) -> None:
        """Draw until the newest machine is drawn."""
        try:
            while (machine := self._machine) is not None and not self.is_ready:
                markup = await asyncio.to_thread(diagram, machine)
                if machine is self._machine:
                    self.markup, self._machine_drawn = markup, machine
                    self._tell()
        finally:
            self._task = None
