"""The ledger: what happened in a run, append-only, as frozen JSON-able entries.

One class per kind of entry, and `Ledger`, the sequence they stand in. Takes and gives values; where they are
stored, and when they count as durable, is the edge's affair. Every entry that comes from a row names its line.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, Generic, Literal, TypeVar, overload

import attrs

from dsa.expr import Outcome, Value

T = TypeVar("T")

#: What is done about an effect in doubt: performed again, somebody is asked, it counts as failed, or as done. `again`: it is not in
#: doubt, it failed, and is performed again because the run was resumed.
Handling = Literal["retry", "ask", "fail", "done", "again"]

#: The author of an artifact, or the guard of a verdict, that came from a person.
PERSON = "person"


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
        """Give the ledger with one more entry."""
        return self.extend((entry,))

    def extend(self, entries: Iterable[T]) -> "Ledger[T]":
        """Give the ledger with more entries."""
        if len(self._shared) != self._length:
            return Ledger((*self, *entries))
        longer: Ledger[T] = Ledger.__new__(Ledger)
        longer._shared = self._shared
        longer._shared.extend(entries)
        longer._length = len(longer._shared)
        return longer

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared, self._length)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """Give an entry, or a tuple of them."""
        if isinstance(index, slice):
            return tuple(self._shared[position] for position in range(*index.indices(self._length)))
        return self._shared[range(self._length)[index]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"Ledger({list(self)!r})"


def _pairs(given: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    pairs: Iterable[tuple[str, Any]] = given.items() if isinstance(given, Mapping) else given
    return tuple((str(name), value) for name, value in pairs)


def _strings(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


def _objects(given: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple(given)


@attrs.frozen
class MachineEntry:
    """Which machine runs: name, SHA-256 of its canonical text, parameter values. The first entry of every run.

    `started` says with what it was started, so that it can go on in the same way: file, model, seed and the like. `at_ms` is when, in
    milliseconds since 1970; None where nobody looked at a clock.
    """

    run: str
    name: str
    digest: str
    parameters: tuple[tuple[str, Value], ...] = attrs.field(default=(), converter=_pairs)
    started: tuple[tuple[str, Any], ...] = attrs.field(default=(), converter=_pairs)
    at_ms: int | None = None


@attrs.frozen
class EventEntry:
    """An occurrence as it arrived. `seq` counts a run's events from 1; `key` is that of the effect it answers; `at_ms` as above."""

    seq: int
    event: str
    verdicts: tuple[tuple[str, Outcome], ...] = attrs.field(default=(), converter=_pairs)
    source: str | None = None
    data: Any = None
    key: str | None = None
    at_ms: int | None = None


@attrs.frozen
class StepEntry:
    """The row taken, from which state to which, and what changed.

    `accepted` are the artifacts that the row finalised, as pairs of step and artifact id: those of the steps whose
    workflow variable it set.
    """

    seq: int
    line: int | None
    source: str
    target: str
    changed: tuple[tuple[str, Value], ...] = attrs.field(default=(), converter=_pairs)
    accepted: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_pairs)


@attrs.frozen
class RefusalEntry:
    """Why an event changed nothing (S4)."""

    seq: int
    reason: str
    message: str
    accepted: tuple[str, ...] = attrs.field(default=(), converter=_strings)


@attrs.frozen
class IntentEntry:
    """An effect to be performed. `key` is `run/seq/ordinal`, the same in every replay.

    `event` and `line` are those of the row that emitted it, `source` and `target` the states before and after.
    """

    key: str
    effect: str
    event: str
    line: int | None
    source: str
    target: str


