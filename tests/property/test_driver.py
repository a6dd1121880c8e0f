"""Driven runs: whatever policies and guards do, they end in order, are the fold of their ledger, and can be read back."""

import asyncio
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsa.declarations import OUTSIDE
from dsa.edge.binding import Bindings, effect_names
from dsa.edge.driver import Driver
from dsa.lang import loads
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.ledger import EventEntry, RefusalEntry, dump_line, load_lines
from dsa.runtime.policy.policies import Step, error_step, event_step
from dsa.runtime.run import begin, replay
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock
from dsa.testing.strategies import machines

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)
MOST_ENTRIES = 200

#: Two effects under way at once, over and over, with failures handled; random machines seldom get so far.
BUSY = """# busy
## Events
| event | from |
| - | - |
| go | outside |
| pause | outside |
| left_done | left |
| right_done | right |
## Effects
| effect | time limit | retries |
| - | - | - |
| left | 5s | 1 |
| right | | |
| log | | 1 |
## Guards
| guard | judges | verdicts |
| - | - | - |
| fair | go | passed, failed |
## Transitions
| source | event | if | effects | target |
| - | - | - | - | - |
| idle | go | fair.passed | left, right | working |
| idle | go | fair.failed | log | = |
| working | left_done | | left | = |
| working | right_done | | log, right | = |
| working | left.failed | | left | = |
| working | right.failed | | cancel left, right, left | working |
| working | pause | | cancel | idle |
| working | after 20s | | cancel left | = |
| * | after 50s | | cancel | idle |
"""
BUSY_MACHINES = (loads(BUSY), loads(BUSY.replace("| working | left.failed | | left | = |\n", "")))


class Whim(GuardInterface):
    """Says anything a guard may say, and at times what it may not."""

    def __init__(self, chance):
        self.chance = chance

    def validate(self, artifact, **dependencies):
        said = self.chance.choice([*["passed"] * 40, *["failed"] * 20, "fatal", "nothing", "raises"])
        if said == "raises":
            raise ConnectionError("no route")
        return None if said == "nothing" else GuardResult(said == "passed", "because", said == "fatal")


def odd_things(effect, answers, chance):
    """What a policy may return or raise: answers most of the time."""
    events = [event_step(effect, event) for event in answers]
    if chance.random() < 0.95:
        return [chance.choice(events)] if events else []
    return chance.choice(
        [
            [],
            None,
            "steps",
            [None],
            [*events, *events],
            [event_step(effect, "gossip")],
            [event_step(effect, "gossip", verdicts={"nobody": "passed"})],
            [Step("", effect, "event", {"event": next(iter(answers), None), "verdicts": ["odd"]})],
            [Step("", effect, "action_result", {"error": True})],
            [error_step(effect, "GONE", "it is gone")],
            OSError("disk full"),
            SystemExit(0),
            asyncio.CancelledError(),
        ]
    )


def policies(machine, clock, chance):
    async def policy(action, _context):
        if chance.random() < 0.3:
            await clock.sleep(chance.choice([1, 1, 1, 9]))
        await asyncio.sleep(0)
        result = odd_things(action.policy, machine.answers.get(action.policy, ()), chance)
        if isinstance(result, BaseException):
            raise result
        return result

    return {name: policy for name, _ in effect_names(machine)}


async def played(machine, chance):
    run, commands = begin(machine, "r")
    clock, written = StillClock(), []
    guards = {guard.name: Whim(chance) for guard in machine.guards}
    driver = Driver(
        run,
        Bindings(policies(machine, clock, chance), guards),
        MemoryArtifacts(),
        commands=commands,
        clock=clock,
        observe=lambda entries: written.extend(map(dump_line, entries)),
    )
    outside = [event.name for event in machine.events if event.origin == OUTSIDE]
    driving = asyncio.create_task(driver.drive())
    for _ in range(30):
        if driving.done() and driving.result().kind != "waiting":
            break
        if driving.done():
            driving = asyncio.create_task(driver.drive())
        if outside and chance.random() < 0.7:
            driver.send(Occurrence(chance.choice(outside), data={"n": chance.randint(0, 9)}))
        await clock.advance(chance.randint(0, 30))
        await clock.quiet()
        assert driving.done() or clock.sleeper_count, "it waits for what can never come"
        if len(driver.run.ledger) > MOST_ENTRIES:
            break
    driving.cancel()
    await asyncio.wait({driving})
    return driver.run, written, driving


def require_in_order(machine, chance):
    async def bounded():
        return await asyncio.wait_for(played(machine, chance), 60)

    run, written, driving = asyncio.run(bounded())
    assert driving.cancelled() or driving.exception() is None
    assert load_lines("\n".join(written)) == run.ledger
    assert replay(machine, run.ledger) == run
    return run


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(machines(claims=False), st.integers(0, 2**32))
def test_run_of_any_machine_is_the_fold_of_its_ledger_whatever_its_policies_do(machine, seed):
    require_in_order(machine, random.Random(seed))


def test_run_with_many_effects_at_once_is_the_fold_of_its_ledger():
    seen = set()
    for seed in range(60):
        run = require_in_order(BUSY_MACHINES[seed % 2], random.Random(seed))
        seen |= {entry.event for entry in run.ledger if isinstance(entry, EventEntry)}
        seen |= {entry.reason for entry in run.ledger if isinstance(entry, RefusalEntry)}
    assert seen >= {"left_done", "right_done", "left.failed", "right.failed", "after 20s", "after 50s", "late"}
