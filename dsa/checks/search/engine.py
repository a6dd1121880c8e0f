"""Engines: what every engine takes and gives, and the parts that they share.

An engine is a function `(Ground, watches, SearchLimits) -> SearchResult`. It searches breadth-first, so the first configuration at which a
watch is true is one nearest to the start.

A `Layer` holds the configurations at one distance from the start: for each location the data alone, as whole numbers in any sequence
(lists, arrays of 64 bits, NumPy arrays). Parts may be shared between locations, and are never changed.

A `Writer` writes expressions and rules of a ground as Python text over a configuration's data: for one number, or for a NumPy array of
them. Fields are read by their place (`x3`), so no name that a user wrote becomes part of a program.

`plan` finds out before a search where configurations must be remembered, and which rules do the same. When one rule alone leads into a
location, different configurations to different ones, each configuration enters it once, and nothing need be remembered there. Most
locations of most machines are like that.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import product
from math import prod
from types import CodeType
from typing import Any, cast, overload

import attrs

from dsa.expr import (
    And,
    Arithmetic,
    Boolean,
    Compare,
    Count,
    Expr,
    Integer,
    Name,
    Negate,
    Not,
    Or,
    evaluate,
    names,
    simplify,
    walk,
)
from dsa.ground_system import Field, Ground, GroundRule, GroundWatch

#: Called now and then with the configurations found so far, and the steps from the start.
Progress = Callable[[int, int], None]


@attrs.frozen
class SearchLimits:
    """When to stop: at more than `max_states` configurations, or when `is_expired` returns true. `progress` is called now and then."""

    max_states: int
    is_expired: Callable[[], bool] = lambda: False
    progress: Progress = lambda _states, _depth: None


@attrs.frozen
class SearchResult:
    """What a search found.

    `transitions` counts the (configuration, rule) pairs taken, which are the accepted (configuration, event, verdicts).
    `locations` counts the configurations at each location; `taken` has the indexes of the ground's rules that were
    taken. `hits` has, for each watch, the number of a configuration nearest to the start at which it is true, or None.
    `layers` are the configurations' numbers by their distance from the start (the start's layer first), when the engine
    keeps them. `is_cut_short`: a watch that ends the search was met, so it is not complete. `known_at` returns the data
    of a location at which steps are known. `known_step` returns where a `RuleStep` leads from those of them at which it
    is taken, None for one that is not known.
    """

    engine: str
    configurations: int
    transitions: int
    locations: tuple[int, ...]
    taken: frozenset[int]
    hits: tuple[int | None, ...]
    complete: bool
    layers: Sequence[Sequence[int]] | None = attrs.field(default=None, repr=False)
    is_cut_short: bool = False
    known_at: Callable[[int], Collection[int]] = attrs.field(default=lambda _location: (), repr=False, eq=False)
    known_step: Callable[[Any], Mapping[int, int] | None] = attrs.field(
        default=lambda _step: None, repr=False, eq=False
    )

    def is_all(self, limits: SearchLimits) -> bool:
        """Return whether another engine would find no more within these limits."""
        return self.complete or self.is_cut_short or self.configurations > limits.max_states or limits.is_expired()


def stopped_by(result: SearchResult, limits: SearchLimits) -> str:
    """Name the limit that ended a search."""
    if result.configurations > limits.max_states:
        return f"the limit of {limits.max_states} configurations"
    return "the time limit" if limits.is_expired() else "a limit of memory"


Engine = Callable[[Ground, Sequence[GroundWatch], SearchLimits], SearchResult]


#: Layers of other engines with fewer configurations are split without NumPy.
_SMALL = 10_000
#: A sequence of whole numbers.
Data = Sequence[int] | Any


@attrs.frozen(slots=False)
class Layer(Sequence[int]):
    """The configurations at one distance: pairs of a location and the data there, each location at most once."""

    volume: int
    parts: tuple[tuple[int, Data], ...]

    def __len__(self) -> int:
        return sum(len(data) for _, data in self.parts)

    def __iter__(self) -> Iterator[int]:
        for location, data in self.parts:
            base = location * self.volume
            for number in data.tolist() if hasattr(data, "tolist") else data:
                yield base + number

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return list(self)[index]
        place = index + len(self) if index < 0 else index
        for location, data in self.parts:
            if 0 <= place < len(data):
                return location * self.volume + int(data[place])
            place -= len(data)
        raise IndexError(index)


def split(layer: Sequence[int], volume: int) -> Layer:
    """Return a layer by location, whatever engine kept it."""
    if isinstance(layer, Layer):
        return layer
    if isinstance(layer, array) and len(layer) > _SMALL and find_spec("numpy") is not None:
        return _split_array(layer, volume)
    data_by_location: dict[int, list[int]] = {}
    for number in map(int, layer):
        data_by_location.setdefault(number // volume, []).append(number % volume)
    return Layer(volume, tuple(data_by_location.items()))


def _split_array(layer: "array[int]", volume: int) -> Layer:
    import numpy as np

    locations, data = np.divmod(np.asarray(layer), np.asarray(volume, dtype=layer.typecode))
    order = np.argsort(locations, kind="stable")
    places, begins = np.unique(locations[order], return_index=True)
    parts = np.split(data[order].astype(np.int64), begins[1:])
    return Layer(volume, tuple(zip(places.tolist(), parts, strict=True)))


def by_location(layers: Iterable[Layer]) -> dict[int, list[tuple[int, Data]]]:
    """Return for each location its data, nearest first, each with the position of its first configuration among all."""
    data_by_location: dict[int, list[tuple[int, Data]]] = {}
    position = 0
    for layer in layers:
        for location, data in layer.parts:
            data_by_location.setdefault(location, []).append((position, data))
            position += len(data)
    return data_by_location


#: The variable that holds the data in every generated text.
DATA = "d"
Bindings = tuple[str, str]


@attrs.frozen
class Text:
    """A text, and what must be bound before it: names and what they stand for, in order."""

    bindings: tuple[Bindings, ...]
    text: str


@attrs.frozen
class Writer:
    """Writes expressions of one ground. With `arrays`, `d` is a NumPy array, and conditions are arrays of truth values."""

    ground: Ground
    arrays: bool = False

    def condition(self, expr: Expr) -> Text:
        """Write a condition of the ground, which is folded already."""
        texts, key = self.ground.conditions.code, (self.arrays, expr)
        if key not in texts:
            texts[key] = self._bind([expr], lambda phrases: phrases.truth(expr))
        text: Text = texts[key]
        return text

    def number(self, expr: Expr) -> Text:
        """Write an expression as a number; a condition as 0 or 1."""
        expr = simplify(expr)
        return self._bind([expr], lambda phrases: phrases.number(expr))

    def target(self, rule: GroundRule) -> Text:
        """Write the data after a rule."""
        texts, key = self.ground.conditions.code, (self.arrays, rule.condition, rule.updates)
        if key not in texts:
            move = data_change(self.ground, rule)
            texts[key] = self._bind(
                [value for _, value in move.computed_fields], lambda phrases: phrases.data_after(move)
            )
        text: Text = texts[key]
        return text

    def _bind(self, exprs: Iterable[Expr], write: "Callable[[_Phrases], str]") -> Text:
        """Bind the fields that are read more than once."""
        ground = self.ground
        read = Counter(node.name for expr in exprs for node in walk(expr) if isinstance(node, Name))
        often = [field for field in ground.fields if read[field.name] > 1]
        bindings, names = [], dict[str, str]()
        for field in often:
            names[field.name] = f"x{ground.fields.index(field)}"
            bindings.append((names[field.name], _Phrases(self, {}).field(field)))
        return Text(tuple(bindings), write(_Phrases(self, names)))


@attrs.frozen
class DataChange:
    """What a rule does to the data: adds `shift`, takes the digits of `dropped_fields` away, adds the computed values of `computed_fields`."""

    shift: int
    dropped_fields: tuple[Field, ...]
    computed_fields: tuple[tuple[Field, Expr], ...]

    @property
    def is_constant(self) -> bool:
        """Return whether it adds the same number everywhere."""
        return not self.dropped_fields and not self.computed_fields


def data_change(ground: Ground, rule: GroundRule) -> DataChange:
    """Take a rule's updates apart: what is the same number wherever the rule is taken, and what must be computed."""
    pins, shift = fixed_values(rule.condition), 0
    dropped_fields: list[Field] = []
    computed_fields: list[tuple[Field, Expr]] = []
    for index, value in rule.updates:
        field, value = ground.fields[index], simplify(value)  # noqa: PLW2901  (the same value, folded)
        difference = _difference(field, value, pins)
        if difference is not None:
            shift += difference * field.stride
            continue
        dropped_fields.append(field)
        shift -= field.low * field.stride
        if isinstance(value, Integer | Boolean):
            shift += int(value.value) * field.stride
        else:
            computed_fields.append((field, value))
    return DataChange(shift, tuple(dropped_fields), tuple(computed_fields))


