"""Data of events reaches prompts, guards and policies as of the right moment (D1 to D6); driver, policies and ledgers are real."""

import asyncio

import pytest
from hands import driver_of, finish

from dsa.checks.report import check
from dsa.edge.binding import Bindings
from dsa.edge.driver import Driver
from dsa.errors import MachineError
from dsa.lang import dumps, loads
from dsa.runtime.artifacts import MemoryArtifacts
from dsa.runtime.content import GuardInterface, GuardResult, messages_of, render
from dsa.runtime.ledger import EffectEntry, EventEntry, dump_line
from dsa.runtime.policy.policies import Action, event_step
from dsa.runtime.policy.policy_registry import Registry
from dsa.runtime.run import begin, replay
from dsa.runtime.secrets import Secrets
from dsa.runtime.status import unfinished_work
from dsa.semantics import Occurrence
from dsa.testing.doubles import StillClock, Texts
from machines.dual_state.bindings import effects as agent

TABLE = """# shop

## Variables
| variable | scope    | domain | initial |
| -------- | -------- | ------ | ------- |
| good     | workflow | bool   | false   |

## Events
| event    | from          |
| -------- | ------------- |
| ask      | outside       |
| found    | look          |
| artifact | query_llm     |
| verdict  | execute_guard |

## Guards
| guard | judges  | uses                                |
| ----- | ------- | ----------------------------------- |
| right | verdict | total = found.total; who = ask.who? |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| looking |         |
| writing |         |
| judging |         |
| done    | final   |
| wrong   | final   |

## Transitions
| source  | event    | if           | update      | effects       | target  |
| ------- | -------- | ------------ | ----------- | ------------- | ------- |
| idle    | ask      |              |             | look          | looking |
| looking | found    |              |             | query_llm     | writing |
| writing | ask      |              |             |               | =       |
| writing | artifact |              |             | execute_guard | judging |
| judging | verdict  | right.passed | good = true |               | done    |
| judging | verdict  | else         |             |               | wrong   |

## Prompt: query_llm
### System
```
You serve {ask.who?}.
```
### Task
```
The total is {found.total}: {{{found}}}
```
"""
MACHINE = loads(TABLE)


class Right(GuardInterface):
    """An async guard that passes a text with the total in it. `given` has the arguments of each call."""

    def __init__(self):
        self.given = []

    async def validate(self, artifact, **given):
        await asyncio.sleep(0)
        self.given.append(given)
        return GuardResult(passed=str(given["total"]) in artifact.content, feedback="no total")


def looking(answer):
    async def look(action, _context):
        return [event_step(action.policy, "found", data=answer)]

    return look


def played(answer, text="It is 7.", machine=MACHINE, **others):
    """Play the shop; return how it rests, its generator and its guard."""
    generator, guard = Texts([text]), Right()
    effects = {**agent, "look": looking(answer), **others}
    driver = driver_of(machine, effects, {"right": guard}, {"llm": generator})
    return finish(driver.drive(Occurrence("ask", data={"who": "ann"}))), generator, guard


@pytest.mark.parametrize(("total", "outcome"), [(7, "done"), (8, "wrong")])
def test_verdict_changes_with_the_data_that_an_effect_found(total, outcome):
    rest, generator, guard = played({"total": total})
    assert rest.run.outcome == outcome
    assert guard.given == [{"total": total, "who": "ann"}]
    (asked,) = generator.calls
    assert render(asked[1], asked[0]).endswith(f'# TASK\nThe total is {total}: {{{{\n  "total": {total}\n}}}}')


def test_system_text_is_a_separate_message_before_the_user_turn():
    _, generator, _ = played({"total": 7})
    context, template = generator.calls[0]
    assert messages_of(template, context)[0] == {"role": "system", "content": "You serve ann."}
    assert [message["role"] for message in messages_of(template, context)] == ["system", "user"]


@pytest.mark.parametrize("answer", [{}, None, "7", {"total": None}])
def test_missing_data_stops_the_run_before_the_effect_and_names_row_and_event(answer):
    rest, generator, _ = played(answer)
    assert rest.kind == "stopped"
    assert (rest.failure.what, rest.failure.code, rest.failure.line) == ("query_llm", "MISSING_DATA", 35)
    assert rest.failure.message.startswith(
        "the prompt of 'query_llm', requested on found: 'found.total' is missing: found has no 'total'"
    )
    assert generator.calls == []


def test_prompt_with_too_much_data_stops_the_run_before_the_effect(monkeypatch):
    monkeypatch.setattr("dsa.runtime.event_data.LONGEST_IN_ALL", 5)
    rest, generator, _ = played({"total": 10})
    assert (rest.failure.what, rest.failure.code, generator.calls) == ("query_llm", "MISSING_DATA", [])
    assert "characters in all; the limit for one prompt is 5" in rest.failure.message


