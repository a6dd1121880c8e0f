"""Attacks that the sandbox's features must withstand. `command_sandbox` runs this file as text, so it imports the standard library only.

It reports the features that did not hold, each with the families of system calls that broke it. The arguments of these calls are
harmless, even if they get through. They count as stopped if the kernel refuses them as not permitted or unknown, without looking at the arguments.
"""

import colorsys  # noqa: F401  # a module that nobody imports beforehand: the library must be there
import ctypes
import errno
import json
import mmap
import os
import platform
import resource
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

#: A call: its name, its numbers on x86-64 and on 64-bit ARM (-1: none), its arguments; `judge` is the process that runs the trial.
Call = tuple[str, int, int, tuple[int | str, ...]]
_MEMORY, _FILTERED_CALLS = "bounded memory", "filtered system calls"
#: Families of calls that code must not reach on a rung that filters: the feature that fails if it does, and the calls to try.
FAMILIES: dict[str, tuple[str, tuple[Call, ...]]] = {
    "System V memory": (_MEMORY, (
        ("shmget", 29, 194, (0, 0, 0)), ("shmat", 30, 196, (-1, 0, 0)), ("shmctl", 31, 195, (-1, 0, 0)), ("shmdt", 67, 197, (-1,)),
    )),
    "memory behind files without a name": (_MEMORY, (("memfd_create", 319, 279, (0, 0)), ("memfd_secret", 447, 447, (-1,)))),
    "locked memory": (_MEMORY, (("mlock", 149, 228, (0, 0)), ("mlock2", 325, 284, (0, 0, 0)), ("mlockall", 151, 230, (0,)))),
    "huge pages": (_MEMORY, (("mmap MAP_HUGETLB", 9, 222, (0, 0, 0, 0x40022, -1, 0)),)),
    "pages kept in pipes": (_MEMORY, (
        ("vmsplice", 278, 75, (-1, 0, 0, 0)), ("splice", 275, 76, (-1, 0, -1, 0, 0, 0)), ("tee", 276, 77, (-1, -1, 0, 0)),
    )),
    "asynchronous input and output": (_FILTERED_CALLS, (("io_setup", 206, 0, (0, 0)), ("io_uring_setup", 425, 425, (0, 0)))),
    "System V queues and semaphores": (_FILTERED_CALLS, (
        ("semget", 64, 190, (0, -1, 0)), ("semop", 65, 193, (-1, 0, 0)), ("msgget", 68, 186, (0x7FFFFFFF, 0)), ("msgsnd", 69, 189, (-1, 0, 0, 0)),
    )),
    "POSIX queues": (_FILTERED_CALLS, (("mq_open", 240, 180, (0, 0, 0, 0)), ("mq_unlink", 241, 181, (0,)))),
    "keyrings": (_FILTERED_CALLS, (
        ("add_key", 248, 217, (0, 0, 0, 0, 0)), ("request_key", 249, 218, (0, 0, 0, 0)), ("keyctl", 250, 219, (-1, 0, 0, 0, 0)),
    )),
    "priorities": (_FILTERED_CALLS, (
        ("setpriority", 141, 140, (0, "judge", "nice")), ("setpriority PRIO_USER", 141, 140, (2, 0, "nice")),
        ("sched_setscheduler", 144, 119, ("judge", -1, 0)), ("sched_setparam", 142, 118, ("judge", 0)),
        ("sched_setattr", 314, 274, ("judge", 0, 0)), ("sched_setaffinity", 203, 122, ("judge", 0, 0)),
        ("ioprio_set", 251, 30, (-1, "judge", 0)), ("prctl PR_SCHED_CORE", 157, 167, (62, 0, "judge", 0, 0)),
    )),
    "where memory lies": (_FILTERED_CALLS, (
        ("mbind", 237, 235, (0, 0, -1, 0, 0, 0)), ("set_mempolicy", 238, 237, (-1, 0, 0)),
        ("migrate_pages", 256, 238, ("judge", 0, 0, 0)), ("move_pages", 279, 239, ("judge", 0, 0, 0, 0, 0)),
    )),
    "limits of other processes": (_FILTERED_CALLS, (("prlimit64", 302, 261, ("judge", 7, 0, 0)),)),
    "memory of other processes": (_FILTERED_CALLS, (
        ("ptrace", 101, 117, (2, "judge", 0, 0)), ("process_vm_readv", 310, 270, ("judge", 0, 0, 0, 0, 0)),
        ("process_vm_writev", 311, 271, ("judge", 0, 0, 0, 0, 0)), ("process_madvise", 440, 440, (-1, 0, 0, 0, 0)),
        ("kcmp", 312, 272, ("judge", "judge", 0, 0, 0)), ("userfaultfd", 323, 282, (-1,)),
    )),
    "handles of other processes": (_FILTERED_CALLS, (
        ("pidfd_open", 434, 434, ("judge", -1)), ("pidfd_send_signal", 424, 424, (-1, 0, 0, 0)), ("pidfd_getfd", 438, 438, (-1, -1, 0)),
    )),
    "signals that carry data": (_FILTERED_CALLS, (
        ("rt_sigqueueinfo", 129, 138, ("judge", 0, 0)), ("rt_tgsigqueueinfo", 297, 240, ("judge", "judge", 0, 0)),
    )),
    "new namespaces": (_FILTERED_CALLS, (
        ("unshare", 272, 97, (-1,)), ("setns", 308, 268, (-1, 0)), ("clone CLONE_NEWUSER", 56, 220, (0x10010000, 0, 0, 0, 0)), ("clone3", 435, 435, (0, 0)),
    )),
    "mounts": (_FILTERED_CALLS, (
        ("mount", 165, 40, (0, 0, 0, 0, 0)), ("umount2", 166, 39, (0, -1)), ("pivot_root", 155, 41, (0, 0)), ("chroot", 161, 51, (0,)),
        ("open_tree", 428, 428, (-1, 0, -1)), ("move_mount", 429, 429, (-1, 0, -1, 0, -1)), ("fsopen", 430, 430, (0, -1)),
        ("mount_setattr", 442, 442, (-1, 0, 0, 0, 0)),
    )),
    "programs in the kernel": (_FILTERED_CALLS, (
        ("bpf", 321, 280, (-1, 0, 0)), ("perf_event_open", 298, 241, (0, 0, 0, 0, -1)), ("seccomp", 317, 277, (-1, 0, 0)),
        ("prctl PR_SET_SECCOMP", 157, 167, (22, 2, 0, 0, 0)), ("landlock_create_ruleset", 444, 444, (0, 0, 1)),
    )),
    "the kernel itself": (_FILTERED_CALLS, (
        ("syslog", 103, 116, (-1, 0, 0)), ("finit_module", 313, 273, (-1, 0, -1)), ("kexec_load", 246, 104, (0, 0, 0, -1)), ("reboot", 169, 142, (0, 0, 0, 0)),
        ("swapon", 167, 224, (0, 0)), ("personality", 135, 92, (0xFFFFFFFF,)),
    )),
    "files by handles": (_FILTERED_CALLS, (("name_to_handle_at", 303, 264, (-1, 0, 0, 0, -1)), ("open_by_handle_at", 304, 265, (-1, 0, 0)))),
    "watched files": (_FILTERED_CALLS, (("inotify_init1", 294, 26, (-1,)), ("fanotify_init", 300, 262, (-1, 0)))),
    "attributes of files": (_FILTERED_CALLS, (("setxattr", 188, 5, (0, 0, 0, 0, 0)), ("removexattr", 197, 14, (0, 0)))),
    "other programs' disks": (_FILTERED_CALLS, (("syncfs", 306, 267, (-1,)), ("quotactl", 179, 60, (-1, 0, 0, 0)))),
    "clocks": (_FILTERED_CALLS, (
        ("clock_settime", 227, 112, (-1, 0)), ("settimeofday", 164, 170, (0, 0)), ("adjtimex", 159, 171, (0,)), ("clock_adjtime", 305, 266, (0, 0)),
    )),
    "rare sockets": (_FILTERED_CALLS, tuple(
        (f"socket {name}", 41, 198, (family, -1, 0))
        for name, family in (("AF_NETLINK", 16), ("AF_PACKET", 17), ("AF_ALG", 38), ("AF_VSOCK", 40))
    )),
    "terminals": (_FILTERED_CALLS, (("ioctl TIOCSTI", 16, 29, (-1, 0x5412, 0)), ("ioctl TIOCLINUX", 16, 29, (-1, 0x541C, 0)))),
    "calls of the x32 ABI": (_FILTERED_CALLS, (("getpid", 0x40000027, -1, ()),)),
}  # fmt: skip
#: Tried by a program in machine code, on x86-64 only: the calls of a 32-bit program.
OLD_CALLS = ("calls of 32-bit programs", _FILTERED_CALLS, "getpid by int 0x80")
_MACHINES = ("x86_64", "aarch64")
#: mov eax, 20 (getpid); int 0x80; ret
_INT_80 = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"


