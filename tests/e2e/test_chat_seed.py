"""Workstream G of seed 002, one test for each line, and its end-to-end criteria: the real engine against a server that plays a forgetful model."""

import json
import re

import pytest
from chat_server import Said
from chats import (
    CSV,
    CSV_AGAIN,
    PLOT,
    PLOT_AGAIN,
    SQL_AGAIN,
    conversation,
    following,
    names,
    python,
    say,
    scripted,
    sql,
    steps_since_user,
    told,
)

from dsa.runs.runs import open_runs
from dsa.runtime.ledger import EventEntry, RefusalEntry, RowEntry
from machines.chat.command import counters_of
from machines.chat.conversation import REUSE
from machines.tool_use.records import as_data

ANALYSIS = (sql(), python(PLOT), python(CSV))
IN_OTHER_WORDS = (sql(SQL_AGAIN), python(PLOT_AGAIN), python(CSV_AGAIN))
TABLE = re.compile(r"cars_[0-9a-f]{6}\.csv")


def in_turns(*turns):
    """Play a model that does different steps in each turn, and then answers."""

    def player(body, number):
        users = sum(m["role"] == "user" and not m["content"].startswith("[") for m in body["messages"])
        return following(*turns[users - 1])(body, number)

    return player


# -- workstream G -----------------------------------------------------------------------------------------------------------


def test_g1_artifact_inventory_always_included_in_context(tmp_path):
    with conversation(tmp_path, following(*ANALYSIS)) as (chat, played):
        say(chat, "Compare horsepower by origin", "continue")
        known = {each.artifact_id: each for each in chat.conversation.inventory}
    assert len(played.requests) == 8
    sizes = []
    for body in played.requests:
        inventory, _ = told(body)
        assert REUSE in body["messages"][0]["content"]
        for each in inventory:
            artifact = known[each["artifact_id"]]
            assert (each["name"], each["type"], each["producer"]) == (artifact.name, artifact.kind, artifact.producer)
            assert (each["source_call_id"], each["logical_key"]) == (artifact.source_call_id, artifact.logical_key)
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", each["created_at"])
        sizes.append(len(inventory))
    assert sizes == [0, 1, 2, 2, 2, 2, 2, 2]  # the CSV of Python has the content of the CSV of SQL


@pytest.mark.parametrize("again", [ANALYSIS, IN_OTHER_WORDS], ids=["same words", "other words"])
def test_g2_duplicate_artifact_prevention_across_same_turn_and_follow_up_continue_turn(tmp_path, again):
    with conversation(tmp_path, in_turns((*ANALYSIS, *again), again)) as (chat, _):
        say(chat, "Compare horsepower by origin", "continue")
        contents = [each.digest for each in chat.conversation.inventory]
        counters = as_data(counters_of(chat.conversation))
    assert len(contents) == len(set(contents)) == 2
    skipped, kept_once = (
        counters["reasons"].get(name, 0) for name in ("duplicate_tool_call_skipped", "duplicate_artifact_prevented")
    )
    assert (skipped, kept_once) == ((6, 1) if again is ANALYSIS else (4, 3))


def test_g2_same_script_makes_duplicates_without_the_guards(tmp_path):
    with conversation(tmp_path, in_turns((*ANALYSIS, *IN_OTHER_WORDS), ANALYSIS), dedup=False) as (chat, _):
        say(chat, "Compare horsepower by origin", "continue")
        contents = [each.digest for each in chat.conversation.inventory]
    assert len(contents) == 9
    assert len(set(contents)) == 2


def test_g3_state_transition_validity(tmp_path):
    with conversation(tmp_path, following(*ANALYSIS)) as (chat, _):
        say(chat, "Compare horsepower by origin")
        run_id = chat.run_id
    with open_runs(tmp_path / "runs") as runs:
        entries = list(runs.stored_run(run_id).entries)
    moves = [
        (entry.source.rpartition(".")[2], entry.target.rpartition(".")[2])
        for entry in entries
        if isinstance(entry, RowEntry)
    ]
    changes = [move for move in moves if move[0] != move[1]]
    assert changes == [
        ("completed", "planning"),
        ("planning", "data_fetching"),
        ("data_fetching", "analyzing"),
        ("analyzing", "presenting"),
        ("presenting", "completed"),
    ]


