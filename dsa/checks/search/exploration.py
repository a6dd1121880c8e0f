"""Which engine searches which system: by size, by shape, and by what is installed.

Every search begins in Python, which needs nothing and is under way at once; most systems are done there. What is larger goes to
NumPy when it is installed; to C when there is a compiler and what is known would need a hash table; to decision diagrams when more
configurations are allowed than could be held. Else it stays in Python. Which engine it was is in `Found.engine`.

Memory: Python takes up to 150 bytes for each configuration, NumPy up to 60, so a limit on configurations is one on memory; and no engine
goes beyond a bound of its own, whatever is allowed: it stops, and the search is not complete.

Only the engine in Python is imported; the others are loaded by name when they are asked, which most checks never do.

Shortest ways to what was found, from a second pass: a search keeps no predecessors, its layers are enough to find them.

Takes a `Ground` and what a search found there. A way of k steps is found by looking through one layer for each step, from the last
one back: in all at most as long as the search took. Of a search that kept no layers, ways are found by decision diagrams, or after
searching again.

Everything a machine can do at its parameters' values: exact exploration, with shortest traces.

Takes a machine and explores its closed system (S1-S12): any outside event that has rows here, any answer of an outstanding
effect, any armed timer, each with every combination of the verdicts that its rows read. Gives an `Exploration`. An engine does the
search (`automatic` chooses it: by size, and by what is installed). A configuration takes at most some 150 bytes, often 8, so
`max_states` bounds the memory. Knows no clock: who wants a time limit or the seconds hands one in.
"""

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING

import attrs

from dsa.checks.search import python_engine
from dsa.checks.search.engine import (
    Data,
    Engine,
    Layer,
    Progress,
    SearchLimits,
    SearchResult,
    Writer,
    first_where,
    leads_where,
    split,
    stopped_by,
)
from dsa.errors import DsaError
from dsa.expr import FALSE, Expr, Value, all_of, any_of, negation
from dsa.ground_system import Ground, GroundRule, GroundWatch, ground
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Refusal, step
from dsa.system import System, SystemFault, closed_system
from dsa.trace import Trace, follow

if TYPE_CHECKING:
    from dsa.checks.search.c_engine import Compile

#: Up to so many trials of a rule on a configuration no other engine than Python's is asked. They take some tenths of a second, which is
#: what NumPy's import takes of the processor; for a million configurations, if two or three rules concern each.
TRIALS = 3_000_000
#: An engine that gives up after so many trials.
First = Callable[[Ground, Sequence[GroundWatch], SearchLimits, float], SearchResult]
#: More configurations than this are not held one by one.
HELD = 1_000_000_000
#: With fewer configurations at a distance than this, NumPy has nothing to gain.
_THIN = 32


def loaded(engine: str) -> ModuleType:
    """Return the module of an engine that few checks need: `numpy_engine`, `c_engine` or `bdd_engine`."""
    return importlib.import_module(f"dsa.checks.search.{engine}")


