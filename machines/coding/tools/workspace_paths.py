"""Paths in a workspace: the path that a model has written as names, and the patterns of files that are never written. No file is read here.

`parts_of` returns the names that lead from the workspace to a file. It removes `..` by name, because `workspace_boundary` follows no links. `ToolError`
is the failure of any tool, as data for the model.
"""

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

import attrs

from dsa.errors import ToolError

#: Never written, at any depth, in addition to the user's patterns.
PROTECTED_NAMES = (".git", ".dsa", ".agent_context", "agent_ledger.log")
#: Our records in a workspace for people. They are not part of the work, so no tool shows them, and their changes do not count.
RECORDS = PROTECTED_NAMES[2:]
#: Folders and files that other programs can create again. They are left out at any depth.
TOOL_FOLDERS = frozenset({
    ".git", ".dsa", *RECORDS, "__pycache__", ".venv", "node_modules", ".cache", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".hypothesis", ".tox", ".nox", ".ipynb_checkpoints", ".eggs", ".ds_store",
})  # fmt: skip
#: Folders that tools neither list nor search. A file in one may be read by its path.
CLOSED_FOLDERS = frozenset({".git", ".dsa"})
#: The prefix of temporary files.
TEMPORARY = ".dsa~"
#: The most bytes of a path, and the most names.
LONGEST_PATH, DEEPEST = 4_000, 64
_LONGEST_NAME, _LONGEST_SHOWN = 255, 120
_DRIVE = re.compile(r"[A-Za-z]:")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_BESIDE = "write it relative to the workspace, like 'src/app.py'"


def shown_path(text: str, plain_chars: str = "") -> str:
    """Return a text with everything escaped that does not print, except the characters in `plain_chars`: line breaks, controls, bad bytes."""
    return "".join(c if c.isprintable() or c in plain_chars else ascii(c)[1:-1] for c in text)


def path_text(parts: Sequence[str]) -> str:
    """Return a path as it is shown and recorded; the workspace itself is '.'. If all of it prints, `parts_of` reads it back."""
    text = shown_path("/".join(parts))
    needs_dot = text.startswith("~") or _DRIVE.match(text) or not text.strip()
    return f"./{text}" if parts and needs_dot else text or "."


