"""Replays of calls: every policy that called others is performed with the recorded results, and must say what it said.

Takes the entries of a run and the policies of now, gives what was compared; nothing of the world is touched. What called nobody (models, people,
tools) is taken from the ledger, and so is what is registered as not to be repeated: `in_doubt` is `ask` or `fail`.
"""

import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import attrs

from dsa.declarations import OUTSIDE
from dsa.errors import DsaError
from dsa.runtime.call_tree import CallNode, calls_of, place_of
from dsa.runtime.calls import Calls
from dsa.runtime.ledger import CallEntry, Entry
from dsa.runtime.one_call import Request
from dsa.runtime.policies import Action, Policy, PolicyContext, Step
from dsa.runtime.recorded import ReplayMismatchError, told
from dsa.runtime.registry import Registry

_LONGEST = 300  # characters of steps in a message


@attrs.frozen
class Replayed:
    """What was compared: the calls of a run, the paths of those that were performed, and where the ledger ends, if the run is not over."""

    calls: tuple[CallNode, ...]
    performed: tuple[str, ...]
    ends_at: str | None = None


class LedgerEnds(Exception):  # noqa: N818  (no error: it says what is the case)
    """Raised where a run that is not over has nothing recorded."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


async def replay_calls(
    entries: Iterable[Entry],
    registry: Registry,
    action: Action,
    *,
    seed: Iterable[Step] = (),
    run_id: str = "",
    key: str = "",
    config: Mapping[str, Any] | None = None,
) -> Replayed:
    """Perform again what called others after the action was asked from outside, and compare each request and each step with the ledger.

    Raises ReplayMismatchError at the first that is another one, also where a policy raises something now; BindingError for a policy that is
    not registered any more.
    """
    replay = _CallReplay(registry, tuple(entries), run_id, key, config)

    async def outside(_action: Action, context: PolicyContext) -> list[Step]:
        return await context.call(action, seed=seed)

    await replay.compare(replay.record.root, partial(replay.perform, Action(OUTSIDE), outside, allowed=[action.policy]))
    while replay.left:
        await replay.compare(*replay.left.popleft())
    return Replayed(replay.calls, tuple(sorted(replay.performed, key=place_of)), replay.ends_at)


class _CallReplay(Calls):
    """Calls of which every one is recorded: those that called others are put aside, to be performed by themselves."""

    def __init__(
        self, registry: Registry, entries: Sequence[Entry], run_id: str, key: str, config: Mapping[str, Any] | None
    ) -> None:
        begun = [e for e in entries if isinstance(e, CallEntry) and e.key == key]
        root = int(begun[-1].path.partition(".")[0]) if begun else 1
        super().__init__(registry, run_id=run_id, key=key, root=root, recorded=entries, config=config)
        self.calls = calls_of(entries, key)
        self.left: deque[tuple[str, Callable[[], Awaitable[list[Step]]]]] = deque()
        self.performed: list[str] = []
        self.ends_at: str | None = None
        self._calls: Mapping[str, CallNode] = {call.path: call for call in self.calls}
        self._callers = {call.path.rpartition(".")[0] for call in self.calls}

    def is_performed(self, path: str) -> bool:
        """Return whether a call may be performed again: it called others, and may be repeated."""
        return path == self.record.root or (path in self._callers and self.record.begun[path].in_doubt == "retry")

    async def compare(self, path: str, perform: Callable[[], Awaitable[list[Step]]]) -> None:
        """Perform a call by itself. Raises ReplayMismatchError when it gives other steps than are recorded."""
        self._fault, recorded = None, self._calls[path].steps if path in self._calls else None
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
        if self.is_performed(path):
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
        if not self.is_performed(scope.path):
            self._end(LedgerEnds(scope.path), scope.path)
        if scope.path in self._calls:
            self.performed.append(scope.path)
        return await super().steps_of(policy, action, scope, with_ids=with_ids)

    def begin(self, request: Request) -> None:
        """Check that a call may be begun of which the ledger has no result: only where the run is not over."""
        self.require_sound(request.path)
        caller = self._calls.get(request.path.rpartition(".")[0])
        is_begun = request.path in self._calls
        if caller is not None and caller.steps is not None:
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
