"""What a ledger can be counted by: events, effects, refusals, and the reasons and rescues that policies have named.

Takes entries, gives numbers. Nobody has to have counted at the time, so nothing is lost with a process. A policy names a reason in the
payload of a step (`reason`), and what it has mended in an event's data (`rescues`: names, or numbers by name).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from dsa.runtime.intents import Intents
from dsa.runtime.ledger import Entry, EventEntry, RefusalEntry, ResultEntry, ResumedEntry
from dsa.runtime.parts import part_in


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
    """Give why something was not done as it was asked for, by the names that a policy gives."""
    given = (step["payload"].get("reason") for step in result.steps)
    return tuple(name for name in given if isinstance(name, str))


def _rescues(data: Any) -> Mapping[str, int]:  # noqa: ANN401  (whatever an event brings)
    said = data.get("rescues") if isinstance(data, dict) else None
    if isinstance(said, list):
        return Counter(name for name in said if isinstance(name, str))
    if isinstance(said, dict):
        return {name: count for name, count in said.items() if isinstance(count, int)}
    return {}
