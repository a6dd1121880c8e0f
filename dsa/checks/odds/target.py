"""The smallest bound on retries with which success is likely enough, and the ceiling that no bound lifts it over.

Takes a `Question` and a target, varies a parameter. The ceiling is worked out in the limit, so "impossible" is never the
result of giving up.
"""

from collections.abc import Iterable
from typing import Literal

import attrs

from dsa.checks.odds.assumed import OddsError
from dsa.checks.odds.chain import TooLargeError
from dsa.checks.odds.limit import Limit, NoLimitError, limit
from dsa.checks.odds.reckon import Question, Reckoning
from dsa.expr import Interval, Value, concrete
from dsa.machine import Machine

#: How far values are tried one by one where success need not grow with them.
TRIED = 100
DEFAULT_VARY = "rmax"
_ROUNDING = 1e-12

Answer = Literal["reached", "impossible", "unknown"]


@attrs.frozen
class Needed:
    """What a target needs: the smallest value of the parameter, or why there is none.

    `ceiling` is what success tends to as the parameter grows; with `is_ceiling` no value gives more. `reckoning` is at
    `value`; None unless the target is reached.
    """

    parameter: str
    target: float
    answer: Answer
    value: int | None = None
    ceiling: float | None = None
    is_ceiling: bool = False
    reckoning: Reckoning | None = None
    reason: str = ""


@attrs.frozen
class Varied:
    """A parameter, or the first part of several (`rmax` of `rmax.g_test`), with the values that all of them can have."""

    name: str
    parameters: tuple[str, ...]
    low: int
    high: int | None

    def at(self, value: int) -> dict[str, Value]:
        """Give the parameters' values."""
        return dict.fromkeys(self.parameters, value)


def varied(machine: Machine, name: str | None = None) -> Varied:
    """Find what to vary; without a name `rmax`, else the only number. Raises OddsError when there is no such number."""
    numbers = {p.name: d for p in machine.parameters if isinstance(d := concrete(p.domain, {}), Interval)}
    wanted = name or DEFAULT_VARY
    found = [wanted] if wanted in numbers else [other for other in numbers if other.startswith(f"{wanted}.")]
    if not found and name is None and len(numbers) == 1:
        wanted, found = next(iter(numbers)), list(numbers)
    if not found:
        known = ", ".join(numbers) or "none"
        raise OddsError(f"machine {machine.name} has no number '{wanted}' to vary (--vary); it has: {known}")
    highs = [high for parameter in found if (high := numbers[parameter].high) is not None]
    return Varied(wanted, tuple(found), max(numbers[p].low for p in found), min(highs) if highs else None)


def curve(asked: Question, what: Varied, values: Iterable[int]) -> tuple[tuple[int, Reckoning], ...]:
    """Work out the odds at several values of a parameter."""
    return tuple((value, asked.at(what.at(value))) for value in values)


def smallest(asked: Question, target: float, what: Varied) -> Needed:
    """Find the smallest value at which success is at least `target` (the least, where somebody chooses)."""
    if not 0 < target <= 1:
        raise OddsError(f"{target:g} is no target: it lies above 0, and is at most 1")
    here = asked.at(what.at(what.low))
    if not here.known or here.success is None or here.unknown:
        return Needed(what.name, target, "unknown", reason="; ".join(here.unknown) or "nothing counts as success")
    try:
        found = _Search(asked, target, what).run()
    except TooLargeError as limit_met:
        return Needed(what.name, target, "unknown", reason=str(limit_met))
    return found if found.value is None else attrs.evolve(found, reckoning=asked.at(what.at(found.value)))


class _Search:
    def __init__(self, asked: Question, target: float, what: Varied) -> None:
        self._asked, self._target, self._what = asked, target, what
        self._known: dict[int, float] = {}

    def run(self) -> Needed:
        # Odds that change with the retry number may jump at first; and a success that is sure needs no limit.
        early = self._what.low + max((g.memory for g in self._asked.world.guards.values()), default=1)
        if (value := self._first(early)) is not None:
            return self._needed("reached", value=value)
        try:
            at_infinity = limit(self._asked.system, self._what.parameters, self._asked.success)
        except NoLimitError as why:
            return self._one_by_one(None, f"what success tends to is not known: {why}")
        question = attrs.evolve(self._asked, system=at_infinity.system)
        ceiling = question.success_at()
        # Whoever chooses among answers can choose the same at every value; which outside events are accepted may depend on it.
        free = self._asked.world.outside or len(question.chain().choices[0]) > 1
        if free or not at_infinity.is_ceiling:
            return self._one_by_one(ceiling, self._why_not(ceiling))
        return self._below(ceiling, at_infinity)

    def _why_not(self, ceiling: float) -> str:
        if self._asked.world.outside and ceiling < self._target:
            return (
                "with --outside a target counts the worst choice of what comes from outside, where it may always be what"
                " stops the run; give odds instead, such as --event approved=0.8"
            )
        return f"success need not grow with {self._what.name}"

    def _below(self, ceiling: float, at_infinity: Limit) -> Needed:
        assert at_infinity.is_ceiling
        if self._target > ceiling - _ROUNDING:
            over = self._target > ceiling + _ROUNDING
            reason = "" if over else f"the ceiling is approached as {self._what.name} grows, and never reached"
            return self._needed("impossible", ceiling=ceiling, is_ceiling=True, reason=reason)
        low, step = self._what.low, 1
        high = low
        while not self._good(high):
            low, high, step = high, high + step, step * 2
            if self._what.high is not None and high >= self._what.high:
                high = self._what.high
                if not self._good(high):
                    reason = f"{self._what.name} is at most {high}"
                    return self._needed("impossible", ceiling=self._at(high), is_ceiling=True, reason=reason)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._good(middle) else (middle, high)
        return self._needed("reached", value=high, ceiling=ceiling, is_ceiling=True)

    def _one_by_one(self, ceiling: float | None, why: str) -> Needed:
        last = self._what.low + TRIED
        value = self._first(last)
        if value is not None:
            return self._needed("reached", value=value, ceiling=ceiling)
        if self._what.high is not None and self._what.high <= last:
            most = max(self._known.values())
            reason = f"{self._what.name} is at most {self._what.high}"
            return self._needed("impossible", ceiling=most, is_ceiling=True, reason=reason)
        return self._needed("unknown", ceiling=ceiling, reason=f"not reached up to {self._what.name} = {last}; {why}")

    def _first(self, last: int) -> int | None:
        last = last if self._what.high is None else min(last, self._what.high)
        return next((value for value in range(self._what.low, last + 1) if self._good(value)), None)

    def _at(self, value: int) -> float:
        if value not in self._known:
            self._known[value] = self._asked.success_at(self._what.at(value))
        return self._known[value]

    def _good(self, value: int) -> bool:
        return self._at(value) >= self._target - _ROUNDING

    def _needed(
        self,
        answer: Answer,
        *,
        value: int | None = None,
        ceiling: float | None = None,
        is_ceiling: bool = False,
        reason: str = "",
    ) -> Needed:
        return Needed(
            self._what.name, self._target, answer, value, ceiling=ceiling, is_ceiling=is_ceiling, reason=reason
        )
