"""What every engine takes and gives.

An engine is a function `(Ground, watches, Limits) -> Found`. It searches breadth-first, so that the first configuration at which a
watch is true is one nearest to the start.

Configurations by their distance from the start, as engines keep them: for each location the data alone.

Data are whole numbers in any sequence: lists, arrays of 64 bits, NumPy arrays. Parts may be shared between locations, and are never
changed.

Ground expressions and rules as Python text over a configuration's data: for one number, or for a NumPy array of them.

Takes a `Ground`, gives texts that engines put into the functions they generate. Fields are read by their place (`x3`), so no name
that a user wrote is ever part of a program.

What can be known of a search before it begins: where configurations must be remembered, which rules do the same.

Takes a `Ground`, gives a `SearchPlan`. A location into which one rule alone leads, different configurations to different ones, is entered
by each configuration once: nothing need be remembered there, and most locations of most machines are like that.
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

#: Told now and then: configurations found so far, and steps from the start.
Progress = Callable[[int, int], None]


@attrs.frozen
class SearchLimits:
    """When to stop: at more than `max_states` configurations, or when `expired` says so. `progress` is told now and then."""

    max_states: int
    expired: Callable[[], bool] = lambda: False
    progress: Progress = lambda _states, _depth: None


@attrs.frozen
class SearchResult:
    """What a search found.

    `transitions` counts the (configuration, rule) pairs taken, which are the accepted (configuration, event, verdicts). `locations` counts
    the configurations at each location; `taken` has the indexes of the ground's rules that were taken. `hits` has, for each
    watch, the number of a configuration nearest to the start at which it is true, or None. `layers` are the configurations' numbers
    by their distance from the start (the start's layer first), when the engine keeps them. `ended` tells that a watch that ends the search was met: then it is not complete.
    `known_at` gives data of a location at which steps are known, `known_step` where a step (`plan.Step`) leads from those of them at which it is taken, None for one that is not known.
    """

    engine: str
    configurations: int
    transitions: int
    locations: tuple[int, ...]
    taken: frozenset[int]
    hits: tuple[int | None, ...]
    complete: bool
    layers: Sequence[Sequence[int]] | None = attrs.field(default=None, repr=False)
    ended: bool = False
    known_at: Callable[[int], Collection[int]] = attrs.field(default=lambda _location: (), repr=False, eq=False)
    known_step: Callable[[Any], Mapping[int, int] | None] = attrs.field(
        default=lambda _step: None, repr=False, eq=False
    )

    def is_all(self, limits: SearchLimits) -> bool:
        """Return whether another engine would find no more within these limits."""
        return self.complete or self.ended or self.configurations > limits.max_states or limits.expired()


def stopped_by(found: SearchResult, limits: SearchLimits) -> str:
    """Name the limit that ended a search."""
    if found.configurations > limits.max_states:
        return f"the limit of {limits.max_states} configurations"
    return "the time limit" if limits.expired() else "a limit of memory"


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
    found: dict[int, list[int]] = {}
    for number in map(int, layer):
        found.setdefault(number // volume, []).append(number % volume)
    return Layer(volume, tuple(found.items()))


def _split_array(layer: "array[int]", volume: int) -> Layer:
    import numpy as np

    locations, data = np.divmod(np.asarray(layer), np.asarray(volume, dtype=layer.typecode))
    order = np.argsort(locations, kind="stable")
    places, begins = np.unique(locations[order], return_index=True)
    parts = np.split(data[order].astype(np.int64), begins[1:])
    return Layer(volume, tuple(zip(places.tolist(), parts, strict=True)))


def by_location(layers: Iterable[Layer]) -> dict[int, list[tuple[int, Data]]]:
    """Return for each location its data, nearest first, each with the position of its first configuration among all."""
    found: dict[int, list[tuple[int, Data]]] = {}
    position = 0
    for layer in layers:
        for location, data in layer.parts:
            found.setdefault(location, []).append((position, data))
            position += len(data)
    return found


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
        written, key = self.ground.conditions.code, (self.arrays, expr)
        if key not in written:
            written[key] = self._bound([expr], lambda phrases: phrases.truth(expr))
        text: Text = written[key]
        return text

    def number(self, expr: Expr) -> Text:
        """Write an expression as a number; a condition as 0 or 1."""
        expr = simplify(expr)
        return self._bound([expr], lambda phrases: phrases.number(expr))

    def target(self, rule: GroundRule) -> Text:
        """Write the data after a rule."""
        written, key = self.ground.conditions.code, (self.arrays, rule.condition, rule.updates)
        if key not in written:
            move = moved(self.ground, rule)
            written[key] = self._bound([value for _, value in move.computed], lambda phrases: phrases.moved(move))
        text: Text = written[key]
        return text

    def _bound(self, exprs: Iterable[Expr], write: "Callable[[_Phrases], str]") -> Text:
        """Bind the fields that are read more than once."""
        ground = self.ground
        read = Counter(node.name for expr in exprs for node in walk(expr) if isinstance(node, Name))
        often = [field for field in ground.fields if read[field.name] > 1]
        bindings, named = [], dict[str, str]()
        for field in often:
            named[field.name] = f"x{ground.fields.index(field)}"
            bindings.append((named[field.name], _Phrases(self, {}).field(field)))
        return Text(tuple(bindings), write(_Phrases(self, named)))


@attrs.frozen
class DataChange:
    """What a rule does to the data: adds `shift`, takes the digits of `dropped` away, adds what is `computed` for fields."""

    shift: int
    dropped: tuple[Field, ...]
    computed: tuple[tuple[Field, Expr], ...]

    @property
    def is_constant(self) -> bool:
        """Return whether it adds the same number everywhere."""
        return not self.dropped and not self.computed


def moved(ground: Ground, rule: GroundRule) -> DataChange:
    """Take a rule's updates apart: what is the same number wherever the rule is taken, and what must be computed."""
    pins, shift = pinned(rule.condition), 0
    dropped: list[Field] = []
    computed: list[tuple[Field, Expr]] = []
    for index, value in rule.updates:
        field, value = ground.fields[index], simplify(value)  # noqa: PLW2901  (the same value, folded)
        difference = _difference(field, value, pins)
        if difference is not None:
            shift += difference * field.stride
            continue
        dropped.append(field)
        shift -= field.low * field.stride
        if isinstance(value, Integer | Boolean):
            shift += int(value.value) * field.stride
        else:
            computed.append((field, value))
    return DataChange(shift, tuple(dropped), tuple(computed))


def pinned(condition: Expr) -> dict[str, int]:
    """Return the fields that have one value wherever a condition is true, as far as its conjuncts say so themselves."""
    found: dict[str, int] = {}
    for part in condition.operands if isinstance(condition, And) else (condition,):
        match part:
            case Name(name):
                found[name] = 1
            case Not(Name(name)):
                found[name] = 0
            case Compare(Name(name), (("==", Integer(value)),)) | Compare(Integer(value), (("==", Name(name)),)):
                found[name] = value
    return found


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
    """Writes parts of texts; `named` has the names of fields that are bound."""

    writer: Writer
    named: dict[str, str]

    def field(self, field: Field) -> str:
        """Write a field's value; a truth value is anything that Python takes as one, or an array of them."""
        if field.name in self.named:
            return self.named[field.name]
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

    def held(self, field: Field) -> str:
        """Write what a field adds to the data."""
        if _is_power(field.stride) and _is_power(field.size):
            return f"({DATA} & {(field.size - 1) * field.stride})"
        digit = self._digit(field)
        return digit if field.stride == 1 else f"{digit} * {field.stride}"

    def moved(self, move: DataChange) -> str:
        """Write the data after a move."""
        text = DATA + (f" + {move.shift}" if move.shift > 0 else f" - {-move.shift}" if move.shift < 0 else "")
        for field in move.dropped:
            text += f" - {self.held(field)}"
        for field, value in move.computed:
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
        text = self.truth(expr)
        return text if self.writer.arrays or isinstance(expr, Boolean) else f"(1 if {text} else 0)"


def _is_power(number: int) -> bool:
    return number & (number - 1) == 0


def _over(number: int) -> str:
    return f">> {number.bit_length() - 1}" if _is_power(number) else f"// {number}"


def truth_of(writer: Writer, condition: Expr) -> Callable[[Data], Any]:
    """Return a function from data to whether a condition is true at each: a list, or an array of truth values."""
    written = writer.condition(condition)
    if writer.arrays:
        return _of_array(written, f"ones({DATA}.shape, bool) & {written.text}")
    return _of_list(f"[True if {written.text} else False {loop(written.bindings, 'data')}]")


def first_where(writer: Writer, condition: Expr) -> Callable[[Data], int | None]:
    """Return a function from data to the first at which a condition is true, or None."""
    written = writer.condition(condition)
    if not writer.arrays or isinstance(condition, Boolean):
        return _of_list(f"next(({DATA} {loop(written.bindings, 'data')} if {written.text}), None)")
    return _of_array(written, f"int({DATA}[m.argmax()]) if (m := {written.text}).any() else None")


def leads_where(writer: Writer, rule: GroundRule) -> Callable[[Data, int], int | None]:
    """Return a function from data and one number to the first of the data that a rule leads from to this number, or None."""
    condition, after = writer.condition(rule.condition), writer.target(rule)
    if writer.arrays:
        lines = [f"{name} = {text}" for name, text in (*condition.bindings, *after.bindings)]
        lines.append(f"m = ({after.text} == t) & {condition.text}")
        lines.append(f"return int({DATA}[m.argmax()]) if m.any() else None")
        return made(f"def made({DATA}, t):\n " + "\n ".join(lines))
    bindings = dict((*condition.bindings, *after.bindings)).items()
    return made(
        f"def made(data, t):\n return next(({DATA} {loop(bindings, 'data')}"
        f" if {after.text} == t and {condition.text}), None)"
    )


def after_all(writer: Writer, rule: GroundRule) -> Callable[[Data], Any]:
    """Return a function from data to the data after a rule, for data at which it is taken."""
    written = writer.target(rule)
    if writer.arrays:
        return _of_array(written, written.text)
    return _of_list(f"[{written.text} {loop(written.bindings, 'data')}]")


def loop(bindings: Iterable[Bindings], over: str) -> str:
    """Write the loop of a comprehension; a binding is a loop over one value, which Python makes an assignment."""
    return " ".join([f"for {DATA} in {over}", *(f"for {name} in ({text},)" for name, text in bindings)])


def made(program: str, **known: object) -> Callable[..., Any]:
    """Return the function `made` of a generated program."""
    there: dict[str, object] = dict(known)
    exec(_compiled(program), there)  # noqa: S102  (our own text: numbered names, whole numbers)
    return cast("Callable[..., Any]", there["made"])


@lru_cache(maxsize=4_096)
def _compiled(program: str) -> CodeType:
    return compile(program, "<generated search>", "exec")


def _of_list(text: str) -> Callable[[Data], Any]:
    return made(f"def made(data):\n return {text}")


def _of_array(written: Text, text: str) -> Callable[[Data], Any]:
    import numpy as np

    lines = [f" {name} = {value}" for name, value in written.bindings]
    return made("\n".join([f"def made({DATA}):", *lines, f" return {text}"]), ones=np.ones)


#: Whether a rule keeps different configurations apart is tried out on at most so many.
_TRIED = 256


@attrs.frozen
class RuleStep:
    """A rule of a location. `places` are the ground's rules that it stands for: they differ in what happens alone.

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
    """The steps of each location that can be entered at all; `remembered` are the locations that can be entered twice."""

    steps: tuple[tuple[RuleStep, ...], ...]
    remembered: frozenset[int]


def plan(ground: Ground) -> SearchPlan:
    """Look at the rules of every location that they lead to."""
    steps = steps_of(ground)
    incoming: dict[int, list[RuleStep]] = {0: []}
    todo = [0]
    while todo:
        for step in steps[todo.pop()]:
            target = step.rule.target
            if target not in incoming:
                incoming[target] = []
                todo.append(target)
            if not step.stays:
                incoming[target].append(step)
    remembered = {place for place, found in incoming.items() if found and _twice(ground, place, found)}
    return SearchPlan(
        tuple(here if place in incoming else () for place, here in enumerate(steps)), frozenset(remembered)
    )


def steps_of(ground: Ground) -> list[tuple[RuleStep, ...]]:
    """Return the steps of each location."""
    moves: dict[tuple[object, ...], DataChange] = {}
    shared: dict[tuple[int, int], DataChange] = {}  # what is equal is mostly one object, which is found faster
    steps: dict[tuple[int, int, int], tuple[GroundRule, DataChange, list[int]]] = {}
    for place, rule in enumerate(ground.rules):
        move = shared.get((id(rule.condition), id(rule.updates)))
        if move is None:
            what = (rule.condition, rule.updates)
            move = moves[what] if what in moves else moves.setdefault(what, moved(ground, rule))
            shared[id(rule.condition), id(rule.updates)] = move
        steps.setdefault((rule.source, rule.target, id(move)), (rule, move, []))[2].append(place)
    found: list[list[RuleStep]] = [[] for _ in ground.system.locations]
    for rule, move, places in steps.values():
        found[rule.source].append(RuleStep(rule, move, tuple(places)))
    return [tuple(here) for here in found]


def _twice(ground: Ground, place: int, incoming: list[RuleStep]) -> bool:
    """Return whether a configuration there may be met twice, as far as this can be told cheaply."""
    return place == 0 or len(incoming) > 1 or not injective(ground, incoming[0])


def injective(ground: Ground, step: RuleStep) -> bool:
    """Return whether a step leads from different configurations to different ones; False when that is not known."""
    if step.move.is_constant:
        return True
    rule = step.rule
    changed = {ground.fields[index].name: value for index, value in rule.updates}
    read = sorted(names(rule.condition).union(changed, *(names(value) for value in changed.values())))
    fields = [ground.field_named[name] for name in read]
    ranges = [(False, True) if field.is_bool else range(field.low, field.low + field.size) for field in fields]
    if prod(field.size for field in fields) > _TRIED:  # `product` would hold every range
        return False
    met: set[tuple[object, ...]] = set()
    for values in product(*ranges):
        here = dict(zip(read, values, strict=True))
        if evaluate(rule.condition, here) is True:
            after = tuple(_after(changed, name, here) for name in read)
            if after in met:
                return False
            met.add(after)
    return True


def _after(changed: dict[str, Expr], name: str, here: dict[str, bool | int]) -> object:
    return evaluate(changed[name], here) if name in changed else here[name]
