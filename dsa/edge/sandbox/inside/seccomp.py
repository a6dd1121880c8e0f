"""A filter of system calls: those that programs need, by family, and no others (seccomp(2)).

A call that is not allowed fails with EPERM. One that came with Linux 5.1 or later fails with ENOSYS, as on an older kernel, so programs do without it.
A call with a number of another architecture ends the process. The numbers are those of Linux on x86-64 and on 64-bit ARM; elsewhere there is no filter.
"""

import ctypes
import errno
import os
import struct

from dsa.edge.sandbox.inside import system_calls

_FILTER = 2  # SECCOMP_MODE_FILTER
_SET_FILTER, _LISTEN = 1, 1 << 3  # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER
_ALLOW, _REFUSE, _UNKNOWN, _KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000  # linux/seccomp.h, EPERM, ENOSYS
_ASK = 0x7FC00000  # SECCOMP_RET_USER_NOTIF
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; of an argument its lower half is read

#: Names in linux/audit.h, in the order of the numbers below.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: Calls that came with Linux 5.1 and later have numbers from here on, the same everywhere.
_YOUNG = 424
#: The allowed calls: name, number on x86-64, number on 64-bit ARM.
ALLOWED_CALLS = {
    "files": """
        read 0 63  write 1 64  open 2 -  close 3 57  stat 4 -  fstat 5 80  lstat 6 -  lseek 8 62  pread64 17 67
        pwrite64 18 68  readv 19 65  writev 20 66  access 21 -  pipe 22 -  dup 32 23  dup2 33 -  sendfile 40 71  fcntl 72 25
        flock 73 32  fsync 74 82  fdatasync 75 83  truncate 76 45  ftruncate 77 46  getdents 78 -  getcwd 79 17  chdir 80 49
        fchdir 81 50  rename 82 -  mkdir 83 -  rmdir 84 -  creat 85 -  link 86 -  unlink 87 -  symlink 88 -  readlink 89 -
        chmod 90 -  fchmod 91 52  chown 92 -  fchown 93 55  lchown 94 -  umask 95 166  utime 132 -  mknod 133 -
        statfs 137 43  fstatfs 138 44  readahead 187 213  getxattr 191 8  lgetxattr 192 9  fgetxattr 193 10  listxattr 194 11
        llistxattr 195 12  flistxattr 196 13  getdents64 217 61  fadvise64 221 223  utimes 235 -  openat 257 56
        mkdirat 258 34  mknodat 259 33  fchownat 260 54  futimesat 261 -  newfstatat 262 79  unlinkat 263 35  renameat 264 38
        linkat 265 37  symlinkat 266 36  readlinkat 267 78  fchmodat 268 53  faccessat 269 48  sync_file_range 277 84
        utimensat 280 88  fallocate 285 47  dup3 292 24  pipe2 293 59  preadv 295 69  pwritev 296 70  renameat2 316 276
        copy_file_range 326 285  preadv2 327 286  pwritev2 328 287  statx 332 291  close_range 436 436  openat2 437 437
        faccessat2 439 439  fchmodat2 452 452
    """,
    "waiting": """
        poll 7 -  select 23 -  epoll_create 213 -  epoll_wait 232 -  epoll_ctl 233 21  pselect6 270 72  ppoll 271 73
        epoll_pwait 281 22  signalfd 282 -  timerfd_create 283 85  eventfd 284 -  timerfd_settime 286 86
        timerfd_gettime 287 87  signalfd4 289 74  eventfd2 290 19  epoll_create1 291 20  epoll_pwait2 441 441
    """,
    "memory": """
        mprotect 10 226  munmap 11 215  brk 12 214  mremap 25 216  msync 26 227  mincore 27 232  madvise 28 233
        membarrier 324 283  pkey_mprotect 329 288  pkey_alloc 330 289  pkey_free 331 290  map_shadow_stack 453 453
        mseal 462 462
    """,
    "processes": """
        sched_yield 24 124  getpid 39 172  execve 59 221  exit 60 93  wait4 61 260  getrlimit 97 163  getrusage 98 165
        times 100 153  setpgid 109 154  getppid 110 173  getpgrp 111 -  setsid 112 157  getpgid 121 155  getsid 124 156
        getpriority 140 141  sched_getparam 143 121  sched_getscheduler 145 120  sched_get_priority_max 146 125
        sched_get_priority_min 147 126  sched_rr_get_interval 148 127  arch_prctl 158 -  setrlimit 160 164  gettid 186 178
        sched_getaffinity 204 123  set_tid_address 218 96  exit_group 231 94  waitid 247 95  execveat 322 281
    """,
    "users": """
        getuid 102 174  getgid 104 176  setuid 105 146  setgid 106 144  geteuid 107 175  getegid 108 177  setreuid 113 145
        setregid 114 143  getgroups 115 158  setresuid 117 147  getresuid 118 148  setresgid 119 149  getresgid 120 150
        setfsuid 122 151  setfsgid 123 152  capget 125 90
    """,
    "signals": """
        rt_sigaction 13 134  rt_sigprocmask 14 135  rt_sigreturn 15 139  pause 34 -  kill 62 129  rt_sigpending 127 136
        rt_sigtimedwait 128 137  rt_sigsuspend 130 133  sigaltstack 131 132  tkill 200 130  restart_syscall 219 128
        tgkill 234 131
    """,
    "threads": """
        futex 202 98  set_robust_list 273 99  rseq 334 293  futex_waitv 449 449  futex_wake 454 454  futex_wait 455 455
        futex_requeue 456 456
    """,
    "time": """
        nanosleep 35 101  getitimer 36 102  alarm 37 -  setitimer 38 103  gettimeofday 96 169  time 201 -
        timer_create 222 107  timer_settime 223 110  timer_gettime 224 108  timer_getoverrun 225 109  timer_delete 226 111
        clock_gettime 228 113  clock_getres 229 114  clock_nanosleep 230 115
    """,
    "machine": """
        uname 63 160  sysinfo 99 179  getcpu 309 168  getrandom 318 278
    """,
    "pairs of sockets": """
        sendto 44 206  recvfrom 45 207  sendmsg 46 211  recvmsg 47 212  shutdown 48 210  getsockname 51 204
        getpeername 52 205  setsockopt 54 208  getsockopt 55 209  recvmmsg 299 243  sendmmsg 307 269
    """,
}  # fmt: skip
#: Further calls for code that may have sockets. Without these it has only pairs of streams.
WITH_SOCKETS = "bind 49 200  connect 42 203  listen 50 201  accept 43 202  accept4 288 242"
#: Calls that are decided by an argument, or that wait for an answer.
DECIDED_CALLS = """
    clone 56 220  fork 57 -  vfork 58 -  ioctl 16 29  mmap 9 222  prctl 157 167  prlimit64 302 261  socket 41 198
    socketpair 53 199
"""
_SECCOMP = {"x86_64": 317, "aarch64": 277}

