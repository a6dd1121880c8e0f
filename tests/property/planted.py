"""Faults planted in the runtime, one at a time, to see whether the simulation's oracles find them.

Each is a context manager that makes one part of the driver, the run, the recovery or the store do what it must not, and puts it back.
Faults are planted in behaviour, not in seeds: nothing here knows which oracle has to notice.
"""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from unittest.mock import patch

import attrs

import dsa.edge.driver as driver_module
import dsa.runs.runs as runs_module
import dsa.runtime.run as fold_module
import dsa.runtime.run as run_module
import dsa.runtime.status as recovery_module
from dsa.edge.driver import Driver
from dsa.edge.event_loop import Throttle, UnderWay
from dsa.machine import sleeping_effects
from dsa.runs.handle import RunHandle
from dsa.runtime.costs import Meter
from dsa.runtime.ledger import EffectEntry, Intent, RefusalEntry, ResultEntry, ResumedEntry, place_of_key
from dsa.runtime.run import Run
from dsa.runtime.run_store import LeaseLostError
from dsa.runtime.status import InFlight, UnfinishedWork, unfinished_work
from dsa.semantics import Occurrence, Refusal
from dsa.testing.simulation import disk_store as store_module
from dsa.testing.simulation import process as process_module
from dsa.testing.simulation.disk_store import DiskJournal, DiskStore, File
from dsa.testing.simulation.virtual_loop import VirtualClock
from machines.dual_state import bindings

#: Each fault with the document in which it can be met.
PLANTED = {}


def planted(document):
    def named(plant):
        PLANTED[plant.__name__.replace("_", " ")] = (contextmanager(plant), document)
        return plant

    return named


def left_otherwise(change):
    """Make a process find other unfinished work than there is."""
    return patch.object(runs_module, "unfinished_work", lambda run: change(run, unfinished_work(run)))


# -- the store ----------------------------------------------------------------------------------------------------------


@planted("dual_state")
def acknowledged_before_it_is_synced():
    with patch.object(File, "sync", lambda _self: None):
        yield


@planted("dual_state")
def the_last_entries_are_forgotten_when_a_run_is_held():
    real = DiskStore.hold

    def hold(self, run, *, take=False):
        journal, recorded = real(self, run, take=take)
        kept = recorded.entries[: max(1, len(recorded.entries) - 2)]
        return journal, attrs.evolve(recorded, entries=type(recorded.entries)(kept))

    with patch.object(DiskStore, "hold", hold):
        yield


@planted("dual_state")
def the_lease_is_ignored():
    with patch.object(DiskJournal, "require_lease", lambda _self: None):
        yield


@planted("dual_state")
def a_run_that_is_held_is_given_away():
    real = DiskStore.hold
    with patch.object(DiskStore, "hold", lambda self, run, **_: real(self, run, take=True)):
        yield


@planted("dual_state")
def the_chain_is_not_verified():
    def body(content, at):
        head = store_module._HEAD.match(content, at)
        begin = at + store_module._HEAD_LENGTH
        found = None if head is None else bytes(content[begin : begin + int(head[2], 16)])
        return found if found and len(found) == int(head[2], 16) else None

    with patch.object(store_module, "_body", body), patch.object(store_module, "require_chain", lambda *_: None):
        yield


@planted("dual_state")
def a_torn_tail_is_taken_for_whole():
    def frames(content, begin=0):
        for end, body in real(content, begin):
            begin = end
            yield end, body
        if len(content) > begin and content[begin : begin + 1] != b"\0":
            torn = content[begin + store_module._HEAD_LENGTH :].decode("utf-8", "replace")
            head, _, rest = torn.partition("\n")
            lines = [line for line in rest.split("\n") if line.endswith("}")]
            if head.startswith("rows ") and lines:
                yield len(content), "\n".join((head, *lines, ""))

    real = store_module.frames
    with patch.object(store_module, "frames", frames), patch.object(store_module, "require_chain", lambda *_: None):
        yield


@planted("dual_state")
def writing_goes_on_after_the_store_has_failed():
    real = Driver._save

    def save(self):
        try:
            real(self)
        except LeaseLostError:
            raise
        except store_module.StoreError:
            self._fatal_error = None

    with patch.object(Driver, "_save", save), patch.object(process_module.Process, "_require_able", _require_alive):
        yield


@planted("counting")
def a_run_that_rests_is_not_released():
    with patch.object(RunHandle, "release", lambda _self: None):
        yield


