"""Policy calls: policies that call other policies. Each call is recorded when it begins and when it ends, and a recorded call is replayed.

`Calls` takes policies, the ledger's entries about their calls, and a hook that makes new entries durable; it gives each policy its
`PolicyContext`. The path of a call is its place among the calls of its caller, assigned when the caller makes the call, below the caller's path.

`Turns` decides when a policy gets the result of a call. A policy may depend on which of its concurrent calls answers first. So results come one at a
time, in the order in which they were recorded, and each only after the policy had time to react to the previous one: to make another call, or to
stop one. This order is the same in a replay.

The module drives coroutines and futures of asyncio; it does not use a store or a clock.
"""

import asyncio
from asyncio import CancelledError
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import CoroutineType, MappingProxyType
from typing import Any

from dsa.declarations import Reference
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.ledger import ArtifactEntry, CallEntry, CallResultEntry, Ledger, VerdictEntry
from dsa.runtime.policy.call_tree import (
    CallLog,
    ReplayMismatchError,
    StepDigest,
    number_steps,
    request_words,
    result_for,
)
from dsa.runtime.policy.policies import (
    Action,
    Decorator,
    Policy,
    PolicySurroundings,
    Request,
    RunFault,
    Step,
    action_call_step,
    error_step,
    limit_steps,
    redact_action,
    redact_step,
    require_awaitable,
    steps_in,
)
from dsa.runtime.policy.policy_registry import Registry
from dsa.runtime.run import Run
from dsa.runtime.secrets import Secrets

#: The rounds of the event loop that a policy has to react to a result before it gets the next one.
_GAP = 10
#: The rounds without any change among a policy's calls after which it is not given more time.
_QUIET = 25


class Turns:
    """The order of the results of one policy's calls. `order` has the positions of the recorded results."""

    def __init__(self, order: Iterable[int], *, is_replay: bool) -> None:
        self._order = deque(order)
        self._is_replay = is_replay
        self._results_given = 0
        self._changes = 0
        self._rounds = 0  # since the last result was released, while a caller waited
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._start_waiters: list[asyncio.Future[None]] = []
        self._pump: asyncio.Task[None] | None = None

    def ask(self) -> int:
        """Record that a call is made; return the number of results that its policy has."""
        self._changes += 1
        return self._results_given

    async def start(self) -> None:
        """Wait until a call that is not recorded may begin: in a replay, when no recorded call is requested any more.

        A policy that stops a call because another one has answered stops it before then.
        """
        if self._is_replay:
            future = self._future()
            self._start_waiters.append(future)
            try:
                await future
            finally:
                self._start_waiters.remove(future)

    def queue(self, position: int) -> None:
        """Queue a result that has just been recorded."""
        self._order.append(position)

    async def take(self, position: int, results_known: int) -> None:
        """Wait for the turn of a result. `results_known` is the number from `ask`. A policy that makes one call after the other never waits."""
        if self._order[0] == position and results_known == self._results_given and not self._waiters:
            self._release_result(position)
            return
        self._waiters[position] = self._future()
        try:
            await self._waiters[position]
        finally:
            del self._waiters[position]
            if position in self._order:  # the caller no longer waits
                self._order.remove(position)

    def _future(self) -> "asyncio.Future[None]":
        self._changes += 1
        if self._pump is None or self._pump.done():
            self._pump = asyncio.ensure_future(self._go_round())
        return asyncio.get_running_loop().create_future()

    async def _go_round(self) -> None:
        """Release results while a caller waits for one."""
        quiet = changes = 0
        while self._waiters or self._start_waiters:
            await asyncio.sleep(0)
            self._rounds += 1
            quiet = quiet + 1 if self._changes == changes else 0
            changes = self._changes
            waited_for = [p for p in self._order if p in self._waiters] if quiet >= _QUIET else list(self._head())
            if waited_for and self._rounds >= _GAP:
                self._release_result(waited_for[0])
            elif quiet >= _QUIET:
                self._is_replay = False
                for future in self._start_waiters:
                    _release(future)

    def _head(self) -> Iterator[int]:
        """Yield the position whose turn it is, if its caller waits."""
        if self._order and self._order[0] in self._waiters:
            yield self._order[0]

    def _release_result(self, position: int) -> None:
        self._order.remove(position)
        self._results_given += 1
        self._changes += 1
        self._rounds = 0
        if position in self._waiters:
            _release(self._waiters[position])


