"""The ledger: the append-only record of a run, as frozen entries with a JSON form.

There is one class for each kind of entry, and `Ledger`, their sequence. `Intents` adds to each effect the event and the row that emitted it,
because an effect's entry has only its key and name. `Part` is a run that an effect of another run waits for: the effect's result then has a step
with the code `waiting`, which names that run and what it waits for, and the effect stays outstanding. Storage and durability belong to
`dsa.edge.stores`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar, overload

import attrs

from dsa.expr import Outcome, Value
from dsa.runtime.json_text import AsJson, line_writer, object_of, reader

T = TypeVar("T")

#: What to do about an effect in doubt: perform it again, ask a person, count it as failed, or count it as done. `again` is for an effect that
#: failed and is performed again because the run was resumed.
Handling = Literal["retry", "ask", "fail", "done", "again"]

#: The author of an artifact, or the guard of a verdict, that came from a person.
PERSON = "person"

#: The most entries in the repr of a ledger; asyncio makes the repr of every task's result.
_MOST_SHOWN = 20


class Ledger(Generic[T]):
    """An immutable sequence; `append` and `extend` return longer ones, in O(1) amortised.

    A longer ledger shares the storage of the shorter one; each sees its own first `len` entries. Appending a second time to the same ledger copies
    the storage, so that the first result does not change.
    """

    __slots__ = ("_length", "_storage")
    __hash__ = None  # type: ignore[assignment]  # entries may hold JSON objects

    def __init__(self, entries: Iterable[T] = ()) -> None:
        self._storage = list(entries)
        self._length = len(self._storage)

    def append(self, entry: T) -> "Ledger[T]":
        """Return the ledger with one more entry."""
        storage = self._storage
        if len(storage) != self._length:
            return Ledger((*self, entry))
        storage.append(entry)
        longer: Ledger[T] = Ledger.__new__(Ledger)
        longer._storage, longer._length = storage, self._length + 1
        return longer

    def extend(self, entries: Iterable[T]) -> "Ledger[T]":
        """Return the ledger with more entries."""
        storage = self._storage
        if len(storage) != self._length:
            return Ledger((*self, *entries))
        storage.extend(entries)
        longer: Ledger[T] = Ledger.__new__(Ledger)
        longer._storage, longer._length = storage, len(storage)
        return longer

    def after(self, count: int) -> tuple[T, ...]:
        """Return the entries after the first `count`."""
        return tuple(self._storage[count : self._length])

    def __iter__(self) -> Iterator[T]:
        return islice(self._storage, self._length)

    def __reversed__(self) -> Iterator[T]:
        return islice(reversed(self._storage), len(self._storage) - self._length, None)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """Return an entry, or a tuple of them."""
        if isinstance(index, slice):
            first, last, stride = index.indices(self._length)
            return tuple(self._storage[first:last:stride] if stride > 0 else self._storage[: self._length][index])
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"entry {index} is not among the {self._length} entries")
        return self._storage[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    def __repr__(self) -> str:
        if self._length <= _MOST_SHOWN:
            return f"Ledger({list(self)!r})"
        return f"Ledger([{self[0]!r}, .. {self._length - 2} more .., {self[-1]!r}])"


_TUPLES = frozenset({tuple})


def _pairs(values: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    if not values:
        return ()
    if type(values) is tuple and {*map(type, values)} <= _TUPLES:
        return values
    pairs: Iterable[tuple[str, Any]] = values.items() if isinstance(values, Mapping) else values
    return tuple([(str(name), value) for name, value in pairs])


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _objects(values: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple(values)


@attrs.frozen
class MachineEntry:
    """The first entry of every run: the machine's name, the SHA-256 of its canonical text, and the values of its parameters.

    `started` has the settings that the run was started with (file, model, seed and others), so that it can be resumed with the same ones. `at_ms`
    is the start in milliseconds since 1970, or 0 if no clock was read; the timers of the initial state count from it.
    """

    run: str
    name: str
    digest: str
    parameters: tuple[tuple[str, Value], ...] = attrs.field(default=(), converter=_pairs)
    started: tuple[tuple[str, Any], ...] = attrs.field(default=(), converter=_pairs)
    at_ms: int = 0


@attrs.frozen
class ChangeEntry:
    """A change to another machine, under which the earlier entries are the same. It runs from here on.

    `text` is its document, `digest` the SHA-256 of its canonical text, `file` the path of the document; the other fields are as in `MachineEntry`.
    """

    name: str
    digest: str
    text: str
    parameters: tuple[tuple[str, Value], ...] = attrs.field(default=(), converter=_pairs)
    file: str | None = None
    at_ms: int = 0


@attrs.frozen
class EventEntry:
    """An occurrence as it arrived. `seq` is its number in the run, from 1; `key` is the key of the effect that it answers.

    `at` is the place that the sender named (`dsa.runtime.run.place_of`). `at_ms` is the time of arrival; timers that its row starts count from it.
    """

    seq: int
    event: str
    verdicts: tuple[tuple[str, Outcome], ...] = attrs.field(default=(), converter=_pairs)
    source: str | None = None
    data: Any = None
    key: str | None = None
    at_ms: int = 0
    at: str | None = None


@attrs.frozen
class RowEntry:
    """The row taken for the previous event: its line, its states, and the variables that it changed.

    `accepted` has the artifacts that the row finalised, as pairs of step and artifact id: those of the steps whose workflow variable it set.
    """

    line: int | None
    source: str
    target: str
    changed: tuple[tuple[str, Value], ...] = attrs.field(default=(), converter=_pairs)
    accepted: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_pairs)


@attrs.frozen
class RefusalEntry:
    """The refusal of the previous event, which changed nothing (S4)."""

    reason: str
    message: str
    accepted: tuple[str, ...] = attrs.field(default=(), converter=_strings)


@attrs.frozen
class EffectEntry:
    """An effect of the previous row. `key` is `SEQ/ORDINAL`: the number of the row's event, and the place among its effects.

    `Intent` is the effect together with its row.
    """

    key: str
    effect: str


@attrs.frozen
class ResultEntry:
    """The result of one try of the effect with this key: the policy's steps as JSON objects (seed 004) without ids, errors included.

    An effect that is tried again has one result for each try. `seconds` is the duration of this try, `at_ms` its end.
    """

    key: str
    steps: tuple[dict[str, Any], ...] = attrs.field(default=(), converter=_objects)
    seconds: float = 0.0
    at_ms: int = 0

    @property
    def has_failed(self) -> bool:
        """Return whether one of the steps is an error."""
        for step in self.steps:  # noqa: SIM110  (in half the time)
            if step["payload"].get("error") is True:
                return True
        return False

    @property
    def usage(self) -> tuple[dict[str, Any], ...]:
        """The model usage in its steps: in error steps, because useless answers cost too, and in the data of events."""
        carriers = (
            payload if payload.get("error") is True else payload.get("data")
            for payload in (s["payload"] for s in self.steps)
        )
        usages = (payload.get("usage") for payload in carriers if isinstance(payload, dict))
        return tuple(usage for usage in usages if isinstance(usage, dict))


@attrs.frozen
class ArtifactEntry:
    """A stored artifact, recorded before any guard sees it. Its text is in the artifact store.

    `model` is the requested model, `response_model` the one that answered, if the provider names it. `redacted` has the names of the secrets that
    the text had; no guard passes such an artifact.
    """

    key: str
    step: str
    attempt: int
    artifact_id: str
    content_digest: str
    parents: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    author: str = ""
    model: str = ""
    seconds: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    response_model: str = ""
    redacted: tuple[str, ...] = attrs.field(default=(), converter=_strings)


#: An outcome for people: a fatal verdict that asks for a person's decision is `review`.
VerdictLabel = Literal["passed", "failed", "fatal", "review"]


@attrs.frozen
class GuardVerdict:
    """The verdict of one guard; with `review` it is fatal only because a person has to decide."""

    guard: str
    outcome: Outcome
    feedback: str = ""
    review: bool = False

    @property
    def label(self) -> VerdictLabel:
        """The outcome for people: the outcome, or `review`."""
        return "review" if self.review else self.outcome


def _judgements(values: Iterable[GuardVerdict | Mapping[str, Any]]) -> tuple[GuardVerdict, ...]:
    return tuple(item if isinstance(item, GuardVerdict) else GuardVerdict(**item) for item in values)


@attrs.frozen
class VerdictEntry:
    """The verdicts of guards, or of a person, on an artifact: the second record of an attempt."""

    key: str
    step: str
    attempt: int
    artifact_id: str
    judgements: tuple[GuardVerdict, ...] = attrs.field(converter=_judgements)
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """The outcome of all judgements together: fatal if one is fatal, passed if all passed, else failed."""
        if len(self.judgements) == 1:
            return self.judgements[0].outcome
        outcomes = [judgement.outcome for judgement in self.judgements]
        return "fatal" if "fatal" in outcomes else "failed" if "failed" in outcomes else "passed"

    @property
    def label(self) -> VerdictLabel:
        """The outcome for people: the outcome, or `review` if a fatal verdict only asks for a person's decision."""
        fatal = [judgement for judgement in self.judgements if judgement.outcome == "fatal"]
        return "review" if fatal and all(judgement.review for judgement in fatal) else self.outcome

    @property
    def word(self) -> str:
        """The label as one word for lines and names of files; a failed one is `rejected`."""
        return "rejected" if self.label == "failed" else self.label

    @property
    def feedback(self) -> str:
        """The feedback of the judgements that did not pass, in order."""
        if len(self.judgements) == 1:
            return "" if self.judgements[0].outcome == "passed" else self.judgements[0].feedback
        return "\n".join([j.feedback for j in self.judgements if j.outcome != "passed" and j.feedback])


