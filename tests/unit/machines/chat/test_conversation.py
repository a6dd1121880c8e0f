import json

import attrs
import pytest
from chat_ledgers import Told, facts, intent, lives, table
from chat_server import faults_of
from hypothesis import given
from hypothesis import strategies as st

from machines.chat.chat_tools import messages_for
from machines.chat.conversation import REASONS, RECENT_TURNS, ChatConversation, NewArtifact, conversation_of
from machines.tool_use.tool_call import fault_result
from machines.tool_use.transcript import ChatMessage


def made(name="a.csv", content="1", equal_to=None, key="sql:1"):
    return attrs.asdict(NewArtifact(name, "csv", content, 10, key, equal_to))


def asked_once():
    return Told().says("How many?").asked(("c1", "run_sql"))


# -- the fold ---------------------------------------------------------------------------------------------------------------


@given(lives(), st.data())
def test_folding_in_two_parts_equals_folding_at_once(told, data):
    cut = data.draw(st.integers(0, len(told.entries)))
    parts = ChatConversation()
    parts.take(told.entries[:cut])
    parts.take(told.entries[cut:])
    assert facts(parts) == facts(told.conversation)
    assert parts.count == len(told.entries)


@given(lives())
def test_every_request_has_a_result_for_each_call(told):
    for length in told.requests:
        if length <= len(told.entries):
            messages = messages_for(conversation_of(told.entries[:length]), [], context_chars=100)
            assert faults_of({"messages": [message.as_openai for message in messages]}) == []


@given(lives(), st.sampled_from(["message", "asked", "sql_call", "sql_done", "presented", "cut_off", "retried"]))
def test_refused_event_changes_nothing(told, event):
    before = facts(told.conversation)
    data = {
        "text": "?",
        "content": "!",
        "calls": [],
        "tool": "run_sql",
        "rescues": [],
        "result": {},
        "intent": intent(),
        "artifacts": [made()],
    }
    assert facts(told.refuses(event, data).conversation) == before


def test_refused_event_changes_nothing_when_another_step_follows():
    told = asked_once().calls("c1")
    told.refuses("message", {"text": "wait"}).came("c1")
    assert [turn.text for turn in told.conversation.turns] == ["How many?"]
    assert told.conversation.turn.calls[0].status == "done"


def test_answers_before_any_turn_change_nothing():
    assert facts(Told().happens("answered", {"content": "Hello"}).conversation) == facts(Told().conversation)


# -- calls --------------------------------------------------------------------------------------------------------------------


def test_call_and_result_share_the_provider_id():
    told = Told().says("How many?").asked(("c1-2", "run_sql", "c1")).calls("c1-2").came("c1-2")
    user, asked, result = told.conversation.turn.exchange.messages
    assert user == ChatMessage("user", "How many?")
    assert [call["id"] for call in asked.as_openai["tool_calls"]] == ["c1"]
    assert (result.role, result.answers) == ("tool", "c1")
    assert json.loads(result.content)["row_count"] == 1


def test_calls_are_sent_back_under_names_that_providers_accept():
    """A known tool gets its own name; strict providers refuse every request that repeats a name they do not accept."""
    told = Told().says("How many?").asked(("c1", "functions.run_sql"), ("c2", "multi_tool_use.parallel"), ("c3", ""), ("c4", "x" * 200_000))  # fmt: skip
    told.calls("c1").came("c1").calls("c2", "", "").skips("c2", "unknown_tool")
    asked = told.conversation.turn.exchange.messages[1]
    assert [call["function"]["name"] for call in asked.as_openai["tool_calls"]] == [
        "run_sql", "multi_tool_use_parallel", "unnamed", "x" * 64,
    ]  # fmt: skip
    assert max(len(call.tool) for call in told.conversation.turn.calls) < 70


@pytest.mark.parametrize("event", ["message", "answered", "retried"])
def test_calls_without_a_result_are_interrupted_before_the_next_message(event):
    told = asked_once().asked(("c2", "run_sql"), ("c3", "run_python")).calls("c2")
    told.happens(event, {"text": "Go on", "content": "Well"})
    first = told.conversation.turns[0]
    results = [message for message in first.exchange.messages if message.role == "tool"]
    assert [message.answers for message in results] == ["c1", "c2", "c3"]
    assert {json.loads(message.content)["error"]["code"] for message in results} == {"interrupted"}
    assert [call.status for call in first.calls] == ["interrupted"] * 3
    assert told.conversation.reasons["interrupted"] == 3
    assert facts(told.conversation)["waiting"] == ()
    assert (facts(told.conversation)["queue"], facts(told.conversation)["current"]) == ([], None)


