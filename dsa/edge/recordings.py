"""Recorded runs on disk: which files hold them, and what is in them.

Takes a path, gives names and texts; what the lines mean is `dsa.checks.odds.recorded`'s affair.
"""

from pathlib import Path

from dsa.edge.files import read_text
from dsa.errors import DocumentError


def recordings(path: Path) -> list[tuple[str, str]]:
    """Read a file of recorded lines, or every `*.jsonl` below a folder. Raises DocumentError when there is none."""
    if path.is_file():
        return [(str(path), read_text(path))]
    found = sorted(path.rglob("*.jsonl"))
    if not found:
        what = "holds no recorded run (*.jsonl)" if path.is_dir() else "there is no such file or folder"
        raise DocumentError(str(path), what)
    return [(str(file), read_text(file)) for file in found]
