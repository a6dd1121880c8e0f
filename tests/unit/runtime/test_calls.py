"""Calls are recorded before anybody sees their results, and replayed in their places."""

import asyncio
import contextlib

import pytest

from dsa.errors import BindingError
from dsa.runtime.calls import Calls
from dsa.runtime.ledger import CallEntry, CallResultEntry, Ledger
from dsa.runtime.policies import Action, error_step, text_step
from dsa.runtime.recorded import ReplayMismatchError
from dsa.runtime.registry import Registry

ALL = frozenset({"echo", "middle", "crash", "twice"})


class World:
    """Policies that say what they are asked, and a count of how often each was called."""

    def __init__(self):
        self.registry = Registry()
        self.called = []
        self.entries = []
        self.registry.register("echo", schema={"type": "object", "required": ["text"]})(self.echo)
        self.registry.register("crash")(self.crash)
        self.registry.register("middle", actions=["echo", "crash"])(self.middle)

    async def echo(self, action, context):
        self.called.append(action.payload["text"])
        for _ in range(action.payload.get("rounds", 0)):
            await asyncio.sleep(0)
        return [text_step("echo", action.payload["text"])]

    async def crash(self, action, context):
        self.called.append("crash")
        raise ConnectionError("no route")

    async def middle(self, action, context):
        self.called.append("middle")
        texts = [await said(context, text) for text in action.payload["texts"]]
        if action.payload.get("crash"):
            await context.call(Action("crash"))
        return [text_step("middle", "+".join(texts))]

    def run(self, policy, *, entries=(), **options):
        """Perform a policy that is given nothing, and keep what is appended."""
        self.entries = list(entries)
        options = {"recorded": list(entries), "append": self.entries.append, **options}
        calls = Calls(self.registry, **options)
        return asyncio.run(calls.perform(Action("main", actions=ALL), policy))


async def said(context, text, rounds=0):
    (step,) = await context.call(Action("echo", {"text": text, "rounds": rounds}))
    return step.payload["text"]


@pytest.fixture
def world():
    return World()


# -- what is recorded -------------------------------------------------------------------------------------------------


def test_a_call_is_recorded_as_it_begins_and_as_it_ends(world):
    async def main(action, context):
        return [text_step("main", await said(context, "a"))]

    (step,) = world.run(main, key="r/1/1")
    action = Action("echo", {"text": "a", "rounds": 0})
    given = {"id": "1.1/1", "actor": "echo", "type": "text", "payload": {"text": "a"}}
    assert world.entries == [
        CallEntry("r/1/1", "1.1", "echo", action.digest, action.payload),
        CallResultEntry("r/1/1", "1.1", [given]),
    ]
    assert (step.id, step.payload) == ("1/1", {"text": "a"})


def test_nobody_sees_a_result_before_it_is_recorded(world):
    seen = []

    async def main(action, context):
        seen.append(await said(context, "a"))
        return []

    def append(entry):
        assert not seen
        world.entries.append(entry)

    world.run(main, append=append)
    assert (len(world.entries), seen) == (2, ["a"])


def test_calls_within_calls_have_paths(world):
    async def main(action, context):
        await said(context, "a")
        return await context.call(Action("middle", {"texts": ["b", "c"]}))

    world.run(main)
    assert [entry.path for entry in world.entries] == ["1.1", "1.1", "1.2", "1.2.1", "1.2.1", "1.2.2", "1.2.2", "1.2"]


def test_a_call_has_a_key_that_no_other_has_and_every_replay(world):
    keys = []

    @world.registry.register("twice")
    async def twice(action, context):
        keys.append(context.key)
        return []

    async def main(action, context):
        await asyncio.gather(context.call(Action("twice")), context.call(Action("twice")))
        return [text_step("main", context.key)]

    assert world.run(main, key="r/3/1")[0].payload == {"text": "r/3/1/1"}
    assert world.run(main, key="r/3/1", root=2)[0].payload == {"text": "r/3/1/2"}
    assert keys == ["r/3/1/1.1", "r/3/1/1.2", "r/3/1/2.1", "r/3/1/2.2"]


# -- replay -----------------------------------------------------------------------------------------------------------


def test_a_recorded_call_is_not_made_again_at_any_depth(world):
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


def test_a_result_is_replayed_though_the_policy_is_gone_or_would_say_something_else(world):
    async def main(action, context):
        return [text_step("main", await said(context, "a"))]

    whole, entries = world.run(main), world.entries
    world.registry = Registry()
    assert world.run(main, entries=entries) == whole


def test_a_place_is_allotted_when_a_call_is_made_not_when_it_is_awaited(world):
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
    """Ask two, take the first answer, ask on with it, and stop the other."""
    calls = [asyncio.ensure_future(said(context, text, rounds)) for text, rounds in (("slow", 9), ("quick", 1))]
    done, left = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    for call in left:
        call.cancel()
    (first,) = {call.result() for call in done}
    return [text_step("main", await said(context, f"after {first}"))]


def test_results_come_again_in_the_order_in_which_they_were_recorded(world):
    async def both(action, context):
        calls = [asyncio.ensure_future(said(context, text, rounds)) for text, rounds in (("slow", 9), ("quick", 1))]
        order = [await call for call in asyncio.as_completed(calls)]
        told = [step.id for step in await context.get_ledger()]
        return [text_step("main", await said(context, " before ".join(order)), about={"ledger": told})]

    whole, entries = world.run(both), list(world.entries)
    assert whole[0].payload == {"text": "quick before slow", "ledger": ["1.2", "1.2.result", "1.1", "1.1.result"]}
    for length in range(len(entries) + 1):
        assert world.run(both, entries=entries[:length]) == whole


