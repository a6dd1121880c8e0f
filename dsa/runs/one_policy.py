"""A policy asked from outside, as a run of the shipped machine `policy`: the effect that asks it, what the run begins with, what it gave."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dsa.edge.binding import Bindings
from dsa.runtime.call_replay import Replayed, replay_calls
from dsa.runtime.call_tree import POLICY, CallNode, calls_of
from dsa.runtime.ledger import EventEntry
from dsa.runtime.policies import Action, Payload, PolicyContext, Step, answering, event_step
from dsa.runtime.registry import Registry
from dsa.runtime.run import Run

#: The effect of the machine.
PERFORM = "perform"
#: The key of the effect of a run of the machine: its only one.
_KEY = "1/1"


def request(policy: str, payload: Payload, actions: Iterable[str], seed: Iterable[Step] = ()) -> dict[str, Any]:
    """Return the data that a run of the machine begins with. `actions` are what the policy may call, `seed` what its own ledger begins with.

    `about` says for lists of runs what it is about.
    """
    text = payload.get("text")
    about = f"{policy}: {text}" if isinstance(text, str) else policy
    steps = [step.to_json() for step in seed]
    return {"policy": policy, "payload": dict(payload), "actions": sorted(actions), "seed": steps, "about": about}


@answering("gave", "gave_error")
async def perform(action: Action, context: PolicyContext) -> list[Step]:
    """Ask the policy that the run is of. An error with which it ends is its result, too; what it raises is not."""
    asked, seed = _asked(action.payload["data"])
    steps = await context.call(asked, seed=seed)
    event = "gave_error" if steps and steps[-1].payload.get("error") is True else "gave"
    return [event_step(PERFORM, event, data={"steps": [step.to_json() for step in steps]})]


def _asked(data: object) -> tuple[Action, list[Step]]:
    """Read what a run began with. TypeError for anything else than `request` gives."""
    if not isinstance(data, dict) or not isinstance(data.get("policy"), str):
        raise TypeError('a policy is asked with {"policy": NAME, "payload": OBJECT, "actions": [NAME, ..], "seed": []}')
    actions = frozenset(data.get("actions") or ())
    return Action(data["policy"], data.get("payload") or {}, actions), [Step(**step) for step in data.get("seed") or ()]


def require_policy(data: object, binding: Bindings) -> None:
    """Raise BindingError when a run is to ask a policy that is not there, TypeError for data that asks none."""
    if binding.effects.get(PERFORM) is perform and data is not None:
        binding.policies[_asked(data)[0].policy]


def steps_given(run: Run) -> tuple[dict[str, Any], ...] | None:
    """Return the steps that the policy of a run gave; None while it has given nothing, and of a run of another machine."""
    if run.machine.name != POLICY or not run.finished:
        return None
    last = [entry for entry in run.ledger if isinstance(entry, EventEntry) and entry.event.startswith("gave")][-1]
    return tuple(last.data["steps"])


def answer_text(steps: Iterable[Mapping[str, Any]]) -> str:
    """Return the last text among steps, or else what the last step carries, as JSON; nothing for no steps."""
    payloads = [step["payload"] for step in steps]
    texts = [payload["text"] for payload in payloads if isinstance(payload.get("text"), str)]
    last = payloads[-1] if payloads else {}
    if texts and last.get("error") is not True:
        return str(texts[-1])
    return json.dumps(last, ensure_ascii=False, indent=2) if payloads else ""


def calls_of_policy(run: Run) -> tuple[CallNode, ...]:
    """Return the calls of a run of the machine, in the order of their places; none of a run of another machine."""
    return calls_of(run.ledger, _KEY) if run.machine.name == POLICY else ()


async def replayed_policy(run: Run, policies: Registry, config: Mapping[str, Any]) -> Replayed:
    """Perform again what called others in a run, with nothing done to the world. Raises what `replay_calls` does."""
    asked, seed = _asked(run.specification)
    return await replay_calls(run.ledger, policies, asked, seed=seed, run_id=run.run_id, key=_KEY, config=config)
