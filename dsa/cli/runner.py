"""Runner: drives one run for a command until it rests, and writes down what it made."""

import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.interrupts import run_to_end
from dsa.edge.render import RenderError, svg
from dsa.runs.handle import RunHandle
from dsa.runs.one_policy import answer_text, steps_given
from dsa.runs.runs import Runs
from dsa.runtime.rest import Rest
from dsa.targets import emit


@attrs.frozen
class Performed:
    """A run that came to rest: how, where its files are, how many seconds it took this time.

    `final` and `diagram` are None when no step has passed, and when no renderer is installed.
    """

    rest: Rest
    directory: Path
    final: Path | None
    diagram: Path | None
    seconds: float


def perform(
    opened: Callable[[], Runs], begin: Callable[[Runs], Coroutine[Any, Any, RunHandle]], wait_s: float
) -> Performed:
    """Begin a run, or take one up, and drive it until it rests; write down what it made. Raises what `begin` does.

    A timer that is due within `wait_s` seconds is waited for.
    """

    async def whole() -> Performed:
        began = time.monotonic()
        async with opened() as runs:
            handle = await begin(runs)
            rest = await handle.rest_within(wait_s)
            seconds = time.monotonic() - began
            assert handle.folder is not None, "commands keep their runs in a folder"
            final, diagram = handle.folder.write_final(rest.accepted, _answer(rest)), None
            with suppress(RenderError):
                diagram = handle.folder.write_diagram(svg(emit(rest.run.machine, "dot")))
            return Performed(rest, handle.folder.path, final, diagram, seconds)

    return run_to_end(whole())


def _answer(rest: Rest) -> str | None:
    """Return what a policy that was asked said last; None where none has succeeded."""
    steps = steps_given(rest.run) if rest.outcome == "succeeded" else None
    return None if steps is None else answer_text(steps)
