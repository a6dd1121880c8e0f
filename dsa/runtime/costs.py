"""What a run may cost: calls, tokens, money and seconds, for the whole run or for one effect.

Takes limits and ledger entries, says whether one more try may be made. Failed tries count, and so do those that a crash cut off; a policy that an
effect's policy has called counts as a call when it says what it took. What nobody knows, such as the price of a call that its provider does not tell, counts as nothing.

What a run has cost, added up from its ledger: calls, tokens, seconds, money. What nobody knows is counted as such.

What a ledger can be counted by: events, effects, refusals, and the reasons and rescues that policies have named.

Takes entries, gives numbers. Nobody has to have counted at the time, so nothing is lost with a process. A policy names a reason in the
payload of a step (`reason`), and what it has mended in an event's data (`rescues`: names, or numbers by name).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import attrs

from dsa.errors import DsaError
from dsa.runtime.ledger import (
    PERSON,
    ArtifactEntry,
    CallResultEntry,
    EffectEntry,
    Entry,
    EventEntry,
    Intents,
    Ledger,
    RefusalEntry,
    ResultEntry,
    ResumedEntry,
    VerdictEntry,
    part_in,
)
from dsa.text import closest

UNITS = ("calls", "tokens", "usd", "seconds")
_WHOLE = ("calls", "tokens")
#: The whole run, as the effect of a limit.
RUN = ""
#: The code of the error step of an effect that was not tried because its budget is spent.
BUDGET = "BUDGET"


class BudgetError(DsaError, ValueError):
    """Raised for a limit that cannot be read."""


class BudgetSpentError(DsaError):
    """Raised for a call that an effect's policy makes when the budget is spent."""


@attrs.frozen
class BudgetLimit:
    """At most so much of a unit, of one effect or of the whole run."""

    unit: str
    most: float
    effect: str = RUN

    def __str__(self) -> str:
        unit = {"usd": "US dollar"}.get(self.unit, self.unit.removesuffix("s"))
        amount = f"{self.most:g} {unit}{'' if self.most == 1 else 's'}"
        return f"at most {amount} {f'of {self.effect}' if self.effect else 'in all'}"


def read_limit(text: str, effects: Iterable[str]) -> BudgetLimit:
    """Read `calls=20`, `usd=0.5`, or `query_llm.tokens=4000`. Raises BudgetError."""
    what, _, amount = text.partition("=")
    effect, _, unit = what.strip().rpartition(".")
    known = sorted(effects)
    if unit not in UNITS or not amount.strip():
        written = f"write UNIT=NUMBER or EFFECT.UNIT=NUMBER, UNIT one of {', '.join(UNITS)}"
        raise BudgetError(f"'{text}' is no budget: {written}")
    if effect and effect not in known:
        raise BudgetError(f"'{text}' is no budget: there is no effect '{effect}'; {closest(effect, known)}")
    try:
        most = float(amount)
    except ValueError:
        most = -1.0
    if not 0 <= most < inf:
        raise BudgetError(f"'{text}' is no budget: '{amount}' is no number from 0")
    if unit in _WHOLE and not most.is_integer():
        raise BudgetError(f"'{text}' is no budget: {unit} are counted in whole numbers")
    return BudgetLimit(unit, most, effect)


