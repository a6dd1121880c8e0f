"""Part links: the connection between a run on Temporal and its parts, which are runs that its effects wait for.

A part is a child workflow: an effect that wants one asks the workflow of its whole to start it, and then waits until the part rests. Meanwhile the
effect takes no place at its worker, because the effects of the part may need that place. The part continues by itself. An effect that ended because
its part waits is performed again when the part continues, because the part signals its whole.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar

import attrs
from temporalio import workflow
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from dsa.runs.place import PART_OF
from dsa.runtime.ledger import Part
from dsa.temporal import payloads, search_attributes
from dsa.temporal.payloads import QUEUE, Json

#: The names of the update that starts a part, and of the signal by which a part reports to its whole that it continues.
BEGIN_PART, PART_GOES_ON = "begin-part", "part-goes-on"


def whole_of(run_id: str) -> str:
    """Return the id of the run that a part belongs to; "" for a run that is not a part."""
    return run_id.rpartition(PART_OF)[0]


# -- in workflows -------------------------------------------------------------------------------------------------------


async def begin_child(start: Json, machine: str) -> None:
    """Start the workflow of a part; it continues if this one ends. Raises ApplicationError if the id is or was in use."""
    try:
        await workflow.start_child_workflow(
            payloads.WORKFLOW,
            start,
            id=start["run"],
            task_queue=QUEUE,
            memo={payloads.START_TIME: workflow.time()},
            search_attributes=search_attributes.of_new_run(machine) if search_attributes.has_any() else None,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        )
    except WorkflowAlreadyStartedError as error:
        raise ApplicationError(f"there was already a run with this id: {start['run']}", type="StoreError") from error


async def tell_whole(run_id: str, length: int) -> None:
    """Signal to the run around a part that the part continues after a rest. `length` is the number of entries that its story had there."""
    try:
        handle = workflow.get_external_workflow_handle(whole_of(run_id))
        await handle.signal(PART_GOES_ON, args=[run_id, length])
    except ApplicationError as error:  # it has ended, or was removed, so it does not wait for the part
        workflow.logger.info("run %s continues without the run around it: %s", run_id, error)


class PartNews:
    """What a run knows of its parts: after which rests they continued, and at which rests its effects saw them.

    A rest is identified by the number of entries that the story of the part has there.
    """

    def __init__(self) -> None:
        self._left_rests: dict[str, int] = {}
        self._seen_rests: dict[str, int] = {}

    def leave(self, part: str, length: int) -> None:
        """Record that a part continued after a rest."""
        self._left_rests[part] = length

    def see(self, lengths: Mapping[str, int]) -> None:
        """Record the rests at which an effect saw its parts."""
        self._seen_rests.update(lengths)

    def key_in(self, parts: Callable[[], Mapping[str, Part]]) -> str | None:
        """Return the key of an effect whose part has continued since the effect saw it at rest; None if there is none."""
        for key, part in parts().items() if self._left_rests else ():
            if self._left_rests.get(part.run, -1) >= self._seen_rests.get(part.run, 0):
                return key
        return None

    def take(self, part: str) -> None:
        """Forget that a part continued, because the effect that waits for it is performed again."""
        self._left_rests.pop(part, None)


# -- in workers ---------------------------------------------------------------------------------------------------------


@attrs.define
class EffectAtWork:
    """An effect that is performed here, as seen by the runs that it begins.

    `queue` is the task queue of its run, and `at_ms` its time by the server's clock, in milliseconds since 1970. `waits_for_part` is set when the
    effect no longer needs its place at the worker; `seen_rests` has the rests at which it saw parts. `is_leaving` is set when the worker ends; then
    the parts continue.
    """

    queue: str
    at_ms: int
    waits_for_part: asyncio.Event = attrs.field(factory=asyncio.Event)
    seen_rests: dict[str, int] = attrs.field(factory=dict)
    is_leaving: bool = False
    _loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop)

    def give_place_back(self) -> None:
        """Release the place at the worker, from any thread."""
        self._loop.call_soon_threadsafe(self.waits_for_part.set)


_EFFECT: ContextVar[EffectAtWork | None] = ContextVar("effect", default=None)


def effect_at_work() -> EffectAtWork | None:
    """Return the effect whose policy calls this; None outside a policy."""
    return _EFFECT.get()


def begin_work_of(effect: EffectAtWork) -> None:
    """Make an effect the one that `effect_at_work` returns in the rest of this task."""
    _EFFECT.set(effect)