def test_who_lost_a_race_is_not_started_again(world):
    whole, entries = world.run(race), list(world.entries)
    assert (whole[0].payload, world.called) == ({"text": "after quick"}, ["slow", "quick", "after quick"])
    world.called.clear()
    assert world.run(race, entries=entries) == whole
    assert world.run(race, entries=entries[:-2]) == whole
    assert world.called == ["after quick"]


@pytest.mark.parametrize(("slow", "follow_up"), [(2, 0), (30, 60), (30, 0)])
def test_results_come_one_at_a_time_so_that_a_policy_can_react_to_each(world, slow, follow_up):
    """Two that come in quick succession are not both done when the policy looks, neither at first nor in a replay."""

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


def test_a_policy_that_has_become_sequential_gets_its_results_and_does_not_wait_for_ever(world):
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
def test_another_call_in_a_recorded_place_is_an_error_not_an_answer(world, asked, recorded, length):
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
    assert caught.value.recorded.startswith(recorded)
    assert caught.value.asked.startswith(f"{asked.policy} with {asked.payload}")
    assert world.called == []


def test_another_seed_is_another_call(world):
    def asking(text):
        async def main(action, context):
            return await context.call(Action("echo", {"text": "a"}), seed=[text_step("user", text)])

        return main

    world.run(asking("x"))
    with pytest.raises(ReplayMismatchError):
        world.run(asking("y"), entries=world.entries)


def test_a_mismatch_cannot_be_caught_away(world):
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


def test_calls_that_are_recorded_and_not_made_are_an_error(world):
    async def main(action, context):
        await said(context, "a")
        await said(context, "b")
        return []

    async def changed(action, context):
        await said(context, "a")
        return []

    world.run(main)
    with pytest.raises(
        ReplayMismatchError, match=r"call 1\.2: the ledger has echo with .*'b'.*; asked for is nothing more"
    ):
        world.run(changed, entries=world.entries)


@pytest.mark.parametrize("order", [(1,), (0, 0), (0, 1, 1)])
def test_entries_that_no_run_has_written_are_refused(world, order):
    async def main(action, context):
        return await context.call(Action("echo", {"text": "a"}))

    world.run(main)
    with pytest.raises(ReplayMismatchError, match=r"call 1\.1"):
        world.run(main, entries=[world.entries[n] for n in order])


def test_entries_of_other_keys_and_other_tries_are_none_of_ours(world):
    async def main(action, context):
        return await context.call(Action("echo", {"text": "a"}))

    world.run(main, key="r/1/1")
    world.run(main, key="r/1/1", root=2, entries=world.entries)
    world.run(main, key="r/2/1", entries=world.entries)
    assert [(entry.key, entry.path) for entry in world.entries[::2]] == [
        ("r/1/1", "1.1"),
        ("r/1/1", "2.1"),
        ("r/2/1", "1.1"),
    ]
    assert world.called == ["a", "a", "a"]


# -- what is refused, and what breaks ---------------------------------------------------------------------------------


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
        with pytest.raises(RuntimeError, match="twice has ended and calls echo no more"):
            left[0].call(Action("echo", {"text": "b"}))
        return []

    world.run(main)
    assert [entry.path for entry in world.entries] == ["1.1", "1.1.1", "1.1"]


@pytest.mark.parametrize("given", [None, "steps", [None], {}])
def test_a_policy_that_gives_no_steps_is_a_mistake_of_the_program(world, given):
    async def main(action, context):
        return given

    with pytest.raises(TypeError, match=r"the policy main gave .*, not a list of Steps"):
        world.run(main)
    with pytest.raises(TypeError, match="the policy main is no async function"):
        world.run(lambda action, context: [])


# -- what a policy knows ----------------------------------------------------------------------------------------------


def test_a_policy_has_its_own_ledger_of_calls_and_results(world):
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


def test_the_ledger_of_a_called_policy_starts_empty_or_as_it_is_seeded(world):
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


def test_the_result_of_a_call_is_one_step_and_nothing_is_left_out_of_it(world):
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


def test_a_turn_is_recorded_and_knows_what_was_said_before(world):
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


def test_a_turn_that_is_not_the_recorded_one_is_told_as_such(world):
    def saying(text):
        async def main(action, context):
            context.note(text_step("user", text))
            return await context.turn(world.echo, Action("echo", {"text": "x" * 999}))

        return main

    world.run(saying("a"))
    with pytest.raises(ReplayMismatchError, match=r"call 1\.1: the ledger has a turn of echo \(\w{12}\); asked"):
        world.run(saying("b"), entries=world.entries)


def test_settings_can_be_read_and_not_changed(world):
    async def main(action, context):
        with pytest.raises(TypeError):
            context.config["model"] = "n"
        return [text_step("main", context.config["model"])]

    assert world.run(main, config={"model": "m"})[0].payload == {"text": "m"}


@pytest.mark.parametrize("asking", ["run", "artifacts", "guard", "generator", "now_s", "record"])
def test_outside_a_machine_there_is_nothing_of_a_machine(world, asking):
    async def main(action, context):
        asked = getattr(context, asking)
        asked(*(["g"] if asking != "now_s" else []))
        return []

    with pytest.raises(LookupError, match="outside a machine"):
        world.run(main)


def test_called_policies_have_the_surroundings_of_the_first(world):
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
