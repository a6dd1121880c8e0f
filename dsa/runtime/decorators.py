"""Decorators of policies (seed 004, section 4): carry out the actions that a policy asks for, and go on until it asks for none.

Takes a policy, gives one that does more. Used together as `[loop_wrapper(5), invoke_action()]`, the first outermost, in
`context.call` or stacked on a function. Each turn of the innermost policy is recorded, so that a replay repeats none.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from dsa.runtime.policies import ACTION_CALL, Action, Decorator, Policy, PolicyContext, Step, approved, error_step
from dsa.runtime.recorded import result_for
from dsa.runtime.registry import INVALID_PAYLOAD

MAX_TURNS = "MAX_TURNS"
NOT_APPROVED = "NOT_APPROVED"
DIGEST_MISMATCH = "DIGEST_MISMATCH"

_Perform = Callable[[Policy, Action, PolicyContext], Awaitable[list[Step]]]
_NOBODY: Mapping[str, str] = MappingProxyType({})


@attrs.frozen
class Decorated:
    """A policy made of another by a decorator of this module."""

    inner: Policy
    is_loop: bool
    _perform: _Perform

    def __call__(self, action: Action, context: PolicyContext, /) -> Awaitable[list[Step]]:
        """Perform the action."""
        return self._perform(self.inner, action, context)


def loop_wrapper(max_turns: int) -> Decorator:
    """Perform a policy again until it asks for no action, at most `max_turns` times; give the steps of all turns.

    When the last turn still asks for one, an error step with the code MAX_TURNS ends them. ValueError for less than one turn.
    """
    if max_turns < 1:
        raise ValueError(f"max_turns = {max_turns} is too few: at least 1")

    async def perform(policy: Policy, action: Action, context: PolicyContext) -> list[Step]:
        said: list[Step] = []
        for _ in range(max_turns):
            turn = await _once(policy, action, context)
            said += turn
            if not any(step.type == ACTION_CALL for step in turn):
                return said
        return [
            *said,
            error_step(action.policy, MAX_TURNS, f"it still asked for actions in turn {max_turns}, the last"),
        ]

    return lambda policy: Decorated(policy, is_loop=True, perform=perform)


def invoke_action(approvals: Mapping[str, str] = _NOBODY) -> Decorator:
    """Carry out the `action_call` steps that a policy gives, one after the other, and add an `action_result` for each.

    What the policy may not call gives an error step, whoever wrote the `action_call`. `approvals` names for a policy the one that has to
    approve each call of it: it is asked with the payload `{"approve": {policy, payload, digest}}`, and without an approval
    of that digest the call gives the error NOT_APPROVED. TypeError for a policy in a loop: the loop comes first, outside.
    """
    asked_for = dict(approvals)

    async def perform(policy: Policy, action: Action, context: PolicyContext) -> list[Step]:
        said = await _once(policy, action, context)
        calls = [step for step in said if step.type == ACTION_CALL]
        return [*said, *[await _carried_out(call, context, asked_for) for call in calls]]

    def decorate(policy: Policy) -> Decorated:
        if isinstance(policy, Decorated) and policy.is_loop:
            msg = "invoke_action belongs into the loop: write [loop_wrapper(..), invoke_action()]"
            raise TypeError(msg)
        return Decorated(policy, is_loop=False, perform=perform)

    return decorate


async def _once(policy: Policy, action: Action, context: PolicyContext) -> list[Step]:
    """Perform a policy once; the innermost as a turn of its own, so that it is recorded."""
    return await (policy(action, context) if isinstance(policy, Decorated) else context.turn(policy, action))


async def _carried_out(call: Step, context: PolicyContext, approvals: Mapping[str, str]) -> Step:
    """Carry out an `action_call` and give the result as it stands in the policy's ledger."""
    action = _action_in(call)
    if isinstance(action, Action) and action.policy in approvals:
        action = await _released(action, context, approvals[action.policy])
    if isinstance(action, Action):
        return result_for(call, action.policy, await context.call(action, asked=call))
    result = result_for(call, action.actor, [action])
    context.note(result)
    return result


def _action_in(call: Step) -> Action | Step:
    """Read what an `action_call` asks for; an error step when it cannot be read, or is not what its digest says."""
    asked = call.payload
    policy: Any = asked.get("policy")
    payload: Any = asked.get("payload")
    if not isinstance(policy, str) or not isinstance(payload, dict):
        name = policy if isinstance(policy, str) else call.actor
        return error_step(name, INVALID_PAYLOAD, "an action_call has a `policy`, a text, and a `payload`, an object")
    if fault := asked.get("fault"):
        return error_step(policy, INVALID_PAYLOAD, str(fault))
    action = Action(policy, payload)
    if asked.get("digest", action.digest) != action.digest:
        return error_step(policy, DIGEST_MISMATCH, "this action_call is not the one that its digest was made of")
    return action


async def _released(action: Action, context: PolicyContext, approver: str) -> Action | Step:
    """Ask for the approval of a call; give the call, or an error step. What was said of other calls does not count."""
    about = {"policy": action.policy, "payload": action.payload, "digest": action.digest}
    said = await context.call(Action(approver, {"approve": about}))
    if approved(action, said):
        return action
    reasons = "; ".join(str(step.payload["text"]) for step in said if step.payload.get("text"))
    return error_step(action.policy, NOT_APPROVED, f"{approver} has not approved this call{reasons and f': {reasons}'}")