#: Families of sockets that code may have. Others lead to the host or to rare parts of the kernel (AF_VSOCK, AF_ALG, AF_PACKET ..).
FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: linux/socket.h
_UNIX, _STREAM, _KIND_OF_SOCKET = 1, 1, 0xF
_NAMESPACES = 0x7E020000  # CLONE_NEW..: linux/sched.h
_HUGE_PAGES = 0x40000  # MAP_HUGETLB: the pool of them is the machine's
#: TIOCSTI, TIOCLINUX, TIOCSETD: they type what others then run, or lead to rare parts of the kernel.
_TERMINALS = (0x5412, 0x541C, 0x5423)
_CONTROLS = (system_calls.SECCOMP, 62)  # PR_SCHED_CORE: who runs beside whom
_ITSELF = (0,)


class Filter(ctypes.Structure):
    """A filter as the kernel takes it; `code` is what it points to, and must live as long."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))
    code: object


def fault() -> str:
    """Return why there is no filter here; empty if there is one."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES or struct.calcsize("P") != 8:  # noqa: PLR2004  # bytes of a pointer
        architectures = ", ".join(_ARCHITECTURES)
        return (
            f"system calls are not filtered: their numbers are known for {architectures} (64 bits), not for {machine}"
        )
    try:
        system_calls.control(system_calls.SECCOMP, _FILTER, None)
    except OSError as error:
        if error.errno != errno.EFAULT:  # the error of a kernel that would take a filter
            return f"system calls are not filtered: the kernel does not accept a filter (seccomp): {error}"
    return ""


