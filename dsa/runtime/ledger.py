"""The ledger: what happened in a run, append-only, as frozen JSON-able entries.

One class per kind of entry, and `Ledger`, the sequence they stand in. Takes and gives values; where they are
stored, and when they count as durable, is the edge's affair. Every entry that comes from a row names its line.

Intents: the effects that a run asks for, each with the row that asks for it.

A ledger names an effect and its key alone: event, line and states are those of the event and the row that stand before it.

Parts: runs that an effect of another run waits for.

What is at rest in a part is recorded as the result of the effect, which stays outstanding: a step with the code `waiting` that says which run
waits, and for what. When that has come the effect is performed again, and finds the part.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar, overload

import attrs

from dsa.errors import GenerationError
from dsa.expr import Outcome, Value
from dsa.runtime.json_text import AsJson, line_writer, object_of, reader

T = TypeVar("T")

#: What is done about an effect in doubt: performed again, somebody is asked, it counts as failed, or as done. `again`: it is not in
#: doubt, it failed, and is performed again because the run was resumed.
Handling = Literal["retry", "ask", "fail", "done", "again"]

#: The author of an artifact, or the guard of a verdict, that came from a person.
PERSON = "person"

#: How many entries a ledger shows in its repr, which asyncio makes of all that a task gives.
_MOST_SHOWN = 20


class Ledger(Generic[T]):
    """An immutable sequence that grows by giving new values; appending is O(1) amortised.

    Values made from one another share their storage: each sees its own first `len` entries. Appending twice to
    the same value copies once, so that both results stay what they are.
    """

    __slots__ = ("_length", "_shared")
    __hash__ = None  # type: ignore[assignment]  # entries may hold JSON objects

    def __init__(self, entries: Iterable[T] = ()) -> None:
        self._shared = list(entries)
        self._length = len(self._shared)

    def append(self, entry: T) -> "Ledger[T]":
        """Return the ledger with one more entry."""
        shared = self._shared
        if len(shared) != self._length:
            return Ledger((*self, entry))
        shared.append(entry)
        longer: Ledger[T] = Ledger.__new__(Ledger)
        longer._shared, longer._length = shared, self._length + 1
        return longer

    def extend(self, entries: Iterable[T]) -> "Ledger[T]":
        """Return the ledger with more entries."""
        shared = self._shared
        if len(shared) != self._length:
            return Ledger((*self, *entries))
        shared.extend(entries)
        longer: Ledger[T] = Ledger.__new__(Ledger)
        longer._shared, longer._length = shared, len(shared)
        return longer

    def after(self, count: int) -> tuple[T, ...]:
        """Return the entries after the first so many."""
        return tuple(self._shared[count : self._length])

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared, self._length)

    def __reversed__(self) -> Iterator[T]:
        return islice(reversed(self._shared), len(self._shared) - self._length, None)

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
            return tuple(self._shared[first:last:stride] if stride > 0 else self._shared[: self._length][index])
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"there is no entry {index} among {self._length}")
        return self._shared[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    def __repr__(self) -> str:
        if self._length <= _MOST_SHOWN:
            return f"Ledger({list(self)!r})"
        return f"Ledger([{self[0]!r}, .. {self._length - 2} more .., {self[-1]!r}])"


_TUPLES = frozenset({tuple})


def _pairs(given: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    if not given:
        return ()
    if type(given) is tuple and {*map(type, given)} <= _TUPLES:
        return given
    pairs: Iterable[tuple[str, Any]] = given.items() if isinstance(given, Mapping) else given
    return tuple([(str(name), value) for name, value in pairs])


def _strings(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


def _objects(given: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple(given)


@attrs.frozen
class MachineEntry:
    """Which machine runs: name, SHA-256 of its canonical text, parameter values. The first entry of every run.

    `started` says with what it was started, so that it can go on in the same way: file, model, seed and the like. `at_ms` is when, in
    milliseconds since 1970; 0 where nobody looked at a clock. What timers of the initial state are due by is counted from it.
    """

    run: str
    name: str
    digest: str
    parameters: tuple[tuple[str, Value], ...] = attrs.field(default=(), converter=_pairs)
    started: tuple[tuple[str, Any], ...] = attrs.field(default=(), converter=_pairs)
    at_ms: int = 0


@attrs.frozen
class ChangeEntry:
    """From here on another machine runs, under which all that happened before happens in the same way.

    `text` is its document, `digest` the SHA-256 of its canonical text, `file` where it was read; the rest is as in the first entry.
    """

    name: str
    digest: str
    text: str
    parameters: tuple[tuple[str, Value], ...] = attrs.field(default=(), converter=_pairs)
    file: str | None = None
    at_ms: int = 0


@attrs.frozen
class EventEntry:
    """An occurrence as it arrived. `seq` counts a run's events from 1; `key` is that of the effect it answers.

    `at` is the place that the sender named (`dsa.runtime.run.place_of`). `at_ms` as above: timers that its row starts are due by it.
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
    """The row taken for the event before, from which state to which, and what changed.

    `accepted` are the artifacts that the row finalised, as pairs of step and artifact id: those of the steps whose
    workflow variable it set.
    """

    line: int | None
    source: str
    target: str
    changed: tuple[tuple[str, Value], ...] = attrs.field(default=(), converter=_pairs)
    accepted: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_pairs)