@attrs.frozen
class ResultEntry:
    """What the policy of an effect gave: its steps as JSON objects (seed 004), errors included.

    An effect that is tried again after a failure has one for each try. `seconds` is how long this one took.
    """

    key: str
    effect: str
    steps: tuple[dict[str, Any], ...] = attrs.field(default=(), converter=_objects)
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Tell whether an error step is among them."""
        return any(step["payload"].get("error") is True for step in self.steps)


@attrs.frozen
class ArtifactEntry:
    """An artifact was stored, before any guard saw it. Its text lies in the artifact store."""

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


@attrs.frozen
class Judgement:
    """What one guard said."""

    guard: str
    outcome: Outcome
    feedback: str = ""


def _judgements(given: Iterable[Judgement | Mapping[str, Any]]) -> tuple[Judgement, ...]:
    return tuple(item if isinstance(item, Judgement) else Judgement(**item) for item in given)


@attrs.frozen
class VerdictEntry:
    """What guards, or a person, said of an artifact: the second record of an attempt."""

    key: str
    step: str
    attempt: int
    artifact_id: str
    judgements: tuple[Judgement, ...] = attrs.field(converter=_judgements)
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """The worst of the judgements: fatal dominates, all must pass."""
        said = {judgement.outcome for judgement in self.judgements}
        return "fatal" if "fatal" in said else "failed" if "failed" in said else "passed"

    @property
    def feedback(self) -> str:
        """The feedback of those that did not pass, in order."""
        return "\n".join(j.feedback for j in self.judgements if j.outcome != "passed" and j.feedback)


@attrs.frozen
class TimerEntry:
    """A timer was started. `deadline_ms` is when it is due, in milliseconds since 1970 (S11: a crash neither restarts nor loses it)."""

    source: str
    event: str
    deadline_ms: int


@attrs.frozen
class DoubtEntry:
    """An effect was under way when the run was cut off: nobody knows whether it happened. `handling` is what is done about it."""

    key: str
    effect: str
    handling: Handling


@attrs.frozen
class PolicyEntry:
    """Which policy runs, what it was asked, and what it may call: the first entry of a run that has no machine.

    `digest` is that of the request; `seed` are the steps that its own ledger began with, `config` the settings that a
    resumed run needs again.
    """

    run: str
    policy: str
    digest: str
    payload: dict[str, Any] = attrs.field(factory=dict)
    actions: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    seed: tuple[dict[str, Any], ...] = attrs.field(default=(), converter=_objects)
    config: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class CallEntry:
    """A policy is about to be called by another. `key` is that of the effect or run, `path` the place among its calls.

    The path `1` is what the key stands for, `1.2` its second call, `1.2.1` the first call that this one makes. `digest`
    is that of the request. The payload of a turn of a loop is None: it is that of the call it belongs to.
    """

    key: str
    path: str
    policy: str
    digest: str
    payload: dict[str, Any] | None = None
    actions: tuple[str, ...] = attrs.field(default=(), converter=_strings)


@attrs.frozen
class CallResultEntry:
    """What a called policy gave: its steps as JSON objects. It is not called again."""

    key: str
    path: str
    steps: tuple[dict[str, Any], ...] = attrs.field(default=(), converter=_objects)


Record = ResultEntry | ArtifactEntry | VerdictEntry | TimerEntry | DoubtEntry | CallEntry | CallResultEntry
Entry = MachineEntry | PolicyEntry | EventEntry | StepEntry | RefusalEntry | IntentEntry | Record

_KINDS: dict[str, type[Entry]] = {
    "machine": MachineEntry,
    "event": EventEntry,
    "step": StepEntry,
    "refusal": RefusalEntry,
    "intent": IntentEntry,
    "result": ResultEntry,
    "artifact": ArtifactEntry,
    "verdict": VerdictEntry,
    "timer": TimerEntry,
    "doubt": DoubtEntry,
    "policy": PolicyEntry,
    "call": CallEntry,
    "call_result": CallResultEntry,
}
_NAMES = {entry_class: name for name, entry_class in _KINDS.items()}


def _written_by(entry_class: type[Entry]) -> Callable[[Entry], dict[str, Any]]:
    """Give what writes the entries of one kind: pairs become objects, judgements objects of their fields."""
    name = _NAMES[entry_class]
    fields = [
        (field.name, field.converter is _pairs, field.converter is _judgements) for field in attrs.fields(entry_class)
    ]
    values = attrgetter(*(field for field, _, _ in fields))

    def write(entry: Entry) -> dict[str, Any]:
        written: dict[str, Any] = {"kind": name}
        for (field, is_pairs, is_judgements), value in zip(fields, values(entry), strict=True):
            written[field] = dict(value) if is_pairs else [*map(attrs.asdict, value)] if is_judgements else value
        return written

    return write


_WRITERS = {entry_class: _written_by(entry_class) for entry_class in _NAMES}
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def to_json(entry: Entry) -> dict[str, Any]:
    """Give an entry as a JSON object whose `kind` says what it is; pairs become objects."""
    return _WRITERS[type(entry)](entry)


def from_json(written: Mapping[str, Any]) -> Entry:
    """Read an entry back; `from_json(to_json(entry)) == entry`. KeyError or TypeError when it is none."""
    return _KINDS[written["kind"]](**{name: value for name, value in written.items() if name != "kind"})


def dump_line(entry: Entry) -> str:
    """Write an entry as one line of JSON."""
    return _ENCODER.encode(to_json(entry))


def load_lines(text: str) -> Ledger[Entry]:
    """Read a ledger written with `dump_line`, one entry a line."""
    return Ledger(from_json(json.loads(line)) for line in text.splitlines() if line)
