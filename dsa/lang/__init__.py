"""The table language: `loads` and `dumps` for text and machines, `digest`, `format_document` and `spell_out`."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsa.errors import MachineError
from dsa.lang.document_reader import MOST_CHARACTERS, DocumentReading, machine_of, read_machine, read_spec
from dsa.machine import Machine

if TYPE_CHECKING:
    from dsa.lang.document_writer import digest, dumps, format_document, scenario_text
    from dsa.lang.steps_table import spell_out

#: Where the names live that reading does without; each is imported at first use, so that `dsa check` is quick.
_HOME = {
    "digest": "document_writer", "dumps": "document_writer", "spell_out": "steps_table", "format_document": "document_writer",
    "scenario_text": "document_writer",
}  # fmt: skip

__all__ = [
    "MOST_CHARACTERS",
    "DocumentReading",
    "digest",
    "dumps",
    "format_document",
    "loads",
    "machine_of",
    "read_machine",
    "read_spec",
    "scenario_text",
    "spell_out",
]  # fmt: skip


def loads(text: str, path: str = "<text>", families: Mapping[str, str] | None = None) -> Machine:
    """Read a machine document; `path` is what diagnostics call it. `families` replaces the index of some, as text: `{"f": "1..5"}`.

    Raises MachineError with every fault found, and ParameterError for a name that is not a family of the document, or a text that is not an index.
    """
    result = read_machine(text, path, families or {})
    if result.machine is None:
        raise MachineError(result.diagnostics)
    return result.machine


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        raise AttributeError(f"module 'dsa.lang' has no attribute '{name}'")
    return getattr(importlib.import_module(f"dsa.lang.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
