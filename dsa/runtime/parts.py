"""Parts: runs that an effect of another run waits for.

What is at rest in a part is recorded as the result of the effect, which stays outstanding: a step with the code `waiting` that says which run
waits, and for what. When that has come the effect is performed again, and finds the part.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from dsa.errors import GenerationError
from dsa.runtime.ledger import ResultEntry

#: The code of a result that says that a part waits, and the field of its payload that says for what.
PART_WAITS, PART = "waiting", "part"


def _places(given: Mapping[str, str]) -> Mapping[str, str]:
    return dict(given)


@attrs.frozen
class Part:
    """A run at rest that another one waits for.

    `waits_for` has the events that it waits for, each with the place of its question: the run that asks and its own place, as `RUN+3.2@4`. `due_ms` is when its next
    timer is due, in milliseconds since 1970.
    """

    run: str
    waits_for: Mapping[str, str] = attrs.field(factory=dict, converter=_places)
    due_ms: int | None = None

    @property
    def runs(self) -> tuple[str, ...]:
        """The part, and those within it that ask."""
        return tuple(dict.fromkeys((self.run, *(asking_run(place) for place in self.waits_for.values()))))

    def to_json(self) -> dict[str, Any]:
        """Return the part as an object of JSON."""
        return {"run": self.run, "waits_for": dict(self.waits_for), "due_ms": self.due_ms}


class PartWaitsError(GenerationError):
    """Raised when the run that is to make an artifact has come to rest and is not over: it waits for a person, or for a timer."""

    def __init__(self, message: str, part: Part) -> None:
        self.part = part
        super().__init__(message, PART_WAITS)


def part_in(result: ResultEntry) -> Part | None:
    """Return the part that an effect waits for by its last result; None where it waits for none."""
    found = (part_told(step["payload"]) for step in result.steps)
    return next((part for part in found if part is not None), None)


def part_told(payload: Mapping[str, Any]) -> Part | None:
    """Return the part that waits by the payload of a step; None where it tells of none."""
    told = payload.get(PART)
    if not isinstance(told, dict) or payload.get("code") != PART_WAITS:
        return None
    return Part(told["run"], told["waits_for"], told["due_ms"])


def asking_run(place: str) -> str:
    """Return the run that a place names, `RUN+3.2` of `RUN+3.2@4`; empty for a place of the run itself."""
    return place.rpartition("@")[0]


def place_in_part(run: str, place: str) -> str:
    """Return a place of a part as the run around it tells it: with the run that asks before it."""
    return place if asking_run(place) else f"{run}@{place}"
