"""Policies that wait until a test lets them continue, two machines that keep them busy, and the driver around them."""

import asyncio

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.lang import loads
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.ledger import RefusalEntry
from dsa.runtime.policy.policies import event_step
from dsa.runtime.run import begin
from dsa.testing.doubles import StillClock

TWO_AT_ONCE = loads("""# two_at_once
## Events
| event | from |
| - | - |
| go | outside |
| stop | outside |
| left_done | left |
| right_done | right |
## Effects
| effect | time limit |
| - | - |
| left | |
| right | 3s |
| log | |
| tidy | |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | log, left, tidy, right | working |
| working | left_done | | = |
| working | right_done | | half |
| half | left_done | | done |
| working | stop | cancel left | stopping |
| stopping | right_done | | done |
| working | right.failed | cancel left | idle |
| working | after 10s | | gone |
| idle | after 5s | log | bored |
| bored | stop | | done |
## States
| state | kind |
| - | - |
| idle | initial |
| bored | |
| working | |
| half | |
| stopping | |
| done | final |
| gone | final |
""")


class Hands:
    """Policies for the machine above that wait until the test lets them continue, and log their work."""

    def __init__(self):
        self.log = []
        self.gates = {name: asyncio.Event() for name in ("left", "right")}

    def effects(self, **others):
        return {"left": self.slow, "right": self.slow, "log": self.quick, "tidy": self.quick, **others}

    async def slow(self, action, _context):
        self.log.append(f"{action.policy} starts")
        try:
            await self.gates[action.policy].wait()
        except asyncio.CancelledError:
            self.log.append(f"{action.policy} cancelled")
            raise
        self.log.append(f"{action.policy} ends")
        return [event_step(action.policy, f"{action.policy}_done")]

    async def quick(self, action, _context):
        self.log.append(f"{action.policy} starts")
        await asyncio.sleep(0)
        self.log.append(f"{action.policy} ends")
        return []


def finish(playing):
    """Run to the end; what hangs fails."""

    async def bounded():
        return await asyncio.wait_for(playing, 20)

    return asyncio.run(bounded())


def driver_of(machine, effects_, guards=None, generators=None, clock=None, observe=lambda _entries: None):
    run, commands = begin(machine, "r")
    binding = Bindings(effects_, guards or {}, generators or {})
    return Driver(run, binding, MemoryArtifacts(), commands=commands, clock=clock or StillClock(), observe=observe)


def refusals(run):
    return [entry.reason for entry in run.ledger if isinstance(entry, RefusalEntry)]


HOLES = loads("""# holes
## Variables
| variable | domain | initial |
| - | - | - |
| n | 0..1 | 1 |
## Events
| event | from |
| - | - |
| go | outside |
| slow | outside |
| same | outside |
| left_done | left |
## States
| state | kind |
| - | - |
| idle | initial |
| working | |
| bored | |
| done | final |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | | left | working |
| idle | slow | | | log | = |
| idle | same | | | | idle |
| idle | after 5s | | | | bored |
| working | left_done | | n += 1 | | done |
| bored | go | | | | done |
""")
