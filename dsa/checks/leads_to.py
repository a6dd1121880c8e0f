"""`P leads to Q`: can a run owe Q for ever? Decided by strongly connected components of what is reachable while Q is owed.

Takes a search of the system that remembers whether Q is owed, gives the ways to owe it for ever. A run stays owed for ever when it rests where
only outside events could go on, or goes round a cycle that S12 allows: every promise (outstanding effect, armed timer) of the
cycle is kept somewhere on it, or is absent somewhere. With fairness, what is possible again and again must happen; a run that
rests is in its last configuration again and again. Exact: of a component that breaks fairness, what is left without
the configurations where the event is possible is searched again.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property

import attrs

from dsa.checks.components import cycles, cycles_within, marked
from dsa.checks.searching import Searched
from dsa.expr import Name
from dsa.system import Command, Promise

#: A step: the command, and the position of the configuration it leads to.
Move = tuple[Command, int]


@attrs.frozen
class Lasso:
    """A way to a configuration, and a cycle through it that can be gone round for ever; without a cycle the run rests there."""

    stem: tuple[Command, ...]
    cycle: tuple[Command, ...] = ()


def happens_with(name: str, command: Command) -> bool:
    """Tell whether an event or an effect happens when the command is taken."""
    return name == command.occurrence.event or name in command.effects


class Owed:
    """The configurations at which something is owed. `variable` tells which these are, `fair` has names of events and effects."""

    def __init__(self, searched: Searched, variable: str, fair: Collection[str] = ()) -> None:
        self._searched, self._fair = searched, tuple(fair)
        self._system, self._graph = searched.system, searched.graph
        self._is_owed = Name(variable, "variable")
        places = range(len(self._system.locations))
        self._marks = self._graph.holding(dict.fromkeys(places, self._is_owed))

    def lasso(self, without: Searched | None = None) -> Lasso | None:
        """Give a way to owe for ever with a shortest stem; only by ways of another search, when one is given."""
        searched = without or self._searched
        numbers = (int(self._graph.numbers[position]) for position in sorted(self.allowed))
        number = next((number for number in numbers if without is None or without.has(number)), None)
        if number is None:
            return None
        position = self._searched.position(number)
        part = self.allowed[position]
        cycle = self._cycle(position, part) if part else ()
        return Lasso(searched.way_to(number), tuple(command for command, _ in cycle))

    @cached_property
    def allowed(self) -> dict[int, frozenset[int]]:
        """The positions at which a run may owe for ever: each with the component it goes round, or empty to rest."""
        found: dict[int, frozenset[int]] = {}
        todo = list(cycles(self._graph, self._marks))
        while todo:
            part = todo.pop()
            if not self._promised(part):
                unfair = self._unfair(part)
                if unfair:
                    todo += cycles_within(self._graph, part - unfair)
                else:
                    found |= dict.fromkeys(part, part)
        return found | dict.fromkeys(self._resting(), frozenset())

    def promises(self) -> frozenset[Promise]:
        """Give the promises of all configurations at which something is owed: that they end is what the answer rests on."""
        places = {self._searched.place(position) for position in marked(self._marks)}
        return frozenset().union(*map(self._system.promises, places))

    def _resting(self) -> Iterator[int]:
        """Give the positions where a run may rest, and nothing is possible that is assumed fair."""
        places = (place for place in range(len(self._system.locations)) if self._system.may_rest(place))
        for position in marked(self._graph.holding(dict.fromkeys(places, self._is_owed))):
            if not any(happens_with(name, command) for name in self._fair for command, _ in self._moves(position)):
                yield position

    def _moves(self, position: int) -> Iterator[Move]:
        return self._searched.moves_at(position)

    def _promises(self, position: int) -> frozenset[Promise]:
        return self._system.promises(self._searched.place(position))

    def _inside(self, part: Collection[int]) -> set[int]:
        """Give the indexes of the commands taken inside a component."""
        return {self._searched.index_at(step) for at in part for step, to in self._searched.steps_at(at) if to in part}

    def _promised(self, part: frozenset[int]) -> frozenset[Promise]:
        """Give what is promised all the way round and never kept: S12 allows no such run."""
        places = {self._searched.place(position) for position in part}
        always = frozenset.intersection(*map(self._system.promises, places))
        commands = self._inside(part) if always else ()
        return always.difference(*(self._system.commands[index].ended for index in commands))

    def _unfair(self, part: frozenset[int]) -> set[int]:
        """Give the positions where something is possible that is assumed fair and never happens inside."""
        inside = [self._system.commands[index] for index in self._inside(part)] if self._fair else []
        missing = [name for name in self._fair if not any(happens_with(name, command) for command in inside)]
        return {
            position
            for position in (part if missing else ())
            if any(happens_with(name, command) for command, _ in self._moves(position) for name in missing)
        }

    def _cycle(self, start: int, part: frozenset[int]) -> list[Move]:
        """Give a way through the component from a position back to it that keeps every promise and is fair."""
        walk: list[Move] = []
        while (wanted := self._lacking(start, walk)) is not None:
            walk += self._way(walk[-1][1] if walk else start, part, wanted)
        return walk

    def _lacking(self, start: int, walk: Sequence[Move]) -> Callable[[Move], bool] | None:
        """Say what a walk still lacks, as a move to look for; None when nothing."""
        visited = [start, *(to for _, to in walk)]
        taken = [command for command, _ in walk]
        for name in self._fair:
            possible = any(happens_with(name, command) for position in visited for command, _ in self._moves(position))
            if possible and not any(happens_with(name, command) for command in taken):
                return lambda move: happens_with(name, move[0])
        for promise in sorted(self._promises(start), key=str):
            kept = any(promise in command.ended for command in taken)
            if not kept and all(promise in self._promises(position) for position in visited):
                return lambda move: promise in move[0].ended or promise not in self._promises(move[1])
        return None if walk and walk[-1][1] == start else lambda move: move[1] == start

    def _way(self, here: int, part: frozenset[int], wanted: Callable[[Move], bool]) -> list[Move]:
        """Give a shortest way inside the component that ends with a move that is wanted."""
        arrived: dict[int, tuple[int, Move] | None] = {here: None}
        todo = deque([here])
        while todo:
            position = todo.popleft()
            for move in self._moves(position):
                if move[1] in part and wanted(move):
                    return [*_back(arrived, position), move]
                if move[1] in part and move[1] not in arrived:
                    arrived[move[1]] = (position, move)
                    todo.append(move[1])
        raise AssertionError("every move inside a component can be reached in it")


def _back(arrived: dict[int, tuple[int, Move] | None], position: int) -> list[Move]:
    found: list[Move] = []
    while (step := arrived[position]) is not None:
        position, move = step
        found.append(move)
    return found[::-1]
