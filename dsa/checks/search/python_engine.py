"""Search with Python that is written for the machine: no dependency, and the fastest engine up to some hundred thousand configurations.

`FrontierSearch` is what the engines for lists and for arrays have in common: a breadth-first search over whole frontiers. Layer by layer and location by
location, all data of a frontier go through a function that is generated for the location. Configurations are remembered only at locations that can be
entered twice (`plan`).

`ListSearch` keeps data as lists of whole numbers that go through comprehensions; it remembers a byte for each number, or a set when those would
be too many. Memory for one configuration: 8 bytes where the data stay as they were, else about 40, and up to 100 more at a location where a
set remembers it; a search that might take more than `MEMORY_BYTES` is stopped.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import chain
from math import inf
from typing import Any, ClassVar

from dsa.checks.search.engine import (
    DATA,
    Data,
    Layer,
    RuleStep,
    SearchLimits,
    SearchResult,
    Text,
    Writer,
    first_where,
    generated_function,
    loop,
    plan,
)
from dsa.expr import TRUE, Expr, any_of
from dsa.ground_system import Ground, GroundWatch

#: The most bytes for configurations; what is remembered takes at most 2 GiB more.
MEMORY_BYTES = 8 * 2**30

#: Remembers the data of a location.
Memory = Any
#: Takes data, returns the locations entered, each with the data that are new there.
Leave = Callable[[Data], list[tuple[int, Data]]]


class FrontierSearch(ABC):
    """One search. A subclass stores the data, and writes the lines of the functions that leave a location."""

    engine: ClassVar[str]
    #: The limits are checked once for this many configurations.
    slice_size: ClassVar[int]

    def __init__(self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, writer: Writer) -> None:
        self.ground, self.writer = ground, writer
        self.plan = plan(ground)
        self._limits = limits
        self._memories: dict[int, Memory] = {}
        self._leave: dict[int, Leave | None] = {}
        self._programs: dict[tuple[object, ...], Callable[..., Leave]] = {}
        self._taken = [0] * len(ground.rules)
        self._lookout = Lookout(writer, watches)
        self._layers: list[Layer] = []
        #: What a configuration takes at most, in bytes, as the engine keeps them.
        self.bytes_each = 1
        #: What the generated functions use.
        self.helpers: dict[str, object] = {}

    @abstractmethod
    def first(self, data: int) -> Data:
        """Return the data of the start alone."""

    @abstractmethod
    def join(self, parts: list[Data]) -> Data:
        """Return several data as one."""

    @abstractmethod
    def nothing_known(self) -> Memory:
        """Return what remembers the data of one location."""

    @abstractmethod
    def remember(self, memory: Memory, data: int) -> None:
        """Remember the start."""

    @abstractmethod
    def filter_lines(self, name: str, condition: Text) -> Iterator[str]:
        """Write the lines that set `name` to those of `data` at which a condition is true."""

    @abstractmethod
    def enter_lines(self, name: str, step: RuleStep, source: str, memory: str | None) -> Iterator[str]:
        """Write the lines that set `name` to the data after a step from `source`: only those that are new if `memory` is given."""

    def run(self, most_trials: float = inf) -> SearchResult:
        """Search until nothing is new, or until a limit; `most_trials` is one more: how often a rule may be tried on a configuration."""
        limits, volume, count, trials, complete = self._limits, self.ground.volume, 1, 0, True
        most = min(limits.max_states, MEMORY_BYTES // self.bytes_each)
        location, data = divmod(self.ground.start, volume)
        layer = {location: self.first(data)}
        if location in self.plan.remembered_places:
            self.remember(self._known_at(location), data)
        while layer and complete:
            self._layers.append(Layer(volume, tuple(layer.items())))
            following: dict[int, list[Data]] = {}
            for place, part in self._slices(layer):
                count += self._pass(place, part, following)
                trials += len(part) * len(self.plan.steps[place])
                limits.progress(count, len(self._layers))
                complete = count <= most and trials <= most_trials and not limits.is_expired()
                if not complete:
                    break
            complete = complete and not self._lookout.is_over
            layer = {place: p[0] if len(p) == 1 else self.join(p) for place, p in following.items()}
        if layer:
            self._layers.append(Layer(volume, tuple(layer.items())))
        return self._result(count, complete=complete)

    def _slices(self, layer: dict[int, Data]) -> Iterator[tuple[int, Data]]:
        for location, data in layer.items():
            if len(data) <= self.slice_size:
                yield location, data
            else:
                for begin in range(0, len(data), self.slice_size):
                    yield location, data[begin : begin + self.slice_size]

    def _pass(self, location: int, data: Data, following: dict[int, list[Data]]) -> int:
        """Look at configurations of one location and leave them; return how many new ones that gives."""
        self._lookout.look(location, data)
        if location not in self._leave:
            self._leave[location] = self._make_leave(location)
        leave, new = self._leave[location], 0
        if leave is not None:
            for target, new_data in leave(data):
                following.setdefault(target, []).append(new_data)
                new += len(new_data)
        return new

    def _known_at(self, location: int) -> Memory:
        if location not in self._memories:
            self._memories[location] = self.nothing_known()
        return self._memories[location]

    def _make_leave(self, location: int) -> Leave | None:
        return self._leave_for(self.plan.steps[location])

    def _leave_for(self, steps: Sequence[RuleStep]) -> Leave | None:
        """Return what takes steps of one location; steps that differ in the numbers of rules and locations alone share a program."""
        remembered_places = self.plan.remembered_places
        if not steps:
            return None
        shape = tuple((id(step.move), step.stays, step.rule.target in remembered_places) for step in steps)
        if shape not in self._programs:
            self._programs[shape] = generated_function(self._program(steps), **self.helpers)
        targets = [step.rule.target for step in steps]
        memories = (self._known_at(target) if target in remembered_places else None for target in targets)
        return self._programs[shape](self._taken, *(step.places for step in steps), *targets, *memories)

    def _program(self, steps: Sequence[RuleStep]) -> str:
        """Write a program: for step i, `pi` are its rules, `ti` is the location it leads to and `ki` what is known there."""
        lines = list[str]()
        lists: dict[Expr, str] = {TRUE: "data"}
        for number, step in enumerate(steps):
            condition, is_known = step.rule.condition, step.rule.target in self.plan.remembered_places
            if condition not in lists:
                lists[condition] = f"a{number}"
                lines += self.filter_lines(lists[condition], self.writer.condition(condition))
            lines.append(f"for p in p{number}: taken[p] += len({lists[condition]})")
            if not step.stays:
                lines += self.enter_lines(f"b{number}", step, lists[condition], f"k{number}" if is_known else None)
                lines.append(f"if len(b{number}): new.append((t{number}, b{number}))")
        names = ", ".join(f"{kind}{number}" for kind in "ptk" for number in range(len(steps)))
        inside = "".join(f"  {line}\n" for line in lines)
        return f"def function(taken, {names}):\n def leave(data):\n  new = []\n{inside}  return new\n return leave"

    def _result(self, count: int, *, complete: bool) -> SearchResult:
        counts = [0] * len(self.ground.system.locations)
        for layer in self._layers:
            for location, data in layer.parts:
                counts[location] += len(data)
        taken = frozenset(rule for rule, times in enumerate(self._taken) if times)
        hits = tuple(self._lookout.hits)
        layers, is_cut_short = tuple(self._layers), self._lookout.is_over
        return SearchResult(
            self.engine, count, sum(self._taken), tuple(counts), taken, hits, complete, layers, is_cut_short
        )


class Lookout:
    """The watches of a search that were not hit yet; `hits` are numbers of configurations, or None.

    It `is_over` when one was hit that ends the search.
    """

    def __init__(self, writer: Writer, watches: Sequence[GroundWatch]) -> None:
        self.hits: list[int | None] = [None] * len(watches)
        self.is_over = False
        self._writer, self._watches = writer, watches
        self._pending: dict[int, dict[int, Expr]] = {}
        for index, watch in enumerate(watches):
            self._pending.setdefault(watch.location, {})[index] = watch.condition
        self._any: dict[int, Callable[[Data], int | None]] = {}

    def look(self, location: int, data: Data, quiet: Container[int] = ()) -> None:
        """Look at configurations of one location, in the order of their discovery; the `quiet` watches are true at none of them."""
        pending = self._pending.get(location)
        if not pending or not self._may_be_any(location, pending, data):
            return
        for index, condition in tuple(pending.items()):
            if index in quiet:
                continue
            hit = self._first(condition)(data)
            if hit is not None:
                self.hits[index] = location * self._writer.ground.volume + int(hit)
                self.is_over |= self._watches[index].ends
                del pending[index]
        self._any.pop(location, None)

    def _may_be_any(self, location: int, pending: dict[int, Expr], data: Data) -> bool:
        """Return whether some condition is true, all in one; in a hurry they are evaluated one by one, since most are known from other searches."""
        if self._writer.ground.hurries:
            return True
        if location not in self._any:
            self._any[location] = first_where(self._writer, any_of(pending.values()))
        return self._any[location](data) is not None

    def _first(self, condition: Expr) -> Callable[[Data], int | None]:
        functions, key = self._writer.ground.conditions.code, ("first", self._writer.arrays, condition)
        if key not in functions:
            functions[key] = first_where(self._writer, condition)
        first: Callable[[Data], int | None] = functions[key]
        return first


#: A byte for each number is remembered when that is not more than this at one location, and in all; else a set.
_MAX_BYTES_AT_ONE, _MAX_BYTES = 2**26, 2**28


def search(
    ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, most_trials: float = inf
) -> SearchResult:
    """Search everything that can happen, or as much of it as takes at most `most_trials` trials of a rule on a configuration."""
    return ListSearch(ground, watches, limits, Writer(ground)).run(most_trials)


class ListSearch(FrontierSearch):
    """A search in lists; with `in_bytes` it remembers a byte for each number, else a set."""

    engine: ClassVar[str] = "python"
    slice_size: ClassVar[int] = 2**16

    def __init__(self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, writer: Writer) -> None:
        super().__init__(ground, watches, limits, writer)
        in_all = ground.volume * len(self.plan.remembered_places)
        self.in_bytes = ground.volume <= _MAX_BYTES_AT_ONE and in_all <= _MAX_BYTES
        self.bytes_each = 48 if self.in_bytes else 150

    def first(self, data: int) -> Data:
        """Return the data of the start alone."""
        return [data]

    def join(self, parts: list[Data]) -> Data:
        """Return several lists as one."""
        return list(chain.from_iterable(parts))

    def nothing_known(self) -> Memory:
        """Return bytes, or a set."""
        return bytearray(self.ground.volume) if self.in_bytes else set()

    def remember(self, memory: Memory, data: int) -> None:
        """Remember the start."""
        if self.in_bytes:
            memory[data] = 1
        else:
            memory.add(data)

    def filter_lines(self, name: str, condition: Text) -> Iterator[str]:
        """Write a comprehension."""
        yield f"{name} = [{DATA} {loop(condition.bindings, 'data')} if {condition.text}]"

    def enter_lines(self, name: str, step: RuleStep, source: str, memory: str | None) -> Iterator[str]:
        """Write a comprehension, and what remembers its result."""
        after = self.writer.target(step.rule)
        over = loop(after.bindings, source)
        if memory is None:
            yield f"{name} = {source if after.text == DATA else f'[{after.text} {over}]'}"
            return
        is_new = f"not {memory}[t]" if self.in_bytes else f"t not in {memory}"
        items = f"t {over} for t in ({after.text},) if {is_new}"
        yield f"{name} = [{items}]" if step.move.is_constant else f"{name} = list({{{items}}})"
        yield f"for t in {name}: {memory}[t] = 1" if self.in_bytes else f"{memory}.update({name})"
