"""Put guards together: in order, all, any, at least k.

Takes guards by name, gives a guard. A fatal verdict of any part that is run makes the whole fatal; the feedback names the part
it came from.
"""

from collections.abc import Mapping
from typing import Literal

from dsa.runtime.content import Artifact, GuardInterface, GuardResult, verdict_of

_PASSED = GuardResult(passed=True)


class AllOf(GuardInterface):
    """Ask the parts in order and stop at the first that does not pass: its verdict is the whole's."""

    def __init__(self, parts: Mapping[str, GuardInterface]) -> None:
        self.parts = _not_empty(parts)

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Judge by the first part that does not pass."""
        for name, guard in self.parts.items():
            result = verdict_of(name, guard, artifact, dependencies)
            if not result.passed:
                return GuardResult(passed=False, feedback=_named(name, result.feedback), fatal=result.fatal)
        return _PASSED


class Combination(GuardInterface):
    """Ask every part and count: all of them, any, or at least `k` must pass.

    The feedback is that of the parts that did not pass; a fatal part makes the whole fatal however many pass.
    """

    def __init__(
        self, parts: Mapping[str, GuardInterface], kind: Literal["all", "any", "at_least"] = "all", k: int = 1
    ) -> None:
        self.parts = _not_empty(parts)
        self.needed = {"all": len(parts), "any": 1, "at_least": k}[kind]
        if not 1 <= self.needed <= len(parts):
            raise ValueError(f"at least {k} of {len(parts)} guards cannot be asked for: k is 1 to {len(parts)}")

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Judge by the number of parts that pass."""
        results = {name: verdict_of(name, guard, artifact, dependencies) for name, guard in self.parts.items()}
        fatal = any(result.fatal for result in results.values())
        if not fatal and sum(result.passed for result in results.values()) >= self.needed:
            return _PASSED
        said = (_named(name, result.feedback) for name, result in results.items() if not result.passed)
        return GuardResult(passed=False, feedback="\n".join(said), fatal=fatal)


def _not_empty(parts: Mapping[str, GuardInterface]) -> dict[str, GuardInterface]:
    if not parts:
        raise ValueError("a composition needs at least one guard")
    return dict(parts)


def _named(name: str, feedback: str) -> str:
    return f"{name}: {feedback or 'did not pass'}"