def test_guard_data_is_required_before_the_effect_whose_answer_it_judges():
    machine = loads(TABLE.replace("{found.total}", "").replace("{{{found}}}", ""))
    rest, generator, guard = played({}, machine=machine)
    assert (rest.failure.what, rest.failure.line) == ("execute_guard", 37)
    assert "guard right, requested on artifact: 'found.total' is missing" in rest.failure.message
    assert (len(generator.calls), guard.given) == (1, [])


def test_effect_sees_data_as_of_its_emission():
    """Another `ask` comes while the model writes; after a crash between emission and performing, the prompt is the same to the letter."""
    prompts, gate = [], asyncio.Event()

    class Slow(Texts):
        def generate(self, context, template=None):
            prompts.append((render(template, context), messages_of(template, context)))
            return super().generate(context, template)

    async def wait_first(action, context):
        await gate.wait()
        return await agent["query_llm"](action, context)

    async def play():
        clock = StillClock()
        run, commands = begin(MACHINE, "r")
        binding = Bindings(
            {**agent, "look": looking({"total": 7}), "query_llm": wait_first},
            {"right": Right()},
            {"llm": Slow(["It is 7."] * 2)},
        )
        driver = Driver(run, binding, MemoryArtifacts(), commands=commands, clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("ask", data={"who": "ann"})))
        await clock.settle()
        driver.send(Occurrence("ask", data={"who": "bob"}))
        await clock.settle()
        cut = tuple(driver.run.ledger)
        gate.set()
        rest = await driving
        again = Driver(
            replay(MACHINE, cut),
            binding,
            MemoryArtifacts(),
            left=unfinished_work(replay(MACHINE, cut)),
            clock=StillClock(),
        )
        return cut, rest, await again.drive()

    cut, rest, again = finish(play())
    assert [entry.data for entry in cut if isinstance(entry, EventEntry)][-1] == {"who": "bob"}
    assert any(isinstance(entry, EffectEntry) and entry.effect == "query_llm" for entry in cut)
    assert (rest.run.outcome, again.run.outcome) == ("done", "done")
    assert prompts[0] == prompts[1]
    assert "You serve ann." in prompts[0][0]


CONCURRENT = loads("""# concurrent
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| good | workflow | bool | false |
## Events
| event | from |
| - | - |
| go | outside |
| left_done | left |
| right_done | right |
## Guards
| guard | judges | uses |
| - | - | - |
| g | left_done | other = right_done?; own = left_done |
## States
| state | kind |
| - | - |
| idle | initial |
| working | |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | go | | | left, right | working |
| working | right_done | | | | = |
| working | left_done | g.passed | good = true | | = |
| working | left_done | else | | | = |
""")


@pytest.mark.parametrize("order", [("left", "right"), ("right", "left")])
def test_verdict_does_not_depend_on_the_order_of_concurrent_answers(order):
    given, gates = [], {}

    class Seeing(GuardInterface):
        def validate(self, artifact, other, own):
            given.append((artifact.content, other, own))
            return GuardResult(passed=other is None)

    async def slow(action, _context):
        await gates[action.policy].wait()
        return [event_step(action.policy, f"{action.policy}_done", data=f"what {action.policy} brings")]

    async def play():
        gates.update({name: asyncio.Event() for name in order})
        clock = StillClock()
        driver = driver_of(CONCURRENT, {"left": slow, "right": slow}, {"g": Seeing()}, clock=clock)
        driving = asyncio.create_task(driver.drive(Occurrence("go")))
        await clock.settle()
        for name in order:
            gates[name].set()
            await clock.quiet()
        return await driving

    rest = finish(play())
    assert given == [("what left brings", None, "what left brings")]
    assert rest.run.sigma == {"good": True}


def test_policy_and_the_policies_it_calls_read_the_same_data():
    registry, read = Registry(), []

    @registry.register("helper")
    async def helper(_action, context):
        read.append(context.latest("ask.who"))
        return []

    async def look(action, context):
        read.append(context.latest("ask"))
        read.append(context.latest("all ask.who"))
        for words, said in (
            ("found", "'found' is missing"),
            ("fund", "did you mean 'found'"),
            ("ask.whom", "has no 'whom'"),
        ):
            with pytest.raises(LookupError, match=said):
                context.latest(words)
        read.append(context.latest("ask.whom?"))
        with pytest.raises(LookupError, match="has no step 'rigt'; did you mean 'right'"):
            context.run.step("rigt")
        await context.call(Action("helper"))
        return [event_step(action.policy, "found", data={"total": 7})]

    run, commands = begin(MACHINE, "r")
    binding = Bindings({**agent, "look": look}, {"right": Right()}, {"llm": Texts(["7"])}, policies=registry)
    driver = Driver(run, binding, MemoryArtifacts(), commands=commands, clock=StillClock())
    rest = finish(driver.drive(Occurrence("ask", data={"who": "ann"})))
    assert rest.run.outcome == "done"
    assert read == [{"who": "ann"}, ["ann"], None, "ann"]


