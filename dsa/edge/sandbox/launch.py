"""Start the process from which calls are forked, on one rung, and talk to it.

Takes a rung and what is to be imported; gives a `Zygote`. It has no environment but a seed for hashes, no other open file than its control socket and a view
of `/proc` that code never gets, and it ends when the socket is closed: also when this process is killed.
"""

import contextlib
import json
import marshal
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.sandbox import boot
from dsa.edge.sandbox.features import SandboxError
from dsa.edge.sandbox.model import Bounds, Setup
from dsa.edge.sandbox.visible import OWN, Visible, visible

_MODULES = ("kernel", "landlock", "seccomp", "tree", "limits", "children", "confine", "serve")
_HELLO_S = 30.0
_MOST_HELLO = 65_536


@attrs.define(eq=False)
class Zygote:
    """A process that forks one confined process for each call. `fault` says why it is not there; then it takes no calls.

    `gap` says why system calls are not filtered; empty where they are. One that is not `warm` could be reached by its calls: it takes only one.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    features: frozenset[str] = frozenset()
    fault: str = ""
    gap: str = ""
    warm: bool = False

    def ask(self, files: Sequence[int]) -> None:
        """Hand a call over: header, payload, result, status, output, lifeline. Raises SandboxError when it is gone."""
        try:
            socket.send_fds(self.control, [b"c"], files)
        except OSError as error:
            raise SandboxError(f"the process that runs code is gone: {error}") from error

    def is_there(self) -> bool:
        """Tell whether it still runs."""
        return self.process.poll() is None

    def close(self) -> None:
        """Let it end by itself, its calls with it; kill it when it does not."""
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
        """Let go of it in a fork of the process that started it, which does not own it."""
        self.control.close()
        self.process.returncode = 0


def start(rung: str, wanted: Setup) -> Zygote:
    """Start one and wait until it is confined and has imported what it should; what goes wrong is its `fault`. Raises OSError."""
    ours, theirs = socket.socketpair()
    shown = visible(wanted.paths)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY) if Path("/proc/self").exists() else os.dup(theirs.fileno())
    with theirs, tempfile.TemporaryFile() as setup, tempfile.TemporaryFile() as complaints:
        try:
            setup.write(marshal.dumps(_setup(rung, wanted, shown, theirs.fileno(), proc)))
            setup.seek(0)
            process = subprocess.Popen(  # noqa: S603  # our own interpreter and text
                [*_wrapper(rung, shown), *boot.python()],
                stdin=setup,
                stdout=complaints,
                stderr=complaints,
                pass_fds=(theirs.fileno(), proc),
                cwd="/",
                env={} if wanted.hash_seed is None else {"PYTHONHASHSEED": str(wanted.hash_seed)},
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            os.close(proc)
        theirs.close()
        return _greeted(Zygote(process, ours), complaints)


def _greeted(zygote: Zygote, complaints: Any) -> Zygote:  # noqa: ANN401  # a file
    """Read what it says of itself, or what went wrong."""
    line = b""
    zygote.control.settimeout(_HELLO_S)
    with contextlib.suppress(OSError):
        while not line.endswith(b"\n") and len(line) < _MOST_HELLO and (piece := zygote.control.recv(4096)):
            line += piece
    try:
        said = json.loads(line)
    except ValueError:
        zygote.kill()
        complaints.seek(0)
        lines = complaints.read(_MOST_HELLO).decode(errors="replace").strip().splitlines()
        said = {"fault": lines[-1] if lines else "it said nothing", "features": [], "gap": "", "warm": False}
    zygote.fault, zygote.features = said["fault"], frozenset(said["features"])
    zygote.gap, zygote.warm = said["gap"], said["warm"]
    if zygote.fault:
        zygote.kill()
    else:
        zygote.control.settimeout(None)
    return zygote


def _setup(rung: str, wanted: Setup, shown: Visible, control: int, proc: int) -> dict[str, Any]:
    return {
        "modules": boot.compiled(_MODULES), "rung": rung, "preload": wanted.preload, "paths": wanted.paths, "prepare": wanted.prepare,
        "visible": list(shown.paths), "links": shown.links, "devices": list(shown.devices), "control_fd": control, "proc_fd": proc,
    }  # fmt: skip


def _wrapper(rung: str, shown: Visible) -> list[str]:
    """Give the command that goes before Python's: bubblewrap's, with the file tree; nothing on the other rungs."""
    if rung != "bubblewrap":
        return []
    command = [
        shutil.which("bwrap") or "bwrap", "--as-pid-1",  # else a process of its own would be left to whoever adopts orphans
        "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
    ]  # fmt: skip
    if os.geteuid() == 0:  # for each call it becomes another user, who then has nothing
        command += ["--cap-drop", "ALL"]
        command += [part for name in ("SETUID", "SETGID", "SYS_ADMIN") for part in ("--cap-add", f"CAP_{name}")]
    else:
        command += ["--unshare-user"]
    above = {str(parent) for path in shown.paths for parent in list(Path(path).parents)[:-1]}
    for folder in sorted({*above, "/dev"}):  # by itself it would copy modes, and nobody may enter root's home
        command += ["--perms", "0755", "--dir", folder]
    command += ["--size", str(Bounds().disk_bytes), "--tmpfs", OWN]  # for calls that cannot mount their own
    for path in shown.paths:
        command += ["--ro-bind", path, path]
    for path in shown.devices:
        command += ["--dev-bind", path, path]
    for path, target in shown.links.items():
        command += ["--symlink", target, path]
    return [*command, "--remount-ro", "/", "--"]
