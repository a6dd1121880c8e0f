"""Probes of this machine: file systems, syncs, locks and programs.

Each fact is found by trying, not by guessing. A probe removes what it makes, and nothing that it starts outlives it.
"""

import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import attrs

from dsa.edge.files import try_lock
from dsa.errors import DsaError

_NETWORK = frozenset(
    {"9p", "afs", "ceph", "cifs", "coda", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)
_NETWORK_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_SYNCS, _BLOCK = 9, b"\0" * 4096
_TIME_LIMIT_S = 10


@attrs.frozen
class Folder:
    """The file system below a folder. `kind` is its name, empty where the system does not say; `fault` says why nothing can be stored there.

    `sync_ms` is the median time that writing 4096 bytes and syncing them takes, in milliseconds.
    """

    path: Path
    kind: str = ""
    sync_ms: float = 0.0
    locks: bool = False
    fault: str = ""

    @property
    def is_network(self) -> bool:
        """Return whether other machines may use it too, which a ledger's locks and shared memory do not survive."""
        return self.kind in _NETWORK or self.kind.startswith(_NETWORK_FUSE)

    @property
    def is_in_memory(self) -> bool:
        """Return whether it is gone when the machine stops."""
        return self.kind in _IN_MEMORY


def folder(path: Path) -> Folder:
    """Try a folder, or the nearest existing one above it: write, sync, lock, and remove what was written."""
    there = path.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return Folder(path, fault=f"{there} is not a folder")
    kind = file_system(there)
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".dsa-doctor-") as file:
            times = [_synced_ms(file.fileno()) for _ in range(_SYNCS)]
            try_lock(file.fileno())
            with open(file.name, "rb") as other:  # noqa: PTH123
                locks = not try_lock(other.fileno())
    except OSError as fault:
        return Folder(path, kind, fault=f"nothing can be written and synced in {there}: {fault.strerror or fault}")
    except DsaError as fault:
        return Folder(path, kind, fault=str(fault))
    return Folder(path, kind, statistics.median(times), locks)


def _synced_ms(file: int) -> float:
    began = time.perf_counter()
    os.write(file, _BLOCK)
    os.fsync(file)
    return (time.perf_counter() - began) * 1000


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the kernel's name of the file system that a path is on; empty where it does not say (proc_pid_mountinfo(5))."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    kind, longest = "", -1
    where = str(path.resolve())
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode("latin-1", "replace").decode("unicode_escape")  # blanks stand there as \040
        if len(point) >= longest and f"{where}/".startswith(point.rstrip("/") + "/"):
            kind, longest = after.split()[0], len(point)
    return kind


# -- programs, and who listens ----------------------------------------------------------------------------------------


@attrs.frozen
class InstalledProgram:
    """An installed program: its path, and the first line that it prints about its version; `fault` says why it does not run."""

    path: str
    version: str = ""
    fault: str = ""


def program(names: tuple[str, ...], *flags: str) -> InstalledProgram | None:
    """Find the first of these programs that is installed, and ask it for its version; None when there is none."""
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        return None
    try:
        result = subprocess.run(  # noqa: S603
            [path, *flags], capture_output=True, text=True, errors="replace", timeout=_TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return InstalledProgram(path, fault=f"it does not run: {fault}")
    lines = [line.strip() for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    if result.returncode != 0:
        return InstalledProgram(
            path, fault=f"it does not run (exit {result.returncode}): {lines[0] if lines else 'it says nothing'}"
        )
    return InstalledProgram(path, lines[0] if lines else "")


def listens(address: str) -> bool:
    """Return whether somebody takes connections at the host and port of an address."""
    parts = urlsplit(address)
    try:
        with socket.create_connection(
            (parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)), 1
        ):
            return True
    except (OSError, ValueError):
        return False
