"""What is run, what it may use, and what came out."""

import math
from collections.abc import Mapping
from typing import Literal

import attrs

#: exited by itself · killed by a signal (`code` is its number) · at the time limit · for reporting too much · unknown
End = Literal["exited", "signalled", "timeout", "flooded", "lost"]


@attrs.frozen
class Program:
    """The text of a Python program of ours that defines `run(payload, result_fd)`.

    `preload` names modules that are imported beforehand, once, in the process from which calls are forked; `paths` are folders in which
    they are found besides the standard library, and which the code can read. `prepare` is Python that this process then runs, once, in a
    namespace that calls do not see; where no process is kept warm, neither happens. `hash_seed` makes hashes of texts, and so the order of
    sets, the same in every call (PYTHONHASHSEED, 0 to 4294967295).
    """

    text: str
    preload: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    prepare: str = ""
    hash_seed: int | None = None

    def __attrs_post_init__(self) -> None:
        """Raise SyntaxError here for what is no Python, not where calls are waited for."""
        compile(self.text, "<program>", "exec")
        compile(self.prepare, "<prepare>", "exec")
        if self.hash_seed is not None and not 0 <= self.hash_seed < 1 << 32:
            raise ValueError(f"hash_seed = {self.hash_seed} is none: 0 to {(1 << 32) - 1}")

    @property
    def setup(self) -> "Setup":
        """What the process from which calls are forked is started with."""
        return Setup(self.preload, self.paths, self.prepare, self.hash_seed)


@attrs.frozen
class Setup:
    """What programs may share a warm process by: the same modules, folders, preparation and seed. See `Program`."""

    preload: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    prepare: str = ""
    hash_seed: int | None = None


_MOST = (1 << 63) - 1  # what the kernel can count to


@attrs.frozen
class Bounds:
    """What one call may use. `result_bytes` bounds what it reports, `output_bytes` what is kept of its prints: at the beginning, and at the end.

    Processor time, memory, size of a file and open files are for each process; disk space is for all of a call, where its folder is its own.
    Where the process that runs this may have less itself (`ulimit -H`), a call has that: see `Outcome.lowered`. ValueError for what is no bound.
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

    def __attrs_post_init__(self) -> None:
        """Refuse what the kernel would refuse later, in a process that can no longer say so well."""
        if not (self.timeout_s > 0 and math.isfinite(self.timeout_s)):
            raise ValueError(f"timeout_s = {self.timeout_s} is no time to wait: a number of seconds above 0")
        for name, bound in attrs.asdict(self).items():
            if name != "timeout_s" and not (isinstance(bound, int) and 0 <= bound <= _MOST):
                raise ValueError(f"{name} = {bound!r} is no bound: a whole number from 0 to {_MOST}")


@attrs.frozen
class Outcome:
    """What came out. Only `results` was meant to; the code may have forged that too: judge it as a claim.

    `code` is the exit status or the signal's number; `rung` and `features` say how the code was confined. `output` is the beginning of what was
    printed; `tail` is the end of the rest, which is empty where nothing was left out. `lowered` has the bounds that were less than asked for, by name,
    because this user may not have more; `gap` says why system calls were not filtered, and is empty where they were.
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
    lowered: Mapping[str, int] = attrs.field(factory=dict)
    gap: str = ""
