"""One of several processes that run many runs in one folder, or that remove one; started by test_door_processes.py.

Takes `start FOLDER NUMBER`, or `remove FOLDER RUN BOUNDARY`: it kills itself with SIGKILL before the step with that number.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import dsa
from dsa.edge import git_artifacts
from dsa.runs.place import RunPlace

DOCUMENT = """# errand

## Events
| event | from |
| --- | --- |
| asked | outside |
| done | fetch |

## States
| state | kind |
| --- | --- |
| idle | initial |
| fetching | |
| over | final |

## Transitions
| source | event | target | effects |
| --- | --- | --- | --- |
| idle | asked | fetching | fetch |
| fetching | done | over | |
"""


@dsa.answering("done")
async def fetch(action, context):
    await asyncio.sleep(0.001)
    return [dsa.event_step("fetch", "done", data={"for": action.payload["data"]})]


BINDINGS = dsa.Bindings({"fetch": fetch})


async def start(folder, number):
    """Start a number of runs in one loop, and print which have finished."""
    machine = dsa.loads(DOCUMENT)
    async with dsa.open_runs(folder) as runs:
        begun = [await runs.start(machine, {"number": each}, bindings=BINDINGS) for each in range(number)]
        for run in begun:
            print(run.id, (await run.rest()).outcome, flush=True)


async def remove(folder, run, boundary):
    """Remove a run, and die before a step of it: 0 before the ledger, 1 before the branch of artifacts, 2 before the folder, 3 never."""

    def dying(at, then):
        def step(*arguments, **named):
            if boundary == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return then(*arguments, **named)

        return step

    async with dsa.open_runs(folder) as runs:
        store = runs._place.store  # noqa: SLF001  (the step of another layer)
        store.remove = dying(0, store.remove)
        git_artifacts.remove_branch = dying(1, git_artifacts.remove_branch)
        module = sys.modules[RunPlace.__module__]
        module.shutil.rmtree = dying(2, module.shutil.rmtree)
        await runs.remove(run)


if __name__ == "__main__":
    act, where, *rest = sys.argv[1:]
    if act == "start":
        asyncio.run(start(Path(where), int(rest[0])))
    else:
        asyncio.run(remove(Path(where), rest[0], int(rest[1])))
