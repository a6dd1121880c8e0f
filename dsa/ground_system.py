"""Ground systems: a system at its machine's parameter values, in whole numbers only, as the search engines run it.

`ground` turns a `System` into a `Ground`. Every variable is a field of consecutive whole numbers (`false` and `true` are 0 and 1; the values of
enumerations are numbered over the whole machine). A configuration is one number: `location * volume + data`, where `data` has the fields as
mixed-radix digits, the first field as the least significant one. Conditions that the fields' values decide are replaced by their truth value.

`satisfiable` returns whether a condition over finite variables can be true, with a bound on the work. It splits cases (Davis, Putnam, Logemann and
Loveland, 1962): a conjunct that names one value of a variable settles it, else it tries the values of the variable with the fewest.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any, TypeVar

import attrs

from dsa import expr
from dsa.errors import UndecidedError
from dsa.expr import FALSE, Leaf, all_of, any_of, constant, negation, substitute
from dsa.semantics import Configuration
from dsa.system import System, counter, location_of, start_values

#: For each variable, the values that it may have: whole numbers, or truth values.
Ranges = Mapping[str, Sequence[int]]
#: The number of sample values for each variable.
_SAMPLES = 8
#: A variable with at most this many values has each of them tried.
_FEW = 8
#: The number of nodes of a condition of usual size.
_USUAL = 200


@attrs.define
class SearchEffort:
    """The number of values that may still be tried, in conditions of usual size; a longer condition costs more. It is over once `is_late` says so."""

    left: int
    is_late: Callable[[], bool] = lambda: False


def satisfiable(condition: expr.Expr, ranges: Ranges, effort: SearchEffort) -> bool | None:
    """Return whether some values make a condition true; None if the effort is used up first."""
    if isinstance(condition, expr.Boolean):
        return condition.value
    cost = 1 + sum(1 for _ in expr.walk(condition)) // _USUAL
    for part in _branches(condition, ranges):
        if effort.left <= 0 or effort.is_late():
            return None
        effort.left -= cost
        result = satisfiable(part, ranges, effort)
        if result is not False:
            return result
    return False


def outcomes_at_samples(condition: expr.Expr, ranges: Ranges) -> frozenset[bool]:
    """Return the truth values of a condition at a few valuations: all lowest, all highest, and some between."""
    read = sorted(expr.names(condition))
    return frozenset(
        expr.evaluate(condition, {name: _sample(ranges[name], number * (place + 1)) for place, name in enumerate(read)})
        is True
        for number in range(_SAMPLES)
    )


def _sample(values: Sequence[int], number: int) -> int:
    size = _size(values)
    return values[number * (size // _SAMPLES + 1) % size]


def _size(values: Sequence[int]) -> int:
    """Return the number of values, which may be too great for `len`."""
    return values.stop - values.start if isinstance(values, range) else len(values)


def _branches(condition: expr.Expr, ranges: Ranges) -> Iterable[expr.Expr]:
    """Return conditions of which one can be true if this one can: its alternatives, or the condition at each remaining value of a variable."""
    match condition:
        case expr.Or(operands):
            return operands
        case expr.Not(expr.And(operands)):
            return map(negation, operands)
        case expr.Not(expr.Or(operands)):
            return (all_of(map(negation, operands)),)
    name, values = _split(condition, ranges)
    return (_with(condition, name, value) for value in values)


def _split(condition: expr.Expr, ranges: Ranges) -> tuple[str, Sequence[int]]:
    """Choose a variable, and its remaining values."""
    for part in expr.conjuncts(condition):
        match part:
            case expr.Name(name):
                return name, [value for value in ranges[name] if value]
            case expr.Not(expr.Name(name)):
                return name, [value for value in ranges[name] if not value]
            case expr.Compare(expr.Name(name), (("==", expr.Integer(value)),)):
                return name, [value] if value in ranges[name] else []
    name, values = min(
        ((name, ranges[name]) for name in sorted(expr.names(condition))), key=lambda item: _size(item[1])
    )
    return name, _representatives(condition, name, values)


def _representatives(condition: expr.Expr, name: str, values: Sequence[int]) -> Sequence[int]:
    """Return values of a variable that represent all: values between two neighbouring numbers of its comparisons are alike."""
    turns = _turns(condition, name) if isinstance(values, range) and _size(values) > _FEW else None
    if turns is None or not values:
        return values
    near = {turn + step for turn in turns for step in (0, 1)}
    return sorted({values[0], values[-1], *(each for each in near if each in values)})


def _turns(node: expr.Expr, name: str) -> set[int] | None:
    """Return the numbers at which a condition may become true or false as a variable grows; None if its form does not tell."""
    if name not in expr.names(node):
        return set()
    match node:
        case expr.Compare(expr.Count(operands), ((_, side),)) if name not in expr.names(side):
            return _turns_of_all(operands, name)
        case expr.Compare(first, rest):
            sides = [_linear_form(side, name) for side in (first, *(operand for _, operand in rest))]
            turns = set[int]()
            for left, right in pairwise(sides):
                if left is None or right is None:
                    return None
                (is_left, shift), (is_right, number) = left, right
                if is_left != is_right:
                    turns.add(number - shift if is_left else shift - number)
            return turns
        case expr.And(operands) | expr.Or(operands):
            return _turns_of_all(operands, name)
        case expr.Not(operand):
            return _turns(operand, name)
    return None


def _turns_of_all(operands: Iterable[expr.Expr], name: str) -> set[int] | None:
    parts = [_turns(operand, name) for operand in operands]
    return None if None in parts else set().union(*(part for part in parts if part))


def _linear_form(side: expr.Expr, name: str) -> tuple[bool, int] | None:
    """Return a side of a comparison as the variable plus a number, or as a number; None for anything else."""
    match side:
        case expr.Integer(number):
            return False, number
        case expr.Name(other) if other == name:
            return True, 0
        case expr.Arithmetic("+", expr.Name(other), expr.Integer(number)) if other == name:
            return True, number
        case expr.Arithmetic("+", expr.Integer(number), expr.Name(other)) if other == name:
            return True, number
        case expr.Arithmetic("-", expr.Name(other), expr.Integer(number)) if other == name:
            return True, -number
    return None


def _with(condition: expr.Expr, name: str, value: int) -> expr.Expr:
    replacement = constant(value)

    def leaf(node: Leaf) -> expr.Expr:
        return replacement if isinstance(node, expr.Name) and node.name == name else node

    return substitute(condition, leaf)


#: The most values tried to decide one condition, and all conditions of a machine. Conditions that are then undecided are evaluated where they matter.
_MOST_TRIALS_EACH, _MOST_TRIALS = 2_048, 20_000


@attrs.frozen
class Field:
    """A variable's place in a configuration's number: `value = low + data // stride % size`."""

    name: str
    low: int
    size: int
    stride: int
    is_bool: bool


@attrs.frozen
class GroundRule:
    """A command in numbers: when it is taken, where it leads, and what each changed field (by index) is set to.

    At one configuration at most one rule of a choice is taken; different choices are independent. `command` indexes the system's.
    """

    source: int
    target: int
    condition: expr.Expr
    updates: tuple[tuple[int, expr.Expr], ...]
    command: int


@attrs.frozen
class GroundWatch:
    """A condition to watch at the configurations of `location`. If it `ends` a search, its first match is enough and the search goes no farther."""

    location: int
    condition: expr.Expr
    ends: bool = False


@attrs.frozen
class DecidedConditions:
    """Conditions of a system: in numbers, decided as far as the fields' values decide them, and as the code of engines."""

    numeric: dict[expr.Expr, expr.Expr] = attrs.field(factory=dict)
    decisions: dict[expr.Expr, expr.Expr] = attrs.field(factory=dict)
    code: dict[Hashable, Any] = attrs.field(factory=dict)


