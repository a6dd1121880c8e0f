"""What a claim at given parameter values carries: its configurations, counted and hashed, and ranks.

Takes the machine's text and the claim as the kernel reads them; lets the kernel explore, and finds the ranks that it asks for in the graph it
saw: distances for `possible`, numbered components and what ends a run's stay in each for `leads to`. The hashes are of what our own
engine reached, by the generated step, so that the kernel compares two explorations.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import attrs

from dsa.checks.certify_proofs import NoProofError
from dsa.checks.proof.order import parts
from dsa.declarations import OUTSIDE
from dsa.expr import EnumDomain, Value
from dsa.fast import Dispatch, compile_groups
from dsa.kernel import Claim
from dsa.machine import Machine, read_guards
from dsa.meaning import Configuration, Occurrence, Taken, start

#: Where a step leads, what it ends, and what happens with it.
Step = tuple[int, frozenset[str], frozenset[str]]
Rank = list[list[str]]


@attrs.frozen
class Reached:
    """What the generated step reaches from the start: how many configurations, and two hashes in hexadecimal."""

    configurations: int
    hashes: tuple[str, str]


def reached(machine: Machine, most: int) -> Reached:
    """Run the generated step from the start, at the machine's parameter values. Raises NoProofError beyond `most` configurations."""
    groups, numbers = compile_groups(machine), _numbers(machine)
    first = start(machine)
    known, todo, steps = {first: _told(machine, first, numbers)}, deque([first]), set()
    while todo:
        here = todo.popleft()
        for occurrence, taken in _taken(machine, groups, here):
            after = taken.configuration
            if after not in known:
                known[after] = _told(machine, after, numbers)
                todo.append(after)
            timer = f"{occurrence.source} {occurrence.event}" if occurrence.source else occurrence.event
            said = (f"{guard}.{outcome}" for guard, outcome in occurrence.verdicts)
            happened = sorted({timer, *said, *taken.effects})
            ghosts = " :flag=0 :count=0"
            steps.add(" > ".join([known[here] + ghosts, *happened, known[after] + ghosts]))
        if len(known) > most:
            raise NoProofError(f"it has more than {most} configurations")
    return Reached(len(known), (_hash(known.values()), _hash(steps)))


def _taken(machine: Machine, groups: Dispatch, here: Configuration) -> Iterator[tuple[Occurrence, Taken]]:
    for key, attempt in groups.items():
        if key[0] != here.state:
            continue
        event, source = key[-1], key[1] if len(key) > 2 else None  # noqa: PLR2004  (leaf, source, timer)
        origin = OUTSIDE if source else machine.event_named[event].origin
        if origin != OUTSIDE and origin not in here.outstanding:
            continue
        rows = machine.rows_from[source, event] if source else machine.rows_for(here.state, event)
        guards = read_guards(rows)
        for outcomes in product(*(machine.guard_named[guard].outcomes for guard in guards)):
            occurrence = Occurrence(event, tuple(zip(guards, outcomes, strict=True)), source)
            taken = attempt(here, occurrence)
            if isinstance(taken, Taken):
                yield occurrence, taken


def _numbers(machine: Machine) -> dict[str, int]:
    """Number the values of enumerations as the kernel does."""
    domains = [*(p.domain for p in machine.parameters), *(v.domain for v in machine.variables)]
    listed = [value for domain in domains if isinstance(domain, EnumDomain) for value in domain.values]
    return {value: number for number, value in enumerate(listed)}


def _told(machine: Machine, at: Configuration, numbers: dict[str, int]) -> str:
    def number(value: Value) -> int:
        return numbers[value] if isinstance(value, str) else int(value)

    values = (f"{v.name}={number(value)}" for v, value in zip(machine.variables, at.values, strict=True))
    return " ".join([at.state, *sorted(at.outstanding), *values])


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def explored(text: str, claim: dict[str, Any], found: Reached, most: int) -> dict[str, Any]:
    """Give the claim with all that the kernel asks for, and try it. Raises NoProofError."""
    written = claim | {"proofs": []}
    try:
        if "possible" in claim["form"] or "leads to" in claim["form"]:
            written["ranks"] = _Graph(text, written, most).ranks_found()
        kernels = Claim(text, written).run()
    except (ValueError, AssertionError, KeyError, IndexError) as why:
        raise NoProofError(f"the kernel refuses it: {why}") from why
    if kernels[:2] != [found.configurations, found.hashes[0]]:
        raise NoProofError("the kernel reaches other configurations")
    steps = found.hashes[1] if claim["form"] == "no fault" else kernels[2]
    if kernels[2] != steps:
        raise NoProofError("the kernel takes other steps than the generated step")
    return written | {"reached": kernels}


