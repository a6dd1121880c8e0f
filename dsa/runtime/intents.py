"""Intents: the effects that a run asks for, each with the row that asks for it.

A ledger names an effect and its key alone: event, line and states are those of the event and the row that stand before it.
"""

from collections.abc import Iterable

import attrs

from dsa.runtime.ledger import EffectEntry, Entry, EventEntry, RowEntry


@attrs.frozen
class Intent:
    """An effect to be performed. `key` is `SEQ/ORDINAL`: the number of the event and the place in its row, the same in every replay.

    `event` and `line` are those of the row that emitted it, `source` and `target` the states before and after.
    """

    key: str
    effect: str
    event: str
    line: int | None
    source: str
    target: str


class Intents(dict[str, Intent]):
    """The intents of a ledger by their keys, in the order in which they were asked for. `take` goes on with an entry."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        super().__init__()
        self._event = ""
        self._row: RowEntry | None = None
        for entry in entries:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """Read one more entry."""
        if type(entry) is EventEntry:
            self._event = entry.event
        elif type(entry) is RowEntry:
            self._row = entry
        elif type(entry) is EffectEntry and self._row is not None:
            row = self._row
            self[entry.key] = Intent(entry.key, entry.effect, self._event, row.line, row.source, row.target)

    def effect(self, key: str) -> str:
        """Return the name of the effect of a key; empty when nothing has asked for it."""
        intent = self.get(key)
        return "" if intent is None else intent.effect


def seq_of(key: str) -> int:
    """Return the number of the event that caused an effect, from the effect's key."""
    return int(key.partition("/")[0])
