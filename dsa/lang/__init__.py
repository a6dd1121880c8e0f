"""Text to Machine, and back: `loads`, `dumps`, `digest`, `formatted`, `expanded`."""

from dsa.errors import MachineError
from dsa.lang.build import Reading, read_machine
from dsa.lang.dump import digest, dumps, scenario_text
from dsa.lang.expand import expanded
from dsa.lang.format import formatted
from dsa.lang.spec import machine_of, read_spec
from dsa.machine import Machine

__all__ = [
    "Reading",
    "digest",
    "dumps",
    "expanded",
    "formatted",
    "loads",
    "machine_of",
    "read_machine",
    "read_spec",
    "scenario_text",
]


def loads(text: str, path: str = "<text>") -> Machine:
    """Read a machine document; `path` is what diagnostics call it. Raises MachineError with every fault found."""
    reading = read_machine(text, path)
    if reading.machine is None:
        raise MachineError(reading.diagnostics)
    return reading.machine
