"""Effects whose policies call other policies: each call is recorded, and none with a result is made again."""

import asyncio
from collections import Counter
from itertools import count

import pytest
from crashes import RUN, Breaking, Crash
from results import results_of

from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.edge.stores.memory_store import MemoryStore
from dsa.lang import loads
from dsa.runs.runs import record_decisions
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.costs import read_limit
from dsa.runtime.ledger import CallEntry, CallResultEntry, ResumedEntry
from dsa.runtime.policy.call_tree import ReplayMismatchError
from dsa.runtime.policy.invocation import invoke_action, loop_wrapper
from dsa.runtime.policy.policies import Action, action_call_step, action_result_step, event_step, text_step
from dsa.runtime.policy.policy_registry import Registry
from dsa.runtime.run import begin, replay
from dsa.runtime.run_store import NewJournal
from dsa.runtime.status import unfinished_work
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock

TRIP = loads("""# trip
## Events
| event | from |
| - | - |
| go | outside |
| planned | plan |
## Effects
| effect | retries |
| - | - |
| plan | 1 |
| log | |
## States
| state | kind |
| - | - |
| idle | initial |
| planning | |
| succeeded | final |
## Transitions
| source | event | effects | target |
| - | - | - | - |
| idle | go | log, plan | planning |
| planning | planned | | succeeded |
""")
KEY = "1/2"


class Agency:
    """Policies that plan a trip, and the store of its run. `made` counts how often each was performed."""

    def __init__(self, plan=None, **in_doubt):
        self.store, self.made, self.seen = MemoryStore(), Counter(), []
        self.plan = plan or self.planned
        self.policies = Registry()
        for name in ("look", "pay", "model", "write"):
            self.policies.register(name, in_doubt=in_doubt.get(name, "retry"))(getattr(self, name))

    async def look(self, action, context):
        city = action.payload["city"]
        await self.performed(context, f"look {city}", rounds=len(city))
        return [text_step("look", f"{city} is fine")]

    async def pay(self, action, context):
        await self.performed(context, "pay", rounds=3)
        return [action_result_step("pay", {"paid": action.payload["amount"]})]

    async def model(self, action, context):
        await self.performed(context, "model")
        if await context.get_ledger():
            return [text_step("assistant", "done")]
        usage = {"prompt_tokens": 30, "completion_tokens": 4, "cost_usd": 0.25}
        return [action_call_step("assistant", Action("pay", {"amount": 7}), about={"usage": usage})]

    async def write(self, action, context):
        await self.performed(context, "write")
        return []

    async def performed(self, context, what, rounds=0):
        recorded = {(e.key, e.path) for e in self.entries() if isinstance(e, CallResultEntry)}
        assert tuple(context.key.rsplit("/", 1)) not in recorded, "a recorded call is made again"
        self.made[what] += 1
        for _ in range(rounds):
            await asyncio.sleep(0)

    async def planned(self, action, context):
        """Look at two places at once, pay, and report it."""
        calls = [context.call(Action("look", {"city": city})) for city in ("Amsterdam", "Rome")]
        places = await asyncio.gather(*calls)
        (paid,) = await context.call(Action("pay", {"amount": 5}))
        told = [*(step.payload["text"] for (step,) in places), paid.payload]
        self.seen.append(told)
        return [event_step("plan", "planned", data=told)]

    async def logged(self, action, context):
        await context.call(Action("write"))
        return []

    def entries(self):
        return self.store.read(RUN).entries if RUN in self.store.runs() else ()

    def driver(self, decided, countdown=0, *, late=False, limits=()):
        """Begin the run, or resume it."""
        binding = Bindings({"plan": self.plan, "log": self.logged}, policies=self.policies, config={"model": "m"})
        about = {"clock": StillClock(), "limits": limits}
        if RUN not in self.store.runs():
            run, commands = begin(TRIP, RUN)
            journal = Breaking(NewJournal(self.store, RUN, ""), countdown, late=late)
            return Driver(run, binding, MemoryArtifacts(), commands=commands, journal=journal, **about)
        held, recorded = self.store.hold(RUN, take=True)
        run = replay(TRIP, recorded.entries)
        journal = Breaking(held, countdown, late=late)
        known, run = len(run.ledger), record_decisions(run, decided, {}, 0)
        journal.append(run.ledger[known:])
        return Driver(run, binding, MemoryArtifacts(), left=unfinished_work(run), journal=journal, **about)

    def live(self, countdown=0, *, late=False, limits=(), **decided):
        """Drive until the run rests, or until the process ends; return how it rests, or None."""
        driver = self.driver(decided, countdown, late=late, limits=limits)
        sent = () if driver.run.seq else (Occurrence("go"),)

        async def bounded():
            driving = driver.clock.through(driver.drive(*sent))
            return await asyncio.wait_for(driving, 20)

        try:
            return asyncio.run(bounded())
        except Crash:
            return None