@attrs.frozen
class RefusalEntry:
    """Why the event before changed nothing (S4)."""

    reason: str
    message: str
    accepted: tuple[str, ...] = attrs.field(default=(), converter=_strings)


@attrs.frozen
class EffectEntry:
    """The row before asks for an effect. `key` is `SEQ/ORDINAL`: the number of the row's event, the place among its effects.

    `dsa.runtime.ledger` has it with its row.
    """

    key: str
    effect: str


@attrs.frozen
class ResultEntry:
    """What the policy of the effect with this key gave: its steps as JSON objects (seed 004) without ids, errors included.

    An effect that is tried again after a failure has one for each try. `seconds` is how long this one took, `at_ms` when it was over.
    """

    key: str
    steps: tuple[dict[str, Any], ...] = attrs.field(default=(), converter=_objects)
    seconds: float = 0.0
    at_ms: int = 0

    @property
    def failed(self) -> bool:
        """Return whether an error step is among them."""
        for step in self.steps:  # noqa: SIM110  (in half the time)
            if step["payload"].get("error") is True:
                return True
        return False

    @property
    def usage(self) -> tuple[dict[str, Any], ...]:
        """What its steps say that a model took: errors, for an answer of no use is paid for, too, and events in their data."""
        told = (said if said.get("error") is True else said.get("data") for said in (s["payload"] for s in self.steps))
        usages = (said.get("usage") for said in told if isinstance(said, dict))
        return tuple(usage for usage in usages if isinstance(usage, dict))


@attrs.frozen
class ArtifactEntry:
    """An artifact was stored, before any guard saw it. Its text lies in the artifact store.

    `model` was asked for, `response_model` has answered, if the provider says which. `redacted` are the names of the secrets that the text
    had: no guard passes it.
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


#: An outcome as people are told it: a fatal verdict that asks for a person's decision is `review`.
VerdictLabel = Literal["passed", "failed", "fatal", "review"]


@attrs.frozen
class GuardVerdict:
    """What one guard said; with `review` it is fatal because a person has to decide, and for nothing else."""

    guard: str
    outcome: Outcome
    feedback: str = ""
    review: bool = False

    @property
    def label(self) -> VerdictLabel:
        """What people are told: the outcome, or `review`."""
        return "review" if self.review else self.outcome


def _judgements(given: Iterable[GuardVerdict | Mapping[str, Any]]) -> tuple[GuardVerdict, ...]:
    return tuple(item if isinstance(item, GuardVerdict) else GuardVerdict(**item) for item in given)


@attrs.frozen
class VerdictEntry:
    """What guards, or a person, said of an artifact: the second record of an attempt."""

    key: str
    step: str
    attempt: int
    artifact_id: str
    judgements: tuple[GuardVerdict, ...] = attrs.field(converter=_judgements)
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """The worst of the judgements: fatal dominates, all must pass."""
        if len(self.judgements) == 1:
            return self.judgements[0].outcome
        said = [judgement.outcome for judgement in self.judgements]
        return "fatal" if "fatal" in said else "failed" if "failed" in said else "passed"

    @property
    def label(self) -> VerdictLabel:
        """What people are told: the outcome, or `review` where a fatal verdict asks for nothing but a person's decision."""
        fatal = [said for said in self.judgements if said.outcome == "fatal"]
        return "review" if fatal and all(said.review for said in fatal) else self.outcome

    @property
    def word(self) -> str:
        """The label as one word for lines and names of files; what has failed is rejected."""
        return "rejected" if self.label == "failed" else self.label

    @property
    def feedback(self) -> str:
        """The feedback of those that did not pass, in order."""
        if len(self.judgements) == 1:
            return "" if self.judgements[0].outcome == "passed" else self.judgements[0].feedback
        return "\n".join([j.feedback for j in self.judgements if j.outcome != "passed" and j.feedback])


