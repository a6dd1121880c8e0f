"""Files that grow line by line, and may be cut off in the middle of one.

Takes texts without line ends; what `append_line` has returned from is on disk, whatever happens then.
"""

import os
from pathlib import Path


def append_line(path: Path, line: str) -> None:
    """Write a line at the end and wait until the disk has it."""
    with path.open("ab") as file:
        file.write(line.encode("utf-8") + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[str]:
    """Return the complete lines of a file, none if there is no file; a last line without its end is removed from the file."""
    if not path.exists():
        return []
    written = path.read_bytes()
    whole = written[: written.rfind(b"\n") + 1]
    if len(whole) < len(written):
        with path.open("r+b") as file:
            file.truncate(len(whole))
            os.fsync(file.fileno())
    return whole.decode("utf-8").splitlines()
