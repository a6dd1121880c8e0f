"""What can be told from the table without running it: dead ends, effects cancelled or emitted in vain, names that are never used.

Takes a machine, gives diagnostics. Looks at no values, so it holds for all of them.
"""

from collections.abc import Iterator

import attrs

from dsa.checks.places import cell, changed_by, place, read_by
from dsa.claims import Form
from dsa.declarations import STAY, Cancel, Emit, Generator, Guard, Parameter, Transition, Variable
from dsa.errors import Diagnostic, Span
from dsa.expr import Domain, Expr, RangeDomain, guards_read, names
from dsa.machine import Machine
from dsa.meaning import accepted_events
from dsa.uses import DEFAULT_GENERATOR, GENERATING_EFFECT

#: The kind of guard that asks a generator: that of its option `by`, or the usual one.
_ASKING = "judge"


def dead_ends(machine: Machine) -> tuple[Diagnostic, ...]:
    """Give the states that are not final and have no row, neither their own nor an ancestor's nor one of `*`."""
    found = []
    for leaf in machine.leaves:
        if leaf in machine.ends:
            continue  # a run that gets there may be finished; where it is not, it is stuck, which exploring shows
        if leaf not in machine.final_states and not accepted_events(machine, leaf):
            message = f"{leaf} is not final, and no row leaves it: a run that gets there stays for ever"
            span = place(machine.state_named[leaf].span)
            found.append(
                Diagnostic(
                    "DSA303",
                    "error",
                    message,
                    span,
                    "add a row with this source, mark it final, or write 'end when ..'",
                )
            )
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


def unused(machine: Machine) -> tuple[Diagnostic, ...]:
    """Give the parameters, variables, events, effects, guards and generators that nothing uses; with Steps, where most names come from the expansion, only generators."""
    found = list(_generators(machine))
    if not machine.steps:
        used = _used_values(machine)
        found += _unless(used, "parameter", machine.parameters, "nothing reads it")
        found += _unless(used, "variable", machine.variables, "no row, property or scenario uses it")
        found += _events(machine)
        found += _effects(machine)
        found += _guards(machine)
    return tuple(found)


def _warning(kind: str, name: str, why: str, span: Span | None) -> Diagnostic:
    return Diagnostic("DSA212", "warning", f"{kind} {name} is never used: {why}", place(span), "use it, or delete it")


def _unless(
    used: frozenset[str], kind: str, declared: tuple[Parameter, ...] | tuple[Variable, ...], why: str
) -> Iterator[Diagnostic]:
    for item in declared:
        if item.name not in used:
            yield _warning(kind, item.name, why, item.span)


def _used_values(machine: Machine) -> frozenset[str]:
    """Give the parameters and variables that rows, domains, properties or scenarios name."""
    found = set(read_by(machine.transitions) | changed_by(machine.transitions))
    for variable in machine.variables:
        found |= names(variable.initial) | _bounds(variable.domain)
    for claim in machine.properties:
        for expr in expressions(claim.form):
            found |= names(expr)
    for scenario in machine.scenarios:
        found |= {name for name, _ in scenario.parameters}
        found |= {name for step in scenario.steps for name, _ in step.values}
    return frozenset(found)


def _bounds(domain: Domain) -> frozenset[str]:
    if not isinstance(domain, RangeDomain):
        return frozenset()
    return names(domain.low) | (names(domain.high) if domain.high else frozenset())


def expressions(form: Form) -> Iterator[Expr]:
    """Give the expressions of a property."""
    for value in attrs.asdict(form, recurse=False).values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Expr):
                yield item


def _events(machine: Machine) -> Iterator[Diagnostic]:
    taken = {row.event for row in machine.transitions}
    for event in machine.events:
        if event.name not in taken:
            yield _warning("event", event.name, "no row is for it", event.span)


def _effects(machine: Machine) -> Iterator[Diagnostic]:
    emitted = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    reported = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Cancel)}
    for effect in machine.effects:
        if effect.name not in emitted | reported:  # what is cancelled but not emitted is an error already
            yield _warning("effect", effect.name, "no row emits it", effect.span)


def _guards(machine: Machine) -> Iterator[Diagnostic]:
    read = {guard for row in machine.transitions for guard in guards_read(row.condition)}
    read |= {part for guard in machine.guards for part in parts(guard)}
    for guard in machine.guards:
        if guard.name not in read:
            yield _warning("guard", guard.name, "no condition reads its verdict", guard.span)


def parts(guard: Guard) -> tuple[str, ...]:
    """Give the guards that a composition is made of: its option `of`."""
    return tuple(name.strip() for name in dict(guard.options).get("of", "").split(",") if name.strip())


def _generators(machine: Machine) -> Iterator[Diagnostic]:
    used = {step.generator for step in machine.steps}
    used |= {DEFAULT_GENERATOR for guard in machine.guards if (guard.kind or guard.name) == _ASKING}
    used |= {dict(guard.options)["by"].strip() for guard in machine.guards if "by" in dict(guard.options)}
    emitted = {item.effect for row in machine.transitions for item in row.effects if isinstance(item, Emit)}
    if not machine.steps and GENERATING_EFFECT in emitted:  # it asks the only generator that there is, or `llm`
        used |= {DEFAULT_GENERATOR, *(row.name for row in machine.generators[:1] if len(machine.generators) == 1)}
    found: list[Generator] = [generator for generator in machine.generators if generator.name not in used]
    for generator in found:
        why = "no step names it" if machine.steps else "nothing asks it"
        yield _warning("generator", generator.name, why, generator.span)
