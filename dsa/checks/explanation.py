"""Explanations: why an event is accepted or refused in a state, case by case.

Takes a machine, an event and a state; gives, for each combination of verdicts and of the values that the rows read, which conjuncts of which row are
true. Cases with the same outcome for the same reasons are put together. Whether a case can be reached is not checked.
"""

from collections.abc import Iterator, Mapping
from itertools import islice, product

import attrs

from dsa.checks.places import RowView, row_views
from dsa.declarations import OUTSIDE, Assign, Transition
from dsa.errors import OccurrenceError
from dsa.expr import (
    Choices,
    Environment,
    Expr,
    Outcome,
    Value,
    Values,
    names,
    pending_effects,
    pending_text,
    show_value,
)
from dsa.machine import Machine, fault_of_value, read_guards
from dsa.semantics import Configuration, Occurrence, Taken, enabled_rows, pending_values, step
from dsa.text import closest

_CASES_TRIED = 4096


@attrs.frozen
class ValuationCase:
    """The valuations that have the same outcome for the same reasons.

    `outcome` is `taken` or a refusal's reason, as `step` gives it, `message` its words; `values` the first valuation, `count`
    how many.
    """

    verdicts: tuple[tuple[str, Outcome], ...]
    values: tuple[tuple[str, Value], ...]
    count: int
    outcome: str
    rows: tuple[RowView, ...]
    message: str = ""


@attrs.frozen
class Explanation:
    """The answer: the source that supplies the rows (None: there are none), and the cases.

    `complete` is False when there are more cases than are tried.
    """

    event: str
    state: str
    source: str | None
    cases: tuple[ValuationCase, ...] = ()
    complete: bool = True
    accepted: tuple[str, ...] = ()
    is_finished: bool = False

    def show(self) -> str:
        """Write the answer as text."""
        if self.is_finished:
            return f"{self.state} is final: every event is refused there (finished)."
        if self.source is None:
            names = ", ".join(self.accepted) or "nothing"
            return f"{self.event} has no row in {self.state}: it is refused. Accepted there: {names}."
        lines = [f"{self.event} in {self.state}: decided by the rows with source {self.source}"]
        for case in self.cases:
            lines += ["", *_show_case(case)]
        return "\n".join(lines + ([] if self.complete else ["", f"(only the first {_CASES_TRIED} cases)"]))


def _show_case(case: ValuationCase) -> Iterator[str]:
    verdicts = [f"{guard}.{outcome}" for guard, outcome in case.verdicts]
    values = [f"{name} = {show_value(value)}" for name, value in case.values]
    alike = f" (and {case.count - 1} more valuations)" if case.count > 1 else ""
    outcome = "accepted" if case.outcome == "taken" else f"refused: {case.outcome} ({case.message})"
    case_text = f"with {' and '.join(verdicts + values)}" if verdicts or values else "always"
    yield f"{case_text}{alike}: {outcome}"
    for view in case.rows:
        mark = "=>" if view.is_enabled else "  "
        line = f"line {view.row.span.line}: " if view.row.span else ""
        wrong = view.false_conjuncts
        reason = f"  (not taken: {' and '.join(wrong)} {'is' if len(wrong) == 1 else 'are'} false)" if wrong else ""
        yield f"  {mark} {line}{view.row}{reason}"


def why(
    machine: Machine,
    event: str,
    state: str,
    values: Mapping[str, Value] | None = None,
    verdicts: Mapping[str, Outcome] | None = None,
) -> Explanation:
    """Explain an event or timer in a state, for all verdicts and values, or only for those given.

    Raises OccurrenceError for an unknown event, state, variable, guard or outcome. Answers are taken to be outstanding.
    """
    full = machine.resolve_state(state)
    if full is None:
        states = {*machine.state_named, *(name.rpartition(".")[2] for name in machine.state_named)}
        raise OccurrenceError(f"machine {machine.name} has no state '{state}'; {closest(state, states)}")
    _require_known(machine, event, values or {}, verdicts or {})
    rows = _rows(machine, full, event)
    if not rows:
        sources = machine.ancestry(full) if full not in machine.final_states else ()
        accepted = sorted({earlier_case for source in sources for earlier_case in machine.events_from.get(source, ())})
        return Explanation(event, full, None, accepted=tuple(accepted), is_finished=full in machine.final_states)
    cases: dict[object, ValuationCase] = {}
    verdict_choices = _verdicts(machine, rows, verdicts or {})
    combinations = (
        (verdict_case, valuation)
        for verdict_case in verdict_choices
        for valuation in _valuations(machine, rows, values or {})
    )
    for verdict_case, valuation in islice(combinations, _CASES_TRIED):
        case = _case(machine, _leaf(machine, full), rows, verdict_case, valuation)
        key = (case.verdicts, case.outcome, case.rows)
        earlier_case = cases.get(key)
        cases[key] = attrs.evolve(earlier_case, count=earlier_case.count + 1) if earlier_case else case
    return Explanation(event, full, rows[0].source, tuple(cases.values()), complete=next(combinations, None) is None)


