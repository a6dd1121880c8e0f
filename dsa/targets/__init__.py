"""Targets: a machine as text for people and other tools, and as a python-statemachine class.

The functions return text (`dsa.targets.statechart` returns a class). They use no files and no renderers; `dsa.edge.images` does.
"""

from collections.abc import Callable

from dsa.machine import Machine
from dsa.targets.dot import dot
from dsa.targets.mermaid import mermaid
from dsa.targets.prism import prism
from dsa.targets.promela import promela
from dsa.targets.scxml import scxml
from dsa.targets.spelling import export_error
from dsa.targets.tla import tla
from dsa.targets.xstate import xstate
from dsa.trace import table

FORMATS: dict[str, Callable[[Machine], str]] = {
    "mermaid": mermaid, "dot": dot, "table": table, "promela": promela, "tla": tla, "prism": prism, "scxml": scxml,
    "xstate": xstate,
}  # fmt: skip


def emit(machine: Machine, format: str) -> str:  # noqa: A002  (the word of the command line, and a public name)
    """Return a machine as text in one of `FORMATS`. Raises DsaError for another format, or a machine that a tool cannot take."""
    if format not in FORMATS:
        raise export_error(f"there is no format '{format}'; the formats are: {', '.join(FORMATS)}")
    return FORMATS[format](machine)


__all__ = [
    "FORMATS", "dot", "emit", "mermaid", "prism", "promela", "scxml", "table", "tla",
    "xstate",
]  # fmt: skip
