"""The guards of the chat machine: whether a call may be made, and whether what it gave is new.

They judge what an event brings, and nothing else: equal events get equal verdicts, in a replay too. What they need to know of the
conversation stands in the event, put there by `next_call` and by the tools.
"""

import json
from typing import Any

from dsa.runtime.content import Artifact, GuardInterface, GuardResult


class Usable(GuardInterface):
    """Passes a call whose SQL or code is there and compiles. Whether a column exists, the tool says."""

    blocks = False

    def validate(self, artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        """Judge the data of a call."""
        call = _read(artifact)
        fault = call["fault"] if call["text"].strip() else f"the call of {call['tool']} is empty"
        return GuardResult(passed=not fault, feedback=fault)


class Fresh(GuardInterface):
    """Passes a call unless an equal one was made in this turn, or of late and gave a result; the user may want it done again, once a turn."""

    blocks = False

    def validate(self, artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        """Judge the data of a call."""
        call = _read(artifact)
        earlier = call.get("earlier")
        if earlier is None:
            return GuardResult(passed=True, feedback="")
        in_turn = earlier["turn"] == call["turn"]
        if not in_turn and (call["rerun"] or not earlier["ok"]):
            return GuardResult(passed=True, feedback="")
        when = "in this turn" if in_turn else f"in turn {earlier['turn']}"
        return GuardResult(passed=False, feedback=f"an equal call was made {when}: {earlier['call_id']}")


class New(GuardInterface):
    """Passes what a tool made unless an artifact with equal content is there."""

    blocks = False

    def validate(self, artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        """Judge what a tool gave."""
        made = _read(artifact).get("artifacts") or ()
        equal = [f"{each['name']} is {each['equal_to']}" for each in made if each.get("equal_to")]
        return GuardResult(passed=not equal, feedback="; ".join(equal))


class Always(GuardInterface):
    """Passes everything: to measure what the guards are worth."""

    blocks = False

    def validate(self, artifact: Artifact, **_dependencies: Artifact) -> GuardResult:  # noqa: ARG002  (it looks at nothing)
        """Pass it."""
        return GuardResult(passed=True, feedback="")


def _read(artifact: Artifact) -> dict[str, Any]:
    data = json.loads(artifact.content)
    return data if isinstance(data, dict) else {}
