"""The tools that exports are for, run on a text: SPIN, TLC, Storm, node with XState. A test skips in words where one is missing."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

TIME_LIMIT_S = 1_200
PEERS = Path(sys.prefix) / "peers"


def run(command: list[str], folder: Path, time_limit_s: float = TIME_LIMIT_S) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder; return what it printed, whatever its exit code."""
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=time_limit_s, check=False, stdin=subprocess.DEVNULL
    )


def needs(*programs: str) -> None:
    """Skip the test unless the programs are installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")


# -- SPIN -------------------------------------------------------------------------------------------------------------


def spin(
    model: str,
    folder: Path,
    *,
    define: str = "",
    memory_mb: int = 4_000,
    depth: int = 1_000_000,
    is_small: bool = False,
) -> tuple[int, int]:
    """Search a Promela model; return the states stored and the number of errors.

    With `define`, search for acceptance cycles too. A search that `is_small` takes less time than a compiler that optimises.
    """
    needs("spin", "gcc")
    (folder / "model.pml").write_text(model, encoding="utf-8")
    made = run(["spin", *([f"-D{define}"] if define else []), "-a", "model.pml"], folder)
    assert made.returncode == 0, made.stdout + made.stderr
    flags = [] if define else ["-DSAFETY"]
    flags += [f"-DMEMLIM={memory_mb}"] if memory_mb else []
    built = run(["gcc", "-O0" if define or is_small else "-O2", "-w", *flags, "-o", "pan", "pan.c"], folder)
    assert built.returncode == 0, built.stderr
    found = run(["./pan", *(["-a"] if define else []), f"-m{depth}"], folder)
    assert "max search depth too small" not in found.stdout, found.stdout
    stored = re.search(r"([\d.e+]+) states, stored", found.stdout)
    errors = re.search(r"errors: (\d+)", found.stdout)
    assert stored, found.stdout + found.stderr
    assert errors, found.stdout
    assert "VECTORSZ" not in found.stdout, found.stdout
    return int(float(stored[1])), int(errors[1])


# -- TLC --------------------------------------------------------------------------------------------------------------


@cache
def tlc_jar() -> Path:
    """Return TLC's jar: of the environment's TLA2TOOLS, or where `tests/set_up_peers.py` puts it."""
    needs("java")
    jar = Path(os.environ.get("TLA2TOOLS", PEERS / "tla2tools.jar"))
    if not jar.exists():
        pytest.skip("TLC's jar is not here: run tests/set_up_peers.py, or set TLA2TOOLS")
    return jar


def tlc(module: str, config: str, name: str, folder: Path) -> tuple[int, list[str]]:
    """Check a TLA+ module; return the distinct states and the lines that say what is violated."""
    jar = tlc_jar()
    (folder / f"{name}.tla").write_text(module, encoding="utf-8")
    (folder / f"{name}.cfg").write_text(config, encoding="utf-8")
    java = ["java", "-XX:+UseParallelGC", "-Xmx3g", "-cp", str(jar), "tlc2.TLC", "-workers", "1", "-nowarning", name]
    done = run(java, folder)
    counts = re.findall(r"([\d,]+) distinct states found", done.stdout)
    violated = [line for line in done.stdout.splitlines() if "violated" in line]
    assert counts, done.stdout
    assert violated or "No error has been found" in done.stdout, done.stdout
    return int(counts[-1].replace(",", "")), violated


# -- node -------------------------------------------------------------------------------------------------------------


def xstate_folder() -> Path:
    """Return a folder in which node finds XState: of the environment's XSTATE, or where `tests/set_up_peers.py` puts it."""
    needs("node")
    folder = Path(os.environ.get("XSTATE", PEERS))
    if not (folder / "node_modules" / "xstate" / "package.json").exists():
        pytest.skip("XState is not here: run tests/set_up_peers.py, or set XSTATE to a folder with node_modules/xstate")
    return folder


def node(files: dict[str, str], program: str, data: object, folder: Path) -> object:
    """Run a JavaScript module on data handed in as JSON; return the JSON that it prints."""
    link = folder / "node_modules"
    if not link.exists():
        link.symlink_to(xstate_folder() / "node_modules")
    for name, text in {**files, "program.mjs": program}.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "data.json").write_text(json.dumps(data), encoding="utf-8")
    done = run(["node", "program.mjs"], folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
