"""State machines for LLM agents: one Markdown table that is checked, drawn, tested and run."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsa.checks.explore import explore
    from dsa.checks.odds.reckon import odds
    from dsa.checks.prove import prove
    from dsa.checks.report import check
    from dsa.edge.binding import Bindings
    from dsa.edge.files import load
    from dsa.lang import dumps, loads
    from dsa.machine import Machine
    from dsa.meaning import Configuration, Occurrence, Refusal, Taken, start, step
    from dsa.runs.handle import RunHandle
    from dsa.runs.runs import Runs, open_runs, run
    from dsa.runs.setup import Options
    from dsa.runtime.inbox import Posted
    from dsa.runtime.moment import Moment, Piece
    from dsa.runtime.policies import Action, PolicyContext, Step, answering, error_step, event_step, text_step
    from dsa.runtime.rest import Rest
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
    "Moment": "dsa.runtime.moment",
    "Piece": "dsa.runtime.moment",
    "Posted": "dsa.runtime.inbox",
    "Options": "dsa.runs.setup",
    "Rest": "dsa.runtime.rest",
    "RunHandle": "dsa.runs.handle",
    "Runs": "dsa.runs.runs",
    "open_runs": "dsa.runs.runs",
    "run": "dsa.runs.runs",
    "Action": "dsa.runtime.policies",
    "Bindings": "dsa.edge.binding",
    "PolicyContext": "dsa.runtime.policies",
    "Step": "dsa.runtime.policies",
    "answering": "dsa.runtime.policies",
    "error_step": "dsa.runtime.policies",
    "event_step": "dsa.runtime.policies",
    "text_step": "dsa.runtime.policies",
}

__all__ = [
    "Action",
    "Bindings",
    "Configuration",
    "Machine",
    "Moment",
    "Occurrence",
    "Options",
    "Piece",
    "PolicyContext",
    "Posted",
    "Refusal",
    "Rest",
    "RunHandle",
    "Runs",
    "Step",
    "Taken",
    "answering",
    "check",
    "dumps",
    "emit",
    "error_step",
    "event_step",
    "explore",
    "load",
    "loads",
    "odds",
    "open_runs",
    "prove",
    "run",
    "start",
    "step",
    "text_step",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        msg = f"module 'dsa' has no attribute '{name}'"
        raise AttributeError(msg)
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
