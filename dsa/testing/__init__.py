"""Tests of implementations, made from the table: tours, complete suites, Hypothesis walks; strategies and doubles for your own.

`Implementation` says how your code is adapted (`dsa.testing.implementations` has an example); then

    play(machine, make, tour(machine))                     every transition, in few long runs
    complete_suite(machine, extra=1).run(make)             says when an implementation that passes equals the table
    TestAgent = state_machine_test(machine, make).TestCase   Hypothesis walks with refusals and faults
    machines(), configurations(m), occurrences(m)          Hypothesis strategies, for tests that hold for every machine

`pytest` collects machine documents by itself (`dsa.testing.pytest_plugin`).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsa.testing.coverage import Coverage, CoverageError
    from dsa.testing.doubles import StillClock, Texts, Verdicts
    from dsa.testing.graph import Graph, TooLargeError, graph_of
    from dsa.testing.implementations import Charted, Implementation, Observed, Refused, Stepped, View
    from dsa.testing.lockstep import DisagreementError, Lockstep, play
    from dsa.testing.replayed import Replayed
    from dsa.testing.stateful import run_walks, state_machine_test
    from dsa.testing.strategies import configurations, machines, occurrences
    from dsa.testing.suites import CompleteSuite, complete_suite
    from dsa.testing.tours import row_tour, tour
    from dsa.testing.written import read_test

#: The public names of each module; it is imported when one is first used: pytest imports this package at its start, and Hypothesis is heavy.
_NAMES = {
    "coverage": ("Coverage", "CoverageError"),
    "doubles": ("StillClock", "Texts", "Verdicts"),
    "graph": ("Graph", "TooLargeError", "graph_of"),
    "implementations": ("Charted", "Implementation", "Observed", "Refused", "Stepped", "View"),
    "lockstep": ("DisagreementError", "Lockstep", "play"),
    "replayed": ("Replayed",),
    "stateful": ("run_walks", "state_machine_test"),
    "strategies": ("configurations", "machines", "occurrences"),
    "suites": ("CompleteSuite", "complete_suite"),
    "tours": ("row_tour", "tour"),
    "written": ("read_test",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Charted", "CompleteSuite", "Coverage", "CoverageError", "DisagreementError", "Graph", "Implementation",
    "Lockstep", "Observed", "Refused", "Replayed", "Stepped", "StillClock", "Texts", "TooLargeError", "Verdicts",
    "View", "complete_suite", "configurations", "graph_of", "machines", "occurrences", "play", "read_test",
    "row_tour", "run_walks", "state_machine_test", "tour",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        raise AttributeError(f"module 'dsa.testing' has no attribute '{name}'")
    return getattr(importlib.import_module(f"dsa.testing.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
