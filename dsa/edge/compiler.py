"""C text to a loaded library, with the compiler of this machine.

Takes a C99 program, gives it loaded into this process. It runs one program: `cc`, or else `gcc` or `clang`. What it writes lies
in a directory that only this user can read, and is gone when the library has been loaded.
"""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

from dsa.errors import DsaError

TIME_LIMIT_S = 120
_NAMES = ("cc", "gcc", "clang")
_FLAGS = ("-std=c99", "-O2", "-shared", "-fPIC")


class CompileError(DsaError):
    """Raised when C text did not become a library: no compiler, or it refused or did not end, or its result was not loaded."""


def compiler() -> Path | None:
    """Give the C compiler, or None when none is found."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    return Path(found) if found else None


def compiled(source: str) -> ctypes.CDLL:
    """Compile C text and load it. Raises CompileError."""
    program = compiler()
    if program is None:
        raise CompileError("no C compiler was found (looked for cc, gcc, clang); install one, or use another engine")
    with tempfile.TemporaryDirectory(prefix="dsa-") as folder:
        text, library = Path(folder, "search.c"), Path(folder, "search.so")
        text.write_text(source, encoding="ascii")
        _run(program, text, library)
        try:
            return ctypes.CDLL(str(library))
        except OSError as problem:
            raise CompileError(f"what {program.name} made could not be loaded: {problem}") from problem


def _run(program: Path, text: Path, library: Path) -> None:
    try:
        done = subprocess.run(  # noqa: S603  (the program is the one found above)
            [program, *_FLAGS, "-o", library, text], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise CompileError(f"{program} did not compile: {problem}") from problem
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise CompileError(f"{program} did not compile (exit {done.returncode}): {first}")
