"""The driver: performs what a run asks for and feeds back what comes of it.

Takes a run, a binding, an artifact store and a clock; changes nothing of the run but through `feed` and `record`. It
runs on one event loop; policies with answers run as tasks, one without completes before the next starts (S6).
Whoever wants to watch is given every ledger entry as it is appended.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Literal

import attrs

from dsa.declarations import OUTSIDE, Effect
from dsa.edge.binding import Binding
from dsa.edge.clock import Clock, MonotonicClock
from dsa.edge.effects import action_for, answer_in, attempted, code_and_message, error_of, fault_in, within
from dsa.edge.judging import with_exact_verdicts
from dsa.errors import OccurrenceError
from dsa.meaning import Occurrence, require_known
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.ledger import (
    ArtifactEntry,
    Entry,
    IntentEntry,
    Record,
    RefusalEntry,
    ResultEntry,
    VerdictEntry,
    dump_line,
)
from dsa.runtime.policies import Action, Step, canonical_json
from dsa.runtime.run import ArmTimer, Command, DropTimer, Run, Stop

#: Reasons to refuse an answer or a timer that are no fault of the table (S4, S7).
_HARMLESS = ("late", "finished")


@attrs.frozen
class Failure:
    """Why a run stopped before its end: the effect or event, the line of its row, what was the matter.

    The run can go on from its ledger once the cause is gone.
    """

    what: str
    line: int | None
    code: str
    message: str

    def __str__(self) -> str:
        place = f" (line {self.line})" if self.line is not None else ""
        return f"{self.what}{place} failed: {self.message}"


@attrs.frozen
class Rest:
    """How `drive` ended: at a final state, waiting for an outside event, or stopped by a failure."""

    kind: Literal["finished", "waiting", "stopped"]
    run: Run
    failure: Failure | None = None


@attrs.frozen
class _News:
    """Something for the run: an occurrence, the key of the effect it answers, or the timer that fired."""

    occurrence: Occurrence
    intent: IntentEntry | None = None


class Driver:
    """Drives one run. `run` is the run as it is now.

    `commands` are what `begin` gave beside the run; `observe` is called with every entry that the ledger gains.
    """

    def __init__(
        self,
        run: Run,
        binding: Binding,
        artifacts: ArtifactStore,
        *,
        commands: tuple[Command, ...] = (),
        clock: Clock | None = None,
        observe: Callable[[Entry], None] = lambda _entry: None,
    ) -> None:
        self.run = run
        self._binding = binding
        self._artifacts = artifacts
        self._clock = clock or MonotonicClock()
        self._observe = observe
        self._inbox: deque[_News] = deque()
        self._commands = commands
        self._news = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._timers: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._failure: Failure | None = None
        self._broken: BaseException | None = None
        for entry in run.ledger:
            observe(entry)

    def send(self, occurrence: Occurrence) -> None:
        """Hand in an outside event, from the event loop's thread; it is taken when its turn comes.

        OccurrenceError for an event that does not come from outside; TypeError or ValueError for data that is not JSON.
        """
        canonical_json({"data": occurrence.data})
        require_known(self.run.machine, occurrence)
        if occurrence.source is not None or self.run.machine.event_named[occurrence.event].origin != OUTSIDE:
            msg = f"'{occurrence.event}' does not come from outside"
            raise OccurrenceError(msg)
        self._tell(_News(occurrence))

    async def drive(self, *occurrences: Occurrence) -> Rest:
        """Take the occurrences and go on until the run is finished, waits for outside events, or fails.

        May be called again after `waiting`. Cancelling it stops what is under way; the ledger keeps what was
        recorded. Raises what `observe` raises.
        """
        for occurrence in occurrences:
            self.send(occurrence)
        try:
            commands, self._commands = self._commands, ()
            await self._obey(commands)
            while self._failure is None and self._broken is None:
                if self._inbox:
                    await self._receive(self._inbox.popleft())
                elif self.run.finished or not (self._tasks or self._timers):
                    break
                else:
                    self._news.clear()
                    await self._news.wait()
        finally:
            await self._stop_all()
        if self._broken is not None:
            raise self._broken
        kind: Literal["finished", "waiting"] = "finished" if self.run.finished else "waiting"
        return Rest("stopped" if self._failure else kind, self.run, self._failure)

    # -- what comes in ------------------------------------------------------------------------------------------

    def _tell(self, news: _News) -> None:
        self._inbox.append(news)
        self._news.set()

    async def _receive(self, news: _News) -> None:
        """Feed one occurrence; an answer or a timer that the table does not take stops the run."""
        occurrence, intent = news.occurrence, news.intent
        line = intent.line if intent else None
        key = intent.key if intent else None
        if intent is not None and self._unhandled(occurrence, intent):
            self._failure = Failure(intent.effect, line, *code_and_message(occurrence.data))
            return
        try:
            given = await with_exact_verdicts(self.run, occurrence, key, self._binding.guards, self._artifacts)
            require_known(self.run.machine, given)
        except Exception as error:  # noqa: BLE001  (guards are foreign code; one may say what it cannot say)
            self._failure = Failure(f"a guard that judges {occurrence.event}", line, type(error).__name__, str(error))
            return
        run, commands = self.run.feed(given, key)
        self._adopt(run)
        refused = run.ledger[-1]
        if isinstance(refused, RefusalEntry) and self._must_be_taken(given) and refused.reason not in _HARMLESS:
            what = f"{given.event} in {run.configuration.state}"
            self._failure = Failure(what, line, refused.reason, refused.message)
        await self._obey(commands, given.data)

    def _unhandled(self, occurrence: Occurrence, intent: IntentEntry) -> bool:
        """Tell whether this is a failure that no row names (S7)."""
        outstanding = self.run.keys.get(intent.effect) == intent.key
        failed = occurrence.event == f"{intent.effect}.failed"
        return failed and outstanding and intent.effect not in self.run.machine.failures_handled

    def _must_be_taken(self, occurrence: Occurrence) -> bool:
        return occurrence.source is not None or self.run.machine.event_named[occurrence.event].origin != OUTSIDE

    def _adopt(self, run: Run) -> None:
        """Take over the next run and show its new entries."""
        known = len(self.run.ledger)
        self.run = run
        try:
            for entry in run.ledger[known:]:
                self._observe(entry)
        except BaseException as error:  # a policy that records would be blamed for it
            self._broken = self._broken or error
            raise

    def record(self, entry: Record) -> None:
        """Append what a policy did to the ledger."""
        self._adopt(self.run.record(entry))

    # -- what goes out ------------------------------------------------------------------------------------------

    async def _obey(self, commands: tuple[Command, ...], data: object = None) -> None:
        for command in commands:
            match command:
                case Stop(key):
                    self._stop(self._tasks.pop(key, None))
                case DropTimer(source, event):
                    self._drop_timer(source, event)
                case ArmTimer(source, event, duration_ms):
                    self._drop_timer(source, event)
                    waiting = self._ring(Occurrence(event, source=source), duration_ms / 1000)
                    self._timers[source, event] = self._spawn(waiting)
                case IntentEntry() if self._failure is None:
                    await self._start(command, action_for(self.run.machine, command, data))

    async def _start(self, intent: IntentEntry, action: Action) -> None:
        if intent.effect in self.run.machine.answers:
            self._tasks[intent.key] = self._spawn(self._answer(intent, action))
            await asyncio.sleep(0)  # let it begin: effects start in the order written (S6)
            return
        fault = await self._perform(intent, action)
        if isinstance(fault, Step):
            self._failure = Failure(intent.effect, intent.line, *code_and_message(fault.payload))

    def _spawn(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Hand what broke a task of ours to `drive`, which would wait for its news for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = self._broken or error
            self._news.set()

    async def _answer(self, intent: IntentEntry, action: Action) -> None:
        """Perform an effect that has answers, and tell the run."""
        answer = await self._perform(intent, action)
        assert answer is not None, "an effect with answers is answered or fails"
        if isinstance(answer, Step):
            answer = Occurrence(f"{intent.effect}.failed", data=answer.payload)
        self._tasks.pop(intent.key, None)
        self._tell(_News(answer, intent))

    async def _perform(self, intent: IntentEntry, action: Action) -> Occurrence | Step | None:
        """Perform an effect, after a failure again as often as the table says; record every try.

        Gives its answer, an error step, or None when it has no answers and has not failed.
        """
        machine = self.run.machine
        declared = next((effect for effect in machine.effects if effect.name == intent.effect), Effect(intent.effect))
        for _ in range(1 + (declared.retries or 0)):
            steps = await self._tried(action, declared.time_limit_ms)
            answered = answer_in(machine, intent.effect, steps) if intent.effect in machine.answers else None
            answer = fault_in(steps) or answered
            if not isinstance(answer, Step):
                self._record_result(intent, steps)
                break
            self._record_result(intent, steps if answer in steps else [*steps, answer])
        return answer

    async def _tried(self, action: Action, limit_ms: int | None) -> list[Step]:
        """Call the policy once; whatever it does, steps come of it (S7)."""
        context = _Context(self, self._binding, self._artifacts, self._clock)
        policy = self._binding.effects[action.policy]
        try:
            return await within(self._clock, limit_ms, attempted(action.policy, partial(policy, action, context)))
        except TimeoutError as error:
            return [error_of(action.policy, error)]

    def _record_result(self, intent: IntentEntry, steps: list[Step]) -> None:
        """Record what a policy gave, its steps numbered under the effect's key."""
        written = tuple({**step.to_json(), "id": f"{intent.key}/{n}"} for n, step in enumerate(steps, start=1))
        self.record(ResultEntry(intent.key, intent.effect, written))

    # -- time, and stopping -------------------------------------------------------------------------------------

    async def _ring(self, occurrence: Occurrence, seconds: float) -> None:
        await self._clock.sleep(seconds)
        assert occurrence.source is not None, "a timer has a source"
        del self._timers[occurrence.source, occurrence.event]
        self._tell(_News(occurrence))

    def _drop_timer(self, source: str, event: str) -> None:
        """Forget a timer, also one that has fired and was not taken yet."""
        self._stop(self._timers.pop((source, event), None))
        stale = (event, source)
        self._inbox = deque(n for n in self._inbox if (n.occurrence.event, n.occurrence.source) != stale)

    def _stop(self, task: "asyncio.Task[None] | None") -> None:
        if task is not None:
            task.cancel()
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    async def _stop_all(self) -> None:
        for task in (*self._tasks.values(), *self._timers.values()):
            self._stop(task)
        self._tasks.clear()
        self._timers.clear()
        await asyncio.gather(*self._stopping, return_exceptions=True)


@attrs.frozen
class _Context:
    """The PolicyContext of one effect."""

    _driver: Driver
    _binding: Binding
    artifacts: ArtifactStore
    _clock: Clock

    @property
    def run(self) -> Run:
        return self._driver.run

    def guard(self, name: str) -> GuardInterface:
        return self._binding.guards[name]

    def generator(self, name: str) -> GeneratorInterface:
        return self._binding.generators[name]

    def now_s(self) -> float:
        return self._clock.now_s()

    def record(self, entry: ArtifactEntry | VerdictEntry) -> None:
        if not isinstance(entry, ArtifactEntry | VerdictEntry):
            raise TypeError(f"a policy records artifacts and verdicts, not {type(entry).__name__}")
        dump_line(entry)  # what cannot be written as JSON is refused while nothing has changed
        self._driver.record(entry)
