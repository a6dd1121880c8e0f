"""Who is alive, and who writes: advisory file locks, which the kernel gives back when a process ends, however it ends.

Takes paths, gives locks. Works between processes and containers that share a folder; not on Windows.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex


class Holder:
    """One who may write runs: alive as long as its process lives and it was not closed.

    `name` says which process that is, and tells apart all holders there ever were.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.name = f"process {os.getpid()} on {socket.gethostname().replace('/', '_')} ({token_hex(6)})"
        self._path = folder / self.name
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Be no longer alive."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def is_alive(folder: Path, name: str) -> bool:
    """Tell whether a holder is alive. One that is not leaves no file behind afterwards."""
    try:
        file = os.open(folder / name, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        with suppress(FileNotFoundError):
            (folder / name).unlink()
        return False
    finally:
        os.close(file)


class Turn:
    """The right to write a file, one process at a time.

    SQLite would take turns by itself, but some of its versions (3.7.0 to 3.51.2) can damage a file when one connection writes while
    another one checkpoints; they never do so at the same time here.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, and give it back at the end."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
