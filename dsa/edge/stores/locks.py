"""Who is alive, and who writes: advisory file locks, which the kernel gives back when a process ends, however it ends.

Takes paths, gives locks. Works between processes and containers that share a folder, on POSIX.
"""

import getpass
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from dsa.edge.locking import locked, unlock

_PAUSE_S = 0.0005


class Holder:
    """One who may write runs: alive as long as its process lives and it was not closed.

    `name` says which process that is, and tells apart all holders there ever were. Make one only when it is your turn: what killed ones have
    left is removed first.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for left in folder.iterdir():
            is_alive(folder, left.name)
        self.name = f"process {os.getpid()} on {socket.gethostname().replace('/', '_')} ({token_hex(6)})"
        self._path = folder / self.name
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        locked(self._file)

    def close(self) -> None:
        """Be no longer alive."""
        _remove(self._path)
        os.close(self._file)


def is_alive(folder: Path, name: str) -> bool:
    """Return whether a holder is alive, or may be. One that is not leaves no file behind where that can be removed."""
    try:
        file = os.open(folder / name, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's, whose next process removes it if it is not alive
        return True
    try:
        lives = not locked(file, shared=True)  # shared: two who ask at once do not take each other for it
        if not lives:
            _remove(folder / name)
        return lives
    finally:
        os.close(file)


def _remove(path: Path) -> None:
    """Remove a holder's file. On a disk that fails it stays for those who come later: it says nothing any more."""
    with suppress(OSError):
        path.unlink()


def this_process() -> str:
    """Return who this is: `USER@HOST (process NUMBER)`; HOST alone where the user has no name."""
    user = ""
    with suppress(ImportError, KeyError, OSError):
        user = f"{getpass.getuser()}@"
    return f"{user}{socket.gethostname()} (process {os.getpid()})"


class Turn:
    """The right to write a file, one process at a time.

    SQLite would take turns by itself, but some of its versions (3.7.0 to 3.51.2) can damage a file when one connection writes while
    another one checkpoints; they never do so at the same time here. Who has to wait longer than `patience_s` is told: a process that
    is stopped (SIGSTOP) while it writes would keep all others waiting. A `shared` turn is for those who only want nobody to write.
    """

    def __init__(self, path: Path, patience_s: float, *, shared: bool = False) -> None:
        self._path, self._patience_s, self._shared = path, patience_s, shared
        self._file = os.open(path, os.O_RDONLY) if shared else os.open(path, os.O_RDWR | os.O_CREAT, 0o666)

    def take(self) -> None:
        """Wait for the turn. Raises TimeoutError."""
        deadline_s = time.monotonic() + self._patience_s
        while not locked(self._file, shared=self._shared):
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"another process has been writing to it for {self._patience_s:g} s; is it stopped? "
                    f"`fuser {self._path}` says which one has it open: let it go on, or end it"
                )
            time.sleep(_PAUSE_S)

    def give_back(self) -> None:
        """Let the next one write."""
        unlock(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
