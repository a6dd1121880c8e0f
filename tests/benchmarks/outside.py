"""The other checkers, run on the families: SPIN, TLC, minicheck, musil. Each says in words when it is not here."""

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attrs
import pytest
import spin_models
import tla_models
from outside_tools import tlc_jar

HERE = Path(__file__).parent


class MissingError(Exception):
    """A peer is not here; the text says which and what brings it."""


@attrs.frozen
class Took:
    """One search: what was found, its seconds, and seconds that only this peer needs beforehand, as a compiler."""

    configurations: int
    seconds: float
    before_s: float = 0.0
    peak_mb: float = 0.0


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(command: list[str], folder: str | Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def spin(family: str, *sizes: int) -> Took:
    """Search depth first, as SPIN does by default, with the flags that its manual gives for safety. Processor time."""
    if shutil.which("spin") is None or shutil.which("gcc") is None:
        raise MissingError("SPIN is not here: apt install spin gcc")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model.pml").write_text(getattr(spin_models, family)(*sizes))
        begun = time.perf_counter()
        _run(["spin", "-a", "model.pml"], folder)
        _run(["gcc", "-O2", "-DSAFETY", "-DMEMLIM=8000", "-w", "-o", "pan", "pan.c"], folder)
        compiled, before = time.perf_counter(), _children_s()
        # A stack as deep as needed: a deeper one costs SPIN time to clear.
        told = _run(["./pan", f"-m{10_000 if family == 'ordered' else 1_000}"], folder)
        seconds = _children_s() - before
    assert "max search depth too small" not in told, told
    stored, used = re.search(r"([\d.e+]+) states, stored", told), re.search(r"([\d.]+)\s+total actual memory", told)
    assert stored is not None, told
    assert used is not None, told
    return Took(int(float(stored[1])), seconds, compiled - begun, float(used[1]))


def tlc(*sizes: int) -> Took:
    """Search any-order with one worker; the whole program, start-up included, on the clock."""
    try:
        jar = tlc_jar()
    except pytest.skip.Exception as missing:
        raise MissingError(str(missing)) from missing
    module, config = tla_models.any_order(*sizes)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "any_order.tla").write_text(module)
        Path(folder, "any_order.cfg").write_text(config)
        begun = time.perf_counter()
        java = ["java", "-XX:+UseParallelGC", "-cp", str(jar), "tlc2.TLC", "-deadlock", "-workers", "1", "any_order"]
        told = _run(java, folder)
        seconds = time.perf_counter() - begun
    found = re.findall(r"([\d,]+) distinct states found", told)
    return Took(int(found[-1].replace(",", "")), seconds)


def minicheck(*sizes: int) -> Took:
    """Search any-order in minicheck; processor time of the search alone."""
    return _in_python(sys.executable, "minicheck", sizes)


def musil(*sizes: int) -> Took:
    """Search any-order in musil; processor time of the search alone."""
    return _in_python(_musil_python(), "musil", sizes)


def _in_python(interpreter: str, checker: str, sizes: tuple[int, ...]) -> Took:
    command = [interpreter, str(HERE / "python_models.py"), checker, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if f"No module named '{checker}'" in done.stderr:
        raise MissingError(f"{checker} is not here: pip install {checker}")
    assert done.returncode == 0, done.stderr
    configurations, seconds = done.stdout.split()
    return Took(int(configurations), float(seconds))


def _musil_python() -> str:
    """Return an interpreter that has musil: of the environment's MUSIL_PYTHON, or where `tests/set_up_peers.py` puts it."""
    python = os.environ.get("MUSIL_PYTHON", str(Path(sys.prefix) / "peers" / "musil" / "bin" / "python"))
    if not Path(python).exists():
        raise MissingError("musil is not here: run tests/set_up_peers.py, or set MUSIL_PYTHON")
    return python
