"""The run store: its protocol, the one writer that a run has, its summary and inbox, and the chain that makes damage visible.

Knows no file. `dsa.edge.stores` implements it: durable in SQLite, or in memory. `tests/conformance/test_run_stores.py` says what each
implementation has to do.

Inboxes: what came of a message that was posted to a run, as its sender reads it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol

import attrs

from dsa.errors import DsaError
from dsa.expr import Outcome
from dsa.runtime.json_text import AsJson, line_writer, reader, value_of
from dsa.runtime.ledger import Entry, Ledger, commit_lines
from dsa.semantics import Refusal, Taken

#: The longest entry or message that a store takes, in characters of its line of JSON.
LONGEST_LINE = 16 * 2**20

#: How a run stands if nobody holds it.
Status = Literal["waiting", "due", "in doubt", "stopped", "interrupted", "cut off", "finished"]
#: How a run stands when somebody reads its summary.
StatusNow = Status | Literal["under way", "damaged"]


class StoreError(DsaError):
    """Raised when a store cannot be read or written. Commits that were acknowledged before are safe."""


class UnknownRunError(StoreError):
    """Raised for a run that a store does not have, or has no longer."""


class TooLargeError(StoreError):
    """Raised for an entry or a message that is too long to be stored. Nothing was written, and the store can still be used."""

    def __init__(self, name: str, length: int) -> None:
        super().__init__(
            f"{name} has {length:,} characters of JSON, and {LONGEST_LINE:,} are allowed: store the data in a file and record its path"
        )


class DamageError(StoreError):
    """Raised when a store does not hold what was written: `run` and `position` say where, from 0; None when all of it is in doubt."""

    def __init__(self, message: str, run: str | None = None, position: int | None = None) -> None:
        self.run, self.position, self.reason = run, position, message
        place = "" if run is None else f"run {run}: " if position is None else f"run {run}, entry {position}: "
        super().__init__(place + message)


class HeldError(StoreError):
    """Raised when a run has a writer that is alive. `holder` says who."""

    def __init__(self, run: str, holder: str) -> None:
        self.run, self.holder = run, holder
        super().__init__(f"run {run} is held by {holder}")


class MessagesWaitError(StoreError):
    """Raised when a run that waits is to be released while messages are in its inbox: nothing has changed."""

    def __init__(self, run: str) -> None:
        super().__init__(f"messages wait in the inbox of run {run}")


class LeaseLostError(StoreError):
    """Raised when somebody else has taken a run over: nothing was written."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(f"run {run} was taken over by another process; nothing was written")


# -- what a store holds ------------------------------------------------------------------------------------------------


@attrs.frozen
class StoredRun:
    """A run as a store has it: the text of its machine, its entries, who writes it now (None: nobody).

    `head` is the hash of the last commit, in stores that chain them.
    """

    run: str
    text: str
    entries: Ledger[Entry]
    epoch: int
    holder: str | None = None
    head: bytes = b""


_NOTHING: Mapping[str, str] = MappingProxyType({})


def _mapping(given: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(given)) if given else _NOTHING


