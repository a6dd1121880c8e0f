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

Show = Callable[[str], object]
Messages = Sequence[Mapping[str, Any]]

_SCRIPTED = "scripted:"


class Model(Protocol):
    """Whoever answers."""

    async def ask(self, messages: Messages, tools: Messages, /, *, number: int, on_text: Show | None) -> StreamResult:
        """Give the answer; `on_text` is called with text as it can be shown. `number` is how many the conversation has had.

        Raises GenerationError when nothing came.
        """


@attrs.frozen
class Wanted:
    """How a model is asked. None leaves it to the provider.

    `json_mode` is for models that call no tools: they fill in a JSON schema, which the server has to hold them to.
    """

    seed: int = 0
    temperature: float | None = None
    max_tokens: int | None = None
    json_mode: bool = False


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
        self._seed = wanted.seed
        self._settings = Settings(wanted.temperature, wanted.max_tokens)
        self._client = ChatClient(name, key=key, limits=Limits(retries=2), keeps_connection=True)

    async def ask(self, messages: Messages, tools: Messages, *, number: int, on_text: Show | None) -> StreamResult:
        return await self.ask_with({}, messages, tools, number=number, on_text=on_text)

    async def ask_with(
        self, more: Mapping[str, Any], messages: Messages, tools: Messages, *, number: int, on_text: Show | None
    ) -> StreamResult:
        settings = attrs.evolve(self._settings, seed=derive_seed(self._seed, "", number, ""), more=more)
        result = await self._client.ask(messages, tools, settings, on_text)
        if result.error is not None and result.error.code == "provider_error" and not result.content:
            raise self._client.failure(result.error)
        return result if result.model else attrs.evolve(result, model=self._client.name)


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


class _LiteLLM:
    """Any provider that LiteLLM knows."""

    def __init__(self, name: str, wanted: Wanted) -> None:
        self._seed = wanted.seed
        temperature = 0.7 if wanted.temperature is None else wanted.temperature
        self._generator = LiteLLMGenerator(name, temperature=temperature, max_tokens=wanted.max_tokens)

    async def ask(self, messages: Messages, tools: Messages, *, number: int, on_text: Show | None) -> StreamResult:
        return await self._generator.converse(
            messages, seed=derive_seed(self._seed, "", number, ""), tools=tools, on_text=on_text
        )


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
