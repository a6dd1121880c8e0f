"""State machines for LLM agents: one Markdown table that is checked, drawn, tested and run."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsa.checks import check, explore
    from dsa.checks.odds.reckon import odds
    from dsa.checks.prove import prove
    from dsa.edge.files import load
    from dsa.lang import dumps, loads
    from dsa.machine import Machine
    from dsa.meaning import Configuration, Occurrence, Refusal, Taken, start, step
    from dsa.targets import emit

#: Where each public name lives; it is imported at first use, so that `import dsa` and `dsa --help` are quick.
_HOME = {
    "check": "dsa.checks",
    "explore": "dsa.checks",
    "odds": "dsa.checks.odds.reckon",
    "load": "dsa.edge.files",
    "dumps": "dsa.lang",
    "loads": "dsa.lang",
    "Machine": "dsa.machine",
    "Configuration": "dsa.meaning",
    "Occurrence": "dsa.meaning",
    "Refusal": "dsa.meaning",
    "Taken": "dsa.meaning",
    "start": "dsa.meaning",
    "step": "dsa.meaning",
    "emit": "dsa.targets",
    "prove": "dsa.checks.prove",
}

__all__ = [
    "Configuration",
    "Machine",
    "Occurrence",
    "Refusal",
    "Taken",
    "check",
    "dumps",
    "emit",
    "explore",
    "load",
    "loads",
    "odds",
    "prove",
    "start",
    "step",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        msg = f"module 'dsa' has no attribute '{name}'"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
