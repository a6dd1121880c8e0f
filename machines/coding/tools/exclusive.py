"""One call at a time in a workspace: what a call has changed is seen by what lies there before and after it, so nobody else may change it meanwhile.

Takes a folder, holds it for its caller: against the other parts of a run, and against runs of other processes. It is the folder itself that is locked;
a process that dies lets go of it.
"""

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsa.edge.locking import locked
from dsa.edge.sandbox.commands import Stop
from machines.coding.tools.errors import ToolError
from machines.coding.tools.opening import ROOT

#: How long a call waits for others, in seconds: as long as the longest command.
WAIT_S = 600.0
_LOOK_S = 0.05
_BUSY = "somebody else is changing the workspace: another run, or another part of this one"


@contextmanager
def alone(workspace: Path, stop: Stop, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold a workspace. Raises ToolError `workspace_busy` when somebody else holds it for too long, or the caller is stopped meanwhile."""
    opened = os.open(workspace, ROOT)
    try:
        until = time.monotonic() + wait_s
        while not locked(opened):
            stopped, _, _ = select.select([stop], [], [], _LOOK_S)
            if stopped or time.monotonic() > until:
                raise ToolError("workspace_busy", _BUSY)
        yield
    finally:
        os.close(opened)
