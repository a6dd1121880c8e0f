"""Recorded calls, replayed in their places."""

import asyncio
import contextlib

import pytest
from calling import World, said

from dsa.runtime.ledger import CallEntry, CallResultEntry
from dsa.runtime.policy.call_tree import ReplayMismatchError
from dsa.runtime.policy.policies import Action, text_step
from dsa.runtime.policy.policy_registry import Registry


@pytest.fixture
def world():
    return World()


def test_recorded_call_is_not_made_again_at_any_depth(world):
    async def main(action, context):
        await said(context, "a")
        return await context.call(Action("middle", {"texts": ["b", "c"]}))

    whole, entries, called = world.run(main), list(world.entries), list(world.called)
    for length in range(len(entries) + 1):
        world.called.clear()
        assert world.run(main, entries=entries[:length]) == whole
        assert world.entries == entries
        recorded = {
            step["payload"]["text"] for e in entries[:length] if isinstance(e, CallResultEntry) for step in e.steps
        }
        assert not recorded & set(world.called)
        assert set(world.called) <= set(called)


def test_result_is_replayed_even_if_the_policy_is_gone(world):
    async def main(action, context):
        return [text_step("main", await said(context, "a"))]

    whole, entries = world.run(main), world.entries
    world.registry = Registry()
    assert world.run(main, entries=entries) == whole


def test_place_is_assigned_when_a_call_is_created_not_when_it_is_awaited(world):
    async def main(action, context):
        first, second = context.call(Action("echo", {"text": "a"})), context.call(Action("echo", {"text": "b"}))
        later, sooner = await second, await first
        return [*sooner, *later]

    whole = world.run(main)
    assert [(entry.path, entry.payload["text"]) for entry in world.entries if isinstance(entry, CallEntry)] == [
        ("1.2", "b"),
        ("1.1", "a"),
    ]
    world.called.clear()
    assert world.run(main, entries=world.entries) == whole
    assert world.called == []


async def race(action, context):
    """Make two calls, take the first result, make another call with it, and cancel the other."""
    calls = [asyncio.ensure_future(said(context, text, rounds)) for text, rounds in (("slow", 9), ("quick", 1))]
    done, left = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    for call in left:
        call.cancel()
    (first,) = {call.result() for call in done}
    return [text_step("main", await said(context, f"after {first}"))]


def test_results_are_replayed_in_their_recorded_order(world):
    async def both(action, context):
        calls = [asyncio.ensure_future(said(context, text, rounds)) for text, rounds in (("slow", 9), ("quick", 1))]
        order = [await call for call in asyncio.as_completed(calls)]
        told = [step.id for step in await context.get_ledger()]
        return [text_step("main", await said(context, " before ".join(order)), about={"ledger": told})]

    whole, entries = world.run(both), list(world.entries)
    assert whole[0].payload == {"text": "quick before slow", "ledger": ["1.2", "1.2.result", "1.1", "1.1.result"]}
    for length in range(len(entries) + 1):
        assert world.run(both, entries=entries[:length]) == whole


def test_loser_of_a_race_is_not_started_again(world):
    whole, entries = world.run(race), list(world.entries)
    assert (whole[0].payload, world.called) == ({"text": "after quick"}, ["slow", "quick", "after quick"])
    world.called.clear()
    assert world.run(race, entries=entries) == whole
    assert world.run(race, entries=entries[:-2]) == whole
    assert world.called == ["after quick"]


@pytest.mark.parametrize(("slow", "follow_up"), [(2, 0), (30, 60), (30, 0)])
def test_results_arrive_one_at_a_time_so_that_a_policy_can_react_to_each(world, slow, follow_up):
    """Of two results in quick succession only one is done when the policy looks, in the first run and in a replay."""

    async def main(action, context):
        calls = [asyncio.ensure_future(said(context, text, rounds)) for text, rounds in (("slow", slow), ("quick", 1))]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        first = next(call.result() for call in calls if call in done)
        after = await said(context, f"after {first}", follow_up)
        return [text_step("main", f"{len(done)}: {after}, {await calls[0]}")]

    whole, entries = world.run(main), list(world.entries)
    assert whole[0].payload == {"text": "1: after quick, slow"}
    for length in range(len(entries) + 1):
        assert world.run(main, entries=entries[:length]) == whole


