"""Several emissions of one effect: how many are performed side by side, in which order, and which can have begun when a run is cut off."""

import asyncio

import pytest
from hands import driver_of, finish, refusals
from results import results_of

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.lang import loads
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.ledger import EventEntry, ResumedEntry
from dsa.runtime.policy.policies import error_step, event_step, question_step
from dsa.runtime.run import replay
from dsa.runtime.status import status_of, unfinished_work
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock

ASKED = """# asked
## Variables
| variable | domain | initial |
| -------- | ------ | ------- |
| missing  | 0..9   | 0       |
## Events
| event | from    |
| ----- | ------- |
| go    | outside |
| stop  | outside |
| again | outside |
| said  | ask     |
## Effects
| effect | kind | in doubt | retries | time limit | at once | together |
| ------ | ---- | -------- | ------- | ---------- | ------- | -------- |
| ask    | {kind} | {in_doubt} | {retries} | {limit} | 5 | {together} |
## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| working |         |
| done    | final   |
## Transitions
| source  | event      | if              | update       | effects                   | target  |
| ------- | ---------- | --------------- | ------------ | ------------------------- | ------- |
| idle    | go         |                 |              | ask, ask, ask, ask        | working |
| working | said       | pending ask     |              |                           | =       |
| working | said       | not pending ask |              |                           | done    |
| working | ask.failed | pending ask     | missing += 1 |                           | =       |
| working | ask.failed | not pending ask | missing += 1 |                           | done    |
| working | stop       |                 |              | cancel ask                | idle    |
| working | again      |                 |              | cancel ask, ask, ask, ask | =       |
"""


def asked(together="2", retries="", limit="", kind="sensing", in_doubt="retry"):
    return loads(ASKED.format(together=together, retries=retries, limit=limit, kind=kind, in_doubt=in_doubt))


class Asker:
    """A policy that waits for the test: it records the keys under which it is at work, and the most at any one time."""

    def __init__(self):
        self.begun, self.under_way, self.most = [], {}, 0

    async def ask(self, action, _context):
        key = action.payload["key"].removeprefix("r/")
        self.begun.append(key)
        self.under_way[key] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.under_way))
        try:
            steps = await self.under_way[key]
        finally:
            del self.under_way[key]
        return steps

    def answer(self, key, step=None):
        self.under_way[key].set_result([step or event_step("ask", "said", data={"key": key})])


