"""The compiled step: Python source generated from a machine's rows, once per machine.

Takes a machine, gives a function that answers as `dsa.meaning.step` does. One function is generated for each group of
rows (one source, one event); a dictionary leads from (leaf, event) or (leaf, source, timer) to it. No text of the user
gets into the source: variables, guards, states and rows are numbered there. Whatever is not plainly taken (a
refusal, a malformed occurrence) is left to the reference for its value and its message.

Configurations are trusted to hold one value of its domain for each variable, as all that `start` and `step` give do.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from dsa.declarations import OUTSIDE, STAY, TIMER_PREFIX, Assign, Emit, Revoke, Transition
from dsa.expr import (
    And,
    Arithmetic,
    Boolean,
    Compare,
    Expr,
    Integer,
    Interval,
    Member,
    Name,
    Negate,
    Not,
    Or,
    Outcome,
    Symbol,
    Value,
    Verdict,
    names,
    unparse,
)
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence, Reason, Refusal, Taken, after_effects, step

FastStep = Callable[[Configuration, Occurrence], Taken | Refusal]


class Judged(Protocol):
    """What a group looks at: an occurrence, or what has the verdicts of one, sorted by guard."""

    @property
    def verdicts(self) -> tuple[tuple[str, Outcome], ...]:
        """Each guard with its verdict."""


#: `Taken`, the reason of a refusal, or None for verdicts other than those that the rows read.
Attempt = Callable[[Configuration, Judged], Taken | Reason | None]


class Place(Protocol):
    """What a group looks at of where a machine is: a configuration, or what has the parts of one."""

    @property
    def state(self) -> str:
        """The leaf."""

    @property
    def values(self) -> tuple[Value, ...]:
        """The variables' values."""

    @property
    def outstanding(self) -> frozenset[str]:
        """The outstanding effects."""


#: As `Attempt`, for who works out the rest but once: of a row that is taken, the row and the values after it.
Choice = Callable[[Place, Judged], tuple[Transition, tuple[Value, ...]] | Reason | None]

#: How many results a compiled step keeps. They are the machine's transition table, filled as it is met (as a lazy DFA
#: is); any run fits, and exploration, which meets nothing twice, goes to the groups themselves.
REMEMBERED = 65_536

#: How often a group is asked for before it is compiled, which takes about as long as `step` so often.
_OFTEN = 16

Dispatch = dict[tuple[str, ...], Attempt]


def compile_step(machine: Machine) -> FastStep:
    """Compile `step` for one machine at its parameters' values.

    The result equals `step(machine, configuration, occurrence)` for every configuration whose values lie in their
    domains, and raises OccurrenceError for the same malformed occurrences.
    """
    groups = compile_groups(machine)
    known: dict[tuple[object, ...], Taken] = {}

    def fast_step(configuration: Configuration, occurrence: Occurrence) -> Taken | Refusal:
        state, event, source = configuration.state, occurrence.event, occurrence.source
        key = (state, event, source, occurrence.verdicts, configuration.values, configuration.outstanding)
        taken = known.get(key)
        if taken is not None:
            return taken
        attempt = groups.get((state, event) if source is None else (state, source, event))
        result = None if attempt is None else attempt(configuration, occurrence)
        if not isinstance(result, Taken):
            return step(machine, configuration, occurrence)
        if len(known) < REMEMBERED:
            known[key] = result
        return result

    return fast_step


def compile_groups(machine: Machine) -> Dispatch:
    """Give the generated function for each (leaf, event) and (leaf, source, timer) that has rows.

    The functions tell a refusal by its reason alone, which is all that exploration needs of most of them.
    """
    writer = _Writer(machine)
    of_group = {key: writer.group(rows) for key, rows in machine.rows_from.items()}
    namespace = writer.run()
    groups: Dispatch = {}
    for leaf in machine.leaves:
        if leaf in machine.final_states:
            continue
        for source in reversed(tuple(machine.ancestry(leaf))):  # the innermost source overwrites the outer ones (S3)
            for event in machine.events_from.get(source, ()):
                key = (leaf, source, event) if event.startswith(TIMER_PREFIX) else (leaf, event)
                groups[key] = namespace[of_group[source, event]]
    return groups


