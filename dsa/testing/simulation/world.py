"""The world of a simulated run: its models, guards, services and people. The same question gets the same answer.

It gives policies, guards and generators that wait until they may go on, and counts what they do, outside of any ledger. Where the machine has
real policies, they run here, with a made-up model and made-up guards behind them.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, Protocol

import attrs

from dsa.data_use import SPECIFICATION, uses
from dsa.edge.binding import Bindings
from dsa.machine import Machine
from dsa.runtime.content import Artifact, Context, GeneratorInterface, GuardInterface, GuardResult, PromptTemplate
from dsa.runtime.policy.policies import BAD_ANSWER, Action, PolicyContext, Step, error_step, event_step
from dsa.runtime.secrets import Secrets
from dsa.semantics import Occurrence
from dsa.testing.simulation.facts import RunFacts
from dsa.testing.simulation.seed_plan import RUN_ID, SeedPlan

Fate = Literal["answers", "fails", "garbled", "lost"]
#: The code of a failure that the world made.
WORLD_FAILURE = "MADE"
#: After this number of rows, and at the end of the plan, effects wait for their turn though nothing goes wrong: so a long way differs from a
#: loop that never ends, and the story of a table that loops for ever can be ended.
_AT_ONCE = 100
_NO_SECRETS = Secrets({}, ())
#: The key of the effect that is performed now; empty while an event arrives.
_KEY: ContextVar[str] = ContextVar("key", default="")


class CallingProcess(Protocol):
    """The process that calls a policy."""

    is_alive: bool
    is_stale: bool

    def on_begin(self, key: str, effect: str, beside: tuple[str, ...]) -> None:
        """Record that a policy is called, while the process performs other emissions of the effect."""


@attrs.define(eq=False)
class WorldCall:
    """An effect under way: it has begun and not happened, until its turn comes. `fate` is how it ends then."""

    caller: CallingProcess
    key: str
    effect: str
    turn: "asyncio.Future[None] | None" = None
    fate: Fate = "answers"
    event: str | None = None

    @property
    def is_waiting(self) -> bool:
        """Return whether it can go on: it waits, and was neither let go on nor stopped."""
        return self.turn is not None and not self.turn.done()

    def comes_back(self, event: str | None) -> None:
        """Set the event with which it comes back; with `E.failed` it fails."""
        self.event = event
        if event == f"{self.effect}.failed":
            self.fate = "fails"

    def let_go(self) -> None:
        """Let it happen."""
        assert self.turn is not None, "it waits"
        self.turn.set_result(None)


class World:
    """Where effects happen. `calls` are those under way, in the order in which they were begun.

    `is_calm` says that nothing will go wrong while an effect of a row is under way.
    """

    def __init__(
        self, facts: RunFacts, plan: SeedPlan, is_calm: Callable[[int | None], bool], tell: Callable[[str], None]
    ) -> None:
        self._facts, self._plan, self._deeds = facts, plan, facts.deeds
        self._is_calm, self._tell = is_calm, tell
        self._machine, self._handlers = facts.machine, facts.subject.handlers
        self._guards = {guard.name: _Guard(guard.name, self) for guard in self._machine.guards}
        model = _SimulatedModel(self)
        self._models = defaultdict[str, GeneratorInterface](lambda: model)
        self.calls: list[WorldCall] = []
        self._open_calls: list[WorldCall] = []
        #: The last answer that was given: the number of rows taken before it, and its key.
        self._last_answer = (-1, "")

    def binding(self, caller: CallingProcess) -> Bindings:
        """Return what a process binds to the names of the table."""
        effects = dict.fromkeys(self._facts.subject.emitted_effects, partial(self._perform, caller))
        return Bindings(effects, self._guards, self._models, _NO_SECRETS)

    def waiting_calls(self, caller: CallingProcess) -> list[WorldCall]:
        """Return the calls of a process that can go on; those that are over are dropped."""
        self.calls = [call for call in self.calls if call.is_waiting]
        return [call for call in self.calls if call.caller is caller]

    def let_go(self, call: WorldCall, event: str | None) -> None:
        """Let a waiting call happen, and come back with an event."""
        if call.effect in self._machine.answers:
            self._last_answer = self._facts.position, call.key
        call.comes_back(event)
        call.let_go()

    async def _perform(self, caller: CallingProcess, action: Action, context: PolicyContext) -> list[Step]:
        key, effect = context.key.rpartition("/")[0].removeprefix(f"{RUN_ID}/"), action.policy  # of this try
        call = WorldCall(caller, key, effect)
        beside = tuple([each.key for each in self._open_calls if (each.caller, each.effect) == (caller, effect)])
        self._open_calls.append(call)
        try:
            return await self._end(call, beside, action, context)
        finally:
            self._open_calls.remove(call)

    async def _end(
        self, call: WorldCall, beside: tuple[str, ...], action: Action, context: PolicyContext
    ) -> list[Step]:
        """Begin a call, and let it end as its fate has it."""
        caller, key, effect, deeds = call.caller, call.key, call.effect, self._deeds
        if caller.is_alive:
            caller.on_begin(key, effect, beside)
            deeds.begin_count[key] += 1
            deeds.begin_s[key] = self._facts.time.now_s
        if not self._is_over_at_once(call):
            call.turn = asyncio.get_running_loop().create_future()
            if caller.is_alive:
                self.calls.append(call)
            await call.turn
        if call.fate == "fails":
            return self._gave(
                key, WORLD_FAILURE, [error_step(effect, WORLD_FAILURE, "the effect failed because the seed says so")]
            )
        deeds.done_count[key] += 1
        self._tell(f"{effect} {key} happens")
        if call.fate == "garbled":
            return self._gave(key, BAD_ANSWER, self._garbled_steps(effect, key))
        if call.fate == "lost":
            await asyncio.get_running_loop().create_future()
        steps = await self._steps(call, action, context)
        events = [step.content.get("event") for step in steps if step.type == "event"]
        return self._gave(key, str(events[0]) if events else "", steps)

    def _is_over_at_once(self, call: WorldCall) -> bool:
        """Return whether an effect need not wait for its turn: nothing can go wrong meanwhile, and it gives the next intended event."""
        facts, answers = self._facts, self._machine.answers.get(call.effect)
        if facts.position >= self._plan.longest or facts.position % _AT_ONCE == _AT_ONCE - 1:
            return False
        if not call.caller.is_alive or call.caller.is_stale or not self._is_calm(facts.row_of_key.get(call.key)):
            return False
        if answers is None:
            return True
        intention = self._plan.next_occurrence(facts.position, facts.configuration)
        position, key = self._last_answer
        if intention is None or call.key not in facts.keys or (position == facts.position and key != call.key):
            return False  # in the last case another emission of the effect has given it
        call.comes_back(intention.event)
        is_over = intention.event in answers or call.fate == "fails"
        if is_over:
            self._last_answer = facts.position, call.key
        return is_over

    def _gave(self, key: str, outcome: str, steps: list[Step]) -> list[Step]:
        self._deeds.outcomes.setdefault(key, []).append(outcome)
        return steps

    async def _steps(self, call: WorldCall, action: Action, context: PolicyContext) -> list[Step]:
        """Return the steps of the policy: of the real one, or the answer that is intended."""
        handler = self._handlers.get(call.effect)
        if handler is not None:
            token = _KEY.set(call.key)
            try:
                return list(await handler(action, context))
            finally:
                _KEY.reset(token)
        if call.event is None:
            return []
        tries = self._deeds.begin_count[call.key]
        verdicts = self._verdicts_with(call)
        data = _with_paths({"key": call.key, "tries": tries}, _paths_read(self._machine, call.event))
        return [event_step(call.effect, call.event, verdicts=verdicts, data=data)]

    def _verdicts_with(self, call: WorldCall) -> Mapping[str, Any]:
        """Return the verdicts that come with an answer: all that are intended, or none, so that guards judge as it arrives."""
        facts = self._facts
        if self._plan.chance.happens(50, "verdicts", call.key):
            return {}
        intention = self._plan.next_occurrence(facts.position, facts.configuration)
        return {} if intention is None or intention.event != call.event else dict(intention.verdicts)

    def _garbled_steps(self, effect: str, key: str) -> list[Step]:
        """Return steps that are not a valid answer."""
        answers = self._machine.answers.get(effect, ())
        strange: list[Any] = [[None], "steps", None]
        if answers:
            event = answers[0]
            odd = Step("", effect, "event", {"event": event, "verdicts": ["odd"]})
            strange += [[], [event_step(effect, "gossip")], [odd], [event_step(effect, event)] * 2]
            strange += [[event_step(effect, event, verdicts={"gossip": "passed"})]]
        steps: list[Step] = self._plan.chance.one_of(strange, "garbled", key)
        return steps

    # -- models and guards ------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return what the model writes now."""
        key = _KEY.get()
        return f"text of {key}, try {self._deeds.begin_count[key]}"

    def judge(self, guard: str) -> GuardResult:
        """Return the verdict of a guard now: the intended one, else one by chance."""
        facts, outcomes = self._facts, self._machine.guard_named[guard].outcomes
        intention: Occurrence | None = self._plan.next_occurrence(facts.position, facts.configuration)
        verdicts = {} if intention is None else dict(intention.verdicts)
        outcome = (
            verdicts[guard]
            if guard in verdicts
            else self._plan.chance.one_of(outcomes, "verdict", guard, facts.position)
        )
        self._deeds.guard_outcomes[_KEY.get(), guard] = outcome
        return GuardResult(outcome == "passed", f"because it is {outcome}", outcome == "fatal")


