"""A plain oracle: what can happen in a configuration, read off the rules S2-S7 and S11, and where `step` leads. Slow."""

from collections.abc import Iterator
from itertools import product

from dsa.declarations import OUTSIDE, STAY
from dsa.expr import evaluate
from dsa.machine import Machine, read_guards
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start, step


def possible(machine: Machine, here: Configuration) -> Iterator[Occurrence]:
    """What can come, read off the rules: outside events with rows, answers of what is outstanding, armed timers."""
    if here.state in machine.final_states:
        return
    for event in machine.event_named.values():
        rows = machine.rows_for(here.state, event.name)
        failed = event.name == f"{event.origin}.failed" and event.origin in machine.answers
        if event.origin == OUTSIDE:
            comes = bool(rows)
        else:
            comes = event.origin in here.outstanding and (not failed or event.origin in machine.failures_handled)
        if comes:
            yield from judged(machine, rows, event.name, None)
    behind = {then for _, then in here.precedence}
    for source, timer in (each for each in machine.armed_timers(here.state) if each not in behind):
        yield from judged(machine, machine.rows_from[source, timer], timer, source)


def judged(machine: Machine, rows: tuple, event: str, source: str | None) -> Iterator[Occurrence]:
    guards = read_guards(rows)
    for said in product(*(machine.guard_named[guard].outcomes for guard in guards)):
        yield Occurrence(event, tuple(zip(guards, said, strict=True)), source)


def reached(machine: Machine, most: int = 60) -> list[Configuration]:
    found = {start(machine): None}
    for here in (order := list(found)):  # grows while it is walked
        for occurrence in possible(machine, here):
            result = step(machine, here, occurrence)
            if isinstance(result, Taken) and result.configuration not in found and len(order) < most:
                found[result.configuration] = None
                order.append(result.configuration)
    return order


def timers_ended(machine: Machine, before: Configuration, taken: Taken) -> frozenset[tuple[str, str]]:
    """The timers that a step fires, drops or starts anew (S11)."""
    row, after = taken.transition, taken.configuration.state
    left = set()
    if row.target != STAY:
        old, new = list(machine.ancestry(before.state)), list(machine.ancestry(after))
        left = {before.state} if before.state == after else {source for source in old if source not in new}
    fired = {(row.source, row.event)} if row.is_timer else set()
    return frozenset(pair for pair in machine.armed_timers(before.state) if pair[0] in left or pair in fired)


def is_end(machine: Machine, here: Configuration) -> bool:
    """Whether a run is finished here, though the leaf is not final: as specs/semantics.md says it."""
    end = machine.ends.get(here.state)
    if end is None or here.outstanding or machine.armed_timers(here.state):
        return False
    known = machine.constants | dict(zip([v.name for v in machine.variables], here.values, strict=True))
    results = (step(machine, here, occurrence) for occurrence in possible(machine, here))
    return bool(evaluate(end, known)) and all(
        isinstance(each, Refusal) and each.reason == "invalid_state" for each in results
    )
