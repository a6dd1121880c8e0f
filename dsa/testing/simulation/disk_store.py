"""The simulated disk and a `RunStore` on it: what was written and not synced may be lost, in part or whole, after a power cut.

`File` is one run's file. A process that is killed loses nothing of what it has written; a machine that loses power does.

`DiskStore` has the real lines, chain and epochs, in frames that say whether they are whole. An append is one frame and one sync. When
the run is next held, it cuts off what a crash left of a frame that was never synced; a frame that is not what was written, and has a good
one behind it, is damage. There are no lists of runs here and no inbox, so summaries are not stored. An `Owner` hears of every stage of an append, and may
end it there.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol
from zlib import crc32

import attrs

from dsa.runtime.ledger import Entry, Ledger, dump_line, from_json
from dsa.runtime.run_store import (
    DamageError,
    HeldError,
    LeaseLostError,
    MessageOutcome,
    StoredRun,
    StoreError,
    Summary,
    UnknownRunError,
    first_link,
    next_link,
)
from dsa.testing.simulation.seed_plan import Chance

_SECTOR = 64


class File:
    """One file: its bytes as every process sees them, and how many of them are on the disk for good.

    `read` is what was read of it; it is dropped when a byte changes, not when more are written.
    """

    def __init__(self) -> None:
        self.content = bytearray()
        self.synced_length = 0
        self.read: Any = None

    def write(self, data: bytes) -> None:
        """Write at the end. It may be lost until it is synced."""
        self.content += data

    def sync(self) -> None:
        """Write everything to the disk for good."""
        self.synced_length = len(self.content)

    def cut(self, length: int) -> None:
        """Cut off what is after a length."""
        if length < len(self.content):
            del self.content[length:]
            self.synced_length = min(self.synced_length, length)
            self.read = None

    def lose_power(self, chance: Chance) -> None:
        """Lose, tear or keep what was not synced; then what is there is on the disk."""
        tail = self.content[self.synced_length :]
        if tail:
            match chance.below(4, "power"):
                case 0:
                    tail.clear()
                case 1:
                    del tail[chance.below(len(tail), "torn") :]
                case 2:  # a later sector was written before an earlier one
                    at = _SECTOR * chance.below(1 + len(tail) // _SECTOR, "sector")
                    tail[at : at + _SECTOR] = bytes(len(tail[at : at + _SECTOR]))
                case _:  # everything was written back in time
                    pass
            self.content[self.synced_length :] = tail
            self.read = None
        self.sync()

    def flip(self, at: int) -> None:
        """Change one byte, as disks do; a second call changes it back."""
        self.content[at] ^= 0x10
        self.read = None


_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8})\n")
_HEAD_LENGTH = 18
#: The frames that have entries; others say who holds the run.
_WITH_ENTRIES = frozenset({"new", "rows"})


Stage = Literal["before", "unsynced", "durable"]


class Owner(Protocol):
    """The process that has a store open. What these raise goes to who called the store."""

    name: str

    @property
    def may_release(self) -> bool:
        """Return whether it lives and its store has not failed."""

    def before_write(self, entries: Sequence[Entry]) -> None:
        """Entries are about to be written; none of them is."""

    def on_refusal(self) -> None:
        """Another process holds the run."""

    def after_write(self, entries: Sequence[Entry]) -> None:
        """They are written and not synced."""

    def after_sync(self, epoch: int, entries: Sequence[Entry]) -> None:
        """They are on the disk for good, and the writer is about to go on."""

    def on_hold(self, stage: Stage, epoch: int) -> None:
        """The run is about to be held under an epoch (`before`), that is written (`unsynced`), the run is held (`durable`)."""

    def on_run_read(self, stored_run: StoredRun) -> None:
        """The run is held and read, and its holder is about to go on with it."""

    def on_release(self, stage: Stage) -> None:
        """The run is about to be released (`before`), that is written (`unsynced`), nobody holds it (`durable`)."""


@attrs.define
class Contents:
    """What a file holds: text, entries and their lines' chain as read; how much of it is sound.

    A writer adds its own frames, which need not be verified while nobody has touched the file: `unread` are their lines.
    """

    text: str = ""
    link: bytes = b""
    epoch: int = 0
    holder: str | None = None
    length: int = 0
    entries: list[Entry] = attrs.field(factory=list)
    unread: list[str] = attrs.field(factory=list)

    def read_lines(self) -> None:
        """Read the lines in `unread`."""
        self.entries += map(_entry, self.unread)
        self.unread.clear()


class DiskStore:
    """The store as one process has it open. `is_alive` says whether a holder lives."""

    def __init__(self, files: dict[str, File], owner: Owner, is_alive: Callable[[str], bool]) -> None:
        self._files, self._owner, self._is_alive = files, owner, is_alive

    def create(self, run: str, text: str, entries: Sequence[Entry], summary: Summary | None = None) -> "DiskJournal":  # noqa: ARG002  (not kept)
        """Begin a run. Raises StoreError when there is one of that id."""
        file = self._files.setdefault(run, File())
        if file.content and contents(run, file) is not None:
            raise StoreError("there is already a run with this id")
        self._owner.before_write(entries)
        file.cut(0)
        link = _first_link(run, text)
        file.read = Contents(text, link, 1, self._owner.name)
        journal = DiskJournal(file, self._owner, run, link, 1)
        journal.write(f"new 1 {len(text)} {self._owner.name}\n{text}", entries)
        return journal

    def hold(
        self, run: str, *, take: bool = False, snapshot: StoredRun | None = None  # noqa: ARG002  (all is read)
    ) -> tuple["DiskJournal", StoredRun]:  # fmt: skip
        """Become the writer of a run, and read it. Raises UnknownRunError, HeldError, DamageError."""
        file, current = self._read_file(run)
        if current.holder is not None and self._is_alive(current.holder) and not take:
            raise HeldError(run, current.holder)
        epoch = current.epoch + 1
        self._owner.on_hold("before", epoch)
        file.cut(current.length)
        file.sync()  # nothing may be built upon what can be lost
        file.write(_frame(f"hold {epoch} {self._owner.name}"))
        current.epoch, current.holder, current.length = epoch, self._owner.name, len(file.content)
        self._owner.on_hold("unsynced", epoch)
        file.sync()
        journal = DiskJournal(file, self._owner, run, current.link, epoch)
        self._owner.on_hold("durable", epoch)
        stored_run = StoredRun(run, current.text, Ledger(current.entries), epoch, self._owner.name)
        self._owner.on_run_read(stored_run)
        return journal, stored_run

    def read(self, run: str) -> StoredRun:
        """Read a run, which another process may be writing. Raises UnknownRunError or DamageError."""
        _, current = self._read_file(run)
        holder = current.holder if current.holder is not None and self._is_alive(current.holder) else None
        return StoredRun(run, current.text, Ledger(current.entries), current.epoch, holder)

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, in the order they were begun."""
        return tuple(run for run, file in self._files.items() if contents(run, file) is not None)

    def _read_file(self, run: str) -> tuple[File, Contents]:
        file = self._files.get(run)
        current = None if file is None else contents(run, file)
        if file is None or current is None:
            raise UnknownRunError(f"there is no run {run}")
        return file, current


