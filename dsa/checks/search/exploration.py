"""Explorations: everything that a machine can do at its parameters' values, with shortest traces.

Takes a machine and explores its closed system (S1-S12): any outside event that has rows there, any answer of an outstanding effect, any
armed timer, each with every combination of the verdicts that its rows read. Gives an `Exploration`. Has no clock of its own: a caller who
wants a time limit or the seconds passes one.

`automatic` chooses the engine by size, by shape, and by what is installed. Every search begins in Python, which needs nothing and starts at
once; most systems are finished there. What is larger goes to NumPy when it is installed; to C when there is a compiler and the search would
need a hash table; to decision diagrams when more configurations are allowed than could be held. Otherwise it stays in Python.
`SearchResult.engine` names the engine. All engines but the one in Python are imported by name when they are asked for, which most checks
never do. Python takes up to 150 bytes for each configuration and NumPy up to 60, so `max_states` bounds the memory; and no engine goes
beyond a bound of its own: it stops there, and the search is not complete.

`ways` finds shortest ways in a second pass, since a search keeps no predecessors: its layers are enough. A way of k steps takes one look
through a layer for each step, from the last one back: in all at most as long as the search took. Where a search kept no layers, decision
diagrams find the ways, or the system is searched again.
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
from dsa.expr import FALSE, TRUE, Expr, Value, all_of, any_of, negation
from dsa.ground_system import Ground, GroundRule, GroundWatch, ground
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Refusal, step
from dsa.system import System, SystemFault, closed_system
from dsa.trace import Trace, follow

if TYPE_CHECKING:
    from dsa.checks.search.c_engine import Compile

#: Up to this many trials of a rule on a configuration, only the engine in Python searches. They take some tenths of a second, which is
#: what NumPy's import takes of the processor; for a million configurations, if two or three rules concern each.
TRIALS = 3_000_000
#: An engine that gives up after a number of trials.
FirstEngine = Callable[[Ground, Sequence[GroundWatch], SearchLimits, float], SearchResult]
#: More configurations than this are not held one by one.
MAX_HELD = 1_000_000_000
#: With fewer configurations at a distance than this, NumPy is not faster.
_THIN = 32


def engine_module(engine: str) -> ModuleType:
    """Return the module of an engine that few checks need: `numpy_engine`, `c_engine` or `bdd_engine`."""
    return importlib.import_module(f"dsa.checks.search.{engine}")


def automatic(compile_c: "Compile | None" = None, first: FirstEngine = python_engine.search) -> Engine:
    """Return the engine that chooses; `compile_c` makes a library of C text, where there is a compiler.

    `first` searches first, with at most `TRIALS` trials. Once a system of a machine took more, so will that system with observers: later
    searches of the same machine begin with the engine for large ones.
    """
    large_machine: Machine | None = None
    is_thin = False

    def search(ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
        nonlocal large_machine, is_thin
        if ground.system.machine is not large_machine:
            result = first(ground, watches, limits, TRIALS)
            if result.is_all(limits):
                return result
            assert result.layers is not None, "the engine in Python keeps its layers"
            large_machine, is_thin = ground.system.machine, result.configurations < _THIN * len(result.layers)
        for engine in _for_large(ground, watches, limits, compile_c, is_thin=is_thin):
            try:
                return engine(ground, watches, limits)
            except (DsaError, MemoryError):  # no library, or no room: try the next one
                continue
        return python_engine.search(ground, watches, limits)

    return search


def diagrams_count(ground: Ground) -> bool:
    """Return whether decision diagrams can be expected to count a system that is too large to be held."""
    return find_spec("dd") is not None and bool(engine_module("bdd_engine").worth_it(ground))


def _for_large(
    ground: Ground,
    watches: Sequence[GroundWatch],
    limits: SearchLimits,
    compile_c: "Compile | None",
    *,
    is_thin: bool,
) -> Iterator[Engine]:
    """Yield the engines for a system that is not small, the best first."""
    if limits.max_states > MAX_HELD and diagrams_count(ground):
        yield engine_module("bdd_engine").search
    if is_thin:
        return
    vectors = engine_module("numpy_engine")
    arrays = vectors.is_installed() and vectors.fits(ground, watches)
    if arrays and vectors.has_room(ground):
        yield vectors.search
    if compile_c is not None and engine_module("c_engine").fits(ground, watches):
        yield partial(engine_module("c_engine").search, compile_c=compile_c)
    if arrays:
        yield vectors.search


@attrs.frozen
class Leap:
    """A step of a way: the rule (an index into the ground's) and the number of the configuration it leads to."""

    rule: int
    number: int


@attrs.frozen(slots=False)
class Paths:
    """The ways to the configurations that a search found. Raises ValueError when the search kept no layers."""

    ground: Ground
    result: SearchResult

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The configurations by distance and location."""
        if self.result.layers is None:
            raise ValueError(
                f"the engine {self.result.engine} did not store its layers, so there are no paths to follow"
            )
        return tuple(split(layer, self.ground.volume) for layer in self.result.layers)

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

    def nearest_taking(self, rules: Collection[int]) -> tuple[int, int] | None:
        """Return a configuration nearest to the start at which one of some rules is taken, and the rule; None when there is none."""
        candidates = [(place, self.ground.rules[place]) for place in sorted(rules)]
        for parts in self._parts:
            for place, rule in candidates:
                if rule.source in parts:
                    data = self._first_enabled(rule, parts[rule.source])
                    if data is not None:
                        return rule.source * self.ground.volume + data, place
        return None

    def _before(self, depth: int, number: int) -> tuple[int, int]:
        """Return a rule and a configuration of the layer at `depth` that it leads from to `number`."""
        location, after = divmod(number, self.ground.volume)
        for place, rule in self._into.get(location, ()):
            data = self._parts[depth].get(rule.source)
            source_data = None if data is None else self._first_leading(place, rule, data, after)
            if source_data is not None:
                return place, rule.source * self.ground.volume + source_data
        raise AssertionError("every configuration has one before it in the layer before its own")

    @cached_property
    def _into(self) -> dict[int, list[tuple[int, GroundRule]]]:
        """The rules into each location; of several that do the same, the first."""
        rules_by_target: dict[int, list[tuple[int, GroundRule]]] = {}
        keys: set[tuple[object, ...]] = set()
        for place, rule in enumerate(self.ground.rules):
            key = (rule.source, rule.target, rule.condition, rule.updates)
            if key not in keys:
                keys.add(key)
                rules_by_target.setdefault(rule.target, []).append((place, rule))
        return rules_by_target

    def _first_enabled(self, rule: GroundRule, data: Data) -> int | None:
        first = first_where(self._writer(data), rule.condition)(data)
        return None if first is None else int(first)

    def _first_leading(self, place: int, rule: GroundRule, data: Data, after: int) -> int | None:
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
    """The ways to the configurations that decision diagrams found, as in `Paths`: each is a search of its own."""

    ground: Ground
    result: SearchResult

    @property
    def layers(self) -> tuple[Layer, ...]:
        return Paths(self.ground, self.result).layers

    def to(self, number: int) -> list[Leap]:
        try:
            way = engine_module("bdd_engine").path(self.ground, number, self._limits)
        except ValueError:
            raise KeyError(number) from None
        assert way is not None, "no limit is set"
        places = {id(rule): place for place, rule in enumerate(self.ground.rules)}
        return [
            Leap(next(places[id(rule)] for rule, number in self.ground.successors(before) if number == after), after)
            for before, after in pairwise(way)
        ]

    def nearest_taking(self, rules: Collection[int]) -> tuple[int, int] | None:
        candidates = [(place, self.ground.rules[place]) for place in sorted(rules)]
        watches = [GroundWatch(rule.source, rule.condition) for _, rule in candidates]
        hits = engine_module("bdd_engine").search(self.ground, watches, self._limits).hits
        pairs = [(hit, place) for hit, (place, _) in zip(hits, candidates, strict=True) if hit is not None]
        return min(pairs, key=lambda hit: self.depth(hit[0]), default=None)

    def depth(self, number: int) -> int:
        return len(self.to(number))

    @property
    def _limits(self) -> SearchLimits:
        return SearchLimits(self.result.configurations)


Ways = Paths | _Diagrams


def ways(ground: Ground, result: SearchResult) -> Ways:
    """Return the ways to the configurations of a search."""
    if result.layers is not None:
        return Paths(ground, result)
    if result.engine == "bdd":
        return _Diagrams(ground, result)
    return Paths(ground, automatic()(ground, (), SearchLimits(result.configurations)))


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

    `transitions` counts accepted (configuration, event, verdicts). `states` are the leaves reached, `rows` the indexes
    of the rows taken. `refusals` has a nearest witness for each reason and the rows concerned, `deadlocks` a nearest
    configuration of each state. `complete` is False when a limit was reached, which `limit` names: then the rest is
    unknown. `also` has, for each additional condition, the number of a nearest configuration at which it is true.
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
    result: SearchResult = attrs.field(eq=False, repr=False, kw_only=True)
    also: tuple[int | None, ...] = attrs.field(default=(), eq=False, repr=False, kw_only=True)
    #: The leaves of configurations reached at which no counted effect is outstanding, of those locations where it depends on the numbers.
    counted_idle_states: frozenset[str] = attrs.field(default=frozenset(), eq=False, repr=False, kw_only=True)

    @property
    def parameters(self) -> dict[str, Value]:
        """The parameters' values."""
        return self.machine.constants

    @property
    def idle_states(self) -> frozenset[str]:
        """The leaves that some configuration reached has with nothing outstanding, final ones apart."""
        system = self.ground.system
        places = (place for place, count in enumerate(self.result.locations) if count)
        always = (place for place in places if system.is_idle(place) == TRUE and not system.is_final(place))
        return frozenset(system.locations[place].state for place in always) | self.counted_idle_states

    def all_configurations(self) -> Iterator[Configuration]:
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
        taken = self._ways.nearest_taking(
            [r for r in self.result.taken if commands[self.ground.rules[r].command].row == row]
        )
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
        return ways(self.ground, self.result)


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

    `time_limit_s` needs a `clock` that gives seconds; ValueError without one. `progress` is called now and then with how many
    configurations were found, and how far from the start. The start is assumed to lie in its domains. `system` is the machine's closed
    system, where it is known. `also` are additional conditions at locations to look out for: the exploration's `also` has where each is met.
    """
    limits = limits_until(max_states, time_limit_s, clock, progress)
    return explore_system(
        system or closed_system(machine, limits.is_expired), limits, clock=clock, engine=engine, also=also
    )


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
    return attrs.evolve(limits, is_expired=lambda: clock() >= ends_s)


def explore_system(
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
    lookout = _Lookout(ground(system, hurries=hurries, is_late=limits.is_expired), also)
    result = (engine or automatic())(lookout.ground, lookout.watches, limits)
    exploration = lookout.result(result)
    limit = "" if result.complete else stopped_by(result, limits)
    return attrs.evolve(exploration, limit=limit, seconds=clock() - began_s if clock else None)


class _Lookout:
    """The watches of an exploration: every fault, every state without a way on, and additional conditions."""

    def __init__(self, ground: Ground, also: Sequence[tuple[int, Expr]]) -> None:
        self.ground = ground
        system = ground.system
        faults = [(fault.location, _seen_when(ground, fault)) for fault in system.faults]
        deadlocks = list(_deadlocks(ground))
        watches = ground.watches([*faults, *deadlocks])
        things: list[SystemFault | None] = [*system.faults, *(None for _ in deadlocks)]
        pairs = [(watch, thing) for watch, thing in zip(watches, things, strict=True) if watch is not None]
        if ground.hurries:  # then a search only has to find what must not happen
            pairs = [(attrs.evolve(watch, ends=_is_wrong(thing)), thing) for watch, thing in pairs]
        self._things = tuple(thing for _, thing in pairs)
        extra_watches = ground.watches(also)
        idle = [(place, system.is_idle(place)) for place in range(len(system.locations)) if not system.is_final(place)]
        self._idle = tuple(w for w in ground.watches(r for r in idle if r[1] not in (TRUE, FALSE)) if w is not None)
        self.watches: tuple[GroundWatch, ...] = tuple(
            w for w in (*(watch for watch, _ in pairs), *self._idle, *extra_watches) if w is not None
        )
        self._is_asked = tuple(watch is not None for watch in extra_watches)

    def result(self, result: SearchResult) -> Exploration:
        system, machine = self.ground.system, self.ground.system.machine
        hits = self._nearest_first(result)
        idle_hits = zip(self._idle, result.hits[len(self._things) :], strict=False)
        extra_hits = iter(result.hits[len(self._things) + len(self._idle) :])
        return Exploration(
            machine,
            result.configurations,
            result.transitions,
            frozenset(here.state for here, count in zip(system.locations, result.locations, strict=True) if count),
            frozenset(system.commands[self.ground.rules[rule].command].row for rule in result.taken),
            _witnesses(machine, ((fault, configuration) for fault, configuration in hits if fault is not None)),
            tuple(configuration for fault, configuration in hits if fault is None),
            result.complete and not system.left_out,
            engine=result.engine,
            ground=self.ground,
            result=result,
            also=tuple(next(extra_hits) if is_asked else None for is_asked in self._is_asked),
            counted_idle_states=frozenset(
                system.locations[w.location].state for w, hit in idle_hits if hit is not None
            ),
        )

    def _nearest_first(self, result: SearchResult) -> list[tuple[SystemFault | None, Configuration]]:
        own = result.hits[: len(self._things)]
        hits = [(number, place) for place, number in enumerate(own) if number is not None]
        if len(hits) > 1 and result.layers is not None:
            depth = Paths(self.ground, result).depth
            hits.sort(key=lambda hit: (depth(hit[0]), hit[1]))
        return [(self._things[place], self.ground.decode(number)) for number, place in hits]


def _is_wrong(thing: SystemFault | None) -> bool:
    """Return whether something is a fault of rows that can be taken, which is reported before all others."""
    return thing is not None and thing.reason != "invalid_state"


def _seen_when(ground: Ground, fault: SystemFault) -> Expr:
    """Return the condition that a fault counts: an event from outside to a run that is finished at an end does not."""
    end = ground.system.end_at(fault.location)
    if end == FALSE or fault.reason != "invalid_state":
        return fault.condition
    ways = any_of(rule.condition for rule in ground.rules_at[fault.location])
    return all_of([fault.condition, any_of([negation(end), ways])])


def _deadlocks(ground: Ground) -> Iterator[tuple[int, Expr]]:
    """Yield when nothing can go on: at locations that are not final, with nothing outstanding and nothing armed."""
    system: System = ground.system
    for place, rules in enumerate(ground.rules_at):
        rests = system.may_rest(place)
        if rests != FALSE and not system.is_final(place):
            goes_on = [system.end_at(place), *(rule.condition for rule in rules)]
            yield place, all_of([rests, negation(any_of(goes_on))])


def _witnesses(machine: Machine, hits: Iterable[tuple[SystemFault, Configuration]]) -> tuple[Witness, ...]:
    """Return the nearest witness for each reason and the rows concerned; for a missing case, for each state and occurrence."""
    witnesses: dict[tuple[object, ...], Witness] = {}
    for fault, configuration in hits:
        refusal = step(machine, configuration, fault.occurrence)
        assert isinstance(refusal, Refusal), "the system agrees with the reference"
        missing = (configuration.state, fault.occurrence) if fault.reason == "invalid_state" else ()
        key = (refusal.reason, *missing, *map(id, () if missing else refusal.rows))
        witnesses.setdefault(key, Witness(configuration, fault.occurrence, refusal))
    return tuple(witnesses.values())
