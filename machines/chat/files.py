"""The bytes of artifacts and tables, by their content: on the disk before anybody speaks of them.

Takes bytes, gives their SHA-256; a file that is there already is not written again. `shown` puts artifacts under their names, for people.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from machines.chat.inventory import Artifact

#: The folder of artifacts under their names, in the folder of a run.
NAMED = "files"


class Files:
    """Contents in a folder, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._contents = folder, folder / "contents"
        self._shown = 0

    def keep(self, content: bytes) -> str:
        """Keep bytes, and give their SHA-256; they are durable when this returns. OSError when they cannot be written."""
        digest = hashlib.sha256(content).hexdigest()
        path = self._contents / digest
        if not path.exists():
            self._contents.mkdir(parents=True, exist_ok=True)
            _write(path, content)
        return digest

    def content(self, digest: str) -> bytes:
        """Give bytes by their SHA-256. OSError when they are not there, ValueError when they are not what they were."""
        content = (self._contents / digest).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"the file {self._contents / digest} is not what was written")
        return content

    def path(self, digest: str) -> Path:
        """Give where bytes are kept."""
        return self._contents / digest

    def shown(self, artifacts: Iterable[Artifact]) -> None:
        """Put artifacts under their names, each once; it looks at those that were added since the last time."""
        for artifact in islice(artifacts, self._shown, None):
            path = self.named(artifact)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, self.content(artifact.digest))
            self._shown += 1

    def named(self, artifact: Artifact) -> Path:
        """Give where people find an artifact."""
        return self._folder / NAMED / artifact.file_name


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and make it durable."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105  (what mkstemp gives is a text)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
