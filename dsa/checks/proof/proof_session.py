"""Proof sessions: what all proofs about one machine share, which is its system, the solver, examples, and the lemmas about the machine itself.

Takes a machine, gives a `ProofSession`. Examples and lemmas are made when they are first needed.

A `Sampler` takes a system and explores it; each `Sample` has the examples at one valuation. Conditions are compiled once for all values of the parameters,
and no name that a user wrote becomes part of the compiled code. `candidates` takes the values met at one location and gives candidates for lemmas, which are
true at every configuration reached at small parameter values: bounds between two numbers (`retries <= rmax`, `count <= retries + 1`), constants, sums that stay
equal, and what truth values imply. They are guesses: induction decides whether they hold for all values, and drops most of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import lcm
from typing import Any

import attrs

from dsa import expr
from dsa.checks.observers import observer_of
from dsa.checks.proof.induction import Induction, Lemmas, Region, Slicer, whole
from dsa.checks.proof.solver import Logic
from dsa.checks.table_faults import start_outside
from dsa.declarations import Always, Never, Variable
from dsa.expr import (
    FALSE,
    TRUE,
    Boolean,
    Environment,
    Expr,
    Leaf,
    Name,
    Symbol,
    Value,
    Verdict,
    all_of,
    any_of,
    comparison,
    constant,
    evaluate,
    negation,
    substitute,
    unparse,
)
from dsa.machine import FEW_VALUATIONS, Machine, every_valuation, smallest_values
from dsa.semantics import Occurrence
from dsa.system import GuardedCommand, System, closed_system, in_domain, start_values
from dsa.trace import Trace, follow

#: The most truth values that are combined with each other.
_MOST_PAIRED = 12
#: With at most this many truth values, bounds are also looked for where one is true, and where it is false.
_MOST_SPLIT = 4
_LARGEST = 4


@attrs.frozen
class Column:
    """A name and the values it had."""

    name: expr.Name
    domain: expr.Domain
    values: tuple[expr.Value, ...]

    @property
    def whole(self) -> tuple[int, ...]:
        """The values, of a column of numbers."""
        return self.values  # type: ignore[return-value]  # the domain says so


@attrs.frozen
class SampleTable:
    """The values met at one location: a column for each name, and which valuation of the parameters each row belongs to."""

    columns: tuple[Column, ...]
    groups: tuple[int, ...]

    def where(self, is_kept: Sequence[bool]) -> "SampleTable":
        """Return some of the rows."""
        columns = tuple(
            attrs.evolve(c, values=tuple(v for v, keep in zip(c.values, is_kept, strict=True) if keep))
            for c in self.columns
        )
        return SampleTable(columns, tuple(g for g, keep in zip(self.groups, is_kept, strict=True) if keep))

    def of_kind(self, kind: type[expr.Domain], sort: str | None = None) -> list[Column]:
        """Return the columns whose domain is of a kind, parameters and variables or only one sort of them."""
        return [c for c in self.columns if isinstance(c.domain, kind) and sort in {None, c.name.kind}]


def table(
    machine: Machine,
    variables: Sequence[Variable],
    rows: Iterable[tuple[int, tuple[expr.Value, ...], tuple[expr.Value, ...]]],
) -> SampleTable:
    """Return what was met as a table; each row is a valuation's number, the parameters' values and the variables' values."""
    all_rows = list(rows)
    columns = [
        Column(expr.Name(p.name, "parameter"), p.domain, tuple(parameters[place] for _, parameters, _ in all_rows))
        for place, p in enumerate(machine.parameters)
    ]
    columns += [
        Column(expr.Name(v.name, "variable"), v.domain, tuple(values[place] for _, _, values in all_rows))
        for place, v in enumerate(variables)
    ]
    return SampleTable(tuple(columns), tuple(group for group, _, _ in all_rows))


def candidates(samples: SampleTable, split: Iterable[str] = ()) -> list[expr.Expr]:
    """Return what is true in every row, the plainest first; `false` when there is none."""
    if not samples.groups:
        return [FALSE]
    truths = samples.of_kind(expr.BooleanDomain, "variable")
    conditions = [*_constants(truths), *_choices(samples), *_implications(truths[:_MOST_PAIRED])]
    numbers = [*_differences(samples), *_sums(samples)]
    conditions += numbers
    known_bounds = set(numbers)
    bounds = {part for column in samples.columns for part in _domain(column)}
    conditions = [condition for condition in conditions if condition not in bounds]
    split_names = set(split)
    for truth in [c for c in truths if c.name.name in split_names or len(truths) <= _MOST_SPLIT]:
        if len(set(truth.values)) > 1:
            for side in (True, False):
                part = samples.where([value is side for value in truth.values])
                premise = negation(truth.name) if side else truth.name
                more = [c for c in [*_differences(part), *_sums(part)] if c not in known_bounds]
                conditions += [any_of([premise, condition]) for condition in more]
                conditions += [any_of([premise, condition]) for condition in _choices(part)]
    return list(dict.fromkeys(conditions))


