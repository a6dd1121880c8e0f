"""The first process of a sandbox in which one command runs: start it with its limits, watch it, end it, report how it ended.

It takes its setup from `dsa.edge.sandbox.commands`, and is gone when the command is over, or when nobody holds the other end of its lifeline.
In a process namespace of its own that ends all that is left; elsewhere it adopts what its command left behind, and kills it.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from dsa.edge.sandbox.inside import children, forks, kernel, limits, relay, seccomp, spent

_LOOK_S = 0.1  # how often the disk is looked at and, where nothing else bounds them, the processes
#: Sockets of others lead to the host or to rare parts of the kernel (AF_VSOCK, AF_ALG, AF_PACKET ..); these reach nothing where the network is their own.
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: linux/socket.h
_LINUX = sys.platform == "linux"
Setup = dict[str, Any]


def main(setup: Setup) -> NoReturn:
    """Run the command of the setup, write one JSON object to the status pipe, and end."""
    os.environ.clear()
    if _LINUX:
        kernel.control(kernel.DUMPABLE, 0)  # its pipes are nobody else's
        kernel.control(kernel.SUBREAPER, 1)
    woken = children.woken()
    carrier = _relay(setup) if setup["relay"] else 0
    worker, listener, fault = _started(setup)
    for name in ("stdin_fd", "output_fd"):
        os.close(setup[name])
    ended = {"ended": "refused", "status": 0} if fault else _Watch(setup, worker, carrier, listener).wait(woken)
    if not setup["confined"]:
        children.sweep()
    os.write(setup["status_fd"], json.dumps({**ended, "fault": fault}).encode())
    os._exit(0)


def _relay(setup: Setup) -> int:
    """Start what hands connections on to the proxy outside, and name it in the command's environment."""
    listening = relay.listening()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        setup["environment"][name] = address
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        for name in ("stdin_fd", "output_fd", "status_fd", "lifeline_fd"):
            os.close(setup[name])
        relay.serve(listening, setup["relay"])
    listening.close()
    return child


# -- starting ---------------------------------------------------------------------------------------------------------


def _started(setup: Setup) -> tuple[int, int, str]:
    """Give the command's process, the file by which its forks ask (-1 when they do not), and why there is none; empty when there is."""
    gate, theirs = socket.socketpair()  # neither survives the start of the command
    worker = os.fork()
    if worker == 0:
        _become(setup, theirs)
    theirs.close()
    said, listener = b"", -1
    with gate:
        while True:
            piece, files, *_ = socket.recv_fds(gate, 1000, 1)
            if not piece:
                break
            if files:
                (listener,) = files
            else:
                said += piece
    if said:
        os.waitpid(worker, 0)
    return worker, listener, said.decode(errors="replace")


def _become(setup: Setup, gate: socket.socket) -> NoReturn:
    """Become the command; nothing of the sandbox's own stays open."""
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
        limits.set_all(setup["bounds"])
        if setup["confined"]:
            _confine(gate)
        os.execve(setup["argv"][0], setup["argv"], setup["environment"])  # noqa: S606  # no shell is what is wanted
    except (OSError, ValueError) as error:
        gate.sendall(str(error).encode()[:1000])
    os._exit(127)


def _confine(gate: socket.socket) -> None:
    """Give up what is not needed. Root's forks ask, where they can: the kernel does not bound them."""
    kernel.control(kernel.NO_NEW_PRIVILEGES, 1)
    kernel.drop_capabilities()
    if not seccomp.is_known():
        return
    listener = -1
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # an old kernel: then they are counted
            listener = seccomp.install_asking(_FAMILIES)
    if listener >= 0:
        socket.send_fds(gate, [b"x"], [listener])
    else:
        seccomp.install(_FAMILIES)


# -- watching ---------------------------------------------------------------------------------------------------------


class _Watch:
    """Waits for the command's end and for what ends it: time, the one who asked, a disk or a machine that fills up."""

    def __init__(self, setup: Setup, worker: int, carrier: int, listener: int) -> None:
        self._worker, self._carrier = worker, carrier
        self._bounds: dict[str, Any] = setup["bounds"]
        self._lifeline: int = setup["lifeline_fd"]
        seen = (lambda: children.descendants(os.getpid())) if setup["confined"] else None
        self._disk = spent.Disk(setup["folder"], self._bounds["disk_bytes"], seen)
        self._forks = forks.Forks(listener, self._bounds["processes"]) if listener >= 0 else None
        self._counts = _LINUX and os.geteuid() == 0 and self._forks is None  # the kernel bounds everybody else
        self._ended = ""
        self._deadline = time.monotonic() + self._bounds["timeout_s"]
        self._look = 0.0

    def wait(self, woken: int) -> dict[str, Any]:
        """Give how it ended, and the status of the process; None for one that had to be left to the kernel."""
        waiting: list[Any] = [self._lifeline, woken, *filter(None, [self._forks])]
        while True:
            left_s = min(self._look, self._deadline) - time.monotonic()
            ready = select.select(waiting, [], [], max(0.0, left_s))[0]
            if self._forks and self._forks in ready:
                self._forks.answer()
            if woken in ready:
                os.read(woken, 4096)
            status = self._reaped()
            if status is not None:
                return {"ended": self._ended or "exited", "status": os.waitstatus_to_exitcode(status)}
            if self._lifeline in ready:
                waiting.remove(self._lifeline)
                self._ask_to_end("stopped")
            if over := self._full():
                return {"ended": self._ended or over, "status": None}
            if time.monotonic() >= self._deadline:
                if self._ended:
                    return {"ended": self._ended, "status": None}
                self._ask_to_end("timeout")

    def _reaped(self) -> int | None:
        """Collect what has ended; give the command's status when it has."""
        with contextlib.suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child in {0, self._worker}:
                    return status if child else None
        return None

    def _ask_to_end(self, why: str) -> None:
        """Send SIGTERM to all there is, and give it a little time."""
        self._ended = self._ended or why
        self._deadline = time.monotonic() + self._bounds["grace_s"]
        for process in children.descendants(os.getpid()) - {self._carrier}:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGTERM)

    def _full(self) -> str:
        """Say what there is too much of; empty when there is not, or nobody has looked."""
        if time.monotonic() < self._look:
            return ""
        self._look = time.monotonic() + _LOOK_S
        if self._disk.is_full():
            return "disk"
        if self._counts and len(children.descendants(os.getpid())) > self._bounds["processes"]:
            return "processes"
        return ""
