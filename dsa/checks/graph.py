"""What can be told from the table without running it: dead ends, and effects cancelled or emitted in vain.

Takes a machine, gives diagnostics. Looks at no values, so it holds for all of them.
"""

from collections.abc import Iterator

from dsa.checks.places import cell, place
from dsa.declarations import STAY, Cancel, Emit, Transition
from dsa.errors import Diagnostic
from dsa.machine import Machine
from dsa.meaning import accepted_events


def dead_ends(machine: Machine) -> tuple[Diagnostic, ...]:
    """Give the states that are not final and have no row, neither their own nor an ancestor's nor one of `*`."""
    found = []
    for leaf in machine.leaves:
        if leaf not in machine.final_states and not accepted_events(machine, leaf):
            message = f"{leaf} is not final, and no row leaves it: a run that gets there stays for ever"
            span = place(machine.state_named[leaf].span)
            found.append(Diagnostic("DSA303", "error", message, span, "add a row with this source, or mark it final"))
    return tuple(found)


def vain_effects(machine: Machine) -> tuple[Diagnostic, ...]:
    """Give effects that are cancelled although they cannot be outstanding, or emitted although nothing can come of it (S7)."""
    emitted = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    found: list[Diagnostic] = []
    for row in machine.transitions:
        found += _cancelled_in_vain(machine, row, emitted)
        found += _cancelled_at_once(machine, row)
        found += _emitted_into_final(machine, row)
    return tuple(found)


def _cancelled_in_vain(machine: Machine, row: Transition, emitted: set[str]) -> Iterator[Diagnostic]:
    for item in row.effects:
        if not isinstance(item, Cancel) or item.effect is None:
            continue
        if item.effect not in machine.answers:
            message = f"{item.effect} has no answers, so it is never outstanding and cannot be cancelled"
            yield _wrong(row, item, message, "declare an event that answers it, or delete this")
        elif item.effect not in emitted:
            yield _wrong(row, item, f"no row emits {item.effect}, so it cannot be cancelled", "emit it, or delete this")


def _cancelled_at_once(machine: Machine, row: Transition) -> Iterator[Diagnostic]:
    fresh = set[str]()
    for item in row.effects:
        if isinstance(item, Emit):
            fresh.add(item.effect)
            continue
        dropped = sorted(fresh & set(machine.answers) if item.effect is None else fresh & {item.effect})
        if dropped:
            hint = "to start it anew, write the cancel first"
            yield _wrong(row, item, f"{', '.join(dropped)} is emitted and cancelled by the same row", hint)


def _emitted_into_final(machine: Machine, row: Transition) -> Iterator[Diagnostic]:
    if row.target == STAY or machine.entered(row.target) not in machine.final_states:
        return
    for item in row.effects:
        if isinstance(item, Emit) and item.effect in machine.answers:
            message = f"{item.effect} has answers, but {row.target} is final: nobody waits for them"
            hint = "emit an effect without answers, or wait in a state that is not final"
            yield _wrong(row, item, message, hint)


def _wrong(row: Transition, item: Emit | Cancel, message: str, hint: str) -> Diagnostic:
    return Diagnostic("DSA213", "error", message, place(item.span, cell(row, "effects")), hint)
