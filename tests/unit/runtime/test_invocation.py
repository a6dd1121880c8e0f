import asyncio
import json
from pathlib import Path

import pytest

from dsa.errors import BindingError
from dsa.runtime.ledger import CallEntry, CallResultEntry, Ledger, ResultEntry, from_json, to_json
from dsa.runtime.policy.call_tree import ReplayMismatchError
from dsa.runtime.policy.invocation import answer_of, entries_of, in_doubt, ledger_of, run
from dsa.runtime.policy.policies import Action, text_step
from dsa.runtime.policy.policy_registry import Registry
from dsa.runtime.secrets import Secrets

called = []
registry = Registry()


@registry.register("upper", schema={"type": "object", "required": ["text"]})
async def upper(action, context):
    called.append("upper")
    return [text_step("upper", action.payload["text"].upper())]


@registry.register("agent", schema={"type": "object", "required": ["text"]}, actions=["upper"])
async def agent(action, context):
    called.append("agent")
    begun = len(await context.get_ledger())
    (step,) = await context.call(Action("upper", {"text": action.payload["text"]}))
    return [text_step("assistant", f"{step.payload['text']}{begun or ''}{context.config.get('end', '')}")]


@pytest.fixture(autouse=True)
def _nothing_called():
    called.clear()


def performed(*arguments, **options):
    return asyncio.run(run(*arguments, **options))


def test_run_returns_a_ledger_of_calls_and_results():
    ledger = performed("agent", {"text": "hi"}, registry)
    assert isinstance(ledger, Ledger)
    assert [(step.id, step.actor, step.type) for step in ledger] == [
        ("1.1", "outside", "action_call"),
        ("1.1.1", "agent", "action_call"),
        ("1.1.1.result", "upper", "action_result"),
        ("1.1.result", "agent", "action_result"),
    ]
    assert answer_of(ledger) == [text_step("assistant", "HI", step_id="1.1/1")]


def test_run_with_a_complete_ledger_performs_nothing():
    ledger = performed("agent", {"text": "hi"}, registry)
    called.clear()
    assert performed("agent", {"text": "hi"}, registry, ledger) == ledger
    assert called == []


def test_run_continues_from_any_prefix_of_its_entries():
    entries = []
    ledger = performed("agent", {"text": "hi"}, registry, run_id="r", append=entries.append)
    assert [type(entry) for entry in entries] == [CallEntry, CallEntry, CallResultEntry, CallResultEntry]
    assert {entry.key for entry in entries} == {"r"}
    saved = [from_json(json.loads(json.dumps(to_json(entry)))) for entry in entries]
    for length, calls in enumerate([["agent", "upper"]] * 3 + [["agent"], []]):
        called.clear()
        more = []
        again = performed("agent", {"text": "hi"}, registry, ledger_of(saved[:length]), run_id="r", append=more.append)
        assert (again, called, more) == (ledger, calls, entries[length:])


def test_entries_and_steps_convert_into_each_other():
    entries = []
    ledger = performed(
        "agent", {"text": "hi"}, registry, seed=[text_step("user", "x")], config={"end": "!", "key": "secret"},
        run_id="r", append=entries.append,
    )  # fmt: skip
    assert (entries_of(ledger, "r"), ledger_of(entries)) == (entries, ledger)
    assert answer_of(ledger)[0].payload == {"text": "HI1!"}
    assert "secret" not in str(entries)


@pytest.mark.parametrize(
    ("payload", "options"),
    [({"text": "ho"}, {}), ({"text": "hi"}, {"actions": ["upper"]}), ({"text": "hi"}, {"seed": [text_step("u", "x")]})],
)
def test_ledger_of_another_request_is_refused(payload, options):
    ledger = performed("agent", {"text": "hi"}, registry)
    with pytest.raises(ReplayMismatchError, match=r"call 1\.1: the ledger has agent with {'text': 'hi'}"):
        performed("agent", payload, registry, ledger, **options)


def test_ledger_that_does_not_begin_with_its_policy_is_refused():
    ledger = performed("agent", {"text": "hi"}, registry)
    with pytest.raises(ReplayMismatchError):
        performed("agent", {"text": "hi"}, registry, ledger[1:])


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("changed", ["type", "id"])
def test_steps_that_record_no_call_are_refused(index, changed):
    steps = [step.to_json() for step in performed("agent", {"text": "hi"}, registry)]
    steps[index][changed] = "text"
    with pytest.raises(ValueError, match=r"does not record a call; .* in `seed`"):
        entries_of([type(text_step("", ""))(**step) for step in steps])


def test_root_payload_that_breaks_the_schema_is_an_error_step_too():
    ledger = performed("agent", {"txt": "hi"}, registry)
    (step,) = answer_of(ledger)
    assert (step.id, step.payload["code"]) == ("1.1/1", "INVALID_PAYLOAD")
    assert called == []


def test_allowed_calls_can_be_narrowed():
    narrow = Registry({"agent": agent, "upper": upper})
    with pytest.raises(KeyError):  # the agent reads a text that an error step does not have
        performed("agent", {"text": "hi"}, narrow, actions=[])
    assert called == ["agent"]


