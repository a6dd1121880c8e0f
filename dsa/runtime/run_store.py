"""The run store: its protocol, the values that it holds, and their form as JSON and as hashes.

A store holds runs. A run has one writer at a time, a summary for lists, an inbox for events from other processes, and a hash chain that makes
damage visible. This module opens no file: `dsa.edge.stores` has a store in SQLite and one in memory, and
`tests/conformance/test_run_stores.py` checks what each implementation must do.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol, get_args

import attrs

from dsa.errors import DsaError
from dsa.expr import Outcome
from dsa.runtime.json_text import AsJson, line_writer, reader, value_of
from dsa.runtime.ledger import Entry, Ledger, commit_lines
from dsa.semantics import Refusal, Taken

#: The longest entry or message that a store accepts, in characters of its line of JSON.
LONGEST_LINE = 16 * 2**20

#: The status of a run without a holder.
Status = Literal["waiting", "due", "in doubt", "stopped", "interrupted", "cut off", "finished"]
#: The status of a run at the moment when its summary is read.
StatusNow = Status | Literal["under way", "damaged"]
#: All of these, for people who choose one.
STATUSES = ("under way", *get_args(Status), "damaged")


class StoreError(DsaError):
    """Raised when a store cannot be read or written. Earlier commits are safe."""


class UnknownRunError(StoreError):
    """Raised for a run that is not in the store, or was removed from it."""


class DamageError(StoreError):
    """Raised when stored bytes differ from those that were written.

    `run` is the damaged run, `position` its first damaged entry, counted from 0. None means that the damage may be anywhere.
    """

    def __init__(self, message: str, run: str | None = None, position: int | None = None) -> None:
        self.run, self.position, self.reason = run, position, message
        place = "" if run is None else f"run {run}: " if position is None else f"run {run}, entry {position}: "
        super().__init__(place + message)


class HeldError(StoreError):
    """Raised when a live process already writes the run. `holder` names it."""

    def __init__(self, run: str, holder: str) -> None:
        self.run, self.holder = run, holder
        super().__init__(f"run {run} is held by {holder}")


class LeaseLostError(StoreError):
    """Raised when another process has taken over a run. Nothing was written."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(f"run {run} was taken over by another process; nothing was written")


# -- stored values -----------------------------------------------------------------------------------------------------


@attrs.frozen
class StoredRun:
    """A run as the store has it: the text of its machine, its entries, and its present writer (None if it has none).

    `head` is the hash of the last commit, in stores that chain their commits.
    """

    run: str
    text: str
    entries: Ledger[Entry]
    epoch: int
    holder: str | None = None
    head: bytes = b""


_NOTHING: Mapping[str, str] = MappingProxyType({})


def _mapping(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(mapping)) if mapping else _NOTHING


