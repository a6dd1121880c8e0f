"""`GitArtifacts`: the artifacts of one run as commits on the run's branch.

It returns artifacts and verdicts exactly as they were stored. A commit is one record. Its message has all of the record except the text; its tree has
the newest text of each step. So `git diff` of two commits shows what changed between two attempts, and a clone's working tree is what the run made.

The branch is moved by compare-and-swap, safely for several processes and for git itself. Two locks guard it. One is flock on a file of the run, which the
system drops when its process ends. The other is git's, the file `NAME.lock` beside the ref; git never removes the lock of a killed process. Locks made here
are therefore marked as executable: a process that holds the flock and finds a marked lock knows that a killed process of dsa left it.

`make_ready` makes the repository when it is missing, in one step that two processes may take at once, without git's templates and the user's
settings. `wait_for` and `wait_for_gc` wait for locks and for `git gc`, with a limit. Raises StoreError.
"""

import contextlib
import os
import re
import shutil
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import attrs
from git.config import GitConfigParser

from dsa.edge.files import folders_above, try_lock
from dsa.edge.git_objects import (
    FILE,
    FOLDER,
    CommitObject,
    DurableObjects,
    SyncFailed,
    Tree,
    commit_bytes,
    file_name,
    history,
    message_of,
    name_of,
    path_parts,
    read_tree,
    record_in,
    run_git,
    sync_path,
    with_entry,
    write_new,
    write_synced,
    write_tree,
)
from dsa.runtime.artifacts import AttemptRecord, Attempts, artifact_store_error, attempt_of, short_id
from dsa.runtime.content import Artifact
from dsa.runtime.ledger import VerdictEntry

T = TypeVar("T")

_PAUSE_S = 0.001
_OTHER_HOST_S = 12 * 3600.0  # git's own rule: how long a process of another machine is assumed to run


def wait_for(ask: Callable[[], T | None], *, patience_s: float, repository: Path, otherwise: str) -> T:
    """Call `ask` until it returns an answer. Raises StoreError, which says what to do, if none comes in time."""
    deadline_s = time.monotonic() + patience_s
    while (answer := ask()) is None:
        if time.monotonic() > deadline_s:
            raise artifact_store_error(repository, f"{otherwise} (waited {patience_s:g} s)")
        time.sleep(_PAUSE_S)
    return answer


def wait_for_gc(repository: Path, patience_s: float) -> None:
    """Wait for a running `git gc`: it may remove objects that had no ref when it began, as `--prune=now` does."""
    note = repository / "gc.pid"
    otherwise = f"`git gc` is running; stop it, or remove {note} if it is no longer running"
    wait_for(
        lambda: None if _gc_runs(note) else True, patience_s=patience_s, repository=repository, otherwise=otherwise
    )


