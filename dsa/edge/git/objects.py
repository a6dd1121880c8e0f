"""Git objects: written through GitPython's default object database so that they survive a power cut, and read back.

Takes kinds and bytes, gives ids as 40 hex digits. An object is whole and on disk before it has its name. What is read is
checked against its id. A git process is started only for what `git gc` has packed.
"""

import hashlib
import os
import subprocess
import zlib
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from secrets import token_hex

from git import Git
from git.db import GitCmdObjectDB
from gitdb import IStream

from dsa.runtime.artifacts import ArtifactStoreError

_TRIES = 10  # `git prune` may take away an empty folder, or a temporary file, between two of our calls
_LEVEL = 1  # git's own choice for loose objects


class SyncFailed(OSError):  # noqa: N818  # it says what happened
    """Raised when the system cannot say that what was written is on disk. Nobody may ask again for the same file."""


def sync(descriptor: int) -> None:
    """Have what was written to a file, or done in a folder, put on disk."""
    try:
        os.fsync(descriptor)
    except OSError as fault:
        raise SyncFailed(fault.errno, f"the disk did not take what was written: {fault.strerror}") from fault


def sync_path(path: Path) -> None:
    """Have a file or a folder put on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(descriptor: int, data: bytes) -> None:
    """Write all of it, and have it put on disk."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    sync(descriptor)


def write_new(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file that is not there yet, and have it put on disk; what fails leaves no file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        write_synced(descriptor, data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


class DurableObjects(GitCmdObjectDB):  # type: ignore[misc]  # GitPython is not typed for us
    """GitPython's default object database, with what its `store` leaves out.

    That one starts a process per object, or renames a file into place that was never synced, and takes whatever has the
    right name for the object, torn or not.
    """

    def __init__(self, repository: Path) -> None:
        super().__init__(str(repository / "objects"), Git(str(repository)))
        self.repository = repository
        self._folders = repository / "objects"
        self._synced: set[str] = set()  # folders of ours whose own entry is on disk

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, kind: str, body: bytes) -> str:
        """Write an object and give its id; it is on disk then."""
        stored: IStream = self.store(IStream(kind, len(body), BytesIO(body)))
        return str(stored.hexsha.decode("ascii"))

    def store(self, istream: IStream) -> IStream:
        """Write an object (GitPython's interface); it is on disk then. OSError when it cannot be."""
        data = b"%s %d\0" % (_kind(istream.type), istream.size) + istream.read()
        istream.binsha = hashlib.sha1(data, usedforsecurity=False).digest()
        path = self._path(istream.binsha.hex())
        for tries_left in reversed(range(_TRIES)):
            try:
                if not self._keeps(path, istream.binsha.hex()):
                    self._put(path, data)
                self._sync_folder(path.parent)
                break
            except FileNotFoundError:
                self._synced.discard(path.parent.name)
                if not tries_left:
                    raise
        return istream

    def _keeps(self, path: Path, object_id: str) -> bool:
        """Have an object that has a file already put on disk too; one that a power cut has torn is taken away."""
        try:
            if self.loose(object_id) is None:
                return False
        except ArtifactStoreError:
            path.unlink()
            return False
        os.utime(path)  # as git does: `git gc` takes nothing away that is new
        sync_path(path)
        return True

    def _put(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f"tmp_obj_{token_hex(8)}")  # `git gc` sweeps what has such a name
        write_new(temporary, zlib.compress(data, _LEVEL), 0o444)
        temporary.rename(path)

    def _sync_folder(self, folder: Path) -> None:
        sync_path(folder)
        if folder.name not in self._synced:
            sync_path(self._folders)
            self._synced.add(folder.name)

    # -- reading ------------------------------------------------------------------------------------------------------

    def has_loose(self, object_id: str) -> bool:
        """Tell whether an object has a file of its own."""
        return self._path(object_id).exists()

    def loose(self, object_id: str) -> bytes | None:
        """Give the body of an object that has a file of its own; None when it has not."""
        try:
            descriptor = os.open(f"{self._folders}/{object_id[:2]}/{object_id[2:]}", os.O_RDONLY)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb") as file:  # noqa: PTH123  (thousands are read at a time)
            packed = file.read()
        try:
            data = zlib.decompress(packed)
        except zlib.error as fault:
            raise self._damaged(object_id, str(fault)) from fault
        return self._checked(object_id, data)

    def read(self, object_id: str) -> bytes:
        """Give the body of an object. ArtifactStoreError when it is missing or damaged."""
        return self.read_all([object_id])[object_id]

    def read_all(self, object_ids: Iterable[str]) -> Mapping[str, bytes]:
        """Give the bodies of objects; one git process reads all that are packed."""
        found = {object_id: self.loose(object_id) for object_id in object_ids}
        packed = [object_id for object_id, body in found.items() if body is None]
        found |= self._packed(packed) if packed else {}
        for object_id, body in found.items():
            if body is None:
                raise self._damaged(object_id, "it is missing")
        return {object_id: body for object_id, body in found.items() if body is not None}

    def missing(self, object_ids: Iterable[str]) -> list[str]:
        """Give those of the objects that are nowhere."""
        absent = [object_id for object_id in object_ids if not self.has_loose(object_id)]
        packed = self._packed(absent) if absent else {}
        return [object_id for object_id in absent if packed[object_id] is None]

    def first_parents(self, commit: str, known: str | None) -> list[str]:
        """Give a commit and its first parents, newest first, down to one that is known."""
        until = ["--not", known] if known else []
        return run_git(self.repository, "rev-list", "--first-parent", commit, *until).decode("ascii").split()

    def _packed(self, object_ids: list[str]) -> dict[str, bytes | None]:
        answer = run_git(
            self.repository, "cat-file", "--batch", "--buffer", given="\n".join(object_ids).encode("ascii")
        )
        found: dict[str, bytes | None] = {}
        at = 0
        for object_id in object_ids:
            end = answer.index(b"\n", at)
            words = answer[at:end].split(b" ")
            at = end + 1
            if words[-1] == b"missing":
                found[object_id] = None
            else:
                size = int(words[2])
                data = b"%s %d\0" % (words[1], size) + answer[at : at + size]
                found[object_id] = self._checked(object_id, data)
                at += size + 1
        return found

    def _checked(self, object_id: str, data: bytes) -> bytes:
        if hashlib.sha1(data, usedforsecurity=False).hexdigest() != object_id:
            raise self._damaged(object_id, "its content is not what its id says")
        return data[data.index(b"\0") + 1 :]

    def _path(self, object_id: str) -> Path:
        return self._folders / object_id[:2] / object_id[2:]

    def _damaged(self, object_id: str, how: str) -> ArtifactStoreError:
        return ArtifactStoreError(self.repository, f"object {object_id} is damaged ({how}); `git fsck` tells more")


def run_git(repository: Path, *arguments: str, given: bytes = b"") -> bytes:
    """Give what git prints. A hook's or a user's GIT_* variables, which may name another repository, are not passed on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = [Git.GIT_PYTHON_GIT_EXECUTABLE, f"--git-dir={repository}", "--no-replace-objects", *arguments]
    done = subprocess.run(  # noqa: S603  (the program is GitPython's; what is asked goes in as arguments of ours)
        command, input=given, capture_output=True, check=False, env=environment | {"LC_ALL": "C"}
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise ArtifactStoreError(repository, f"git {arguments[0]} failed: {said or f'exit code {done.returncode}'}")
    return done.stdout


def _kind(kind: str | bytes) -> bytes:
    return kind.encode("ascii") if isinstance(kind, str) else kind
