"""A process whose forks work on a run, each with a fault of its own; started by tests/store_lives.py.

An order has the folder of the run, the number of the life, the run's id unless it is to begin, what is decided about effects in doubt, and the
boundary between two things that an effect does at which the life ends (0: at none).
"""

import os
import signal
from pathlib import Path

import parcels
from dsa.runs.running import perform, take_up
from fault_shim import mark
from nursery import answer_orders
from quick_time import hurry

from dsa.errors import DsaError
from dsa.runtime.ledger import dump_line


class Life:
    """One process that works on a run. What it tells is heard also when it is killed right after."""

    def __init__(self, order, tell):
        self.order, self.tell, self.root = order, tell, Path(order["root"])
        self.passed = 0

    def between(self):
        """Pass a boundary: the process is killed at the one it was told."""
        self.passed += 1
        if self.passed == self.order["boundary"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def recall(self, entry):
        mark(f"{self.order['life']} {dump_line(entry)}")

    def observe(self, entry):
        self.recall(entry)
        self.tell({"acknowledged": dump_line(entry)})
        self.between()

    def rest(self):
        """Work on the run until it rests."""
        order = self.order
        binding = parcels.binding(Path(order["performed"]), order["life"], self.between, order["size"])
        if order["run"] is None:
            return perform(
                parcels.MACHINE, parcels.TEXT, binding, "a parcel", root=self.root, observe=self.observe
            ).rest
        watch = {"observe": self.observe, "recall": self.recall}
        return take_up(self.root, order["run"], lambda *_: binding, decided=order["decided"], **watch).rest


def live(order, tell):
    life = Life(order, tell)
    try:
        rest = life.rest()
    except (DsaError, OSError) as fault:
        tell({"fault": type(fault).__name__, "said": str(fault)})
    else:
        failure = None if rest.failure is None else str(rest.failure)
        asked = [intent.key for intent in rest.in_doubt]
        tell({"rest": rest.kind, "state": rest.run.outcome, "asked": asked, "failure": failure})
    tell({"boundaries": life.passed})


if __name__ == "__main__":
    hurry()
    answer_orders(live)
