"""Decorated policies: turns, the actions they ask for, and the approvals that some of these need."""

import asyncio

import pytest

from dsa.runtime.ledger import CallEntry, CallResultEntry
from dsa.runtime.policy.invocation import invoke_action, loop_wrapper
from dsa.runtime.policy.policies import Action, Step, action_call_step, approval_step, text_step
from dsa.runtime.policy.policy_calls import Calls
from dsa.runtime.policy.policy_registry import Registry

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Model:
    """A policy with one list of steps for each turn, which records the ledgers that it saw."""

    def __init__(self, *turns):
        self.turns = turns
        self.seen = []

    async def __call__(self, action, context):
        ledger = await context.get_ledger()
        self.seen.append(list(ledger))
        return self.turns[len(self.seen) - 1]


def ask(name, arguments, **about):
    return action_call_step("assistant", Action(name, arguments), about=about)


class Tools:
    def __init__(self):
        self.called = []
        self.policies = {"weather": self.weather, "pay": self.pay, "forbidden": self.pay}

    async def weather(self, action, context):
        self.called.append(action.payload)
        return [Step("", "weather", "action_result", {"city": action.payload["city"], "temp_c": 12})]

    async def pay(self, action, context):
        self.called.append(action.payload)
        return [Step("", "pay", "action_result", {"paid": action.payload["amount"]})]

    def run(self, policy, *, entries=(), decorators=(), actions=("weather", "pay", "person")):
        """Call a policy with decorators."""
        registry = Registry({name: given for name, given in self.policies.items() if name != "weather"})
        registry.register("weather", schema=WEATHER)(self.policies["weather"])
        registry.register("model")(policy)
        self.entries = list(entries)

        async def main(action, context):
            return await context.call(Action("model", actions=frozenset(actions)), decorators)

        calls = Calls(registry, entries=list(entries), append=self.entries.append)
        return asyncio.run(calls.perform(Action("main", actions=frozenset({"model"})), main))


@pytest.fixture
def tools():
    return Tools()


BOTH = [loop_wrapper(5), invoke_action()]


def test_loop_continues_until_the_policy_asks_for_no_action(tools):
    model = Model(
        [text_step("assistant", "let me see"), ask("weather", {"city": "Oslo"})], [text_step("assistant", "12")]
    )
    steps = tools.run(model, decorators=BOTH)
    assert [(step.id, step.actor, step.type) for step in steps] == [
        ("1.1.1/1", "assistant", "text"),
        ("1.1.1/2", "assistant", "action_call"),
        ("1.1.1/2.result", "weather", "action_result"),
        ("1.1.3/1", "assistant", "text"),
    ]
    assert steps[2].payload == {"city": "Oslo", "temp_c": 12}
    assert [[step.id for step in seen] for seen in model.seen] == [[], ["1.1.1/1", "1.1.1/2", "1.1.1/2.result"]]


def test_steps_of_a_turn_precede_its_results_in_the_order_asked_for(tools):
    cities = ["Oslo", "Rome"]
    model = Model([ask("weather", {"city": city}) for city in cities], [])
    tools.run(model, decorators=BOTH)
    assert [step.type for step in model.seen[1]] == ["action_call", "action_call", "action_result", "action_result"]
    assert [step.payload["city"] for step in model.seen[1][2:]] == cities


def test_loop_ends_with_an_error_after_its_last_turn(tools):
    model = Model(*[[ask("weather", {"city": "Oslo"})]] * 9)
    steps = tools.run(model, decorators=[loop_wrapper(3), invoke_action()])
    assert len(model.seen) == 3
    assert steps[-1].payload["code"] == "MAX_TURNS"
    assert "turn 3" in steps[-1].payload["message"]
    assert steps[-1].id.startswith("1.1/")


def test_loop_without_invoke_action_only_repeats(tools):
    model = Model([ask("weather", {"city": "Oslo"})], [text_step("assistant", "done")])
    steps = tools.run(model, decorators=[loop_wrapper(5)])
    assert ([step.type for step in steps], tools.called) == (["action_call", "text"], [])
    assert [step.type for step in model.seen[1]] == ["action_call"]