@attrs.frozen
class _Guard(GuardInterface):
    """A guard that gives the verdicts of the world."""

    _name: str
    _world: World

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  (a guard's signature)
        """Judge."""
        return self._world.judge(self._name)


@attrs.frozen
class _SimulatedModel(GeneratorInterface):
    """A model that writes the key of the call."""

    _world: World

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:  # noqa: ARG002  (a generator's signature)
        """Write."""
        return Artifact(self._world.text())


def data_of(machine: Machine, event: str, number: int) -> object:
    """Return the data of an event from outside: a text for a specification, else an object with a text that a person might write.

    What prompts and guards read of it is there as well.
    """
    paths = _paths_read(machine, event)
    if event == SPECIFICATION and not paths:
        return f"task {number}"
    return _with_paths({"content": json.dumps([event, number])}, paths)


def _paths_read(machine: Machine, event: str) -> frozenset[tuple[str, ...]]:
    return frozenset(use.reference.path for use in uses(machine) if use.reference.event == event and use.reference.path)


def _with_paths(data: dict[str, Any], paths: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    """Return an object with something at each of these paths."""
    for path in sorted(paths):
        inner = data
        for part in path[:-1]:
            inner = inner.setdefault(part, {}) if isinstance(inner.get(part, {}), dict) else inner
        inner.setdefault(path[-1], f"what stands at {'.'.join(path)}")
    return data
