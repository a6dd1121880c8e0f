"""Invocations: a policy asked from outside, and the ledger of steps that comes of it (seed 004, section 9).

`run` takes and gives a ledger of steps: an `action_call` when a policy is called, an `action_result` with all its steps when
it has finished. Whoever makes it durable gets the same as entries, one by one; `ledger_of` and `entries_of` turn one form
into the other, so that any prefix of the entries is a ledger to go on from. The calls are those of an effect of a machine: the path `1` is
the outside, `1.1` the policy that it asks.

Replays of calls: every policy that called others is performed with the recorded results, and must say what it said.

Takes the entries of a run and the policies of now, gives what was compared; nothing of the world is touched. What called nobody (models, people,
tools) is taken from the ledger, and so is what is registered as not to be repeated: `in_doubt` is `ask` or `fail`.

Decorators of policies (seed 004, section 4): carry out the actions that a policy asks for, and go on until it asks for none.

Takes a policy, gives one that does more. Used together as `[loop_wrapper(5), invoke_action()]`, the first outermost, in
`context.call` or stacked on a function. Each turn of the innermost policy is recorded, so that a replay repeats none.
"""

import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

import attrs

from dsa.declarations import OUTSIDE
from dsa.errors import DsaError
from dsa.runtime.ledger import CallEntry, CallResultEntry, Entry, Handling, Ledger, ResultEntry
from dsa.runtime.policy.call_tree import (
    CallNode,
    ReplayMismatchError,
    call_key,
    calls_of,
    doubted_calls,
    place_of,
    result_for,
    told,
)
from dsa.runtime.policy.policies import (
    ACTION_CALL,
    ACTION_RESULT,
    Action,
    Decorator,
    Payload,
    Policy,
    PolicyContext,
    Request,
    Step,
    approved,
    entry_without,
    error_of,
    error_step,
)
from dsa.runtime.policy.policy_calls import CallRecord, Calls
from dsa.runtime.policy.policy_registry import INVALID_PAYLOAD, Registry
from dsa.runtime.secrets import Secrets

#: What stands in the ledger beside what a run can go on from: what a policy raised.
Appended = CallRecord | ResultEntry

#: The path of the policy that is asked.
ROOT = "1.1"
_RESULT = ".result"
_PATH = re.compile(r"[1-9][0-9]*(\.[1-9][0-9]*)+")


async def run(
    policy_name: str,
    payload: Payload,
    registry: Registry | Mapping[str, Any],
    ledger: Iterable[Step] = (),
    *,
    config: Mapping[str, Any] | None = None,
    actions: Iterable[str] | None = None,
    seed: Iterable[Step] = (),
    run_id: str = "",
    append: Callable[[Appended], None] = lambda _entry: None,
    secrets: Secrets | None = None,
) -> Ledger[Step]:
    """Perform a policy and return the ledger of its run. What `ledger` has of it is not performed again.

    `registry` may be a dictionary of policies. `actions` are what it may call, by default all there is; its own ledger begins with `seed`; all
    policies can read `config`. `append` is given every entry before anybody sees what it says; after what a policy raises, the last is a
    ResultEntry with that. `secrets` are in no entry. Raises BindingError for an unknown policy, ReplayMismatchError for another run's
    ledger, TypeError or ValueError for what is not JSON.
    """
    policies = registry if isinstance(registry, Registry) else Registry(registry)
    known, entries = policies[policy_name].name, list[Appended](entries_of(ledger, run_id))

    def write(entry: Appended) -> None:
        entries.append(entry if secrets is None else entry_without(secrets, entry))
        append(entries[-1])

    calls = Calls(policies, key=run_id, recorded=entries, append=write, config=config, secrets=secrets)
    action = calls.kept(Action(known, payload, frozenset(policies if actions is None else actions)))

    async def outside(_action: Action, context: PolicyContext) -> list[Step]:
        return await context.call(action, seed=calls.without_secrets(seed))

    try:
        await calls.perform(Action(OUTSIDE), outside, allowed=[known], with_ids=False)
    except Exception as error:
        if calls.crashed_in is not None:
            write(_failure(entries, run_id, calls.crashed_in, error))
        raise
    return ledger_of(entries)


