"""Transition tours: few long runs that together take every row, and then every transition, of the explored machine.

Takes a machine or its graph, gives sequences of occurrences from the start; the same machine the same tour. Greedy: from where
a run is, the nearest thing not yet covered comes next. A transition is a row taken in one configuration on one occurrence.
"""

from collections import deque
from collections.abc import Callable, Iterable

from dsa.machine import Machine
from dsa.meaning import Occurrence
from dsa.testing.graph import Graph, Move, graph_of

Test = tuple[Occurrence, ...]


def tour(machine: Machine | Graph, *, refused: bool = False) -> tuple[Test, ...]:
    """Give runs that take every transition which can be taken; the first of them take every row.

    With `refused`, each configuration is also given every occurrence that it refuses, once. Raises TooLargeError when there are
    too many configurations.
    """
    graph = machine if isinstance(machine, Graph) else graph_of(machine)
    walker = _Walker(graph, refused=refused)
    return walker.run()


def row_tour(machine: Machine | Graph, *, but: Iterable[int] = ()) -> tuple[Test, ...]:
    """Give runs that take every row which can be taken, except those of the indexes `but`."""
    graph = machine if isinstance(machine, Graph) else graph_of(machine)
    return _Walker(graph, rows=graph.rows - frozenset(but)).run(rows_only=True)


class _Walker:
    def __init__(self, graph: Graph, *, rows: frozenset[int] | None = None, refused: bool = False) -> None:
        self._graph = graph
        self._rows = set(graph.rows if rows is None else rows)
        self._moves = {id(move) for move in graph.moves}  # cheaper to look up than the moves
        self._refused = refused
        self._visited: set[int] = set()

    def run(self, *, rows_only: bool = False) -> tuple[Test, ...]:
        tests: list[Test] = []
        while self._rows if rows_only else (self._moves or not tests):
            tests.append(self._walk(rows_only=rows_only))
        return tuple(tests)

    def _walk(self, *, rows_only: bool) -> Test:
        """Go on as long as something uncovered can be reached: rows first."""
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
        """Give what is refused here, the first time."""
        if not self._refused or place in self._visited:
            return []
        self._visited.add(place)
        return list(self._graph.refused(place))

    def _nearest(self, place: int, wanted: Callable[[Move], bool]) -> list[Move] | None:
        """Give the shortest way that ends with a wanted move; None when there is none."""
        if not (self._rows or self._moves):
            return None
        came: dict[int, Move | None] = {place: None}
        waiting = deque([place])
        while waiting:
            here = waiting.popleft()
            for move in self._graph.moves_from[here]:
                if wanted(move):
                    return [*_way(came, here), move]
                if move.target not in came:
                    came[move.target] = move
                    waiting.append(move.target)
        return None


def _way(came: dict[int, Move | None], place: int) -> list[Move]:
    way = []
    while (move := came[place]) is not None:
        way.append(move)
        place = move.source
    return way[::-1]
