"""The first process of a sandbox in which one command runs: start it with its limits, watch it, end it, report how it ended.

It takes its setup from `dsa.edge.sandbox.commands`, and is gone when the command is over, or when nobody holds the other end of its lifeline.
In a process namespace of its own that ends all that is left; elsewhere it adopts what its command left behind, and kills it.
"""

import contextlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NoReturn

from dsa.edge.sandbox.inside import kernel, relay, seccomp, sockets

_LOOK_S = 0.1  # how often the disk and, for root, the processes are looked at
_SWEEP_S = 1.5
_LINUX = sys.platform == "linux"
Setup = dict[str, Any]


def main(setup: Setup) -> NoReturn:
    """Run the command of the setup, write one JSON object to the status pipe, and end."""
    os.environ.clear()
    if _LINUX:
        kernel.control(kernel.DUMPABLE, 0)  # its pipes are nobody else's
        kernel.control(kernel.SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    carrier = _relay(setup) if setup["relay"] else 0
    worker, fault = _started(setup)
    for name in ("stdin_fd", "output_fd"):
        os.close(setup[name])
    ended = {"ended": "refused", "status": 0} if fault else _Watch(setup, worker, carrier).wait(woken)
    if not setup["confined"]:
        _sweep()
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


def _started(setup: Setup) -> tuple[int, str]:
    """Give the command's process, and why there is none; empty when there is."""
    gate, theirs = os.pipe()
    os.set_inheritable(theirs, False)  # noqa: FBT003  (its signature)
    worker = os.fork()
    if worker == 0:
        _become(setup, theirs)
    os.close(theirs)
    said = b""
    while piece := os.read(gate, 1000):
        said += piece
    os.close(gate)
    if said:
        os.waitpid(worker, 0)
    return worker, said.decode(errors="replace")


def _become(setup: Setup, gate: int) -> NoReturn:
    """Become the command; nothing of the sandbox's own stays open."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir(setup["cwd"])
        for standard, name in ((0, "stdin_fd"), (1, "output_fd"), (2, "output_fd")):
            os.dup2(setup[name], standard)
        os.closerange(3, gate)
        os.closerange(gate + 1, 4096)
        _set_limits(setup)
        if setup["confined"]:
            kernel.control(kernel.NO_NEW_PRIVILEGES, 1)
            kernel.drop_capabilities()
            if seccomp.is_known():
                sockets.install()
        os.execve(setup["argv"][0], setup["argv"], setup["environment"])  # noqa: S606  # no shell is what is wanted
    except (OSError, ValueError) as error:
        os.write(gate, str(error).encode()[:1000])
    os._exit(127)


def _set_limits(setup: Setup) -> None:
    """Bound the process; no bound may be raised again, and none is above what this process has itself."""
    bounds = setup["bounds"]
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


# -- watching ---------------------------------------------------------------------------------------------------------


class _Watch:
    """Waits for the command's end and for what ends it: time, the one who asked, a disk or a machine that fills up."""

    def __init__(self, setup: Setup, worker: int, carrier: int) -> None:
        self._worker, self._carrier = worker, carrier
        self._bounds: dict[str, Any] = setup["bounds"]
        self._lifeline: int = setup["lifeline_fd"]
        self._folder: str = setup["folder"]
        self._free_bytes = self._free()
        self._counts = _LINUX and os.geteuid() == 0  # the kernel bounds everybody else
        self._ended = ""
        self._deadline = time.monotonic() + self._bounds["timeout_s"]

    def wait(self, woken: int) -> dict[str, Any]:
        """Give how it ended, and the status of the process; None for one that had to be left to the kernel."""
        waiting = [self._lifeline, woken]
        while True:
            ready = select.select(waiting, [], [], max(0.0, min(_LOOK_S, self._deadline - time.monotonic())))[0]
            if woken in ready:
                os.read(woken, 4096)
            status = self._reaped()
            if status is not None:
                return {"ended": self._ended or "exited", "status": os.waitstatus_to_exitcode(status)}
            if self._lifeline in ready:
                waiting = [woken]
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
        for process in _descendants(os.getpid()) - {self._carrier}:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGTERM)

    def _full(self) -> str:
        """Say what there is too much of; empty when there is not."""
        if self._free_bytes - self._free() > self._bounds["disk_bytes"]:
            return "disk"
        if self._counts and len(_descendants(os.getpid())) > self._bounds["processes"]:
            return "processes"
        return ""

    def _free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize


def _sweep() -> None:
    """Kill all processes that are left of the command: those whose parent has ended are ours now (subreaper).

    All are stopped before any is killed: what goes on forking would otherwise be ahead for ever.
    """
    give_up = time.monotonic() + _SWEEP_S
    stopped: set[int] = set()
    while (running := _descendants(os.getpid()) - stopped) and time.monotonic() < give_up:
        for child in running:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGSTOP)
        stopped |= running
    while time.monotonic() < give_up and (left := _descendants(os.getpid())):
        for child in left:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.001)


def _descendants(process: int) -> set[int]:
    found: set[int] = set()
    open_ = _children(process)
    while open_:
        child = open_.pop()
        if child not in found:
            found.add(child)
            open_ += _children(child)
    return found


def _children(process: int) -> list[int]:
    """Give the children of all threads of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208  # pathlib is slow to import
            with open(f"/proc/{process}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += [int(pid) for pid in file.read().split()]
    return found
