"""How much of a disk a command has used, when so much of it is gone that it must be asked: others write to the same disk.

What has changed in its folder since it began counts whole, and so do files without a name that its processes hold open. Asked again and again
while only others write, it would cost; so it says from when on it is to be asked next.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator

#: Who moves files about while they are counted may hide some: when so many times its bound is gone, nobody asks whose it was.
_AT_MOST = 4
_TICK_NS = 50_000_000  # times of files are those of the kernel's last tick


class Disk:
    """The disk of a folder. `processes` gives those that may hold files open; None: what they do elsewhere cannot be known."""

    def __init__(self, folder: str, most_bytes: int, processes: Callable[[], Iterable[int]] | None) -> None:
        self._folder, self._most_bytes, self._processes = folder, most_bytes, processes
        self._since_ns = time.time_ns() - _TICK_NS
        self._free_bytes = self._free()
        self._asked_from = most_bytes

    def is_full(self) -> bool:
        """Tell whether the command has used more than it may."""
        gone = self._free_bytes - self._free()
        if gone <= self._asked_from:
            return False
        if self._processes is None or gone > _AT_MOST * self._most_bytes:
            return True
        try:
            used = self._used(self._processes())
        except OSError:  # it does not let us look
            return True
        self._asked_from = gone + max(self._most_bytes - used, self._most_bytes // 8)
        return used > self._most_bytes

    def _used(self, processes: Iterable[int]) -> int:
        device = os.lstat(self._folder).st_dev
        found = [*_changed(self._folder, self._since_ns), *_held(processes, device)]
        return sum({(each.st_dev, each.st_ino): each.st_blocks * 512 for each in found}.values())

    def _free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize


def _changed(folder: str, since_ns: int) -> Iterator[os.stat_result]:
    """Give the files that have changed beneath a folder. A command can set the other times of a file, but not this one."""
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif (found := entry.stat(follow_symlinks=False)).st_ctime_ns >= since_ns:
                        yield found
        except (FileNotFoundError, NotADirectoryError):  # gone, or another, since it was listed
            continue


def _held(processes: Iterable[int], device: int) -> Iterator[os.stat_result]:
    """Give the files without a name that are held open."""
    for process in processes:
        try:
            numbers = os.listdir(f"/proc/{process}/fd")  # noqa: PTH208  # pathlib is slow to import
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        for number in numbers:
            try:
                found = os.stat(f"/proc/{process}/fd/{number}")  # noqa: PTH116
            except (FileNotFoundError, ProcessLookupError):
                continue
            if stat.S_ISREG(found.st_mode) and not found.st_nlink and found.st_dev == device:
                yield found
