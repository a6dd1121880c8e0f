"""Ways through the explored machine: to a row that is aimed at, and from anywhere to an end.

Takes a machine's graph, gives moves. The same questions get the same moves; chance is asked where several would do.
"""

import heapq

from dsa.meaning import Configuration, is_over
from dsa.testing.graph import Graph, Move
from dsa.testing.simulation.chance import Chance

#: What a move costs on a way; timers are dear, because other timers may be due before them.
_COST, _TIMER_COST = 1, 4
_STRAIGHT_PERCENT = 75
_SEVERAL = 8


class Guide:
    """Knows the cheapest way to every move, and how far every configuration is from a final state."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._came: list[Move | None] = [None] * len(graph.configurations)
        self._cost = self._explored()
        self._left = graph.distances(n for n, found in enumerate(graph.configurations) if is_over(graph.machine, found))

    def _explored(self) -> list[int]:
        """Give what it costs to come to each configuration; note by which move."""
        unknown = 1 + _TIMER_COST * len(self._graph.configurations)
        cost = [unknown] * len(self._graph.configurations)
        cost[0] = 0
        waiting = [(0, 0)]
        while waiting:
            so_far, place = heapq.heappop(waiting)
            if so_far > cost[place]:
                continue
            for move in self._graph.moves_from[place]:
                then = so_far + _cost(move)
                if then < cost[move.target]:
                    cost[move.target], self._came[move.target] = then, move
                    heapq.heappush(waiting, (then, move.target))
        return cost

    def nearest(self, moves: tuple[Move, ...]) -> tuple[Move, ...]:
        """Give some of these moves, the one that is cheapest to come to first."""
        return tuple(sorted(moves, key=lambda move: self._cost[move.source] + _cost(move))[:_SEVERAL])

    def way(self, goal: Move) -> tuple[Move, ...]:
        """Give the cheapest way from the start that ends with a move."""
        way, place = [goal], goal.source
        while (move := self._came[place]) is not None:
            way.append(move)
            place = move.source
        return tuple(way[::-1])

    def where(self, move: Move) -> Configuration:
        """Give the configuration in which a move is taken."""
        return self._graph.configurations[move.source]

    def onwards(self, here: Configuration, chance: Chance, position: int) -> Move | None:
        """Give the next move of a run that nothing is planned for: mostly towards an end. None where nothing can happen."""
        moves = self._graph.moves_from[self._graph.index[here]]
        if not moves:
            return None
        if chance.happens(_STRAIGHT_PERCENT, "straight", position):
            lefts = [left for move in moves if (left := self._left[move.target]) is not None]
            if lefts:
                moves = tuple(move for move in moves if self._left[move.target] == min(lefts))
        return chance.one_of(moves, "onwards", position)


def _cost(move: Move) -> int:
    return _COST if move.occurrence.source is None else _TIMER_COST
