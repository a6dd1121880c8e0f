"""The driver with real policies, real guards objects and the real table; only what is outside follows a list."""

import asyncio
import threading

import pytest

from dsa.edge.binding import Binding
from dsa.edge.driver import Driver
from dsa.errors import OccurrenceError
from dsa.lang import loads
from dsa.meaning import Occurrence
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import GuardInterface, GuardResult
from dsa.runtime.ledger import (
    ArtifactEntry,
    EventEntry,
    IntentEntry,
    RefusalEntry,
    ResultEntry,
    VerdictEntry,
)
from dsa.runtime.policies import Step, error_step, event_step
from dsa.runtime.run import begin, replay
from dsa.testing.doubles import StillClock, Texts, Verdicts
from machines.dual_state.bindings import effects

TWO_AT_ONCE = loads("""# two_at_once
## Events
| event | from |
| - | - |
| go | outside |
| stop | outside |
| left_done | left |
| right_done | right |
## Effects
| effect | time limit |
| - | - |
| left | |
| right | 3s |
| log | |
| tidy | |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | log, left, tidy, right | working |
| working | left_done | | = |
| working | right_done | | half |
| half | left_done | | done |
| working | stop | cancel left | stopping |
| stopping | right_done | | done |
| working | right.failed | cancel left | idle |
| working | after 10s | | gone |
| idle | after 5s | log | bored |
| bored | stop | | done |
## States
| state | kind |
| - | - |
| idle | initial |
| bored | |
| working | |
| half | |
| stopping | |
| done | final |
| gone | final |
""")


class Hands:
    """Policies for the machine above that wait until the test lets them go on, and say what they did."""

    def __init__(self):
        self.log = []
        self.gates = {name: asyncio.Event() for name in ("left", "right")}

    def effects(self, **others):
        return {"left": self.slow, "right": self.slow, "log": self.quick, "tidy": self.quick, **others}

    async def slow(self, action, _context):
        self.log.append(f"{action.policy} starts")
        try:
            await self.gates[action.policy].wait()
        except asyncio.CancelledError:
            self.log.append(f"{action.policy} cancelled")
            raise
        self.log.append(f"{action.policy} ends")
        return [event_step(action.policy, f"{action.policy}_done")]

    async def quick(self, action, _context):
        self.log.append(f"{action.policy} starts")
        await asyncio.sleep(0)
        self.log.append(f"{action.policy} ends")
        return []


def finish(playing):
    """Run to the end; what hangs fails."""

    async def bounded():
        return await asyncio.wait_for(playing, 20)

    return asyncio.run(bounded())


def driver_of(machine, effects_, guards=None, generators=None, clock=None, observe=lambda _entry: None):
    run, commands = begin(machine, "r")
    binding = Binding(effects_, guards or {}, generators or {})
    return Driver(run, binding, MemoryArtifacts(), commands=commands, clock=clock or StillClock(), observe=observe)


def refusals(run):
    return [entry.reason for entry in run.ledger if isinstance(entry, RefusalEntry)]


def test_one_without_answers_completes_before_the_next_starts_and_two_with_answers_run_at_once():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        assert hands.log == ["log starts", "log ends", "left starts", "tidy starts", "tidy ends", "right starts"]
        hands.gates["right"].set()
        await clock.settle()
        assert driver.run.configuration.state == "half"
        hands.gates["left"].set()
        rest = await driving
        assert (rest.kind, rest.run.outcome) == ("finished", "done")
        assert replay(TWO_AT_ONCE, rest.run.ledger) == rest.run

    finish(play())


def test_cancel_stops_the_task_and_the_other_one_goes_on():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        driver.send(Occurrence("stop"))
        await clock.settle()
        assert hands.log[-1] == "left cancelled"
        hands.gates["left"].set()
        hands.gates["right"].set()
        rest = await driving
        assert rest.run.outcome == "done"
        assert "left ends" not in hands.log

    finish(play())


def test_a_final_state_cancels_what_is_under_way():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(right=hands.slow), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        driver.send(Occurrence("stop"))
        hands.gates["right"].set()
        rest = await driving
        assert rest.run.outcome == "done"
        assert "left cancelled" in hands.log

    finish(play())