#: The number of items between two looks at the clock.
_BETWEEN_LOOKS = 4_096

Item = TypeVar("Item")


#: Up to this many configurations a search takes some seconds, even if it reaches all; most machines reach few of them.
_SOON_SEARCHED = 5_000_000


@attrs.frozen(slots=False)
class Ground:
    """A system in numbers. All expressions are over fields (kind `variable`) and whole numbers.

    A field with `is_bool` is a condition in them, any other a whole number.
    """

    system: System = attrs.field(repr=False)
    fields: tuple[Field, ...]
    rules: tuple[GroundRule, ...]
    start: int
    _numbers: dict[str, int] = attrs.field(repr=False)
    hurries: bool = attrs.field(default=False, repr=False, eq=False)
    #: How many more values may be tried to decide conditions.
    _effort: SearchEffort = attrs.field(factory=lambda: SearchEffort(_MOST_TRIALS), repr=False, eq=False)

    @cached_property
    def conditions(self) -> "DecidedConditions":
        """The results so far for conditions over these fields, at these values."""
        constants = tuple(self.system.machine.constants.items())
        key = ("known", self.fields, tuple(self._numbers.items()), constants, self.hurries)
        result: DecidedConditions = self.system.memo.setdefault(key, DecidedConditions())
        return result

    @cached_property
    def volume(self) -> int:
        """The number of combinations of values."""
        return prod(field.size for field in self.fields)

    @property
    def domain_size(self) -> int:
        """The number of possible configurations."""
        return self.volume * len(self.system.locations)

    def timely(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items. Raises UndecidedError after many items when the time is over."""
        for number, item in enumerate(items, start=1):
            if number % _BETWEEN_LOOKS == 0:
                self.require_time()
            yield item

    def require_time(self) -> None:
        """Raise UndecidedError when the time is over."""
        if self._effort.is_late():
            raise UndecidedError("the time limit was reached")

    @cached_property
    def rules_at(self) -> tuple[tuple[GroundRule, ...], ...]:
        """The rules of each location."""
        rules: list[list[GroundRule]] = [[] for _ in self.system.locations]
        for rule in self.rules:
            rules[rule.source].append(rule)
        return tuple(map(tuple, rules))

    @cached_property
    def field_named(self) -> dict[str, Field]:
        """All fields by their variable's name."""
        return {field.name: field for field in self.fields}

    @cached_property
    def _symbols(self) -> dict[int, str]:
        return {number: symbol for symbol, number in self._numbers.items()}

    def decode(self, number: int) -> Configuration:
        """Return the configuration of a number, over the machine's variables alone."""
        place, data = divmod(number, self.volume)
        location = self.system.locations[place]
        own = self.fields[: len(self.system.machine.variables)]
        values = tuple(self._value(field, field.low + data // field.stride % field.size) for field in own)
        return Configuration(location.state, values, self.outstanding(number), location.precedence)

    def outstanding(self, number: int) -> tuple[str, ...]:
        """Return the outstanding effects of a configuration, sorted, each as often as it is outstanding."""
        place, data = divmod(number, self.volume)
        located_effects = self.system.locations[place].outstanding
        counters = ((effect, self.field_named[counter(effect).name]) for effect in self.system.counted_effects)
        numbers = ((effect, field.low + data // field.stride % field.size) for effect, field in counters)
        return tuple(sorted([*located_effects, *(effect for effect, number in numbers for _ in range(number))]))

    def _value(self, field: Field, number: int) -> expr.Value:
        if field.is_bool:
            return bool(number)
        is_symbol = isinstance(self._domain_of[field.name], expr.EnumDomain)
        return self._symbols[number] if is_symbol else number

    @cached_property
    def _domain_of(self) -> dict[str, object]:
        return {variable.name: variable.domain for variable in self.system.variables}

    def encode(self, configuration: Configuration, observer_values: Mapping[str, expr.Value] | None = None) -> int:
        """Return the number of a configuration; `observer_values` has the values of observers, which are 0 or false otherwise."""
        values = {v.name: x for v, x in zip(self.system.machine.variables, configuration.values, strict=True)}
        values |= {
            counter(effect).name: configuration.outstanding.count(effect) for effect in self.system.counted_effects
        }
        values |= observer_values or {}
        data = sum((self.number(values.get(f.name, f.low)) - f.low) * f.stride for f in self.fields)
        return location_of(self.system, configuration) * self.volume + data

    def number(self, value: expr.Value) -> int:
        """Return the whole number that stands for a value."""
        return self._numbers[value] if isinstance(value, str) else int(value)

    def values(self, number: int) -> dict[str, int | bool]:
        """Return the fields' values at a configuration: an environment for the ground's expressions."""
        data = number % self.volume
        values: dict[str, int | bool] = {}
        for field in self.fields:
            value = field.low + data // field.stride % field.size
            values[field.name] = bool(value) if field.is_bool else value
        return values

    def successors(self, number: int) -> Iterator[tuple[GroundRule, int]]:
        """Yield the rules taken at a configuration and their targets. This is slow, for one configuration at a time."""
        place, data = divmod(number, self.volume)
        values = self.values(number)
        for rule in self.rules_at[place]:
            if expr.evaluate(rule.condition, values) is True:
                after = data
                for index, value in rule.updates:
                    field = self.fields[index]
                    after += (int(expr.evaluate(value, values)) - int(values[field.name])) * field.stride
                yield rule, rule.target * self.volume + after

    def ground_condition(self, condition: expr.Expr) -> expr.Expr:
        """Return a condition over the system's variables and parameters in numbers; a constant if its values decide it."""
        return self._decide(self._numeric(condition))

    def watches(self, conditions: Iterable[tuple[int, expr.Expr]]) -> tuple[GroundWatch | None, ...]:
        """Ground conditions at locations; the result has None for a condition that is never true."""
        pairs = ((place, self.ground_condition(condition)) for place, condition in conditions)
        return tuple(None if condition == FALSE else GroundWatch(place, condition) for place, condition in pairs)

    def _numeric(self, whole: expr.Expr) -> expr.Expr:
        numeric = self.conditions.numeric.get(whole)
        if numeric is None:
            match whole:  # conditions are made of one another: their parts are known before they are
                case expr.And(operands):
                    numeric = all_of(map(self._numeric, operands))
                case expr.Or(operands):
                    numeric = any_of(map(self._numeric, operands))
                case expr.Not(operand):
                    numeric = negation(self._numeric(operand))
                case _:
                    numeric = self._in_numbers(whole)
            self.conditions.numeric[whole] = numeric
        return numeric

    def _in_numbers(self, whole: expr.Expr) -> expr.Expr:
        constants = self.system.machine.constants

        def leaf(node: Leaf) -> expr.Expr:
            if isinstance(node, expr.Name) and node.kind == "parameter":
                value = constants[node.name]
                return expr.Integer(self._numbers[value]) if isinstance(value, str) else constant(value)
            if isinstance(node, expr.Symbol):
                return expr.Integer(self._numbers[node.value])
            assert isinstance(node, expr.Name), "verdicts are decided in a system"
            field = self.field_named[node.name]
            return expr.Integer(field.low) if field.size == 1 else node

        return substitute(whole, leaf)

    def _decide(self, node: expr.Expr) -> expr.Expr:
        if isinstance(node, expr.Boolean) or (self.hurries and self.domain_size <= _SOON_SEARCHED):
            return node
        if node in self.conditions.decisions:
            return self.conditions.decisions[node]
        outcomes = outcomes_at_samples(node, self._ranges)
        result: expr.Expr = node
        if True not in outcomes and self._can_be_true(node) is False:
            result = FALSE
        elif False not in outcomes and self._can_be_true(negation(node)) is False:
            result = expr.TRUE
        self.conditions.decisions[node] = result
        return result

    def _can_be_true(self, node: expr.Expr) -> bool | None:
        effort = SearchEffort(min(_MOST_TRIALS_EACH, self._effort.left), self._effort.is_late)
        budget = effort.left
        result = satisfiable(node, self._ranges, effort)
        self._effort.left -= budget - effort.left
        return result

    @cached_property
    def _ranges(self) -> dict[str, Sequence[int]]:
        return {f.name: (False, True) if f.is_bool else range(f.low, f.low + f.size) for f in self.fields}


def ground(system: System, *, hurries: bool = False, is_late: Callable[[], bool] = lambda: False) -> Ground:
    """Ground a system: number the values, decide conditions, drop the commands that can never be taken.

    With `hurries`, no conditions are decided if there are few configurations, as a search is then faster. None are either once `is_late` says that the
    time is over.
    """
    machine = system.machine
    domains = {v.name: (v.domain, expr.concrete(v.domain, machine.constants)) for v in system.variables}
    every = [*(v.domain for v in system.variables), *(parameter.domain for parameter in machine.parameters)]
    numbers = _number_symbols(domain for domain in every if isinstance(domain, expr.EnumDomain))
    fields, stride = [], 1
    for name, (domain, values) in domains.items():
        low, size = _extent(values, numbers)
        fields.append(Field(name, low, size, stride, isinstance(domain, expr.BooleanDomain)))
        stride *= size
    draft = Ground(system, tuple(fields), (), 0, numbers, hurries, SearchEffort(_MOST_TRIALS, is_late))
    initial = {name: expr.evaluate(value, machine.constants) for name, value in start_values(system).items()}
    start = sum((draft.number(initial[field.name]) - field.low) * field.stride for field in fields)
    place = {field.name: index for index, field in enumerate(fields)}
    rules = []
    results: dict[tuple[object, ...], tuple[expr.Expr, tuple[tuple[int, expr.Expr], ...]]] = {}
    for index, command in enumerate(system.commands):
        # The same rows hold at many locations.
        same = (command.enabled_when, command.safe, command.rivals, command.updates)
        if same not in results:
            updates = tuple((place[name], draft._numeric(value)) for name, value in command.updates)  # noqa: SLF001
            results[same] = _condition(draft, command.enabled_when, command.safe, command.rivals), updates
        condition, updates = results[same]
        if condition != FALSE:
            rules.append(GroundRule(command.source, command.target, condition, updates, index))
    return attrs.evolve(draft, rules=tuple(rules), start=start)


def _condition(draft: Ground, enabled_when: expr.Expr, safe: expr.Expr, rivals: tuple[expr.Expr, ...]) -> expr.Expr:
    """Return the condition under which a command is taken, without the parts that values decide: most commands are safe and have no rival whenever enabled."""
    condition = draft.ground_condition(enabled_when)
    if safe != expr.TRUE and draft.ground_condition(all_of([enabled_when, negation(safe)])) != FALSE:
        condition = draft.ground_condition(all_of([enabled_when, safe]))
    for rival in rivals:
        if draft.ground_condition(all_of([enabled_when, rival])) != FALSE:
            condition = all_of([condition, negation(draft.ground_condition(rival))])
    return condition


def _number_symbols(domains: Iterable[expr.EnumDomain]) -> dict[str, int]:
    """Number the values of enumerations; values of one enumeration are consecutive where possible."""
    numbers: dict[str, int] = {}
    for domain in domains:
        for value in domain.values:
            numbers.setdefault(value, len(numbers))
    return numbers


def _extent(values: expr.Values, numbers: dict[str, int]) -> tuple[int, int]:
    if isinstance(values, expr.Interval):
        assert values.high is not None, "variables have finite domains"
        return values.low, max(1, values.high - values.low + 1)
    integers = [numbers[value] if isinstance(value, str) else int(value) for value in values.values]
    return min(integers), max(integers) - min(integers) + 1


def python_source(whole: expr.Expr, field_texts: Mapping[str, str]) -> str:
    """Return a ground expression as Python; `field_texts` has the text for each field."""

    def leaf(node: Leaf) -> expr.Expr:
        assert isinstance(node, expr.Name), "verdicts are decided in a system"
        return expr.Name(field_texts[node.name])

    return expr.unparse(substitute(whole, leaf)) if not isinstance(whole, expr.Boolean) else repr(whole.value)
