"""The sandbox for commands: one command over a folder that it may write, and the probe of the rungs that this machine has.

`run_command` takes a `ShellCommand` and returns a `CommandEnd`. bubblewrap makes the file tree, and a process, user and network of the command's own;
`Sandbox` holds its processes, and leaving it kills all of them. Nothing survives the command, however it ends. This module does not judge whether the
command makes sense or what its output means. `ladder` probes the rungs: a program that attacks runs on each, and a feature
counts only if the attacks could not break it. Every rung is tried at most once in a process; the attacks aim at a file, a folder and sockets made for them.
"""

import contextlib
import functools
import json
import marshal
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import attrs

from dsa.edge.sandbox import rungs
from dsa.edge.sandbox.rungs import (
    FEATURES,
    OWN,
    RUNGS,
    Bounds,
    Confinement,
    SandboxError,
    SandboxOutcome,
    SandboxProgram,
    Visible,
    interpreter,
    shortages,
    visible,
)
from dsa.edge.sandbox.sandbox_runner import run_on

#: The program that attacks.
TRIALS = SandboxProgram((Path(__file__).with_name("trials.py")).read_text(encoding="utf-8"))
_BOUNDS = Bounds(timeout_s=10)
_lock = threading.Lock()


@attrs.frozen
class Rung:
    """A rung on this machine: the `features` that held when attacked, or the `fault` because of which it cannot be used.

    `notes` say what is weaker here than elsewhere, and why: no filter of system calls, lower limits for this user.
    """

    name: str
    features: frozenset[str] = frozenset()
    fault: str = ""
    notes: tuple[str, ...] = ()


def probe(name: str) -> Rung:
    """Try a rung. The result is kept while this process lives, unless the machine was only short of a resource."""
    with _lock:
        try:
            return _probe_rung(name)
        except SandboxError as error:
            return Rung(name, fault=str(error))


def ladder() -> tuple[Rung, ...]:
    """Try all rungs, best first."""
    return tuple(map(probe, RUNGS))


def best() -> Rung:
    """Return the best rung that this machine reaches. Raises SandboxError with the fault of each if it reaches none."""
    faults = []
    for name in RUNGS:
        rung = probe(name)
        if not rung.fault:
            return rung
        faults.append(f"{name}: {rung.fault}")
    raise SandboxError(f"this machine cannot confine code at all ({'; '.join(faults)})", tuple(RUNGS))


@functools.cache
def _probe_rung(name: str) -> Rung:
    if fault := _not_here(name):
        return Rung(name, fault=fault)
    try:
        with shortages(), targets() as target_data:
            outcome = run_on(name, TRIALS, json.dumps(target_data), _BOUNDS, Confinement())
    except SandboxError as error:
        if error.is_shortage:
            raise
        return Rung(name, fault=str(error))
    try:
        broken_features = json.loads(outcome.results)
    except ValueError:
        lines = outcome.output.decode(errors="replace").strip().splitlines()
        return Rung(
            name,
            fault=f"its trial program gave no result ({outcome.end}): {lines[-1] if lines else 'it printed nothing'}",
        )
    if fault := broken_promises(outcome.features, broken_features):
        return Rung(name, fault=fault)
    return Rung(name, outcome.features, notes=tuple(_notes(outcome)))


def broken_promises(promises: Collection[str], broken_features: Mapping[str, list[str]]) -> str:
    """Return which promises did not hold when tried, and what broke them; empty when all held."""
    failures = [
        f"{name} ({'; '.join(by)})" if by else name for name, by in sorted(broken_features.items()) if name in promises
    ]
    return f"a trial showed that these promises do not hold: {', '.join(failures)}" if failures else ""


def _notes(outcome: SandboxOutcome) -> Iterator[str]:
    if outcome.gap:
        yield outcome.gap
    for name, limit in outcome.lowered_bounds.items():
        yield f"{name} is at most {limit}, not {getattr(_BOUNDS, name)}, because this user is not allowed more (ulimit -H)"


def _not_here(name: str) -> str:
    if not hasattr(os, "fork"):  # what needs it does not exist on Windows
        return "a model's code is run on Linux and macOS only"
    if name != "limits" and sys.platform != "linux":
        return "only Linux has it"
    if name == "bubblewrap" and shutil.which("bwrap") is None:
        return "bwrap is not installed (apt install bubblewrap)"
    return ""