@planted("counting")
def a_process_goes_on_without_the_entries_of_others():
    real = RunHandle._hold

    def hold(self):
        if not self._is_held:
            self._journal, _ = self._setting.place.store.hold(self.id)
            self._is_held = True
            self._driver.write_to(self._journal)
        real(self)

    with patch.object(RunHandle, "_hold", hold):
        yield


@planted("counting")
def a_process_goes_on_without_holding_the_run_again():
    with patch.object(RunHandle, "_hold", lambda _self: None):
        yield


@planted("letter")
def a_sender_gets_a_wrong_answer():
    real = RunHandle.hand

    async def hand(self, occurrence, at=None):
        await real(self, occurrence, at)
        return Refusal("late", self.run.configuration, "")

    with patch.object(RunHandle, "hand", hand):
        yield


def _require_alive(self):
    if not self.is_alive:
        raise process_module.KilledError


# -- the driver -----------------------------------------------------------------------------------------------------------


@planted("dual_state")
def an_event_is_written_without_what_follows_from_it():
    real = DiskJournal.append

    def append(self, entries, *_rest, **_options):
        for entry in entries:
            real(self, (entry,))

    with patch.object(DiskJournal, "append", append):
        yield


@planted("dual_state")
def a_result_is_not_recorded():
    with patch.object(Driver, "settle", lambda _self, _entry: None):
        yield


@planted("dual_state")
def an_effect_begins_before_its_intent_is_durable():
    receive, save, holding = Driver._receive, Driver._save, set()

    async def received(self, news):
        holding.add(self)
        try:
            await receive(self, news)
        finally:
            holding.discard(self)

    late = patch.object(Driver, "_save", lambda self: None if self in holding else save(self))
    with patch.object(Driver, "_receive", received), late:
        yield


@planted("parcels")
def an_effect_is_begun_twice():
    real = Driver._start

    async def start(self, intent, action, tries=0):
        await real(self, intent, action, tries)
        if intent.effect not in self.run.machine.answers:
            await real(self, intent, action, tries)

    with patch.object(Driver, "_start", start):
        yield


@planted("parcels")
def effects_without_answers_are_not_waited_for():
    real = Driver._start

    async def start(self, intent, action, tries=0):
        task = asyncio.ensure_future(real(self, intent, action, tries))
        self._under_way._cancelled_tasks.add(task)
        await asyncio.sleep(0)

    with patch.object(Driver, "_start", start):
        yield


@planted("busy")
def a_cancelled_effect_goes_on():
    with patch.object(UnderWay, "stop", lambda _self, _key: None):
        yield


@planted("dual_state")
def entries_are_shown_before_they_are_durable():
    real = Driver._save

    def save(self):
        for entry in self.run.ledger[self._saved_count :]:
            self._observe(entry)
        real(self)

    with patch.object(Driver, "_save", save):
        yield


@planted("dual_state")
def a_rejection_passes():
    real = driver_module.exact_already

    def passing(*given):
        occurrence = real(*given)
        verdicts = [(guard, "passed" if said == "failed" else said) for guard, said in occurrence.verdicts]
        return attrs.evolve(occurrence, verdicts=verdicts)

    with patch.object(driver_module, "exact_already", passing):
        yield


@planted("dual_state")
def a_stale_verdict_is_used():
    real, said = bindings.judge, {}

    async def judge(name, guard, artifact, dependencies):
        if id(guard) not in said:
            said[id(guard)] = (guard, await real(name, guard, artifact, dependencies))
        return said[id(guard)][1]

    with patch.object(bindings, "judge", judge):
        yield


# -- several emissions of one effect ------------------------------------------------------------------------------------


@planted("several")
def an_answer_is_given_to_another_emission():
    real = Driver.hear

    def hear(self, intent, answer):
        keys = [key for key, effect in self.run.keys.items() if effect == intent.effect and key != intent.key]
        real(self, attrs.evolve(intent, key=keys[0]) if keys else intent, answer)

    with patch.object(Driver, "hear", hear):
        yield


@planted("several")
def an_answer_brings_the_data_of_another_emission():
    real = Driver.hear
    before = {}

    def hear(self, intent, answer):
        if isinstance(answer, Occurrence):
            data = before.setdefault((self, intent.effect), answer.data)
            answer = attrs.evolve(answer, data=data)
        real(self, intent, answer)

    with patch.object(Driver, "hear", hear):
        yield


