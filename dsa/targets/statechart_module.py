"""A machine as a Python module that gives its python-statemachine class.

Takes a machine and its document, gives text; the class is made by `dsa.targets.statechart` when the module is imported.
"""

import re
from keyword import iskeyword

from dsa.machine import Machine


def statechart_module(machine: Machine, document: str) -> str:
    """Write a Python module with the document in it, the machine, and the class."""
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[._]+", machine.name) if part) or "Machine"
    is_free = name.isidentifier() and not iskeyword(name) and name not in {"DOCUMENT", "StatechartRun"}
    name = name if is_free else f"Machine{name}"
    return f'''"""{machine.name} as a class of python-statemachine, written by `dsa export --to statechart`.

`StatechartRun(machine)` feeds it occurrences and answers as `dsa.step` does.
"""

from dsa import loads
from dsa.targets.statechart import StatechartRun, statechart

__all__ = ["DOCUMENT", "{name}", "StatechartRun", "machine"]

DOCUMENT = {_lines(document)}

machine = loads(DOCUMENT)
{name} = statechart(machine)
'''


def _lines(text: str) -> str:
    """Write a text as one literal for each of its lines."""
    pieces = "".join(f"\n    {piece!r}" for piece in text.splitlines(keepends=True))
    return f"({pieces}\n)" if pieces else "''"
