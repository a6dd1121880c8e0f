"""Scenarios for the rows that none takes yet, taken from shortest traces.

Takes a machine, gives `Scenario` values that run as written; a person reads them, names them, and keeps those that say
what the machine should do.
"""

import attrs

from dsa.checks.explore import explore
from dsa.checks.scenarios import run_scenario, run_scenarios
from dsa.claims import Scenario, ScenarioStep
from dsa.machine import Machine
from dsa.trace import Trace, TraceStep


def scenarios_for_untaken_rows(machine: Machine) -> tuple[Scenario, ...]:
    """Give scenarios at the defaults that take every row which can be taken and which no scenario takes.

    Each is a shortest trace to one such row; the longest come first, since they take others on the way.
    """
    covered = {place for result in run_scenarios(machine) for place in result.rows}
    exploration = explore(machine)
    traces = {place: exploration.trace_taking(place) for place in exploration.rows - covered}
    found = []
    for place, trace in sorted(traces.items(), key=lambda item: (-len(item[1].steps), item[0])):
        row = machine.transitions[place]
        if place not in covered:
            found.append(_scenario(f"row {place + 1}, {row.event} in {row.source}", trace))
            covered |= set(run_scenario(machine, found[-1]).rows)
    return tuple(found)


def _scenario(name: str, trace: Trace) -> Scenario:
    return Scenario(name, tuple(_percept(taken) for taken in trace.steps))


def _percept(taken: TraceStep) -> ScenarioStep:
    """Write a step as a percept; verdicts that passed go without saying."""
    said = tuple((guard, outcome) for guard, outcome in taken.occurrence.verdicts if outcome != "passed")
    action = tuple(attrs.evolve(item, span=None) for item in taken.row.effects)
    return ScenarioStep(taken.occurrence.event, said, action, taken.state)