def calls(agency):
    return [(e.key, e.path) for e in agency.entries() if isinstance(e, CallEntry)]


def test_calls_of_an_effect_are_recorded_under_its_key():
    agency = Agency()
    rest = agency.live()
    assert (rest.kind, rest.run.outcome) == ("finished", "succeeded")
    assert calls(agency) == [("1/1", "1.1"), (KEY, "1.1"), (KEY, "1.2"), (KEY, "1.3")]
    ended = [e.path for e in agency.entries() if isinstance(e, CallResultEntry) and e.key == KEY]
    assert ended == ["1.2", "1.1", "1.3"], "Rome came first"
    assert replay(TRIP, agency.entries()) == rest.run


def test_result_of_a_call_is_durable_before_its_caller_sees_it():
    agency = Agency()

    async def plan(action, context):
        (paid,) = await context.call(Action("pay", {"amount": 5}))
        assert agency.entries()[-1].steps[0]["payload"] == paid.payload
        return [event_step("plan", "planned")]

    agency.plan = plan
    assert agency.live().kind == "finished"


@pytest.mark.parametrize("late", [False, True])
def test_run_killed_at_any_write_repeats_no_call_that_has_a_result(late):
    whole = Agency()
    whole.live()
    for countdown in count(1):
        agency = Agency()
        if agency.live(countdown, late=late) is not None:
            break
        assert agency.live().run.outcome == "succeeded"
        assert agency.seen[-1] == whole.seen[-1]
        assert all(made <= 2 for made in agency.made.values())
        assert agency.made.total() <= whole.made.total() + 2, "no more than what was under way is made again"
    assert countdown >= 9


def test_repeatedly_killed_run_still_finishes():
    agency = Agency()
    for life in range(40):
        if agency.live(2 + life % 2, late=bool(life % 3)) is not None:
            break
    assert agency.live().run.outcome == "succeeded"
    assert [path for key, path in calls(agency) if key == KEY] == ["1.1", "1.2", "1.3"]


def test_each_try_has_its_own_calls_and_a_killed_try_continues_them():
    tried = []

    async def plan(action, context):
        tried.append(context.key)
        await context.call(Action("look", {"city": "Rome"}))
        if len(tried) == 1:
            raise OSError("no route")
        await context.call(Action("pay", {"amount": 1}))
        return [event_step("plan", "planned")]

    agency = killed_while_paying("retry", plan, tried)
    assert agency.live().kind == "finished"
    assert [path for key, path in calls(agency) if key == KEY] == ["1.1", "2.1", "2.2"]
    assert tried == [f"{RUN}/{KEY}/1", f"{RUN}/{KEY}/2", f"{RUN}/{KEY}/2"]
    assert agency.made["look Rome"] == 2


# -- calls in doubt -----------------------------------------------------------------------------------------------------


def killed_while_paying(in_doubt, plan=None, tried=()):
    """Return an agency whose run was killed when the call of `pay` was durable, and under way."""
    for countdown in count(1):
        agency = Agency(plan, pay=in_doubt)
        if tried:
            tried.clear()
        assert agency.live(countdown, late=True) is None, "it never paid"
        last = agency.entries()[-1]
        if isinstance(last, CallEntry) and last.policy == "pay":
            return agency


def test_call_that_must_not_be_repeated_is_durable_before_it_is_made():
    agency = killed_while_paying("ask")
    assert agency.made["pay"] == 0
    assert agency.entries()[-1].in_doubt == "ask"


def test_person_decides_about_a_call_that_must_not_be_repeated():
    agency = killed_while_paying("ask")
    before = agency.entries()
    rest = agency.live()
    assert (rest.kind, [intent.key for intent in rest.in_doubt]) == ("in doubt", [KEY])
    assert agency.entries() == before
    assert agency.live(**{KEY: "retry"}).run.outcome == "succeeded"
    assert (agency.made["pay"], agency.made["look Rome"]) == (1, 1)


