"""Policies that call each other, killed anywhere any number of times: no recorded call is made again, and the result is the same."""

import asyncio
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_sizes import sample_size

from dsa.runtime.ledger import CallEntry, CallResultEntry, from_json, to_json
from dsa.runtime.policy.invocation import answer_of, in_doubt, invoke_action, ledger_of, loop_wrapper, run
from dsa.runtime.policy.policies import Action, action_call_step, text_step
from dsa.runtime.policy.policy_registry import Registry

ALL = frozenset({"leaf", "tree", "model"})


class KilledError(Exception):
    """The process is gone: nothing is appended any more."""


class World:
    """The policies, what a store has, and a clock of its own: how long anything takes is another matter in each life."""

    def __init__(self, chance):
        self.chance = chance
        self.saved = []
        self.left = None
        self.made = []
        self.registry = Registry({"leaf": self.leaf, "tree": self.tree, "model": self.model})

    @property
    def ended(self):
        return {entry.path for entry in self.saved if isinstance(entry, CallResultEntry)}

    def append(self, entry):
        """Save an entry, and die before or after it when the time has come."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KilledError
        self.saved.append(from_json(json.loads(json.dumps(to_json(entry)))))

    async def rounds(self):
        for _ in range(self.chance.choice([0, 0, 1, 2, 5, 17, 40])):
            await asyncio.sleep(0)

    async def leaf(self, action, context):
        assert context.key not in self.ended, "a recorded call was made again"
        await self.rounds()
        return [text_step("leaf", action.payload["name"])]

    async def model(self, action, context):
        """Ask for a leaf in each turn, as many turns as the payload says."""
        assert context.key not in self.ended, "a recorded turn was made again"
        await self.rounds()
        turn = sum(step.type == "action_call" for step in await context.get_ledger())
        if turn == action.payload["turns"]:
            return [text_step("model", f"{turn} turns")]
        return [action_call_step("model", Action("leaf", {"name": f"turn {turn}"}))]

    async def asked(self, context, call):
        """Return the text of a call's result, which must be saved by the time that the caller sees it."""
        steps = await call
        if steps:
            assert steps[0].id.rpartition("/")[0].removesuffix(".result") in {*self.ended, *self.spoken()}
        return "".join(step.payload.get("text", "") for step in steps)

    def spoken(self):
        return {entry.path for entry in self.saved if isinstance(entry, CallEntry)}

    async def tree(self, action, context):
        """Do as the payload says: call its parts one after the other, at once, late, or take the first that answers."""
        kind, parts = action.payload["kind"], action.payload["parts"]
        calls = [self.call(context, part) for part in parts] if kind != "seq" else []
        match kind:
            case "seq":
                texts = [await self.call(context, part) for part in parts]
            case "gather":
                texts = await asyncio.gather(*calls)
            case "late":
                texts = await asyncio.gather(*(self.later(call) for call in calls))
            case "race":
                texts = await self.raced(calls)
                texts.append(await self.call(context, texts[0]))
        told = [step.id for step in await context.get_ledger()] if kind in {"seq", "race"} else []
        return [text_step("tree", f"({' '.join([*texts, *told])})")]

    def call(self, context, part):
        """Call a part; the call is closed in the end, for those that death kept from being awaited."""
        decorators = ()
        if isinstance(part, str):
            action = Action("leaf", {"name": part})
        elif isinstance(part, int):
            action = Action("model", {"turns": part}, frozenset({"leaf"}))
            decorators = [loop_wrapper(9), invoke_action()]
        else:
            action = Action("tree", {"kind": part[0], "parts": part[1:]}, ALL)
        call = context.call(action, decorators)
        seen = self.asked(context, call)
        self.made += [seen, call]
        return seen

    async def later(self, call):
        await self.rounds()
        return await call

    async def raced(self, calls):
        """Return the first answer and stop the others."""
        tasks = [asyncio.ensure_future(call) for call in calls]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in left:
            task.cancel()
        return [next(task.result() for task in tasks if task in done)]

    def live(self, part, left=None):
        """Run until the end, or until `left` entries are saved; return the answer, or None."""
        self.left = left
        payload = {"kind": part[0], "parts": part[1:]}

        async def life():
            asyncio.get_running_loop().set_exception_handler(lambda _loop, _about: None)  # the dead do not complain
            return await run("tree", payload, self.registry, ledger_of(self.saved), append=self.append)

        try:
            ledger = asyncio.run(life())
        except KilledError:
            return None
        finally:
            for coroutine in self.made:
                coroutine.close()
        return answer_of(ledger)


def trees(*kinds):
    part = st.recursive(
        st.sampled_from("abc") | st.integers(0, 2),
        lambda parts: st.lists(parts, min_size=1, max_size=4).flatmap(
            lambda chosen: st.sampled_from(kinds).map(lambda kind: [kind, *chosen])
        ),
        max_leaves=9,
    )
    return st.lists(part, min_size=1, max_size=4).flatmap(
        lambda chosen: st.sampled_from(kinds).map(lambda kind: [kind, *chosen])
    )


LIVES = st.lists(st.integers(0, 12), max_size=6)


def same_result(tree, lives, seed):
    undisturbed = World(random.Random(seed)).live(tree)
    world = World(random.Random(seed + 1))
    for left in lives:
        if world.live(tree, left) is not None:
            break
    assert world.live(tree) == undisturbed
    assert in_doubt(world.saved) == ()


def same_order(tree, lives, seed):
    world = World(random.Random(seed))
    for left in lives:
        if world.live(tree, left) is not None:
            break
    answer, saved = world.live(tree), world.saved
    for length in {1, len(saved) // 2, len(saved) - 1}:
        world.saved, world.chance = saved[:length], random.Random(seed + length)
        assert world.live(tree) is not None
    world.saved = saved[:-1]
    assert world.live(tree) == answer
    assert world.saved == saved


WITHOUT_RACES = trees("seq", "gather", "late")
WITH_RACES = trees("seq", "gather", "race")


@given(WITHOUT_RACES, LIVES, st.integers(0, 2**32))
@settings(deadline=None)
def test_killed_policy_gives_the_result_of_an_undisturbed_one(tree, lives, seed):
    same_result(tree, lives, seed)


@given(WITH_RACES, LIVES, st.integers(0, 2**32))
@settings(deadline=None)
def test_order_of_answers_is_the_same_after_a_kill(tree, lives, seed):
    same_order(tree, lives, seed)


@pytest.mark.full
@given(WITHOUT_RACES | WITH_RACES, LIVES, st.integers(0, 2**32))
@settings(deadline=None, max_examples=sample_size(150, full=1_000))
def test_result_and_order_survive_kills_of_many_policies(tree, lives, seed):
    if "race" not in repr(tree):
        same_result(tree, lives, seed)
    same_order(tree, lives, seed)
