"""Policies that call each other, with a count of how often each was called and the entries of these calls."""

import asyncio

from dsa.runtime.policy.policies import Action, text_step
from dsa.runtime.policy.policy_calls import Calls
from dsa.runtime.policy.policy_registry import Registry

ALL = frozenset({"echo", "middle", "crash", "twice"})


class World:
    """Policies that repeat what they are asked, and a count of how often each was called."""

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
        """Perform a policy with an empty payload, and record the appended entries."""
        self.entries = list(entries)
        options = {"entries": list(entries), "append": self.entries.append, **options}
        calls = Calls(self.registry, **options)
        return asyncio.run(calls.perform(Action("main", actions=ALL), policy))


async def said(context, text, rounds=0):
    (step,) = await context.call(Action("echo", {"text": text, "rounds": rounds}))
    return step.payload["text"]
