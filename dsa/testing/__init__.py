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
    from dsa.testing.doubles import StillClock, Texts, Verdicts
    from dsa.testing.explored_graph import (
        Coverage,
        ExploredGraph,
        graph_of,
        row_tour,
        tour,
    )
    from dsa.testing.implementations import (
        Implementation,
        Observation,
        RefusedAction,
        ReplayedMachine,
        StatechartMachine,
        SteppedMachine,
        View,
    )
    from dsa.testing.lockstep import DisagreementError, Lockstep, play, run_walks, state_machine_test
    from dsa.testing.strategies import configurations, machines, occurrences
    from dsa.testing.suites import CompleteSuite, complete_suite, read_test

#: The public names of each module; a module is imported when one of its names is first used: pytest imports this package at its start, and Hypothesis is heavy.
_NAMES = {
    "doubles": ("StillClock", "Texts", "Verdicts"),
    "explored_graph": (
        "Coverage",
        "ExploredGraph",
        "graph_of",
        "row_tour",
        "tour",
    ),
    "implementations": (
        "StatechartMachine",
        "Implementation",
        "Observation",
        "RefusedAction",
        "ReplayedMachine",
        "SteppedMachine",
        "View",
    ),
    "lockstep": ("DisagreementError", "Lockstep", "play", "run_walks", "state_machine_test"),
    "strategies": ("configurations", "machines", "occurrences"),
    "suites": ("CompleteSuite", "complete_suite", "read_test"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "CompleteSuite",
    "Coverage",
    "DisagreementError",
    "ExploredGraph",
    "Implementation",
    "Lockstep",
    "Observation",
    "RefusedAction",
    "ReplayedMachine",
    "StatechartMachine",
    "SteppedMachine",
    "StillClock",
    "Texts",
    "Verdicts",
    "View",
    "complete_suite",
    "configurations",
    "graph_of",
    "machines",
    "occurrences",
    "play",
    "read_test",
    "row_tour",
    "run_walks",
    "state_machine_test",
    "tour",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        raise AttributeError(f"module 'dsa.testing' has no attribute '{name}'")
    return getattr(importlib.import_module(f"dsa.testing.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
