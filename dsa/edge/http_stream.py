"""Streams of models over HTTP: a request goes out, and the answer comes in chunks.

`StreamDecoder` turns bytes, cut anywhere, into objects: server-sent events, JSON lines, or one JSON document. It tells them apart by their lines, not
by the header, which servers get wrong. Each byte is read a bounded number of times. Sources: the WHATWG standard of server-sent events; Ollama's
API for JSON lines.

`ModelServer` takes a request's body and yields chunks. There are time limits for the connection, the first byte, the silence between bytes and the
whole answer. It tries again only before the first byte, so that no chunk comes twice. Network errors become GenerationError. httpx is imported
on the first call.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, suppress
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import attrs

from dsa.edge.model_server import (
    Endpoint,
    Retries,
    ServerName,
    refusal,
    refusal_within,
    said_to_wait_s,
)
from dsa.runtime.generation import GenerationError, ModelUnavailable
from dsa.runtime.json_text import request_text

if TYPE_CHECKING:
    import ssl

    import httpx

#: The longest line of a stream, in bytes. Only images come near it.
MOST_LINE_BYTES = 32 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\n|\r")
_FIELD = re.compile(r"(data|event|id|retry)(?::[ ]?(.*)|$)", re.DOTALL)
_END_MARK = "[DONE]"
_MOST_SHOWN = 80


class StreamDecoder:
    """Takes bytes and returns chunks; `close` returns those in the remaining bytes.

    `has_begun` is true after the first chunk, `is_done` after the server's `[DONE]`: nothing more will come.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self.is_done = False
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._after_return = False
        self._data: list[str] = []
        self._event = ""
        self._document: list[str] = []

    def feed(self, data: bytes) -> list[Mapping[str, Any]]:
        """Take the next bytes. Raises ValueError for what is in none of the three formats."""
        if self._after_return and data.startswith(b"\n"):  # the other half of a line end
            data = data[1:]
        if data:
            self._after_return = data.endswith(b"\r")
        chunks: list[Mapping[str, Any]] = []
        start = 0
        for end in _LINE_END.finditer(data):
            self._line.append(data[start : end.start()])
            chunks += self._whole_line()
            start = end.end()
        if start < len(data):
            self._line.append(data[start:])
            self._line_bytes += len(data) - start
            if self._line_bytes > MOST_LINE_BYTES:
                raise ValueError(f"a line of the stream is longer than {MOST_LINE_BYTES} bytes")
        return chunks

    def close(self) -> list[Mapping[str, Any]]:
        """Take the end of the stream. Raises ValueError for what is in none of the three formats."""
        chunks = self._whole_line() if self._line else []
        chunks += self._end_event()
        if self._document:
            chunks += self._take_value(_parse("\n".join(self._document)))
            self._document = []
        return chunks

    def _whole_line(self) -> list[Mapping[str, Any]]:
        line = b"".join(self._line).decode("utf-8", "replace").removeprefix("\ufeff")
        self._line.clear()
        self._line_bytes = 0
        if self._document:
            self._document.append(line)
            return []
        if not line:
            return self._end_event()
        if line.startswith(":"):
            return []
        if field := _FIELD.fullmatch(line):
            if field[1] == "data":
                self._data.append(field[2] or "")
            elif field[1] == "event":
                self._event = field[2] or ""
            return []
        return self._line_of_json(line)

    def _line_of_json(self, line: str) -> list[Mapping[str, Any]]:
        """Take a line outside events: a line of JSON, or the first of a document of several lines."""
        try:
            return self._take_value(_parse(line))
        except ValueError:
            if self.has_begun:
                raise
            self._document.append(line)
            return []

    def _end_event(self) -> list[Mapping[str, Any]]:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        if not any(data):
            return []
        try:
            chunks = self._take_value(_parse("\n".join(data)))
        except ValueError:
            if len(data) == 1:
                raise
            # A server that sends no blank lines.
            chunks = [chunk for line in data if line for chunk in self._take_value(_parse(line))]
        return [_as_error(chunk) for chunk in chunks] if event == "error" else chunks

    def _take_value(self, value: Any) -> list[Mapping[str, Any]]:  # noqa: ANN401  # JSON of any kind
        if value is None:
            self.is_done = True
            return []
        chunks = value if isinstance(value, list) else [value]
        if not all(isinstance(chunk, Mapping) for chunk in chunks):
            raise ValueError(f"the stream has a value that is not a JSON object: {json.dumps(value)[:_MOST_SHOWN]}")
        self.has_begun = True
        return chunks


