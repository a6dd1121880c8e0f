"""Scenarios: each is run as written, up to the first step that goes another way.

Takes a machine with its scenarios; gives a result for each, and diagnostics. A scenario runs from the start at its own parameters. A guard that a
percept does not name has passed. A step that is refused changes nothing.
"""

from collections.abc import Iterator, Sequence

import attrs

from dsa.checks.places import line_of, place
from dsa.checks.search.exploration import explore
from dsa.declarations import TIMER_PREFIX, RefusedAction, Scenario, ScenarioStep, Transition
from dsa.errors import Diagnostic, OccurrenceError, ParameterError, Span
from dsa.expr import Outcome, Value, show_value
from dsa.machine import Machine, read_guards, show_used, used_in
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, candidates, start, step
from dsa.trace import Trace, TraceStep, show_occurrence

_ROWS_LISTED = 3


@attrs.frozen
class ScenarioResult:
    """How a scenario went: `message` has the expected and the actual result, and is empty when it is `ok`.

    `rows` are the indexes of the rows it took, in order, up to the step that went wrong; `span` is that step's.
    """

    name: str
    line: int
    ok: bool
    message: str = ""
    rows: tuple[int, ...] = ()
    span: Span | None = attrs.field(default=None, eq=False, repr=False)


class _MismatchError(Exception):
    """Raised inside this module where a step is not as written."""


def run_scenarios(machine: Machine) -> tuple[ScenarioResult, ...]:
    """Run every scenario of a machine."""
    return tuple(run_scenario(machine, scenario) for scenario in machine.scenarios)


def run_scenario(machine: Machine, scenario: Scenario) -> ScenarioResult:
    """Run one scenario up to the first step that is not as written."""
    line, rows = scenario.span.line if scenario.span else 0, list[int]()
    places = {id(row): number for number, row in enumerate(machine.transitions)}
    at: Span | None = scenario.span
    try:
        there = machine.at(dict(scenario.parameters))
        configuration = start(there)
        for percept in scenario.steps:
            at = percept.span or scenario.span
            configuration, row = _run_step(there, configuration, percept)
            if row is not None:
                rows.append(places[id(row)])
    except (_MismatchError, OccurrenceError, ParameterError) as fault:
        return ScenarioResult(scenario.name, line, ok=False, message=str(fault), rows=tuple(rows), span=at)
    return ScenarioResult(scenario.name, line, ok=True, rows=tuple(rows), span=at)


def _run_step(
    machine: Machine, before: Configuration, percept: ScenarioStep
) -> tuple[Configuration, Transition | None]:
    """Take one percept and compare; return the configuration after it and the row taken, if any."""
    occurrence = occurrence_of(machine, before, percept)
    result = step(machine, before, occurrence)
    _compare_action(percept, occurrence, result)
    after = result.configuration
    _compare_state(machine, percept, after)
    _compare_values(machine, percept, after)
    _compare_dependencies(machine, percept, after)
    return after, result.transition if isinstance(result, Taken) else None


def occurrence_of(machine: Machine, configuration: Configuration, percept: ScenarioStep) -> Occurrence:
    """Return the occurrence that a percept stands for in a configuration.

    `after 30s` is the innermost armed timer of that duration, or, when none is armed, any: it is then refused as late.
    """
    source = None
    if percept.event.startswith(TIMER_PREFIX):
        timers = [*machine.armed_timers(configuration.state), *machine.rows_from]
        source = next((where for where, event in timers if event == percept.event), None)
        if source is None:
            raise _MismatchError(f"no row is for '{percept.event}'")
    rows = candidates(machine, configuration.state, Occurrence(percept.event, source=source))
    if configuration.state in machine.final_states or not rows:
        return Occurrence(percept.event, source=source)
    return Occurrence(percept.event, tuple(_verdicts(machine, percept, rows)), source)


def _verdicts(machine: Machine, percept: ScenarioStep, rows: tuple[Transition, ...]) -> Iterator[tuple[str, Outcome]]:
    verdicts, read = dict(percept.verdicts), read_guards(rows)
    strangers = sorted(verdicts.keys() - set(read))
    if strangers:
        raise _MismatchError(f"{rows[0].source} reads no verdict of {', '.join(strangers)} on {percept.event}")
    for guard in read:
        outcome = verdicts.get(guard, "passed")
        if outcome not in machine.guard_named[guard].outcomes:
            choices = " or ".join(f"{guard}.{choice}" for choice in machine.guard_named[guard].outcomes)
            raise _MismatchError(f"guard {guard} never says '{outcome}'; write {choices} in the percept")
        yield guard, outcome


def _expect(what: str, expected_text: str, actual_text: str) -> None:
    raise _MismatchError(f"{what}: expected {expected_text or 'nothing'}, got {actual_text or 'nothing'}")


