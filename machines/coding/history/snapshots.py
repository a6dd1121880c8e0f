"""Snapshots: the states of a workspace as commits of a bare git repository.

`Snapshots` writes the files of a workspace, by path with mode and blob, as a commit of one branch, and reads them back. Empty folders are stored as empty
trees. Permissions beyond git's modes are in the commit message: the usual ones of each kind once, the others by path. A commit is on disk when `write`
returns.

`put`, `remove` and the other functions on an open workspace restore one file or folder. Each raises ToolError, and changes nothing, unless the workspace
still has the expected version. They follow no links.
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

from dsa.edge.files import try_lock
from dsa.edge.git_artifacts import Branch, make_ready
from dsa.edge.git_objects import FOLDER, DurableObjects, commit_bytes, read_commit, read_tree, run_git, write_tree
from dsa.errors import DsaError, ToolError
from dsa.runtime.artifacts import artifact_store_error
from dsa.runtime.run_store import StoreError
from machines.coding.history.workspace_scan import LINK, SPECIAL, blob_id, history_error, read_file
from machines.coding.tools.file_writer import sweep, temporary_name, write_whole
from machines.coding.tools.workspace_boundary import NEW, Beneath


def permissions_text(permissions: Mapping[str, int], kinds: Mapping[str, str]) -> str:
    """Return permissions by path as one line."""
    counts: dict[str, Counter[int]] = {}
    for path, bits in permissions.items():
        counts.setdefault(kinds[path], Counter())[bits] += 1
    usual = {kind: max(count, key=lambda bits: (count[bits], bits)) for kind, count in counts.items()}
    others = {path: f"{bits:03o}" for path, bits in sorted(permissions.items()) if bits != usual[kinds[path]]}
    return json.dumps({"usual": {kind: f"{bits:03o}" for kind, bits in sorted(usual.items())}, "others": others})


def permissions_of(text: str, kinds: Mapping[str, str]) -> dict[str, int]:
    """Return the permissions in such a line, by path; links have none."""
    data = json.loads(text)
    usual = {kind: int(bits, 8) for kind, bits in data["usual"].items()}
    others = {path: int(bits, 8) for path, bits in data["others"].items()}
    return {path: usual[kind] for path, kind in kinds.items() if kind in usual} | others


_NAME = "workspace"
_PATIENCE_S, _GC_PATIENCE_S = 10.0, 60.0
_NO_GIT = "git stores the changes of a run, and there is no `git` on the PATH: install it (apt install git), or add its folder to the PATH"
_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_PERMISSIONS, _LEFT_OUT = "Permissions: ", "Left-Out: "
_LONGEST_TEXT = 10_000
#: The most objects with a file each; more are written as one pack. A file takes 0.3 ms, a pack 10 ms.
_LOOSE, _LOOSE_BYTES = 40, 4_000_000
_TYPES = {"tree": 2, "blob": 3}
#: The attributes of a workspace must not hide its changes.
_ATTRIBUTES = "* !diff !text !eol !filter !ident !working-tree-encoding !merge\n"


@attrs.frozen
class Snapshot:
    """The state of a workspace.

    `files` are (mode, blob id) by path, `folders` ids of trees by path, '' for the workspace itself. `left_out` are the paths of other files, with the reasons.
    `permissions` are those of files and folders, by path.
    """

    commit: str
    files: Mapping[str, tuple[str, str]] = attrs.field(repr=False)
    folders: Mapping[str, str] = attrs.field(repr=False)
    left_out: Mapping[str, str]
    permissions: Mapping[str, int] = attrs.field(repr=False)

    def objects(self) -> set[str]:
        """Return the ids of its objects."""
        return {blob for _, blob in self.files.values()} | set(self.folders.values())

    def kinds(self) -> dict[str, str]:
        """Return git's mode of each file and folder by path."""
        return {path: mode for path, (mode, _) in self.files.items()} | dict.fromkeys(self.folders, FOLDER)