def test_an_answer_that_comes_in_spite_of_cancelling_is_late_and_recorded():
    async def stubborn(action, _context):
        """Do not let it be cancelled."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return [event_step(action.policy, "left_done")]

    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(left=stubborn), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        driver.send(Occurrence("stop"))
        await clock.settle()
        assert refusals(driver.run) == ["late"]
        hands.gates["right"].set()
        rest = await driving
        assert rest.run.outcome == "done"
        assert replay(TWO_AT_ONCE, rest.run.ledger) == rest.run

    finish(play())


def test_a_timer_fires_when_its_time_has_come_and_not_before():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive())
        await clock.advance(4.9)
        assert driver.run.configuration.state == "idle"
        await clock.advance(0.2)
        rest = await driving
        assert (rest.kind, rest.run.configuration.state) == ("waiting", "bored")
        assert hands.log == ["log starts", "log ends"]
        assert (await driver.drive(Occurrence("stop"))).run.outcome == "done"

    finish(play())


def test_a_timer_is_dropped_when_its_state_is_left():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.advance(6)
        assert driver.run.configuration.state == "idle", "right has taken longer than its three seconds"
        assert refusals(driver.run) == []
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving

    finish(play())


def test_the_time_limit_of_an_effect_is_a_failure_that_a_row_can_handle():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.advance(3)
        failed = next(e for e in driver.run.ledger if isinstance(e, EventEntry) and e.event == "right.failed")
        assert "3 s" in failed.data["message"]
        assert driver.run.configuration.state == "idle"
        assert hands.log[-2:] == ["right cancelled", "left cancelled"]
        await clock.advance(5)
        assert (await driving).run.configuration.state == "bored"

    finish(play())


def test_the_run_waits_when_only_people_can_go_on_and_can_be_driven_again():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        hands.gates["left"].set()
        hands.gates["right"].set()
        rest = await driving
        assert (rest.kind, rest.run.configuration.state) == ("waiting", "half")
        refused = await driver.drive(Occurrence("stop"))
        assert (refused.kind, refusals(refused.run)) == ("waiting", ["invalid_state"])

    finish(play())


def test_nobody_outside_can_answer_for_an_effect():
    async def play():
        driver = driver_of(TWO_AT_ONCE, Hands().effects())
        for occurrence in (
            Occurrence("left_done"),
            Occurrence("left.failed"),
            Occurrence("gossip"),
            Occurrence("after 5s", source="idle"),
        ):
            with pytest.raises(OccurrenceError):
                driver.send(occurrence)

    finish(play())


def test_an_effect_without_answers_that_fails_stops_the_run():
    async def broken(_action, _context):
        raise OSError("disk full")

    hands_log = []

    async def play():
        hands = Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(log=broken))
        rest = await driver.drive(Occurrence("go"))
        hands_log.extend(hands.log)
        return rest

    rest = finish(play())
    assert rest.kind == "stopped"
    line = next(row.span.line for row in TWO_AT_ONCE.transitions if row.source == "idle")
    assert (rest.failure.what, rest.failure.line, rest.failure.message) == ("log", line, "disk full")
    assert hands_log == [], "nothing after it has started"
    assert replay(TWO_AT_ONCE, rest.run.ledger) == rest.run


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [event_step("left", "right_done")],
        [event_step("left", "gossip")],
        [event_step("left", "left_done"), event_step("left", "left_done")],
        [event_step("left", "left_done", verdicts={"nobody": "passed"})],
        [error_step("left", "GONE", "the tool is gone")],
    ],
    ids=["nothing", "another's", "unknown", "twice", "unknown guard", "error as data"],
)
def test_an_answer_that_is_none_is_a_failure_of_the_effect(steps):
    async def odd(_action, _context):
        return steps

    async def play():
        return await driver_of(TWO_AT_ONCE, Hands().effects(left=odd)).drive(Occurrence("go"))

    rest = finish(play())
    assert rest.kind == "stopped"
    assert rest.failure.what == "left"
    assert rest.failure.code in {"BAD_ANSWER", "GONE"}
    results = [entry for entry in rest.run.ledger if isinstance(entry, ResultEntry) and entry.effect == "left"]
    assert any(step["payload"].get("error") for step in results[0].steps)


def test_steps_are_numbered_under_the_key_of_their_effect():
    async def chatty(action, _context):
        return [Step("", "left", "text", {"text": "hm"}), event_step(action.policy, "left_done")]

    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(TWO_AT_ONCE, hands.effects(left=chatty), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        driving.cancel()
        return driver.run

    run = finish(play())
    result = next(entry for entry in run.ledger if isinstance(entry, ResultEntry) and entry.effect == "left")
    assert [step["id"] for step in result.steps] == ["r/1/2/1", "r/1/2/2"]


HOLES = loads("""# holes
## Variables
| variable | domain | initial |
| - | - | - |
| n | 0..1 | 1 |
## Events
| event | from |
| - | - |
| go | outside |
| slow | outside |
| same | outside |
| left_done | left |
## States
| state | kind |
| - | - |
| idle | initial |
| working | |
| bored | |
| done | final |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | | left | working |
| idle | slow | | | log | = |
| idle | same | | | | idle |
| idle | after 5s | | | | bored |
| working | left_done | | n += 1 | | done |
| bored | go | | | | done |
""")


def test_an_answer_that_the_table_cannot_take_stops_the_run():
    async def play():
        clock, hands = StillClock(), Hands()
        driver = driver_of(HOLES, hands.effects(), clock=clock)
        hands.gates["left"].set()
        return await driver.drive(Occurrence("go"))

    rest = finish(play())
    assert (rest.kind, rest.failure.code, rest.run.configuration.state) == ("stopped", "out_of_domain", "working")
    assert "left_done in working" in str(rest.failure)


def test_a_timer_that_fired_for_an_earlier_stay_is_forgotten():
    """It stood behind an event by which its state was left and entered again."""

    async def play():
        clock, hands, gate = StillClock(), Hands(), asyncio.Event()

        async def slow(_action, _context):
            await gate.wait()
            return []

        driver = driver_of(HOLES, hands.effects(log=slow), clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("slow")))
        await clock.settle()
        driver.send(Occurrence("same"))
        await clock.advance(5)
        gate.set()
        await clock.settle()
        assert driver.run.configuration.state == "idle"
        await clock.advance(5)
        assert (await driving).run.configuration.state == "bored"

    finish(play())


def test_nothing_is_left_under_way_when_the_run_has_stopped():
    async def broken(_action, _context):
        raise OSError("disk full")

    async def play():
        clock, hands = StillClock(), Hands()
        rest = await driver_of(TWO_AT_ONCE, hands.effects(tidy=broken), clock=clock).drive(Occurrence("go"))
        assert rest.kind == "stopped"
        assert hands.log == ["log starts", "log ends", "left starts", "left cancelled"]
        assert clock.waiting == 0

    finish(play())


# -- guards and generators ----------------------------------------------------------------------------------------

AGENT = """# agent
## Parameters
| parameter | domain | default |
| - | - | - |
| rmax | 0.. | 1 |
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| satisfied | workflow | bool | false |
| retries | environment | 0..rmax | 0 |
## Events
| event | from |
| - | - |
| specification | outside |
| artifact | query_llm |
| verdict | execute_guard |
## Guards
| guard | judges |
| - | - |
| g | verdict |
| polite | specification |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | specification | polite.passed | | query_llm | generating |
| idle | specification | else | | | rude |
| generating | artifact | | | execute_guard | validating |
| validating | verdict | g.passed | satisfied = true | | succeeded |
| validating | verdict | g.failed and retries < rmax | retries += 1 | refine_context, query_llm | generating |
| validating | verdict | else | | | failed |
EXTRA
## States
| state | kind |
| - | - |
| idle | initial |
| generating | |
| validating | |
| succeeded | final |
| failed | final |
| rude | final |
| broken | final |
"""
HANDLED = AGENT.replace(
    "EXTRA", "| generating | query_llm.failed | | | | broken |\n| validating | execute_guard.failed | | | | broken |"
)
UNHANDLED = AGENT.replace("EXTRA\n", "").replace("| broken | final |\n", "")


def run_agent(text, texts, verdicts, polite=("",), specification="please"):
    machine = loads(text)
    entries = []
    generator, guard = Texts(texts), verdicts if isinstance(verdicts, GuardInterface) else Verdicts(verdicts)
    driver = driver_of(
        machine, effects, {"g": guard, "polite": Verdicts(polite)}, {"llm": generator}, observe=entries.append
    )
    rest = finish(driver.drive(Occurrence("specification", data=specification)))
    assert entries == list(rest.run.ledger), "whoever watches sees every entry, in order"
    assert replay(machine, rest.run.ledger) == rest.run
    return rest, generator, guard


def test_a_guard_judges_an_event_on_its_way_in():
    rest, _, _ = run_agent(UNHANDLED, [], [], polite=["rude!"])
    assert rest.run.outcome == "rude"
    rest, _, _ = run_agent(UNHANDLED, ["a"], [""])
    assert rest.run.outcome == "succeeded"
    assert rest.run.ledger[1].verdicts == (("polite", "passed"),)


class Nonsense(GuardInterface):
    def validate(self, artifact, **dependencies):
        return True


BROKEN_GUARDS = [
    pytest.param(Verdicts([ConnectionError("no route")]), "no route", id="raises"),
    pytest.param(Nonsense(), "gave bool, not a GuardResult", id="nonsense"),
]


@pytest.mark.parametrize(("guard", "message"), BROKEN_GUARDS)
def test_a_broken_guard_is_never_a_verdict(guard, message):
    rest, _, _ = run_agent(UNHANDLED, ["text"], guard)
    assert rest.kind == "stopped"
    line = next(r.span.line for r in loads(UNHANDLED).transitions if r.event == "artifact")
    assert (rest.failure.what, rest.failure.line) == ("execute_guard", line)
    assert message in rest.failure.message
    assert not [entry for entry in rest.run.ledger if isinstance(entry, VerdictEntry)]
    assert [entry.step for entry in rest.run.ledger if isinstance(entry, ArtifactEntry)] == ["agent"]
    assert "execute_guard" in rest.run.keys, "the effect is outstanding still: the run can go on"


def test_a_row_can_handle_a_broken_guard():
    rest, _, _ = run_agent(HANDLED, ["text"], [ConnectionError("no route")])
    assert (rest.kind, rest.run.outcome) == ("finished", "broken")


@pytest.mark.parametrize(("text", "kind"), [(UNHANDLED, "stopped"), (HANDLED, "finished")])
def test_a_generator_that_raises_is_a_failure_of_query_llm(text, kind):
    rest, _, _ = run_agent(text, [TimeoutError("too slow")], [])
    assert rest.kind == kind
    event = [entry for entry in rest.run.ledger if isinstance(entry, EventEntry) and entry.event == "query_llm.failed"]
    assert len(event) == (kind == "finished")
    if rest.failure:
        assert (rest.failure.what, rest.failure.message) == ("query_llm", "too slow")


def test_the_artifact_is_recorded_before_its_guard_runs_and_the_verdict_after():
    rest, _, _ = run_agent(UNHANDLED, ["one", "two"], ["no", GuardResult(passed=False, feedback="never", fatal=True)])
    kinds = [
        entry.effect if isinstance(entry, IntentEntry) else type(entry).__name__
        for entry in rest.run.ledger
        if isinstance(entry, IntentEntry | ArtifactEntry | VerdictEntry)
    ]
    once = ["query_llm", "ArtifactEntry", "execute_guard", "VerdictEntry"]
    assert kinds == [*once, "refine_context", *once]
    assert rest.run.outcome == "failed"


def test_guards_run_beside_the_loop():
    class Where(GuardInterface):
        def validate(self, artifact, **dependencies):
            self.thread = threading.current_thread()
            return GuardResult(passed=True)

    guard = Where()
    run_agent(UNHANDLED, ["text"], guard)
    assert guard.thread is not threading.main_thread()


def test_data_that_is_no_json_is_refused_before_anything_happens():
    async def play():
        driver = driver_of(TWO_AT_ONCE, Hands().effects())
        with pytest.raises(TypeError):
            driver.send(Occurrence("go", data=object()))
        return driver.run

    assert len(finish(play()).ledger) == 1