class Meter:
    """Adds up what was spent and compares it with the limits. Let it `follow` the ledger before it is asked.

    Of the run as a whole it counts the effects that have answers (`counted`); others are limited only by name. What was spent in all allows no
    further try of `spenders`, by default of all that it counts.
    """

    def __init__(
        self, limits: Iterable[BudgetLimit], counted: Iterable[str], spenders: Iterable[str] | None = None
    ) -> None:
        self._limits, self._counted = tuple(limits), frozenset(counted)
        self._spenders = self._counted if spenders is None else frozenset(spenders)
        self._spent: dict[tuple[str, str], float] = defaultdict(float)
        self._effect_of: dict[str, str] = {}
        self._under_way: dict[str, int] = defaultdict(int)
        self._followed = 0
        #: Whether there is a limit at all.
        self.has_limits = bool(self._limits)

    def follow(self, ledger: Ledger[Entry]) -> None:
        """Record what the entries say was spent that are new in a ledger, durable or not yet."""
        for entry in ledger.after(self._followed):
            self._observe(entry)
        self._followed = len(ledger)

    def _observe(self, entry: Entry) -> None:
        match entry:
            case EffectEntry(key=key, effect=effect):
                self._effect_of[key] = effect
            case ResultEntry(key=key, seconds=seconds) if is_try(entry):
                effect = self._effect_of[key]
                self._add(effect, {"calls": 1, "seconds": seconds})
                for usage in entry.usage:
                    self._add(effect, _taken(usage))
            case ResumedEntry(effects=effects):
                for key, handling in effects:
                    if handling != "again":
                        self._add(self._effect_of[key], {"calls": 1})
            case ArtifactEntry(key=key) if key in self._effect_of:
                tokens = (entry.prompt_tokens or 0) + (entry.completion_tokens or 0)
                self._add(self._effect_of[key], {"tokens": tokens, "usd": entry.cost_usd or 0.0})
            case CallResultEntry(key=key) if key in self._effect_of:
                for usage in entry.usage:
                    self._add(self._effect_of[key], {"calls": 1, **_taken(usage)})

    def _add(self, effect: str, amounts: Mapping[str, float]) -> None:
        for unit, amount in amounts.items():
            for scope in self._scopes(effect):
                self._spent[scope, unit] += amount

    def _scopes(self, effect: str) -> tuple[str, ...]:
        return (effect, RUN) if effect in self._counted else (effect,)

    def begins(self, effect: str) -> None:
        """Record that a try is under way."""
        self._count_under_way(effect, 1)

    def ends(self, effect: str) -> None:
        """Record that it is under way no longer; what it took is in its result."""
        self._count_under_way(effect, -1)

    def _count_under_way(self, effect: str, more: int) -> None:
        for scope in self._scopes(effect):
            self._under_way[scope] += more

    def exhausted(self, effect: str) -> BudgetLimit | None:
        """Return the limit that allows no further try of an effect, or None."""
        return next((limit for limit in self._of(effect) if self._left(limit) <= 0), None)

    def spent(self, effect: str) -> BudgetLimit | None:
        """Return the limit that allows no further call within an effect that is under way, or None."""
        return next((limit for limit in self._of(effect) if self._spent[limit.effect, limit.unit] >= limit.most), None)

    def left(self) -> tuple[BudgetLimit, ...]:
        """Return the limits of what is left."""
        return tuple(attrs.evolve(limit, most=max(0.0, self._left(limit))) for limit in self._limits)

    def seconds_left(self, effect: str) -> float:
        """Return how long a try may take; infinite when nothing limits it."""
        return min((self._left(limit) for limit in self._of(effect) if limit.unit == "seconds"), default=inf)

    def _of(self, effect: str) -> list[BudgetLimit]:
        return [
            limit for limit in self._limits if limit.effect == effect or (not limit.effect and effect in self._spenders)
        ]

    def _left(self, limit: BudgetLimit) -> float:
        under_way = self._under_way[limit.effect] if limit.unit == "calls" else 0
        return limit.most - self._spent[limit.effect, limit.unit] - under_way


def _taken(usage: Mapping[str, object]) -> dict[str, float]:
    """Return the tokens and the money that a usage tells of."""
    tokens = number(usage.get("prompt_tokens")) + number(usage.get("completion_tokens"))
    return {"tokens": tokens, "usd": number(usage.get("cost_usd"))}


def number(said: object) -> float:
    """Return a number that a policy has said it took; nothing for what is none."""
    return said if isinstance(said, int | float) and not isinstance(said, bool) and 0 <= said < inf else 0


def was_refused(result: ResultEntry) -> bool:
    """Return whether an effect was not tried, because its budget was spent."""
    return any(step["payload"].get("code") == BUDGET for step in result.steps)


def is_try(result: ResultEntry) -> bool:
    """Return whether an effect was tried: its budget was not spent, and it does not wait for a part, which goes on with this try."""
    return not was_refused(result) and part_in(result) is None