def test_policy_that_became_sequential_gets_its_results_without_deadlock(world):
    async def concurrent(action, context):
        texts = await asyncio.gather(said(context, "a", 5), said(context, "b"))
        return [text_step("main", "".join(texts))]

    async def sequential(action, context):
        return [text_step("main", await said(context, "a", 5) + await said(context, "b"))]

    whole, entries = world.run(concurrent), world.entries
    assert entries[2].path == "1.2"
    world.called.clear()
    assert world.run(sequential, entries=entries) == whole
    assert world.called == []


@pytest.mark.parametrize(
    ("asked", "recorded"),
    [
        (Action("echo", {"text": "b"}), "echo with {'text': 'a'}"),
        (Action("middle", {"text": "a"}), "echo with {'text': 'a'}"),
        (Action("echo", {"text": "a"}, frozenset({"echo"})), "echo with {'text': 'a'}"),
    ],
)
@pytest.mark.parametrize("length", [1, 2])
def test_different_call_in_a_recorded_place_is_an_error(world, asked, recorded, length):
    async def before(action, context):
        return await context.call(Action("echo", {"text": "a"}))

    async def after(action, context):
        return await context.call(asked)

    world.run(before)
    world.called.clear()
    with pytest.raises(ReplayMismatchError) as caught:
        world.run(after, entries=world.entries[:length])
    assert caught.value.position == "1.1"
    assert len(str(caught.value)) < 600
    assert caught.value.entry.startswith(recorded)
    assert caught.value.request.startswith(f"{asked.policy} with {asked.payload}")
    assert world.called == []


def test_changed_seed_is_a_mismatch(world):
    def asking(text):
        async def main(action, context):
            return await context.call(Action("echo", {"text": "a"}), seed=[text_step("user", text)])

        return main

    world.run(asking("x"))
    with pytest.raises(ReplayMismatchError):
        world.run(asking("y"), entries=world.entries)


def test_mismatch_is_raised_even_if_a_policy_catches_it(world):
    async def main(action, context):
        await said(context, "a")
        return []

    async def changed(action, context):
        with contextlib.suppress(ReplayMismatchError):
            await said(context, "b")
        return []

    world.run(main)
    with pytest.raises(ReplayMismatchError):
        world.run(changed, entries=world.entries)


def test_omitted_recorded_call_is_an_error(world):
    async def main(action, context):
        await said(context, "a")
        await said(context, "b")
        return []

    async def changed(action, context):
        await said(context, "a")
        return []

    world.run(main)
    with pytest.raises(
        ReplayMismatchError, match=r"call 1\.2: the ledger has echo with .*'b'.*; the policies now give no further call"
    ):
        world.run(changed, entries=world.entries)


@pytest.mark.parametrize("order", [(1,), (0, 0), (0, 1, 1)])
def test_entries_that_no_run_can_have_written_are_refused(world, order):
    async def main(action, context):
        return await context.call(Action("echo", {"text": "a"}))

    world.run(main)
    with pytest.raises(ReplayMismatchError, match=r"call 1\.1"):
        world.run(main, entries=[world.entries[n] for n in order])


def test_entries_of_other_keys_and_tries_are_not_replayed(world):
    async def main(action, context):
        return await context.call(Action("echo", {"text": "a"}))

    world.run(main, key="1/1")
    world.run(main, key="1/1", root=2, entries=world.entries)
    world.run(main, key="2/1", entries=world.entries)
    assert [(entry.key, entry.path) for entry in world.entries[::2]] == [
        ("1/1", "1.1"),
        ("1/1", "2.1"),
        ("2/1", "1.1"),
    ]
    assert world.called == ["a", "a", "a"]
