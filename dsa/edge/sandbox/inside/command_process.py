"""The first process of a sandbox for one command: it starts the command with its limits, watches it, ends it, and reports how it ended.

Its setup comes from `dsa.edge.sandbox.command_sandbox`. It ends when the command is over, or when the other end of its lifeline is closed. In a process
namespace of its own, its end ends everything that is left; otherwise it adopts what the command left behind, and kills it.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator

from dsa.edge.sandbox.inside import relay, seccomp, system_calls

TYPE_CHECKING = False  # as in `typing`, which takes milliseconds to import, and this module runs for each command
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Setup = dict[str, Any]
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND: linux/seccomp.h
_QUESTION_BYTES = 80  # struct seccomp_notif
_ANSWER = "=QqiI"  # struct seccomp_notif_resp
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE


class Forks:
    """The limit on processes and threads where the kernel has none: for root (RLIMIT_NPROC, setrlimit(2)).

    The filter of system calls asks at each fork (seccomp_unotify(2)). This class allows the fork, or answers EAGAIN, as the kernel would. It
    counts the forks that it has allowed, and the existing processes only when those are too many.
    """

    def __init__(self, listener: int, most: int) -> None:
        self._listener, self._most = listener, most
        self._count = 1  # the command itself, which may wait at its first fork
        self._others = count() - self._count

    def fileno(self) -> int:
        """Return the file that is readable when a fork asks."""
        return self._listener

    def answer(self) -> None:
        """Answer the next question, unless the process that asked is gone."""
        question = bytearray(_QUESTION_BYTES)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._listener, _RECEIVE, question)
            (question_id,) = struct.unpack_from("=Q", question)
            fcntl.ioctl(self._listener, _SEND, struct.pack(_ANSWER, question_id, 0, *self._decision()))

    def _decision(self) -> tuple[int, int]:
        """Return the error of the system call, and the flags of the answer."""
        if self._count >= self._most:
            self._count = count() - self._others
        if self._count >= self._most:
            return -errno.EAGAIN, 0
        self._count += 1
        return 0, _CONTINUE


def count() -> int:
    """Count all processes and threads that can be seen from here."""
    total = 0
    for process in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  # pathlib is slow to import
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"/proc/{process}/task"))  # noqa: PTH208
    return total


# -- the disk ---------------------------------------------------------------------------------------------------------

#: A command that moves files while they are counted may hide some. When this many times its bound is gone, the disk counts as full.
_AT_MOST = 4
_TICK_NS = 50_000_000  # the times of files are those of the kernel's last tick


class Disk:
    """The part of a disk that a command has used, while others write to the same disk.

    Files that changed in its folder count whole, and so do files without a name that `processes` hold open. None means that files elsewhere
    cannot be counted. Counting takes time, so it is done only when the disk's free space has shrunk by more than the bound.
    """

    def __init__(self, folder: str, most_bytes: int, processes: Callable[[], Iterable[int]] | None) -> None:
        self._folder, self._most_bytes, self._processes = folder, most_bytes, processes
        self._since_ns = time.time_ns() - _TICK_NS
        self._free_bytes = self._free()
        self._asked_from = most_bytes

    def is_full(self) -> bool:
        """Return whether the command has used more than it may."""
        lost_bytes = self._free_bytes - self._free()
        if lost_bytes <= self._asked_from:
            return False
        if self._processes is None or lost_bytes > _AT_MOST * self._most_bytes:
            return True
        try:
            used_bytes = self._used_bytes(self._processes())
        except OSError:  # the command has closed the folder to us
            return True
        self._asked_from = lost_bytes + max(self._most_bytes - used_bytes, self._most_bytes // 8)
        return used_bytes > self._most_bytes

    def _used_bytes(self, processes: Iterable[int]) -> int:
        device = os.lstat(self._folder).st_dev
        files = [*_changed_files(self._folder, self._since_ns), *_nameless_files(processes, device)]
        return sum({(each.st_dev, each.st_ino): each.st_blocks * 512 for each in files}.values())

    def _free(self) -> int:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize


def _changed_files(folder: str, since_ns: int) -> Iterator[os.stat_result]:
    """Yield the files that have changed below a folder. A command can set the other times of a file, but not this one."""
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif (status := entry.stat(follow_symlinks=False)).st_ctime_ns >= since_ns:
                        yield status
        except (FileNotFoundError, NotADirectoryError):  # gone, or another, since it was listed
            continue


def _nameless_files(processes: Iterable[int], device: int) -> Iterator[os.stat_result]:
    """Yield the files without a name that are held open."""
    for process in processes:
        try:
            numbers = os.listdir(f"/proc/{process}/fd")  # noqa: PTH208  # pathlib is slow to import
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        for number in numbers:
            try:
                status = os.stat(f"/proc/{process}/fd/{number}")  # noqa: PTH116
            except (FileNotFoundError, ProcessLookupError):
                continue
            if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev == device:
                yield status


# -- the command ------------------------------------------------------------------------------------------------------

_LOOK_S = 0.1  # between two checks of the disk and, where nothing else bounds them, of the processes
_LINUX = sys.platform == "linux"


def main(setup: "Setup") -> "NoReturn":
    """Run the command of the setup; write how it ended, its status and a fault to the status pipe, one line each; and end."""
    os.environ.clear()
    if _LINUX:
        system_calls.control(system_calls.DUMPABLE, 0)  # no other process may open its pipes
        system_calls.control(system_calls.SUBREAPER, 1)
    wakeup = system_calls.wakeup_file()
    carrier = _relay(setup) if setup["relay"] else 0
    worker, listener, fault = _start_command(setup)
    for name in ("stdin_fd", "output_fd"):
        os.close(setup[name])
    report = (
        {"ended": "refused", "status": 0} if fault else _CommandWatch(setup, worker, carrier, listener).wait(wakeup)
    )
    if not setup["confined"]:
        system_calls.sweep()
    status = "" if report["status"] is None else report["status"]
    os.write(setup["status_fd"], f"{report['ended']}\n{status}\n{fault}".encode())
    os._exit(0)


def _relay(setup: "Setup") -> int:
    """Start the relay to the proxy outside, and set its address in the command's environment."""
    listener = relay.open_listener()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        setup["environment"][name] = address
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        for name in ("stdin_fd", "output_fd", "status_fd", "lifeline_fd"):
            os.close(setup[name])
        relay.serve(listener, setup["relay"])
    listener.close()
    return child


