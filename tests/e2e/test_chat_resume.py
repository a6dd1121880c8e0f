"""Conversations that are cut off anywhere and continue: in the middle of an answer, of a query, or between turns; branched; locked against a second process."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chat_server import Said, playing
from chats import CARS, PLOT, conversation, following, names, python, say, scripted, sql, steps_since_user

from dsa.errors import DsaError
from dsa.runs.runs import open_runs
from dsa.runtime.run_store import HeldError
from machines.chat.chat_session import Chat
from machines.chat.command import branch


def ask(model, runs, *arguments):
    program = str(Path(sys.executable).with_name("dsa"))
    command = [program, "chat", *arguments, "--model", model, "--runs", str(runs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_answer_cut_off_by_a_kill_is_requested_again_and_nothing_else_repeats(tmp_path, at):
    hanging = []

    def player(body, number):
        step = steps_since_user(body)
        if step == at and not hanging:
            hanging.append(number)
            return lambda _handler, over: over.wait(60)
        return following(sql(), python(PLOT), answer="See hp.png.")(body, number)

    with playing(player) as played:
        process = ask(played.model, tmp_path, str(CARS), "--ask", "Compare horsepower by origin")
        until(lambda: hanging)
        process.kill()
        process.communicate()
        with open_runs(tmp_path) as runs:
            (run_id,) = runs.ids()
            with Chat.resume(run_id, runs) as chat:
                turn = asyncio.run(chat.go_on())
                assert turn.answer == "See hp.png."
                assert [call.status for call in turn.calls] == ["done", "done"]
                assert chat.state == "resting.completed"
    assert played.faults == []
    assert len(played.requests) == 4  # one of them was sent twice
    assert played.requests[at]["messages"] == played.requests[at + 1]["messages"]


def test_turn_cancelled_during_an_answer_ends_and_the_conversation_continues(tmp_path):
    begun = []

    def player(body, number):
        if number == 1:
            begun.append(number)
            return lambda _handler, over: over.wait(60)
        return scripted(sql(), None, Said("There are 406."))(body, number)

    with conversation(tmp_path, player) as (chat, _):

        async def stopped():
            turn = asyncio.ensure_future(chat.say("How many?"))
            while not begun:  # noqa: ASYNC110  (nothing notifies of it)
                await asyncio.sleep(0.01)
            chat.cancel()
            return await turn

        turn = asyncio.run(stopped())
        assert (chat.state, turn.answer) == ("resting.completed", "")
        assert say(chat, "Say it").answer == "There are 406."


def test_call_without_a_result_never_reaches_a_provider(tmp_path):
    """The turn is cancelled while Python runs: the next request still has a result for the call."""
    player = scripted(sql(), python("import time\ntime.sleep(60)"), Said("I was interrupted."))
    with conversation(tmp_path, player) as (chat, played):

        async def stopped():
            turn = asyncio.ensure_future(chat.say("How many?"))
            while chat.state != "working.analyzing":  # noqa: ASYNC110  (nothing notifies of it)
                await asyncio.sleep(0.01)
            chat.cancel()
            return await turn

        turn = asyncio.run(stopped())
        assert [call.status for call in turn.calls] == ["done", "turn_cancelled"]
        say(chat, "What happened?")
    result = json.loads(played.requests[2]["messages"][-2]["content"])
    assert result["error"]["code"] == "interrupted"


def test_conversation_is_locked_during_a_turn_and_free_afterwards(tmp_path):
    def asked_by_another(body, number):
        if number == 1:
            with open_runs(tmp_path / "runs") as others, pytest.raises(HeldError):
                Chat.resume(chat.run_id, others)
        return following(sql())(body, number)

    with conversation(tmp_path, asked_by_another) as (chat, played):
        say(chat, "How many?")
        assert len(played.requests) == 2
        with open_runs(tmp_path / "runs") as others, Chat.resume(chat.run_id, others) as other:
            say(other, "And now?")
        assert [turn.text for turn in chat.conversation.turns] == ["How many?"]
        say(chat, "continue")
        assert [turn.text for turn in chat.conversation.turns] == ["How many?", "And now?", "continue"]


def test_branch_continues_from_the_end_of_a_turn(tmp_path):
    with conversation(tmp_path, following(sql(), python(PLOT), answer="See hp.png.")) as (chat, played):
        say(chat, "Compare horsepower by origin", "continue")
        before = branch(chat.runs, chat.run_id, 0)
        after = branch(chat.runs, chat.run_id, 1)
        for name, turns in ((before, 0), (after, 1)):
            with Chat.resume(name, chat.runs) as other:
                assert len(other.conversation.turns) == turns
                assert say(other, "And now?").answer == "See hp.png."
                assert [each.split("_")[0] for each in names(other)] == ["cars", "hp.png"]
        assert len(chat.conversation.turns) == 2
    statuses = [m["content"] for m in played.requests[-1]["messages"] if m["role"] == "tool"]
    assert sum("duplicate_tool_call_skipped" in each for each in statuses) == 2


def test_conversation_cannot_be_branched_in_the_middle_of_a_turn(tmp_path):
    def player(body, number):
        if number == 1:
            return lambda _handler, over: over.wait(60)
        return sql()

    with playing(player) as played:
        process = ask(played.model, tmp_path, str(CARS), "--ask", "How many?")
        until(lambda: len(played.requests) == 2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    with open_runs(tmp_path) as runs:
        (run_id,) = runs.ids()
        with pytest.raises(DsaError, match="cannot be branched after 24 entries, because effects"):
            branch(runs, run_id, 1)
        assert runs.ids() == (run_id,)
    assert [path.name for path in tmp_path.glob("*-chat-*")] == [run_id]
