"""The explored machine as a graph, the coverage of its rows, and transition tours.

`graph_of` explores a machine at its parameters' values: every configuration it can reach, and what each occurrence does there.
The whole graph is in memory; DsaError is raised if it is too large for that.

`Coverage` records which rows, states and verdicts tests have taken, and reports what is missing. Rows that cannot be taken at these
parameters are not required; they are listed apart.

A transition tour is a few long runs that together take every row, and then every transition. A transition is a row taken in one
configuration on one occurrence. The walk is greedy: it goes to the nearest thing not yet covered. The same machine gives the same tour.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import attrs

from dsa.compiled_step import compiled_step
from dsa.declarations import Transition
from dsa.errors import DsaError, OccurrenceError
from dsa.immutable import immutable
from dsa.machine import Machine
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, start
from dsa.system import closed_system, location_of

#: A graph has at most this many configurations, unless the caller allows more.
MAX_CONFIGURATIONS = 50_000


@attrs.frozen
class GraphEdge:
    """A row taken: on what, from which configuration to which (by number), and the row's index."""

    source: int
    occurrence: Occurrence
    target: int
    row: int
    effects: tuple[str, ...]


@attrs.frozen(slots=False, field_transformer=immutable)
class ExploredGraph:
    """All that a machine can do at its parameters' values. Configuration 0 is the start.

    `moves` are sorted by source. `alphabet` has every occurrence that can come in some configuration, in the order it is first met:
    outside events where they have rows, answers, armed timers, each with every combination of the verdicts that are read.
    """

    machine: Machine = attrs.field(repr=False)
    configurations: tuple[Configuration, ...]
    moves: tuple[GraphEdge, ...]
    alphabet: tuple[Occurrence, ...]

    @cached_property
    def moves_from(self) -> tuple[tuple[GraphEdge, ...], ...]:
        """The moves of each configuration."""
        moves_by_source: list[list[GraphEdge]] = [[] for _ in self.configurations]
        for move in self.moves:
            moves_by_source[move.source].append(move)
        return tuple(map(tuple, moves_by_source))

    @cached_property
    def index(self) -> dict[Configuration, int]:
        """The number of each configuration."""
        return {configuration: place for place, configuration in enumerate(self.configurations)}

    @cached_property
    def rows(self) -> frozenset[int]:
        """The indexes of the rows that can be taken."""
        return frozenset(move.row for move in self.moves)

    @cached_property
    def verdicts(self) -> frozenset[tuple[str, str]]:
        """The verdicts that some row can be taken with."""
        return frozenset(verdict for move in self.moves for verdict in move.occurrence.verdicts)

    @cached_property
    def _answers(self) -> "dict[int, dict[Occurrence, Taken | Refusal | None]]":
        return {}

    def answer(self, place: int, occurrence: Occurrence) -> Taken | Refusal | None:
        """Return what the machine answers in a configuration; None when the occurrence is malformed there."""
        answers = self._answers.setdefault(place, {})
        if occurrence not in answers:
            try:
                answers[occurrence] = compiled_step(self.machine).step(self.configurations[place], occurrence)
            except OccurrenceError:
                answers[occurrence] = None
        return answers[occurrence]

    def refused_occurrences(self, place: int) -> Iterator[Occurrence]:
        """Return the occurrences of the alphabet that are refused in a configuration."""
        return (occurrence for occurrence in self.alphabet if isinstance(self.answer(place, occurrence), Refusal))

    def distances(self, goals: Iterable[int]) -> list[int | None]:
        """Return how many moves each configuration is from the nearest of some; None where none can be reached."""
        distance: list[int | None] = [None] * len(self.configurations)
        queue = deque(goals)
        for place in queue:
            distance[place] = 0
        while queue:
            place = queue.popleft()
            here = distance[place]
            assert here is not None, "what waits has been reached"
            for before in self._sources[place]:
                if distance[before] is None:
                    distance[before] = here + 1
                    queue.append(before)
        return distance

    @cached_property
    def _sources(self) -> tuple[tuple[int, ...], ...]:
        sources_by_target: list[list[int]] = [[] for _ in self.configurations]
        for move in self.moves:
            sources_by_target[move.target].append(move.source)
        return tuple(map(tuple, sources_by_target))


