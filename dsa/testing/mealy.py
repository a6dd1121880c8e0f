"""A machine as an input-output automaton: numbered states, inputs and outputs, and what tells its states apart.

Takes an explored machine and what can be observed, gives the minimal automaton and separating sequences (Moore 1956; Gill
1962). An input that is malformed in a state is undefined there. Knows nothing of tests.
"""

from collections import deque
from collections.abc import Hashable, Iterator
from functools import cached_property

import attrs

from dsa.errors import DsaError
from dsa.meaning import Occurrence, Refusal
from dsa.testing.graph import Graph
from dsa.testing.implementations import Observed

Sequence = tuple[int, ...]


class InseparableError(DsaError):
    """Raised when two states differ only in which verdicts they ask for, and nothing that is observed shows it."""


@attrs.frozen(slots=False)
class Mealy:
    """State 0 is the start. `after[state][input]` and `output[state][input]` are None where the input is undefined.

    `shown[state]` is what can be observed in a state without an input. `member[state]` is the number of one configuration that it
    stands for, the nearest to the start.
    """

    inputs: tuple[Occurrence, ...]
    after: tuple[tuple[int | None, ...], ...]
    output: tuple[tuple[Hashable | None, ...], ...]
    shown: tuple[Hashable, ...]
    member: tuple[int, ...]

    def defined(self, state: int) -> Iterator[tuple[int, int]]:
        """Give each input that is defined in a state, with the state after it."""
        return ((place, after) for place, after in enumerate(self.after[state]) if after is not None)

    @cached_property
    def access(self) -> tuple[Sequence, ...]:
        """For each state, a shortest sequence that leads there."""
        found: dict[int, Sequence] = {0: ()}
        waiting = deque([0])
        while waiting:
            state = waiting.popleft()
            for place, after in self.defined(state):
                if after not in found:
                    found[after] = (*found[state], place)
                    waiting.append(after)
        return tuple(found[state] for state in range(len(self.after)))

    def separates(self, sequence: Sequence, left: int, right: int) -> bool:
        """Tell whether a sequence is defined in two states and something seen on its way differs."""
        here, there = left, right
        differs = self.shown[here] != self.shown[there]
        for place in sequence:
            one, other = self.after[here][place], self.after[there][place]
            if one is None or other is None:
                return False
            differs = differs or self.output[here][place] != self.output[there][place]
            here, there = one, other
            differs = differs or self.shown[here] != self.shown[there]
        return differs

    def separating(self) -> dict[tuple[int, int], Sequence]:
        """Give a shortest separating sequence for each pair of states (the smaller first) that has one."""
        count, found = len(self.after), dict[tuple[int, int], Sequence]()
        pairs = [(left, right) for left in range(count) for right in range(left + 1, count)]
        for left, right in pairs:
            if self.shown[left] != self.shown[right]:
                found[left, right] = ()
        grown = True
        while grown:
            known, grown = dict(found), False
            for pair in pairs:
                if pair not in known and (sequence := self._one_longer(*pair, known)) is not None:
                    found[pair], grown = sequence, True
        return found

    def _one_longer(self, left: int, right: int, known: dict[tuple[int, int], Sequence]) -> Sequence | None:
        best: Sequence | None = None
        for place, one in self.defined(left):
            other = self.after[right][place]
            if other is None:
                continue
            if self.output[left][place] != self.output[right][place]:
                return (place,)
            rest = known.get((min(one, other), max(one, other)))
            if rest is not None and (best is None or len(rest) + 1 < len(best)):
                best = (place, *rest)
        return best


def mealy(graph: Graph, observed: Observed) -> Mealy:
    """Give the minimal automaton of an explored machine. Raises InseparableError."""
    whole = _whole(graph, observed)
    classes = _classes(whole)
    return _quotient(whole, classes)


def require_separable(automaton: Mealy, graph: Graph, separating: dict[tuple[int, int], Sequence]) -> None:
    """Raise InseparableError unless each pair of states has a separating sequence."""
    count = len(automaton.after)
    for left in range(count):
        for right in range(left + 1, count):
            if (left, right) not in separating:
                one, other = (graph.configurations[automaton.member[state]].state for state in (left, right))
                raise InseparableError(
                    f"{one} and {other} differ only in the verdicts they ask for, which no test can tell from what is "
                    "observed; observe the state too (Observed(state=True), --observe state)"
                )


def _whole(graph: Graph, observed: Observed) -> Mealy:
    """Give the automaton with one state for each configuration."""
    names = [variable.name for variable in graph.machine.variables]
    wanted = [place for place, name in enumerate(names) if name in observed.values]
    shown: list[Hashable] = [
        (
            here.state if observed.state else None,
            tuple(here.values[place] for place in wanted),
            here.outstanding if observed.pending else None,
        )
        for here in graph.configurations
    ]
    after, output = list[tuple[int | None, ...]](), list[tuple[Hashable | None, ...]]()
    for place in range(len(graph.configurations)):
        answers = [graph.answer(place, occurrence) for occurrence in graph.alphabet]
        after.append(tuple(None if a is None else graph.index[a.configuration] for a in answers))
        output.append(
            tuple(
                None
                if a is None
                else ("refused", a.reason if observed.reasons else None)
                if isinstance(a, Refusal)
                else a.effects
                for a in answers
            )
        )
    return Mealy(graph.alphabet, tuple(after), tuple(output), tuple(shown), tuple(range(len(after))))


def _classes(whole: Mealy) -> list[int]:
    """Number the classes of equal states by partition refinement; what is undefined differs from all that is not."""
    signature: list[Hashable] = [(s, o) for s, o in zip(whole.shown, whole.output, strict=True)]
    classes, count = _numbered(signature)
    while True:
        signature = [
            (classes[place], tuple(None if a is None else classes[a] for a in after))
            for place, after in enumerate(whole.after)
        ]
        refined, finer = _numbered(signature)
        if finer == count:
            return classes
        classes, count = refined, finer


def _numbered(signature: list[Hashable]) -> tuple[list[int], int]:
    numbers: dict[Hashable, int] = {}
    found = [numbers.setdefault(item, len(numbers)) for item in signature]
    return found, len(numbers)


def _quotient(whole: Mealy, classes: list[int]) -> Mealy:
    """Give one state for each class; classes are numbered as their first configurations are met, the start's first."""
    first: dict[int, int] = {}
    for place, number in enumerate(classes):
        first.setdefault(number, place)
    member = tuple(first[number] for number in range(len(first)))
    return Mealy(
        whole.inputs,
        tuple(tuple(None if a is None else classes[a] for a in whole.after[place]) for place in member),
        tuple(whole.output[place] for place in member),
        tuple(whole.shown[place] for place in member),
        member,
    )