def _compare_action(percept: ScenarioStep, occurrence: Occurrence, result: Taken | Refusal) -> None:
    refusal = f"refused: {result.reason} ({result.message})" if isinstance(result, Refusal) else ""
    what = f"on {show_occurrence(occurrence)}"
    if isinstance(percept.action, RefusedAction):
        expected_text = f"refused: {percept.action.reason}" if percept.action.reason else "refused"
        if isinstance(result, Taken):
            _expect(
                what, expected_text, ", ".join(map(str, result.transition.effects)) or f"{result.configuration.state}"
            )
        elif percept.action.reason not in {None, result.reason}:
            _expect(what, expected_text, refusal)
        return
    expected_text = ", ".join(map(str, percept.action))
    actual_text = refusal or ", ".join(map(str, result.transition.effects if isinstance(result, Taken) else ()))
    if expected_text != actual_text:
        _expect(what, expected_text, actual_text)


def _compare_state(machine: Machine, percept: ScenarioStep, after: Configuration) -> None:
    if percept.state is not None:
        expected_state = machine.resolve_state(percept.state) or percept.state
        if expected_state not in machine.ancestry(after.state):
            _expect(f"state after {percept.event}", expected_state, after.state)


def _compare_values(machine: Machine, percept: ScenarioStep, after: Configuration) -> None:
    values: dict[str, Value] = {v.name: value for v, value in zip(machine.variables, after.values, strict=True)}
    for name, expected_value in percept.values:
        if values[name] != expected_value:
            _expect(f"{name} after {percept.event}", show_value(expected_value), show_value(values[name]))


def _compare_dependencies(machine: Machine, percept: ScenarioStep, after: Configuration) -> None:
    """Compare with what the step in progress uses."""
    if percept.dependencies is None:
        return
    dependencies = used_in(machine, after.state)
    if sorted(percept.dependencies) != sorted(dependencies):
        _expect(f"dependencies after {percept.event}", show_used(percept.dependencies), show_used(dependencies))


def from_scenarios(machine: Machine, results: Sequence[ScenarioResult]) -> tuple[Diagnostic, ...]:
    """Report the scenarios that do not run as written, and in one warning the rows that none takes."""
    failed = [result for result in results if not result.ok]
    diagnostics = [Diagnostic("DSA310", "error", f"scenario '{r.name}': {r.message}", place(r.span)) for r in failed]
    taken = {number for result in results for number in result.rows}
    left = [row for number, row in enumerate(machine.transitions) if number not in taken]
    if results and left and not diagnostics:  # a scenario that fails takes fewer rows than it is meant to
        row_list = ", ".join(f"line {line_of(row)} ({row})" for row in left[:_ROWS_LISTED])
        rest = f", and {len(left) - _ROWS_LISTED} more" if len(left) > _ROWS_LISTED else ""
        message = f"no scenario takes {len(left)} of {len(machine.transitions)} rows: {row_list}{rest}"
        where = place(left[0].span)
        hint = f"dsa new --scenarios {where.path} prints scenarios that take them"
        diagnostics.append(Diagnostic("DSA311", "warning", message, where, hint))
    return tuple(diagnostics)


def scenarios_for_untaken_rows(machine: Machine) -> tuple[Scenario, ...]:
    """Return scenarios at the defaults that take every row which can be taken and which no scenario takes.

    Each is a shortest trace to one such row; the longest come first, since they take others on the way. A person reads them, names
    them, and keeps those that say what the machine should do.
    """
    covered_rows = {number for result in run_scenarios(machine) for number in result.rows}
    exploration = explore(machine)
    traces = {number: exploration.trace_taking(number) for number in exploration.rows - covered_rows}
    scenarios = []
    for number, trace in sorted(traces.items(), key=lambda item: (-len(item[1].steps), item[0])):
        row = machine.transitions[number]
        if number not in covered_rows:
            scenarios.append(_scenario(f"row {number + 1}, {row.event} in {row.source}", trace))
            covered_rows |= set(run_scenario(machine, scenarios[-1]).rows)
    return tuple(scenarios)


def _scenario(name: str, trace: Trace) -> Scenario:
    return Scenario(name, tuple(_percept(taken) for taken in trace.steps))


def _percept(taken: TraceStep) -> ScenarioStep:
    """Write a step as a percept; verdicts that passed go without saying."""
    verdicts = tuple((guard, outcome) for guard, outcome in taken.occurrence.verdicts if outcome != "passed")
    action = tuple(attrs.evolve(item, span=None) for item in taken.row.effects)
    return ScenarioStep(taken.occurrence.event, verdicts, action, taken.state)