def run(payload: str, result_fd: int) -> None:
    """Try everything, and report the features that did not hold, with the families that broke them."""
    targets = json.loads(payload)
    trial_results = {
        "no files outside": _works(lambda: _open(targets["secret"]))
        or _works(lambda: _make(f"{targets['folder']}/made")),
        "own file tree": os.path.exists(targets["folder"]),  # noqa: PTH110  # as it is attacked
        "no network": any(_works(partial(_connect, *each)) for each in _addresses(targets))
        or _works(lambda: _send_from_a_pair(f"{targets['folder']}/d")),
        "own processes": _works(lambda: os.kill(targets["pid"], 0)),
        "no environments": _works(lambda: _open(f"/proc/{targets['pid']}/environ")),
        "own user": os.getuid() == 0,
        "no privileges": _works(lambda: os.setuid(0 if os.getuid() else 1)) or _works(lambda: os.chroot(".")),
        "bounded disk": not 0 < os.statvfs(".").f_blocks * os.statvfs(".").f_frsize < 1 << 30,
        "bounded processor time": _is_unlimited(resource.RLIMIT_CPU),
        "bounded memory": _works(lambda: bytearray(1 << 32)),
        "bounded files": _is_unlimited(resource.RLIMIT_FSIZE),
        "bounded open files": _works(lambda: [os.dup(result_fd) for _ in range(1000)]),
        "bounded processes": _is_unlimited(resource.RLIMIT_NPROC),
    }
    broken_features: dict[str, list[str]] = {name: [] for name, is_broken in trial_results.items() if is_broken}
    for feature, why in reachable_calls(targets["pid"]):
        broken_features.setdefault(feature, []).append(why)
    os.write(result_fd, json.dumps(broken_features).encode())


