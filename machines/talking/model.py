"""Who answers: a server that speaks the OpenAI protocol, any provider through LiteLLM, or a script.

Takes messages and tools in OpenAI's form, gives a whole answer as the stream reconciler reads it, and its text piece by piece on the way.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from dsa.edge.http.endpoint import SCHEMES
from dsa.errors import DocumentError, GenerationError, ModelUnavailable
from dsa.generators import ChatClient, Limits, Settings
from dsa.generators.lite import LiteLLMGenerator
from dsa.generators.local import served
from dsa.generators.scripted import parse_script
from dsa.generators.seeds import derive_seed
from dsa.generators.streams import StreamReconciler, StreamResult
from machines.talking.json_mode import as_texts, read_reply, response_format, with_tools_told
from machines.talking.patience import Patience, asked

Show = Callable[[str], object]
Messages = Sequence[Mapping[str, Any]]

_SCRIPTED = "scripted:"
_FIRST_S = 120.0
#: What an answer may have in bytes: most, at least, for each token. A token comes in a chunk of about 300 bytes.
_MOST_BYTES, _LEAST_BYTES, _TOKEN_BYTES = 16 << 20, 1 << 20, 2_048


class Model(Protocol):
    """Whoever answers."""

    async def ask(self, messages: Messages, tools: Messages, /, *, number: int, on_text: Show | None) -> StreamResult:
        """Give the answer; `on_text` is called with text as it can be shown. `number` is how many the conversation has had.

        Raises GenerationError when nothing came.
        """

    async def aclose(self) -> None:
        """Let go of connections, before the event loop ends by itself."""


@attrs.frozen
class Wanted:
    """How a model is asked. None leaves it to the provider.

    `json_mode` is for models that call no tools: they fill in a JSON schema, which the server has to hold them to. `whole_s` bounds an answer, with all
    tries that it needs: it has to be less than the time limit of the effect that asks, or what came is lost with it. `on_wait` is told why a model is
    asked again, and when. `window_tokens` is the room for request and answer together, for Ollama; None is as much as each request needs.
    """

    seed: int = 0
    temperature: float | None = None
    max_tokens: int | None = None
    json_mode: bool = False
    whole_s: float = 280.0
    on_wait: Show = lambda _text: None
    window_tokens: int | None = None


def model_of(name: str, wanted: Wanted | None = None) -> Model:
    """Give who answers under a name, as `dsa run --model` takes it.

    ModelUnavailable for the local model, which calls no tools and makes up what it says, unless it is asked in JSON mode, and where JSON mode cannot
    be had. DocumentError for a script that cannot be read.
    """
    wanted = wanted or Wanted()
    if name.startswith(_SCRIPTED):
        return _Script(Path(name.removeprefix(_SCRIPTED)))
    if name in {"", "local"}:
        if not wanted.json_mode:
            raise ModelUnavailable(
                "the local model can call no tools, and they are needed here; "
                "name another: --model http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE"
            )
        address, key = served()
        return _InJson(_Server(f"{address}/v1#local", wanted, key))
    if name.startswith(SCHEMES):
        return _InJson(_Server(name, wanted)) if wanted.json_mode else _Server(name, wanted)
    if wanted.json_mode:
        raise ModelUnavailable("JSON mode is for servers that speak the OpenAI protocol: --model http://HOST/v1#MODEL")
    return _LiteLLM(name, wanted)


class _Server:
    """A server that speaks the OpenAI protocol, or Ollama's own."""

    def __init__(self, name: str, wanted: Wanted, key: str = "") -> None:
        self._name, self._key, self._wanted = name, key, wanted
        self._settings = Settings(wanted.temperature, wanted.max_tokens, window_tokens=wanted.window_tokens)
        self._patience = Patience.of_environment(wanted.whole_s)
        self._client = self._client_within(wanted.whole_s, keeps_connection=True)

    def _client_within(self, whole_s: float, *, keeps_connection: bool = False) -> ChatClient:
        first_s = min(_FIRST_S, whole_s)
        limits = Limits(first_s=first_s, whole_s=whole_s, most_bytes=most_bytes(self._wanted.max_tokens))
        return ChatClient(self._name, key=self._key, limits=limits, keeps_connection=keeps_connection)

    async def ask(self, messages: Messages, tools: Messages, *, number: int, on_text: Show | None) -> StreamResult:
        return await self.ask_with({}, messages, tools, number=number, on_text=on_text)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def ask_with(
        self, more: Mapping[str, Any], messages: Messages, tools: Messages, *, number: int, on_text: Show | None
    ) -> StreamResult:
        settings = attrs.evolve(self._settings, seed=derive_seed(self._wanted.seed, "", number, ""), more=more)
        kept = iter([self._client])  # later tries have connections of their own, and what is left of the time

        async def once(left_s: float, shown: Show | None) -> StreamResult:
            client = next(kept, None) or self._client_within(round(left_s))
            result = await client.ask(messages, tools, settings, shown)
            if result.error is not None and result.error.code == "provider_error" and not result.content:
                raise client.failure(result.error)
            return result

        result = await asked(once, self._patience, on_text, self._wanted.on_wait)
        return result if result.model else attrs.evolve(result, model=self._client.name)