@contextlib.contextmanager
def targets() -> Iterator[dict[str, Any]]:
    """Make the targets of the attacks: a file of this user, a folder for all, listening sockets. This process is a target too."""
    with tempfile.TemporaryDirectory(prefix="dsa-") as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o777)
        secret = Path(folder) / "secret"
        secret.write_text("outside", encoding="utf-8")
        secret.chmod(0o644)
        target_data: dict[str, Any] = {"folder": folder, "secret": str(secret), "pid": os.getpid()}
        with contextlib.suppress(OSError):  # on a machine without loopback there is no TCP to reach
            tcp = stack.enter_context(socket.socket())
            tcp.bind(("127.0.0.1", 0))
            tcp.listen()
            target_data["tcp"] = tcp.getsockname()[1]
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(f"{folder}/s")
        local.listen()
        letters = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        letters.bind(f"{folder}/d")
        for each in "sd":
            (Path(folder) / each).chmod(0o777)
        yield target_data


_MODULES = ("system_calls", "seccomp", "relay", "command_process")
_PROXY = "/run/proxy"
_TMP_BYTES, _SHARED_BYTES = 512 << 20, 64 << 20
_TMP, _SHARED_MEMORY = "/tmp", "/dev/shm"  # noqa: S108  # of its own
_MOST_HOPS = 40
_SWEEPING_S = 5.0
_MOST_COMPLAINTS = 4_096
#: Files that programs expect on a machine; they tell nothing about this one.
_ETC = {
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/passwd": "sandbox:x:{user}:{group}:sandbox:/tmp:/bin/sh\n",
    "/etc/group": "sandbox:x:{group}:\n",
}


@attrs.frozen
class ShellCommand:
    """A command, its folder, and what it sees. `argv` starts with the real path of a program; `environment` is its whole environment.

    `folder` is visible under its own path and is writable, except for `read_only` (existing paths in it). `visible` is not writable.
    `hosts` is the Unix socket of a proxy, if the command may use the network through one. `stdin` is its whole input.
    """

    argv: tuple[str, ...]
    folder: str
    cwd: str
    environment: Mapping[str, str]
    visible: Visible
    read_only: tuple[str, ...] = ()
    stdin: bytes = b""
    hosts: str = ""
    is_confined: bool = True