def test_unregistered_policy_and_non_json_payload_are_refused():
    entries = []
    with pytest.raises(BindingError, match="did you mean 'agent'"):
        performed("agnt", {}, registry, append=entries.append)
    for payload in ({"text": object()}, {1: 2}):
        with pytest.raises(TypeError):
            performed("agent", payload, registry, append=entries.append)
    with pytest.raises(ValueError, match="not JSON compliant"):
        performed("agent", {"text": float("inf")}, registry, append=entries.append)
    assert entries == []


def test_missing_answer_is_reported():
    entries = []
    performed("agent", {"text": "hi"}, registry, append=entries.append)
    with pytest.raises(LookupError, match="has not returned its steps yet"):
        answer_of(ledger_of(entries[:3]))


def test_calls_in_doubt_are_the_innermost_in_progress():
    def begun(path, key="r"):
        return CallEntry(key, path, "p", "d")

    def ended(path, key="r"):
        return CallResultEntry(key, path)

    assert in_doubt([]) == ()
    assert in_doubt([begun("1.1"), begun("1.1.1"), begun("1.2")]) == (begun("1.1.1"), begun("1.2"))
    assert in_doubt([begun("1.1"), begun("1.1.1"), ended("1.1.1")]) == (begun("1.1"),)
    assert in_doubt([begun("1.1"), begun("1.1.1"), ended("1.1")]) == ()
    assert in_doubt([begun("1.1"), begun("1.1", "other"), ended("1.1")]) == (begun("1.1", "other"),)
    assert in_doubt([begun("1.1"), begun("1.11"), ended("1.1"), ended("1")]) == ()
    assert in_doubt([begun("1.1"), begun("1.10"), ended("1.1")]) == (begun("1.10"),)


def test_exception_of_a_policy_is_the_last_entry_with_its_call():
    broken, entries = Registry({"agent": agent}), []

    @broken.register("upper")
    async def upper(action, context):
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError):
        performed("agent", {"text": "hi"}, broken, run_id="r", append=entries.append)
    failure = entries[-1]
    assert (type(failure), failure.key, failure.steps[0]["actor"]) == (ResultEntry, "r/1.1.1", "upper")
    said = {"error": True, "code": "ConnectionError", "message": "no route"}
    assert failure.steps[0]["payload"] == {**said, "at": f"{Path(__file__).name}:{upper.__code__.co_firstlineno + 2}"}
    assert entries_of(ledger_of(entries), "r") == entries[:-1]
    assert answer_of(performed("agent", {"text": "hi"}, registry, ledger_of(entries), run_id="r"))[0].payload == {
        "text": "HI"
    }


def test_failure_to_append_is_not_recorded_as_a_failure_of_the_policy():
    entries = []

    def append(entry):
        if isinstance(entry, CallResultEntry):
            raise OSError("disk full")
        entries.append(entry)

    with pytest.raises(OSError, match="disk full"):
        performed("agent", {"text": "hi"}, registry, append=append)
    assert [type(entry) for entry in entries] == [CallEntry, CallEntry]


def test_in_doubt_setting_is_stored_with_each_call():
    asking, entries = Registry(), []
    asking.register("agent", actions=["upper"], in_doubt="fail")(agent)
    asking.register("upper", in_doubt="ask")(upper)
    ledger = performed("agent", {"text": "hi"}, asking, run_id="r", append=entries.append)
    assert [entry.in_doubt for entry in entries[:2]] == ["fail", "ask"]
    assert entries_of(ledger, "r") == entries


def test_secrets_are_in_no_entry_and_a_replay_still_matches():
    """A policy may pass a secret to another one, but no result contains a secret."""
    secret, entries, heard = "s3cr3t-t0ken", [], []
    telling = Registry()

    @telling.register("fetch")
    async def fetch(action, context):
        heard.append(action.payload["token"])
        return [text_step("fetch", f"fetched with {action.payload['token']}")]

    @telling.register("fetcher", actions=["fetch"])
    async def fetcher(action, context):
        (step,) = await context.call(Action("fetch", {"token": secret}), seed=[text_step("user", secret)])
        heard.append(step.payload["text"])
        return [step, text_step("fetcher", f"{action.payload['text']} {secret}")]

    about = {"run_id": "r", "secrets": Secrets({"TOKEN": secret}), "seed": [text_step("user", secret)]}
    ledger = performed("fetcher", {"text": secret}, telling, append=entries.append, **about)
    assert heard == [secret, "fetched with [secret TOKEN]"]
    assert answer_of(ledger)[1].payload == {"text": "[secret TOKEN] [secret TOKEN]"}
    assert secret not in str(entries) + str(list(ledger))
    for length in range(1, len(entries)):
        assert performed("fetcher", {"text": secret}, telling, ledger_of(entries[:length]), **about) == ledger


def test_dictionary_of_policies_and_set_of_actions_are_accepted_and_copied():
    policies, actions = {"agent": agent, "upper": upper}, {"upper"}
    entries = []

    async def emptying(action, context):
        policies.clear()
        actions.clear()
        return await agent(action, context)

    policies["emptying"] = emptying
    ledger = performed("emptying", {"text": "hi"}, policies, actions=actions, append=entries.append)
    assert answer_of(ledger)[0].payload == {"text": "HI"}
    assert entries[0].actions == ("upper",)