_OTHER_FIELDS = {
    kind: attrgetter(*[field.name for field in attrs.fields(kind)[1:]]) for kind in (ArtifactEntry, VerdictEntry)
}


def under_key(entry: ArtifactEntry | VerdictEntry, key: str) -> ArtifactEntry | VerdictEntry:
    """Return the record of an artifact or a verdict under another key."""
    return type(entry)(key, *_OTHER_FIELDS[type(entry)](entry))


@attrs.frozen
class ResumedEntry:
    """The run is taken up again: by whom, with which model, module and budget (as in `started`; empty where nobody can say).

    `effects` were under way or had failed, `calls` were under way in them, by their keys (`KEY` and `KEY/PATH`): what is done about each.
    """

    by: str = ""
    at_ms: int = 0
    model: str = ""
    module: str = ""
    budget: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    effects: tuple[tuple[str, Handling], ...] = attrs.field(default=(), converter=_pairs)
    calls: tuple[tuple[str, Handling], ...] = attrs.field(default=(), converter=_pairs)

    @classmethod
    def bound(cls, started: Mapping[str, Any], by: str = "") -> "ResumedEntry":
        """Return the entry of a run that is bound as a first entry says, with nothing under way."""
        budget = tuple(started.get("budget") or ())
        return cls(by, model=started.get("model") or "", module=started.get("module") or "", budget=budget)

    def differs(self, before: "ResumedEntry") -> bool:
        """Return whether model, module or budget are known to be others than before."""
        now = (self.model, before.model), (self.module, before.module), (self.budget, before.budget)
        return any(mine and mine != its for mine, its in now)


@attrs.frozen
class DecidedEntry:
    """A person has said what became of an effect that was under way, or of the call with this `path` in it."""

    key: str
    handling: Handling
    path: str = ""
    at_ms: int = 0

    @property
    def about(self) -> str:
        """The key of what was decided: `KEY`, or `KEY/PATH`."""
        return f"{self.key}/{self.path}" if self.path else self.key


@attrs.frozen
class CallEntry:
    """A policy is about to be called by another. `key` is that of the effect, `path` the place among its calls.

    The path `1` is the effect's first try, `1.2` its second call, `1.2.1` the first call that this one makes. `digest`
    is that of the request. The payload of a turn of a loop is None: it is that of the call it belongs to. `in_doubt` is what
    is done about the call when it was under way as the run was cut off, as its policy is registered.
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
    """What a called policy gave: its steps as JSON objects. It is not called again."""

    key: str
    path: str
    steps: tuple[dict[str, Any], ...] = attrs.field(default=(), converter=_objects)

    @property
    def usage(self) -> tuple[dict[str, Any], ...]:
        """What the steps that it made itself say they took (`usage`); those that it passes on were counted where they were made."""
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
        {"guard": said.guard, "outcome": said.outcome, "feedback": said.feedback}
        | ({"review": True} if said.review else {})
        for said in judgements
    ]


#: Fields that JSON writes in another way, by their converters: pairs become objects, judgements objects of their fields.
_AS_JSON: AsJson = {_pairs: dict, _judgements: _judgements_as_json}
_WRITERS = {entry_class: line_writer(entry_class, name, _AS_JSON) for entry_class, name in _NAMES.items()}
_READERS: dict[str, Callable[[Mapping[str, Any]], Entry]] = {name: reader(kind) for name, kind in _KINDS.items()}


def to_json(entry: Entry) -> dict[str, Any]:
    """Return an entry as a JSON object whose `kind` says what it is; pairs become objects."""
    return object_of(entry, _NAMES[type(entry)], _AS_JSON)


def from_json(written: Mapping[str, Any]) -> Entry:
    """Read an entry back; `from_json(to_json(entry)) == entry`. KeyError or TypeError when it is none."""
    return _READERS[written["kind"]](written)


def dump_line(entry: Entry) -> str:
    """Write an entry as one line of JSON."""
    return _WRITERS[type(entry)](entry)


def commit_lines(entries: Iterable[Entry]) -> list[str]:
    """Write entries that become durable together, one line of JSON each.

    What an answer brings stands in the result before it: its event says where (`same_as`) instead of saying it again.
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