class Pipes:
    """The pipes of a command: its output, its status, and a lifeline: closing it here ends the command."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self.output, self.output_end = self._pair()
        self.status, self.status_end = self._pair()
        self.lifeline_end, self.lifeline = self._pair()
        for reader in (self.output, self.status):
            os.set_blocking(reader, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in tuple(self._open):
            self.close(file)

    def _pair(self) -> tuple[int, int]:
        pair = os.pipe()
        self._open |= set(pair)
        return pair

    def hand_over(self) -> None:
        """Close the ends here that the sandbox has now."""
        for file in (self.output_end, self.status_end, self.lifeline_end):
            self.close(file)

    def close(self, file: int) -> None:
        """Close one end, if it is open."""
        if file in self._open:
            self._open.remove(file)
            os.close(file)


class Sandbox:
    """The processes of a command. Leaving it kills all that are left, and waits until they have ended. Raises OSError."""

    def __init__(self, command: ShellCommand, bounds: Mapping[str, Any], pipes: Pipes) -> None:
        self._first = 0
        self._is_confined, self._pipes = command.is_confined, pipes
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # closed on leaving
        with contextlib.ExitStack() as stack:
            info, info_end = os.pipe()
            stack.callback(os.close, info)
            with contextlib.ExitStack() as handover:
                handover.callback(os.close, info_end)
                handover.callback(pipes.hand_over)
                self._process = self._start(command, bounds, pipes, handover, info_end)
            if command.is_confined:
                self._first = _first_in(info)

    def _start(
        self, command: ShellCommand, bounds: Mapping[str, Any], pipes: Pipes, stack: contextlib.ExitStack, info: int
    ) -> subprocess.Popen[bytes]:
        stdin = stack.enter_context(_file(command.stdin))  # a file has no reader to wait for
        descriptors = {"stdin_fd": stdin, "output_fd": pipes.output_end, "status_fd": pipes.status_end}
        descriptors["lifeline_fd"] = pipes.lifeline_end
        setup = {
            "modules": rungs.compile_modules(_MODULES), "argv": list(command.argv), "cwd": command.cwd, "folder": command.folder, "bounds": dict(bounds),
            "environment": dict(command.environment), "confined": command.is_confined, "relay": _PROXY if command.hosts else "", **descriptors,
        }  # fmt: skip
        files = (
            {path: stack.enter_context(_file(_fill_in(text))) for path, text in _ETC.items()}
            if command.is_confined
            else {}
        )
        before = _wrapper(command, files, info) if command.is_confined else []
        try:
            return subprocess.Popen(  # noqa: S603  # our own interpreter and text
                [*before, *rungs.python()],
                stdin=stack.enter_context(_file(marshal.dumps(setup))),
                stdout=self._complaints,
                stderr=self._complaints,
                pass_fds=(*descriptors.values(), *files.values(), info),
                cwd="/",
                env={},
                start_new_session=True,
            )
        except OSError:
            self._complaints.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(by_itself=False)
        self._complaints.close()

    def end(self, *, by_itself: bool) -> None:
        """Wait until nothing is left; kill everything, unless the first process has reported and ends by itself."""
        if not by_itself and self._process.returncode is None:
            # Only the first process can find everything that it started; once it is killed, nothing can.
            if not self._is_confined:
                self._pipes.close(self._pipes.lifeline)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_SWEEPING_S)
            # bubblewrap ends when all in it have: killed itself, it would not wait.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._first or self._process.pid, signal.SIGKILL)
        self._process.wait()

    def complaints(self) -> str:
        """Return the last line of the errors before the command could start."""
        self._complaints.seek(0)
        lines = self._complaints.read(_MOST_COMPLAINTS).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def visible_paths(*paths: str) -> Visible:
    """Return what a command can see outside its folder: Python, the system's libraries, these files and folders, and links to them."""
    view = visible(tuple(sorted({os.path.realpath(path) for path in paths})))
    links = {path: to for path, to in view.links.items() if to != OWN}
    for path in paths:
        links |= _hops(path)
    return Visible(view.paths, {p: to for p, to in links.items() if not _is_below(p, view.paths)}, view.devices)


def _hops(path: str) -> dict[str, str]:
    """Return the symbolic links that a path goes through."""
    links: dict[str, str] = {}
    parts, at = list(Path(path).parts[1:]), Path("/")
    while parts and len(links) < _MOST_HOPS:
        at /= parts.pop(0)
        if at.is_symlink():
            links[str(at)] = target = str(at.readlink())
            parts = [*Path(os.path.normpath(at.parent / target)).parts[1:], *parts]
            at = Path("/")
    return links


