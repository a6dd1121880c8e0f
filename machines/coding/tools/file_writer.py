"""The writer: writes each file as a whole, and several files all or none.

`write_all` takes an open workspace (`beneath`) and contents by path. First all contents are on disk under temporary names, then they get their own names; an
error after that restores the old contents. A crash in between leaves some files new and some old, and repeating the call completes it. `sweep` removes the
temporary files of a crash at the next write in the folder; a running writer holds a lock on its own.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import attrs

from dsa.edge.files import try_lock
from dsa.errors import ToolError
from machines.coding.tools.file_view import pieces_of
from machines.coding.tools.workspace_boundary import FOLDER, NEW, READ, TEMPORARY, Beneath, kind_of, path_text

_OURS = re.compile(re.escape(TEMPORARY) + "[0-9a-f]{32}")


def temporary_name() -> str:
    """Return a temporary name for a file, which `sweep` recognises."""
    return f"{TEMPORARY}{secrets.token_hex(16)}"


def refuse_unwritable(status: os.stat_result | None, parts: Sequence[str], twins: int = 0) -> None:
    """Raise ToolError for a file that is not replaced. `twins` of its names are left over from a process that died."""
    if status is None:
        return
    name = path_text(parts)
    if kind_of(status.st_mode) != "file":
        raise ToolError(f"'{name}' is not a regular file: write another file", code="not_a_file")
    if status.st_nlink > 1 + twins:
        text = f"'{name}' has {status.st_nlink} hard links, so it may also be a file outside of the workspace: write another file"
        raise ToolError(text, code="linked_file")
    if not status.st_mode & 0o222:
        raise ToolError(f"'{name}' is marked as read-only: write another file", code="read_only")


def twins_of(folder: int, status: os.stat_result) -> int:
    """Return how many temporary names of a file an undo has left when it died after linking the file to its own name."""
    names = (name for name in os.listdir(folder) if _OURS.fullmatch(name)) if status.st_nlink > 1 else ()
    twins = 0
    for name in names:
        with suppress(FileNotFoundError):
            twins += os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), status)
    return twins


def write_all(beneath: Beneath, contents: Mapping[tuple[str, ...], bytes]) -> None:
    """Write files, all or none, and create their folders.

    Raises ToolError for a fault of the call: then nothing has changed. Raises OSError for other faults: then the old files are restored as far as the disk
    permits.
    """
    with ExitStack() as cleanup, _undo_on_error() as undo:
        steps = _Steps(beneath, cleanup, undo)
        staged_files = []
        for parts, content in contents.items():
            with beneath.explain_errors(parts):
                staged_files.append(steps.stage(parts, content, alone=len(contents) == 1))
        for each in staged_files:
            with beneath.explain_errors(each.parts):
                steps.take_name(each)
        for each in staged_files:
            with beneath.explain_errors(each.parts):
                os.fsync(each.folder)


def settle(beneath: Beneath, files: Iterable[Sequence[str]]) -> None:
    """Finish the work of a write that died: sync the folders of the files, and remove its temporary files. Raises ToolError."""
    for parts in dict.fromkeys(tuple(file[:length]) for file in files for length in range(len(file))):
        with beneath.folder(parts) as folder, beneath.explain_errors(parts):
            sweep(folder)
            os.fsync(folder)


@contextmanager
def _undo_on_error() -> Iterator[ExitStack]:
    """Collect the undo of each step; after an error the steps are undone, the last one first."""
    undo = ExitStack()
    try:
        yield undo
    except BaseException:
        undo.close()
        raise
    undo.pop_all()


@attrs.frozen
class _StagedFile:
    """A content on disk under a temporary name. `backup` is a copy of the old file, if it may have to be restored."""

    folder: int
    parts: tuple[str, ...]
    temporary: str
    backup: str
    is_new: bool


@attrs.frozen
class _Steps:
    """The steps of one write: `cleanup` closes descriptors and removes backups at the end, `undo` undoes the steps."""

    beneath: Beneath
    cleanup: ExitStack
    undo: ExitStack
    folders: dict[tuple[str, ...], int] = attrs.field(factory=dict)

    def stage(self, parts: tuple[str, ...], content: bytes, *, alone: bool) -> _StagedFile:
        """Write a content to disk, and a backup of the old file unless it is the only one: its rename is then the last step."""
        folder = self._folder(parts[:-1])
        sweep(folder)
        old_status = _replaced_status(folder, parts)
        temporary = self._put(folder, [content], old_status)
        backup = ""
        if old_status is not None and not alone:
            file = os.open(parts[-1], READ, dir_fd=folder)
            self.cleanup.callback(os.close, file)
            backup = self._put(folder, pieces_of(file), old_status)
            self.cleanup.callback(_unlink, folder, backup)  # also after success
        return _StagedFile(folder, parts, temporary, backup, old_status is None)

    def take_name(self, staged_file: _StagedFile) -> None:
        """Rename a content to its own name."""
        name, folder = staged_file.parts[-1], staged_file.folder
        os.rename(staged_file.temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        if staged_file.backup:
            self.undo.callback(os.rename, staged_file.backup, name, src_dir_fd=folder, dst_dir_fd=folder)
        elif staged_file.is_new:
            self.undo.callback(_unlink, folder, name)

    def _folder(self, parts: tuple[str, ...]) -> int:
        """Open a folder, and create it if it is missing."""
        if parts not in self.folders:
            try:
                self.folders[parts] = self.cleanup.enter_context(self.beneath.folder(parts))
            except ToolError as error:
                if error.code != "no_such_file" or not parts:
                    raise
                self.folders[parts] = self._into(self._folder(parts[:-1]), parts[-1])
        return self.folders[parts]

    def _into(self, above: int, name: str) -> int:
        """Open a folder in a folder, and create it if it is missing."""
        with suppress(FileExistsError):  # it exists: open it
            os.mkdir(name, dir_fd=above)
            self.undo.callback(_remove_folder, above, name)
            os.fsync(above)
        try:
            folder = os.open(name, FOLDER, dir_fd=above)
        except NotADirectoryError as error:  # so is a link
            status = os.stat(name, dir_fd=above, follow_symlinks=False)
            raise OSError(errno.ELOOP if stat.S_ISLNK(status.st_mode) else errno.ENOTDIR, error.strerror) from error
        self.cleanup.callback(os.close, folder)
        return folder

    def _put(self, folder: int, content: Iterable[bytes], like: os.stat_result | None) -> str:
        """Write and sync a file under a temporary name, with the mode of the file that it replaces."""
        name, file = self._new(folder, 0o666 if like is None else 0o600)
        for piece in content:
            write_whole(file, piece)
        if like is not None:
            own = os.fstat(file)
            if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
                with suppress(PermissionError):  # then it becomes ours, as with any editor
                    os.fchown(file, like.st_uid, like.st_gid)
            os.fchmod(file, stat.S_IMODE(like.st_mode) & 0o777)
        os.fsync(file)
        return name

    def _new(self, folder: int, mode: int) -> tuple[str, int]:
        """Create a file with a lock, so that nobody sweeps it."""
        while True:
            name = temporary_name()
            file = os.open(name, NEW, mode, dir_fd=folder)
            self.cleanup.callback(os.close, file)
            self.undo.callback(_unlink, folder, name)
            if try_lock(file) and os.fstat(file).st_nlink:  # otherwise it was swept before the lock
                return name, file


def _replaced_status(folder: int, parts: Sequence[str]) -> os.stat_result | None:
    """Return the status of the file to replace, or None. Raises ToolError."""
    try:
        status = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "a link")
    refuse_unwritable(status, parts)
    return status


def _remove_folder(above: int, name: str) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):  # another process has removed it
        try:
            os.rmdir(name, dir_fd=above)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # another process uses it
                raise


def write_whole(file: int, content: bytes) -> None:
    """Write all bytes to an open file."""
    at = memoryview(content)
    while at:
        at = at[os.write(file, at) :]


def sweep(folder: int) -> None:
    """Remove the temporary files of dead writers in a folder."""
    for name in os.listdir(folder):
        if not _OURS.fullmatch(name):
            continue
        try:
            file = os.open(name, READ, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link cannot be locked: its writer makes another one
                _unlink(folder, name)
            elif error.errno not in (errno.ENOENT, errno.ENXIO, errno.EACCES):  # gone, or not ours
                raise
            continue
        try:
            if stat.S_ISREG(os.fstat(file).st_mode) and try_lock(file):  # otherwise its writer is alive
                _unlink(folder, name)
        finally:
            os.close(file)


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
