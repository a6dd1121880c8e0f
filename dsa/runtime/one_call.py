"""One call of a policy: how it was asked for, what steps it gives, and what ends the whole run.

Takes values and a policy; knows neither a ledger nor which other calls there are.
"""

from collections.abc import Awaitable
from typing import Any

import attrs

from dsa.runtime.policies import LONGEST_DATA, Action, Step, error_step

TOO_LARGE = "TOO_LARGE"


class NoStepsError(TypeError):
    """Raised when what is to be a policy gives something else than a list of steps."""


@attrs.frozen
class Request:
    """One call as it was asked for: where, what, and what the ledger is to say of its payload."""

    path: str
    position: int
    known: int
    action: Action
    digest: str
    payload: dict[str, Any] | None


@attrs.define
class Fault:
    """What ends the whole run, however policies handle it.

    After a crash, calls under way may still be recorded, but for those that have seen it: it stands in `paths`.
    """

    error: BaseException
    is_crash: bool
    paths: list[str] = attrs.field(factory=list)

    def forbids(self, path: str) -> bool:
        """Tell whether a call may not be recorded as finished."""
        return not self.is_crash or any(f"{seen}.".startswith(f"{path}.") for seen in self.paths)


def require_awaitable(policy: str, giving: object) -> None:
    """Raise NoStepsError when what a policy gave as it was called cannot be awaited."""
    if not isinstance(giving, Awaitable):
        raise NoStepsError(f"the policy {policy} is no async function")


def steps_in(policy: str, given: object) -> list[Step]:
    """Return the steps that a policy gave. NoStepsError when it gave something else."""
    if not isinstance(given, list | tuple):
        raise NoStepsError(f"the policy {policy} gave {_kind(given)}, not a list of Steps")
    for item in given:
        if not isinstance(item, Step):
            inside = f"{_kind(given)} with {_kind(item)} in it"
            raise NoStepsError(f"the policy {policy} gave {inside}, not a list of Steps")
    return list(given)


def bounded(policy: str, steps: list[Step]) -> list[Step]:
    """Return steps, or the error step that takes the place of more than an entry of a ledger has room for."""
    size = sum(len(step.payload_text) for step in steps)
    if size <= LONGEST_DATA:
        return steps
    told = f"the policy {policy} gave {size:,} characters of JSON, and {LONGEST_DATA:,} are allowed: it has to store them in a file or an artifact"
    return [error_step(policy, TOO_LARGE, told)]


def _kind(given: object) -> str:
    return "None" if given is None else type(given).__name__
