"""The child's side of `dsa.edge.isolated`: confine this process, fork the worker, watch it, report on it.

Run as a script by `python -I -S`; takes its job as JSON on standard input. It must not import anything of this
package and must know nothing that the untrusted code may not know, for that code runs in a fork of it.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

Job = dict[str, Any]

_NEW_NAMESPACES = 0x20000000 | 0x40000000 | 0x08000000  # CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC: linux/sched.h
_NEW_USER = 0x10000000
_DEATH_SIGNAL, _DUMPABLE, _SUBREAPER, _NO_NEW_PRIVILEGES = 1, 4, 36, 38  # linux/prctl.h
_CAPABILITIES_V3 = 0x20080522  # linux/capability.h
_NOBODY = 65_534
_LINUX = sys.platform == "linux"


def main() -> NoReturn:
    """Do the job on standard input and end; the status goes to the job's status pipe."""
    job: Job = json.loads(sys.stdin.buffer.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    features = _confine(namespaces=job["namespaces"])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    gate = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(gate[0])
        _work(job, gate[1])
    os.close(gate[1])
    os.close(job["result_fd"])
    features += _features_of_worker(gate[0])
    status = _watch(worker, job["timeout_s"]) | {"features": features}
    os.write(job["status_fd"], json.dumps(status).encode())
    os._exit(0)


def _features_of_worker(gate: int) -> list[str]:
    """Read what the worker achieved: one line, written before it runs anything untrusted."""
    line = b""
    while not line.endswith(b"\n") and (piece := os.read(gate, 512)):
        line += piece
    os.close(gate)
    return line.decode().split()


# -- confining ----------------------------------------------------------------------------------------------------


def _confine(*, namespaces: bool) -> list[str]:
    """Take this process out of reach of others, as far as the kernel permits, and tell what was achieved."""
    if not _LINUX:
        return []
    features = []
    if namespaces and _unshare(_NEW_NAMESPACES):
        features += ["pid_namespace", "network_namespace", "ipc_namespace"]
    if os.geteuid() == 0 and _drop_root():
        features.append("own_uid")
    if namespaces and "pid_namespace" not in features and _unshare(_NEW_USER | _NEW_NAMESPACES):
        features += ["user_namespace", "pid_namespace", "network_namespace", "ipc_namespace"]
    if _control(_NO_NEW_PRIVILEGES, 1):
        features.append("no_new_privileges")
    if _control(_DEATH_SIGNAL, signal.SIGKILL):  # after the change of uid, which clears it
        features.append("death_signal")
    if _control(_SUBREAPER, 1):
        features.append("subreaper")
    return features


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _unshare(flags: int) -> bool:
    return bool(_libc().unshare(flags) == 0)


def _control(option: int, value: int) -> bool:
    return bool(_libc().prctl(option, value, 0, 0, 0) == 0)


def _drop_root() -> bool:
    """Become a user who owns nothing but the working directory.

    The standard library may lie in a home that only root can enter (pyenv): it is then reached through open
    directories. A user id of its own keeps the process limit from counting, and signals from reaching, anyone else.
    """
    opened = []
    for path in sys.path:
        with contextlib.suppress(OSError):  # the zipped library is on the path without being there
            opened.append((path, os.open(path, os.O_RDONLY | os.O_DIRECTORY)))
    for uid in (2_000_000_000 + os.getpid() % 100_000_000, _NOBODY):
        try:
            os.chown(".", uid, uid)
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        except OSError:
            continue  # a container may map only a few ids
        _control(_DUMPABLE, 1)  # else /proc/self would belong to root
        _move_library({path: f"/proc/self/fd/{fd}" for path, fd in opened if not os.access(path, os.R_OK | os.X_OK)})
        return True
    return False


def _move_library(moved: dict[str, str]) -> None:
    """Look modules up under other directories from now on, those of packages already imported too."""
    sys.path[:] = [moved.get(path, path) for path in sys.path]
    sys.path_importer_cache.clear()
    for module in list(sys.modules.values()):
        for old, new in moved.items() if hasattr(module, "__path__") else ():
            module.__path__ = [
                new + path.removeprefix(old) if path.startswith(f"{old}/") else path for path in module.__path__
            ]


# -- the worker ---------------------------------------------------------------------------------------------------


def _work(job: Job, gate: int) -> NoReturn:
    """Run the program, which is ours; it runs the code, which is not."""
    os.close(job["status_fd"])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, signal.SIGTERM})
    if _LINUX:
        os.setpgid(0, 0)  # or a signal to its own group would reach the watching process, through any namespace
        _control(_DEATH_SIGNAL, signal.SIGKILL)
    features = _set_limits(job)
    if _LINUX and _drop_capabilities():
        features.append("no_capabilities")
    os.write(gate, (" ".join(features) + "\n").encode())
    os.close(gate)
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(job["program"], "<program>", "exec"), namespace)  # noqa: S102  # the package's own text
    namespace["run"](job["payload"], job["result_fd"])
    os._exit(0)  # whatever the code left behind (exit handlers, threads) does not run


