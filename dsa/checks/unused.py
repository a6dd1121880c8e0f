"""Names that are declared and never used.

Takes a machine, gives warnings. In a document with Steps most names come from the expansion; only generators are asked
about there.
"""

from collections.abc import Iterator

import attrs

from dsa.checks.places import changed_by, place, read_by
from dsa.claims import Form
from dsa.declarations import Cancel, Emit, Generator, Guard, Parameter, Variable
from dsa.errors import Diagnostic, Span
from dsa.expr import Domain, Expr, RangeDomain, guards_read, names
from dsa.machine import Machine


def unused(machine: Machine) -> tuple[Diagnostic, ...]:
    """Give the parameters, variables, events, effects, guards and generators that nothing uses."""
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
    found: list[Generator] = [generator for generator in machine.generators if generator.name not in used]
    for generator in found:
        why = "no step names it" if machine.steps else "only steps name generators"
        yield _warning("generator", generator.name, why, generator.span)
