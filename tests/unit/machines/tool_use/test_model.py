"""Models behind a failing network, and answers that do not end: real servers on this machine."""

import asyncio
import json
import socket
import threading

import pytest
from chat_server import Said, playing
from coders import HELLO, HELLO_PLAN, acting, agent_at, hello, worked
from stream_server import RESET, answered, events, refusing, serving
from stream_shapes import chunk, finished

from dsa.runtime.generation import GenerationError, ModelUnavailable
from machines.tool_use.chat_model import RETRY_NOTE, VARIABLE, ModelOptions, model_of, most_bytes
from machines.tool_use.tool_call import Tool, answer_of
from machines.tool_use.transcript import ChatMessage

pytest.importorskip("httpx", reason="the extra `llm` is not installed")

GOOD = answered(events([chunk({"content": "Hello"}), finished("stop")]))
HALF = events([chunk({"content": "Hel"})], done=False)
MESSAGES = [ChatMessage("user", "?")]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setenv(VARIABLE, "30")


def asked(address, on_text=None, **wanted):
    model = model_of(f"{address}/v1#m", ModelOptions(**wanted))
    return asyncio.run(model.ask(MESSAGES, (), number=0, on_text=on_text))


def cut_off(result):
    """Return the data of an answer that was cut off."""
    kind, data = answer_of(result, lambda name, _: name)
    assert kind == "cut_off"
    return data


# -- a server that fails for a moment


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_server_that_fails_for_a_moment_is_asked_again(status):
    with serving(*[refusing(status, {}, "retry-after: 0")] * 4, GOOD) as (address, requests):
        assert asked(address).content == "Hello"
    assert len(requests) == 5


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_refusal_is_reported_at_once(status):
    with serving(refusing(status, {})) as (address, requests), pytest.raises(GenerationError) as error:
        asked(address)
    assert (error.value.server.status, len(requests)) == (status, 1)


