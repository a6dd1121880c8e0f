"""Call slots: which call each piece of a stream belongs to, and the arguments of each call.

`Slots` takes the entries of `tool_calls` in the order in which they come, and has the calls in the order in which they began. Providers
number calls or not, name them once or with every piece, and send ids late, twice, changed or never: `_slot_of` has the rules, in
order.

`Arguments` gathers the pieces of one call's arguments. A piece may be a fragment to append, all of the arguments so far, or all of them
again. Which it was is certain only at the end, so there are two readings: all pieces joined, and the same except that a piece that
begins with everything before it replaces that. The first reading that is JSON counts: a text that is cut is never taken for anything else. Pieces
are kept in lists, and each is read once, so the cost is linear in what was sent.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import attrs

from dsa.generators.streams.offered_tools import Tools, has_grown, read_object
from dsa.generators.streams.stream_result import INVALID_ARGUMENTS, TRUNCATED_ARGUMENTS
from dsa.runtime.speech import Scanner, values_in


@attrs.frozen
class SettledArguments:
    """Settled arguments: objects (one, or several when calls were joined), or why there is none; the rescues."""

    values: tuple[dict[str, Any], ...]
    error: str | None = None
    rescues: tuple[str, ...] = ()


_UNREAD = object()
#: The beginning of another call's arguments: an object, or one that is encoded twice.
_BEGINNINGS = ("{", '"{')


class PieceReading:
    """One reading of the pieces: a list of texts, how long they are, and where their first value ends."""

    __slots__ = ("_first", "_parts", "_scan_count", "_scanner", "_value", "size")

    def __init__(self, *parts: str) -> None:
        self._parts = list(parts)
        self.size = sum(map(len, parts))
        self._scanner = Scanner()
        self._scan_count = 0
        self._first: str | None = None
        self._value: Any = _UNREAD

    def append(self, text: str) -> None:
        """Take the next text."""
        self._parts.append(text)
        self.size += len(text)

    @property
    def text(self) -> str:
        """All of it; joined only once."""
        if len(self._parts) > 1:
            self._scan()
            self._parts = ["".join(self._parts)]
            self._scan_count = 1
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
        """The first value as an object, or None if it is not one; read once."""
        if self._value is _UNREAD and self.first is not None:
            self._value = read_object(self.first).value
        return None if self._value is _UNREAD else self._value

    @property
    def alone(self) -> bool:
        """Whether there is an object and nothing after it."""
        return self.value is not None and not self._scanner.more

    @property
    def open(self) -> bool:
        """Whether a value has begun but not ended."""
        self._scan()
        return self._scanner.open

    def _scan(self) -> None:
        for position in range(self._scan_count, len(self._parts)):
            self._scanner.feed(self._parts[position])
        self._scan_count = len(self._parts)


class Arguments:
    """The pieces of one call's arguments: append them, ask whether they are complete, settle them."""

    __slots__ = ("_concatenation", "_snapshot")

    def __init__(self) -> None:
        self._concatenation = PieceReading()
        self._snapshot: PieceReading | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing was sent yet."""
        return self._concatenation.size == 0

    @property
    def text(self) -> str:
        """All that was sent, one piece after the other."""
        return self._concatenation.text

    def append(self, fragment: str) -> None:
        """Take the next piece."""
        if fragment.startswith("{") and self._concatenation.size:
            pieces = self._snapshot or self._concatenation
            if len(fragment) >= pieces.size and fragment.startswith(pieces.text):
                self._snapshot = PieceReading(fragment)
                self._concatenation.append(fragment)
                return
        self._concatenation.append(fragment)
        if self._snapshot is not None:
            self._snapshot.append(fragment)

    @property
    def complete(self) -> bool:
        """Whether all pieces together are complete. If each piece had everything so far, they may only look complete by chance; then they are read."""
        return self._concatenation.first is not None and (
            self._snapshot is None or self._concatenation.value is not None
        )

    def complete_before(self, piece: str | None) -> bool:
        """Return whether they are complete in one of the readings, so that a piece may belong to another call.

        A piece that begins with all before it may also be the inner part of an object, `{"a": ` and `{"a": 1}`: then the
        next piece does not look like a beginning.
        """
        if self.complete or self._snapshot is None:
            return self.complete
        begins = not piece or piece.isspace() or piece.lstrip().startswith(_BEGINNINGS)
        return begins and self._snapshot.alone

    def repeats(self, piece: str | None) -> bool:
        """Return whether a piece after complete arguments adds nothing: it is empty, the same again, or their beginning."""
        if not piece or piece.isspace():
            return True
        whole = self._concatenation if self.complete or self._snapshot is None else self._snapshot
        if whole.first is None or whole.first.startswith(piece):
            return whole.first is not None
        return whole.value is not None and read_object(piece).value == whole.value

    def settle(self, *, cut: bool) -> SettledArguments:
        """Return the settled arguments; `cut` means that the stream may have ended before they did."""
        text = self.text
        if not text.strip() or text.strip() == "null":
            if cut:
                return SettledArguments((), TRUNCATED_ARGUMENTS)
            return SettledArguments(({},), rescues=("empty_arguments",))
        result = _read_pieces(self._concatenation)
        if result is None and self._snapshot is not None and (result := _read_pieces(self._snapshot)):
            result = attrs.evolve(result, rescues=("cumulative_arguments", *result.rescues))
        if result is not None:
            return result
        readable = read_object(text).json
        is_truncated = self._concatenation.open or (cut and not readable)
        return SettledArguments((), TRUNCATED_ARGUMENTS if is_truncated else INVALID_ARGUMENTS)


def _read_pieces(pieces: PieceReading) -> SettledArguments | None:
    """Read one object, or one with more after it; None if the pieces are neither."""
    whole = read_object(pieces.text)
    if whole.value is not None:
        return SettledArguments((whole.value,), rescues=whole.rescues)
    first = pieces.first
    head = read_object(first) if first else whole
    if first is None or head.value is None:
        return None
    tail = pieces.text[len(first) :].strip()
    if first.rstrip().endswith(tail) or first.lstrip().startswith(tail):  # its last piece again, or half of itself
        return SettledArguments((head.value,), rescues=(*head.rescues, "repeated_arguments"))
    rest = [read_object(text) for text in values_in(tail)]
    values = [head.value, *(part.value for part in rest if part.value is not None)]
    if len(values) <= len(rest):
        return None
    objects, kind = _which(values)
    later = (name for part in rest for name in part.rescues if name != "double_encoded")  # the values are read by now
    return SettledArguments(objects, rescues=(kind, *dict.fromkeys((*head.rescues, *later))))


def _which(values: list[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], str]:
    """Return what several complete objects were: one repeated, one that grew, or several calls."""
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
        return all(has_grown(before, after) for before, after in pairwise(values))
    except RecursionError:  # nested too deeply to be compared
        return False


#: The ids and names that servers send instead of leaving them out.
_NONE = frozenset({"", "null", "None"})
_KNOWN_KEYS = frozenset({"index", "id", "type", "function", "name", "arguments"})
_IN_FUNCTION = frozenset({"name", "arguments", "id", "index", "parameters"})
_INDEX_AND_FUNCTION = 2
_MOST_DIGITS = 9
_NOTHING: dict[str, Any] = {}
_NO_KINDS: tuple[str, ...] = ()


class _Piece(NamedTuple):
    """The content of an entry; None for what it does not have. `kinds` are the rescues that reading it took."""

    place: int | None  # the index
    id: str | None
    name: str | None
    arguments: str | None
    extra: dict[str, Any] = _NOTHING
    kinds: tuple[str, ...] = _NO_KINDS

    @property
    def says_only_extra(self) -> bool:
        """Whether it has only what the provider expects back."""
        return self.id is None and self.name is None and not self.arguments and bool(self.extra)


def _read_piece(entry: Mapping[str, Any]) -> _Piece | None:
    """Read an entry; None for one that is completely empty."""
    function = entry.get("function")
    if not isinstance(function, dict):
        function = _NOTHING
    raw_id, index, name = entry.get("id"), entry.get("index"), function.get("name")
    arguments = function.get("arguments")
    plain = type(index) is int and type(arguments) is str
    if plain and len(entry) == _INDEX_AND_FUNCTION and len(function) == 1:  # the usual piece: nothing more to look for
        return _Piece(index, None, None, arguments) if arguments else None
    kinds: list[str] = []
    found_id = _text(raw_id)
    if found_id is None and isinstance(raw_id, str) and raw_id:
        kinds.append("null_id")
    if found_id is None and (found_id := _text(function.get("id"))) is not None:
        kinds.append("id_in_function")
    found_index = _number(index)
    if found_index is None and (found_index := _number(function.get("index"))) is not None:
        kinds.append("index_in_function")
    found_name = _text(name) or _text(entry.get("name"))
    text = _argument_text(arguments if arguments is not None else entry.get("arguments"), kinds)
    extra = _others(entry, _KNOWN_KEYS) if not entry.keys() <= _KNOWN_KEYS else _NOTHING
    if not function.keys() <= _IN_FUNCTION:
        extra = {**extra, **_others(function, _IN_FUNCTION)}
    if found_id is None and found_name is None and not text and not extra:
        return None
    return _Piece(found_index, found_id, found_name, text, extra, tuple(kinds))


def _others(values: Mapping[str, Any], known_keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in known_keys and value is not None}


def _text(value: object) -> str | None:
    """Return a text that is not empty."""
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
    """The calls of a stream, gathered from its entries."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._slots: list[Slot] = []
        self._by_id: dict[str, Slot] = {}
        self._by_index: dict[int, Slot] = {}
        self._last: Slot | None = None
        self._pending_extra: dict[str, Any] = {}

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def take(self, entries: list[Any], *, whole: bool = False) -> None:
        """Take the entries of one chunk; `whole` means that each is a complete call (Ollama's own protocol)."""
        named_slots: set[Slot] = set()
        for entry in entries:
            if isinstance(entry, dict) and (piece := _read_piece(entry)) is not None:
                self._place(piece, named_slots, whole=whole)

    def attach(self, extra: Mapping[str, Any]) -> None:
        """Take what a provider sent beside the entries; it belongs to the call before it, or else to the next one."""
        self._add_extra(self._last, dict(extra))

    def _place(self, piece: _Piece, named_slots: set[Slot], *, whole: bool) -> None:
        if piece.says_only_extra:
            same_index = self._by_index.get(piece.place) if piece.place is not None else None
            self._add_extra(same_index or self._last, piece.extra)
            return
        slot = None if whole and piece.name is not None else self._slot_of(piece, named_slots)
        if slot is None:
            slot = self._open_slot(piece)
        else:
            self._go_on(slot, piece)
        slot.kinds.update(piece.kinds)
        slot.extra.update(piece.extra)
        if piece.name is not None:
            named_slots.add(slot)
        if piece.arguments:
            slot.arguments.append(piece.arguments)
        self._last = slot

    def _slot_of(self, piece: _Piece, named_slots: set[Slot]) -> Slot | None:
        """Return the call that a piece continues; None if it begins one."""
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
            return None if self._begins(piece, same_index, named_slots) else same_index
        if piece.name is not None:
            return None if piece.place is not None or self._begins(piece, last, named_slots) else last
        if piece.id is None:  # an index that no call has
            return None if _begins_nameless(piece, last) else last
        late = piece.place is None and (last.id is None or not last.arguments.complete)
        return last if late else None

    def _begins(self, piece: _Piece, slot: Slot, named_slots: set[Slot]) -> bool:
        """Return whether a piece begins a call although its index or place belongs to another call."""
        if piece.name is None or slot.name is None:
            return False
        if piece.name != slot.name:
            return self._begins_by_name(piece.name, slot)
        complete = slot.arguments.complete_before(piece.arguments)
        if piece.id is not None and slot.id is not None:  # another id
            return slot in named_slots or (complete and not ("changed_id" in slot.kinds and not piece.arguments))
        return complete and (slot in named_slots or not slot.arguments.repeats(piece.arguments))

    def _begins_with_id(self, piece: _Piece, slot: Slot) -> bool:
        """Return whether a piece with a call's id begins another call: some servers give all calls the same id."""
        if piece.name is None or slot.name is None:
            return False
        if piece.name != slot.name:
            return self._begins_by_name(piece.name, slot)
        return slot.arguments.complete_before(piece.arguments) and not slot.arguments.repeats(piece.arguments)

    def _begins_by_name(self, name: str, slot: Slot) -> bool:
        """Return whether a different name belongs to another call, and is not the rest of a name that came in pieces."""
        return not (slot.name is not None and slot.arguments.empty and self._tools.goes_on(slot.name, name))

    def _open_slot(self, piece: _Piece) -> Slot:
        slot = Slot(piece.id, piece.name, piece.place)
        if self._pending_extra:
            slot.extra, self._pending_extra = self._pending_extra, {}
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
        """Take from a later piece what it says about its call besides the arguments."""
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

    def _go_on_with_id(self, slot: Slot, call_id: str) -> None:
        if slot.id is None:
            slot.id = call_id
            slot.kinds.add("late_id")
            self._by_id[call_id] = slot
        else:
            slot.kinds.add("repeated_id" if call_id == slot.id else "changed_id")

    def _go_on_with_name(self, slot: Slot, name: str) -> None:
        if slot.name is None:
            slot.name = name
            if not slot.arguments.empty:
                slot.kinds.add("late_name")
        elif name == slot.name:
            slot.kinds.add("repeated_name")
        else:
            slot.name += name
            slot.kinds.add("split_name")

    def _add_extra(self, slot: Slot | None, extra: dict[str, Any]) -> None:
        if slot is None:
            self._pending_extra.update(extra)
        else:
            slot.extra.update(extra)
            slot.kinds.add("extra_later")


def _goes_on_by_id(slot: Slot, piece: _Piece) -> bool:
    """Return whether a call's id settles that a piece belongs to it: not if the piece has a name and an index of its own."""
    if piece.place in {None, slot.index} or piece.name is None:
        return True
    is_unfinished = not slot.arguments.empty and not slot.arguments.complete
    return is_unfinished and piece.name == slot.name


def _begins_nameless(piece: _Piece, slot: Slot) -> bool:
    """Return whether arguments at an unused index begin a call whose name comes later, because nothing is unfinished."""
    has_arguments = piece.arguments is not None and not piece.arguments.isspace() and piece.arguments != ""
    return has_arguments and piece.place is not None and slot.name is not None and slot.arguments.complete