def _failure(entries: Iterable[Appended], run_id: str, path: str, error: BaseException) -> ResultEntry:
    """Return the record of what a policy raised."""
    names = [entry.policy for entry in entries if isinstance(entry, CallEntry) and entry.path == path]
    return ResultEntry(call_key(run_id, path), [error_of(names[-1], error).without_id()])


def answer_of(ledger: Iterable[Step]) -> list[Step]:
    """Return the steps that the policy of a run gave. LookupError when it has not finished."""
    for step in ledger:
        if step.id == ROOT + _RESULT:
            return [Step(**given) for given in step.payload["steps"]]
    raise LookupError("the policy of this run has not given its steps yet")


def in_doubt(entries: Iterable[Entry]) -> tuple[CallEntry, ...]:
    """Return the calls that began and have no result: nobody knows what came of them.

    Of calls within each other only one: the outermost of which somebody has to say so, else the innermost, which a resumed run makes again.
    """
    return doubted_calls(entries)


# -- entries and steps ------------------------------------------------------------------------------------------------


def ledger_of(entries: Iterable[Entry]) -> Ledger[Step]:
    """Return the ledger that `run` takes, of the entries that it has appended. Entries of other kinds are left out."""
    steps: list[Step] = []
    names: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, CallEntry):
            names[entry.path] = entry.policy
            actor = names.get(entry.path.rpartition(".")[0], OUTSIDE)
            said = {"policy": entry.policy, "digest": entry.digest, "payload": entry.payload}
            more = {"actions": list(entry.actions), "in_doubt": entry.in_doubt}
            steps.append(Step(entry.path, actor, ACTION_CALL, {**said, **more}))
        elif isinstance(entry, CallResultEntry):
            actor = names.get(entry.path, OUTSIDE)
            steps.append(Step(entry.path + _RESULT, actor, ACTION_RESULT, {"steps": list(entry.steps)}))
    return Ledger(steps)


def entries_of(ledger: Iterable[Step], run_id: str = "") -> list[CallRecord]:
    """Return the entries of a ledger that `run` has given. ValueError for a step that does not record a call."""
    return [_entry(step, run_id) for step in ledger]


def _entry(step: Step, run_id: str) -> CallRecord:
    said, path = step.payload, step.id.removesuffix(_RESULT)
    if _PATH.fullmatch(path):
        if step.type == ACTION_RESULT and path != step.id and "steps" in said:
            return CallResultEntry(run_id, path, said["steps"])
        if step.type == ACTION_CALL and path == step.id and {"policy", "digest", "payload", "actions"} <= said.keys():
            in_doubt: Handling = said.get("in_doubt", "retry")
            return CallEntry(run_id, path, said["policy"], said["digest"], said["payload"], said["actions"], in_doubt)
    msg = f"step '{step.id}' ({step.type}) records no call; what a policy is to know beforehand goes into `seed`"
    raise ValueError(msg)


_LONGEST = 300  # characters of steps in a message


@attrs.frozen
class ReplayReport:
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
) -> ReplayReport:
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
    return ReplayReport(replay.calls, tuple(sorted(replay.performed, key=place_of)), replay.ends_at)


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


MAX_TURNS = "MAX_TURNS"
NOT_APPROVED = "NOT_APPROVED"
DIGEST_MISMATCH = "DIGEST_MISMATCH"

_Perform = Callable[[Policy, Action, PolicyContext], Awaitable[list[Step]]]
_NOBODY: Mapping[str, str] = MappingProxyType({})


@attrs.frozen
class DecoratedPolicy:
    """A policy made of another by a decorator of this module."""

    inner: Policy
    is_loop: bool
    _perform: _Perform

    def __call__(self, action: Action, context: PolicyContext, /) -> Awaitable[list[Step]]:
        """Perform the action."""
        return self._perform(self.inner, action, context)


