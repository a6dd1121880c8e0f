"""The driver of a run: it performs the effects that the run asks for, and feeds back their answers.

It takes a run, a binding, an artifact store, a journal and a clock, and changes the run through `feed` and `record` only. It runs on one event
loop. Effects with answers run as tasks; one without answers completes before the next effect starts. An effect with `together` in Effects is
performed at most that often at the same time; the other emissions wait in the order of their keys, and none begins before the results that make room
for it are durable.

An event, its step and its effects are durable before any of them is performed. The result of an effect is durable, in one write with what
follows from it, before the driver begins or waits for anything else. Observers get each ledger entry once it is durable.

A sleep is not performed: its deadline is part of the run, like those of timers, and the driver answers it when the deadline has passed.

`News` is what the run has not taken yet; `earlier_news` and `in_order` put it in the order in which the run takes it. `UnderWay`
(`dsa.edge.event_loop`) holds the tasks of effects, timers and sleeps.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TypeVar

import attrs

from dsa.edge.binding import (
    Bindings,
    FromOutside,
    answered_key,
    exact_already,
    is_judged_at_once,
    performed_effects,
    with_exact_verdicts,
)
from dsa.edge.event_loop import Clock, MonotonicClock, Throttle, UnderWay, Work
from dsa.edge.performer import (
    EffectPlan,
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
from dsa.errors import OccurrenceError, code_of
from dsa.machine import Machine, sleeping_effects, timers_before
from dsa.runtime.artifacts import ArtifactStore
from dsa.runtime.costs import BudgetLimit, Meter
from dsa.runtime.event_data import MISSING_DATA, MissingDataError
from dsa.runtime.json_text import copy_json
from dsa.runtime.ledger import (
    Entry,
    Handling,
    Intent,
    Part,
    Record,
    RefusalEntry,
    ResumedEntry,
    part_from,
    place_of_key,
)
from dsa.runtime.policy.call_tree import IN_DOUBT, call_named
from dsa.runtime.policy.policies import Action, RedactingArtifacts, Step, error_step, event_step
from dsa.runtime.run import ArmTimer, Command, DropTimer, Run, StopEffect
from dsa.runtime.run_store import Journal, MessageOutcome, error_text, outcome_text
from dsa.runtime.status import (
    Failure,
    Rest,
    Sleep,
    UnfinishedWork,
    handling_of,
    next_due_ms,
    resumption,
    stops_again,
    unfinished_work,
)
from dsa.semantics import Configuration, Occurrence, Refusal, Taken, require_known, step

#: A timer: the state that armed it, and `after DURATION`.
Timer = tuple[str, str]


@attrs.frozen
class News:
    """An occurrence that the run has not taken yet, with the intent of the effect that it answers, if any.

    `at` is the place of the question that an outside event answers. `answer` is a future for the sender, who waits for the outcome. `message` is
    its id in the inbox. `since_ms` is when it was posted, or when the timer or the end of the sleep was due, by the store's clock (milliseconds
    since 1970); None means now.
    """

    occurrence: Occurrence
    intent: Intent | None = None
    at: str | None = None
    message: str | None = None
    answer: "asyncio.Future[Taken | Refusal] | None" = None
    since_ms: int | None = None

    @property
    def is_wake_up(self) -> bool:
        """Return whether it is the end of a sleep that has no record yet."""
        return self.intent is not None and self.since_ms is not None

    @property
    def is_from_outside(self) -> bool:
        """Return whether it was sent."""
        return self.intent is None and self.occurrence.source is None

    def reply(self, outcome: Taken | Refusal | OccurrenceError) -> None:
        """Send the outcome of the event to its sender, if one waits. The sender's event loop may be closed by now."""
        if self.answer is None or self.answer.done():
            return
        with suppress(RuntimeError):  # of a closed loop
            if isinstance(outcome, OccurrenceError):
                self.answer.set_exception(outcome)
            else:
                self.answer.set_result(outcome)


