"""One effect performed: the action its policy is given, and the occurrence its steps amount to.

Takes intents and steps, gives actions and occurrences. A policy that answers with what the machine does not declare,
or with nothing, has failed: `E.failed` with the code `BAD_ANSWER`.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from dsa.edge.clock import Clock
from dsa.errors import GenerationError, OccurrenceError
from dsa.machine import Machine
from dsa.meaning import Occurrence, require_known
from dsa.runtime.ledger import IntentEntry
from dsa.runtime.policies import Action, Step, error_step

BAD_ANSWER = "BAD_ANSWER"

T = TypeVar("T")


def action_for(machine: Machine, intent: IntentEntry, data: object) -> Action:
    """Give the action of an intent; `data` is that of the event which caused it."""
    payload = {"key": intent.key, "event": intent.event, "data": data, "source": intent.source, "target": intent.target}
    return Action(intent.effect, payload, frozenset(machine.answers.get(intent.effect, ())))


def error_of(effect: str, error: Exception) -> Step:
    """Give the error step for what a policy raised."""
    code = error.reason if isinstance(error, GenerationError) else type(error).__name__
    return error_step(effect, code, str(error) or type(error).__name__)


def fault_in(steps: list[Step]) -> Step | None:
    """Give the first error step."""
    return next((step for step in steps if step.payload.get("error") is True), None)


def answer_in(machine: Machine, effect: str, steps: list[Step]) -> Occurrence | Step:
    """Give the occurrence that a policy's steps amount to, or an error step that says why there is none."""
    events = [step.payload for step in steps if step.type == "event"]
    if len(events) != 1:
        return error_step(effect, BAD_ANSWER, f"its policy gave {len(events)} events instead of one")
    event, declared = events[0].get("event"), machine.answers[effect]
    if event not in declared:
        return error_step(effect, BAD_ANSWER, f"its policy answered '{event}'; declared are: {', '.join(declared)}")
    occurrence = Occurrence(event, events[0].get("verdicts", {}), data=events[0].get("data"))
    try:
        require_known(machine, occurrence)
    except OccurrenceError as error:
        return error_step(effect, BAD_ANSWER, str(error))
    return occurrence


async def within(clock: Clock, limit_ms: int | None, work: Awaitable[T]) -> T:
    """Wait for a result, at most so long. TimeoutError when it takes longer; then the work is cancelled."""
    if limit_ms is None:
        return await work
    working = asyncio.ensure_future(work)
    alarm = asyncio.ensure_future(clock.sleep(limit_ms / 1000))
    try:
        await asyncio.wait({working, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        msg = f"no answer within its time limit of {limit_ms / 1000:g} s"
        raise TimeoutError(msg)
    finally:
        working.cancel()
        alarm.cancel()
