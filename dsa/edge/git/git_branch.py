"""The branch of one run in a bare repository: read, and moved by compare-and-swap, safely for several processes and for git itself.

Two locks guard a branch. One is flock on a file of the run, which the system drops when its process ends. The other is git's, the file `NAME.lock`
beside the ref; git never removes the lock of a killed process. Locks made here are therefore marked as executable: a process that holds the flock
and finds a marked lock knows that a killed process of dsa left it.

`make_ready` makes the repository when it is missing, in one step that two processes may take at once, without git's templates and the user's
settings. `wait_for` and `wait_for_gc` wait for locks and for `git gc`, with a limit. Raises StoreError.
"""

import contextlib
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from git.config import GitConfigParser

from dsa.edge.files import folders_above, try_lock
from dsa.edge.git.git_objects import name_of, path_parts, run_git, sync_path, write_new, write_synced
from dsa.runtime.artifacts import artifact_store_error

T = TypeVar("T")

_PAUSE_S = 0.001
_OTHER_HOST_S = 12 * 3600.0  # git's own rule: a process of another machine is believed to run so long


def wait_for(ask: Callable[[], T | None], *, patience_s: float, repository: Path, otherwise: str) -> T:
    """Call `ask` until it returns an answer. Raises StoreError, which says what to do, when there is none in time."""
    deadline_s = time.monotonic() + patience_s
    while (answer := ask()) is None:
        if time.monotonic() > deadline_s:
            raise artifact_store_error(repository, f"{otherwise} (waited {patience_s:g} s)")
        time.sleep(_PAUSE_S)
    return answer


def wait_for_gc(repository: Path, patience_s: float) -> None:
    """Wait for a running `git gc`: it may remove objects that had no ref when it began, as `--prune=now` does."""
    note = repository / "gc.pid"
    otherwise = f"`git gc` is running; stop it, or remove {note} when it is not running any more"
    wait_for(
        lambda: None if _gc_runs(note) else True, patience_s=patience_s, repository=repository, otherwise=otherwise
    )


def _gc_runs(note: Path) -> bool:
    """Return whether `git gc` runs, by its note, as git itself decides (builtin/gc.c, lock_repo_for_gc)."""
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


RUNS = "refs/heads/runs"
_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_LONGEST_NAME = 2000  # of 4096 bytes for a whole path
_TRIES = 10  # git may take away a folder of refs that is empty, between two of our calls
_UNMARKED_MODE = 0o666


class Branch:
    """The ref of one run in a repository.

    `patience_s` is how long git may hold its lock before StoreError is raised. Another process may hold the run for `gc_patience_s`
    longer, since it waits for `git gc`.
    """

    def __init__(self, repository: Path, run_id: str, patience_s: float, gc_patience_s: float = 0) -> None:
        parts = path_parts(run_id)
        self.name = "/".join([RUNS, *parts])
        if len(self.name) > _LONGEST_NAME:
            raise artifact_store_error(
                repository, f"a run's id of {len(run_id)} characters is too long for a file system"
            )
        self._repository, self._patience_s, self._gc_patience_s = repository, patience_s, gc_patience_s
        self._ref = repository / self.name
        self._lock = self._ref.with_name(f"{parts[-1]}.lock")
        self._run_lock = repository.joinpath("dsa-locks", *parts)
        self._synced_folders: set[Path] = set()  # folders whose own entry is on disk

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the run against other handles, of this process and of others."""
        self._run_lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._run_lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            otherwise = "another process is writing to this run and does not end"
            self._wait(lambda: try_lock(descriptor) or None, otherwise, self._gc_patience_s)
            yield
        finally:
            os.close(descriptor)

    def _wait(self, ask: Callable[[], T | None], otherwise: str, longer_s: float = 0) -> T:
        return wait_for(ask, patience_s=self._patience_s + longer_s, repository=self._repository, otherwise=otherwise)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self) -> str | None:
        """Return the newest commit of the run; None when it has none."""
        commit: str | None
        try:
            commit = self._ref.read_text(encoding="ascii", errors="replace").removesuffix("\n")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            commit = self._packed_commit()
        if commit is not None and not _OBJECT_ID.fullmatch(commit):
            raise artifact_store_error(self._repository, f"{self.name} has no commit id; run `git fsck`")
        return commit

    def _packed_commit(self) -> str | None:
        """Return the commit in `packed-refs`; `git gc` writes it there before it removes the ref's file."""
        try:
            refs = (self._repository / "packed-refs").read_bytes()
        except FileNotFoundError:
            return None
        at = refs.find(f" {self.name}\n".encode("ascii"))
        return None if at < 0 else refs[refs.rfind(b"\n", 0, at) + 1 : at].decode("ascii", "replace")

    # -- writing, only while the run is held --------------------------------------------------------------------------

    def advance(self, old: str | None, new: str) -> bool:
        """Move from one commit to another, on disk. Return False, and change nothing, when the branch is not at `old`."""
        descriptor = self._take_lock()
        try:
            write_synced(descriptor, f"{new}\n".encode("ascii"))
            is_there = self.read() == old
            if is_there:
                self._lock.rename(self._ref)
                os.fchmod(descriptor, os.fstat(descriptor).st_mode & _UNMARKED_MODE)
        finally:
            self._give_back(descriptor)
            os.close(descriptor)
        if is_there:
            self._sync_names()
        return is_there

    def sync(self) -> None:
        """Write to disk what `read` returns: the process that wrote it may have been killed before."""
        with contextlib.suppress(FileNotFoundError):
            sync_path(self._ref)
        self._sync_names()

    def _take_lock(self) -> int:
        """Make git's lock file, once nobody else holds it; return its descriptor."""
        self._remove_leftover()
        otherwise = f"git holds {self._lock}; if no git process runs here, it was left by one: remove it"
        return self._wait(self._make_lock, otherwise)

    def _make_lock(self) -> int | None:
        for tries_left in reversed(range(_TRIES)):
            try:
                return os.open(self._lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777)
            except FileExistsError:
                break
            except FileNotFoundError:
                if not tries_left:
                    raise
                self._ref.parent.mkdir(parents=True, exist_ok=True)
                self._synced_folders.clear()
        return None

    def _give_back(self, descriptor: int) -> None:
        """Remove the lock file unless it has become the ref; its name may then be another process's lock."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), self._lock.stat()):
                self._lock.unlink()

    def _remove_leftover(self) -> None:
        """Remove a lock of dsa whose process was killed. Locks of git stay, and so do all where files cannot be marked."""
        with contextlib.suppress(FileNotFoundError):
            marks_are_kept = not _is_marked(self._repository / "config")
            if marks_are_kept and _is_marked(self._lock):
                self._lock.unlink()

    def _sync_names(self) -> None:
        """Sync the ref's folder, and once the folders above it, which another process may have made."""
        folder = self._ref.parent
        try:
            sync_path(folder)
            for above in folders_above(folder):
                if folder in self._synced_folders:
                    break
                sync_path(above)
                self._synced_folders.add(folder)
                folder = above
        except FileNotFoundError:
            self._synced_folders.clear()  # git has packed the refs, and taken the folder away
        if not self._ref.exists():
            with contextlib.suppress(FileNotFoundError):
                sync_path(self._repository / "packed-refs")
            sync_path(self._repository)