def _strings(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


def _pairs(given: Iterable[Sequence[Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple((str(name), value) for name, value in given)


@attrs.frozen
class Summary:
    """How a run stands, for lists of runs. Its writer gives it with a commit, and the store seals it with the end of the chain.

    `status` is how the run stands if nobody holds it; a run whose writer has never said so is `cut off`. `waits_for` has the place of
    each event that the run waits for ("" if it has none), `in_doubt` the keys of effects and calls with their names, `timers` the events of
    armed timers, `parts` the runs that the run waits for. Times are in milliseconds since 1970; `due_ms` is the next deadline. `about` and `failure` are short texts; `parent` is the
    run that this one is a part of. `events` counts its events; while it is under way, those up to the last change of its state.
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
    """A run in a list: how many entries it has, its summary, how many messages wait in its inbox.

    `holder` is its writer if that is alive. `damaged` says why the summary cannot be trusted; then it is an empty one.
    """

    run: str
    entries: int
    summary: Summary
    holder: str | None = None
    damaged: str | None = None
    messages: int = 0

    @property
    def status(self) -> StatusNow:
        """How the run stands now."""
        if self.damaged is not None:
            return "damaged"
        if self.holder is not None:
            return "under way"
        return "due" if self.messages and self.summary.status == "waiting" else self.summary.status

    @property
    def is_due(self) -> bool:
        """Whether nobody holds the run and there is something to do in it: it was cut off, a deadline has passed or a message waits."""
        return self.status in {"cut off", "due"} or (self.messages > 0 and self.holder is None and self.damaged is None)

    def at(self, now_ms: int | None) -> "RunSummary":
        """Return the summary as it is at a time: a run that waits is due once its deadline has passed. None: whatever the time."""
        due_ms = self.summary.due_ms
        if now_ms is None or due_ms is None or due_ms > now_ms or self.summary.status != "waiting":
            return self
        return attrs.evolve(self, summary=attrs.evolve(self.summary, status="due"))

    def matches(self, status: str | None, waiting_for: str | None, machine: str | None) -> bool:
        """Return whether the run is one of those that a filter asks for; None asks for all."""
        return (
            status in {None, self.status}
            and (waiting_for is None or waiting_for in self.summary.waits_for)
            and machine in {None, self.summary.machine}
        )


@attrs.frozen
class InboxMessage:
    """An event that was sent to a run and waits in its inbox. `id` is chosen by the sender, `at` is the place that it answers."""

    id: str
    event: str
    verdicts: tuple[tuple[str, Outcome], ...] = attrs.field(default=(), converter=_pairs)
    data: Any = None
    at: str | None = None
    posted_ms: int | None = None

    def repeats(self, other: "InboxMessage") -> bool:
        """Return whether this is the other one, sent again: only the time differs."""
        return attrs.evolve(self, posted_ms=None) == attrs.evolve(other, posted_ms=None)


#: The id of a message that a commit takes from the inbox, and what came of it, as a JSON text for the sender.
Taking = tuple[str, str]

_AS_JSON: AsJson = {_mapping: dict}
#: Write a summary, or a message, as one line of JSON.
summary_line = line_writer(Summary, "summary", _AS_JSON)
_message_line = line_writer(InboxMessage, "message", _AS_JSON)
_read_summary, _read_message = reader(Summary), reader(InboxMessage)


def summary_of(line: str) -> Summary:
    """Read a summary from its line; "" is that of a run about which nothing was said. ValueError, KeyError or TypeError for other text."""
    found: Summary = _read_summary(value_of(line)) if line else Summary()
    return found


def message_line(message: InboxMessage) -> str:
    """Write a message as one line of JSON. Raises TooLargeError; ValueError or TypeError if its data is not JSON."""
    return _bounded(f"message {message.id}", _message_line(message))


def message_of(line: str) -> InboxMessage:
    """Read a message from its line. ValueError, KeyError or TypeError for other text."""
    found: InboxMessage = _read_message(value_of(line))
    return found


def commit_line(run: str, entries: Sequence[Entry]) -> str:
    """Write the entries of a commit as one line of JSON. Raises TooLargeError; ValueError or TypeError if one is not JSON."""
    lines = commit_lines(entries)
    for line in lines:
        if len(line) > LONGEST_LINE:
            _bounded(f"an entry of run {run}", line)
    return f"[{','.join(lines)}]"


def _bounded(name: str, line: str) -> str:
    if len(line) > LONGEST_LINE:
        raise TooLargeError(name, len(line))
    return line


# -- the protocol ------------------------------------------------------------------------------------------------------


class Journal(Protocol):
    """The right to write one run, until it is released or somebody takes it over."""

    @property
    def run(self) -> str:
        """The run's id."""

    @property
    def epoch(self) -> int:
        """How often the run has had a writer; each entry is written under one epoch."""

    @property
    def head(self) -> bytes:
        """The hash of the last commit, in stores that chain them."""

    def append(self, entries: Sequence[Entry], summary: Summary | None = None, taking: Sequence[Taking] = ()) -> None:
        """Write entries, the summary and what came of messages, all or nothing; all of it is durable when this returns.

        Without a summary the one before stays. Raises LeaseLostError, TooLargeError, or StoreError when `taking` names a message that
        does not wait for this run: then nothing was written. Any other StoreError: the caller cannot know whether it was written, and has to stop.
        """

    def release(self, summary: Summary | None = None) -> None:
        """Give up the right to write, in one commit with the summary.

        Raises MessagesWaitError when the summary says that the run waits and messages are in its inbox: then they are taken first.
        """


class RunStore(Protocol):
    """Stores runs: one writer each, any number of readers.

    Methods that name a run raise UnknownRunError if there is none of that id, and DamageError if it is not what was written.
    """

    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> Journal:
        """Begin a run with the machine's text and its first entries. Raises StoreError when the id is or was in use."""

    def hold(self, run: str, *, take: bool = False, known: StoredRun | None = None) -> tuple[Journal, StoredRun]:
        """Become the writer of a run, and read it. `take` takes it from a writer that is alive.

        Of a run that is `known` only the entries after it are read and verified. Raises HeldError.
        """

    def read(self, run: str) -> StoredRun:
        """Read a run, whether or not somebody writes it."""

    def read_after(self, run: str, position: int) -> tuple[Entry, ...]:
        """Read the entries from a position on, counted from 0. They are verified from there on; earlier ones are not decoded."""

    def version(self, run: str) -> int:
        """Return the number of entries. This is cheap: who follows a run calls it again and again."""

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order they were begun."""

    def summaries(
        self, *, status: str | None = None, waiting_for: str | None = None, machine: str | None = None, now_ms: int | None = None
    ) -> tuple[RunSummary, ...]:  # fmt: skip
        """Return how all runs stand, or those that the filter asks for, in the order they were begun. Decodes no entries.

        A summary that is not what was written is a `damaged` one in the list. Runs that wait are due if `now_ms` is past their deadline.
        """

    def summary(self, run: str) -> RunSummary:
        """Return how one run stands."""

    def post(self, run: str, message: InboxMessage) -> None:
        """Put a message into a run's inbox, whoever holds the run. Once it is there, posting it again changes nothing.

        Raises TooLargeError, or StoreError if there is another message of that id.
        """

    def waiting_messages(self, run: str) -> tuple[InboxMessage, ...]:
        """Return the messages that wait in a run's inbox, in the order they were posted. Cheap as long as nothing changes."""

    def outcome_of(self, message: str) -> str | None:
        """Return what came of a message, by its id; None while it waits. Raises StoreError if there is no such message."""

    def due(self, now_ms: int) -> tuple[str, ...]:
        """Return the runs that nobody holds and in which there is something to do, in the order they were begun."""

    def remove(self, *runs: str) -> None:
        """Remove runs and their inboxes, all or none. Their ids are not used again. Raises HeldError while somebody alive holds one."""


# -- hashes ------------------------------------------------------------------------------------------------------------


def first_link(run: str, text: str) -> bytes:
    """Return the hash that a run's chain begins with: SHA-256 of its id and its machine's text."""
    return hashlib.sha256(f"{run}\n{text}".encode("utf-8", "surrogatepass")).digest()


def next_link(previous: bytes, epoch: int, line: str) -> bytes:
    """Return the hash of a commit: SHA-256 of the one before it, the epoch and the line."""
    return hashlib.sha256(b"%b%d %b" % (previous, epoch, line.encode("utf-8", "surrogatepass"))).digest()


class _Creator(Protocol):
    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> Journal:
        """Begin a run."""


class NewJournal:
    """A `Journal` of a run that does not exist before its first entries are written: then all of it is there, or nothing."""

    def __init__(self, store: _Creator, run: str, text: str) -> None:
        self.run = run
        self._store, self._text = store, text
        self._journal: Journal | None = None

    @property
    def epoch(self) -> int:
        """How often the run has had a writer; 0 before it exists."""
        return 0 if self._journal is None else self._journal.epoch

    @property
    def head(self) -> bytes:
        """The hash of the last commit."""
        return b"" if self._journal is None else self._journal.head

    def append(self, entries: Sequence[Entry], summary: Summary | None = None, taking: Sequence[Taking] = ()) -> None:
        """Write entries as `Journal.append` does. Nothing can be taken from the inbox of a run that does not exist yet."""
        if self._journal is None:
            self._journal = self._store.create(self.run, self._text, entries, summary)
        else:
            self._journal.append(entries, summary, taking)

    def release(self, summary: Summary | None = None) -> None:
        """Give up the right to write."""
        if self._journal is not None:
            self._journal.release(summary)


@attrs.frozen
class Delivery:
    """What became of a message: the state after it; `reason` and `message` say why it was refused, and are empty where it was taken."""

    state: str = ""
    reason: str = ""
    message: str = ""
    accepted: tuple[str, ...] = ()


@attrs.frozen
class Posted:
    """An event was put into the inbox of a run that another process holds; `message` is its id.

    `delivered` says what became of it; None: nobody has come to it yet, and it waits there.
    """

    run: str
    message: str
    delivered: Delivery | None = None


def outcome_text(became: Taken | Refusal) -> str:
    """Write what became of a message as a line of JSON."""
    state = became.configuration.state
    if isinstance(became, Taken):
        return json.dumps({"state": state})
    refused = {"reason": became.reason, "message": became.message, "accepted": list(became.accepted)}
    return json.dumps({"state": state, **refused})


def error_text(error: Exception) -> str:
    """Write why a message could not be an event of its run, as a line of JSON."""
    return json.dumps({"reason": "invalid", "message": str(error)})


def delivered(text: str) -> Delivery:
    """Read what `outcome_text` and `error_text` have written."""
    written = json.loads(text)
    return Delivery(**{**written, "accepted": tuple(written.get("accepted", ()))})
