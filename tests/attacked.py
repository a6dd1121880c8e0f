"""A program: judge the hostile programs on one rung, with targets for them to find, and print what was wrong, one JSON list.

`attacked.py RUNG [NAME ..]`; it is run as root and as an ordinary user, with a secret in its environment. It adopts whatever outlives its
parents, so a process that the sandbox has lost is a child of it in the end.
"""

import contextlib
import ctypes
import json
import os
import resource
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hostile_programs import CASES, HANGS, PROCESSES, PROGRAMS, SECRETS

from dsa.edge.sandbox import Confinement, choose_rung, close_all
from dsa.guards import cases as package
from dsa.guards.cases import CasesGuard
from dsa.runtime.content import Artifact

SHORT_S, LONG_S = 1.0, 30.0
_SUBREAPER = 36
_ABSTRACT = f"dsa-attacked-{os.getpid()}"
#: Keys of System V's objects: one that programs may use, and one under which there is a segment of another process.
_KEY, _THEIRS = (kind << 24 | os.getpid() for kind in (0x44, 0x45))
_SHARED = ("/dev/shm", "/tmp", "/var/tmp", "/dev/mqueue")
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def segment(secret):
    """Keep a segment of System V memory that everybody may read."""
    _libc.shmat.restype = ctypes.c_void_p
    made = _libc.shmget(_THEIRS, 4096, 0o1666)
    assert made >= 0
    try:
        ctypes.memmove(_libc.shmat(made, None, 0), secret.encode(), len(secret))
        yield
    finally:
        _libc.shmctl(made, 0, None)


def standing():
    """Return what others can change of this process from outside: priorities, where it runs, limits."""
    scheduled = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, sorted(os.sched_getaffinity(0))
    limits = [resource.getrlimit(kind) for kind in range(16)]
    return os.getpriority(os.PRIO_PROCESS, 0), *scheduled, _libc.syscall(252, 1, 0), limits


class Targets:
    """What programs may find: a secret file, a folder where all may write, listening sockets."""

    def __init__(self, folder, opened):
        self.outside = folder / "outside"
        self.outside.mkdir()
        self.outside.chmod(0o777)
        self.secret = folder / "secret"
        self.secret.write_text(SECRETS[0])
        self.secret.chmod(0o644)
        self.work = folder / "work"
        self.work.mkdir(0o755)
        opened.enter_context(segment(SECRETS[0]))
        self.listening = [
            opened.enter_context(socket.socket(*kind)) for kind in ((2, 1), (2, 2), (1, 1), (1, 1), (1, 2))
        ]
        tcp, udp, unix, abstract, letters = self.listening
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", 0))
        unix.bind(str(folder / "unix"))
        letters.bind(str(folder / "letters"))
        for each in ("unix", "letters"):
            (folder / each).chmod(0o777)
        abstract.bind(f"\0{_ABSTRACT}")
        for each in self.listening:
            each.setblocking(False)  # noqa: FBT003  # its signature
        for each in (tcp, unix, abstract):
            each.listen()
        self.names = {
            "secret": self.secret, "outside": self.outside, "pid": os.getpid(), "package": package.__file__,
            "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1], "unix": folder / "unix", "abstract": _ABSTRACT,
            "letters": folder / "letters", "key": _KEY, "theirs": _THEIRS,
        }  # fmt: skip
        self.standing = standing()
        self.before = self._state()

    def _state(self):
        state = self.secret.stat()
        return state.st_mode, state.st_mtime, self.secret.read_text(), sorted(self.outside.iterdir())

    def faults(self):
        """Return what was reached."""
        if self._state() != self.before:
            yield f"files outside were changed: {self._state()}"
        if left := list(self.work.iterdir()):
            yield f"left in the working area: {left}"
        if (now := standing()) != self.standing:
            yield f"this process stands otherwise: {self.standing}, then {now}"
        for kind in ("shm", "sem", "msg"):
            if any(line.split()[0] == str(_KEY) for line in Path("/proc/sysvipc", kind).read_text().splitlines()):
                yield f"left in the kernel: {kind}"
        left = [str(each) for place in _SHARED for each in Path(place).glob(f"dsa-{_KEY}*")]
        if left:
            yield f"left where all may write: {left}"
        for kind, each in zip(("TCP", "UDP", "unix", "abstract", "letters"), self.listening, strict=True):
            with contextlib.suppress(BlockingIOError):
                each.recv(1) if kind in ("UDP", "letters") else each.accept()
                yield f"somebody came by {kind}"


def judged(name, rung, targets):
    """Return what is wrong with the verdict about one program; empty when nothing is."""
    hostile = PROGRAMS[name]
    source = hostile.source
    for target, value in targets.names.items():
        source = source.replace(f"@{target}@", str(value))
    timeout_s = SHORT_S if name in HANGS else LONG_S
    result = CasesGuard(CASES, timeout_s, rung=rung).validate(Artifact(f"```python\n{source}\n```"))
    if result.fatal or result.passed != hostile.passes or (hostile.said and hostile.said not in result.feedback):
        return f"{name}: {result}"
    if any(secret in result.feedback for secret in SECRETS) or len(result.feedback) > 1500:
        return f"{name}: it got something: {result}"
    return ""


def children():
    """Return the processes that are children of this one and have not ended; those that have are taken note of, as init would."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in found if os.waitpid(int(pid), os.WNOHANG) == (0, 0)]


def main(rung, *names):
    """Judge all, then look around."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    features = choose_rung(Confinement(rung=rung)).features
    tried = [n for n in names or PROGRAMS if set(PROGRAMS[n].needs) <= features]
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="attacked-")))
        folder.chmod(0o755)
        targets = Targets(folder, opened)
        tempfile.tempdir = str(targets.work)
        descriptors = len(list(Path("/proc/self/fd").iterdir()))
        with ThreadPoolExecutor(4) as pool:  # what counts processes goes alone
            found = list(pool.map(lambda name: judged(name, rung, targets), [n for n in tried if n not in PROCESSES]))
        found += [judged(name, rung, targets) for name in tried if name in PROCESSES]
        faults = [fault for fault in found if fault]
        faults += targets.faults()
        close_all()
        faults += [f"left: {Path(f'/proc/{pid}/status').read_text()[:80]}" for pid in children()]
        if (more := len(list(Path("/proc/self/fd").iterdir()))) > descriptors:
            faults.append(f"{more - descriptors} more open files than before")
    print(json.dumps({"tried": len(tried), "faults": faults, "features": sorted(features)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
