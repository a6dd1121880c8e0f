"""The warm process of the sandbox: confined once, with the library imported. It forks a process for each call and never runs one itself.

It is started as `python -P -s -S`, without an environment, with its setup on standard input. It reports on its control socket that it is ready, and then
takes calls: one byte each, with the open files of the call. It ends when the other side closes the socket.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from dsa.edge.sandbox.inside import confinement, system_calls

_LINUX = sys.platform == "linux"


class SandboxCall:
    """One call: its pipes, its bounds, and the program with its payload in an open file."""

    def __init__(self, header: dict[str, Any], files: list[int], code: Any) -> None:  # noqa: ANN401  # a code object
        self.bounds: dict[str, Any] = header["bounds"]
        self.folder: str = header["folder"]
        self.code = code
        self.payload, self.result, self.status, self.output, self.lifeline = files


def watch(place: confinement.ConfinedPlace, call: SandboxCall) -> NoReturn:
    """Make the call, report on it, and end this process.

    It waits for the worker's end, the deadline, or the end of the lifeline, which the caller closes. Then it kills everything that is left, and
    finally writes one JSON object to the status pipe.
    """
    if _LINUX:
        system_calls.control(system_calls.DEATH_SIGNAL, signal.SIGKILL)
    wakeup = system_calls.wakeup_file()
    fault = ""
    report: dict[str, Any] = {"ended": "refused", "code": 0, "cpu_s": 0.0}
    try:
        confinement.begin_call(place, call.folder, call.bounds)
        if _LINUX:  # changing the user cleared it
            system_calls.control(system_calls.DEATH_SIGNAL, signal.SIGKILL)
        report["lowered"] = system_calls.lowered_bounds(call.bounds)
        worker, fault = _fork_worker(place, call)
        if not fault:
            report |= _wait(worker, call.lifeline, wakeup, call.bounds["timeout_s"])
    except OSError as error:
        fault = str(error)
    os.write(call.status, json.dumps(report | {"fault": fault}).encode())
    os._exit(0)


def _fork_worker(place: confinement.ConfinedPlace, call: SandboxCall) -> tuple[int, str]:
    """Return the worker's id, and why it could not be confined (empty if it was)."""
    gate = os.pipe()
    worker = os.fork()
    if worker == 0:
        _work(place, call, gate[1])
    for file in (gate[1], call.result, call.payload):
        os.close(file)
    message = os.read(gate[0], 1000).decode()
    os.close(gate[0])
    return worker, "" if message == "ready" else message or "the worker was lost"


def _work(place: confinement.ConfinedPlace, call: SandboxCall, gate: int) -> NoReturn:
    """Run the program, which is trusted; it runs the code, which is not."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()  # otherwise a signal to its own group would reach the watching process, through any namespace
        if _LINUX:
            system_calls.control(system_calls.DEATH_SIGNAL, signal.SIGKILL)
        with open(call.payload, "rb") as file:  # noqa: PTH123  # an open file
            payload = file.read().decode("utf-8", "surrogatepass")
        os.dup2(call.output, 1)
        os.dup2(call.output, 2)
        confinement.begin_work(place, call.bounds)
        _close_all_but({call.result, gate, *(fd for _, fd in place.library)})
    except OSError as error:
        os.write(gate, str(error).encode()[:1000])
        os._exit(1)
    os.write(gate, b"ready")
    os.close(gate)
    namespace: dict[str, Any] = {"__name__": "program"}
    try:
        exec(call.code, namespace)  # noqa: S102  # the package's own text
        namespace["run"](payload, call.result)
    except BaseException:  # noqa: BLE001  # a fault of the program itself: printed as Python does
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)  # whatever the code left behind (exit handlers, threads) does not run


def _close_all_but(open_files: set[int]) -> None:
    low = 3
    for file in sorted(open_files):
        os.closerange(low, file)
        low = file + 1
    os.closerange(low, 4096)


# -- watching ---------------------------------------------------------------------------------------------------------


def _wait(worker: int, lifeline: int, wakeup: int, timeout_s: float) -> dict[str, Any]:
    """Wait for the worker's end, the deadline or the end of the lifeline; kill everything that is left; return how the call ended."""
    deadline = time.monotonic() + timeout_s
    end = ""
    wait_status = 0
    while not end:
        left_s = deadline - time.monotonic()
        ready = select.select([lifeline, wakeup], [], [], max(0, left_s))[0]
        if wakeup in ready:
            os.read(wakeup, 4096)
        child, wait_status, usage = os.wait4(worker, os.WNOHANG)
        if child:
            end = "signalled" if os.WIFSIGNALED(wait_status) else "exited"
        elif lifeline in ready or left_s <= 0:
            end = "stopped" if lifeline in ready else "timeout"
            os.kill(worker, signal.SIGKILL)
            _, wait_status, usage = os.wait4(worker, 0)
        else:
            _reap_others(worker)
    system_calls.sweep()
    code = os.waitstatus_to_exitcode(wait_status)
    return {"ended": end, "code": abs(code), "cpu_s": usage.ru_utime + usage.ru_stime}


def _reap_others(worker: int) -> None:
    """Collect the ended processes that the worker left behind, but not the worker itself."""
    for child in set(system_calls.children(os.getpid())) - {worker}:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


# -- all calls --------------------------------------------------------------------------------------------------------

_FILES = 6
_MOST_PROGRAMS = 16


def main(setup: dict[str, Any]) -> NoReturn:
    """Serve calls until the socket is closed."""
    os.environ.clear()  # bubblewrap, or the C library, may have put something there
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(null, standard)
    control = socket.socket(fileno=setup["control_fd"])
    try:
        sys.path += setup["paths"]
        place = confinement.enter(setup)
        if place.is_warm:
            for name in setup["preload"]:
                importlib.import_module(name)
            exec(setup["prepare"], {"__name__": "prepare"})  # noqa: S102  # the package's own text
    except Exception as error:  # noqa: BLE001  # nothing else would report it
        control.sendall(
            json.dumps({"fault": str(error) or repr(error), "features": [], "gap": "", "warm": False}).encode() + b"\n"
        )
        os._exit(1)
    hello = {"fault": "", "features": place.features, "gap": place.gap, "warm": place.is_warm}
    control.sendall(json.dumps(hello).encode() + b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for the watching processes
    gc.freeze()
    _serve(place, control)


def _serve(place: confinement.ConfinedPlace, control: socket.socket) -> NoReturn:
    programs: dict[str, Any] = {}
    while True:
        request, files, _, _ = socket.recv_fds(control, 1, _FILES)
        if not request:
            os._exit(0)
        header = json.loads(_read(files[0]))
        text = header["program"]
        if text not in programs:
            if len(programs) >= _MOST_PROGRAMS:
                programs.clear()
            programs[text] = compile(text, "<program>", "exec")
        child = _fork(files[3])
        if child == 0:
            control.close()
            watch(place, SandboxCall(header, files[1:], programs[text]))
        for file in files:
            os.close(file)


def _fork(status: int) -> int:
    """Fork; a lack of processes is reported like any other fault."""
    try:
        return os.fork()
    except OSError as error:
        fault = {"ended": "refused", "code": 0, "cpu_s": 0.0, "fault": str(error)}
        with contextlib.suppress(OSError):
            os.write(status, json.dumps(fault).encode())
        return -1


def _read(file: int) -> bytes:
    pieces = []
    while piece := os.read(file, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)
