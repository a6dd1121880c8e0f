"""What a driver has under way: effects that are being performed, and timers that run, as tasks of one event loop.

Starts and stops them; what a timer rings for, and what breaks a task, goes to those who asked. It knows no run.

What there is to tell a run: occurrences with the effects that they answer, and what had come before somebody took the run up.

Takes what a run has left to do, gives it in the order in which the run is to hear of it. Feeds nothing.

The driver: performs what a run asks for and feeds back what comes of it.

Takes a run, a binding, an artifact store, a journal and a clock; changes nothing of the run but through `feed` and `record`. It
runs on one event loop; policies with answers run as tasks, one without completes before the next starts (S6).
An event, its step and what it asks for are durable before anything is performed. What came of an effect is durable with what
follows from it, in one write, and before anything else begins or is waited for. Whoever wants to watch is given every ledger entry once it is
durable.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, TypeVar

import attrs

from dsa.edge.binding import Bindings, FromOutside, answered_key, exact_already, is_judged_at_once, with_exact_verdicts
from dsa.edge.event_loop import Clock, MonotonicClock
from dsa.edge.performer import (
    EffectPlan,
    GoingOn,
    Performer,
    action_for,
    answer_in,
    code_and_message,
    occurrence_of,
    rests,
    result_of,
    steps_of,
    traceback_of,
)
from dsa.errors import OccurrenceError
from dsa.machine import Machine, timers_before
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.costs import BudgetLimit, Meter
from dsa.runtime.event_data import MISSING_DATA, MissingDataError
from dsa.runtime.ledger import Entry, Handling, Intent, Part, Record, RefusalEntry, ResumedEntry, part_from
from dsa.runtime.policy.call_tree import IN_DOUBT, call_named
from dsa.runtime.policy.policies import Action, RedactingArtifacts, Step, error_step
from dsa.runtime.run import ArmTimer, Command, DropTimer, Run, StopEffect
from dsa.runtime.run_store import Journal, Taking, error_text, outcome_text
from dsa.runtime.status import Failure, Rest, UnfinishedWork, handling_of, next_due_ms, resumption, unfinished_work
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, require_known, step

Task = asyncio.Task[None]
#: A coroutine that is not made before its task begins: one that never begins would be left over.
Work = Callable[[], Awaitable[None]]


class UnderWay:
    """Tasks by the keys of their effects, timers by source and event. `rings` is told of a timer, `breaks` of what a task raises."""

    def __init__(
        self, clock: Clock, rings: Callable[[Occurrence], None], breaks: Callable[[BaseException], None]
    ) -> None:
        self._clock, self._rings, self._breaks = clock, rings, breaks
        self._effects: dict[str, Task] = {}
        self._timers: dict[tuple[str, str], Task] = {}
        self._alarms: dict[str, Task] = {}
        self._stopping: set[Task] = set()

    def __bool__(self) -> bool:
        return bool(self._effects or self._timers or self._alarms)

    @property
    def has_effects(self) -> bool:
        """Return whether an effect is being performed."""
        return bool(self._effects)

    def start(self, key: str, work: Work) -> None:
        """Perform an effect in a task of its own."""
        self._effects[key] = asyncio.create_task(self._guarded(work))

    def start_here(self, key: str, work: Work) -> None:
        """Perform an effect as far as it goes without waiting; a task is made of the rest."""
        guarded = self._guarded(work)
        try:
            awaited = guarded.send(None)
        except StopIteration:
            return
        self._effects[key] = asyncio.create_task(GoingOn(guarded, awaited))

    def ended(self, key: str) -> None:
        """Record that an effect is performed."""
        self._effects.pop(key, None)

    def stop(self, key: str) -> None:
        """Stop performing an effect, if it is under way."""
        self._stop(self._effects.pop(key, None))
        self._stop(self._alarms.pop(key, None))

    def wait(self, key: str, seconds: float, wake: Callable[[str], None]) -> None:
        """Call `wake` with the key of an effect that rests after so many seconds, unless it is stopped before."""
        self._alarms[key] = asyncio.create_task(self._guarded(partial(self._wake, key, seconds, wake)))

    def arm(self, source: str, event: str, seconds: float) -> None:
        """Start a timer, from zero if it runs already."""
        self.drop(source, event)
        self._timers[source, event] = asyncio.create_task(self._guarded(partial(self._ring, source, event, seconds)))

    def drop(self, source: str, event: str) -> bool:
        """Forget a timer; return whether it was running."""
        task = self._timers.pop((source, event), None)
        self._stop(task)
        return task is not None

    async def stop_all(self) -> None:
        """Stop everything, and wait until it has."""
        for task in (*self._effects.values(), *self._timers.values(), *self._alarms.values()):
            self._stop(task)
        self._effects.clear()
        self._timers.clear()
        self._alarms.clear()
        if self._stopping:
            await asyncio.gather(*self._stopping, return_exceptions=True)

    async def _ring(self, source: str, event: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        del self._timers[source, event]
        self._rings(Occurrence(event, source=source))

    async def _wake(self, key: str, seconds: float, wake: Callable[[str], None]) -> None:
        await self._clock.sleep(seconds)
        del self._alarms[key]
        wake(key)

    async def _guarded(self, work: Work) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._breaks(error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise

    def _stop(self, task: Task | None) -> None:
        if task is not None:
            task.cancel()
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)


#: A timer: the state that armed it, and `after DURATION`.
Timer = tuple[str, str]


@attrs.frozen
class News:
    """Something for the run: an occurrence, the intent of the effect it answers, or the timer that fired.

    `at` is the place of the question that an outside event answers; `answer` is for its sender, who waits for what becomes of it; `message` is its id, if it was in the inbox.
    `since_ms` is when it was posted, or when the timer was due, by the store's clock (milliseconds since 1970); None: it comes now.
    """

    occurrence: Occurrence
    intent: Intent | None = None
    at: str | None = None
    message: str | None = None
    answer: "asyncio.Future[Taken | Refusal] | None" = None
    since_ms: int | None = None

    def reply(self, became: Taken | Refusal | OccurrenceError) -> None:
        """Tell the sender what became of the event, if one waits: its event loop may be gone, when the event is taken in another one."""
        if self.answer is None or self.answer.done() or self.answer.get_loop().is_closed():
            return
        if isinstance(became, OccurrenceError):
            self.answer.set_exception(became)
        else:
            self.answer.set_result(became)


def came_before(left: UnfinishedWork, machine: Machine, now_ms: int) -> tuple[tuple[News, ...], Mapping[Timer, int]]:
    """Return what the run is to hear before anything that is sent now, and the other timers with the milliseconds that are left of them.

    Recorded results that were not taken come first, then the timers whose time is over: by their deadlines, those of one moment as they were started.
    """
    answered = [
        News(occurrence_of(intent, answer_in(machine, intent.effect, steps_of(result))), intent)
        for intent, result in left.answers
    ]
    overdue = sorted((timer for timer, at_ms in left.timers.items() if at_ms < now_ms), key=left.timers.__getitem__)
    rung = [News(Occurrence(event, source=source), since_ms=left.timers[source, event]) for source, event in overdue]
    return (*answered, *rung), {timer: at_ms - now_ms for timer, at_ms in left.timers.items() if at_ms >= now_ms}


def in_order(earlier: Sequence[News], sent: Iterable[News]) -> list[News]:
    """Return what came before and what was sent, in the order in which the run hears of it.

    Answers come first; then overdue timers and messages by when they were due and posted, a timer before a message of the same moment; then what is sent now.
    """
    answers = [each for each in earlier if each.intent is not None]
    others = [*(each for each in earlier if each.intent is None), *sent]
    return [*answers, *sorted(others, key=lambda each: inf if each.since_ms is None else each.since_ms)]


def cancelled_by(news: News, run: Run) -> frozenset[str]:
    """Return the keys of the effects that a timer cancels which is the next thing to happen; none for an answer, or what was sent."""
    if news.intent is not None or news.occurrence.source is None:
        return frozenset()
    after, _ = run.feed(news.occurrence)
    return frozenset(run.keys.values()) - frozenset(after.keys.values())


#: Reasons to refuse an answer or a timer that are no fault of the table (S4, S7).
_HARMLESS = ("late", "finished")
#: How many occurrences may be taken before others on the event loop have their turn.
_AT_A_TIME = 16

T = TypeVar("T")


def _failure(intent: Intent, payload: dict[str, Any]) -> Failure:
    place, call = str(payload.get("at") or ""), call_named(intent.key, payload)
    return Failure(intent.effect, intent.line, *code_and_message(payload), place, call)


def _became(run: Run, before: Configuration, given: Occurrence) -> Taken | Refusal:
    """Return what became of an event from outside that was fed last."""
    became, last = step(run.machine, before, given), run.ledger[-1]
    if isinstance(last, RefusalEntry) and last.reason == "late":  # its place has passed, which `step` does not know
        return Refusal("late", before, last.message, (), last.accepted)
    return became


class Driver:
    """Drives one run. `run` is the run as it is now, `clock` the time it goes by.

    `commands` are what `begin` gave beside the run. `left` is what a run that was cut off has left to do, `session` says who goes on with it, and with
    which model, module and budget. `limits` are its budget. Every entry goes to the `journal`. `observe` is called with the entries of each commit once they
    are durable, first with those that the run comes with; `on_rest` whenever nothing but timers is under way; `on_text` with the keys of calls and the
    pieces of text that they show; `on_fault` with what users' code has raised: where, and its traceback;
    `on_ring` when a timer rings, to hand over the messages that wait.
    """

    def __init__(
        self,
        run: Run,
        binding: Bindings,
        artifacts: ArtifactStore,
        *,
        commands: tuple[Command, ...] = (),
        left: UnfinishedWork | None = None,
        session: Callable[[], ResumedEntry] = ResumedEntry,
        journal: Journal | None = None,
        limits: Iterable[BudgetLimit] = (),
        clock: Clock | None = None,
        observe: Callable[[Sequence[Entry]], None] | None = None,
        on_rest: Callable[[], None] | None = None,
        on_text: Callable[[str, str], None] | None = None,
        on_fault: Callable[[str, str], None] | None = None,
        on_ring: Callable[[], None] | None = None,
    ) -> None:
        self.run = run
        self._guards = binding.guards
        self._outside = FromOutside(binding)
        self._secrets = binding.secrets
        self._artifacts = RedactingArtifacts(artifacts, binding.secrets, run.run_id)
        self.clock = clock or MonotonicClock()
        meter = Meter(limits, run.machine.answers, binding.spenders)
        self._performer = Performer(self, binding, self._artifacts, self.clock, meter)
        self._commands, self._journal = commands, journal
        self._observe, self._on_rest, self._on_text, self._on_fault = observe, on_rest, on_text, on_fault
        self._on_ring = on_ring
        self._saved = 0 if left is None else len(run.ledger)
        self._left, self._session, self._is_resumed = left or UnfinishedWork(), session, left is not None
        self.parts: dict[str, Part] = {}
        self._inbox: deque[News] = deque()
        self._news = asyncio.Event()
        self._under_way = UnderWay(self.clock, self._rung, self._break)
        self._failure: Failure | None = None
        self._broken: BaseException | None = None
        self._will_save = self._is_away = False
        if observe is not None and self._saved:
            observe(run.ledger[: self._saved])

    def send(self, occurrence: Occurrence, at: str | None = None) -> None:
        """Hand in an outside event, from the event loop's thread; it is taken when its turn comes, if its place is still `at`.

        OccurrenceError for an event that does not come from outside, or whose data is not what it has to be; TypeError or ValueError for
        data that is not JSON.
        """
        self._tell(News(self._outside.read(self.run, occurrence, at), at=at))

    def hand(
        self,
        occurrence: Occurrence,
        at: str | None = None,
        message: str | None = None,
        posted_ms: int | None = None,
    ) -> "asyncio.Future[Taken | Refusal]":
        """Hand in an outside event as `send` does; the future says what became of it, once that is durable.

        `at` is the place of the question that it answers: when that has passed, the event is refused as late. `message` is its id in the run's
        inbox, which it leaves in the same commit; `posted_ms` is when it was posted there.
        """
        answer: asyncio.Future[Taken | Refusal] = asyncio.get_running_loop().create_future()
        given = self._outside.read(self.run, occurrence, at)
        self._tell(News(given, at=at, message=message, answer=answer, since_ms=posted_ms))
        return answer

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next timer is due, of the run or of what it waits for, in milliseconds since 1970; None when none is armed."""
        return next_due_ms(self.run)

    def write_to(self, journal: Journal) -> None:
        """Go on with another right to write the same run, which was given up at rest."""
        self._journal = journal

    def hear(self, intent: Intent, answer: Occurrence | Step) -> None:
        """Take an answer of an effect, or its error step, whoever brings it; one that nobody waits for is refused as late (S7)."""
        self._tell(News(occurrence_of(intent, answer), intent))

    async def drive(self, *occurrences: Occurrence, through_timers: bool = True) -> Rest:
        """Take the occurrences and go on until the run is finished, waits for outside events, or fails.

        `through_timers`: a timer is waited for; else the run rests where nothing but timers is under way. May be called again after `waiting`. Cancelling it stops what is under way; the ledger keeps what was
        recorded. Raises StoreError when it cannot be written, and what `observe` raises. While somebody has still to say what became of an effect in
        doubt, nothing is performed.
        """
        for occurrence in occurrences:
            self.send(occurrence)
        left, self._left, self._news = self._left, UnfinishedWork(), asyncio.Event()  # an event is its loop's
        asked = tuple(each.intent for each in left.in_flight if handling_of(self.run.machine, each) == "ask")
        if asked:
            self._left = left
            return Rest("in doubt", self.run, in_doubt=asked)
        try:
            if not self._inbox:
                self._save()
            commands, self._commands = self._commands, ()
            await self._obey(commands)
            await self._go_on(left)
            await self._take_what_comes(through_timers=through_timers)
        finally:
            await self._under_way.stop_all()
            self.parts.clear()
            self._left = UnfinishedWork(timers=self.run.timers)
            if self._broken is None:
                self._save()
        if self._broken is not None:
            raise self._broken
        if self._failure:
            return Rest("stopped", self.run, self._failure)
        if self.run.is_finished:
            return Rest("finished", self.run)
        return Rest("waiting", self.run, due_ms=None if through_timers else self.next_deadline_ms)

    async def _take_what_comes(self, *, through_timers: bool) -> None:
        taken = 0
        while self._may_begin:
            if self._inbox:
                await self._receive(self._inbox.popleft())
                taken += 1
                if taken % _AT_A_TIME == 0:
                    await asyncio.sleep(0)
            elif self.run.is_finished or not self._under_way:
                return
            else:
                if not self._under_way.has_effects:
                    if not through_timers:
                        return
                    if self._on_rest is not None:
                        self._on_rest()
                self._news.clear()
                await self._news.wait()

    # -- going on after the run was cut off ---------------------------------------------------------------------

    async def _go_on(self, left: UnfinishedWork) -> None:
        """Take what came before anything that is sent now, arm the timers by their deadlines, perform what has no result."""
        earlier, armed = came_before(left, self.run.machine, self.clock.wall_ms())
        self._inbox = deque(in_order(earlier, self._inbox))
        for (source, event), left_ms in armed.items():
            self._under_way.arm(source, event, left_ms / 1000)
        cancelled = cancelled_by(self._inbox[0], self.run) if self._inbox else ()
        resumed = resumption(self.run, left, self._session()) if self._is_resumed else None
        self._is_resumed = False
        if resumed is not None:  # known, and counted by budgets, before anything is performed again
            self.keep(attrs.evolve(resumed, at_ms=self.clock.wall_ms()))
        for flying in left.in_flight:
            intent, handling = flying.intent, handling_of(self.run.machine, flying)
            if intent.key in cancelled:
                continue  # its time was over before it could be begun again
            if handling == "retry" and self._may_begin:
                await self._start(intent, action_for(self.run, intent, flying.data), flying.tries, flying.root)
            elif handling != "retry":
                self._settle(intent, handling)

    @property
    def _may_begin(self) -> bool:
        """Return whether nothing has happened after which nothing may be begun: no failure, no store that cannot be written."""
        return self._failure is None and self._broken is None

    def _settle(self, intent: Intent, handling: Handling) -> None:
        """Record that an effect in doubt counts as failed, or as done."""
        said = f"the run was cut off while it was under way; it counts as {'failed' if handling == 'fail' else 'done'}"
        steps = [error_step(intent.effect, IN_DOUBT, said)] if handling == "fail" else []
        self.keep(result_of(intent, steps, at_ms=self.clock.wall_ms()))
        if intent.effect in self.run.machine.answers:
            self.hear(intent, answer_in(self.run.machine, intent.effect, steps))
        elif steps:
            self._failure = Failure(intent.effect, intent.line, IN_DOUBT, said)

    # -- what comes in ------------------------------------------------------------------------------------------

    def _tell(self, news: News) -> None:
        self._inbox.append(news)
        self._news.set()

    def _rung(self, rung: Occurrence) -> None:
        """Take a timer that rings, behind the messages that were posted before it was due: they are asked for now.

        Timers that precede it are due as well (S11), and ring before it if they have not yet.
        """
        timer, known = (rung.source or "", rung.event), len(self._inbox)
        first = sorted(timers_before(self.run.configuration.precedence, timer), key=self.run.timers.__getitem__)
        rings = [
            News(Occurrence(event, source=source)) for source, event in first if self._under_way.drop(source, event)
        ]
        if self._on_ring is not None:
            self._on_ring()
        handed = [self._inbox.pop() for _ in range(len(self._inbox) - known)][::-1]
        behind = [each for each in handed if (each.since_ms or 0) > self.run.timers.get(timer, 0)]
        for each in (*(each for each in handed if each not in behind), *rings, News(rung), *behind):
            self._tell(each)

    async def _receive(self, news: News) -> None:
        """Feed one occurrence; an answer or a timer that the table does not take stops the run."""
        occurrence, intent = news.occurrence, news.intent
        line = intent.line if intent else None
        key = intent.key if intent else answered_key(self.run, occurrence, news.at)
        if intent is not None and occurrence.event == f"{intent.effect}.failed" and self._unhandled(intent):
            self._failure = _failure(intent, occurrence.data)
            return
        try:
            given = exact_already(self.run, occurrence, key) or await self._judged(occurrence, key)
        except Exception as error:  # noqa: BLE001  (guards are foreign code; one may say what it cannot say)
            said = self._secrets.text(str(error))
            if not isinstance(error, MissingDataError):
                self.fault(f"a guard that judges {occurrence.event}", error)
            if news.answer is not None:  # the sender is told; it stops no run, however often a message is taken up
                self._refuse(news, OccurrenceError(f"a guard that judges '{occurrence.event}' failed: {said}"))
                return
            code = MISSING_DATA if isinstance(error, MissingDataError) else type(error).__name__
            self._failure = Failure(f"a guard that judges {occurrence.event}", line, code, said)
            return
        before = self.run.configuration
        run, commands = self.run.feed(
            given, key, at_ms=self.clock.wall_ms(), at=news.at or (key if intent is None else None)
        )
        self.run = run
        became = None if news.answer is None else _became(run, before, given)
        self._save(() if news.message is None or became is None else ((news.message, outcome_text(became)),))
        if became is not None:
            news.reply(became)
        if commands:
            await self._obey(commands, given.data)
        else:  # it may have been refused
            self._require_taken(run, news, line)

    def _require_taken(self, run: Run, news: News, line: int | None) -> None:
        """Stop the run when the last occurrence was refused, and had to be taken: an answer or a timer; what people say need not be."""
        refused, event = run.ledger[-1], news.occurrence.event
        must = news.intent is not None or news.occurrence.source is not None
        if isinstance(refused, RefusalEntry) and must and refused.reason not in _HARMLESS:
            self._failure = Failure(f"{event} in {run.configuration.state}", line, refused.reason, refused.message)

    def _refuse(self, news: News, error: OccurrenceError) -> None:
        """Take a message that cannot be an event of the run out of its inbox."""
        if self._journal is not None and news.message is not None:
            self._journal.append((), taking=((news.message, error_text(error)),))
        news.reply(error)

    async def _judged(self, occurrence: Occurrence, key: str | None) -> Occurrence:
        """Return an occurrence with the verdicts of guards that it has not brought; of an answer they see what its effect saw."""
        then = self._performer.data_now() if key is None else self._performer.data_before(key)
        data = then.judging(occurrence.event, occurrence.data, key)
        work = partial(with_exact_verdicts, self.run, occurrence, self._guards, self._artifacts, data)
        is_quick = is_judged_at_once(self.run, occurrence, self._guards)  # its answer becomes durable with what follows
        given = await (work() if is_quick else self._apart(work))
        require_known(self.run.machine, given)
        return given

    def _unhandled(self, intent: Intent) -> bool:
        """Return whether the failure of an effect is one that no row names (S7)."""
        outstanding = self.run.keys.get(intent.effect) == intent.key
        return outstanding and intent.effect not in self.run.machine.failures_handled

    def _save(self, taking: Sequence[Taking] = ()) -> None:
        """Make the entries durable that are not, and show them; messages that they came from leave the inbox in the same commit."""
        entries = self.run.ledger.after(self._saved)
        if not entries:
            return
        self._saved += len(entries)
        try:
            if self._journal is not None:
                self._journal.append(entries, taking=taking)
            if self._observe is not None:
                self._observe(entries)
        except BaseException as error:  # a policy that records would be blamed for it
            self._break(error)
            raise

    def record(self, entry: Record) -> None:
        """Append what a policy did; it is durable when the policy next waits or returns."""
        self.run = self.run.record(entry)
        if not self._will_save:
            self._will_save = True
            asyncio.get_running_loop().call_soon(self._save_in_time)

    def keep(self, entry: Record) -> None:
        """Append what came of an effect; it is durable when this returns."""
        self.run = self.run.record(entry)
        self._save()

    def settle(self, entry: Record) -> None:
        """Append what came of an effect whose answer the run is told next; it is durable with what follows from that, or before."""
        self.run = self.run.record(entry)
        if self._is_away:
            self._save()

    def show(self, key: str, text: str) -> None:
        """Show a piece of text that a policy has while it works; it is not recorded."""
        if self._on_text is not None:
            self._on_text(key, text)

    def fault(self, where: str, error: BaseException) -> None:
        """Keep what users' code has raised, with its traceback, for who has to mend it."""
        text = "" if self._on_fault is None else traceback_of(error)
        if text and self._on_fault is not None:
            self._on_fault(where, self._secrets.text(text))

    def require_able(self) -> None:
        """Raise what the store has raised, if it has failed: then no policy is called any more."""
        if self._broken is not None:
            raise self._broken

    async def _apart(self, work: Callable[[], Awaitable[T]]) -> T:
        """Wait for something else than news, however long: what there is becomes durable first, and at once what comes of effects meanwhile."""
        self._save()
        self._is_away = True
        try:
            return await work()
        finally:
            self._is_away = False

    def _save_in_time(self) -> None:
        """Save from the event loop; what goes wrong is raised by `drive`."""
        self._will_save = False
        if self._broken is None:
            with suppress(BaseException):
                self._save()

    # -- what goes out ------------------------------------------------------------------------------------------

    async def _obey(self, commands: tuple[Command, ...], data: object = None) -> None:
        for command in commands:
            match command:
                case Intent():
                    if self._may_begin:
                        await self._start(command, action_for(self.run, command, data))
                case StopEffect(key):
                    self._under_way.stop(key)
                case DropTimer(source, event):
                    self._drop_timer(source, event)
                case ArmTimer(source, event, duration_ms):
                    self._drop_timer(source, event)
                    self._under_way.arm(source, event, duration_ms / 1000)

    async def _start(self, intent: Intent, action: Action, tries: int = 0, root: int = 1) -> None:
        self._save()
        if missing := self._performer.missing_before(intent):
            self._failure = Failure(intent.effect, intent.line, MISSING_DATA, missing)
            return
        plan = self._performer.plan(intent.effect)
        if not plan.has_answers:
            fault = await self._apart(partial(self._performer.perform, intent, action, plan, tries, root))
            if isinstance(fault, Step):
                self._failure = _failure(intent, fault.payload)
            return
        answer = partial(self._answer, intent, action, plan, tries, root)
        if plan.is_eager:
            self._under_way.start_here(intent.key, answer)
            return
        self._under_way.start(intent.key, answer)
        for _ in range(self._performer.rounds_to_begin(plan)):
            await asyncio.sleep(0)  # effects start in the order written (S6), and none after it was cancelled (S7)

    async def _answer(self, intent: Intent, action: Action, plan: EffectPlan, tries: int, root: int) -> None:
        """Perform an effect that has answers, and tell the run."""
        answer = await self._performer.perform(intent, action, plan, tries, root)
        assert answer is not None, "an effect with answers is answered or fails"
        self._under_way.ended(intent.key)
        if isinstance(answer, Step) and rests(answer):
            self._rests(intent.key, part_from(answer.content))
        else:
            self.hear(intent, answer)

    def _rests(self, key: str, part: Part | None) -> None:
        """Let an effect rest until a person answers it, or until something has come for the part that it waits for."""
        if part is not None:
            self.parts[key] = part
            if part.due_ms is not None:
                self._under_way.wait(key, max(0, part.due_ms + 1 - self.clock.wall_ms()) / 1000, self.look_again)
        self._news.set()  # the run may rest now

    def look_again(self, key: str) -> None:
        """Perform an effect again that waits for a part, because something has come for that; recorded before it is done."""
        left = [
            each for each in unfinished_work(self.run).in_flight if each.intent.key == key and each.part is not None
        ]
        if not left or not self._may_begin or self.parts.pop(key, None) is None:
            return
        (flying,), intent = left, left[0].intent
        resumed = resumption(self.run, UnfinishedWork(in_flight=(flying,)), self._session())
        assert resumed is not None, "it waits"
        self.keep(attrs.evolve(resumed, at_ms=self.clock.wall_ms()))
        action, plan = action_for(self.run, intent, flying.data), self._performer.plan(intent.effect)
        self._under_way.stop(key)
        self._under_way.start(key, partial(self._answer, intent, action, plan, flying.tries, flying.root))
        self._news.set()

    def _break(self, error: BaseException) -> None:
        """Hand what breaks a task of ours to `drive`, which would wait for its news for ever."""
        self._broken = self._broken or error
        self._news.set()

    def _drop_timer(self, source: str, event: str) -> None:
        """Forget a timer, also one that has fired and was not taken yet."""
        self._under_way.drop(source, event)
        stale = (event, source)
        self._inbox = deque(n for n in self._inbox if (n.occurrence.event, n.occurrence.source) != stale)
