"""What a document declares, one frozen class per kind of row: parameters, variables, events, rows, steps.

They hold names, numbers and expression trees, never callables and never text to be parsed again. Equality ignores
where things stand in the text. `dsa.machine` puts them together.
"""

import re
from typing import Literal

import attrs

from dsa.errors import Placed, Span
from dsa.expr import OUTCOMES, TRUE, Domain, Expr, Outcome, Value
from dsa.references import Reference

OUTSIDE = "outside"
STAR = "*"
STAY = "="
TIMER_PREFIX = "after "

Scope = Literal["workflow", "environment"]
StateKind = Literal["", "initial", "final"]

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")


def parse_duration(text: str) -> int | None:
    """Read `30s`, `500ms`, `2h` as milliseconds; None when it is not a whole number with a unit."""
    match = _DURATION.fullmatch(text)
    return int(match[1]) * _UNITS_MS[match[2]] if match else None


def show_duration(duration_ms: int) -> str:
    """Write milliseconds with the largest unit that fits exactly."""
    unit = next(unit for unit, size_ms in _UNITS_MS.items() if duration_ms % size_ms == 0)
    return f"{duration_ms // _UNITS_MS[unit]}{unit}"


@attrs.frozen
class Parameter(Placed):
    """A constant of a run; proofs range over its whole domain."""

    name: str
    domain: Domain
    default: Value


@attrs.frozen
class Variable(Placed):
    """A finite-domain part of the configuration; `initial` is an expression over parameters."""

    name: str
    scope: Scope
    domain: Domain
    initial: Expr


@attrs.frozen
class Event(Placed):
    """What can happen. `origin` is `outside`, or the effect that this event answers.

    `otherwise` is `refused` where it is meant that a state with rows for the event refuses it at some values.
    """

    name: str
    origin: str = OUTSIDE
    otherwise: str = ""


@attrs.frozen
class Effect(Placed):
    """What a row asks the world to do, and the driver's policy for it (never read by `step`).

    `on_failure` is `stop` where a failure for which no row is, which stops the run, is meant.
    """

    name: str
    kind: str = ""
    in_doubt: str = ""
    time_limit_ms: int | None = None
    retries: int | None = None
    on_failure: str = ""


@attrs.frozen
class Guard(Placed):
    """A GuardInterface bound by name. `kind` is the registered kind; `judges` the events it gives verdicts on.

    A guard that judges nothing is a part of a composition. `pass_odds` and `fatal_odds` are assumed
    probabilities, one per retry number, the last one repeated; empty when none are assumed. `uses` is what it is given of what events have
    brought, by the names of its arguments.
    """

    name: str
    judges: tuple[str, ...] = ()
    kind: str = ""
    options: tuple[tuple[str, str], ...] = ()
    outcomes: tuple[Outcome, ...] = OUTCOMES
    pass_odds: tuple[float, ...] = ()
    fatal_odds: tuple[float, ...] = ()
    uses: tuple[tuple[str, Reference], ...] = ()


@attrs.frozen
class Generator(Placed):
    """A GeneratorInterface bound by name, with its registered kind and options."""

    name: str
    kind: str = ""
    options: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class State(Placed):
    """A state, or the parent of states. The name is dotted: `review.draft` is a child of `review`.

    `end` is when a run that rests in this leaf is finished there, None when it never is.
    """

    name: str
    kind: StateKind = ""
    end: Expr | None = None

    @property
    def parent(self) -> str | None:
        """The name of the state around this one, or None at the top."""
        return self.name.rpartition(".")[0] or None


@attrs.frozen
class Assign(Placed):
    """`variable = value`; all updates of a row read the values before the step (S5)."""

    variable: str
    value: Expr


@attrs.frozen
class Revoke(Placed):
    """`revoke variable`: back to its initial value, the one way to take workflow state back (S9)."""

    variable: str


@attrs.frozen
class Emit(Placed):
    """Ask for an effect."""

    effect: str

    def __str__(self) -> str:
        return self.effect


@attrs.frozen
class Cancel(Placed):
    """Drop an outstanding effect, or all of them when `effect` is None."""

    effect: str | None = None

    def __str__(self) -> str:
        return "cancel" if self.effect is None else f"cancel {self.effect}"


@attrs.frozen
class Transition(Placed):
    """One row for one source and one event.

    `event` is an event's name, `E.failed`, or `after 30s`. `source` is a state, a parent or `*`; `target` a
    state, a parent (its initial child is entered) or `=`. With `is_else`, `condition` holds what stands beside
    `else`. `spans` gives the place of each column's cell.
    """

    source: str
    event: str
    target: str
    condition: Expr = TRUE
    is_else: bool = False
    updates: tuple[Assign | Revoke, ...] = ()
    effects: tuple[Emit | Cancel, ...] = ()
    spans: tuple[tuple[str, Span], ...] = attrs.field(default=(), eq=False, repr=False, kw_only=True)

    @property
    def is_timer(self) -> bool:
        """Tell whether this row is for a timer."""
        return self.event.startswith(TIMER_PREFIX)

    @property
    def duration_ms(self) -> int:
        """The duration of a timer row."""
        duration_ms = parse_duration(self.event.removeprefix(TIMER_PREFIX))
        assert duration_ms is not None, f"{self.event} is not a timer"
        return duration_ms

    @property
    def is_ignoring(self) -> bool:
        """Tell whether this row does nothing about its event."""
        return self.target == STAY and not self.updates and not self.effects

    def span_of(self, column: str) -> Span | None:
        """Give the place of a column's cell, or of the row when the cell is not there."""
        return dict(self.spans).get(column, self.span)

    def __str__(self) -> str:
        return f"{self.source} | {self.event} | {self.target}"


@attrs.frozen
class Case(Placed):
    """A call and the value it must give, both as Python text; `expected` is a literal."""

    call: str
    expected: str


@attrs.frozen
class Cases(Placed):
    """The section `Cases: NAME`; NAME is a step or a guard."""

    name: str
    cases: tuple[Case, ...]


@attrs.frozen
class Prompt(Placed):
    """The section `Prompt: NAME`; parts that are not given are empty. NAME is a step or an effect."""

    name: str
    role: str = ""
    constraints: str = ""
    task: str = ""
    feedback: str = ""
    system: str = ""


@attrs.frozen
class WorkflowStep(Placed):
    """One row of a Steps table. `requires` is a list of steps, or an expression over them (rho).

    `uses` maps the names under which earlier artifacts are seen by guard and prompt to their steps. The retry
    bound is the default of parameter `rmax.NAME`.
    """

    name: str
    generator: str
    guards: tuple[str, ...]
    requires: tuple[str, ...] | Expr = ()
    uses: tuple[tuple[str, str], ...] = ()
    task: str = ""
    optional: bool = False
