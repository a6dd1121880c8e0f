"""Start the sandbox in which one command runs: bubblewrap's arguments, and the first process in it.

Takes a command and its pipes, gives a `Sandbox`; whoever leaves it has killed all that was in it.
"""

import contextlib
import json
import marshal
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import attrs

from dsa.edge.sandbox import boot
from dsa.edge.sandbox.visible import OWN, Visible, visible

_MODULES = ("kernel", "seccomp", "limits", "children", "relay", "command")
_PROXY = "/run/proxy"
_TMP_BYTES, _SHARED_BYTES = 512 << 20, 64 << 20
_TMP, _SHARED = "/tmp", "/dev/shm"  # noqa: S108  # of its own
_MOST_HOPS = 40
_SWEEPING_S = 5.0
_MOST_COMPLAINTS = 4_096
#: What programs want to find of a machine; no line of this one.
_ETC = {
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/passwd": "sandbox:x:{user}:{group}:sandbox:/tmp:/bin/sh\n",
    "/etc/group": "sandbox:x:{group}:\n",
}


@attrs.frozen
class Command:
    """What is run, where, and what it sees. `argv` starts with the real path of a program, `environment` is all it gets.

    `folder` is shown with its own path and may be written, but for `kept` (paths in it, which must be there). `visible` is shown too, and
    cannot be written. `hosts` is the Unix socket of a proxy, if it may use the network through one. `stdin` is all it can read.
    """

    argv: tuple[str, ...]
    folder: str
    cwd: str
    environment: Mapping[str, str]
    visible: Visible
    kept: tuple[str, ...] = ()
    stdin: bytes = b""
    hosts: str = ""
    confined: bool = True


class Pipes:
    """The pipes of a command: what it writes, how it ended, what ends it when it is closed here."""

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
        """Close here what the sandbox has now."""
        for file in (self.output_end, self.status_end, self.lifeline_end):
            self.close(file)

    def close(self, file: int) -> None:
        """Close one end, if it is open."""
        if file in self._open:
            self._open.remove(file)
            os.close(file)


class Sandbox:
    """The processes of a command. Leaving it kills what is left of them, and waits until nothing is. Raises OSError."""

    def __init__(self, command: Command, bounds: Mapping[str, Any], pipes: Pipes) -> None:
        self._first = 0
        self._confined, self._pipes = command.confined, pipes
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # closed on leaving
        with contextlib.ExitStack() as given:
            info, info_end = os.pipe()
            given.callback(os.close, info)
            with contextlib.ExitStack() as handed:
                handed.callback(os.close, info_end)
                handed.callback(pipes.hand_over)
                self._process = self._started(command, bounds, pipes, handed, info_end)
            if command.confined:
                self._first = _first_in(info)

    def _started(
        self, command: Command, bounds: Mapping[str, Any], pipes: Pipes, given: contextlib.ExitStack, info: int
    ) -> subprocess.Popen[bytes]:
        stdin = given.enter_context(_file(command.stdin))  # nobody waits for a reader of a file
        passed = {"stdin_fd": stdin, "output_fd": pipes.output_end, "status_fd": pipes.status_end}
        passed["lifeline_fd"] = pipes.lifeline_end
        setup = {
            "modules": boot.compiled(_MODULES), "argv": list(command.argv), "cwd": command.cwd, "folder": command.folder, "bounds": dict(bounds),
            "environment": dict(command.environment), "confined": command.confined, "relay": _PROXY if command.hosts else "", **passed,
        }  # fmt: skip
        files = (
            {path: given.enter_context(_file(_filled(text))) for path, text in _ETC.items()} if command.confined else {}
        )
        before = _wrapper(command, files, info) if command.confined else []
        try:
            return subprocess.Popen(  # noqa: S603  # our own interpreter and text
                [*before, *boot.python()],
                stdin=given.enter_context(_file(marshal.dumps(setup))),
                stdout=self._complaints,
                stderr=self._complaints,
                pass_fds=(*passed.values(), *files.values(), info),
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
        """Wait until nothing is left; kill it all, unless the first process has reported and ends by itself."""
        if not by_itself and self._process.returncode is None:
            if not self._confined:  # only the first process finds all that it started; once it is killed, nobody does
                self._pipes.close(self._pipes.lifeline)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_SWEEPING_S)
            # bubblewrap ends when all in it have: killed itself, it would not wait.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._first or self._process.pid, signal.SIGKILL)
        self._process.wait()

    def complaints(self) -> str:
        """Give the last line of what went wrong before the command could start."""
        self._complaints.seek(0)
        lines = self._complaints.read(_MOST_COMPLAINTS).decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def shown(*paths: str) -> Visible:
    """Give what a command sees besides its folder: Python, the system's libraries, these files and folders, and the links to them."""
    found = visible(tuple(sorted({os.path.realpath(path) for path in paths})))
    links = {path: to for path, to in found.links.items() if to != OWN}
    for path in paths:
        links |= _hops(path)
    return Visible(found.paths, {p: to for p, to in links.items() if not _is_below(p, found.paths)}, found.devices)


