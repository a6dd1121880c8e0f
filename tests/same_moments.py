"""Moments of a run in the form in which two implementations of `Runs` can be compared."""

import json
from collections.abc import Iterator
from typing import Any

from dsa.runtime.ledger import Entry, EventEntry, RefusalEntry, to_json


def comparable(run_id: str, entries: list[Entry]) -> Iterator[Any]:
    """Yield the entries without times and ids, numbered as if what was refused to people had never been sent."""
    numbers = {"0": "0"}
    for position, entry in enumerate(entries):
        following = entries[position + 1] if position + 1 < len(entries) else None
        if isinstance(entry, EventEntry):
            is_dropped = isinstance(following, RefusalEntry) and entry.key is None and entry.source is None
            numbers[str(entry.seq)] = "" if is_dropped else str(len([n for n in numbers.values() if n]))
        if (isinstance(entry, EventEntry) and not numbers[str(entry.seq)]) or (
            isinstance(entry, RefusalEntry) and not list(numbers.values())[-1]
        ):
            continue
        fields = json.loads(json.dumps(to_json(entry)).replace(run_id, "RUN"))
        for name in ("at_ms", "seconds", "by"):
            fields.pop(name, None)
        if "seq" in fields:
            fields["seq"] = numbers[str(fields["seq"])]
        for name in ("key", "at"):
            if fields.get(name):
                seq, slash, ordinal = fields[name].partition("/")
                fields[name] = f"{numbers[seq]}{slash}{ordinal}"
        yield fields
