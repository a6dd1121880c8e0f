"""Moments: what happened in a run, one durable ledger entry each, as those who watch it get them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from dsa.runtime.ledger import Entry, Ledger, from_json, to_json


@attrs.frozen
class Moment:
    """One ledger entry of a run. `number` is its place in the ledger, from 1."""

    run: str
    number: int
    entry: Entry

    @property
    def kind(self) -> str:
        """The kind of the entry: `machine`, `event`, `row`, `effect`, `result`, `artifact`, `verdict` and so on."""
        kind: str = to_json(self.entry)["kind"]
        return kind

    def to_json(self) -> dict[str, Any]:
        """Return the entry as a JSON object, with its run and number."""
        return {"run": self.run, "number": self.number, **to_json(self.entry)}


@attrs.frozen
class Piece:
    """A piece of text that a policy showed while it worked; `key` is that of its call. It is in no ledger."""

    run: str
    key: str
    text: str


def load_story(text: str) -> Ledger[Entry]:
    """Read what happened in one run, one moment a line as JSON. ValueError, KeyError or TypeError when it is not that."""
    return Ledger(_entry(json.loads(line)) for line in text.splitlines() if line)


def _entry(moment: Mapping[str, Any]) -> Entry:
    beside = {"number"} if moment["kind"] in _NAMED else {"run", "number"}
    return from_json({name: value for name, value in moment.items() if name not in beside})


#: The kinds of entries that name their run themselves.
_NAMED = frozenset({"machine", "policy"})
#: Called with each moment once it is durable; `is_new` is False for those that were there before the run was taken up.
OnMoment = Callable[[Moment, bool], None]


def to_all(*observers: OnMoment) -> OnMoment:
    """Return an observer that passes each moment on to every one of these, in this order."""

    def on_moment(moment: Moment, is_new: bool) -> None:  # noqa: FBT001  (the observer interface)
        for observer in observers:
            observer(moment, is_new)

    return on_moment
