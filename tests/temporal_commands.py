"""Commands with `--runs temporal://..` in tests: the order that they work on, and a worker in a process of its own."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from forked import DSA

#: An order that is looked up, and then approved by a person. More rows may follow.
ORDER = """# order

## States
| state | kind |
| --- | --- |
| idle | initial |
| looking | |
| drafted | |
| end.sent | final |

## Events
| event | from |
| --- | --- |
| question | outside |
| found | look |
| approved | outside |

## Effects
| effect | time limit | retries |
| --- | --- | --- |
| look | 60s | 0 |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | question | looking | look |
| looking | found | drafted | |
| drafted | approved | end.sent | |
"""


@contextmanager
def worker_process(folder: Path, where: str) -> Iterator["subprocess.Popen[str]"]:
    """Start `dsa work` in a folder; it ends with the block."""
    process = subprocess.Popen(
        [*DSA, "work", ".", "--runs", where],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


def until(is_so: Callable[[], object]) -> None:
    """Wait until something is so, for half a minute at most."""
    deadline_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
