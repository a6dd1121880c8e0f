"""Run a program of ours over code that is not, confined, and give back what it reported.

Nothing is trusted that comes out: pipes are read up to a bound, exit status and prints mean nothing, and whatever is not over at the
deadline is killed with all that it started.
"""

import contextlib
import json
import os
import selectors
import tempfile
import time
from typing import Any

import attrs

from dsa.edge.sandbox.features import Confinement, SandboxError, shortages
from dsa.edge.sandbox.folders import working_directory
from dsa.edge.sandbox.launch import Zygote
from dsa.edge.sandbox.model import Bounds, Outcome, Program
from dsa.edge.sandbox.pool import zygote

_GRACE_S = 2.0  # for the worker to start and for the watching process to sweep; then all is killed
_PIECE_BYTES = 65_536
_PIPES = ("result", "status", "output")


def run_on(rung: str, program: Program, payload: str, bounds: Bounds, confinement: Confinement) -> Outcome:
    """Run `program` and call its `run(payload, result_fd)` on a rung. Never raises for what the code does.

    Raises SandboxError when it cannot be confined, or has less than is required; then nothing was run.
    """
    started = time.monotonic()
    with shortages(), zygote(rung, program.setup) as found, contextlib.ExitStack() as opened:
        if missing := confinement.missing(rung, found.features):
            raise SandboxError(f"the sandbox '{rung}' lacks what is required: {', '.join(missing)}", missing)
        folder = "" if "own file tree" in found.features else opened.enter_context(working_directory())
        header = {"program": program.text, "bounds": attrs.asdict(bounds), "folder": folder}
        reading = _Reading(bounds, opened)
        _ask(found, header, payload, reading)
        reading.collect(started + bounds.timeout_s + _GRACE_S)
        if not reading.over:
            found.kill()
        reading.drain()
    return _outcome(reading, bounds, time.monotonic() - started, rung, found)


def _ask(found: Zygote, header: dict[str, Any], payload: str, reading: "_Reading") -> None:
    with tempfile.TemporaryFile() as head, tempfile.TemporaryFile() as body:  # a file cannot fill up while nobody reads
        try:
            for file, text in ((head, json.dumps(header)), (body, payload)):
                file.write(text.encode("utf-8", "surrogatepass"))
                file.seek(0)
            found.ask([head.fileno(), body.fileno(), *reading.theirs])
        finally:
            reading.hand_over()


class _Reading:
    """The pipes of a call, and what has been read of each so far."""

    def __init__(self, bounds: Bounds, opened: contextlib.ExitStack) -> None:
        self._bounds = bounds
        self._most = {"result": bounds.result_bytes, "output": bounds.output_bytes, "status": _PIECE_BYTES}
        self._names: dict[int, str] = {}
        self.theirs: list[int] = []
        self.pieces = {name: bytearray() for name in _PIPES}
        self.tail = b""
        self.flooded = False
        self.over = False
        for name in _PIPES:
            reader, writer = os.pipe()
            opened.callback(os.close, reader)
            os.set_blocking(reader, False)
            self._names[reader] = name
            self.theirs.append(writer)
        end, self._lifeline = os.pipe()
        opened.callback(self._cut)
        self.theirs.append(end)

    def hand_over(self) -> None:
        """Close here what the other side has now."""
        for file in self.theirs:
            os.close(file)

    def _cut(self) -> None:
        """End the call: the watching process kills all of it and reports."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def collect(self, deadline: float) -> None:
        """Read all pipes until the watching process has closed its own, which it does last."""
        with selectors.DefaultSelector() as selector:
            for reader in self._names:
                selector.register(reader, selectors.EVENT_READ)
            while not self.over and (left_s := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    if not self._read(key.fd):
                        selector.unregister(key.fd)
                        self.over = self.over or self._names[key.fd] == "status"
                if len(self.pieces["result"]) > self._bounds.result_bytes:
                    self.flooded = True
                    self._cut()

    def drain(self) -> None:
        """Read what is still in the pipes; nobody who holds one open is waited for."""
        for reader in self._names:
            self._read(reader)

    def _read(self, reader: int) -> bool:
        """Read one piece, keep at most one byte more than is wanted, and of the output the end too; False at the end of the pipe."""
        name = self._names[reader]
        try:
            piece = os.read(reader, _PIECE_BYTES)
        except BlockingIOError:
            return True
        into = self.pieces[name]
        room = self._most[name] + (name != "output") - len(into)
        into += piece[:room]
        if name == "output" and len(piece) > room:
            self.tail = (self.tail + piece[room:])[-self._most[name] :]
        return bool(piece)


def _outcome(reading: _Reading, bounds: Bounds, seconds: float, rung: str, found: Zygote) -> Outcome:
    pieces = reading.pieces
    try:
        status = json.loads(pieces["status"])
    except ValueError:  # the watching process was killed: at our deadline, or by the code
        status = {"ended": "timeout" if seconds > bounds.timeout_s else "lost", "code": 0, "cpu_s": 0.0, "fault": ""}
    if status["fault"]:
        raise SandboxError(f"code could not be confined by '{rung}': {status['fault']}", (rung,))
    return Outcome(
        ended="flooded" if reading.flooded else status["ended"],
        code=status["code"],
        results=bytes(pieces["result"]),
        output=bytes(pieces["output"]),
        seconds=seconds,
        cpu_s=status["cpu_s"],
        rung=rung,
        features=found.features,
        tail=reading.tail,
        lowered=status.get("lowered", {}),
        gap=found.gap,
    )
