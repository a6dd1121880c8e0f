"""The plainest engine: one configuration at a time, expressions evaluated as trees. Slow; the others are tested against it."""

from collections.abc import Sequence

from dsa.checks.search.engine import SearchLimits, SearchResult
from dsa.expr import evaluate
from dsa.ground_system import Ground, GroundWatch


def search(ground: Ground, watches: Sequence[GroundWatch], limits: SearchLimits) -> SearchResult:
    """Search everything that can happen."""
    places = {id(rule): place for place, rule in enumerate(ground.rules)}
    hits: list[int | None] = [None] * len(watches)
    known, layers, taken = {ground.start}, [[ground.start]], set[int]()
    transitions, complete, counts = 0, True, [0] * len(ground.system.locations)
    while layers[-1] and complete:
        following: list[int] = []
        for number in layers[-1]:
            counts[number // ground.volume] += 1
            _look(ground, watches, number, hits)
            for rule, after in ground.successors(number):
                transitions += 1
                taken.add(places[id(rule)])
                if after not in known:
                    known.add(after)
                    following.append(after)
        complete = len(known) <= limits.max_states and not limits.is_expired()
        layers.append(following)
    found = (len(known), transitions, tuple(counts), frozenset(taken), tuple(hits))
    return SearchResult("plain", *found, complete, tuple(layers[:-1] if complete else layers))


def _look(ground: Ground, watches: Sequence[GroundWatch], number: int, hits: list[int | None]) -> None:
    place = number // ground.volume
    for index, watch in enumerate(watches):
        if watch.location == place and hits[index] is None and evaluate(watch.condition, ground.values(number)) is True:
            hits[index] = number