class Snapshots:
    """Snapshots in a bare repository, which is created when it is missing. Raises StoreError when the folder is something else, or git is not installed."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("git") is None:
            raise artifact_store_error(folder, _NO_GIT)
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
        """Hold the branch against others, and yield the newest commit, or None before the first. The system releases it when the process dies."""
        with self._branch.hold():
            yield self._branch.read()

    def read(self, commit: str) -> Snapshot:
        """Return the state of the workspace at a commit. Raises DsaError."""
        if not _OBJECT_ID.fullmatch(commit):
            raise history_error("a mark has 40 hex digits")
        try:
            record = read_commit(commit, self._objects.read(commit))
        except StoreError as fault:
            raise history_error(f"there is no mark {commit} in this history") from fault
        if not _OBJECT_ID.fullmatch(record.tree):
            raise history_error(f"{commit} is not a mark")
        files, folders = self._list_tree(record.tree)
        snapshot = Snapshot(commit, files, folders, {}, {})
        permissions_line, left_out = ["", "", *record.message.rstrip("\n").split("\n")][-2:]
        if left_out.startswith(_LEFT_OUT):
            snapshot = attrs.evolve(snapshot, left_out=json.loads(left_out.removeprefix(_LEFT_OUT)))
        if permissions_line.startswith(_PERMISSIONS):
            permissions = permissions_of(permissions_line.removeprefix(_PERMISSIONS), snapshot.kinds())
            snapshot = attrs.evolve(snapshot, permissions=permissions)
        return snapshot

    def content(self, blob: str) -> bytes:
        """Return the content of a file. Raises StoreError when it is damaged."""
        return self._objects.read(blob)

    def write_objects(self, kind: str, bodies: Mapping[str, bytes]) -> None:
        """Write objects of one kind, by their ids."""
        if len(bodies) <= _LOOSE and sum(map(len, bodies.values())) <= _LOOSE_BYTES:
            for body in bodies.values():
                self._objects.write(kind, body)
        else:
            run_git(self.folder, "index-pack", "--stdin", input_bytes=_pack(kind, bodies.values()))

    def write(self, state: Snapshot, parent: Snapshot | None, text: str, *, now_s: float) -> Snapshot:
        """Write a commit of a state whose blobs are written; `state` needs no ids of trees and no commit. The caller holds the branch."""
        folders, bodies = _trees(state.files, state.folders)
        stored_ids = parent.objects() if parent else set()
        self.write_objects("tree", {tree: body for tree, body in bodies.items() if tree not in stored_ids})
        above = parent.commit if parent else None
        permissions_line = permissions_text(state.permissions, state.kinds())
        left_out = json.dumps(dict(sorted(state.left_out.items())))
        message = f"{_message_text(text)}\n\n{_PERMISSIONS}{permissions_line}\n{_LEFT_OUT}{left_out}\n"
        commit = self._objects.write("commit", commit_bytes(folders[""], above, message.encode(), now_s=now_s))
        if not self._branch.advance(above, commit):
            raise history_error("another program has moved the branch of this history; try again")
        return Snapshot(commit, state.files, folders, state.left_out, state.permissions)

    def _list_tree(self, tree: str) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
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


def _message_text(text: str) -> str:
    """Return a text as a commit message."""
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
    """Return a pack (gitformat-pack(5)) of whole objects."""
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


_OWNER_ONLY = 0o700
#: Mode and blob id of a file; None where there is none.
FileVersion = tuple[str, str] | None


def _in_the_way(what: str) -> ToolError:
    """Return the error for a file that is not in the expected version."""
    return ToolError(what, code="in_the_way")


@attrs.frozen
class Content:
    """The new content of a file: git's mode, permissions (a link has none), and bytes."""

    mode: str
    permissions: int
    data: bytes


