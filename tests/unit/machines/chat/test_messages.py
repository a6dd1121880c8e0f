import json

import attrs
from chat_ledgers import Told, answer, lives
from chat_server import faults_of
from chats import told as told_in
from hypothesis import assume, given
from hypothesis import strategies as st

from machines.chat.chat_tools import CONTEXT_TOKENS, messages_for
from machines.chat.conversation import MOST_DESCRIBED, REUSE, NewArtifact
from machines.chat.sql import TableInfo
from machines.tool_use.records import as_data
from machines.tool_use.transcript import CHARS_PER_TOKEN, size_of

CARS = TableInfo("cars", (("Origin", "VARCHAR"),), 406, "cars.csv")
CARS_TOLD = {"table": "cars", "rows": 406, "columns": {"Origin": "VARCHAR"}}


def turns(*answers):
    told = Told()
    for text in answers:
        told.says("?" * 5).happens("answered", answer(text))
    return told


def sent(messages):
    return {"messages": [message.as_openai for message in messages]}


def contents(messages):
    return [message.content for message in messages[1:]]


@given(lives(), st.integers(1, 400))
def test_every_request_has_the_inventory_and_the_summaries(told, chars):
    conversation = told.conversation
    assume(conversation.turns)
    messages = messages_for(conversation, [CARS], tools=["run_sql"], context_chars=chars)
    inventory, summaries = told_in(sent(messages))
    assert inventory == [each.description() for each in conversation.inventory]
    assert summaries == [json.loads(json.dumps(as_data(each))) for each in conversation.intents]
    system = messages[0].content
    assert messages[0].role == "system"
    assert REUSE in system
    assert json.dumps(CARS_TOLD) in system
    assert [message.role for message in messages].count("system") == 1


@given(lives(), st.integers(1, 400))
def test_old_turns_are_omitted_whole_but_never_the_last(told, chars):
    conversation = told.conversation
    assume(conversation.turns)
    messages = messages_for(conversation, [], context_chars=chars)[1:]
    whole = [turn.exchange.messages for turn in conversation.turns]
    kept = next(
        count for count in range(len(whole), 0, -1) if sum(len(turn) for turn in whole[-count:]) == len(messages)
    )
    assert messages[1:] == [message for turn in whole[-kept:] for message in turn][1:]
    sizes = [turn.exchange.size for turn in conversation.turns]
    assert kept == 1 or sum(sizes[-kept:]) <= chars
    assert kept == len(sizes) or sum(sizes[-kept - 1 :]) > chars
    assert messages[0].content.endswith(conversation.turns[-kept].text)
    left_out = len(whole) - kept
    assert messages[0].content.startswith(f"[{left_out} earlier turns are left out") == (left_out > 0)


@given(lives(), st.integers(1, 400))
def test_no_result_is_sent_without_its_call(told, chars):
    conversation = told.conversation
    assume(conversation.turns)
    faults = faults_of(sent(messages_for(conversation, [], context_chars=chars)))
    assert [fault for fault in faults if fault.startswith("a result of no call")] == []


def test_turns_that_fit_exactly_are_sent():
    conversation = turns("a" * 45, "b" * 45, "c" * 45).conversation
    said_in_all = messages_for(conversation, [])[1:]
    size = size_of(said_in_all)
    assert messages_for(conversation, [], context_chars=size)[1:] == said_in_all
    assert contents(messages_for(conversation, [], context_chars=size - 1))[1:] == ["b" * 45, "?????", "c" * 45]


def test_last_turn_is_sent_even_if_too_long():
    conversation = turns("a", "b" * (CONTEXT_TOKENS * CHARS_PER_TOKEN + 1)).conversation
    assert contents(messages_for(conversation, []))[1] == "b" * (CONTEXT_TOKENS * CHARS_PER_TOKEN + 1)


def test_call_arguments_count_towards_the_size():
    told = Told().says("?")
    calls = [{"id": "c1", "provider_id": "c1", "name": "run_sql", "arguments": {"sql": "x" * 100}}]
    told.happens("asked", answer(calls=calls)).calls("c1").came("c1").says("!").happens("answered", answer("Done."))
    assert len(messages_for(told.conversation, [], context_chars=100)) == 3


def test_omitting_turns_does_not_change_the_conversation():
    told = turns("a" * 100, "b" * 100)
    conversation = told.conversation
    messages_for(conversation, [], context_chars=10)
    assert conversation.turns[-1].exchange.messages[0].content == "?????"


def test_empty_conversation_says_none_for_each_list():
    (system,) = messages_for(Told().conversation, [])
    assert system.content.count("\nnone") == 3


def test_model_without_tools_is_asked_to_answer():
    conversation = turns("a").conversation
    assert "No tool can be called now" in messages_for(conversation, [])[0].content
    assert "No tool can be called now" not in messages_for(conversation, [], tools=["run_sql"])[0].content


def test_request_lists_the_newest_artifacts_and_their_total():
    told = Told().says("?").asked(("c1", "run_python")).calls("c1", "run_python")
    things = [
        attrs.asdict(NewArtifact(f"{n}.csv", "csv", str(n), 1, f"python:{n}.csv:-")) for n in range(MOST_DESCRIBED + 5)
    ]
    told.came("c1", "python_done", things)
    system = messages_for(told.conversation, [])[0].content
    assert f"(the newest {MOST_DESCRIBED} of {MOST_DESCRIBED + 5})" in system
    inventory, _ = told_in({"messages": [{"content": system}]})
    assert [each["name"] for each in inventory] == [f"{n}.csv" for n in range(5, MOST_DESCRIBED + 5)]


def test_alias_appears_in_the_next_request():
    told = Told().says("?").asked(("c1", "run_sql"), ("c2", "run_python")).calls("c1")
    told.came("c1", artifacts=[attrs.asdict(NewArtifact("a.csv", "csv", "1", 1, "sql:1"))])
    conversation = told.conversation
    assert "also_named" not in messages_for(conversation, [])[0].content
    told.calls("c2", "run_python")
    told.came(
        "c2", "python_done", [attrs.asdict(NewArtifact("b.csv", "csv", "1", 1, "python:b.csv:-", "a1"))], new="failed"
    )
    assert '"also_named": ["b.csv"]' in messages_for(told.conversation, [])[0].content
