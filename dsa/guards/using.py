"""A guard that is given its own data of events, and not that of the guards which judge beside it."""

from collections.abc import Awaitable
from typing import Any

from dsa.runtime.content import Artifact, GuardInterface, GuardResult


class UsingGuard(GuardInterface):
    """A part of a guard, in a table whose guards use data: of what comes as `PART:ARGUMENT` it is given what is its own, as `ARGUMENT`."""

    def __init__(self, guard: GuardInterface, part: str) -> None:
        self.blocks = guard.blocks
        self._guard, self._prefix = guard, f"{part}:"

    def validate(self, artifact: Artifact, **given: Any) -> GuardResult | Awaitable[GuardResult]:  # noqa: ANN401  (JSON)
        """Judge with the artifacts that a step uses and the guard's own data."""
        own = {name.removeprefix(self._prefix): value for name, value in given.items() if self._is_own(name)}
        return self._guard.validate(artifact, **own)

    def _is_own(self, name: str) -> bool:
        return ":" not in name or name.startswith(self._prefix)
