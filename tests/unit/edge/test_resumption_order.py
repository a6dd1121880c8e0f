"""Resumed runs: what is due comes first, and an effect that was refused for its budget was never started."""

import asyncio

import pytest

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver, earlier_news
from dsa.lang import loads
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.costs import read_limit
from dsa.runtime.ledger import EventEntry, ResultEntry, ResumedEntry
from dsa.runtime.policy.policies import error_step, event_step
from dsa.runtime.run import begin, replay
from dsa.runtime.status import UnfinishedWork, status_of, unfinished_work
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock

SALE = """# sale

## Events
| event    | from    |
| -------- | ------- |
| go       | outside |
| approved | outside |
| paid     | pay     |

## Effects
| effect | kind   | retries   | time limit | in doubt   |
| ------ | ------ | --------- | ---------- | ---------- |
| pay    | {kind} | {retries} | {limit}    | {in_doubt} |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| asking    |         |
| paying    |         |
| succeeded | final   |
| late      | final   |
| failed    | final   |

## Transitions
| source | event     | effects | target    |
| ------ | --------- | ------- | --------- |
| idle   | go        |         | asking    |
| asking | approved  | pay     | paying    |
| asking | after 4s  |         | late      |
| asking | after 6s  |         | failed    |
| paying | paid      |         | succeeded |
| paying | after 10s |         | late      |
{more}"""


def sale(kind="actuator", retries=1, limit="", in_doubt="", more=""):
    return loads(SALE.format(kind=kind, retries=retries, limit=limit, in_doubt=in_doubt, more=more))


class Pay:
    """A policy that counts its calls and returns the results in order."""

    def __init__(self, *results):
        self.results, self.calls = list(results), 0

    async def __call__(self, _action, _context):
        self.calls += 1
        return self.results.pop(0) if self.results else [event_step("pay", "paid")]


def driven(run, pay, *sent, commands=(), left=None, limits=(), clock=None, until_s=0.0):
    """Drive a run until it rests or this much time has passed; return the run."""
    clock = clock or StillClock()

    async def play():
        driver = Driver(
            run, Bindings({"pay": pay}), MemoryArtifacts(), commands=commands, left=left, limits=limits, clock=clock
        )
        driving = asyncio.create_task(driver.drive(*map(Occurrence, sent)))
        await clock.quiet()
        await clock.advance(until_s)
        await clock.quiet()
        driving.cancel()
        await asyncio.wait({driving})
        return driver.run

    ended = asyncio.run(play())
    assert replay(ended.machine, ended.ledger) == ended
    return ended


def begun(machine, pay, *sent, **about):
    run, commands = begin(machine, "r")
    return driven(run, pay, *sent, commands=commands, **about)


def taken_up(run, pay, *sent, **about):
    return driven(run, pay, *sent, left=unfinished_work(run), **about)


def events(run):
    return [entry.event for entry in run.ledger if isinstance(entry, EventEntry)]


# -- timers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("later_s", "outcome"), [(3.9, "succeeded"), (4.001, "late"), (5.0, "late"), (100.0, "late")])
def test_approval_after_its_deadline_is_refused_even_if_no_process_ran(later_s, outcome):
    clock, pay = StillClock(), Pay()
    run = begun(sale(), pay, "go", clock=clock)
    asyncio.run(clock.advance(later_s))
    run = taken_up(run, pay, "approved", clock=clock)
    assert (run.outcome, pay.calls) == (outcome, int(outcome == "succeeded"))
    assert events(run)[1] == ("approved" if outcome == "succeeded" else "after 4s")


def test_overdue_timers_fire_in_the_order_they_were_due():
    clock = StillClock()
    run = begun(sale(), Pay(), "go", clock=clock)
    asyncio.run(clock.advance(100))
    assert events(taken_up(run, Pay(), clock=clock)) == ["go", "after 4s"]


def test_effect_past_its_deadline_is_not_started_again():
    clock, forever = StillClock(), asyncio.Event()

    class Hanging(Pay):
        async def __call__(self, action, context):
            await super().__call__(action, context)
            await forever.wait()

    run = begun(sale("sensing"), Hanging(), "go", "approved", clock=clock)
    in_time, late = Pay(), Pay()
    assert taken_up(run, in_time, clock=clock).outcome == "succeeded"
    asyncio.run(clock.advance(11))
    ended = taken_up(run, late, clock=clock)
    assert (in_time.calls, late.calls, ended.outcome) == (1, 0, "late")
    assert [entry.effects for entry in ended.ledger if isinstance(entry, ResumedEntry)] == [(("2/1", "retry"),)]