def _strings(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _pairs(values: Iterable[Sequence[Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple((str(name), value) for name, value in values)


@attrs.frozen
class Summary:
    """The status of a run, for lists of runs. Its writer passes it with a commit, and the store seals it with the end of the chain.

    `status` applies while the run has no holder; it is `cut off` until the writer writes another one. `waits_for` maps each event that the run
    waits for to its place ("" if it has none). `in_doubt` maps the keys of effects and calls to their names. `timers` are the events of armed
    timers and of sleeps, `parts` the runs that the run waits for. Times are in milliseconds since 1970; `due_ms` is the next deadline. `about` and `failure`
    are short texts. `parent` is the run that this one is a part of. `events` counts the run's events; while it is under way, those up to the last
    change of its state.
    """

    status: Status = "cut off"
    state: str = ""
    machine: str = ""
    begun_ms: int | None = None
    changed_ms: int | None = None
    outcome: str | None = None
    waits_for: Mapping[str, str] = attrs.field(default=_NOTHING, converter=_mapping)
    in_doubt: Mapping[str, str] = attrs.field(default=_NOTHING, converter=_mapping)
    due_ms: int | None = None
    about: str = ""
    failure: str = ""
    parent: str | None = None
    events: int = 0
    timers: tuple[str, ...] = attrs.field(default=(), converter=_strings)
    parts: tuple[str, ...] = attrs.field(default=(), converter=_strings)


@attrs.frozen
class RunSummary:
    """A run in a list: the number of its entries, its summary, and the number of messages in its inbox.

    `holder` is its writer, if that is alive. `damage` says why the summary cannot be trusted; the summary is then empty. `queue` names the workers that
    perform its effects, if only certain ones do.
    """

    run: str
    entries: int
    summary: Summary
    holder: str | None = None
    damage: str | None = None
    messages: int = 0
    queue: str | None = None

    @property
    def status(self) -> StatusNow:
        """The status of the run now."""
        if self.damage is not None:
            return "damaged"
        if self.holder is not None:
            return "under way"
        return "due" if self.messages and self.summary.status == "waiting" else self.summary.status

    @property
    def is_due(self) -> bool:
        """Whether the run has work but no writer: it was cut off, a deadline has passed, or a message waits."""
        return self.status in {"cut off", "due"} or (self.messages > 0 and self.holder is None and self.damage is None)

    def at(self, now_ms: int | None) -> "RunSummary":
        """Return the summary at a time: a waiting run is due once its deadline has passed. With None, deadlines do not count."""
        due_ms = self.summary.due_ms
        if now_ms is None or due_ms is None or due_ms > now_ms or self.summary.status != "waiting":
            return self
        return attrs.evolve(self, summary=attrs.evolve(self.summary, status="due"))

    def matches(self, status: str | None, waiting_for: str | None, machine: str | None) -> bool:
        """Return whether the run matches a filter; None matches every run."""
        return (
            status in {None, self.status}
            and (waiting_for is None or waiting_for in self.summary.waits_for)
            and machine in {None, self.summary.machine}
        )


@attrs.frozen
class InboxMessage:
    """An event in the inbox of a run. The sender chooses `id`; `at` is the place of the question that the event answers."""

    id: str
    event: str
    verdicts: tuple[tuple[str, Outcome], ...] = attrs.field(default=(), converter=_pairs)
    data: Any = None
    at: str | None = None
    posted_ms: int | None = None

    def repeats(self, other: "InboxMessage") -> bool:
        """Return whether this is the same message, sent again: only the time differs."""
        return attrs.evolve(self, posted_ms=None) == attrs.evolve(other, posted_ms=None)


#: The id of a message that a commit takes from the inbox, and the outcome for its sender, as JSON text.
MessageOutcome = tuple[str, str]

_AS_JSON: AsJson = {_mapping: dict}
#: Writes a summary as one line of JSON.
summary_line = line_writer(Summary, "summary", _AS_JSON)
_message_line = line_writer(InboxMessage, "message", _AS_JSON)
_read_summary, _read_message = reader(Summary), reader(InboxMessage)


def summary_of(line: str) -> Summary:
    """Read a summary from its line; "" gives the default summary. Raises ValueError, KeyError or TypeError for other text."""
    summary: Summary = _read_summary(value_of(line)) if line else Summary()
    return summary


def message_line(message: InboxMessage) -> str:
    """Write a message as one line of JSON. Raises StoreError if it is too long; ValueError or TypeError if its data is not JSON."""
    return _within_limit(f"message {message.id}", _message_line(message))


def message_of(line: str) -> InboxMessage:
    """Read a message from its line. Raises ValueError, KeyError or TypeError for other text."""
    message: InboxMessage = _read_message(value_of(line))
    return message


def commit_line(run: str, entries: Sequence[Entry]) -> str:
    """Write the entries of a commit as one line of JSON. Raises StoreError if it is too long; ValueError or TypeError if one is not JSON."""
    lines = commit_lines(entries)
    for line in lines:
        if len(line) > LONGEST_LINE:
            _within_limit(f"an entry of run {run}", line)
    return f"[{','.join(lines)}]"


def _within_limit(name: str, line: str) -> str:
    if len(line) > LONGEST_LINE:
        raise StoreError(
            f"{name} has {len(line):,} characters of JSON; the limit is {LONGEST_LINE:,}: store the data in a file and record its path",
            code="TooLargeError",
        )
    return line


# -- the protocol ------------------------------------------------------------------------------------------------------


class Journal(Protocol):
    """The right to write one run, until it is released or another process takes the run over."""

    @property
    def run(self) -> str:
        """The run's id."""

    @property
    def epoch(self) -> int:
        """The number of writers that the run has had; each entry is written under one epoch."""

    @property
    def head(self) -> bytes:
        """The hash of the last commit, in stores that chain their commits."""

    def append(
        self, entries: Sequence[Entry], summary: Summary | None = None, outcomes: Sequence[MessageOutcome] = ()
    ) -> None:
        """Write entries, the summary and the outcomes of messages, all or nothing. All of it is durable when this returns.

        Without a summary the previous one stays. Raises LeaseLostError, or StoreError for an entry that is too long and for a message in `outcomes` that is not in
        this run's inbox: then nothing was written. After any other StoreError the caller cannot know whether the commit was written, and must
        stop.
        """

    def release(self, summary: Summary | None = None) -> bool:
        """Give up the right to write, in one commit with the summary; return whether this was done.

        It is not if the summary says that the run waits and its inbox has messages: take these first. Then nothing has changed.
        """


class RunStore(Protocol):
    """A store of runs, each with one writer and any number of readers.

    Methods that take a run's id raise UnknownRunError if the store has no such run, and DamageError if the run was damaged.
    """

    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> Journal:
        """Create a run with the machine's text and its first entries. Raises StoreError if the id is or was in use."""

    def hold(self, run: str, *, take: bool = False, snapshot: StoredRun | None = None) -> tuple[Journal, StoredRun]:
        """Become the writer of a run, and read it. With `take`, take it from a live writer.

        With `snapshot`, read and verify only the entries after it. Raises HeldError.
        """

    def read(self, run: str) -> StoredRun:
        """Read a run, whether or not it has a writer."""

    def read_after(self, run: str, position: int) -> tuple[Entry, ...]:
        """Read and verify the entries from a position on, counted from 0. Earlier entries are not decoded."""

    def version(self, run: str) -> int:
        """Return the number of entries. This is cheap, because followers of a run call it repeatedly."""

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order in which they were created."""

    def summaries(
        self, *, status: str | None = None, waiting_for: str | None = None, machine: str | None = None, now_ms: int | None = None
    ) -> tuple[RunSummary, ...]:  # fmt: skip
        """Return the summaries of all runs that match the filter, in the order in which the runs were created. Decodes no entries.

        A damaged summary is in the list with the status `damaged`. Waiting runs are due if `now_ms` is past their deadline.
        """

    def summary(self, run: str) -> RunSummary:
        """Return the summary of one run."""

    def post(self, run: str, message: InboxMessage) -> None:
        """Put a message into a run's inbox, whether or not the run has a writer. Posting the same message again changes nothing.

        Raises StoreError if it is too long, or if there is another message with that id.
        """

    def waiting_messages(self, run: str) -> tuple[InboxMessage, ...]:
        """Return the messages in a run's inbox, in the order in which they were posted. Cheap as long as nothing changes."""

    def outcome_of(self, message: str) -> str | None:
        """Return the outcome of a message, by its id; None while it waits. Raises StoreError if there is no such message."""

    def due(self, now_ms: int) -> tuple[str, ...]:
        """Return the ids of runs that have work and no writer, in the order in which they were created."""

    def remove(self, *runs: str) -> None:
        """Remove runs and their inboxes, all or none. Their ids are not used again. Raises HeldError if one has a live writer."""


# -- hashes ------------------------------------------------------------------------------------------------------------


def first_link(run: str, text: str) -> bytes:
    """Return the first hash of a run's chain: SHA-256 of its id and its machine's text."""
    return hashlib.sha256(f"{run}\n{text}".encode("utf-8", "surrogatepass")).digest()


def next_link(previous: bytes, epoch: int, line: str) -> bytes:
    """Return the hash of a commit: SHA-256 of the previous hash, the epoch and the line."""
    return hashlib.sha256(b"%b%d %b" % (previous, epoch, line.encode("utf-8", "surrogatepass"))).digest()


class _Creator(Protocol):
    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> Journal:
        """Create a run."""


class NewJournal:
    """The `Journal` of a new run. The first `append` creates the run, all or nothing."""

    def __init__(self, store: _Creator, run: str, text: str) -> None:
        self.run = run
        self._store, self._text = store, text
        self._journal: Journal | None = None

    @property
    def epoch(self) -> int:
        """The number of writers that the run has had; 0 before it exists."""
        return 0 if self._journal is None else self._journal.epoch

    @property
    def head(self) -> bytes:
        """The hash of the last commit."""
        return b"" if self._journal is None else self._journal.head

    def append(
        self, entries: Sequence[Entry], summary: Summary | None = None, outcomes: Sequence[MessageOutcome] = ()
    ) -> None:
        """Write entries as `Journal.append` does. A run that does not exist yet has no messages to take."""
        if self._journal is None:
            self._journal = self._store.create(self.run, self._text, entries, summary)
        else:
            self._journal.append(entries, summary, outcomes)

    def release(self, summary: Summary | None = None) -> bool:
        """Give up the right to write as `Journal.release` does."""
        return self._journal is None or self._journal.release(summary)


@attrs.frozen
class Delivery:
    """The outcome of a message: the state after it. `reason` and `message` say why it was refused; they are empty if it was taken."""

    state: str = ""
    reason: str = ""
    message: str = ""
    accepted: tuple[str, ...] = ()


@attrs.frozen
class Posted:
    """An event in the inbox of a run that another process holds. `message` is its id.

    `delivery` is its outcome; None while it waits there.
    """

    run: str
    message: str
    delivery: Delivery | None = None


def outcome_text(result: Taken | Refusal) -> str:
    """Write the outcome of a message as a line of JSON."""
    state = result.configuration.state
    if isinstance(result, Taken):
        return json.dumps({"state": state})
    refusal = {"reason": result.reason, "message": result.message, "accepted": list(result.accepted)}
    return json.dumps({"state": state, **refusal})


def error_text(error: Exception) -> str:
    """Write why a message cannot be an event of its run, as a line of JSON."""
    return json.dumps({"reason": "invalid", "message": str(error)})


def read_delivery(text: str) -> Delivery:
    """Read the text of `outcome_text` or `error_text`."""
    fields = json.loads(text)
    return Delivery(**{**fields, "accepted": tuple(fields.get("accepted", ()))})
