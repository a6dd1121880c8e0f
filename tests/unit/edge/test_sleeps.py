"""Effects that sleep: when they answer, when they do not, and what a run waits for meanwhile, on a clock that only the test moves."""

import asyncio
from contextlib import asynccontextmanager

from hands import finish

import dsa
from dsa.edge.driver import Driver, News, earlier_news, in_order
from dsa.lang import loads
from dsa.runs.runs import Worker
from dsa.runs.setup import document_of
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.ledger import ChangeEntry, EventEntry, RefusalEntry, ResultEntry, dump_line, load_lines
from dsa.runtime.run import begin, rederive, replay
from dsa.runtime.status import status_of, timed_events, unfinished_work
from dsa.testing import ReplayedMachine, StillClock, play, tour

DAY_S, DAY_MS = 86_400, 86_400_000

REMINDERS = """# reminders

## Events
| event     | from      |
| --------- | --------- |
| asked     | outside   |
| paused    | outside   |
| stopped   | outside   |
| day_over  | wait_day  |
| week_over | wait_week |

## Effects
| effect    | is    | options   | at once |
| --------- | ----- | --------- | ------- |
| wait_day  | sleep | for = 24h | 3       |
| wait_week | sleep | for = 7d  |         |
| remind    |       |           |         |

## States
| state  | kind    |
| ------ | ------- |
| idle   | initial |
| open   |         |
| closed | final   |

## Transitions
| source | event     | effects             | target |
| ------ | --------- | ------------------- | ------ |
| idle   | asked     | wait_day, wait_week | open   |
| open   | asked     | wait_day            | =      |
| open   | day_over  | remind              | =      |
| open   | paused    | cancel wait_day     | =      |
| open   | week_over |                     | closed |
"""

#: Rows that replace the one that pauses: their effect takes long, and events that arrive meanwhile wait.
HELD_UP = """| open | stopped | cancel wait_day | = |
| open | paused | remind |"""


class Desk:
    """Runs of the machine in a place; `reminded` has the data with which it reminded, and when."""

    def __init__(self, where="memory:"):
        self.where, self.clock, self.reminded = where, StillClock(), []

    @property
    def bindings(self):
        async def remind(action, _context):
            self.reminded.append((action.payload["data"], self.clock.now_s()))
            return []

        return dsa.Bindings({"remind": remind})

    @asynccontextmanager
    async def open(self):
        async with dsa.open_runs(self.where, bindings=self.bindings, clock=self.clock) as runs:
            yield runs

    async def asked(self, runs, **more):
        run = await runs.start(loads(REMINDERS), bindings=self.bindings, **more)
        await runs.send(run.id, "asked", {"who": "ann"})
        return run


def events_of(run):
    return [(entry.event, entry.key, entry.at_ms) for entry in run.ledger if isinstance(entry, EventEntry)]


def test_sleep_answers_after_its_time_and_not_before():
    async def play():
        desk = Desk()
        async with desk.open() as runs:
            run = await desk.asked(runs)
            await desk.clock.advance(DAY_S - 0.001)
            assert desk.reminded == []
            await desk.clock.advance(0.001)
            await desk.clock.quiet()
            assert desk.reminded == [({"who": "ann"}, DAY_S)]
            assert events_of(run.run) == [("asked", None, 0), ("day_over", "1/1", DAY_MS)]

    finish(play())


def test_each_emission_has_its_own_time_and_the_data_of_its_own_event():
    async def play():
        desk = Desk()
        async with desk.open() as runs:
            run = await desk.asked(runs)
            await desk.clock.advance(3600)
            await runs.send(run.id, "asked", {"who": "bob"})
            await desk.clock.advance(DAY_S)
            await desk.clock.quiet()
            assert desk.reminded == [({"who": "ann"}, DAY_S), ({"who": "bob"}, DAY_S + 3600)]

    finish(play())


def test_sleeping_run_rests_as_waiting_with_the_earliest_deadline():
    async def play():
        desk = Desk()
        async with desk.open() as runs:
            run = await desk.asked(runs)
            rest = await run.rest_within(0)
            assert (rest.kind, rest.due_ms) == ("waiting", DAY_MS)
            assert set(rest.waits_for) == {"asked", "paused"}
            summary = runs.summary(run.id)
            assert (summary.status, summary.holder, summary.summary.timers) == (
                "waiting", None, ("day_over", "week_over"),
            )  # fmt: skip
            assert timed_events(run.run) == ("day_over", "week_over")
            assert status_of(run.run).kind == "waiting"
            assert [each.run for each in await runs.list(status="due", now_ms=DAY_MS - 1)] == []
            assert [each.run for each in await runs.list(status="due", now_ms=DAY_MS)] == [run.id]

    finish(play())