def fixed_values(condition: Expr) -> dict[str, int]:
    """Return the fields that have one value wherever a condition is true, as far as single conjuncts show that."""
    values: dict[str, int] = {}
    for part in condition.operands if isinstance(condition, And) else (condition,):
        match part:
            case Name(name):
                values[name] = 1
            case Not(Name(name)):
                values[name] = 0
            case Compare(Name(name), (("==", Integer(value)),)) | Compare(Integer(value), (("==", Name(name)),)):
                values[name] = value
    return values


def _difference(field: Field, value: Expr, pins: dict[str, int]) -> int | None:
    """Return by how much an update changes a field, when that is the same everywhere."""
    if field.size == 1:
        return 0
    match value:
        case Integer(number) | Boolean(number) if field.name in pins:
            return int(number) - pins[field.name]
        case Name(name) if name == field.name:
            return 0
        case Arithmetic("+", Name(name), Integer(number)) | Arithmetic("+", Integer(number), Name(name)):
            return number if name == field.name else None
        case Arithmetic("-", Name(name), Integer(number)):
            return -number if name == field.name else None
    return None


@attrs.frozen
class _Phrases:
    """Writes parts of texts; `names` has the names of fields that are bound."""

    writer: Writer
    names: dict[str, str]

    def field(self, field: Field) -> str:
        """Write a field's value; a truth value is anything that Python takes as one, or an array of them."""
        if field.name in self.names:
            return self.names[field.name]
        if field.is_bool:
            return self._flag(field)
        digit = self._digit(field)
        return digit if field.low == 0 else f"({digit} + {field.low})" if field.low > 0 else f"({digit} - {-field.low})"

    def _flag(self, field: Field) -> str:
        if field.size == 1:
            return "False"
        text = f"({DATA} & {field.stride})" if _is_power(field.stride) else self._digit(field)
        return f"({text} != 0)" if self.writer.arrays else text

    def _digit(self, field: Field) -> str:
        if field.size == 1:
            return "0"
        text = DATA if field.stride == 1 else f"({DATA} {_over(field.stride)})"
        if field.stride * field.size == self.writer.ground.volume:
            return text
        return self._rest(text, field.size)

    def _rest(self, text: str, size: int) -> str:
        """Write a remainder; NumPy divides by one number fast, but its remainders are slow."""
        if _is_power(size):
            return f"({text} & {size - 1})"
        return f"((q := {text}) - q // {size} * {size})" if self.writer.arrays else f"({text} % {size})"

    def addend(self, field: Field) -> str:
        """Write what a field adds to the data."""
        if _is_power(field.stride) and _is_power(field.size):
            return f"({DATA} & {(field.size - 1) * field.stride})"
        digit = self._digit(field)
        return digit if field.stride == 1 else f"{digit} * {field.stride}"

    def data_after(self, move: DataChange) -> str:
        """Write the data after a move."""
        text = DATA + (f" + {move.shift}" if move.shift > 0 else f" - {-move.shift}" if move.shift < 0 else "")
        for field in move.dropped_fields:
            text += f" - {self.addend(field)}"
        for field, value in move.computed_fields:
            text += f" + {self.number(value)} * {field.stride}"
        return text

    def truth(self, expr: Expr) -> str:
        """Write a condition."""
        both, either, neither = (" & ", " | ", "~") if self.writer.arrays else (" and ", " or ", "not ")
        match expr:
            case Boolean(value):
                return repr(value)
            case Name(name):
                return self.field(self.writer.ground.field_named[name])
            case Not(operand):
                return f"({neither}{self.truth(operand)})"
            case And(operands):
                return f"({both.join(map(self.truth, operands))})"
            case Or(operands):
                return f"({either.join(map(self.truth, operands))})"
            case Compare(left, ((sign, right),)):
                return f"({self.number(left)} {sign} {self.number(right)})"
        raise AssertionError(f"no condition of a ground: {expr}")

    def number(self, expr: Expr) -> str:
        """Write a number; a condition becomes 0 or 1."""
        match expr:
            case Integer(value):
                return str(value) if value >= 0 else f"({value})"
            case Negate(operand):
                return f"(-{self.number(operand)})"
            case Arithmetic(sign, left, right):
                first = self.number(left)
                if sign in "+-" and isinstance(left, Arithmetic):
                    first = first[1:-1]  # it binds as closely; long sums would need too many parentheses
                return f"({first} {sign} {self.number(right)})"
            case Name(name) if not (field := self.writer.ground.field_named[name]).is_bool:
                return self.field(field)
            case Count(
                operands
            ):  # NumPy takes the sum of two truth values for `or`, that of a number and one for a sum
                return f"({' + '.join(['0', *map(self.number, operands)])})"
        text = self.truth(expr)
        return text if self.writer.arrays or isinstance(expr, Boolean) else f"(1 if {text} else 0)"


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _over(number: int) -> str:
    return f">> {number.bit_length() - 1}" if _is_power(number) else f"// {number}"


