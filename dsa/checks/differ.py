"""Do two machines do the same from where they are, for ever; and if not, by what shortest trace are they told apart?

Takes a `Pair` of machines at their parameters' values; gives a `Comparison`. As long as nothing tells them apart both stand in the same
configuration, so this explores the configurations of one machine and asks at each: what may come, what is asked of guards, what
is taken or refused, with which effects in which order, which timers start, where it leads.
"""

from typing import Literal

import attrs

from dsa.checks.differ_moves import Came, TooManyVerdictsError, way_to
from dsa.checks.differ_pairs import Both, Pair, Reaction
from dsa.checks.engines.found import Limits
from dsa.meaning import Occurrence

Verdict = Literal["EQUAL", "DIFFERENT", "UNKNOWN"]
#: Once in so many configurations a search looks at the clock.
EVERY = 256


@attrs.frozen
class Parting:
    """Where two machines part: the `way` that both take alike, what comes then, and what each makes of it.

    `occurrence` is None when they are not in the same configuration to begin with.
    """

    way: tuple[Occurrence, ...]
    occurrence: Occurrence | None
    old: Reaction
    new: Reaction


@attrs.frozen
class Comparison:
    """EQUAL: in all `configurations` there are; DIFFERENT, by a shortest parting; UNKNOWN: a limit was met first, which `limit` names."""

    verdict: Verdict
    configurations: int
    parting: Parting | None = None
    limit: str = ""


def compare(pair: Pair, here: Both, limits: Limits) -> Comparison:
    """Compare two machines from where they are."""
    apart = pair.apart(here)
    if apart is not None:
        return Comparison(
            "DIFFERENT", 1, Parting((), None, Reaction(here[0], said=apart[0]), Reaction(here[1], said=apart[1]))
        )
    search = _Search(pair, here)
    try:
        return search.run(limits)
    except TooManyVerdictsError as fault:
        return Comparison("UNKNOWN", len(search.order), limit=str(fault))


class _Search:
    """A breadth-first search that ends where the machines part."""

    def __init__(self, pair: Pair, here: Both) -> None:
        self._pair = pair
        self.order = [here]
        self._came: Came[Both] = {here: None}

    def run(self, limits: Limits) -> Comparison:
        for count, here in enumerate(self.order):  # grows while it is walked
            if stopped := met(limits, count, len(self.order)):
                return Comparison("UNKNOWN", len(self.order), limit=stopped)
            parting = self._parting(here)
            if parting is not None:
                return Comparison("DIFFERENT", len(self.order), parting)
        return Comparison("EQUAL", len(self.order))

    def _parting(self, here: Both) -> Parting | None:
        """Try all that may come, and note where it leads; give the first that tells the machines apart."""
        pair, plan = self._pair, self._pair.plan(here)
        if plan.apart is not None:
            way, words = plan.apart
            return Parting(way_to(self._came, here), _fuller(way.old, way.new), *pair.reactions(here, way, words))
        for way in plan.ways:
            same, there = pair.tried(here, way)
            if not same:
                return Parting(way_to(self._came, here), _fuller(way.old, way.new), *pair.reactions(here, way))
            if there is not None and there not in self._came:
                self._came[there] = (here, way.old)
                self.order.append(there)
        return None


def _fuller(old: Occurrence, new: Occurrence) -> Occurrence:
    """Give the occurrence of the machine that asks for verdicts."""
    return old if old.verdicts else new


def met(limits: Limits, count: int, found: int) -> str:
    """Name the limit that a search has met after so many configurations of those found; empty when there is none."""
    if found > limits.max_states:
        return f"the limit of {limits.max_states} configurations"
    if count % EVERY == 0:
        limits.progress(found, 0)
        if limits.expired():
            return "the time limit"
    return ""
