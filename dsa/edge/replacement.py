"""The replacement of a file: afterwards it has the whole new content, or is as it was.

The new content is written to a file beside it, synced, and renamed in one step. A power cut may leave the old content, never half of the new.
"""

import os
import stat
import tempfile
from pathlib import Path

from dsa.errors import DocumentError

_NEW_FILE = 0o666


def replace_file(path: Path, content: bytes, before: bytes | None) -> None:
    """Replace a file that was read as `before`, or make one that did not exist (None). A link stays; the file that it leads to is replaced.

    Raises DocumentError, and changes nothing, when the file may not be written or has changed since it was read; OSError when writing fails.
    """
    target = path.resolve()
    if _content(target) != before:
        raise DocumentError(str(path), "somebody changed it in the meantime; nothing was written; try again")
    if before is not None and not os.access(target, os.W_OK):
        raise DocumentError(str(path), "the file may not be written")
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_mode(target))
        os.replace(temporary, target)  # noqa: PTH105  (what mkstemp gives is a text)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _mode(path: Path) -> int:
    """Return the permissions of a file; of one that is not there, those that a new one gets."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return _NEW_FILE & ~mask
