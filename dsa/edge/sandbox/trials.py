"""Attacks that features must withstand: run in the sandbox by `probe`, as text, so it imports the standard library only.

Reports the names of the features that did not hold.
"""

import colorsys  # noqa: F401  # a module that nobody imports beforehand: the library must be there
import ctypes
import json
import os
import resource
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

_NEW_USER = 0x10000000


def run(payload: str, result_fd: int) -> None:
    """Try everything, tell what worked."""
    targets = json.loads(payload)
    broken = {
        "no files outside": _works(lambda: _open(targets["secret"]))
        or _works(lambda: _make(f"{targets['folder']}/made")),
        "own file tree": os.path.exists(targets["folder"]),  # noqa: PTH110  # as it is attacked
        "no network": any(_works(partial(_connect, *each)) for each in _addresses(targets)),
        "own processes": _works(lambda: os.kill(targets["pid"], 0)),
        "no environments": _works(lambda: _open(f"/proc/{targets['pid']}/environ")),
        "own user": os.getuid() == 0,
        "no privileges": _works(lambda: os.setuid(0 if os.getuid() else 1)) or _works(lambda: os.chroot(".")),
        "filtered system calls": ctypes.CDLL(None).unshare(_NEW_USER) == 0,
        "bounded disk": not 0 < os.statvfs(".").f_blocks * os.statvfs(".").f_frsize < 1 << 30,
        "bounded processor time": _is_unlimited(resource.RLIMIT_CPU),
        "bounded memory": _works(lambda: bytearray(1 << 32)),
        "bounded files": _is_unlimited(resource.RLIMIT_FSIZE),
        "bounded open files": _works(lambda: [os.dup(result_fd) for _ in range(1000)]),
        "bounded processes": _is_unlimited(resource.RLIMIT_NPROC),
    }
    text = json.dumps([name for name, is_broken in broken.items() if is_broken])
    os.write(result_fd, text.encode())


def _works(attack: Callable[[], Any]) -> bool:
    try:
        attack()
    except (OSError, MemoryError):
        return False
    return True


def _open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _make(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def _addresses(targets: dict[str, Any]) -> list[tuple[int, int, Any]]:
    found: list[tuple[int, int, Any]] = [(socket.AF_UNIX, socket.SOCK_STREAM, f"{targets['folder']}/s")]
    if "tcp" in targets:
        found += [
            (socket.AF_INET, kind, ("127.0.0.1", targets["tcp"])) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        ]
    return found


def _connect(family: int, kind: int, address: Any) -> None:  # noqa: ANN401  # as the family has it
    with socket.socket(family, kind) as one:
        one.settimeout(1)
        one.connect(address)


def _is_unlimited(kind: int) -> bool:
    return resource.getrlimit(kind)[0] == resource.RLIM_INFINITY
