"""Invocations: a policy called from outside any machine, the replay of its calls, and decorators of policies.

- `run` performs a policy and returns the ledger of steps (seed 004, section 9): an `action_call` for each call, an `action_result` with all its steps
  when it has finished. Its `append` gets the same as entries, one by one. `ledger_of` and `entries_of` convert between the two forms, so any prefix
  of the entries is a ledger from which `run` can continue. Paths are as in an effect of a machine: `1` is the outside, `1.1` the policy.
- `replay_calls` performs each policy that called others again, with the recorded results, and compares its requests and steps with the ledger. It
  has no effect on the world: policies that called no others (models, people, tools) are not performed, nor those whose `in_doubt` is `ask` or `fail`.
- `loop_wrapper` and `invoke_action` (seed 004, section 4) carry out the actions that a policy asks for, and repeat until it asks for none. Use them
  as `[loop_wrapper(5), invoke_action()]`, the first outermost, in `context.call` or stacked on a function. Each turn of the innermost policy is
  recorded, so a replay repeats none.
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
    request_words,
    result_for,
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
    error_of,
    error_step,
    is_approved,
    redact_entry,
)
from dsa.runtime.policy.policy_calls import CallRecord, Calls
from dsa.runtime.policy.policy_registry import INVALID_PAYLOAD, Registry
from dsa.runtime.secrets import Secrets

#: The entries of an invocation. A ResultEntry has the exception of a policy; `run` does not need it to continue.
RunEntry = CallRecord | ResultEntry

#: The path of the policy that is called from outside.
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
    append: Callable[[RunEntry], None] = lambda _entry: None,
    secrets: Secrets | None = None,
) -> Ledger[Step]:
    """Perform a policy and return the ledger of its run. Calls that are in `ledger` are not made again.

    `registry` may be a dictionary of policies. The policy may call `actions`, by default all policies; its own ledger begins with `seed`; all
    policies can read `config`. `append` gets every entry before its content is used; if a policy raises an exception, the last entry is a
    ResultEntry with it. `secrets` are in no entry. Raises BindingError for an unknown policy, ReplayMismatchError for the ledger of another run,
    TypeError or ValueError for values that are not JSON, and any exception of the policy.
    """
    policies = registry if isinstance(registry, Registry) else Registry(registry)
    name, entries = policies[policy_name].name, list[RunEntry](entries_of(ledger, run_id))

    def write(entry: RunEntry) -> None:
        entries.append(entry if secrets is None else redact_entry(secrets, entry))
        append(entries[-1])

    calls = Calls(policies, key=run_id, entries=entries, append=write, config=config, secrets=secrets)
    action = calls.redact(Action(name, payload, frozenset(policies if actions is None else actions)))

    async def outside(_action: Action, context: PolicyContext) -> list[Step]:
        return await context.call(action, seed=calls.without_secrets(seed))

    try:
        await calls.perform(Action(OUTSIDE), outside, may_call=[name], with_ids=False)
    except Exception as error:
        if calls.crashed_in is not None:
            write(_failure(entries, run_id, calls.crashed_in, error))
        raise
    return ledger_of(entries)


def _failure(entries: Iterable[RunEntry], run_id: str, path: str, error: BaseException) -> ResultEntry:
    """Return the entry for an exception of a policy."""
    names = [entry.policy for entry in entries if isinstance(entry, CallEntry) and entry.path == path]
    return ResultEntry(call_key(run_id, path), [error_of(names[-1], error).without_id()])


def answer_of(ledger: Iterable[Step]) -> list[Step]:
    """Return the steps of a run's policy. Raises LookupError if it has not finished."""
    for step in ledger:
        if step.id == ROOT + _RESULT:
            return [Step(**fields) for fields in step.payload["steps"]]
    raise LookupError("the policy of this run has not returned its steps yet")


def in_doubt(entries: Iterable[Entry]) -> tuple[CallEntry, ...]:
    """Return the calls that began and have no result.

    Of nested calls only one is returned: the outermost one that a person must decide about, or else the innermost one, which a resumed run
    makes again.
    """
    return doubted_calls(entries)


