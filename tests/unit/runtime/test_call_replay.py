"""Calls replayed from their ledger: only policies that called others are performed, and nothing outside is touched."""

import asyncio
import contextlib

import pytest
from calling import World, said

from dsa.errors import BindingError
from dsa.runtime.ledger import CallResultEntry
from dsa.runtime.policy.call_tree import ReplayMismatchError
from dsa.runtime.policy.invocation import invoke_action, loop_wrapper, replay_calls, run
from dsa.runtime.policy.policies import Action, action_call_step, text_step
from dsa.runtime.policy.policy_registry import Registry


class Trips(World):
    """Policies of a run, some of which call others."""

    def __init__(self):
        super().__init__()
        self.registry.register("both", actions=["echo", "middle"])(self.both)
        self.registry.register("race", actions=["echo"])(self.race)
        self.registry.register("loop", actions=["model"])(self.loop)
        self.registry.register("model")(self.model)
        self.registry.register("pay", actions=["echo"], in_doubt="ask")(self.pay)
        self.registry.register("payer", actions=["pay"])(self.payer)

    async def both(self, action, context):
        self.called.append("both")
        calls = [context.call(Action("middle", {"texts": ["b", "c"]})), said(context, "a", 2)]
        (middle,), text = await asyncio.gather(*calls)
        return [text_step("both", f"{middle.payload['text']} {text}")]

    async def race(self, action, context):
        calls = [asyncio.ensure_future(said(context, text, rounds)) for text, rounds in (("slow", 9), ("quick", 1))]
        done, left = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for call in left:
            call.cancel()
        (first,) = (call.result() for call in done)
        return [text_step("race", await said(context, f"after {first}"))]

    async def model(self, action, context):
        self.called.append("model")
        if await context.get_ledger():
            return [text_step("assistant", "done")]
        return [action_call_step("assistant", Action("echo", {"text": "a"}))]

    async def loop(self, action, context):
        asked = Action("model", {}, frozenset({"echo"}))
        return await context.call(asked, [loop_wrapper(3), invoke_action()])

    async def pay(self, action, context):
        self.called.append("pay")
        return await context.call(Action("echo", {"text": "paid"}))

    async def payer(self, action, context):
        return await context.call(Action("pay"))

    def recorded(self, policy, payload=None):
        """Run a policy and return its entries; clear the list of calls."""
        entries = []
        with contextlib.suppress(ConnectionError):
            asyncio.run(run(policy, payload or {}, self.registry, run_id="r", append=entries.append))
        self.called.clear()
        return entries

    def replayed(self, entries, **changed):
        """Replay the calls of a run for the request of its first entry."""
        first = entries[0]
        asked = Action(first.policy, changed.get("payload", first.payload), frozenset(first.actions))

        async def replaying():
            asyncio.get_running_loop().set_exception_handler(lambda _loop, _about: None)
            return await replay_calls(entries, self.registry, asked, key="r")

        return asyncio.run(replaying())


@pytest.fixture
def trips():
    return Trips()


def test_only_policies_that_called_others_are_performed_again(trips):
    entries = trips.recorded("both")
    found = trips.replayed(entries)
    assert (found.performed_paths, found.ends_at) == (("1.1", "1.1.1"), None)
    assert trips.called == ["both", "middle"]
    assert trips.replayed(trips.recorded("race")).performed_paths == ("1.1",)
    found = trips.replayed(trips.recorded("loop"))
    assert (found.performed_paths, trips.called) == (("1.1", "1.1.1"), [])


def test_policy_that_called_no_other_is_never_performed(trips):
    found = trips.replayed(trips.recorded("echo", {"text": "a"}))
    assert (found.performed_paths, trips.called) == ((), [])


def test_unrepeatable_policy_is_not_performed_even_if_it_called_others(trips):
    found = trips.replayed(trips.recorded("payer"))
    assert (found.performed_paths, trips.called) == (("1.1",), [])


@pytest.mark.parametrize("policy", ["both", "race", "loop", "payer"])
def test_any_prefix_is_replayed_as_far_as_it_goes(trips, policy):
    entries = trips.recorded(policy)
    for length in range(1, len(entries) + 1):
        trips.called.clear()
        found = trips.replayed(entries[:length])
        assert not {"a", "b", "c", "slow", "quick", "model", "paid"} & set(trips.called)
        ended = {entry.path for entry in entries[:length] if isinstance(entry, CallResultEntry)}
        assert found.ends_at not in ended
    assert found.ends_at is None


