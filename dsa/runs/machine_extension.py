"""Machine extensions: what the package of a machine adds to the commands and to the web page, found by the machine's name."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import attrs

from dsa.edge.plugins import installed_points
from dsa.runs.door import Runs
from dsa.runs.handle import RunHandle
from dsa.runtime.ledger import Entry
from dsa.runtime.run import Run


class RunView(Protocol):
    """A machine's own view of a run on its web page. It takes the run's entries one by one, and draws what they say.

    `texts` has the events whose data is a text that a person types, with the label of the field.
    """

    texts: Mapping[str, str]

    def take(self, entry: Entry) -> None:
        """Read a further entry."""

    def markup(self) -> Any:  # noqa: ANN401  (dsa.web.markup.Markup, which is above this package)
        """Return the view as it is now."""

    def earlier(self, before: int) -> Any:  # noqa: ANN401  (Markup)
        """Return the parts of the view before the one with this number, the newest of them; a link leads to earlier ones, here and in `markup`."""

    def file(self, name: str) -> bytes | None:
        """Return the content of a file of the run, by the name in the view; None if it has no such file."""


@attrs.frozen
class StartField:
    """A field of a `StartForm`: its label, its number of lines, its first value, and the words to choose from if it is not a free text."""

    label: str
    lines: int = 1
    value: str = ""
    choices: tuple[str, ...] = ()


@attrs.frozen
class StartForm:
    """A form that begins runs of a machine on the web page. `fields` are its fields by their names, each a text that may be empty.

    `begin(runs, values)` begins a run with what was typed, and drives it. It raises DsaError, ValueError or OSError for values that cannot be used; then no run
    exists.
    """

    title: str
    fields: Mapping[str, StartField]
    begin: Callable[[Runs, Mapping[str, str]], Awaitable[RunHandle]]


@attrs.frozen
class MachineExtension:
    """The additions of a machine's package to the commands and the web page. The package has it in the entry points `dsa.machines`, under the machine's name.

    `name` is the machine's. The other fields are None if the machine has none of its own. `display(console, root)` returns a `RunDisplay` of runs in
    the folder `root`; `resume` is a `ResumeCommand`; `counters(entries)` returns numbers by name for `dsa show --counters`; `exit_code(run)` returns
    the code of a finished run, or None; `diff(runs, run_id)` returns the changes that a run has made outside; `view(address, folder)` returns the
    view of a run whose page has this address; `start_form` begins runs there. `release(config, run_id)` closes what the effects of a run keep open in
    this process between their calls, when a worker is done with the run.
    """

    name: str = ""
    display: Callable[..., Any] | None = None
    resume: Callable[..., int] | None = None
    counters: Callable[[Iterable[Entry]], Mapping[str, Any]] | None = None
    exit_code: Callable[[Run], int | None] | None = None
    diff: Callable[[Runs, str], str] | None = None
    view: Callable[[str, Path | None], RunView] | None = None
    start_form: StartForm | None = None
    release: Callable[[Mapping[str, Any], str], None] | None = None


def release_resources(machine: str, config: Mapping[str, Any], run_id: str) -> None:
    """Close what the effects of a run keep open in this process, if its machine has anything like that. `config` is that of its bindings."""
    release = extension_of(machine).release
    if release is not None:
        release(config, run_id)


def extensions() -> tuple[MachineExtension, ...]:
    """Return the extensions of all machines whose packages are installed, by their names."""
    points = installed_points("dsa.machines")
    return tuple(extension_of(name) for name in sorted(points.names))


@lru_cache(maxsize=64)
def extension_of(machine: str) -> MachineExtension:
    """Return the extension of a machine, by its name; without a package, an empty one."""
    for point in installed_points("dsa.machines").select(name=machine):
        extension: MachineExtension = point.load()
        return extension
    return MachineExtension()
