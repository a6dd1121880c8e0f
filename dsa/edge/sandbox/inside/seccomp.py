"""A filter of system calls: no sockets, or some; no namespaces, no looking into other processes, none of the kernel's rarer doors (seccomp(2)).

A call that is turned down fails with EPERM. The numbers are those of Linux on x86-64 and on 64-bit ARM; elsewhere there is no filter.
"""

import ctypes
import platform
import struct

from dsa.edge.sandbox.inside import kernel

_FILTER = 2  # SECCOMP_MODE_FILTER
_SET_FILTER, _LISTEN = 1, 1 << 3  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
_ALLOW, _REFUSE, _UNKNOWN, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000  # linux/seccomp.h, EPERM, ENOSYS
_ASK = 0x7FC00000  # SECCOMP_RET_USER_NOTIF
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; of an argument its lower half is read
_X32 = 0x40000000
_NAMESPACES = 0x7E020000

#: For each architecture its name in linux/audit.h; then the numbers of calls that are refused.
_REFUSED: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (0xC000003E, {
        "socket": 41, "ptrace": 101, "personality": 135, "pivot_root": 155, "chroot": 161, "acct": 163, "mount": 165,
        "umount2": 166, "swapon": 167, "reboot": 169, "init_module": 175, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
        "userfaultfd": 323,
    }),
    "aarch64": (0xC00000B7, {
        "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "acct": 89, "personality": 92, "unshare": 97,
        "kexec_load": 104, "init_module": 105, "ptrace": 117, "reboot": 142, "socket": 198, "add_key": 217,
        "request_key": 218, "keyctl": 219, "swapon": 224, "perf_event_open": 241, "open_by_handle_at": 265, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "finit_module": 273, "bpf": 280, "userfaultfd": 282,
        "kexec_file_load": 294,
    }),
}  # fmt: skip
#: The same everywhere: io_uring, the new mount calls, pidfd_getfd.
_REFUSED_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442)
_CLONE3 = 435  # its flags lie in memory, out of the filter's sight: it is said not to exist, and clone is used
#: Calls that may name this process only: number, and which argument must be 0 (prlimit64, sched_setscheduler, sched_setaffinity, setpriority).
_OWN = {"x86_64": ((302, 0), (144, 0), (203, 0), (141, 1)), "aarch64": ((261, 0), (119, 0), (122, 0), (140, 1))}
_CLONE = {"x86_64": 56, "aarch64": 220}
_FORKS = {"x86_64": (57, 58), "aarch64": ()}  # fork, vfork
_SECCOMP = {"x86_64": 317, "aarch64": 277}


class _Program(ctypes.Structure):
    """A filter as the kernel takes it; `code` is what it points to, and lives as long."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))
    code: object


def is_known() -> bool:
    """Tell whether there is a filter for this architecture."""
    return platform.machine() in _REFUSED


def install(families: tuple[int, ...] = ()) -> None:
    """Filter the calls of this process and of all it starts, for good; it must have given up new privileges. Sockets may be of these families."""
    kernel.control(kernel.SECCOMP, _FILTER, ctypes.byref(_program(families, _ALLOW)))


def install_asking(families: tuple[int, ...] = ()) -> int:
    """Do the same, and have each fork wait until somebody has allowed it by the file that this gives: see `command.Forks`.

    Raises OSError where the kernel cannot ask (before Linux 5.5), or asks somebody else already.
    """
    program = _program(families, _ASK)
    return kernel.system_call("seccomp", _SECCOMP[platform.machine()], _SET_FILTER, _LISTEN, ctypes.byref(program))


def _program(families: tuple[int, ...], forking: int) -> _Program:
    code = ctypes.create_string_buffer(_code(platform.machine(), families, forking))
    program = _Program((len(code) - 1) // 8, ctypes.cast(code, ctypes.c_void_p))
    program.code = code
    return program


def _code(machine: str, families: tuple[int, ...], forking: int) -> bytes:
    architecture, refused = _REFUSED[machine]
    steps = [
        _step(_LOAD, _ARCHITECTURE), _step(_EQUAL, architecture, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, _NUMBER),
    ]  # fmt: skip
    if machine == "x86_64":  # the same calls have second numbers there
        steps += [_step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _REFUSE)]
    if families:
        *others, last = families
        tests = [_step(_EQUAL, family, len(others) - place, 0) for place, family in enumerate(others)]
        steps += _by_argument(refused["socket"], 0, *tests, _step(_EQUAL, last, 0, 1))
    for number in (*refused.values(), *_REFUSED_EVERYWHERE):
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _REFUSE)]
    steps += [_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _UNKNOWN)]
    steps += _by_argument(_CLONE[machine], 0, _step(_ANY_BIT, _NAMESPACES, 1, 0), otherwise=forking)
    for number in _FORKS[machine]:
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, forking)]
    for number, argument in _OWN[machine]:
        steps += _by_argument(number, argument, _step(_EQUAL, 0, 0, 1))
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _by_argument(number: int, argument: int, *tests: bytes, otherwise: int = _ALLOW) -> list[bytes]:
    """Decide a call by one argument: refused when the last of `tests` jumps over one step."""
    where = _step(_LOAD, _ARGUMENTS + 8 * argument)
    return [_step(_EQUAL, number, 0, len(tests) + 3), where, *tests, _step(_RETURN, otherwise), _step(_RETURN, _REFUSE)]


def _step(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, if_true, if_false, value)
