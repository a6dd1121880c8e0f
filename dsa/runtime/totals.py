"""What a run has cost, added up from its ledger: calls, tokens, seconds, money. What nobody knows is counted as such."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from dsa.runtime.budgets import is_try, number
from dsa.runtime.intents import Intents
from dsa.runtime.ledger import PERSON, ArtifactEntry, CallResultEntry, Entry, ResultEntry, VerdictEntry


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
        """Give the sums as a JSON object."""
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
