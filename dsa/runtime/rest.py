"""Rests: where a run no longer goes on by itself, for now or for good, and why."""

from collections.abc import Mapping
from typing import Literal

import attrs

from dsa.immutable import immutable
from dsa.runtime.content import Artifact
from dsa.runtime.intents import Intent
from dsa.runtime.run import Run
from dsa.runtime.standing import fault_text, places

Kind = Literal["finished", "waiting", "stopped", "in doubt", "interrupted"]


@attrs.frozen
class Failure:
    """Why a run stopped before its end: the effect or event, the line of its row, the reason, where in the user's code, in which call.

    The run can go on from its ledger once the cause is gone.
    """

    what: str
    line: int | None
    code: str
    message: str
    at: str = ""
    call: str = ""

    def __str__(self) -> str:
        place = f" (line {self.line})" if self.line is not None else ""
        within = f" in {self.call}" if self.call else ""
        return f"{self.what}{place} failed{within}: {fault_text(self.code, self.message, self.at)}"


@attrs.frozen(field_transformer=immutable)
class Rest:
    """How a run came to rest.

    - `finished`: in a final state
    - `waiting`: for an event from outside, or for a timer, whose deadline is `due_ms` (milliseconds since 1970)
    - `stopped`: by the `failure`; resuming it tries again
    - `in doubt`: somebody has to say what became of the effects `in_doubt`
    - `interrupted`: by whoever drove it

    `accepted` are the artifacts that the run's steps finalised, in the order of the workflow.
    """

    kind: Kind
    run: Run
    failure: Failure | None = None
    in_doubt: tuple[Intent, ...] = ()
    due_ms: int | None = None
    accepted: tuple[Artifact, ...] = ()

    @property
    def outcome(self) -> str | None:
        """The last part of the final state's name, such as `succeeded`; None where the run is not finished."""
        return self.run.outcome if self.kind == "finished" else None

    @property
    def waits_for(self) -> Mapping[str, str]:
        """The events from outside that the run waits for, each with its place: what an answer names its question by."""
        return places(self.run) if self.kind == "waiting" else {}