def _gc_runs(note: Path) -> bool:
    """Return whether `git gc` is running, according to its note, as git itself decides (builtin/gc.c, lock_repo_for_gc)."""
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
_TRIES = 10  # git may remove an empty folder of refs between two of our calls
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
        otherwise = f"git holds the lock {self._lock}; if no git process is running here, remove this leftover file"
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
            self._synced_folders.clear()  # git has packed the refs and removed the folder
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
            path, "this is not a bare git repository; write the path of one, or a path that does not exist yet"
        )
    with GitConfigParser(str(config), read_only=True, merge_includes=False) as settings:
        is_bare = settings.get_value("core", "bare", default=False)
        object_format = settings.get_value("extensions", "objectformat", default="sha1")
        refs = settings.get_value("extensions", "refstorage", default="files")
    if not is_bare or (object_format, refs) != ("sha1", "files"):
        raise artifact_store_error(
            path,
            f"artifacts need a bare repository with sha1 objects and refs in files; this has bare={is_bare}, "
            f"objectformat={object_format}, refstorage={refs}. Write a path that does not exist yet, and a repository is made there",
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


# --- artifacts ---

_LOCK_PATIENCE_S, _GC_PATIENCE_S = 30.0, 600.0


_PAGE = 100  # steps in one folder
_AT_ONCE = 500  # texts that are looked up together


def _new_path(step: str, rank: int) -> str:
    """Return the path for a step's texts; `rank` counts the steps of the run before it."""
    page = rank // _PAGE
    return f"+{page}/{file_name(step)}" if page else file_name(step)


@attrs.define
class _Batch:
    """The objects of one record, remembered until they are safe from `git gc`."""

    _objects: DurableObjects
    _gc_patience_s: float
    _records: list[tuple[str, str, bytes]] = attrs.field(factory=list)

    def write(self, kind: str, body: bytes) -> str:
        """Write an object and return its id."""
        object_id = self._objects.write(kind, body)
        self._records.append((object_id, kind, body))
        return object_id

    def outlast_gc(self) -> None:
        """Wait for any running `git gc`, and write again the objects that it removed.

        A `git gc` that begins later removes nothing that has a ref by then.
        """
        wait_for_gc(self._objects.repository, self._gc_patience_s)
        missing = set(self._objects.missing([object_id for object_id, _, _ in self._records]))
        for object_id, kind, body in self._records:
            if object_id in missing:
                self._objects.write(kind, body)


class _Texts:
    """Puts texts into trees, and remembers the newest trees.

    Folders are of bounded size, so a commit costs the same however many texts there are.
    """

    def __init__(self, objects: DurableObjects) -> None:
        self._objects = objects
        self._recent: dict[str, Tree] = {}

    def put(self, root: str | None, path: str, text: bytes, batch: _Batch) -> str:
        """Return the tree with a text at a path, in place of the text that was there."""
        trees: dict[str, Tree] = {}
        tree_id = self._with(root, path.split("/"), batch.write("blob", text), batch, trees)
        self._recent = trees
        return tree_id

    def _with(self, root: str | None, parts: Sequence[str], blob: str, batch: _Batch, trees: dict[str, Tree]) -> str:
        tree: Tree = {} if root is None else self._tree(root)
        name, *inner = parts
        if inner:
            mode, below = tree.get(name, ("", ""))
            folder = self._with(below if mode == FOLDER else None, inner, blob, batch, trees)
            tree = with_entry(tree, name, FOLDER, folder)
        else:
            tree = with_entry(tree, name, FILE, blob)
        tree_id = batch.write("tree", write_tree(tree))
        trees[tree_id] = tree
        return tree_id

    def _tree(self, tree_id: str) -> Tree:
        return self._recent.get(tree_id) or read_tree(self._objects.read(tree_id))

    def find(self, places: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, bytes]]:
        """Yield each place's name and the text at its path in its tree. Raises KeyError for a path that is not there."""
        items = iter(places.items())
        while some := dict(islice(items, _AT_ONCE)):
            yield from self._find_batch(some).items()

    def _find_batch(self, places: Mapping[str, tuple[str, str]]) -> dict[str, bytes]:
        at = {name: tree for name, (tree, _) in places.items()}
        left = {name: path.split("/") for name, (_, path) in places.items()}
        while left:
            trees = {tree_id: read_tree(body) for tree_id, body in self._read(at[name] for name in left).items()}
            at |= {name: trees[at[name]][parts[0]][1] for name, parts in left.items()}
            left = {name: parts[1:] for name, parts in left.items() if parts[1:]}
        bodies = self._read(at.values())
        return {name: bodies[blob] for name, blob in at.items()}

    def _read(self, object_ids: Iterable[str]) -> Mapping[str, bytes]:
        return self._objects.read_all(dict.fromkeys(object_ids))


