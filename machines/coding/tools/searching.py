"""The tool that looks for lines in the files of the workspace.

Takes a workspace held open (`beneath`) and what to look for, gives the lines as `file:line: text`, and what was passed over. An expression
is run by a process of its own that is ended when it takes too long: Python's `re` can take longer than anybody lives, a bound on the lengths
of expression and line does not prevent it, and a thread cannot be ended.
"""

import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from machines.coding.tools import searching_child
from machines.coding.tools.beneath import Beneath, kind_of
from machines.coding.tools.errors import ToolError
from machines.coding.tools.paths import DEEPEST, Pattern, is_closed, is_record, is_temporary, named, shown
from machines.coding.tools.reading import bytes_of, names_in, refuse_closed
from machines.tool_use.records import read_record

#: How many lines are given at most, and how many are counted.
MOST_RESULTS, _MOST_COUNTED = 1_000, 10_000
_MOST_FILES, _MOST_BYTES, _LARGEST_FILE = 20_000, 32_000_000, 1_000_000
_LONGEST_PATTERN, _LONGEST_LINE, _BEFORE = 1_000, 200, 60
_TIME_LIMIT_S = 10.0
#: Folders that hold what programs made. They are searched when `path` leads into them.
_PASSED_OVER = frozenset({".venv", "node_modules", "__pycache__"} | {f".{n}_cache" for n in ("mypy", "ruff", "pytest")})

_Hit = tuple[int, int, int]


@attrs.frozen
class Matches:
    """The lines that were found, as `file:line: text`. `more`: there are others; `skipped` counts what was passed over, by what it is."""

    result: str
    matches: tuple[str, ...]
    more: bool
    skipped: Mapping[str, int]


def searched(
    beneath: Beneath, parts: Sequence[str], pattern: str, glob: str, *, is_regex: bool, max_results: int
) -> Matches:
    """Give the lines that have a text, or match an expression. Raises ToolError, `bad_pattern` or `too_slow` for an expression."""
    if not pattern or len(pattern) > _LONGEST_PATTERN or "\n" in pattern:
        text = f"a pattern is needed: one line of at most {_LONGEST_PATTERN} chars"
        raise ToolError("bad_pattern", text)
    refuse_closed(parts)
    reader = _Reader(beneath, _glob(glob))
    names, texts = [], []
    for name, text in reader.texts(parts):
        names.append(name)
        texts.append(text)
    all_hits = _matching(pattern, texts, _MOST_COUNTED) if is_regex else _having(pattern, texts, _MOST_COUNTED)
    hits = all_hits[:max_results]
    more = len(all_hits) - len(hits)
    files = len({number for number, _, _ in hits})
    said = f"{_count(len(hits), 'line')} in {_count(files, 'file')}"
    if more:
        least = "at least " if len(all_hits) == _MOST_COUNTED else ""
        said += f"; {least}{more:,} more are not shown: narrow path, glob or pattern"
    if not hits:
        said = f"no line in {_count(len(texts), 'file')} has it{_hint(pattern, is_regex=is_regex)}"
    skipped = dict(sorted(reader.skipped.items()))
    if skipped:
        said += f"; passed over: {', '.join(f'{count} {what}' for what, count in skipped.items())}"
    return Matches(said, tuple(_lines(hits, names, texts)), bool(more), skipped)


