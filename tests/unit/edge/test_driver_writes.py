"""Writes of the driver: one append for the result of an effect and all that follows, and none too late."""

import asyncio
import threading
from itertools import chain

import pytest
from each_row import each_row
from hands import finish
from results import results_of

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.lang import loads
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from dsa.runtime.costs import BudgetLimit
from dsa.runtime.ledger import ArtifactEntry, EffectEntry, Intents, ResultEntry, to_json
from dsa.runtime.policy.policies import answering, event_step
from dsa.runtime.run import begin
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock

TABLE = """# writes
## Events
| event | from |
| - | - |
| go | outside |
| asked | outside |
| made | make |
| checked | check |
## Guards
| guard | judges |
| - | - |
| fine | asked |
## Transitions
| source | event | if | effects | target |
| - | - | - | - | - |
| idle | go | | make | making |
| making | made | | check, log | checking |
| making | asked | fine.passed | | asking |
| making | asked | else | | = |
| asking | made | | | done |
| checking | checked | | | done |
## States
| state | kind |
| - | - |
| idle | initial |
| making | |
| asking | |
| checking | |
| done | final |
"""
MACHINE = loads(TABLE)
LIMITED = loads(f"""{TABLE}
## Effects
| effect | time limit |
| - | - |
| make | 1h |
| check | 1h |
| log | |
""")


class Writes:
    """A journal that records which entries were written together."""

    run, epoch = "r", 1

    def __init__(self):
        self.appends, self.intents = [], Intents()

    def append(self, entries, summary=None, outcomes=()):
        self.appends.append([f"{to_json(entry)['kind']} {self._effect(entry)}".strip() for entry in entries])

    def _effect(self, entry):
        self.intents.take(entry)
        return self.intents.effect(entry.key) if isinstance(entry, EffectEntry | ResultEntry) else ""

    def entries(self, after=0):
        return list(chain.from_iterable(self.appends[after:]))

    def release(self):
        """Do nothing: there is no other writer."""


class Slow(GuardInterface):
    """Passes once its gate opens; until then it blocks its thread."""

    def __init__(self, gate):
        self._gate = gate

    def validate(self, _artifact, **_dependencies):
        self._gate.wait(10)
        return GuardResult(passed=True)


def driver_of(effects, guards=None, machine=MACHINE):
    async def log(_action, _context):
        return []

    run, commands = begin(machine, "r")
    writes = Writes()
    binding = Bindings({"log": log, **effects}, guards or {})
    return Driver(run, binding, MemoryArtifacts(), commands=commands, journal=writes, clock=StillClock()), writes


def answer(event, *, is_eager, waits=0, records=False):
    @answering(event, is_eager=is_eager)
    async def policy(action, context):
        for _ in range(waits):
            await asyncio.sleep(0)
        if records:
            text = context.artifacts.store(Artifact("a"))
            context.record(ArtifactEntry(action.payload["key"], "", 1, text.artifact_id, text.content_digest))
        return [event_step(action.policy, event)]

    return policy


@each_row("is_eager", [False, True])
@each_row("waits", [0, 1, 5])
@each_row("machine", [MACHINE, LIMITED], ids=["unlimited", "limited"])
def test_result_of_an_effect_is_written_with_what_follows(machine, is_eager, waits):
    effects = {
        name: answer(event, is_eager=is_eager, waits=waits) for name, event in (("make", "made"), ("check", "checked"))
    }
    driver, writes = driver_of(effects, machine=machine)
    assert finish(driver.drive(Occurrence("go"))).kind == "finished"
    assert writes.appends[:2] == [
        ["machine", "event", "row", "effect make"],
        ["result make", "event", "row", "effect check", "effect log"],
    ]
    assert sorted(writes.entries(after=2)) == ["event", "result check", "result log", "row"]


@each_row("is_eager", [False, True])
@each_row("waits", [0, 1, 5])
@each_row("machine", [MACHINE, LIMITED], ids=["unlimited", "limited"])
def test_entries_of_a_policy_are_written_with_its_result(machine, is_eager, waits):
    effects = {
        name: answer(event, is_eager=is_eager, waits=waits, records=True)
        for name, event in (("make", "made"), ("check", "checked"))
    }
    driver, writes = driver_of(effects, machine=machine)
    rest = finish(driver.drive(Occurrence("go")))
    assert rest.kind == "finished", rest.failure
    for effect in effects:
        (together,) = [entries for entries in writes.appends if f"result {effect}" in entries]
        assert together[together.index(f"result {effect}") - 1] == "artifact"


@pytest.mark.parametrize("is_eager", [False, True])
def test_effect_is_written_before_it_begins(is_eager):
    begun = []

    def watched(event):
        policy = answer(event, is_eager=is_eager)

        @answering(event, is_eager=is_eager)
        async def policy_watched(action, context):
            begun.append((action.policy, writes.entries()))
            return await policy(action, context)

        return policy_watched

    driver, writes = driver_of({"make": watched("made"), "check": watched("checked")})
    finish(driver.drive(Occurrence("go")))
    assert [name for name, _ in begun] == ["make", "check"]
    for name, written in begun:
        assert f"effect {name}" in written
    assert "result make" in begun[1][1]


PAIR = loads("""# pair
## Events
| event | from |
| - | - |
| go | outside |
| made | make |
| checked | check |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | make, check | both |
| both | made | | = |
| both | checked | | done |
## States
| state | kind |
| - | - |
| idle | initial |
| both | |
| done | final |
""")