class GitArtifacts:
    """An `ArtifactStore` in git: durable when `store` and `record_verdict` return.

    The bare repository at `path` is made if it does not exist. Any number of handles, processes, threads and `git gc` may use it at once. A handle
    holds no open file and no process. Nothing that is written is ever changed.

    Raises StoreError when the repository cannot be used or is damaged, when a lock is held for `lock_patience_s`, or when `git gc`
    runs for longer than `gc_patience_s`; OSError when nothing can be written. After an error the record may have been stored all the same:
    store it again, which changes nothing if it was. Once the disk has failed to sync, the handle stores nothing more.
    """

    def __init__(
        self,
        path: Path | str,
        run_id: str,
        *,
        now_s: Callable[[], float] = time.time,
        lock_patience_s: float = _LOCK_PATIENCE_S,
        gc_patience_s: float = _GC_PATIENCE_S,
    ) -> None:
        self.path, self.run_id = Path(path).absolute(), run_id
        make_ready(self.path, run_id)
        self._now_s, self._gc_patience_s = now_s, gc_patience_s
        self._objects = DurableObjects(self.path)
        self._branch = Branch(self.path, run_id, lock_patience_s, gc_patience_s)
        self._texts = _Texts(self._objects)
        self._thread = threading.Lock()
        self._is_dead = False
        self._forget()

    def _forget(self) -> None:
        self._tip: str | None = None
        self._tree: str | None = None
        self._attempts = Attempts()
        self._places: dict[str, tuple[str, str]] = {}  # by artifact id: tree, and path in it
        self._paths: dict[str, str] = {}  # by step

    # -- writing ------------------------------------------------------------------------------------------------------

    def store(self, artifact: Artifact, author: str = "", run_id: str = "") -> Artifact:
        """Store one version and return it with its id. Raises KeyError when a parent is unknown.

        `author` is the generator's name, `run_id` the run that made it, if not this one. The artifact keeps its id, unless another
        record has the same id; a new id names the run. Storing the same record again changes nothing.
        """
        made_by = run_id or self.run_id
        with self._alone():
            artifact = self._attempts.with_id(artifact, made_by)
            self._append(attempt_of(artifact, author, made_by), artifact.content.encode("utf-8", "surrogatepass"))
        return artifact

    def record_verdict(self, verdict: VerdictEntry) -> None:
        """Store a verdict on an artifact. Raises KeyError when it is unknown. Storing the same record again changes nothing."""
        with self._alone():
            self._append(verdict)

    def _append(self, record: AttemptRecord | VerdictEntry, text: bytes | None = None) -> None:
        while not self._has(record):
            batch = _Batch(self._objects, self._gc_patience_s)
            if self._commits(record, text, batch):
                batch.outlast_gc()
                return
            self._refresh()  # git has moved the branch in the meantime
        self._branch.sync()  # the process that stored it may have been killed before

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the run, and read what others have added to it."""
        with self._thread:
            if self._is_dead:
                raise artifact_store_error(
                    self.path, "the disk has failed before; open the artifacts again to see what was stored"
                )
            try:
                with self._branch.hold():
                    self._refresh()
                    yield
            except SyncFailed:
                self._is_dead = True
                raise

    def _commits(self, record: AttemptRecord | VerdictEntry, text: bytes | None, batch: _Batch) -> bool:
        """Write the objects, then the ref. Return False when the branch has moved."""
        path, tree = "", self._tree
        if text is not None:
            path = self._paths.get(record.step) or _new_path(record.step, len(self._paths))
            tree = self._texts.put(tree, path, text, batch)
        assert tree is not None, "a verdict comes after its artifact"
        body = commit_bytes(tree, self._tip, self._message(record, path), now_s=self._now_s())
        commit_id = batch.write("commit", body)
        batch.outlast_gc()
        if not self._branch.advance(self._tip, commit_id):
            return False
        self._tip, self._tree = commit_id, tree
        self._add(record, tree, path)
        return True

    def _message(self, record: AttemptRecord | VerdictEntry, path: str) -> bytes:
        attempt = record if isinstance(record, AttemptRecord) else self._attempts[record.artifact_id]
        return message_of(attempt.run_id, record, path)

    # -- reading ------------------------------------------------------------------------------------------------------

    def get_artifact(self, artifact_id: str) -> Artifact:
        """Return one version. Raises KeyError when no artifact has that id."""
        with self._thread:
            if artifact_id not in self._attempts:
                self._refresh()
            return next(self._with_texts([self._attempts[artifact_id]]))

    def get_provenance(self, artifact_id: str) -> list[Artifact]:
        """Return the versions that lead to this one, oldest first, with this one last. Raises KeyError when it is unknown."""
        attempts = self.lineage(artifact_id)
        with self._thread:
            return list(self._with_texts(attempts))

    def lineage(self, artifact_id: str) -> list[AttemptRecord]:
        """Return the provenance without the texts. Raises KeyError when it is unknown."""
        with self._thread:
            self._refresh()
            return self._attempts.lineage(artifact_id)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return everything but the texts, in the order in which it was stored."""
        with self._thread:
            self._refresh()
            return tuple(self._attempts)

    def checkout(self, folder: Path | str, *, only_passed: bool = False, suffix: str = ".txt") -> None:
        """Write the texts and their feedback as `STEP/ATTEMPT-VERDICT.txt` into a folder that is empty or new.

        `only_passed` writes only the newest attempt of each step whose last verdict is `passed`. These files are a view: nothing reads them
        back. Raises FileExistsError when the folder is not empty.
        """
        everything = self.attempts()
        attempts = _newest_passed(everything) if only_passed else everything
        with self._thread:
            texts = self._texts.find({a.artifact_id: self._places[a.artifact_id] for a in attempts})
            _write_view(Path(folder), attempts, texts, _file_names(attempts, suffix))

    def _with_texts(self, attempts: Iterable[AttemptRecord]) -> Iterator[Artifact]:
        """Yield artifacts, after checking their texts against their digests."""
        attempts_by_id = {attempt.artifact_id: attempt for attempt in attempts}
        for artifact_id, text in self._texts.find({name: self._places[name] for name in attempts_by_id}):
            artifact = attempts_by_id[artifact_id].artifact(text.decode("utf-8", "surrogatepass"))
            if artifact.content_digest != attempts_by_id[artifact_id].content_digest:
                raise artifact_store_error(self.path, f"the text of artifact {artifact_id} does not match its digest")
            yield artifact

    def _refresh(self) -> None:
        """Read what others, or an earlier process, have added to the branch."""
        tip = self._branch.read()
        if tip == self._tip:
            return
        commits = history(self._objects, tip, self._tip) if tip else []
        if not commits or commits[0].parent != self._tip:  # somebody has rewritten or removed the branch
            commits = history(self._objects, tip, None) if tip else []
            self._forget()
        for commit, (record, path) in [(commit, self._record(commit)) for commit in commits]:
            try:
                if record is not None and not self._has(record):
                    self._add(record, commit.tree, path)
            except KeyError as unknown:
                what = f"commit {commit.commit_id} names artifact {unknown.args[0]}, which is not in the run"
                raise artifact_store_error(self.path, what) from unknown
        self._tip, self._tree = tip, commits[-1].tree if commits else None

    def _record(self, commit: CommitObject) -> tuple[AttemptRecord | VerdictEntry | None, str]:
        try:
            return record_in(commit.message) or (None, "")
        except ValueError as fault:
            raise artifact_store_error(
                self.path, f"commit {commit.commit_id} is not a complete record: {fault}"
            ) from fault

    def _has(self, record: AttemptRecord | VerdictEntry) -> bool:
        """Return whether a record is stored already. Raises KeyError if an artifact that it names is not stored."""
        if isinstance(record, VerdictEntry):
            return record in self._attempts[record.artifact_id].verdicts
        for parent in record.parents:
            self._attempts[parent]
        return record.artifact_id in self._attempts

    def _add(self, record: AttemptRecord | VerdictEntry, tree: str, path: str) -> None:
        if isinstance(record, VerdictEntry):
            self._attempts.add_verdict(record)
        else:
            self._attempts.add(record)
            self._places[record.artifact_id] = (tree, path)
            self._paths[record.step] = path