def _domain(column: Column) -> tuple[expr.Expr, ...]:
    """Return what the domain of a name implies: a proof may assume it anyway."""
    if (
        column.name.kind == "parameter"
        or not isinstance(column.domain, expr.RangeDomain)
        or column.name.name.startswith(":")
    ):
        return ()
    low, high = column.domain.low, column.domain.high
    return (comparison(column.name, ">=", low), *(() if high is None else (comparison(column.name, "<=", high),)))


def _constants(truths: Iterable[Column]) -> Iterator[expr.Expr]:
    for truth in truths:
        if len(set(truth.values)) == 1:
            yield truth.name if truth.values[0] else negation(truth.name)


def _choices(samples: SampleTable) -> Iterator[expr.Expr]:
    for column in samples.of_kind(expr.EnumDomain, "variable"):
        assert isinstance(column.domain, expr.EnumDomain), "chosen by kind"
        values = [value for value in column.domain.values if value in column.values]
        if len(values) == 1:
            yield comparison(column.name, "==", expr.Symbol(values[0]))
        elif len(values) < len(column.domain.values):
            yield expr.Member(column.name, tuple(map(expr.Symbol, values)))


def _implications(truths: Sequence[Column]) -> Iterator[expr.Expr]:
    """Yield relations between two truth values: equal, opposite, or one implies the other."""
    loose = [truth for truth in truths if len(set(truth.values)) > 1]
    for one, other in combinations(loose, 2):
        pairs = set(zip(one.values, other.values, strict=True))
        for first, second in ((True, True), (True, False), (False, True), (False, False)):
            if (first, second) not in pairs:
                yield any_of([_is(one, not first), _is(other, not second)])


def _is(truth: Column, value: expr.Value) -> expr.Expr:
    return truth.name if value else negation(truth.name)


def _differences(samples: SampleTable) -> Iterator[expr.Expr]:
    """Yield bounds `x <= c`, `x >= c`, `x <= y + c` of variables by numbers, parameters and each other."""
    numbers = samples.of_kind(expr.RangeDomain)
    for column in numbers:
        if column.name.kind == "variable":
            yield from _bounds(column, samples.groups)
    for one in numbers:
        for other in numbers:
            if one is not other and "variable" in {one.name.kind, other.name.kind}:
                yield from _pair_bounds(one, other, samples.groups)


def _bounds(column: Column, groups: tuple[int, ...]) -> Iterator[expr.Expr]:
    low, high = min(column.whole), max(column.whole)
    if low == high:
        yield comparison(column.name, "==", expr.Integer(low))
        return
    yield comparison(column.name, ">=", expr.Integer(low))
    if _usual([(v, g) for v, g in zip(column.whole, groups, strict=True)], high):
        yield comparison(column.name, "<=", expr.Integer(high))


def _pair_bounds(one: Column, other: Column, groups: tuple[int, ...]) -> Iterator[expr.Expr]:
    gaps = [(a - b, group) for a, b, group in zip(one.whole, other.whole, groups, strict=True)]
    most = max(gap for gap, _ in gaps)
    if abs(most) > _LARGEST or not _usual(gaps, most) or _is_constant(one) or _is_constant(other):
        return
    right = other.name if most == 0 else expr.Arithmetic("+" if most > 0 else "-", other.name, expr.Integer(abs(most)))
    yield comparison(one.name, "<", other.name) if most == -1 else comparison(one.name, "<=", right)


def _is_constant(column: Column) -> bool:
    return column.name.kind == "variable" and len(set(column.values)) == 1


def _usual(gaps: list[tuple[int, int]], most: int) -> bool:
    """Return whether a bound is met at half of the valuations: then it is not an accident of the examples."""
    every = {group for _, group in gaps}
    groups_at_bound = {group for gap, group in gaps if gap == most}
    return 2 * len(groups_at_bound) >= len(every)


