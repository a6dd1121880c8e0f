"""What is run, what it may use, and what came out."""

from typing import Literal

import attrs

#: exited by itself · killed by a signal (`code` is its number) · at the time limit · for reporting too much · unknown
End = Literal["exited", "signalled", "timeout", "flooded", "lost"]


@attrs.frozen
class Program:
    """The text of a Python program of ours that defines `run(payload, result_fd)`.

    `preload` names modules that are imported beforehand, once, in the process from which calls are forked; `paths` are folders in which
    they are found besides the standard library, and which the code can read.
    """

    text: str
    preload: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Raise SyntaxError here for what is no Python, not where calls are waited for."""
        compile(self.text, "<program>", "exec")


@attrs.frozen
class Bounds:
    """What one call may use. `result_bytes` bounds what it reports, `output_bytes` what is kept of its prints: at the beginning, and at the end.

    Processor time, memory, size of a file and open files are for each process; disk space is for all of a call, where its folder is its own.
    """

    timeout_s: float = 10.0
    cpu_s: int = 3
    memory_bytes: int = 512 * 1024 * 1024
    file_bytes: int = 1024 * 1024
    disk_bytes: int = 16 * 1024 * 1024
    disk_files: int = 4096
    open_files: int = 64
    processes: int = 32
    result_bytes: int = 64 * 1024
    output_bytes: int = 64 * 1024


@attrs.frozen
class Outcome:
    """What came out. Only `results` was meant to; the code may have forged that too: judge it as a claim.

    `code` is the exit status or the signal's number; `rung` and `features` say how the code was confined. `output` is the beginning of what was
    printed; `tail` is the end of the rest, which is empty where nothing was left out.
    """

    ended: End
    code: int
    results: bytes
    output: bytes
    seconds: float
    cpu_s: float
    rung: str
    features: frozenset[str] = frozenset()
    tail: bytes = b""
