"""What an expression of a property means at a moment (specs/semantics.md, "What properties mean").

A moment is a command taken, or the start. States, `pending E`, events, effects and verdicts are decided there by names alone, so
an expression of a property becomes one over variables and parameters: at a location, or over the values before a command.
"""

from collections.abc import Callable

from dsa.expr import Expr, Name, Symbol, Verdict, walk
from dsa.simplify import FALSE, Leaf, constant, substituted
from dsa.system import Command, System, start_values


def happens(expr: Expr) -> bool:
    """Tell whether the expression speaks of events, effects or verdicts, which only a moment has."""
    return any(isinstance(n, Verdict) or (isinstance(n, Name) and n.kind in {"event", "effect"}) for n in walk(expr))


def at_location(system: System, location: int, expr: Expr) -> Expr:
    """Give the expression at a location, over the values there; nothing happens: events, effects and verdicts are false."""
    return substituted(expr, _reader(system, location, lambda _: FALSE))


def at_start(system: System, expr: Expr) -> Expr:
    """Give the expression at the start, over parameters."""
    initial = start_values(system)
    return substituted(at_location(system, 0, expr), lambda node: initial.get(_name(node), node))


def after(system: System, command: Command, expr: Expr) -> Expr:
    """Give the expression at the moment of a command, over the values before it."""
    said, occurrence = set(command.occurrence.verdicts), command.occurrence

    def happened(node: Leaf) -> Expr:
        if isinstance(node, Verdict):
            return constant((node.guard, node.outcome) in said)
        assert isinstance(node, Name), "a symbol happens nowhere"
        if node.kind == "event":
            return constant(node.name == occurrence.event)
        return constant(node.name in command.effects)

    here = substituted(expr, _reader(system, command.target, happened))
    return substituted(here, lambda node: command.after.get(_name(node), node))


def _name(node: Leaf) -> str:
    return node.name if isinstance(node, Name) and node.kind == "variable" else ""


def _reader(system: System, location: int, happened: Callable[[Leaf], Expr]) -> Callable[[Leaf], Expr]:
    here = system.locations[location]
    inside = {*system.machine.ancestry(here.state), here.state}

    def read(node: Leaf) -> Expr:
        if isinstance(node, Symbol):
            return node
        if isinstance(node, Name):
            if node.kind == "state":
                return constant(node.name in inside)
            if node.kind == "pending":
                return constant(node.name in here.outstanding)
            if node.kind in {"variable", "parameter"}:
                return node
        return happened(node)

    return read