# -- entries and steps ------------------------------------------------------------------------------------------------


def ledger_of(entries: Iterable[Entry]) -> Ledger[Step]:
    """Return the ledger for `run`, from the entries that it has appended. Other entries are ignored."""
    steps: list[Step] = []
    names: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, CallEntry):
            names[entry.path] = entry.policy
            actor = names.get(entry.path.rpartition(".")[0], OUTSIDE)
            request = {"policy": entry.policy, "digest": entry.digest, "payload": entry.payload}
            more = {"actions": list(entry.actions), "in_doubt": entry.in_doubt}
            steps.append(Step(entry.path, actor, ACTION_CALL, {**request, **more}))
        elif isinstance(entry, CallResultEntry):
            actor = names.get(entry.path, OUTSIDE)
            steps.append(Step(entry.path + _RESULT, actor, ACTION_RESULT, {"steps": list(entry.steps)}))
    return Ledger(steps)


def entries_of(ledger: Iterable[Step], run_id: str = "") -> list[CallRecord]:
    """Return the entries for a ledger from `run`. Raises ValueError for a step that does not record a call."""
    return [_entry(step, run_id) for step in ledger]


def _entry(step: Step, run_id: str) -> CallRecord:
    payload, path = step.payload, step.id.removesuffix(_RESULT)
    if _PATH.fullmatch(path):
        if step.type == ACTION_RESULT and path != step.id and "steps" in payload:
            return CallResultEntry(run_id, path, payload["steps"])
        if (
            step.type == ACTION_CALL
            and path == step.id
            and {"policy", "digest", "payload", "actions"} <= payload.keys()
        ):
            in_doubt: Handling = payload.get("in_doubt", "retry")
            return CallEntry(
                run_id, path, payload["policy"], payload["digest"], payload["payload"], payload["actions"], in_doubt
            )
    msg = f"step '{step.id}' ({step.type}) does not record a call; pass steps for the policy's own ledger in `seed`"
    raise ValueError(msg)


_LONGEST = 300  # characters of steps in a message


@attrs.frozen
class ReplayReport:
    """The result of a replay: the calls of a run, the paths of those that were performed, and the path where the ledger ends (None: the run is over)."""

    calls: tuple[CallNode, ...]
    performed_paths: tuple[str, ...]
    ends_at: str | None = None


class LedgerEnds(Exception):  # noqa: N818  (it is not an error)
    """Raised at the end of the ledger of a run that is not over."""

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
    """Perform again each policy that called others, beginning with `action` from outside; compare each request and each step with the ledger.

    Raises ReplayMismatchError at the first difference, or when a policy raises an exception now; BindingError for a policy that is not registered
    any more.
    """
    replay = _CallReplay(registry, tuple(entries), run_id, key, config)

    async def outside(_action: Action, context: PolicyContext) -> list[Step]:
        return await context.call(action, seed=seed)

    await replay.compare(
        replay.record.root, partial(replay.perform, Action(OUTSIDE), outside, may_call=[action.policy])
    )
    while replay.left:
        await replay.compare(*replay.left.popleft())
    return ReplayReport(replay.calls, tuple(sorted(replay.performed_paths, key=place_of)), replay.ends_at)


