"""Waiting for others, never for ever: for a lock, and for `git gc`.

Takes what to wait for and how long; gives nothing, or raises ArtifactStoreError. It knows no ref and no object.
"""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dsa.runtime.artifacts import ArtifactStoreError

T = TypeVar("T")

_PAUSE_S = 0.001
_OTHER_HOST_S = 12 * 3600.0  # git's own rule: a process of another machine is believed to run so long


def wait_for(ask: Callable[[], T | None], *, patience_s: float, repository: Path, otherwise: str) -> T:
    """Ask again and again until there is an answer; ArtifactStoreError, with a sentence of what to do, if there is none."""
    deadline_s = time.monotonic() + patience_s
    while (answer := ask()) is None:
        if time.monotonic() > deadline_s:
            raise ArtifactStoreError(repository, f"{otherwise} (waited {patience_s:g} s)")
        time.sleep(_PAUSE_S)
    return answer


def wait_for_gc(repository: Path, patience_s: float) -> None:
    """Wait for a `git gc` that runs now: it may take away what had no ref when it began, `--prune=now` does."""
    note = repository / "gc.pid"
    otherwise = f"`git gc` is running; stop it, or remove {note} when it is not running any more"
    wait_for(
        lambda: None if _gc_runs(note) else True, patience_s=patience_s, repository=repository, otherwise=otherwise
    )


def _gc_runs(note: Path) -> bool:
    """Judge the note that `git gc` leaves while it runs as git does itself (builtin/gc.c, lock_repo_for_gc)."""
    try:
        words = note.read_text(encoding="utf-8", errors="replace").split()
        age_s = time.time() - note.stat().st_mtime
    except FileNotFoundError:
        return False
    if len(words) != 2 or not words[0].isdecimal() or age_s > _OTHER_HOST_S:  # noqa: PLR2004  (process, host)
        return False
    return words[1] != socket.gethostname() or _is_alive(int(words[0]))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
