import asyncio
import json
import socket

import pytest
from stream_server import DROP, HANG, RESET, answered, events, refusing, serving
from stream_shapes import chunk, finished

from dsa.edge.http_stream import ModelServer, StreamLimits
from dsa.edge.model_server import read_endpoint
from dsa.runtime.generation import GenerationError

pytest.importorskip("httpx", reason="the extra `llm` is not installed")

HELLO = [chunk({"content": "Hello"}), finished("stop")]
GOOD = answered(events(HELLO))
BODY = {"model": "m"}
BUSY = refusing(503, {"error": "busy"}, "retry-after: 0")


def chunks(address, **limits):
    """Return all chunks, and the error that came after them."""

    async def collect():
        got, stream = [], ModelServer(read_endpoint(f"{address}/v1#m"), limits=StreamLimits(**limits)).chunks(BODY)
        try:
            while one := await anext(stream, None):
                got.append(one)
        except GenerationError as error:
            return got, error
        return got, None

    return asyncio.run(collect())


def test_chunks_arrive_as_sent():
    with serving(GOOD) as (address, requests):
        assert chunks(address) == (HELLO, None)
    assert requests[0].path == "/v1/chat/completions"
    assert requests[0].body == BODY
    assert "text/event-stream" in requests[0].headers["accept"]
    assert "authorization" not in requests[0].headers


@pytest.mark.parametrize("end", [DROP, RESET])
def test_connection_lost_in_the_middle_is_an_interruption(end):
    with serving(answered(events(HELLO[:1], done=False), end)) as (address, requests):
        got, error = chunks(address, retries=3)
    assert got == HELLO[:1]
    assert error.reason == "interrupted"
    assert len(requests) == 1  # no retry after the first chunk


@pytest.mark.parametrize("end", [DROP, RESET])
def test_connection_lost_at_once_is_retried(end):
    with serving([end], GOOD) as (address, requests):
        assert chunks(address, retries=1, pause_s=0) == (HELLO, None)
        assert len(requests) == 2
    with serving([end]) as (address, requests):
        got, error = chunks(address)
    assert (got, error.reason, len(requests)) == ([], "interrupted", 1)


def test_busy_server_is_retried_up_to_the_limit():
    with serving(BUSY, BUSY, GOOD) as (address, requests):
        assert chunks(address, retries=2) == (HELLO, None)
        assert len(requests) == 3
    with serving(BUSY, BUSY, GOOD) as (address, requests):
        _, error = chunks(address, retries=1)
    assert (error.reason, len(requests)) == ("server_error", 2)


def test_server_that_asks_for_too_long_a_pause_is_not_retried():
    with serving(refusing(429, {}, "retry-after: 3600")) as (address, requests):
        _, error = chunks(address, retries=5)
    assert (error.reason, len(requests)) == ("rate_limit", 1)
    assert str(error).endswith(
        "There was no further try: the server asks to wait 3600 s, but the longest allowed wait is 30 s."
    )
    with serving(refusing(429, {}, "retry-after: 3600")) as (address, _):
        _, error = chunks(address)
    assert "not tried again" not in str(error), "nobody wanted it to be"


@pytest.mark.parametrize("status", [400, 401, 404])
def test_permanent_refusal_is_not_retried(status):
    with serving(refusing(status, {"error": {"message": "no"}})) as (address, requests):
        _, error = chunks(address, retries=5)
    assert (len(requests), error.server.status, error.server.detail) == (1, status, "no")


def test_missing_first_byte_within_its_limit_is_a_timeout():
    headers_only = answered(HANG)
    for silent in ([HANG], headers_only):
        with serving(silent) as (address, requests):
            got, error = chunks(address, first_s=0.2, retries=2, pause_s=0)
        assert (got, error.reason, len(requests)) == ([], "timeout", 3)
        assert "did not answer within 0.2 s" in str(error)
        assert str(error).endswith("The request was tried 3 times.")
        with serving(silent, GOOD) as (address, _):
            assert chunks(address, first_s=5, whole_s=0.2, retries=1, pause_s=0) == (HELLO, None)


def test_pauses_do_not_count_for_limits_and_the_last_failure_is_reported():
    slow = refusing(429, {"error": {"message": "slow"}}, "retry-after: 1")
    with serving(slow) as (address, requests):
        _, error = chunks(address, whole_s=0.9, retries=2)
    assert (error.reason, error.server.status, len(requests)) == ("rate_limit", 429, 3)
    assert str(error).endswith("it said: slow. The request was tried 3 times.")


@pytest.mark.parametrize(("status", "reason"), [(402, "rate_limit"), (501, "server_error")])
def test_permanent_status_is_not_retried_even_with_a_temporary_reason(status, reason):
    with serving(refusing(status, {})) as (address, requests):
        _, error = chunks(address, retries=3)
    assert (error.reason, len(requests)) == (reason, 1)


@pytest.mark.parametrize(("status", "reason"), [(408, "timeout"), (425, "server_error"), (529, "server_error")])
def test_temporary_status_is_retried(status, reason):
    told = []

    async def asked(address):
        server = ModelServer(read_endpoint(f"{address}/v1#m"), limits=StreamLimits(retries=1, pause_s=0))
        return [one async for one in server.chunks(BODY, told.append)]

    with serving(refusing(status, {}), GOOD) as (address, _):
        assert (asyncio.run(asked(address)), told) == (HELLO, [reason])


def test_silence_in_the_middle_is_a_timeout():
    with serving(answered(events(HELLO[:1], done=False), HANG)) as (address, _):
        got, error = chunks(address, silence_s=0.2)
    assert (got, error.reason) == (HELLO[:1], "timeout")
    assert "fell silent for 0.2 s" in str(error)


