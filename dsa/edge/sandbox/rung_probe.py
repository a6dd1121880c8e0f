"""A probe of the sandbox: the rungs that this machine reaches, found by attacks.

A program that attacks runs on each rung, and a feature counts only if the attacks could not break it. Every rung is tried at most once in a process.
The attacks aim at a file, a folder and sockets that are made for them.
"""

import contextlib
import functools
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.sandbox.rungs import (
    RUNGS,
    Bounds,
    Confinement,
    SandboxError,
    SandboxOutcome,
    SandboxProgram,
    ShortageError,
    shortages,
)
from dsa.edge.sandbox.sandbox_runner import run_on

#: The program that attacks.
TRIALS = SandboxProgram((Path(__file__).with_name("trials.py")).read_text(encoding="utf-8"))
_BOUNDS = Bounds(timeout_s=10)
_lock = threading.Lock()


@attrs.frozen
class Rung:
    """A rung on this machine: the `features` that held when attacked, or the `fault` for which it cannot be used.

    `notes` say what is weaker here than elsewhere, and why: no filter of system calls, lower limits for this user.
    """

    name: str
    features: frozenset[str] = frozenset()
    fault: str = ""
    notes: tuple[str, ...] = ()


def probe(name: str) -> Rung:
    """Try a rung. The answer is kept while this process lives, unless the machine was only short of something."""
    with _lock:
        try:
            return _probe_rung(name)
        except ShortageError as error:
            return Rung(name, fault=str(error))


def ladder() -> tuple[Rung, ...]:
    """Try all rungs, best first."""
    return tuple(map(probe, RUNGS))


def best() -> Rung:
    """Return the best rung that this machine reaches. Raises SandboxError with the fault of each when there is none."""
    faults = []
    for name in RUNGS:
        rung = probe(name)
        if not rung.fault:
            return rung
        faults.append(f"{name}: {rung.fault}")
    raise SandboxError(f"this machine cannot confine code at all ({'; '.join(faults)})", tuple(RUNGS))


@functools.cache
def _probe_rung(name: str) -> Rung:
    if fault := _not_here(name):
        return Rung(name, fault=fault)
    try:
        with shortages(), targets() as target_data:
            outcome = run_on(name, TRIALS, json.dumps(target_data), _BOUNDS, Confinement())
    except ShortageError:
        raise
    except SandboxError as error:
        return Rung(name, fault=str(error))
    try:
        broken_features = json.loads(outcome.results)
    except ValueError:
        lines = outcome.output.decode(errors="replace").strip().splitlines()
        return Rung(
            name, fault=f"its trial program ended ({outcome.end}): {lines[-1] if lines else 'it printed nothing'}"
        )
    if fault := broken_promises(outcome.features, broken_features):
        return Rung(name, fault=fault)
    return Rung(name, outcome.features, notes=tuple(_notes(outcome)))


def broken_promises(promises: Collection[str], broken_features: Mapping[str, list[str]]) -> str:
    """Return which promises did not hold when tried, and what broke them; empty when all held."""
    failures = [
        f"{name} ({'; '.join(by)})" if by else name for name, by in sorted(broken_features.items()) if name in promises
    ]
    return f"its promises did not hold when tried: {', '.join(failures)}" if failures else ""


def _notes(outcome: SandboxOutcome) -> Iterator[str]:
    if outcome.gap:
        yield outcome.gap
    for name, limit in outcome.lowered_bounds.items():
        yield f"{name} is at most {limit}, not {getattr(_BOUNDS, name)}: this user may not have more (ulimit -H)"


def _not_here(name: str) -> str:
    if not hasattr(os, "fork"):  # what needs it is not on Windows
        return "code of a model is run on Linux and macOS only"
    if name != "limits" and sys.platform != "linux":
        return "only Linux has it"
    if name == "bubblewrap" and shutil.which("bwrap") is None:
        return "bwrap is not installed (apt install bubblewrap)"
    return ""


@contextlib.contextmanager
def targets() -> Iterator[dict[str, Any]]:
    """Make the targets of the attacks: a file of this user, a folder for all, listening sockets. This process is a target too."""
    with tempfile.TemporaryDirectory(prefix="dsa-") as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o777)
        secret = Path(folder) / "secret"
        secret.write_text("outside", encoding="utf-8")
        secret.chmod(0o644)
        target_data: dict[str, Any] = {"folder": folder, "secret": str(secret), "pid": os.getpid()}
        with contextlib.suppress(OSError):  # on a machine without loopback there is no TCP to reach
            tcp = stack.enter_context(socket.socket())
            tcp.bind(("127.0.0.1", 0))
            tcp.listen()
            target_data["tcp"] = tcp.getsockname()[1]
        local = stack.enter_context(socket.socket(socket.AF_UNIX))
        local.bind(f"{folder}/s")
        local.listen()
        letters = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        letters.bind(f"{folder}/d")
        for each in "sd":
            (Path(folder) / each).chmod(0o777)
        yield target_data