@attrs.define
class _Seen:
    """What the kernel met at one configuration; `flag` is what its property remembers there."""

    promises: frozenset[str] = frozenset()
    steps: list[Step] = attrs.field(factory=list)
    flag: bool = False


class _Graph(Claim):
    """The kernel's exploration, which notes what it sees and judges no progress."""

    def __init__(self, text: str, claim: dict[str, Any], most: int) -> None:
        super().__init__(text, claim | {"ranks": {}})
        self._most = most
        self._number: dict[str, int] = {}
        self._seen: list[_Seen] = []

    def arrive(self, node: Any, may: bool) -> None:  # noqa: ANN401, ARG002, FBT001  (the kernel's, here and below)
        super().arrive(node, may=True)
        if len(self.nodes) > self._most:
            raise NoProofError(f"it has more than {self._most} configurations")

    def happen(self, node: Any, move: Any) -> None:  # noqa: ANN401
        for after, ended, true in filter(None, [self.take(node, move)]):
            self.arrive(after, may=True)
            self._noted(node).steps.append((self._place(after), frozenset(ended), frozenset(true)))

    def go_on(self, node: Any) -> None:  # noqa: ANN401
        seen = self._noted(node)
        seen.promises = frozenset(self.awaited(node))
        seen.flag = bool(node[2][":flag"])

    def _place(self, node: Any) -> int:  # noqa: ANN401
        key = self.key(node)
        if key not in self._number:
            self._number[key] = len(self._seen)
            self._seen.append(_Seen())
        return self._number[key]

    def _noted(self, node: Any) -> _Seen:  # noqa: ANN401
        return self._seen[self._place(node)]

    def ranks_found(self) -> dict[str, Rank]:
        """Explore, and give the ranks that the kernel asks for."""
        self.run()
        if self.form == "possible {}":
            ranks = self._way()
        elif "possible" in self.form:
            ranks = {place: _one(number) for place, number in self._distances().items()}
        else:
            ranks = self._levels(frozenset(place for place, seen in enumerate(self._seen) if seen.flag))
        return {key: ranks[place] for key, place in self._number.items() if place in ranks}

    def _distances(self) -> dict[int, int]:
        """Give for each configuration how many steps lead to one with a flag, at least."""
        before: dict[int, list[int]] = {}
        for place, seen in enumerate(self._seen):
            for target, _, _ in seen.steps:
                before.setdefault(target, []).append(place)
        found = {place: 0 for place, seen in enumerate(self._seen) if seen.flag}
        todo = deque(found)
        while todo:
            target = todo.popleft()
            for place in before.get(target, ()):
                if place not in found:
                    found[place] = found[target] + 1
                    todo.append(place)
        return found

    def _way(self) -> dict[int, Rank]:
        """Give the distances along one way from the start."""
        distances, here = self._distances(), 0
        found: dict[int, Rank] = {}
        while here in distances and here not in found:
            found[here] = _one(distances[here])
            lower = distances[here] - 1
            here = next((target for target, _, _ in self._seen[here].steps if distances.get(target) == lower), here)
        return found

    def _levels(self, nodes: frozenset[int]) -> dict[int, Rank]:
        """Number the components, what follows lower; say what ends a stay in each (S12, fairness)."""
        following = {place: [target for target, _, _ in self._seen[place].steps] for place in nodes}
        found: dict[int, Rank] = {}
        for number, part in enumerate(parts(sorted(nodes), following)):
            inside = [step for place in part for step in self._seen[place].steps if step[0] in part]
            promised = frozenset.intersection(*(self._seen[place].promises for place in part))
            lasting = promised.difference(*(ended for _, ended, _ in inside))
            why, able = self._fair(part, inside)
            deeper = {} if lasting or not why else self._levels(part - able)
            reason = min(lasting, default=why)
            found |= {place: [[str(number), reason], *deeper.get(place, [])] for place in part}
        return found

    def _fair(self, part: frozenset[int], inside: list[Step]) -> tuple[str, frozenset[int]]:
        """Give something fair that is possible in a component and never happens there, and where it is possible."""
        for name in [name for names in self.parts[2:] for name in names.split(", ")]:
            able = frozenset(place for place in part if any(name in true for _, _, true in self._seen[place].steps))
            if able and not any(name in true for _, _, true in inside):
                return f"fair {name}", able
        return "", frozenset()


def _one(number: int) -> Rank:
    return [[str(number), ""]]