def automatic(compile_c: "Compile | None" = None, first: First = python_engine.search) -> Engine:
    """Return the engine that chooses; `compile_c` makes a library of C text, where there is a compiler. `first` is asked first, for a search of so many trials."""

    def search(ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
        found = first(ground, watches, limits, TRIALS)
        if found.is_all(limits):
            return found
        for engine in _for_large(ground, watches, found, limits, compile_c):
            try:
                return engine(ground, watches, limits)
            except (DsaError, MemoryError):  # no library came of it, or there is no room: the next one
                continue
        return python_engine.search(ground, watches, limits)

    return search


def diagrams_count(ground: Ground) -> bool:
    """Return whether decision diagrams can be expected to count a system that is too large to be held."""
    return find_spec("dd") is not None and bool(loaded("bdd_engine").worth_it(ground))


def _for_large(
    ground: Ground,
    watches: Sequence[GroundWatch],
    begun: SearchResult,
    limits: SearchLimits,
    compile_c: "Compile | None",
) -> Iterator[Engine]:
    """Yield the engines to ask for a system that is not small, the best first."""
    assert begun.layers is not None, "the engine in Python keeps its layers"
    if limits.max_states > HELD and diagrams_count(ground):
        yield loaded("bdd_engine").search
    if begun.configurations < _THIN * len(begun.layers):
        return
    vectors = loaded("numpy_engine")
    arrays = vectors.installed() and vectors.fits(ground, watches)
    if arrays and vectors.has_room(ground):
        yield vectors.search
    if compile_c is not None and loaded("c_engine").fits(ground, watches):
        yield partial(loaded("c_engine").search, compile_c=compile_c)
    if arrays:
        yield vectors.search


@attrs.frozen
class Leap:
    """A step of a way: the rule (an index into the ground's) and the number of the configuration it leads to."""

    rule: int
    number: int


@attrs.frozen(slots=False)
class Paths:
    """The ways to what a search found. Raises ValueError when the search kept no layers."""

    ground: Ground
    found: SearchResult

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The configurations by distance and location."""
        if self.found.layers is None:
            raise ValueError(f"the engine {self.found.engine} kept no layers, so there are no ways to follow")
        return tuple(split(layer, self.ground.volume) for layer in self.found.layers)

    @cached_property
    def _parts(self) -> tuple[dict[int, Data], ...]:
        return tuple(dict(layer.parts) for layer in self.layers)

    def depth(self, number: int) -> int:
        """Return the distance of a configuration from the start; KeyError when it was not found."""
        location, data = divmod(number, self.ground.volume)
        for depth, parts in enumerate(self._parts):
            if location in parts and data in parts[location]:
                return depth
        raise KeyError(number)

    def to(self, number: int) -> list[Leap]:
        """Return the steps of a shortest way from the start to a configuration; KeyError when it was not found."""
        leaps: list[Leap] = []
        for depth in reversed(range(self.depth(number))):
            rule, before = self._before(depth, number)
            leaps.append(Leap(rule, number))
            number = before
        return leaps[::-1]

    def taking(self, rules: Collection[int]) -> tuple[int, int] | None:
        """Return a configuration nearest to the start at which one of some rules is taken, and the rule; None when there is none."""
        wanted = [(place, self.ground.rules[place]) for place in sorted(rules)]
        for parts in self._parts:
            for place, rule in wanted:
                if rule.source in parts:
                    data = self._enabled(rule, parts[rule.source])
                    if data is not None:
                        return rule.source * self.ground.volume + data, place
        return None

    def _before(self, depth: int, number: int) -> tuple[int, int]:
        """Return a rule and a configuration of the layer at `depth` that it leads from to `number`."""
        location, after = divmod(number, self.ground.volume)
        for place, rule in self._into.get(location, ()):
            data = self._parts[depth].get(rule.source)
            found = None if data is None else self._leading(place, rule, data, after)
            if found is not None:
                return place, rule.source * self.ground.volume + found
        raise AssertionError("every configuration has one before it in the layer before its own")

    @cached_property
    def _into(self) -> dict[int, list[tuple[int, GroundRule]]]:
        """The rules into each location; of several that do the same, the first."""
        found: dict[int, list[tuple[int, GroundRule]]] = {}
        known: set[tuple[object, ...]] = set()
        for place, rule in enumerate(self.ground.rules):
            key = (rule.source, rule.target, rule.condition, rule.updates)
            if key not in known:
                known.add(key)
                found.setdefault(rule.target, []).append((place, rule))
        return found

    def _enabled(self, rule: GroundRule, data: Data) -> int | None:
        found = first_where(self._writer(data), rule.condition)(data)
        return None if found is None else int(found)

    def _leading(self, place: int, rule: GroundRule, data: Data, after: int) -> int | None:
        writer = self._writer(data)
        if (place, writer.arrays) not in self._leads:
            self._leads[place, writer.arrays] = leads_where(writer, rule)
        return self._leads[place, writer.arrays](data, after)

    def _writer(self, data: Data) -> Writer:
        return Writer(self.ground, arrays=hasattr(data, "dtype"))

    @cached_property
    def _leads(self) -> dict[tuple[int, bool], Callable[[Data, int], int | None]]:
        return {}


@attrs.frozen
class _Diagrams:
    """The ways to what decision diagrams found, as `Paths` gives them: each is a search of its own."""

    ground: Ground
    found: SearchResult

    @property
    def layers(self) -> tuple[Layer, ...]:
        return Paths(self.ground, self.found).layers

    def to(self, number: int) -> list[Leap]:
        try:
            way = loaded("bdd_engine").path(self.ground, number, self._limits)
        except ValueError:
            raise KeyError(number) from None
        assert way is not None, "no limit is set"
        places = {id(rule): place for place, rule in enumerate(self.ground.rules)}
        return [
            Leap(next(places[id(rule)] for rule, number in self.ground.successors(before) if number == after), after)
            for before, after in pairwise(way)
        ]

    def taking(self, rules: Collection[int]) -> tuple[int, int] | None:
        wanted = [(place, self.ground.rules[place]) for place in sorted(rules)]
        watches = [GroundWatch(rule.source, rule.condition) for _, rule in wanted]
        hits = loaded("bdd_engine").search(self.ground, watches, self._limits).hits
        found = [(hit, place) for hit, (place, _) in zip(hits, wanted, strict=True) if hit is not None]
        return min(found, key=lambda hit: self.depth(hit[0]), default=None)

    def depth(self, number: int) -> int:
        return len(self.to(number))

    @property
    def _limits(self) -> SearchLimits:
        return SearchLimits(self.found.configurations)


Ways = Paths | _Diagrams


def ways(ground: Ground, found: SearchResult) -> Ways:
    """Return what finds ways to what was found."""
    if found.layers is not None:
        return Paths(ground, found)
    if found.engine == "bdd":
        return _Diagrams(ground, found)
    return Paths(ground, automatic()(ground, (), SearchLimits(found.configurations)))


MAX_STATES = 10_000_000

Clock = Callable[[], float]


@attrs.frozen
class Witness:
    """An occurrence that is refused in a configuration that can be reached."""

    configuration: Configuration
    occurrence: Occurrence
    refusal: Refusal


@attrs.frozen(slots=False)
class Exploration:
    """What was reached from the start at the machine's parameter values.

    `transitions` counts accepted (configuration, event, verdicts). `states` are the leaves reached, `rows` the indexes of
    the rows taken. `refusals` has a nearest witness for each reason and the rows concerned, `deadlocks` a nearest
    configuration of each state. `complete` is False when a limit was met, which `limit` names: then what is not here is unknown. `also` has, for
    each condition that was asked for besides, the number of a nearest configuration at which it is true.
    """

    machine: Machine = attrs.field(repr=False)
    configurations: int
    transitions: int
    states: frozenset[str]
    rows: frozenset[int]
    refusals: tuple[Witness, ...]
    deadlocks: tuple[Configuration, ...]
    complete: bool
    seconds: float | None = attrs.field(default=None, eq=False)
    limit: str = attrs.field(default="", eq=False, kw_only=True)
    engine: str = attrs.field(default="python", eq=False, kw_only=True)
    ground: Ground = attrs.field(eq=False, repr=False, kw_only=True)
    found: SearchResult = attrs.field(eq=False, repr=False, kw_only=True)
    also: tuple[int | None, ...] = attrs.field(default=(), eq=False, repr=False, kw_only=True)

    @property
    def parameters(self) -> dict[str, Value]:
        """The parameters' values."""
        return self.machine.constants

    @property
    def rests(self) -> frozenset[str]:
        """The leaves that some configuration reached has with nothing outstanding and no timer armed, final ones apart."""
        system = self.ground.system
        places = (place for place, count in enumerate(self.found.locations) if count)
        resting = (place for place in places if system.may_rest(place) and not system.is_final(place))
        return frozenset(system.locations[place].state for place in resting)

    def reached(self) -> Iterator[Configuration]:
        """Return every configuration, nearest to the start first."""
        return (self.ground.decode(number) for layer in self._ways.layers for number in layer)

    def way_back(self, configuration: Configuration) -> Iterator[tuple[Configuration, Occurrence]]:
        """Yield the steps of a shortest trace from the last to the first: the configuration before, and what happened."""
        leaps = self._ways.to(self._number(configuration))
        before = [self.ground.start, *(leap.number for leap in leaps)]
        for leap, number in zip(reversed(leaps), reversed(before[:-1]), strict=True):
            yield self.ground.decode(number), self._occurrence(leap.rule)

    def trace_to(self, configuration: Configuration) -> Trace:
        """Return a shortest trace to a configuration; KeyError when it was not reached."""
        return follow(self.machine, self._way_to(self._number(configuration)))

    def trace_taking(self, row: int) -> Trace:
        """Return a shortest trace that ends by taking the row of that index; KeyError when it was never taken."""
        commands = self.ground.system.commands
        taken = self._ways.taking([r for r in self.found.taken if commands[self.ground.rules[r].command].row == row])
        if taken is None:
            raise KeyError(row)
        number, rule = taken
        return follow(self.machine, [*self._way_to(number), self._occurrence(rule)])

    def _way_to(self, number: int) -> list[Occurrence]:
        return [self._occurrence(leap.rule) for leap in self._ways.to(number)]

    def _occurrence(self, rule: int) -> Occurrence:
        return self.ground.system.commands[self.ground.rules[rule].command].occurrence

    def _number(self, configuration: Configuration) -> int:
        values = zip(self.machine.variables, configuration.values, strict=True)
        if not all(self.machine.values_of[variable.name].contains(value) for variable, value in values):
            raise KeyError(configuration)
        return self.ground.encode(configuration)

    @cached_property
    def _ways(self) -> Ways:
        return ways(self.ground, self.found)


def explore(
    machine: Machine,
    *,
    max_states: int = MAX_STATES,
    time_limit_s: float | None = None,
    clock: Clock | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    system: System | None = None,
    also: Sequence[tuple[int, Expr]] = (),
) -> Exploration:
    """Explore from `start(machine)` until nothing is new, or until a limit.

    `time_limit_s` needs a `clock` that gives seconds; ValueError without one. `progress` is told now and then how many
    configurations were found, and how far from the start. The start is assumed to lie in its domains. `system` is the machine's closed
    system, where it is known. `also` are conditions at locations to look out for besides: the exploration's `also` says where
    each is met.
    """
    limits = limits_until(max_states, time_limit_s, clock, progress)
    return explored(system or closed_system(machine, limits.expired), limits, clock=clock, engine=engine, also=also)


def limits_until(
    max_states: int, time_limit_s: float | None, clock: Clock | None, progress: Progress | None = None
) -> SearchLimits:
    """Return limits of which the time begins now. Raises ValueError for a time limit without a clock."""
    limits = SearchLimits(max_states)
    if progress:
        limits = attrs.evolve(limits, progress=progress)
    if time_limit_s is None:
        return limits
    if clock is None:
        raise ValueError("a time limit needs a clock")
    ends_s = clock() + time_limit_s
    return attrs.evolve(limits, expired=lambda: clock() >= ends_s)


def explored(
    system: System,
    limits: SearchLimits,
    *,
    clock: Clock | None = None,
    engine: Engine | None = None,
    also: Sequence[tuple[int, Expr]] = (),
    hurries: bool = False,
) -> Exploration:
    """Explore a closed system within limits; `hurries` is for `ground`, the rest is as in `explore`."""
    began_s = clock() if clock else 0.0
    lookout = _Lookout(ground(system, hurries=hurries, is_late=limits.expired), also)
    found = (engine or automatic())(lookout.ground, lookout.watches, limits)
    exploration = lookout.result(found)
    limit = "" if found.complete else stopped_by(found, limits)
    return attrs.evolve(exploration, limit=limit, seconds=clock() - began_s if clock else None)


class _Lookout:
    """What an exploration looks out for besides the reachable: every fault, and every state without a way on."""

    def __init__(self, grounded: Ground, also: Sequence[tuple[int, Expr]]) -> None:
        self.ground = grounded
        system = grounded.system
        faults = [(fault.location, _seen_when(grounded, fault)) for fault in system.faults]
        stuck = list(_deadlocks(grounded))
        wanted = grounded.watches([*faults, *stuck])
        things: list[SystemFault | None] = [*system.faults, *(None for _ in stuck)]
        pairs = [(watch, thing) for watch, thing in zip(wanted, things, strict=True) if watch is not None]
        if grounded.hurries:  # what must not happen is all that is asked of a search then
            pairs = [(attrs.evolve(watch, ends=_is_wrong(thing)), thing) for watch, thing in pairs]
        self._things = tuple(thing for _, thing in pairs)
        asked = grounded.watches(also)
        self.watches: tuple[GroundWatch, ...] = tuple(
            w for w in (*(watch for watch, _ in pairs), *asked) if w is not None
        )
        self._is_asked = tuple(watch is not None for watch in asked)

    def result(self, found: SearchResult) -> Exploration:
        system, machine = self.ground.system, self.ground.system.machine
        seen = self._nearest_first(found)
        asked = iter(found.hits[len(self._things) :])
        return Exploration(
            machine,
            found.configurations,
            found.transitions,
            frozenset(here.state for here, count in zip(system.locations, found.locations, strict=True) if count),
            frozenset(system.commands[self.ground.rules[rule].command].row for rule in found.taken),
            _witnesses(machine, ((fault, configuration) for fault, configuration in seen if fault is not None)),
            tuple(configuration for fault, configuration in seen if fault is None),
            found.complete and not system.left_out,
            engine=found.engine,
            ground=self.ground,
            found=found,
            also=tuple(next(asked) if is_asked else None for is_asked in self._is_asked),
        )

    def _nearest_first(self, found: SearchResult) -> list[tuple[SystemFault | None, Configuration]]:
        own = found.hits[: len(self._things)]
        hits = [(number, place) for place, number in enumerate(own) if number is not None]
        if len(hits) > 1 and found.layers is not None:
            depth = Paths(self.ground, found).depth
            hits.sort(key=lambda hit: (depth(hit[0]), hit[1]))
        return [(self._things[place], self.ground.decode(number)) for number, place in hits]


def _is_wrong(thing: SystemFault | None) -> bool:
    """Return whether something is a fault of rows that can be taken, which is reported before all others."""
    return thing is not None and thing.reason != "invalid_state"


def _seen_when(grounded: Ground, fault: SystemFault) -> Expr:
    """Return when a fault is one: what comes from outside to a run that is finished at an end is none."""
    end = grounded.system.end_at(fault.location)
    if end == FALSE or fault.reason != "invalid_state":
        return fault.condition
    ways = any_of(rule.condition for rule in grounded.rules_at[fault.location])
    return all_of([fault.condition, any_of([negation(end), ways])])


def _deadlocks(grounded: Ground) -> Iterator[tuple[int, Expr]]:
    """Yield when nothing can go on: at locations that are not final, with nothing outstanding and nothing armed."""
    system: System = grounded.system
    for place, rules in enumerate(grounded.rules_at):
        if system.may_rest(place) and not system.is_final(place):
            yield place, negation(any_of([system.end_at(place), *(rule.condition for rule in rules)]))


def _witnesses(machine: Machine, seen: Iterable[tuple[SystemFault, Configuration]]) -> tuple[Witness, ...]:
    """Return the nearest witness for each reason and the rows concerned; for a missing case, for each state and occurrence."""
    found: dict[tuple[object, ...], Witness] = {}
    for fault, configuration in seen:
        refusal = step(machine, configuration, fault.occurrence)
        assert isinstance(refusal, Refusal), "the system agrees with the reference"
        missing = (configuration.state, fault.occurrence) if fault.reason == "invalid_state" else ()
        key = (refusal.reason, *missing, *map(id, () if missing else refusal.rows))
        found.setdefault(key, Witness(configuration, fault.occurrence, refusal))
    return tuple(found.values())
