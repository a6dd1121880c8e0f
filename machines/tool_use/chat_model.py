"""Models that call no tools: they are told of them, and write a call as JSON, which a schema holds to its form.

Who answers: a server that speaks the OpenAI protocol, any provider through LiteLLM, or a script.

Takes messages and tools, gives a whole answer as the stream reconciler reads it, and its text piece by piece on the way. A model that
fails for a moment is asked again (its server restarts, is busy, or breaks off); one that calls no tools writes a call as JSON, which a schema holds to
its form.
"""

import asyncio
import json
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol, Self

import attrs

from dsa.edge.http.model_server import SCHEMES, Retries, reason_of
from dsa.errors import DocumentError, GenerationError, ModelUnavailable
from dsa.generators import ChatClient, ServerSettings, StreamLimits
from dsa.generators.local_model import served
from dsa.generators.model_options import derive_seed
from dsa.generators.provider import LiteLLMGenerator
from dsa.generators.streams import StreamReconciler, StreamResult
from dsa.generators.substitutes import parse_script
from machines.tool_use.records import JsonObject, parse_json, read_record
from machines.tool_use.tool import Tool
from machines.tool_use.transcript import ChatMessage, joined

_ANSWER = "answer"


@attrs.frozen
class WrittenCall:
    """A call as it is written: arguments are an object, or a text where they are to be broken."""

    name: str
    arguments: object = attrs.field(factory=dict)


@attrs.frozen
class ModelReply:
    """What a model has written: a text, or a call of a tool."""

    content: str = ""
    calls: tuple[WrittenCall, ...] = ()


def response_format(tools: Sequence[Tool]) -> JsonObject:
    """Return what a server is to hold the answer to: one call, or an answer in words."""
    choices = [_choice(tool.name, tool.arguments_schema()) for tool in tools]
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    schema = {"anyOf": [*choices, _choice(_ANSWER, text)]}
    return {"type": "json_schema", "json_schema": {"name": "call", "strict": True, "schema": schema}}


