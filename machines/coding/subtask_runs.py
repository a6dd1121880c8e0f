"""Subtask runs: subtasks at the same time, each a run of the coding machine with its own ledger, such as `RUN+1.2` for the second one of the first task.

Such a part has the guards, bounds and proofs of the whole run, and the rounds of a subtask. The parts share one folder, so changes happen one after the
other (`command_runner.alone`). Repeated changes count across all parts. A part cannot ask for permission. An interrupted part continues from its ledger.

On Temporal a part is a child workflow, and its effects may be performed by several processes of one machine: they read each other's actions from their ledgers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from math import floor

import attrs

from dsa.runs.child_runs import runs_for_parts
from dsa.runs.door import Runs
from dsa.runs.runs import open_runs
from dsa.runs.setup import Options, limits_of, resumed_options
from dsa.runtime.costs import UNITS, Meter
from dsa.runtime.generation import GenerationError
from dsa.runtime.ledger import MachineEntry
from dsa.runtime.policy.policies import Action, PolicyContext, Step, answering, event_step
from dsa.runtime.run_store import UnknownRunError
from dsa.runtime.speech import as_unicode
from dsa.semantics import Occurrence
from machines.coding.coding_resources import RESOURCES, CodingResources, resources_and_work
from machines.coding.coding_tools import CallAction, in_order
from machines.coding.coding_work import Work
from machines.coding.task_plan import Goal, PartDone, PartsDone, Task
from machines.coding.work_session import NAME, PAUSED_STATES, WorkRun
from machines.coding.workspace_view import existing_parts, name_of, note_of, summary_of, sums
from machines.tool_use.machine_session import begin_run, hold_run
from machines.tool_use.records import as_data


class _HeldPart(WorkRun):
    """A part that this process holds."""

    async def go_on(self, goal: str, task: Task) -> str:
        """Work until the part rests; return why it is not over, or an empty text."""
        plan = Occurrence("planned", data=as_data(Goal(goal, task.subtasks[0], (task,))))
        first = {"idle": (plan,)} | dict.fromkeys(PAUSED_STATES, (Occurrence("again"),))
        rest = await self._handle.drive(*first.get(self.state, ()))
        if rest.failure is not None:
            return str(rest.failure)
        return "" if self.is_over else self.own_work.paused_for or self.state


@attrs.frozen
class _PartResult:
    """The result of a part: its summary, its usage, and why it is not over."""

    summary: PartDone
    usage: Mapping[str, float]
    fault: str


class _Group:
    """The parts of one task, a limited number at a time; each knows the actions of the others."""

    def __init__(
        self, tasks: Mapping[str, Task], work: Work, context: PolicyContext, agent: CodingResources, runs: Runs
    ) -> None:
        self._tasks, self._goal, self._whole = tasks, work.goal, context.run.run_id
        self._agent, self._runs = agent, runs
        self._share = _share(work, context, len(tasks))
        self._turns = asyncio.Semaphore(agent.parallel)
        self._actions: dict[str, Callable[[], Iterable[CallAction]]] = {
            "": partial(in_order, tuple(work.past), tuple(work.past_apart))
        }
        earlier = existing_parts(runs, self._whole, tasks)
        self._actions |= {place: partial(tuple, tuple(part.past)) for place, part in earlier}

    async def results(self) -> list[_PartResult]:
        """Work until all parts rest. Raises what the first failing part raises."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(place)) for place in self._tasks]
        except ExceptionGroup as faults:
            raise faults.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(self, place: str) -> _PartResult:
        task = self._tasks[place]
        async with self._turns:
            with self._hold(place) as part:
                _ = part.own_work  # an interrupted part has earlier actions
                self._actions[place] = lambda: part.resources.past
                part.resources.others = partial(self._other_actions, place)
                try:
                    fault = await part.go_on(self._goal, task)
                finally:
                    await part.resources.model.aclose()
                self._actions[place] = partial(tuple, part.resources.past)
                summary = summary_of(place, part.run_id, part.own_work, part.state)
                return _PartResult(summary, part.own_work.usage, fault)

    def _hold(self, place: str) -> _HeldPart:
        """Resume a part, or begin it."""

        def prepare(resources: CodingResources) -> None:
            resources.notice = lambda text: self._agent.notice(f"{place}: {text}")

        run_id, watch = name_of(self._whole, place), self._agent.watch_part
        try:
            options = Options(model=self._share.model, budget=self._share.budget)
            # The holder of the whole run may take it.
            handle = hold_run(self._runs, run_id, NAME, options, take=True, on_moment=watch)
        except UnknownRunError:
            handle = begin_run(self._runs, NAME, self._share, run_id=run_id, on_moment=watch)
        return _HeldPart(handle, RESOURCES, prepare)

    def _other_actions(self, place: str) -> tuple[CallAction, ...]:
        return in_order((), chain.from_iterable(actions() for at, actions in self._actions.items() if at != place))


