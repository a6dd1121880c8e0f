"""Faults of a table: what its rows and declarations alone show, at the machine's parameter values. Nothing is explored."""

from collections.abc import Callable

from dsa.checks.definition4 import definition4
from dsa.checks.graph import dead_ends, unused, vain_effects
from dsa.checks.kinds import kinds
from dsa.checks.places import place
from dsa.declarations import Effect, show_duration
from dsa.errors import Diagnostic, MachineError
from dsa.expr import show_value, unparse, unparse_domain
from dsa.machine import Machine
from dsa.trace import show_values

#: How fields of declarations are written, those that are no texts.
_SHOWN: dict[str, Callable[..., str]] = {"time_limit_ms": show_duration, "domain": unparse_domain, "initial": unparse}


def require_sound(machine: Machine) -> None:
    """Raise MachineError for the errors of a table: with one of them nothing runs."""
    errors: tuple[Diagnostic, ...] | None = machine.worked_out.get("errors")
    if errors is None:
        found = (*start_outside(machine), *row_findings(machine))
        errors = machine.worked_out["errors"] = tuple(each for each in found if each.severity == "error")
    if errors:
        raise MachineError(errors)


def row_findings(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return what rows and declarations show, at whatever values of the parameters: errors, warnings, information."""
    return (
        *said_otherwise(machine),
        *dead_ends(machine),
        *vain_effects(machine),
        *definition4(machine),
        *unused(machine),
        *kinds(machine),
    )


def said_otherwise(machine: Machine) -> tuple[Diagnostic, ...]:
    """Return where a machine declares an effect or a variable otherwise than its spec says."""
    found = []
    for stated in machine.stated:
        said = stated.declared
        kind, known = ("effect", machine.effects) if isinstance(said, Effect) else ("variable", machine.variables)
        for own in (each for each in known if each.name == said.name):
            for column, field in stated.columns:
                has, wanted = getattr(own, field), getattr(said, field)
                if has != wanted:
                    shown = [
                        _SHOWN.get(field, str)(value) if value not in {None, ""} else "not given"
                        for value in (has, wanted)
                    ]
                    message = f"{kind} {own.name}: {column} is {shown[0]} in {machine.name}, and {shown[1]} in its spec"
                    hint = "decide which is right, and change the other"
                    found.append(Diagnostic("DSA317", "error", message, place(stated.span), hint))
    return tuple(found)


def start_outside(machine: Machine) -> tuple[Diagnostic, ...]:
    """Give the variables whose initial value lies outside their domain at the machine's parameter values."""
    found = []
    for variable, value in zip(machine.variables, machine.initial_values, strict=True):
        values = machine.values_of[variable.name]
        if not values.contains(value):
            at = show_values(machine.constants.items())
            message = f"{variable.name} starts as {show_value(value)}, outside {values}" + (f", at {at}" if at else "")
            hint = "give it an initial value and bounds that fit all values of the parameters"
            found.append(Diagnostic("DSA205", "error", message, place(variable.span), hint))
    return tuple(found)
