"""Processes of our own that read data apart from the conversation: with little of an environment, ended by whoever started them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import IO


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