def _file_names(attempts: Iterable[AttemptRecord], suffix: str) -> dict[str, str]:
    """Return a path for each attempt, by its id: `STEP/ATTEMPT-VERDICT.txt`, with the id's short form where that name is in use."""
    names: dict[str, str] = {}
    used_names = set[str]()
    for attempt in attempts:
        folder, word = file_name(attempt.step), f"-{attempt.verdicts[-1].word}" if attempt.verdicts else ""
        name = f"{folder}/{attempt.version}{word}{suffix}"
        if name in used_names:
            name = (
                f"{folder}/{attempt.version}{word}-{file_name(short_id(attempt.artifact_id, attempt.run_id))}{suffix}"
            )
        used_names.add(name)
        names[attempt.artifact_id] = name
    return names


def _newest_passed(attempts: Iterable[AttemptRecord]) -> list[AttemptRecord]:
    """Return for each step the newest attempt whose last verdict is `passed`."""
    return list({attempt.step: attempt for attempt in attempts if attempt.outcome == "passed"}.values())


def _write_view(
    folder: Path, attempts: Iterable[AttemptRecord], texts: Iterator[tuple[str, bytes]], names: Mapping[str, str]
) -> None:
    """Write texts and their last feedback under the given names. Raises FileExistsError unless the folder is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not empty; name an empty folder, or one that does not exist yet")
    for artifact_id, text in texts:
        _write(folder / names[artifact_id], text)
    for attempt in attempts:
        feedback = attempt.verdicts[-1].feedback if attempt.verdicts else ""
        if feedback:
            file = folder / names[attempt.artifact_id]
            _write(file.with_name(f"{file.name}.feedback.txt"), f"{feedback}\n".encode("utf-8", "surrogatepass"))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