def _choice(name: str, arguments: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": {"tool": {"const": name}, "arguments": {**arguments, "additionalProperties": False}},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }


def with_tools_told(messages: Sequence[ChatMessage], tools: Iterable[Tool]) -> list[ChatMessage]:
    """Return messages whose first one says which tools there are, and how they are called."""
    told = "\n".join([
        'Answer with one JSON object and nothing else: {"tool": NAME, "arguments": {..}}. The tools:',
        *(f"- {_signature(tool)}: {tool.about}" for tool in tools),
        f"- {_ANSWER}(text): say something to the user instead.",
    ])  # fmt: skip
    first, *rest = messages
    return [attrs.evolve(first, content=f"{first.content}\n\n{told}"), *rest]


def _signature(tool: Tool) -> str:
    schema = tool.arguments_schema()
    required, properties = schema.get("required"), schema.get("properties")
    wanted = required if isinstance(required, list | tuple) else ()
    names = [name if name in wanted else f"{name}?" for name in properties] if isinstance(properties, dict) else []
    return f"{tool.name}({', '.join(names)})"


def as_texts(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Return messages of plain text: a call as the JSON that the model would write, its result as the user's word."""
    said: list[ChatMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            said.append(ChatMessage("user", f"[{names.get(message.answers, 'a tool')} gave] {message.content}"))
            continue
        lines = [message.content] if message.content else []
        for call in message.calls:
            names[call.provider_id] = call.name
            lines.append(json.dumps({"tool": call.name, "arguments": call.arguments or {}}, ensure_ascii=False))
        said.append(ChatMessage(message.role, "\n".join(lines)))
    return joined(said, "\n", {"system", "user", "assistant"})  # small models were trained with turns


def read_reply(text: str) -> ModelReply | None:
    """Return what a model has written; None for what is no such JSON."""
    said = parse_json(text)
    if not isinstance(said, dict) or not isinstance(said.get("tool"), str):
        return None
    given = said.get("arguments")
    arguments = given if isinstance(given, dict) else {}
    if said["tool"] == _ANSWER:
        return ModelReply(str(arguments.get("text") or ""))
    return ModelReply(calls=(WrittenCall(said["tool"], arguments),))


Show = Callable[[str], object]
#: Asks once, within so many seconds, and shows text as it comes. Raises GenerationError when nothing came.
Once = Callable[[float, Show | None], Awaitable[StreamResult]]

#: For how many seconds a model that fails is asked again; 0: not at all.
VARIABLE = "DSA_RETRY_S"
_AGAIN_S, _LONGEST_S = 60.0, 3_600.0
_MOST_TRIES = 20
#: How often an answer that broke off is asked for again: each may have been charged.
_MOST_BROKEN = 2
_SHORTEST_TRY_S = 1.0
ASKED_AGAIN = "\n[the answer broke off, and is asked for again]\n"


@attrs.frozen
class RetryLimits:
    """`again_s` bounds the waits from the first failure on, also those that a server asks for; `whole_s` all tries and waits together."""

    again_s: float = _AGAIN_S
    whole_s: float = math.inf

    @classmethod
    def of_environment(cls, whole_s: float) -> Self:
        """Return that of the environment. Raises ModelUnavailable for what is no number of seconds."""
        said = os.environ.get(VARIABLE, "")
        try:
            again_s = float(said) if said else _AGAIN_S
        except ValueError:
            again_s = math.nan
        if not 0 <= again_s <= _LONGEST_S:
            wanted = f"a number of seconds from 0 (a model that fails is not asked again) to {_LONGEST_S:g}"
            raise ModelUnavailable(f"{VARIABLE} = {said!r} is not {wanted}; it is {_AGAIN_S:g} when unset")
        return cls(again_s, whole_s)


async def asked(once: Once, patience: RetryLimits, on_text: Show | None, on_wait: Show) -> StreamResult:
    """Return the answer of the first try that brings a whole one, else that of the last try: what came of it, or its GenerationError.

    `on_wait` is told before each pause what is wrong, and how long the pause is.
    """
    clock = asyncio.get_running_loop().time
    over_at = clock() + patience.whole_s
    retries = Retries(_MOST_TRIES if patience.again_s else 0, longest_pause_s=patience.again_s, most_s=patience.again_s)
    shown = None if on_text is None else _ShownText(on_text)
    failed_at = math.inf
    broken = 0
    for failed in count():
        result: StreamResult | None = None
        try:
            result = await once(over_at - clock(), shown)
            failure = failure_in(result)
        except GenerationError as error:
            failure = error
        if result is not None and (failure is None or broken == _MOST_BROKEN):
            return result
        assert failure is not None, "nothing came, and nothing was wrong"
        broken += result is not None
        now = clock()
        failed_at = min(failed_at, now)
        pause_s = retries.pause_s(failure, failed, now - failed_at)
        if pause_s is None or now + pause_s + _SHORTEST_TRY_S > over_at:
            if result is not None:
                return result
            raise retries.last(failure, failed + 1, now - failed_at) from failure.__cause__
        why = str(failure).rstrip()
        on_wait(f"{why if why.endswith('.') else f'{why}.'} It is asked again in {pause_s:.3g} s.")
        await asyncio.sleep(pause_s)
        if shown is not None:
            shown.again()
    raise AssertionError("it counts for ever")


def failure_in(result: StreamResult) -> GenerationError | None:
    """Return what has broken an answer off that may be whole the next time; None where another try is of no use."""
    error = result.error
    if error is None or error.code not in {"interrupted", "provider_error"}:
        return None
    reason = "interrupted" if error.code == "interrupted" else reason_of(error.status, error.message)
    return GenerationError(str(error), reason)


class _ShownText:
    """Shows text, and says where it begins anew."""

    def __init__(self, on_text: Show) -> None:
        self._on_text, self._has_begun = on_text, False

    def __call__(self, text: str) -> None:
        self._has_begun = True
        self._on_text(text)

    def again(self) -> None:
        """Say that what was shown is not the answer."""
        if self._has_begun:
            self._on_text(ASKED_AGAIN)
        self._has_begun = False


_SCRIPTED = "scripted:"
_FIRST_S = 120.0
#: What an answer may have in bytes: most, at least, for each token. A token comes in a chunk of about 300 bytes.
_MOST_BYTES, _LEAST_BYTES, _TOKEN_BYTES = 16 << 20, 1 << 20, 2_048


class Model(Protocol):
    """Whoever answers."""

    async def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], /, *, number: int, on_text: Show | None
    ) -> StreamResult:
        """Return the answer; `on_text` is called with text as it can be shown. `number` is how many the conversation has had.

        Raises GenerationError when nothing came.
        """

    async def aclose(self) -> None:
        """Let go of connections, before the event loop ends by itself."""


@attrs.frozen
class ModelOptions:
    """How a model is asked. None leaves it to the provider.

    `json_mode` is for models that call no tools: they fill in a JSON schema, which the server has to hold them to. `whole_s` bounds an answer, with all
    tries that it needs: it has to be less than the time limit of the effect that asks, or what came is lost with it. `on_wait` is told why a model is
    asked again, and when. `window_tokens` is the room for request and answer together, for Ollama; None is as much as each request needs.
    `api_base` is the address of a provider that LiteLLM asks elsewhere.
    """

    seed: int = 0
    temperature: float | None = None
    max_tokens: int | None = None
    json_mode: bool = False
    whole_s: float = 280.0
    on_wait: Show = lambda _text: None
    window_tokens: int | None = None
    api_base: str = ""


def model_of(name: str, wanted: ModelOptions | None = None) -> Model:
    """Return who answers under a name, as `dsa run --model` takes it.

    ModelUnavailable for the local model, which calls no tools and makes up what it says, unless it is asked in JSON mode, and where JSON mode cannot
    be had. DocumentError for a script that cannot be read.
    """
    wanted = wanted or ModelOptions()
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

    def __init__(self, name: str, wanted: ModelOptions, key: str = "") -> None:
        self._name, self._key, self._wanted = name, key, wanted
        self._settings = ServerSettings(wanted.temperature, wanted.max_tokens, window_tokens=wanted.window_tokens)
        self._patience = RetryLimits.of_environment(wanted.whole_s)
        self._client = self._client_within(wanted.whole_s, keeps_connection=True)

    def _client_within(self, whole_s: float, *, keeps_connection: bool = False) -> ChatClient:
        first_s = min(_FIRST_S, whole_s)
        limits = StreamLimits(first_s=first_s, whole_s=whole_s, most_bytes=most_bytes(self._wanted.max_tokens))
        return ChatClient(self._name, key=self._key, limits=limits, keeps_connection=keeps_connection)

    async def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], *, number: int, on_text: Show | None
    ) -> StreamResult:
        return await self.ask_with({}, messages, tools, number=number, on_text=on_text)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def ask_with(
        self,
        more: JsonObject,
        messages: Sequence[ChatMessage],
        tools: Sequence[Tool],
        *,
        number: int,
        on_text: Show | None,
    ) -> StreamResult:
        settings = attrs.evolve(self._settings, seed=derive_seed(self._wanted.seed, "", number, ""), more=more)
        kept = iter([self._client])  # later tries have connections of their own, and what is left of the time

        async def once(left_s: float, shown: Show | None) -> StreamResult:
            client = next(kept, None) or self._client_within(round(left_s))
            result = await client.ask(*as_openai(messages, tools), settings, shown)
            if result.error is not None and result.error.code == "provider_error" and not result.content:
                raise client.failure(result.error)
            return result

        result = await asked(once, self._patience, on_text, self._wanted.on_wait)
        return result if result.model else attrs.evolve(result, model=self._client.name)


