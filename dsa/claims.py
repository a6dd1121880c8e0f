"""What a document claims of its machine: properties about all runs, scenarios of single ones.

Frozen values like the declarations; `dsa.lang` makes them, `dsa.checks` judges them.
"""

from typing import Literal

import attrs

from dsa.declarations import Cancel, Effect, Emit, Variable
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
class Doubt:
    """What a `leads to` does not rely on: that an effect answers, or that it does not fail."""

    effect: str
    what: Literal["fails", "never answers"]

    def __str__(self) -> str:
        return f"{self.effect} {self.what}"


@attrs.frozen
class LeadsTo:
    """`P leads to Q [assuming [weakly] fair E, g.passed] [even if F fails, G never answers]`.

    `fair` are events, effects and verdicts as written.
    """

    cause: Expr
    goal: Expr
    fair: tuple[str, ...] = ()
    is_weak: bool = False
    doubts: tuple[Doubt, ...] = ()

    def doubted(self, what: Literal["fails", "never answers"]) -> frozenset[str]:
        """Return the effects of which this is doubted."""
        return frozenset(doubt.effect for doubt in self.doubts if doubt.what == what)


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
    """`P with probability >= x`, or, as a ceiling, `P with probability <= x`."""

    condition: Expr
    bound: float
    is_ceiling: bool = False

    @property
    def sign(self) -> str:
        """How the probability compares with the bound."""
        return "<=" if self.is_ceiling else ">="


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
        case Always(p) | Never(p) | Possible(p) | EverywherePossible(p) | Probability(p) | Expected(p):
            return (p,)
        case Unchanged(trigger, changed):
            return (trigger, *changed)
        case LeadsTo(left, right) | OnlyAfter(left, right):
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
        case LeadsTo(cause, goal, fair, is_weak, doubts):
            assuming = f" assuming {'weakly ' if is_weak else ''}fair {', '.join(fair)}" if fair else ""
            even_if = f" even if {', '.join(map(str, doubts))}" if doubts else ""
            return f"{unparse(cause)} leads to {unparse(goal)}{assuming}{even_if}"
        case OnlyAfter(later, earlier):
            return f"{unparse(later)} only after {unparse(earlier)}"
        case AtMost(bound, counted, between):
            scope = "" if between is None else f" between {' and '.join(unparse(e, closed=True) for e in between)}"
            return f"at most {unparse(bound)} {unparse(counted, alone=True)}{scope}"
        case Possible(p):
            return f"possible {unparse(p)}"
        case EverywherePossible(p):
            return f"from everywhere possible {unparse(p)}"
        case Probability(p, bound):
            return f"{unparse(p)} with probability {form.sign} {show_number(bound)}"
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


@attrs.frozen
class Stated(Placed):
    """What a spec says of an effect or a variable of its machine: these columns, by their fields, are to be as they stand there."""

    declared: Effect | Variable
    columns: tuple[tuple[str, str], ...]
