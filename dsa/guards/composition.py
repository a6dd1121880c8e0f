"""Compositions of guards: in order, all, any, at least k, at once or one after the other.

They take guards by name. A fatal verdict of any part that is run makes the whole fatal; the feedback names the part
it came from.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from dsa.guards.feedback import bound_text, together, verdict_of
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

_PASSED = GuardResult(passed=True)


class AllOf(GuardInterface):
    """Ask the parts in order and stop at the first that does not pass: its verdict is the whole's."""

    def __init__(self, parts: Mapping[str, GuardInterface]) -> None:
        self.parts = _not_empty(parts)

    def validate(self, artifact: Artifact, **inputs: Any) -> GuardResult:  # noqa: ANN401  (JSON)
        """Judge by the first part that does not pass."""
        for name, guard in self.parts.items():
            result = verdict_of(name, guard, artifact, inputs)
            if not result.passed:
                return attrs.evolve(result, feedback=bound_text(_with_name(name, result.feedback)))
        return _PASSED


class Combination(GuardInterface):
    """Ask every part and count: all of them, any, or at least `k` must pass.

    The feedback is that of the parts that did not pass; a fatal part makes the whole fatal however many pass. `parallel` asks all at once, in
    threads; `timeout_s` bounds how long all of them may take: a part that has said nothing by then makes `validate` raise
    TimeoutError, which is not a verdict.
    """

    def __init__(
        self,
        parts: Mapping[str, GuardInterface],
        kind: Literal["all", "any", "at_least"] = "all",
        k: int = 1,
        *,
        parallel: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        self.parts = _not_empty(parts)
        self.required_count = {"all": len(parts), "any": 1, "at_least": k}[kind]
        if not 1 <= self.required_count <= len(parts):
            raise ValueError(f"at least {k} of {len(parts)} guards cannot be asked for: k is 1 to {len(parts)}")
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"timeout_s = {timeout_s:g} is no time limit")
        self._parallel, self._timeout_s = parallel, timeout_s

    def validate(self, artifact: Artifact, **inputs: Any) -> GuardResult:  # noqa: ANN401  (JSON)
        """Judge by the number of parts that pass."""
        results = self._results(artifact, inputs)
        fatal = [result for result in results.values() if result.fatal]
        if not fatal and sum(result.passed for result in results.values()) >= self.required_count:
            return _PASSED
        texts = [_with_name(name, result.feedback) for name, result in results.items() if not result.passed]
        review = bool(fatal) and all(result.review for result in fatal)
        return GuardResult(passed=False, feedback=together(texts), fatal=bool(fatal), review=review)

    def _results(self, artifact: Artifact, inputs: Mapping[str, Any]) -> dict[str, GuardResult]:
        threads = {name: _GuardThread(name, guard, artifact, inputs) for name, guard in self.parts.items()}
        until_s = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        if self._parallel:
            for part in threads.values():
                part.start()
        results = {}
        for name, part in threads.items():
            if not self._parallel and until_s is None:
                part.run()
            elif not self._parallel:
                part.start()
            results[name] = part.result(until_s)
        return results


class _GuardThread(threading.Thread):
    """A part of a composition as it is asked. Its thread is left to itself when nobody waits for it any more."""

    def __init__(self, part: str, guard: GuardInterface, artifact: Artifact, inputs: Mapping[str, Any]) -> None:
        super().__init__(name=f"dsa-guard-{part}", daemon=True)
        self._part, self._guard, self._artifact, self._inputs = part, guard, artifact, inputs
        self._outcome: GuardResult | BaseException | None = None

    def run(self) -> None:
        try:
            self._outcome = verdict_of(self._part, self._guard, self._artifact, self._inputs)
        except BaseException as error:  # noqa: BLE001  (raised again where the result is asked for)
            self._outcome = error

    def result(self, until_s: float | None) -> GuardResult:
        """Return the verdict, or raise what the guard raised; TimeoutError when there is neither by then."""
        if self.ident is not None:
            self.join(None if until_s is None else max(0.0, until_s - time.monotonic()))
        if isinstance(self._outcome, GuardResult):
            return self._outcome
        raise self._outcome or TimeoutError(f"guard {self._part} gave no verdict in time")


def _not_empty(parts: Mapping[str, GuardInterface]) -> dict[str, GuardInterface]:
    if not parts:
        raise ValueError("a composition needs at least one guard")
    return dict(parts)


def _with_name(name: str, feedback: str) -> str:
    return f"{name}: {feedback or 'did not pass'}"
