import json
from collections import Counter

from chat_ledgers import Told, lives
from hypothesis import given

from dsa.runtime.costs import counters
from machines.chat.command import counters_of, show_counters
from machines.tool_use.records import as_data


def a_turn():
    """A turn in which much goes wrong."""
    told = Told().says("?").asked(("c1", "run_python"), ("c2", "run_python"), ("c3", "run_sql"), ("c4", "sing"))
    told.calls("c1", "run_python", "").skips("c1", "empty_python_payload_retried")
    made = [{"name": "a.csv", "kind": "csv", "digest": "1", "size_bytes": 1, "logical_key": "k", "equal_to": None}]
    told.calls("c2", "run_python", "print(1)", rescues=["fence", "alias"]).came("c2", "python_done", made)
    told.calls("c3").skips("c3", "duplicate_tool_call_skipped")
    told.calls("c4", "").skips("c4", "unknown_tool")
    return told.told("duplicate_artifact_prevented").happens(
        "answered", {"content": "Done.", "rescues": {"changed_id": 1}}
    )


def test_counters_cover_turns_calls_reasons_and_rescues():
    assert as_data(counters_of(a_turn().conversation)) == {
        "turns": 1,
        "model_answers": 2,
        "calls": {"run_python done": 1},
        "reasons": {
            "duplicate_artifact_prevented": 1,
            "duplicate_tool_call_skipped": 1,
            "empty_python_payload_retried": 1,
            "unknown_tool": 1,
        },
        "rescues": {"alias": 1, "changed_id": 1, "fence": 1},
        "artifacts": 1,
        "retries": {"guided": 1, "succeeded": 1},
        "retry_success_rate": 1.0,
    }


def test_dsa_show_has_readable_counters():
    assert show_counters(a_turn().entries) == {
        "turns": 1,
        "answers of the model": 2,
        "artifacts": 1,
        "duplicate skips": 1,
        "artifact dedups": 1,
        "rescues": 3,
        "guided retries": 1,
        "of these succeeded": 1,
        "retry success rate": 1.0,
    }


def test_success_rate_is_absent_without_retries():
    told = Told().says("?")
    assert counters_of(told.conversation).retry_success_rate is None
    assert show_counters(told.entries)["retry success rate"] == "no retries were made"


def test_one_success_in_two_guided_retries_is_a_rate_of_half():
    told = Told()
    for text in ("print(1)", ""):
        told.says("?").asked(("a", "run_python"), ("b", "run_python")).calls("a", "run_python", "")
        told.skips("a", "empty_python_payload_retried").calls("b", "run_python", text).skips(
            "b", "invalid_tool_payload"
        )
    assert counters_of(told.conversation).retry_success_rate == 0.5


@given(lives())
def test_conversation_counts_only_reasons_and_rescues_of_the_ledger(told):
    mine, all_ = counters_of(told.conversation), counters(told.entries)
    assert Counter(mine.rescues) <= Counter(all_.get("rescues", {}))  # the ledger's also count refused events
    named = dict(mine.reasons)
    made_up = named.pop("interrupted", 0)  # calls without an answer: no effect reported them
    assert named == {name: count for name, count in all_.get("reasons", {}).items() if name != "interrupted"}
    statuses = [call.status for turn in told.conversation.turns for call in turn.calls]
    assert made_up <= statuses.count("interrupted")
    assert sum(mine.calls.values()) == statuses.count("done") + statuses.count("failed")
    json.dumps(as_data(mine))
