"""The process that is kept warm: confined once, with the library imported; it forks a process for each call and never runs one itself.

It is started as `python -P -s -S`, without an environment, with its setup on standard input, says hello on its control socket, and then takes calls: one byte each,
with the open files of the call. It ends when the other side of the socket is closed.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

from dsa.edge.sandbox.inside import confine, watch

_FILES = 6
_MOST_PROGRAMS = 16


def main(setup: dict[str, Any]) -> NoReturn:
    """Serve calls until nobody asks any more."""
    os.environ.clear()  # bubblewrap, or the C library, may have put something there
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(null, standard)
    control = socket.socket(fileno=setup["control_fd"])
    try:
        sys.path += setup["paths"]
        place = confine.enter(setup)
        if place.is_warm:
            for name in setup["preload"]:
                importlib.import_module(name)
            exec(setup["prepare"], {"__name__": "prepare"})  # noqa: S102  # the package's own text
    except Exception as error:  # noqa: BLE001  # whatever it is, nobody else is there to tell it
        control.sendall(
            json.dumps({"fault": str(error) or repr(error), "features": [], "warm": False}).encode() + b"\n"
        )
        os._exit(1)
    control.sendall(json.dumps({"fault": "", "features": place.features, "warm": place.is_warm}).encode() + b"\n")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the watching processes
    gc.freeze()
    _serve(place, control)


def _serve(place: confine.Place, control: socket.socket) -> NoReturn:
    programs: dict[str, Any] = {}
    while True:
        asked, files, _, _ = socket.recv_fds(control, 1, _FILES)
        if not asked:
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
            watch.watch(place, watch.Call(header, files[1:], programs[text]))
        for file in files:
            os.close(file)


def _fork(status: int) -> int:
    """Fork; a machine that has no process left is told like any other fault."""
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