@answering("parts_done", "parts_failed")
async def work_apart(action: Action, context: PolicyContext) -> list[Step]:
    """Work on the parallel subtasks. Raises GenerationError when one could not end; it continues at the next try."""
    agent, work = resources_and_work(context)
    apart = [(place, chapter, subtask) for place, chapter, subtask in work.places if subtask.status == "apart"]
    tasks = {place: Task(chapter.description, (subtask.description,)) for place, chapter, subtask in apart}
    async with _runs_of(agent) as runs:
        results = await _Group(tasks, work, context, agent, runs).results()
    if any(each.fault for each in results):
        raise GenerationError(_not_over(results), "part_not_over")
    summaries = [each.summary for each in results]
    descriptions = {place: task.subtasks[0] for place, task in tasks.items()}
    event = "parts_done" if all(part.status == "completed" for part in summaries) else "parts_failed"
    data = PartsDone(tuple(summaries), note_of(summaries, descriptions), sums(each.usage for each in results))
    return [event_step(action.policy, event, data=as_unicode(as_data(data)))]


def _not_over(results: Iterable[_PartResult]) -> str:
    """Return the parts that are not over, grouped by the reason."""
    places: dict[str, list[str]] = {}
    for each in results:
        if each.fault:
            places.setdefault(each.fault, []).append(each.summary.place)
    return "; ".join(f"{', '.join(of)}: {fault}" for fault, of in places.items())


@asynccontextmanager
async def _runs_of(agent: CodingResources) -> AsyncIterator[Runs]:
    """Yield the runs of the worker, or of an agent's session, or open them when there is neither."""
    runs = runs_for_parts() or agent.runs
    if runs is not None:
        yield runs
        return
    async with open_runs(agent.config["runs"]) as runs:
        yield runs


def _share(work: Work, context: PolicyContext, count: int) -> Options:
    """Return the options of each part: an equal share of the remaining budget, the settings of the whole, and the rounds of a subtask."""
    bounds, run, config = context.run.machine.constants, context.run, context.config
    meter = Meter(limits_of(run.machine, config["budget"]), run.machine.answers)
    meter.follow(run.ledger)
    budget = [
        f"{f'{each.effect}.' if each.effect else ''}{each.unit}={_part_of(each.unit, each.most / count)}"
        for each in meter.left()
    ]
    of_part = {"part_of": run.run_id, "allowed": sorted(work.permissions), "files_before": work.files_written}
    settings = {name: value for name, value in config.items() if name not in {"runs", "parallel", "budget"}}
    parameters = {**bounds, "max_rounds": bounds["max_turns"]}
    first = run.ledger[0]
    assert isinstance(first, MachineEntry), "a run begins with its machine"
    whole = resumed_options(first, Options(model=config["model"], budget=budget))
    return attrs.evolve(whole, seed=config.get("seed"), parameters=parameters, config={**settings, **of_part})


def _part_of(unit: str, amount: float) -> str:
    assert unit in UNITS, "a limit has one of these units"
    return str(floor(amount)) if unit in {"calls", "tokens"} else f"{amount:.9f}"