def most_bytes(max_tokens: int | None) -> int:
    """Give how long an answer of so many tokens may be as it is sent, each in a chunk of its own; None: as long as any."""
    return _MOST_BYTES if max_tokens is None else min(_LEAST_BYTES + max_tokens * _TOKEN_BYTES, _MOST_BYTES)


class _InJson:
    """A model that calls no tools, and writes its calls as JSON instead (`json_mode`)."""

    def __init__(self, server: _Server) -> None:
        self._server = server

    async def ask(self, messages: Messages, tools: Messages, *, number: int, on_text: Show | None) -> StreamResult:
        if not tools:
            return await self._server.ask(as_texts(messages), (), number=number, on_text=on_text)
        more = {"response_format": response_format(tools)}
        told = with_tools_told(as_texts(messages), tools)
        result = await self._server.ask_with(more, told, (), number=number, on_text=None)
        reply = read_reply(result.content)
        if result.error is not None or reply is None:
            return result
        found = _reconciled(chunks_of(reply, number), tools, on_text)
        return attrs.evolve(found, usage=result.usage, model=result.model)

    async def aclose(self) -> None:
        await self._server.aclose()


class _LiteLLM:
    """Any provider that LiteLLM knows."""

    def __init__(self, name: str, wanted: Wanted) -> None:
        self._name, self._wanted = name, wanted
        self._patience = Patience.of_environment(wanted.whole_s)
        self._generator_within(wanted.whole_s)  # what is wrong with its settings is said now

    def _generator_within(self, left_s: float) -> LiteLLMGenerator:
        wanted = self._wanted
        temperature = 0.7 if wanted.temperature is None else wanted.temperature
        timeout_s = min(_FIRST_S, left_s)
        return LiteLLMGenerator(self._name, temperature=temperature, max_tokens=wanted.max_tokens, timeout_s=timeout_s)

    async def ask(self, messages: Messages, tools: Messages, *, number: int, on_text: Show | None) -> StreamResult:
        seed = derive_seed(self._wanted.seed, "", number, "")

        async def once(left_s: float, shown: Show | None) -> StreamResult:
            return await self._generator_within(left_s).converse(messages, seed=seed, tools=tools, on_text=shown)

        return await asked(once, self._patience, on_text, self._wanted.on_wait)

    async def aclose(self) -> None:
        """Nothing is kept open."""


class _Script:
    """The answers of a file, one for each that the conversation has had: a resumed conversation goes on with the next.

    Each is a fenced block: a text, or JSON with `content` and `tool_calls` (`name`, `arguments`).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._replies = parse_script(path.read_text(encoding="utf-8-sig"))[""]
        except (OSError, UnicodeDecodeError) as error:
            raise DocumentError(str(path), f"the script cannot be read: {error}") from error
        if not self._replies:
            raise DocumentError(str(path), "the script has no reply: each is a fenced block (```)")

    async def ask(self, _messages: Messages, tools: Messages, *, number: int, on_text: Show | None) -> StreamResult:
        if number >= len(self._replies):
            told = f"{self._path} has no reply left: all {len(self._replies)} are used; add a fenced block."
            raise GenerationError(told, "exhausted")
        reply = self._replies[number]
        try:
            said = json.loads(reply)
        except ValueError:
            said = None
        is_call = isinstance(said, dict) and isinstance(said.get("tool_calls"), list)
        written: dict[str, Any] = said if is_call else {"content": reply.strip()}
        return attrs.evolve(_reconciled(chunks_of(written, number), tools, on_text), model="scripted")

    async def aclose(self) -> None:
        """Nothing is kept open."""


def _reconciled(chunks: Iterable[Mapping[str, Any]], tools: Messages, on_text: Show | None) -> StreamResult:
    reconciler = StreamReconciler(list(tools))
    for chunk in chunks:
        shown = reconciler.feed(chunk)
        if shown and on_text:
            on_text(shown)
    return reconciler.finish()


def chunks_of(said: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    """Write a reply (`content`, `tool_calls` of `name` and `arguments`) as a server would stream it; calls have ids with its number."""
    calls = said.get("tool_calls")
    if not isinstance(calls, list):
        return [_chunk({"role": "assistant", "content": said["content"]}), _chunk({}, "stop")]
    sent = [
        {
            "index": at,
            "id": f"call_{number}_{at}",
            "type": "function",
            "function": {"name": call["name"], "arguments": _text(call.get("arguments", {}))},
        }
        for at, call in enumerate(calls)
    ]
    content = [_chunk({"role": "assistant", "content": said["content"]})] if said.get("content") else []
    return [*content, _chunk({"tool_calls": sent}), _chunk({}, "tool_calls")]


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish}], "created": int(time.time())}
