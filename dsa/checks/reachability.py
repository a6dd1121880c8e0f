"""Diagnostics from explorations: what cannot be reached, what is refused where it may happen, deadlocks, limits.

Takes the explorations of one run (at different parameter values); gives one diagnostic for each fault, with the values and a shortest trace of the
first exploration that meets it. What no exploration reaches is reported only when all are complete.
"""

from collections.abc import Iterator, Sequence

from dsa.checks.places import (
    at_instance,
    cell,
    changed_by,
    place,
    read_by,
    rows_at,
    show_false,
    show_relevant,
    show_rows,
)
from dsa.checks.search.exploration import MAX_HELD, Exploration, Witness, diagrams_count
from dsa.declarations import OUTSIDE, STAR, STAY, Emit, Transition, show_instance, without_index, written_row
from dsa.errors import Diagnostic, Severity, Span
from dsa.machine import FEW_VALUATIONS, Machine, every_valuation, timers_before
from dsa.semantics import Configuration, Taken, after_effects, candidates, step
from dsa.trace import show_events, show_occurrence, show_values


def from_explorations(
    explorations: Sequence[Exploration], *, has_parameters: bool = False, with_warnings: bool = True
) -> tuple[Diagnostic, ...]:
    """Return every finding of a run's explorations.

    `has_parameters`: the caller chose the parameters, so states and rows that these values leave out are only warnings.
    Without `with_warnings`, refused events from outside, which are always warnings, are left out.
    """
    diagnostics: list[Diagnostic] = []
    keys: set[tuple[object, ...]] = set()
    for exploration in explorations:
        for key, diagnostic in _findings(exploration, with_warnings=with_warnings):
            if key not in keys:
                keys.add(key)
                diagnostics.append(diagnostic)
    if all(exploration.complete for exploration in explorations):
        diagnostics += _never_reached(explorations, "warning" if has_parameters else "error")
    return tuple(diagnostics)


def _findings(exploration: Exploration, *, with_warnings: bool) -> Iterator[tuple[tuple[object, ...], Diagnostic]]:
    """Yield each finding of one exploration, after a key that is the same for the same finding."""
    unhandled_cases: dict[tuple[object, ...], list[Witness]] = {}
    for witness in exploration.refusals:
        if witness.refusal.reason == "invalid_state":
            unhandled_cases.setdefault(_case(exploration.machine, witness), []).append(witness)
        else:
            rows = witness.refusal.rows
            yield (witness.refusal.reason, *map(written_row, rows)), _impossible(exploration, witness)
    events = exploration.machine.event_named
    for key, witnesses in unhandled_cases.items():
        event = witnesses[0].occurrence.event
        is_outside = event in events and events[event].origin == OUTSIDE
        if event not in events or (events[event].otherwise != "refused" and (with_warnings or not is_outside)):
            yield ("unhandled", *key), _unhandled_case(exploration, witnesses)
    for configuration in exploration.deadlocks:
        yield ("deadlock", configuration.state), _deadlock(exploration, configuration)
    if not exploration.complete:
        yield ("limit", *exploration.parameters.items()), _limit(exploration)


def _case(machine: Machine, witness: Witness) -> tuple[object, ...]:
    """Return the key of a missing case; cases with the same key are one fault: those of one event from outside, of one group of rows, or of one state without rows."""
    if witness.occurrence.source is None and machine.event_named[witness.occurrence.event].origin == OUTSIDE:
        return (without_index(witness.occurrence.event),)
    rows = candidates(machine, witness.configuration.state, witness.occurrence)
    if rows:
        return (rows[0].source, without_index(rows[0].event))
    return (witness.configuration.state, without_index(witness.occurrence.event))


def _reach(exploration: Exploration, configuration: Configuration) -> str:
    occurrences = [occurrence for _, occurrence in exploration.way_back(configuration)]
    return f"reached by: {show_events(occurrences[::-1])}" if occurrences else "reached at the start of a run"


def _circumstances(exploration: Exploration, witness: Witness, rows: tuple[Transition, ...]) -> str:
    """Return at which values something is refused, and how these are reached."""
    relevant = read_by(rows) | (changed_by(rows) if witness.refusal.reason == "out_of_domain" else frozenset())
    values = show_relevant(exploration.machine, witness.configuration.values, relevant)
    at = f", where {values}" if values else ""
    return f"{at}; {_reach(exploration, witness.configuration)}"