def _parse(text: str) -> Any:  # noqa: ANN401  # JSON of any kind
    """Parse a text; None for the mark that ends the stream."""
    if text.strip() == _END_MARK:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the stream has text that is not valid JSON: {text[:_MOST_SHOWN]!r}") from error


def _as_error(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    return chunk if chunk.get("error") else {"error": dict(chunk)}


#: The longest answer, in bytes as sent: some 200,000 tokens, each in an event of its own of about 300 bytes.
MOST_ANSWER_BYTES = 64 * 1024 * 1024
_MOST_ERROR_BYTES = 64 * 1024
_GOOD = 200
_HEADERS = {
    "accept": "text/event-stream, application/x-ndjson, application/json",
    "content-type": "application/json",
    "user-agent": "dual-state-agents",
}


@attrs.frozen
class StreamLimits:
    """How long a try waits, in seconds: for the connection, for the first byte, from byte to byte, and for the whole answer (None: for ever).

    `retries` are further tries after a failure before the first byte, after a pause that doubles or that the server asks for. A server that
    asks for more than `longest_pause_s` is not tried again. Pauses do not count towards a limit. An answer is cut off at `most_bytes`.
    """

    connect_s: float = 10.0
    first_s: float = 120.0
    silence_s: float = 60.0
    whole_s: float | None = None
    retries: int = 0
    pause_s: float = 0.5
    longest_pause_s: float = 30.0
    most_bytes: int = MOST_ANSWER_BYTES


class ModelServer:
    """One model at one address. Requests to this machine use no proxy.

    With `keeps_connection` it reuses its connection, until the event loop is shut down (`asyncio.run` does that). This is quicker, but a
    server that closes the connection at the same moment costs a try.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        key: str = "",
        key_variable: str = "",
        limits: StreamLimits | None = None,
        keeps_connection: bool = False,
    ) -> None:
        self.endpoint = endpoint
        self._limits = limits or StreamLimits()
        self._pool = _ClientPool() if keeps_connection else None
        self._retries = Retries(self._limits.retries, self._limits.pause_s, self._limits.longest_pause_s)
        variable, environment_key = endpoint.key(key_variable, os.environ)
        self.name = ServerName(endpoint.model, endpoint.base, variable, key or environment_key)

    async def aclose(self) -> None:
        """Close the connection that is kept on the running loop."""
        if self._pool is not None:
            await self._pool.aclose()

    async def chunks(
        self, body: Mapping[str, Any], on_retry: Callable[[str], object] | None = None
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Send a request and yield the chunks of the answer. `on_retry` is called with the reason of each failure that another try follows.

        Raises ModelUnavailable without httpx; GenerationError when the server refuses, and with the reason `unreachable`, `timeout`,
        `interrupted` or `bad_answer` for everything else, even after chunks.
        """
        decoder, pieces = StreamDecoder(), self._bytes(body, on_retry)
        try:
            async for piece in pieces:
                with self._decoder_faults():
                    chunks = decoder.feed(piece)
                for chunk in chunks:
                    yield chunk
                if decoder.is_done:  # a server may keep the connection open
                    break
        finally:
            if decoder.is_done and self._pool is not None:
                self._pool.read_on(pieces)
            else:
                await pieces.aclose()
        with self._decoder_faults():
            chunks = decoder.close()
        for chunk in chunks:
            yield chunk
        if not decoder.has_begun:
            raise self.name.error("bad_answer", "{where} gave an empty answer for {model}; check the address.")

    @contextmanager
    def _decoder_faults(self) -> Iterator[None]:
        """Turn the decoder's ValueError into a GenerationError."""
        try:
            yield
        except ValueError as error:
            explanation = f"does not follow the OpenAI protocol; check the address ({self.name.clean(str(error))})."
            raise self.name.error(
                "bad_answer", "{where} gave an answer for {model} that " + _plain(explanation)
            ) from error

    async def _bytes(
        self, body: Mapping[str, Any], on_retry: Callable[[str], object] | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of the answer. A try that fails before the first byte is repeated."""
        for attempt in count():
            has_begun = False
            try:
                async with aclosing(self._attempt(body)) as pieces:
                    async for piece in pieces:
                        has_begun = True
                        yield piece
            except GenerationError as error:
                if has_begun:
                    raise
                pause_s = self._retries.pause_s(error, attempt)
                if pause_s is None:
                    raise self._retries.last(error, attempt + 1) from error.__cause__
                if on_retry is not None:
                    on_retry(error.reason)
            else:
                return
            await asyncio.sleep(pause_s)

    async def _attempt(self, body: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        httpx, content = _httpx(), request_text(body).encode()
        try:
            async with self._open_client() as client:
                request = client.build_request("POST", self.endpoint.url, content=content, headers=self._headers())
                wait = _Wait(self.name, self._limits)
                response = await wait.during(client.send(request, stream=True))
                async with aclosing(response):
                    if response.status_code != _GOOD:
                        raise await self._refusal(response, wait)
                    pieces = response.aiter_bytes()
                    size_bytes, opening = 0, _StreamStart(self.name)
                    while piece := await wait.during(anext(pieces, b"")):
                        wait.has_begun = True
                        if first_bytes := opening.take(piece):
                            yield first_bytes
                        size_bytes += len(piece)
                        self._check_size(size_bytes)
                    if rest := opening.rest():
                        yield rest
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._as_generation_error(error) from error

    def _check_size(self, size_bytes: int) -> None:
        most = self._limits.most_bytes
        if size_bytes > most:
            message = f"{{model}} does not stop: its answer has more than {most:,} bytes, and was cut off there; set max_tokens."
            raise self.name.error("bad_answer", message)

    def _open_client(self) -> AbstractAsyncContextManager["httpx.AsyncClient"]:
        return self._client() if self._pool is None else self._pool.client(self._client)

    def _client(self) -> "httpx.AsyncClient":
        local = self.endpoint.on_this_machine
        timeout = _httpx().Timeout(None, connect=self._limits.connect_s)
        plain = local and self.endpoint.base.startswith("http://")
        try:
            client: httpx.AsyncClient = _httpx().AsyncClient(
                timeout=timeout, trust_env=not local, verify=False if plain else _trusted_certificates()
            )
        except (ImportError, ValueError) as error:
            message = f"The proxy that the environment sets cannot be used: {self.name.clean(str(error))}"
            raise GenerationError(message, "unreachable") from error
        return client

    def _headers(self) -> dict[str, str]:
        key = self.name.key
        if not key and self.endpoint.wants_key:
            message = (
                f"{{model}} at {{where}} needs a key, but none is set; set {self.name.variable} in the environment."
            )
            raise self.name.error("authentication", message)
        if not key:
            return _HEADERS
        if not (key.isascii() and key.isprintable()):
            raise self.name.error(
                "authentication", "The key for {where} has characters that are not allowed in a key; check it."
            )
        return {**_HEADERS, "authorization": f"Bearer {key}"}

    async def _refusal(self, response: "httpx.Response", wait: "_Wait") -> GenerationError:
        body = b""
        pieces = response.aiter_bytes()
        while len(body) < _MOST_ERROR_BYTES and (piece := await wait.during(anext(pieces, b""))):
            body += piece
        return refusal(self.name, response.status_code, body, said_to_wait_s(response.headers, time.time()))

    def _as_generation_error(self, error: Exception) -> GenerationError:
        """Return the GenerationError for an error of httpx."""
        httpx = _httpx()
        detail = _plain(self.name.clean(str(error)) or type(error).__name__)
        if isinstance(error, httpx.ConnectTimeout):
            limit = f"{{where}} did not accept a connection within {self._limits.connect_s:g} s; check that the server runs."
            return self.name.error("timeout", limit)
        if isinstance(error, httpx.ConnectError | httpx.ProxyError):
            check = "check that the server runs and that the address is right"
            return self.name.error("unreachable", f"{{model}} cannot be reached at {{where}}; {check} ({detail}).")
        if isinstance(error, httpx.DecodingError):
            return self.name.error("bad_answer", f"{{where}} gave an answer that cannot be unpacked ({detail}).")
        if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
            return self.name.error("interrupted", f"The connection to {{where}} broke off; try again ({detail}).")
        return self.name.error("failed", f"The request to {{model}} at {{where}} failed ({detail}).")


class _StreamStart:
    """The beginning of an answer, held back until it turns out not to be an error: after an error another try may succeed."""

    def __init__(self, server: ServerName) -> None:
        self._server, self._decoder = server, StreamDecoder()
        self._pieces: list[bytes] = []
        self._is_over = False

    def take(self, piece: bytes) -> bytes:
        """Take the next bytes, and return those that can be passed on. Raises GenerationError."""
        if self._is_over:
            return piece
        self._pieces.append(piece)
        with suppress(ValueError):  # the reader raises it
            chunks = self._decoder.feed(piece)
            if not chunks and not self._decoder.is_done:
                return b""
            self._require(chunks)
        return self._all()

    def rest(self) -> bytes:
        """Return what is still held at the end. Raises GenerationError."""
        if not self._is_over:
            with suppress(ValueError):
                self._require(self._decoder.close())
        return self._all()

    def _require(self, chunks: Sequence[Mapping[str, Any]]) -> None:
        if chunks and (error := refusal_within(self._server, chunks[0])) is not None:
            raise error

    def _all(self) -> bytes:
        self._is_over = True
        content, self._pieces = b"".join(self._pieces), []
        return content


@attrs.define
class _Wait:
    """Waits within the limits: until the first byte, then from byte to byte, and always for the whole answer."""

    server: ServerName
    limits: StreamLimits
    has_begun: bool = False
    first_by: float = attrs.field(init=False)
    deadline: float | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        now = asyncio.get_running_loop().time()
        self.first_by = now + self.limits.first_s
        self.deadline = None if self.limits.whole_s is None else now + self.limits.whole_s

    async def during(self, work: Any) -> Any:  # noqa: ANN401  # whatever is waited for
        """Wait for work. Raises GenerationError with the reason `timeout` at a limit."""
        now = asyncio.get_running_loop().time()
        until = now + self.limits.silence_s if self.has_begun else self.first_by
        whole = self.deadline is not None and self.deadline <= until
        try:
            async with asyncio.timeout_at(self.deadline if whole else until):
                return await work
        except TimeoutError as error:
            raise self._late(whole=whole) from error

    def _late(self, *, whole: bool) -> GenerationError:
        if whole and self.has_begun:
            message = (
                f"{{model}} did not finish within {self.limits.whole_s:g} s; raise timeout_s or use a faster model."
            )
        elif self.has_begun:
            message = (
                f"{{model}} fell silent for {self.limits.silence_s:g} s in the middle of its answer; raise silence_s."
            )
        else:
            limit_s = self.limits.whole_s if whole else self.limits.first_s
            message = f"{{model}} did not answer within {limit_s:g} s; raise timeout_s or use a faster model."
        return self.server.error("timeout", message)


def _plain(text: str) -> str:
    """Escape the braces of a text for a sentence with placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


@cache
def _httpx() -> Any:  # noqa: ANN401  # imported late
    try:
        import httpx
    except ImportError as error:
        raise ModelUnavailable(
            "Servers that speak the OpenAI protocol need the package httpx, which cannot be imported; run: pip install httpx"
        ) from error
    return httpx


@cache
def _trusted_certificates() -> "ssl.SSLContext":
    """Return the trusted certificates. They are read only once, because that takes longer than a request."""
    context: ssl.SSLContext = _httpx().create_ssl_context()
    return context


_MOST_BEHIND_S = 0.05


class _ClientPool:
    """The clients of one server, one for each event loop. Several threads may use it, each with its own loop.

    A client must not be used, and cannot be closed, outside its loop, and only the loop knows when it ends.
    """

    def __init__(self) -> None:
        self._read_tasks: set[asyncio.Task[None]] = set()
        self._clients: dict[asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None, None]]] = {}

    @asynccontextmanager
    async def client(self, open_client: Callable[[], "httpx.AsyncClient"]) -> AsyncIterator["httpx.AsyncClient"]:
        """Yield the client of the running loop, opened at its first use, after earlier answers have been read to the end."""
        loop = asyncio.get_running_loop()
        if tasks := [task for task in self._read_tasks if task.get_loop() is loop]:
            await asyncio.wait(tasks)
        if loop not in self._clients:
            for other_loop in [other_loop for other_loop in list(self._clients) if other_loop.is_closed()]:
                self._clients.pop(other_loop, None)
            client = open_client()
            closer = _closed_with_its_loop(client)
            await anext(closer)
            self._clients[loop] = client, closer
        yield self._clients[loop][0]

    async def aclose(self) -> None:
        """Close the client of the running loop, if there is one."""
        _, closer = self._clients.pop(asyncio.get_running_loop(), (None, None))
        if closer is not None:
            await closer.aclose()

    def read_on(self, pieces: AsyncGenerator[bytes, None]) -> None:
        """Read in the background what follows a complete answer: a connection can be reused only after that."""
        task = asyncio.create_task(_read_to_the_end(pieces))
        self._read_tasks.add(task)
        task.add_done_callback(self._read_tasks.discard)


async def _read_to_the_end(pieces: AsyncGenerator[bytes, None]) -> None:
    """Read for a moment, and close."""
    try:
        with suppress(TimeoutError, GenerationError):  # the answer is already complete
            async with asyncio.timeout(_MOST_BEHIND_S):
                async for _ in pieces:
                    pass
    finally:
        await pieces.aclose()


async def _closed_with_its_loop(client: "httpx.AsyncClient") -> AsyncGenerator[None, None]:
    """Wait for the end of the loop: it closes generators that are still open (`shutdown_asyncgens`)."""
    try:
        yield
    finally:
        await client.aclose()