def graph_of(machine: Machine, *, max_configurations: int = MAX_CONFIGURATIONS) -> ExploredGraph:
    """Explore a machine at its parameters' values. Raises DsaError."""
    system, step = closed_system(machine), compiled_step(machine).step
    possible: list[dict[Occurrence, None]] = [{} for _ in system.locations]
    for command in system.commands:
        possible[command.source][command.occurrence] = None
    for fault in system.faults:
        possible[fault.location][fault.occurrence] = None
    row_index = {id(row): place for place, row in enumerate(machine.transitions)}
    order, moves, alphabet = [start(machine)], list[GraphEdge](), dict[Occurrence, None]()
    index = {order[0]: 0}
    for place, configuration in enumerate(order):  # grows while it is walked
        if len(order) > max_configurations or system.left_out:
            raise DsaError(
                f"{machine.name} has more than {max_configurations} configurations at these parameters, which is too many for tests; "
                "give smaller parameter values",
                code="GraphTooLargeError",
            )
        for occurrence in possible[location_of(system, configuration)]:
            taken = step(configuration, occurrence)
            if isinstance(taken, Refusal) and taken.reason == "late":
                continue  # the system has it for other numbers outstanding
            alphabet[occurrence] = None
            if isinstance(taken, Taken):
                after = taken.configuration
                if after not in index:
                    index[after] = len(order)
                    order.append(after)
                row = row_index[id(taken.transition)]
                moves.append(GraphEdge(place, occurrence, index[after], row, taken.effects))
    return ExploredGraph(machine, tuple(order), tuple(moves), tuple(alphabet))


Verdict = tuple[str, str]


@attrs.define
class Coverage:
    """The rows taken so far by their indexes, leaves by their names, pairs of guard and verdict. It grows in place."""

    machine: Machine = attrs.field(repr=False)
    rows: set[int] = attrs.field(factory=set)
    states: set[str] = attrs.field(factory=set)
    verdicts: set[Verdict] = attrs.field(factory=set)
    tests: int = 0
    steps: int = 0

    def begin(self, state: str) -> None:
        """Count a test that begins in a state."""
        self.tests += 1
        self.states.add(state)

    def took(self, row: int, occurrence: Occurrence, state: str) -> None:
        """Count a row taken, and the state after it."""
        self.steps += 1
        self.rows.add(row)
        self.states.add(state)
        self.verdicts.update(occurrence.verdicts)

    def require(self, share: float, graph: ExploredGraph) -> None:
        """Raise AssertionError unless this share of the rows that can be taken was taken."""
        missing = sorted(graph.rows - self.rows)
        if len(missing) > (1 - share) * len(graph.rows) + 1e-9:
            rows = self.machine.transitions
            lines = "\n".join(f"  {row_label(rows[number], number)}" for number in missing)
            raise AssertionError(
                f"{len(graph.rows) - len(missing)} of {len(graph.rows)} rows that can be taken were taken, "
                f"{share:.0%} are required; not taken:\n{lines}"
            )

    def report(self, graph: ExploredGraph) -> str:
        """Return what was taken of what can be taken, and what is missing, as lines of text."""
        leaves = {configuration.state for configuration in graph.configurations}
        rows = self.machine.transitions
        figures = (
            f"rows {len(self.rows & graph.rows)} of {len(graph.rows)}, states {len(self.states & leaves)} of {len(leaves)}, "
            f"verdicts {len(self.verdicts & graph.verdicts)} of {len(graph.verdicts)}"
        )
        lines = [f"{self.tests} tests, {self.steps} steps: {figures}"]
        lines += _lines_of("rows not taken", (row_label(rows[n], n) for n in sorted(graph.rows - self.rows)))
        lines += _lines_of("states not reached", sorted(leaves - self.states))
        lines += _lines_of(
            "verdicts not given", (f"{guard}.{outcome}" for guard, outcome in sorted(graph.verdicts - self.verdicts))
        )
        dead = sorted(set(range(len(rows))) - graph.rows)
        lines += _lines_of("rows that cannot be taken at these parameters", (row_label(rows[n], n) for n in dead))
        return "\n".join(lines)


