"""Breadth-first search over whole frontiers: what the engines for lists and for arrays have in common.

Layer by layer and location by location, all data of a frontier go through a function that is generated for the location. What is
known is remembered only at locations that can be entered twice (`plan.py`).

Search with Python that is written for the machine: no dependency, and the fastest engine up to some hundred thousand configurations.

Data are lists of whole numbers that go through comprehensions; what is known is a byte for each number, or a set when those would be too
many. Memory for one configuration: 8 bytes where the data stay as they were, else about 40, and up to 100 more at a location where
it is remembered in a set; a search that might take more than `MEMORY_BYTES` is stopped.
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
    loop,
    made,
    plan,
)
from dsa.expr import TRUE, Expr, any_of
from dsa.ground_system import Ground, GroundWatch

#: What configurations may take in all, in bytes; what is known comes to 2 GiB more at most.
MEMORY_BYTES = 8 * 2**30

#: What remembers the data of a location.
Known = Any
#: Leaves data: gives the locations entered, each with what is new there.
Leave = Callable[[Data], list[tuple[int, Data]]]


class Frontiers(ABC):
    """One search. An engine says how data are kept, and writes the lines of the functions that leave a location."""

    engine: ClassVar[str]
    #: So many configurations are looked at between two looks at the limits.
    slice_size: ClassVar[int]

    def __init__(self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, writer: Writer) -> None:
        self.ground, self.writer = ground, writer
        self.plan = plan(ground)
        self._limits = limits
        self._known: dict[int, Known] = {}
        self._leave: dict[int, Leave | None] = {}
        self._programs: dict[tuple[object, ...], Callable[..., Leave]] = {}
        self._taken = [0] * len(ground.rules)
        self._lookout = Lookout(writer, watches)
        self._layers: list[Layer] = []
        #: What a configuration takes at most, in bytes, as the engine keeps them.
        self.bytes_each = 1
        #: What the generated functions use.
        self.helpers: dict[str, Any] = {}

    @abstractmethod
    def first(self, data: int) -> Data:
        """Return the data of the start alone."""

    @abstractmethod
    def joined(self, parts: list[Data]) -> Data:
        """Return several data as one."""

    @abstractmethod
    def nothing_known(self) -> Known:
        """Return what remembers the data of one location."""

    @abstractmethod
    def remember(self, known: Known, data: int) -> None:
        """Remember the start."""

    @abstractmethod
    def filtered(self, name: str, condition: Text) -> Iterator[str]:
        """Write the lines that set `name` to those of `data` at which a condition is true."""

    @abstractmethod
    def entered(self, name: str, step: RuleStep, source: str, known: str | None) -> Iterator[str]:
        """Write the lines that set `name` to the data after a step from `source`: only those that are new if `known` is given."""

    def run(self, most_trials: float = inf) -> SearchResult:
        """Search until nothing is new, or until a limit; `most_trials` is one more: how often a rule may be tried on a configuration."""
        limits, volume, found, tried, complete = self._limits, self.ground.volume, 1, 0, True
        most = min(limits.max_states, MEMORY_BYTES // self.bytes_each)
        location, data = divmod(self.ground.start, volume)
        layer = {location: self.first(data)}
        if location in self.plan.remembered:
            self.remember(self._known_at(location), data)
        while layer and complete:
            self._layers.append(Layer(volume, tuple(layer.items())))
            following: dict[int, list[Data]] = {}
            for place, part in self._slices(layer):
                found += self._pass(place, part, following)
                tried += len(part) * len(self.plan.steps[place])
                limits.progress(found, len(self._layers))
                complete = found <= most and tried <= most_trials and not limits.expired()
                if not complete:
                    break
            complete = complete and not self._lookout.is_over
            layer = {place: p[0] if len(p) == 1 else self.joined(p) for place, p in following.items()}
        if layer:
            self._layers.append(Layer(volume, tuple(layer.items())))
        return self._found(found, complete=complete)

    def _slices(self, layer: dict[int, Data]) -> Iterator[tuple[int, Data]]:
        for location, data in layer.items():
            if len(data) <= self.slice_size:
                yield location, data
            else:
                for begin in range(0, len(data), self.slice_size):
                    yield location, data[begin : begin + self.slice_size]

    def _pass(self, location: int, data: Data, following: dict[int, list[Data]]) -> int:
        """Look at configurations of one location and leave them; tell how many new ones that gives."""
        self._lookout.look(location, data)
        if location not in self._leave:
            self._leave[location] = self._generated(location)
        leave, new = self._leave[location], 0
        if leave is not None:
            for target, entered in leave(data):
                following.setdefault(target, []).append(entered)
                new += len(entered)
        return new

    def _known_at(self, location: int) -> Known:
        if location not in self._known:
            self._known[location] = self.nothing_known()
        return self._known[location]

    def _generated(self, location: int) -> Leave | None:
        return self._leaving(self.plan.steps[location])

    def _leaving(self, steps: Sequence[RuleStep]) -> Leave | None:
        """Return what takes steps of one location; steps that differ in the numbers of rules and locations alone share a program."""
        remembered = self.plan.remembered
        if not steps:
            return None
        shape = tuple((id(step.move), step.stays, step.rule.target in remembered) for step in steps)
        if shape not in self._programs:
            self._programs[shape] = made(self._program(steps), **self.helpers)
        targets = [step.rule.target for step in steps]
        known = (self._known_at(target) if target in remembered else None for target in targets)
        return self._programs[shape](self._taken, *(step.places for step in steps), *targets, *known)

    def _program(self, steps: Sequence[RuleStep]) -> str:
        """Write a program: for step i, `pi` are its rules, `ti` is the location it leads to and `ki` what is known there."""
        lines = list[str]()
        lists: dict[Expr, str] = {TRUE: "data"}
        for number, step in enumerate(steps):
            condition, is_known = step.rule.condition, step.rule.target in self.plan.remembered
            if condition not in lists:
                lists[condition] = f"a{number}"
                lines += self.filtered(lists[condition], self.writer.condition(condition))
            lines.append(f"for p in p{number}: taken[p] += len({lists[condition]})")
            if not step.stays:
                lines += self.entered(f"b{number}", step, lists[condition], f"k{number}" if is_known else None)
                lines.append(f"if len(b{number}): new.append((t{number}, b{number}))")
        names = ", ".join(f"{kind}{number}" for kind in "ptk" for number in range(len(steps)))
        inside = "".join(f"  {line}\n" for line in lines)
        return f"def made(taken, {names}):\n def leave(data):\n  new = []\n{inside}  return new\n return leave"

    def _found(self, found: int, *, complete: bool) -> SearchResult:
        counts = [0] * len(self.ground.system.locations)
        for layer in self._layers:
            for location, data in layer.parts:
                counts[location] += len(data)
        taken = frozenset(rule for rule, times in enumerate(self._taken) if times)
        hits = tuple(self._lookout.hits)
        layers, ended = tuple(self._layers), self._lookout.is_over
        return SearchResult(self.engine, found, sum(self._taken), tuple(counts), taken, hits, complete, layers, ended)


class Lookout:
    """The watches of a search that were not hit yet; `hits` are numbers of configurations, or None. It `is_over` when one was hit that ends the search."""

    def __init__(self, writer: Writer, watches: Sequence[GroundWatch]) -> None:
        self.hits: list[int | None] = [None] * len(watches)
        self.is_over = False
        self._writer, self._watches = writer, watches
        self._pending: dict[int, dict[int, Expr]] = {}
        for index, watch in enumerate(watches):
            self._pending.setdefault(watch.location, {})[index] = watch.condition
        self._any: dict[int, Callable[[Data], int | None]] = {}

    def look(self, location: int, data: Data, quiet: Container[int] = ()) -> None:
        """Look at configurations of one location, in the order of their discovery; the `quiet` watches are known to be true at none of them."""
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
        """Return whether some condition is true, all in one; in a hurry they are looked at one by one, since most are known from other searches."""
        if self._writer.ground.hurries:
            return True
        if location not in self._any:
            self._any[location] = first_where(self._writer, any_of(pending.values()))
        return self._any[location](data) is not None

    def _first(self, condition: Expr) -> Callable[[Data], int | None]:
        written, key = self._writer.ground.conditions.code, ("first", self._writer.arrays, condition)
        if key not in written:
            written[key] = first_where(self._writer, condition)
        first: Callable[[Data], int | None] = written[key]
        return first


#: What is known is a byte for each number when that is not more than this at one location, and in all; else it is a set.
_MAX_BYTES_AT_ONE, _MAX_BYTES = 2**26, 2**28


def search(
    ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, most_trials: float = inf
) -> SearchResult:
    """Search everything that can happen, or as much of it as takes no more than so many trials of a rule on a configuration."""
    return Lists(ground, watches, limits, Writer(ground)).run(most_trials)


class Lists(Frontiers):
    """A search in lists; `in_bytes` tells whether what is known is a byte for each number."""

    engine: ClassVar[str] = "python"
    slice_size: ClassVar[int] = 2**16

    def __init__(self, ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits, writer: Writer) -> None:
        super().__init__(ground, watches, limits, writer)
        in_all = ground.volume * len(self.plan.remembered)
        self.in_bytes = ground.volume <= _MAX_BYTES_AT_ONE and in_all <= _MAX_BYTES
        self.bytes_each = 48 if self.in_bytes else 150

    def first(self, data: int) -> Data:
        """Return the data of the start alone."""
        return [data]

    def joined(self, parts: list[Data]) -> Data:
        """Return several lists as one."""
        return list(chain.from_iterable(parts))

    def nothing_known(self) -> Known:
        """Return bytes, or a set."""
        return bytearray(self.ground.volume) if self.in_bytes else set()

    def remember(self, known: Known, data: int) -> None:
        """Remember the start."""
        if self.in_bytes:
            known[data] = 1
        else:
            known.add(data)

    def filtered(self, name: str, condition: Text) -> Iterator[str]:
        """Write a comprehension."""
        yield f"{name} = [{DATA} {loop(condition.bindings, 'data')} if {condition.text}]"

    def entered(self, name: str, step: RuleStep, source: str, known: str | None) -> Iterator[str]:
        """Write a comprehension, and what remembers its result."""
        after = self.writer.target(step.rule)
        over = loop(after.bindings, source)
        if known is None:
            yield f"{name} = {source if after.text == DATA else f'[{after.text} {over}]'}"
            return
        is_new = f"not {known}[t]" if self.in_bytes else f"t not in {known}"
        found = f"t {over} for t in ({after.text},) if {is_new}"
        yield f"{name} = [{found}]" if step.move.is_constant else f"{name} = list({{{found}}})"
        yield f"for t in {name}: {known}[t] = 1" if self.in_bytes else f"{known}.update({name})"
