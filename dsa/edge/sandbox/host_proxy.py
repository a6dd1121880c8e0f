"""A proxy that lets a sandbox without a network reach the listed hosts, and no others.

It takes hosts, as NAME or NAME:PORT, and serves CONNECT and plain HTTP on a Unix socket (RFC 9110, RFC 9112). Names are compared as they are
requested, and resolved here. It does not look into encrypted connections.
"""

import contextlib
import socket
import tempfile
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from dsa.edge.sandbox.inside.relay import join

_MOST_HEAD = 16_384
_CONNECT_S = 20.0
_WEB = (80, 443)
_LAST_PORT = 65_535
_MOST_AT_ONCE = 64


@contextlib.contextmanager
def serve_proxy(hosts: Collection[str]) -> Iterator[str]:
    """Serve a proxy while a command runs; yield the path of its socket. Raises ValueError for an invalid host name."""
    allowed_places = frozenset(place for host in hosts for place in places(host))
    with tempfile.TemporaryDirectory(prefix="dsa-") as folder, _Connections() as connections:
        path = str(Path(folder) / "proxy")
        listener = connections.add(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen()
        threading.Thread(target=_serve, args=(listener, allowed_places, connections), daemon=True).start()
        yield path


def places(host: str) -> list[tuple[str, int]]:
    """Return the name with its ports: those of the web if it has none."""
    name, _, port = host.partition(":")
    if (
        not name
        or any(each in name for each in "/@ \t\r\n*")
        or (port and not (port.isdecimal() and 0 < int(port) <= _LAST_PORT))
    ):
        raise ValueError(f"'{host}' is not a host: write NAME or NAME:PORT")
    return [(name.lower().rstrip("."), number) for number in ((int(port),) if port else _WEB)]


class _Connections:
    """The open sockets. They are shut down when the command is over; then their threads end and close them."""

    def __init__(self) -> None:
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over = True
            for each in self._open:
                with contextlib.suppress(OSError):  # it is not connected
                    each.shutdown(socket.SHUT_RDWR)

    def add(self, one: socket.socket) -> socket.socket:
        """Add a socket. Raises ConnectionError if the command is over or has too many sockets."""
        with self._lock:
            if self._over or len(self._open) >= _MOST_AT_ONCE:
                one.close()
                raise ConnectionError("no more connections are taken")
            self._open.add(one)
        return one

    def drop(self, one: socket.socket) -> None:
        """Close a socket."""
        with self._lock:
            self._open.discard(one)
        one.close()


def _serve(listener: socket.socket, allowed_places: frozenset[tuple[str, int]], connections: _Connections) -> None:
    with contextlib.suppress(OSError):  # it was closed: the command is over
        while True:
            one = listener.accept()[0]
            with contextlib.suppress(ConnectionError):
                connections.add(one)
                threading.Thread(target=_answer, args=(one, allowed_places, connections), daemon=True).start()
    connections.drop(listener)


def _answer(one: socket.socket, allowed_places: frozenset[tuple[str, int]], connections: _Connections) -> None:
    try:
        one.settimeout(_CONNECT_S)
        _carry(one, allowed_places, connections)
    except (OSError, ValueError):  # a side is gone, or does not speak HTTP: an answer would not be read
        pass
    finally:
        connections.drop(one)


def _carry(one: socket.socket, allowed_places: frozenset[tuple[str, int]], connections: _Connections) -> None:
    head, body = _head(one)
    method, target, version = head[0].split(" ")
    place, first = (
        (_connect_target(target), b"") if method == "CONNECT" else _plain_request(method, target, version, head[1:])
    )
    if place not in allowed_places:
        names = ", ".join(sorted(f"{name}:{port}" for name, port in allowed_places))
        text = f"{place[0]}:{place[1]} cannot be reached from here; allowed hosts: {names}\n".encode()
        one.sendall(
            b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"
            % (len(text), text)
        )
        return
    try:
        other = connections.add(socket.create_connection(place, _CONNECT_S))
    except OSError:
        one.sendall(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        return
    try:
        if method == "CONNECT":
            one.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        other.sendall(first + body)
        for each in (one, other):
            each.settimeout(None)
        join(one, other)
    finally:
        connections.drop(other)


def _head(one: socket.socket) -> tuple[list[str], bytes]:
    """Read the lines of a request up to the empty one, and what came after it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = one.recv(4_096)
        if not piece or len(data) > _MOST_HEAD:
            raise ValueError("no request")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return head.decode("latin-1").split("\r\n"), body


def _connect_target(target: str) -> tuple[str, int]:
    name, _, port = target.rpartition(":")
    return name.lower().rstrip("."), int(port)


def _plain_request(method: str, target: str, version: str, lines: list[str]) -> tuple[tuple[str, int], bytes]:
    """Return the host and port of a plain request, and the request as it is sent there, alone on its connection."""
    url = urlsplit(target)
    if url.scheme != "http" or not url.hostname or url.username is not None:
        raise ValueError("no plain request to a proxy")
    path = url._replace(scheme="", netloc="").geturl() or "/"
    dropped_headers = {"host", "connection", "proxy-connection", "proxy-authorization"}
    other_headers = [line for line in lines if line.partition(":")[0].strip().lower() not in dropped_headers]
    port = url.port or 80
    host = url.hostname if port == 80 else f"{url.hostname}:{port}"  # noqa: PLR2004  # HTTP's
    text = "\r\n".join((f"{method} {path} {version}", f"Host: {host}", "Connection: close", *other_headers, "", ""))
    return (url.hostname.rstrip("."), port), text.encode("latin-1")
