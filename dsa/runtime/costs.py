"""Costs of a run, all read from its ledger: limits and what is left of them, totals, and counts of events and effects.

- `Meter` compares limits (calls, tokens, US dollars, seconds; of the whole run or of one effect) with the entries, and says whether one more try
  is allowed. Failed tries count, and so do tries that a crash cut off. A policy that another policy calls counts if its steps say what it used.
  Unknown amounts, such as a price that the provider does not state, count as 0.
- `totals` adds up calls, tokens, seconds and dollars. Here an unknown cost stays unknown.
- `counters` counts events, effects, refusals, and what policies report themselves: a reason in a step's payload (`reason`), and repairs in an
  event's data (`rescues`: names, or numbers by name).

All of it can be derived again from the ledger, so a crash loses nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import attrs

from dsa.errors import DsaError, ParameterError
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
#: The effect of a limit that is for the whole run.
RUN = ""
#: The code of the error step of an effect that was not tried, because its budget is spent.
BUDGET = "BUDGET"


class BudgetSpentError(DsaError):
    """Raised when a policy calls another one and the effect's budget is spent."""


@attrs.frozen
class BudgetLimit:
    """The largest amount of a unit (`most`), for one effect or for the whole run."""

    unit: str
    most: float
    effect: str = RUN

    def __str__(self) -> str:
        unit = {"usd": "US dollar"}.get(self.unit, self.unit.removesuffix("s"))
        amount = f"{self.most:g} {unit}{'' if self.most == 1 else 's'}"
        return f"at most {amount} {f'of {self.effect}' if self.effect else 'in all'}"


def read_limit(text: str, effects: Iterable[str]) -> BudgetLimit:
    """Read `calls=20`, `usd=0.5`, or `query_llm.tokens=4000`. Raises ParameterError."""
    name, _, amount = text.partition("=")
    effect, _, unit = name.strip().rpartition(".")
    names = sorted(effects)
    if unit not in UNITS or not amount.strip():
        form = f"write UNIT=NUMBER or EFFECT.UNIT=NUMBER, where UNIT is one of {', '.join(UNITS)}"
        raise _not_a_budget(text, form)
    if effect and effect not in names:
        raise _not_a_budget(text, f"no effect is called '{effect}'; {closest(effect, names)}")
    try:
        most = float(amount)
    except ValueError:
        most = -1.0
    if not 0 <= most < inf:
        raise _not_a_budget(text, f"'{amount}' is not a number of 0 or more")
    if unit in _WHOLE and not most.is_integer():
        raise _not_a_budget(text, f"{unit} must be a whole number")
    return BudgetLimit(unit, most, effect)


def _not_a_budget(text: str, why: str) -> ParameterError:
    return ParameterError(f"'{text}' is not a budget: {why}", code="BudgetError")