def parts_of(path: object, roots: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of a path from the workspace on; none for the workspace itself.

    An absolute path is read as a relative one if it begins with one of `roots`. Raises ToolError `bad_path`, `path_outside_workspace`.
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
            raise ToolError(f"'{_cut(text)}' leads out of the workspace: {_BESIDE}", code="path_outside_workspace")
    if len(parts) > DEEPEST:
        raise ToolError(f"'{_cut(text)}' is too deep: a path has at most {DEEPEST} names", code="bad_path")
    return tuple(parts)


def file_parts_of(path: object, roots: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of the path of a file. Raises ToolError as `parts_of`, and `not_a_file`."""
    parts = parts_of(path, roots)
    if not parts or str(path).endswith(("/", "/.", "/..")):
        raise ToolError(
            f"'{_cut(str(path))}' is the path of a folder; a file is needed, like 'src/app.py'", code="not_a_file"
        )
    return parts


def _require_path(path: object) -> str:
    """Return a text that can be a path. Raises ToolError."""
    if not isinstance(path, str) or not path.strip():
        raise ToolError("a path is needed, like 'src/app.py'", code="bad_path")
    for wrong, why in (
        ("\0" in path, "has a NUL character"),
        ("\\" in path, "has a backslash; folders are written with '/'"),
        (_URL.match(path), "is a URL, not a path"),
        (any("\ud800" <= c <= "\udfff" for c in path), "has half a character (a lone surrogate)"),
    ):
        if wrong:
            raise ToolError(f"'{_cut(path)}' {why}: {_BESIDE}", code="bad_path")
    if _DRIVE.match(path) or path.startswith("~"):
        raise ToolError(f"'{_cut(path)}' is not a path in the workspace: {_BESIDE}", code="path_outside_workspace")
    if len(path.encode()) > LONGEST_PATH or any(len(name.encode()) > _LONGEST_NAME for name in path.split("/")):
        raise ToolError(f"'{_cut(path)}' is too long: a name has at most {_LONGEST_NAME} bytes", code="bad_path")
    return path


def _below(pieces: list[str], roots: Iterable[str], text: str) -> list[str]:
    """Return the names after the workspace's own path. Raises ToolError when the path begins otherwise."""
    for root in roots:
        above = [piece for piece in root.split("/") if piece]
        if pieces[: len(above)] == above:
            return pieces[len(above) :]
    raise ToolError(f"'{_cut(text)}' is an absolute path: {_BESIDE}", code="path_outside_workspace")


def _cut(text: str) -> str:
    return shown_path(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..")


@attrs.frozen
class PathPattern:
    """A glob pattern: `*`, `?`, `[..]` in a name, `**` for folders at any depth. Without `/` it matches a name in any folder.

    Letter case makes no difference, nor do characters that some file systems ignore in names.
    """

    text: str
    _globs: tuple[str, ...] = attrs.field(init=False, repr=False, eq=False)
    _names: tuple[re.Pattern[str] | None, ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        """Translate the pattern, name by name; None is `**`. Raises ValueError for a pattern that names nothing."""
        names = [name for name in self.text.split("/") if name not in ("", ".")]
        if not names:
            raise ValueError(f"'{self.text}' is not a pattern: it names nothing")
        if ".." in names or names[0].startswith("~"):
            raise ValueError(f"'{self.text}' leads out of the workspace: a pattern begins at its root")
        if "/" not in self.text.rstrip("/"):
            names = ["**", *names]
        globs = tuple(name if name == "**" else _plain(name) for name in names)
        patterns = tuple(None if name == "**" else re.compile(fnmatch.translate(name)) for name in globs)
        object.__setattr__(self, "_globs", globs)
        object.__setattr__(self, "_names", patterns)

    def matches(self, parts: Sequence[str]) -> bool:
        """Return whether it matches a path."""
        return self.is_whole(self._lengths(parts)[-1])

    def covers(self, parts: Sequence[str]) -> bool:
        """Return whether it matches a path, or a folder above it."""
        return any(self.is_whole(positions) for positions in self._lengths(parts)[1:])

    def _lengths(self, parts: Sequence[str]) -> list[frozenset[int]]:
        """Return, for each number of names of the path, the positions in the pattern that they reach."""
        lengths = [self.start]
        for part in parts:
            lengths.append(self.onward(lengths[-1], part))
        return lengths

    # -- name by name -------------------------------------------------------------------------------------------------------

    @property
    def start(self) -> frozenset[int]:
        """The positions of the workspace itself, whose path has no names."""
        return self._with_nothing({0})

    def onward(self, positions: frozenset[int], name: str | None) -> frozenset[int]:
        """Return the positions after one more name; None is a name that only `**` can match."""
        plain = None if name is None else _plain(name)
        left = [(at, self._names[at]) for at in positions if at < len(self._names)]
        return self._with_nothing({at if each is None else at + 1 for at, each in left if _stands_for(each, plain)})

    def is_whole(self, positions: frozenset[int]) -> bool:
        """Return whether the positions include the end of the pattern."""
        return len(self._names) in positions

    def next_names(self, positions: frozenset[int]) -> list[str]:
        """Return the globs at the positions, except `**`, in the form in which names are compared."""
        return [self._globs[at] for at in positions if at < len(self._names) and self._names[at] is not None]

    def _with_nothing(self, places: set[int]) -> frozenset[int]:
        """Add the positions after a `**` that matches no name."""
        for at in range(len(self._names)):
            if at in places and self._names[at] is None:
                places.add(at + 1)
        return frozenset(places)


def _stands_for(pattern: re.Pattern[str] | None, name: str | None) -> bool:
    return pattern is None or (name is not None and pattern.match(name) is not None)


@lru_cache(4096)  # each call compares the same few names with every pattern
def _plain(name: str) -> str:
    """Return a name as the least precise file system sees it, without letter case, invisible characters, and dots at the end."""
    plain = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf").casefold()
    plain = plain.split(":")[0] or plain  # a stream of NTFS: `.git::$INDEX_ALLOCATION`
    return re.sub(r"^git~\d$", ".git", plain.rstrip(" .") or plain)


@attrs.frozen
class Protection:
    """The files that are never written: `PROTECTED_NAMES`, and those of the user's patterns."""

    patterns: tuple[PathPattern, ...]

    @classmethod
    def of(cls, further: Iterable[str]) -> "Protection":
        """Return a protection with these patterns too."""
        return cls(tuple(PathPattern(text) for text in dict.fromkeys((*PROTECTED_NAMES, *further))))

    @property
    def plain_names(self) -> tuple[str, ...]:
        """The paths of patterns that are not globs."""
        return tuple(each.text.lstrip("/") for each in self.patterns if not any(sign in each.text for sign in "*?["))

    def covers(self, parts: Sequence[str]) -> bool:
        """Return whether a path is protected."""
        return any(pattern.covers(parts) for pattern in self.patterns)

    def check(self, parts: Sequence[str]) -> None:
        """Raise ToolError for a file that may not be written: `protected_path`, or `bad_path` for a name that does not print."""
        for pattern in self.patterns:
            if pattern.covers(parts):
                text = f"'{path_text(parts)}' is protected ('{shown_path(pattern.text)}') and never written: write another file"
                raise ToolError(text, code="protected_path")
        if any(is_temporary(part) for part in parts):
            raise ToolError(f"names that begin with '{TEMPORARY}' are reserved for the tools", code="protected_path")
        if not all(part.isprintable() for part in parts):
            raise ToolError(
                f"'{path_text(parts)}' has characters that do not print: leave them out of the name", code="bad_path"
            )


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a temporary file."""
    return _plain(name).startswith(TEMPORARY)


def is_closed(parts: Sequence[str]) -> bool:
    """Return whether a path is, or is in, a folder that is not listed or searched."""
    return any(_plain(part) in CLOSED_FOLDERS for part in parts)


def is_record(parts: Iterable[str]) -> bool:
    """Return whether a path is, or is in, one of RECORDS; letter case makes no difference."""
    return any(part.casefold() in RECORDS for part in parts)