def commit_entries(written: Iterable[dict[str, Any]]) -> list[Entry]:
    """Read what `commit_lines` has written back from JSON objects, which this uses up. KeyError or TypeError when one is no entry."""
    entries = list[Entry]()
    result: Any = None
    for each in written:
        kind = _KINDS[each.pop("kind")]  # as `from_json`, without a copy
        if kind is EventEntry and "same_as" in each:
            each["data"] = _data_at(result, each.pop("same_as"))
        entry = kind(**each)
        if kind is ResultEntry:
            result = entry
        entries.append(entry)
    return entries


def _place_in(result: ResultEntry, event: EventEntry) -> str:
    """Return where a result has the very data of an event that answers it, as a path; empty where it has not."""
    if event.key != result.key or event.data is None:
        return ""
    for number, step in enumerate(result.steps):
        if step["payload"] is event.data:
            return f"steps.{number}.payload"
        if step["payload"].get("data") is event.data:
            return f"steps.{number}.payload.data"
    return ""


def _data_at(result: ResultEntry | None, place: str) -> Any:  # noqa: ANN401  (JSON)
    """Return what stands at a place of a result. TypeError or KeyError where there is none."""
    if result is None:
        raise TypeError(f"no result has {place}")
    _, number, *names = place.split(".")
    found: Any = result.steps[int(number)]
    for name in names:
        found = found[name]
    return found


def load_lines(text: str) -> Ledger[Entry]:
    """Read a ledger written with `dump_line`, one entry a line."""
    return Ledger(from_json(json.loads(line)) for line in text.splitlines() if line)


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


#: The code of a result that says that a part waits, and the field of its payload that says for what.
PART_WAITS, PART = "waiting", "part"


def _places(given: Mapping[str, str]) -> Mapping[str, str]:
    return dict(given)


@attrs.frozen
class Part:
    """A run at rest that another one waits for.

    `waits_for` has the events that it waits for, each with the place of its question: the run that asks and its own place, as `RUN+3.2@4`. `due_ms` is when its next
    timer is due, in milliseconds since 1970.
    """

    run: str
    waits_for: Mapping[str, str] = attrs.field(factory=dict, converter=_places)
    due_ms: int | None = None

    @property
    def runs(self) -> tuple[str, ...]:
        """The part, and those within it that ask."""
        return tuple(dict.fromkeys((self.run, *(asking_run(place) for place in self.waits_for.values()))))

    def to_json(self) -> dict[str, Any]:
        """Return the part as an object of JSON."""
        return {"run": self.run, "waits_for": dict(self.waits_for), "due_ms": self.due_ms}


class PartWaitsError(GenerationError):
    """Raised when the run that is to make an artifact has come to rest and is not over: it waits for a person, or for a timer."""

    def __init__(self, message: str, part: Part) -> None:
        self.part = part
        super().__init__(message, PART_WAITS)


def part_in(result: ResultEntry) -> Part | None:
    """Return the part that an effect waits for by its last result; None where it waits for none."""
    found = (part_told(step["payload"]) for step in result.steps)
    return next((part for part in found if part is not None), None)


def part_told(payload: Mapping[str, Any]) -> Part | None:
    """Return the part that waits by the payload of a step; None where it tells of none."""
    told = payload.get(PART)
    if not isinstance(told, dict) or payload.get("code") != PART_WAITS:
        return None
    return Part(told["run"], told["waits_for"], told["due_ms"])


def asking_run(place: str) -> str:
    """Return the run that a place names, `RUN+3.2` of `RUN+3.2@4`; empty for a place of the run itself."""
    return place.rpartition("@")[0]


def place_in_part(run: str, place: str) -> str:
    """Return a place of a part as the run around it tells it: with the run that asks before it."""
    return place if asking_run(place) else f"{run}@{place}"