def most_bytes(max_tokens: int | None) -> int:
    """Return how long an answer of so many tokens may be as it is sent, each in a chunk of its own; None: as long as any."""
    return _MOST_BYTES if max_tokens is None else min(_LEAST_BYTES + max_tokens * _TOKEN_BYTES, _MOST_BYTES)


class _InJson:
    """A model that calls no tools, and writes its calls as JSON instead (`json_mode`)."""

    def __init__(self, server: _Server) -> None:
        self._server = server

    async def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], *, number: int, on_text: Show | None
    ) -> StreamResult:
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

    def __init__(self, name: str, wanted: ModelOptions) -> None:
        self._name, self._wanted = name, wanted
        self._patience = RetryLimits.of_environment(wanted.whole_s)
        self._generator_within(wanted.whole_s)  # what is wrong with its settings is said now

    def _generator_within(self, left_s: float) -> LiteLLMGenerator:
        wanted = self._wanted
        temperature = 0.7 if wanted.temperature is None else wanted.temperature
        timeout_s = min(_FIRST_S, left_s)
        return LiteLLMGenerator(
            self._name,
            temperature=temperature,
            max_tokens=wanted.max_tokens,
            timeout_s=timeout_s,
            api_base=wanted.api_base,
        )

    async def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], *, number: int, on_text: Show | None
    ) -> StreamResult:
        seed = derive_seed(self._wanted.seed, "", number, "")

        async def once(left_s: float, shown: Show | None) -> StreamResult:
            sent, offered = as_openai(messages, tools)
            return await self._generator_within(left_s).converse(sent, seed=seed, tools=offered, on_text=shown)

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

    async def ask(
        self, _messages: Sequence[ChatMessage], tools: Sequence[Tool], *, number: int, on_text: Show | None
    ) -> StreamResult:
        if number >= len(self._replies):
            told = f"{self._path} has no reply left: all {len(self._replies)} are used; add a fenced block."
            raise GenerationError(told, "exhausted")
        reply = self._replies[number]
        written = self._written(reply, number)
        return attrs.evolve(_reconciled(chunks_of(written, number), tools, on_text), model="scripted")

    def _written(self, reply: str, number: int) -> ModelReply:
        """Read a reply: JSON with `tool_calls`, or a text. Raises DocumentError for calls that are none."""
        said = parse_json(reply)
        if not isinstance(said, dict) or not isinstance(said.get("tool_calls"), list):
            return ModelReply(reply.strip())
        try:
            return read_record(ModelReply, {"content": said.get("content") or "", "calls": said["tool_calls"]})
        except ValueError as error:
            raise DocumentError(str(self._path), f"reply {number + 1} of the script cannot be read: {error}") from error

    async def aclose(self) -> None:
        """Nothing is kept open."""


def as_openai(messages: Iterable[ChatMessage], tools: Iterable[Tool]) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return messages and tools in OpenAI's form."""
    return [message.as_openai for message in messages], [tool.as_openai for tool in tools]


def _reconciled(chunks: Iterable[JsonObject], tools: Iterable[Tool], on_text: Show | None) -> StreamResult:
    reconciler = StreamReconciler([tool.as_openai for tool in tools])
    for chunk in chunks:
        shown = reconciler.feed(chunk)
        if shown and on_text:
            on_text(shown)
    return reconciler.finish()


def chunks_of(reply: ModelReply, number: int) -> list[JsonObject]:
    """Write a reply as a server would stream it; calls have ids with its number."""
    if not reply.calls:
        return [_chunk({"role": "assistant", "content": reply.content}), _chunk({}, "stop")]
    sent = [
        {
            "index": at,
            "id": f"call_{number}_{at}",
            "type": "function",
            "function": {"name": call.name, "arguments": _text(call.arguments)},
        }
        for at, call in enumerate(reply.calls)
    ]
    content = [_chunk({"role": "assistant", "content": reply.content})] if reply.content else []
    return [*content, _chunk({"tool_calls": sent}), _chunk({}, "tool_calls")]


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "created": int(time.time())}
