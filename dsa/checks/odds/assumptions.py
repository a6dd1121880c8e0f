"""The odds of guards: what a document or a user assumes of them, looked up by retry number.

Takes a machine and numbers given beside it, gives the odds of each verdict. The retry number of a guard is how many times in
a row it has said `failed` when it is asked (docs/decisions/0007).
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import fsum, prod

import attrs

from dsa.declarations import Guard
from dsa.errors import ParameterError
from dsa.expr import OUTCOMES, Outcome
from dsa.machine import Machine
from dsa.text import closest

#: Odds are written in decimals, which do not add up exactly.
ROUNDING = 1e-9
#: What several numbers below 1 are rounded by, together.
_EPSILON = 1e-15
#: Compositions that need all of their parts; the second stops at the first part that does not pass.
_ALL, _IN_ORDER = "all", "in_order"
_MOST_PARTS = 8

Numbers = Sequence[float]


def left_over(*chances: float) -> float:
    """Return what odds leave to 1: nothing where it is no more than their rounding, as of 0.57, 0.41 and 0.02."""
    left = 1.0 - fsum(chances)
    return left if left > (_EPSILON if sum(map(bool, chances)) > 1 else 0.0) else 0.0


def odds_error(message: str) -> ParameterError:
    """Return the error for odds that cannot be worked out, or do not fit the machine."""
    return ParameterError(message, code="OddsError")


@attrs.frozen
class Odds:
    """The odds of one guard: `passed` and `fatal` have one number per retry number, the last one repeated."""

    passed: tuple[float, ...]
    fatal: tuple[float, ...] = (0.0,)

    @property
    def memory(self) -> int:
        """How many retry numbers differ from each other: 1 when the odds never change."""
        longest = max(len(self.passed), len(self.fatal))
        while longest > 1 and self.at(longest - 1) == self.at(longest - 2):
            longest -= 1
        return longest

    @property
    def is_memoryless(self) -> bool:
        """Whether one number is given for all retries: however often the guard has failed, the odds are the same."""
        return len(self.passed) == len(self.fatal) == 1

    def at(self, retry: int) -> dict[Outcome, float]:
        """Return the odds of each verdict at a retry number."""
        passed, fatal = (numbers[min(retry, len(numbers) - 1)] for numbers in (self.passed, self.fatal))
        return {"passed": passed, "failed": left_over(passed, fatal), "fatal": fatal}

    def corners(self, retry: int) -> tuple[dict[Outcome, float]]:
        """Return the odds at a retry number as the only ones that they can be."""
        return (self.at(retry),)


@attrs.frozen
class GuardOdds:
    """What is known of each guard that may be asked; a guard without odds is in neither."""

    odds: Mapping[str, Odds]
    sentences: tuple[str, ...] = ()


def guard_odds(
    machine: Machine, passes: Mapping[str, Numbers] | None = None, fatals: Mapping[str, Numbers] | None = None
) -> GuardOdds:
    """Return the odds of a machine's guards: as given, else as declared, else put together from a composition's parts.

    Fatal odds that nobody gives are 0. Raises ParameterError for a guard that is not declared, and for numbers that are not odds.
    """
    passes, fatals = dict(passes or {}), dict(fatals or {})
    for name in (*passes, *fatals):
        if name not in machine.guard_named:
            raise odds_error(f"machine {machine.name} has no guard '{name}'; {closest(name, machine.guard_named)}")
    odds_by_guard: dict[str, Odds] = {}
    without_fatal = []
    for guard in machine.guards:
        odds = _of(machine, guard, passes, fatals)
        if odds is not None:
            _require(guard, odds)
            _require_own_retries(machine, guard, odds)
            odds_by_guard[guard.name] = odds
            if guard.judges and guard.name not in fatals and not any(odds.fatal) and not guard.fatal_odds:
                without_fatal.append(guard.name)
    sentence = f"fatal odds that are not given are 0 ({', '.join(without_fatal)})"
    can = [name for name in without_fatal if "fatal" in machine.guard_named[name].outcomes]
    return GuardOdds(odds_by_guard, (sentence,) if can else ())


def _of(
    machine: Machine, guard: Guard, passes: Mapping[str, Numbers], fatals: Mapping[str, Numbers], depth: int = 0
) -> Odds | None:
    passed = tuple(passes.get(guard.name, guard.pass_odds))
    fatal = tuple(fatals.get(guard.name, guard.fatal_odds))
    if passed and not fatal and "failed" not in guard.outcomes:
        fatal = tuple(1.0 - number for number in passed)  # it has no other verdict
    if passed:
        return Odds(passed, fatal or (0.0,))
    if len(guard.outcomes) == 1:
        return Odds((float("passed" in guard.outcomes),), (float("fatal" in guard.outcomes),))
    if fatal and "passed" not in guard.outcomes:
        return Odds((0.0,), fatal)
    options = dict(guard.options)
    names = [name.strip() for name in options.get("of", "").split(",") if name.strip()] or [guard.kind]
    parts = [machine.guard_named[name] for name in names if name in machine.guard_named and name != guard.name]
    if len(parts) != len(names) or len(parts) > _MOST_PARTS or depth > len(machine.guards):
        return None
    odds = [_of(machine, part, passes, fatals, depth + 1) for part in parts]
    if fatal or any(part is None for part in odds):
        return None
    part_odds = [part for part in odds if part is not None]
    if len(part_odds) == 1:
        return part_odds[0]
    kind = guard.kind if "of" in options else _ALL
    return _together(kind, part_odds, options.get("k", "1"))


def _together(kind: str, parts: list[Odds], at_least: str) -> Odds | None:
    """Put independent parts together as their composition does: a fatal part makes the whole fatal."""
    passes_needed = {
        _ALL: len(parts),
        _IN_ORDER: len(parts),
        "any": 1,
        "at_least": int(at_least) if at_least.isdigit() else 0,
    }
    if not 1 <= passes_needed.get(kind, 0) <= len(parts) or any(part.memory > 1 for part in parts):
        return None  # a part's own retry number is not the composition's
    odds = [part.at(0) for part in parts]
    passed = fatal = 0.0
    for outcomes in product(OUTCOMES, repeat=len(parts)):
        chance = prod(part[outcome] for part, outcome in zip(odds, outcomes, strict=True))
        outcomes_asked = outcomes
        if kind == _IN_ORDER:  # it stops at the first that does not pass
            stop = next((place for place, outcome in enumerate(outcomes) if outcome != "passed"), len(outcomes))
            outcomes_asked = outcomes[: stop + 1]
        if "fatal" in outcomes_asked:
            fatal += chance
        elif outcomes_asked.count("passed") >= passes_needed[kind]:
            passed += chance
    return Odds((passed,), (fatal,))


def _require_own_retries(machine: Machine, guard: Guard, odds: Odds) -> None:
    """Raise ParameterError for odds by retry number of answers of which several are awaited: the guard's retries then mix theirs."""
    for event in guard.judges if odds.memory > 1 else ():
        effect = machine.event_named[event].origin
        if effect in machine.numbered_effects:
            line = f"line {guard.span.line}: " if guard.span else ""
            raise odds_error(
                f"{line}the odds of guard {guard.name} change with its retry number, but it judges '{event}', and several of "
                f"{effect} may be outstanding, whose retries it cannot tell apart; give one number for pass and one for fatal"
            )


def _require(guard: Guard, odds: Odds) -> None:
    for number in (*odds.passed, *odds.fatal):
        if not 0 <= number <= 1:
            raise odds_error(f"{number:g} is not a probability of guard {guard.name}: it must lie between 0 and 1")
    for retry in range(max(len(odds.passed), len(odds.fatal))):
        here = odds.at(retry)
        if here["passed"] + here["fatal"] > 1 + ROUNDING:
            total = here["passed"] + here["fatal"]
            raise odds_error(f"pass and fatal of guard {guard.name} add up to {total:g} at retry {retry}, more than 1")
        for outcome, chance in here.items():
            if chance > ROUNDING and outcome not in guard.outcomes:
                raise odds_error(
                    f"guard {guard.name} never says {outcome}, so its odds of that must be 0, not {chance:g}; "
                    f"it says: {', '.join(guard.outcomes)}"
                )
