"""Full-text search over the text files of a folder, with SQLite's FTS5 in memory.

Takes a folder and words, gives places: file, line, excerpt. Files are read anew when any of them has changed. What is hidden, large,
no UTF-8 text or a symbolic link is left out, and counted.
"""

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import attrs

MOST_FILES = 20_000
LARGEST_BYTES = 1_000_000
_LINES = 12  # of a passage, at most
_EXCERPT, _CUT = 400, " [.. cut]"  # characters
_WORD = re.compile(r"\w[\w.'-]*")
_BEGIN, _END = "\x02", "\x03"  # mark what was found; no text file has them


class SearchError(Exception):
    """Raised when nothing can be searched. `code` is one stable word."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@attrs.frozen
class Place:
    """Where something was found: the path within the folder, the line from 1, and what stands there."""

    file: str
    line: int
    excerpt: str


@attrs.frozen
class Found:
    """The best places first, how many files were searched, and how many were left out."""

    places: tuple[Place, ...]
    searched: int
    left_out: int


def search(folder: Path, query: str, limit: int = 5) -> Found:
    """Find passages with the words of a query, those with rare words and with many of them first.

    Words count in all their forms. Raises SearchError: NO_WORDS, NO_FOLDER, TOO_MANY_FILES.
    """
    words = _WORD.findall(query)
    if not words:
        raise SearchError("NO_WORDS", f"there is no word in '{query}' to search for")
    if not folder.is_dir():
        raise SearchError("NO_FOLDER", f"{folder} is no folder that can be searched")
    index = _index_of(folder, tuple(files_in(folder)))
    return Found(tuple(index.places(words, limit)), index.searched, index.left_out)


def files_in(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Give path, size and time of change of all that is not hidden, sorted; the size is -1 of what cannot be read."""
    unreadable: list[OSError] = []
    count = 0
    for parent, folders, names in os.walk(folder, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(parent, name) for name in sorted(names) if not name.startswith(".")):
            count += 1
            if count > MOST_FILES:
                raise SearchError("TOO_MANY_FILES", f"{folder} has more than {MOST_FILES} files; name a smaller folder")
            yield path.relative_to(folder).as_posix(), *_about(path)
    for error in unreadable:
        yield str(error.filename), -1, 0


def _about(path: Path) -> tuple[int, int]:
    """Give size and time of change of a file; -1 as the size of a link, a pipe, and what is gone or has no name in UTF-8."""
    try:
        str(path).encode()
        about = path.lstat()
    except (OSError, UnicodeEncodeError):
        return -1, 0
    return about.st_size if stat.S_ISREG(about.st_mode) else -1, about.st_mtime_ns


@lru_cache(maxsize=4)
def _index_of(folder: Path, files: tuple[tuple[str, int, int], ...]) -> "Index":
    return Index(folder, files)


class Index:
    """The passages of a folder's files. May be asked from any thread."""

    def __init__(self, folder: Path, files: tuple[tuple[str, int, int], ...]) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(
            "CREATE VIRTUAL TABLE passages USING fts5(file, line UNINDEXED, text, tokenize='porter unicode61')"
        )
        self.searched = 0
        for name, size_bytes, _ in files:
            text = _text(folder / name) if 0 <= size_bytes <= LARGEST_BYTES else None
            if text is not None:
                self.searched += 1
                rows = ((name, line, passage) for line, passage in _passages(text))
                self._database.executemany("INSERT INTO passages VALUES (?, ?, ?)", rows)
        self.left_out = len(files) - self.searched

    def places(self, words: list[str], limit: int) -> Iterator[Place]:
        """Give the best places; a match in the file's name counts double."""
        quoted = " OR ".join(f'"{word}"' for word in words)  # quoted, nothing in it is syntax
        rows = self._database.execute(
            "SELECT file, line, highlight(passages, 2, ?, ?) FROM passages WHERE passages MATCH ? "
            "ORDER BY bm25(passages, 2.0, 0.0, 1.0), file, line LIMIT ?",
            (_BEGIN, _END, quoted, limit),
        )
        return (_place(file, line, marked.split("\n")) for file, line, marked in rows)


def _text(path: Path) -> str | None:
    try:
        with open(path, "rb", opener=_not_through_a_link) as file:
            text = file.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # gone, not permitted, or no text: it is counted as left out
        return None
    return None if "\0" in text else text.replace(_BEGIN, " ").replace(_END, " ")


def _not_through_a_link(path: str, flags: int) -> int:
    """Open a file, but not if a symbolic link has taken its place since it was looked at."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _passages(text: str) -> Iterator[tuple[int, str]]:
    """Split a text at empty lines, and where it goes on for long; give each part with its first line's number."""
    numbered = enumerate(text.splitlines(), start=1)
    for is_empty, group in groupby(numbered, key=lambda item: not item[1].strip()):
        lines = list(group)
        for start in range(0, 0 if is_empty else len(lines), _LINES):
            part = lines[start : start + _LINES]
            yield part[0][0], "\n".join(line for _, line in part)


def _place(file: str, first: int, marked: list[str]) -> Place:
    """Give the line of a passage with most of what was found, and the passage from there on."""
    best = max(range(len(marked)), key=lambda n: (marked[n].count(_BEGIN), -n))
    excerpt = "\n".join(marked[best:]).replace(_BEGIN, "").replace(_END, "")
    is_cut = len(excerpt.strip()) > _EXCERPT
    text = f"{excerpt.strip()[: _EXCERPT - len(_CUT)]}{_CUT}" if is_cut else excerpt.strip()
    return Place(file, first + best, text)