def earlier_news(left: UnfinishedWork, machine: Machine, now_ms: int) -> tuple[tuple[News, ...], Mapping[Timer, int]]:
    """Return the news from before this session, and the other timers with the milliseconds left.

    Recorded results that were not taken come first, then overdue timers and sleeps by their deadlines; those of the same moment in the order in which they
    started, timers first.
    """
    answer_news = [
        News(occurrence_of(intent, answer_in(machine, intent.effect, steps_of(result))), intent)
        for intent, result in left.answers
    ]
    overdue = (timer for timer, at_ms in left.timers.items() if at_ms < now_ms)
    timer_news = [
        News(Occurrence(event, source=source), since_ms=left.timers[source, event]) for source, event in overdue
    ]
    sleep_news = [wake_up(machine, each) for each in left.sleeps if each.due_ms < now_ms]
    return (*answer_news, *sorted((*timer_news, *sleep_news), key=lambda each: each.since_ms or 0)), {
        timer: at_ms - now_ms for timer, at_ms in left.timers.items() if at_ms >= now_ms
    }


def wake_up(machine: Machine, sleep: Sleep) -> News:
    """Return the end of a sleep: its one answer, with the data of the event that asked for it."""
    event = machine.answers[sleep.intent.effect][0]
    return News(Occurrence(event, data=sleep.data), sleep.intent, since_ms=sleep.due_ms)


def in_order(earlier: Sequence[News], later: Iterable[News]) -> list[News]:
    """Return earlier and later news in the order in which the run takes it.

    Answers come first. Then come overdue timers and sleeps and messages, in the order in which they were due or posted, a timer before a message of the
    same moment. What is sent now comes last.
    """
    answers = [each for each in earlier if each.intent is not None and not each.is_wake_up]
    others = [*(each for each in earlier if each.intent is None or each.is_wake_up), *later]
    return [*answers, *sorted(others, key=lambda each: inf if each.since_ms is None else each.since_ms)]


def cancelled_by(news: News, run: Run) -> frozenset[str]:
    """Return the keys of the effects that this news cancels if it is a timer or the end of a sleep; none for an answer or a sent event."""
    key = None if news.intent is None else news.intent.key
    is_due = news.is_wake_up or news.occurrence.source is not None
    if not is_due or exact_already(run, news.occurrence, key) is None:
        return frozenset()
    after, _ = run.feed(news.occurrence, key)
    return frozenset(run.keys) - frozenset(after.keys)


#: Reasons to refuse an answer or a timer that are not the table's fault (S4, S7).
_HARMLESS = ("late", "finished")
#: How many occurrences may be taken before others on the event loop have their turn.
_AT_A_TIME = 16

T = TypeVar("T")


def _failure(intent: Intent, payload: dict[str, object]) -> Failure:
    place, call = str(payload.get("at") or ""), call_named(intent.key, payload)
    return Failure(intent.effect, intent.line, *code_and_message(payload), place, call)


def outcome_of_last(run: Run, before: Configuration, occurrence: Occurrence) -> Taken | Refusal:
    """Return the outcome of the outside event that was fed last."""
    outcome, last = step(run.machine, before, occurrence), run.ledger[-1]
    # The run has passed its place; `step` does not know that.
    if isinstance(last, RefusalEntry) and last.reason == "late":
        return Refusal("late", before, last.message, (), last.accepted)
    return outcome


