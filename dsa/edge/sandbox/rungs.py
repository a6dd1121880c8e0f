"""The rungs of the sandbox, their features, and what callers may require. Nothing here starts a process.

A rung is a way to confine a process; a feature is something that the code then cannot do. `Confinement`, every result and `dsa doctor` use their names.
`SandboxProgram`, `Bounds` and `SandboxOutcome` are what runs, what it may use, and its result.

`visible` lists the files of this machine that code can read: Python, its library, and the system's shared libraries, none of which it can write.
`python` is the command that starts Python inside, without an environment; `compile_modules` compiles modules of the folder `inside`, which are sent with
their setup and never read from a path.
"""

import contextlib
import errno
import functools
import math
import os
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Literal

import attrs

from dsa.errors import DsaError

#: Best first.
RUNGS = {
    "bubblewrap": "a file tree, user, processes and network of its own, set up by the program bwrap; then like the next rung",
    "namespaces": "a file tree, user, processes and network of its own, set up by system calls; then Landlock and a filter",
    "landlock": "files kept away by Landlock, sockets by a filter of system calls; limits",
    "limits": "limits on time, memory, files and processes, a filter of system calls, and the user's own rights",
}
#: The features of rungs, each with what code can do without it.
FEATURES = {
    "no files outside": "It can read and write the files that its user can.",
    "own file tree": "It can see names, sizes and times of files outside, and change modes and times of its user's files.",
    "no network": "It can use the network, and local services that listen on sockets.",
    "own processes": "It can signal, and so kill, other processes of its user, including the one that watches it.",
    "no environments": "It can read the environment of other processes of its user, with the keys in it.",
    "own user": "It runs as the user who runs dsa.",
    "no privileges": "It keeps the capabilities of its user, and can gain more by running programs that grant them.",
    "filtered system calls": "It can attack the kernel through any system call, because no call is filtered.",
    "bounded disk": "It can write any number of files, each of bounded size, wherever it may write.",
    "bounded processor time": "It can use a processor until the time limit.",
    "bounded memory": "It can use all memory.",
    "bounded files": "It can write files of any size.",
    "bounded open files": "It can open any number of files.",
    "bounded processes": "It can start any number of processes until the time limit.",
}
#: What remains possible on every rung.
ALWAYS = (
    "It can read Python's library and the system's shared libraries.",
    "It can start processes, up to the limit on processes, and each may use as much memory and time as the limits allow.",
    "It can attack the kernel through the system calls that every program needs, and measure time to learn about the machine.",
    "It can report any result it likes: a correct value does not show how it was found.",
)


class SandboxError(DsaError):
    """Raised when code cannot be confined as required. `missing` names the features, or the rung, that are not available.

    `is_shortage` means that this machine, or this process, is only short of files, processes or disk; later there may be enough.
    """

    def __init__(self, message: str, missing: Collection[str] = (), *, is_shortage: bool = False) -> None:
        super().__init__(message, code="ShortageError" if is_shortage else "")
        self.missing, self.is_shortage = tuple(missing), is_shortage


#: Hints for when this machine, or this process, is short of a resource.
_HINTS = {
    errno.EMFILE: "this process has too many open files: close some, or raise its limit (ulimit -n)",
    errno.ENFILE: "the machine has too many open files",
    errno.EFBIG: "this process may not write such a large file: raise its limit (ulimit -f)",
    errno.ENOSPC: "the folder for temporary files is full: delete files there, or set another folder (TMPDIR)",
    errno.EDQUOT: "the folder for temporary files is full: delete files there, or set another folder (TMPDIR)",
    errno.EAGAIN: "this user has too many processes: end some, or raise the limit (ulimit -u)",
    errno.ENOMEM: "there is too little memory",
}


@contextlib.contextmanager
def shortages() -> Iterator[None]:
    """Turn an OSError into a SandboxError with `is_shortage` and a hint."""
    try:
        yield
    except OSError as error:
        hint = f"; {_HINTS[error.errno]}" if error.errno in _HINTS else ""
        raise SandboxError(f"code cannot be run now: {error}{hint}", is_shortage=True) from error


