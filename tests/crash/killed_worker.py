"""A worker that ends itself with kill -9 at one boundary of a run's activities: `python killed_worker.py FOLDER ADDRESS`.

An activity has three boundaries: before its policy or its guard is called, after that has ended, and after the result was reported. `FOLDER/passed/RUN` has a
byte for each boundary that a run has passed, with its parts, `FOLDER/kills/RUN` the number of the boundary at which the process dies; it is removed then.
`FOLDER/begun` has the key of every effect whose policy was called. The other workers notice after 4 s, and not after 15 s, that one has died.
"""

import os
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from dsa.cli.main import main
from dsa.temporal import activity_calls
from dsa.temporal.effect_activities import EffectActivities

FOLDER = Path(sys.argv[1])
#: How long the report of a result may take, before the process dies, in seconds.
REPORT_S = 0.1


def passes(run_id: str, *, reported: bool = False) -> None:
    with (FOLDER / "passed" / run_id).open("ab") as file:
        file.write(b".")
        file.flush()
        number = file.tell()
    mark = FOLDER / "kills" / run_id
    try:
        is_last = int(mark.read_text()) == number
    except FileNotFoundError:
        return
    if is_last:
        mark.unlink()
        if reported:
            threading.Timer(REPORT_S, os.kill, (os.getpid(), 9)).start()
        else:
            os.kill(os.getpid(), 9)


def killing(work: Any) -> Any:
    async def at_boundaries(self: EffectActivities, view: Any, request: Any, *more: Any) -> Any:
        run_id = request["run"]
        whole = run_id.partition("+")[0]
        passes(whole)
        if "key" in request:
            with (FOLDER / "begun").open("a") as file:
                file.write(f"{run_id}/{request['key']}/\n")
        result = await work(self, view, request, *more)
        passes(whole)
        passes(whole, reported=True)
        return result

    return at_boundaries


activity_calls.SILENCE = timedelta(seconds=4)
EffectActivities._perform = killing(EffectActivities._perform)  # type: ignore[method-assign]  # noqa: SLF001
EffectActivities._judge = killing(EffectActivities._judge)  # type: ignore[method-assign]  # noqa: SLF001
sys.argv[1:] = ["work", str(FOLDER), "--runs", sys.argv[2]]
main()