def _sums(samples: SampleTable) -> Iterator[expr.Expr]:
    """Yield sums over three or more names that stay equal: `count == retries + done + 1` (Karr, from examples)."""
    loose = [c for c in samples.of_kind(expr.RangeDomain) if len(set(c.values)) > 1]
    if sum(c.name.kind == "variable" for c in loose) == 0 or len(loose) > _MOST_PAIRED:
        return
    loose.sort(key=lambda c: (c.name.kind == "parameter", not c.name.name.startswith(":")))
    rows = sorted(set(zip(*(c.whole for c in loose), strict=True)))
    if len(rows) <= len(loose):
        return
    for coefficients in _null_space([[*row, 1] for row in rows]):
        names = [(c.name, k) for c, k in zip(loose, coefficients, strict=False) if k]
        if len(names) > 1 and all(abs(k) <= _LARGEST for k in coefficients):
            yield from _equations(names, coefficients[-1])


def _equations(names: list[tuple[expr.Name, int]], offset: int) -> Iterator[expr.Expr]:
    """Write a sum that is 0 with its positive terms on one side and its negative terms on the other; also as two bounds."""
    left = linear([(name, k) for name, k in names if k > 0], max(offset, 0))
    right = linear([(name, -k) for name, k in names if k < 0], max(-offset, 0))
    yield from (comparison(left, sign, right) for sign in ("==", "<=", ">="))


def linear(terms: Iterable[tuple[expr.Expr, int]], offset: int) -> expr.Expr:
    """Return `k * x + .. + offset`."""
    total: expr.Expr | None = None
    for name, k in [*terms, (expr.Integer(1), offset)]:
        if k:
            many = constant(abs(k))
            size = many if name == expr.Integer(1) else name if abs(k) == 1 else expr.Arithmetic("*", many, name)
            if total is None:
                total = size if k > 0 else expr.Arithmetic("-", expr.Integer(0), size)
            else:
                total = expr.Arithmetic("+" if k > 0 else "-", total, size)
    return expr.Integer(0) if total is None else total


def _null_space(rows: list[list[int]]) -> list[list[int]]:
    """Return whole-number vectors that are orthogonal to all rows; each has one leading name, and the last entry is the offset."""
    pivot_rows: list[list[Fraction]] = []
    pivots: list[int] = []
    width = len(rows[0])
    for row in rows:
        rest = [Fraction(x) for x in row]
        for pivot, pivot_row in zip(pivots, pivot_rows, strict=True):
            if rest[pivot]:
                rest = [a - rest[pivot] * b for a, b in zip(rest, pivot_row, strict=True)]
        # From the back, so that the first names, the variables, stay free and are solved for.
        lead = next((place for place in reversed(range(width)) if rest[place]), None)
        if lead is None:
            continue
        rest = [x / rest[lead] for x in rest]
        pivot_rows = [
            [a - pivot_row[lead] * b for a, b in zip(pivot_row, rest, strict=True)] for pivot_row in pivot_rows
        ]
        pivot_rows.append(rest)
        pivots.append(lead)
        if len(pivot_rows) == width:
            return []
    vectors = []
    for free in (place for place in range(width) if place not in pivots):
        vector = [Fraction(int(place == free)) for place in range(width)]
        for pivot, pivot_row in zip(pivots, pivot_rows, strict=True):
            vector[pivot] = -pivot_row[free]
        scale = lcm(*(x.denominator for x in vector))
        vectors.append([int(x * scale) for x in vector])
    return vectors


Values = tuple[Value, ...]
Configuration = tuple[int, Values]
Step = Callable[[Values, Values], list[tuple[int, int, Values]]]

#: The most configurations of one valuation that serve as examples.
EXAMPLES = 400
_MOST_TURNS = 3


@attrs.frozen
class Sample:
    """What is reached at one valuation of the parameters, nearest to the start first.

    `edges` are (configuration, command, configuration), by index; `arrivals` has the edge that first led to each.
    """

    parameters: Values
    configurations: tuple[Configuration, ...]
    edges: tuple[tuple[int, int, int], ...]
    arrivals: tuple[int | None, ...]
    complete: bool

    def way_to(self, place: int) -> tuple[int, ...]:
        """Return the commands of a shortest way to a configuration."""
        way: list[int] = []
        while (edge := self.arrivals[place]) is not None:
            place, command, _ = self.edges[edge]
            way.append(command)
        return tuple(reversed(way))