def test_run_stopped_by_a_policy_is_replayed_up_to_there(trips):
    entries = trips.recorded("middle", {"texts": ["a"], "crash": True})
    found = trips.replayed(entries)
    assert (found.performed_paths, found.ends_at, trips.called) == (("1.1",), "1.1.2", ["middle"])


def changed(policy, replacement, **about):
    """Return policies of which one is replaced."""
    trips = Trips()
    registry = Registry()
    registry.register(policy, **about)(replacement)
    trips.registry = registry.union(trips.registry)
    return trips


async def other_name(action, context):
    await context.call(Action("crash"))
    return await context.call(Action("echo", {"text": "a"}))


async def other_payload(action, context):
    return [text_step("middle", f"{await said(context, 'b')}+{await said(context, 'C')}")]


async def fewer(action, context):
    return [text_step("middle", f"{await said(context, 'b')}+c")]


async def more(action, context):
    texts = [await said(context, text) for text in "bcd"]
    return [text_step("middle", "+".join(texts[:2]))]


async def other_answer(action, context):
    return [text_step("middle", f"{await said(context, 'b')} and {await said(context, 'c')}")]


async def raising(action, context):
    await said(context, "b")
    raise KeyError("colour")


async def catching(action, context):
    """Catch every exception; the replay finds the difference anyway."""
    texts = []
    for text in "bcd":
        try:
            texts.append(await said(context, text))
        except Exception:  # noqa: BLE001
            break
    return [text_step("middle", "+".join(texts))]


CHANGES = {
    "another policy": (other_name, "1.1.1.1", r"echo with {'rounds': 0, 'text': 'b'}.* now give crash with {}"),
    "another payload": (other_payload, "1.1.1.2", r"'text': 'c'.* now give echo with .*'text': 'C'"),
    "one call fewer": (fewer, "1.1.1.2", r"'text': 'c'.* now give no further call by middle"),
    "one call more": (more, "1.1.1.3", r"no further call; the policies now give echo with .*'text': 'd'"),
    "one call more, exception caught": (catching, "1.1.1.3", r"no further call"),
    "another answer": (other_answer, "1.1.1", r'the steps .*"b\+c".* now give the steps .*"b and c"'),
    "exception": (raising, "1.1.1", r"now give KeyError: 'colour'"),
}


@pytest.mark.parametrize(("replacement", "path", "told"), CHANGES.values(), ids=CHANGES)
def test_changed_policy_is_reported_with_the_call_that_differs(replacement, path, told):
    entries = Trips().recorded("both")
    trips = changed("middle", replacement, actions=["echo", "crash"])
    with pytest.raises(ReplayMismatchError, match=told) as caught:
        trips.replayed(entries)
    assert caught.value.position == path
    assert "a" not in trips.called


def test_abandoned_call_is_not_made_when_a_changed_policy_awaits_it(trips):
    async def patient(action, context):
        slow, quick = await asyncio.gather(said(context, "slow", 9), said(context, "quick", 1))
        return [text_step("race", await said(context, f"after {quick or slow}"))]

    entries = trips.recorded("race")
    trips = changed("race", patient, actions=["echo"])
    with pytest.raises(ReplayMismatchError, match=r"call 1\.1\.1: the ledger has a call whose result was not awaited"):
        trips.replayed(entries)
    assert trips.called == []


def test_another_schema_of_either_policy_is_a_difference(trips):
    entries = trips.recorded("both")
    with pytest.raises(ReplayMismatchError, match="INVALID_PAYLOAD"):
        changed("middle", trips.middle, actions=["echo"], schema={"required": ["text"]}).replayed(entries)
    with pytest.raises(ReplayMismatchError, match="INVALID_PAYLOAD"):
        changed("both", trips.both, actions=["echo", "middle"], schema={"required": ["text"]}).replayed(entries)


def test_missing_policy_is_named(trips):
    entries = trips.recorded("both")
    trips.registry = Registry({"echo": trips.echo})
    with pytest.raises(BindingError, match="no policy 'both'"):
        trips.replayed(entries)


def test_replay_with_another_request_is_refused(trips):
    entries = trips.recorded("both")
    with pytest.raises(ReplayMismatchError, match=r"call 1\.1: "):
        trips.replayed(entries, payload={"text": "b"})
