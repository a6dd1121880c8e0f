"""Event data: the values that references such as `found.order` stand for, at any moment of a run (rules D1 to D6 of `specs/semantics.md`).

All of it is read from the ledger, so it is clean, without secrets, and the same in a live run and in a resumed one. Refused events have no data
here. Limits: LONGEST_VALUE for one value, LONGEST_IN_ALL for one prompt.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any

import attrs

from dsa.data_use import guard_indices, guard_uses, prompt_references
from dsa.declarations import Reference, ReferenceFault, read_reference
from dsa.errors import DsaError
from dsa.machine import Machine
from dsa.runtime.json_text import sorted_text_of
from dsa.runtime.ledger import Entry, EventEntry, Ledger, RowEntry, place_of_key, seq_of

#: The longest value of a reference, in characters of text or of JSON.
LONGEST_VALUE = 200_000
#: The longest data in one prompt, all values together, in characters.
LONGEST_IN_ALL = 1_000_000
MISSING_DATA = "MISSING_DATA"


class MissingDataError(DsaError, LookupError):
    """Raised for a reference to data that no event has, or to data that is too long for a prompt or a guard."""


@attrs.frozen
class _EventDatum:
    """The data of one event, with the event's number and the key of the effect that it answered."""

    seq: int
    key: str | None
    data: Any


_SEQ = attrgetter("seq")


class EventData:
    """The data of a run's events, as far as `follow` has read the ledger."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._data: dict[str, list[_EventDatum]] = {}
        self._read = 0
        self._event: EventEntry | None = None

    def follow(self, ledger: Ledger[Entry]) -> "EventData":
        """Read the entries that were appended to the ledger since the last call."""
        for entry in ledger.after(self._read):
            if type(entry) is EventEntry:
                self._event = entry
            elif type(entry) is RowEntry and self._event is not None:
                event, self._event = self._event, None
                datum = _EventDatum(event.seq, event.key, event.data)
                self._data.setdefault(event.event, []).append(datum)
        self._read = len(ledger)
        return self

    def as_of(self, seq: int) -> "DataThen":
        """Return the data after the event with this number was taken."""
        return DataThen(self._machine, self._data, seq)

    def before(self, key: str) -> "DataThen":
        """Return the data that the effect with a key sees: the data after the event that emitted it."""
        return self.as_of(seq_of(key))


@attrs.frozen
class DataThen:
    """The data at one moment. `newest` is the event that guards are judging at this moment, if there is one: its data counts as the newest."""

    _machine: Machine
    _data: Mapping[str, Sequence[_EventDatum]]
    seq: int
    _newest: tuple[str, _EventDatum] | None = None

    def with_event(self, event: str, data: object, key: str | None = None) -> "DataThen":
        """Return the data with the event that guards are judging; `key` is the key of the effect that it answers."""
        return attrs.evolve(self, newest=(event, _EventDatum(self.seq + 1, key, data)))

    def get(self, reference: Reference | str) -> Any:  # noqa: ANN401  (JSON)
        """Return the JSON value of a reference, a new one each time; None, or an empty list, for optional data that is missing.

        Raises MissingDataError if the data is missing or longer than LONGEST_VALUE, and LookupError for words that are not a reference.
        """
        if isinstance(reference, str):
            words = read_reference(reference, self._machine.event_named)
            if isinstance(words, ReferenceFault):
                raise LookupError(f"machine {self._machine.name}: {words}")  # noqa: TRY004  (its text is wrong, not its type)
            reference = words
        value = self._all_values(reference) if reference.is_all else self._newest_value(reference)
        size = len(value) if isinstance(value, str) else len(sorted_text_of(value))
        if size > LONGEST_VALUE:
            raise MissingDataError(
                f"'{reference}' has {size:,} characters; the limit is {LONGEST_VALUE:,}: refer to a part of this value, or record the path of a file instead"
            )
        return deepcopy(value)  # the caller may change it; the ledger must not change

    def _newest_value(self, reference: Reference) -> Any:  # noqa: ANN401  (JSON)
        data = self._since(reference)
        value = _at(data[-1].data, reference.path) if data else None
        if value is None and not reference.is_optional:
            raise MissingDataError(self._why(reference, any_came=bool(data)))
        return value

    def _all_values(self, reference: Reference) -> list[Any]:
        """Return a list: answers in the order of their effects' keys, other events in the order of arrival."""
        data = self._since(reference)
        if data and data[0].key is not None:
            data = sorted(data, key=lambda each: place_of_key(each.key or ""))
        values = [_at(each.data, reference.path) for each in data]
        if not reference.is_optional and (not values or None in values):
            raise MissingDataError(self._why(reference, any_came=bool(data)))
        return [value for value in values if value is not None]

    def _since(self, reference: Reference) -> list[_EventDatum]:
        data = self._until_now(reference.event)
        if reference.since is None:
            return data
        since = self._until_now(reference.since)
        return [each for each in data if each.seq >= since[-1].seq] if since else data

    def _until_now(self, event: str) -> list[_EventDatum]:
        every = self._data.get(event, ())
        data = list(every[: bisect_right(every, self.seq, key=_SEQ)])
        if self._newest is not None and self._newest[0] == event:
            data.append(self._newest[1])
        return data

    def _why(self, reference: Reference, *, any_came: bool) -> str:
        since = f" since {reference.since}" if reference.since else ""
        if not any_came:
            return f"'{reference}' is missing: no {reference.event} has come{since}"
        reason = f"has no '{'.'.join(reference.path)}'" if reference.path else "has no data"
        return f"'{reference}' is missing: {reference.event} {reason}"


def _at(data: object, path: Sequence[str]) -> Any:  # noqa: ANN401  (JSON)
    """Return the value at a path in JSON objects, or None."""
    for part in path:
        if not isinstance(data, dict):
            return None
        data = data.get(part)
    return data


def as_text(value: object) -> str:
    """Write a value for a prompt: a string unchanged, "" for None, other JSON with indents."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2)


def placeholder_values(machine: Machine, step: str, effect: str, get: Callable[[Reference], Any]) -> dict[str, str]:
    """Return the texts for the data placeholders in an effect's prompt, by the words between their braces.

    Raises what `get` raises, and MissingDataError if the texts together are longer than LONGEST_IN_ALL.
    """
    texts_by_words = {}
    for reference in prompt_references(machine, step, effect):
        value = get(reference)
        texts = [as_text(each) for each in value] if reference.is_all else [as_text(value)]
        texts_by_words[str(reference)] = "\n\n".join(texts)
    size = sum(map(len, texts_by_words.values()))
    if size > LONGEST_IN_ALL:
        names = ", ".join(f"'{name}'" for name in texts_by_words)
        raise MissingDataError(
            f"{names} have {size:,} characters in all; the limit for one prompt is {LONGEST_IN_ALL:,}: refer to parts of these values"
        )
    return texts_by_words


def guard_data(machine: Machine, guard: str, event: str, get: Callable[[Reference], Any]) -> dict[str, object]:
    """Return what a guard gets to judge an event: event data, and the index of the event where it uses that.

    The names are those of its arguments, and `PART:ARGUMENT` for its parts. Raises what `get` raises.
    """
    values: list[tuple[str, str, Any]] = [*guard_indices(machine, guard, event)]
    values += [(part, name, get(reference)) for part, name, reference in guard_uses(machine, guard, event)]
    return {name if part == guard else f"{part}:{name}": value for part, name, value in values}
