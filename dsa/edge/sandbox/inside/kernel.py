"""System calls of Linux for which Python's library has no words, by ctypes. What fails raises OSError with the call's name."""

import ctypes
import os
import platform

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


def _checked(name: str, answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return answer


def system_call(name: str, number: int, *arguments: object) -> int:
    """Make a system call by its number."""
    return _checked(name, _libc.syscall(number, *arguments))


def unshare(flags: int) -> None:
    """Give this process namespaces of its own (unshare(2))."""
    _checked("unshare", _libc.unshare(flags))


def control(option: int, value: object, extra: object = 0) -> None:
    """Change something of this process (prctl(2))."""
    _checked("prctl", _libc.prctl(option, value, extra, 0, 0))


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount (mount(2))."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _checked(f"mount {target}", _libc.mount(*texts, ctypes.c_ulong(flags), options and options.encode()))


def protect(path: str, attributes: int, *, recursive: bool = False) -> None:
    """Set attributes of a mount, and of all below it (mount_setattr(2), Linux 5.12)."""
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    system_call(
        f"mount_setattr {path}", _MOUNT_SETATTR, _HERE, os.fsencode(path), _RECURSIVELY if recursive else 0,
        ctypes.byref(wanted), ctypes.sizeof(wanted),
    )  # fmt: skip


def make_root(path: str) -> None:
    """Make a mount the root of all files, and let go of the old one (pivot_root(2), its section "pivot_root(".", ".")")."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"pivot_root: its number on {platform.machine()} is not known")
    os.chdir(path)
    system_call("pivot_root", number, b".", b".")
    _checked("umount", _libc.umount2(b".", _DETACH))
    os.chdir("/")


def name_host(name: str) -> None:
    """Change the host's name, in a namespace of its own."""
    _checked("sethostname", _libc.sethostname(name.encode(), len(name)))


def drop_capabilities() -> None:
    """Give up all capabilities: the first process of a user namespace, and root, have them all."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    _checked("capset", _libc.capset(header, (ctypes.c_uint32 * 6)()))