def test_interrupted_sleeping_run_is_left_alone_until_it_is_resumed():
    async def play():
        desk = Desk()
        async with desk.open() as runs:
            run = await desk.asked(runs)
            await runs.interrupt(run.id)
            assert runs.summary(run.id).status == "interrupted"
            await desk.clock.advance(2 * DAY_S)
            assert await runs.list(status="due", now_ms=desk.clock.wall_ms()) == ()
            await runs.resume(run.id)
            await desk.clock.quiet()
            assert desk.reminded == [({"who": "ann"}, 2 * DAY_S)]

    finish(play())


def test_cancelled_sleep_never_answers():
    async def play():
        desk = Desk()
        async with desk.open() as runs:
            run = await desk.asked(runs)
            await runs.send(run.id, "asked", {"who": "bob"})
            await runs.send(run.id, "paused")
            await desk.clock.advance(7 * DAY_S)
            rest = await run.rest()
            assert (rest.outcome, desk.reminded) == ("closed", [])
            assert [event for event, _, _ in events_of(run.run)] == ["asked", "asked", "paused", "week_over"]
            assert not [entry for entry in run.run.ledger if isinstance(entry, RefusalEntry)]

    finish(play())


def test_queued_end_of_a_sleep_is_dropped_by_a_cancel():
    """It is queued behind an event, and an effect without answers blocks the run."""

    async def play():
        clock, gate = StillClock(), asyncio.Event()

        async def slow(_action, _context):
            await gate.wait()
            return []

        machine = loads(REMINDERS.replace("| open   | paused    | cancel wait_day     |", HELD_UP))
        run, commands = begin(machine, "r")
        driver = Driver(run, dsa.Bindings({"remind": slow}), MemoryArtifacts(), commands=commands, clock=clock)
        driving = asyncio.create_task(driver.drive(dsa.Occurrence("asked")))
        await clock.settle()
        driver.send(dsa.Occurrence("paused"))
        driver.send(dsa.Occurrence("stopped"))
        await clock.advance(2 * DAY_S)
        gate.set()
        await clock.advance(5 * DAY_S)
        rest = await driving
        assert rest.outcome == "closed"
        assert [event for event, _, _ in events_of(rest.run)] == ["asked", "paused", "stopped", "week_over"]

    finish(play())


def test_sleep_that_ends_as_its_driver_is_cancelled_ends_once():
    class Gate(StillClock):
        opened = asyncio.Event()

        async def sleep(self, seconds):
            await (self.opened.wait() if seconds == DAY_S else super().sleep(seconds))

    async def play():
        clock, desk = Gate(), Desk()
        run, commands = begin(loads(REMINDERS), "r")
        driver = Driver(run, desk.bindings, MemoryArtifacts(), commands=commands, clock=clock)
        driving = asyncio.create_task(driver.drive(dsa.Occurrence("asked")))
        await clock.settle()
        clock.opened.set()
        await asyncio.sleep(0)  # the end of the sleep is queued, and not taken
        driving.cancel()
        await asyncio.wait({driving})
        await clock.advance(2 * DAY_S)
        rest = await driver.drive(through_timers=False)
        assert (rest.kind, len(desk.reminded)) == ("waiting", 1)

    finish(play())


def test_sleep_continues_after_a_restart_and_ends_at_the_same_time(tmp_path):
    async def play():
        desk = Desk(tmp_path)
        async with desk.open() as runs:
            run = await desk.asked(runs)
            await run.let_go()
        await desk.clock.advance(DAY_S / 2)
        async with desk.open() as runs:
            again = await runs.resume(run.id)
            await desk.clock.settle()
            await desk.clock.advance(DAY_S / 2)
            await desk.clock.quiet()
            assert desk.reminded == [({"who": "ann"}, DAY_S)]
            await again.let_go()
        await desk.clock.advance(10 * DAY_S)
        async with desk.open() as runs:
            assert [each.run for each in await runs.list(status="due", now_ms=desk.clock.wall_ms())] == [run.id]
            (taken,) = [each async for each in Worker(runs).take_up()]
            assert (taken.rest.outcome, taken.fault) == ("closed", "")

    finish(play())


