"""Breadth-first exploration of everything a machine can do, with shortest traces.

Takes a machine at its parameters' values and explores the closed system (S1-S12): any outside event that has rows here, any
answer of an outstanding effect, any armed timer, each with every combination of the verdicts that its rows read. Gives
an `Exploration`. One configuration takes some 400 bytes; limits stop it and are reported. Knows no clock: who wants a time
limit or the seconds hands one in.
"""

from collections.abc import Callable, Iterator
from itertools import product
from math import inf, prod

import attrs

from dsa.declarations import OUTSIDE
from dsa.expr import Value
from dsa.fast import Attempt, compile_groups
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence, Reason, Refusal, Taken, start, step
from dsa.trace import Trace, follow

MAX_STATES = 1_000_000
_CONFIGURATIONS_PER_LOOK_AT_THE_CLOCK = 512
#: The reference is asked at most so often which rows one occurrence concerns when it is refused for one reason.
_LOOKS = 64
#: An event on which more combinations of verdicts are possible is not explored: some nine guards read at once.
_MAX_COMBINATIONS = 20_000

Clock = Callable[[], float]
Move = tuple[Occurrence, Attempt | None]


@attrs.frozen
class Witness:
    """An occurrence that is refused in a configuration that can be reached."""

    configuration: Configuration
    occurrence: Occurrence
    refusal: Refusal


@attrs.frozen
class Exploration:
    """What was reached from the start at the machine's parameter values.

    `transitions` counts accepted (configuration, event, verdicts). `states` are the leaves reached, `rows` the indexes of
    the rows taken. `refusals` has the first witness for each reason and the rows concerned, `deadlocks` the first
    configuration of each state. `complete` is False when a limit was met: then what is not here is unknown.
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
    engine: str = attrs.field(default="breadth-first", kw_only=True)
    _tree: "_Tree | None" = attrs.field(default=None, eq=False, repr=False)
    _taken: dict[int, tuple[Configuration, Occurrence]] = attrs.field(factory=dict, eq=False, repr=False)

    @property
    def parameters(self) -> dict[str, Value]:
        """The parameters' values."""
        return self.machine.constants

    def reached(self) -> Iterator[Configuration]:
        """Give every configuration, nearest to the start first."""
        assert self._tree is not None, "explore gives every exploration its tree"
        return iter(self._tree.index)

    def way_back(self, configuration: Configuration) -> Iterator[tuple[Configuration, Occurrence]]:
        """Give the steps of a shortest trace from the last to the first: the configuration before, and what happened."""
        assert self._tree is not None, "explore gives every exploration its tree"
        return self._tree.way_back(configuration)

    def trace_to(self, configuration: Configuration) -> Trace:
        """Give a shortest trace to a configuration; KeyError when it was not reached."""
        return follow(self.machine, self._way_to(configuration))

    def trace_taking(self, row: int) -> Trace:
        """Give a shortest trace that ends by taking the row of that index; KeyError when it was never taken."""
        configuration, occurrence = self._taken[id(self.machine.transitions[row])]
        return follow(self.machine, [*self._way_to(configuration), occurrence])

    def _way_to(self, configuration: Configuration) -> list[Occurrence]:
        return [occurrence for _, occurrence in self.way_back(configuration)][::-1]


class _Tree:
    """The configurations in the order of their discovery, each with its predecessor and what led from there to it."""

    def __init__(self, root: Configuration) -> None:
        self.index: dict[Configuration, int] = {root: 0}
        self.order = [root]
        self.parents = [0]
        self.arrivals: list[Occurrence | None] = [None]

    def add(self, configuration: Configuration, parent: int, occurrence: Occurrence) -> None:
        self.index[configuration] = len(self.order)
        self.order.append(configuration)
        self.parents.append(parent)
        self.arrivals.append(occurrence)

    def way_back(self, configuration: Configuration) -> Iterator[tuple[Configuration, Occurrence]]:
        place = self.index[configuration]
        while (occurrence := self.arrivals[place]) is not None:
            place = self.parents[place]
            yield self.order[place], occurrence


def explore(
    machine: Machine, *, max_states: int = MAX_STATES, time_limit_s: float | None = None, clock: Clock | None = None
) -> Exploration:
    """Explore from `start(machine)` until nothing is new, or until a limit.

    `time_limit_s` needs a `clock` that gives seconds; ValueError without one. The start is assumed to lie in its domains.
    """
    if time_limit_s is not None and clock is None:
        raise ValueError("a time limit needs a clock")
    return _Search(machine, max_states).run(time_limit_s, clock)


