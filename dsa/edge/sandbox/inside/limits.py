"""Limits of one process, which it hands down to all that it starts (setrlimit(2))."""

import resource
import sys
from typing import Any

_LINUX = sys.platform == "linux"


def set_all(bounds: dict[str, Any]) -> None:
    """Bound the process; no bound may be raised again, and none is above what this process has itself."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: bounds["cpu_s"],
        resource.RLIMIT_AS: bounds["memory_bytes"],
        resource.RLIMIT_FSIZE: bounds["file_bytes"],
        resource.RLIMIT_NOFILE: bounds["open_files"],
        resource.RLIMIT_NPROC: bounds["processes"],
    }
    for kind, bound in wanted.items():
        most = resource.getrlimit(kind)[1]
        least = bound if most == resource.RLIM_INFINITY else min(bound, most)
        try:
            resource.setrlimit(kind, (least, least))
        except (OSError, ValueError):
            if _LINUX:
                raise
            continue  # macOS refuses some
