"""Declarations: frozen classes for everything that a document declares or claims, one for each kind of row.

- `Reference` and `read_reference`: references to event data, as in placeholders, in the column `uses` of Guards and in `context.latest`.
  `dsa.runtime.event_data` finds the values.
- Parameters, variables, events, effects, guards, generators, states, transitions and steps. They hold names, numbers and expression trees, never
  callables or unparsed text. `dsa.machine` puts them together.
- Properties (claims about all runs) and scenarios (single runs). `dsa.lang` reads them, `dsa.checks` judges them.

Equality ignores the place in the document.
"""

import re
from collections.abc import Callable, Collection
from typing import Literal

import attrs

from dsa.errors import SourceNode, Span
from dsa.expr import OUTCOMES, TRUE, Domain, Expr, Outcome, Value, show_number, unparse
from dsa.text import closest, nearest

_PART = r"[A-Za-z_][A-Za-z0-9_]*"
_NAME = rf"{_PART}(?:\.{_PART})*(?:\[[A-Za-z0-9_]+\](?:\.{_PART})*)?"
_WORDS = re.compile(rf"(?P<all>all[ \t]+)?(?P<name>{_NAME})(?P<optional>\?)?(?:[ \t]+since[ \t]+(?P<since>{_NAME}))?")
#: A double brace, or a placeholder with its words. Anything else in braces is text.
PLACEHOLDER = re.compile(rf"\{{\{{|\}}\}}|\{{((?:all[ \t]+)?{_NAME}\??(?:[ \t]+since[ \t]+{_NAME})?)\}}")


@attrs.frozen
class ReferenceFault:
    """Why words are not a reference: `message`, `hint` says what to write, `about` is the missing event, if one is missing."""

    message: str
    hint: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


@attrs.frozen
class Reference:
    """A reference to the data of the newest occurrence of an event (rules D3 to D5 of `specs/semantics.md`).

    `path` goes into JSON objects. `since` names an event: data older than its newest occurrence does not count. With `is_all` it stands for a
    list of all of them. With `is_optional` the data may be missing or null.
    """

    event: str
    path: tuple[str, ...] = ()
    since: str | None = None
    is_optional: bool = False
    is_all: bool = False

    def __str__(self) -> str:
        """Return the reference as written."""
        name = ".".join((self.event, *self.path))
        since = f" since {self.since}" if self.since else ""
        return f"{'all ' if self.is_all else ''}{name}{'?' if self.is_optional else ''}{since}"


def read_reference(text: str, events: Collection[str]) -> Reference | ReferenceFault:
    """Read a reference, or say why it cannot be read. The longest part of a dotted name that is an event is the event, the rest is a path."""
    match = _WORDS.fullmatch(text)
    if match is None:
        return ReferenceFault(f"'{text}' does not name the data of an event", _forms(events))
    event, path = _split(match["name"], events)
    since = match["since"]
    if not event:
        return _unknown(match["name"], events)
    if since is not None and since not in events:
        return _unknown(since, events)
    return Reference(event, path, since, match["optional"] is not None, match["all"] is not None)


def _forms(events: Collection[str]) -> str:
    """Return a hint with the reader's own events, where there are any."""
    one = min((event for event in events if not event.endswith(".failed")), default="found")
    return f"write '{one}' for the data of the newest {one}, '{one}.part' for a part of it, '{one}?' if there may be none, '{one} since EVENT' for data after an EVENT, or 'all {one}' for a list"


