"""The seed's goals with models over other protocols: Ollama in its own protocol, as the seed has it, and providers through LiteLLM."""

import json
import subprocess
from importlib.util import find_spec

import attrs
import forked
import pytest
from anthropic_server import playing_anthropic
from chat_server import Said, playing
from coders import (
    HELLO,
    HELLO_PLAN,
    LOST,
    PACKAGE,
    PACKAGE_PLAN,
    ROCK,
    ROCK_PLAN,
    acting,
    call,
    complete,
    hello,
    package,
    rock,
)
from forked import DSA
from ollama_server import DEFAULT_WINDOW, playing_ollama

GOALS = {
    "hello": (HELLO, HELLO_PLAN, hello),
    "rock": (ROCK, ROCK_PLAN, rock),
    "package": (PACKAGE, PACKAGE_PLAN, package),
}


#: LiteLLM takes seconds to load; the requests for the smaller goal are among those for the larger one.
HELLO_IS_PART_OF_ROCK = pytest.mark.parametrize("name", ["rock", pytest.param("hello", marks=pytest.mark.full)])

WITH_LITELLM = pytest.mark.skipif(find_spec("litellm") is None, reason="the extra `llm` is not installed")


@pytest.fixture
def code(tmp_path, monkeypatch):
    """Run the command and return its output for programs."""

    def run(goal, *arguments, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        typed = [*DSA, "code", goal, "--json", "--mode", "full-auto", *arguments]
        done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=180)
        return json.loads(done.stdout)["work"]

    return run


#: The package takes longest because of the programs that it runs, and `test_coding_seed.py` tests its goal with other models.
@pytest.mark.parametrize("name", ["hello", "rock", pytest.param("package", marks=pytest.mark.full)])
def test_ollama_is_used_when_no_model_is_named(code, name):
    goal, plan, act = GOALS[name]
    with playing_ollama(acting(plan, act)) as played:
        host = played.model.removeprefix("http://").partition("/")[0]
        told = code(goal, OLLAMA_HOST=host, OLLAMA_MODEL="gpt-oss:20b")
    assert (told["state"], told["counters"]["usage"]["completion_tokens"] > 0) == ("goal_complete", True)
    assert {body["model"] for body in played.requests} == {"gpt-oss:20b"}
    assert {body["options"]["temperature"] for body in played.requests} == {0.2}
    assert LOST not in json.dumps(played.requests)


def test_ollama_gets_a_context_window_for_all_that_is_sent(code, tmp_path):
    """Ollama would drop the beginning of a request that exceeds its default context: goal and subtask."""
    (tmp_path / "long.txt").write_text("word " * 2_000)

    def act(view):
        seen = len(view.gave("read_file"))
        return complete() if seen == 4 else call("read_file", path="long.txt", offset=seen)

    with playing_ollama(acting(HELLO_PLAN[:1], act)) as played:
        told = code("Read it", "--model", played.model)
    longest = max(len(json.dumps(body["messages"])) for body in played.requests)
    assert longest > 4 * DEFAULT_WINDOW
    # Another size would make it reload the model.
    assert len({body["options"]["num_ctx"] for body in played.requests}) == 1
    assert told["state"] == "goal_complete"


def test_ollama_gets_an_answer_schema_for_models_without_tool_calls(code):
    def player(body, _number):
        if "format" not in body:
            return Said(json.dumps(HELLO_PLAN))
        names = {each["properties"]["tool"]["const"] for each in body["format"]["anyOf"]}
        assert {"write_file", "answer"} <= names
        assert "tools" not in body
        is_written = "FILES CREATED: hello_world.py" in json.dumps(body["messages"])
        path = {"path": "hello_world.py", "content": "print('Hello, World!')\n"}
        wanted = ("mark_subtask_complete", {"success": True}) if is_written else ("write_file", path)
        return Said(json.dumps({"tool": wanted[0], "arguments": wanted[1]}))

    with playing_ollama(player) as played:
        told = code(HELLO, "--model", played.model, "--json-mode")
    assert (told["state"], told["files"]) == ("goal_complete", ["hello_world.py"])


@HELLO_IS_PART_OF_ROCK
@WITH_LITELLM
def test_any_litellm_provider_can_be_used(code, name):
    goal, plan, act = GOALS[name]
    player = acting(plan, act)
    with playing(lambda body, number: attrs.evolve(player(body, number), tokens=10)) as played:
        base = played.model.partition("#")[0]
        told = code(
            goal,
            "--model",
            "openai/gpt-4o-mini",
            OPENAI_API_BASE=base,
            OPENAI_API_KEY="sk-x",
            **forked.variables(forked.LITELLM),
        )
    usage = told["counters"]["usage"]
    assert (told["state"], played.faults) == ("goal_complete", [])
    assert (usage["prompt_tokens"], usage["cost_usd"] > 0) == (9 * len(played.requests), True)
    assert {body["model"] for body in played.requests} == {"gpt-4o-mini"}
    assert LOST not in json.dumps(played.requests)


@HELLO_IS_PART_OF_ROCK
@WITH_LITELLM
def test_provider_with_its_own_protocol_gets_requests_it_accepts(code, name):
    goal, plan, act = GOALS[name]
    with playing_anthropic(acting(plan, act)) as played:
        told = code(
            goal,
            "--model",
            "anthropic/claude-sonnet-4-5",
            ANTHROPIC_API_BASE=played.model,
            ANTHROPIC_API_KEY="x",
            **forked.variables(forked.LITELLM),
        )
    assert (told["state"], played.faults) == ("goal_complete", [])
    assert told["counters"]["usage"]["cost_usd"] > 0
    assert LOST not in json.dumps(played.requests)