class DiskJournal:
    """The right to write one run of a DiskStore."""

    def __init__(self, file: File, owner: Owner, run: str, link: bytes, epoch: int) -> None:
        self.run, self.epoch = run, epoch
        self._file, self._owner, self.head = file, owner, link
        self._end = len(file.content)

    def append(
        self,
        entries: Sequence[Entry],
        summary: Summary | None = None,  # noqa: ARG002  (not kept)
        outcomes: Sequence[MessageOutcome] = (),  # noqa: ARG002  (not kept)
    ) -> None:
        """Write entries, all or none of them; they are durable when this returns. Raises LeaseLostError or StoreError."""
        if entries:
            self._owner.before_write(entries)
            self.require_lease()
            self.write(f"rows {self.epoch}\n", entries)

    def write(self, head: str, entries: Sequence[Entry]) -> None:
        """Write a frame that begins with a head and has entries, and have it on the disk."""
        lines, link, current = [], self.head, self._current_contents
        for line in map(dump_line, entries):
            link = _next_link(link, self.epoch, line)
            lines.append(line)
        self._file.write(_frame(head + "\n".join((*lines, link.hex()))))
        self._end = len(self._file.content)
        if current is not None and current.link == self.head:
            current.unread += lines
            current.link, current.epoch, current.length = link, self.epoch, self._end
        self.head = link
        self._owner.after_write(entries)
        self._file.sync()
        self._owner.after_sync(self.epoch, entries)

    @property
    def _current_contents(self) -> Contents | None:
        """What was read of the file, where that is all of it."""
        current: Contents | None = self._file.read
        return current if current is not None and current.length == len(self._file.content) else None

    def require_lease(self) -> None:
        """Raise LeaseLostError when somebody else holds the run."""
        if len(self._file.content) != self._end:
            for _, body in frames(self._file.content, self._end):
                if body.startswith("hold ") and int(body.split(" ")[1]) > self.epoch:
                    self._owner.on_refusal()
                    raise LeaseLostError(self.run)
            self._end = len(self._file.content)

    def release(self, summary: Summary | None = None) -> bool:  # noqa: ARG002  (not kept)
        """Give up the right to write; another holder's is left alone. Raises StoreError."""
        if not self._owner.may_release:
            return True  # the next holder finds this one dead
        self._owner.on_release("before")
        try:
            self.require_lease()
        except LeaseLostError:
            return True
        current = self._current_contents
        self._file.write(_frame(f"free {self.epoch}"))
        if current is not None:
            current.epoch, current.holder, current.length = self.epoch, None, len(self._file.content)
        self._owner.on_release("unsynced")
        self._file.sync()
        self._end = len(self._file.content)
        self._owner.on_release("durable")
        return True


