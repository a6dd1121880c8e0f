"""Subtasks that are worked at together: each is a part, a run of the coding machine with a ledger of its own, `RUN+1.2` for the second one of the first task.

A part has every guard, bound and proof that the whole has, and a share of the rounds, which the table has taken from the goal's before. The parts work
in one folder: whatever changes it happens one after the other (`tools/exclusive.py`). What one of them does again counts for all of them. Nobody is
asked for leave in a part. One that was cut off goes on from its ledger.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from math import floor
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.binding import Binding
from dsa.edge.driver import Driver
from dsa.edge.runs import PART_OF
from dsa.errors import GenerationError
from dsa.expr import Value
from dsa.meaning import Occurrence
from dsa.runtime.budgets import UNITS, Meter
from dsa.runtime.journal import UnknownRunError
from dsa.runtime.ledger import Entry
from dsa.runtime.policies import Action, PolicyContext, Step, answering, event_step
from machines.coding.loops import Did, together
from machines.coding.plan import Task
from machines.coding.resources import Resources, let_go, resources_in
from machines.coding.session import NAME, PAUSED, bound_in
from machines.coding.summary import note_of, summary_of, used_by
from machines.coding.telling import read
from machines.coding.work import Work
from machines.talking.holding import Held, begun, limits_of, taken_up
from machines.talking.texts import as_unicode


@attrs.frozen
class _Share:
    """What each part is given: its settings, and its bounds."""

    config: Mapping[str, Any]
    parameters: Mapping[str, Value]


@attrs.frozen
class _Part:
    """A part that is held: its place, its driver, and what its policies work with."""

    place: str
    task: Task
    driver: Driver
    resources: Resources

    @property
    def state(self) -> str:
        """Where it stands."""
        return self.driver.run.configuration.state.rpartition(".")[2]

    @property
    def work(self) -> Work:
        """What it has done."""
        return self.resources.work(self.driver.run)

    async def go_on(self, goal: str) -> str:
        """Work until it rests; gives why it could not end, or nothing."""
        planned = Occurrence("planned", data={"text": goal, "tasks": [self.task.to_json()]})
        first = {"idle": (planned,)} | dict.fromkeys(PAUSED, (Occurrence("again"),))
        rest = await self.driver.drive(*first.get(self.state, ()))
        if rest.failure is not None:
            return f"{self.driver.run.run_id}: {rest.failure}"
        return "" if self.driver.run.finished else f"{self.driver.run.run_id}: {self.work.paused_for or self.state}"


@answering("parts_done", "parts_failed")
async def work_apart(action: Action, context: PolicyContext) -> list[Step]:
    """Work at the subtasks that were set apart, all at once. Raises GenerationError when one of them could not end: it goes on when this is tried again."""
    agent, work, _ = read(action, context)
    set_apart = [(place, chapter, subtask) for place, chapter, subtask in work.places if subtask.status == "apart"]
    share = _share(work, context, len(set_apart))
    with ExitStack() as undone:
        parts = [
            undone.enter_context(_held(place, Task(chapter.description, (subtask.description,)), share, context, agent))
            for place, chapter, subtask in set_apart
        ]
        _beside_one_another(parts, tuple(work.past))
        faults = [fault for fault in await _all_at_once(parts, work.goal) if fault]
        if faults:
            raise GenerationError("; ".join(faults), "part_not_over")
        told = [summary_of(part.place, part.driver.run.run_id, part.work, part.state) for part in parts]
        used = used_by(part.work for part in parts)
    described = {place: subtask.description for place, _, subtask in set_apart}
    event = "parts_done" if all(part["status"] == "completed" for part in told) else "parts_failed"
    data = {"parts": told, "note": note_of(told, described), "usage": used}
    return [event_step(action.policy, event, data=as_unicode(data))]


async def _all_at_once(parts: Sequence[_Part], goal: str) -> list[str]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part.go_on(goal)) for part in parts]
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from None
    return [task.result() for task in tasks]


def _beside_one_another(parts: Sequence[_Part], before: tuple[Did, ...]) -> None:
    """Let each know what the others do, and what was done before they began."""
    for part in parts:
        _ = part.work  # one that was cut off has done something already
        part.resources.others = partial(_done_by, before, [each.resources for each in parts if each is not part])


def _done_by(before: tuple[Did, ...], others: Sequence[Resources]) -> tuple[Did, ...]:
    return together(before, chain.from_iterable(each.past for each in others))


def _share(work: Work, context: PolicyContext, count: int) -> _Share:
    """Divide the rounds that were taken for the parts, and what is left of the budget."""
    bounds, run = context.run.machine.constants, context.run
    rounds = int(bounds["part_rounds"]) // count
    parameters: dict[str, Value] = {
        **bounds,
        "max_rounds": rounds,
        "max_turns": min(int(bounds["max_turns"]), rounds),
    }
    meter = Meter(limits_of(run.machine, {"config": context.config}), run.machine.answers)
    meter.follow(run.ledger)
    budget = [
        f"{f'{each.effect}.' if each.effect else ''}{each.unit}={_part_of(each.unit, each.most / count)}"
        for each in meter.left()
    ]
    settings = {name: value for name, value in context.config.items() if name not in {"runs", "parallel"}}
    of_part = {
        "part_of": run.run_id,
        "budget": budget,
        "allowed": sorted(work.allowed),
        "files_before": work.files_written,
    }
    return _Share({**settings, **of_part}, parameters)


def _part_of(unit: str, amount: float) -> str:
    assert unit in UNITS, "a limit has one of these units"
    return str(floor(amount)) if unit in {"calls", "tokens"} else f"{amount:.9f}"


@contextmanager
def _held(place: str, task: Task, share: _Share, context: PolicyContext, agent: Resources) -> Iterator[_Part]:
    """Take a part up, or begin it."""
    runs, made = Path(context.config["runs"]), list[Resources]()
    run_id = f"{context.run.run_id}{PART_OF}{place}"
    bind = bound_in(runs, context.config["model"])

    def prepare(binding: Binding, run_id: str, undone: ExitStack) -> None:
        made.append(resources_in(binding.config, run_id))
        undone.callback(let_go, made[-1])

    def observe(entry: Entry) -> None:
        agent.watch_part(place, entry)

    def begin() -> Held:
        started = {"model": context.config["model"], "seed": context.config.get("seed") or 0, "config": share.config}
        return begun(NAME, share.parameters, started, bind, prepare, runs=runs, observe=observe, run_id=run_id)

    try:
        held = taken_up(  # who holds the run may take its parts
            run_id, NAME, bind, prepare, runs=runs, observe=observe, take=True, budget=share.config["budget"]
        )
    except UnknownRunError:
        held = begin()
    with held.undone:
        yield _Part(place, task, held.driver, made[-1])