def test_result_is_written_before_the_next_effect_of_the_row_begins():
    written = []

    @answering("checked")
    async def check(action, _context):
        written.extend(writes.entries())
        return [event_step(action.policy, "checked")]

    driver, writes = driver_of({"make": answer("made", is_eager=True), "check": check}, machine=PAIR)
    assert finish(driver.drive(Occurrence("go"))).kind == "finished"
    assert "result make" in written


def test_result_is_written_at_once_while_another_effect_is_pending():
    async def play():
        gate, seen = asyncio.Event(), []

        async def log(_action, _context):
            await gate.wait()
            return []

        driver, writes = driver_of(
            {"make": answer("made", is_eager=True), "check": answer("checked", is_eager=False, waits=3), "log": log}
        )
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        for _ in range(20):
            await asyncio.sleep(0)
        seen = list(writes.appends)
        gate.set()
        await driving
        return seen

    assert finish(play())[2:] == [["result check"]]


def test_result_is_written_at_once_while_a_guard_is_running():
    async def play():
        gate, go_on = threading.Event(), asyncio.Event()

        async def make(action, _context):
            await go_on.wait()
            return [event_step(action.policy, "made")]

        driver, writes = driver_of({"make": make, "check": answer("checked", is_eager=False)}, {"fine": Slow(gate)})
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await asyncio.sleep(0.01)
        driver.send(Occurrence("asked"))
        await asyncio.sleep(0.01)
        go_on.set()
        await asyncio.sleep(0.01)
        seen = list(writes.appends)
        gate.set()
        assert (await driving).run.outcome == "done"
        return seen

    assert finish(play())[1:] == [["result make"]]


def test_result_is_written_when_the_drive_is_cancelled():
    async def play():
        driver, writes = driver_of(
            {"make": answer("made", is_eager=False, waits=2), "check": answer("checked", is_eager=False)}
        )
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        while not any(isinstance(entry, ResultEntry) for entry in driver.run.ledger):  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0)
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)
        return writes.entries()

    assert "result make" in finish(play())


# -- eager policies -----------------------------------------------------------------------------------------------------


def test_eager_policy_begins_in_the_driver_task_and_continues_in_its_own_task():
    tasks = []

    @answering("made", is_eager=True)
    async def make(action, _context):
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)
        tasks.append(asyncio.current_task())
        return [event_step(action.policy, "made")]

    async def play():
        driver, _ = driver_of({"make": make, "check": answer("checked", is_eager=True)})
        await driver.drive(Occurrence("go"))
        return asyncio.current_task()

    mine = finish(play())
    assert tasks[0] is mine
    assert tasks[1] is not mine


@pytest.mark.parametrize("waits", [0, 3])
def test_error_of_an_eager_policy_is_its_failure(waits):
    @answering("made", is_eager=True)
    async def make(_action, _context):
        for _ in range(waits):
            await asyncio.sleep(0)
        raise OSError("no ink")

    driver, writes = driver_of({"make": make, "check": answer("checked", is_eager=True)})
    rest = finish(driver.drive(Occurrence("go")))
    assert (rest.kind, rest.failure.code, rest.failure.message) == ("stopped", "OSError", "no ink")
    assert "result make" in writes.entries()


def test_eager_policy_that_waits_can_be_cancelled():
    ended = []

    @answering("made", is_eager=True)
    async def make(_action, _context):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def play():
        driver, _ = driver_of({"make": make, "check": answer("checked", is_eager=True)})
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await asyncio.sleep(0.01)
        assert any(isinstance(entry, EffectEntry) for entry in driver.run.ledger)
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)

    finish(play())
    assert ended == ["cancelled"]


ROUND = loads("""# round
## Events
| event | from |
| - | - |
| go | outside |
| more | turn |
| enough | turn |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | turn | turning |
| turning | more | turn | = |
| turning | enough | | done |
## States
| state | kind |
| - | - |
| idle | initial |
| turning | |
| done | final |
""")


def test_run_that_never_waits_still_lets_other_tasks_run():
    """A run that never waits must not keep the event loop to itself: it could not be stopped."""
    turns, stopped = [], []

    @answering("more", "enough", is_eager=True)
    async def turn(action, _context):
        turns.append(len(stopped))
        return [event_step(action.policy, "enough" if stopped or len(turns) > 2_000 else "more")]

    async def stop():
        stopped.append(True)

    async def play():
        run, commands = begin(ROUND, "r")
        driver = Driver(run, Bindings({"turn": turn}), MemoryArtifacts(), commands=commands)
        rest, _ = await asyncio.gather(driver.drive(Occurrence("go")), stop())
        return rest

    assert finish(play()).run.outcome == "done"
    assert turns[-1] == 1


BOTH = loads("""# both
## Events
| event | from |
| - | - |
| go | outside |
| first_done | first |
| second_done | second |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | first, second | working |
| working | first_done, second_done, first.failed, second.failed | | = |
| working | go | | = |
""")


def test_call_counts_in_the_budget_before_it_is_written():
    """The first effect ends, and is not written yet, in the moment before the second one begins."""
    effects = {
        "first": answer("first_done", is_eager=False, waits=1),
        "second": answer("second_done", is_eager=False),
    }
    run, commands = begin(BOTH, "r")
    limits = [BudgetLimit("calls", 1)]
    driver = Driver(run, Bindings(effects), MemoryArtifacts(), commands=commands, limits=limits, clock=StillClock())
    rest = asyncio.run(driver.drive(Occurrence("go")))
    codes = {
        effect: [step["payload"].get("code") for entry in results_of(rest.run.ledger, effect) for step in entry.steps]
        for effect in ("first", "second")
    }
    assert codes == {"first": [None], "second": ["BUDGET"]}