def put(workspace: Beneath, path: str, expected_version: FileVersion, content: Content) -> None:
    """Write a file or a link, whole or not at all, into an existing folder. Raises ToolError."""
    *above, name = path.split("/")
    with _open_folder(workspace, above) as folder:
        _require(folder, name, expected_version)
        sweep(folder)
        temporary = temporary_name()
        try:
            with _write_temporary(folder, temporary, content):
                if expected_version is not None or not _link(folder, temporary, name):
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            raise _in_the_way("something else is at this path now") from None
        except FileNotFoundError:
            raise _in_the_way("another process has removed temporary files of this undo: run the undo again") from None
        except IsADirectoryError:
            raise _in_the_way("a folder is at this path now") from None
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)


def remove(workspace: Beneath, path: str, expected_version: FileVersion) -> None:
    """Remove a file or a link. Raises ToolError."""
    *above, name = path.split("/")
    with _open_folder(workspace, above) as folder:
        _require(folder, name, expected_version)
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def remove_special(workspace: Beneath, path: str, kind: str) -> None:
    """Remove a special file: a pipe, a socket, a device. Raises ToolError."""
    *above, name = path.split("/")
    with _open_folder(workspace, above) as folder:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise _in_the_way("it is gone") from None
        if SPECIAL.get(stat.S_IFMT(status.st_mode)) != kind:
            raise _in_the_way("something else is at this path now")
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def remove_folder(workspace: Beneath, path: str) -> bool:
    """Remove a folder if it is empty; return whether it is gone."""
    *above, name = path.split("/")
    try:
        with workspace.folder(above) as folder:
            os.rmdir(name, dir_fd=folder)
    except (ToolError, OSError):  # not empty, missing, or not a folder: it is not ours to remove
        return False
    return True


def make_folder(workspace: Beneath, parts: Sequence[str], permissions: Mapping[str, int]) -> None:
    """Create a folder and the folders above it that are missing, with permissions by path. Raises ToolError."""
    for number in range(1, len(parts) + 1):
        bits = permissions.get("/".join(parts[:number]), _OWNER_ONLY)
        with _open_folder(workspace, parts[: number - 1]) as above:
            try:
                os.mkdir(parts[number - 1], bits, dir_fd=above)
            except FileExistsError:
                continue
            os.fsync(above)
        permit_folder(workspace, parts[:number], bits)


def permit_folder(workspace: Beneath, parts: Sequence[str], permissions: int) -> None:
    """Set the permissions of a folder. Raises ToolError."""
    with _open_folder(workspace, parts) as folder:
        os.fchmod(folder, permissions)


@contextmanager
def _open_folder(workspace: Beneath, parts: Sequence[str]) -> Iterator[int]:
    try:
        with workspace.folder(parts) as folder:
            yield folder
    except PermissionError as error:
        raise _in_the_way("the system does not permit the change") from error


def _require(folder: int, name: str, expected_version: FileVersion) -> None:
    """Raise ToolError unless a file is in the expected version."""
    try:
        file = read_file(folder, name)
    except (DsaError, OSError) as error:
        raise _in_the_way(f"something else is at this path now: {error}") from error
    if file is None:
        is_there = _exists(folder, name)
        if is_there or expected_version is not None:
            raise _in_the_way("something else is at this path now" if is_there else "it is gone")
    elif expected_version is None:
        raise _in_the_way("another file is at this path now")
    elif (file[0], blob_id(file[1])) != expected_version:
        raise _in_the_way("it was changed again later")


def _link(folder: int, temporary: str, name: str) -> bool:
    """Link a temporary file to its own name; return False when the file system has no links. Raises FileExistsError."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except PermissionError:  # some file systems have no links
        return False
    return True


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _write_temporary(folder: int, name: str, content: Content) -> Iterator[None]:
    """Write a file or a link under a temporary name. A file is locked meanwhile, so that `sweep` does not remove it."""
    if content.mode == LINK:
        os.symlink(os.fsdecode(content.data), name, dir_fd=folder)
        yield
        return
    file = os.open(name, NEW, 0o600, dir_fd=folder)
    try:
        try_lock(file)
        write_whole(file, content.data)
        os.fchmod(file, content.permissions)
        os.fsync(file)
        yield
    finally:
        os.close(file)
