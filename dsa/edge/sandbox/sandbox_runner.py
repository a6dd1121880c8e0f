"""The runner of the sandbox: runs a trusted program on untrusted code, confined on one rung.

`run_on` starts a call and returns what it reported. It trusts nothing that comes out: it reads pipes up to a limit, takes exit status and
output as proof of nothing, and at the deadline kills the call and everything that it started.

Calls are forked by a `Zygote`: a process whose environment is only a seed for hashes, and whose only open files are its control socket and a view of `/proc`
that code never gets. It ends when the socket is closed, even if this process is killed. A zygote that code cannot reach is kept warm: it starts at the
first use, all threads share it, and it ends with this process. Otherwise each call has its own. On rungs without a file tree of its own a call has a
working directory, which is removed with everything in it.
"""

import atexit
import contextlib
import json
import marshal
import os
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.sandbox import rungs
from dsa.edge.sandbox.rungs import (
    OWN,
    Bounds,
    Confinement,
    SandboxError,
    SandboxOutcome,
    SandboxProgram,
    Visible,
    WarmSetup,
    shortages,
    visible,
)

_MODULES = ("system_calls", "seccomp", "confinement", "warm_process")
_HELLO_S = 30.0
_MOST_HELLO = 65_536


@attrs.define(eq=False)
class Zygote:
    """A process that forks one confined process for each call. `fault` says why it could not start; then it takes no calls.

    `gap` says why system calls are not filtered; empty if they are. If it is not `warm`, its calls could reach it, so it takes only one.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    features: frozenset[str] = frozenset()
    fault: str = ""
    gap: str = ""
    warm: bool = False

    def ask(self, files: Sequence[int]) -> None:
        """Send it a call: header, payload, result, status, output, lifeline. Raises SandboxError when the process is gone."""
        try:
            socket.send_fds(self.control, [b"c"], files)
        except OSError as error:
            raise SandboxError(f"the process that runs code is gone: {error}") from error

    def is_there(self) -> bool:
        """Return whether it is still running."""
        return self.process.poll() is None

    def close(self) -> None:
        """Let it end by itself with its calls; kill it if it does not."""
        self.control.close()
        try:
            self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill it with all its calls."""
        self.control.close()
        if self.process.returncode is None:
            # PermissionError: only zombies left, on macOS.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def forget(self) -> None:
        """Forget it in a fork of the process that started it, because the fork does not own it."""
        self.control.close()
        self.process.returncode = 0