class Sampler:
    """A system compiled for exploring it."""

    def __init__(self, system: System, commands: Iterable[int] | None = None, while_true: Expr = TRUE) -> None:
        """Compile all commands, or only some and only while a condition holds."""
        self.system, self._while_true = system, while_true
        self.parameters = tuple(parameter.name for parameter in system.machine.parameters)
        self.variables = tuple(variable.name for variable in system.variables)
        names = {name: f"p{place}" for place, name in enumerate(self.parameters)}
        self._names = names | {name: f"v{place}" for place, name in enumerate(self.variables)}
        indexes = range(len(system.commands)) if commands is None else sorted(commands)
        self._steps = self._compile_steps(indexes)

    def sample(
        self, parameters: Mapping[str, Value], most: int, is_expired: Callable[[], bool] = lambda: False
    ) -> Sample:
        """Explore from the start, nearest first, until nothing is new or `most` configurations are known."""
        parameter_values = tuple(parameters[name] for name in self.parameters)
        initial = start_values(self.system)
        start = (0, tuple(evaluate(initial[name], parameters) for name in self.variables))
        index, order = {start: 0}, [start]
        edges: list[tuple[int, int, int]] = []
        arrivals: list[int | None] = [None]
        complete = not self.system.left_out
        for place, (location, values) in enumerate(order):  # grows while it is walked
            if len(order) > most or (place % 1024 == 0 and is_expired()):
                complete = False
                break
            for command, target, after in self._steps[location](values, parameter_values):
                to = (target, after)
                if to not in index:
                    index[to] = len(order)
                    order.append(to)
                    arrivals.append(len(edges))
                edges.append((place, command, index[to]))
        return Sample(parameter_values, tuple(order), tuple(edges), tuple(arrivals), complete)

    def environment(self, sample: Sample, configuration: Configuration) -> Environment:
        """Return the values of all names at a configuration."""
        values = dict(zip(self.parameters, sample.parameters, strict=True))
        return values | dict(zip(self.variables, configuration[1], strict=True))

    def predicate(self, expr: Expr) -> Callable[[Values, Values], Value]:
        """Compile an expression to a function of the variables' and the parameters' values."""
        source = f"def it(v, p):\n{self._unpack_lines()} return {self._spell(expr)}"
        function: Callable[[Values, Values], Value] = self._run(source)["it"]
        return function

    def _compile_steps(self, indexes: Iterable[int]) -> tuple[Step, ...]:
        bodies: list[list[str]] = [[] for _ in self.system.locations]
        for index in indexes:
            command = self.system.commands[index]
            if command.condition != FALSE:
                bodies[command.source].append(self._body(index, command))
        head = self._unpack_lines()
        source = "\n".join(
            f"def at_{place}(v, p):\n{head} found = []\n{''.join(body)} return found"
            for place, body in enumerate(bodies)
        )
        namespace = self._run(source)
        return tuple(namespace[f"at_{place}"] for place in range(len(bodies)))

    def _body(self, index: int, command: GuardedCommand) -> str:
        after = [self._spell(command.after.get(v, Name(v, "variable"))) for v in self.variables]
        values = f"({', '.join(after)}{',' if after else ''})"
        return f" if {self._spell(all_of([self._while_true, command.condition]))}: found.append(({index}, {command.target}, {values}))\n"

    def _unpack_lines(self) -> str:
        parts = []
        for letter, names in (("v", self.variables), ("p", self.parameters)):
            if names:
                parts.append(f" {', '.join(f'{letter}{n}' for n in range(len(names)))}, = {letter}\n")
        return "".join(parts)

    def _spell(self, expr: Expr) -> str:
        def leaf(node: Leaf) -> Expr:
            assert not isinstance(node, Verdict), "verdicts are decided in a system"
            return Name(repr(node.value)) if isinstance(node, Symbol) else Name(self._names[node.name])

        return repr(expr.value) if isinstance(expr, Boolean) else unparse(substitute(expr, leaf))

    @staticmethod
    def _run(source: str) -> dict[str, Any]:
        namespace: dict[str, Any] = {}
        # Made of operators, numbers and names like v0 alone.
        exec(compile(source, "<samples>", "exec"), {"true": True, "false": False, "count": expr.count}, namespace)  # noqa: S102
        return namespace


def valuations(machine: Machine) -> Iterator[dict[str, Value]]:
    """Yield small values of the parameters to explore: the smallest, single ones and all a little larger, and a few mixtures."""
    names = [parameter.name for parameter in machine.parameters]
    choices = [smallest_values(parameter.domain, 4) for parameter in machine.parameters]
    picks: dict[Values, None] = {}
    for level in range(4):
        picks[tuple(values[min(level, len(values) - 1)] for values in choices)] = None
    for turn in range(min(len(names), _MOST_TURNS)):
        for levels in ((1, 0, 0), (0, 1, 1), (1, 2, 3), (3, 1, 2)):
            indexes = [levels[min((place - turn) % len(names), 2)] for place in range(len(names))]
            picks[tuple(v[min(n, len(v) - 1)] for v, n in zip(choices, indexes, strict=True))] = None
    for values in picks:
        yield dict(zip(names, values, strict=True))


