"""The states of a workspace in a git repository of our own: written as commits of one branch, and read back.

Takes files by path with their modes and blobs, gives commits. Empty folders are kept too, as empty trees. Which files a workspace has, and
how they are put back, is not known here. What `write` has given is on disk. Permissions beside what git keeps stand in the commit as a text: the usual
ones of each kind once, the others by path.

Putting files of a workspace back as they were: each only where it still is as it is expected to be.

Takes an open workspace, paths, and contents; raises `InTheWay` and changes nothing where something else is found. No link is followed, and
nothing that was not expected is written over.
"""

import json
import os
import re
import shutil
import stat
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha1
from pathlib import Path

import attrs

from dsa.edge.file_locks import try_lock
from dsa.edge.git.git_branch import Branch, make_ready
from dsa.edge.git.git_objects import FOLDER, DurableObjects, commit_bytes, read_commit, read_tree, run_git, write_tree
from dsa.errors import DsaError
from dsa.runtime.artifacts import ArtifactStoreError
from machines.coding.history.workspace_scan import LINK, SPECIAL, HistoryError, blob_id, read_file
from machines.coding.tools.file_writer import sweep, temporary_name, write_whole
from machines.coding.tools.workspace_boundary import NEW, Beneath
from machines.coding.tools.workspace_paths import WorkspaceToolError


def permissions_text(permissions: Mapping[str, int], kinds: Mapping[str, str]) -> str:
    """Write permissions by path as one line."""
    counts: dict[str, Counter[int]] = {}
    for path, bits in permissions.items():
        counts.setdefault(kinds[path], Counter())[bits] += 1
    usual = {kind: max(count, key=lambda bits: (count[bits], bits)) for kind, count in counts.items()}
    others = {path: f"{bits:03o}" for path, bits in sorted(permissions.items()) if bits != usual[kinds[path]]}
    return json.dumps({"usual": {kind: f"{bits:03o}" for kind, bits in sorted(usual.items())}, "others": others})


def permissions_of(text: str, kinds: Mapping[str, str]) -> dict[str, int]:
    """Return the permissions that a line tells, by path; links have none."""
    said = json.loads(text)
    usual = {kind: int(bits, 8) for kind, bits in said["usual"].items()}
    others = {path: int(bits, 8) for path, bits in said["others"].items()}
    return {path: usual[kind] for path, kind in kinds.items() if kind in usual} | others


_NAME = "workspace"
_PATIENCE_S, _GC_PATIENCE_S = 10.0, 60.0
_NO_GIT = "git keeps what a run changes, and there is no `git` on the PATH: install it (apt install git), or add its folder to the PATH"
_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_PERMISSIONS, _LEFT_OUT = "Permissions: ", "Left-Out: "
_LONGEST_TEXT = 10_000
#: Few objects get a file each, more are written as one pack: 0.3 ms for each, or 10 ms for all.
_LOOSE, _LOOSE_BYTES = 40, 4_000_000
_TYPES = {"tree": 2, "blob": 3}
#: A workspace of its own attributes may not hide what has changed in it.
_ATTRIBUTES = "* !diff !text !eol !filter !ident !working-tree-encoding !merge\n"


@attrs.frozen
class Snapshot:
    """What a workspace was like.

    `files` are (mode, blob id) by path, `folders` ids of trees by path, '' for the workspace itself. `left_out` says why a file is not
    among them. `permissions` are those of files and folders, by path.
    """

    commit: str
    files: Mapping[str, tuple[str, str]] = attrs.field(repr=False)
    folders: Mapping[str, str] = attrs.field(repr=False)
    left_out: Mapping[str, str]
    permissions: Mapping[str, int] = attrs.field(repr=False)

    def objects(self) -> set[str]:
        """Return the ids of all that it consists of."""
        return {blob for _, blob in self.files.values()} | set(self.folders.values())

    def kinds(self) -> dict[str, str]:
        """Return git's mode of each file and folder by path."""
        return {path: mode for path, (mode, _) in self.files.items()} | dict.fromkeys(self.folders, FOLDER)


