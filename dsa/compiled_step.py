"""The compiled step: Python source generated from a machine's rows, and what follows from each row.

`compiled_step(machine)` returns a machine's compiled step. Runs, tests, comparisons of machines and certificates all use it. It generates one function for
each group of rows (one source, one event) at its first use. No user text gets into the source: variables, guards, effects and rows have numbers there.
For anything but a plain step (a refusal, a malformed occurrence) it calls `dsa.semantics.step`, which gives the value and the message.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import attrs

from dsa import expr
from dsa.declarations import OUTSIDE, STAY, TIMER_PREFIX, Assign, Emit, Revoke, Transition
from dsa.machine import (
    ArmTimer,
    DropTimer,
    Machine,
    Precedence,
    precedence_after,
    read_guards,
    sleeping_effects,
    step_of,
    timers_after,
    workflow_variables_set,
)
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, after_effects, step

#: The most results and moves remembered for a machine. They are its transition table, filled on demand like that of a lazy DFA.
MAX_REMEMBERED = 65_536


class ConfigurationLike(Protocol):
    """A configuration, or an object with the parts of one."""

    @property
    def state(self) -> str:
        """The leaf."""

    @property
    def values(self) -> tuple[expr.Value, ...]:
        """The variables' values."""

    @property
    def outstanding(self) -> tuple[str, ...]:
        """The outstanding effects, sorted, each as often as it is outstanding."""

    @property
    def precedence(self) -> Precedence:
        """The pairs of armed timers of which the first precedes the second."""


class OccurrenceLike(Protocol):
    """An occurrence, or an object with the parts of one."""

    @property
    def event(self) -> str:
        """The event, or a timer's `after 30s`."""

    @property
    def verdicts(self) -> tuple[tuple[str, expr.Outcome], ...]:
        """Each guard with its verdict, sorted."""

    @property
    def source(self) -> str | None:
        """The state that a timer belongs to."""


@attrs.frozen
class CompiledRow:
    """The results of a row in a state with these outstanding effects and this order of timers, whatever the variables hold.

    `effects` and `cancelled` are those of `Taken`. `starts` are the effects that begin, each with its place among those of the row and whether it
    has answers; `sleeps` are those that answer by themselves, each with its place and its milliseconds. `origin` is the effect of which the event
    discharges one emission, `stops` are those of which all older emissions are stopped.
    `outstanding` are the outstanding effects and `precedence` the order of timers after the row. `assignments` are the variables that the row assigns,
    with their places. `step` names the step in progress before the row, `finalises` the workflow variable that the row sets, `revokes` those that it revokes.
    """

    row: Transition
    event: str
    line: int | None
    source: str
    target: str
    effects: tuple[str, ...]
    starts: tuple[tuple[str, str, bool], ...]
    sleeps: tuple[tuple[str, int], ...]
    outstanding: tuple[str, ...]
    cancelled: tuple[str, ...]
    origin: str | None
    stops: tuple[str, ...]
    timers: tuple[DropTimer | ArmTimer, ...]
    precedence: Precedence
    assignments: tuple[tuple[int, str], ...]
    step: str
    finalises: str | None
    revokes: frozenset[str]


#: A row that is taken: its results, and the values after it.
Move = tuple[CompiledRow, tuple[expr.Value, ...]]

Group = Callable[[ConfigurationLike, OccurrenceLike], Move | None]