def loop_wrapper(max_turns: int) -> Decorator:
    """Perform a policy again until it asks for no action, at most `max_turns` times; return the steps of all turns.

    When the last turn still asks for one, an error step with the code MAX_TURNS ends them. ValueError for less than one turn.
    """
    if max_turns < 1:
        raise ValueError(f"max_turns = {max_turns} is too few: at least 1")

    async def perform(policy: Policy, action: Action, context: PolicyContext) -> list[Step]:
        said: list[Step] = []
        for _ in range(max_turns):
            turn = await _once(policy, action, context)
            said += turn
            if not any(step.type == ACTION_CALL for step in turn):
                return said
        return [
            *said,
            error_step(action.policy, MAX_TURNS, f"it still asked for actions in turn {max_turns}, the last"),
        ]

    return lambda policy: DecoratedPolicy(policy, is_loop=True, perform=perform)


def invoke_action(approvals: Mapping[str, str] = _NOBODY) -> Decorator:
    """Carry out the `action_call` steps that a policy gives, one after the other, and add an `action_result` for each.

    What the policy may not call gives an error step, whoever wrote the `action_call`. `approvals` names for a policy the one that has to
    approve each call of it: it is asked with the payload `{"approve": {policy, payload, digest}}`, and without an approval
    of that digest the call gives the error NOT_APPROVED. TypeError for a policy in a loop: the loop comes first, outside.
    """
    asked_for = dict(approvals)

    async def perform(policy: Policy, action: Action, context: PolicyContext) -> list[Step]:
        said = await _once(policy, action, context)
        calls = [step for step in said if step.type == ACTION_CALL]
        return [*said, *[await _carried_out(call, context, asked_for) for call in calls]]

    def decorate(policy: Policy) -> DecoratedPolicy:
        if isinstance(policy, DecoratedPolicy) and policy.is_loop:
            msg = "invoke_action belongs into the loop: write [loop_wrapper(..), invoke_action()]"
            raise TypeError(msg)
        return DecoratedPolicy(policy, is_loop=False, perform=perform)

    return decorate


async def _once(policy: Policy, action: Action, context: PolicyContext) -> list[Step]:
    """Perform a policy once; the innermost as a turn of its own, so that it is recorded."""
    return await (policy(action, context) if isinstance(policy, DecoratedPolicy) else context.turn(policy, action))


async def _carried_out(call: Step, context: PolicyContext, approvals: Mapping[str, str]) -> Step:
    """Carry out an `action_call` and give the result as it stands in the policy's ledger."""
    action = _action_in(call)
    if isinstance(action, Action) and action.policy in approvals:
        action = await _released(action, context, approvals[action.policy])
    if isinstance(action, Action):
        return result_for(call, action.policy, await context.call(action, asked=call))
    result = result_for(call, action.actor, [action])
    context.note(result)
    return result


def _action_in(call: Step) -> Action | Step:
    """Read what an `action_call` asks for; an error step when it cannot be read, or is not what its digest says."""
    asked = call.payload
    policy: Any = asked.get("policy")
    payload: Any = asked.get("payload")
    if not isinstance(policy, str) or not isinstance(payload, dict):
        name = policy if isinstance(policy, str) else call.actor
        return error_step(name, INVALID_PAYLOAD, "an action_call has a `policy`, a text, and a `payload`, an object")
    if fault := asked.get("fault"):
        return error_step(policy, INVALID_PAYLOAD, str(fault))
    action = Action(policy, payload)
    if asked.get("digest", action.digest) != action.digest:
        return error_step(policy, DIGEST_MISMATCH, "this action_call is not the one that its digest was made of")
    return action


async def _released(action: Action, context: PolicyContext, approver: str) -> Action | Step:
    """Ask for the approval of a call; return the call, or an error step. What was said of other calls does not count."""
    about = {"policy": action.policy, "payload": action.payload, "digest": action.digest}
    said = await context.call(Action(approver, {"approve": about}))
    if approved(action, said):
        return action
    reasons = "; ".join(str(step.payload["text"]) for step in said if step.payload.get("text"))
    return error_step(action.policy, NOT_APPROVED, f"{approver} has not approved this call{reasons and f': {reasons}'}")
