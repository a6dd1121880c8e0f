"""The branch of one run: read, and moved by compare-and-swap so that several processes, and git itself, are safe.

Two locks. Ours is flock on a file of the run; the system drops it with the process that held it. Git's is the file
`NAME.lock` beside the ref, which git never takes from a killed process. So those that we make are marked, as executable:
whoever holds the flock and finds one that is marked knows that a killed process of ours left it.
"""

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dsa.edge.folders import folders_above
from dsa.edge.git.names import path_parts
from dsa.edge.git.objects import sync_path, write_synced
from dsa.edge.git.waiting import wait_for
from dsa.edge.locking import locked
from dsa.runtime.artifacts import ArtifactStoreError

T = TypeVar("T")

RUNS = "refs/heads/runs"
_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_LONGEST_NAME = 2000  # of 4096 bytes for a whole path
_TRIES = 10  # git may take away a folder of refs that is empty, between two of our calls
_UNMARKED = 0o666


class Branch:
    """The ref of one run in a repository.

    `patience_s` is how long git may hold its lock before ArtifactStoreError; another process of ours may hold the run for
    `gc_patience_s` longer, since it waits for `git gc`.
    """

    def __init__(self, repository: Path, run_id: str, patience_s: float, gc_patience_s: float = 0) -> None:
        parts = path_parts(run_id)
        self.name = "/".join([RUNS, *parts])
        if len(self.name) > _LONGEST_NAME:
            raise ArtifactStoreError(
                repository, f"a run's id of {len(run_id)} characters is too long for a file system"
            )
        self._repository, self._patience_s, self._gc_patience_s = repository, patience_s, gc_patience_s
        self._ref = repository / self.name
        self._lock = self._ref.with_name(f"{parts[-1]}.lock")
        self._held = repository.joinpath("dsa-locks", *parts)
        self._synced: set[Path] = set()  # folders whose own entry is on disk

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run against other handles, of this process and of others."""
        self._held.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._held, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            otherwise = "another process is writing to this run and does not end"
            self._wait(lambda: locked(descriptor) or None, otherwise, self._gc_patience_s)
            yield
        finally:
            os.close(descriptor)

    def _wait(self, ask: Callable[[], T | None], otherwise: str, longer_s: float = 0) -> T:
        return wait_for(ask, patience_s=self._patience_s + longer_s, repository=self._repository, otherwise=otherwise)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self) -> str | None:
        """Give the commit that the run has got to; None when it has none."""
        found: str | None
        try:
            found = self._ref.read_text(encoding="ascii", errors="replace").removesuffix("\n")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            found = self._packed()
        if found is not None and not _OBJECT_ID.fullmatch(found):
            raise ArtifactStoreError(self._repository, f"{self.name} holds no commit id; `git fsck` tells more")
        return found

    def _packed(self) -> str | None:
        """Look where `git gc` puts refs; it writes there before it takes the file away."""
        try:
            packed = (self._repository / "packed-refs").read_bytes()
        except FileNotFoundError:
            return None
        at = packed.find(f" {self.name}\n".encode("ascii"))
        return None if at < 0 else packed[packed.rfind(b"\n", 0, at) + 1 : at].decode("ascii", "replace")

    # -- writing, only while the run is held --------------------------------------------------------------------------

    def advance(self, old: str | None, new: str) -> bool:
        """Move from one commit to another; it is on disk then. False, and nothing has changed, when it is not at `old`."""
        descriptor = self._take_lock()
        try:
            write_synced(descriptor, f"{new}\n".encode("ascii"))
            is_there = self.read() == old
            if is_there:
                self._lock.rename(self._ref)
                os.fchmod(descriptor, os.fstat(descriptor).st_mode & _UNMARKED)
        finally:
            self._give_back(descriptor)
            os.close(descriptor)
        if is_there:
            self._sync_names()
        return is_there

    def sync(self) -> None:
        """Have what `read` gives put on disk: another process may not have got so far."""
        with contextlib.suppress(FileNotFoundError):
            sync_path(self._ref)
        self._sync_names()

    def _take_lock(self) -> int:
        """Make git's lock file, when nobody has it; give its descriptor."""
        self._remove_leftover()
        otherwise = f"git holds {self._lock}; if no git process runs here, it was left by one: remove it"
        return self._wait(self._made_lock, otherwise)

    def _made_lock(self) -> int | None:
        for tries_left in reversed(range(_TRIES)):
            try:
                return os.open(self._lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777)
            except FileExistsError:
                break
            except FileNotFoundError:
                if not tries_left:
                    raise
                self._ref.parent.mkdir(parents=True, exist_ok=True)
                self._synced.clear()
        return None

    def _give_back(self, descriptor: int) -> None:
        """Take the lock file away unless it has become the ref; by then its name may be somebody else's lock."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), self._lock.stat()):
                self._lock.unlink()

    def _remove_leftover(self) -> None:
        """Take away a lock of ours whose process was killed. Git's are left alone, and so is all where marks cannot be."""
        with contextlib.suppress(FileNotFoundError):
            marks_are_kept = not _is_marked(self._repository / "config")
            if marks_are_kept and _is_marked(self._lock):
                self._lock.unlink()

    def _sync_names(self) -> None:
        """Put on disk that the ref is where it is: its folder, and once the folders that lead there, whoever has made them."""
        folder = self._ref.parent
        try:
            sync_path(folder)
            for above in folders_above(folder):
                if folder in self._synced:
                    break
                sync_path(above)
                self._synced.add(folder)
                folder = above
        except FileNotFoundError:
            self._synced.clear()  # git has packed the refs, and taken the folder away
        if not self._ref.exists():
            with contextlib.suppress(FileNotFoundError):
                sync_path(self._repository / "packed-refs")
            sync_path(self._repository)


def _is_marked(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)
