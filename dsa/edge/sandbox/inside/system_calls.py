"""System calls of Linux that Python's library does not have, through ctypes; Landlock; limits of a process, and the tree of processes below it.

A call that fails raises OSError with its name. With Landlock a process gives up access to files, TCP and other processes, for good (landlock(7)). It
limits what can be opened, made and removed. Names, sizes, modes and times of files outside stay visible and, for their owner, changeable; UDP and Unix
sockets are not covered. Limits pass to all processes that this one starts (setrlimit(2)).

Without `/proc` no descendants are found. In a process namespace of its own this does not matter, because the end of the first process ends all others.
"""

import contextlib
import ctypes
import os
import resource
import signal
import stat
import sys
import time
from collections.abc import Iterable

TYPE_CHECKING = False  # as in `typing`, which takes milliseconds to import, and this module runs for each command
if TYPE_CHECKING:
    from typing import Any

NEW_MOUNTS, NEW_HOSTNAME, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NETWORK = (
    0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
)  # CLONE_NEW...: linux/sched.h  # fmt: skip
NO_SUID, NO_DEVICES, BIND, RECURSIVE, PRIVATE = 2, 4, 4096, 16384, 1 << 18  # MS_...: linux/mount.h
READ_ONLY_ATTR, NO_SUID_ATTR, NO_DEVICES_ATTR = 1, 2, 4  # MOUNT_ATTR_...: linux/mount.h
DEATH_SIGNAL, DUMPABLE, SECCOMP, SUBREAPER, NO_NEW_PRIVILEGES = 1, 4, 22, 36, 38  # PR_SET_...: linux/prctl.h
_DETACH = 2
_HERE, _RECURSIVELY = -100, 0x8000  # AT_FDCWD, AT_RECURSIVE: linux/fcntl.h
_CAPABILITIES_V3 = 0x20080522  # linux/capability.h
_MOUNT_SETATTR = 442  # the same on every architecture
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _check_answer(name: str, answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return answer


def system_call(name: str, number: int, *arguments: object) -> int:
    """Make a system call by its number."""
    return _check_answer(name, _libc.syscall(number, *arguments))


def unshare(flags: int) -> None:
    """Move this process to new namespaces (unshare(2))."""
    _check_answer("unshare", _libc.unshare(flags))


def control(option: int, value: object, extra: object = 0) -> None:
    """Change a setting of this process (prctl(2))."""
    _check_answer("prctl", _libc.prctl(option, value, extra, 0, 0))


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount a file system or a path (mount(2))."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check_answer(f"mount {target}", _libc.mount(*texts, ctypes.c_ulong(flags), options and options.encode()))


def protect(path: str, attributes: int, *, recursive: bool = False) -> None:
    """Set attributes of a mount, and of all below it (mount_setattr(2), Linux 5.12)."""
    request = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    system_call(
        f"mount_setattr {path}", _MOUNT_SETATTR, _HERE, os.fsencode(path), _RECURSIVELY if recursive else 0,
        ctypes.byref(request), ctypes.sizeof(request),
    )  # fmt: skip


def make_root(path: str) -> None:
    """Make a mount the root of all files, and unmount the old root (pivot_root(2), its section "pivot_root(".", ".")")."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root: its number on {os.uname().machine} is not known")
    os.chdir(path)
    system_call("pivot_root", number, b".", b".")
    _check_answer("umount", _libc.umount2(b".", _DETACH))
    os.chdir("/")


def name_host(name: str) -> None:
    """Change the host's name, in a namespace of its own."""
    _check_answer("sethostname", _libc.sethostname(name.encode(), len(name)))


def drop_capabilities() -> None:
    """Give up all capabilities: the first process of a user namespace, and root, have them all."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    _check_answer("capset", _libc.capset(header, (ctypes.c_uint32 * 6)()))


SIGNALS_ABI = 6  #: from this version on, signals to others and abstract Unix sockets can be blocked too
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture
_VERSION, _PATH_BENEATH = 1, 1
_READ = 0b1101  # execute, read files, read folders
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # what a rule about a file may grant
_SINCE = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP_ABI, _TCP, _SIGNALS = 4, 0b11, 0b11


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Return the kernel's version of Landlock; 0 if it has none, or it is switched off."""
    try:
        return system_call("landlock_create_ruleset", _CREATE, None, ctypes.c_size_t(0), _VERSION)
    except OSError:
        return 0


def restrict(readable: Iterable[int], writable: Iterable[int]) -> None:
    """Restrict this process, and everything that it starts, to what lies below these open files. It must have given up new privileges."""
    version = abi()
    files = _SINCE[max(since for since in _SINCE if since <= version)]
    request = (ctypes.c_uint64 * 3)(
        files, _TCP if version >= _TCP_ABI else 0, _SIGNALS if version >= SIGNALS_ABI else 0
    )
    size = 8 * (1 + (version >= _TCP_ABI) + (version >= SIGNALS_ABI))
    ruleset = system_call("landlock_create_ruleset", _CREATE, ctypes.byref(request), ctypes.c_size_t(size), 0)
    for rights, openings in ((_READ, readable), (files, writable)):
        for file in openings:
            fits = files if stat.S_ISDIR(os.fstat(file).st_mode) else _FILE & files
            rule = _Rule(rights & fits, file)
            system_call("landlock_add_rule", _ADD, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    system_call("landlock_restrict_self", _RESTRICT, ruleset, 0)
    os.close(ruleset)


_LINUX = sys.platform == "linux"
_BY_BOUND = {
    "cpu_s": resource.RLIMIT_CPU,
    "memory_bytes": resource.RLIMIT_AS,
    "file_bytes": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}
#: No call needs these: core files, locked memory, message queues, and priority over others. macOS lacks some of them.
_NONE = ("RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO")


def lowered_bounds(bounds: "dict[str, Any]") -> dict[str, int]:
    """Return the bounds, by name, that are lower than requested because this process may not have more itself."""
    most = {name: resource.getrlimit(kind)[1] for name, kind in _BY_BOUND.items()}
    return {name: limit for name, limit in most.items() if limit != resource.RLIM_INFINITY and limit < bounds[name]}


def set_all(bounds: "dict[str, Any]") -> None:
    """Set the limits of this process, for good; none is above its present limit. Raises OSError, which names the limit."""
    for name, kind in _BY_BOUND.items():
        _set(name, kind, bounds[name])
    for name in _NONE:
        if hasattr(resource, name):
            _set(name, getattr(resource, name), 0)


def _set(name: str, kind: int, limit: int) -> None:
    most = resource.getrlimit(kind)[1]
    least = limit if most == resource.RLIM_INFINITY else min(limit, most)
    try:
        resource.setrlimit(kind, (least, least))
    except (OSError, ValueError, OverflowError) as error:
        if _LINUX:  # macOS refuses some
            raise OSError(f"the limit {name} = {limit} cannot be set: {error}; use another value") from error


# --- the tree of processes below this one ---

_SWEEP_S = 1.5


def wakeup_file() -> int:
    """Return a file that is readable whenever a child has ended. SIGINT is ignored from here on: children could send it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return reader


def sweep() -> None:
    """Kill all processes that this one has started; it has adopted children of dead parents (subreaper).

    All are stopped before any is killed; otherwise a process that keeps forking could stay ahead for ever.
    """
    stopped_ids: set[int] = set()
    give_up = time.monotonic() + _SWEEP_S
    while (running_ids := descendants(os.getpid()) - stopped_ids) and time.monotonic() < give_up:
        for child in running_ids:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGSTOP)
        stopped_ids |= running_ids
    while time.monotonic() < give_up:
        for child in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def descendants(process: int) -> set[int]:
    """Return the children of a process, and all their descendants."""
    ids: set[int] = set()
    unvisited_ids = children(process)
    while unvisited_ids:
        child = unvisited_ids.pop()
        if child not in ids:
            ids.add(child)
            unvisited_ids += children(child)
    return ids


def children(process: int) -> list[int]:
    """Return the children of all threads of a process."""
    ids: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208  # pathlib is slow to import
            with open(f"/proc/{process}/task/{task}/children", "rb") as file:  # noqa: PTH123
                ids += [int(pid) for pid in file.read().split()]
    return ids
