"""A conversation, and work on a goal, that outgrow the context of the model: less is sent, and both continue."""

import asyncio
import json

import pytest
from chat_server import Said, playing
from chats import conversation, python, steps_since_user
from coders import agent_at, call, complete, worked

from dsa.runs.runs import open_runs
from dsa.runs.setup import Options
from machines.chat.chat_session import Chat, ChatStart

pytest.importorskip("httpx", reason="the extra `llm` is not installed")

LONG = "print('z' * 9_000)"
TOO_LONG = Said("prompt is too long: 375083 tokens > 200000 maximum", status=400)


def within(limit, player):
    """Play a model that accepts requests of at most `limit` characters."""
    return lambda body, number: TOO_LONG if len(json.dumps(body)) > limit else player(body, number)


def speaking(body, _number):
    return python(LONG) if steps_since_user(body) == 0 else Said("Done.")


def sizes(played):
    return [len(json.dumps(request)) for request in played.requests]


def test_conversation_continues_beyond_the_context_of_the_model(tmp_path):
    with conversation(tmp_path, within(16_000, speaking)) as (chat, played):
        answers = [asyncio.run(chat.say(text)).answer for text in ("one", "two", "three", "four")]
        assert (answers, chat.state) == (["Done."] * 4, "resting.completed")
        assert max(sizes(played)[-2:]) <= 16_000, "what fitted is what the next requests begin with"
    assert played.faults == []


def test_turn_that_is_too_long_by_itself_is_shortened(tmp_path):
    with conversation(tmp_path, within(11_000, speaking)) as (chat, _):
        assert asyncio.run(chat.say("one")).answer == "Done."


def test_context_size_can_be_changed_on_resume(tmp_path):
    with playing(speaking) as played, open_runs(tmp_path / "runs") as runs:
        with Chat.begin(ChatStart(played.model), runs) as chat:
            for text in ("one", "two"):
                asyncio.run(chat.say(text))
            name = chat.run_id
        before = max(sizes(played))
        with Chat.resume(name, runs, options=Options(config={"context_tokens": 1_000})) as chat:
            assert asyncio.run(chat.say("three")).answer == "Done."
        assert max(sizes(played)[-2:]) < before - 9_000


def test_work_continues_beyond_the_context_of_the_model(tmp_path):
    notices = []
    for number in range(5):
        (tmp_path / "workspace").mkdir(exist_ok=True)
        (tmp_path / "workspace" / f"f{number}.txt").write_text("x" * 6_000)
    turns = iter([*(call("read_file", path=f"f{number}.txt") for number in range(5)), complete()])
    plan = [{"description": "Look", "subtasks": ["read f0.txt"]}]

    def player(body, _number):
        return next(turns) if "tools" in body else Said(json.dumps(plan))

    with agent_at(tmp_path, "Look", within(15_000, player), notice=notices.append, mode="full-auto") as (agent, played):
        worked(agent)
        assert agent.state == "goal_complete"
    assert any("trying again with" in text for text in notices)
    assert len([size for size in sizes(played) if size > 15_000]) <= 3
