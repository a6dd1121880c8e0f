"""One result at a time: the order in which a policy gets what its calls gave, the same in every replay.

Takes positions of calls, lets their callers go on one by one. It does no input or output; of asyncio it takes futures and
a way to let the event loop go round.

A policy may make something of which of its concurrent calls answers first. So results are handed out in the order in which
they were recorded, each only when the policy has had time to react to the one before: to ask for more, or to stop a
call. That holds while they come in, and again when they are replayed.

Policies calling policies: each call is recorded as it begins and as it ends, and replayed where it is recorded.

Takes policies, what a ledger has of their calls, and a hook that makes the rest durable; gives each policy its
`PolicyContext`. It drives coroutines and knows no store and no clock.

A call is known by its path: its place among its caller's calls, allotted the moment the caller asks, below the caller's
own path. A policy gets the results of its calls one at a time (`dsa.runtime.policy.policy_calls`), in a replay in the order in which they
were recorded: whatever it makes of which answer came first, it makes of it again.
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
from dsa.runtime.policy.call_tree import CallLog, ReplayMismatchError, StepDigest, numbered, result_for, told
from dsa.runtime.policy.policies import (
    Action,
    Decorator,
    Policy,
    PolicySurroundings,
    Request,
    RunFault,
    Step,
    action_call_step,
    action_without,
    bounded,
    error_step,
    require_awaitable,
    step_without,
    steps_in,
)
from dsa.runtime.policy.policy_registry import Registry
from dsa.runtime.run import Run
from dsa.runtime.secrets import Secrets

__all__ = ["CancelledError", "Turns"]

#: Rounds of the event loop that a policy has to react to a result before it gets the next.
_GAP = 10
#: Rounds without anything happening among a policy's calls after which nothing is waited for any more.
_QUIET = 25


class Turns:
    """The turns of one policy's calls. `recorded` are the positions of its recorded results, in their order."""

    def __init__(self, recorded: Iterable[int], *, replaying: bool) -> None:
        self._order = deque(recorded)
        self._replaying = replaying
        self._handed_out = 0
        self._happened = 0
        self._rounds = 0  # since the last result was handed out, as far as somebody waited
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._starting: list[asyncio.Future[None]] = []
        self._pump: asyncio.Task[None] | None = None

    def ask(self) -> int:
        """Record that a call is made; return the number of results that its policy knew by then."""
        self._happened += 1
        return self._handed_out

    async def start(self) -> None:
        """Wait until a call that is not recorded may begin: in a replay, when nothing recorded is asked for any more.

        A policy that stops a call when another one answers stops it before that.
        """
        if self._replaying:
            future = self._future()
            self._starting.append(future)
            try:
                await future
            finally:
                self._starting.remove(future)

    def came(self, position: int) -> None:
        """Queue a result that has just been recorded."""
        self._order.append(position)

    async def take(self, position: int, known: int) -> None:
        """Wait until it is the turn of a result; `known` is what `ask` gave. Who asks for one after the other never waits."""
        if self._order[0] == position and known == self._handed_out and not self._waiting:
            self._hand_out(position)
            return
        self._waiting[position] = self._future()
        try:
            await self._waiting[position]
        finally:
            del self._waiting[position]
            if position in self._order:  # nobody waits for it any more
                self._order.remove(position)

    def _future(self) -> "asyncio.Future[None]":
        self._happened += 1
        if self._pump is None or self._pump.done():
            self._pump = asyncio.ensure_future(self._go_round())
        return asyncio.get_running_loop().create_future()

    async def _go_round(self) -> None:
        """Hand out results while anybody waits for one."""
        quiet = happened = 0
        while self._waiting or self._starting:
            await asyncio.sleep(0)
            self._rounds += 1
            quiet = quiet + 1 if self._happened == happened else 0
            happened = self._happened
            waited_for = [p for p in self._order if p in self._waiting] if quiet >= _QUIET else list(self._head())
            if waited_for and self._rounds >= _GAP:
                self._hand_out(waited_for[0])
            elif quiet >= _QUIET:
                self._replaying = False
                for future in self._starting:
                    _release(future)

    def _head(self) -> Iterator[int]:
        """Yield the position whose turn it is, if somebody waits for it."""
        if self._order and self._order[0] in self._waiting:
            yield self._order[0]

    def _hand_out(self, position: int) -> None:
        self._order.remove(position)
        self._handed_out += 1
        self._happened += 1
        self._rounds = 0
        if position in self._waiting:
            _release(self._waiting[position])