def reachable_calls(judge: int) -> list[tuple[str, str]]:
    """Return the calls that reach the kernel: the feature that they break, and their family with their names."""
    machine = platform.machine()
    if machine not in _MACHINES:
        return [
            (feature, f"no numbers of system calls are known for {machine}") for feature in (_MEMORY, _FILTERED_CALLS)
        ]
    libc = ctypes.CDLL(None, use_errno=True)
    values = {"judge": judge, "nice": libc.getpriority(2, 0)}  # as it is: nothing changes

    def passes(call: Call) -> bool:
        _, on_x86, on_arm, parameters = call
        number = on_arm if machine == "aarch64" else on_x86
        arguments = [ctypes.c_long(values[each] if isinstance(each, str) else each) for each in parameters]
        ctypes.set_errno(0)
        answer = libc.syscall(ctypes.c_long(number), *arguments)
        return number >= 0 and (answer != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS))

    calls_by_feature = []
    for family, (feature, calls) in FAMILIES.items():
        if names := [call[0] for call in calls if passes(call)]:
            calls_by_feature.append((feature, f"{family}: {', '.join(names)}"))
    if machine == _MACHINES[0] and _ends_well(_call_as_of_old):
        calls_by_feature.append((OLD_CALLS[1], f"{OLD_CALLS[0]}: {OLD_CALLS[2]}"))
    return calls_by_feature


def _ends_well(attack: Callable[[], Any]) -> bool:
    """Return whether an attack works; it runs in a process of its own, which it may end."""
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        os._exit(0 if attack() else 1)
    return os.waitpid(child, 0)[1] == 0


def _call_as_of_old() -> bool:
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_INT_80)
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    return bool(call() == os.getpid())


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
    addresses: list[tuple[int, int, Any]] = [(socket.AF_UNIX, socket.SOCK_STREAM, f"{targets['folder']}/s")]
    if "tcp" in targets:
        addresses += [
            (socket.AF_INET, kind, ("127.0.0.1", targets["tcp"])) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        ]
    return addresses


def _connect(family: int, kind: int, address: Any) -> None:  # noqa: ANN401  # as the family has it
    with socket.socket(family, kind) as one:
        one.settimeout(1)
        one.connect(address)


def _send_from_a_pair(path: str) -> None:
    """Reach another process's socket without making a socket: those of a pair can send datagrams to any."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.sendmsg([b"x"], [], 0, path)


def _is_unlimited(kind: int) -> bool:
    return resource.getrlimit(kind)[0] == resource.RLIM_INFINITY
