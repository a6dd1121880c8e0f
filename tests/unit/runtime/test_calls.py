"""Calls: their entries, written before their results are returned, and the ledger and context of a policy that calls."""

import asyncio

import pytest
from calling import World, said

from dsa.runtime.ledger import CallEntry, CallResultEntry, Ledger
from dsa.runtime.policy.call_tree import ReplayMismatchError
from dsa.runtime.policy.policies import Action, error_step, text_step


@pytest.fixture
def world():
    return World()


def test_call_is_recorded_when_it_starts_and_when_it_ends(world):
    async def main(action, context):
        return [text_step("main", await said(context, "a"))]

    (step,) = world.run(main, key="1/1")
    action = Action("echo", {"text": "a", "rounds": 0})
    given = {"id": "1.1/1", "actor": "echo", "type": "text", "payload": {"text": "a"}}
    assert world.entries == [
        CallEntry("1/1", "1.1", "echo", action.digest, action.payload),
        CallResultEntry("1/1", "1.1", [given]),
    ]
    assert (step.id, step.payload) == ("1/1", {"text": "a"})


def test_result_is_recorded_before_it_is_returned(world):
    seen = []

    async def main(action, context):
        seen.append(await said(context, "a"))
        return []

    def append(entry):
        assert not seen
        world.entries.append(entry)

    world.run(main, append=append)
    assert (len(world.entries), seen) == (2, ["a"])


def test_nested_calls_have_paths(world):
    async def main(action, context):
        await said(context, "a")
        return await context.call(Action("middle", {"texts": ["b", "c"]}))

    world.run(main)
    assert [entry.path for entry in world.entries] == ["1.1", "1.1", "1.2", "1.2.1", "1.2.1", "1.2.2", "1.2.2", "1.2"]


def test_call_keys_are_unique_across_calls_and_tries(world):
    keys = []

    @world.registry.register("twice")
    async def twice(action, context):
        keys.append(context.key)
        return []

    async def main(action, context):
        await asyncio.gather(context.call(Action("twice")), context.call(Action("twice")))
        return [text_step("main", context.key)]

    assert world.run(main, key="3/1")[0].payload == {"text": "3/1/1"}
    assert world.run(main, key="3/1", root=2)[0].payload == {"text": "3/1/2"}
    assert keys == ["3/1/1.1", "3/1/1.2", "3/1/2.1", "3/1/2.2"]


def test_policy_has_its_own_ledger_of_calls_and_results(world):
    async def main(action, context):
        await context.call(Action("echo", {"text": "a"}))
        await context.call(Action("middle", {"texts": ["b"]}))
        context.note(text_step("main", "noted"))
        return list(await context.get_ledger())

    steps = world.run(main)
    assert [(step.id, step.actor, step.type) for step in steps] == [
        ("1.1", "main", "action_call"),
        ("1.1.result", "echo", "action_result"),
        ("1.2", "main", "action_call"),
        ("1.2.result", "middle", "action_result"),
        ("1/5", "main", "text"),
    ]
    action = Action("echo", {"text": "a"})
    assert steps[0].payload == {"policy": "echo", "payload": {"text": "a"}, "digest": action.digest}
    assert (steps[1].payload, steps[3].payload) == ({"text": "a"}, {"text": "b"})


def test_ledger_of_a_called_policy_starts_empty_or_with_its_seed(world):
    ledgers = []

    @world.registry.register("twice")
    async def twice(action, context):
        ledgers.append(await context.get_ledger())
        return []

    async def main(action, context):
        await context.call(Action("twice"))
        await context.call(Action("twice"), seed=[text_step("user", "a")])
        return []

    world.run(main)
    assert ledgers == [Ledger(), Ledger([text_step("user", "a")])]


def test_result_of_a_call_is_one_step_with_everything_in_it(world):
    given = {
        "one": [error_step("x", "NOT_FOUND", "gone")],
        "two": [text_step("x", "a"), text_step("x", "b")],
        "none": [],
    }

    @world.registry.register("twice")
    async def twice(action, context):
        return given[action.payload["which"]]

    async def main(action, context):
        for which in given:
            await context.call(Action("twice", {"which": which}))
        return [text_step("main", "", about={"told": [s.payload for s in (await context.get_ledger())[1::2]]})]

    one, two, none = world.run(main)[0].payload["told"]
    assert one == {"error": True, "code": "NOT_FOUND", "message": "gone"}
    assert two == {"steps": [{"actor": "x", "type": "text", "payload": {"text": text}} for text in "ab"]}
    assert none == {"steps": []}


def test_turn_is_recorded_and_sees_earlier_turns(world):
    seen = []

    async def inner(action, context):
        seen.append([step.id for step in await context.get_ledger()])
        await said(context, "a")
        return [text_step("inner", str(len(seen)))]

    async def main(action, context):
        first, second = [await context.turn(inner, action) for _ in range(2)]
        return [*first, *second]

    whole, entries = world.run(main), list(world.entries)
    assert [step.id for step in whole] == ["1.1/1", "1.2/1"]
    assert seen == [[], ["1.1/1"]]
    assert [entry.path for entry in entries] == ["1.1", "1.1.1", "1.1.1", "1.1", "1.2", "1.2.1", "1.2.1", "1.2"]
    assert entries[0].payload is None
    assert world.run(main, entries=entries[:5]) == [*whole[:1], text_step("inner", "3", step_id="1.2/1")]


def test_changed_turn_is_reported_as_a_mismatch(world):
    def saying(text):
        async def main(action, context):
            context.note(text_step("user", text))
            return await context.turn(world.echo, Action("echo", {"text": "x" * 999}))

        return main

    world.run(saying("a"))
    with pytest.raises(ReplayMismatchError, match=r"call 1\.1: the ledger has a turn of echo \(\w{12}\); the policies"):
        world.run(saying("b"), entries=world.entries)


def test_settings_can_be_read_but_not_changed(world):
    async def main(action, context):
        with pytest.raises(TypeError):
            context.config["model"] = "n"
        return [text_step("main", context.config["model"])]

    assert world.run(main, config={"model": "m"})[0].payload == {"text": "m"}


@pytest.mark.parametrize("asking", ["run", "artifacts", "guard", "generator", "now_s", "record"])
def test_context_outside_a_machine_refuses_features_of_machines(world, asking):
    async def main(action, context):
        asked = getattr(context, asking)
        asked(*(["g"] if asking != "now_s" else []))
        return []

    with pytest.raises(LookupError, match="outside a machine"):
        world.run(main)


def test_called_policies_share_the_surroundings_of_the_first(world):
    recorded = []

    class Machine:
        run, artifacts = "the run", "the artifacts"

        def guard(self, name):
            return f"guard {name}"

        def generator(self, name):
            return f"generator {name}"

        def now_s(self):
            return 7.0

        def record(self, entry):
            recorded.append(entry)

    @world.registry.register("twice")
    async def twice(action, context):
        context.record("entry")
        told = [context.run, context.artifacts, context.guard("g"), context.generator("m"), context.now_s()]
        return [text_step("twice", "", about={"told": told})]

    async def main(action, context):
        return await context.call(Action("twice"))

    (step,) = world.run(main, surroundings=Machine())
    assert step.payload["told"] == ["the run", "the artifacts", "guard g", "generator m", 7.0]
    assert recorded == ["entry"]


def test_tools_are_described_for_a_model(world):
    async def main(action, context):
        return [text_step("main", "", about={"tools": context.tools({"echo"})})]

    (step,) = world.run(main)
    assert step.payload["tools"] == world.registry.tools(["echo"])