def _lines_of(title: str, items: Iterable[str]) -> list[str]:
    texts = list(items)
    return [f"{title}: {'; '.join(texts)}"] if texts else []


def row_label(row: Transition, number: int) -> str:
    """Return a row's name for people: its line, or its number when it has none, then source, event and target."""
    place = f"line {row.span.line}" if row.span else f"row {number + 1}"
    return f"{place} ({row})"


#: Called with the machine, the occurrence, the row taken, and the state after it; `pytest --machine-coverage` registers one.
Listener = Callable[[Machine, Occurrence, Transition, str], None]

_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Call a function with every row that tests take from now on."""
    _listeners.append(listener)


def forget_listener(listener: Listener) -> None:
    """Stop calling it."""
    _listeners.remove(listener)


def tell_listeners(machine: Machine, occurrence: Occurrence, row: Transition, state: str) -> None:
    """Call every listener with a row that was taken."""
    for listener in _listeners:
        listener(machine, occurrence, row, state)


Test = tuple[Occurrence, ...]


def tour(machine: Machine | ExploredGraph, *, refusals: bool = False) -> tuple[Test, ...]:
    """Return runs that take every transition which can be taken; the first of them take every row.

    With `refusals`, the runs also feed each configuration every occurrence that it refuses, once. Raises DsaError when there are
    too many configurations.
    """
    graph = machine if isinstance(machine, ExploredGraph) else graph_of(machine)
    walker = _Walker(graph, with_refusals=refusals)
    return walker.run()


def row_tour(machine: Machine | ExploredGraph, *, but: Iterable[int] = ()) -> tuple[Test, ...]:
    """Return runs that take every row which can be taken, except those of the indexes `but`."""
    graph = machine if isinstance(machine, ExploredGraph) else graph_of(machine)
    return _Walker(graph, rows=graph.rows - frozenset(but)).run(rows_only=True)


class _Walker:
    def __init__(
        self, graph: ExploredGraph, *, rows: frozenset[int] | None = None, with_refusals: bool = False
    ) -> None:
        self._graph = graph
        self._rows = set(graph.rows if rows is None else rows)
        self._moves = {id(move) for move in graph.moves}  # cheaper to look up than the moves
        self._with_refusals = with_refusals
        self._visited_places: set[int] = set()

    def run(self, *, rows_only: bool = False) -> tuple[Test, ...]:
        tests: list[Test] = []
        while self._rows if rows_only else (self._moves or not tests):
            tests.append(self._walk(rows_only=rows_only))
        return tuple(tests)

    def _walk(self, *, rows_only: bool) -> Test:
        """Walk as long as something uncovered can be reached, rows first."""
        place, test = 0, self._arrive(0)
        while True:
            way = self._nearest(place, lambda move: move.row in self._rows)
            if way is None and not rows_only:
                way = self._nearest(place, lambda move: id(move) in self._moves)
            if way is None:
                return tuple(test)
            for move in way:
                self._rows.discard(move.row)
                self._moves.discard(id(move))
                place = move.target
                test += [move.occurrence, *self._arrive(place)]

    def _arrive(self, place: int) -> list[Occurrence]:
        """Return what is refused here, the first time."""
        if not self._with_refusals or place in self._visited_places:
            return []
        self._visited_places.add(place)
        return list(self._graph.refused_occurrences(place))

    def _nearest(self, place: int, is_goal: Callable[[GraphEdge], bool]) -> list[GraphEdge] | None:
        """Return the shortest way that ends with a wanted move; None when there is none."""
        if not (self._rows or self._moves):
            return None
        arrivals: dict[int, GraphEdge | None] = {place: None}
        queue = deque([place])
        while queue:
            here = queue.popleft()
            for move in self._graph.moves_from[here]:
                if is_goal(move):
                    return [*_way(arrivals, here), move]
                if move.target not in arrivals:
                    arrivals[move.target] = move
                    queue.append(move.target)
        return None


def _way(arrivals: dict[int, GraphEdge | None], place: int) -> list[GraphEdge]:
    way = []
    while (move := arrivals[place]) is not None:
        way.append(move)
        place = move.source
    return way[::-1]
