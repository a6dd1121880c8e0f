"""Regular expressions that are searched for in time that grows with the text, whatever the pattern and whoever wrote the text.

Takes the pattern of a user, gives where it matches. `re` tries one way after another, so a pattern such as `(a+)+b` takes for ever with a text made for it,
and `[a-z]+@` takes the square of its length. Here all ways are followed at once, a character at a time (K. Thompson, Regular expression search algorithm,
CACM 11(6), 1968). What needs the other way is refused: references to groups, lazy and possessive repetition, and looking further than one character.
"""

import re
from collections.abc import Iterator
from typing import TypeVar

import attrs

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
#: Characters of a pattern once its repetitions are written out; following them takes time and memory.
MOST_PLACES = 500
_MOST_REMEMBERED = 10_000
_OCTAL = re.compile(r"\\(?:0[0-7]{0,2}|[1-3][0-7]{2})")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|.)", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_TIMES = re.compile(r"[*+?]|\{(?:(\d+)(?:(,)(\d*))?|,(\d+))\}")
_FLAGS = re.compile(r"\(\?([aimsu]*)(?:-([ims]+))?([:)])")
_LOOKING = re.compile(r"\(\?<?[=!]")
_NAMED = re.compile(r"\(\?P<\w+>")
_EDGES = frozenset("AZzbB")
_FLAG = {"a": re.ASCII, "i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "u": re.UNICODE}
_SPECIAL = frozenset("|)")


@attrs.frozen
class _One:
    """One character: those that `pattern` matches. `literal` is the only one, where there is only one."""

    pattern: re.Pattern[str]
    literal: str = ""


@attrs.frozen
class _Edge:
    """A place between two characters, which decide by `pattern` whether it is one."""

    pattern: re.Pattern[str]


@attrs.frozen
class _Row:
    parts: tuple["_Node", ...]


@attrs.frozen
class _Either:
    parts: tuple["_Node", ...]


@attrs.frozen
class _Times:
    """A part that stands `least` to `most` times; None for any number of times."""

    part: "_Node"
    least: int
    most: int | None


_Node = _One | _Edge | _Row | _Either | _Times


class Pattern:
    """A regular expression, as `re` writes them. A character is covered when it belongs to any match, the longest and those that overlap among them.

    `anchor` is a text that every match has in it; it may be empty. Raises ValueError for what is no regular expression, matches the empty text, has more than
    MOST_PLACES characters written out, or cannot be searched for without going back.
    """

    def __init__(self, text: str) -> None:
        try:
            re.compile(text)
            node = _Parser(text).whole()
        except re.error as fault:
            raise ValueError(f"'{text}' is no regular expression: {fault}") from fault
        except RecursionError as fault:
            raise ValueError(f"'{text[:60]}' is nested too deeply") from fault
        if (size := _size(node)) > MOST_PLACES:
            hint = "write {20,} in place of {20,2000}"
            raise ValueError(
                f"'{text}' has {size:,} characters once its repetitions are written out, more than {MOST_PLACES}: {hint}"
            )
        self._paths = _Paths(node)
        if self._paths.may_be_empty:
            raise ValueError(f"'{text}' matches the empty text, so it would be everywhere")
        self._text = text
        self.anchor = _anchor(node)

    def __repr__(self) -> str:
        return f"Pattern({self._text!r})"

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Give the stretches that are covered, from and to, in order; between two of them there is a character that is not."""
        paths, at = self._paths, 0
        while (begin := paths.beginning.search(text, at)) is not None:
            first, states, is_match = begin.start(), [0], False
            for at in range(first, len(text) + 1):
                state, ends = paths.step(states[-1], paths.edges_at(text, at), text[at : at + 1])
                is_match = is_match or ends
                if not state:
                    break
                states.append(state)
            if is_match:
                yield from self._covered(text, first, states)
            at = max(at, first + 1)

    def _covered(self, text: str, first: int, states: list[int]) -> Iterator[tuple[int, int]]:
        """Give what is covered of a stretch that begins at `first`: what can be got at from before, and leads to an end of a match."""
        paths, good, covered = self._paths, 0, bytearray(len(states) - 1)
        for number in range(len(states) - 1, 0, -1):
            good = paths.back(good, paths.edges_at(text, first + number)) & states[number]
            covered[number - 1] = bool(good)
        yield from ((first + found.start(), first + found.end()) for found in _COVERED.finditer(covered))


_COVERED = re.compile(rb"\x01+")


class _Parser:
    """Reads a pattern that `re` takes. Raises ValueError for what cannot be followed character by character."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._flags = text, 0, re.NOFLAG

    def whole(self) -> _Node:
        """Read all of it."""
        return self._either()

    def _refused(self, what: str, instead: str) -> ValueError:
        return ValueError(
            f"'{self._text}' has {what} at character {self._at + 1}, so searching for it could take for ever: {instead}"
        )

    def _has(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, found: re.Match[str]) -> str:
        self._at = found.end()
        return found[0]

    def _either(self) -> _Node:
        parts = [self._row()]
        while self._has("|"):
            self._at += 1
            parts.append(self._row())
        return parts[0] if len(parts) == 1 else _Either(tuple(parts))

    def _row(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and self._text[self._at] not in _SPECIAL:
            part = self._repeated(self._atom())
            parts.append(part)
        return _Row(tuple(parts))

    def _repeated(self, part: _Node) -> _Node:
        found = _TIMES.match(self._text, self._at)
        if found is None:
            return part
        times = self._take(found)
        if self._has("?") or self._has("+"):
            kind = "lazy" if self._has("?") else "possessive"
            raise self._refused(
                f"{kind} repetition", 'say which characters may repeat, as in [^"]*, and leave the sign out'
            )
        if times in "*+?":
            return _Times(part, int(times == "+"), 1 if times == "?" else None)
        least, comma, most, only_most = found.groups()
        if only_most is not None:
            return _Times(part, 0, int(only_most))
        return _Times(part, int(least), int(least) if comma is None else int(most) if most else None)

    def _atom(self) -> _Node:
        if self._has("("):
            return self._group()
        if self._has("\\"):
            return self._escaped()
        if self._has("[") and (found := _CLASS.match(self._text, self._at)) is not None:
            return self._one(self._take(found))
        character = self._text[self._at]
        self._at += 1
        if character in "^$":
            return _Edge(re.compile(character, self._flags))
        return self._one(character) if character == "." else self._one(re.escape(character), character)

    def _one(self, written: str, literal: str = "") -> _One:
        return _One(re.compile(written, self._flags), "" if self._flags & re.IGNORECASE else literal)

    def _escaped(self) -> _Node:
        character = self._text[self._at + 1]
        if character in _EDGES:
            self._at += 2
            return _Edge(re.compile(f"\\{character}", self._flags))
        octal = _OCTAL.match(self._text, self._at)
        if character in "123456789" and octal is None:
            raise self._refused("a reference to a group", "write out what may stand there")
        found = octal or _ESCAPE.match(self._text, self._at)
        assert found is not None, "re takes no pattern that ends with a backslash"
        return self._one(self._take(found), "" if character.isalnum() else character)

    def _group(self) -> _Node:
        flags = self._flags
        if (found := _FLAGS.match(self._text, self._at)) is not None:
            self._take(found)
            for letter in found[1]:
                self._flags |= _FLAG[letter]
            for letter in found[2] or "":
                self._flags &= ~_FLAG[letter]
            if found[3] == ")":  # for all that follows: `re` takes it at the beginning only
                return _Row(())
        elif (found := _LOOKING.match(self._text, self._at)) is not None:
            return self._looking(self._take(found))
        elif (found := _NAMED.match(self._text, self._at)) is not None:
            self._take(found)
        elif self._has("(?"):
            raise self._refused(
                "a group of another kind than (..), (?:..), (?P<name>..) and (?i:..)", "write it without"
            )
        else:
            self._at += 1
        inner = self._either()
        self._at, self._flags = self._at + 1, flags
        return inner

    def _looking(self, opening: str) -> _Edge:
        """Read a look at the character before or behind."""
        start, flags = self._at, self._flags
        inner = self._either()
        written = self._text[start : self._at]
        if not _is_one(inner):
            self._at = start - len(opening)
            raise self._refused("a look at more than one character", "look at one character, as in (?<![A-Z]), or none")
        self._at, self._flags = self._at + 1, flags
        return _Edge(re.compile(f"{opening}{written})", flags))


def _is_one(node: _Node) -> bool:
    """Tell whether a part is one character, whatever it matches."""
    if isinstance(node, _Either):
        return all(map(_is_one, node.parts))
    return isinstance(node, _One) or (isinstance(node, _Row) and len(node.parts) == 1 and _is_one(node.parts[0]))


def _size(node: _Node) -> int:
    """Count the characters of a pattern that is written out."""
    if isinstance(node, _Row | _Either):
        return sum(map(_size, node.parts)) + 1
    if isinstance(node, _Times):
        return _size(node.part) * max(node.least + 1 if node.most is None else node.most, 1)
    return 1


def _anchor(node: _Node) -> str:
    """Give the longest text that is in every match, as far as that is easily seen."""
    runs = [""]
    for part in node.parts if isinstance(node, _Row) else (node,):
        literal = part.literal if isinstance(part, _One) else ""
        runs = [*runs[:-1], runs[-1] + literal] if literal else [*runs, ""]
    return max(runs, key=len)


class _Paths:
    """All ways through a pattern. A state is a set of places, as the bits of a number: those at which the last character may have stood.

    The bit beyond those of the places stands for the end of the pattern.
    """

    def __init__(self, node: _Node) -> None:
        self._ones: list[_One] = []
        self._behind: list[int] = []  # the knot behind each place
        self._knots: list[list[tuple[int, int | None]]] = [[]]  # to which knots, and only at which edge
        self._places: dict[int, list[int]] = {}  # by the knot before them
        self._edges: list[_Edge] = []
        self._last = self._add(node, 0)
        self._end = 1 << len(self._ones)
        self._follow: dict[int, tuple[list[int], list[int], int]] = {}
        self._edges_between: dict[tuple[str, str, bool], int] = {}
        self._kinds: dict[str, int] = {}
        self._steps: dict[tuple[int, int, str], tuple[int, bool]] = {}
        self._backs: dict[tuple[int, int], int] = {}
        everywhere = (1 << len(self._edges)) - 1
        first = self._closed(0, everywhere)
        self.may_be_empty = bool(first & self._end)
        written = {f"(?{_letters(one.pattern)}:{one.pattern.pattern})" for one in self._of(first & ~self._end)}
        self.beginning = re.compile("|".join(sorted(written)) or "(?!)")

    def _of(self, places: int) -> list[_One]:
        return [self._ones[place] for place in _bits(places)]

    # -- building: knots, ways between them, and places ------------------------------------------------------------------

    def _knot(self, before: int | None = None, edge: int | None = None) -> int:
        self._knots.append([])
        if before is not None:
            self._knots[before].append((len(self._knots) - 1, edge))
        return len(self._knots) - 1

    def _add(self, node: _Node, before: int) -> int:
        """Add a part behind a knot; give the knot behind it."""
        if isinstance(node, _One):
            self._places.setdefault(before, []).append(len(self._ones))
            self._ones.append(node)
            self._behind.append(self._knot())
            return self._behind[-1]
        if isinstance(node, _Edge):
            if node not in self._edges:
                self._edges.append(node)
            return self._knot(before, self._edges.index(node))
        if isinstance(node, _Row):
            for part in node.parts:
                before = self._add(part, before)
            return before
        if isinstance(node, _Either):
            ends = [self._add(part, self._knot(before)) for part in node.parts]
            return self._joined(ends)
        return self._add_times(node, before)

    def _joined(self, ends: list[int]) -> int:
        behind = self._knot()
        for end in ends:
            self._knots[end].append((behind, None))
        return behind

    def _add_times(self, node: _Times, before: int) -> int:
        for _ in range(node.least):
            before = self._add(node.part, before)
        if node.most is None:
            loop = self._knot(before)
            self._knots[self._add(node.part, self._knot(loop))].append((loop, None))
            return self._knot(loop)
        ends = [before]
        for _ in range(node.most - node.least):
            ends.append(self._add(node.part, self._knot(ends[-1])))
        return self._joined(ends)

    # -- following -------------------------------------------------------------------------------------------------------

    def _closed(self, knot: int, edges: int) -> int:
        """Give the places that may come next behind a knot, where these edges are."""
        found, todo, seen = 0, [knot], {knot}
        while todo:
            at = todo.pop()
            found |= self._end if at == self._last else 0
            for place in self._places.get(at, ()):
                found |= 1 << place
            for to, edge in self._knots[at]:
                if to not in seen and (edge is None or edges >> edge & 1):
                    seen.add(to)
                    todo.append(to)
        return found

    def _following(self, edges: int) -> tuple[list[int], list[int], int]:
        """Give what may follow each place, what may precede each place and the end, and what may come first, where these edges are."""
        found = self._follow.get(edges)
        if found is None:
            after = [self._closed(knot, edges) for knot in self._behind]
            before = [0] * (len(after) + 1)
            for place, next_ones in enumerate(after):
                for each in _bits(next_ones):
                    before[each] |= 1 << place
            found = after, before, self._closed(0, edges)
            _room(self._follow)[edges] = found
        return found

    def step(self, state: int, edges: int, character: str) -> tuple[int, bool]:
        """Give the state behind the next character, from `state` or from a new beginning, and whether a match ends before it; 0 at the end of the text."""
        key = (state, edges, character)
        found = self._steps.get(key)
        if found is None:
            after, _, first = self._following(edges)
            going_on = 0
            for place in _bits(state):
                going_on |= after[place]
            found = (going_on | first) & self._kind(character), bool(going_on & self._end)
            _room(self._steps)[key] = found
        return found

    def back(self, good: int, edges: int) -> int:
        """Give the places before an edge that lead to the end: at once, or through places behind it that do."""
        key = (good, edges)
        found = self._backs.get(key)
        if found is None:
            _, before, _ = self._following(edges)
            found = before[-1]
            for place in _bits(good):
                found |= before[place]
            _room(self._backs)[key] = found
        return found

    def _kind(self, character: str) -> int:
        """Give the places at which a character may stand."""
        if not character:
            return 0
        found = self._kinds.get(character)
        if found is None:
            fits = {one: one.pattern.fullmatch(character) is not None for one in set(self._ones)}
            found = sum(1 << place for place, one in enumerate(self._ones) if fits[one])
            _room(self._kinds)[character] = found
        return found

    def edges_at(self, text: str, at: int) -> int:
        """Give the edges that are between two characters of a text, as bits."""
        if not self._edges:
            return 0
        key = (text[at - 1 : at] if at else "", text[at : at + 1], at + 1 < len(text))
        found = self._edges_between.get(key)
        if found is None:
            around = f"{key[0]}{key[1]}{'.' if key[2] else ''}"  # `$` asks whether a line feed is the last one
            there = (edge.pattern.match(around, len(key[0])) is not None for edge in self._edges)
            found = sum(1 << number for number, is_there in enumerate(there) if is_there)
            _room(self._edges_between)[key] = found
        return found


def _room(remembered: dict[_Key, _Value]) -> dict[_Key, _Value]:
    """Forget all when there is too much, so that memory stays bounded."""
    if len(remembered) >= _MOST_REMEMBERED:
        remembered.clear()
    return remembered


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def _letters(pattern: re.Pattern[str]) -> str:
    return "".join(letter for letter, flag in _FLAG.items() if letter != "u" and pattern.flags & flag)