class Driver:
    """Drives one run. `run` is the run as it is now, `clock` its clock.

    `commands` are those that `begin` returned with the run. `left` is the unfinished work of a run that was cut off; `session` returns the entry
    that says who continues it, and with which model, module and budget. `limits` are its budget. Every entry goes to the `journal`.

    `observe` is called with the entries of each commit once they are durable, first with those that the run comes with. `on_rest` is called
    when only timers are under way, `on_text` with the keys of calls and the pieces of text that they show, `on_fault` with the place and the
    traceback of an error in users' code, and `on_ring` when a timer rings, to hand over the messages that wait. `performer` makes the object that performs
    effects in this process; a subclass performs them elsewhere.
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
        performer: Callable[..., Performer] = Performer,
    ) -> None:
        self.run = run
        self._guards, self._secrets = binding.guards, binding.secrets
        self._outside = FromOutside(binding)
        self._artifacts = RedactingArtifacts(artifacts, binding.secrets, run.run_id)
        self.clock = clock or MonotonicClock()
        meter = Meter(limits, performed_effects(run.machine), binding.spenders)
        self._performer = performer(self, binding, self._artifacts, self.clock, meter)
        self._commands, self._journal, self._on_ring = commands, journal, on_ring
        self._observe, self._on_rest, self._on_text, self._on_fault = observe, on_rest, on_text, on_fault
        self._saved_count = 0 if left is None else len(run.ledger)
        self._left, self._session, self._is_resumed = left or UnfinishedWork(), session, left is not None
        self.parts: dict[str, Part] = {}
        self._inbox, self._news = deque[News](), asyncio.Event()
        self._under_way = UnderWay(self.clock, self._take_ring, self._break)
        self._sleeps: dict[str, Sleep] = {}
        self._failure: Failure | None = None
        self._fatal_error: BaseException | None = None
        self._will_save = self._is_away = False
        self.is_listening = False  # it has taken all news, so it would take the next event at once
        if observe is not None and self._saved_count:
            observe(run.ledger[: self._saved_count])

    def send(self, occurrence: Occurrence, at: str | None = None) -> None:
        """Queue an outside event, from the event loop's thread. It is taken when its turn comes, if its place is still `at`.

        Raises OccurrenceError for an event that does not come from outside or whose data is wrong; TypeError or ValueError for data that is
        not JSON.
        """
        self._tell(News(self._outside.read(self.run, occurrence, at), at=at))

    def hand(
        self,
        occurrence: Occurrence,
        at: str | None = None,
        message: str | None = None,
        posted_ms: int | None = None,
    ) -> "asyncio.Future[Taken | Refusal]":
        """Queue an outside event as `send` does; the future gets its outcome, once that is durable.

        `at` is the place of the question that it answers; once the run has passed it, the event is refused as late. `message` is its id in the
        run's inbox, from which the same commit removes it; `posted_ms` is when it was posted there.
        """
        answer: asyncio.Future[Taken | Refusal] = asyncio.get_running_loop().create_future()
        event = self._outside.read(self.run, occurrence, at)
        self._tell(News(event, at=at, message=message, answer=answer, since_ms=posted_ms))
        return answer

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next timer of the run or of its parts is due, in milliseconds since 1970; None when none is armed."""
        return next_due_ms(self.run)

    @property
    def news(self) -> tuple[News, ...]:
        """The news that waits here, which the run has not taken."""
        return tuple(self._inbox)

    def write_to(self, journal: Journal) -> None:
        """Write to another journal of the same run, after the previous one was given up at rest."""
        self._journal = journal

    def hear(self, intent: Intent, answer: Occurrence | Step) -> None:
        """Queue an answer of an effect, or its error step. An answer that is no longer expected is refused as late (S7)."""
        self._tell(News(occurrence_of(intent, answer), intent))

    async def drive(self, *occurrences: Occurrence, through_timers: bool = True) -> Rest:
        """Take the occurrences and go on until the run is finished, waits for outside events, or fails.

        With `through_timers` it waits for timers; without, the run rests when only timers are under way. It may be called again after
        `waiting`. Cancelling it stops what is under way; the ledger keeps what was recorded. While an effect in doubt waits for a person's decision,
        nothing is performed. Raises StoreError when the ledger cannot be written, and what `observe` raises.
        """
        for occurrence in occurrences:
            self.send(occurrence)
        left, self._left, self._news = self._left, UnfinishedWork(), asyncio.Event()  # an event belongs to its loop
        in_doubt = tuple(each.intent for each in left.in_flight if handling_of(self.run.machine, each) == "ask")
        if in_doubt:
            self._left = left
            return Rest("in doubt", self.run, in_doubt=in_doubt)
        try:
            if not self._inbox:
                self._save()
            commands, self._commands = self._commands, ()
            await self._obey(commands)
            await self._go_on(left)
            await self._take_what_comes(through_timers=through_timers)
        except GeneratorExit:
            self._under_way.abandon()
            raise
        finally:
            self.is_listening = False
            await self._under_way.stop_all()
            self.parts.clear()
            sleeps = tuple(each for key, each in self._sleeps.items() if key in self.run.sleeps)
            self._left = UnfinishedWork(timers=self.run.timers, sleeps=sleeps)
            if self._fatal_error is None:
                self._save()
        if self._fatal_error is not None:
            raise self._fatal_error
        if self._failure:
            return Rest("stopped", self.run, self._failure)
        if self.run.is_finished:
            return Rest("finished", self.run)
        return Rest("waiting", self.run, due_ms=None if through_timers else self.next_deadline_ms)

    async def _take_what_comes(self, *, through_timers: bool) -> None:
        count = 0
        while self._may_begin:
            if self._inbox:
                await self._receive(self._inbox.popleft())
                count += 1
                if count % _AT_A_TIME == 0:
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
                self.is_listening = True
                await self._news.wait()
                self.is_listening = False

    # -- going on after the run was cut off ---------------------------------------------------------------------

    async def _go_on(self, left: UnfinishedWork) -> None:
        """Take the news from before this session, arm the timers by their deadlines, and perform the effects without results."""
        now_ms = self.clock.wall_ms()
        earlier, timers = earlier_news(left, self.run.machine, now_ms)
        # Sleeps that are over are among the earlier news.
        others = (news for news in self._inbox if not news.is_wake_up)
        self._inbox = deque(in_order(earlier, others))
        for (source, event), left_ms in timers.items():
            self._under_way.arm(source, event, left_ms / 1000)
        for sleep in left.sleeps:
            self._begin_sleep(sleep, None if sleep.due_ms < now_ms else sleep.due_ms - now_ms)
        cancelled_keys = cancelled_by(self._inbox[0], self.run) if self._inbox else ()
        stops = not self._inbox and stops_again(self.run.machine, left)
        resumed_entry = resumption(self.run, left, self._session(), stops=stops) if self._is_resumed else None
        self._is_resumed = False
        if resumed_entry is not None:  # recorded, and counted by budgets, before anything is performed again
            self.keep(attrs.evolve(resumed_entry, at_ms=self.clock.wall_ms()))
        for in_flight in left.in_flight:
            intent, handling = in_flight.intent, handling_of(self.run.machine, in_flight)
            if intent.key in cancelled_keys:
                continue  # its time was over before it could begin again
            if handling == "retry" and self._may_begin and not stops:
                await self._start(intent, action_for(self.run, intent, in_flight.data), in_flight.tries, in_flight.root)
            elif handling != "retry":
                self._settle(intent, handling)

    @property
    def _may_begin(self) -> bool:
        """Return whether new work may begin: nothing has failed, and the store can be written."""
        return self._failure is None and self._fatal_error is None

    def _settle(self, intent: Intent, handling: Handling) -> None:
        """Record that an effect in doubt counts as failed, or as done."""
        message = f"the run was cut off while the effect was under way; the effect counts as {'failed' if handling == 'fail' else 'done'}"
        steps = [error_step(intent.effect, IN_DOUBT, message)] if handling == "fail" else []
        self.keep(result_of(intent, steps, at_ms=self.clock.wall_ms()))
        if intent.effect in self.run.machine.answers:
            self.hear(intent, answer_in(self.run.machine, intent.effect, steps))
        elif steps:
            self._failure = Failure(intent.effect, intent.line, IN_DOUBT, message)

    # -- what comes in ------------------------------------------------------------------------------------------

    def _tell(self, news: News) -> None:
        self._inbox.append(news)
        self.is_listening = False
        self._news.set()

    def _take_ring(self, occurrence: Occurrence) -> None:
        """Queue a timer that rings, behind the messages that were posted before it was due; `on_ring` fetches them.

        Timers that precede it are due as well (S11), and ring first if they have not yet.
        """
        timer = (occurrence.source or "", occurrence.event)
        first = sorted(timers_before(self.run.configuration.precedence, timer), key=self.run.timers.__getitem__)
        rings = [
            News(Occurrence(event, source=source)) for source, event in first if self._under_way.drop(source, event)
        ]
        self._tell_behind_messages((*rings, News(occurrence)), self.run.timers.get(timer, 0))

    def _tell_behind_messages(self, rings: Iterable[News], due_ms: int) -> None:
        """Queue what time has brought between the messages that were posted until it was due and those that were posted later."""
        known_count = len(self._inbox)
        if self._on_ring is not None:
            self._on_ring()
        messages = [self._inbox.pop() for _ in range(len(self._inbox) - known_count)][::-1]
        behind = [each for each in messages if (each.since_ms or 0) > due_ms]
        for each in (*(each for each in messages if each not in behind), *rings, *behind):
            self._tell(each)

    def _begin_sleep(self, sleep: Sleep, left_ms: int | None) -> None:
        """Wait for the end of a sleep; with None, its deadline has passed, and its end is queued already."""
        key = sleep.intent.key
        self._sleeps[key] = sleep
        if left_ms is not None:
            self._under_way.wait(key, left_ms / 1000, self._wake_up)

    def _wake_up(self, key: str) -> None:
        """Queue the end of a sleep as `_take_ring` queues a timer."""
        sleep = self._sleeps[key]
        self._tell_behind_messages((wake_up(self.run.machine, sleep),), sleep.due_ms)

    async def _receive(self, news: News) -> None:
        """Feed one occurrence; an answer or a timer that the table does not take stops the run."""
        occurrence, intent = news.occurrence, news.intent
        line = intent.line if intent else None
        key = intent.key if intent else answered_key(self.run, occurrence, news.at)
        if intent is not None and news.is_wake_up:
            del self._sleeps[intent.key]
            steps = [event_step(intent.effect, occurrence.event, data=occurrence.data)]
            self.settle(result_of(intent, steps, at_ms=self.clock.wall_ms()))
        if intent is not None and occurrence.event == f"{intent.effect}.failed" and self._is_unhandled(intent):
            self._failure = _failure(intent, occurrence.data)
            return
        try:
            event = exact_already(self.run, occurrence, key) or await self._add_verdicts(occurrence, key)
        except Exception as error:  # noqa: BLE001  (guards are foreign code, and their answers may be invalid)
            message = self._secrets.text(str(error))
            if not isinstance(error, MissingDataError):
                self.fault(f"a guard that judges {occurrence.event}", error)
            if news.answer is not None:  # the sender gets the error; a bad message does not stop the run
                self._refuse(news, OccurrenceError(f"a guard that judges '{occurrence.event}' failed: {message}"))
                return
            code = MISSING_DATA if isinstance(error, MissingDataError) else code_of(error)
            self._failure = Failure(f"a guard that judges {occurrence.event}", line, code, message)
            return
        before = self.run.configuration
        run, commands = self.run.feed(
            event, key, at_ms=self.clock.wall_ms(), at=news.at or (key if intent is None else None)
        )
        self.run = run
        outcome = None if news.answer is None else outcome_of_last(run, before, event)
        self._save(() if news.message is None or outcome is None else ((news.message, outcome_text(outcome)),))
        if outcome is not None:
            news.reply(outcome)
        if commands:
            await self._obey(commands, event.data)
        else:  # it may have been refused
            self._require_taken(run, news, line)

    def _require_taken(self, run: Run, news: News, line: int | None) -> None:
        """Stop the run if an answer or a timer was refused; an event from a person may be refused."""
        entry, event = run.ledger[-1], news.occurrence.event
        must = news.intent is not None or news.occurrence.source is not None
        if isinstance(entry, RefusalEntry) and must and entry.reason not in _HARMLESS:
            self._failure = Failure(f"{event} in {run.configuration.state}", line, entry.reason, entry.message)

    def _refuse(self, news: News, error: OccurrenceError) -> None:
        """Remove a message that cannot be an event of the run from its inbox."""
        if self._journal is not None and news.message is not None:
            self._journal.append((), outcomes=((news.message, error_text(error)),))
        news.reply(error)

    async def _add_verdicts(self, occurrence: Occurrence, key: str | None) -> Occurrence:
        """Return an occurrence with the verdicts that it lacks. Guards of an answer see the data that its effect saw."""
        then = self._performer.data_now() if key is None else self._performer.data_before(key)
        data = then.with_event(occurrence.event, occurrence.data, key)
        work = partial(with_exact_verdicts, self.run, occurrence, self._guards, self._artifacts, data)
        is_quick = is_judged_at_once(self.run, occurrence, self._guards)  # its answer becomes durable with what follows
        result = await (work() if is_quick else self._apart(work))
        require_known(self.run.machine, result)
        return result

    def _is_unhandled(self, intent: Intent) -> bool:
        """Return whether the failure of an effect is one that no row names (S7)."""
        return intent.key in self.run.keys and intent.effect not in self.run.machine.failures_handled

    def _save(self, outcomes: Sequence[MessageOutcome] = ()) -> None:
        """Write the entries that are not durable yet, and show them. The same commit removes their messages from the inbox."""
        entries = self.run.ledger.after(self._saved_count)
        if not entries:
            return
        self._saved_count += len(entries)
        try:
            if self._journal is not None:
                self._journal.append(entries, outcomes=outcomes)
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
        """Append the outcome of an effect; it is durable when this returns."""
        self.run = self.run.record(entry)
        self._save()

    def settle(self, entry: Record) -> None:
        """Append the outcome of an effect whose answer is fed next; it is durable with what follows from that, or before."""
        self.run = self.run.record(entry)
        if self._is_away:
            self._save()

    def show(self, key: str, text: str) -> None:
        """Show a piece of text from a policy at work; it is not recorded."""
        if self._on_text is not None:
            self._on_text(key, text)

    def fault(self, where: str, error: BaseException) -> None:
        """Report an error in users' code, with its traceback."""
        text = "" if self._on_fault is None else traceback_of(error)
        if text and self._on_fault is not None:
            self._on_fault(where, self._secrets.text(text))

    def require_able(self) -> None:
        """Raise the error of the store if it has failed, because then no policy may be called."""
        if self._fatal_error is not None:
            raise self._fatal_error

    async def _apart(self, work: Callable[[], Awaitable[T]]) -> T:
        """Wait for work that may take long. All entries are durable before it, and outcomes of effects become durable at once during it."""
        self._save()
        self._is_away = True
        try:
            return await work()
        finally:
            self._is_away = False

    def _save_in_time(self) -> None:
        """Save from the event loop; `drive` raises what goes wrong."""
        self._will_save = False
        if self._fatal_error is None:
            with suppress(BaseException):
                self._save()

    # -- what goes out ------------------------------------------------------------------------------------------

    async def _obey(self, commands: tuple[Command, ...], data: object = None) -> None:
        durations = sleeping_effects(self.run.machine)
        for command in commands if durations else ():
            if isinstance(command, Intent) and command.effect in durations:  # as timers, before anything is performed
                sleep = Sleep(command, copy_json(data), self.run.sleeps[command.key])
                self._begin_sleep(sleep, durations[command.effect])
        for command in commands:
            match command:
                case Intent(effect=effect) if effect in durations:
                    pass
                case Intent():
                    if self._may_begin:
                        await self._start(command, action_for(self.run, command, data))
                case StopEffect(key):
                    self._stop(key)
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
        work = self._work(intent, action, plan, tries, root)
        if plan.is_eager:
            self._under_way.start_here(intent.key, work)
            return
        self._under_way.start(intent.key, work)
        for _ in range(self._performer.rounds_to_begin(plan)):
            await asyncio.sleep(0)  # effects start in the order written (S6), and none after it was cancelled (S7)

    def _work(self, intent: Intent, action: Action, plan: EffectPlan, tries: int, root: int) -> Work:
        """Return the work of an effect that has answers. It waits for its turn if `together` limits how many are performed at the same time."""
        answer = partial(self._answer, intent, action, plan, tries, root)
        return answer if plan.throttle is None else partial(self._take_turn, intent.key, plan.throttle, answer)

    async def _take_turn(self, key: str, throttle: Throttle, answer: Work) -> None:
        async with throttle.place(place_of_key(key)):
            self._save()  # the results that freed these places: the ledger shows how many can have begun
            await answer()

    async def _answer(self, intent: Intent, action: Action, plan: EffectPlan, tries: int, root: int) -> None:
        """Perform an effect that has answers, and queue its answer."""
        answer = await self._performer.perform(intent, action, plan, tries, root)
        assert answer is not None, "an effect with answers is answered or fails"
        self._under_way.complete(intent.key)
        if isinstance(answer, Step) and rests(answer):
            self._rests(intent.key, part_from(answer.content))
        else:
            self.hear(intent, answer)

    def _rests(self, key: str, part: Part | None) -> None:
        """Let an effect rest until a person answers it, or until its part has news."""
        if part is not None:
            self.parts[key] = part
            if part.due_ms is not None:
                self._under_way.wait(key, max(0, part.due_ms + 1 - self.clock.wall_ms()) / 1000, self.look_again)
        self._news.set()  # the run may rest now

    def look_again(self, key: str) -> None:
        """Perform an effect again because its part has news. This is recorded first."""
        left = [
            each for each in unfinished_work(self.run).in_flight if each.intent.key == key and each.part is not None
        ]
        if not left or not self._may_begin or self.parts.pop(key, None) is None:
            return
        (in_flight,), intent = left, left[0].intent
        resumed_entry = resumption(self.run, UnfinishedWork(in_flight=(in_flight,)), self._session())
        assert resumed_entry is not None, "it waits"
        self.keep(attrs.evolve(resumed_entry, at_ms=self.clock.wall_ms()))
        action, plan = action_for(self.run, intent, in_flight.data), self._performer.plan(intent.effect)
        self._under_way.stop(key)
        self._under_way.start(key, self._work(intent, action, plan, in_flight.tries, in_flight.root))
        self._news.set()

    def _break(self, error: BaseException) -> None:
        """Store the error of a task for `drive`, which would otherwise wait for the task's news for ever."""
        self._fatal_error = self._fatal_error or error
        self._news.set()

    def _stop(self, key: str) -> None:
        """Stop an effect that was cancelled. A sleep is stopped even if its end is queued already: it never answers."""
        self._under_way.stop(key)
        if self._sleeps.pop(key, None) is not None:
            self._inbox = deque(n for n in self._inbox if n.intent is None or n.intent.key != key)

    def _drop_timer(self, source: str, event: str) -> None:
        """Drop a timer, even if it has fired but was not taken yet."""
        self._under_way.drop(source, event)
        stale = (event, source)
        self._inbox = deque(n for n in self._inbox if (n.occurrence.event, n.occurrence.source) != stale)
