"""Run a program of ours over code that is not, in a separate confined process, and give back what it reported.

Takes the text of a Python program that defines `run(payload, result_fd)`, a payload, and bounds; gives what was
written to the private result pipe, what was printed, how it ended, and which protections were achieved. It must not
know what the program does: `dsa.guards.cases` brings one.

The process is `python -I -S` in a session of its own, with an empty environment, no input, a working directory that
is removed afterwards, no other open file, limits on processor time, memory, file size, open files and processes, and
a wall clock; all that is left of it is killed with SIGKILL. Where Linux permits, it also has process, network and IPC
namespaces of its own, a user of its own when started by root, no capabilities and no way to new privileges.
`limits()` tells what this cannot stop. It needs a POSIX system.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal

import attrs

from dsa.errors import DsaError

_CHILD = Path(__file__).with_name("isolated_child.py")
_GRACE_S = 2.0  # for the child to start and to sweep; then the group is killed
_CLEANING_S = 10.0  # a process that escaped may go on writing
_PIECE_BYTES = 65_536

#: exited by itself · killed by a signal (`code` is its number) · at the wall clock · for reporting too much · unknown
End = Literal["exited", "signalled", "timeout", "flooded", "lost"]


class IsolationError(DsaError):
    """Raised when no isolated process can be had on this system at all."""


@attrs.frozen
class Bounds:
    """What the process may use. `result_bytes` bounds what it reports, `output_bytes` what is kept of its prints."""

    timeout_s: float = 10.0
    cpu_s: int = 3
    memory_bytes: int = 512 * 1024 * 1024
    file_bytes: int = 1024 * 1024
    open_files: int = 64
    processes: int = 32
    result_bytes: int = 64 * 1024
    output_bytes: int = 64 * 1024


@attrs.frozen
class Isolated:
    """What came out. Only `results` was meant to; who ran the code may have forged that too: judge it as a claim.

    `code` is the exit status or the signal's number. `features` are the protections that were achieved.
    """

    ended: End
    code: int
    results: bytes
    output: bytes
    seconds: float
    cpu_s: float
    features: frozenset[str] = frozenset()


def run_isolated(program: str, payload: str, bounds: Bounds | None = None, *, namespaces: bool = True) -> Isolated:
    """Run `program` and call its `run(payload, result_fd)` in an isolated process.

    `namespaces=False` goes without them, as a kernel that refuses them would. Never raises for what the code does;
    raises IsolationError where the system cannot fork.
    """
    if os.name != "posix":
        raise IsolationError("code of a model is run on Linux and macOS only: this system cannot isolate it")
    bounds = bounds or Bounds()
    started = time.monotonic()
    with _working_directory() as directory, contextlib.ExitStack() as opened:
        job = {**attrs.asdict(bounds), "program": program, "payload": payload, "namespaces": namespaces}
        process, readers = _launch(job, directory, opened)
        received = _collect(process, readers, bounds, started + bounds.timeout_s + _GRACE_S)
    return _outcome(received, bounds, time.monotonic() - started)


def limits(features: Collection[str] = ()) -> tuple[str, ...]:
    """Tell what an isolated process with these features can still do, one sentence each.

    Without `features`: what every process of this kind can do.
    """
    found = [
        "It can read every file that all users may read, other processes' command lines among them.",
        "It can write files of bounded size, any number of them, where all users may write, such as /tmp.",
        "It can attack the kernel through any system call: nothing filters them.",
        "It can report any result it likes: a right value says nothing about how it was found.",
    ]
    if "network_namespace" not in features:
        found.append("It can use the network.")
    if "pid_namespace" not in features:
        found.append("It can see other processes, signal those of its user, and kill the one that watches it.")
    if "own_uid" not in features and "user_namespace" not in features:
        found.append("It can read this process's environment, and read and write all that this user can.")
    elif "own_uid" not in features:
        found.append("It can read and write all files that this user can.")
    if "limit_processes" not in features:
        found.append("It can start any number of processes until its time is over.")
    return tuple(found)


def achieved_features() -> frozenset[str]:
    """Run nothing in an isolated process and tell which protections this machine gives it."""
    return run_isolated("def run(payload, result_fd): pass", "").features


# -- starting -----------------------------------------------------------------------------------------------------

_Readers = dict[int, str]


def _launch(
    job: dict[str, Any], directory: str, opened: contextlib.ExitStack
) -> tuple[subprocess.Popen[bytes], _Readers]:
    readers: _Readers = {}
    writers: dict[str, int] = {}
    for name in ("result", "status", "output"):
        reader, writer = os.pipe()
        opened.callback(os.close, reader)
        os.set_blocking(reader, False)
        readers[reader] = name
        writers[name] = writer
    try:
        with tempfile.TemporaryFile() as stdin:  # a file cannot fill up like a pipe while nobody reads
            stdin.write(json.dumps(job | {f"{name}_fd": fd for name, fd in writers.items()}).encode())
            stdin.seek(0)
            process = subprocess.Popen(  # noqa: S603  # our own interpreter and script
                [sys.executable, "-I", "-S", str(_CHILD)],
                stdin=stdin,
                stdout=writers["output"],
                stderr=writers["output"],
                pass_fds=(writers["result"], writers["status"]),
                cwd=directory,
                env={},
                start_new_session=True,
            )
    finally:
        for writer in writers.values():
            os.close(writer)
    opened.callback(_end, process)
    return process, readers


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process group, then collect its leader, whose id stays taken until then."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: only zombies left, on macOS
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# -- collecting ---------------------------------------------------------------------------------------------------


@attrs.define
class _Received:
    """What has been read of each pipe so far, and whether the result pipe brought too much."""

    pieces: dict[str, bytearray]
    flooded: bool = False


def _collect(process: subprocess.Popen[bytes], readers: _Readers, bounds: Bounds, deadline: float) -> _Received:
    """Read all pipes until the watching process has closed its own, which it does last."""
    received = _Received({name: bytearray() for name in readers.values()})
    most = {"result": bounds.result_bytes, "output": bounds.output_bytes, "status": _PIECE_BYTES}
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        watched = True
        while watched and (left_s := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                name = readers[key.fd]
                if not _read(key.fd, received.pieces[name], most[name]):
                    selector.unregister(key.fd)
                    watched = watched and name != "status"
            if len(received.pieces["result"]) > bounds.result_bytes and not received.flooded:
                received.flooded = True
                os.kill(process.pid, signal.SIGTERM)  # the watching process kills all and reports
    _end(process)
    for reader, name in readers.items():  # what is still in the pipes; nobody who holds one open is waited for
        _read(reader, received.pieces[name], most[name])
    return received


def _read(reader: int, into: bytearray, most: int) -> bool:
    """Read one piece, keep at most one byte more than `most`; False at the end of the pipe."""
    try:
        piece = os.read(reader, _PIECE_BYTES)
    except BlockingIOError:
        return True
    into += piece[: most + 1 - len(into)]
    return bool(piece)


def _outcome(received: _Received, bounds: Bounds, seconds: float) -> Isolated:
    pieces = received.pieces
    try:
        status = json.loads(pieces["status"])
    except ValueError:  # the watching process was killed: by our deadline, or by the code
        status = {"ended": "timeout" if seconds > bounds.timeout_s else "lost", "code": 0, "cpu_s": 0.0, "features": []}
    return Isolated(
        ended="flooded" if received.flooded else status["ended"],
        code=status["code"],
        results=bytes(pieces["result"]),
        output=bytes(pieces["output"][: bounds.output_bytes]),
        seconds=seconds,
        cpu_s=status["cpu_s"],
        features=frozenset(status["features"]),
    )


# -- the working directory ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _working_directory() -> Iterator[str]:
    directory = tempfile.mkdtemp(prefix="dsa-")
    try:
        yield directory
    finally:
        with contextlib.suppress(OSError):
            _flatten(Path(directory), time.monotonic() + _CLEANING_S)
        with contextlib.suppress(RecursionError):
            shutil.rmtree(directory, ignore_errors=True)


def _flatten(directory: Path, give_up: float) -> None:
    """Delete everything below, however deep: code can nest directories deeper than rmtree can recurse."""
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