class _CallReplay(Calls):
    """Calls that are all answered from the ledger. Those that called others are queued, and performed one by one."""

    def __init__(
        self, registry: Registry, entries: Sequence[Entry], run_id: str, key: str, config: Mapping[str, Any] | None
    ) -> None:
        calls = [e for e in entries if isinstance(e, CallEntry) and e.key == key]
        root = int(calls[-1].path.partition(".")[0]) if calls else 1
        super().__init__(registry, run_id=run_id, key=key, root=root, entries=entries, config=config)
        self.calls = calls_of(entries, key)
        self.left: deque[tuple[str, Callable[[], Awaitable[list[Step]]]]] = deque()
        self.performed_paths: list[str] = []
        self.ends_at: str | None = None
        self._calls: Mapping[str, CallNode] = {call.path: call for call in self.calls}
        self._callers = {call.path.rpartition(".")[0] for call in self.calls}

    def is_performed(self, path: str) -> bool:
        """Return whether a call is performed again: it called others, and may be repeated."""
        return path == self.record.root or (path in self._callers and self.record.calls[path].in_doubt == "retry")

    async def compare(self, path: str, perform: Callable[[], Awaitable[list[Step]]]) -> None:
        """Perform one call. Raises ReplayMismatchError if its steps differ from the recorded ones."""
        self._fault, ledger_steps = None, self._calls[path].steps if path in self._calls else None
        try:
            steps = [step.to_json() for step in await perform()]
            self.require_sound(path)
        except LedgerEnds as end:
            self.ends_at = end.path
        except DsaError:
            raise
        except Exception as error:
            if ledger_steps is not None:
                error_text = f"{type(error).__name__}: {error}"
                raise ReplayMismatchError(self.crashed_in or path, _steps_text(ledger_steps), error_text) from error
            self.ends_at = self.crashed_in
        else:
            if ledger_steps is not None and steps != [*ledger_steps]:
                raise ReplayMismatchError(path, _steps_text(ledger_steps), _steps_text(steps))

    def on_replay(self, path: str, perform: Callable[[Any], Awaitable[list[Step]]]) -> None:
        """Queue a call that is answered from the ledger; it is performed after its caller."""
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
        """Perform a policy that may be repeated. Raises LedgerEnds for any other."""
        if not self.is_performed(scope.path):
            self._end(LedgerEnds(scope.path), scope.path)
        if scope.path in self._calls:
            self.performed_paths.append(scope.path)
        return await super().steps_of(policy, action, scope, with_ids=with_ids)

    def begin(self, request: Request) -> None:
        """Accept a call without a recorded result only if its caller was under way; else the policy differs from the recorded one."""
        self.require_sound(request.path)
        caller = self._calls.get(request.path.rpartition(".")[0])
        is_begun = request.path in self._calls
        if caller is not None and caller.steps is not None:
            entry = "a call whose result was not awaited" if is_begun else "no further call"
            words = request_words(request.action.policy, request.payload, request.digest)
            self._end(ReplayMismatchError(request.path, entry, words), request.path)
        if not is_begun:
            self._end(LedgerEnds(request.path), request.path)

    def _end(self, error: Exception, path: str) -> NoReturn:
        """Raise an error that ends the replay even if a policy catches it."""
        self._set_fault(error, path, is_crash=isinstance(error, LedgerEnds))
        raise error

    def finish(self, path: str, steps: Iterable[Step]) -> None:
        """Record nothing: the new steps of a call that was under way follow from the ledger."""


def _steps_text(steps: Sequence[Mapping[str, Any]]) -> str:
    text = json.dumps([step["payload"] for step in steps], ensure_ascii=False)
    return f"the steps {text if len(text) <= _LONGEST else text[:_LONGEST] + '..'}"


MAX_TURNS = "MAX_TURNS"
NOT_APPROVED = "NOT_APPROVED"
DIGEST_MISMATCH = "DIGEST_MISMATCH"

_Perform = Callable[[Policy, Action, PolicyContext], Awaitable[list[Step]]]
_NOBODY: Mapping[str, str] = MappingProxyType({})


@attrs.frozen
class DecoratedPolicy:
    """A policy with a decorator of this module."""

    inner: Policy
    is_loop: bool
    _perform: _Perform

    def __call__(self, action: Action, context: PolicyContext, /) -> Awaitable[list[Step]]:
        """Perform the action."""
        return self._perform(self.inner, action, context)


