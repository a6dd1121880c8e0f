"""Writes files so that each is the old or the new one at every moment, and several are written all or none.

Takes a workspace held open (`beneath`) and contents by path. All contents are on disk under other names before the first gets its own; an
error after that puts back what was there. A crash between two names leaves some files new and some old: who does the same again is done
then. Names that a crash has left are taken away by the next write in that folder: who writes holds a lock on his.
"""

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import attrs

from dsa.edge.file_locks import try_lock
from machines.coding.tools.file_view import pieces_of
from machines.coding.tools.workspace_boundary import FOLDER, NEW, READ, Beneath, kind_of
from machines.coding.tools.workspace_paths import TEMPORARY, WorkspaceToolError, named

_OURS = re.compile(re.escape(TEMPORARY) + "[0-9a-f]{32}")


def temporary_name() -> str:
    """Return a name under which a file is written before it gets its own; `sweep` knows it."""
    return f"{TEMPORARY}{secrets.token_hex(16)}"


def refuse_unwritable(found: os.stat_result | None, parts: Sequence[str], twins: int = 0) -> None:
    """Raise ToolError where what stands at a path is not replaced. `twins` of its names are such as a process that died has left."""
    if found is None:
        return
    name = named(parts)
    if kind_of(found.st_mode) != "file":
        raise WorkspaceToolError("not_a_file", f"'{name}' is there and is no regular file: write another one")
    if found.st_nlink > 1 + twins:
        text = f"'{name}' has {found.st_nlink} hard links, so that it may be a file outside too: write another one"
        raise WorkspaceToolError("linked_file", text)
    if not found.st_mode & 0o222:
        raise WorkspaceToolError("read_only", f"'{name}' is marked as read-only: write another file")


def twins_of(folder: int, found: os.stat_result) -> int:
    """Count the names that an undo has left of a file when it died between giving it its own and taking the other one away."""
    names = (name for name in os.listdir(folder) if _OURS.fullmatch(name)) if found.st_nlink > 1 else ()
    twins = 0
    for name in names:
        with suppress(FileNotFoundError):
            twins += os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), found)
    return twins


def write_all(beneath: Beneath, contents: Mapping[tuple[str, ...], bytes]) -> None:
    """Write files, all or none, and make the folders they need.

    Raises ToolError for what a call can help: then nothing has changed. Raises OSError for what it cannot: then files are put back as far
    as the disk still lets us.
    """
    with ExitStack() as held, _undone_on_error() as undo:
        steps = _Steps(beneath, held, undo)
        staged = []
        for parts, content in contents.items():
            with beneath.explained(parts):
                staged.append(steps.stage(parts, content, alone=len(contents) == 1))
        for each in staged:
            with beneath.explained(each.parts):
                steps.take_name(each)
        for each in staged:
            with beneath.explained(each.parts):
                os.fsync(each.folder)


def settle(beneath: Beneath, files: Iterable[Sequence[str]]) -> None:
    """Finish what a write that died may have left undone: have the names that lead to files on disk, and take away what it left.

    Raises ToolError.
    """
    for parts in dict.fromkeys(tuple(file[:length]) for file in files for length in range(len(file))):
        with beneath.folder(parts) as folder, beneath.explained(parts):
            sweep(folder)
            os.fsync(folder)


@contextmanager
def _undone_on_error() -> Iterator[ExitStack]:
    """Collect what undoes each step; it is done, the last step first, when the steps end in an error."""
    undo = ExitStack()
    try:
        yield undo
    except BaseException:
        undo.close()
        raise
    undo.pop_all()


@attrs.frozen
class _StagedFile:
    """A content on disk under another name. `backup` has what the file holds now, where it may have to be put back."""

    folder: int
    parts: tuple[str, ...]
    temporary: str
    backup: str
    is_new: bool