_OTHER_FIELDS = {
    kind: attrgetter(*[field.name for field in attrs.fields(kind)[1:]]) for kind in (ArtifactEntry, VerdictEntry)
}


def under_key(entry: ArtifactEntry | VerdictEntry, key: str) -> ArtifactEntry | VerdictEntry:
    """Return an artifact's or a verdict's entry with another key."""
    return type(entry)(key, *_OTHER_FIELDS[type(entry)](entry))


@attrs.frozen
class ResumedEntry:
    """A resumption of the run: by whom, and with which model, module and budget (as in `started`; empty if unknown).

    `effects` and `calls` say what to do about each effect that was under way or had failed, and each call that was under way in it, by their keys
    (`KEY` and `KEY/PATH`).
    """

    by: str = ""
    at_ms: int = 0
    model: str = ""
    module: str = ""
    budget: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    effects: tuple[tuple[str, Handling], ...] = attrs.field(default=(), converter=_pairs)
    calls: tuple[tuple[str, Handling], ...] = attrs.field(default=(), converter=_pairs)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], by: str = "") -> "ResumedEntry":
        """Return the entry for a run with these settings of its first entry, and with nothing under way."""
        budget = tuple(settings.get("budget") or ())
        return cls(by, model=settings.get("model") or "", module=settings.get("module") or "", budget=budget)

    def differs(self, before: "ResumedEntry") -> bool:
        """Return whether model, module or budget are known to differ from before."""
        now = (self.model, before.model), (self.module, before.module), (self.budget, before.budget)
        return any(mine and mine != its for mine, its in now)