@attrs.frozen
class Totals:
    """Sums over a ledger. `uncounted_calls` are those whose provider gave no token counts; their tokens are not in.

    `failed_calls` gave no artifact. `cost_usd` is None when the cost of any call is unknown.
    """

    calls: int = 0
    failed_calls: int = 0
    uncounted_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_seconds: float = 0.0
    guard_seconds: float = 0.0
    cost_usd: float | None = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the sums as a JSON object."""
        return attrs.asdict(self)


def totals(ledger: Iterable[Entry], generating: str) -> Totals:
    """Add up a ledger. `generating` is the effect that asks a model; what a person wrote costs nothing.

    A policy that another one has called counts when it says what it took; its seconds are not known. So does an effect whose event brings its
    `usage`, as those of conversations do.
    """
    sums, intents = Totals(), Intents()
    for entry in ledger:
        intents.take(entry)
        if isinstance(entry, ArtifactEntry) and entry.author != PERSON:
            sums = _with_call(sums, entry)
        elif isinstance(entry, CallResultEntry):
            for usage in entry.usage:
                sums = _with_usage(sums, usage)
        elif isinstance(entry, VerdictEntry):
            sums = attrs.evolve(sums, guard_seconds=sums.guard_seconds + entry.seconds)
        elif isinstance(entry, ResultEntry):
            sums = _with_result(sums, entry, generates=intents.effect(entry.key) == generating)
    return sums


def _with_result(sums: Totals, entry: ResultEntry, *, generates: bool) -> Totals:
    """Add what an effect says that it took of a model; one that generates artifacts says it in them, unless it has failed."""
    if entry.failed:
        return _with_failure(sums, entry) if generates and is_try(entry) else sums
    for usage in entry.usage:
        sums = attrs.evolve(_with_usage(sums, usage), model_seconds=sums.model_seconds + entry.seconds)
    return sums


def _with_call(sums: Totals, entry: ArtifactEntry) -> Totals:
    counted = entry.prompt_tokens is not None and entry.completion_tokens is not None
    known = sums.cost_usd is not None and entry.cost_usd is not None
    return attrs.evolve(
        sums,
        calls=sums.calls + 1,
        uncounted_calls=sums.uncounted_calls + (not counted),
        prompt_tokens=sums.prompt_tokens + (entry.prompt_tokens or 0),
        completion_tokens=sums.completion_tokens + (entry.completion_tokens or 0),
        model_seconds=sums.model_seconds + entry.seconds,
        cost_usd=(sums.cost_usd or 0.0) + (entry.cost_usd or 0.0) if known else None,
    )


def _with_failure(sums: Totals, entry: ResultEntry) -> Totals:
    """Add a call that gave no artifact; what it took is unknown, unless its error says so."""
    if not entry.usage:
        return attrs.evolve(sums, calls=sums.calls + 1, failed_calls=sums.failed_calls + 1, cost_usd=None)
    with_usage, seconds = _with_usage(sums, entry.usage[-1]), number(entry.usage[-1].get("seconds"))
    return attrs.evolve(with_usage, failed_calls=sums.failed_calls + 1, model_seconds=sums.model_seconds + seconds)


def _with_usage(sums: Totals, usage: Mapping[str, Any]) -> Totals:
    counted = all(isinstance(usage.get(name), int) for name in ("prompt_tokens", "completion_tokens"))
    known = sums.cost_usd is not None and usage.get("cost_usd") is not None
    return attrs.evolve(
        sums,
        calls=sums.calls + 1,
        uncounted_calls=sums.uncounted_calls + (not counted),
        prompt_tokens=sums.prompt_tokens + int(number(usage.get("prompt_tokens"))),
        completion_tokens=sums.completion_tokens + int(number(usage.get("completion_tokens"))),
        cost_usd=(sums.cost_usd or 0.0) + number(usage.get("cost_usd")) if known else None,
    )


def counters(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """Count a ledger: for each kind of thing, how many of each name, sorted."""
    found: dict[str, Counter[str]] = {
        kind: Counter() for kind in ("events", "refused", "effects", "failed", "in doubt", "reasons", "rescues")
    }
    intents = Intents()
    for entry in entries:
        intents.take(entry)
        match entry:
            case EventEntry(event=event, data=data):
                found["events"][event] += 1
                found["rescues"].update(_rescues(data))
            case RefusalEntry(reason=reason):
                found["refused"][reason] += 1
            case ResultEntry(key=key):
                found["failed" if entry.failed else "effects"][intents.effect(key)] += part_in(entry) is None
                found["reasons"].update(reasons_of(entry))
            case ResumedEntry(effects=effects):
                found["in doubt"].update(intents.effect(key) for key, handling in effects if handling != "again")
    return {kind: dict(sorted(counts.items())) for kind, counts in found.items() if counts}


def reasons_of(result: ResultEntry) -> tuple[str, ...]:
    """Return why something was not done as it was asked for, by the names that a policy gives."""
    given = (step["payload"].get("reason") for step in result.steps)
    return tuple(name for name in given if isinstance(name, str))


def _rescues(data: Any) -> Mapping[str, int]:  # noqa: ANN401  (whatever an event brings)
    said = data.get("rescues") if isinstance(data, dict) else None
    if isinstance(said, list):
        return Counter(name for name in said if isinstance(name, str))
    if isinstance(said, dict):
        return {name: count for name, count in said.items() if isinstance(count, int)}
    return {}