class Meter:
    """The amounts spent in a run, compared with its limits. Call `follow` with the ledger before you ask for a limit.

    Limits of the whole run count the `effects` that have answers; other effects are limited only by name. A spent limit of the whole run stops
    the `spenders`, by default all `effects`.
    """

    def __init__(
        self, limits: Iterable[BudgetLimit], effects: Iterable[str], spenders: Iterable[str] | None = None
    ) -> None:
        self._limits, self._effects = tuple(limits), frozenset(effects)
        self._spenders = self._effects if spenders is None else frozenset(spenders)
        self._amounts: dict[tuple[str, str], float] = defaultdict(float)
        self._effect_of: dict[str, str] = {}
        self._under_way: dict[str, int] = defaultdict(int)
        self._entries_read = 0
        #: Whether there is a limit.
        self.has_limits = bool(self._limits)

    @property
    def amounts(self) -> Mapping[tuple[str, str], float]:
        """The amounts that were spent, by effect (`RUN`: the whole run) and unit."""
        return dict(self._amounts)

    def begin_with(self, amounts: Mapping[tuple[str, str], float]) -> None:
        """Add amounts that were spent before the ledger begins."""
        for scope, amount in amounts.items():
            self._amounts[scope] += amount

    def follow(self, ledger: Ledger[Entry]) -> None:
        """Add the amounts of the ledger's new entries, durable or not."""
        for entry in ledger.after(self._entries_read):
            self._observe(entry)
        self._entries_read = len(ledger)

    def _observe(self, entry: Entry) -> None:
        match entry:
            case EffectEntry(key=key, effect=effect):
                self._effect_of[key] = effect
            case ResultEntry(key=key, seconds=seconds) if is_try(entry):
                effect = self._effect_of[key]
                self._add(effect, {"calls": 1, "seconds": seconds})
                for usage in entry.usage:
                    self._add(effect, _usage_amounts(usage))
            case ResumedEntry(effects=effects):
                for key, handling in effects:
                    if handling != "again":
                        self._add(self._effect_of[key], {"calls": 1})
            case ArtifactEntry(key=key) if key in self._effect_of:
                tokens = (entry.prompt_tokens or 0) + (entry.completion_tokens or 0)
                self._add(self._effect_of[key], {"tokens": tokens, "usd": entry.cost_usd or 0.0})
            case CallResultEntry(key=key) if key in self._effect_of:
                for usage in entry.usage:
                    self._add(self._effect_of[key], {"calls": 1, **_usage_amounts(usage)})

    def _add(self, effect: str, amounts: Mapping[str, float]) -> None:
        for unit, amount in amounts.items():
            for scope in self._scopes(effect):
                self._amounts[scope, unit] += amount

    def _scopes(self, effect: str) -> tuple[str, ...]:
        return (effect, RUN) if effect in self._effects else (effect,)

    def begins(self, effect: str) -> None:
        """Record that a try begins."""
        self._count_under_way(effect, 1)

    def ends(self, effect: str) -> None:
        """Record that a try ends; its result has the amounts."""
        self._count_under_way(effect, -1)

    def _count_under_way(self, effect: str, more: int) -> None:
        for scope in self._scopes(effect):
            self._under_way[scope] += more

    def try_limit(self, effect: str) -> BudgetLimit | None:
        """Return the limit that forbids another try of an effect, or None."""
        return next((limit for limit in self._of(effect) if self._left(limit) <= 0), None)

    def call_limit(self, effect: str) -> BudgetLimit | None:
        """Return the limit that forbids another call within an effect that is under way, or None."""
        return next(
            (limit for limit in self._of(effect) if self._amounts[limit.effect, limit.unit] >= limit.most), None
        )

    def left(self) -> tuple[BudgetLimit, ...]:
        """Return the limits with the amounts that are left."""
        return tuple(attrs.evolve(limit, most=max(0.0, self._left(limit))) for limit in self._limits)

    def seconds_left(self, effect: str) -> float:
        """Return how many seconds a try may take; infinity if nothing limits it."""
        return min((self._left(limit) for limit in self._of(effect) if limit.unit == "seconds"), default=inf)

    def _of(self, effect: str) -> list[BudgetLimit]:
        return [
            limit for limit in self._limits if limit.effect == effect or (not limit.effect and effect in self._spenders)
        ]

    def _left(self, limit: BudgetLimit) -> float:
        under_way = self._under_way[limit.effect] if limit.unit == "calls" else 0
        return limit.most - self._amounts[limit.effect, limit.unit] - under_way


def _usage_amounts(usage: Mapping[str, object]) -> dict[str, float]:
    """Return the tokens and dollars in a usage."""
    tokens = number(usage.get("prompt_tokens")) + number(usage.get("completion_tokens"))
    return {"tokens": tokens, "usd": number(usage.get("cost_usd"))}


def number(value: object) -> float:
    """Return a number that a policy reported; 0 if it is not a number of 0 or more."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf else 0


def was_refused(result: ResultEntry) -> bool:
    """Return whether an effect was not tried because its budget was spent."""
    return any(step["payload"].get("code") == BUDGET for step in result.steps)


def is_try(result: ResultEntry) -> bool:
    """Return whether a result ends a try: the budget was not spent, and the effect does not wait for a part (which would continue the same try)."""
    return not was_refused(result) and part_in(result) is None


@attrs.frozen
class Totals:
    """Sums over a ledger. `uncounted_calls` had no token counts from their provider; their tokens are not in the sums.

    `failed_calls` gave no artifact. `cost_usd` is None if the cost of any call is unknown.
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