@attrs.frozen
class DecidedEntry:
    """A person's decision about an effect that was under way, or about the call with this `path` in it."""

    key: str
    handling: Handling
    path: str = ""
    at_ms: int = 0

    @property
    def about(self) -> str:
        """The key of the effect or call: `KEY`, or `KEY/PATH`."""
        return f"{self.key}/{self.path}" if self.path else self.key


@attrs.frozen
class CallEntry:
    """The beginning of a call of one policy by another. `key` is the key of the effect, `path` the place among its calls.

    The path `1` is the effect's first try, `1.2` its second call, `1.2.1` the first call within that call. `digest` is the digest of the request.
    `payload` is None for a turn of a loop, which has the payload of its call. `in_doubt` is what to do about the call if the run is cut off while
    it is under way, as the policy is registered.
    """

    key: str
    path: str
    policy: str
    digest: str
    payload: dict[str, Any] | None = None
    actions: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    in_doubt: Handling = "retry"


@attrs.frozen
class CallResultEntry:
    """The result of a call: its steps as JSON objects. A resumed run does not make the call again."""

    key: str
    path: str
    steps: tuple[dict[str, Any], ...] = attrs.field(default=(), converter=_objects)

    @property
    def usage(self) -> tuple[dict[str, Any], ...]:
        """The `usage` in the policy's own steps. Steps that it passes on from its calls are counted there."""
        own = (step["payload"] for step in self.steps if step["id"].rpartition("/")[0] == self.path)
        return tuple(payload["usage"] for payload in own if isinstance(payload.get("usage"), dict))