def test_call_that_counts_as_failed_is_an_error_for_its_caller():
    agency = killed_while_paying("fail")
    assert agency.live().run.outcome == "succeeded"
    assert (agency.seen[-1][2]["code"], agency.made["pay"]) == ("IN_DOUBT", 0)
    assert [(e.effects, e.calls) for e in agency.entries() if isinstance(e, ResumedEntry)] == [
        (((KEY, "retry"),), ((f"{KEY}/1.3", "fail"),))
    ]


def test_repeatable_call_is_made_again():
    agency = killed_while_paying("retry")
    assert agency.live().run.outcome == "succeeded"
    assert (agency.made["pay"], agency.made["look Rome"]) == (2, 1)


# -- faults -----------------------------------------------------------------------------------------------------------------


def test_changed_policy_is_refused_and_no_call_is_made_or_recorded():
    agency = killed_while_paying("retry")
    before, made, ours = agency.entries(), dict(agency.made), agency.plan

    async def changed(action, context):
        return await context.call(Action("look", {"city": "Oslo"}))

    agency.plan = changed
    with pytest.raises(
        ReplayMismatchError,
        match=r"call 1\.1: the ledger has look .*'Amsterdam'.*; the policies now give look .*'Oslo'",
    ):
        agency.live()
    assert [type(e) for e in agency.entries()[len(before) :]] == [ResumedEntry]
    assert agency.made == made
    agency.plan = ours
    assert agency.live().run.outcome == "succeeded"


def test_error_of_a_called_policy_fails_the_effect_even_if_caught():
    async def plan(action, context):
        try:
            await context.call(Action("look", {}))
        except KeyError:
            return [event_step("plan", "planned")]

    rest = Agency(plan).live()
    assert (rest.kind, rest.failure.what, rest.failure.code) == ("stopped", "plan", "KeyError")
    assert rest.failure.call == "look 1/2/2.1", "the second try"


def test_called_policy_that_returns_no_steps_fails_the_effect():
    agency = Agency()

    @agency.policies.register("odd")
    async def odd(action, context):
        return "odd"

    async def plan(action, context):
        return await context.call(Action("odd"))

    agency.plan = plan
    failure = agency.live().failure
    assert (failure.code, failure.message) == ("BAD_ANSWER", "the policy odd returned str, not a list of Steps")


def test_effect_may_call_only_bound_policies():
    async def plan(action, context):
        (refused,) = await context.call(Action("planned"))
        (let_in,) = await context.call(Action("pay", {"amount": 1}))
        return [
            event_step("plan", "planned", data=[refused.payload, let_in.payload, dict(context.config), context.key])
        ]

    rest = Agency(plan).live()
    refused, let_in, config, key = rest.run.ledger[-2].data
    assert refused["code"] == "NOT_ALLOWED"
    assert refused["message"] == "plan may not call planned; it may call: look, model, pay, write"
    assert (let_in, config, key) == ({"paid": 1}, {"model": "m"}, f"{RUN}/{KEY}/1")


# -- agents within effects ----------------------------------------------------------------------------------------------------


async def agent(action, context):
    """A model with tools."""
    asked = Action("model", {}, frozenset({"pay"}))
    steps = await context.call(asked, [loop_wrapper(3), invoke_action()])
    return [event_step("plan", "planned", data=steps[-1].payload)]


def test_model_with_tools_repeats_no_finished_call_after_a_kill():
    for countdown in count(1):
        agency = Agency(agent)
        if agency.live(countdown, late=True) is not None:
            break
        assert agency.live().run.outcome == "succeeded"
        assert agency.made.total() <= 5


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("calls=1", ["BUDGET"]),
        ("calls=2", ["OSError", "BUDGET"]),
        ("calls=4", ["OSError", "OSError"]),
        ("tokens=34", ["BUDGET"]),
        ("tokens=68", ["OSError", "BUDGET"]),
        ("usd=0.3", ["OSError", "BUDGET"]),
    ],
)
def test_usage_of_a_call_counts_in_the_budget_of_its_effect(limit, said):
    """One try and one model call with 34 tokens; once the budget is spent, no other try starts, and no other call in this one."""

    async def failing(action, context):
        await agent(action, context)
        raise OSError("down")

    rest = Agency(failing).live(limits=[read_limit(limit, ["plan"])])
    codes = [entry.steps[-1]["payload"]["code"] for entry in results_of(rest.run.ledger, "plan")]
    assert codes == said