def _split(name: str, events: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Return the event that a dotted name begins with, "" without one, and the rest."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        event = ".".join(parts[:length])
        if event in events:
            return event, tuple(parts[length:])
    return "", ()


def _unknown(name: str, events: Collection[str]) -> ReferenceFault:
    head = name.partition(".")[0] if nearest(name, events) is None else name
    hint = closest(head, events, "the machine declares no events")
    return ReferenceFault(f"'{name}' is not an event", hint, name)


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
class Family(SourceNode):
    """A set of indices under a name: numbers in ascending order, or values of enumerations, in the order written (Fa1)."""

    name: str
    indices: tuple[int | str, ...]

    @property
    def index(self) -> str:
        """The indices as a document has them: `1..3` or `{a, b}`."""
        if isinstance(self.indices[0], int):
            return f"{self.indices[0]}..{self.indices[-1]}"
        return "{" + ", ".join(map(str, self.indices)) + "}"


#: Which indices the free families of a written row stand for in one of the rows that result (Fa4).
Instance = tuple[tuple[str, int | str], ...]


def show_instance(instance: Instance) -> str:
    """Return the indices that free families stand for as text: `at b = equifax`; empty for a row without any."""
    return "at " + ", ".join(f"{family} = {index}" for family, index in instance) if instance else ""


def without_index(name: str) -> str:
    """Return a name without its index: `look.failed` for `look[2].failed`."""
    base, _, rest = name.partition("[")
    return base + rest.partition("]")[2]


def of_index(names: Collection[str], name: str, index: str | None) -> str:
    """Return the one of some names that a name without index stands for at an index, or the name itself."""
    member = f"{name}[{index}]"
    return member if index is not None and name not in names and member in names else name


def index_in(name: str) -> str | None:
    """Return the index of a name as text; None for a name without one."""
    return name.partition("[")[2].partition("]")[0] or None


@attrs.frozen
class WrittenTable:
    """A section as written, with its families: canonical cells of its rows, and the declarations that they stand for."""

    section: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    declarations: tuple[object, ...] = attrs.field(repr=False)


@attrs.frozen
class RunParameter(SourceNode):
    """A constant of a run; proofs range over its whole domain."""

    name: str
    domain: Domain
    default: Value


@attrs.frozen
class Variable(SourceNode):
    """A finite-domain part of the configuration; `initial` is an expression over parameters."""

    name: str
    scope: Scope
    domain: Domain
    initial: Expr


@attrs.frozen
class Event(SourceNode):
    """An event. `origin` is `outside`, or the effect that this event answers.

    `otherwise` is `refused` if a state with rows for the event is meant to refuse it at some values.
    """

    name: str
    origin: str = OUTSIDE
    otherwise: str = ""


@attrs.frozen
class EffectColumn:
    """A column of the Effects table: its header, the field of `Effect` that it fills, and the form of its cells.

    A `choice` is one of `choices` or empty, a `duration` is in milliseconds, a `number` is whole and at least `least`, an `expression` is a number over
    parameters. `options` are those of a sleep: its duration in milliseconds, written as `for = 24h`.
    """

    header: str
    field: str
    form: Literal["choice", "duration", "number", "expression", "options"]
    choices: tuple[str, ...] = ()
    least: int = 0

    def cell(self, effect: "Effect") -> str:
        """Return the cell of an effect's row, empty where the effect has no value."""
        value = getattr(effect, self.field)
        return "" if value is None else self.text(value)

    def text(self, value: object) -> str:
        """Return a value of this column as a document has it."""
        if self.form in {"duration", "options"} and isinstance(value, int):
            return f"{'for = ' if self.form == 'options' else ''}{show_duration(value)}"
        return unparse(value) if isinstance(value, Expr) else str(value)


#: The columns of the Effects table but its first, in their order. Reading, writing and comparing of documents follow this list.
EFFECT_COLUMNS = (
    EffectColumn("is", "shipped_kind", "choice", ("sleep",)),
    EffectColumn("options", "sleep_ms", "options"),
    EffectColumn("kind", "kind", "choice", ("actuator", "sensing", "internal")),
    EffectColumn("in doubt", "in_doubt", "choice", ("retry", "ask", "fail")),
    EffectColumn("time limit", "time_limit_ms", "duration"),
    EffectColumn("retries", "retries", "number"),
    EffectColumn("on failure", "on_failure", "choice", ("stop",)),
    EffectColumn("at once", "at_once", "expression"),
    EffectColumn("together", "together", "number", least=1),
)


@attrs.frozen
class Effect(SourceNode):
    """A request to the outside world, and the driver's policy for it. `EFFECT_COLUMNS` says how it is written.

    `shipped_kind` is `sleep` for an effect that answers by itself after `sleep_ms` milliseconds, and needs no policy. `on_failure` is `stop` if a failure without a row is meant to stop the run. `at_once` is the number that may be outstanding, None for 1 (S7); this
    alone is read by `step`. `together` is how many of them a driver performs side by side, None for all.
    """

    name: str
    kind: str = ""
    in_doubt: str = ""
    time_limit_ms: int | None = None
    retries: int | None = None
    on_failure: str = ""
    at_once: Expr | None = None
    together: int | None = None
    shipped_kind: str = ""
    sleep_ms: int | None = None


@attrs.frozen
class Guard(SourceNode):
    """A GuardInterface bound by name. `kind` is the registered kind; `judges` the events it gives verdicts on.

    A guard that judges nothing is a part of a composition. `pass_odds` and `fatal_odds` are assumed
    probabilities, one per retry number, the last one repeated; empty for none. `uses` has the references to event data,
    by the names of its arguments.
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
class Generator(SourceNode):
    """A GeneratorInterface bound by name, with its registered kind and options."""

    name: str
    kind: str = ""
    options: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class State(SourceNode):
    """A state, or the parent of states. The name is dotted: `review.draft` is a child of `review`.

    `end` is the condition under which a run that rests in this leaf is finished; None for never.
    """

    name: str
    kind: StateKind = ""
    end: Expr | None = None

    @property
    def parent(self) -> str | None:
        """The name of the state around this one, or None at the top."""
        return self.name.rpartition(".")[0] or None


@attrs.frozen
class Assign(SourceNode):
    """`variable = value`; all updates of a row read the values before the step (S5)."""

    variable: str
    value: Expr


@attrs.frozen
class Revoke(SourceNode):
    """`revoke variable`: reset it to its initial value, the only way to undo workflow state (S9)."""

    variable: str


@attrs.frozen
class Emit(SourceNode):
    """Ask for an effect."""

    effect: str

    def __str__(self) -> str:
        return self.effect


@attrs.frozen
class Cancel(SourceNode):
    """Drop an outstanding effect, or all of them when `effect` is None."""

    effect: str | None = None

    def __str__(self) -> str:
        return "cancel" if self.effect is None else f"cancel {self.effect}"


@attrs.frozen
class Transition(SourceNode):
    """One row for one source and one event.

    `event` is an event's name, `E.failed`, or `after 30s`. `source` is a state, a parent or `*`; `target` a
    state, a parent (its initial child is entered) or `=`. With `is_else`, `condition` is the condition beside
    `else`. `spans` has the place of each column's cell. `instance` says which of the rows that the written one stands for this is.
    """

    source: str
    event: str
    target: str
    condition: Expr = TRUE
    is_else: bool = False
    updates: tuple[Assign | Revoke, ...] = ()
    effects: tuple[Emit | Cancel, ...] = ()
    spans: tuple[tuple[str, Span], ...] = attrs.field(default=(), eq=False, repr=False, kw_only=True)
    instance: Instance = attrs.field(default=(), eq=False, repr=False, kw_only=True)

    @property
    def is_timer(self) -> bool:
        """Return whether this row is for a timer."""
        return self.event.startswith(TIMER_PREFIX)

    @property
    def duration_ms(self) -> int:
        """The duration of a timer row."""
        duration_ms = parse_duration(self.event.removeprefix(TIMER_PREFIX))
        assert duration_ms is not None, f"{self.event} is not a timer"
        return duration_ms

    @property
    def is_ignoring(self) -> bool:
        """Return whether this row ignores its event."""
        return self.target == STAY and not self.updates and not self.effects

    def span_of(self, column: str) -> Span | None:
        """Return the place of a column's cell, or of the row when the cell is not there."""
        return dict(self.spans).get(column, self.span)

    def __str__(self) -> str:
        return f"{self.source} | {self.event} | {self.target}"


def written_row(row: Transition) -> object:
    """Return a key that is the same for all rows that one written with families stands for, and for no others."""
    return (row.span, row.source, without_index(row.event)) if row.instance and row.span else id(row)


@attrs.frozen
class Case(SourceNode):
    """A call and the value that it must return, both as Python text; `expected` is a literal."""

    call: str
    expected: str


@attrs.frozen
class Cases(SourceNode):
    """The section `Cases: NAME`; NAME is a step or a guard."""

    name: str
    cases: tuple[Case, ...]


@attrs.frozen
class Prompt(SourceNode):
    """The section `Prompt: NAME`; missing parts are empty. NAME is a step or an effect."""

    name: str
    role: str = ""
    constraints: str = ""
    task: str = ""
    feedback: str = ""
    system: str = ""


@attrs.frozen
class StepRow(SourceNode):
    """One row of a Steps table. `requires` is a list of steps, or an expression over them (rho).

    `uses` maps the names of earlier artifacts in guard and prompt to their steps. The retry
    bound is the default of parameter `rmax.NAME`.
    """

    name: str
    generator: str
    guards: tuple[str, ...]
    requires: tuple[str, ...] | Expr = ()
    uses: tuple[tuple[str, str], ...] = ()
    task: str = ""
    optional: bool = False


class PropertyForm:
    """A form of properties. Every field that holds expressions is read as conditions, unless its metadata names another `type`."""

    __slots__ = ()

    @property
    def subject(self) -> Expr | None:
        """Where this never happens, the property holds and says nothing. None for forms without one."""
        return None


class StepForm(PropertyForm):
    """A form that a single step violates, whatever came before. Its observer has these steps as sights, and remembers nothing."""

    __slots__ = ()


class HistoryForm(PropertyForm):
    """A form that a single step violates because of what came before. Its observer remembers that, and has these steps as sights."""

    __slots__ = ()


@attrs.frozen
class Always(StepForm):
    """`always P`."""

    condition: Expr


@attrs.frozen
class Never(StepForm):
    """`never P`."""

    condition: Expr


@attrs.frozen
class UnchangedClaim(StepForm):
    """`on E: X, Y unchanged`: the expressions have the same value before and after every step at which E holds."""

    trigger: Expr
    expressions: tuple[Expr, ...] = attrs.field(metadata={"type": None})

    @property
    def subject(self) -> Expr:
        """The moments at which the expressions must not change."""
        return self.trigger


@attrs.frozen
class Doubt:
    """An assumption that a `leads to` does not make: that an effect answers, or that it does not fail."""

    effect: str
    what: Literal["fails", "never answers"]

    def __str__(self) -> str:
        return f"{self.effect} {self.what}"


@attrs.frozen
class LeadsTo(PropertyForm):
    """`P leads to Q [assuming [weakly] fair E, g.passed] [even if F fails, G never answers]`.

    `fair` are events, effects and verdicts as written.
    """

    cause: Expr
    goal: Expr
    fair: tuple[str, ...] = ()
    is_weak: bool = False
    doubts: tuple[Doubt, ...] = ()

    @property
    def subject(self) -> Expr:
        """The cause."""
        return self.cause

    def doubtful_effects(self, what: Literal["fails", "never answers"]) -> frozenset[str]:
        """Return the effects with this doubt."""
        return frozenset(doubt.effect for doubt in self.doubts if doubt.what == what)


@attrs.frozen
class OnlyAfter(HistoryForm):
    """`Q only after P`."""

    later: Expr
    earlier: Expr

    @property
    def subject(self) -> Expr:
        """What must not come first."""
        return self.later


@attrs.frozen
class AtMost(HistoryForm):
    """`at most K E [between P and Q]`; `between` is the pair (P, Q)."""

    bound: Expr = attrs.field(metadata={"type": "int"})
    moment: Expr
    between: tuple[Expr, Expr] | None = None

    @property
    def subject(self) -> Expr:
        """The opening of the scope, or what is counted where there is none."""
        return self.between[0] if self.between else self.moment


@attrs.frozen
class Possible(PropertyForm):
    """`possible P`."""

    condition: Expr


@attrs.frozen
class EverywherePossible(PropertyForm):
    """`from everywhere possible P`."""

    condition: Expr


@attrs.frozen
class Probability(PropertyForm):
    """`P with probability >= x`, or, as a ceiling, `P with probability <= x`."""

    condition: Expr
    bound: float
    is_ceiling: bool = False

    @property
    def sign(self) -> str:
        """The comparison of the probability with the bound."""
        return "<=" if self.is_ceiling else ">="


@attrs.frozen
class ExpectedCount(PropertyForm):
    """`expected E <= x`: the expected number of E in a run."""

    moment: Expr
    at_most: float


Form = (
    Always
    | Never
    | UnchangedClaim
    | LeadsTo
    | OnlyAfter
    | AtMost
    | Possible
    | EverywherePossible
    | Probability
    | ExpectedCount
)


def expressions(form: Form) -> tuple[Expr, ...]:
    """Return every expression of a property, left to right."""
    values = (value for field in attrs.fields(type(form)) for value in _items(getattr(form, field.name)))
    return tuple(value for value in values if isinstance(value, Expr))


def map_expressions(form: Form, change: Callable[[Expr, str | None], Expr]) -> Form:
    """Return a property with every expression changed; `change` also takes the type it must have, None for any."""
    changes: dict[str, object] = {}
    for field in attrs.fields(type(form)):
        value, expected_type = getattr(form, field.name), field.metadata.get("type", "bool")
        if isinstance(value, Expr):
            changes[field.name] = change(value, expected_type)
        elif any(isinstance(item, Expr) for item in _items(value)):
            changes[field.name] = tuple(change(item, expected_type) for item in value)
    return attrs.evolve(form, **changes)  # type: ignore[arg-type]  # each field gets what it had, changed


def _items(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def show(form: Form) -> str:
    """Return a property as the text of its bullet."""
    match form:
        case Always(p):
            return f"always {unparse(p)}"
        case Never(p):
            return f"never {unparse(p)}"
        case UnchangedClaim(trigger, values):
            return f"on {unparse(trigger)}: {', '.join(unparse(expr) for expr in values)} unchanged"
        case LeadsTo(cause, goal, fair, is_weak, doubts):
            fairness = f" assuming {'weakly ' if is_weak else ''}fair {', '.join(fair)}" if fair else ""
            even_if = f" even if {', '.join(map(str, doubts))}" if doubts else ""
            return f"{unparse(cause)} leads to {unparse(goal)}{fairness}{even_if}"
        case OnlyAfter(later, earlier):
            return f"{unparse(later)} only after {unparse(earlier)}"
        case AtMost(bound, moment, between):
            scope = "" if between is None else f" between {' and '.join(unparse(e, is_closed=True) for e in between)}"
            return f"at most {unparse(bound)} {unparse(moment, alone=True)}{scope}"
        case Possible(p):
            return f"possible {unparse(p)}"
        case EverywherePossible(p):
            return f"from everywhere possible {unparse(p)}"
        case Probability(p, bound):
            return f"{unparse(p)} with probability {form.sign} {show_number(bound)}"
        case ExpectedCount(moment, at_most):
            return f"expected {unparse(moment, alone=True)} <= {show_number(at_most)}"


@attrs.frozen
class Property(SourceNode):
    """A claim about all runs, and its place. `instance` says which of the claims that the written one stands for this is."""

    form: Form
    instance: Instance = attrs.field(default=(), eq=False, repr=False, kw_only=True)


@attrs.frozen
class RefusedAction:
    """A scenario's action `refused` or `refused: REASON`."""

    reason: str | None = None


@attrs.frozen
class ScenarioStep(SourceNode):
    """One percept with the expected action, state, values and dependencies; None is not compared."""

    event: str
    verdicts: tuple[tuple[str, Outcome], ...] = ()
    action: tuple[Emit | Cancel, ...] | RefusedAction = ()
    state: str | None = None
    values: tuple[tuple[str, Value], ...] = ()
    dependencies: tuple[tuple[str, str], ...] | None = None


@attrs.frozen
class Scenario(SourceNode):
    """A table of percepts, run at the defaults or at its own parameters. Guards that are not named have passed."""

    name: str
    steps: tuple[ScenarioStep, ...]
    parameters: tuple[tuple[str, Value], ...] = ()


@attrs.frozen
class SpecDeclaration(SourceNode):
    """A spec's statement about an effect or a variable of its machine: these columns, by their fields, must be as in `declaration`."""

    declaration: Effect | Variable
    columns: tuple[tuple[str, str], ...]


def kind_of(declaration: object) -> str:
    """Return the word for a kind of declaration: `parameter`, `variable`, `transition` and so on."""
    return "parameter" if isinstance(declaration, RunParameter) else type(declaration).__name__.lower()