def _require_known(machine: Machine, event: str, values: Mapping[str, Value], verdicts: Mapping[str, Outcome]) -> None:
    timers = [row.event for row in machine.transitions if row.is_timer]
    if event not in machine.event_named and event not in timers:
        suggestion = closest(event, [*machine.event_named, *timers])
        raise OccurrenceError(f"machine {machine.name} has no event '{event}'; {suggestion}")
    variables = {variable.name: variable for variable in machine.variables}
    for name, value in values.items():
        if name not in variables:
            suggestion = closest(name, [*variables, *machine.guard_named])
            raise OccurrenceError(f"machine {machine.name} has no variable and no guard '{name}'; {suggestion}")
        if fault := fault_of_value(variables[name], value, machine.constants):
            raise OccurrenceError(fault)
    for guard, outcome in verdicts.items():
        if guard not in machine.guard_named:
            suggestion = closest(guard, machine.guard_named)
            raise OccurrenceError(f"machine {machine.name} has no guard '{guard}'; {suggestion}")
        if outcome not in (outcomes := machine.guard_named[guard].outcomes):
            raise OccurrenceError(f"guard {guard} has no verdict '{outcome}'; {closest(str(outcome), outcomes)}")


def _rows(machine: Machine, state: str, event: str) -> tuple[Transition, ...]:
    """Return the candidate rows; of timers, those of the innermost source that has one of this duration (S11)."""
    if state in machine.final_states:
        return ()
    return machine.rows_for(state, event)


def _verdicts(
    machine: Machine, rows: tuple[Transition, ...], restrictions: Mapping[str, Outcome]
) -> Iterator[tuple[tuple[str, Outcome], ...]]:
    guards = read_guards(rows)
    choices = [
        (restrictions[guard],) if guard in restrictions else machine.guard_named[guard].outcomes for guard in guards
    ]
    for outcomes in product(*choices):
        yield tuple(zip(guards, outcomes, strict=True))


def _valuations(
    machine: Machine, rows: tuple[Transition, ...], restrictions: Mapping[str, Value]
) -> Iterator[tuple[tuple[str, Value], ...]]:
    """Yield the values of the variables that the rows' conditions and updates read, and what is outstanding, the last one changing fastest."""
    read = {name for row in rows for expr in _read(row) for name in names(expr)}
    relevant = [variable.name for variable in machine.variables if variable.name in read]
    choices = [
        (restrictions[name],) if name in restrictions else _value_choices(machine.values_of[name]) for name in relevant
    ]
    effects = _effects_read(machine, rows)
    choices += [(False, True)] * len(effects)
    for values in product(*choices):
        yield tuple(zip([*relevant, *map(pending_text, effects)], values, strict=True))


def _effects_read(machine: Machine, rows: tuple[Transition, ...]) -> tuple[str, ...]:
    """Return the effects whose being outstanding decides about the rows: those that they read, without the one that the event answers (S3)."""
    read = {effect for row in rows for effect in pending_effects(row.condition)}
    origin = OUTSIDE if rows[0].is_timer else machine.event_named[rows[0].event].origin
    return tuple(e for e in machine.effects_with_answers if e != origin and ("" in read or e in read))


def _read(row: Transition) -> tuple[Expr, ...]:
    return (row.condition, *(update.value for update in row.updates if isinstance(update, Assign)))


def _leaf(machine: Machine, state: str) -> str:
    """Return the state, or for a parent the first leaf in it, where its rows are the same unless an inner row replaces them."""
    return next(leaf for leaf in machine.leaves if leaf == state or leaf.startswith(f"{state}."))


def _value_choices(values: Values) -> tuple[Value, ...]:
    if isinstance(values, Choices):
        return values.values
    assert values.high is not None, "variables are finite"
    return tuple(range(values.low, min(values.high, values.low + _CASES_TRIED) + 1))


def _case(
    machine: Machine,
    leaf: str,
    rows: tuple[Transition, ...],
    verdicts: tuple[tuple[str, Outcome], ...],
    values: tuple[tuple[str, Value], ...],
) -> ValuationCase:
    """Ask `step` in a configuration with these values, the others initial, the answered effect outstanding, and others as the values say."""
    event, source = rows[0].event, rows[0].source if rows[0].is_timer else None
    origin = OUTSIDE if source else machine.event_named[event].origin
    outstanding = {effect for effect in machine.effects_with_answers if dict(values).get(pending_text(effect))}
    pending = pending_values(machine, outstanding)
    environment: Environment = {**machine.constants, **pending, **dict(values), **dict(verdicts)}
    rows_enabled = enabled_rows(rows, environment)
    views = row_views(rows, rows_enabled, environment)
    pairs = zip(machine.variables, machine.initial_values, strict=True)
    everywhere = tuple(dict(values).get(variable.name, initial) for variable, initial in pairs)
    configuration = Configuration(leaf, everywhere, tuple(sorted(outstanding | {origin} - {OUTSIDE})))
    result = step(machine, configuration, Occurrence(event, verdicts, source))
    if isinstance(result, Taken):
        return ValuationCase(verdicts, values, 1, "taken", views)
    return ValuationCase(verdicts, values, 1, result.reason, views, result.message)
