import json
import re

from dsa.runtime.policy.policies import Action, Step, action_call_step, action_result_step, error_step, text_step
from machines.search.bindings import SearchReply, messages_of, steps_of
from machines.tool_use.tool_call import ToolCall
from machines.tool_use.transcript import ChatMessage


def call(step_id, name="search", actor="assistant", **payload):
    return action_call_step(actor, Action(name, payload), step_id=step_id)


def result(call_id, actor="search", **payload):
    return action_result_step(actor, payload, step_id=f"{call_id}.result")


def shape(messages):
    """Return roles, with the ids of calls and answers as small numbers."""
    names = {}
    told = []
    for message in (message.as_openai for message in messages):
        ids = [c["id"] for c in message.get("tool_calls", [])] + [message[k] for k in ["tool_call_id"] if k in message]
        told.append((message["role"], [names.setdefault(name, len(names)) for name in ids]))
    assert all(re.fullmatch("[a-z0-9]{9}", name) for name in names)
    return told


def test_conversation_with_calls_is_written_in_openai_format():
    ledger = [
        text_step("user", "Where is the cat?"),
        text_step("assistant", "Let me see."),
        call("1.1/2", query="cat"),
        call("1.1/3", query="tomcat"),
        result("1.1/2", found=1),
        result("1.1/3", found=0),
        text_step("assistant", "In a.md:3."),
    ]
    messages = messages_of(ledger)
    assert shape(messages) == [("user", []), ("assistant", [0, 1]), ("tool", [0]), ("tool", [1]), ("assistant", [])]
    assert messages[1].content == "Let me see."
    assert messages[1].as_openai["tool_calls"][0]["type"] == "function"
    assert messages[1].as_openai["tool_calls"][0]["function"] == {"name": "search", "arguments": '{"query": "cat"}'}
    assert [json.loads(message.content) for message in messages[2:4]] == [{"found": 1}, {"found": 0}]
    assert messages[4] == ChatMessage("assistant", "In a.md:3.")


def test_each_turn_is_a_separate_message():
    ledger = [call("1.1/1"), result("1.1/1"), call("1.3/1"), result("1.3/1")]
    assert shape(messages_of(ledger)) == [("assistant", [0]), ("tool", [0]), ("assistant", [1]), ("tool", [1])]


def test_call_without_a_result_gets_an_error_result():
    """Servers refuse every conversation with a call that has no answer, so it could never go on."""
    messages = messages_of([call("1/1"), text_step("user", "Go on.")])
    assert shape(messages) == [("assistant", [0]), ("tool", [0]), ("user", [])]
    assert json.loads(messages[1].content)["code"] == "NO_RESULT"


def test_results_of_other_callers_become_user_messages():
    ledger = [
        call("1/1", name="pay"),
        call("1.2", name="person", actor="llm_policy"),
        result("1.2", actor="person", approved=True),
        result("1/1", actor="pay", paid=5),
        error_step("loop", "MAX_TURNS", "enough"),
    ]
    messages = messages_of(ledger)
    assert shape(messages) == [("assistant", [0]), ("tool", [0]), ("user", []), ("user", [])]
    assert messages[1].content == '{"paid": 5}'
    assert messages[2].content == 'person returned: {"approved": true}'


def test_repeated_ids_in_a_longer_conversation_stay_distinct():
    once = [call("1.1/1", query="a"), result("1.1/1", found="a"), text_step("assistant", "a")]
    again = [text_step("user", "and b?"), call("1.1/1", query="b"), result("1.1/1", found="b")]
    messages = messages_of([*once, *again])
    assert shape(messages)[-2:] == [("assistant", [1]), ("tool", [1])]
    assert [m.content for m in messages if m.role == "tool"] == ['{"found": "a"}', '{"found": "b"}']


def test_texts_of_people_become_user_messages():
    steps = [text_step("person", "a"), text_step("system", "b"), Step("", "person", "approval", {"digest": "d"})]
    assert messages_of(steps) == [ChatMessage("user", "a"), ChatMessage("system", "b")]


def asks(name, arguments, error="", text=""):
    return ToolCall("c", "c", name, arguments, error, text)


def test_reply_becomes_steps():
    calls = (asks("search", {"query": "cat"}), asks("list", {}))
    steps = steps_of(SearchReply("Let me see.", calls, {"prompt_tokens": 3}))
    assert [step.type for step in steps] == ["text", "action_call", "action_call"]
    assert steps[0].payload == {"text": "Let me see.", "usage": {"prompt_tokens": 3}}
    asked = Action("search", {"query": "cat"})
    assert steps[1].payload == {"policy": "search", "payload": {"query": "cat"}, "digest": asked.digest}
    assert steps[2].payload["payload"] == {}
    assert steps_of(SearchReply("", (asks("list", {}),), {"prompt_tokens": 3}))[0].payload["usage"] == {
        "prompt_tokens": 3
    }


def test_unreadable_arguments_are_reported_and_not_guessed():
    (step,) = steps_of(SearchReply("", (asks("search", None, "invalid_arguments", '{"query": '),)))
    assert step.payload["payload"] == {}
    assert step.payload["fault"] == 'the arguments are not a JSON object: {"query": '