@attrs.frozen
class _Reader:
    """Reads the texts below a folder in the order of their names, and counts what it passes over."""

    beneath: Beneath
    glob: Pattern | None
    skipped: Counter[str] = attrs.field(factory=Counter)

    def texts(self, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Give the name and the text of each file, up to the bounds."""
        taken_bytes = 0
        for number, file in enumerate(self._files(tuple(parts))):
            if number >= _MOST_FILES or taken_bytes >= _MOST_BYTES:
                self.skipped["or more files: there are too many, say a path or a glob"] += 1
                return
            data = self._data(file)
            if data is not None:
                taken_bytes += len(data)
                yield named(file), data.decode("utf-8", "replace")

    def _data(self, file: Sequence[str]) -> bytes | None:
        try:
            data = bytes_of(self.beneath, file, _LARGEST_FILE)
        except ToolError as error:
            large = error.code == "too_large"
            self.skipped[f"over {_LARGEST_FILE // 1_000_000} MB" if large else "that cannot be read"] += 1
            return None
        if b"\0" in data[:8_192]:
            self.skipped["binary"] += 1
            return None
        return data

    def _files(self, top: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Give every regular file below a folder, or the file itself. Raises ToolError where there is none."""
        found = self.beneath.look(top)
        if found is None:
            raise ToolError("no_such_file", f"there is no '{named(top)}'")
        waiting = [(top, kind_of(found.st_mode))]
        while waiting:
            parts, kind = waiting.pop()
            if kind == "folder":
                waiting += reversed(self._inside(parts))
            elif kind == "file" and (self.glob is None or self.glob.matches(parts)):
                yield parts
            elif kind != "file":
                self.skipped["links and the like"] += 1

    def _inside(self, parts: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
        """Give what is in a folder and its kind, but for what is not searched."""
        if len(parts) >= DEEPEST:
            self.skipped["folders that are too deep"] += 1
            return []
        try:
            names = names_in(self.beneath, parts)
        except ToolError:  # gone by now, or too long a path
            self.skipped["folders that cannot be read"] += 1
            return []
        kept = []
        for name, found in names:
            kind = kind_of(found.st_mode)
            if is_temporary(name) or is_record((name,)):
                continue
            if is_closed((name,)) or (kind == "folder" and name in _PASSED_OVER):
                self.skipped["folders that are not searched"] += 1
            else:
                kept.append(((*parts, name), kind))
        return kept


def _glob(text: str) -> Pattern | None:
    if not text:
        return None
    try:
        return Pattern(text)
    except ValueError as error:
        raise ToolError(
            "bad_arguments", f"'glob' is a pattern of paths, like '*.py' or 'src/**/*.py'; {error}"
        ) from error


def _having(pattern: str, texts: Sequence[str], most: int) -> list[_Hit]:
    found = []
    for number, text in enumerate(texts):
        if pattern not in text:
            continue
        for at, line in enumerate(text.split("\n")):
            column = line.find(pattern)
            if column >= 0:
                found.append((number, at, column))
                if len(found) >= most:
                    return found
    return found


_BROKEN = "it breaks the matcher down"


@attrs.frozen
class _ChildAnswer:
    """What the process that searches has written: hits, or what is wrong with the expression."""

    hits: tuple[_Hit, ...] = ()
    error: str = ""


def _matching(pattern: str, texts: Sequence[str], most: int) -> list[_Hit]:
    asked = json.dumps({"pattern": pattern, "most": most, "texts": texts}).encode()
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter and text
            [sys.executable, "-I", "-S", "-c", inspect.getsource(searching_child)],
            input=asked,
            capture_output=True,
            timeout=_TIME_LIMIT_S,
            cwd="/",
            env={},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = f"the expression took more than {_TIME_LIMIT_S:g} s: write one without nested repetition, or narrow path or glob"
        raise ToolError("too_slow", text) from error
    if done.returncode > 0:
        raise RuntimeError(f"the process that searches failed: {done.stderr.decode(errors='replace')[-2_000:]}")
    found = read_record(_ChildAnswer, json.loads(done.stdout)) if done.returncode == 0 else _ChildAnswer(error=_BROKEN)
    if found.error:
        text = f"the expression cannot be used: {shown(found.error)[:200]}. For the text as it is, say is_regex=false"
        raise ToolError("bad_pattern", text)
    return list(found.hits)


def _lines(hits: Sequence[_Hit], names: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Give each hit as a line, cut around what was found."""
    split = {number: texts[number].split("\n") for number in {number for number, _, _ in hits}}
    told = []
    for number, at, column in hits:
        line = split[number][at].removesuffix("\r")
        start = 0 if len(line) <= _LONGEST_LINE else max(0, min(column - _BEFORE, len(line) - _LONGEST_LINE))
        end = start + _LONGEST_LINE
        cut = f"{'..' if start else ''}{line[start:end]}{'..' if end < len(line) else ''}"
        told.append(f"{names[number]}:{at + 1}: {shown(cut, kept=chr(9))}")
    return told


def _hint(pattern: str, *, is_regex: bool) -> str:
    """Say what may have been meant where nothing was found."""
    if not is_regex and re.search(r"[\\|*+?^$\[(]", pattern):
        return " as it is written (for an expression say is_regex=true)"
    return ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