Record = ResultEntry | ArtifactEntry | VerdictEntry | ResumedEntry | DecidedEntry | CallEntry | CallResultEntry
Entry = MachineEntry | ChangeEntry | EventEntry | RowEntry | RefusalEntry | EffectEntry | Record

_KINDS: dict[str, type[Entry]] = {
    "machine": MachineEntry,
    "change": ChangeEntry,
    "event": EventEntry,
    "row": RowEntry,
    "refusal": RefusalEntry,
    "effect": EffectEntry,
    "result": ResultEntry,
    "artifact": ArtifactEntry,
    "verdict": VerdictEntry,
    "resumed": ResumedEntry,
    "decided": DecidedEntry,
    "call": CallEntry,
    "call_result": CallResultEntry,
}
_NAMES = {entry_class: name for name, entry_class in _KINDS.items()}


def _judgements_as_json(judgements: Iterable[GuardVerdict]) -> list[dict[str, Any]]:
    return [
        {"guard": judgement.guard, "outcome": judgement.outcome, "feedback": judgement.feedback}
        | ({"review": True} if judgement.review else {})
        for judgement in judgements
    ]


#: The JSON form of fields, by their converters: pairs become objects, judgements objects of their fields.
_AS_JSON: AsJson = {_pairs: dict, _judgements: _judgements_as_json}
_WRITERS = {entry_class: line_writer(entry_class, name, _AS_JSON) for entry_class, name in _NAMES.items()}
_READERS: dict[str, Callable[[Mapping[str, Any]], Entry]] = {name: reader(kind) for name, kind in _KINDS.items()}


def to_json(entry: Entry) -> dict[str, Any]:
    """Return an entry as a JSON object with its kind under `kind`; pairs become objects."""
    return object_of(entry, _NAMES[type(entry)], _AS_JSON)


def from_json(json_object: Mapping[str, Any]) -> Entry:
    """Read an entry: `from_json(to_json(entry)) == entry`. Raises KeyError or TypeError for an object that is not an entry."""
    return _READERS[json_object["kind"]](json_object)


def dump_line(entry: Entry) -> str:
    """Write an entry as one line of JSON."""
    return _WRITERS[type(entry)](entry)


def commit_lines(entries: Iterable[Entry]) -> list[str]:
    """Write the entries of one commit, one line of JSON each.

    The data of an answer is already in the result before it, so the event has the place (`same_as`) instead of a second copy.
    """
    lines, result = list[str](), None
    for entry in entries:
        if type(entry) is ResultEntry:
            result = entry
        elif type(entry) is EventEntry and result is not None and (place := _place_in(result, entry)):
            lines.append(f'{dump_line(attrs.evolve(entry, data=None))[:-1]},"same_as":"{place}"}}')
            continue
        lines.append(dump_line(entry))
    return lines


def commit_entries(objects: Iterable[dict[str, Any]]) -> list[Entry]:
    """Read the JSON objects of `commit_lines`, changing them in place. Raises KeyError or TypeError for an object that is not an entry."""
    entries = list[Entry]()
    result: Any = None
    for each in objects:
        kind = _KINDS[each.pop("kind")]  # as `from_json`, without a copy
        if kind is EventEntry and "same_as" in each:
            each["data"] = _data_at(result, each.pop("same_as"))
        entry = kind(**each)
        if kind is ResultEntry:
            result = entry
        entries.append(entry)
    return entries


def _place_in(result: ResultEntry, event: EventEntry) -> str:
    """Return the path of an event's data in the result that it answers; "" if this object itself is not in it."""
    if event.key != result.key or event.data is None:
        return ""
    for number, step in enumerate(result.steps):
        if step["payload"] is event.data:
            return f"steps.{number}.payload"
        if step["payload"].get("data") is event.data:
            return f"steps.{number}.payload.data"
    return ""