def _is_below(path: str, tops: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{top}/") for top in tops)


def _first_in(info: int) -> int:
    """Read which process is the first in the sandbox; 0 if there was none."""
    text = b""
    while piece := os.read(info, 4_096):
        text += piece
    with contextlib.suppress(ValueError):
        return int(json.loads(text)["child-pid"])
    return 0


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


def _fill_in(text: str) -> bytes:
    return text.format(user=os.geteuid(), group=os.getegid()).encode()


def _wrapper(command: ShellCommand, files: Mapping[str, int], info: int) -> list[str]:
    """Return the command that goes before Python's. Later mounts cover earlier ones."""
    return [
        shutil.which("bwrap") or "bwrap", "--as-pid-1", "--die-with-parent", "--info-fd", str(info), "--clearenv", "--cap-drop", "ALL",
        "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--hostname", "sandbox", "--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", _TMP,
        *_folders(command),
        *(part for path in command.visible.paths for part in ("--ro-bind", path, path)),
        *(part for path, target in command.visible.links.items() for part in ("--symlink", target, path)),
        "--dev", "/dev", "--perms", "1777", "--size", str(_SHARED_BYTES), "--tmpfs", _SHARED_MEMORY, "--remount-ro", "/dev",
        "--proc", "/proc", "--remount-ro", "/proc",
        *(part for path, file in files.items() for part in ("--perms", "0444", "--ro-bind-data", str(file), path)),
        *(("--bind", command.hosts, _PROXY) if command.hosts else ()),
        "--bind", command.folder, command.folder,
        *_read_only_mounts(command),
        "--remount-ro", "/", "--chdir", "/", "--",
    ]  # fmt: skip


def _folders(command: ShellCommand) -> list[str]:
    """Make the folders above visible paths. bubblewrap would use the modes of those outside, which may deny access."""
    tops = command.visible.paths
    above = {
        str(parent)
        for path in (*tops, *command.visible.links, command.folder)
        for parent in list(Path(path).parents)[:-1]
        if not _is_below(str(parent), tops)
    }
    return [part for folder in sorted(above - {_TMP}) for part in ("--perms", "0755", "--dir", folder)]


def _read_only_mounts(command: ShellCommand) -> list[str]:
    """Mount again, read-only, the paths in the folder that the command may not write.

    The folders that lead to them become mounts too: a mount cannot be renamed and replaced by another folder.
    """
    inside = [path for path in command.visible.paths if path.startswith(f"{command.folder}/")]
    read_only = sorted({*command.read_only, *inside})
    parents = {
        str(parent)
        for path in read_only
        for parent in Path(path).parents
        if f"{parent}/".startswith(f"{command.folder}/")
    }
    mounts = dict.fromkeys(parents - {command.folder}, "--bind") | dict.fromkeys(read_only, "--ro-bind")
    return [part for path in sorted(mounts) for part in (mounts[path], path, path)]


_RUNG_NAME = "bubblewrap"

#: In a network of its own a command may send datagrams, which reach no one. So only connections count.
_ATTACK = """
import sys
addresses = _addresses
def _addresses(targets):
    return [each for each in addresses(targets) if each[1] == socket.SOCK_STREAM]
run(sys.argv[1], 1)
"""
_MARGIN_S = 3.0  # for the first process of the sandbox to start and to report; then everything is killed
_PIECE_BYTES = 65_536
_MOST_STATUS = 4_096
#: The features that confine a command. It runs as this user, over this user's files; its use of the disk is watched, not bounded.
KEPT_FROM = frozenset(FEATURES) - {"own user", "bounded disk"}
#: How much one command may use: memory, size of a file and open files for each process, disk and processes for all together.
BOUNDS = Bounds(
    timeout_s=60, cpu_s=3_600, memory_bytes=4 << 30, file_bytes=256 << 20, disk_bytes=2 << 30, open_files=512, processes=256,
    output_bytes=9 << 10,
)  # fmt: skip

#: exited by itself · at the time limit · because it was stopped · it filled the disk · too many processes · unknown
How = Literal["exited", "timeout", "stopped", "disk", "processes", "lost"]


@attrs.frozen
class CommandEnd:
    """How a command ended. `status` is its exit status, the negative number of a signal, or None if the kernel had to end it.

    `head` is the beginning of its output and errors, `tail` the end of the rest, `bytes_between` the number of bytes between them.
    """

    how: How
    status: int | None
    head: bytes = attrs.field(repr=False)
    tail: bytes = attrs.field(repr=False)
    bytes_between: int
    seconds: float


class StopSwitch:
    """Stops a command from another thread, once and for all."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    def fileno(self) -> int:
        """Return a file that is readable once the switch is set."""
        return self._reader

    def set(self) -> None:
        """Stop the command that waits for this, and every later one."""
        os.write(self._writer, b"x")

    def close(self) -> None:
        """Close its files."""
        os.close(self._reader)
        os.close(self._writer)


@contextlib.contextmanager
def stop() -> Iterator[StopSwitch]:
    """Yield a switch, and close it afterwards."""
    switch = StopSwitch()
    try:
        yield switch
    finally:
        switch.close()


def run_command(
    command: ShellCommand, bounds: Bounds = BOUNDS, grace_s: float = 1.0, switch: StopSwitch | None = None
) -> CommandEnd:
    """Run a command to its end, at most `timeout_s` and `grace_s` long. Raises SandboxError if it cannot be confined like this."""
    start_s = time.monotonic()
    with shortages(), Pipes() as pipes:
        limits = {**attrs.asdict(bounds), "grace_s": grace_s}
        with Sandbox(command, limits, pipes) as sandbox:
            reader = _CommandPipes(pipes, bounds.output_bytes)
            reader.collect(start_s + bounds.timeout_s + grace_s + _MARGIN_S, switch)
            sandbox.end(by_itself=reader.is_over)
            reader.drain()
            return _command_end(reader, sandbox.complaints(), time.monotonic() - start_s)


class _CommandPipes:
    """Reads a command's pipes: the beginning and the end of its output, and all of its status."""

    def __init__(self, pipes: Pipes, most: int) -> None:
        self._pipes, self._most = pipes, most
        self.head, self.tail, self.status = bytearray(), b"", b""
        self.bytes_between = 0
        self.is_over = False

    def collect(self, deadline: float, switch: StopSwitch | None) -> None:
        """Read until the sandbox has closed its status, or the deadline."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipes.output, selectors.EVENT_READ, self._read_output)
            selector.register(self._pipes.status, selectors.EVENT_READ, self._read_status)
            if switch is not None:
                selector.register(switch, selectors.EVENT_READ, self._pass_on)
            while not self.is_over and (left_s := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    if not key.data():
                        selector.unregister(key.fileobj)

    def drain(self) -> None:
        """Read what is still in the pipe, without waiting for processes that hold it open."""
        with contextlib.suppress(BlockingIOError):
            while self._read_output():
                pass

    def _pass_on(self) -> bool:
        self._pipes.close(self._pipes.lifeline)
        return False

    def _read_status(self) -> bool:
        piece = os.read(self._pipes.status, _MOST_STATUS)
        self.status = (self.status + piece)[:_MOST_STATUS]
        self.is_over = not piece
        return bool(piece)

    def _read_output(self) -> bool:
        piece = os.read(self._pipes.output, _PIECE_BYTES)
        room = self._most - len(self.head)
        self.head += piece[:room]
        if len(piece) > room:
            end = self.tail + piece[room:]
            self.tail = end[-self._most :]
            self.bytes_between += len(end) - len(self.tail)
        return bool(piece)


def _command_end(reader: _CommandPipes, complaints: str, seconds: float) -> CommandEnd:
    if not reader.status and complaints:
        raise SandboxError(f"the sandbox for commands could not be made: {complaints}", ("bubblewrap",))
    how, status, fault = reader.status.decode(errors="replace").split("\n", 2) if reader.status else ("lost", "", "")
    if fault:
        raise SandboxError(f"the command could not be started: {fault}")
    code = int(status) if status else None
    return CommandEnd(how, code, bytes(reader.head), reader.tail, reader.bytes_between, seconds)  # type: ignore[arg-type]  # it is one of `How`


def probe_commands() -> Rung:
    """Try the sandbox for commands by attacking it from inside. The result is kept like that of a rung."""
    with _lock:
        try:
            return _probe_commands()
        except SandboxError as error:
            return Rung(_RUNG_NAME, fault=str(error))


@functools.cache
def _probe_commands() -> Rung:
    if sys.platform != "linux":
        return Rung(_RUNG_NAME, fault="only Linux has it")
    if shutil.which("bwrap") is None:
        return Rung(_RUNG_NAME, fault="bwrap is not installed (apt install bubblewrap)")
    try:
        with shortages(), tempfile.TemporaryDirectory(prefix="dsa-") as folder, targets() as target_data:
            code = f"{TRIALS.text}\n{_ATTACK}"
            argv = (interpreter(), "-P", "-s", "-S", "-c", code, json.dumps(target_data))
            end = run_command(
                ShellCommand(argv, folder, folder, {}, visible_paths()), attrs.evolve(BOUNDS, timeout_s=10)
            )
        broken_features = json.loads(end.head)
    except SandboxError as error:
        if error.is_shortage:
            raise
        return Rung(_RUNG_NAME, fault=str(error))
    except ValueError:
        lines = end.head.decode(errors="replace").strip().splitlines()
        return Rung(
            _RUNG_NAME,
            fault=f"its trial program gave no result ({end.how}): {lines[-1] if lines else 'it printed nothing'}",
        )
    if fault := broken_promises(KEPT_FROM, broken_features):
        return Rung(_RUNG_NAME, fault=fault)
    return Rung(_RUNG_NAME, KEPT_FROM)
