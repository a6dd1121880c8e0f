"""The arguments of one call, gathered from its pieces.

A piece may be a fragment to append, all of the arguments so far, or all of them again. Which it was is certain only at the
end, so two readings are kept: all pieces one after the other, and the same with a piece that begins with all before it in
its place. The first that is JSON holds: a text cut anywhere is never taken for anything else. Pieces are kept in lists,
and looked through once each: the cost is linear in what was sent.

Which call each piece of a stream belongs to.

Takes the entries of `tool_calls` in the order in which they come, gives calls in the order in which they began. Providers
number calls or not, name them once or with every piece, send ids late, twice, anew, or never: `_slot_of` has the rules, in
order. It knows the arguments only through what `Arguments` answers.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import attrs

from dsa.generators.streams.offered_tools import Tools, grown, read_object
from dsa.generators.streams.stream_result import INVALID, TRUNCATED
from dsa.runtime.speech import Scanner, values_in


@attrs.frozen
class SettledArguments:
    """What arguments come to: objects (one, or several when calls were joined), or why there is none; what was mended."""

    values: tuple[dict[str, Any], ...]
    error: str | None = None
    rescues: tuple[str, ...] = ()


_UNREAD = object()
#: What another call's arguments begin with: an object, or one that is encoded twice.
_BEGINNINGS = ("{", '"{')


class PieceReading:
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
        self._joined = PieceReading()
        self._snapshot: PieceReading | None = None

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
                self._snapshot = PieceReading(fragment)
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
        """Return whether they are whole, in one reading or the other, so that a piece may be of another call.

        A piece that begins with all before it may also be the inner part of an object, `{"a": ` and `{"a": 1}`: then what
        comes next does not look like a beginning.
        """
        if self.complete or self._snapshot is None:
            return self.complete
        begins = not piece or piece.isspace() or piece.lstrip().startswith(_BEGINNINGS)
        return begins and self._snapshot.alone

    def repeats(self, piece: str | None) -> bool:
        """Return whether a piece, after complete arguments, says nothing new: empty, the same again, or its beginning."""
        if not piece or piece.isspace():
            return True
        whole = self._joined if self.complete or self._snapshot is None else self._snapshot
        if whole.first is None or whole.first.startswith(piece):
            return whole.first is not None
        return whole.value is not None and read_object(piece).value == whole.value

    def settle(self, *, cut: bool) -> SettledArguments:
        """Return what the arguments come to; `cut` says that the stream may have ended before they did."""
        text = self.text
        if not text.strip() or text.strip() == "null":
            return SettledArguments((), TRUNCATED) if cut else SettledArguments(({},), rescues=("empty_arguments",))
        settled = _settled(self._joined)
        if settled is None and self._snapshot is not None and (settled := _settled(self._snapshot)):
            settled = attrs.evolve(settled, rescues=("cumulative_arguments", *settled.rescues))
        if settled is not None:
            return settled
        readable = read_object(text).json
        return SettledArguments((), TRUNCATED if self._joined.open or (cut and not readable) else INVALID)


def _settled(reading: PieceReading) -> SettledArguments | None:
    """Read one object, or one that more came after; None when that is not what it is."""
    whole = read_object(reading.text)
    if whole.value is not None:
        return SettledArguments((whole.value,), rescues=whole.rescues)
    first = reading.first
    head = read_object(first) if first else whole
    if first is None or head.value is None:
        return None
    tail = reading.text[len(first) :].strip()
    if first.rstrip().endswith(tail) or first.lstrip().startswith(tail):  # its last piece again, or itself half
        return SettledArguments((head.value,), rescues=(*head.rescues, "repeated_arguments"))
    rest = [read_object(part) for part in values_in(tail)]
    values = [head.value, *(reading.value for reading in rest if reading.value is not None)]
    if len(values) <= len(rest):
        return None
    kept, kind = _which(values)
    later = (name for reading in rest for name in reading.rescues if name != "double_encoded")  # of no importance now
    return SettledArguments(kept, rescues=(kind, *dict.fromkeys((*head.rescues, *later))))


def _which(values: list[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], str]:
    """Return what several whole objects were: one again and again, one that grew, or several calls."""
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


#: What ids and names are when they are none: some servers write the absence down.
_NONE = frozenset({"", "null", "None"})
_KNOWN = frozenset({"index", "id", "type", "function", "name", "arguments"})
_IN_FUNCTION = frozenset({"name", "arguments", "id", "index", "parameters"})
_INDEX_AND_FUNCTION = 2
_MOST_DIGITS = 9
_NOTHING: dict[str, Any] = {}
_NO_KINDS: tuple[str, ...] = ()


class _Piece(NamedTuple):
    """What an entry says; None where it says nothing. `kinds` are the rescues that reading it took."""

    place: int | None  # the index
    id: str | None
    name: str | None
    arguments: str | None
    extra: dict[str, Any] = _NOTHING
    kinds: tuple[str, ...] = _NO_KINDS

    @property
    def says_only_extra(self) -> bool:
        """Whether it has nothing but what the provider wants back."""
        return self.id is None and self.name is None and not self.arguments and bool(self.extra)


def _read_piece(entry: Mapping[str, Any]) -> _Piece | None:
    """Read an entry; None for one that is wholly empty."""
    function = entry.get("function")
    if not isinstance(function, dict):
        function = _NOTHING
    given, index, name = entry.get("id"), entry.get("index"), function.get("name")
    arguments = function.get("arguments")
    plain = type(index) is int and type(arguments) is str
    if plain and len(entry) == _INDEX_AND_FUNCTION and len(function) == 1:  # the usual piece: nothing more to look for
        return _Piece(index, None, None, arguments) if arguments else None
    kinds: list[str] = []
    found_id = _text(given)
    if found_id is None and isinstance(given, str) and given:
        kinds.append("null_id")
    if found_id is None and (found_id := _text(function.get("id"))) is not None:
        kinds.append("id_in_function")
    found_index = _number(index)
    if found_index is None and (found_index := _number(function.get("index"))) is not None:
        kinds.append("index_in_function")
    found_name = _text(name) or _text(entry.get("name"))
    text = _argument_text(arguments if arguments is not None else entry.get("arguments"), kinds)
    extra = _others(entry, _KNOWN) if not entry.keys() <= _KNOWN else _NOTHING
    if not function.keys() <= _IN_FUNCTION:
        extra = {**extra, **_others(function, _IN_FUNCTION)}
    if found_id is None and found_name is None and not text and not extra:
        return None
    return _Piece(found_index, found_id, found_name, text, extra, tuple(kinds))


def _others(values: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in known and value is not None}


def _text(value: object) -> str | None:
    """Return a text that says something."""
    return value if isinstance(value, str) and value not in _NONE else str(value) if type(value) is int else None


def _number(value: object) -> int | None:
    if type(value) is int:
        return value
    digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
    return int(str(value)) if digits else None


def _argument_text(arguments: object, kinds: list[str]) -> str | None:
    if arguments is None or isinstance(arguments, str):
        return arguments
    kinds.append("object_arguments")
    return json.dumps(arguments, ensure_ascii=False)


@attrs.define(eq=False)
class Slot:
    """One call as it is gathered. `kinds` are the rescues that it took."""

    id: str | None
    name: str | None
    index: int | None
    arguments: Arguments = attrs.field(factory=Arguments)
    extra: dict[str, Any] = attrs.field(factory=dict)
    kinds: set[str] = attrs.field(factory=set)


class Slots:
    """Gather calls from entries."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._slots: list[Slot] = []
        self._by_id: dict[str, Slot] = {}
        self._by_index: dict[int, Slot] = {}
        self._last: Slot | None = None
        self._waiting: dict[str, Any] = {}

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def take(self, entries: list[Any], *, whole: bool = False) -> None:
        """Take the entries of one chunk; `whole` says that each is a complete call (Ollama's own protocol)."""
        named: set[Slot] = set()
        for entry in entries:
            if isinstance(entry, dict) and (piece := _read_piece(entry)) is not None:
                self._place(piece, named, whole=whole)

    def attach(self, extra: Mapping[str, Any]) -> None:
        """Take what a provider sent beside the entries, for the call before it, or else the next one."""
        self._add_extra(self._last, dict(extra))

    def _place(self, piece: _Piece, named: set[Slot], *, whole: bool) -> None:
        if piece.says_only_extra:
            known = self._by_index.get(piece.place) if piece.place is not None else None
            self._add_extra(known or self._last, piece.extra)
            return
        slot = None if whole and piece.name is not None else self._slot_of(piece, named)
        if slot is None:
            slot = self._opened(piece)
        else:
            self._go_on(slot, piece)
        slot.kinds.update(piece.kinds)
        slot.extra.update(piece.extra)
        if piece.name is not None:
            named.add(slot)
        if piece.arguments:
            slot.arguments.append(piece.arguments)
        self._last = slot

    def _slot_of(self, piece: _Piece, named: set[Slot]) -> Slot | None:
        """Return the call that a piece goes on with; None when it begins one."""
        last = self._last
        if last is None:
            return None
        same_index = self._by_index.get(piece.place) if piece.place is not None else None
        same_id = self._by_id.get(piece.id) if piece.id is not None else None
        if same_index is not None and same_index.id is not None and same_index.id == piece.id:
            same_id = same_index
        if same_id is not None and _goes_on_by_id(same_id, piece):
            return None if self._begins_with_id(piece, same_id) else same_id
        if same_index is not None:
            return None if self._begins(piece, same_index, named) else same_index
        if piece.name is not None:
            return None if piece.place is not None or self._begins(piece, last, named) else last
        if piece.id is None:  # an index that no call has
            return None if _begins_nameless(piece, last) else last
        late = piece.place is None and (last.id is None or not last.arguments.complete)
        return last if late else None

    def _begins(self, piece: _Piece, slot: Slot, named: set[Slot]) -> bool:
        """Return whether a piece begins a call, though its index, or its place, is another call's."""
        if piece.name is None or slot.name is None:
            return False
        if piece.name != slot.name:
            return self._begins_by_name(piece.name, slot)
        complete = slot.arguments.complete_before(piece.arguments)
        if piece.id is not None and slot.id is not None:  # another id
            return slot in named or (complete and not ("changed_id" in slot.kinds and not piece.arguments))
        return complete and (slot in named or not slot.arguments.repeats(piece.arguments))

    def _begins_with_id(self, piece: _Piece, slot: Slot) -> bool:
        """Return whether a piece with a call's id begins another: servers exist that give all calls one id."""
        if piece.name is None or slot.name is None:
            return False
        if piece.name != slot.name:
            return self._begins_by_name(piece.name, slot)
        return slot.arguments.complete_before(piece.arguments) and not slot.arguments.repeats(piece.arguments)

    def _begins_by_name(self, name: str, slot: Slot) -> bool:
        """Return whether another name is another call's, and not the rest of a name that came in pieces."""
        return not (slot.name is not None and slot.arguments.empty and self._tools.goes_on(slot.name, name))

    def _opened(self, piece: _Piece) -> Slot:
        slot = Slot(piece.id, piece.name, piece.place)
        if self._waiting:
            slot.extra, self._waiting = self._waiting, {}
            slot.kinds.add("extra_later")
        if self._slots and piece.place is not None and piece.place in self._by_index:
            slot.kinds.add("reused_index")
        if piece.place is None:
            slot.kinds.add("missing_index")
        else:
            self._by_index[piece.place] = slot
        if piece.id is not None:
            self._by_id[piece.id] = slot
        self._slots.append(slot)
        return slot

    def _go_on(self, slot: Slot, piece: _Piece) -> None:
        """Note what a later piece says of its call beside the arguments."""
        if piece.place is not None and piece.place != slot.index:
            if slot.index is None:
                slot.index = piece.place
                self._by_index.setdefault(piece.place, slot)
            else:
                slot.kinds.add("drifted_index")
        if piece.id is not None:
            self._go_on_with_id(slot, piece.id)
        if piece.name is not None:
            self._go_on_with_name(slot, piece.name)

    def _go_on_with_id(self, slot: Slot, given: str) -> None:
        if slot.id is None:
            slot.id = given
            slot.kinds.add("late_id")
            self._by_id[given] = slot
        else:
            slot.kinds.add("repeated_id" if given == slot.id else "changed_id")

    def _go_on_with_name(self, slot: Slot, given: str) -> None:
        if slot.name is None:
            slot.name = given
            if not slot.arguments.empty:
                slot.kinds.add("late_name")
        elif given == slot.name:
            slot.kinds.add("repeated_name")
        else:
            slot.name += given
            slot.kinds.add("split_name")

    def _add_extra(self, slot: Slot | None, extra: dict[str, Any]) -> None:
        if slot is None:
            self._waiting.update(extra)
        else:
            slot.extra.update(extra)
            slot.kinds.add("extra_later")


def _goes_on_by_id(slot: Slot, piece: _Piece) -> bool:
    """Return whether a call's id settles that a piece is of it: not when it has a name and an index of its own."""
    if piece.place in {None, slot.index} or piece.name is None:
        return True
    unfinished = not slot.arguments.empty and not slot.arguments.complete
    return unfinished and piece.name == slot.name


def _begins_nameless(piece: _Piece, slot: Slot) -> bool:
    """Return whether arguments at an index that no call has begin a call whose name comes later: nothing is unfinished."""
    said = piece.arguments is not None and not piece.arguments.isspace() and piece.arguments != ""
    return said and piece.place is not None and slot.name is not None and slot.arguments.complete