def _frame(body: str) -> bytes:
    data = body.encode("utf-8", "surrogatepass")
    return b"%08x %08x\n%b" % (crc32(data), len(data), data)


def frames(content: bytearray, begin: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the frames that are whole, each with the place where it ends, until one is not."""
    at = begin
    while at < len(content) and (body := _body(content, at)) is not None:
        at += _HEAD_LENGTH + len(body)
        yield at, body.decode("utf-8", "surrogatepass")


def _body(content: bytearray, at: int) -> bytes | None:
    head = _HEAD.match(content, at)
    if head is None:
        return None
    begin = at + _HEAD_LENGTH
    body = bytes(content[begin : begin + int(head[2], 16)])
    return body if len(body) == int(head[2], 16) and crc32(body) == int(head[1], 16) else None


def contents(run: str, file: File) -> Contents | None:
    """Read and verify a file; None when no run was begun in it. Raises DamageError. Bytes that were read before are not read again."""
    result: Contents = file.read or Contents()
    result.read_lines()
    file.read = None  # in case it cannot be read now
    for end, body in frames(file.content, result.length):
        head, _, rest = body.partition("\n")
        word, number, *fields = head.split(" ", 2)
        result.epoch = int(number)
        if word == "new":
            size, _, result.holder = fields[0].partition(" ")
            result.text, rest = rest[: int(size)], rest[int(size) :]
            result.link = _first_link(run, result.text)
        if word in _WITH_ENTRIES:
            *lines, stored_link = rest.split("\n")
            for line in lines:
                result.link = _next_link(result.link, result.epoch, line)
            result.unread = lines
            result.read_lines()
            require_chain(run, len(result.entries), result.link, stored_link)
        else:
            result.holder = fields[0] if word == "hold" else None
        result.length = end
    if result.length < len(file.content):
        heads = _HEAD.finditer(file.content, result.length)
        if any(_body(file.content, head.start()) is not None for head in heads):
            raise DamageError("it is not what was written", run, len(result.entries))
    file.read = result
    return result if result.entries else None


def require_chain(run: str, count: int, link: bytes, stored_link: str) -> None:
    """Raise DamageError unless the chain is the one that was written."""
    if link.hex() != stored_link:
        raise DamageError("it is not what was written", run, count)


#: Runs of one machine begin alike: most have their first links in common.
_first_link = lru_cache(maxsize=16)(first_link)
_next_link = lru_cache(maxsize=16_384)(next_link)


@lru_cache(maxsize=65_536)
def _entry(line: str) -> Entry:
    """Read a line. Runs of one machine have most of their lines in common, and entries are never changed."""
    return from_json(json.loads(line))
