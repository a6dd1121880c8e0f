"""What goes wrong in a tool, as data for the model that has called it.

What a path that a model has written means, and which paths are never written. Nothing on disk is looked at.

Takes texts, gives the names that lead from the workspace to a file. Whether one of them is a link is for `beneath` to see: it follows none,
so that `..` may be taken off here, by name.
"""

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

import attrs

from dsa.errors import DsaError


class WorkspaceToolError(DsaError):
    """Raised when a call cannot be done as asked; `code` names the rule or the fault, the text says what is allowed instead."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


#: Never written, at any depth; the patterns of a user come on top.
PROTECTED_NAMES = (".git", ".dsa", ".agent_context", "agent_ledger.log")
#: What we write into a workspace about the work on it, for people: it is no part of that work, so no tool shows it, and no change of it counts.
RECORDS = PROTECTED_NAMES[2:]
#: Left out wherever they stand: what other programs keep for themselves, and can make again.
TOOL_FOLDERS = frozenset({
    ".git", ".dsa", *RECORDS, "__pycache__", ".venv", "node_modules", ".cache", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".hypothesis", ".tox", ".nox", ".ipynb_checkpoints", ".eggs", ".ds_store",
})  # fmt: skip
#: What tools neither list nor search from the inside. A file in it may be read by its path.
CLOSED_FOLDERS = frozenset({".git", ".dsa"})
#: How the names begin under which files are written before they get their own.
TEMPORARY = ".dsa~"
#: Bytes of a path, and how many names it has, at most.
LONGEST_PATH, DEEPEST = 4_000, 64
_LONGEST_NAME, _LONGEST_SHOWN = 255, 120
_DRIVE = re.compile(r"[A-Za-z]:")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BESIDE = "write it as it is seen from the workspace, like 'src/app.py'"


def shown_path(text: str, plain_chars: str = "") -> str:
    """Return a text with everything escaped that does not print, but for the characters in `plain_chars`: line breaks, controls, bad bytes."""
    return "".join(c if c.isprintable() or c in plain_chars else ascii(c)[1:-1] for c in text)


def path_text(parts: Sequence[str]) -> str:
    """Return a path as it is shown and recorded; the workspace itself is '.'. If all of it prints, `parts_of` takes it back."""
    text = shown_path("/".join(parts))
    needs_dot = text.startswith("~") or _DRIVE.match(text) or not text.strip()
    return f"./{text}" if parts and needs_dot else text or "."


def parts_of(path: object, roots: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names that a path consists of, seen from the workspace; none for the workspace itself.

    An absolute path is taken as a relative one if it begins with one of `roots`. Raises ToolError: `bad_path`, or
    `path_outside_workspace`.
    """
    text = _require_path(path)
    pieces = [piece for piece in text.split("/") if piece not in ("", ".")]
    if text.startswith("/"):
        pieces = _below(pieces, roots, text)
    parts: list[str] = []
    for piece in pieces:
        if piece != "..":
            parts.append(piece)
        elif parts:
            parts.pop()
        else:
            raise WorkspaceToolError("path_outside_workspace", f"'{_cut(text)}' leads out of the workspace: {_BESIDE}")
    if len(parts) > DEEPEST:
        raise WorkspaceToolError("bad_path", f"'{_cut(text)}' is too deep: {DEEPEST} names may follow each other")
    return tuple(parts)


