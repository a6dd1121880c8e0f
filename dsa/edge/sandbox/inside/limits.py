"""Limits of one process, which it hands down to all that it starts (setrlimit(2))."""

import resource
import sys
from typing import Any

_LINUX = sys.platform == "linux"
_BY_BOUND = {
    "cpu_s": resource.RLIMIT_CPU,
    "memory_bytes": resource.RLIMIT_AS,
    "file_bytes": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}
#: Nobody needs these: core files, locked memory, message queues, and being ahead of others. macOS has not all of them.
_NONE = ("RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO")


class LimitError(OSError):
    """A limit that cannot be set: says which, why, and what to do."""


def lowered(bounds: dict[str, Any]) -> dict[str, int]:
    """Return the bounds that are less than was asked for, by name: this process may not have more itself."""
    most = {name: resource.getrlimit(kind)[1] for name, kind in _BY_BOUND.items()}
    return {name: bound for name, bound in most.items() if bound != resource.RLIM_INFINITY and bound < bounds[name]}


def set_all(bounds: dict[str, Any]) -> None:
    """Bound the process; no bound may be raised again, and none is above what this process has itself. Raises LimitError."""
    for name, kind in _BY_BOUND.items():
        _set(name, kind, bounds[name])
    for name in _NONE:
        if hasattr(resource, name):
            _set(name, getattr(resource, name), 0)


def _set(name: str, kind: int, bound: int) -> None:
    most = resource.getrlimit(kind)[1]
    least = bound if most == resource.RLIM_INFINITY else min(bound, most)
    try:
        resource.setrlimit(kind, (least, least))
    except (OSError, ValueError, OverflowError) as error:
        if _LINUX:  # macOS refuses some
            raise LimitError(f"the limit {name} = {bound} cannot be set: {error}; ask for another one") from error
