"""Processes that begin ready: one that has loaded everything, and has opened nothing, forks those that live, tell, and end or are killed.

Used on both sides: `Nursery` starts the program of a victim, in which `answer_orders` does the forking. Orders and answers are lines of JSON.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
from fault_shim import Fault, calls_seen, log_calls, preloaded

import dsa

FOLDER = Path(__file__).parent


@attrs.frozen
class Ended:
    """A life that has ended: its messages, in order, and whether it was killed."""

    told: list
    killed: bool

    def all(self, name):
        """Return everything that was told under a name."""
        return [each[name] for each in self.told if name in each]

    def last(self, name, default=None):
        """Return what was told last under a name."""
        return next(reversed(self.all(name)), default)

    @property
    def fired(self):
        """Return whether the planned fault happened."""
        return self.killed or bool(self.last("fired"))


class Nursery:
    """The process that forks lives, with the library of faults. Use it as a context manager."""

    def __init__(self, victim):
        self._folder = TemporaryDirectory(prefix="nursery-")
        Path(self._folder.name, "dot").symlink_to(shutil.which("false"))  # no test looks at the diagrams
        environment = {
            **preloaded(),
            "PYTHONPATH": f"{Path(dsa.__file__).parent.parent}:{FOLDER.parent}",
            "PATH": f"{self._folder.name}:{os.environ['PATH']}",
        }
        self._process = subprocess.Popen(
            [sys.executable, FOLDER / victim], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def live(self, *, fault=None, **order):
        """Run one life; return how it ended. It ends well, unless it is to be killed."""
        fault = fault or Fault()
        self._process.stdin.write(json.dumps({**order, "fault": attrs.asdict(fault)}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that forks lives has ended"
        answer = json.loads(line)
        ended = Ended(answer["told"], answer["status"] == signal.SIGKILL)
        assert ended.last("broken") is None, ended.last("broken")
        may_be_killed = fault.kills or order.get("boundary")
        assert answer["status"] == 0 or (ended.killed and may_be_killed), answer
        return ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=60)
        self._folder.cleanup()


# -- in the victim ----------------------------------------------------------------------------------------------------


def answer_orders(live):
    """Run a life for each order, `live(order, tell)` in its own process; its messages arrive however it ends."""
    for line in sys.stdin:
        print(json.dumps(_forked(live, json.loads(line))), flush=True)


def _forked(live, order):
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _lived(live, order, lambda what: os.write(writing, json.dumps(what).encode() + b"\n"))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = [json.loads(line) for line in pipe]
    return {"told": told, "status": os.waitpid(process, 0)[1]}


def _lived(live, order, tell):
    """Arm the faults, and live; no code of the process that forks may run on here."""
    try:
        if "log" in order:
            log_calls(order["logged"], Path(order["log"]))
        Fault(**order["fault"]).arm()
        live(order, tell)
        seen, fired = calls_seen()
        tell({"seen": seen, "fired": fired})
    except BaseException:  # noqa: BLE001  (it is reported, and fails the test)
        tell({"broken": traceback.format_exc()})