def test_actions_are_carried_out_once_without_a_loop(tools):
    steps = tools.run(Model([ask("weather", {"city": "Oslo"})]), decorators=[invoke_action()])
    assert [step.type for step in steps] == ["action_call", "action_result"]


def test_decorators_can_be_stacked_on_a_function(tools):
    turns = []

    @loop_wrapper(max_turns=5)
    @invoke_action()
    async def agent(action, context):
        turns.append(len(await context.get_ledger()))
        return [ask("weather", {"city": "Oslo"})] if len(turns) == 1 else [text_step("assistant", "12")]

    steps = tools.run(agent)
    assert ([step.type for step in steps], turns) == (["action_call", "action_result", "text"], [0, 2])


def test_user_defined_decorator_works_in_any_position(tools):
    def shouting(policy):
        async def loud(action, context):
            return [
                text_step(s.actor, s.payload["text"].upper()) if s.type == "text" else s
                for s in await policy(action, context)
            ]

        return loud

    for decorators in ([shouting, *BOTH], [loop_wrapper(5), shouting, invoke_action()], [*BOTH, shouting]):
        model = Model([ask("weather", {"city": "Oslo"})], [text_step("assistant", "cold")])
        steps = tools.run(model, decorators=decorators)
        assert (len(steps), steps[-1].payload) == (3, {"text": "COLD"})


def test_loop_inside_invoke_action_is_refused():
    async def policy(action, context):
        return []

    with pytest.raises(TypeError, match=r"write \[loop_wrapper\(\.\.\), invoke_action\(\)\]"):
        invoke_action()(loop_wrapper(5)(policy))
    with pytest.raises(ValueError, match="max_turns is 0"):
        loop_wrapper(0)


def test_recorded_turns_and_actions_are_not_repeated_after_a_crash(tools):
    turns = (
        [ask("weather", {"city": "Oslo"})],
        [ask("weather", {"city": "Rome"})],
        [text_step("assistant", "both cold")],
    )
    whole, entries = tools.run(Model(*turns), decorators=BOTH), tools.entries
    paths = [entry.path for entry in entries if isinstance(entry, CallEntry) and entry.payload is None]
    assert paths == ["1.1.1", "1.1.3", "1.1.5"]
    for length in range(len(entries) + 1):
        ended = {entry.path for entry in entries[:length] if isinstance(entry, CallResultEntry)}
        left = [] if "1.1" in ended else [turn for turn, path in zip(turns, paths, strict=True) if path not in ended]
        model = Model(*left)
        tools.called.clear()
        assert tools.run(model, decorators=BOTH, entries=entries[:length]) == whole
        assert len(model.seen) == len(left)
        assert len(tools.called) == 2 - sum(path in ended for path in ("1.1.2", "1.1.4"))


# -- limits of a model --------------------------------------------------------------------------------------------------


def code_of(tools, call, **options):
    """Return the payload that a model sees after it has asked for this call."""
    model = Model([call], [])
    tools.run(model, decorators=[loop_wrapper(2), invoke_action(**options)])
    first, *_, last = model.seen[1]
    assert last.id == f"{first.id}.result"
    return last.payload


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (ask("forbidden", {"amount": 1}), "NOT_ALLOWED"),
        (ask("no_such_policy", {}), "NOT_ALLOWED"),
        (ask("weather", {"town": "Oslo"}), "INVALID_PAYLOAD"),
        (ask("weather", {"city": "Oslo"}, fault="the arguments are no JSON"), "INVALID_PAYLOAD"),
        (ask("pay", {"amount": 1}, payload={"amount": 82_000}), "DIGEST_MISMATCH"),
        (ask("pay", {"amount": 1}, policy=5), "INVALID_PAYLOAD"),
        (ask("pay", {"amount": 1}, payload=[1]), "INVALID_PAYLOAD"),
    ],
)
def test_invalid_call_is_reported_to_the_model_and_not_made(tools, call, code):
    told = code_of(tools, call)
    assert (told["error"], told["code"], tools.called) == (True, code, [])


