"""Who answers: a server that speaks the OpenAI protocol, any provider through LiteLLM, or a script.

Takes messages and tools in OpenAI's form, gives a whole answer as the stream reconciler reads it, and its text piece by piece on the way.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from dsa.edge.http.endpoint import SCHEMES
from dsa.errors import DocumentError, GenerationError, ModelUnavailable
from dsa.generators import ChatClient, Limits, Settings
from dsa.generators.lite import LiteLLMGenerator
from dsa.generators.scripted import parse_script
from dsa.generators.seeds import derive_seed
from dsa.generators.streams import StreamReconciler, StreamResult

Show = Callable[[str], object]
Messages = Sequence[Mapping[str, Any]]

_SCRIPTED = "scripted:"


class Model(Protocol):
    """Whoever answers."""

    async def ask(self, messages: Messages, tools: Messages, /, *, number: int, on_text: Show | None) -> StreamResult:
        """Give the answer; `on_text` is called with text as it can be shown. `number` is how many the conversation has had.

        Raises GenerationError when nothing came.
        """


def model_of(name: str, seed: int = 0) -> Model:
    """Give who answers under a name, as `dsa run --model` takes it.

    ModelUnavailable for the local model: it can call no tools, and makes up what it says. DocumentError for a script that cannot be read.
    """
    if name.startswith(_SCRIPTED):
        return _Script(Path(name.removeprefix(_SCRIPTED)))
    if name.startswith(SCHEMES):
        return _Server(name, seed)
    if name in {"", "local"}:
        raise ModelUnavailable(
            "the local model can call no tools, and a conversation about data needs them; "
            "name another: --model http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE"
        )
    return _LiteLLM(name, seed)


class _Server:
    """A server that speaks the OpenAI protocol, or Ollama's own."""

    def __init__(self, name: str, seed: int) -> None:
        self._seed = seed
        self._client = ChatClient(name, limits=Limits(retries=2), keeps_connection=True)

    async def ask(self, messages: Messages, tools: Messages, *, number: int, on_text: Show | None) -> StreamResult:
        result = await self._client.ask(
            messages, tools, Settings(seed=derive_seed(self._seed, "", number, "")), on_text
        )
        if result.error is not None and result.error.code == "provider_error" and not result.content:
            raise self._client.failure(result.error)
        return result if result.model else attrs.evolve(result, model=self._client.name)


class _LiteLLM:
    """Any provider that LiteLLM knows."""

    def __init__(self, name: str, seed: int) -> None:
        self._seed = seed
        self._generator = LiteLLMGenerator(name)

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
        reconciler = StreamReconciler(list(tools))
        for chunk in _chunks(self._replies[number], number):
            shown = reconciler.feed(chunk)
            if shown and on_text:
                on_text(shown)
        return attrs.evolve(reconciler.finish(), model="scripted")


def _chunks(reply: str, number: int) -> list[dict[str, Any]]:
    """Write a reply as a server would stream it."""
    try:
        said = json.loads(reply)
    except ValueError:
        said = None
    calls = said.get("tool_calls") if isinstance(said, dict) else None
    if not isinstance(calls, list):
        return [_chunk({"role": "assistant", "content": reply.strip()}), _chunk({}, "stop")]
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
