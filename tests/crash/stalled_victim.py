"""A process that performs a run and stalls; started by test_two_processes.py.

Takes the folder of runs, the file that effects write, and where to stall: the name of an effect, in the middle of which it says so
and waits for a line, or the number of a call on the store's files, at which it is stopped. Says how its run has ended.
"""

import sys
from pathlib import Path

import parcels
from dsa.runs.running import perform
from fault_shim import Fault
from quick_time import hurry

from dsa.edge.binding import Binding
from dsa.errors import DsaError


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
        end = perform(parcels.MACHINE, parcels.TEXT, Binding(policies), "a parcel", root=Path(root))
    except DsaError as fault:
        print(f"{type(fault).__name__}: {fault}", flush=True)
    else:
        print(f"{end.rest.kind}: {end.rest.run.outcome}", flush=True)


if __name__ == "__main__":
    hurry()
    main(*sys.argv[1:])
