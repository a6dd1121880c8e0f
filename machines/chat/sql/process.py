"""Processes of our own that read data apart from the conversation: with little of an environment, ended by whoever started them.

What is said to them and by them is lines of JSON, of frozen classes. They start while somebody waits, so nothing is loaded to write and read these.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TypeVar

import attrs

T = TypeVar("T")


def started(call: str, folder: Path, complaints: IO[bytes]) -> "subprocess.Popen[bytes]":
    """Start Python in a folder, with pipes to its input and from its output, and have it run `call`, a line of code."""
    paths = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)  # noqa: PTH100  # zip files too, as they are
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    return subprocess.Popen(  # noqa: S603  # our own interpreter and text
        [sys.executable, "-P", "-c", call],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=complaints,
        cwd=folder,
        env={**kept, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
        start_new_session=True,
    )


def json_of(record: object, indent: int | None = None) -> bytes:
    """Return a record as JSON, those in it too."""
    return json.dumps(record, default=lambda each: attrs.asdict(each, recurse=False), indent=indent).encode()


def records(kind: type[T], given: Iterable[T | Mapping[str, object]]) -> tuple[T, ...]:
    """Return records, which may be as JSON has them."""
    return tuple(kind(**each) if isinstance(each, Mapping) else each for each in given)


def texts(given: Iterable[str]) -> tuple[str, ...]:
    """Return texts; lists are what JSON has. To be used as a converter."""
    return tuple(given)
