"""Why an event is accepted or refused in a state, case by case.

Takes a machine, an event and a state; gives, for each combination of verdicts and of the values that the rows read, which
conjuncts of which row are true. Cases that look alike are put together. Whether a case can be reached is not asked.
"""

from collections.abc import Iterator, Mapping
from itertools import islice, product

import attrs

from dsa.checks.places import RowView, row_views
from dsa.declarations import OUTSIDE, Assign, Transition
from dsa.errors import OccurrenceError
from dsa.expr import Choices, Environment, Expr, Outcome, Value, Values, names, show_value
from dsa.machine import Machine, fault_of_value, read_guards
from dsa.semantics import Configuration, Occurrence, Taken, enabled_rows, step
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
class Why:
    """The answer: the source that supplies the rows (None: there are none), and the cases.

    `complete` is False when there are more cases than are tried.
    """

    event: str
    state: str
    source: str | None
    cases: tuple[ValuationCase, ...] = ()
    complete: bool = True
    accepted: tuple[str, ...] = ()
    finished: bool = False

    def show(self) -> str:
        """Write the answer as text."""
        if self.finished:
            return f"{self.state} is final: every event is refused there (finished)."
        if self.source is None:
            known = ", ".join(self.accepted) or "nothing"
            return f"{self.event} has no row in {self.state}: it is refused. Accepted there: {known}."
        lines = [f"{self.event} in {self.state}: the rows of {self.source} decide"]
        for case in self.cases:
            lines += ["", *_show_case(case)]
        return "\n".join(lines + ([] if self.complete else ["", f"(only the first {_CASES_TRIED} cases)"]))


def _show_case(case: ValuationCase) -> Iterator[str]:
    verdicts = [f"{guard}.{outcome}" for guard, outcome in case.verdicts]
    values = [f"{name} = {show_value(value)}" for name, value in case.values]
    alike = f" (and {case.count - 1} more valuations)" if case.count > 1 else ""
    outcome = "accepted" if case.outcome == "taken" else f"refused: {case.outcome} ({case.message})"
    yield f"{', '.join(verdicts + values) or 'always'}{alike}: {outcome}"
    for view in case.rows:
        mark = "=>" if view.enabled else "  "
        line = f"line {view.row.span.line}: " if view.row.span else ""
        wrong = [text for text, true in view.conjuncts if not true]
        reason = f"  false: {', '.join(wrong)}" if wrong else ""
        yield f"  {mark} {line}{view.row}{reason}"


def why(
    machine: Machine,
    event: str,
    state: str,
    values: Mapping[str, Value] | None = None,
    verdicts: Mapping[str, Outcome] | None = None,
) -> Why:
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
        accepted = sorted({known for source in sources for known in machine.events_from.get(source, ())})
        return Why(event, full, None, accepted=tuple(accepted), finished=full in machine.final_states)
    found: dict[object, ValuationCase] = {}
    said = _verdicts(machine, rows, verdicts or {})
    combined = ((spoken, valuation) for spoken in said for valuation in _valuations(machine, rows, values or {}))
    for spoken, valuation in islice(combined, _CASES_TRIED):
        case = _case(machine, _leaf(machine, full), rows, spoken, valuation)
        key = (case.verdicts, case.outcome, case.rows)
        known = found.get(key)
        found[key] = attrs.evolve(known, count=known.count + 1) if known else case
    return Why(event, full, rows[0].source, tuple(found.values()), complete=next(combined, None) is None)


def _require_known(machine: Machine, event: str, values: Mapping[str, Value], verdicts: Mapping[str, Outcome]) -> None:
    timers = [row.event for row in machine.transitions if row.is_timer]
    if event not in machine.event_named and event not in timers:
        meant = closest(event, [*machine.event_named, *timers])
        raise OccurrenceError(f"machine {machine.name} has no event '{event}'; {meant}")
    declared = {variable.name: variable for variable in machine.variables}
    for name, value in values.items():
        if name not in declared:
            meant = closest(name, [*declared, *machine.guard_named])
            raise OccurrenceError(f"machine {machine.name} has no variable and no guard '{name}'; {meant}")
        if fault := fault_of_value(declared[name], value, machine.constants):
            raise OccurrenceError(fault)
    for guard, outcome in verdicts.items():
        if guard not in machine.guard_named:
            meant = closest(guard, machine.guard_named)
            raise OccurrenceError(f"machine {machine.name} has no guard '{guard}'; {meant}")
        if outcome not in (known := machine.guard_named[guard].outcomes):
            raise OccurrenceError(f"guard {guard} has no verdict '{outcome}'; {closest(str(outcome), known)}")


def _rows(machine: Machine, state: str, event: str) -> tuple[Transition, ...]:
    """Return the candidate rows; of timers, those of the innermost source that has one of this duration (S11)."""
    if state in machine.final_states:
        return ()
    return machine.rows_for(state, event)


def _verdicts(
    machine: Machine, rows: tuple[Transition, ...], given: Mapping[str, Outcome]
) -> Iterator[tuple[tuple[str, Outcome], ...]]:
    guards = read_guards(rows)
    said = [(given[guard],) if guard in given else machine.guard_named[guard].outcomes for guard in guards]
    for outcomes in product(*said):
        yield tuple(zip(guards, outcomes, strict=True))


def _valuations(
    machine: Machine, rows: tuple[Transition, ...], given: Mapping[str, Value]
) -> Iterator[tuple[tuple[str, Value], ...]]:
    """Yield the values of the variables that the rows' conditions and updates read, the last one changing fastest."""
    read = {name for row in rows for expr in _read(row) for name in names(expr)}
    relevant = [variable.name for variable in machine.variables if variable.name in read]
    choices = [(given[name],) if name in given else _listed(machine.values_of[name]) for name in relevant]
    for values in product(*choices):
        yield tuple(zip(relevant, values, strict=True))


def _read(row: Transition) -> tuple[Expr, ...]:
    return (row.condition, *(update.value for update in row.updates if isinstance(update, Assign)))


def _leaf(machine: Machine, state: str) -> str:
    """Return the state, or for a parent the first leaf in it, where its rows are the same unless an inner row replaces them."""
    return next(leaf for leaf in machine.leaves if leaf == state or leaf.startswith(f"{state}."))


def _listed(values: Values) -> tuple[Value, ...]:
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
    """Ask `step` in a configuration with these values, the others initial, and only the answered effect outstanding."""
    known: Environment = {**machine.constants, **dict(values), **dict(verdicts)}
    enabled = enabled_rows(rows, known)
    views = row_views(rows, enabled, known)
    pairs = zip(machine.variables, machine.initial_values, strict=True)
    everywhere = tuple(dict(values).get(variable.name, initial) for variable, initial in pairs)
    event, source = rows[0].event, rows[0].source if rows[0].is_timer else None
    origin = OUTSIDE if source else machine.event_named[event].origin
    configuration = Configuration(leaf, everywhere, frozenset({origin} - {OUTSIDE}))
    result = step(machine, configuration, Occurrence(event, verdicts, source))
    if isinstance(result, Taken):
        return ValuationCase(verdicts, values, 1, "taken", views)
    return ValuationCase(verdicts, values, 1, result.reason, views, result.message)