def test_result_after_its_call_was_answered_is_ignored():
    told = (
        asked_once()
        .calls("c1")
        .told("turn_cancelled", {"c1": fault_result("c1", "interrupted", "stopped").content}, drops=True)
    )
    before = facts(told.conversation)
    assert facts(told.skips("c1", "invalid_state").conversation)["turns"] == before["turns"]


def test_repeated_provider_ids_get_numbers():
    conversation = asked_once().conversation.transcript
    assert conversation.free_id("c2") == "c2"
    assert conversation.free_id("c1") == "c1-2"
    assert conversation.free_id("c1", ["c1-2"]) == "c1-3"
    assert Told().says("?").asked(("c1-2", "run_sql", "c1")).conversation.transcript.free_id("c1") == "c1"


def test_dropped_calls_have_results_and_do_not_wait():
    told = (
        Told()
        .says("?")
        .asked(("c1", "run_sql"), ("c2", "run_sql"), ("c3", "run_sql"))
        .calls("c1")
        .came("c1")
        .calls("c2")
    )
    told.told(
        "too_many_calls",
        {name: fault_result(name, "too_many_calls", "no").content for name in ("c2", "c3")},
        drops=True,
    )
    conversation = told.conversation
    assert [call.status for call in conversation.turn.calls] == ["done", "too_many_calls", "too_many_calls"]
    said = conversation.transcript
    assert (said.open_ids(), list(said.queue), said.current) == ((), [], None)


def test_note_becomes_a_user_message():
    told = Told().says("?").happens("cut_off", {"content": "", "why": "?"}).told("answer_cut_off", note="[Again]")
    assert told.conversation.turn.exchange.messages[-1] == ChatMessage("user", "[Again]")


def test_empty_answer_adds_no_message():
    assert (
        len(Told().says("?").happens("cut_off", {"content": "", "why": "?"}).conversation.turn.exchange.messages) == 1
    )


def test_retry_after_a_broken_answer_ends_with_a_user_message():
    told = Told().says("?").happens("cut_off", {"content": "I was", "why": "?"}).told("limit_reached", drops=True)
    assert told.happens("retried").conversation.turn.exchange.messages[-1].role == "user"


def test_retry_adds_no_message_when_the_last_is_from_the_user():
    told = Told().says("?").told("turn_failed", drops=True).happens("retried")
    assert told.conversation.turn.exchange.messages == [ChatMessage("user", "?")]


# -- what was done before ---------------------------------------------------------------------------------------------------


def test_equal_call_is_found_with_its_turn_and_success():
    told = asked_once().calls("c1", digest="d1").came("c1")
    found = told.says("Again").conversation.earlier("d1")
    assert (found.call_id, found.turn, found.ok) == ("c1", 1, True)
    assert told.conversation.earlier("d2") is None


def test_last_of_equal_calls_counts():
    told = asked_once().calls("c1", digest="d1").came("c1").says("Again").asked(("c2", "run_sql"))
    found = told.calls("c2", digest="d1").came("c2", "sql_failed", result={}).conversation.earlier("d1")
    assert (found.call_id, found.turn, found.ok) == ("c2", 2, False)


def test_interrupted_call_does_not_count_as_made():
    told = asked_once().calls("c1", digest="d1").says("Go on")
    assert told.conversation.earlier("d1") is None


def test_old_calls_are_forgotten():
    told = asked_once().calls("c1", digest="d1").came("c1")
    for _ in range(RECENT_TURNS):
        told.says("?")
    assert told.conversation.earlier("d1") is not None
    assert told.says("?").conversation.earlier("d1") is None


# -- artifacts --------------------------------------------------------------------------------------------------------------


def test_artifact_records_where_it_came_from():
    told = asked_once().calls("c1").came("c1", artifacts=[made()])
    (artifact,) = told.conversation.inventory
    assert (artifact.artifact_id, artifact.source_call_id, artifact.producer) == ("a1", "c1", "sql")
    assert artifact.created_at == "2023-11-14T22:13:20+00:00"
    assert told.conversation.turn.calls[0].artifacts == ["a1"]