def _impossible(exploration: Exploration, witness: Witness) -> Diagnostic:
    """Report an overlap, a value outside its domain, or an effect emitted twice."""
    rows, what = witness.refusal.rows, show_occurrence(witness.occurrence)
    state, where = witness.configuration.state, _circumstances(exploration, witness, rows)
    match witness.refusal.reason:
        case "ambiguous" if len({row.span for row in rows}) == 1 and rows[0].instance != rows[1].instance:
            return _rivals(rows, f"in state '{state}' on '{what}'{where}")
        case "ambiguous":
            message = f"{show_rows(rows)} are enabled at the same time: in state '{state}' on '{what}'{where}"
            hint = "make one condition exclude the other, or write 'else' alone in one of the rows"
            return Diagnostic("DSA304", "error", message, cell(rows[-1], "if"), hint)
        case "out_of_domain":
            message = (
                f"{witness.refusal.message} after this row{at_instance(rows[0])}: in state '{state}' on '{what}'{where}"
            )
            hint = "add to the row a condition that keeps the value inside the domain, or make the domain larger"
            return Diagnostic("DSA306", "error", message, cell(rows[0], "update"), hint)
        case _:
            message = f"{witness.refusal.message} when this row{at_instance(rows[0])} emits it again: in state '{state}' on '{what}'{where}"
            effect, place = _second_emission(exploration, witness)
            is_one = exploration.machine.most_outstanding[effect] == 1
            more = "" if is_one else ", or raise the limit in the column 'at once' of Effects"
            hint = f"write 'cancel {effect}' before the effect, or wait for its answer{more}"
            return Diagnostic("DSA307", "error", message, place, hint)


def _rivals(rows: tuple[Transition, ...], where: str) -> Diagnostic:
    """Report a row that stands for several of one event, two of which are enabled at once (Fa4)."""
    one, other = rows[:2]
    families = [
        name for (name, index), (_, index2) in zip(one.instance, other.instance, strict=True) if index != index2
    ]
    family = families[0]
    message = f"this row is repeated for each {family}, and two of the copies, {show_instance(one.instance)} and {show_instance(other.instance)}, can be taken at the same time: {where}"
    hint = f"if one row is meant for all values of {family} together, write 'any {family}: P' (P is true for at least one) or 'all {family}: P' (P is true for each); otherwise use {family} in the event, or write a condition that is true for one {family} only"
    return Diagnostic("DSA304", "error", message, cell(one, "if"), hint)


def _second_emission(exploration: Exploration, witness: Witness) -> tuple[str, Span]:
    """Return the effect that is emitted once too often, and the place."""
    machine, row = exploration.machine, witness.refusal.rows[0]
    state = witness.configuration.state if row.target == STAY else machine.entry_leaf(row.target)
    _, _, twice = after_effects(machine, witness.configuration.outstanding, row, state)
    spans = [item.span for item in row.effects if isinstance(item, Emit) and item.effect == twice and item.span]
    assert twice is not None, "the row was refused for an effect"
    return twice, spans[-1] if spans else cell(row, "effects")


def _unhandled_case(exploration: Exploration, witnesses: list[Witness]) -> Diagnostic:
    """Report an answer or timer without an enabled row (S7, S11), or an outside event that is refused at some values."""
    machine, first = exploration.machine, witnesses[0]
    state, event = first.configuration.state, first.occurrence.event
    rows = candidates(machine, state, first.occurrence)
    where = _circumstances(exploration, first, rows)
    false = show_false(rows_at(machine, first.configuration, first.occurrence))
    more = f"; no row applies: {false}" if false else ""
    if first.occurrence.source is None and machine.event_named[event].origin == OUTSIDE:
        states = list(dict.fromkeys(witness.configuration.state for witness in witnesses))
        several = f"states {', '.join(states)}; in '{state}'" if len(states) > 1 else f"state '{state}'"
        message = f"event '{show_occurrence(first.occurrence)}' is refused in {several}{where}{more}{_others(witnesses, 'refused too')}"
        hint = "add a row for this case (with target '=' to ignore the event), or write 'refused' in the column 'otherwise' of Events if the event should be refused"
        hint += _outer_rows(machine, state, rows[0])
        return Diagnostic("DSA309", "warning", message, cell(rows[0], "if"), hint)
    kind = "timer" if first.occurrence.source else f"answer of {machine.event_named[event].origin}"
    message = f"'{show_occurrence(first.occurrence)}' ({kind}) is not handled in state '{state}'{where}{more}{_others(witnesses, 'also not handled')}"
    if rows:
        hint = "add a row for this case, or one with 'else'" + _outer_rows(machine, state, rows[0])
        return Diagnostic("DSA305", "error", message, cell(rows[0], "event"), hint)
    origin = machine.event_named[event].origin
    hint = f"add a row for '{event}' in state '{state}' (with target '=' to ignore it), or write 'cancel {origin}' in a row that leads there"
    return Diagnostic("DSA305", "error", message, _emitted_at(exploration, first), hint)


