"""What a document claims of its machine: properties about all runs, scenarios of single ones.

Frozen values like the declarations; `dsa.lang` makes them, `dsa.checks` judges them.
"""

import attrs

from dsa.declarations import Cancel, Emit
from dsa.errors import Placed
from dsa.expr import Expr, Outcome, Value, show_number, unparse


@attrs.frozen
class Always:
    """`always P`."""

    condition: Expr


@attrs.frozen
class Never:
    """`never P`."""

    condition: Expr


@attrs.frozen
class Unchanged:
    """`on E: X, Y unchanged`: the expressions have the same value before and after every step at which E holds."""

    trigger: Expr
    expressions: tuple[Expr, ...]


@attrs.frozen
class LeadsTo:
    """`P leads to Q [assuming fair E, F]`."""

    cause: Expr
    goal: Expr
    fair: tuple[str, ...] = ()


@attrs.frozen
class OnlyAfter:
    """`Q only after P`."""

    later: Expr
    earlier: Expr


@attrs.frozen
class AtMost:
    """`at most K E [between P and Q]`; `between` is the pair (P, Q)."""

    bound: Expr
    counted: Expr
    between: tuple[Expr, Expr] | None = None


@attrs.frozen
class Possible:
    """`possible P`."""

    condition: Expr


@attrs.frozen
class EverywherePossible:
    """`from everywhere possible P`."""

    condition: Expr


@attrs.frozen
class Probability:
    """`P with probability >= x`."""

    condition: Expr
    at_least: float


@attrs.frozen
class Expected:
    """`expected E <= x`: the expected number of E in a run."""

    counted: Expr
    at_most: float


Form = (
    Always | Never | Unchanged | LeadsTo | OnlyAfter | AtMost | Possible | EverywherePossible | Probability | Expected
)


def expressions(form: Form) -> tuple[Expr, ...]:
    """Give every expression of a property, left to right."""
    match form:
        case Always(p) | Never(p) | Possible(p) | EverywherePossible(p) | Probability(p, _) | Expected(p, _):
            return (p,)
        case Unchanged(trigger, changed):
            return (trigger, *changed)
        case LeadsTo(left, right, _) | OnlyAfter(left, right):
            return (left, right)
        case AtMost(bound, counted, between):
            return (bound, counted, *(between or ()))


def show(form: Form) -> str:
    """Write a property as its bullet has it."""
    match form:
        case Always(p):
            return f"always {unparse(p)}"
        case Never(p):
            return f"never {unparse(p)}"
        case Unchanged(trigger, changed):
            return f"on {unparse(trigger)}: {', '.join(unparse(expr) for expr in changed)} unchanged"
        case LeadsTo(cause, goal, fair):
            return f"{unparse(cause)} leads to {unparse(goal)}" + (f" assuming fair {', '.join(fair)}" if fair else "")
        case OnlyAfter(later, earlier):
            return f"{unparse(later)} only after {unparse(earlier)}"
        case AtMost(bound, counted, between):
            scope = "" if between is None else f" between {' and '.join(unparse(e, closed=True) for e in between)}"
            return f"at most {unparse(bound)} {unparse(counted, alone=True)}{scope}"
        case Possible(p):
            return f"possible {unparse(p)}"
        case EverywherePossible(p):
            return f"from everywhere possible {unparse(p)}"
        case Probability(p, at_least):
            return f"{unparse(p)} with probability >= {show_number(at_least)}"
        case Expected(counted, at_most):
            return f"expected {unparse(counted, alone=True)} <= {show_number(at_most)}"


@attrs.frozen
class Property(Placed):
    """A claim about all runs, and where it stands."""

    form: Form


@attrs.frozen
class Refused:
    """A scenario's action `refused` or `refused: REASON`."""

    reason: str | None = None


@attrs.frozen
class ScenarioStep(Placed):
    """One percept with the action, state, values and dependencies expected; None where nothing is compared."""

    event: str
    verdicts: tuple[tuple[str, Outcome], ...] = ()
    action: tuple[Emit | Cancel, ...] | Refused = ()
    state: str | None = None
    values: tuple[tuple[str, Value], ...] = ()
    dependencies: tuple[tuple[str, str], ...] | None = None


@attrs.frozen
class Scenario(Placed):
    """A table of percepts, run at the defaults or at its own parameters. Guards not named have passed."""

    name: str
    steps: tuple[ScenarioStep, ...]
    parameters: tuple[tuple[str, Value], ...] = ()
