"""Subtasks that are worked at together: each is a part, a run of the coding machine with a ledger of its own, `RUN+1.2` for the second one of the first task.

A part has every guard, bound and proof that the whole has, and as many rounds as a subtask may have. The parts work in one folder: whatever changes it
happens one after the other (`tools/exclusive.py`). What one of them changes again and again counts for all of them. Nobody is asked for leave in a
part. One that was cut off goes on from its ledger.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from math import floor

import attrs

from dsa.errors import GenerationError
from dsa.runs.runs import Runs, open_runs
from dsa.runs.setup import Options, as_started, limits_of
from dsa.runtime.costs import UNITS, Meter
from dsa.runtime.ledger import MachineEntry
from dsa.runtime.policy.policies import Action, PolicyContext, Step, answering, event_step
from dsa.runtime.run_store import UnknownRunError
from dsa.runtime.speech import as_unicode
from dsa.semantics import Occurrence
from machines.coding.coding_notices import read
from machines.coding.coding_resources import KNOWN, CodingResources
from machines.coding.coding_tools import Did, together
from machines.coding.coding_work import Work
from machines.coding.task_plan import Goal, PartDone, PartsDone, Task
from machines.coding.work_session import NAME, PAUSED, WorkRun
from machines.coding.workspace_view import added, kept_parts, name_of, note_of, summary_of
from machines.tool_use.machine_session import begun, taken_up
from machines.tool_use.records import as_data


class _HeldPart(WorkRun):
    """A part that is held."""

    async def go_on(self, goal: str, task: Task) -> str:
        """Work until it rests; gives why it is not over, or nothing."""
        planned = Occurrence("planned", data=as_data(Goal(goal, task.subtasks[0], (task,))))
        first = {"idle": (planned,)} | dict.fromkeys(PAUSED, (Occurrence("again"),))
        rest = await self._handle.drive(*first.get(self.state, ()))
        if rest.failure is not None:
            return str(rest.failure)
        return "" if self.is_over else self.own_work.paused_for or self.state


@attrs.frozen
class _PartResult:
    """What came of a part: its account, what it took, and why it is not over."""

    told: PartDone
    used: Mapping[str, float]
    fault: str


class _Group:
    """The parts of one task: so many at a time, each knowing what the others have done."""

    def __init__(
        self, tasks: Mapping[str, Task], work: Work, context: PolicyContext, agent: CodingResources, runs: Runs
    ) -> None:
        self._tasks, self._goal, self._whole = tasks, work.goal, context.run.run_id
        self._agent, self._runs = agent, runs
        self._share = _share(work, context, len(tasks))
        self._turns = asyncio.Semaphore(agent.parallel)
        self._done: dict[str, Callable[[], Iterable[Did]]] = {
            "": partial(together, tuple(work.past), tuple(work.past_apart))
        }
        kept = kept_parts(runs, self._whole, tasks)
        self._done |= {place: partial(tuple, tuple(part.past)) for place, part in kept}

    async def ended(self) -> list[_PartResult]:
        """Have all of them work until they rest. Raises what the first of them raises that cannot go on."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(place)) for place in self._tasks]
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(self, place: str) -> _PartResult:
        task = self._tasks[place]
        async with self._turns:
            with self._held(place) as part:
                _ = part.own_work  # one that was cut off has done something already
                self._done[place] = lambda: part.resources.past
                part.resources.others = partial(self._done_beside, place)
                try:
                    fault = await part.go_on(self._goal, task)
                finally:
                    await part.resources.model.aclose()
                self._done[place] = partial(tuple, part.resources.past)
                told = summary_of(place, part.run_id, part.own_work, part.state)
                return _PartResult(told, part.own_work.usage, fault)

    def _held(self, place: str) -> _HeldPart:
        """Take a part up, or begin it."""

        def prepare(resources: CodingResources) -> None:
            resources.notice = lambda text: self._agent.notice(f"{place}: {text}")

        run_id, watch = name_of(self._whole, place), self._agent.watch_part
        try:
            options = Options(model=self._share.model, budget=self._share.budget)
            handle = taken_up(self._runs, run_id, NAME, options, take=True, on_moment=watch)  # by who holds the whole
        except UnknownRunError:
            handle = begun(self._runs, NAME, self._share, run_id=run_id, on_moment=watch)
        return _HeldPart(handle, KNOWN, prepare)

    def _done_beside(self, place: str) -> tuple[Did, ...]:
        return together((), chain.from_iterable(done() for at, done in self._done.items() if at != place))


@answering("parts_done", "parts_failed")
async def work_apart(action: Action, context: PolicyContext) -> list[Step]:
    """Work at the subtasks that were set apart. Raises GenerationError when one of them could not end: it goes on when this is tried again."""
    agent, work = read(context)
    apart = [(place, chapter, subtask) for place, chapter, subtask in work.places if subtask.status == "apart"]
    tasks = {place: Task(chapter.description, (subtask.description,)) for place, chapter, subtask in apart}
    async with _runs_of(agent) as runs:
        ended = await _Group(tasks, work, context, agent, runs).ended()
    if any(each.fault for each in ended):
        raise GenerationError(_not_over(ended), "part_not_over")
    told = [each.told for each in ended]
    described = {place: task.subtasks[0] for place, task in tasks.items()}
    event = "parts_done" if all(part.status == "completed" for part in told) else "parts_failed"
    done = PartsDone(tuple(told), note_of(told, described), added(each.used for each in ended))
    return [event_step(action.policy, event, data=as_unicode(as_data(done)))]


def _not_over(ended: Iterable[_PartResult]) -> str:
    """Return which parts are not over, and why; what holds for several is said once."""
    places: dict[str, list[str]] = {}
    for each in ended:
        if each.fault:
            places.setdefault(each.fault, []).append(each.told.place)
    return "; ".join(f"{', '.join(of)}: {fault}" for fault, of in places.items())


@asynccontextmanager
async def _runs_of(agent: CodingResources) -> AsyncIterator[Runs]:
    """Yield the runs beside that of an agent; without a session they are opened for the time being."""
    if agent.runs is not None:
        yield agent.runs
        return
    async with open_runs(agent.config["runs"]) as runs:
        yield runs


def _share(work: Work, context: PolicyContext, count: int) -> Options:
    """Divide what is left of the budget, and return each part the settings of the whole and the rounds of a subtask."""
    bounds, run, config = context.run.machine.constants, context.run, context.config
    meter = Meter(limits_of(run.machine, config["budget"]), run.machine.answers)
    meter.follow(run.ledger)
    budget = [
        f"{f'{each.effect}.' if each.effect else ''}{each.unit}={_part_of(each.unit, each.most / count)}"
        for each in meter.left()
    ]
    of_part = {"part_of": run.run_id, "allowed": sorted(work.allowed), "files_before": work.files_written}
    settings = {name: value for name, value in config.items() if name not in {"runs", "parallel", "budget"}}
    parameters = {**bounds, "max_rounds": bounds["max_turns"]}
    first = run.ledger[0]
    assert isinstance(first, MachineEntry), "a run begins with its machine"
    whole = as_started(first, Options(model=config["model"], budget=budget))
    return attrs.evolve(whole, seed=config.get("seed"), parameters=parameters, config={**settings, **of_part})


def _part_of(unit: str, amount: float) -> str:
    assert unit in UNITS, "a limit has one of these units"
    return str(floor(amount)) if unit in {"calls", "tokens"} else f"{amount:.9f}"
