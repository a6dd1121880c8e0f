"""Faults of calls: calls that are not allowed, and failures during a call."""

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


def test_forbidden_call_is_an_error_step_and_is_not_made(world):
    @world.registry.register("forbidden")
    async def forbidden(action, context):
        raise AssertionError("called")

    async def main(action, context):
        return await context.call(Action("forbidden"))

    (step,) = world.run(main)
    assert step.payload["code"] == "NOT_ALLOWED"
    assert step.payload["message"] == "main may not call forbidden; it may call: crash, echo, middle, twice"
    assert [type(entry) for entry in world.entries] == [CallEntry, CallResultEntry]


def test_policy_may_call_actions_of_its_request_and_registration(world):
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


def test_payload_that_breaks_the_schema_is_an_error_step_and_no_call_is_made(world):
    async def main(action, context):
        return await context.call(Action("echo", {"txt": "a"}))

    (step,) = world.run(main)
    assert (step.payload["code"], step.payload["where"]) == ("INVALID_PAYLOAD", "$")
    assert world.called == []


@pytest.mark.parametrize("payload", [{"a": object()}, {1: 2}])
def test_non_json_payload_is_refused_before_anything_is_recorded(world, payload):
    async def main(action, context):
        return await context.call(Action("echo", payload))

    with pytest.raises(TypeError):
        world.run(main)
    assert world.entries == []


def test_allowed_policy_without_registration_is_a_program_error(world):
    async def main(action, context):
        return await context.call(Action("twice"))

    with pytest.raises(BindingError, match="no policy 'twice'"):
        world.run(main)


def test_run_continues_from_the_ledger_that_a_crash_left(world):
    async def main(action, context):
        return await context.call(Action("middle", {"texts": ["a"], "crash": True}))

    with pytest.raises(ConnectionError):
        world.run(main)
    assert [entry.path for entry in world.entries] == ["1.1", "1.1.1", "1.1.1", "1.1.2"]

    async def fixed(action, context):
        return []

    world.called.clear()
    world.registry = Registry({"echo": world.echo, "crash": fixed})
    world.registry.register("middle", actions=["echo", "crash"])(world.middle)
    (step,) = world.run(main, entries=world.entries)
    assert (step.payload, world.called) == ({"text": "a"}, ["middle"])


@pytest.mark.parametrize("depth", ["main", "middle"])
def test_caught_crash_still_ends_the_run(world, depth):
    """A replay could not repeat it, because no ledger has what follows from a caught crash."""

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


def test_call_in_progress_during_a_crash_is_recorded_and_no_new_call_starts(world):
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
def test_recording_failure_ends_the_run_even_if_it_is_caught(world, failing):
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


def test_cancelled_call_is_made_again_in_a_replay(world):
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


def test_call_left_behind_by_a_policy_is_not_recorded_and_starts_nothing(world):
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
def test_policy_that_returns_no_steps_is_a_program_error(world, given):
    async def main(action, context):
        return given

    with pytest.raises(DsaError, match=r"the policy main returned .*, not a list of Steps"):
        world.run(main)
    with pytest.raises(DsaError, match="the policy main is not an async function"):
        world.run(lambda action, context: [])


def test_too_large_result_is_an_error_step(world):
    async def big(action, context):
        return [text_step("big", "x" * 5_000_000)] * 2

    (step,) = world.run(big)
    assert step.payload["code"] == "TOO_LARGE"
    assert step.payload["message"] == (
        "the policy main returned 10,000,022 characters of JSON; the limit is 8,388,608: store the data in a file or an artifact"
    )
