"""Claims at given parameter values: the ranks that the kernel asks for, and its own verdict on them.

Takes the machine's text and the claim as the kernel reads them; lets the kernel explore, and finds the ranks in the graph it saw: distances
for `possible`, numbered components and what ends a run's stay in each for `leads to` and for coming to rest.
"""

from collections import deque
from typing import Any

import attrs

from dsa.checks.certify_proofs import NoProofError, paths
from dsa.checks.proof.order import parts
from dsa.declarations import OUTSIDE
from dsa.kernel import REST, Claim

Rank = list[list[str]]
#: Definition 4 is looked at on at most so many paths of one move; a second of the kernel's time.
_MOST_PATHS = 20_000


@attrs.frozen
class Step:
    """Where a step leads, what it ends, what happens with it, and the effect or timer behind it (or `outside`)."""

    target: int
    ended: frozenset[str]
    true: frozenset[str]
    origin: str


def explored(text: str, claim: dict[str, Any], most: int) -> dict[str, Any]:
    """Give the claim with all that the kernel asks for, having tried it. Raises NoProofError, also beyond `most` configurations."""
    written = claim | {"proofs": []}
    try:
        if "possible" in claim["form"] or "leads to" in claim["form"] or claim["form"] == REST:
            written["ranks"] = _Graph(text, written, most).ranks_found()
        _Bounded(text, written, most).explore()
    except (ValueError, AssertionError, KeyError, IndexError) as why:
        raise NoProofError(f"the kernel refuses it: {why}") from why
    return written


def guarded(text: str, claim: dict[str, Any], most: int) -> dict[str, Any]:
    """Give the claim that Definition 4 is kept, having let the kernel look at every row. Raises NoProofError, also beyond `most` locations."""
    written = claim | {"proofs": []}
    try:
        _Free(text, written, most).explore()
    except AssertionError as why:
        raise NoProofError(f"the kernel refuses it: {why}") from why
    return written


class _Bounded(Claim):
    """The kernel, which gives up beyond so many configurations."""

    def __init__(self, text: str, claim: dict[str, Any], most: int) -> None:
        super().__init__(text, claim)
        self._most = most

    def arrive(self, node: Any, may: bool) -> None:  # noqa: ANN401, FBT001  (the kernel's, here and below)
        super().arrive(node, may)
        if len(self.nodes) > self._most:
            raise NoProofError(f"it has more than {self._most} configurations")


class _Free(_Bounded):
    """The kernel, which needs no evidence, and gives up where a move has too many paths."""

    def prove(self, _given: Any, _names: Any, action: Any, *arguments: Any) -> None:  # noqa: ANN401
        for failure, _ in paths(lambda: action(*arguments), _MOST_PATHS):
            assert failure is None, failure


class _Graph(_Bounded):
    """The kernel's exploration, which notes what it sees and judges no progress."""

    def __init__(self, text: str, claim: dict[str, Any], most: int) -> None:
        super().__init__(text, claim | {"ranks": {}}, most)
        self._number: dict[str, int] = {}
        self._steps: list[list[Step]] = []

    def arrive(self, node: Any, may: bool) -> None:  # noqa: ANN401, ARG002, FBT001
        super().arrive(node, may=True)
        if self._number.setdefault(self.key(node), len(self._number)) == len(self._steps):
            self._steps.append([])

    def happen(self, node: Any, move: Any) -> None:  # noqa: ANN401
        steps = self._steps[self._number[self.key(node)]]
        for after, ended, true in self.take(node, move):
            self.arrive(after, may=True)
            steps.append(Step(self._number[self.key(after)], frozenset(ended), frozenset(true), move[1]))

    def go_on(self, node: Any) -> None:  # noqa: ANN401
        pass

    def ranks_found(self) -> dict[str, Rank]:
        """Explore, and give the ranks that the kernel asks for."""
        self.explore()
        flagged = frozenset(place for place, node in enumerate(self.nodes) if node[2][":flag"])
        if self.form == "possible {}":
            ranks = self._way(self._distances(flagged))
        elif "possible" in self.form:
            ranks = {place: _one(number) for place, number in self._distances(flagged).items()}
        else:
            ranks = self._levels(flagged)
        return {key: ranks[place] for key, place in self._number.items() if place in ranks}

    def _distances(self, flagged: frozenset[int]) -> dict[int, int]:
        """Give for each configuration how many steps lead to one where P holds, which has no flag, at least."""
        before: dict[int, list[int]] = {}
        for place, steps in enumerate(self._steps):
            for step in steps:
                before.setdefault(step.target, []).append(place)
        found = {place: 0 for place in range(len(self._steps)) if place not in flagged}
        todo = deque(found)
        while todo:
            target = todo.popleft()
            for place in before.get(target, ()):
                if place not in found:
                    found[place] = found[target] + 1
                    todo.append(place)
        return found

    def _way(self, distances: dict[int, int]) -> dict[int, Rank]:
        """Give the distances along one way from the start."""
        here = 0
        found: dict[int, Rank] = {}
        while here in distances and here not in found:
            found[here] = _one(distances[here])
            lower = distances[here] - 1
            here = next((step.target for step in self._steps[here] if distances.get(step.target) == lower), here)
        return found

    def _levels(self, nodes: frozenset[int]) -> dict[int, Rank]:
        """Number the components, what follows lower; say what ends a stay in each (S12, fairness)."""
        following = {place: [step.target for step in self._counting(place)] for place in nodes}
        found: dict[int, Rank] = {}
        for number, part in enumerate(parts(sorted(nodes), following)):
            inside = [step for place in part for step in self._counting(place) if step.target in part]
            promised = frozenset.intersection(*(frozenset(self.awaited(self.nodes[place])) for place in part))
            lasting = promised.difference(*(step.ended for step in inside))
            why, able = self._fair(part, inside)
            deeper = {} if lasting or not why else self._levels(part - able)
            reason = min(lasting, default=why)
            found |= {place: [[str(number), reason], *deeper.get(place, [])] for place in part}
        return found

    def _counting(self, place: int) -> list[Step]:
        """Give the steps that must lead lower: all, but for coming to rest those alone that nothing outside brings about."""
        return [step for step in self._steps[place] if self.form != REST or step.origin != OUTSIDE]

    def _fair(self, part: frozenset[int], inside: list[Step]) -> tuple[str, frozenset[int]]:
        """Give something fair that is possible in a component and never happens there, and where it is possible."""
        for name in [name for names in self.parts[2:] for name in names.split(", ")]:
            able = frozenset(place for place in part if any(name in step.true for step in self._steps[place]))
            if able and not any(name in step.true for step in inside):
                return f"fair {name}", able
        return "", frozenset()


def _one(number: int) -> Rank:
    return [[str(number), ""]]
