"""The ledger: what happened in a run, append-only, as frozen JSON-able entries.

One class per kind of entry, and `Ledger`, the sequence they stand in. Takes and gives values; where they are
stored, and when they count as durable, is the edge's affair. Every entry that comes from a row names its line.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar, overload

import attrs

from dsa.expr import Outcome, Value

T = TypeVar("T")

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
    """Which machine runs: name, SHA-256 of its canonical text, parameter values. The first entry of every run."""

    run: str
    name: str
    digest: str
    parameters: tuple[tuple[str, Value], ...] = attrs.field(default=(), converter=_pairs)


@attrs.frozen
class EventEntry:
    """An occurrence as it arrived. `seq` counts a run's events from 1; `key` is that of the effect it answers."""

    seq: int
    event: str
    verdicts: tuple[tuple[str, Outcome], ...] = attrs.field(default=(), converter=_pairs)
    source: str | None = None
    data: Any = None
    key: str | None = None


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

    An effect that is tried again after a failure has one for each try.
    """

    key: str
    effect: str
    steps: tuple[dict[str, Any], ...] = attrs.field(default=(), converter=_objects)


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


Record = ResultEntry | ArtifactEntry | VerdictEntry
Entry = MachineEntry | EventEntry | StepEntry | RefusalEntry | IntentEntry | Record

_KINDS: dict[str, type[Entry]] = {
    "machine": MachineEntry,
    "event": EventEntry,
    "step": StepEntry,
    "refusal": RefusalEntry,
    "intent": IntentEntry,
    "result": ResultEntry,
    "artifact": ArtifactEntry,
    "verdict": VerdictEntry,
}
_NAMES = {entry_class: name for name, entry_class in _KINDS.items()}


def to_json(entry: Entry) -> dict[str, Any]:
    """Give an entry as a JSON object whose `kind` says what it is; pairs become objects."""
    fields = attrs.fields(type(entry))
    written = attrs.asdict(entry)
    for field in fields:
        if field.converter is _pairs:
            written[field.name] = dict(written[field.name])
    return {"kind": _NAMES[type(entry)], **written}


def from_json(written: Mapping[str, Any]) -> Entry:
    """Read an entry back; `from_json(to_json(entry)) == entry`. KeyError or TypeError when it is none."""
    return _KINDS[written["kind"]](**{name: value for name, value in written.items() if name != "kind"})


def dump_line(entry: Entry) -> str:
    """Write an entry as one line of JSON."""
    return json.dumps(to_json(entry), separators=(",", ":"), allow_nan=False)


def load_lines(text: str) -> Ledger[Entry]:
    """Read a ledger written with `dump_line`, one entry a line."""
    return Ledger(from_json(json.loads(line)) for line in text.splitlines() if line)