@planted("several")
def a_join_is_fired_twice():
    real = Run.feed

    def feed(self, *given, **named):
        run, commands = real(self, *given, **named)
        joins = [each for each in commands if isinstance(each, Intent) and each.effect == "reduce"]
        twice = [attrs.evolve(each, key=f"{each.key.partition('/')[0]}/2") for each in joins]
        ledger = run.ledger.extend([EffectEntry(each.key, each.effect) for each in twice])
        return attrs.evolve(run, ledger=ledger) if twice else run, (*commands, *twice)

    with patch.object(Run, "feed", feed):
        yield


@planted("several")
def more_emissions_are_performed_at_once_than_allowed():
    @asynccontextmanager
    async def place(_self, _number):
        yield

    with patch.object(Throttle, "place", place):
        yield


@planted("several in line")
def the_newest_waiting_emission_begins_first():
    def release(self):
        numbers = [number for number, turn in self._turns.items() if not turn.done()]
        if numbers:
            self._turns.pop(max(numbers)).set_result(None)
        else:
            self._free += 1

    with patch.object(Throttle, "_release", release):
        yield


@planted("several")
def a_place_is_given_back_twice():
    real = Throttle._release

    def release(self):
        real(self)
        real(self)

    with patch.object(Throttle, "_release", release):
        yield


@planted("several")
def a_waiting_emission_is_in_doubt():
    with patch.object(recovery_module._EffectHistory, "unbegun_keys", lambda _self, _machine: set()):
        yield


@planted("several")
def another_emission_begins_before_the_result_is_durable():
    real = Driver.settle

    def settle(self, entry):
        real(self, entry)
        plan = self._performer.plan(self.run.keys.get(entry.key, "reduce"))
        if plan.throttle is not None:
            plan.throttle._release()

    async def turn(_self, _key, throttle, answer):
        async with throttle.place(place_of_key(_key)):
            await answer()

    with patch.object(Driver, "settle", settle), patch.object(Driver, "_take_turn", turn):
        yield


# -- the run ----------------------------------------------------------------------------------------------------------------


@planted("busy")
def a_late_answer_is_accepted():
    def late(self, occurrence, key, *given):
        effect = None if occurrence.source else self.machine.event_named[occurrence.event].origin
        return None if effect in self.keys.values() else real(self, occurrence, key, *given)

    real = Run._late
    with patch.object(Run, "_late", late):
        yield


@planted("dual_state")
def a_refused_event_changes_what_is_outstanding():
    real = Run.feed

    def feed(self, *given, **named):
        run, commands = real(self, *given, **named)
        refused = isinstance(run.ledger[-1], RefusalEntry)
        return (attrs.evolve(run, keys={}) if refused else run), commands

    with patch.object(Run, "feed", feed):
        yield


@planted("dual_state")
def an_effect_is_asked_for_twice():
    real = Run.feed

    def feed(self, *given, **named):
        run, commands = real(self, *given, **named)
        intents = [command for command in commands if isinstance(command, Intent)]
        doubled = [attrs.evolve(intent, key=f"{intent.key}0") for intent in intents[:1]]
        return attrs.evolve(run, ledger=run.ledger.extend(doubled)), (*commands, *doubled)

    with patch.object(Run, "feed", feed):
        yield


# -- going on ---------------------------------------------------------------------------------------------------------------


@planted("dual_state")
def a_result_is_worked_out_again_after_a_crash():
    def again(run, left):
        flying = [InFlight(intent, None, 0, in_doubt=False) for intent, _ in left.answers]
        return UnfinishedWork((), (*left.in_flight, *flying), left.timers)

    with left_otherwise(again):
        yield


@planted("dual_state")
def effects_in_flight_are_forgotten():
    with left_otherwise(lambda _run, left: UnfinishedWork(left.answers, (), left.timers)):
        yield


@planted("dual_state")
def a_resumption_is_not_recorded():
    real = Run.record
    with patch.object(Run, "record", lambda run, entry: run if isinstance(entry, ResumedEntry) else real(run, entry)):
        yield


@planted("parcels")
def an_effect_in_doubt_is_silently_retried():
    with (
        patch.object(driver_module, "handling_of", lambda _machine, _flying: "retry"),
        patch.object(recovery_module, "handling_of", lambda _machine, _flying: "retry"),
    ):
        yield


@planted("dual_state")
def earlier_tries_are_forgotten():
    def fresh(_run, left):
        return UnfinishedWork(left.answers, tuple(attrs.evolve(f, in_doubt=False) for f in left.in_flight), left.timers)

    with left_otherwise(fresh):
        yield


@planted("parcels")
def a_timer_is_started_again_by_a_crash():
    def anew(run, left):
        now_ms = run.ledger[0].at_ms + 10**9
        return UnfinishedWork(left.answers, left.in_flight, dict.fromkeys(left.timers, now_ms))

    with left_otherwise(anew):
        yield


