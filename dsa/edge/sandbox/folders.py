"""Working directories of calls on rungs where a process has no file tree of its own, removed with all that is in them."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_CLEANING_S = 10.0  # a process that escaped may go on writing


@contextlib.contextmanager
def working_directory() -> Iterator[str]:
    """Give a new directory, and remove it afterwards, however deep and closed it has become."""
    directory = tempfile.mkdtemp(prefix="dsa-")
    try:
        yield directory
    finally:
        with contextlib.suppress(OSError):
            flatten(Path(directory), time.monotonic() + _CLEANING_S)
        with contextlib.suppress(RecursionError):
            shutil.rmtree(directory, ignore_errors=True)


def flatten(directory: Path, give_up: float) -> None:
    """Delete everything below, however deep: code can nest directories deeper than rmtree can recurse."""
    fresh = 0
    while (entries := list(os.scandir(directory))) and time.monotonic() < give_up:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink()
                continue
            Path(entry.path).chmod(0o700)
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    Path(inner.path).chmod(0o700)  # a directory that cannot be written cannot be moved
                fresh += 1
                Path(inner.path).rename(directory / f"flat-{fresh}")
            Path(entry.path).rmdir()
