"""A server on this machine that answers each request with bytes that a test has written down, piece by piece.

An answer is a list: bytes are sent at once; HANG waits until the test is over; DROP closes the connection as it is; RESET breaks it; a function is
called with the connection.
"""

import json
import socket
import struct
import threading
from contextlib import contextmanager

import attrs

HANG, DROP, RESET = "hang", "drop", "reset"


@attrs.frozen
class Request:
    """What the server was asked."""

    path: str
    headers: dict
    body: dict


def answered(*pieces, status="200 OK", kind="text/event-stream", headers=()):
    """Return an answer whose body comes in these pieces, each a chunk of HTTP's own; without HANG, DROP or RESET it is whole."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", "connection: close", "transfer-encoding: chunked", *headers]
    head = "\r\n".join([*lines, "", ""]).encode()
    framed = [
        f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if isinstance(piece, bytes) else piece
        for piece in pieces
        if piece
    ]
    return [head, *framed, *([] if {HANG, DROP, RESET} & {p for p in pieces if isinstance(p, str)} else [b"0\r\n\r\n"])]


def refusing(status, body, *headers):
    """Return an answer that refuses the request."""
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answered(text, status=f"{status} X", kind="application/json", headers=headers)


def events(chunks, *, done=True):
    """Write chunks as server-sent events."""
    text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return (text + ("data: [DONE]\n\n" if done else "")).encode()


def lines(chunks):
    """Write chunks as lines of JSON."""
    return "".join(json.dumps(chunk, ensure_ascii=False) + "\n" for chunk in chunks).encode()


@contextmanager
def serving(*answers):
    """Serve the answers in order, the last one again and again; return the address and the list of requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests, over = [], threading.Event()
    threads = []

    def one(connection, answer):
        with connection:
            request = read_request(connection)
            if request is None:
                return
            requests.append(request)
            try:
                for piece in answer:
                    if callable(piece):
                        piece(connection)
                        return
                    if piece == HANG:
                        over.wait(30)
                        return
                    if piece == RESET:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    if piece in {DROP, RESET}:
                        return
                    connection.sendall(piece)
            except OSError:
                return  # the client has gone

    def accept():
        number = 0
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=one, args=(connection, answers[min(number, len(answers) - 1)])))
            threads[-1].start()
            number += 1

    acceptor = threading.Thread(target=accept)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        acceptor.join()
        for thread in threads:
            thread.join()


def read_request(connection):
    received = b""
    while b"\r\n\r\n" not in received:
        more = connection.recv(65536)
        if not more:
            return None
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return Request(first.split(" ")[1], headers, json.loads(body or b"{}"))
