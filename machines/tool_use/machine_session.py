"""Sessions: a person's work with a run of a shipped machine, with the run's resources and its lines on the terminal.

`RunResources` makes the resources of a run once in a process, and every effect gets the same ones. `MachineSession` drives a run from a person's input.
Acknowledged input is in the ledger, so a killed process loses nothing. `Lines` prints a model's text as it comes, and lines of our own between.
"""

import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import attrs
from rich.console import Console
from rich.text import Text

from dsa.errors import DsaError
from dsa.expr import Value
from dsa.runs.door import RecordedRuns, Runs
from dsa.runs.handle import RunHandle
from dsa.runs.place import DEFAULT_RUNS, place_text
from dsa.runs.runs import Resumption
from dsa.runs.setup import Options, document_of
from dsa.runtime.ledger import MachineEntry
from dsa.runtime.run import Run
from dsa.runtime.status import Rest
from dsa.runtime.timeline import OnMoment
from dsa.semantics import Occurrence
from dsa.text import printable


class Lines:
    """Lines on a terminal, and text that comes in pieces. `part` precedes each line when several parts print at the same time."""

    def __init__(self, console: Console, part: str = "") -> None:
        self.console, self.part = console, part
        #: Whether text of the current answer has been shown; the code that shows the whole answer resets it.
        self.has_text = False
        self.is_in_line = False

    def listen(self, text: str) -> None:
        """Show a piece of the model's text."""
        if self.part:  # other parts print at the same time
            self.line(text.strip())
            return
        self.console.print(Text(printable(text)), end="", soft_wrap=True)
        self.has_text = self.has_text or bool(text)
        self.is_in_line = not text.endswith("\n") if text else self.is_in_line

    def line(self, text: str, style: str = "") -> None:
        """Show lines of our own."""
        self.end()
        for each in text.splitlines() or [""]:
            badge = Text(f"{self.part}| ", style="magenta") if self.part else Text()
            self.console.print(badge + Text(printable(each), style=style), soft_wrap=True)

    def end(self) -> None:
        """End a line that the model's text has left open."""
        if self.is_in_line:
            self.console.print()
            self.is_in_line = False

    def say(self, text: str) -> None:
        """Show a line of our own."""
        self.line(text)


Listener = Callable[[str], object]


def _show_nothing(_text: str) -> None:
    """Show nothing."""


@attrs.frozen
class SessionListeners:
    """What a session calls.

    `on_moment` is called with every moment of its run, `listen` with the model's text as it comes, `notice` with the reason when a model is asked again.
    """

    on_moment: OnMoment | None = None
    listen: Listener = _show_nothing
    notice: Listener = _show_nothing


NO_LISTENERS = SessionListeners()


class ClosingActions(Protocol):
    """Resources that are closed at the end of a run."""

    def close(self) -> None:
        """Close them."""


def files_folder(runs: RecordedRuns, run_id: str) -> Path:
    """Return the folder of this machine with the files of a run: in the folder of the runs, or, for runs on a server, in `.dsa` in the working folder."""
    return (runs.root or Path(DEFAULT_RUNS)) / run_id


def resume_command(command: str, runs: RecordedRuns, run_id: str) -> str:
    """Return the command that resumes a run, ready to paste. `command` is `dsa chat` or `dsa code`."""
    where = place_text(runs.where)
    return shlex.join([*command.split(), "--resume", run_id, *([] if where == DEFAULT_RUNS else ["--runs", where])])


T = TypeVar("T", bound=ClosingActions)


def _folder_of(config: Mapping[str, Any]) -> str:
    """Return the folder of runs, from their settings."""
    return os.path.abspath(config.get("runs") or DEFAULT_RUNS)  # noqa: PTH100  (every effect calls this, and paths are slow)


class RunResources(Generic[T]):
    """The resources of the runs of one machine, by the folder of runs and the run's id."""

    def __init__(self, make: Callable[[Mapping[str, Any], Path], T]) -> None:
        self._make = make
        self._of: dict[tuple[str, str], T] = {}

    def of(self, config: Mapping[str, Any], run_id: str) -> T:
        """Return the resources of a run; `config["runs"]` is the folder of the runs."""
        runs = _folder_of(config)
        if (runs, run_id) not in self._of:
            self._of[runs, run_id] = self._make(config, Path(runs) / run_id)
        return self._of[runs, run_id]

    def release_run(self, config: Mapping[str, Any], run_id: str) -> None:
        """Close the resources of a run, if it has any, and forget them."""
        resources = self._of.get((_folder_of(config), run_id))
        if resources is not None:
            self.release(resources)

    def release(self, resources: T) -> None:
        """Close the resources of a run, and forget them."""
        resources.close()
        for name, item in list(self._of.items()):
            if item is resources:
                del self._of[name]


class MachineSession(Generic[T]):
    """A run with the resources of its policies. Use it as a context manager, or `close` it. `command` is the command that resumes such a run.

    The resources are made and passed to `prepare` before anything of a new run is recorded, so a fault in them is raised here.
    """

    command = ""
    #: The last rest of the run in this session.
    rest: Rest | None = None

    def __init__(self, handle: RunHandle, pool: RunResources[T], prepare: Callable[[T], object]) -> None:
        self._handle = handle
        with ExitStack() as cleanup:
            cleanup.callback(handle.release)
            self.resources = pool.of(handle.config, handle.id)
            cleanup.callback(pool.release, self.resources)
            prepare(self.resources)
            self._cleanup = cleanup.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the run; it can be resumed."""
        self._cleanup.close()

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self._handle.id

    @property
    def is_over(self) -> bool:
        """Whether the run is in a final state."""
        return self._handle.run.is_finished

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self._handle.run

    @property
    def values(self) -> dict[str, Value]:
        """The variables' values by name."""
        return self._handle.run.values

    def send_soon(self, occurrence: Occurrence) -> None:
        """Send the run an event without waiting. Call it in the event loop's thread; the run takes the event in its turn."""
        self._handle.offer(occurrence).add_done_callback(lambda became: became.cancelled() or became.exception())

    async def drive(self, *occurrences: Occurrence) -> None:
        """Send the run events, and wait until it rests. Raises DsaError when a failure has stopped it, or it is in doubt; the run can be resumed."""
        rest = self.rest = await self._handle.drive(*occurrences)
        if rest.in_doubt:
            key = rest.in_doubt[0].key
            raise DsaError(f"the result of {key} is in doubt: dsa show {self.run_id} says how to decide it")
        if rest.failure is not None:
            raise DsaError(f"{rest.failure}; to resume the run: {self.command} --resume {self.run_id}")


def begin_run(
    runs: Runs, name: str, options: Options, *, run_id: str = "", on_moment: OnMoment | None = None
) -> RunHandle:
    """Begin a run of a shipped machine, without driving it. Raises what `Runs.setup` and `Runs.begin` raise."""
    return runs.begin(runs.setup(document_of(name), options), run_id=run_id, on_moment=on_moment)


def hold_run(
    runs: Runs, run_id: str, name: str, options: Options, *, take: bool = False, on_moment: OnMoment | None = None
) -> RunHandle:
    """Hold a run, without driving it. Raises DsaError for a run of another machine, and what `Runs.hold` raises."""
    first = runs.stored_run(run_id).entries[0]
    if not isinstance(first, MachineEntry) or first.name != name:
        what = f"a run of {first.name}" if isinstance(first, MachineEntry) else "not a run of a machine"
        raise DsaError(f"run {run_id} is {what}; name a run of {name}")
    return runs.hold(run_id, options=options, resumption=Resumption(take=take), on_moment=on_moment)