def test_whole_answer_has_a_time_limit_too():
    with serving(answered(events(HELLO[:1], done=False), HANG)) as (address, _):
        got, error = chunks(address, whole_s=0.2)
    assert (got, error.reason) == (HELLO[:1], "timeout")
    assert "did not finish within 0.2 s" in str(error)


def test_answer_with_too_many_bytes_is_cut_off_and_its_chunks_are_returned():
    size = len(events(HELLO))
    with serving(GOOD) as (address, _):
        assert chunks(address, most_bytes=size) == (HELLO, None)
    with serving(answered(*[events(HELLO[:1], done=False)] * 3)) as (address, requests):
        got, error = chunks(address, most_bytes=1, retries=3)
    assert got
    assert (error.reason, len(requests)) == ("bad_answer", 1)
    assert str(error) == "m does not stop: its answer has more than 1 bytes, and was cut off there; set max_tokens."


def test_refusal_that_never_ends_times_out():
    with serving([*refusing(500, {"error": "x"})[:2], HANG]) as (address, _):
        _, error = chunks(address, first_s=0.2)
    assert error.reason == "timeout"


def test_endless_refusal_is_not_read_to_its_end():
    with serving(answered(*[b"x" * 60_000] * 3, HANG, status="500 X")) as (address, _):
        _, error = chunks(address)
    assert error.reason == "server_error"


def test_missing_connection_within_its_limit_is_a_timeout():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.settimeout(0)
            one.connect_ex(full.getsockname())
        _, error = chunks(f"http://127.0.0.1:{full.getsockname()[1]}", connect_s=0.2)
        for one in waiting:
            one.close()
    assert (error.reason, "did not accept a connection within 0.2 s" in str(error)) == ("timeout", True)


def test_closed_port_is_unreachable():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    _, error = chunks(address, retries=1, pause_s=0)
    assert (error.reason, f"cannot be reached at {address}/v1" in str(error)) == ("unreachable", True)


def test_local_server_is_reached_without_a_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(GOOD) as (address, _):
        assert chunks(address) == (HELLO, None)


def test_other_servers_are_reached_through_the_proxy(monkeypatch):
    """The proxy is the test's own server; the host of the request does not exist."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with serving(GOOD) as (proxy, requests):
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy)
        assert chunks("http://models.invalid") == (HELLO, None)
    assert requests[0].path == "http://models.invalid/v1/chat/completions"


def test_unusable_proxy_is_reported(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "nonsense://me:geheim99@x")
    _, error = chunks("http://models.invalid")
    assert (error.reason, "proxy" in str(error)) == ("unreachable", True)
    assert "geheim99" not in str(error)


def test_key_is_sent_and_never_shown(monkeypatch):
    monkeypatch.setenv("DSA_API_KEY", "k3y")
    with serving(refusing(401, {"error": {"message": "k3y is wrong"}})) as (address, requests):
        _, error = chunks(address)
    assert requests[0].headers["authorization"] == "Bearer k3y"
    assert (error.reason, "k3y" in str(error), "DSA_API_KEY" in str(error)) == ("authentication", False, True)


def test_key_that_cannot_be_sent_is_reported(monkeypatch):
    monkeypatch.setenv("DSA_API_KEY", "geheim\n99")
    with serving(GOOD) as (address, _):
        _, error = chunks(address)
    assert error.reason == "authentication"
    assert "geheim" not in str(error)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (answered(b"<html><p>Welcome</p></html>", kind="text/html"), "does not follow the OpenAI protocol"),
        (answered(b'data: {"a": \n\n'), "does not follow the OpenAI protocol"),
        (answered(b"data: [DONE]\n\n"), "empty answer"),
        (answered(), "empty answer"),
        (answered(b"no gzip", headers=["content-encoding: gzip"]), "cannot be unpacked"),
        (refusing(302, {}, "location: http://127.0.0.1:9/"), "redirects"),
    ],
    ids=["HTML", "half an event", "only the end", "nothing", "no gzip", "elsewhere"],
)
def test_answer_that_is_not_a_stream_is_reported(answer, told):
    with serving(answer) as (address, _):
        _, error = chunks(address)
    assert (error.reason, told in str(error)) == ("bad_answer", True), str(error)


def test_stream_can_be_closed_in_the_middle():
    async def first(address):
        stream = ModelServer(read_endpoint(f"{address}/v1#m")).chunks(BODY)
        one = await anext(stream)
        await stream.aclose()
        return one

    with serving(answered(events(HELLO[:1], done=False), HANG)) as (address, _):
        assert asyncio.run(first(address)) == HELLO[0]


def test_waiting_task_can_be_cancelled():
    async def given_up(address):
        stream = ModelServer(read_endpoint(f"{address}/v1#m")).chunks(BODY)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.2)
        return len(asyncio.all_tasks())

    with serving([HANG]) as (address, _):
        assert asyncio.run(given_up(address)) == 1


def test_stream_does_not_wait_for_a_connection_left_open_after_its_end():
    with serving(answered(events(HELLO), HANG)) as (address, _):
        assert chunks(address, silence_s=20) == (HELLO, None)


def test_long_line_in_many_pieces_is_one_chunk():
    long = chunk({"content": "x" * 200_000})
    data = f"data: {json.dumps(long)}\n\n".encode()
    with serving(answered(*(data[at : at + 1000] for at in range(0, len(data), 1000)))) as (address, _):
        assert chunks(address) == ([long], None)
