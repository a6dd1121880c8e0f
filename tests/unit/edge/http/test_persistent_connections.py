"""Persistent connections: one for all requests of an event loop, closed when the loop is over."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dsa.generators import ChatClient, StreamLimits

ANSWER = b'data: {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


class Counting(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.opened, self.over = 0, 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        self.server.opened += 1
        super().setup()

    def finish(self):
        super().finish()
        self.server.over += 1

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    server = Counting()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()  # waits for every connection to be over: one left open would hang here


async def asked(client, times):
    return [(await client.ask([{"role": "user", "content": "?"}])).content for _ in range(times)]


@pytest.mark.parametrize(("keeps", "opened"), [(True, 1), (False, 3)])
def test_connection_is_reused_if_requested(server, keeps, opened):
    client = ChatClient(f"http://127.0.0.1:{server.server_port}/v1#m", keeps_connection=keeps)
    assert asyncio.run(asked(client, 3)) == ["yes"] * 3
    assert server.opened == opened


def test_each_loop_has_its_own_connection_and_closes_it(server):
    client = ChatClient(f"http://127.0.0.1:{server.server_port}/v1#m", keeps_connection=True)
    for count in (1, 2):
        assert asyncio.run(asked(client, 2)) == ["yes"] * 2
        assert server.opened == count


def test_connection_closed_by_the_server_is_reopened(server):
    Handler.timeout = 0.05  # of silence; then the server closes

    async def with_a_pause(client):
        first = await asked(client, 1)
        while server.over == 0:  # noqa: ASYNC110  (the server runs in threads)
            await asyncio.sleep(0.01)
        return first + await asked(client, 1)

    try:
        client = ChatClient(
            f"http://127.0.0.1:{server.server_port}/v1#m", limits=StreamLimits(retries=1), keeps_connection=True
        )
        assert asyncio.run(with_a_pause(client)) == ["yes", "yes"]
    finally:
        Handler.timeout = None
    assert server.opened == 2
