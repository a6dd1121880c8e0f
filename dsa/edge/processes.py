"""Processes of this user: a program with limits, work spread over forks, C text compiled to a library; and the environment's secrets.

`run_program` sends a text to a program and returns its output and how it ended. The program is trusted: it has this process's environment and
files. Code that models write runs in `dsa.edge.sandbox`.

`spread` divides a list of work among as many processes as there are processors; the results come in the order of the list. A fork has the whole
state of this process, so work need not be sent; results are pickled. Without fork (Windows), or with one processor, this process does all the work.

`compile_library` compiles C99 text with `cc`, `gcc` or `clang` and loads it. Its files lie in a directory that only this user can read, and are
removed once the library is loaded.
"""

import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Literal, NoReturn, TypeVar

import attrs

from dsa.errors import DsaError
from dsa.runtime.secrets import SecretOptions, Secrets, secrets_in

#: ended by itself · killed at its time limit · killed for writing too much
End = Literal["ended", "timeout", "flooded"]

_PIECE_BYTES = 65_536
_TAIL_BYTES = 4_096


@attrs.frozen
class ProcessResult:
    """How a program ended: its exit code (negative: the signal that killed it), its output, and the end of its error output."""

    end: End
    code: int
    output: bytes
    complaints: bytes


def run_program(command: Sequence[str], input_bytes: bytes, *, timeout_s: float, most_bytes: int) -> ProcessResult:
    """Start a program, send it its input, and wait until it and its output have ended. Raises DsaError when it cannot be started.

    After `timeout_s` seconds, or when it has written more than `most_bytes`, it is killed together with everything that it started.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  (the user's own program)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DsaError(f"{command[0]} cannot be started: {reason}") from error
    try:
        return _Talk(process, input_bytes, most_bytes).until(time.monotonic() + timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it left behind
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class _Talk:
    """The pipes of one program, read and written as they are ready."""

    def __init__(self, process: "subprocess.Popen[bytes]", input_bytes: bytes, most_bytes: int) -> None:
        self._process, self._input, self._most = process, memoryview(input_bytes), most_bytes
        self._output, self._complaints = bytearray(), bytearray()

    def until(self, deadline_s: float) -> ProcessResult:
        """Read and write until the program has closed its output and ended, or exceeds a limit."""
        process = self._process
        with selectors.DefaultSelector() as selector:
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert pipe is not None, "all three are pipes"
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, selectors.EVENT_WRITE if pipe is process.stdin else selectors.EVENT_READ)
            while selector.get_map():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return self._result("timeout")
                for key, _ in selector.select(left_s):
                    if self._is_over(key.fileobj):  # type: ignore[arg-type]  # what was registered
                        selector.unregister(key.fileobj)
                if len(self._output) > self._most:
                    return self._result("flooded")
        try:
            process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return self._result("timeout")
        return self._result("ended")

    def _is_over(self, pipe: IO[bytes]) -> bool:
        """Write or read what is possible now; return whether this pipe is finished."""
        if pipe is self._process.stdin:
            with suppress(BrokenPipeError):  # it does not read the rest
                self._input = self._input[os.write(pipe.fileno(), self._input[:_PIECE_BYTES]) :]
                if self._input:
                    return False
            pipe.close()
            return True
        piece = os.read(pipe.fileno(), _PIECE_BYTES)
        if pipe is self._process.stdout:
            self._output += piece
        else:
            self._complaints = (self._complaints + piece)[-_TAIL_BYTES:]
        return not piece

    def _result(self, end: End) -> ProcessResult:
        return ProcessResult(end, self._process.poll() or 0, bytes(self._output[: self._most]), bytes(self._complaints))


Result = TypeVar("Result")
#: Less work than this is not worth a fork.
_FEW = 20


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(work: Callable[[int], Result], count: int) -> Iterator[Result]:
    """Yield the results of work for 0, 1, .. up to `count`. The processes end when this ends, however it ends.

    Work that another process did not finish is done here, so that an error is raised here, with its traceback.
    """
    many = processors()
    if many == 1 or count < _FEW or not hasattr(os, "fork"):
        yield from map(work, range(count))
        return
    children: list[tuple[int, Connection]] = []
    try:
        for first in range(many):
            children.append(_fork(work, range(first, count, many), [reader for _, reader in children]))
        for number in range(count):
            try:
                result = children[number % many][1].recv()
            except EOFError:
                result = work(number)
            yield result
    finally:
        for child, reader in children:
            reader.close()
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _fork(work: Callable[[int], object], numbers: range, others: Sequence[Connection]) -> tuple[int, Connection]:
    """Start a process with part of the work; return its id and the connection with its results."""
    reader, writer = Pipe(duplex=False)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the child has set what it does on Ctrl-C
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for other in (reader, *others):
            other.close()
        _work(work, numbers, writer)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    writer.close()
    return child, reader


def _work(work: Callable[[int], object], numbers: range, writer: Connection) -> NoReturn:
    """Do a part of the work in a process of its own, until it is done, or killed, or the reader has gone."""
    try:
        for number in numbers:
            writer.send(work(number))
    finally:
        os._exit(0)  # the parent's exit handlers must not run here


TIME_LIMIT_S = 120
_NAMES = ("cc", "gcc", "clang")
_FLAGS = ("-std=c99", "-O2", "-shared", "-fPIC")


def compiler() -> Path | None:
    """Return the C compiler, or None if none is found."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    return Path(path) if path else None


def compile_library(source: str) -> ctypes.CDLL:
    """Compile C text and load it. Raises DsaError if there is no compiler, it fails or does not end, or its result cannot be loaded."""
    program = compiler()
    if program is None:
        raise _compile_error("there is no C compiler (looked for cc, gcc, clang); install one, or use another engine")
    with tempfile.TemporaryDirectory(prefix="dsa-") as folder:
        text, library = Path(folder, "search.c"), Path(folder, "search.so")
        text.write_text(source, encoding="ascii")
        _run(program, text, library)
        try:
            return ctypes.CDLL(str(library))
        except OSError as problem:
            raise _compile_error(f"the library from {program.name} could not be loaded: {problem}") from problem


def _compile_error(message: str) -> DsaError:
    return DsaError(message, code="CompileError")


def _run(program: Path, text: Path, library: Path) -> None:
    try:
        result = subprocess.run(  # noqa: S603  (the program is the one found above)
            [program, *_FLAGS, "-o", library, text], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise _compile_error(f"{program} could not compile the code: {problem}") from problem
    if result.returncode != 0:
        first = next((line for line in result.stderr.splitlines() if "error" in line), result.stderr.strip())
        raise _compile_error(f"{program} could not compile the code (exit {result.returncode}): {first}")


def environment_secrets(options: SecretOptions | None = None) -> Secrets:
    """Return the secrets of this process's environment, with a user's options. Raises DsaError.

    The path of an existing file is not a secret, whatever its variable is called: GOOGLE_APPLICATION_CREDENTIALS names a file.
    """
    return _secrets_in(tuple(os.environ.items()), options)


@lru_cache(maxsize=8)
def _secrets_in(variables: tuple[tuple[str, str], ...], options: SecretOptions | None) -> Secrets:
    """Search an environment once: that takes longer than a short run."""
    return secrets_in({name: value for name, value in variables if not _is_path(value)}, options)


def _is_path(value: str) -> bool:
    try:
        return value.startswith(("/", "~")) and Path(value).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # too long for a path, no home, a zero byte
        return False