def test_model_cannot_grant_itself_actions(tools):
    told = code_of(tools, ask("pay", {"amount": 1}, actions=["forbidden"]))
    assert told == {"paid": 1}
    granted = [entry.actions for entry in tools.entries if isinstance(entry, CallEntry) and entry.policy == "pay"]
    assert granted == [()]


# -- approvals ----------------------------------------------------------------------------------------------------------


def person(answer):
    async def policy(action, context):
        return answer(action.payload["approve"])

    return policy


def test_call_that_needs_approval_is_approved_by_its_own_digest(tools):
    asked = []

    def approving(about):
        asked.append(about)
        return [approval_step("person", about["digest"])]

    tools.policies["person"] = person(approving)
    assert code_of(tools, ask("pay", {"amount": 5}), approvals={"pay": "person"}) == {"paid": 5}
    assert asked == [{"policy": "pay", "payload": {"amount": 5}, "digest": Action("pay", {"amount": 5}).digest}]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda about: [], "person has not approved this call"),
        (lambda about: [text_step("person", "yes")], "person has not approved this call: yes"),
        (lambda about: [approval_step("person", about["digest"], approve=False, text="no")], "this call: no"),
        (lambda about: [approval_step("person", Action("pay", {"amount": 1}).digest)], "has not approved this call"),
    ],
)
def test_call_without_its_approval_is_not_made(tools, answer, told):
    tools.policies["person"] = person(answer)
    payload = code_of(tools, ask("pay", {"amount": 5}), approvals={"pay": "person"})
    assert (payload["code"], tools.called) == ("NOT_APPROVED", [])
    assert payload["message"].endswith(told)


def test_equal_calls_are_approved_separately(tools):
    said = []

    def once(about):
        said.append(about)
        return [approval_step("person", about["digest"])] if len(said) == 1 else []

    tools.policies["person"] = person(once)
    model = Model([ask("pay", {"amount": 5}), ask("pay", {"amount": 5})], [])
    steps = tools.run(model, decorators=[loop_wrapper(2), invoke_action({"pay": "person"})])
    told = [step.payload.get("code", "paid") for step in steps if step.type == "action_result"]
    assert (told, len(tools.called)) == (["paid", "NOT_APPROVED"], 1)


def test_model_cannot_approve_its_own_call(tools):
    pay = Action("pay", {"amount": 5})
    tools.policies["person"] = person(lambda about: [])
    model = Model([approval_step("person", pay.digest), action_call_step("assistant", pay)], [])
    tools.run(model, decorators=[loop_wrapper(2), invoke_action({"pay": "person"})])
    assert tools.called == []


def test_approving_policy_must_be_allowed_too(tools):
    model = Model([ask("pay", {"amount": 5})], [])
    tools.policies["person"] = person(lambda about: [approval_step("person", about["digest"])])
    tools.run(model, decorators=[loop_wrapper(2), invoke_action({"pay": "person"})], actions=["pay"])
    assert (model.seen[1][-1].payload["code"], tools.called) == ("NOT_APPROVED", [])


def test_approval_is_not_asked_for_again_after_a_crash(tools):
    asked = []

    def approving(about):
        asked.append(about)
        return [approval_step("person", about["digest"])]

    tools.policies["person"] = person(approving)
    decorators = [loop_wrapper(2), invoke_action({"pay": "person"})]
    tools.run(Model([ask("pay", {"amount": 5})], []), decorators=decorators)
    begun = next(n for n, e in enumerate(tools.entries) if isinstance(e, CallEntry) and e.policy == "pay")
    tools.run(Model([]), decorators=decorators, entries=tools.entries[: begun + 1])
    assert (len(asked), tools.called) == (1, [{"amount": 5}, {"amount": 5}])
