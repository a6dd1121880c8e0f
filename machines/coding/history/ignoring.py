"""What `.gitignore` files name, judged as git judges it (gitignore(5), wildmatch.c), without a process.

Takes the bytes of such files and paths, tells whether a path is named. Pure. Matching takes time in proportion to a pattern and a path,
whatever the pattern: whoever writes one cannot make it slow.
"""

import os
import re
from collections.abc import Iterator, Sequence

import attrs

_ANY = re.compile(rb".*", re.DOTALL)
_NOTHING = re.compile(rb"(?!)")
_CLASSES = {
    b"alnum": rb"0-9A-Za-z", b"alpha": rb"A-Za-z", b"blank": rb" \t", b"cntrl": rb"\x00-\x1f\x7f", b"digit": rb"0-9", b"graph": rb"!-~",
    b"lower": rb"a-z", b"print": rb" -~", b"punct": rb"!-/:-@\[-`{-~", b"space": rb" \t-\r", b"upper": rb"A-Z", b"xdigit": rb"0-9A-Fa-f",
}  # fmt: skip


@attrs.frozen
class Rule:
    """One line of a `.gitignore`.

    `parts` are matched with the parts of a path, one by one; None stands for any number of them. `by_name` is a line without a slash: it
    is matched with the last part alone.
    """

    parts: tuple[re.Pattern[bytes] | None, ...]
    by_name: bool
    negated: bool
    folders_only: bool

    def matches(self, path: Sequence[bytes], *, is_folder: bool) -> bool:
        """Tell whether it names a path, given as parts below the folder of the `.gitignore`."""
        if self.folders_only and not is_folder:
            return False
        return _match(self.parts, path[-1:] if self.by_name else path)


def rules_of(text: bytes) -> tuple[Rule, ...]:
    """Read a `.gitignore`; a line that git gives no meaning names nothing."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    found = (_rule(line.removesuffix(b"\r")) for line in lines if line and not line.startswith(b"#"))
    return tuple(rule for rule in found if rule is not None)


def is_named(chain: Sequence[tuple[int, tuple[Rule, ...]]], parts: Sequence[bytes], *, is_folder: bool) -> bool:
    """Tell whether rules name a path, not asking about the folders above it.

    `chain` has the rules of the folders above it, the topmost first, each with the number of parts that lead there. The last line that
    matches decides, and those of the nearest folder before all others.
    """
    for depth, rules in reversed(chain):
        below = parts[depth:]
        for rule in reversed(rules):
            if rule.matches(below, is_folder=is_folder):
                return not rule.negated
    return False


def parts_of(path: str) -> tuple[bytes, ...]:
    """Give the parts of a path as the system has them."""
    return tuple(os.fsencode(path).split(b"/"))


def _rule(line: bytes) -> Rule | None:
    line = _without_spaces(line)
    negated = line.startswith(b"!")
    line = line[1:] if negated else line
    folders_only = line.endswith(b"/")
    line = line[:-1] if folders_only else line
    by_name = b"/" not in line
    if not line.removeprefix(b"/"):
        return None
    try:
        parts = list(_parts(line.removeprefix(b"/")))
    except _Meaningless:
        return None
    if by_name:
        parts = [part or _ANY for part in parts]
    elif parts[-1] is None:
        parts.append(_ANY)  # what stands below a folder is at least one part
    return Rule(tuple(parts), by_name, negated, folders_only)


def _without_spaces(line: bytes) -> bytes:
    """Take spaces from the end, unless a backslash stands before one."""
    kept = re.match(rb"(?:\\.|[^\\ ]|\\\Z| +(?=[^ ]))*", line, re.DOTALL)
    return kept[0] if kept else b""


def _match(wanted: Sequence[re.Pattern[bytes] | None], path: Sequence[bytes]) -> bool:
    at = start = 0
    star, count = -1, len(wanted)
    position = 0
    while position < len(path):
        part = wanted[at] if at < count else _NOTHING
        if part is None:
            star, start = at, position
            at += 1
        elif part.fullmatch(path[position]):
            at, position = at + 1, position + 1
        elif star >= 0:
            start += 1  # the last `**` takes one part more
            at, position = star + 1, start
        else:
            return False
    return all(part is None for part in wanted[at:])


class _Meaningless(Exception):  # noqa: N818  # it is no fault
    """Raised for a pattern that can match nothing."""


def _parts(pattern: bytes) -> Iterator[re.Pattern[bytes] | None]:
    """Give what each part of a path has to match."""
    pieces: list[bytes] = []
    for piece in _pieces(pattern):
        if piece == b"/":
            yield _compiled(pieces)
            pieces = []
        else:
            pieces.append(piece)
    yield _compiled(pieces)


def _pieces(pattern: bytes) -> Iterator[bytes]:
    """Give a pattern piece by piece: `/`, `*`, or a regular expression of one byte."""
    at = 0
    while at < len(pattern):
        byte = pattern[at : at + 1]
        at += 1
        if byte == b"\\":
            byte = pattern[at : at + 1]
            at += 1
            if not byte:
                raise _Meaningless
            yield byte if byte == b"/" else re.escape(byte)
        elif byte == b"[":
            found, at = _class(pattern, at)
            yield found
        elif byte in b"*/":
            yield byte
        else:
            yield b"." if byte == b"?" else re.escape(byte)


def _class(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Read a bracket expression from behind its bracket; give it, and where it ends."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    found, first, last = b"", True, None
    while first or pattern[at : at + 1] != b"]":
        name = re.compile(rb"\[:([a-z]*):\]").match(pattern, at)
        if name is not None:
            if name[1] not in _CLASSES:
                raise _Meaningless
            found, at, last = found + _CLASSES[name[1]], name.end(), None
        elif pattern[at : at + 1] == b"-" and last is not None and pattern[at + 1 : at + 2] not in (b"]", b""):
            end, at = _literal(pattern, at + 1)
            found += _range(last, end)
            last = None
        else:
            last, at = _literal(pattern, at)
            found += re.escape(last)
        first = False
    found = found.replace(b"&&", rb"&\&").replace(b"||", rb"|\|")  # they may get a meaning in classes of `re`
    return b"[" + (b"^" if negated else b"") + found + b"]", at + 1


def _literal(pattern: bytes, at: int) -> tuple[bytes, int]:
    at += pattern[at : at + 1] == b"\\"
    if not pattern[at : at + 1]:
        raise _Meaningless
    return pattern[at : at + 1], at + 1


def _range(first: bytes, last: bytes) -> bytes:
    return re.escape(first) + b"-" + re.escape(last) if first <= last else b""


def _compiled(pieces: Sequence[bytes]) -> re.Pattern[bytes] | None:
    """Give what one part of a path has to match; None for `**`.

    What stands between two stars is looked for once, as far left as it goes: more is never needed, and takes no more time.
    """
    if len(pieces) > 1 and set(pieces) == {b"*"}:
        return None
    runs: list[bytes] = [b""]
    for piece in pieces:
        if piece == b"*":
            runs.append(b"")
        else:
            runs[-1] += piece
    head, *rest = runs
    if not rest:
        return re.compile(head, re.DOTALL)
    middle = b"".join(b"(?>.*?" + run + b")" for run in rest[:-1] if run)
    return re.compile(head + middle + b".*" + rest[-1], re.DOTALL)
