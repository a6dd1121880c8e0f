"""One effect performed: the action its policy is given, and the occurrence its steps amount to.

Takes intents and steps, gives actions and occurrences. A policy that answers with what the machine does not declare,
or with nothing, has failed: `E.failed` with the code `BAD_ANSWER`. Policies are foreign code: nothing that one raises
or returns may end the run in another way.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs

from dsa.edge.clock import Clock
from dsa.errors import GenerationError, OccurrenceError
from dsa.machine import Machine
from dsa.meaning import Occurrence, require_known
from dsa.runtime.ledger import IntentEntry, ResultEntry
from dsa.runtime.policies import Action, Step, error_step

BAD_ANSWER = "BAD_ANSWER"
IN_DOUBT = "IN_DOUBT"

T = TypeVar("T")


def action_for(machine: Machine, intent: IntentEntry, data: object) -> Action:
    """Give the action of an intent; `data` is that of the event which caused it."""
    payload = {"key": intent.key, "event": intent.event, "data": data, "source": intent.source, "target": intent.target}
    return Action(intent.effect, payload, frozenset(machine.answers.get(intent.effect, ())))


def error_of(effect: str, error: BaseException) -> Step:
    """Give the error step for what a policy raised."""
    code = error.reason if isinstance(error, GenerationError) else type(error).__name__
    return error_step(effect, code, str(error) or type(error).__name__)


def code_and_message(payload: dict[str, Any]) -> tuple[str, str]:
    """Give code and message of an error step's payload; a policy may have left either out."""
    return str(payload.get("code") or "ERROR"), str(payload.get("message") or "its policy gives no reason")


async def attempted(effect: str, perform: Callable[[], Awaitable[list[Step]]]) -> list[Step]:
    """Call a policy once and give its steps; what it raises, or returns instead of steps, becomes an error step.

    Only what is meant for the program itself comes through: cancellation by the driver, and Ctrl-C.
    """
    try:
        given = perform()
        if not isinstance(given, Awaitable):
            return [error_step(effect, BAD_ANSWER, "its policy is no async function")]
        steps = await given
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return [error_of(effect, error)]  # the policy raised it itself: nobody has cancelled anything
    except BaseException as error:  # noqa: BLE001  (sys.exit in a policy ends the effect, not the program)
        return [error_of(effect, error)]
    if not isinstance(steps, list | tuple) or not all(isinstance(step, Step) for step in steps):
        return [error_step(effect, BAD_ANSWER, f"its policy gave {_described(steps)}, not a list of Steps")]
    return list(steps)


def _described(given: object) -> str:
    strangers = [item for item in given if not isinstance(item, Step)] if isinstance(given, list | tuple) else []
    inside = f" with {type(strangers[0]).__name__} in it" if strangers else ""
    return "None" if given is None else type(given).__name__ + inside


def fault_in(steps: list[Step]) -> Step | None:
    """Give the first error step."""
    return next((step for step in steps if step.payload.get("error") is True), None)


def answer_in(machine: Machine, effect: str, steps: list[Step]) -> Occurrence | Step:
    """Give the occurrence that a policy's steps amount to, or the error step that says why there is none."""
    fault = fault_in(steps)
    if fault is not None:
        return fault
    events = [step.payload for step in steps if step.type == "event"]
    if len(events) != 1:
        return error_step(effect, BAD_ANSWER, f"its policy gave {len(events)} events instead of one")
    event, declared = events[0].get("event"), machine.answers[effect]
    if event not in declared:
        return error_step(effect, BAD_ANSWER, f"its policy answered '{event}'; declared are: {', '.join(declared)}")
    verdicts = events[0].get("verdicts") or {}
    if not isinstance(verdicts, dict):
        return error_step(effect, BAD_ANSWER, f"the verdicts of '{event}' are no object of guards and verdicts")
    occurrence = Occurrence(event, verdicts, data=events[0].get("data"))
    try:
        require_known(machine, occurrence)
    except OccurrenceError as error:
        return error_step(effect, BAD_ANSWER, str(error))
    return occurrence


def occurrence_of(intent: IntentEntry, answer: Occurrence | Step) -> Occurrence:
    """Give an answer as it is, and a failure as the answer `E.failed`."""
    return Occurrence(f"{intent.effect}.failed", data=answer.payload) if isinstance(answer, Step) else answer


def result_of(intent: IntentEntry, steps: list[Step], seconds: float = 0.0) -> ResultEntry:
    """Give the record of what a policy gave, its steps numbered under the effect's key, and how long it took."""
    written = tuple({**step.to_json(), "id": f"{intent.key}/{n}"} for n, step in enumerate(steps, start=1))
    return ResultEntry(intent.key, intent.effect, written, seconds)


@attrs.frozen
class TimeLimit:
    """How long a try may take, in seconds, and what says so."""

    seconds: float
    why: str


async def within(clock: Clock, limit: TimeLimit | None, work: Awaitable[T]) -> T:
    """Wait for a result, at most so long. TimeoutError when it takes longer; then the work is cancelled."""
    if limit is None:
        return await work
    working = asyncio.ensure_future(work)
    working.add_done_callback(_heard)
    alarm = asyncio.ensure_future(clock.sleep(limit.seconds))
    try:
        await asyncio.wait({working, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise TimeoutError(f"no answer within {limit.seconds:g} s, {limit.why}")
    finally:
        working.cancel()
        alarm.cancel()


def _heard(future: "asyncio.Future[Any]") -> None:
    """Look at what a future raised after it was given up, or the loop would report it on standard error."""
    if not future.cancelled():
        future.exception()