class CompiledStep:
    """The step of one machine, at its parameters' values.

    Both methods agree with `dsa.semantics.step` on every configuration in which each variable has a value of its domain or its initial
    value. They raise OccurrenceError for the same occurrences.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.origins = {name: event.origin for name, event in machine.event_named.items()}
        self._groups = _Groups(machine)
        self._results: dict[tuple[object, ...], Taken] = {}

    def step(self, configuration: Configuration, occurrence: Occurrence) -> Taken | Refusal:
        """Return what `dsa.semantics.step` returns."""
        state, event, source = configuration.state, occurrence.event, occurrence.source
        key: tuple[object, ...] = (
            state, event, source, occurrence.verdicts, configuration.values, configuration.outstanding
        )  # fmt: skip
        if configuration.precedence:
            key = (*key, configuration.precedence)
        taken = self._results.get(key)
        if taken is not None:
            return taken
        outcome = self.move(configuration, occurrence)
        if isinstance(outcome, Refusal):
            return outcome
        move, after_values = outcome
        after = Configuration(move.target, after_values, move.outstanding, move.precedence)
        taken = Taken(after, move.row, move.effects, move.cancelled)
        if len(self._results) < MAX_REMEMBERED:
            self._results[key] = taken
        return taken

    def move(self, place: ConfigurationLike, occurrence: OccurrenceLike) -> Move | Refusal:
        """Return the results of the row that `dsa.semantics.step` takes, with the values after it, or the refusal."""
        source = occurrence.source
        key = (place.state, occurrence.event) if source is None else (place.state, source, occurrence.event)
        return self._groups[key](place, occurrence) or self._refusal(place, occurrence)

    def _refusal(self, place: ConfigurationLike, occurrence: OccurrenceLike) -> Refusal:
        here = Configuration(place.state, place.values, place.outstanding, place.precedence)
        refusal = step(self.machine, here, Occurrence(occurrence.event, occurrence.verdicts, occurrence.source))
        assert isinstance(refusal, Refusal), (
            f"the compiled step of {self.machine.name} takes no row in {here} on {occurrence}"
        )
        return refusal


def compiled_step(machine: Machine) -> CompiledStep:
    """Return the compiled step of a machine; all uses of the machine share it."""
    result: CompiledStep | None = machine.worked_out.get("compiled_step")
    if result is None:
        result = machine.worked_out["compiled_step"] = CompiledStep(machine)
    return result


class _Groups(dict[tuple[str, ...], Group]):
    """The generated functions by (leaf, event) and (leaf, source, timer), made at first use."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine, self._writer = machine, _StepWriter(machine)
        self._functions: dict[tuple[str, str], Group] = {}

    def __missing__(self, key: tuple[str, ...]) -> Group:
        rows = self._rows(*key)
        if not rows:  # not stored: there may be any number of such keys
            return _no_rows
        name = rows[0].source, rows[0].event
        if name not in self._functions:
            self._functions[name] = self._writer.compile_rows(rows)
        self[key] = self._functions[name]
        return self[key]

    def _rows(self, leaf: str, event: str, timer: str | None = None) -> tuple[Transition, ...]:
        """Return the candidates for an event, or for a timer of a source (S3, S11)."""
        if timer is not None:
            return self._machine.rows_from[event, timer] if (event, timer) in self._machine.armed_timers(leaf) else ()
        return () if event.startswith(TIMER_PREFIX) else self._machine.rows_for(leaf, event)


def _no_rows(_place: ConfigurationLike, _occurrence: OccurrenceLike) -> None:
    return None


class _Moves(dict[Any, CompiledRow | None]):
    """The results of one row, by leaf, outstanding effects and order of timers, or by those of them that it can depend on.

    A result is None if the row would emit an effect once too often. Equal tuples are stored once, in `pool`: a lookup then ends at the first
    comparison, by identity.
    """

    def __init__(self, machine: Machine, row: Transition, pool: dict[tuple[str, ...], tuple[str, ...]]) -> None:
        self._machine, self._row, self._pool = machine, row, pool
        self.is_of_leaf = row.source in machine.leaves

    @property
    def key(self) -> str:
        """The key by which the generated code looks up a move."""
        if self._machine.orders_timers:
            return "c.state, c.outstanding, c.precedence"
        return "c.outstanding" if self.is_of_leaf else "c.state, c.outstanding"

    def __missing__(self, key: Any) -> CompiledRow | None:  # noqa: ANN401
        if self._machine.orders_timers:
            state, outstanding, precedence = key
            here = Configuration(state, (), outstanding, precedence)
        else:
            state, outstanding = (self._row.source, key) if self.is_of_leaf else key
            here = Configuration(state, (), outstanding)
        move = _move(self._machine, here, self._row, self._pool)
        if len(self) < MAX_REMEMBERED:
            self[key] = move
        return move


def _move(
    machine: Machine, here: Configuration, row: Transition, pool: dict[tuple[str, ...], tuple[str, ...]]
) -> CompiledRow | None:
    before, outstanding = here.state, here.outstanding
    target = before if row.target == STAY else machine.entry_leaf(row.target)
    after, cancelled, twice = after_effects(machine, outstanding, row, target)
    if twice is not None:
        return None
    origin = None if row.is_timer else machine.event_named[row.event].origin
    effects = tuple(item.effect for item in row.effects if isinstance(item, Emit))
    updates = {update.variable for update in row.updates}
    timers, starts = timers_after(machine, before, row, target), _starts(machine, row, target)
    durations = sleeping_effects(machine)
    return CompiledRow(
        row,
        row.event,
        row.span.line if row.span else None,
        source=before,
        target=target,
        effects=effects,
        starts=starts,
        sleeps=tuple((ordinal, durations[name]) for ordinal, name, _ in starts if name in durations),
        outstanding=pool.setdefault(after, after),
        cancelled=cancelled,
        origin=origin if origin in machine.answers else None,
        stops=cancelled,
        timers=timers,
        precedence=precedence_after(machine, here.precedence, timers, target),
        assignments=tuple((place, v.name) for place, v in enumerate(machine.variables) if v.name in updates),
        step=step_of(machine, before),
        finalises=next(iter(workflow_variables_set(machine, row)), None),
        revokes=frozenset(update.variable for update in row.updates if isinstance(update, Revoke)),
    )