# -- starting ---------------------------------------------------------------------------------------------------------


def _start_command(setup: "Setup") -> tuple[int, int, str]:
    """Return the command's process, the file by which its forks ask (-1: none), and why the command could not start (empty if it started)."""
    gate, theirs = socket.socketpair()  # neither survives the start of the command
    worker = os.fork()
    if worker == 0:
        _become(setup, theirs)
    theirs.close()
    message, listener = b"", -1
    with gate:
        while True:
            piece, files, *_ = socket.recv_fds(gate, 1000, 1)
            if not piece:
                break
            if files:
                (listener,) = files
            else:
                message += piece
    if message:
        os.waitpid(worker, 0)
    return worker, listener, message.decode(errors="replace")


def _become(setup: "Setup", gate: socket.socket) -> "NoReturn":
    """Become the command; no file of the sandbox's own stays open."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir(setup["cwd"])
        for standard, name in ((0, "stdin_fd"), (1, "output_fd"), (2, "output_fd")):
            os.dup2(setup[name], standard)
        os.closerange(3, gate.fileno())
        os.closerange(gate.fileno() + 1, 4096)
        system_calls.set_all(setup["bounds"])
        if setup["confined"]:
            _confine(gate)
        os.execve(setup["argv"][0], setup["argv"], setup["environment"])  # noqa: S606  # without a shell on purpose
    except (OSError, ValueError) as error:
        gate.sendall(str(error).encode()[:1000])
    os._exit(127)


def _confine(gate: socket.socket) -> None:
    """Give up privileges. Where possible, root's forks ask for permission: the kernel does not limit them."""
    system_calls.control(system_calls.NO_NEW_PRIVILEGES, 1)
    system_calls.drop_capabilities()
    if why := seccomp.fault():
        raise OSError(why)
    listener = -1
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # an old kernel: then they are counted
            listener = seccomp.install_asking(seccomp.build_filter(seccomp.FAMILIES, asks_on_fork=True))
    if listener >= 0:
        socket.send_fds(gate, [b"x"], [listener])
    else:
        seccomp.install(seccomp.build_filter(seccomp.FAMILIES))


# -- watching ---------------------------------------------------------------------------------------------------------


class _CommandWatch:
    """Waits for the command's end, and ends it at its time limit, when its lifeline closes, or when it uses too much disk or too many processes."""

    def __init__(self, setup: "Setup", worker: int, carrier: int, listener: int) -> None:
        self._worker, self._carrier = worker, carrier
        self._bounds: dict[str, Any] = setup["bounds"]
        self._lifeline: int = setup["lifeline_fd"]
        processes = (lambda: system_calls.descendants(os.getpid())) if setup["confined"] else None
        self._disk = Disk(setup["folder"], self._bounds["disk_bytes"], processes)
        self._forks = Forks(listener, self._bounds["processes"]) if listener >= 0 else None
        self._counts = _LINUX and os.geteuid() == 0 and self._forks is None  # the kernel limits all other users
        self._end = ""
        self._deadline = time.monotonic() + self._bounds["timeout_s"]
        self._look = 0.0

    def wait(self, wakeup: int) -> "dict[str, Any]":
        """Return how the command ended, and its status; None if the kernel has to end it."""
        files: list[Any] = [self._lifeline, wakeup, *filter(None, [self._forks])]
        while True:
            left_s = min(self._look, self._deadline) - time.monotonic()
            ready = select.select(files, [], [], max(0.0, left_s))[0]
            if self._forks and self._forks in ready:
                self._forks.answer()
            if wakeup in ready:
                os.read(wakeup, 4096)
            status = self._reap()
            if status is not None:
                return {"ended": self._end or "exited", "status": os.waitstatus_to_exitcode(status)}
            if self._lifeline in ready:
                files.remove(self._lifeline)
                self._ask_to_end("stopped")
            if over := self._full():
                return {"ended": self._end or over, "status": None}
            if time.monotonic() >= self._deadline:
                if self._end:
                    return {"ended": self._end, "status": None}
                self._ask_to_end("timeout")

    def _reap(self) -> int | None:
        """Collect ended processes; return the command's status if it is among them."""
        with contextlib.suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child in {0, self._worker}:
                    return status if child else None
        return None

    def _ask_to_end(self, why: str) -> None:
        """Send SIGTERM to all processes, and give them a little time."""
        self._end = self._end or why
        self._deadline = time.monotonic() + self._bounds["grace_s"]
        for process in system_calls.descendants(os.getpid()) - {self._carrier}:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGTERM)

    def _full(self) -> str:
        """Return `disk` or `processes` if the command uses too much of it; empty otherwise, and between two checks."""
        if time.monotonic() < self._look:
            return ""
        self._look = time.monotonic() + _LOOK_S
        if self._disk.is_full():
            return "disk"
        if self._counts and len(system_calls.descendants(os.getpid())) > self._bounds["processes"]:
            return "processes"
        return ""