def _release(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


NOT_ALLOWED = "NOT_ALLOWED"

CallRecord = CallEntry | CallResultEntry


class Calls:
    """All calls that are made under one key: by one policy, by those it calls, and so on.

    The keys that policies see begin with `run_id`, those of the entries do not. `recorded` is what the ledger has of them, entries of other keys and roots may be among it; `root` is the path that the
    first policy has: the number of the try. `append` is given every entry before anybody sees what it says; what it
    raises ends the run. `surroundings` is what a machine gives to its policies. `secrets` are in no entry, and in nothing that a policy is
    given of another one; but a policy may call another one with them. Raises ReplayMismatchError for entries that no run has written.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        run_id: str = "",
        key: str = "",
        root: int = 1,
        recorded: Iterable[object] = (),
        append: Callable[[CallRecord], None] = lambda _entry: None,
        config: Mapping[str, Any] | None = None,
        surroundings: PolicySurroundings | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self.registry = registry
        self.key = key
        self.config = config if isinstance(config, MappingProxyType) else MappingProxyType(dict(config or {}))
        self.record = CallLog(recorded, key, str(root))
        self._run_id = run_id
        self._append = append
        self._surroundings = surroundings
        self._secrets = secrets
        self._fault: RunFault | None = None

    @property
    def name(self) -> str:
        """What the keys that policies see begin with."""
        return "/".join(part for part in (self._run_id, self.key) if part)

    @property
    def crashed_in(self) -> str | None:
        """The path of the policy in which a crash began; None when nothing has crashed."""
        return self._fault.paths[0] if self._fault is not None and self._fault.is_crash else None

    @property
    def is_watched(self) -> bool:
        """Return whether there is a run around the calls, which somebody may watch."""
        return self._surroundings is not None

    @property
    def surroundings(self) -> PolicySurroundings:
        """What the machine gives. LookupError where there is none."""
        if self._surroundings is None:
            msg = "this policy runs outside a machine: it has no run, artifacts, guards, generators or clock"
            raise LookupError(msg)
        return self._surroundings

    async def perform(
        self,
        action: Action,
        policy: Policy,
        *,
        allowed: Iterable[str] | None = None,
        seed: Iterable[Step] = (),
        with_ids: bool = True,
    ) -> list[Step]:
        """Perform a policy from its beginning, with what is recorded of its calls.

        `allowed` is what it may call, if not `action.actions`; with `with_ids` its steps have ids. Raises what a policy raised, also if another caught it: what follows
        from a crash is in no replay. Raises ReplayMismatchError when a policy does not ask for what is recorded.
        """
        may = action.actions if allowed is None else frozenset(allowed)
        scope = _Scope(self, self.record.root, action.policy, may, Ledger(seed))
        steps = await self.steps_of(policy, action, scope, with_ids=with_ids)
        if self._fault is not None:
            self.require_sound(self.record.root)
        return steps

    async def steps_of(self, policy: Policy, action: Action, scope: "_Scope", *, with_ids: bool = True) -> list[Step]:
        """Call a policy and return its steps; `with_ids` numbers those without an id under its path."""
        try:
            giving = policy(action, scope)
            if type(giving) is not CoroutineType:
                require_awaitable(action.policy, giving)
            steps = steps_in(action.policy, await giving)
            if self.record.begun:
                scope.require_all_asked()
        except (Exception, SystemExit) as error:
            if not scope.abandoned:
                self._broken(error, scope.path, is_crash=not isinstance(error, ReplayMismatchError))
            raise
        finally:
            scope.closed = True  # what it left under way is not recorded any more
        said = bounded(action.policy, self.without_secrets(steps))
        return numbered(said, scope.path) if with_ids else said

    def without_secrets(self, steps: Iterable[Step]) -> list[Step]:
        """Return steps without secrets."""
        secrets = self._secrets
        return list(steps) if secrets is None else [step_without(secrets, step) for step in steps]

    def kept(self, action: Action) -> Action:
        """Return a request as it is recorded and compared: without secrets."""
        return action if self._secrets is None else action_without(self._secrets, action)

    def require_sound(self, path: str) -> None:
        """Raise what ended the run, if anything has, in the policy of this path."""
        if self._fault is not None:
            self._fault.paths.append(path)
            raise self._fault.error

    def require_recorded(self, request: Request) -> None:
        """Raise ReplayMismatchError when the ledger has another call in this place."""
        begun = self.record.begun.get(request.path)
        if begun is not None and begun.digest != request.digest:
            asked = told(request.action.policy, request.payload, request.digest)
            error = ReplayMismatchError(request.path, told(begun.policy, begun.payload, begun.digest), asked)
            self._broken(error, request.path, is_crash=False)
            raise error

    def begin(self, request: Request) -> None:
        """Record that a call begins, unless it had begun before."""
        self.require_sound(request.path)
        if request.path not in self.record.begun:
            actions = sorted(request.action.actions)
            name = request.action.policy
            # a turn is a part of its call, which says what is to be done
            is_declared = request.payload is not None and name in self.registry
            in_doubt = self.registry[name].in_doubt if is_declared else "retry"
            self._write(CallEntry(self.key, request.path, name, request.digest, request.payload, actions, in_doubt))

    def finish(self, path: str, steps: Iterable[Step]) -> None:
        """Record what a call gave."""
        if self._fault is not None and self._fault.forbids(path):
            raise self._fault.error
        self._write(CallResultEntry(self.key, path, [step.to_json() for step in steps]))

    def replayed(self, path: str, perform: "_Perform") -> None:
        """Record that a call is answered from the ledger; `perform` would make it, with nobody waiting for it."""

    def _write(self, entry: CallRecord) -> None:
        try:
            self._append(entry)
        except BaseException as error:
            self._broken(error, entry.path, is_crash=False)
            raise

    def _broken(self, error: BaseException, path: str, *, is_crash: bool) -> None:
        if self._fault is None or (self._fault.is_crash and not is_crash):
            self._fault = RunFault(error, is_crash)
        self._fault.paths.append(path)


class _Scope:
    """The `PolicyContext` of one policy that is being performed: its calls and its own ledger."""

    def __init__(
        self,
        calls: Calls,
        path: str,
        actor: str,
        allowed: frozenset[str],
        ledger: Ledger[Step],
        caller: "_Scope | None" = None,
    ) -> None:
        self.path = path
        self._calls = calls
        self._caller = caller
        self._actor = actor
        self._allowed = allowed
        self._ledger = ledger
        self._counted = self._allotted = 0
        self.closed = False

    @cached_property
    def _said(self) -> StepDigest:
        return StepDigest()

    @cached_property
    def _turns(self) -> Turns:
        """Made for the first call: most policies make none."""
        record = self._calls.record
        return Turns(record.order_below(self.path), replaying=record.greatest_below(self.path) > 0)

    # -- calls --------------------------------------------------------------------------------------------------

    def call(
        self,
        action: Action,
        decorators: Sequence[Decorator] = (),
        *,
        seed: Iterable[Step] = (),
        asked: Step | None = None,
    ) -> Coroutine[Any, Any, list[Step]]:
        begin_with, kept = Ledger(seed), self._calls.kept(action)
        request = self._request(
            action, StepDigest(self._calls.without_secrets(begin_with)).digest_with(kept), kept.payload
        )
        return self._called(request, tuple(decorators), begin_with, asked)

    def turn(self, policy: Policy, action: Action) -> Coroutine[Any, Any, list[Step]]:
        self._said.add(self._calls.without_secrets(self._ledger[self._counted :]))
        self._counted = len(self._ledger)
        request = self._request(action, self._said.digest_with(self._calls.kept(action)), None)
        return self._turned(request, policy, self._ledger)

    def _request(self, action: Action, digest: str, payload: dict[str, Any] | None) -> Request:
        """Return a call its place. What happens before anybody awaits it is the same in every replay."""
        self._require_wanted(action)
        self._calls.require_sound(self.path)
        self._allotted += 1
        path = f"{self.path}.{self._allotted}"
        request = Request(path, self._allotted, self._turns.ask(), action, digest, payload)
        self._calls.require_recorded(request)
        return request

    async def _called(
        self, request: Request, decorators: tuple[Decorator, ...], seed: Ledger[Step], asked: Step | None
    ) -> list[Step]:
        action = request.action

        async def perform(caller: _Scope | None) -> list[Step]:
            refusal = self._refusal(action)
            if refusal is not None:
                return numbered(self._calls.without_secrets([refusal]), request.path)
            registered = self._calls.registry[action.policy]
            policy = registered.policy
            for decorate in reversed(decorators):
                policy = decorate(policy)
            granted = action.permitting(registered.actions)
            scope = _Scope(self._calls, request.path, action.policy, granted.actions, seed, caller)
            return await self._calls.steps_of(policy, granted, scope)

        steps = await self._settled(request, perform)
        call = asked or action_call_step(self._actor, self._calls.kept(action), step_id=request.path)
        self.note(*(() if asked else (call,)), result_for(call, action.policy, steps))
        return steps

    async def _turned(self, request: Request, policy: Policy, ledger: Ledger[Step]) -> list[Step]:
        async def perform(caller: _Scope | None) -> list[Step]:
            scope = _Scope(self._calls, request.path, self._actor, self._allowed, ledger, caller)
            return await self._calls.steps_of(policy, request.action, scope)

        steps = await self._settled(request, perform)
        self.note(*steps)
        return steps

    async def _settled(self, request: Request, perform: "_Perform") -> list[Step]:
        """Return what is recorded of a call, or make it: both in their turn."""
        recorded = self._calls.record.given.get(request.path)
        if recorded is not None:
            self._calls.replayed(request.path, perform)
            await self._turns.take(request.position, request.known)
            return list(recorded)
        await self._turns.start()
        self._require_wanted(request.action)
        self._calls.begin(request)
        steps = await perform(self)
        if not (self.closed or self.abandoned):  # else nobody waits for it any more
            self._calls.finish(request.path, steps)
            self._turns.came(request.position)
            await self._turns.take(request.position, request.known)
        return steps

    def _refusal(self, action: Action) -> Step | None:
        if action.policy not in self._allowed:
            allowed = ", ".join(sorted(self._allowed)) or "nothing"
            message = f"{self._actor} may not call {action.policy}; it may call: {allowed}"
            return error_step(action.policy, NOT_ALLOWED, message)
        return self._calls.registry.fault(action)

    def require_all_asked(self) -> None:
        """Raise ReplayMismatchError when the ledger has calls that the policy did not ask for."""
        if self._allotted < self._calls.record.greatest_below(self.path):
            path = f"{self.path}.{self._allotted + 1}"
            begun = self._calls.record.begun.get(path)
            recorded = told(begun.policy, begun.payload, begun.digest) if begun else "further calls"
            raise ReplayMismatchError(path, recorded, f"nothing more by {self._actor}")

    @property
    def abandoned(self) -> bool:
        """Return whether a policy that waited for this one has ended without it."""
        caller = self._caller
        return caller is not None and (caller.closed or caller.abandoned)

    def _require_wanted(self, action: Action) -> None:
        """Stop what nobody waits for any more: an abandoned policy like one that is cancelled."""
        if self.abandoned:
            raise CancelledError
        if self.closed:
            raise RuntimeError(f"{self._actor} has ended and calls {action.policy} no more")

    # -- the own ledger, and what else there is -------------------------------------------------------------------

    def note(self, *steps: Step) -> None:
        self._ledger = self._ledger.extend(steps)

    async def get_ledger(self) -> Ledger[Step]:
        return self._ledger

    def tools(self, names: Iterable[str]) -> list[dict[str, Any]]:
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