# -- the session -----------------------------------------------------------------------------------------------------------

#: The most configurations of a valuation that is explored to look for a violation, or to the end.
MOST_EXPLORED = 100_000


class ProofSession:
    """One machine being proved."""

    def __init__(self, machine: Machine, is_expired: Callable[[], bool]) -> None:
        self.machine, self.is_expired = machine, is_expired
        self.system: System = closed_system(machine, is_expired)
        self.logic = Logic(self.system, is_expired)
        every_valuation_tried = tuple(valuations(machine))
        self.valuations = (
            tuple(values for values in every_valuation_tried if self._can_start(values)) or every_valuation_tried[:1]
        )

    def samples(self, sampler: Sampler, most: int = EXAMPLES) -> tuple[Sample, ...]:
        """Explore at small parameter values, the smallest first."""
        return tuple(sampler.sample(values, most, self.is_expired) for values in self.valuations)

    @cached_property
    def few_valuations(self) -> tuple[dict[str, Value], ...] | None:
        """All values that the parameters may have, when these are few and the smallest can be explored to the end."""
        few = every_valuation(self.machine, FEW_VALUATIONS)
        if few is not None and not all(map(self._can_start, few)):
            return None
        if few is None or self.own_samples[0].complete:
            return few
        whole_one = self.sampler.sample(few[0], MOST_EXPLORED, self.is_expired)
        return few if whole_one.complete else None

    def _can_start(self, values: dict[str, Value]) -> bool:
        """Return whether every variable starts in its domain at these values; where one does not, no run exists."""
        return not start_outside(self.machine.at(values))

    @cached_property
    def legal_start(self) -> tuple[Expr, ...]:
        """The condition, over parameters, that every variable starts in its domain: otherwise there are no runs to claim anything of."""
        starts = start_values(self.system)
        return tuple(in_domain(variable, starts[variable.name]) for variable in self.system.own_variables)

    @cached_property
    def sampler(self) -> Sampler:
        """The machine's own system, compiled."""
        return Sampler(self.system)

    @cached_property
    def own_samples(self) -> tuple[Sample, ...]:
        """Examples of the machine's own system."""
        return self.samples(self.sampler)

    @cached_property
    def lemmas(self) -> Lemmas:
        """Lemmas about the machine's own variables at each location, beyond their domains; the claims of its document are tried too."""
        guesses = self.guesses(self.system, self.own_samples)
        for fault in self.system.faults:
            guesses[fault.location].append(negation(fault.condition))
        for claim in self.machine.properties:
            if isinstance(claim.form, Always | Never):
                for sight in observer_of(self.system, claim.form).sights:
                    guesses[sight.location].append(negation(sight.condition))
        return self.inductive(whole(self.system), guesses, {})

    def guesses(self, system: System, samples: Iterable[Sample], split: Sequence[str] = ()) -> dict[int, list[Expr]]:
        """Return candidates for each location, read off examples."""
        rows: list[list[tuple[int, tuple[Value, ...], tuple[Value, ...]]]] = [[] for _ in system.locations]
        for group, sample in enumerate(samples):
            for location, values in sample.configurations:
                rows[location].append((group, sample.parameters, values))
        return {
            place: candidates(table(self.machine, system.variables, here), split) for place, here in enumerate(rows)
        }

    def inductive(self, region: Region, guesses: Lemmas, lemmas: Lemmas) -> Lemmas:
        """Return what is inductive of the candidates, together with what is known already."""
        new_lemmas = Induction(region, self.logic, lemmas, self.is_expired).largest(guesses) or {}
        places = sorted({*new_lemmas, *lemmas})
        return {
            place: tuple(dict.fromkeys([*lemmas.get(place, ()), *new_lemmas.get(place, ())]))
            for place in places
            if FALSE not in new_lemmas.get(place, ())
        } | {place: (FALSE,) for place, here in new_lemmas.items() if FALSE in here}

    @cached_property
    def slicer(self) -> Slicer:
        """Of the lemmas about the machine itself, finds those that a claim needs."""
        return Slicer(whole(self.system), self.logic, self.lemmas)

    def follow(self, sample: Sample, occurrences: Iterable[Occurrence]) -> Trace:
        """Return what happens as a trace, at a sample's parameter values."""
        names = (parameter.name for parameter in self.machine.parameters)
        return follow(self.machine.at(dict(zip(names, sample.parameters, strict=True))), occurrences)