def test_async_guard_that_raises_stops_the_run():
    class Broken(GuardInterface):
        async def validate(self, artifact, **_given):
            raise SystemExit(f"no {artifact.content}")

    driver = driver_of(MACHINE, {**agent, "look": looking({"total": 7})}, {"right": Broken()}, {"llm": Texts(["7"])})
    rest = finish(driver.drive(Occurrence("ask", data={})))
    assert (rest.kind, rest.failure.what) == ("stopped", "execute_guard")
    assert "no 7" in rest.failure.message


def test_async_guard_may_limit_its_own_time():
    class Slow(GuardInterface):
        async def validate(self, artifact, **_given):
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                return GuardResult(passed=True, feedback="")

    driver = driver_of(MACHINE, {**agent, "look": looking({"total": 7})}, {"right": Slow()}, {"llm": Texts(["7"])})
    assert finish(driver.drive(Occurrence("ask", data={}))).run.outcome == "done"


def test_secret_is_absent_from_prompts_guards_and_the_ledger():
    word, generator, guard = "opensesame", Texts(["It is 7."]), Right()
    secrets = Secrets({"KEY": word})
    run, commands = begin(MACHINE, "r")
    binding = Bindings(
        {**agent, "look": looking({"total": f"7 {word}"})}, {"right": guard}, {"llm": generator}, secrets
    )
    driver = Driver(run, binding, MemoryArtifacts(), commands=commands, clock=StillClock())
    rest = finish(driver.drive(Occurrence("ask", data={"who": word})))
    (asked,) = generator.calls
    assert guard.given == [{"total": "7 [secret KEY]", "who": "[secret KEY]"}]
    assert word not in render(asked[1], asked[0]) + "".join(map(dump_line, rest.run.ledger))
    assert "You serve [secret KEY]." in render(asked[1], asked[0])


BUREAUS = """# bureaus
## Families
| family | index |
| - | - |
| b | {rows} |
## Variables
| variable | scope | domain | initial |
| - | - | - | - |
| ok[b] | workflow | bool | false |
## Events
| event | from |
| - | - |
| go | outside |
| open | outside |
| noted[b] | outside |
| said[b] | ask[b] |
## Guards
| guard | judges | uses |
| - | - | - |
| fair | said[b] | {uses} |
## States
| state | kind |
| - | - |
| idle | initial |
| busy | |
| over | final |
## Transitions
| source | event | if | update | effects | target |
| - | - | - | - | - | - |
| idle | noted[b] | | | | = |
| idle | open | | | | = |
| idle | go | | | all b: ask[b] | busy |
| busy | said[b] | fair.passed and pending | ok[b] = true | | = |
| busy | said[b] | fair.passed and not pending | ok[b] = true | | over |
| busy | said[b] | not fair.passed and pending | | | = |
| busy | said[b] | not fair.passed and not pending | | | over |
| busy | ask[b].failed | pending | | | = |
| busy | ask[b].failed | not pending | | | over |
"""


@pytest.mark.parametrize(("index", "values"), [("1..2", (1, 2)), ("{ann, bob}", ("ann", "bob"))])
def test_guard_of_a_family_gets_the_index_and_the_data_of_its_own_event(index, values):
    machine = loads(
        BUREAUS.format(rows=index, uses="own = said[b]; note = noted[b]?; since = open? since noted[b]; which = b")
    )
    assert loads(dumps(machine)) == machine
    given = []

    class Fair(GuardInterface):
        def validate(self, artifact, own, note, since, which):
            given.append((which, own, note, since, artifact.content))
            return GuardResult(passed=which == values[0])

    async def ask(action, _context):
        return [event_step(action.policy, "said", data=f"of {action.policy}")]

    driver = driver_of(machine, {f"ask[{value}]": ask for value in values}, {"fair": Fair()})
    finish(driver.drive(Occurrence("open", data="old")))
    finish(driver.drive(Occurrence(f"noted[{values[1]}]", data="late")))
    rest = finish(driver.drive(Occurrence("go")))
    assert rest.run.configuration.state == "over"
    assert sorted(given, key=str) == sorted(
        [
            (values[0], f"of ask[{values[0]}]", None, "old", f"of ask[{values[0]}]"),
            (values[1], f"of ask[{values[1]}]", "late", None, f"of ask[{values[1]}]"),
        ],
        key=str,
    )
    assert list(rest.run.configuration.values) == [True, False]


@pytest.mark.parametrize(
    ("uses", "message"),
    [
        ("x = c", "'c' is not an event"),
        ("x = said[c]", "'said[c]' is not an event"),
        ("x = b.part", "'b.part' is not an event"),
        ("x = noted[b] since said[b]", "is never available: the guard judges said[b], and no event is newer"),
    ],
)
def test_invalid_use_in_a_guard_of_a_family_is_reported(uses, message):
    with pytest.raises(MachineError) as raised:
        loads(BUREAUS.format(rows="1..2", uses=uses))
    assert message in str(raised.value)


def test_data_that_a_guard_of_a_family_uses_must_exist_in_every_run():
    report = check(loads(BUREAUS.format(rows="1..2", uses="note = noted[b]")))
    assert [each.code for each in report.diagnostics][:1] == ["DSA316"] or report.diagnostics
    assert "noted[1]" in report.diagnostics[0].message