class Play:
    """A driver in a task, its clock and its policy."""

    def __init__(self, machine, driver=None):
        self.clock, self.asker = StillClock(), Asker()
        self.driver = driver or driver_of(machine, {"ask": self.asker.ask}, clock=self.clock)

    async def begin(self, *occurrences):
        self.task = asyncio.create_task(self.driver.drive(*occurrences))
        await self.clock.settle()

    async def answer(self, *keys, step=None):
        for key in keys:
            self.asker.answer(key, step)
            await self.clock.settle()

    async def kill(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        return self.driver.run


def played(work, machine):
    play = Play(machine)

    async def whole():
        await play.begin(Occurrence("go"))
        return await work(play)

    return finish(whole())


def test_column_together_limits_concurrency_and_the_rest_wait_in_key_order():
    async def work(play):
        assert (play.asker.begun, list(play.driver.run.keys)) == (["1/1", "1/2"], ["1/1", "1/2", "1/3", "1/4"])
        await play.answer("1/2")
        assert play.asker.begun == ["1/1", "1/2", "1/3"]
        await play.answer("1/3", "1/1", "1/4")
        rest = await play.task
        assert (rest.kind, play.asker.most, play.asker.begun[-1]) == ("finished", 2, "1/4")
        assert [entry.key for entry in rest.run.ledger if isinstance(entry, EventEntry)][1:] == [
            "1/2", "1/3", "1/1", "1/4",
        ]  # fmt: skip
        assert replay(rest.run.machine, rest.run.ledger) == rest.run

    played(work, asked())


def test_all_emissions_run_concurrently_where_the_column_is_empty():
    async def work(play):
        assert play.asker.begun == ["1/1", "1/2", "1/3", "1/4"]
        await play.kill()

    played(work, asked(together=""))


def test_time_limit_starts_with_the_work():
    async def work(play):
        await play.clock.advance(2)
        await play.clock.settle()
        assert [entry.key for entry in results_of(play.driver.run.ledger, "ask")] == []
        await play.answer("1/1")
        await play.clock.advance(2)
        await play.clock.settle()
        assert play.asker.begun == ["1/1", "1/2"], "the second has 3 s from here"
        await play.clock.advance(1)
        await play.clock.settle()
        assert play.asker.begun == ["1/1", "1/2", "1/3"]
        assert play.driver.run.values == {"missing": 1}
        await play.kill()

    played(work, asked(together="1", limit="3s"))


def test_retry_keeps_its_place():
    async def work(play):
        await play.answer("1/1", step=error_step("ask", "NO", "no"))
        assert play.asker.under_way == {}, "it waits before the next try"
        await play.clock.advance(1)
        await play.clock.settle()
        assert play.asker.begun == ["1/1", "1/1"]
        await play.answer("1/1")
        assert play.asker.begun == ["1/1", "1/1", "1/2"]
        await play.kill()

    played(work, asked(together="1", retries="1"))


def test_emission_cancelled_while_it_waits_is_never_started():
    async def work(play):
        play.driver.send(Occurrence("stop"))
        await play.clock.settle()
        rest = await play.task
        assert (rest.kind, play.asker.begun, dict(rest.run.keys)) == ("waiting", ["1/1", "1/2"], {})

    played(work, asked())


def test_new_emissions_take_the_places_of_those_that_the_same_row_cancels():
    async def work(play):
        play.driver.send(Occurrence("again"))
        await play.clock.settle()
        assert (play.asker.begun, play.asker.most) == (["1/1", "1/2", "2/1", "2/2"], 2)
        await play.answer("2/2", "2/1", "2/3")
        assert (await play.task).kind == "finished"

    played(work, asked())


def test_late_answer_of_a_cancelled_emission_is_refused_while_others_are_open():
    asker = Asker()

    async def stubborn(action, context):
        try:
            return await asker.ask(action, context)
        except asyncio.CancelledError:
            return [event_step("ask", "said", data="too late")]

    async def work():
        play = Play(None, driver_of(asked(together=""), {"ask": stubborn}))
        play.asker = asker
        await play.begin(Occurrence("go"))
        play.driver.send(Occurrence("again"))
        await play.clock.settle()
        assert refusals(play.driver.run) == ["late"] * 4
        assert list(play.driver.run.keys) == ["2/1", "2/2", "2/3"]
        await play.answer("2/3", "2/1", "2/2")
        rest = await play.task
        assert rest.kind == "finished"
        assert replay(rest.run.machine, rest.run.ledger) == rest.run

    finish(work())


def test_question_to_a_person_frees_its_place():
    async def work(play):
        await play.answer("1/1", step=question_step("ask", "how many?"))
        assert play.asker.begun == ["1/1", "1/2"]
        await play.answer("1/2", "1/3", "1/4")
        assert (await play.task).kind == "waiting"
        rest = await play.driver.drive(Occurrence("said"))
        assert rest.kind == "finished"

    played(work, asked(together="1"))


def test_unhandled_failure_stops_the_run_before_the_next_emission_begins():
    machine = loads(
        "\n".join(line for line in ASKED.splitlines() if "ask.failed" not in line).format(
            together="1", retries="", limit="", kind="sensing", in_doubt="retry"
        )
    )

    async def work(play):
        await play.answer("1/1", step=error_step("ask", "NO", "no"))
        assert ((await play.task).kind, play.asker.begun) == ("stopped", ["1/1"])

    played(work, machine)


class Log:
    """A journal that records what is durable."""

    def __init__(self):
        self.entries = []

    def __call__(self, entries):
        self.entries += entries


def test_result_is_durable_before_another_emission_begins_in_its_place():
    log, asker, seen = Log(), Asker(), []

    async def ask(action, context):
        seen.append((action.payload["key"], len(results_of_entries(log.entries))))
        return await asker.ask(action, context)

    def results_of_entries(entries):
        return [entry for entry in entries if type(entry).__name__ == "ResultEntry"]

    async def work():
        driver = driver_of(asked(together="1"), {"ask": ask}, observe=log)
        play = Play(None, driver)
        play.asker = asker
        await play.begin(Occurrence("go"))
        await play.answer("1/1", "1/2", "1/3", "1/4")
        assert (await play.task).kind == "finished"

    finish(work())
    assert seen == [("r/1/1", 0), ("r/1/2", 1), ("r/1/3", 2), ("r/1/4", 3)]


def after(answered, **columns):
    """Return a run that was cut off after these answers, and what was begun."""

    async def work(play):
        await play.answer(*answered)
        return await play.kill(), play.asker.begun

    return played(work, asked(**columns))


@pytest.mark.parametrize(
    ("together", "answered", "doubts"),
    [
        ("1", (), ["1/1"]),
        ("1", ("1/1",), ["1/2"]),
        ("2", (), ["1/1", "1/2"]),
        ("2", ("1/2",), ["1/1", "1/3"]),
        ("2", ("1/1", "1/2", "1/3"), ["1/4"]),
        ("3", ("1/3",), ["1/1", "1/2", "1/4"]),
        ("", (), ["1/1", "1/2", "1/3", "1/4"]),
    ],
)
def test_emission_that_was_not_started_is_not_in_doubt(together, answered, doubts):
    run, begun = after(answered, together=together, kind="actuator", in_doubt="ask")
    status = status_of(run)
    assert (status.kind, [intent.key for intent in status.doubts]) == ("in doubt", doubts)
    assert set(begun) == {*answered, *doubts}
    assert [each.intent.key for each in status.left.in_flight if not each.in_doubt] == [
        key for key in ("1/1", "1/2", "1/3", "1/4") if key not in begun
    ]


def test_resumed_run_starts_the_rest_in_order_and_records_only_doubts():
    run, _ = after(("1/2",))

    async def work():
        asker, clock = Asker(), StillClock()
        driver = Driver(run, Bindings({"ask": asker.ask}), MemoryArtifacts(), left=unfinished_work(run), clock=clock)
        play = Play(None, driver)
        play.asker = asker
        await play.begin()
        assert asker.begun == ["1/1", "1/3"]
        (resumed,) = [entry for entry in driver.run.ledger if isinstance(entry, ResumedEntry)]
        assert dict(resumed.effects) == {"1/1": "retry", "1/3": "retry"}
        await play.answer("1/3", "1/4", "1/1")
        rest = await play.task
        assert (rest.kind, asker.most, refusals(rest.run)) == ("finished", 2, [])
        assert replay(rest.run.machine, rest.run.ledger) == rest.run

    finish(work())