@attrs.frozen
class _Steps:
    """The steps of one write: `held` lets go of descriptors and backups in the end, `undo` undoes the steps."""

    beneath: Beneath
    held: ExitStack
    undo: ExitStack
    folders: dict[tuple[str, ...], int] = attrs.field(factory=dict)

    def stage(self, parts: tuple[str, ...], content: bytes, *, alone: bool) -> _StagedFile:
        """Put a content on disk, and what it replaces: not where a file is written alone, for its name is the last step."""
        folder = self._folder(parts[:-1])
        sweep(folder)
        replaced = _found(folder, parts)
        temporary = self._put(folder, [content], replaced)
        backup = ""
        if replaced is not None and not alone:
            file = os.open(parts[-1], READ, dir_fd=folder)
            self.held.callback(os.close, file)
            backup = self._put(folder, pieces_of(file), replaced)
            self.held.callback(_unlink, folder, backup)  # also when all went well
        return _StagedFile(folder, parts, temporary, backup, replaced is None)

    def take_name(self, staged: _StagedFile) -> None:
        """Return a content its name."""
        name, folder = staged.parts[-1], staged.folder
        os.rename(staged.temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        if staged.backup:
            self.undo.callback(os.rename, staged.backup, name, src_dir_fd=folder, dst_dir_fd=folder)
        elif staged.is_new:
            self.undo.callback(_unlink, folder, name)

    def _folder(self, parts: tuple[str, ...]) -> int:
        """Open a folder, made if need be."""
        if parts not in self.folders:
            try:
                self.folders[parts] = self.held.enter_context(self.beneath.folder(parts))
            except WorkspaceToolError as error:
                if error.code != "no_such_file" or not parts:
                    raise
                self.folders[parts] = self._into(self._folder(parts[:-1]), parts[-1])
        return self.folders[parts]

    def _into(self, above: int, name: str) -> int:
        """Open a folder in a folder, made if it is not there."""
        with suppress(FileExistsError):  # then it is opened
            os.mkdir(name, dir_fd=above)
            self.undo.callback(_remove_folder, above, name)
            os.fsync(above)
        try:
            folder = os.open(name, FOLDER, dir_fd=above)
        except NotADirectoryError as error:  # so is a link
            found = os.stat(name, dir_fd=above, follow_symlinks=False)
            raise OSError(errno.ELOOP if stat.S_ISLNK(found.st_mode) else errno.ENOTDIR, error.strerror) from error
        self.held.callback(os.close, folder)
        return folder

    def _put(self, folder: int, content: Iterable[bytes], like: os.stat_result | None) -> str:
        """Write and sync a file under a name of its own; with the mode of the one that it replaces."""
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
        """Make a file, locked as long as we live: it is swept away by nobody."""
        while True:
            name = temporary_name()
            file = os.open(name, NEW, mode, dir_fd=folder)
            self.held.callback(os.close, file)
            self.undo.callback(_unlink, folder, name)
            if try_lock(file) and os.fstat(file).st_nlink:  # else somebody sweeps it away before it was locked
                return name, file


def _found(folder: int, parts: Sequence[str]) -> os.stat_result | None:
    """Return the file that will be replaced. Raises ToolError."""
    try:
        found = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, "a link")
    refuse_unwritable(found, parts)
    return found


def _remove_folder(above: int, name: str) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):  # somebody else has taken it away
        try:
            os.rmdir(name, dir_fd=above)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:  # somebody else uses it by now
                raise


def write_whole(file: int, content: bytes) -> None:
    """Write all bytes to an open file."""
    at = memoryview(content)
    while at:
        at = at[os.write(file, at) :]


def sweep(folder: int) -> None:
    """Take away what others have left in a folder that died while they wrote there."""
    for name in os.listdir(folder):
        if not _OURS.fullmatch(name):
            continue
        try:
            file = os.open(name, READ, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link, which nobody can hold: who still wants it makes another one
                _unlink(folder, name)
            elif error.errno not in (errno.ENOENT, errno.ENXIO, errno.EACCES):  # gone, or none of ours
                raise
            continue
        try:
            if stat.S_ISREG(os.fstat(file).st_mode) and try_lock(file):  # else somebody writes it now
                _unlink(folder, name)
        finally:
            os.close(file)


def _unlink(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
