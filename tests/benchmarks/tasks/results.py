"""The raw data: one row for each trial, in a CSV file that a killed run goes on with.

Takes trials, gives them back. A trial that ended in an error is done again when the run goes on, so the last row of a trial counts.
"""

import csv
import io
import threading
from pathlib import Path

import attrs
from benchmarks.tasks.lines import append_line, read_lines
from benchmarks.tasks.trials import ERROR, Trial

COLUMNS = tuple(each.name for each in attrs.fields(Trial))
Key = tuple[str, str, int]


class ResultsError(ValueError):
    """Raised for a file that is not a table of results, with the line."""


def key_of(trial: Trial) -> Key:
    """Return what tells trials apart."""
    return trial.task, trial.arm, trial.sample


@attrs.define
class Results:
    """The rows of one file. Raises ResultsError for a file that holds anything else."""

    path: Path
    rows: dict[Key, Trial] = attrs.field(factory=dict)
    _writing: threading.Lock = attrs.field(factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        """Read what is there, or begin the file."""
        lines = read_lines(self.path)
        if not lines:
            append_line(self.path, _written(COLUMNS))
            return
        if tuple(next(csv.reader(lines[:1]), ())) != COLUMNS:
            raise ResultsError(
                f"{self.path}:1: these are not the columns of this benchmark; take another folder with --out"
            )
        for number, cells in enumerate(csv.reader(lines[1:]), start=2):
            trial = self._read(number, cells)
            self.rows[key_of(trial)] = trial

    def _read(self, number: int, cells: list[str]) -> Trial:
        try:
            given = dict(zip(COLUMNS, cells, strict=True))
            numbers = {
                each.name: each.type(given[each.name]) for each in attrs.fields(Trial) if each.type in (int, float)
            }
            return Trial(**{**given, **numbers})
        except ValueError as error:
            raise ResultsError(f"{self.path}:{number}: this is not a row of this benchmark: {error}") from error

    def add(self, trial: Trial) -> None:
        """Keep a row; it is on disk when this returns."""
        with self._writing:
            append_line(self.path, _written(attrs.astuple(trial)))
            self.rows[key_of(trial)] = trial

    def is_done(self, key: Key) -> bool:
        """Return whether a trial needs not be made any more."""
        return key in self.rows and self.rows[key].outcome != ERROR


def _written(cells: tuple[object, ...]) -> str:
    """Write a row as one line: what a text has of line ends becomes a space."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([" ".join(str(cell).split()) for cell in cells])
    return text.getvalue()
