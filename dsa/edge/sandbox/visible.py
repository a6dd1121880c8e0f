"""Which files of this machine code can read in the sandbox: Python, its library, the system's shared libraries. Nothing it could write."""

import functools
import os
import sys
import sysconfig
from pathlib import Path

import attrs

_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo")
_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime")
#: The folder of each call, as `inside.tree` has it, and what leads to it: where programs keep passing files, and the C library semaphores.
OWN = "/own"
_TO_OWN = ("/tmp", "/dev/shm")  # noqa: S108
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@attrs.frozen
class Visible:
    """Files and folders by their real paths, none below another; symbolic links that lead to them; devices."""

    paths: tuple[str, ...]
    links: dict[str, str]
    devices: tuple[str, ...]


def interpreter() -> str:
    """Give the real path of the Python that runs this, outside any virtual environment."""
    return os.path.realpath(sys.executable)


@functools.cache
def visible(more: tuple[str, ...] = ()) -> Visible:
    """Give what can be read; `more` are further folders."""
    library = [str(Path(path).parent.parent) for path in (os.__file__, sysconfig.get_config_var("DESTSHARED")) if path]
    wanted = [interpreter(), *library, *more, *_SYSTEM, *_FILES]
    links = {path: os.readlink(path) for path in wanted if os.path.islink(path)}  # noqa: PTH114, PTH115
    real = sorted({os.path.realpath(path) for path in wanted if Path(path).exists()})
    tops = [path for path in real if not any(path.startswith(f"{other}/") for other in real)]
    devices = tuple(path for path in _DEVICES if Path(path).exists())
    links |= {path: OWN for path in _TO_OWN if not any(top.startswith(f"{path}/") for top in tops)}
    outside = {path: to for path, to in links.items() if not any(path.startswith(f"{top}/") for top in tops)}
    return Visible(tuple(tops), outside, devices)