def _data_at(result: ResultEntry | None, place: str) -> Any:  # noqa: ANN401  (JSON)
    """Return the value at a path of a result. Raises TypeError or KeyError if there is none."""
    if result is None:
        raise TypeError(f"there is no {place} in the result")
    _, number, *names = place.split(".")
    value: Any = result.steps[int(number)]
    for name in names:
        value = value[name]
    return value


def load_lines(text: str) -> Ledger[Entry]:
    """Read a ledger from the lines of `dump_line`."""
    return Ledger(from_json(json.loads(line)) for line in text.splitlines() if line)


@attrs.frozen
class Intent:
    """An effect to perform. `key` is `SEQ/ORDINAL`: the number of the event, and the place in its row; it is the same in every replay.

    `event` and `line` belong to the row that emitted it, `source` and `target` are the states before and after.
    """

    key: str
    effect: str
    event: str
    line: int | None
    source: str
    target: str


class Intents(dict[str, Intent]):
    """The intents of a ledger by key, in the order of emission."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        super().__init__()
        self._event = ""
        self._row: RowEntry | None = None
        for entry in entries:
            self.take(entry)

    def take(self, entry: Entry) -> None:
        """Read the next entry."""
        if type(entry) is EventEntry:
            self._event = entry.event
        elif type(entry) is RowEntry:
            self._row = entry
        elif type(entry) is EffectEntry and self._row is not None:
            row = self._row
            self[entry.key] = Intent(entry.key, entry.effect, self._event, row.line, row.source, row.target)

    def effect(self, key: str) -> str:
        """Return the name of the effect with a key; "" if no row has emitted it."""
        intent = self.get(key)
        return "" if intent is None else intent.effect


def seq_of(key: str) -> int:
    """Return the number of the event whose row emitted an effect, from the effect's key."""
    return int(key.partition("/")[0])


def place_of_key(key: str) -> tuple[int, int]:
    """Return the place of an emission in its run, from its key: the number of its event, and its place among the effects of the row."""
    seq, _, ordinal = key.partition("/")
    return int(seq), int(ordinal)


#: The code of a step that says that a part waits, and the field of its payload with the part.
PART_WAITS, PART = "waiting", "part"


def _places(places: Mapping[str, str]) -> Mapping[str, str]:
    return dict(places)


@attrs.frozen
class Part:
    """A run at rest that another run waits for.

    `waits_for` maps the events that it waits for to the places of their questions, with the run that asks: `RUN+3.2@4`. `due_ms` is the deadline of
    its next timer, in milliseconds since 1970.
    """

    run: str
    waits_for: Mapping[str, str] = attrs.field(factory=dict, converter=_places)
    due_ms: int | None = None

    @property
    def runs(self) -> tuple[str, ...]:
        """The id of the part, and the ids of the runs within it that ask something."""
        return tuple(dict.fromkeys((self.run, *(asking_run(place) for place in self.waits_for.values()))))

    def to_json(self) -> dict[str, Any]:
        """Return the part as a JSON object."""
        return {"run": self.run, "waits_for": dict(self.waits_for), "due_ms": self.due_ms}


def part_in(result: ResultEntry) -> Part | None:
    """Return the part that an effect waits for after this result, or None."""
    waiting_parts = (part_from(step["payload"]) for step in result.steps)
    return next((part for part in waiting_parts if part is not None), None)


def part_from(payload: Mapping[str, Any]) -> Part | None:
    """Return the waiting part in the payload of a step, or None."""
    part = payload.get(PART)
    if not isinstance(part, dict) or payload.get("code") != PART_WAITS:
        return None
    return Part(part["run"], part["waits_for"], part["due_ms"])


def asking_run(place: str) -> str:
    """Return the run in a place: `RUN+3.2` of `RUN+3.2@4`; "" for a place of the run itself."""
    return place.rpartition("@")[0]


def place_in_part(run: str, place: str) -> str:
    """Return a place of a part with the run that asks before it, as the enclosing run shows it."""
    return place if asking_run(place) else f"{run}@{place}"