def _names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


@attrs.frozen
class Confinement:
    """What every run must have, or it is refused: `require` names features, or the lowest rung.

    `rung` picks exactly this rung instead of the best one. Raises ValueError for unknown names.
    """

    require: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    rung: str = ""

    def __attrs_post_init__(self) -> None:
        """Raise ValueError for a name that is neither a feature nor a rung: it would require nothing."""
        unknown = sorted(self.require - {*FEATURES, *RUNGS})
        if unknown:
            names = ", ".join((*FEATURES, *RUNGS))
            raise ValueError(f"'{unknown[0]}' is neither a feature nor a rung of the sandbox; allowed: {names}")
        if self.rung and self.rung not in RUNGS:
            raise ValueError(f"'{self.rung}' is not a rung of the sandbox; allowed: {', '.join(RUNGS)}")

    def missing(self, rung: str, features: Collection[str]) -> tuple[str, ...]:
        """Return the required features that are missing, in the order of the lists above."""
        order = list(RUNGS)
        lower = order[order.index(rung) + 1 :]
        have = {*features, rung, *lower}
        return tuple(name for name in (*FEATURES, *RUNGS) if name in self.require and name not in have)


def limits(features: Collection[str] = ()) -> tuple[str, ...]:
    """Return what code can still do in a sandbox with these features, one sentence each."""
    return (*(can for name, can in FEATURES.items() if name not in features), *ALWAYS)


#: exited by itself · killed by a signal (`code` is its number) · at the time limit · for reporting too much · unknown
End = Literal["exited", "signalled", "timeout", "flooded", "lost"]


@attrs.frozen
class SandboxProgram:
    """The text of a trusted Python program that defines `run(payload, result_fd)`.

    `preload` names modules that are imported once, in the process from which calls are forked. `paths` are folders with such modules, besides
    the standard library; code can read them. `prepare` is Python that this process then runs, once, in a namespace that calls do not see.
    If no process is kept warm, neither happens. `hash_seed` makes hashes of texts, and so the order of sets, the same in every call
    (PYTHONHASHSEED, 0 to 4294967295).
    """

    text: str
    preload: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    prepare: str = ""
    hash_seed: int | None = None

    def __attrs_post_init__(self) -> None:
        """Raise SyntaxError here for invalid Python, rather than during a call."""
        compile(self.text, "<program>", "exec")
        compile(self.prepare, "<prepare>", "exec")
        if self.hash_seed is not None and not 0 <= self.hash_seed < 1 << 32:
            raise ValueError(f"hash_seed = {self.hash_seed} is not a valid seed: it must be 0 to {(1 << 32) - 1}")

    @property
    def setup(self) -> "WarmSetup":
        """The setup of the process from which calls are forked."""
        return WarmSetup(self.preload, self.paths, self.prepare, self.hash_seed)


@attrs.frozen
class WarmSetup:
    """The setup of a warm process: programs with the same modules, folders, preparation and seed share one. See `SandboxProgram`."""

    preload: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    prepare: str = ""
    hash_seed: int | None = None


_MOST = (1 << 63) - 1  # the largest number in the kernel


