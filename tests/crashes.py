"""Runs that are cut off and go on: a journal that breaks where a test says, and the one who resumes until nothing breaks.

A crash is an exception at the journal, before or after entries became durable; what the driver had in memory is thrown away. Policies note
each time they are called, so that tests need not believe the ledger.
"""

import asyncio
import random
from collections import Counter

from dsa.edge.binding import Bindings, effect_names
from dsa.edge.driver import Driver
from dsa.runs.runs import record_decisions
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.ledger import EventEntry, ResultEntry
from dsa.runtime.policy.policies import error_step, event_step
from dsa.runtime.run import begin, replay
from dsa.runtime.run_store import NewJournal
from dsa.runtime.status import effect_declaration, unfinished_work
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock

RUN = "r"
MOST_PERFORMED, MOST_RINGS = 60, 6


class Crash(BaseException):
    """The process ends here."""


class Breaking:
    """A journal that breaks at the n-th append from now on, `late`: after what was appended became durable."""

    def __init__(self, journal, countdown, *, late):
        self.journal, self.countdown, self.late, self.is_dead = journal, countdown, late, False
        self.run, self.epoch, self.head = RUN, 0, b""

    def append(self, entries, *rest, **options):
        if self.is_dead:
            raise Crash
        if not entries:
            return
        self.countdown -= 1
        self.is_dead = self.countdown == 0
        if self.is_dead and not self.late:
            raise Crash
        self.journal.append(entries, *rest, **options)
        if self.is_dead:
            raise Crash

    def release(self, _summary=None):
        """A process that ends releases nothing."""
        return True


class World:
    """Where effects happen: counts them by key, and answers by a rule of key and try.

    No failure stops a run: resuming a run that has stopped means trying again.
    """

    def __init__(self, machine, store, answer):
        self.machine, self.store, self.answer = machine, store, answer
        self.performed = Counter()
        self.is_cut = False  # before all that can happen had happened

    @property
    def is_tired(self):
        """So much was performed that the run may never rest: then nothing answers any more."""
        return self.performed.total() >= MOST_PERFORMED

    def policies(self):
        return {name: self.perform for name, _ in effect_names(self.machine)}

    def results(self, key):
        entries = self.store.read(RUN).entries
        return [entry for entry in entries if isinstance(entry, ResultEntry) and entry.key == key]

    async def perform(self, action, _context):
        key = action.payload["key"].removeprefix(f"{RUN}/")
        assert all(result.has_failed for result in self.results(key)), f"{key} has a result and is performed again"
        if self.is_tired:
            await asyncio.get_running_loop().create_future()
        self.performed[key] += 1
        await asyncio.sleep(0)
        tries, effect = len(self.results(key)), action.policy
        again = tries < (effect_declaration(self.machine, effect).retries or 0)
        events = sorted(self.machine.answers.get(effect, ()))
        return self.answer(key, tries, events, may_fail=again or effect in self.machine.failures_handled)


def saying(seed):
    """Answer by chance, but the same for the same key and try."""

    def answer(key, tries, events, *, may_fail):
        chance = random.Random(f"{seed} {RUN}/{key} {tries}")
        if may_fail and chance.random() < 0.15:
            return [error_step("", "NO", "it failed")]
        return [event_step("", chance.choice(events), data={"key": key})] if events else []

    return answer


class Constant(GuardInterface):
    """Says the same of the same artifact."""

    def __init__(self, seed, outcomes, *, blocks=True):
        self.seed, self.outcomes, self.blocks = seed, outcomes, blocks

    def validate(self, artifact, **dependencies):
        said = random.Random(f"{self.seed} {artifact.content}").choice(self.outcomes)
        return GuardResult(said == "passed", "because", said == "fatal")


async def live(machine, sent, world, guards, crashes):
    """Send events one by one whenever the run waits, and crash as told; return what was acknowledged.

    `crashes` gives for each life how many appends it lasts, and whether it breaks after or before the last one became durable.
    """
    clock, lives, acknowledged = StillClock(), iter(crashes), []
    binding = Bindings(world.policies(), guards)
    while True:
        try:
            driver = _alive(machine, world.store, binding, clock, next(lives, (0, False)), acknowledged)
            await _played(driver, sent, clock, world)
        except Crash:
            continue
        return acknowledged


async def _played(driver, sent, clock, world):
    """Send what is next whenever nothing goes on, then let some timers ring. What never became durable is sent again."""
    driving, told = asyncio.create_task(driver.drive()), set()
    try:
        while not world.is_tired:
            await clock.quiet()
            if driving.done():
                world.is_cut |= driving.result().kind == "stopped"
                if driving.result().kind != "waiting":
                    return
                driving = asyncio.create_task(driver.drive())
            events = [entry for entry in driver.run.ledger if isinstance(entry, EventEntry)]
            number = sum(isinstance(event.data, dict) and "sent" in event.data for event in events)
            if number < len(sent) and number not in told:
                told.add(number)
                given = sent[number]
                driver.send(Occurrence(given.event, given.verdicts, data={"sent": number}))
            elif clock.sleeper_count and sum(event.source is not None for event in events) < MOST_RINGS:
                await clock.advance(clock.next_s)
            else:
                world.is_cut |= clock.sleeper_count > 0
                return
    finally:
        driving.cancel()
        await asyncio.wait({driving})
        if not driving.cancelled():
            driving.exception()


def _alive(machine, store, binding, clock, life, acknowledged):
    """Begin the run, or take it up where it was cut off, where all that is in doubt is performed again; return its driver."""
    countdown, late = life
    if RUN not in store.runs():
        run, commands = begin(machine, RUN)
        journal = Breaking(NewJournal(store, RUN, ""), countdown, late=late)
        return Driver(
            run,
            binding,
            MemoryArtifacts(),
            commands=commands,
            journal=journal,
            clock=clock,
            observe=acknowledged.extend,
        )
    held, recorded = store.hold(RUN, take=True)
    assert list(recorded.entries)[: len(acknowledged)] == acknowledged, "what was acknowledged is lost"
    acknowledged.clear()
    run = replay(machine, recorded.entries)
    journal = Breaking(held, countdown, late=late)
    doubted = {
        flying.intent.key: "retry"
        for flying in unfinished_work(run).in_flight
        if flying.in_doubt and not flying.decisions
    }
    known, run = len(run.ledger), record_decisions(run, doubted, {}, clock.wall_ms())
    journal.append(run.ledger[known:])
    left = unfinished_work(run)
    return Driver(run, binding, MemoryArtifacts(), left=left, journal=journal, clock=clock, observe=acknowledged.extend)
