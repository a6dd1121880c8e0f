"""Runs a program of the tests as an ordinary user, where the tests themselves are run by root."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import NOT_TESTED

import dsa

#: Another one for each process that tests: the kernel counts a user's processes wherever they were started, and some programs start all they may.
USER = 12_345 + os.getpid() % 10_000
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


def is_open(path):
    """Whether everybody may read it, and enter all folders above it."""
    path = Path(path).resolve()
    return path.exists() and path.stat().st_mode & 0o4 and all(each.stat().st_mode & 0o1 for each in path.parents)


def interpreter():
    """A Python of this version outside root's home; skips with a message if there is none."""
    found = next(filter(is_open, (Path(sys.executable).resolve(), Path("/usr/bin", _VERSION))), None)
    if found is None:
        pytest.skip(
            f"{NOT_TESTED} as an ordinary user: {_VERSION} is only where others cannot enter (apt install {_VERSION})"
        )
    return str(found)


def run(script, *arguments, is_root, env=None):
    """Run a program of the tests as root, or as an ordinary user; return what it printed. Skips with a message where that is impossible."""
    if is_root and os.geteuid() != 0:
        pytest.skip(f"{NOT_TESTED} as root: these tests are run by another user")
    becomes = {} if is_root or os.geteuid() != 0 else {"user": USER, "group": USER, "extra_groups": ()}
    folders = [Path(dsa.__file__).parent.parent, Path(__file__).parent, sysconfig.get_path("purelib")]
    if becomes and not all(map(is_open, folders)):
        pytest.skip(f"{NOT_TESTED} as an ordinary user: others may not enter {folders}")
    done = subprocess.run(
        [interpreter() if becomes else sys.executable, Path(__file__).parent / script, *arguments],
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ":".join(map(str, folders)), **(env or {})},
        capture_output=True, text=True, timeout=300, check=False, **becomes,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