@pytest.mark.parametrize(("verdict", "kept"), [("passed", ["a1", "a2"]), ("failed", ["a1", "a1"])])
def test_equal_content_is_stored_once_unless_the_guard_passes_it(verdict, kept):
    told = asked_once().calls("c1").came("c1", artifacts=[made(), made("b.csv", equal_to="a1")], new=verdict)
    assert told.conversation.turn.calls[0].artifacts == kept
    assert len(told.conversation.inventory) == len(set(kept))


def test_artifact_of_an_answer_has_its_turn_as_source():
    told = (
        Told().says("?").happens("answered", {"content": "Done."}).happens("presented", {"artifacts": [made("r.md")]})
    )
    (artifact,) = told.conversation.inventory
    assert (artifact.source_call_id, artifact.producer) == ("turn-1", "report")


def test_latest_table_and_last_five_summaries_come_from_sql():
    told = Told().says("?")
    for number in range(6):
        told.asked((f"c{number}", "run_sql")).calls(f"c{number}")
        told.came(f"c{number}", intent=intent(f"t{number}"), table=table(f"{number}"))
    told.asked(("p", "run_python")).calls("p", "run_python").came("p", "python_done")
    assert [each.datasets for each in told.conversation.intents] == [(f"t{number}",) for number in range(1, 6)]
    assert told.conversation.latest_table.digest == "5"


def test_repeated_result_becomes_the_latest_and_is_listed_once():
    told = Told().says("?")
    for number in range(2):
        told.asked((f"c{number}", "run_sql")).calls(f"c{number}", digest=f"d{number}")
        told.came(f"c{number}", intent=intent(f"t{number}"), table=table(f"{number}"))
    earlier = {"call_id": "c0", "turn": 1, "ok": True}
    told.asked(("c2", "run_sql")).calls("c2", digest="d0", earlier=earlier).skips("c2", "duplicate_tool_call_skipped")
    assert [each.datasets for each in told.conversation.intents] == [("t1",), ("t0",)]
    assert told.conversation.latest_table.digest == "0"


# -- counters ---------------------------------------------------------------------------------------------------------------


def test_reasons_rescues_and_calls_are_counted():
    told = Told().says("?").asked(("c1", "run_sql"), ("c2", "run_sql"), ("c3", "run_python"))
    told.calls("c1", rescues=["fence", "alias"]).came("c1").calls("c2", rescues=["fence"])
    told.skips("c2", "duplicate_tool_call_skipped").calls("c3", "run_python").came("c3", "python_failed", result={})
    told.happens("answered", {"content": "Done.", "rescues": {"changed_id": 2}})
    conversation = told.conversation
    assert conversation.transcript.rescues == {"fence": 2, "alias": 1, "changed_id": 2}
    assert conversation.reasons == {"duplicate_tool_call_skipped": 1}
    assert conversation.tools == {"run_sql done": 1, "run_python failed": 1}
    assert conversation.transcript.answers == 2


@pytest.mark.parametrize(
    ("second", "succeeded"),
    [
        ({"tool": "run_python", "text": "print(1)"}, 1),
        ({"tool": "run_python", "text": "print(", "fault": "it does not compile"}, 0),
        ({"tool": "run_python", "text": ""}, 0),
        ({"tool": "run_sql", "text": "SELECT 1"}, 0),
    ],
)
def test_guided_retry_succeeds_with_python_code_that_can_run(second, succeeded):
    told = Told().says("?").asked(("c1", "run_python")).calls("c1", "run_python", "")
    told.skips("c1", "empty_python_payload_retried").asked(("c2", second["tool"])).calls("c2", **second)
    assert (told.conversation.retry_count, told.conversation.retry_successes) == (1, succeeded)


def test_guided_retry_succeeds_once_and_within_its_turn():
    told = Told().says("?").asked(("c1", "run_python")).calls("c1", "run_python", "")
    told.skips("c1", "empty_python_payload_retried")
    told.asked(("c2", "run_python"), ("c3", "run_python"))
    told.calls("c2", "run_python").came("c2", "python_done").calls("c3", "run_python").came("c3", "python_done")
    assert told.conversation.retry_successes == 1
    other = Told().says("?").asked(("c1", "run_python")).calls("c1", "run_python", "")
    other.skips("c1", "empty_python_payload_retried").says("?").asked(("c2", "run_python")).calls("c2", "run_python")
    assert other.conversation.retry_successes == 0


def test_text_of_an_effect_with_an_unknown_reason_is_ignored():
    told = asked_once()
    before = facts(told.conversation)
    assert facts(told.told("because", {"c1": {}}, note="[no]", drops=True).conversation) == before
    assert "because" not in REASONS