def _release(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


NOT_ALLOWED = "NOT_ALLOWED"

CallRecord = CallEntry | CallResultEntry


class Calls:
    """All calls under one key: those of one policy, of the policies that it calls, and so on.

    The keys that policies see begin with `run_id`, those in entries do not. `entries` are those of the ledger; entries of other keys and roots among
    them are ignored. `root` is the path of the first policy: the number of the try. `append` gets every entry before its content is used; an
    exception from it ends the run. `surroundings` belong to the machine's run. `secrets` are in no entry, and in no step that a policy gets from
    another one; but a policy may call another one with them. Raises ReplayMismatchError for impossible entries.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        run_id: str = "",
        key: str = "",
        root: int = 1,
        entries: Iterable[object] = (),
        append: Callable[[CallRecord], None] = lambda _entry: None,
        config: Mapping[str, Any] | None = None,
        surroundings: PolicySurroundings | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self.registry = registry
        self.key = key
        self.config = config if isinstance(config, MappingProxyType) else MappingProxyType(dict(config or {}))
        self.record = CallLog(entries, key, str(root))
        self._run_id = run_id
        self._append = append
        self._surroundings = surroundings
        self._secrets = secrets
        self._fault: RunFault | None = None

    @property
    def name(self) -> str:
        """The beginning of the keys that policies see."""
        return "/".join(part for part in (self._run_id, self.key) if part)

    @property
    def crashed_in(self) -> str | None:
        """The path of the policy that raised an exception; None if none did."""
        return self._fault.paths[0] if self._fault is not None and self._fault.is_crash else None

    @property
    def is_watched(self) -> bool:
        """Return whether a run is around the calls, so that others may watch it."""
        return self._surroundings is not None

    @property
    def surroundings(self) -> PolicySurroundings:
        """The surroundings from the machine's run. Raises LookupError outside a machine."""
        if self._surroundings is None:
            msg = "this policy runs outside a machine: it has no run, artifacts, guards, generators or clock"
            raise LookupError(msg)
        return self._surroundings

    async def perform(
        self,
        action: Action,
        policy: Policy,
        *,
        may_call: Iterable[str] | None = None,
        seed: Iterable[Step] = (),
        with_ids: bool = True,
    ) -> list[Step]:
        """Perform a policy from its beginning, with the recorded results of its calls.

        It may call `may_call`, by default `action.actions`. With `with_ids` its steps have ids. Raises an exception of any policy, even if another
        policy caught it, because a replay would not repeat what followed. Raises ReplayMismatchError if a policy makes other calls than the
        recorded ones.
        """
        policies = action.actions if may_call is None else frozenset(may_call)
        scope = _Scope(self, self.record.root, action.policy, policies, Ledger(seed))
        steps = await self.steps_of(policy, action, scope, with_ids=with_ids)
        if self._fault is not None:
            self.require_sound(self.record.root)
        return steps

    async def steps_of(self, policy: Policy, action: Action, scope: "_Scope", *, with_ids: bool = True) -> list[Step]:
        """Call a policy and return its steps; `with_ids` numbers those without an id under its path."""
        try:
            awaitable = policy(action, scope)
            if type(awaitable) is not CoroutineType:
                require_awaitable(action.policy, awaitable)
            steps = steps_in(action.policy, await awaitable)
            if self.record.calls:
                scope.require_all_calls()
        except (Exception, SystemExit) as error:
            if not scope.is_abandoned:
                self._set_fault(error, scope.path, is_crash=not isinstance(error, ReplayMismatchError))
            raise
        finally:
            scope.is_closed = True  # calls that it left under way are no longer recorded
        clean_steps = limit_steps(action.policy, self.without_secrets(steps))
        return number_steps(clean_steps, scope.path) if with_ids else clean_steps

    def without_secrets(self, steps: Iterable[Step]) -> list[Step]:
        """Return steps without secrets."""
        secrets = self._secrets
        return list(steps) if secrets is None else [redact_step(secrets, step) for step in steps]

    def redact(self, action: Action) -> Action:
        """Return a request without secrets, as it is recorded and compared."""
        return action if self._secrets is None else redact_action(self._secrets, action)

    def require_sound(self, path: str) -> None:
        """Raise the error that ended the run, if there is one, in the policy with this path."""
        if self._fault is not None:
            self._fault.paths.append(path)
            raise self._fault.error

    def require_recorded(self, request: Request) -> None:
        """Raise ReplayMismatchError if the ledger has another call at this path."""
        call = self.record.calls.get(request.path)
        if call is not None and call.digest != request.digest:
            words = request_words(request.action.policy, request.payload, request.digest)
            error = ReplayMismatchError(request.path, request_words(call.policy, call.payload, call.digest), words)
            self._set_fault(error, request.path, is_crash=False)
            raise error

    def begin(self, request: Request) -> None:
        """Record that a call begins, unless this is already recorded."""
        self.require_sound(request.path)
        if request.path not in self.record.calls:
            actions = sorted(request.action.actions)
            name = request.action.policy
            # a turn is a part of its call, which has the decision
            is_declared = request.payload is not None and name in self.registry
            in_doubt = self.registry[name].in_doubt if is_declared else "retry"
            self._write(CallEntry(self.key, request.path, name, request.digest, request.payload, actions, in_doubt))

    def finish(self, path: str, steps: Iterable[Step]) -> None:
        """Record the result of a call."""
        if self._fault is not None and self._fault.forbids(path):
            raise self._fault.error
        self._write(CallResultEntry(self.key, path, [step.to_json() for step in steps]))

    def on_replay(self, path: str, perform: "_Perform") -> None:
        """Do something when a call is answered from the ledger; nothing by default. `perform` would make the call."""

    def _write(self, entry: CallRecord) -> None:
        try:
            self._append(entry)
        except BaseException as error:
            self._set_fault(error, entry.path, is_crash=False)
            raise

    def _set_fault(self, error: BaseException, path: str, *, is_crash: bool) -> None:
        if self._fault is None or (self._fault.is_crash and not is_crash):
            self._fault = RunFault(error, is_crash)
        self._fault.paths.append(path)


class _Scope:
    """The `PolicyContext` of one policy while it is performed: its calls and its own ledger."""

    def __init__(
        self,
        calls: Calls,
        path: str,
        actor: str,
        may_call: frozenset[str],
        ledger: Ledger[Step],
        caller: "_Scope | None" = None,
    ) -> None:
        self.path = path
        self._calls = calls
        self._caller = caller
        self._actor = actor
        self._may_call = may_call
        self._ledger = ledger
        self._digest_length = self._positions = 0
        self.is_closed = False

    @cached_property
    def _digest(self) -> StepDigest:
        return StepDigest()

    @cached_property
    def _turns(self) -> Turns:
        """The turns, created with the first call, because most policies make none."""
        record = self._calls.record
        return Turns(record.order_below(self.path), is_replay=record.greatest_below(self.path) > 0)

    # -- calls --------------------------------------------------------------------------------------------------

    def call(
        self,
        action: Action,
        decorators: Sequence[Decorator] = (),
        *,
        seed: Iterable[Step] = (),
        call_step: Step | None = None,
    ) -> Coroutine[Any, Any, list[Step]]:
        begin_with, clean_action = Ledger(seed), self._calls.redact(action)
        request = self._request(
            action, StepDigest(self._calls.without_secrets(begin_with)).digest_with(clean_action), clean_action.payload
        )
        return self._make_call(request, tuple(decorators), begin_with, call_step)

    def turn(self, policy: Policy, action: Action) -> Coroutine[Any, Any, list[Step]]:
        self._digest.add(self._calls.without_secrets(self._ledger[self._digest_length :]))
        self._digest_length = len(self._ledger)
        request = self._request(action, self._digest.digest_with(self._calls.redact(action)), None)
        return self._make_turn(request, policy, self._ledger)

    def _request(self, action: Action, digest: str, payload: dict[str, object] | None) -> Request:
        """Assign a call its path. Everything that happens before it is awaited is the same in every replay."""
        self._require_open(action)
        self._calls.require_sound(self.path)
        self._positions += 1
        path = f"{self.path}.{self._positions}"
        request = Request(path, self._positions, self._turns.ask(), action, digest, payload)
        self._calls.require_recorded(request)
        return request

    async def _make_call(
        self, request: Request, decorators: tuple[Decorator, ...], seed: Ledger[Step], call_step: Step | None
    ) -> list[Step]:
        action = request.action

        async def perform(caller: _Scope | None) -> list[Step]:
            refusal = self._refusal(action)
            if refusal is not None:
                return number_steps(self._calls.without_secrets([refusal]), request.path)
            entry = self._calls.registry[action.policy]
            policy = entry.policy
            for decorate in reversed(decorators):
                policy = decorate(policy)
            full_action = action.with_actions(entry.actions)
            scope = _Scope(self._calls, request.path, action.policy, full_action.actions, seed, caller)
            return await self._calls.steps_of(policy, full_action, scope)

        steps = await self._call_result(request, perform)
        call = call_step or action_call_step(self._actor, self._calls.redact(action), step_id=request.path)
        self.note(*(() if call_step else (call,)), result_for(call, action.policy, steps))
        return steps

    async def _make_turn(self, request: Request, policy: Policy, ledger: Ledger[Step]) -> list[Step]:
        async def perform(caller: _Scope | None) -> list[Step]:
            scope = _Scope(self._calls, request.path, self._actor, self._may_call, ledger, caller)
            return await self._calls.steps_of(policy, request.action, scope)

        steps = await self._call_result(request, perform)
        self.note(*steps)
        return steps

    async def _call_result(self, request: Request, perform: "_Perform") -> list[Step]:
        """Return the recorded result of a call, or make the call; either way in its turn."""
        result = self._calls.record.results.get(request.path)
        if result is not None:
            self._calls.on_replay(request.path, perform)
            await self._turns.take(request.position, request.results_known)
            return list(result)
        await self._turns.start()
        self._require_open(request.action)
        self._calls.begin(request)
        steps = await perform(self)
        if not (self.is_closed or self.is_abandoned):  # otherwise its caller no longer waits
            self._calls.finish(request.path, steps)
            self._turns.queue(request.position)
            await self._turns.take(request.position, request.results_known)
        return steps

    def _refusal(self, action: Action) -> Step | None:
        if action.policy not in self._may_call:
            names = ", ".join(sorted(self._may_call)) or "nothing"
            message = f"{self._actor} may not call {action.policy}; it may call: {names}"
            return error_step(action.policy, NOT_ALLOWED, message)
        return self._calls.registry.fault(action)

    def require_all_calls(self) -> None:
        """Raise ReplayMismatchError if the ledger has calls that the policy did not make."""
        if self._positions < self._calls.record.greatest_below(self.path):
            path = f"{self.path}.{self._positions + 1}"
            call = self._calls.record.calls.get(path)
            words = request_words(call.policy, call.payload, call.digest) if call else "further calls"
            raise ReplayMismatchError(path, words, f"no further call by {self._actor}")

    @property
    def is_abandoned(self) -> bool:
        """Return whether a policy around this one has ended without waiting for it."""
        caller = self._caller
        return caller is not None and (caller.is_closed or caller.is_abandoned)

    def _require_open(self, action: Action) -> None:
        """Raise CancelledError in an abandoned policy, and RuntimeError in one that has ended."""
        if self.is_abandoned:
            raise CancelledError
        if self.is_closed:
            raise RuntimeError(f"{self._actor} has ended, and can no longer call {action.policy}")

    # -- the own ledger, and the surroundings ---------------------------------------------------------------------

    def note(self, *steps: Step) -> None:
        self._ledger = self._ledger.extend(steps)

    async def get_ledger(self) -> Ledger[Step]:
        return self._ledger

    def tools(self, names: Iterable[str]) -> list[dict[str, object]]:
        return self._calls.registry.tools(names)

    @property
    def config(self) -> Mapping[str, Any]:
        return self._calls.config

    @property
    def key(self) -> str:
        return f"{self._calls.name}/{self.path}" if self._calls.name else self.path

    @property
    def run(self) -> Run:
        return self._calls.surroundings.run

    @property
    def artifacts(self) -> ArtifactStore:
        return self._calls.surroundings.artifacts

    def guard(self, name: str) -> GuardInterface:
        return self._calls.surroundings.guard(name)

    def generator(self, name: str) -> GeneratorInterface:
        return self._calls.surroundings.generator(name)

    def now_s(self) -> float:
        return self._calls.surroundings.now_s()

    def latest(self, reference: str | Reference, *, key: str = "") -> Any:  # noqa: ANN401  (JSON)
        return self._calls.surroundings.latest(reference, key=key or self._calls.key)

    def record(self, entry: ArtifactEntry | VerdictEntry) -> None:
        self._calls.surroundings.record(entry)

    def show(self, text: str, *, key: str = "") -> None:
        if self._calls.is_watched:
            self._calls.surroundings.show(text, key=key or self.key)


#: Makes one call, for a caller that waits for it.
_Perform = Callable[[_Scope | None], Awaitable[list[Step]]]