def _starts(machine: Machine, row: Transition, target: str) -> tuple[tuple[str, str, bool], ...]:
    """Return the effects that begin. One that is cancelled by the row that emits it, or by the final state, never does (S7)."""
    starts: list[tuple[str, str, bool]] = []
    ordinal = 0
    for item in row.effects:
        if isinstance(item, Emit):
            ordinal += 1
            starts.append((str(ordinal), item.effect, item.effect in machine.answers))
        else:
            starts = [start for start in starts if not start[2] or item.effect not in {None, start[1]}]
    return tuple(start for start in starts if not start[2] or target not in machine.final_states)


class _StepWriter:
    """A writer of generated source, with the constants that the source names."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._variables = {variable.name: f"v{place}" for place, variable in enumerate(machine.variables)}
        self._initial = dict(zip(self._variables, machine.initial_values, strict=True))
        #: Variables that start outside their domains: rows that do not update them are refused as well.
        self._outside = [name for name, value in self._initial.items() if not machine.values_of[name].contains(value)]
        self._effects = ("", *machine.effects_with_answers)
        self._constants: dict[str, Any] = {}
        self._texts: dict[str, str] = {}
        self._pool: dict[tuple[str, ...], tuple[str, ...]] = {}

    def compile_rows(self, rows: tuple[Transition, ...]) -> Group:
        """Return the function for the rows of one source and event."""
        code = compile("\n".join(self.source(rows)), "<compiled machine>", "exec")
        exec(code, self._constants)  # noqa: S102  (our own text, made of numbered names and whole numbers)
        group: Group = self._constants["group"]
        return group

    def source(self, rows: tuple[Transition, ...]) -> tuple[str, ...]:
        """Write that function. It returns None for everything that is not a plain step."""
        return "def group(c, o):", *(f" {line}" for line in self._body(rows))

    def _body(self, rows: tuple[Transition, ...]) -> Iterator[str]:
        origin = OUTSIDE if rows[0].is_timer else self._machine.event_named[rows[0].event].origin
        if origin != OUTSIDE:
            yield f"if {self._text(origin)} not in c.outstanding: return None"
        if rows[0].is_timer and self._machine.orders_timers:
            timer = f"({self._text(rows[0].source)}, {self._text(rows[0].event)})"
            yield f"if any(then == {timer} for _, then in c.precedence): return None"
        verdicts = {guard: f"w{place}" for place, guard in enumerate(read_guards(rows))}
        yield from self._read_verdicts(verdicts)
        yield from self._read_pending(rows, origin)
        if self._outside or any(row.updates or expr.names(row.condition) & self._variables.keys() for row in rows):
            yield f"{', '.join(self._variables.values())}, = c.values"
        if len(rows) == 1 and rows[0].condition == expr.Boolean(value=True):
            yield from self._take(rows[0])
            return
        yield from self._choose(rows, verdicts)
        for place, row in enumerate(rows):
            yield f"if k == {place}:"
            yield from (f" {line}" for line in self._take(row))

    def _read_verdicts(self, verdicts: dict[str, str]) -> Iterator[str]:
        """Read exactly the verdicts that the rows read, sorted by guard as an occurrence has them (S2)."""
        if not verdicts:
            yield "if o.verdicts: return None"
            return
        yield "a = o.verdicts"
        yield f"if len(a) != {len(verdicts)}: return None"
        yield f"{', '.join(f'(n{word}, {word})' for word in verdicts.values())}, = a"
        for guard, word in verdicts.items():
            outcomes = self._machine.guard_named[guard].outcomes
            yield f"if n{word} != {self._text(guard)} or {word} not in {outcomes!r}: return None"

    def _read_pending(self, rows: tuple[Transition, ...], origin: str) -> Iterator[str]:
        """Set a name for each effect whose being outstanding the rows read, once the answer has discharged its own (S3)."""
        for effect in sorted({effect for row in rows for effect in expr.pending_effects(row.condition)}):
            if effect == origin:
                is_one = effect not in self._machine.numbered_effects
                value = "False" if is_one else f"c.outstanding.count({self._text(effect)}) > 1"
            elif effect:
                value = f"{self._text(effect)} in c.outstanding"
            else:
                value = f"len(c.outstanding) > {0 if origin == OUTSIDE else 1}"
            yield f"{self._pending_word(effect)} = {value}"

    def _pending_word(self, effect: str) -> str:
        return f"p{self._effects.index(effect)}"

    def _choose(self, rows: tuple[Transition, ...], verdicts: dict[str, str]) -> Iterator[str]:
        """Set k to the place of the one row that is enabled, or to -1 (S3)."""
        yield "k = -1"
        for place, row in enumerate(rows):
            if not row.is_else:
                yield f"if {self._python(row.condition, verdicts)}:"
                yield from _claim(place, first=place == 0)
        others = [place for place, row in enumerate(rows) if row.is_else]
        if others:
            yield "if k < 0:"
            for place in others:
                yield f" if {self._python(rows[place].condition, verdicts)}:"
                yield from (f" {line}" for line in _claim(place, first=place == others[0]))

    def _take(self, row: Transition) -> Iterator[str]:
        """Return what the row leads to, unless it cannot be taken (S5, S7)."""
        after = dict(self._variables)
        for place, update in enumerate(row.updates):
            after[update.variable] = f"u{place}"
            yield f"u{place} = {self._new_value(update)}"
            yield from self._require_domain(update.variable, f"u{place}")
        for name in self._outside:
            if after[name] == self._variables[name]:
                yield from self._require_domain(name, after[name])
        moves = _Moves(self._machine, row, self._pool)
        yield f"m = {self._constant(moves)}[{moves.key}]"
        if any(isinstance(item, Emit) and item.effect in self._machine.answers for item in row.effects):
            yield "if m is None: return None"
        values = f"({', '.join(after.values())},)" if row.updates else "c.values"
        yield f"return m, {values}"

    def _new_value(self, update: Assign | Revoke) -> str:
        if isinstance(update, Assign):
            return self._python(update.value, {})
        return self._value(self._initial[update.variable])

    def _require_domain(self, variable: str, word: str) -> Iterator[str]:
        values = self._machine.values_of[variable]
        if isinstance(values, expr.Interval):
            upper = "" if values.high is None else f" <= {values.high}"
            yield f"if not {values.low} <= {word}{upper}: return None"
        elif any(type(value) is str for value in values.values):
            yield f"if {word} not in {{{', '.join(map(self._value, values.values))}}}: return None"

    def _value(self, value: expr.Value) -> str:
        return self._text(value) if isinstance(value, str) else repr(value)

    def _text(self, text: str) -> str:
        """Return the name under which the generated code knows a text of the user."""
        if text not in self._texts:
            self._texts[text] = self._constant(text)
        return self._texts[text]

    def _constant(self, value: object) -> str:
        name = f"s{len(self._constants)}"
        self._constants[name] = value
        return name

    def _python(self, node: expr.Expr, verdicts: dict[str, str]) -> str:
        return expr.unparse(self._rename(node, verdicts))

    def _rename(self, node: expr.Expr, verdicts: dict[str, str]) -> expr.Expr:
        """Return the expression with numbered names: what `unparse` then writes is Python."""

        def rename(inner: expr.Expr) -> expr.Expr:
            return self._rename(inner, verdicts)

        match node:
            case expr.Boolean(value):
                return expr.Name(repr(value))
            case expr.Symbol(value):
                return expr.Name(self._text(value))
            case expr.Name(name, "pending"):
                return expr.Name(self._pending_word(name))
            case expr.Name(name):
                return expr.Name(self._variables.get(name) or self._value(self._machine.constants[name]))
            case expr.Verdict(guard, outcome):
                return expr.Compare(expr.Name(verdicts[guard]), (("==", expr.Name(repr(outcome))),))
            case expr.Not(operand) | expr.Negate(operand):
                return type(node)(rename(operand))
            case expr.Arithmetic(sign, left, right):
                return expr.Arithmetic(sign, rename(left), rename(right))
            case expr.Compare(first, rest):
                return expr.Compare(rename(first), tuple((sign, rename(operand)) for sign, operand in rest))
            case expr.Member(operand, choices):
                return expr.Member(rename(operand), tuple(map(rename, choices)))
            case expr.And(operands) | expr.Or(operands):
                return type(node)(tuple(map(rename, operands)))
            case expr.Integer():
                return node


def _claim(place: int, *, first: bool) -> Iterator[str]:
    if not first:
        yield " if k >= 0: return None"
    yield f" k = {place}"
