"""A process whose forks work on a run, each with a fault of its own; started by store_lives.py.

An order has the folder of the run, the number of the life, the run's id unless it is to begin, what is decided about effects in doubt, and the
boundary between two things that an effect does at which the life ends (0: at none).
"""

import asyncio
import os
import signal
from pathlib import Path

import parcels
from fault_shim import mark
from nursery import answer_orders
from quick_time import hurry

import dsa
from dsa.errors import DsaError
from dsa.runs.runs import Resumption
from dsa.runs.setup import MachineDocument, Options
from dsa.runtime.ledger import dump_line
from dsa.semantics import Occurrence


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

    def watch(self, moment, is_new):
        """Mark every entry; tell those that are new, which ends the life where it was told."""
        mark(f"{self.order['life']} {dump_line(moment.entry)}")
        if is_new:
            self.tell({"acknowledged": dump_line(moment.entry)})
            self.between()

    async def rest(self):
        """Work on the run until it rests."""
        order = self.order
        binding = parcels.binding(Path(order["performed"]), order["life"], self.between, order["size"])
        async with dsa.open_runs(self.root) as runs:
            options = Options(bindings=lambda *_: binding)
            if order["run"] is None:
                setup = runs.setup(MachineDocument(parcels.MACHINE, parcels.TEXT), options)
                handle = runs.begin(setup, on_moment=self.watch)
                return await handle.drive(Occurrence("specification", data="a parcel"))
            resumption = Resumption(decisions=order["decided"])
            handle = runs.hold(order["run"], options=options, resumption=resumption, on_moment=self.watch)
            return await handle.drive()


def live(order, tell):
    life = Life(order, tell)
    try:
        rest = asyncio.run(life.rest())
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