def _hops(path: str) -> dict[str, str]:
    """Give the symbolic links over which a path leads."""
    found: dict[str, str] = {}
    parts, at = list(Path(path).parts[1:]), Path("/")
    while parts and len(found) < _MOST_HOPS:
        at /= parts.pop(0)
        if at.is_symlink():
            found[str(at)] = target = str(at.readlink())
            parts = [*Path(os.path.normpath(at.parent / target)).parts[1:], *parts]
            at = Path("/")
    return found


def _is_below(path: str, tops: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{top}/") for top in tops)


def _first_in(info: int) -> int:
    """Read which process is the first in the sandbox; 0 when there was none."""
    said = b""
    while piece := os.read(info, 4_096):
        said += piece
    with contextlib.suppress(ValueError):
        return int(json.loads(said)["child-pid"])
    return 0


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


def _filled(text: str) -> bytes:
    return text.format(user=os.geteuid(), group=os.getegid()).encode()


def _wrapper(command: Command, files: Mapping[str, int], info: int) -> list[str]:
    """Give the command that goes before Python's. What is mounted later covers what was before."""
    return [
        shutil.which("bwrap") or "bwrap", "--as-pid-1", "--die-with-parent", "--info-fd", str(info), "--clearenv", "--cap-drop", "ALL",
        "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--hostname", "sandbox", "--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", _TMP,
        *_folders(command),
        *(part for path in command.visible.paths for part in ("--ro-bind", path, path)),
        *(part for path, target in command.visible.links.items() for part in ("--symlink", target, path)),
        "--dev", "/dev", "--perms", "1777", "--size", str(_SHARED_BYTES), "--tmpfs", _SHARED, "--remount-ro", "/dev",
        "--proc", "/proc", "--remount-ro", "/proc",
        *(part for path, file in files.items() for part in ("--perms", "0444", "--ro-bind-data", str(file), path)),
        *(("--bind", command.hosts, _PROXY) if command.hosts else ()),
        "--bind", command.folder, command.folder,
        *_kept(command),
        "--remount-ro", "/", "--chdir", "/", "--",
    ]  # fmt: skip


def _folders(command: Command) -> list[str]:
    """Make the folders above what is shown: by itself bubblewrap gives them the modes of those outside, which may be closed."""
    tops = command.visible.paths
    above = {
        str(parent)
        for path in (*tops, *command.visible.links, command.folder)
        for parent in list(Path(path).parents)[:-1]
        if not _is_below(str(parent), tops)
    }
    return [part for folder in sorted(above - {_TMP}) for part in ("--perms", "0755", "--dir", folder)]


def _kept(command: Command) -> list[str]:
    """Show again, without leave to write, what lies in the folder and is kept from the command.

    The folders that lead to it become mounts too: those cannot be renamed to put another in their place.
    """
    inside = [path for path in command.visible.paths if path.startswith(f"{command.folder}/")]
    kept = sorted({*command.kept, *inside})
    leading = {
        str(parent) for path in kept for parent in Path(path).parents if f"{parent}/".startswith(f"{command.folder}/")
    }
    mounts = dict.fromkeys(leading - {command.folder}, "--bind") | dict.fromkeys(kept, "--ro-bind")
    return [part for path in sorted(mounts) for part in (mounts[path], path, path)]
