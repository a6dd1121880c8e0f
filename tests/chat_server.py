"""A server on this machine that speaks the OpenAI protocol and plays a model: real HTTP, real server-sent events.

`playing(player)` serves; the player is a function of the request's body and the number of requests before it, and gives what is sent: a `Said`, or
an answer of `stream_server` (bytes, HANG, DROP, RESET). Every request is checked for what providers refuse, and kept.
"""

import json
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import attrs


@attrs.frozen
class Said:
    """An answer: a text, calls as pairs of a tool's name and arguments (an object, or a text as it is sent), how it ends, its tokens."""

    text: str = ""
    calls: tuple = ()
    finish: str = ""
    status: int = 200
    ids: tuple = ()
    pieces: int = 12
    breaks_off: bool = False
    tokens: int = 0


def chunks_of(said, number):
    """Write an answer as chunks, in pieces of `said.pieces` characters."""
    yield _chunk({"role": "assistant", "content": ""})
    for start in range(0, len(said.text), said.pieces):
        yield _chunk({"content": said.text[start : start + said.pieces]})
    for at, (name, arguments) in enumerate(said.calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call_id = said.ids[at] if at < len(said.ids) else f"call_{number}_{at}"
        yield _chunk(
            {
                "tool_calls": [
                    {"index": at, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
                ]
            }
        )
        for start in range(0, len(text), said.pieces):
            yield _chunk({"tool_calls": [{"index": at, "function": {"arguments": text[start : start + said.pieces]}}]})
    if not said.breaks_off:
        yield _chunk({}, said.finish or ("tool_calls" if said.calls else "stop"))
    if said.tokens:
        yield {**_chunk({}), "choices": [], "usage": {"prompt_tokens": said.tokens - 1, "completion_tokens": 1}}


def _chunk(delta, finish=None):
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "model": "scripted-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def faults_of(body):
    """Return what a provider would refuse: a call without its result right behind it, a result without its call, roles out of place."""
    faults, waiting = [], []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                faults.append(f"a result of no call: {message['tool_call_id']}")
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            faults.append(f"calls without results: {waiting}")
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if message["role"] != "assistant" and not message.get("content"):
            faults.append(f"a message of {message['role']} without content")
    if waiting:
        faults.append(f"calls without results at the end: {waiting}")
    if body["messages"][-1]["role"] == "assistant":
        faults.append("the last message is the assistant's")
    return faults


@attrs.define
class Played:
    """A server that plays: its name as a model, the requests it has had, what was wrong with them."""

    model: str
    requests: list = attrs.field(factory=list)
    faults: list = attrs.field(factory=list)


@contextmanager
def playing(player: Callable, port: int = 0, *, faults: Callable = faults_of):
    """Serve on 127.0.0.1 until the block ends; `faults` says what a provider would refuse of a request."""
    lock = threading.Lock()
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a small piece waits for the client to acknowledge the one before

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                number = len(played.requests)
                played.requests.append(body)
                played.faults.extend(faults(body))
            said = player(body, number)
            if callable(said):
                said(self, over)
                return
            if said.status != 200:
                self.send_pieces(
                    said.status, "application/json", [json.dumps({"error": {"message": said.text}}).encode()]
                )
                return
            pieces = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks_of(said, number)]
            self.send_pieces(200, "text/event-stream", [*pieces, *([] if said.breaks_off else [b"data: [DONE]\n\n"])])

        def send_pieces(self, status, kind, pieces):
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                for piece in [*pieces, b""]:
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            except OSError:
                self.close_connection = True

        def log_message(self, *_):
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_):
            """Say nothing: a client that was stopped breaks its connection."""

    server = Server(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    played = Played(f"http://127.0.0.1:{server.server_address[1]}/v1#scripted-1")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield played
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()