# -- budgets ----------------------------------------------------------------------------------------------------------


def refused(machine, calls=0, **about):
    return begun(
        machine, about.pop("pay", Pay()), "go", "approved", limits=[read_limit(f"pay.calls={calls}", ["pay"])], **about
    )


@pytest.mark.parametrize("retries", [0, 1, 5])
@pytest.mark.parametrize("kind", ["actuator", "sensing"])
def test_effect_refused_by_a_budget_is_not_in_doubt(kind, retries):
    run = refused(sale(kind, retries))
    how = status_of(run)
    assert (how.kind, how.failure) == (
        "stopped",
        "pay 2/1 (line 29) failed: the budget is spent: at most 0 calls of pay",
    )
    pay = Pay()
    ended = taken_up(run, pay)
    assert (ended.outcome, pay.calls) == ("succeeded", 1)


def test_budget_refusal_does_not_use_up_a_try():
    fault = [error_step("pay", "DOWN", "down")]
    run = refused(sale("sensing", 2), pay=Pay())
    pay = Pay(fault, fault)
    clock = StillClock()
    assert taken_up(run, pay, clock=clock, until_s=5.0).outcome == "succeeded"
    assert pay.calls == 3


def test_effect_cut_off_after_a_refusal_is_in_doubt():
    run = refused(sale())

    class Cut(Pay):
        async def __call__(self, action, context):
            await asyncio.Event().wait()

    cut = taken_up(run, Cut())
    assert isinstance(cut.ledger[-1], ResumedEntry)
    assert status_of(cut).kind == "in doubt"


def test_row_for_the_failure_is_taken_after_resuming_a_refused_run():
    machine = sale(more="| paying | pay.failed |         | failed    |\n")
    run = refused(machine)
    assert run.outcome == "failed"
    at = next(n for n, entry in enumerate(run.ledger) if isinstance(entry, ResultEntry))
    cut = replay(machine, run.ledger[: at + 1])
    pay = Pay()
    assert (taken_up(cut, pay).outcome, pay.calls) == ("failed", 0)


# -- time limits ------------------------------------------------------------------------------------------------------


class Slow(Pay):
    """A policy that does its work, but takes too long in its first calls."""

    def __init__(self, times):
        super().__init__()
        self.times = times

    async def __call__(self, action, context):
        await super().__call__(action, context)
        if self.calls <= self.times:
            await asyncio.Event().wait()
        return [event_step("pay", "paid")]


def limited(in_doubt, more=""):
    return sale(retries=2, limit="1s", in_doubt=in_doubt, more=more)


@pytest.mark.parametrize("in_doubt", ["", "ask", "fail"])
def test_effect_that_may_have_happened_is_not_retried_automatically(in_doubt):
    slow = Slow(1)
    run = begun(limited(in_doubt), slow, "go", "approved", until_s=9.0)
    assert (slow.calls, run.configuration.state) == (1, "paying")
    how = status_of(run)
    assert how.kind == ("stopped" if in_doubt == "fail" else "in doubt")
    pay = Pay()
    assert driven(run, pay, left=unfinished_work(run)).outcome == ("succeeded" if in_doubt == "fail" else "paying")
    assert pay.calls == int(in_doubt == "fail")  # resuming retries a failure; a doubt needs the decision of a person


def test_time_limit_is_retried_where_doubts_are_retried():
    slow = Slow(2)
    run = begun(limited("retry"), slow, "go", "approved", until_s=9.0)
    assert (slow.calls, run.outcome) == (3, "succeeded")


def test_row_for_the_failure_handles_a_time_limit():
    slow = Slow(1)
    run = begun(limited("ask", "| paying | pay.failed |         | failed    |\n"), slow, "go", "approved", until_s=2.0)
    assert (slow.calls, run.outcome) == (1, "failed")


# -- in which order -----------------------------------------------------------------------------------------------------


def test_timers_due_at_once_fire_in_the_order_they_were_started():
    timers = {("z", "after 2s"): 5, ("a", "after 1s"): 5, ("m", "after 3s"): 4, ("b", "after 9s"): 9}
    earlier, armed = earlier_news(UnfinishedWork(timers=timers), sale(), 6)
    assert [news.occurrence.source for news in earlier] == ["m", "z", "a"]
    assert armed == {("b", "after 9s"): 3}