@planted("parcels")
def a_timer_is_lost_by_a_crash():
    with left_otherwise(lambda _run, left: UnfinishedWork(left.answers, left.in_flight, {})):
        yield


@planted("parcels")
def a_timer_rings_too_early():
    real = UnderWay.arm
    with patch.object(UnderWay, "arm", lambda self, source, event, seconds: real(self, source, event, seconds / 2)):
        yield


@planted("parcels")
def a_deadline_is_written_wrong():
    """It is counted from when its event came."""
    real = VirtualClock.wall_ms
    with patch.object(VirtualClock, "wall_ms", lambda self: real(self) + 1):
        yield


@planted("parcels")
def a_deadline_is_folded_wrong():
    """Who takes a run up goes by it."""
    real = run_module.timers_after

    def early(move, timers, at_ms):
        found = real(move, timers, at_ms)
        return {timer: due if timer in timers else (at_ms + due) // 2 for timer, due in found.items()}

    with patch.object(run_module, "timers_after", early), patch.object(fold_module, "timers_after", early):
        yield


@planted("dual_state")
def a_budget_is_fresh_after_a_crash():
    real = Meter.follow

    def follow(self, ledger):
        if self._followed == 0:
            self._followed = len(ledger)
        real(self, ledger)

    with patch.object(Meter, "follow", follow):
        yield


@planted("parcels")
def a_failure_is_not_taken_for_one():
    with patch.object(ResultEntry, "has_failed", new=False):
        yield


@planted("busy")
def a_sent_event_comes_before_an_overdue_timer():
    real = driver_module.earlier_news

    def later(left, machine, now_ms):
        earlier, _ = real(left, machine, now_ms)
        answers = tuple(news for news in earlier if news.intent is not None)
        return answers, {timer: max(0, at_ms - now_ms) for timer, at_ms in left.timers.items()}

    with patch.object(driver_module, "earlier_news", later):
        yield


# -- sleeps ---------------------------------------------------------------------------------------------------------------


@planted("reminded")
def a_sleep_answers_early():
    real = Driver._begin_sleep
    with patch.object(Driver, "_begin_sleep", lambda self, sleep, left_ms: real(self, sleep, (left_ms or 0) // 2)):
        yield


@planted("reminded")
def a_sleep_begins_anew_after_a_crash():
    def later(run, left):
        durations = sleeping_effects(run.machine)
        sleeps = (attrs.evolve(each, due_ms=each.due_ms + durations[each.intent.effect]) for each in left.sleeps)
        return attrs.evolve(left, sleeps=tuple(sleeps))

    with left_otherwise(later):
        yield


@planted("reminded")
def a_sleep_answers_after_it_was_cancelled():
    real = Driver._stop
    with patch.object(Driver, "_stop", lambda self, key: None if key in self._sleeps else real(self, key)):
        yield


@planted("reminded")
def a_sleep_answers_twice():
    real = Driver._receive

    async def receive(self, news):
        sleep = self._sleeps.get(news.intent.key) if news.is_wake_up else None
        await real(self, news)
        if sleep is not None:
            self._sleeps[sleep.intent.key] = sleep
            await real(self, news)

    with patch.object(Driver, "_receive", receive):
        yield


@planted("reminded")
def a_sleep_is_in_doubt():
    real = driver_module.resumption

    def doubting(run, left, session, **how):
        entry = real(run, left, session, **how)
        effects = {each.intent.key: "retry" for each in left.sleeps}
        return attrs.evolve(entry or session, effects=effects) if effects else entry

    with patch.object(driver_module, "resumption", doubting):
        yield


@planted("reminded")
def a_sent_event_comes_before_the_end_of_a_sleep():
    def earlier(left, machine, now_ms):
        found, timers = real(left, machine, now_ms)
        return tuple(news for news in found if not news.is_wake_up), timers

    real, begin = driver_module.earlier_news, Driver._begin_sleep
    with (
        patch.object(driver_module, "earlier_news", earlier),
        patch.object(Driver, "_begin_sleep", lambda self, sleep, left_ms: begin(self, sleep, left_ms or 0)),
    ):
        yield


@planted("reminded")
def a_sleep_brings_the_data_of_another():
    real, before = driver_module.wake_up, {}

    def other(machine, sleep):
        data = before.setdefault(sleep.intent.effect, sleep.data)
        return real(machine, attrs.evolve(sleep, data=data))

    with patch.object(driver_module, "wake_up", other):
        yield