def test_g3_invalid_transition_is_rejected_with_a_code_and_changes_nothing(tmp_path):
    with conversation(tmp_path, following(*ANALYSIS)) as (chat, _):
        say(chat, "Compare horsepower by origin")
        import asyncio

        asyncio.run(chat.tell("retried"))  # there is nothing to retry
        assert chat.state == "resting.completed"
        run_id = chat.run_id
    with open_runs(tmp_path / "runs") as runs:
        refused = [entry for entry in runs.stored_run(run_id).entries if isinstance(entry, RefusalEntry)]
    assert [entry.reason for entry in refused] == ["invalid_state"]


def test_g3_sql_from_presenting_is_refused_as_invalid_state(tmp_path):
    player = scripted(Said("See missing.png."), sql(), Said("There is no figure."))
    with conversation(tmp_path, player) as (chat, played):
        turn = say(chat, "What is there?")
        assert chat.state == "resting.completed"
    assert [call.status for call in turn.calls] == ["invalid_state"]
    offered = [sorted(tool["function"]["name"] for tool in body.get("tools", ())) for body in played.requests]
    assert offered == [["run_python", "run_sql"], ["run_python"], ["run_python"]]
    assert "invalid_state" in played.requests[2]["messages"][-1]["content"]


def test_g4_empty_python_code_recovery_path(tmp_path):
    player = scripted(sql(), python("# plot it\n"), python("print(len(df))"), Said("Three origins."))
    with conversation(tmp_path, player) as (chat, played):
        turn = say(chat, "How many origins are there?")
        counters = as_data(counters_of(chat.conversation))
    assert [call.status for call in turn.calls] == ["done", "empty_python_payload_retried", "done"]
    hint = played.requests[2]["messages"][-1]["content"]
    assert "empty_python_payload_retried" in hint
    assert '{\\"code\\": \\"print(df.describe())\\", \\"timeout\\": 30}' in hint
    assert counters["retries"] == {"guided": 1, "succeeded": 1}
    assert counters["retry_success_rate"] == 1.0


def test_g4_second_empty_payload_is_refused_without_guidance(tmp_path):
    player = scripted(python(""), python("# nothing"), Said("I cannot."))
    with conversation(tmp_path, player) as (chat, _):
        turn = say(chat, "Hello")
        counters = as_data(counters_of(chat.conversation))
    assert [call.status for call in turn.calls] == ["empty_python_payload_retried", "invalid_tool_payload"]
    assert (counters["retry_success_rate"], counters["reasons"]["empty_python_payload_retried"]) == (0.0, 1)