def _set_limits(job: Job) -> list[str]:
    wanted = {
        "core": (resource.RLIMIT_CORE, 0),
        "cpu": (resource.RLIMIT_CPU, job["cpu_s"]),
        "memory": (resource.RLIMIT_AS, job["memory_bytes"]),
        "file_size": (resource.RLIMIT_FSIZE, job["file_bytes"]),
        "open_files": (resource.RLIMIT_NOFILE, job["open_files"]),
    }
    if os.getuid() != 0:  # the kernel does not hold root to it
        wanted["processes"] = (resource.RLIMIT_NPROC, job["processes"])
    achieved = []
    for name, (kind, bound) in wanted.items():
        try:
            resource.setrlimit(kind, (bound, bound))
        except (OSError, ValueError):
            continue  # macOS refuses some
        achieved.append(f"limit_{name}")
    return achieved


def _drop_capabilities() -> bool:
    """Give up all capabilities: the first process of a user namespace, and root, have them all."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    return bool(_libc().capset(header, (ctypes.c_uint32 * 6)()) == 0)


# -- watching -----------------------------------------------------------------------------------------------------


def _watch(worker: int, timeout_s: float) -> dict[str, Any]:
    """Wait for the worker's end, the deadline or SIGTERM; kill all that is left; tell how it ended."""
    deadline = time.monotonic() + timeout_s
    ended = ""
    while not ended:
        received = _next_signal(deadline - time.monotonic())
        if received != signal.SIGCHLD:
            ended = "stopped" if received == signal.SIGTERM else "timeout"
            os.kill(worker, signal.SIGKILL)
            _, wait_status, usage = os.wait4(worker, 0)
        else:
            reaped, wait_status, usage = os.wait4(worker, os.WNOHANG)
            if reaped:
                ended = "signalled" if os.WIFSIGNALED(wait_status) else "exited"
            else:
                _reap_others(worker)
    _sweep()
    code = os.waitstatus_to_exitcode(wait_status)
    return {"ended": ended, "code": abs(code), "cpu_s": usage.ru_utime + usage.ru_stime}


def _next_signal(timeout_s: float) -> int:
    """Wait for SIGCHLD or SIGTERM, both blocked; 0 when the time is over."""
    if timeout_s <= 0:
        return 0
    if sys.platform == "darwin":  # it has no sigtimedwait, and may drop a blocked SIGCHLD: look every 10 ms
        time.sleep(0.01)
        return signal.SIGTERM if signal.SIGTERM in signal.sigpending() else signal.SIGCHLD
    received = signal.sigtimedwait({signal.SIGCHLD, signal.SIGTERM}, timeout_s)
    return received.si_signo if received else 0


def _reap_others(worker: int) -> None:
    """Collect what ended among the processes that the worker left to us, but not the worker itself."""
    for child in set(_children()) - {worker}:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def _sweep() -> None:
    """Kill the processes that the worker left behind: those of a dead parent become ours (subreaper)."""
    give_up = time.monotonic() + 1
    while time.monotonic() < give_up:
        for child in _children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123  # pathlib is slow to import
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


if __name__ == "__main__":
    main()
