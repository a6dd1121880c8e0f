"""Policies, and the two values that pass between a policy and what calls it (seed 004, sections 2 and 3).

A policy is an async function from an `Action` to `Step`s; models, people and code are policies alike. What a machine's
effect asks for is an Action, and its policy answers with one step of type `event`. This module knows the run as a
frozen value and nothing of how policies are found or performed.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import attrs

from dsa.expr import Outcome
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.ledger import ArtifactEntry, VerdictEntry
from dsa.runtime.run import Run

Payload = Mapping[str, Any]


def canonical_json(payload: Payload) -> str:
    """Write a payload so that equal payloads give equal texts; TypeError or ValueError when it is not JSON."""
    return json.dumps(dict(payload), sort_keys=True, separators=(",", ":"), allow_nan=False)


_NOTHING: Any = {}  # converted to text before anyone sees it
_text = attrs.validators.instance_of(str)


@attrs.frozen
class Action:
    """What is asked of a policy: its name, the payload, and the actions it may choose from.

    For an effect of a machine, `policy` is the effect and `actions` are the events that may answer it. The payload
    is kept as JSON text: nothing can change it, and equal actions are equal keys.
    """

    policy: str
    _payload: str = attrs.field(default=_NOTHING, converter=canonical_json, alias="payload")
    actions: frozenset[str] = frozenset()

    @property
    def payload(self) -> dict[str, Any]:
        """The arguments; a new value each time."""
        payload: dict[str, Any] = json.loads(self._payload)
        return payload


@attrs.frozen
class Step:
    """One thing a policy did or said: unique id, who, what type, JSON payload. TypeError for anything else."""

    id: str = attrs.field(validator=_text)
    actor: str = attrs.field(validator=_text)
    type: str = attrs.field(validator=_text)
    _payload: str = attrs.field(default=_NOTHING, converter=canonical_json, alias="payload")

    @property
    def payload(self) -> dict[str, Any]:
        """The content; a new value each time."""
        payload: dict[str, Any] = json.loads(self._payload)
        return payload

    def to_json(self) -> dict[str, Any]:
        """Give the step as a JSON object."""
        return {"id": self.id, "actor": self.actor, "type": self.type, "payload": self.payload}


def event_step(
    actor: str, event: str, *, verdicts: Mapping[str, Outcome] | None = None, data: object = None, step_id: str = ""
) -> Step:
    """Make the step by which an effect's policy answers: the event, its guards' verdicts, opaque JSON data."""
    return Step(step_id, actor, "event", {"event": event, "verdicts": dict(verdicts or {}), "data": data})


def text_step(actor: str, text: str, *, about: Payload | None = None, step_id: str = "") -> Step:
    """Make a step that says something (seed 004, 5.1); what it is about is kept beside the text."""
    return Step(step_id, actor, "text", {"text": text, **(about or {})})


def error_step(actor: str, code: str, message: str, *, step_id: str = "") -> Step:
    """Make the step that reports a failure as data (seed 004, 5.4). As an effect's answer it is `E.failed`."""
    return Step(step_id, actor, "action_result", {"error": True, "code": code, "message": message})


class PolicyContext(Protocol):
    """What a policy may use beside its action."""

    @property
    def run(self) -> Run:
        """The run as it is now."""

    @property
    def artifacts(self) -> ArtifactStore:
        """Every version ever generated."""

    def guard(self, name: str) -> GuardInterface:
        """Give the guard bound to a name of the table; KeyError when there is none."""

    def generator(self, name: str) -> GeneratorInterface:
        """Give the generator bound to a name; KeyError when there is none."""

    def now_s(self) -> float:
        """Give the seconds of a clock that only goes forward."""

    def record(self, entry: ArtifactEntry | VerdictEntry) -> None:
        """Append to the run's ledger at once, so that a later failure loses nothing."""


class Policy(Protocol):
    """An async function that performs an action and gives the record of what it did.

    A policy bound to an effect with answers gives exactly one step of type `event`, or one error step.
    """

    def __call__(self, action: Action, context: PolicyContext, /) -> Awaitable[list[Step]]:
        """Perform the action."""


@attrs.frozen
class Answering:
    """A policy that says which events it answers with, so that a binding can be checked before the first event."""

    policy: Policy
    answers: frozenset[str]

    def __call__(self, action: Action, context: PolicyContext, /) -> Awaitable[list[Step]]:
        """Perform the action."""
        return self.policy(action, context)


def answering(*events: str) -> Callable[[Policy], Answering]:
    """Declare the events that a policy answers with."""
    return lambda policy: Answering(policy, frozenset(events))