def _is_marked(path: Path) -> bool:
    return bool(path.stat().st_mode & stat.S_IXUSR)


#: git syncs neither refs nor loose objects by itself: a power cut after `git gc` could then take what was durable.
_CONFIG = b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n\tfsync = all\n"
_FOLDERS = ("objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags")


def make_ready(path: Path, first_run: str) -> None:
    """Make the repository if it is missing, and check it. HEAD of a new one is the branch of the first run."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        _make(path, f"ref: {Branch(path, first_run, 0).name}\n".encode("ascii"))
    require_repository(path)


def _make(path: Path, head: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{token_hex(8)}.new")
    new.mkdir()
    for folder in _FOLDERS:
        (new / folder).mkdir()
    write_new(new / "config", _CONFIG)
    write_new(new / "HEAD", head)
    for folder in (*reversed(_FOLDERS), "."):
        sync_path(new / folder)
    try:
        new.rename(path)
    except OSError:
        shutil.rmtree(new)
        if not path.is_dir():
            raise
        # another process was faster
    sync_path(path.parent)


def require_repository(path: Path) -> None:
    """Raise StoreError unless it is a bare repository of SHA-1 objects with refs as files."""
    config = path / "config"
    if not all((path / name).exists() for name in ("HEAD", "config", "objects", "refs")):
        raise artifact_store_error(
            path, "this is not a bare git repository; name one, or a path that does not exist yet"
        )
    with GitConfigParser(str(config), read_only=True, merge_includes=False) as settings:
        is_bare = settings.get_value("core", "bare", default=False)
        object_format = settings.get_value("extensions", "objectformat", default="sha1")
        refs = settings.get_value("extensions", "refstorage", default="files")
    if not is_bare or (object_format, refs) != ("sha1", "files"):
        raise artifact_store_error(
            path,
            f"artifacts need a bare repository with sha1 objects and refs in files; this has bare={is_bare}, "
            f"objectformat={object_format}, refstorage={refs}. Name a path that does not exist yet, and one is made there",
        )


def run_ids(path: Path | str) -> tuple[str, ...]:
    """Return the ids of the runs in a repository, sorted. StoreError when there is none."""
    repository = Path(path)
    require_repository(repository)
    refs = run_git(repository, "for-each-ref", "--format=%(refname)", f"{RUNS}/").decode("ascii").splitlines()
    return tuple(sorted(name_of(ref.removeprefix(f"{RUNS}/").split("/")) for ref in refs))


def remove_branch(path: Path | str, run_id: str) -> None:
    """Remove the branch of a run, if there is one. Git's next garbage collection removes its objects."""
    repository = Path(path)
    if (repository / "HEAD").is_file():
        run_git(repository, "update-ref", "-d", Branch(repository, run_id, 0).name)