def test_g5_streaming_call_id_mismatch_still_reconstructs_valid_tool_call(tmp_path):
    """Ids that change from piece to piece (new ones each time at index 0), and the id only at the end."""

    def player(body, number):
        if steps_since_user(body):
            return Said("There are 406 cars.")
        return changing_ids

    def changing_ids(handler, _over):
        import json

        text = json.dumps({"sql": "SELECT count(*) AS n FROM cars"})
        pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
        chunks = [
            {
                "choices": [
                    {
                        "index": 0,
                        "delta": {
                            "tool_calls": [
                                {
                                    "index": 0,
                                    "id": f"id-{at}",
                                    "type": "function",
                                    "function": {**({"name": "run_sql"} if at == 0 else {}), "arguments": piece},
                                }
                            ]
                        },
                        "finish_reason": None,
                    }
                ]
            }
            for at, piece in enumerate(pieces)
        ]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        handler.send_pieces(
            200,
            "text/event-stream",
            [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"],
        )

    with conversation(tmp_path, player) as (chat, played):
        turn = say(chat, "How many cars are there?")
        counters = as_data(counters_of(chat.conversation))
    assert [(call.tool, call.status) for call in turn.calls] == [("run_sql", "done")]
    assert counters["rescues"]["changed_id"] == 1
    called, result = played.requests[1]["messages"][-2:]
    assert (called["tool_calls"][0]["id"], result["tool_call_id"]) == ("id-0", "id-0")
    assert "406" in result["content"]


def test_g6_report_mode_and_artifact_dedup_coexist_without_regressions(tmp_path):
    with conversation(tmp_path, following(*ANALYSIS, answer="See hp.png."), format="report") as (chat, _):
        say(chat, "Compare horsepower by origin", "continue")
        made = names(chat)
        contents = [each.digest for each in chat.conversation.inventory]
        folder = tmp_path / "runs" / chat.run_id / "files"
        shown = sorted(path.name for path in folder.iterdir())
    assert TABLE.fullmatch(made[0])
    assert made[1:] == ["hp.png", "report_1.md", "report_1.pdf"], "the same answer has one report"
    assert len(contents) == len(set(contents))
    assert shown == sorted(made)


def test_different_answer_gets_its_own_report(tmp_path):
    def player(body, _number):
        said = [m["content"] for m in body["messages"] if m["role"] == "user"]
        return Said(f"There are {len(said) // 3} of them.")

    with conversation(tmp_path, player, format="report") as (chat, _):
        say(chat, "How many?", "Sure?", "How many now?", "Sure?")
        assert names(chat) == ["report_1.md", "report_1.pdf", "report_3.md", "report_3.pdf"]


def test_model_gets_the_output_of_code_that_failed_later(tmp_path):
    with conversation(tmp_path, following(python("print('so far')\n1 / 0"))) as (chat, played):
        say(chat, "Try it")
    result = json.loads(played.requests[1]["messages"][-1]["content"])
    assert result["output"] == "so far\n"
    assert (result["error"]["code"], result["error"]["message"].splitlines()[0]) == (
        "python_error",
        "ZeroDivisionError: division by zero",
    )


# -- the acceptance criteria of the seed ----------------------------------------------------------------------------------


def test_e1_repeated_analysis_prompts_do_not_regenerate_equivalent_csv_pdf_artifacts(tmp_path):
    steps = (sql(), python("df.plot.bar(x='Origin', y='hp')\nplt.savefig('hp.pdf')"), python(CSV))
    with conversation(tmp_path, following(*steps)) as (chat, _):
        say(chat, "Compare horsepower by origin")
        first = names(chat)
        say(chat, "Compare horsepower by origin", "Compare it", "And the horsepower by origin?")
        assert names(chat) == first
    assert TABLE.fullmatch(first[0])
    assert first[1:] == ["hp.pdf"]


def test_e2_continue_follows_prior_state_and_artifacts_instead_of_restarting_from_scratch(tmp_path):
    with conversation(tmp_path, in_turns(ANALYSIS, (python("print(df['hp'].max())"),))) as (chat, played):
        say(chat, "Compare horsepower by origin")
        turn = say(chat, "continue")
        assert turn.calls[0].result["output"] == "119.9\n"  # the latest table is still available
    inventory, summaries = told(played.requests[4])
    assert [TABLE.sub("TABLE", each["name"]) for each in inventory] == ["TABLE", "hp.png"]
    (summary,) = summaries
    assert (summary["datasets"], summary["row_count"]) == (["cars"], 3)
    assert "Compare horsepower by origin" in [m["content"] for m in played.requests[4]["messages"]]


def test_e3_python_empty_code_and_stream_mismatch_errors_are_rare_and_recoverable(tmp_path):
    """Calls as models send them: repaired, all are made; taken literally, most are not."""
    sent = (
        {"script": "print(1)"},
        {"arguments": {"code": "print(2)"}},
        {"code": "```python\nprint(3)\n```"},
        {"code": '{"code": "print(4)"}'},
        {"code": "    print(5)"},
        {"code": ["x = 6", "print(x)"]},
        {"code": "for i in range(1):\\n    print(7)"},
        '{"code": "print(8)", "timeout": 30s}',
    )
    player = following(*(Said(calls=(("run_python", arguments),)) for arguments in sent))
    done = {}
    for normalise in (True, False):
        with conversation(tmp_path / str(normalise), player, normalise=normalise) as (chat, _):
            turn = say(chat, "Print the numbers")
            done[normalise] = [call.status for call in turn.calls].count("done")
            rescued = sum(counters_of(chat.conversation).rescues.get(kind, 0) for kind in ("alias", "nested", "fence"))
            assert rescued == (3 if normalise else 0)
    print(f"made of {len(sent)} calls: {done[True]} repaired, {done[False]} as sent")
    assert done == {True: 8, False: 1}  # JSON in place of code is a dictionary in Python, and does nothing


def test_e4_state_transitions_are_explicit_and_observable(tmp_path):
    seen = []
    from chat_server import playing
    from chats import CARS

    from machines.chat.chat_session import Chat, ChatStart
    from machines.tool_use.machine_session import SessionListeners

    with (
        playing(following(*ANALYSIS)) as played,
        open_runs(tmp_path) as runs,
        Chat.begin(
            ChatStart(played.model, (CARS,)), runs, SessionListeners(lambda moment, _is_new: seen.append(moment.entry))
        ) as chat,
    ):
        say(chat, "Compare horsepower by origin")
    events = [entry.event for entry in seen if isinstance(entry, EventEntry)]
    steps = [entry for entry in seen if isinstance(entry, RowEntry)]
    assert len(events) == len(steps)  # each event has a row
    assert all(entry.line is not None for entry in steps)
    assert [event for event in events if event != "no_more_calls"][:4] == ["message", "asked", "sql_call", "sql_done"]
