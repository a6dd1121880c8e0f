"""A disk that forgets what was not synced: the calls of a store are recorded, and any power cut among them is played.

What a cut may leave is taken from what POSIX promises, not from what one file system does: a file's data is there once the
file was synced, a name in a folder once the folder was; of everything younger each part may be there or not, data also torn.
"""

import contextlib
import os
from pathlib import Path

from os_calls import handled


class File:
    """Data, and the data that is on disk; None until it was ever synced."""

    def __init__(self):
        self.data, self.synced, self.mode = bytearray(), None, 0


class Folder:
    """Names, and the names that are on disk."""

    def __init__(self):
        self.names, self.synced = {}, {}


class Disk:
    """Follows every change below a folder, from an empty one on. `cut` is called after each."""

    def __init__(self, root, cut):
        self.root, self.top, self.open, self.cut, self.changes = Path(root), Folder(), {}, cut, 0
        self.last = None  # the call that was made last, and the name of what it was made on

    def recorded(self):
        """Follow the calls made in a with block."""
        return handled(self._handle)

    def _handle(self, name, arguments, perform):
        result = perform()
        follow = getattr(self, f"_{name}", None)
        if follow is not None and follow(result, *arguments) is not False:
            self.changes += 1
            self.last = (name, Path(arguments[-1]).name if isinstance(arguments[-1], Path) else "")
            self.cut(self)
        return result

    def _find(self, path):
        """Give the folder that has a path, and the last name; None when it lies elsewhere."""
        path = Path(path)
        if not path.is_relative_to(self.root):
            return None
        node, (*parts, last) = self.top, path.relative_to(self.root).parts
        for part in parts:
            node = node.names[part]
        return node, last

    def _open(self, descriptor, path, flags, *_):
        place = self._find(path)
        if place is None:
            return False
        folder, name = place
        self.open[descriptor] = folder.names.setdefault(name, File())
        self.open[descriptor].mode = os.fstat(descriptor).st_mode

    def _write(self, size, descriptor, data):
        if descriptor not in self.open:
            return False
        self.open[descriptor].data += bytes(data[:size])

    def _close(self, _, descriptor):
        self.open.pop(descriptor, None)
        return False

    def _fsync(self, _, descriptor):
        node = self.open.get(descriptor) or self._behind(descriptor)
        if isinstance(node, File):
            node.synced = bytes(node.data)
        else:
            node.synced = dict(node.names)

    def _behind(self, descriptor):
        """Give what was opened for reading, so that nobody was told: the system knows its path."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path == self.root:
            return self.top
        folder, name = self._find(path)
        return folder.names[name]

    def _mkdir(self, _, path, *__):
        place = self._find(path)
        if place is None:
            return False
        place[0].names[place[1]] = Folder()

    def _unlink(self, _, path):
        folder, name = self._find(path)
        del folder.names[name]

    def _rename(self, _, old, new):
        (source, name), (target, other) = self._find(old), self._find(new)
        target.names[other] = source.names.pop(name)

    def _link(self, _, old, new, **__):
        (source, name), (target, other) = self._find(old), self._find(new)
        target.names[other] = source.names[name]

    def write_image(self, folder, keeps):
        """Write what a cut leaves now. `keeps()` says of each change that was not synced whether it is there all the same."""
        seen = {}

        def data_of(file):
            if id(file) not in seen:
                young = bytes(file.data)
                kept = young if keeps() else young[: len(young) // 2] if keeps() else b""
                seen[id(file)] = file.synced if file.synced is not None and file.synced == young else kept
            return seen[id(file)]

        def write(node, path):
            path.mkdir()
            for name in sorted({*node.names, *node.synced}):
                young, old = node.names.get(name), node.synced.get(name)
                kept = young if young is old or keeps() else old
                if isinstance(kept, Folder):
                    write(kept, path / name)
                elif kept is not None:
                    (path / name).write_bytes(data_of(kept))
                    (path / name).chmod(kept.mode & 0o777)

        write(self.top, Path(folder))


@contextlib.contextmanager
def played(root, cut):
    """Record what happens below a folder, which must be empty; `cut(disk)` is called after each change."""
    assert not any(Path(root).iterdir())
    disk = Disk(root, cut)
    with disk.recorded():
        yield disk