def _outer_rows(machine: Machine, state: str, row: Transition) -> str:
    """Return a note that rows further out do not step in, where there are some (S3)."""
    outer = list(machine.ancestry(state))
    outer = outer[outer.index(row.source) + 1 :]
    sources = [source for source in outer if (source, row.event) in machine.rows_from]
    return (
        f"; the rows of '{sources[0]}' for '{row.event}' do not apply, because '{row.source}' has its own rows for '{row.event}'"
        if sources
        else ""
    )


def _others(witnesses: list[Witness], what: str) -> str:
    cases = [f"{show_occurrence(w.occurrence)} in state '{w.configuration.state}'" for w in witnesses[1:4]]
    rest = f", and {len(witnesses) - 4} more" if len(witnesses) > 4 else ""  # noqa: PLR2004  (the first and three more are shown)
    return f"; {what}: {', '.join(cases)}{rest}" if cases else ""


def _emitted_at(exploration: Exploration, witness: Witness) -> Span:
    """Return the place where the effect was emitted whose answer no row handles."""
    machine = exploration.machine
    origin = machine.event_named[witness.occurrence.event].origin
    for before, occurrence in exploration.way_back(witness.configuration):
        if origin not in before.outstanding:
            taken = step(machine, before, occurrence)
            assert isinstance(taken, Taken), "it was taken when explored"
            return cell(taken.transition, "effects")
    return place()  # the start has nothing outstanding


def _deadlock(exploration: Exploration, configuration: Configuration) -> Diagnostic:
    machine, state = exploration.machine, configuration.state
    pairs = zip((variable.name for variable in machine.variables), configuration.values, strict=True)
    at = show_values(pairs)
    where = f", where {at}" if at else ""
    reach = _reach(exploration, configuration)
    message = f"deadlock: a run gets stuck in state '{state}'{where}: the state is not final, nothing is under way there, and no event is accepted; {reach}"
    hint = "add a row for an event from outside; or, in a row that leads here, emit an effect that has answers; or give the state the kind 'final' or 'end when CONDITION'"
    return Diagnostic("DSA308", "error", message, place(machine.state_named[state].span), hint)


def _limit(exploration: Exploration) -> Diagnostic:
    at = show_values(exploration.parameters.items())
    where, span = f" at {at}" if at else "", place(exploration.machine.span)
    left_out = exploration.ground.system.left_out
    if left_out:
        message = f"not everything was explored{where} ({'; '.join(left_out)}); the rest is unknown"
        hint = "read fewer guards on one event, or let fewer effects be outstanding at once"
        return Diagnostic("DSA312", "error", message, span, hint)
    limit, count = exploration.limit or "a limit", exploration.configurations
    message = f"exploration stopped at {limit}{where}; {count} were found by then, and the rest is unknown"
    hint = "allow more configurations (--max-states; each of them takes up to 150 bytes) or more time (--time-limit), or give parameters smaller values (--param)"
    if diagrams_count(exploration.ground):
        hint += f"; with --max-states above {MAX_HELD}, decision diagrams count the configurations without storing each of them"
    return Diagnostic("DSA312", "error", message, span, hint)


