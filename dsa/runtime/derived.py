"""A run of a policy derived again: every policy that called others is performed with the recorded results, and must say what it said.

Takes the entries of a run and the policies of now, gives what was compared; nothing of the world is touched. What called nobody (models, people,
tools) is taken from the ledger, and so is what is registered as not to be repeated: `in_doubt` is `ask` or `fail`.
"""

import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import attrs

from dsa.errors import DsaError
from dsa.runtime.called import ROOT, Called, calls_of, place_of
from dsa.runtime.calls import Calls
from dsa.runtime.ledger import Entry, PolicyEntry
from dsa.runtime.one_call import Request
from dsa.runtime.policies import Action, Policy, Step
from dsa.runtime.recorded import ReplayMismatchError, Said, told
from dsa.runtime.registry import Registry

_LONGEST = 300  # characters of steps in a message


@attrs.frozen
class Derived:
    """What was derived again: the calls of a run, the paths of those that were performed, and where the ledger ends, if the run is not over."""

    calls: tuple[Called, ...]
    performed: tuple[str, ...]
    ends_at: str | None = None


class LedgerEnds(Exception):  # noqa: N818  (no error: it says what is the case)
    """Raised where a run that is not over has nothing recorded."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


async def derive(entries: Iterable[Entry], registry: Registry) -> Derived:
    """Perform again what called others in a run, and compare each request and each step with the ledger.

    Raises ReplayMismatchError at the first that is another one, also where a policy raises something now; BindingError for a policy that is
    not registered any more.
    """
    entries = tuple(entries)
    first = entries[0]
    assert isinstance(first, PolicyEntry), "a run of a policy begins with it"
    calls = calls_of(entries)
    derivation = _Derivation(registry, first, entries, calls)
    if not derivation.is_derivable(ROOT):
        return Derived(calls, ())
    registered, seed = registry[first.policy], tuple(Step(**step) for step in first.seed)
    action = Action(first.policy, first.payload, frozenset(first.actions))
    _require_same(ROOT, first, told(first.policy, first.payload, Said(seed).digest_with(action)))

    async def perform() -> list[Step]:
        fault = registered.fault(action.payload)
        if fault is not None:
            return derivation.given([fault], ROOT)
        return await derivation.perform(action.permitting(registered.actions), registered.policy, seed=seed)

    await derivation.compare(ROOT, perform)
    while derivation.left:
        await derivation.compare(*derivation.left.popleft())
    return Derived(calls, tuple(sorted(derivation.performed, key=place_of)), derivation.ends_at)


def _require_same(path: str, first: PolicyEntry, asked: str) -> None:
    recorded = told(first.policy, first.payload, first.digest)
    if recorded != asked:
        raise ReplayMismatchError(path, recorded, asked)


class _Derivation(Calls):
    """Calls of which every one is recorded: those that called others are put aside, to be performed by themselves."""

    def __init__(
        self, registry: Registry, first: PolicyEntry, entries: Sequence[Entry], calls: Sequence[Called]
    ) -> None:
        super().__init__(registry, key=first.run, recorded=entries, config=first.config)
        self.left: deque[tuple[str, Callable[[], Awaitable[list[Step]]]]] = deque()
        self.performed: list[str] = []
        self.ends_at: str | None = None
        self._calls: Mapping[str, Called] = {call.path: call for call in calls}
        self._callers = {call.path.rpartition(".")[0] for call in calls}

    def is_derivable(self, path: str) -> bool:
        """Tell whether a call may be performed again: it called others, and may be repeated."""
        return path in self._callers and self._calls[path].in_doubt == "retry"

    async def compare(self, path: str, perform: Callable[[], Awaitable[list[Step]]]) -> None:
        """Perform a call by itself. Raises ReplayMismatchError when it gives other steps than are recorded."""
        self._fault, recorded = None, self._calls[path].steps
        try:
            steps = [step.to_json() for step in await perform()]
            self.require_sound(path)
        except LedgerEnds as end:
            self.ends_at = end.path
        except DsaError:
            raise
        except Exception as error:
            if recorded is not None:
                asked = f"{type(error).__name__}: {error}"
                raise ReplayMismatchError(self.crashed_in or path, _shown(recorded), asked) from error
            self.ends_at = self.crashed_in
        else:
            if recorded is not None and steps != [*recorded]:
                raise ReplayMismatchError(path, _shown(recorded), _shown(steps))

    def replayed(self, path: str, perform: Callable[[Any], Awaitable[list[Step]]]) -> None:
        """Put a call aside that is answered from the ledger, to be performed when its caller is done."""
        if self.is_derivable(path):
            self.left.append((path, partial(perform, None)))

    async def steps_of(
        self,
        policy: Policy,
        action: Action,
        scope: Any,  # noqa: ANN401  (a scope is private)
        *,
        with_ids: bool = True,
    ) -> list[Step]:
        """Perform a policy that may be performed again. Raises LedgerEnds for any other."""
        if not self.is_derivable(scope.path):
            self._end(LedgerEnds(scope.path), scope.path)
        self.performed.append(scope.path)
        return await super().steps_of(policy, action, scope, with_ids=with_ids)

    def begin(self, request: Request) -> None:
        """See that a call may be begun of which the ledger has no result: only where the run is not over."""
        self.require_sound(request.path)
        caller = self._calls[request.path.rpartition(".")[0]]
        is_begun = request.path in self._calls
        if caller.steps is not None:
            recorded = "a call for whose result nobody waited" if is_begun else "no further call"
            asked = told(request.action.policy, request.payload, request.digest)
            self._end(ReplayMismatchError(request.path, recorded, asked), request.path)
        if not is_begun:
            self._end(LedgerEnds(request.path), request.path)

    def _end(self, error: Exception, path: str) -> NoReturn:
        """Raise an error whoever catches it."""
        self._broken(error, path, is_crash=isinstance(error, LedgerEnds))
        raise error

    def finish(self, path: str, steps: Iterable[Step]) -> None:
        """Record nothing: a call that was under way has given its steps now, which follow from what is recorded."""


def _shown(steps: Sequence[Mapping[str, Any]]) -> str:
    text = json.dumps([step["payload"] for step in steps], ensure_ascii=False)
    return f"the steps {text if len(text) <= _LONGEST else text[:_LONGEST] + '..'}"
