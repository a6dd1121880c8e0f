"""A process that performs a run and stalls; started by test_two_processes.py.

Takes the folder of runs, the file that effects write, and where to stall: the name of an effect, in the middle of which it says so
and waits for a line, or the number of a call on the store's files, at which it is stopped. Says how its run has ended.
"""

import asyncio
import sys
from pathlib import Path

import parcels
from fault_shim import Fault
from quick_time import hurry

import dsa
from dsa.edge.binding import Bindings
from dsa.errors import DsaError
from dsa.runs.setup import MachineDocument, Options
from dsa.semantics import Occurrence


def main(root, performed, stalls_at):
    """Perform the run."""
    policies = dict(parcels.binding(Path(performed), 1, lambda: None).effects)
    if stalls_at.isdecimal():
        Fault("stop", int(stalls_at)).arm()
    else:
        happen = policies[stalls_at]

        async def stall(action, context):
            steps = await happen(action, context)
            print("stalls", flush=True)
            sys.stdin.readline()
            return steps

        policies[stalls_at] = stall
    try:
        rest = asyncio.run(perform(root, Bindings(policies)))
    except DsaError as fault:
        print(f"{type(fault).__name__}: {fault}", flush=True)
    else:
        print(f"{rest.kind}: {rest.run.outcome}", flush=True)


async def perform(root, binding):
    async with dsa.open_runs(root) as runs:
        setup = runs.setup(MachineDocument(parcels.MACHINE, parcels.TEXT), Options(bindings=lambda *_: binding))
        handle = runs.begin(setup)
        return await handle.drive(Occurrence("specification", data="a parcel"))


if __name__ == "__main__":
    hurry()
    main(*sys.argv[1:])