class Snapshots:
    """Snapshots in a bare repository, made where there is none. Raises ArtifactStoreError where something else is, or git is not installed."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("git") is None:
            raise ArtifactStoreError(folder, _NO_GIT)
        make_ready(folder, _NAME)
        (folder / "info").mkdir(exist_ok=True)
        attributes = folder / "info" / "attributes"
        if not attributes.exists():
            attributes.write_text(_ATTRIBUTES, "utf-8")
        self.folder = folder
        self._objects = DurableObjects(folder)
        self._branch = Branch(folder, _NAME, _PATIENCE_S, _GC_PATIENCE_S)

    @contextmanager
    def hold(self) -> Iterator[str | None]:
        """Hold the branch against others; gives the newest commit, None before the first. The system lets go of it for a killed process."""
        with self._branch.hold():
            yield self._branch.read()

    def read(self, commit: str) -> Snapshot:
        """Return what the workspace was like at a commit. Raises HistoryError."""
        if not _OBJECT_ID.fullmatch(commit):
            raise HistoryError("a mark is named by 40 hex digits, as it was given")
        try:
            found = read_commit(commit, self._objects.read(commit))
        except ArtifactStoreError as fault:
            raise HistoryError(f"there is no mark {commit} in this history") from fault
        if not _OBJECT_ID.fullmatch(found.tree):
            raise HistoryError(f"{commit} is no mark")
        files, folders = self._listed(found.tree)
        snapshot = Snapshot(commit, files, folders, {}, {})
        permitted, left_out = ["", "", *found.message.rstrip("\n").split("\n")][-2:]
        if left_out.startswith(_LEFT_OUT):
            snapshot = attrs.evolve(snapshot, left_out=json.loads(left_out.removeprefix(_LEFT_OUT)))
        if permitted.startswith(_PERMISSIONS):
            known = permissions_of(permitted.removeprefix(_PERMISSIONS), snapshot.kinds())
            snapshot = attrs.evolve(snapshot, permissions=known)
        return snapshot

    def content(self, blob: str) -> bytes:
        """Return the content of a file. Raises ArtifactStoreError when it is damaged."""
        return self._objects.read(blob)

    def write_objects(self, kind: str, bodies: Mapping[str, bytes]) -> None:
        """Write objects of one kind, by their ids."""
        if len(bodies) <= _LOOSE and sum(map(len, bodies.values())) <= _LOOSE_BYTES:
            for body in bodies.values():
                self._objects.write(kind, body)
        else:
            run_git(self.folder, "index-pack", "--stdin", input_bytes=_pack(kind, bodies.values()))

    def write(self, state: Snapshot, parent: Snapshot | None, text: str, *, now_s: float) -> Snapshot:
        """Write a commit of a state whose blobs are written; `state` needs no ids of trees and no commit. Only while it is held."""
        folders, bodies = _trees(state.files, state.folders)
        known = parent.objects() if parent else set()
        self.write_objects("tree", {tree: body for tree, body in bodies.items() if tree not in known})
        above = parent.commit if parent else None
        permitted = permissions_text(state.permissions, state.kinds())
        left_out = json.dumps(dict(sorted(state.left_out.items())))
        message = f"{_told(text)}\n\n{_PERMISSIONS}{permitted}\n{_LEFT_OUT}{left_out}\n"
        commit = self._objects.write("commit", commit_bytes(folders[""], above, message.encode(), now_s=now_s))
        if not self._branch.advance(above, commit):
            raise HistoryError("somebody has moved the branch of this history meanwhile; mark again")
        return Snapshot(commit, state.files, folders, state.left_out, state.permissions)

    def _listed(self, tree: str) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
        """Return files and folders beneath a tree, reading all trees of one depth together."""
        files: dict[str, tuple[str, str]] = {}
        folders: dict[str, str] = {}
        level = {"": tree}
        while level:
            folders |= level
            bodies = self._objects.read_all(set(level.values()))
            below: dict[str, str] = {}
            for path, tree_id in level.items():
                for name, (mode, object_id) in read_tree(bodies[tree_id]).items():
                    inner = f"{path}/{name}" if path else name
                    if mode == FOLDER:
                        below[inner] = object_id
                    else:
                        files[inner] = (mode, object_id)
            level = below
        return files, folders


def _told(text: str) -> str:
    """Return a text as a message of a commit can have it."""
    text = "".join(c if c.isprintable() or c in "\n\t" else " " for c in text[:_LONGEST_TEXT])
    return text.strip() or "mark"


def _trees(files: Mapping[str, tuple[str, str]], folders: Iterable[str]) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the ids of the trees by path, and their bodies by id."""
    entries: dict[str, dict[str, tuple[str, str]]] = {folder: {} for folder in folders}
    for path, entry in files.items():
        folder, _, name = path.rpartition("/")
        entries[folder][name] = entry
    ids: dict[str, str] = {}
    bodies: dict[str, bytes] = {}
    for path in sorted(entries, key=lambda path: path.count("/") + bool(path), reverse=True):
        body = write_tree(entries[path])
        ids[path] = sha1(b"tree %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
        bodies[ids[path]] = body
        if path:
            above, _, name = path.rpartition("/")
            entries[above][name] = (FOLDER, ids[path])
    return ids, bodies


def _pack(kind: str, bodies: Iterable[bytes]) -> bytes:
    """Write a pack (gitformat-pack(5)) of whole objects."""
    entries = [_packed_head(kind, len(body)) + zlib.compress(body, 1) for body in bodies]
    pack = b"PACK" + (2).to_bytes(4, "big") + len(entries).to_bytes(4, "big") + b"".join(entries)
    return pack + sha1(pack, usedforsecurity=False).digest()


def _packed_head(kind: str, size: int) -> bytes:
    head = [_TYPES[kind] << 4 | size & 0x0F]
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)


