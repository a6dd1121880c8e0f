"""What the events of a run have brought, as of any moment: what references stand for (rules D1 to D6 of `specs/semantics.md`).

Follows a run's ledger, so it gives what was recorded: cleaned and without secrets, the same in a live run and after it was taken up again.
Refused events have brought nothing.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any

import attrs

from dsa.data_use import guard_uses, prompt_references
from dsa.declarations import Reference, UnreadableReferenceError, read_reference
from dsa.errors import DsaError
from dsa.machine import Machine
from dsa.runtime.json_text import sorted_text_of
from dsa.runtime.ledger import Entry, EventEntry, Ledger, RowEntry, seq_of

#: The longest value that a reference stands for, in characters of text or of JSON.
LONGEST_VALUE = 200_000
#: The longest that all data in one prompt may be, in characters.
LONGEST_IN_ALL = 1_000_000
MISSING_DATA = "MISSING_DATA"


class MissingDataError(DsaError, LookupError):
    """Raised for a reference to what no event has brought, or to more than a prompt or a guard is given."""


@attrs.frozen
class _EventDatum:
    """What one event brought: its number, the key of the effect that it answered, its data."""

    seq: int
    key: str | None
    data: Any


_SEQ = attrgetter("seq")


class EventData:
    """What the events of a run have brought, as far as `follow` has read its ledger."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._brought: dict[str, list[_EventDatum]] = {}
        self._read = 0
        self._arrived: EventEntry | None = None

    def follow(self, ledger: Ledger[Entry]) -> "EventData":
        """Read what was appended to the ledger since the last time."""
        for entry in ledger.after(self._read):
            if type(entry) is EventEntry:
                self._arrived = entry
            elif type(entry) is RowEntry and self._arrived is not None:
                arrived, self._arrived = self._arrived, None
                one = _EventDatum(arrived.seq, arrived.key, arrived.data)
                self._brought.setdefault(arrived.event, []).append(one)
        self._read = len(ledger)
        return self

    def as_of(self, seq: int) -> "DataThen":
        """Return what there was when the event of this number had been taken."""
        return DataThen(self._machine, self._brought, seq)

    def before(self, key: str) -> "DataThen":
        """Return what the effect of a key sees: what there was when it was asked for, the event that caused it included."""
        return self.as_of(seq_of(key))


@attrs.frozen
class DataThen:
    """What there was at one moment. `judged` is the event that is being judged then, with its data: it is there as well, and the newest."""

    _machine: Machine
    _brought: Mapping[str, Sequence[_EventDatum]]
    seq: int
    _judged: tuple[str, _EventDatum] | None = None

    def judging(self, event: str, data: object, key: str | None = None) -> "DataThen":
        """Return it with the event that is being judged; `key` is that of the effect which it answers."""
        return attrs.evolve(self, judged=(event, _EventDatum(self.seq + 1, key, data)))

    def get(self, reference: Reference | str) -> Any:  # noqa: ANN401  (JSON)
        """Return what a reference stands for: JSON; None, or an empty list, for what may be missing and is.

        Raises MissingDataError for what is missing, or is longer than a value may be, and LookupError for words that are no reference.
        """
        if isinstance(reference, str):
            try:
                reference = read_reference(reference, self._machine.event_named)
            except UnreadableReferenceError as error:
                raise LookupError(f"machine {self._machine.name}: {error}") from error
        value = self._all(reference) if reference.is_all else self._newest(reference)
        size = len(value) if isinstance(value, str) else len(sorted_text_of(value))
        if size > LONGEST_VALUE:
            raise MissingDataError(
                f"'{reference}' has {size:,} characters, and {LONGEST_VALUE:,} are allowed: name a part of it, or record the path of a file"
            )
        return deepcopy(value)  # whoever is given it may change it, and the ledger stays as it is

    def _newest(self, reference: Reference) -> Any:  # noqa: ANN401  (JSON)
        found = self._since(reference)
        value = _at(found[-1].data, reference.path) if found else None
        if value is None and not reference.is_optional:
            raise MissingDataError(self._why(reference, any_came=bool(found)))
        return value

    def _all(self, reference: Reference) -> list[Any]:
        """Return a list: answers in the order in which they were asked for, other events in the order in which they came."""
        found = self._since(reference)
        if found and found[0].key is not None:
            found = sorted(found, key=lambda each: _order(each.key or ""))
        values = [_at(each.data, reference.path) for each in found]
        if not reference.is_optional and (not values or None in values):
            raise MissingDataError(self._why(reference, any_came=bool(found)))
        return [value for value in values if value is not None]

    def _since(self, reference: Reference) -> list[_EventDatum]:
        found = self._until_now(reference.event)
        if reference.since is None:
            return found
        began = self._until_now(reference.since)
        return [each for each in found if each.seq >= began[-1].seq] if began else found

    def _until_now(self, event: str) -> list[_EventDatum]:
        every = self._brought.get(event, ())
        found = list(every[: bisect_right(every, self.seq, key=_SEQ)])
        if self._judged is not None and self._judged[0] == event:
            found.append(self._judged[1])
        return found

    def _why(self, reference: Reference, *, any_came: bool) -> str:
        since = f" since {reference.since}" if reference.since else ""
        if not any_came:
            return f"'{reference}' is missing: no {reference.event} has come{since}"
        brought = f"has no '{'.'.join(reference.path)}'" if reference.path else "has brought nothing"
        return f"'{reference}' is missing: {reference.event} {brought}"


def _at(data: object, path: Sequence[str]) -> Any:  # noqa: ANN401  (JSON)
    """Return what stands at a path in JSON objects; None where there is nothing."""
    for part in path:
        if not isinstance(data, dict):
            return None
        data = data.get(part)
    return data


def _order(key: str) -> tuple[int, ...]:
    return tuple(int(part) for part in key.split("/"))


def as_text(value: object) -> str:
    """Write a value as it stands in a prompt: a text as it is, nothing for null, other JSON with indents; the items of a list one after the other."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2)


def placeholder_values(machine: Machine, step: str, effect: str, get: Callable[[Reference], Any]) -> dict[str, str]:
    """Return what fills in the placeholders for data in the prompt of an effect, by the words between their braces.

    Raises what `get` raises, and MissingDataError where they are too long together.
    """
    found = {}
    for reference in prompt_references(machine, step, effect):
        value = get(reference)
        texts = [as_text(each) for each in value] if reference.is_all else [as_text(value)]
        found[str(reference)] = "\n\n".join(texts)
    size = sum(map(len, found.values()))
    if size > LONGEST_IN_ALL:
        names = ", ".join(f"'{name}'" for name in found)
        raise MissingDataError(
            f"{names} have {size:,} characters in all, and {LONGEST_IN_ALL:,} are allowed in one prompt: name parts of them"
        )
    return found


def guard_data(machine: Machine, guard: str, get: Callable[[Reference], Any]) -> dict[str, Any]:
    """Return what a guard is given of the data of events by the names of its arguments, and what its parts are by `PART:ARGUMENT`. Raises what `get` raises."""
    return {
        name if part == guard else f"{part}:{name}": get(reference)
        for part, name, reference in guard_uses(machine, guard)
    }
