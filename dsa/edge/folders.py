"""Folders whose names are on the disk: whoever syncs a file has still to have the names synced that lead to it.

Takes paths, gives folders and syncs them. It knows nothing of what they hold.
"""

import os
from collections.abc import Iterator
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Have the names that stand in a folder put on disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def folders_above(path: Path) -> Iterator[Path]:
    """Give the folders that hold the names which lead to a path, the nearest first, up to the top of its file system.

    One that may not be read is the end too: nobody who may not read it has made what leads on from there.
    """
    device = path.stat().st_dev
    for folder in path.resolve().parents:
        if folder.stat().st_dev != device or not os.access(folder, os.R_OK):
            return
        yield folder