def truth_of(writer: Writer, condition: Expr) -> Callable[[Data], Any]:
    """Return a function from data to whether a condition is true at each: a list, or an array of truth values."""
    phrase = writer.condition(condition)
    if writer.arrays:
        return _of_array(phrase, f"ones({DATA}.shape, bool) & {phrase.text}")
    return _of_list(f"[True if {phrase.text} else False {loop(phrase.bindings, 'data')}]")


def first_where(writer: Writer, condition: Expr) -> Callable[[Data], int | None]:
    """Return a function from data to the first at which a condition is true, or None."""
    phrase = writer.condition(condition)
    if not writer.arrays or isinstance(condition, Boolean):
        return _of_list(f"next(({DATA} {loop(phrase.bindings, 'data')} if {phrase.text}), None)")
    return _of_array(phrase, f"int({DATA}[m.argmax()]) if (m := {phrase.text}).any() else None")


def leads_where(writer: Writer, rule: GroundRule) -> Callable[[Data, int], int | None]:
    """Return a function from data and one number to the first of the data that a rule leads from to this number, or None."""
    condition, after = writer.condition(rule.condition), writer.target(rule)
    if writer.arrays:
        lines = [f"{name} = {text}" for name, text in (*condition.bindings, *after.bindings)]
        lines.append(f"m = ({after.text} == t) & {condition.text}")
        lines.append(f"return int({DATA}[m.argmax()]) if m.any() else None")
        return generated_function(f"def function({DATA}, t):\n " + "\n ".join(lines))
    bindings = dict((*condition.bindings, *after.bindings)).items()
    return generated_function(
        f"def function(data, t):\n return next(({DATA} {loop(bindings, 'data')}"
        f" if {after.text} == t and {condition.text}), None)"
    )


