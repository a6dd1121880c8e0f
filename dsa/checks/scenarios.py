"""Scenarios: each is run as written, up to the first step that goes another way.

Takes a machine with its scenarios; gives a result for each, and diagnostics. A scenario runs from the start at its own parameters. A guard that a
percept does not name has passed. A step that is refused changes nothing.
"""

from collections.abc import Iterator, Sequence

import attrs

from dsa.checks.places import at_instance, line_of, place
from dsa.checks.search.exploration import explore
from dsa.declarations import TIMER_PREFIX, RefusedAction, Scenario, ScenarioStep, Transition, written_row
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
            configuration, row, difference = _run_step(there, configuration, percept)
            if difference:
                return ScenarioResult(scenario.name, line, ok=False, message=difference, rows=tuple(rows), span=at)
            if row is not None:
                rows.append(places[id(row)])
    except (OccurrenceError, ParameterError) as fault:
        return ScenarioResult(scenario.name, line, ok=False, message=str(fault), rows=tuple(rows), span=at)
    return ScenarioResult(scenario.name, line, ok=True, rows=tuple(rows), span=at)


def _run_step(
    machine: Machine, before: Configuration, percept: ScenarioStep
) -> tuple[Configuration, Transition | None, str]:
    """Take one percept; return the configuration after it, the row taken, if any, and the first difference from what is written, or ""."""
    occurrence = occurrence_of(machine, before, percept)
    result = step(machine, before, occurrence)
    after = result.configuration
    difference = (
        _action_difference(percept, occurrence, result)
        or _state_difference(machine, percept, after)
        or _value_difference(machine, percept, after)
        or _dependency_difference(machine, percept, after)
    )
    return after, result.transition if isinstance(result, Taken) else None, difference


def occurrence_of(machine: Machine, configuration: Configuration, percept: ScenarioStep) -> Occurrence:
    """Return the occurrence that a percept stands for in a configuration.

    `after 30s` is the innermost armed timer of that duration, or, when none is armed, any: it is then refused as late. Raises
    OccurrenceError for verdicts that are not read there.
    """
    source = None
    if percept.event.startswith(TIMER_PREFIX):
        timers = [*machine.armed_timers(configuration.state), *machine.rows_from]
        source = next((where for where, event in timers if event == percept.event), None)
        if source is None:
            raise OccurrenceError(f"no row handles '{percept.event}'")
    rows = candidates(machine, configuration.state, Occurrence(percept.event, source=source))
    if configuration.state in machine.final_states or not rows:
        return Occurrence(percept.event, source=source)
    return Occurrence(percept.event, tuple(_verdicts(machine, percept, rows)), source)


def _verdicts(machine: Machine, percept: ScenarioStep, rows: tuple[Transition, ...]) -> Iterator[tuple[str, Outcome]]:
    verdicts, read = dict(percept.verdicts), read_guards(rows)
    strangers = sorted(verdicts.keys() - set(read))
    if strangers:
        raise OccurrenceError(
            f"the rows of state '{rows[0].source}' for the event '{percept.event}' do not read any verdict of {', '.join(strangers)}"
        )
    for guard in read:
        outcome = verdicts.get(guard, "passed")
        if outcome not in machine.guard_named[guard].outcomes:
            choices = " or ".join(f"{guard}.{choice}" for choice in machine.guard_named[guard].outcomes)
            raise OccurrenceError(f"guard {guard} never says '{outcome}'; write {choices} in the percept")
        yield guard, outcome


def _difference(what: str, expected_text: str, actual_text: str) -> str:
    expected, actual = (f"'{text or 'no effects'}'" for text in (expected_text, actual_text))
    return f"{what}: expected {expected}, but got {actual}"


def _action_difference(percept: ScenarioStep, occurrence: Occurrence, result: Taken | Refusal) -> str:
    refusal = f"refused: {result.reason} ({result.message})" if isinstance(result, Refusal) else ""
    what = f"event '{show_occurrence(occurrence)}'"
    if isinstance(percept.action, RefusedAction):
        expected_text = f"refused: {percept.action.reason}" if percept.action.reason else "refused"
        if isinstance(result, Taken):
            return _difference(
                what, expected_text, ", ".join(map(str, result.transition.effects)) or f"{result.configuration.state}"
            )
        if percept.action.reason not in {None, result.reason}:
            return _difference(what, expected_text, refusal)
        return ""
    expected_text = ", ".join(map(str, percept.action))
    actual_text = refusal or ", ".join(map(str, result.transition.effects if isinstance(result, Taken) else ()))
    if expected_text != actual_text:
        return _difference(what, expected_text, actual_text)
    return ""


def _state_difference(machine: Machine, percept: ScenarioStep, after: Configuration) -> str:
    if percept.state is not None:
        expected_state = machine.resolve_state(percept.state) or percept.state
        if expected_state not in machine.ancestry(after.state):
            return _difference(f"the state after '{percept.event}'", expected_state, after.state)
    return ""


def _value_difference(machine: Machine, percept: ScenarioStep, after: Configuration) -> str:
    values: dict[str, Value] = {v.name: value for v, value in zip(machine.variables, after.values, strict=True)}
    for name, expected_value in percept.values:
        if values[name] != expected_value:
            return _difference(
                f"the value of '{name}' after '{percept.event}'", show_value(expected_value), show_value(values[name])
            )
    return ""


def _dependency_difference(machine: Machine, percept: ScenarioStep, after: Configuration) -> str:
    """Return the difference from what the step in progress uses."""
    if percept.dependencies is None:
        return ""
    dependencies = used_in(machine, after.state)
    if sorted(percept.dependencies) != sorted(dependencies):
        return _difference(
            f"the dependencies after '{percept.event}'", show_used(percept.dependencies), show_used(dependencies)
        )
    return ""


def from_scenarios(machine: Machine, results: Sequence[ScenarioResult]) -> tuple[Diagnostic, ...]:
    """Report the scenarios that do not run as written, and in one warning the rows that none takes."""
    failed = [result for result in results if not result.ok]
    diagnostics = [Diagnostic("DSA310", "error", f"scenario '{r.name}': {r.message}", place(r.span)) for r in failed]
    taken = {number for result in results for number in result.rows}
    rows_taken = {written_row(machine.transitions[number]) for number in taken}
    rows = {written_row(row): row for row in reversed(machine.transitions)}  # of several, the first is named
    left = [row for row in reversed(rows.values()) if written_row(row) not in rows_taken]
    if results and left and not diagnostics:  # a scenario that fails takes fewer rows than it is meant to
        row_list = ", ".join(f"line {line_of(row)} ({row}){at_instance(row)}" for row in left[:_ROWS_LISTED])
        rest = f", and {len(left) - _ROWS_LISTED} more" if len(left) > _ROWS_LISTED else ""
        message = f"{len(left)} of {len(rows)} rows are taken by no scenario: {row_list}{rest}"
        where = place(left[0].span)
        hint = f"to print scenarios that take such rows: dsa new --scenarios {where.path}"
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
