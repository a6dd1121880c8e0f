"""Text to Machine, and back: `loads`, `dumps`, `digest`, `formatted`, `expanded`."""

import importlib
from typing import TYPE_CHECKING, Any

from dsa.errors import MachineError
from dsa.lang.build import MOST_CHARACTERS, Reading, machine_of, read_machine, read_spec
from dsa.machine import Machine

if TYPE_CHECKING:
    from dsa.lang.dump import digest, dumps, scenario_text
    from dsa.lang.expand import expanded
    from dsa.lang.format import formatted

#: Where the names live that reading does without; each is imported at first use, so that `dsa check` is quick.
_HOME = {"digest": "dump", "dumps": "dump", "expanded": "expand", "formatted": "format", "scenario_text": "dump"}

__all__ = [
    "MOST_CHARACTERS", "Reading", "digest", "dumps", "expanded", "formatted", "loads", "machine_of", "read_machine", "read_spec",
    "scenario_text",
]  # fmt: skip


def loads(text: str, path: str = "<text>") -> Machine:
    """Read a machine document; `path` is what diagnostics call it. Raises MachineError with every fault found."""
    reading = read_machine(text, path)
    if reading.machine is None:
        raise MachineError(reading.diagnostics)
    return reading.machine


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        raise AttributeError(f"module 'dsa.lang' has no attribute '{name}'")
    return getattr(importlib.import_module(f"dsa.lang.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