def after_all(writer: Writer, rule: GroundRule) -> Callable[[Data], Any]:
    """Return a function from data to the data after a rule, for data at which it is taken."""
    phrase = writer.target(rule)
    if writer.arrays:
        return _of_array(phrase, phrase.text)
    return _of_list(f"[{phrase.text} {loop(phrase.bindings, 'data')}]")


def loop(bindings: Iterable[Bindings], over: str) -> str:
    """Write the loop of a comprehension; a binding is a loop over one value, which Python makes an assignment."""
    return " ".join([f"for {DATA} in {over}", *(f"for {name} in ({text},)" for name, text in bindings)])


def generated_function(program: str, **constants: object) -> Callable[..., Any]:
    """Return the function that a generated program defines as `function`."""
    there: dict[str, object] = dict(constants)
    exec(_compile_program(program), there)  # noqa: S102  (our own text: numbered names, whole numbers)
    return cast("Callable[..., Any]", there["function"])


@lru_cache(maxsize=4_096)
def _compile_program(program: str) -> CodeType:
    return compile(program, "<generated search>", "exec")


def _of_list(text: str) -> Callable[[Data], Any]:
    return generated_function(f"def function(data):\n return {text}")


def _of_array(phrase: Text, text: str) -> Callable[[Data], Any]:
    import numpy as np

    lines = [f" {name} = {value}" for name, value in phrase.bindings]
    return generated_function("\n".join([f"def function({DATA}):", *lines, f" return {text}"]), ones=np.ones)