def totals(ledger: Iterable[Entry], generating_effect: str) -> Totals:
    """Add up a ledger. `generating_effect` is the effect that asks a model; artifacts of people cost nothing.

    A called policy counts if its steps say what it used; its seconds are unknown. An effect counts if its event has `usage` in its data, as in
    conversations.
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
            sums = _with_result(sums, entry, generates=intents.effect(entry.key) == generating_effect)
    return sums


def _with_result(sums: Totals, entry: ResultEntry, *, generates: bool) -> Totals:
    """Add the model usage in an effect's result. An effect that generates artifacts has it in their entries, unless it failed."""
    if entry.has_failed:
        return _with_failure(sums, entry) if generates and is_try(entry) else sums
    for usage in entry.usage:
        sums = attrs.evolve(_with_usage(sums, usage), model_seconds=sums.model_seconds + entry.seconds)
    return sums


def _with_call(sums: Totals, entry: ArtifactEntry) -> Totals:
    has_counts = entry.prompt_tokens is not None and entry.completion_tokens is not None
    has_cost = sums.cost_usd is not None and entry.cost_usd is not None
    return attrs.evolve(
        sums,
        calls=sums.calls + 1,
        uncounted_calls=sums.uncounted_calls + (not has_counts),
        prompt_tokens=sums.prompt_tokens + (entry.prompt_tokens or 0),
        completion_tokens=sums.completion_tokens + (entry.completion_tokens or 0),
        model_seconds=sums.model_seconds + entry.seconds,
        cost_usd=(sums.cost_usd or 0.0) + (entry.cost_usd or 0.0) if has_cost else None,
    )


def _with_failure(sums: Totals, entry: ResultEntry) -> Totals:
    """Add a call that gave no artifact. Its usage is unknown unless its error has it."""
    if not entry.usage:
        return attrs.evolve(sums, calls=sums.calls + 1, failed_calls=sums.failed_calls + 1, cost_usd=None)
    with_usage, seconds = _with_usage(sums, entry.usage[-1]), number(entry.usage[-1].get("seconds"))
    return attrs.evolve(with_usage, failed_calls=sums.failed_calls + 1, model_seconds=sums.model_seconds + seconds)


def _with_usage(sums: Totals, usage: Mapping[str, Any]) -> Totals:
    has_counts = all(isinstance(usage.get(name), int) for name in ("prompt_tokens", "completion_tokens"))
    has_cost = sums.cost_usd is not None and usage.get("cost_usd") is not None
    return attrs.evolve(
        sums,
        calls=sums.calls + 1,
        uncounted_calls=sums.uncounted_calls + (not has_counts),
        prompt_tokens=sums.prompt_tokens + int(number(usage.get("prompt_tokens"))),
        completion_tokens=sums.completion_tokens + int(number(usage.get("completion_tokens"))),
        cost_usd=(sums.cost_usd or 0.0) + number(usage.get("cost_usd")) if has_cost else None,
    )


def counters(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """Count a ledger: the number of entries by kind and name, sorted by name."""
    totals_by_kind: dict[str, Counter[str]] = {
        kind: Counter() for kind in ("events", "refused", "effects", "failed", "in doubt", "reasons", "rescues")
    }
    intents = Intents()
    for entry in entries:
        intents.take(entry)
        match entry:
            case EventEntry(event=event, data=data):
                totals_by_kind["events"][event] += 1
                totals_by_kind["rescues"].update(_rescues(data))
            case RefusalEntry(reason=reason):
                totals_by_kind["refused"][reason] += 1
            case ResultEntry(key=key):
                totals_by_kind["failed" if entry.has_failed else "effects"][intents.effect(key)] += (
                    part_in(entry) is None
                )
                totals_by_kind["reasons"].update(reasons_of(entry))
            case ResumedEntry(effects=effects):
                totals_by_kind["in doubt"].update(
                    intents.effect(key) for key, handling in effects if handling != "again"
                )
    return {kind: dict(sorted(counts.items())) for kind, counts in totals_by_kind.items() if counts}


def reasons_of(result: ResultEntry) -> tuple[str, ...]:
    """Return the reasons that a policy names for doing something other than what was requested."""
    reasons = (step["payload"].get("reason") for step in result.steps)
    return tuple(name for name in reasons if isinstance(name, str))


def _rescues(data: Any) -> Mapping[str, int]:  # noqa: ANN401  (whatever an event brings)
    rescues = data.get("rescues") if isinstance(data, dict) else None
    if isinstance(rescues, list):
        return Counter(name for name in rescues if isinstance(name, str))
    if isinstance(rescues, dict):
        return {name: count for name, count in rescues.items() if isinstance(count, int)}
    return {}
