"""The rungs of the sandbox, what they keep code from, and what somebody may require. Words and rules only; it starts nothing.

A rung is a way to confine a process, a feature something that the code then cannot do. Both are known by their names, which
`Confinement`, every result and `dsa doctor` use.
"""

import contextlib
import errno
from collections.abc import Collection, Iterable, Iterator

import attrs

from dsa.errors import DsaError

#: Best first.
RUNGS = {
    "bubblewrap": "a file tree, user, processes and network of its own, set up by the program bwrap; then as the next",
    "namespaces": "a file tree, user, processes and network of its own, set up by system calls; then Landlock and a filter",
    "landlock": "files kept away by Landlock, sockets by a filter of system calls; limits",
    "limits": "limits on time, memory, files and processes, a filter of system calls, and the user's own rights",
}
#: What a process may be kept from. What stands beside each is what it can do without it.
FEATURES = {
    "no files outside": "It can read and write the files that its user can.",
    "own file tree": "It can see names, sizes and times of files outside, and change modes and times of its user's.",
    "no network": "It can use the network, and local services that listen on sockets.",
    "own processes": "It can signal, and so kill, other processes of its user, the one that watches it among them.",
    "no environments": "It can read the environment of other processes of its user, with the keys that are in it.",
    "own user": "It runs as the user who runs this.",
    "no privileges": "It keeps the capabilities of its user, and can gain others by programs that grant them.",
    "filtered system calls": "It can attack the kernel through any system call: nothing filters them.",
    "bounded disk": "It can write any number of files of bounded size where it can write at all.",
    "bounded processor time": "It can use a processor until the time limit.",
    "bounded memory": "It can use all memory.",
    "bounded files": "It can write files of any size.",
    "bounded open files": "It can open any number of files.",
    "bounded processes": "It can start any number of processes until the time limit.",
}
#: What stays possible whatever is achieved.
ALWAYS = (
    "It can read Python's library and the system's shared libraries.",
    "It can use the memory and time limits once for each process that it starts, up to the limit on processes.",
    "It can attack the kernel through the system calls that every program needs, and measure time to learn about the machine.",
    "It can report any result it likes: a right value says nothing about how it was found.",
)


class SandboxError(DsaError):
    """Raised when code cannot be run as confined as it must be. `missing` names the features, or the rung, that are not there."""

    def __init__(self, message: str, missing: Collection[str] = ()) -> None:
        super().__init__(message)
        self.missing = tuple(missing)


#: What helps where this machine, or this process, is out of something.
_HINTS = {
    errno.EMFILE: "this process has too many open files: close some, or raise its limit (ulimit -n)",
    errno.ENFILE: "the machine has too many open files",
    errno.EFBIG: "this process may not write a file of that size: raise its limit (ulimit -f)",
    errno.ENOSPC: "the folder for temporary files is full: make room, or name another (TMPDIR)",
    errno.EDQUOT: "the folder for temporary files is full: make room, or name another (TMPDIR)",
    errno.EAGAIN: "this user has too many processes: end some, or raise the limit (ulimit -u)",
    errno.ENOMEM: "there is too little memory",
}


class ShortageError(SandboxError):
    """Raised when this machine, or this process, is out of something: files, processes, disk. Later it may have it again."""


@contextlib.contextmanager
def shortages() -> Iterator[None]:
    """Raise ShortageError, with what helps, for an OSError of our own doing."""
    try:
        yield
    except OSError as error:
        hint = f"; {_HINTS[error.errno]}" if error.errno in _HINTS else ""
        raise ShortageError(f"code cannot be run now: {error}{hint}") from error


def _names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


@attrs.frozen
class Confinement:
    """What must hold of every run, else it is refused: `require` names features, or a rung, which then is the least.

    `rung` takes exactly this one instead of the best there is. ValueError for names that are none.
    """

    require: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    rung: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse a name that is neither a feature nor a rung: nothing would be required by it."""
        unknown = sorted(self.require - {*FEATURES, *RUNGS})
        if unknown:
            known = ", ".join((*FEATURES, *RUNGS))
            raise ValueError(f"'{unknown[0]}' is nothing that a sandbox can be required to have: {known}")
        if self.rung and self.rung not in RUNGS:
            raise ValueError(f"'{self.rung}' is no rung of the sandbox: {', '.join(RUNGS)}")

    def missing(self, rung: str, features: Collection[str]) -> tuple[str, ...]:
        """Name what is required and not there, in the order of the lists above."""
        order = list(RUNGS)
        lower = order[order.index(rung) + 1 :]
        have = {*features, rung, *lower}
        return tuple(name for name in (*FEATURES, *RUNGS) if name in self.require and name not in have)


def limits(features: Collection[str] = ()) -> tuple[str, ...]:
    """Tell what code can still do in a sandbox with these features, one sentence each; without any: on no rung worth the name."""
    return (*(can for name, can in FEATURES.items() if name not in features), *ALWAYS)
