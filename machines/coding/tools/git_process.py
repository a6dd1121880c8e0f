"""Git processes: git with fixed settings, which runs no other program.

`run_git_process` takes arguments and variables, and returns git's output, limited in size and time. The caller chooses the repository. Git reads the settings of
that repository, so a caller who does not trust them passes another `GIT_DIR`.
"""

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import attrs

from dsa.errors import DsaError

#: The folders of git, never in a workspace.
_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin:/opt/local/bin"
_NOWHERE = "/nonexistent"
_ENVIRONMENT = {
    "PATH": _PATH, "HOME": _NOWHERE, "XDG_CONFIG_HOME": _NOWHERE, "LC_ALL": "C", "TERM": "dumb", "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false", "GIT_EDITOR": "false", "GIT_PAGER": "cat", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none", "GIT_SSH_COMMAND": "false",
}  # fmt: skip
#: These override the settings of a repository.
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "core.quotePath=false", "core.splitIndex=false",
    "core.untrackedCache=false", "commit.gpgSign=false", "log.showSignature=false", "diff.external=", "gc.auto=0", "maintenance.auto=false",
    "protocol.allow=never", "submodule.recurse=false",
)  # fmt: skip
_GLOBAL = ("--no-pager", "--no-replace-objects", "--literal-pathspecs")
_COMPLAINT_BYTES = 2_000
_PIECE = 65_536
_GRACE_S = 1.0


@attrs.frozen
class GitBounds:
    """The limits of a git process: its time in seconds, and the bytes of its output that are returned, from the start and from the end."""

    timeout_s: float = 20.0
    head_bytes: int = 1_000_000
    tail_bytes: int = 0


@attrs.frozen
class GitOutput:
    """The output of git: its start, its end, and the bytes omitted between them. `complaint` is the start of its stderr."""

    code: int
    head: bytes
    tail: bytes
    omitted_bytes: int
    complaint: str

    def text(self) -> str:
        """Return the output as text, with a note on omitted bytes; a shortened output has whole lines."""
        if not self.omitted_bytes:
            return (self.head + self.tail).decode("utf-8", "replace")
        head, tail = self.head.rpartition(b"\n")[0], self.tail.partition(b"\n")[2]
        texts = [part.decode("utf-8", "replace") for part in (head, tail)]
        return f"{texts[0]}\n[.. {self.omitted_in_text:,} bytes left out ..]\n{texts[1]}"

    @property
    def omitted_in_text(self) -> int:
        """The bytes that `text` omits, including those of cut lines."""
        if not self.omitted_bytes:
            return 0
        return self.omitted_bytes + len(self.head.rpartition(b"\n")[2]) + len(self.tail.partition(b"\n")[0])


def _git_error(message: str) -> DsaError:
    return DsaError(message, code="GitFailedError")


def run_git_process(
    arguments: Sequence[str],
    *,
    folder: Path,
    bounds: GitBounds = GitBounds(),
    stdin_data: bytes = b"",
    **variables: str,
) -> GitOutput:
    """Run git in a folder with arguments and variables (`GIT_DIR`, ..), and return its output.

    The environment of this process is not passed on. Raises DsaError where git is not installed, and when it has not ended in time.
    """
    git = shutil.which("git", path=_PATH)
    if git is None:
        raise _git_error("git is not installed in any of these folders: " + _PATH)
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    with tempfile.TemporaryFile() as stdin:
        stdin.write(stdin_data)
        stdin.seek(0)
        process = subprocess.Popen(  # noqa: S603  # a fixed program, no shell
            [git, *_GLOBAL, *settings, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=folder, env=_ENVIRONMENT | variables, start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as stdout, process.stderr as stderr:
        output, complaint = _BoundedOutput(bounds.head_bytes, bounds.tail_bytes), _BoundedOutput(_COMPLAINT_BYTES, 0)
        try:
            _read({stdout: output, stderr: complaint}, time.monotonic() + bounds.timeout_s)
            code = process.wait(_GRACE_S)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise _git_error(f"git was ended after {bounds.timeout_s:g} s: ask for less") from None
        finally:
            _end(process)
    message = bytes(complaint.head).decode("utf-8", "replace").strip()
    return GitOutput(code, bytes(output.head), bytes(output.tail), output.omitted_bytes(), message)


@attrs.define
class _BoundedOutput:
    """The start and the end of an output."""

    head_bytes: int
    tail_bytes: int
    head: bytearray = attrs.field(factory=bytearray)
    tail: bytearray = attrs.field(factory=bytearray)
    read_bytes: int = 0

    def add(self, piece: bytes) -> None:
        self.read_bytes += len(piece)
        room = self.head_bytes - len(self.head)
        self.head += piece[:room]
        self.tail += piece[room:]
        if len(self.tail) > self.tail_bytes:
            del self.tail[: len(self.tail) - self.tail_bytes]

    def omitted_bytes(self) -> int:
        return self.read_bytes - len(self.head) - len(self.tail)


def _read(pipes: dict[IO[bytes], _BoundedOutput], deadline_s: float) -> None:
    """Read all pipes to their ends. Raises TimeoutError."""
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            for key, _ in selector.select(left_s):
                piece = os.read(key.fd, _PIECE)
                if piece:
                    pipes[key.fileobj].add(piece)  # type: ignore[index]  # it is one of the pipes
                else:
                    selector.unregister(key.fileobj)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all processes that it has started. SIGTERM comes first, because git then removes its locks."""
    if process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
                return
        process.wait()
