"""The socket of the server: an answer is sent at once."""

import asyncio
import socket

import pytest

from dsa.errors import DsaError
from dsa.web.server import listening_socket


def test_answers_do_not_wait_for_the_browser():
    async def options_of_a_connection():
        options = []

        async def take(_reader, writer):
            options.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listening_socket(0) as listener:
            async with await asyncio.start_server(take, sock=listener):
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                await reader.read()
                writer.close()
        return options

    assert asyncio.run(options_of_a_connection()) == [1]


def test_port_in_use_is_named():
    with listening_socket(0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(DsaError, match=r"cannot be used: .*; choose another with --port"):
            listening_socket(port)