def start(rung: str, warm_setup: WarmSetup) -> Zygote:
    """Start a zygote, and wait until it is confined and has imported its modules. Its `fault` says what went wrong. Raises OSError."""
    ours, theirs = socket.socketpair()
    view = visible(warm_setup.paths)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY) if Path("/proc/self").exists() else os.dup(theirs.fileno())
    with theirs, tempfile.TemporaryFile() as setup, tempfile.TemporaryFile() as complaints:
        try:
            setup.write(marshal.dumps(_setup(rung, warm_setup, view, theirs.fileno(), proc)))
            setup.seek(0)
            process = subprocess.Popen(  # noqa: S603  # our own interpreter and text
                [*_wrapper(rung, view), *rungs.python()],
                stdin=setup,
                stdout=complaints,
                stderr=complaints,
                pass_fds=(theirs.fileno(), proc),
                cwd="/",
                env={} if warm_setup.hash_seed is None else {"PYTHONHASHSEED": str(warm_setup.hash_seed)},
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            os.close(proc)
        theirs.close()
        return _read_greeting(Zygote(process, ours), complaints)


def _read_greeting(zygote: Zygote, complaints: Any) -> Zygote:  # noqa: ANN401  # a file
    """Read the zygote's report about itself, or what went wrong."""
    line = b""
    zygote.control.settimeout(_HELLO_S)
    with contextlib.suppress(OSError):
        while not line.endswith(b"\n") and len(line) < _MOST_HELLO and (piece := zygote.control.recv(4096)):
            line += piece
    try:
        greeting = json.loads(line)
    except ValueError:
        zygote.kill()
        complaints.seek(0)
        lines = complaints.read(_MOST_HELLO).decode(errors="replace").strip().splitlines()
        greeting = {
            "fault": lines[-1] if lines else "the process reported nothing",
            "features": [],
            "gap": "",
            "warm": False,
        }
    zygote.fault, zygote.features = greeting["fault"], frozenset(greeting["features"])
    zygote.gap, zygote.warm = greeting["gap"], greeting["warm"]
    if zygote.fault:
        zygote.kill()
    else:
        zygote.control.settimeout(None)
    return zygote


def _setup(rung: str, warm_setup: WarmSetup, view: Visible, control: int, proc: int) -> dict[str, Any]:
    return {
        "modules": rungs.compile_modules(_MODULES), "rung": rung, "preload": warm_setup.preload, "paths": warm_setup.paths, "prepare": warm_setup.prepare,
        "visible": list(view.paths), "links": view.links, "devices": list(view.devices), "control_fd": control, "proc_fd": proc,
    }  # fmt: skip


def _wrapper(rung: str, view: Visible) -> list[str]:
    """Return the command that goes before Python's: bubblewrap's, with the file tree; nothing on the other rungs."""
    if rung != "bubblewrap":
        return []
    command = [
        shutil.which("bwrap") or "bwrap", "--as-pid-1",  # otherwise the system would adopt its orphans
        "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    ]  # fmt: skip
    if os.geteuid() == 0:  # for each call it becomes another user, who then owns nothing
        command += ["--cap-drop", "ALL"]
        command += [part for name in ("SETUID", "SETGID", "SYS_ADMIN") for part in ("--cap-add", f"CAP_{name}")]
    else:
        command += ["--unshare-user"]
    above = {str(parent) for path in view.paths for parent in list(Path(path).parents)[:-1]}
    for folder in sorted({*above, "/dev"}):  # bwrap would copy modes, and others may not enter root's home
        command += ["--perms", "0755", "--dir", folder]
    command += ["--size", str(Bounds().disk_bytes), "--tmpfs", OWN]  # for calls that cannot mount their own
    for path in view.paths:
        command += ["--ro-bind", path, path]
    for path in view.devices:
        command += ["--dev-bind", path, path]
    for path, target in view.links.items():
        command += ["--symlink", target, path]
    return [*command, "--remount-ro", "/", "--"]


_warm: dict[tuple[str, WarmSetup], Zygote] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def zygote(rung: str, setup: WarmSetup = WarmSetup()) -> Iterator[Zygote]:  # noqa: B008  # it is frozen
    """Yield a zygote for a call, warm where that is safe. Raises SandboxError when the rung is not available, OSError if no process can be started."""
    key = (rung, setup)
    with _lock:
        process = _warm.get(key)
        if process is None or not process.is_there():
            if process is not None:
                _warm.pop(key).kill()
            process = start(*key)
            if process.fault:
                raise SandboxError(f"the sandbox '{rung}' cannot confine a process here: {process.fault}", (rung,))
            if process.warm:
                _warm[key] = process
    if process.warm:
        yield process
        return
    try:
        yield process
    finally:
        process.close()


def close_all() -> None:
    """End all warm processes; the next call starts new ones."""
    with _lock:
        for process in _warm.values():
            process.close()
        _warm.clear()


def _forget_all() -> None:
    """Forget the warm processes in a fork of this process, which does not own them."""
    global _lock  # noqa: PLW0603  # another thread may have held it when we were forked
    _lock = threading.Lock()
    for process in _warm.values():
        process.forget()
    _warm.clear()


atexit.register(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


_CLEANING_S = 10.0  # a process that escaped may keep writing


@contextlib.contextmanager
def working_directory() -> Iterator[str]:
    """Yield a new directory, and remove it afterwards, even if it has become deep or has closed folders."""
    directory = tempfile.mkdtemp(prefix="dsa-")
    try:
        yield directory
    finally:
        with contextlib.suppress(OSError):
            flatten(Path(directory), time.monotonic() + _CLEANING_S)
        with contextlib.suppress(RecursionError):
            shutil.rmtree(directory, ignore_errors=True)


def flatten(directory: Path, give_up: float) -> None:
    """Delete everything below, at any depth: code can nest directories deeper than rmtree can recurse."""
    fresh = 0
    while (entries := list(os.scandir(directory))) and time.monotonic() < give_up:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                Path(entry.path).unlink()
                continue
            Path(entry.path).chmod(0o700)
            for inner in list(os.scandir(entry.path)):
                if inner.is_dir(follow_symlinks=False):
                    Path(inner.path).chmod(0o700)  # a directory that cannot be written cannot be moved
                fresh += 1
                Path(inner.path).rename(directory / f"flat-{fresh}")
            Path(entry.path).rmdir()


_GRACE_S = 2.0  # for the worker to start and for the watching process to clean up; then everything is killed
_PIECE_BYTES = 65_536
_PIPES = ("result", "status", "output")


def run_on(
    rung: str, program: SandboxProgram, payload: str, bounds: Bounds, confinement: Confinement
) -> SandboxOutcome:
    """Run `program` and call its `run(payload, result_fd)` on a rung. It raises nothing because of what the code does.

    Raises SandboxError when code cannot be confined, or the rung lacks what is required; then nothing was run.
    """
    start_s = time.monotonic()
    with shortages(), zygote(rung, program.setup) as process, contextlib.ExitStack() as stack:
        if missing := confinement.missing(rung, process.features):
            raise SandboxError(f"the sandbox '{rung}' lacks required features: {', '.join(missing)}", missing)
        folder = "" if "own file tree" in process.features else stack.enter_context(working_directory())
        header = {"program": program.text, "bounds": attrs.asdict(bounds), "folder": folder}
        pipes = _CallPipes(bounds, stack)
        _ask(process, header, payload, pipes)
        pipes.collect(start_s + bounds.timeout_s + _GRACE_S)
        if not pipes.over:
            process.kill()
        pipes.drain()
    return _outcome(pipes, bounds, time.monotonic() - start_s, rung, process)


def _ask(process: Zygote, header: dict[str, Any], payload: str, pipes: "_CallPipes") -> None:
    # Unlike a pipe, a file does not fill up while nothing reads it.
    with tempfile.TemporaryFile() as head, tempfile.TemporaryFile() as body:
        try:
            for file, text in ((head, json.dumps(header)), (body, payload)):
                file.write(text.encode("utf-8", "surrogatepass"))
                file.seek(0)
            process.ask([head.fileno(), body.fileno(), *pipes.theirs])
        finally:
            pipes.hand_over()


class _CallPipes:
    """The pipes of a call, and what has been read from each so far."""

    def __init__(self, bounds: Bounds, stack: contextlib.ExitStack) -> None:
        self._bounds = bounds
        self._most = {"result": bounds.result_bytes, "output": bounds.output_bytes, "status": _PIECE_BYTES}
        self._names: dict[int, str] = {}
        self.theirs: list[int] = []
        self.pieces = {name: bytearray() for name in _PIPES}
        self.tail = b""
        self.is_flooded = False
        self.over = False
        for name in _PIPES:
            reader, writer = os.pipe()
            stack.callback(os.close, reader)
            os.set_blocking(reader, False)
            self._names[reader] = name
            self.theirs.append(writer)
        end, self._lifeline = os.pipe()
        stack.callback(self._cut)
        self.theirs.append(end)

    def hand_over(self) -> None:
        """Close the ends here that the other side has now."""
        for file in self.theirs:
            os.close(file)

    def _cut(self) -> None:
        """End the call: the watching process kills everything in it, and reports."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def collect(self, deadline: float) -> None:
        """Read all pipes until the watching process has closed its own, which it does last."""
        with selectors.DefaultSelector() as selector:
            for reader in self._names:
                selector.register(reader, selectors.EVENT_READ)
            while not self.over and (left_s := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    if not self._read(key.fd):
                        selector.unregister(key.fd)
                        self.over = self.over or self._names[key.fd] == "status"
                if len(self.pieces["result"]) > self._bounds.result_bytes:
                    self.is_flooded = True
                    self._cut()

    def drain(self) -> None:
        """Read what is still in the pipes, without waiting for processes that hold them open."""
        for reader in self._names:
            self._read(reader)

    def _read(self, reader: int) -> bool:
        """Read one piece; return False at the end of the pipe. Keep at most one byte more than allowed, and also the end of the output."""
        name = self._names[reader]
        try:
            piece = os.read(reader, _PIECE_BYTES)
        except BlockingIOError:
            return True
        into = self.pieces[name]
        room = self._most[name] + (name != "output") - len(into)
        into += piece[:room]
        if name == "output" and len(piece) > room:
            self.tail = (self.tail + piece[room:])[-self._most[name] :]
        return bool(piece)


def _outcome(pipes: _CallPipes, bounds: Bounds, seconds: float, rung: str, process: Zygote) -> SandboxOutcome:
    pieces = pipes.pieces
    try:
        status = json.loads(pieces["status"])
    except ValueError:  # the watching process was killed: at our deadline, or by the code
        status = {"ended": "timeout" if seconds > bounds.timeout_s else "lost", "code": 0, "cpu_s": 0.0, "fault": ""}
    if status["fault"]:
        raise SandboxError(f"code could not be confined by the sandbox '{rung}': {status['fault']}", (rung,))
    return SandboxOutcome(
        end="flooded" if pipes.is_flooded else status["ended"],
        code=status["code"],
        results=bytes(pieces["result"]),
        output=bytes(pieces["output"]),
        seconds=seconds,
        cpu_s=status["cpu_s"],
        rung=rung,
        features=process.features,
        tail=pipes.tail,
        lowered_bounds=status.get("lowered", {}),
        gap=process.gap,
    )
