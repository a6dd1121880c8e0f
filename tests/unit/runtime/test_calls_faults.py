"""What policies may not call, and what breaks while they call."""

import asyncio
import contextlib

import pytest
from calling import World, said

from dsa.errors import BindingError, DsaError
from dsa.runtime.ledger import CallEntry, CallResultEntry
from dsa.runtime.policy.policies import Action, text_step
from dsa.runtime.policy.policy_registry import Registry


@pytest.fixture
def world():
    return World()


def test_what_is_not_allowed_is_an_error_step_and_is_not_called(world):
    @world.registry.register("forbidden")
    async def forbidden(action, context):
        raise AssertionError("called")

    async def main(action, context):
        return await context.call(Action("forbidden"))

    (step,) = world.run(main)
    assert step.payload["code"] == "NOT_ALLOWED"
    assert step.payload["message"] == "main may not call forbidden; it may call: crash, echo, middle, twice"
    assert [type(entry) for entry in world.entries] == [CallEntry, CallResultEntry]


def test_a_policy_may_call_what_its_action_names_and_what_it_is_registered_with(world):
    @world.registry.register("twice")
    async def twice(action, context):
        return [
            text_step("twice", " ".join(sorted(action.actions))),
            *await context.call(Action("echo", {"text": "a"})),
        ]

    async def main(action, context):
        bare = await context.call(Action("twice"))
        told = await context.call(Action("twice", actions=frozenset({"echo"})))
        return [*bare, *told, *await context.call(Action("middle", {"texts": []}))]

    bare, refused, told, given, _ = world.run(main)
    assert (bare.payload["text"], refused.payload["code"]) == ("", "NOT_ALLOWED")
    assert (told.payload["text"], given.payload["text"]) == ("echo", "a")
    assert world.registry["middle"].actions == {"echo", "crash"}


def test_a_payload_that_breaks_the_schema_is_an_error_step_and_is_not_called(world):
    async def main(action, context):
        return await context.call(Action("echo", {"txt": "a"}))

    (step,) = world.run(main)
    assert (step.payload["code"], step.payload["where"]) == ("INVALID_PAYLOAD", "$")
    assert world.called == []


@pytest.mark.parametrize("payload", [{"a": object()}, {1: 2}])
def test_a_payload_that_is_not_json_is_refused_before_anything_is_recorded(world, payload):
    async def main(action, context):
        return await context.call(Action("echo", payload))

    with pytest.raises(TypeError):
        world.run(main)
    assert world.entries == []


def test_an_allowed_policy_that_is_not_registered_is_a_mistake_of_the_program(world):
    async def main(action, context):
        return await context.call(Action("twice"))

    with pytest.raises(BindingError, match="no policy 'twice'"):
        world.run(main)


def test_a_crash_leaves_the_ledger_and_the_next_run_goes_on_from_there(world):
    async def main(action, context):
        return await context.call(Action("middle", {"texts": ["a"], "crash": True}))

    with pytest.raises(ConnectionError):
        world.run(main)
    assert [entry.path for entry in world.entries] == ["1.1", "1.1.1", "1.1.1", "1.1.2"]

    async def mended(action, context):
        return []

    world.called.clear()
    world.registry = Registry({"echo": world.echo, "crash": mended})
    world.registry.register("middle", actions=["echo", "crash"])(world.middle)
    (step,) = world.run(main, entries=world.entries)
    assert (step.payload, world.called) == ({"text": "a"}, ["middle"])


@pytest.mark.parametrize("depth", ["main", "middle"])
def test_a_crash_that_is_caught_ends_the_run_all_the_same(world, depth):
    """A replay would not come by it: what follows from a caught crash is in no ledger."""

    async def catching(action, context):
        with contextlib.suppress(ConnectionError):
            await context.call(Action("crash"))
        return [text_step("main", "never mind")]

    async def main(action, context):
        return await context.call(Action("twice"))

    world.registry.register("twice", actions=["crash"])(catching)
    with pytest.raises(ConnectionError):
        world.run(catching if depth == "main" else main)
    assert not any(isinstance(entry, CallResultEntry) for entry in world.entries)


def test_what_was_under_way_beside_a_crash_is_recorded_but_nothing_is_begun_any_more(world):
    @world.registry.register("twice", actions=["echo"])
    async def twice(action, context):
        texts = [await said(context, "a", 5)]
        with contextlib.suppress(ConnectionError):
            texts.append(await said(context, "b"))
        return [text_step("twice", "".join(texts))]

    async def main(action, context):
        calls = (context.call(Action("twice")), context.call(Action("crash")))
        await asyncio.gather(*calls, return_exceptions=True)
        return []

    with pytest.raises(ConnectionError):
        world.run(main)
    ended = [entry.path for entry in world.entries if isinstance(entry, CallResultEntry)]
    assert (ended, world.called) == (["1.1.1"], ["a", "crash"])


@pytest.mark.parametrize("failing", [CallEntry, CallResultEntry])
def test_what_cannot_be_recorded_ends_the_run_whoever_catches_it(world, failing):
    class DiskFullError(Exception):
        pass

    def append(entry):
        if isinstance(entry, failing):
            raise DiskFullError
        world.entries.append(entry)

    async def main(action, context):
        for _ in range(2):
            with contextlib.suppress(DiskFullError):
                await context.call(Action("echo", {"text": "a"}))
        return [text_step("main", "never mind")]

    with pytest.raises(DiskFullError):
        world.run(main, append=append)
    assert len(world.called) == (failing is CallResultEntry)


def test_a_call_that_was_cancelled_is_made_again_in_a_replay(world):
    async def main(action, context):
        call = asyncio.ensure_future(said(context, "a", 99))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        return []

    world.run(main)
    assert [type(entry) for entry in world.entries] == [CallEntry]

    async def patient(action, context):
        return [text_step("main", await said(context, "a", 99))]

    (step,) = world.run(patient, entries=world.entries)
    assert (step.payload, len(world.entries)) == ({"text": "a"}, 2)


def test_what_a_policy_leaves_under_way_is_not_recorded_and_begins_nothing(world):
    left = []

    @world.registry.register("twice", actions=["echo"])
    async def twice(action, context):
        left.append(context)
        left.append(asyncio.ensure_future(said(context, "a", 3)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return []

    async def main(action, context):
        await context.call(Action("twice"))
        await left[1]
        with pytest.raises(RuntimeError, match="twice has ended, and can no longer call echo"):
            left[0].call(Action("echo", {"text": "b"}))
        return []

    world.run(main)
    assert [entry.path for entry in world.entries] == ["1.1", "1.1.1", "1.1"]


@pytest.mark.parametrize("given", [None, "steps", [None], {}])
def test_a_policy_that_gives_no_steps_is_a_mistake_of_the_program(world, given):
    async def main(action, context):
        return given

    with pytest.raises(DsaError, match=r"the policy main returned .*, not a list of Steps"):
        world.run(main)
    with pytest.raises(DsaError, match="the policy main is not an async function"):
        world.run(lambda action, context: [])


def test_more_steps_than_a_ledger_takes_are_an_error_step(world):
    async def big(action, context):
        return [text_step("big", "x" * 5_000_000)] * 2

    (step,) = world.run(big)
    assert step.payload["code"] == "TOO_LARGE"
    assert step.payload["message"] == (
        "the policy main returned 10,000,022 characters of JSON; the limit is 8,388,608: store the data in a file or an artifact"
    )