def test_server_that_comes_back_late_is_waited_for():
    """The server breaks the first connection, is gone for a while, and comes back at the same address."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    answer = []
    asking = threading.Thread(target=lambda: answer.append(asked(f"http://127.0.0.1:{port}")))
    asking.start()
    listener.accept()[0].close()
    listener.close()
    with playing(lambda *_: Said("here again"), port) as played:
        asking.join()
    assert answer[0].content == "here again"
    assert len(played.requests) == 1


def test_wait_is_reported_with_reason_and_length():
    told = []
    with serving(refusing(503, {}), GOOD) as (address, _):
        assert asked(address, on_wait=told.append).content == "Hello"
    assert len(told) == 1
    assert "503" in told[0]
    assert told[0].endswith(" Trying again in 0.5 s.")


def test_stream_that_just_ends_is_reported_in_sentences():
    told, answers = [], iter([Said("half", breaks_off=True), Said("whole")])
    with playing(lambda *_: next(answers)) as played:
        assert asked(played.model, on_wait=told.append).content == "whole"
    assert told == ["interrupted: the stream ended without a finish reason. Trying again in 0.5 s."]


def test_wait_never_exceeds_the_setting(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0.2")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(GenerationError, match=r"cannot be reached at .* The request was tried 2 times\.$"):
        asked(address)


def test_server_that_asks_for_too_long_a_wait_is_reported():
    with serving(refusing(429, {}, "retry-after: 31")) as (address, requests), pytest.raises(GenerationError) as error:
        asked(address)
    assert str(error.value).endswith("asks to wait 31 s, but the longest allowed wait is 30 s in all.")
    assert len(requests) == 1


def test_zero_waiting_time_means_no_retry(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    busy = refusing(503, {}, "retry-after: 0")
    for answer in (busy, [RESET]):
        with serving(answer, GOOD) as (address, requests), pytest.raises(GenerationError):
            asked(address)
        assert len(requests) == 1
    with serving(answered(HALF, RESET), GOOD) as (address, requests):
        assert cut_off(asked(address)).content == "Hel"


@pytest.mark.parametrize("said", ["soon", "-1", "nan", "1e9"])
def test_invalid_waiting_time_is_refused(monkeypatch, said):
    monkeypatch.setenv(VARIABLE, said)
    with pytest.raises(ModelUnavailable, match=f"{VARIABLE} = '{said}' is not a number of seconds from 0"):
        model_of("http://127.0.0.1:9/v1#m")


def test_cancelled_wait_ends_at_once():
    async def cancelled(address, requests):
        task = asyncio.create_task(model_of(f"{address}/v1#m").ask(MESSAGES, (), number=0, on_text=None))
        while not requests:  # noqa: ASYNC110  (the server runs in threads)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # by now it has read the refusal; the test holds at any speed
        task.cancel()
        await asyncio.wait({task}, timeout=20)
        return task.cancelled()

    with serving(refusing(503, {}, "retry-after: 30")) as (address, requests):
        assert asyncio.run(cancelled(address, requests))
        assert len(requests) == 1


def test_work_goes_on_when_the_server_is_back(tmp_path):
    playing_on = acting(HELLO_PLAN, hello)
    number = iter(range(100))

    def player(body, _):
        here = next(number)
        return Said("restarting", status=503) if here in {0, 2, 4} else playing_on(body, here)

    with agent_at(tmp_path, HELLO, player) as (agent, played):
        assert worked(agent).files_written
        assert agent.state == "goal_complete"
        assert len(played.requests) == 6


# -- an answer that breaks off


@pytest.mark.parametrize(
    "broken",
    [answered(HALF, RESET), answered(HALF), answered(HALF + events([{"error": {"code": 503, "message": "gone"}}]))],
    ids=["reset", "unfinished", "error"],
)
def test_answer_that_breaks_off_is_requested_again(broken):
    shown = []
    with serving(broken, GOOD) as (address, requests):
        assert asked(address, shown.append).content == "Hello"
    assert "".join(shown) == f"Hel{RETRY_NOTE}Hello"
    assert len(requests) == 2


def test_answer_that_keeps_breaking_off_is_returned_as_far_as_it_came():
    with serving(answered(HALF, RESET)) as (address, requests):
        said = cut_off(asked(address))
    assert said.content == "Hel"
    assert said.why.startswith("interrupted: The connection to http://127.0.0.1:")
    assert len(requests) == 3


def test_litellm_provider_is_asked_again_too(monkeypatch):
    pytest.importorskip("litellm", reason="the extra `litellm` is not installed")
    with serving(refusing(503, {}), GOOD) as (address, requests):
        monkeypatch.setenv("OPENAI_API_BASE", f"{address}/v1")
        result = asyncio.run(model_of("openai/m").ask(MESSAGES, (), number=0, on_text=None))
    assert (result.content, len(requests)) == ("Hello", 2)


# -- an answer without end


def endless(text, pause_s):
    """Send text in chunks for as long as the client reads."""

    def send(connection):
        piece = events([chunk({"content": text})], done=False)
        waiting = threading.Event()
        while True:
            connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            waiting.wait(pause_s)

    return [*answered(HALF, RESET)[:-1], send]


def test_endless_answer_is_cut_off_at_the_size_limit():
    with serving(endless("more " * 1000, 0)) as (address, requests):
        said = cut_off(asked(address, max_tokens=8))
    assert said.content.startswith("Helmore more ")
    assert len(said.content) <= most_bytes(8) + 70_000
    assert "m does not stop: its answer has more than 1,064,960 bytes, and was cut off there" in said.why
    assert len(requests) == 1


def test_endless_answer_is_cut_off_at_the_time_limit():
    with serving(endless("more ", 0.01)) as (address, requests):
        said = cut_off(asked(address, whole_s=0.5))
    assert said.content.startswith("Helmore more ")
    assert "m did not finish within 0.5 s" in said.why
    assert len(requests) == 1


def test_time_limit_of_an_answer_covers_all_tries():
    with serving(answered(HALF, RESET), endless("more ", 0.01)) as (address, requests):
        said = cut_off(asked(address, whole_s=2.5))
    assert "m did not finish within 2 s" in said.why
    assert len(requests) == 2


def test_size_limit_of_an_answer_depends_on_its_tokens():
    assert most_bytes(None) == most_bytes(10**9) == 16 << 20
    assert most_bytes(1_000) == (1 << 20) + 2_048_000


def test_endless_answer_in_json_mode_is_returned_as_far_as_it_came():
    with serving(endless("more " * 1000, 0)) as (address, _):
        model = model_of(f"{address}/v1#m", ModelOptions(max_tokens=8, json_mode=True))
        tool = Tool("t", "d", schema={"type": "object"})
        result = asyncio.run(model.ask([ChatMessage("system", "x")], [tool], number=0, on_text=None))
    assert json.dumps(cut_off(result).content).startswith('"Helmore')
