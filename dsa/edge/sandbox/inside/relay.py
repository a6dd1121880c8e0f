"""A relay of connections, from a sandbox without a network to a proxy outside, through a Unix socket that is visible in it.

It decides nothing; the proxy does. It is a process of its own, which ends with the sandbox.
"""

import contextlib
import os
import selectors
import socket
import threading

TYPE_CHECKING = False  # as in `typing`, which takes milliseconds to import, and this module runs for each command
if TYPE_CHECKING:
    from typing import NoReturn

_PIECE_BYTES = 65_536


def open_listener() -> socket.socket:
    """Return the socket where the sandbox's programs reach the proxy."""
    return socket.create_server(("127.0.0.1", 0))


def serve(listener: socket.socket, proxy: str) -> "NoReturn":
    """Join every connection to one of the proxy, until this process ends."""
    while True:
        try:
            connection = listener.accept()[0]
        except OSError:
            os._exit(0)
        threading.Thread(target=_join_proxy, args=(connection, proxy), daemon=True).start()


def _join_proxy(one: socket.socket, proxy: str) -> None:
    # One side is gone, and so is the connection.
    with contextlib.suppress(OSError), one, socket.socket(socket.AF_UNIX) as other:
        other.connect(proxy)
        join(one, other)


def join(one: socket.socket, other: socket.socket) -> None:
    """Carry bytes both ways until both sides have finished. Raises OSError when one is gone."""
    across = {one: other, other: one}
    with selectors.DefaultSelector() as selector:
        for each in across:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                source = one if key.fileobj is one else other
                if piece := source.recv(_PIECE_BYTES):
                    across[source].sendall(piece)
                else:
                    selector.unregister(source)
                    across[source].shutdown(socket.SHUT_WR)
