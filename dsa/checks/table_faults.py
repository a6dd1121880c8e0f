"""Faults of a table: what its rows and declarations alone show, at the machine's parameter values. Nothing is explored."""

from dsa.checks.definition4 import definition4
from dsa.checks.graph import dead_ends, unused, vain_effects
from dsa.checks.kinds import kinds
from dsa.checks.places import place
from dsa.errors import Diagnostic, MachineError
from dsa.expr import show_value
from dsa.machine import Machine
from dsa.trace import show_values


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
    return (*dead_ends(machine), *vain_effects(machine), *definition4(machine), *unused(machine), *kinds(machine))


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