def _never_reached(explorations: Sequence[Exploration], severity: Severity) -> Iterator[Diagnostic]:
    """Report the states that no exploration reaches and the rows that none takes."""
    machine = explorations[0].machine
    reached_names = {name for e in explorations for state in e.states for name in machine.ancestry(state)}
    at = " and with ".join(filter(None, (show_values(exploration.parameters.items()) for exploration in explorations)))
    others = _other_values(explorations)
    advice = (
        "; if the {} is meant for other values of the parameters, explore them with dsa check " + others
        if others
        else ""
    )
    where = f" (explored{' only' if others else ''} with {at})" if at else ""
    refused_rows = {id(row) for e in explorations for row in _impossible_rows(e)}  # these are reported for what they do
    has_unhandled = any(_is_unhandled_answer(machine, each) for e in explorations for each in e.refusals)
    first = (
        "fix the other errors first, because they may cause this one. If it remains, "
        if refused_rows or has_unhandled
        else ""
    )
    targets = set(_entered_states(machine))
    for state in machine.states:
        if state.name not in reached_names and (state.parent is None or state.parent in reached_names):
            is_target = state.name in targets
            message = f"state '{state.name}' {'is not' if others and is_target else 'cannot be'} reached{where}"
            hint = f"{first}write a row that leads here from a state that is reached, or delete the state{advice.format('state') if is_target else ''}"
            yield Diagnostic("DSA301", severity, message, place(state.span), hint)
    taken = frozenset[int]().union(*(exploration.rows for exploration in explorations))
    alive: set[Span | None] = {
        row.span for number, row in enumerate(machine.transitions) if number in taken and row.span is not None
    }
    for number, row in enumerate(machine.transitions):
        possible = number in taken or machine.steps  # what Steps expand into covers cases that a plan may not have
        if row.span in alive:
            continue  # a row with lists is dead when all that it stands for are, and is reported once
        if not possible and id(row) not in refused_rows and row.source in reached_names | {STAR}:
            message = f"the row from '{row.source}' on '{row.event}' to '{row.target}'{at_instance(row)} {'is not' if others else 'can never be'} taken{where}"
            hint = f"{first}{_why_never(explorations, row)}{advice.format('row')}"
            yield Diagnostic("DSA302", severity, message, cell(row, "source"), hint)
            alive |= {row.span} - {None}


def _entered_states(machine: Machine) -> Iterator[str]:
    """Yield the states that some row leads to from outside of them."""
    for row in machine.transitions:
        inside = frozenset(machine.ancestry(row.source)) if row.source != STAR else frozenset[str]()
        yield from (name for name in machine.ancestry(row.target) if name not in inside) if row.target != STAY else ()


def _is_unhandled_answer(machine: Machine, witness: Witness) -> bool:
    """Return whether an answer or a timer is refused: after that, a run goes nowhere."""
    event = machine.event_named.get(witness.occurrence.event)
    return witness.refusal.reason == "invalid_state" and (event is None or event.origin != OUTSIDE)


def _other_values(explorations: Sequence[Exploration]) -> str:
    """Return the option that explores other values of the parameters; "" if there are no others."""
    machine = explorations[0].machine
    every = every_valuation(machine, FEW_VALUATIONS)
    if every is not None and len(every) <= len(explorations):
        return ""
    return "--each-value" if every is not None else "--param NAME=VALUE"


def _why_never(explorations: Sequence[Exploration], row: Transition) -> str:
    """Return what to do about a row that no exploration takes: of a timer that never fires, which ones always come first (S11)."""
    ahead = [
        timers_before(location.precedence, (row.source, row.event))
        for exploration in explorations
        for location, count in zip(exploration.ground.system.locations, exploration.result.locations, strict=True)
        if count and (row.source, row.event) in exploration.machine.armed_timers(location.state)
    ]
    if not ahead or not all(ahead):
        has_children = any(row.source in exploration.machine.parents for exploration in explorations)
        inner = f", or rows of the states inside '{row.source}' always take precedence" if has_children else ""
        where = " at these values" if _other_values(explorations) else ""
        return f"the row's condition is never true{where}{inner}: fix the condition, or delete the row"
    timers = sorted({timer for each in ahead for timer in each})
    names = " or ".join(event if source == row.source else f"{event} of {source}" for source, event in timers)
    return f"the timer '{names}' always fires earlier, and then '{row.event}' is stopped or begins again: give this row a shorter time, or delete it"


def _impossible_rows(exploration: Exploration) -> Iterator[Transition]:
    for witness in exploration.refusals:
        if witness.refusal.reason != "invalid_state":
            yield from witness.refusal.rows
