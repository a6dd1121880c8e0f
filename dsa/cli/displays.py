"""How a run is shown while it goes on, and afterwards: by its machine's own display where it has one, else attempt by attempt.

A display is made of a console and the folder of the runs, is given moments, shows what a run that rests asks of people, and ends the line that it has begun (entry
points `dsa.displays`). A machine that people talk with says how `dsa resume` goes on at the terminal (entry points `dsa.resuming`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from rich.console import Console

from dsa.cli.call_lines import CallDisplay
from dsa.cli.live import Progress
from dsa.cli.run_options import RunOptions
from dsa.machine import Machine
from dsa.runtime.call_tree import POLICY
from dsa.runtime.moment import Moment


class Display(Protocol):
    """What shows runs of one machine."""

    def on_moment(self, moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        """Show what happened; what was there before the run was taken up is only noted."""

    def rests(self, directory: Path, /) -> None:
        """Show what the run asks of people, whole, if it has come to rest at a question; `directory` is its own."""

    def end(self) -> None:
        """End a line that was begun."""


def display_of(machine: str, console: Console, root: Path) -> Display | None:
    """Give the display of a machine, by its name; None where it has none. `root` is the folder of the runs."""
    if machine == POLICY:
        return CallDisplay(console)
    for point in entry_points(group="dsa.displays", name=machine):
        made: Display = point.load()(console, root)
        return made
    return None


class Resuming(Protocol):
    """Goes on with a run of one machine in its own display; returns the exit code."""

    def __call__(self, run_id: str, root: Path, options: RunOptions, /, *, take: bool) -> int:
        """Take up the run `run_id` of the folder `root`, from a living process too if `take` says so."""


def resuming_of(machine: str) -> Resuming | None:
    """Return how people go on with a run of a machine; None where it has no way of its own."""
    for point in entry_points(group="dsa.resuming", name=machine):
        found: Resuming = point.load()
        return found
    return None


@contextmanager
def progress_of(machine: Machine, console: Console, root: Path, *, quiet: bool) -> Iterator[Display]:
    """Give what shows a run that is taken up, as long as it is driven."""
    display = None if quiet else display_of(machine.name, console, root)
    if display is None:
        with Progress(machine, console, quiet=quiet) as progress:
            yield progress
        return
    try:
        yield display
    finally:
        display.end()