def build_filter(families: tuple[int, ...] = (), *, asks_on_fork: bool = False) -> Filter:
    """Build a filter for this architecture that allows sockets of these families. With `asks_on_fork` each fork waits: see `install_asking`."""
    code = ctypes.create_string_buffer(program(os.uname().machine, families, _ASK if asks_on_fork else _ALLOW))
    call_filter = Filter((len(code) - 1) // 8, ctypes.cast(code, ctypes.c_void_p))
    call_filter.code = code
    return call_filter


def install(call_filter: Filter) -> None:
    """Filter the calls of this process and of everything that it starts, for good. It must have given up new privileges."""
    system_calls.control(system_calls.SECCOMP, _FILTER, ctypes.byref(call_filter))


def install_asking(call_filter: Filter) -> int:
    """Do the same, and make each fork wait for an answer through the file that this returns: see `command_process.Forks`.

    Raises OSError where the kernel cannot ask (before Linux 5.5), or already asks another process.
    """
    return system_calls.system_call(
        "seccomp", _SECCOMP[os.uname().machine], _SET_FILTER, _LISTEN, ctypes.byref(call_filter)
    )


def numbers(machine: str, text: str) -> dict[str, int]:
    """Return the numbers of a list's calls on an architecture, by name."""
    words = text.split()
    values = words[1 + list(_ARCHITECTURES).index(machine) :: 3]
    return {name: int(number) for name, number in zip(words[::3], values, strict=True) if number != "-"}


def program(machine: str, families: tuple[int, ...] = (), fork_answer: int = _ALLOW) -> bytes:
    """Return the filter as the kernel runs it (classic BPF, 8 bytes a step). A fork gets `fork_answer`."""
    decided_numbers = numbers(machine, DECIDED_CALLS)
    steps = [
        _step(_LOAD, _ARCHITECTURE), _step(_EQUAL, _ARCHITECTURES[machine], 1, 0), _step(_RETURN, _KILL), _step(_LOAD, _NUMBER),
    ]  # fmt: skip
    for name in ("fork", "vfork"):
        if name in decided_numbers:
            steps += [_step(_EQUAL, decided_numbers[name], 0, 1), _step(_RETURN, fork_answer)]
    steps += _by_argument(decided_numbers["clone"], 0, _step(_ANY_BIT, _NAMESPACES, 1, 0), otherwise=fork_answer)
    steps += _by_argument(decided_numbers["mmap"], 3, _step(_ANY_BIT, _HUGE_PAGES, 1, 0))
    steps += _by_argument(decided_numbers["ioctl"], 1, *_none_of(_TERMINALS))
    steps += _by_argument(decided_numbers["prctl"], 0, *_none_of(_CONTROLS))
    steps += _by_argument(decided_numbers["prlimit64"], 0, *_one_of(_ITSELF))
    allowed_calls = " ".join(ALLOWED_CALLS.values())
    if families:
        steps += _by_argument(decided_numbers["socket"], 0, *_one_of(families))
        steps += _by_argument(decided_numbers["socketpair"], 0, *_one_of(families))
        allowed_calls += f" {WITH_SOCKETS}"
    else:  # a datagram socket of a pair could reach another one, even by sendmsg, whose address no filter can read
        kind = (_step(_LOAD, _ARGUMENTS + 8), _step(_AND, _KIND_OF_SOCKET), _step(_EQUAL, _STREAM, 0, 1))
        steps += _by_argument(decided_numbers["socketpair"], 0, _step(_EQUAL, _UNIX, 0, 4), *kind)
    return b"".join([*steps, *_ranges(sorted(numbers(machine, allowed_calls).values()))])


def _ranges(call_numbers: list[int]) -> list[bytes]:
    """Allow these numbers, by ranges from the lowest up. A number above a range continues with the next step."""
    steps: list[bytes] = []
    lows = [number for number in call_numbers if number - 1 not in call_numbers]
    highs = [number for number in call_numbers if number + 1 not in call_numbers]
    for low, high in zip(lows, highs, strict=True):
        refusal = _UNKNOWN if low > _YOUNG else _REFUSE
        steps += [_step(_AT_LEAST, high + 1, 3, 0), _step(_AT_LEAST, low, 0, 1), _step(_RETURN, _ALLOW)]
        steps.append(_step(_RETURN, refusal))
    return [*steps, _step(_RETURN, _UNKNOWN)]


def _by_argument(number: int, argument: int, *tests: bytes, otherwise: int = _ALLOW) -> list[bytes]:
    """Decide a call by one argument. It is refused if the last of `tests` jumps over one step."""
    where = _step(_LOAD, _ARGUMENTS + 8 * argument)
    return [_step(_EQUAL, number, 0, len(tests) + 3), where, *tests, _step(_RETURN, otherwise), _step(_RETURN, _REFUSE)]


def _one_of(values: tuple[int, ...]) -> list[bytes]:
    *others, last = values
    return [*(_step(_EQUAL, each, len(others) - at, 0) for at, each in enumerate(others)), _step(_EQUAL, last, 0, 1)]


def _none_of(values: tuple[int, ...]) -> list[bytes]:
    return [_step(_EQUAL, each, len(values) - at, 0) for at, each in enumerate(values)]


def _step(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, if_true, if_false, value)