_CLOSED = 0o700
#: Mode and blob id of a file; None where there is none.
Kept = tuple[str, str] | None


class InTheWay(DsaError):  # noqa: N818  # it says what was found
    """Raised when a file is not as it is expected to be; the text says how it is."""


@attrs.frozen
class Content:
    """What a file is to be: git's mode, permissions (a link has none), and bytes."""

    mode: str
    permissions: int
    data: bytes


def put(workspace: Beneath, path: str, expected: Kept, wanted: Content) -> None:
    """Write a file or a link, whole or not at all, into a folder that is there. Raises InTheWay."""
    *above, name = path.split("/")
    with _opened(workspace, above) as folder:
        _require(folder, name, expected)
        sweep(folder)
        temporary = temporary_name()
        try:
            with _written(folder, temporary, wanted):
                if expected is not None or not _linked(folder, temporary, name):
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise InTheWay("something else stands there now") from None
        except FileNotFoundError:
            raise InTheWay("somebody else has swept the folder meanwhile: undo once more") from None
        except IsADirectoryError:
            raise InTheWay("there is a folder now") from None
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)


def remove(workspace: Beneath, path: str, expected: Kept) -> None:
    """Take a file or a link away. Raises InTheWay."""
    *above, name = path.split("/")
    with _opened(workspace, above) as folder:
        _require(folder, name, expected)
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def remove_special(workspace: Beneath, path: str, kind: str) -> None:
    """Take away what is no file: a pipe, a socket, a device. Raises InTheWay."""
    *above, name = path.split("/")
    with _opened(workspace, above) as folder:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise InTheWay("it is gone") from None
        if SPECIAL.get(stat.S_IFMT(found.st_mode)) != kind:
            raise InTheWay("something else stands there now")
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def remove_folder(workspace: Beneath, path: str) -> bool:
    """Take a folder away if nothing is in it; tell whether it is gone."""
    *above, name = path.split("/")
    try:
        with workspace.folder(above) as folder:
            os.rmdir(name, dir_fd=folder)
    except (WorkspaceToolError, OSError):  # not empty, not there, no folder: it is nothing that we may take away
        return False
    return True


def make_folder(workspace: Beneath, parts: Sequence[str], permissions: Mapping[str, int]) -> None:
    """Make a folder and those that lead there, unless they are there, with permissions by path. Raises InTheWay."""
    for number in range(1, len(parts) + 1):
        bits = permissions.get("/".join(parts[:number]), _CLOSED)
        with _opened(workspace, parts[: number - 1]) as above:
            try:
                os.mkdir(parts[number - 1], bits, dir_fd=above)
            except FileExistsError:
                continue
            os.fsync(above)
        permit_folder(workspace, parts[:number], bits)


def permit_folder(workspace: Beneath, parts: Sequence[str], permissions: int) -> None:
    """Have a folder have permissions. Raises InTheWay."""
    with _opened(workspace, parts) as folder:
        os.fchmod(folder, permissions)


@contextmanager
def _opened(workspace: Beneath, parts: Sequence[str]) -> Iterator[int]:
    try:
        with workspace.folder(parts) as folder:
            yield folder
    except WorkspaceToolError as error:
        raise InTheWay(str(error)) from error
    except PermissionError as error:
        raise InTheWay("the system does not let us change it") from error


def _require(folder: int, name: str, expected: Kept) -> None:
    """Raise InTheWay unless a file is as it is expected to be."""
    try:
        found = read_file(folder, name)
    except (HistoryError, OSError) as error:
        raise InTheWay(f"it is something else now: {error}") from error
    if found is None:
        is_there = _exists(folder, name)
        if is_there or expected is not None:
            raise InTheWay("something else stands there now" if is_there else "it is gone")
    elif expected is None:
        raise InTheWay("there is another file now")
    elif (found[0], blob_id(found[1])) != expected:
        raise InTheWay("it was changed since")


def _linked(folder: int, temporary: str, name: str) -> bool:
    """Return a file a name that nothing has; False where there are no links. Raises FileExistsError."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except PermissionError:  # some file systems have none
        return False
    return True


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _written(folder: int, name: str, wanted: Content) -> Iterator[None]:
    """Write a file or a link under a name of its own; a file is held, so that nobody sweeps it away."""
    if wanted.mode == LINK:
        os.symlink(os.fsdecode(wanted.data), name, dir_fd=folder)
        yield
        return
    file = os.open(name, NEW, 0o600, dir_fd=folder)
    try:
        try_lock(file)
        write_whole(file, wanted.data)
        os.fchmod(file, wanted.permissions)
        os.fsync(file)
        yield
    finally:
        os.close(file)