class _Search:
    """The state of one exploration."""

    def __init__(self, machine: Machine, max_states: int) -> None:
        self._machine, self._max_states = machine, max_states
        self._tree = _Tree(start(machine))
        self._groups = compile_groups(machine)
        self._moves: dict[tuple[str, frozenset[str]], tuple[Move, ...]] = {}
        self._complete = True
        self._transitions = 0
        self._taken: dict[int, tuple[Configuration, Occurrence]] = {}
        self._refusals: dict[tuple[object, ...], Witness] = {}
        self._looks: dict[tuple[str, Occurrence, str], int] = {}
        self._deadlocks: dict[str, Configuration] = {}

    def run(self, time_limit_s: float | None, clock: Clock | None) -> Exploration:
        began_s = clock() if clock else 0.0
        ends_s = inf if time_limit_s is None else began_s + time_limit_s
        order = self._tree.order
        for place, configuration in enumerate(order):  # grows while it is walked
            late = clock and place % _CONFIGURATIONS_PER_LOOK_AT_THE_CLOCK == 0 and clock() >= ends_s
            if late or len(order) > self._max_states:
                self._complete = False
                break
            self._leave(place, configuration)
        return self._result(clock() - began_s if clock else None)

    def _leave(self, place: int, configuration: Configuration) -> None:
        """Try everything that can happen in one configuration."""
        key = (configuration.state, configuration.outstanding)
        moves = self._moves.get(key)
        if moves is None:
            moves = self._moves[key] = tuple(self._possible(*key))
        tree, index, accepted = self._tree, self._tree.index, 0
        for occurrence, attempt in moves:
            result = attempt(configuration, occurrence) if attempt else "invalid_state"
            if isinstance(result, Taken):
                accepted += 1
                if id(result.transition) not in self._taken:
                    self._taken[id(result.transition)] = (configuration, occurrence)
                if result.configuration not in index:
                    tree.add(result.configuration, place, occurrence)
            else:
                assert result is not None, "explored occurrences are well formed"
                self._refused(configuration, occurrence, result)
        self._transitions += accepted
        if not accepted:
            self._stuck(configuration)

    def _possible(self, state: str, outstanding: frozenset[str]) -> Iterator[Move]:
        """Give what can happen in a state while some effects are outstanding."""
        machine = self._machine
        if state in machine.final_states:
            return
        for event in machine.events:
            if event.origin == OUTSIDE and machine.rows_for(state, event.name):
                yield from self._judged(state, event.name)
        for effect, answers in machine.answers.items():
            if effect in outstanding:
                failed = (f"{effect}.failed",) if effect in machine.failures_handled else ()
                for answer in (*answers, *failed):
                    yield from self._judged(state, answer)
        for source, timer in machine.armed(state):
            yield from self._judged(state, timer, source)

    def _judged(self, state: str, event: str, source: str | None = None) -> Iterator[Move]:
        """Give an event with each combination of the verdicts that its rows read."""
        machine = self._machine
        rows = machine.rows_from[source, event] if source else machine.rows_for(state, event)
        attempt = self._groups.get((state, source, event) if source else (state, event))
        guards = read_guards(rows)
        said = [machine.guard_named[guard].outcomes for guard in guards]
        if prod(map(len, said)) > _MAX_COMBINATIONS:
            self._complete = False
            return
        for outcomes in product(*said):
            yield Occurrence(event, tuple(zip(guards, outcomes, strict=True)), source), attempt

    def _refused(self, configuration: Configuration, occurrence: Occurrence, reason: Reason) -> None:
        """Keep the first witness for each reason and the rows concerned."""
        if reason == "invalid_state":
            key: tuple[object, ...] = (reason, configuration.state, occurrence)
            if key in self._refusals:
                return
            refusal = step(self._machine, configuration, occurrence)
        else:
            looked = (configuration.state, occurrence, reason)
            self._looks[looked] = self._looks.get(looked, 0) + 1
            if self._looks[looked] > _LOOKS:
                return
            refusal = step(self._machine, configuration, occurrence)
            assert isinstance(refusal, Refusal), "the compiled step agrees with the reference"
            key = (reason, *(id(row) for row in refusal.rows))
        assert isinstance(refusal, Refusal), "the compiled step agrees with the reference"
        self._refusals.setdefault(key, Witness(configuration, occurrence, refusal))

    def _stuck(self, configuration: Configuration) -> None:
        state = configuration.state
        if state in self._machine.final_states or configuration.outstanding or self._machine.armed(state):
            return
        self._deadlocks.setdefault(state, configuration)

    def _result(self, seconds: float | None) -> Exploration:
        rows = self._machine.transitions
        return Exploration(
            self._machine,
            len(self._tree.order),
            self._transitions,
            frozenset(configuration.state for configuration in self._tree.order),
            frozenset(place for place, row in enumerate(rows) if id(row) in self._taken),
            tuple(self._refusals.values()),
            tuple(self._deadlocks.values()),
            self._complete,
            seconds,
            self._tree,
            self._taken,
        )
