"""Recordings: files with recorded runs, such as `dsa show RUN --jsonl` prints, and the digests that a machine's runs may have.

What the lines mean is `dsa.checks.odds.recorded`'s affair.
"""

from pathlib import Path

import attrs

from dsa.edge.files import read_text
from dsa.errors import DocumentError
from dsa.lang import digest
from dsa.machine import Machine


def recordings(path: Path) -> list[tuple[str, str]]:
    """Read a file of recorded lines, or every `*.jsonl` below a folder. Raises DocumentError when there is none."""
    if path.is_file():
        return [(str(path), read_text(path))]
    found = sorted(path.rglob("*.jsonl"))
    if not found:
        what = "holds no recorded run (*.jsonl)" if path.is_dir() else "there is no such file or folder"
        raise DocumentError(str(path), what)
    return [(str(file), read_text(file)) for file in found]


def digests(machine: Machine) -> frozenset[str]:
    """Give the digests of runs of a machine, also from before odds and properties were written into its document."""
    without = attrs.evolve(
        machine, guards=tuple(attrs.evolve(guard, pass_odds=(), fatal_odds=()) for guard in machine.guards)
    )
    kept = (machine, without)
    return frozenset(digest(each) for each in (*kept, *(attrs.evolve(each, properties=()) for each in kept)))