def file_parts_of(path: object, roots: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names that the path of a file consists of. Raises ToolError as `parts_of`, and `not_a_file`."""
    parts = parts_of(path, roots)
    if not parts or str(path).endswith(("/", "/.", "/..")):
        raise WorkspaceToolError(
            "not_a_file", f"'{_cut(str(path))}' is the path of a folder; a file is needed, like 'src/app.py'"
        )
    return parts


def _require_path(path: object) -> str:
    """Return the path as a text that can be a path. Raises ToolError."""
    if not isinstance(path, str) or not path.strip():
        raise WorkspaceToolError("bad_path", "a path is needed, like 'src/app.py'")
    for wrong, why in (
        ("\0" in path, "has a NUL character"),
        ("\\" in path, "has a backslash; folders are written with '/'"),
        (_URL.match(path), "is a URL, no path"),
        (any("\ud800" <= c <= "\udfff" for c in path), "has half a character (a lone surrogate)"),
    ):
        if wrong:
            raise WorkspaceToolError("bad_path", f"'{_cut(path)}' {why}: {_BESIDE}")
    if _DRIVE.match(path) or path.startswith("~"):
        raise WorkspaceToolError("path_outside_workspace", f"'{_cut(path)}' is no path of the workspace: {_BESIDE}")
    if len(path.encode()) > LONGEST_PATH or any(len(name.encode()) > _LONGEST_NAME for name in path.split("/")):
        raise WorkspaceToolError("bad_path", f"'{_cut(path)}' is too long: a name has at most {_LONGEST_NAME} bytes")
    return path


def _below(pieces: list[str], roots: Iterable[str], text: str) -> list[str]:
    """Return what follows the workspace's own path. Raises ToolError where the path begins otherwise."""
    for root in roots:
        above = [piece for piece in root.split("/") if piece]
        if pieces[: len(above)] == above:
            return pieces[len(above) :]
    raise WorkspaceToolError("path_outside_workspace", f"'{_cut(text)}' is an absolute path: {_BESIDE}")


def _cut(text: str) -> str:
    return shown_path(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..")


@attrs.frozen
class PathPattern:
    """A glob pattern: `*`, `?`, `[..]` in a name, `**` for folders at any depth. Without `/` it is of a name in any folder.

    Letter case makes no difference, nor do characters that some file systems pass over in names.
    """

    text: str
    _globs: tuple[str, ...] = attrs.field(init=False, repr=False, eq=False)
    _names: tuple[re.Pattern[str] | None, ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        """Translate the pattern, name by name; None is `**`. Raises ValueError for one that names nothing."""
        names = [name for name in self.text.split("/") if name not in ("", ".")]
        if not names:
            raise ValueError(f"'{self.text}' is no pattern: it names nothing")
        if ".." in names or names[0].startswith("~"):
            raise ValueError(f"'{self.text}' leads out of the workspace: a pattern begins at its root")
        if "/" not in self.text.rstrip("/"):
            names = ["**", *names]
        globs = tuple(name if name == "**" else _plain(name) for name in names)
        patterns = tuple(None if name == "**" else re.compile(fnmatch.translate(name)) for name in globs)
        object.__setattr__(self, "_globs", globs)
        object.__setattr__(self, "_names", patterns)

    def matches(self, parts: Sequence[str]) -> bool:
        """Return whether it is the pattern of a path."""
        return self.is_whole(self._lengths(parts)[-1])

    def covers(self, parts: Sequence[str]) -> bool:
        """Return whether it is the pattern of a path, or of a folder above it."""
        return any(self.is_whole(positions) for positions in self._lengths(parts)[1:])

    def _lengths(self, parts: Sequence[str]) -> list[frozenset[int]]:
        """Give, for each number of names of the path, how much of the pattern they can be."""
        lengths = [self.start]
        for part in parts:
            lengths.append(self.onward(lengths[-1], part))
        return lengths

    # -- name by name -------------------------------------------------------------------------------------------------------

    @property
    def start(self) -> frozenset[int]:
        """How much of it the path of the workspace itself can be, which has no names."""
        return self._with_nothing({0})

    def onward(self, positions: frozenset[int], name: str | None) -> frozenset[int]:
        """Return how much of it a path can be that goes on with a name; None is one that only `**` can stand for."""
        plain = None if name is None else _plain(name)
        left = [(at, self._names[at]) for at in positions if at < len(self._names)]
        return self._with_nothing({at if each is None else at + 1 for at, each in left if _stands_for(each, plain)})

    def is_whole(self, positions: frozenset[int]) -> bool:
        """Return whether so much is all of it."""
        return len(self._names) in positions

    def next_names(self, positions: frozenset[int]) -> list[str]:
        """Return what stands in it for the names with which a path goes on otherwise than by a `**`, as such names are compared."""
        return [self._globs[at] for at in positions if at < len(self._names) and self._names[at] is not None]

    def _with_nothing(self, places: set[int]) -> frozenset[int]:
        """Add the places behind a `**` that stands for nothing."""
        for at in range(len(self._names)):
            if at in places and self._names[at] is None:
                places.add(at + 1)
        return frozenset(places)


def _stands_for(pattern: re.Pattern[str] | None, name: str | None) -> bool:
    return pattern is None or (name is not None and pattern.match(name) is not None)


@lru_cache(4096)  # each call asks of the same few names, pattern by pattern
def _plain(name: str) -> str:
    """Return what a name is to the file system that tells fewest names apart (letter case, invisible characters, dots at the end)."""
    plain = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf").casefold()
    plain = plain.split(":")[0] or plain  # a stream of NTFS: `.git::$INDEX_ALLOCATION`
    return re.sub(r"^git~\d$", ".git", plain.rstrip(" .") or plain)


@attrs.frozen
class Protection:
    """What is never written: `PROTECTED_NAMES`, and what the patterns of a user say."""

    patterns: tuple[PathPattern, ...]

    @classmethod
    def of(cls, further: Iterable[str]) -> "Protection":
        """Return the protection that has these patterns too."""
        return cls(tuple(PathPattern(text) for text in dict.fromkeys((*PROTECTED_NAMES, *further))))

    @property
    def plain_names(self) -> tuple[str, ...]:
        """The paths that patterns name by themselves."""
        return tuple(each.text.lstrip("/") for each in self.patterns if not any(sign in each.text for sign in "*?["))

    def covers(self, parts: Sequence[str]) -> bool:
        """Return whether a path is protected."""
        return any(pattern.covers(parts) for pattern in self.patterns)

    def check(self, parts: Sequence[str]) -> None:
        """See that a file may be written. Raises ToolError: `protected_path`, or `bad_path` for names that nobody should make."""
        for pattern in self.patterns:
            if pattern.covers(parts):
                text = f"'{path_text(parts)}' is protected ('{shown_path(pattern.text)}') and never written: write another file"
                raise WorkspaceToolError("protected_path", text)
        if any(is_temporary(part) for part in parts):
            raise WorkspaceToolError("protected_path", f"names that begin with '{TEMPORARY}' are kept for the tools")
        if not all(part.isprintable() for part in parts):
            raise WorkspaceToolError(
                "bad_path", f"'{path_text(parts)}' has characters that do not print: leave them out of the name"
            )


def is_temporary(name: str) -> bool:
    """Return whether a file of this name is one that is being written."""
    return _plain(name).startswith(TEMPORARY)


def is_closed(parts: Sequence[str]) -> bool:
    """Return whether a path is of, or in, a folder that is not listed or searched."""
    return any(_plain(part) in CLOSED_FOLDERS for part in parts)


def is_record(parts: Iterable[str]) -> bool:
    """Return whether a path is of, or in, one of RECORDS; letter case makes no difference."""
    return any(part.casefold() in RECORDS for part in parts)