def test_two_workers_end_a_sleep_once(tmp_path):
    async def play():
        desk = Desk(tmp_path)
        async with desk.open() as runs:
            for _ in range(3):
                await (await desk.asked(runs)).let_go()
        await desk.clock.advance(DAY_S + 1)

        async def work():
            async with desk.open() as runs:
                return [each async for each in Worker(runs).take_up()]

        taken = [each for worker in await asyncio.gather(work(), work()) for each in worker]
        assert (len(taken), {each.fault for each in taken}) == (3, {""})
        assert len(desk.reminded) == 3
        assert {each.rest.due_ms for each in taken} == {7 * DAY_MS}

    finish(play())


def left_of(*events, now_ms=0):
    """Return a run of the machine after events, each with its time, and the news for a process that resumes it."""
    run, _ = begin(loads(REMINDERS), "r")
    for event, at_ms in events:
        run, _ = run.feed(dsa.Occurrence(event, data=event), at_ms=at_ms)
    news, _ = earlier_news(unfinished_work(run), run.machine, now_ms)
    return run, news


def test_overdue_sleeps_end_in_the_order_of_their_deadlines():
    run, news = left_of(("asked", 0), ("asked", 6 * DAY_MS + 5), now_ms=8 * DAY_MS)
    assert [(each.occurrence.event, each.since_ms) for each in news] == [
        ("day_over", DAY_MS), ("week_over", 7 * DAY_MS), ("day_over", 7 * DAY_MS + 5),
    ]  # fmt: skip
    assert all(each.is_wake_up for each in news)
    assert run.sleeps == {"1/1": DAY_MS, "1/2": 7 * DAY_MS, "2/1": 7 * DAY_MS + 5}


def test_message_posted_before_the_end_of_a_sleep_comes_first():
    _, news = left_of(("asked", 0), now_ms=2 * DAY_MS)
    posted = [News(dsa.Occurrence("asked"), since_ms=since_ms) for since_ms in (DAY_MS - 1, DAY_MS, None)]
    assert [each.since_ms for each in in_order(news, posted)] == [DAY_MS - 1, DAY_MS, DAY_MS, None]


def test_replay_restores_the_deadlines():
    run, _ = left_of(("asked", 5), ("asked", 9))
    entries = load_lines("".join(f"{dump_line(entry)}\n" for entry in run.ledger))
    for again in (replay(run.machine, entries), rederive(run.machine, entries)):
        assert again.sleeps == run.sleeps == {"1/1": DAY_MS + 5, "1/2": 7 * DAY_MS + 5, "2/1": DAY_MS + 9}


def test_sleep_keeps_its_deadline_under_another_table():
    run, _ = left_of(("asked", 5))
    longer = loads(REMINDERS.replace("for = 24h", "for = 48h"))
    assert run.under(longer, ChangeEntry("m", "", "", at_ms=9)).sleeps == run.sleeps
    awake = loads(REMINDERS.replace("| wait_day  | sleep | for = 24h |", "| wait_day  |       |           |"))
    changed = run.under(awake, ChangeEntry("m", "", "", at_ms=9))
    assert changed.sleeps == {"1/2": run.sleeps["1/2"]}
    assert changed.under(run.machine, ChangeEntry("m", "", "", at_ms=11)).sleeps == {**run.sleeps, "1/1": DAY_MS + 11}


def test_sleep_does_not_count_in_any_budget():
    async def play():
        desk = Desk()
        async with desk.open() as runs:
            options = dsa.Options(budget=("calls=0", "seconds=0"))
            run = await desk.asked(runs, options=options)
            await desk.clock.advance(7 * DAY_S)
            assert (await run.rest()).outcome == "closed"
            results = [entry for entry in run.run.ledger if isinstance(entry, ResultEntry)]
            assert {entry.seconds for entry in results if entry.key.startswith("1/")} == {0}

    finish(play())


def test_policy_for_a_sleep_is_reported_and_not_used():
    async def unused(_action, _context):
        raise AssertionError("a sleep has no policy")

    with dsa.open_runs("memory:") as runs:
        policies = dict.fromkeys(("wait_day", "wait_week", "remind"), unused)
        setup = runs.setup(document_of(loads(REMINDERS)), dsa.Options(dsa.Bindings(policies)))
    assert [note.partition(",")[0] for note in setup.binding.notes] == [
        "the bindings defines the effect 'wait_day'",
        "the bindings defines the effect 'wait_week'",
    ]
    assert set(setup.binding.effects) == {"remind"}


def test_walk_controls_the_answers_of_sleeps():
    machine = loads(REMINDERS)
    play(machine, lambda: ReplayedMachine(machine), tour(machine))
