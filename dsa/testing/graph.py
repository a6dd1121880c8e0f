"""The explored machine as a graph: every configuration it can reach, and what each occurrence does there.

Takes a machine at its parameters' values. Tours and complete suites walk over this graph; it is small enough to be held
whole, or `TooLargeError` says so.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from functools import cached_property

import attrs

from dsa.compiled_step import compiled_step
from dsa.errors import DsaError, OccurrenceError
from dsa.immutable import immutable
from dsa.machine import Machine
from dsa.meaning import Configuration, Occurrence, Refusal, Taken, start
from dsa.system import closed_system, location_of

#: More configurations than this are not laid out unless asked for.
MAX_CONFIGURATIONS = 50_000


class TooLargeError(DsaError):
    """Raised when a machine has more configurations than a graph may hold. `limit` is that number."""

    def __init__(self, machine: Machine, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"{machine.name} has more than {limit} configurations at these parameters: too many to make tests of; "
            "give smaller parameter values"
        )


@attrs.frozen
class Move:
    """A row taken: on what, from which configuration to which (by number), and the row's index."""

    source: int
    occurrence: Occurrence
    target: int
    row: int
    effects: tuple[str, ...]


@attrs.frozen(slots=False, field_transformer=immutable)
class Graph:
    """All that a machine can do at its parameters' values. Configuration 0 is the start.

    `moves` are sorted by source. `alphabet` has every occurrence that can come in some configuration, in the order it is first met:
    outside events where they have rows, answers, armed timers, each with every combination of the verdicts that are read.
    """

    machine: Machine = attrs.field(repr=False)
    configurations: tuple[Configuration, ...]
    moves: tuple[Move, ...]
    alphabet: tuple[Occurrence, ...]

    @cached_property
    def moves_from(self) -> tuple[tuple[Move, ...], ...]:
        """The moves of each configuration."""
        found: list[list[Move]] = [[] for _ in self.configurations]
        for move in self.moves:
            found[move.source].append(move)
        return tuple(map(tuple, found))

    @cached_property
    def index(self) -> dict[Configuration, int]:
        """Where each configuration stands."""
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
        """Give what the machine answers in a configuration; None when the occurrence is malformed there."""
        known = self._answers.setdefault(place, {})
        if occurrence not in known:
            try:
                known[occurrence] = compiled_step(self.machine).step(self.configurations[place], occurrence)
            except OccurrenceError:
                known[occurrence] = None
        return known[occurrence]

    def refused(self, place: int) -> Iterator[Occurrence]:
        """Give the occurrences of the alphabet that are refused in a configuration."""
        return (occurrence for occurrence in self.alphabet if isinstance(self.answer(place, occurrence), Refusal))

    def distances(self, goals: Iterable[int]) -> list[int | None]:
        """Give how many moves each configuration is from the nearest of some; None where none can be reached."""
        distance: list[int | None] = [None] * len(self.configurations)
        waiting = deque(goals)
        for place in waiting:
            distance[place] = 0
        while waiting:
            place = waiting.popleft()
            here = distance[place]
            assert here is not None, "what waits has been reached"
            for before in self._sources[place]:
                if distance[before] is None:
                    distance[before] = here + 1
                    waiting.append(before)
        return distance

    @cached_property
    def _sources(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.configurations]
        for move in self.moves:
            found[move.target].append(move.source)
        return tuple(map(tuple, found))


def graph_of(machine: Machine, *, max_configurations: int = MAX_CONFIGURATIONS) -> Graph:
    """Explore a machine at its parameters' values. Raises TooLargeError."""
    system, step = closed_system(machine), compiled_step(machine).step
    possible: list[dict[Occurrence, None]] = [{} for _ in system.locations]
    for command in system.commands:
        possible[command.source][command.occurrence] = None
    for fault in system.faults:
        possible[fault.location][fault.occurrence] = None
    row_index = {id(row): place for place, row in enumerate(machine.transitions)}
    order, moves, alphabet = [start(machine)], list[Move](), dict[Occurrence, None]()
    index = {order[0]: 0}
    for place, configuration in enumerate(order):  # grows while it is walked
        if len(order) > max_configurations or system.left_out:
            raise TooLargeError(machine, max_configurations)
        for occurrence in possible[location_of(system, configuration)]:
            alphabet[occurrence] = None
            taken = step(configuration, occurrence)
            if isinstance(taken, Taken):
                after = taken.configuration
                if after not in index:
                    index[after] = len(order)
                    order.append(after)
                row = row_index[id(taken.transition)]
                moves.append(Move(place, occurrence, index[after], row, taken.effects))
    return Graph(machine, tuple(order), tuple(moves), tuple(alphabet))
