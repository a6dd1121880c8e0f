"""What every engine takes and gives.

An engine is a function `(Ground, watches, Limits) -> Found`. It searches breadth-first, so that the first configuration at which a
watch is true is one nearest to the start.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs

from dsa.ground import Ground, Watch

#: Told now and then: configurations found so far, and steps from the start.
Progress = Callable[[int, int], None]


@attrs.frozen
class Limits:
    """When to stop: at more than `max_states` configurations, or when `expired` says so. `progress` is told now and then."""

    max_states: int
    expired: Callable[[], bool] = lambda: False
    progress: Progress = lambda _states, _depth: None


@attrs.frozen
class Found:
    """What a search found.

    `transitions` counts the (configuration, rule) pairs taken, which are the accepted (configuration, event, verdicts). `locations` counts
    the configurations at each location; `taken` has the indexes of the ground's rules that were taken. `hits` has, for each
    watch, the number of a configuration nearest to the start at which it is true, or None. `layers` are the configurations' numbers
    by their distance from the start (the start's layer first), when the engine keeps them. `ended` tells that a watch that ends the search was met: then it is not complete.
    `known_at` gives data of a location at which steps are known, `known_step` where a step (`plan.Step`) leads from those of them at which it is taken, None for one that is not known.
    """

    engine: str
    configurations: int
    transitions: int
    locations: tuple[int, ...]
    taken: frozenset[int]
    hits: tuple[int | None, ...]
    complete: bool
    layers: Sequence[Sequence[int]] | None = attrs.field(default=None, repr=False)
    ended: bool = False
    known_at: Callable[[int], Collection[int]] = attrs.field(default=lambda _location: (), repr=False, eq=False)
    known_step: Callable[[Any], Mapping[int, int] | None] = attrs.field(
        default=lambda _step: None, repr=False, eq=False
    )

    def is_all(self, limits: Limits) -> bool:
        """Tell whether another engine would find no more within these limits."""
        return self.complete or self.ended or self.configurations > limits.max_states or limits.expired()


def stopped_by(found: Found, limits: Limits) -> str:
    """Name the limit that ended a search."""
    if found.configurations > limits.max_states:
        return f"the limit of {limits.max_states} configurations"
    return "the time limit" if limits.expired() else "a limit of memory"


Engine = Callable[[Ground, Sequence[Watch], Limits], Found]
