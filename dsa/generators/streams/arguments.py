"""The arguments of one call, gathered from its pieces.

A piece may be a fragment to append, all of the arguments so far, or all of them again. Which it was is certain only at the
end, so two readings are kept: all pieces one after the other, and the same with a piece that begins with all before it in
its place. The first that is JSON holds: a text cut anywhere is never taken for anything else. Pieces are kept in lists,
and looked through once each: the cost is linear in what was sent.
"""

from itertools import pairwise
from typing import Any

import attrs

from dsa.generators.streams.reading import grown, read_object
from dsa.generators.streams.result import INVALID, TRUNCATED
from dsa.runtime.scanner import Scanner, values_in


@attrs.frozen
class Settled:
    """What arguments come to: objects (one, or several when calls were joined), or why there is none; what was mended."""

    values: tuple[dict[str, Any], ...]
    error: str | None = None
    rescues: tuple[str, ...] = ()


_UNREAD = object()
#: What another call's arguments begin with: an object, or one that is encoded twice.
_BEGINNINGS = ("{", '"{')


class Reassembled:
    """One reading of the pieces: a list of texts, how long they are, and where their first value ends."""

    __slots__ = ("_first", "_parts", "_scanned", "_scanner", "_value", "size")

    def __init__(self, *parts: str) -> None:
        self._parts = list(parts)
        self.size = sum(map(len, parts))
        self._scanner = Scanner()
        self._scanned = 0
        self._first: str | None = None
        self._value: Any = _UNREAD

    def append(self, text: str) -> None:
        """Take the next text."""
        self._parts.append(text)
        self.size += len(text)

    @property
    def text(self) -> str:
        """All of it; joined once, so that asking again costs nothing."""
        if len(self._parts) > 1:
            self._scan()
            self._parts = ["".join(self._parts)]
            self._scanned = 1
        return self._parts[0] if self._parts else ""

    @property
    def first(self) -> str | None:
        """The first value, None while it is incomplete; found once."""
        self._scan()
        if self._first is None and self._scanner.end is not None:
            self._first = self.text[: self._scanner.end]
        return self._first

    @property
    def value(self) -> dict[str, Any] | None:
        """The object that the first value is, None when it is none; read once."""
        if self._value is _UNREAD and self.first is not None:
            self._value = read_object(self.first).value
        return None if self._value is _UNREAD else self._value

    @property
    def alone(self) -> bool:
        """Whether there is an object and nothing after it."""
        return self.value is not None and not self._scanner.more

    @property
    def open(self) -> bool:
        """Whether a value has begun and not ended."""
        self._scan()
        return self._scanner.open

    def _scan(self) -> None:
        for position in range(self._scanned, len(self._parts)):
            self._scanner.feed(self._parts[position])
        self._scanned = len(self._parts)


class Arguments:
    """Gather pieces; ask whether they are complete; settle what they come to."""

    __slots__ = ("_joined", "_snapshot")

    def __init__(self) -> None:
        self._joined = Reassembled()
        self._snapshot: Reassembled | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing was sent yet."""
        return self._joined.size == 0

    @property
    def text(self) -> str:
        """All that was sent, one piece after the other."""
        return self._joined.text

    def append(self, fragment: str) -> None:
        """Take the next piece."""
        if fragment.startswith("{") and self._joined.size:
            held = self._snapshot or self._joined
            if len(fragment) >= held.size and fragment.startswith(held.text):
                self._snapshot = Reassembled(fragment)
                self._joined.append(fragment)
                return
        self._joined.append(fragment)
        if self._snapshot is not None:
            self._snapshot.append(fragment)

    @property
    def complete(self) -> bool:
        """Whether all pieces together are whole. By chance they only look so, when each had all so far: they are read then."""
        return self._joined.first is not None and (self._snapshot is None or self._joined.value is not None)

    def complete_before(self, piece: str | None) -> bool:
        """Tell whether they are whole, in one reading or the other, so that a piece may be of another call.

        A piece that begins with all before it may also be the inner part of an object, `{"a": ` and `{"a": 1}`: then what
        comes next does not look like a beginning.
        """
        if self.complete or self._snapshot is None:
            return self.complete
        begins = not piece or piece.isspace() or piece.lstrip().startswith(_BEGINNINGS)
        return begins and self._snapshot.alone

    def repeats(self, piece: str | None) -> bool:
        """Tell whether a piece, after complete arguments, says nothing new: empty, the same again, or its beginning."""
        if not piece or piece.isspace():
            return True
        whole = self._joined if self.complete or self._snapshot is None else self._snapshot
        if whole.first is None or whole.first.startswith(piece):
            return whole.first is not None
        return whole.value is not None and read_object(piece).value == whole.value

    def settle(self, *, cut: bool) -> Settled:
        """Say what the arguments come to; `cut` says that the stream may have ended before they did."""
        text = self.text
        if not text.strip() or text.strip() == "null":
            return Settled((), TRUNCATED) if cut else Settled(({},), rescues=("empty_arguments",))
        settled = _settled(self._joined)
        if settled is None and self._snapshot is not None and (settled := _settled(self._snapshot)):
            settled = attrs.evolve(settled, rescues=("cumulative_arguments", *settled.rescues))
        if settled is not None:
            return settled
        readable = read_object(text).json
        return Settled((), TRUNCATED if self._joined.open or (cut and not readable) else INVALID)


def _settled(reading: Reassembled) -> Settled | None:
    """Read one object, or one that more came after; None when that is not what it is."""
    whole = read_object(reading.text)
    if whole.value is not None:
        return Settled((whole.value,), rescues=whole.rescues)
    first = reading.first
    head = read_object(first) if first else whole
    if first is None or head.value is None:
        return None
    tail = reading.text[len(first) :].strip()
    if first.rstrip().endswith(tail) or first.lstrip().startswith(tail):  # its last piece again, or itself half
        return Settled((head.value,), rescues=(*head.rescues, "repeated_arguments"))
    rest = [read_object(part) for part in values_in(tail)]
    values = [head.value, *(reading.value for reading in rest if reading.value is not None)]
    if len(values) <= len(rest):
        return None
    kept, kind = _which(values)
    later = (name for reading in rest for name in reading.rescues if name != "double_encoded")  # of no importance now
    return Settled(kept, rescues=(kind, *dict.fromkeys((*head.rescues, *later))))


def _which(values: list[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], str]:
    """Say what several whole objects were: one again and again, one that grew, or several calls."""
    if all(value == values[0] for value in values):
        return (values[0],), "repeated_arguments"
    if not values[0] and all(value == values[1] for value in values[1:]):
        return (values[1],), "placeholder_arguments"
    if _grew(values):
        return (values[-1],), "cumulative_arguments"
    several = [value for value, before in zip(values, [None, *values], strict=False) if value != before]
    return tuple(several), "joined_calls"


def _grew(values: list[dict[str, Any]]) -> bool:
    try:
        return all(grown(before, after) for before, after in pairwise(values))
    except RecursionError:  # nested too deeply to be told
        return False