#: The most configurations on which a rule is tried, to see whether it keeps different ones apart.
_MOST_TRIALS = 256


@attrs.frozen
class RuleStep:
    """A rule of a location. `places` are the ground's rules that it stands for: they differ only in what happens.

    Steps with equal conditions and updates have the very same `move`.
    """

    rule: GroundRule
    move: DataChange
    places: tuple[int, ...]

    @property
    def stays(self) -> bool:
        """Return whether it leads back to the configuration that it leaves."""
        return self.rule.source == self.rule.target and self.move.is_constant and self.move.shift == 0


@attrs.frozen
class SearchPlan:
    """The steps of each location that can be entered at all; `remembered_places` are the locations that can be entered twice."""

    steps: tuple[tuple[RuleStep, ...], ...]
    remembered_places: frozenset[int]


def plan(ground: Ground) -> SearchPlan:
    """Return the plan of a search: the steps of every location that rules lead to."""
    steps = steps_of(ground)
    steps_into: dict[int, list[RuleStep]] = {0: []}
    todo = [0]
    while todo:
        for step in steps[todo.pop()]:
            target = step.rule.target
            if target not in steps_into:
                steps_into[target] = []
                todo.append(target)
            if not step.stays:
                steps_into[target].append(step)
    remembered_places = {
        place for place, arrivals in steps_into.items() if arrivals and _twice(ground, place, arrivals)
    }
    return SearchPlan(
        tuple(here if place in steps_into else () for place, here in enumerate(steps)), frozenset(remembered_places)
    )


def steps_of(ground: Ground) -> list[tuple[RuleStep, ...]]:
    """Return the steps of each location."""
    moves: dict[tuple[object, ...], DataChange] = {}
    known_moves: dict[tuple[int, int], DataChange] = {}  # equal values are mostly one object, which is a faster key
    steps: dict[tuple[int, int, int], tuple[GroundRule, DataChange, list[int]]] = {}
    for place, rule in enumerate(ground.rules):
        move = known_moves.get((id(rule.condition), id(rule.updates)))
        if move is None:
            what = (rule.condition, rule.updates)
            move = moves[what] if what in moves else moves.setdefault(what, data_change(ground, rule))
            known_moves[id(rule.condition), id(rule.updates)] = move
        steps.setdefault((rule.source, rule.target, id(move)), (rule, move, []))[2].append(place)
    steps_by_location: list[list[RuleStep]] = [[] for _ in ground.system.locations]
    for rule, move, places in steps.values():
        steps_by_location[rule.source].append(RuleStep(rule, move, tuple(places)))
    return [tuple(here) for here in steps_by_location]


def _twice(ground: Ground, place: int, steps_into: list[RuleStep]) -> bool:
    """Return whether a configuration there may be met twice, as far as that can be decided cheaply."""
    return place == 0 or len(steps_into) > 1 or not injective(ground, steps_into[0])


def injective(ground: Ground, step: RuleStep) -> bool:
    """Return whether a step leads from different configurations to different ones; False when that is not known."""
    if step.move.is_constant:
        return True
    rule = step.rule
    updates = {ground.fields[index].name: value for index, value in rule.updates}
    read = sorted(names(rule.condition).union(updates, *(names(value) for value in updates.values())))
    fields = [ground.field_named[name] for name in read]
    ranges = [(False, True) if field.is_bool else range(field.low, field.low + field.size) for field in fields]
    if prod(field.size for field in fields) > _MOST_TRIALS:  # `product` would hold every range
        return False
    results: set[tuple[object, ...]] = set()
    for values in product(*ranges):
        here = dict(zip(read, values, strict=True))
        if evaluate(rule.condition, here) is True:
            after = tuple(_after(updates, name, here) for name in read)
            if after in results:
                return False
            results.add(after)
    return True


def _after(updates: dict[str, Expr], name: str, here: dict[str, bool | int]) -> object:
    return evaluate(updates[name], here) if name in updates else here[name]
