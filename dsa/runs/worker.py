"""Workers: take up the runs of a place in which there is something to do, and drive each to its next rest.

Any number of workers may share a place: who holds a run is alive, or has let go of it. A run that a person has interrupted is left alone, and
a run that is a part of another one is reached through that one.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path

import attrs

from dsa.errors import BindingError, DsaError
from dsa.runs.child_runs import due_runs
from dsa.runs.handle import RunHandle
from dsa.runs.runs import Runs
from dsa.runs.setup import Options
from dsa.runtime.ledger import MachineEntry
from dsa.runtime.run_store import HeldError, RunSummary, UnknownRunError
from dsa.runtime.status import Rest, status_of
from dsa.runtime.timeline import OnMoment

#: How often a worker looks for what is due, in seconds.
_EVERY_S = 1.0
#: Where the documents and modules of shipped machines are.
_SHIPPED = tuple(Path(__file__).parents[2] / name for name in ("dsa", "machines"))


@attrs.frozen
class TakeUp:
    """A run that a worker has taken up: how it rests now, or why it could not be taken up (`fault`)."""

    run: str
    rest: Rest | None = None
    fault: str = ""


class Worker:
    """Takes up what is due in `runs`, at most `at_once` runs side by side, of one `machine` if it is named.

    `options` say how the runs are bound otherwise than as they were started. Documents and modules are read only where `folders` (None:
    anywhere), shipped machines and installed packages have them: a run's ledger names them, and whoever may write it could name others.
    """

    def __init__(
        self,
        runs: Runs,
        *,
        machine: str | None = None,
        at_once: int = 16,
        options: Options | None = None,
        folders: Iterable[Path] | None = None,
        on_moment: OnMoment | None = None,
    ) -> None:
        self._runs, self._machine, self._at_once = runs, machine, at_once
        self._options, self._on_moment = options or Options(), on_moment
        self._folders = None if folders is None else (*(each.resolve() for each in folders), *_SHIPPED)
        self._faulty_runs: set[tuple[str, int]] = set()

    async def take_up(self, *, once: bool = True) -> AsyncIterator[TakeUp]:
        """Take up what is due; iterate over what becomes of each run, as it rests or when it could not be taken up.

        With `once` until nothing that was due at the beginning is left, else for ever. Leaving early, or cancelling it, lets go of the runs that
        are under way: another worker goes on with them.
        """
        due, driven = iter(await self._due()), dict[asyncio.Task[Rest], RunHandle]()
        try:
            while True:
                while len(driven) < self._at_once and (run := next(due, None)) is not None:
                    taken = self._take(run)
                    if isinstance(taken, TakeUp):
                        yield taken
                    elif taken is not None:
                        driven[asyncio.create_task(taken.rest_within(0))] = taken
                if once and not driven:
                    return
                for task in await _first_of(driven, None if once else _EVERY_S):
                    yield self._outcome_of(driven.pop(task), task)
                if not once:
                    due = iter(await self._due())
        finally:
            for task, handle in driven.items():
                task.cancel()
                await handle.let_go()

    async def _due(self) -> list[RunSummary]:
        summaries = due_runs(await self._runs.list(now_ms=self._runs.now_ms()))
        matches = (each for each in summaries if self._machine in {None, each.summary.machine})
        return [each for each in matches if (each.run, each.entries) not in self._faulty_runs]

    def _take(self, summary: RunSummary) -> RunHandle | TakeUp | None:
        """Take up a run, if it is still due and nobody else has it; say why it cannot be taken up, once."""
        try:
            self._require_allowed(summary.run)
            handle = self._runs.hold(summary.run, options=self._options, on_moment=self._on_moment)
        except (HeldError, UnknownRunError):
            return None
        except (DsaError, OSError) as fault:
            self._faulty_runs.add((summary.run, summary.entries))
            return TakeUp(summary.run, fault=str(fault))
        status = status_of(handle.run)
        if status.kind == "stopped" or status.kind == "in doubt" or status.kind == "finished":  # noqa: PLR1714  (for the checker of types)
            rest = Rest(status.kind, handle.run, in_doubt=status.doubts)
            handle.release(rest)
            return (
                TakeUp(summary.run, fault=f"stopped: {status.failure}") if status.failure else TakeUp(summary.run, rest)
            )
        handle.start()
        return handle

    def _outcome_of(self, handle: RunHandle, task: "asyncio.Task[Rest]") -> TakeUp:
        try:
            return TakeUp(handle.id, task.result())
        except (DsaError, OSError) as fault:
            return TakeUp(handle.id, fault=str(fault))

    def _require_allowed(self, run_id: str) -> None:
        """Raise BindingError for a run whose document or module is in no folder that may be read."""
        first = self._runs.stored_run(run_id).entries[0]
        if self._folders is None or not isinstance(first, MachineEntry):
            return
        settings = dict(first.started)
        names = (str(name) for name in (settings.get("file"), self._options.bindings or settings.get("module")) if name)
        for name in names:
            is_file = name.endswith((".py", ".md"))  # else it is an installed module
            if is_file and not any(Path(name).resolve().is_relative_to(folder) for folder in self._folders):
                raise BindingError(f"{name} is in no folder that this worker may read")


async def _first_of(tasks: Collection[asyncio.Task[Rest]], timeout_s: float | None) -> set[asyncio.Task[Rest]]:
    """Wait until one of the tasks is done, at most so long, and return those that are."""
    if not tasks:
        await asyncio.sleep(timeout_s or 0)
        return set()
    finished_tasks, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    return finished_tasks