class Choices(dict[tuple[str, ...], Choice | None]):
    """The generated function for each (leaf, event) and (leaf, source, timer) that has been asked for often; before that None.

    For who takes few events of many: to compile all of a large machine takes longer than that.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine, self._writer = machine, _Writer(machine, only_row=True)
        self._asked: dict[tuple[str, ...], int] = {}
        self._compiled: dict[tuple[str, str], Choice] = {}

    def __missing__(self, key: tuple[str, ...]) -> Choice | None:
        self._asked[key] = self._asked.get(key, 0) + 1
        if self._asked[key] < _OFTEN:
            return None
        rows = self._rows(*key)
        found = self[key] = self._of(rows) if rows else None
        return found

    def _rows(self, leaf: str, event: str, timer: str | None = None) -> tuple[Transition, ...]:
        """Give the candidates for an event, or for a timer of a source (S3, S11)."""
        if timer is not None:
            return self._machine.rows_from[event, timer] if (event, timer) in self._machine.armed(leaf) else ()
        return () if event.startswith(TIMER_PREFIX) else self._machine.rows_for(leaf, event)

    def _of(self, rows: tuple[Transition, ...]) -> Choice:
        """Compile the rows of a source and an event, once for all states that have them."""
        name = rows[0].source, rows[0].event
        if name not in self._compiled:
            group = self._writer.group(rows)
            self._compiled[name] = self._writer.run()[group]
        return self._compiled[name]


class _AfterEffects(dict[frozenset[str], tuple[frozenset[str], tuple[str, ...], bool]]):
    """What one row makes of each set of outstanding effects it has met: what is then, what it dropped, refused or not.

    Equal sets are kept once, in `shared`: a lookup then ends at the first comparison, by identity.
    """

    def __init__(self, machine: Machine, row: Transition, shared: dict[frozenset[str], frozenset[str]]) -> None:
        self._machine, self._row, self._shared = machine, row, shared
        self._state = "" if row.target == STAY else machine.entered(row.target)

    def __missing__(self, outstanding: frozenset[str]) -> tuple[frozenset[str], tuple[str, ...], bool]:
        after, cancelled, twice = after_effects(self._machine, outstanding, self._row, self._state)
        result = self[outstanding] = (self._shared.setdefault(after, after), cancelled, twice is not None)
        return result


class _Writer:
    """The source so far, and the constants it names. With `only_row` the functions are `Choice`s, else `Attempt`s."""

    def __init__(self, machine: Machine, *, only_row: bool = False) -> None:
        self._machine, self._only_row = machine, only_row
        self._variables = {variable.name: f"v{place}" for place, variable in enumerate(machine.variables)}
        self._initial = dict(zip(self._variables, machine.initial_values, strict=True))
        self._lines: list[str] = []
        self._constants: dict[str, object] = {"C": Configuration, "T": Taken}
        self._texts: dict[str, str] = {}
        self._shared: dict[frozenset[str], frozenset[str]] = {}

    def run(self) -> dict[str, Any]:
        """Execute the source; give the functions it defines, by their names."""
        code = compile("\n".join(self._lines), "<compiled machine>", "exec")
        self._lines.clear()
        exec(code, self._constants)  # noqa: S102  (our own text, made of numbered names and whole numbers)
        return self._constants  # the functions are among them

    def group(self, rows: tuple[Transition, ...]) -> str:
        """Write the function for the rows of one source and event; give its name."""
        name = f"g{len(self._constants)}"
        self._constants[name] = None
        self._lines.append(f"def {name}(c, o):")
        self._lines += [f" {line}" for line in self._body(rows)]
        return name

    def _body(self, rows: tuple[Transition, ...]) -> Iterator[str]:
        origin = _origin(self._machine, rows[0])
        if origin != OUTSIDE:
            yield f"if {self._text(origin)} not in c.outstanding: return 'late'"
        verdicts = {guard: f"w{place}" for place, guard in enumerate(read_guards(rows))}
        yield from self._read_verdicts(verdicts)
        if self._variables and any(row.updates or names(row.condition) for row in rows):
            yield f"{', '.join(self._variables.values())}, = c.values"
        if len(rows) == 1 and rows[0].condition == Boolean(value=True):
            yield from self._take(rows[0])
            return
        yield from self._choose(rows, verdicts)
        for place, row in enumerate(rows):
            yield f"if k == {place}:"
            yield from (f" {line}" for line in self._take(row))
        yield "return 'invalid_state'"

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
        """Build what the row leads to, or say why it cannot be taken (S5, S7)."""
        after = dict(self._variables)
        for place, update in enumerate(row.updates):
            after[update.variable] = f"u{place}"
            yield f"u{place} = {self._updated(update)}"
            yield from self._require_domain(update, f"u{place}")
        machine, place = self._machine, len(self._constants)
        state = "c.state" if row.target == STAY else self._text(machine.entered(row.target))
        emitted = tuple(item.effect for item in row.effects if isinstance(item, Emit))
        self._constants |= {
            f"r{place}": row,
            f"e{place}": emitted,
            f"m{place}": _AfterEffects(machine, row, self._shared),
        }
        answered = any(effect in machine.answers for effect in emitted)
        if answered or not self._only_row:
            yield f"q, x, y = m{place}[c.outstanding]"
        if answered:
            yield "if y: return 'emitted_twice'"
        values = f"({', '.join(after.values())},)" if row.updates else "c.values"
        yield (
            f"return r{place}, {values}"
            if self._only_row
            else f"return T(C({state}, {values}, q), r{place}, e{place}, x)"
        )

    def _updated(self, update: Assign | Revoke) -> str:
        if isinstance(update, Assign):
            return self._python(update.value, {})
        return self._constant(self._initial[update.variable])

    def _require_domain(self, update: Assign | Revoke, word: str) -> Iterator[str]:
        values = self._machine.values_of[update.variable]
        if isinstance(values, Interval):
            upper = "" if values.high is None else f" <= {values.high}"
            yield f"if not {values.low} <= {word}{upper}: return 'out_of_domain'"
        elif any(type(value) is str for value in values.values):
            yield f"if {word} not in {{{', '.join(map(self._constant, values.values))}}}: return 'out_of_domain'"

    def _constant(self, value: Value) -> str:
        return self._text(value) if isinstance(value, str) else repr(value)

    def _text(self, text: str) -> str:
        """Give the name under which the generated code knows a text of the user."""
        if text not in self._texts:
            self._texts[text] = f"s{len(self._texts)}"
            self._constants[self._texts[text]] = text
        return self._texts[text]

    def _python(self, expr: Expr, verdicts: dict[str, str]) -> str:
        return unparse(self._renamed(expr, verdicts))

    def _renamed(self, expr: Expr, verdicts: dict[str, str]) -> Expr:
        """Give the expression with numbered names: what `unparse` then writes is Python."""

        def renamed(inner: Expr) -> Expr:
            return self._renamed(inner, verdicts)

        match expr:
            case Boolean(value):
                return Name(repr(value))
            case Symbol(value):
                return Name(self._text(value))
            case Name(name):
                return Name(self._variables.get(name) or self._constant(self._machine.constants[name]))
            case Verdict(guard, outcome):
                return Compare(Name(verdicts[guard]), (("==", Name(repr(outcome))),))
            case Not(operand) | Negate(operand):
                return type(expr)(renamed(operand))
            case Arithmetic(sign, left, right):
                return Arithmetic(sign, renamed(left), renamed(right))
            case Compare(first, rest):
                return Compare(renamed(first), tuple((sign, renamed(operand)) for sign, operand in rest))
            case Member(operand, choices):
                return Member(renamed(operand), tuple(map(renamed, choices)))
            case And(operands) | Or(operands):
                return type(expr)(tuple(map(renamed, operands)))
            case Integer():
                return expr


def _origin(machine: Machine, row: Transition) -> str:
    return OUTSIDE if row.is_timer else machine.event_named[row.event].origin


def _claim(place: int, *, first: bool) -> Iterator[str]:
    if not first:
        yield " if k >= 0: return 'ambiguous'"
    yield f" k = {place}"
