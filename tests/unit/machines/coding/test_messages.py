"""Requests to a model: the state of the work and the last exchange are always in them; they fit the budget; calls are beside their results."""

import itertools
import json

import attrs
import pytest
from chat_server import faults_of
from hypothesis import given
from hypothesis import strategies as st

from machines.coding.coding_resources import HISTORY_KEEP, messages_for, where_it_stands
from machines.coding.coding_work import Work
from machines.coding.task_plan import Chapter, Probe, Subtask
from machines.tool_use.tool_call import ToolCall
from machines.tool_use.transcript import CHARS_PER_TOKEN, ChatMessage, shorten, size_of

NOTHING = ("files_written", "files_missing", "commands_run", "recent_errors")


def work_with(*exchanges):
    work = Work()
    work.goal = "Do it"
    work.chapters = [Chapter("Task", [Subtask("write_file a.py", "in_progress"), Subtask("run_cmd python a.py")])]
    work.probe = Probe((), ("a.py",), (), (), ())
    for each in exchanges:
        begun = work.transcript.begin()
        for message in each:
            begun.add(message)
    return work


def exchange(number, text="x", calls=1):
    ids = [f"c{number}_{at}" for at in range(calls)]
    asked = tuple(ToolCall(name, name, "read_file", {"path": text}) for name in ids)
    results = [ChatMessage("tool", json.dumps({"content": text}), answers=name) for name in ids]
    return [ChatMessage("assistant", None, asked), *results]


def sent(messages):
    return {"messages": [message.as_openai for message in messages]}


def test_state_lines_of_the_seed_are_in_every_request():
    work = work_with()
    work.blocked_calls = {"k": "write_file a.py: again"}
    work.changes = {"a.py": (None, "1"), "gone.py": ("1", None)}
    lines = where_it_stands(work).splitlines()
    assert lines[:4] == ["GOAL: Do it", "CURRENT TASK: Task", "ACTIVE SUBTASK: write_file a.py", "FILES CREATED: a.py"]
    assert json.loads(lines[4].removeprefix("STATE: ")) == attrs.asdict(work.probe) | {"files_exist": ["a.py"]} | {
        key: [] for key in NOTHING
    }
    assert lines[-1] == "- write_file a.py: again"


def test_last_five_exchanges_are_sent():
    messages = messages_for(work_with(*(exchange(number) for number in range(9))))
    assert [m.calls[0].id for m in messages if m.role == "assistant"] == [f"c{n}_0" for n in range(4, 9)]
    assert sum(m.role == "assistant" for m in messages) == HISTORY_KEEP


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 3)), max_size=8), st.integers(1_000, 8_000))
def test_request_fits_its_limit_and_is_valid_for_providers(sizes, tokens):
    work = work_with(*(exchange(number, "y" * size, calls) for number, (size, calls) in enumerate(sizes)))
    messages = messages_for(work, context_chars=tokens * CHARS_PER_TOKEN)
    assert faults_of(sent(messages)) == []
    head = size_of(messages[:2])
    assert size_of(messages) <= max(tokens * CHARS_PER_TOKEN, head + 6_000)
    if sizes:
        last = work.transcript.exchanges[-1].messages
        assert [m.answers for m in messages[-len(last) :]] == [m.answers for m in last]
    for message in sent(messages)["messages"]:
        for call in message.get("tool_calls") or ():
            json.loads(call["function"]["arguments"])


@given(st.lists(st.sampled_from(["note", "call", "said"]), max_size=12), st.integers(1_000, 8_000))
def test_user_messages_in_a_row_are_joined_without_loss(kinds, tokens):
    def made(number, kind):
        note = ChatMessage("user", f"note {number}")
        said = ChatMessage("assistant", "words")
        return {"note": [note], "call": exchange(number), "said": [said, note]}[kind]

    work = work_with(*(made(number, kind) for number, kind in enumerate(kinds)))
    messages = messages_for(work, context_chars=tokens * CHARS_PER_TOKEN)
    roles = [message.role for message in messages]
    assert ("user", "user") not in set(itertools.pairwise(roles))
    assert faults_of(sent(messages)) == []
    kept = [number for number, kind in enumerate(kinds) if kind != "call"]
    last = [number for number in kept if number >= len(kinds) - HISTORY_KEEP]
    text = "\n\n".join(message.content for message in messages[1:] if message.role == "user")
    assert text == "\n\n".join([where_it_stands(work), *(f"note {number}" for number in last)])
    assert all(len(each.messages) == 1 for each in work.transcript.exchanges if each.messages[0].role == "user"), (
        "the work itself is unchanged"
    )


def test_cut_message_says_so_and_keeps_both_ends():
    message = ChatMessage("user", "begin" + "x" * 5_000 + "end")
    cut = shorten(message, 100).content
    assert cut.startswith("begin")
    assert cut.endswith("end")
    assert "4,908 characters left out" in cut
    assert message.content.count("x") == 5_000


@given(st.text(alphabet='ab \n"\\'), st.integers(1, 400), st.sampled_from([300, 1_200, 5_000]))
def test_result_stays_json_when_its_text_is_cut(text, times, most):
    told = {"output": text * times, "rc": 0}
    content = json.dumps(told, ensure_ascii=False)
    cut = shorten(ChatMessage("tool", content, answers="c"), most).content
    assert len(cut) <= most
    assert (json.loads(cut) == told) == (len(content) <= most)
    assert json.loads(cut).keys() == told.keys() | ({"shortened"} if len(content) > most else set())


@pytest.mark.parametrize("most", [100, 300, 4_000])
def test_long_list_in_a_result_keeps_its_beginning_and_says_what_is_cut(most):
    content = json.dumps({"names": [f"file-{number}.txt" for number in range(900)], "more": False})
    cut = shorten(ChatMessage("tool", content, answers="c"), most).content
    said = json.loads(cut)
    assert content.startswith(said["beginning"])
    assert f"of {len(content):,} characters left out: call again" in said["shortened"]
    assert len(cut) <= most


@pytest.mark.parametrize("most", [300, 1_200, 4_000])
def test_cut_result_is_marked_as_truncated(most):
    read = {
        "content": "line\n" * 2_000,
        "size_bytes": 10_000,
        "result": "Read a",
        "truncated": False,
        "next_offset": None,
    }
    cut = shorten(ChatMessage("tool", json.dumps(read), answers="c"), most).content
    said = json.loads(cut)
    assert (said["truncated"], len(cut) <= most) == (True, True)
    left = int(said["shortened"].split()[0].replace(",", ""))
    assert 0 <= left - (10_000 - len(said["content"])) < 2_200  # line breaks count twice in JSON


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_short_message_stays_unchanged(role):
    message = ChatMessage(role, "short")
    assert shorten(message, 100) == message
