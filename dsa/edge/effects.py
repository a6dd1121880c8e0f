"""One effect performed: the action its policy is given, and the occurrence its steps amount to.

Takes intents and steps, gives actions and occurrences. A policy that answers with what the machine does not declare,
or with nothing, has failed: `E.failed` with the code `BAD_ANSWER`. Policies are foreign code: nothing that one raises
or returns may end the run in another way.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

import attrs

from dsa.edge.clock import Clock
from dsa.edge.eager import GoingOn
from dsa.errors import OccurrenceError
from dsa.machine import Machine
from dsa.meaning import Occurrence, require_known
from dsa.runtime.budgets import BudgetSpentError
from dsa.runtime.intents import Intent
from dsa.runtime.json_text import canonical_value, copied, quoted
from dsa.runtime.ledger import ResultEntry
from dsa.runtime.one_call import NoStepsError
from dsa.runtime.policies import (
    EVENT,
    QUESTION,
    Action,
    PayloadText,
    Step,
    Unwritten,
    canonical_json,
    error_of,
    error_step,
)
from dsa.runtime.recorded import ReplayMismatchError
from dsa.runtime.run import Run

BAD_ANSWER = "BAD_ANSWER"

T = TypeVar("T")

#: Where this is not in a payload's text, it has no `error` that is true, and need not be read.
_ERROR = canonical_json({"error": True})[1:-1]


def action_for(run: Run, intent: Intent, data: object) -> Action:
    """Return the action of an intent; `data` is that of the event which caused it. Its `key` names the run too: no other run has it."""
    payload = Unwritten(partial(_payload_text, run.run_id, intent, data), partial(_payload, run.run_id, intent, data))
    return Action(intent.effect, payload, answers_of(run.machine, intent.effect))


def _payload(run_id: str, intent: Intent, data: object) -> dict[str, Any]:
    return {
        "data": copied(data),
        "event": intent.event,
        "key": f"{run_id}/{intent.key}",
        "source": intent.source,
        "target": intent.target,
    }


def _payload_text(run_id: str, intent: Intent, data: object) -> PayloadText:
    place = (
        f'"key":{quoted(f"{run_id}/{intent.key}")},"source":{quoted(intent.source)},"target":{quoted(intent.target)}'
    )
    return PayloadText(f'{{"data":{canonical_value(data)},"event":{quoted(intent.event)},{place}}}')


def answers_of(machine: Machine, effect: str) -> frozenset[str]:
    """Give the events that may answer an effect."""
    found: frozenset[str] | None = machine.worked_out.get(("answers", effect))
    if found is None:
        found = machine.worked_out["answers", effect] = frozenset(machine.answers.get(effect, ()))
    return found


def code_and_message(payload: dict[str, Any]) -> tuple[str, str]:
    """Give code and message of an error step's payload; a policy may have left either out."""
    return str(payload.get("code") or "ERROR"), str(payload.get("message") or "its policy gives no reason")


def failure_of(effect: str, error: BaseException) -> list[Step]:
    """Return the error step for what came of a policy instead of steps.

    What is meant for the program itself is raised again: cancellation by the driver, Ctrl-C, and ReplayMismatchError, because trying
    again with another program would do again what is recorded; BudgetSpentError is the caller's.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit | ReplayMismatchError | BudgetSpentError):
        raise error
    if isinstance(error, asyncio.CancelledError):  # a policy may raise it itself, when nobody has cancelled anything
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
    if isinstance(error, NoStepsError):
        return [error_step(effect, BAD_ANSWER, str(error))]
    return [error_of(effect, error)]


def fault_in(steps: list[Step]) -> Step | None:
    """Give the first error step."""
    for step in steps:
        if _ERROR in step.payload_text and step.content.get("error") is True:
            return step
    return None


def answer_in(machine: Machine, effect: str, steps: list[Step]) -> Occurrence | Step:
    """Give the occurrence that a policy's steps amount to; the question that it leaves to a person; or the error step that says why there is neither."""
    count, said, question = 0, {}, None
    for step in steps:
        if _ERROR in step.payload_text and step.content.get("error") is True:
            return step
        if step.type == EVENT:
            count, said = count + 1, step.content
        elif step.type == QUESTION:
            question = step
    if count == 0 and question is not None:
        return question
    if count != 1:
        return error_step(effect, BAD_ANSWER, f"its policy gave {count} events instead of one")
    event, declared = said.get("event"), machine.answers[effect]
    if event not in declared:
        return error_step(effect, BAD_ANSWER, f"its policy answered '{event}'; declared are: {', '.join(declared)}")
    verdicts = said.get("verdicts") or {}
    if not isinstance(verdicts, dict):
        return error_step(effect, BAD_ANSWER, f"the verdicts of '{event}' are no object of guards and verdicts")
    occurrence = Occurrence(event, verdicts, data=said.get("data"))
    if verdicts:
        try:
            require_known(machine, occurrence)
        except OccurrenceError as error:
            return error_step(effect, BAD_ANSWER, str(error))
    return occurrence


def occurrence_of(intent: Intent, answer: Occurrence | Step) -> Occurrence:
    """Give an answer as it is, and a failure as the answer `E.failed`."""
    return Occurrence(f"{intent.effect}.failed", data=answer.content) if isinstance(answer, Step) else answer


def result_of(intent: Intent, steps: list[Step], seconds: float = 0.0, at_ms: int = 0) -> ResultEntry:
    """Return the record of what a policy gave, how long it took, and when it was over."""
    return ResultEntry(intent.key, tuple([step.without_id() for step in steps]), seconds, at_ms)


def steps_of(result: ResultEntry) -> list[Step]:
    """Give the steps of a result."""
    return [Step(f"{result.key}/{number}", **step) for number, step in enumerate(result.steps, start=1)]


@attrs.frozen
class TimeLimit:
    """How long a try may take, in seconds, and what says so."""

    seconds: float
    why: str


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, T], *, is_eager: bool) -> T | None:
    """Wait for a result, at most so long; return None when it takes longer; then the work is cancelled.

    `is_eager`: the work is begun in the task of the caller, and a task is made of the rest where it waits (as `Answering.is_eager`).
    """
    if is_eager:
        try:
            awaited = work.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        work = GoingOn(work, awaited)
    working = asyncio.create_task(work)
    working.add_done_callback(_heard)
    alarm = asyncio.create_task(clock.sleep(seconds))
    try:
        await asyncio.wait({working, alarm}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        alarm.cancel()


def _heard(future: "asyncio.Future[Any]") -> None:
    """Look at what a future raised after it was given up, or the loop would report it on standard error."""
    if not future.cancelled():
        future.exception()
