"""State machines for LLM agents: one Markdown table that is checked, drawn, tested and run."""

import importlib
import time
from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsa.checks.odds.run_odds import odds
    from dsa.checks.proof.prover import prove
    from dsa.checks.report import check
    from dsa.checks.search.exploration import explore
    from dsa.edge.binding import Bindings
    from dsa.edge.document_files import load
    from dsa.lang import dumps, loads
    from dsa.machine import Machine
    from dsa.runs.door import Runs
    from dsa.runs.handle import RunHandle
    from dsa.runs.runs import TakeUp, Worker, open_runs, run
    from dsa.runs.setup import Options
    from dsa.runtime.policy.policies import (
        Action,
        PolicyContext,
        Step,
        answering,
        error_step,
        event_step,
        question_step,
        text_step,
    )
    from dsa.runtime.run_store import Posted
    from dsa.runtime.status import Rest
    from dsa.runtime.timeline import Moment, Piece
    from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step
    from dsa.targets import emit

#: The public names of each module; it is imported when one is first used, so that `import dsa` and `dsa --help` are quick.
_NAMES = {
    "dsa.checks.odds.run_odds": ("odds",),
    "dsa.checks.proof.prover": ("prove",),
    "dsa.checks.report": ("check",),
    "dsa.checks.search.exploration": ("explore",),
    "dsa.edge.binding": ("Bindings",),
    "dsa.edge.document_files": ("load",),
    "dsa.lang": ("dumps", "loads"),
    "dsa.machine": ("Machine",),
    "dsa.semantics": ("Configuration", "Occurrence", "Refusal", "Taken", "start", "step"),
    "dsa.runs.handle": ("RunHandle",),
    "dsa.runs.door": ("Runs",),
    "dsa.runs.runs": ("TakeUp", "Worker", "open_runs", "run"),
    "dsa.runs.setup": ("Options",),
    "dsa.runtime.run_store": ("Posted",),
    "dsa.runtime.timeline": ("Moment", "Piece"),
    "dsa.runtime.policy.policies": (
        "Action",
        "PolicyContext",
        "Step",
        "answering",
        "error_step",
        "event_step",
        "question_step",
        "text_step",
    ),
    "dsa.runtime.status": ("Rest",),
    "dsa.targets": ("emit",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
#: The functions that have this machine's clock where the caller passes none: `dsa.checks` itself knows no time.
_NEEDS_CLOCK = frozenset({"check", "explore", "prove"})

__all__ = [
    "Action", "Bindings", "Configuration", "Machine", "Moment", "Occurrence", "Options", "Piece", "PolicyContext",
    "Posted", "Refusal", "Rest", "RunHandle", "Runs", "Step", "TakeUp", "Taken", "Worker", "answering", "check", "dumps",
    "emit", "error_step", "event_step", "explore", "load", "loads", "odds", "open_runs", "prove", "question_step", "run",
    "start", "step", "text_step",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        raise AttributeError(f"module 'dsa' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    return _with_clock(value) if name in _NEEDS_CLOCK else value


@cache
def _with_clock(judge: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(judge)
    def wrapper(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  (those of the function)
        if options.get("clock") is None:
            options["clock"] = time.perf_counter
        return judge(*arguments, **options)

    return wrapper


def __dir__() -> list[str]:
    return __all__
