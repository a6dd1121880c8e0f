"""A process that forks others which work on a run, each with a fault of its own; started by tests/store_lives.py.

Reads an order a line, JSON: the folder of the run, the number of the life, the run's id unless it is to begin, what goes wrong. Answers
with what the life told before it ended, and how it ended. A life is a fork of this process, which has loaded everything and has
opened nothing.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import parcels
from fault_shim import Fault, calls_seen, log_calls, mark

from dsa.edge.running import perform, take_up
from dsa.errors import DsaError
from dsa.runtime.ledger import dump_line


class Life:
    """One process that works on a run. `tell` is heard also when the process is killed right after."""

    def __init__(self, order, tell):
        self.order, self.tell, self.root = order, tell, Path(order["root"])
        self.left = order.get("boundary", 0)

    def between(self):
        """Pass a boundary: the process is killed at the one it was told."""
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def recall(self, entry):
        mark(f"{self.order['life']} {dump_line(entry)}")

    def observe(self, entry):
        self.recall(entry)
        self.tell({"acknowledged": dump_line(entry)})
        self.between()

    def live(self):
        order = self.order
        if "log" in order:
            log_calls(order["logged"], Path(order["log"]))
        Fault(**order["fault"]).arm()
        binding = parcels.binding(Path(order["performed"]), order["life"], self.between, order["size"])
        try:
            if order["run"] is None:
                end = perform(parcels.MACHINE, parcels.TEXT, binding, "a parcel", root=self.root, observe=self.observe)
            else:
                watch = {"observe": self.observe, "recall": self.recall}
                end = take_up(self.root, order["run"], lambda *_: binding, decided=order["decided"], **watch)
        except (DsaError, OSError) as fault:
            self.tell({"fault": type(fault).__name__, "said": str(fault)})
        else:
            rest = end.rest
            asked = [intent.key for intent in rest.in_doubt]
            failure = None if rest.failure is None else str(rest.failure)
            self.tell({"rest": rest.kind, "state": rest.run.outcome, "asked": asked, "failure": failure})
        seen, fired = calls_seen()
        boundaries = order.get("boundary", 0) - self.left
        self.tell({"seen": seen, "fired": fired, "boundaries": boundaries})


def forked(order):
    """Have a life in a process of its own; give what it told and how it ended."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)

        def tell(what):
            os.write(writing, json.dumps(what).encode() + b"\n")

        try:
            Life(order, tell).live()
        except BaseException:  # noqa: BLE001  (it is told; nothing of the process that forks may go on here)
            tell({"broken": traceback.format_exc()})
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = [json.loads(line) for line in pipe]
    _, status = os.waitpid(process, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return {"told": told, "killed": killed, "ended": status if not killed else 0}


def main():
    for line in sys.stdin:
        print(json.dumps(forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