@attrs.frozen
class Bounds:
    """The limits of one call. `result_bytes` limits its report, `output_bytes` what is kept of its output, at the beginning and at the end.

    Processor time, memory, size of a file and open files are for each process; disk space is for the whole call, if it has its own folder.
    If the calling process has a lower limit itself (`ulimit -H`), a call gets that one: see `SandboxOutcome.lowered_bounds`. Raises ValueError
    for an invalid bound.
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
        """Raise ValueError for what the kernel would refuse later, in a process that can no longer explain it."""
        if not (self.timeout_s > 0 and math.isfinite(self.timeout_s)):
            raise ValueError(
                f"timeout_s = {self.timeout_s} is not a valid time limit: it must be a number of seconds above 0"
            )
        for name, limit in attrs.asdict(self).items():
            if name != "timeout_s" and not (isinstance(limit, int) and 0 <= limit <= _MOST):
                raise ValueError(
                    f"{name} = {limit!r} is not a valid limit: it must be a whole number from 0 to {_MOST}"
                )


@attrs.frozen
class SandboxOutcome:
    """The outcome of a call. `results` is what it reported; the code may have forged it, so treat it as a claim.

    `code` is the exit status or the signal's number; `rung` and `features` say how the code was confined. `output` is the beginning of what it
    printed, `tail` the end of the rest, empty if there is none. `lowered_bounds` has the bounds, by name, that were lower than requested because
    this user may not have more. `gap` says why system calls were not filtered; empty if they were.
    """

    end: End
    code: int
    results: bytes
    output: bytes
    seconds: float
    cpu_s: float
    rung: str
    features: frozenset[str] = frozenset()
    tail: bytes = b""
    lowered_bounds: Mapping[str, int] = attrs.field(factory=dict)
    gap: str = ""


_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/share/zoneinfo")
_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime")
#: The folder of each call, as in `inside.confinement`, and links to it: where programs put temporary files, and the C library semaphores.
OWN = "/own"
_TO_OWN = ("/tmp", "/dev/shm")  # noqa: S108
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@attrs.frozen
class Visible:
    """Files and folders by their real paths, none below another; symbolic links that lead to them; devices."""

    paths: tuple[str, ...]
    links: dict[str, str]
    devices: tuple[str, ...]


def interpreter() -> str:
    """Return the real path of the Python that runs this, outside any virtual environment."""
    return os.path.realpath(sys.executable)


@functools.cache
def visible(more: tuple[str, ...] = ()) -> Visible:
    """Return the files and folders that code can read; `more` are further folders."""
    library = [str(Path(path).parent.parent) for path in (os.__file__, sysconfig.get_config_var("DESTSHARED")) if path]
    paths = [interpreter(), *library, *more, *_SYSTEM, *_FILES]
    links = {path: os.readlink(path) for path in paths if os.path.islink(path)}  # noqa: PTH114, PTH115
    real = sorted({os.path.realpath(path) for path in paths if Path(path).exists()})
    tops = [path for path in real if not any(path.startswith(f"{other}/") for other in real)]
    devices = tuple(path for path in _DEVICES if Path(path).exists())
    links |= {path: OWN for path in _TO_OWN if not any(top.startswith(f"{path}/") for top in tops)}
    outside = {path: to for path, to in links.items() if not any(path.startswith(f"{top}/") for top in tops)}
    return Visible(tuple(tops), outside, devices)


INSIDE = Path(__file__).with_name("inside")
_PACKAGES = ("dsa", "dsa.edge", "dsa.edge.sandbox", "dsa.edge.sandbox.inside")
#: With the environment that Python gets, this is the same as `-I`, except that `-I` would ignore the seed for hashes.
_ISOLATION_FLAGS = ("-P", "-s", "-S")

#: Reads the setup, makes the modules that are in it, removes the names under which they found each other, and serves.
_BOOT = f"""
import marshal, sys, types
setup = marshal.loads(open(0, "rb", closefd=False).read())
for name in {_PACKAGES!r}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, code in setup.pop("modules"):
    module = sys.modules["dsa.edge.sandbox.inside." + name] = types.ModuleType(name)
    setattr(sys.modules["dsa.edge.sandbox.inside"], name, module)
    exec(code, module.__dict__)
for name in [name for name in sys.modules if name.partition(".")[0] == "dsa"]:
    del sys.modules[name]
module.main(setup)
"""


def python() -> list[str]:
    """Return the command that starts Python. It reads its marshalled setup from standard input; `modules` in it are from `compile_modules`."""
    return [interpreter(), *_ISOLATION_FLAGS, "-c", _BOOT]


@functools.cache
def compile_modules(names: tuple[str, ...]) -> list[tuple[str, CodeType]]:
    """Compile modules, once: the same Python runs inside. Each may import those before it."""
    return [(name, compile((INSIDE / f"{name}.py").read_bytes(), f"{name}.py", "exec")) for name in names]