def loop_wrapper(max_turns: int) -> Decorator:
    """Return a decorator that repeats a policy until it asks for no action, at most `max_turns` times, and returns the steps of all turns.

    If the last turn still asks for an action, an error step with the code MAX_TURNS is added. Raises ValueError for less than one turn.
    """
    if max_turns < 1:
        raise ValueError(f"max_turns is {max_turns}; it must be at least 1")

    async def perform(policy: Policy, action: Action, context: PolicyContext) -> list[Step]:
        steps: list[Step] = []
        for _ in range(max_turns):
            turn = await _once(policy, action, context)
            steps += turn
            if not any(step.type == ACTION_CALL for step in turn):
                return steps
        return [
            *steps,
            error_step(
                action.policy, MAX_TURNS, f"the policy still asked for actions in its last turn, turn {max_turns}"
            ),
        ]

    return lambda policy: DecoratedPolicy(policy, is_loop=True, perform=perform)


def invoke_action(approvals: Mapping[str, str] = _NOBODY) -> Decorator:
    """Return a decorator that carries out a policy's `action_call` steps one after the other, and adds an `action_result` for each.

    An action that the policy may not call gives an error step. `approvals` maps a policy to the policy that must approve each call of it: that one is
    called with the payload `{"approve": {policy, payload, digest}}`, and without an approval of this digest the call gives the error NOT_APPROVED.
    Raises TypeError for a policy with a loop: the loop must be outside.
    """
    approvers = dict(approvals)

    async def perform(policy: Policy, action: Action, context: PolicyContext) -> list[Step]:
        steps = await _once(policy, action, context)
        calls = [step for step in steps if step.type == ACTION_CALL]
        return [*steps, *[await _carry_out(call, context, approvers) for call in calls]]

    def decorate(policy: Policy) -> DecoratedPolicy:
        if isinstance(policy, DecoratedPolicy) and policy.is_loop:
            msg = "invoke_action must be inside the loop: write [loop_wrapper(..), invoke_action()]"
            raise TypeError(msg)
        return DecoratedPolicy(policy, is_loop=False, perform=perform)

    return decorate


async def _once(policy: Policy, action: Action, context: PolicyContext) -> list[Step]:
    """Perform a policy once; the innermost policy is a recorded turn."""
    return await (policy(action, context) if isinstance(policy, DecoratedPolicy) else context.turn(policy, action))


async def _carry_out(call: Step, context: PolicyContext, approvals: Mapping[str, str]) -> Step:
    """Carry out an `action_call`, and return the result step of the policy's ledger."""
    action = _action_in(call)
    if isinstance(action, Action) and action.policy in approvals:
        action = await _approved_action(action, context, approvals[action.policy])
    if isinstance(action, Action):
        return result_for(call, action.policy, await context.call(action, call_step=call))
    result = result_for(call, action.actor, [action])
    context.note(result)
    return result


def _action_in(call: Step) -> Action | Step:
    """Return the action of an `action_call`; an error step if it is malformed, or does not match its digest."""
    request = call.payload
    policy: Any = request.get("policy")
    payload: Any = request.get("payload")
    if not isinstance(policy, str) or not isinstance(payload, dict):
        name = policy if isinstance(policy, str) else call.actor
        return error_step(
            name, INVALID_PAYLOAD, "an action_call must have a `policy` (a string) and a `payload` (an object)"
        )
    if fault := request.get("fault"):
        return error_step(policy, INVALID_PAYLOAD, str(fault))
    action = Action(policy, payload)
    if request.get("digest", action.digest) != action.digest:
        return error_step(policy, DIGEST_MISMATCH, "the digest of this action_call belongs to another call")
    return action


async def _approved_action(action: Action, context: PolicyContext, approver: str) -> Action | Step:
    """Ask for the approval of a call; return the call, or an error step. Approvals of other calls do not count."""
    request = {"policy": action.policy, "payload": action.payload, "digest": action.digest}
    steps = await context.call(Action(approver, {"approve": request}))
    if is_approved(action, steps):
        return action
    reasons = "; ".join(str(step.payload["text"]) for step in steps if step.payload.get("text"))
    return error_step(action.policy, NOT_APPROVED, f"{approver} has not approved this call{reasons and f': {reasons}'}")
