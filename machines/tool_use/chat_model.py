"""Chat models: a server that speaks the OpenAI protocol, any provider through LiteLLM, or a script.

A model takes messages and tools. It returns the whole answer as the stream reconciler reads it, and passes on the text piece by piece meanwhile. A model
that fails for a moment (its server restarts, is busy, or breaks off an answer) is asked again. A model without tool calls writes a call as JSON, and a schema
enforces the form.
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

from dsa.edge.model_server import SCHEMES, Retries, reason_of
from dsa.errors import DocumentError
from dsa.generators import ChatClient, ServerSettings, StreamLimits
from dsa.generators.local_model import server_address
from dsa.generators.model_options import derive_seed
from dsa.generators.provider import LiteLLMGenerator
from dsa.generators.streams import StreamReconciler, StreamResult
from dsa.generators.substitutes import parse_script
from dsa.runtime.generation import GenerationError, ModelUnavailable
from machines.tool_use.records import JsonObject, parse_json, read_record
from machines.tool_use.tool_call import Tool
from machines.tool_use.transcript import ChatMessage, join_neighbours

# --- calls as JSON, for models without tool calls ---

_ANSWER = "answer"


@attrs.frozen
class WrittenCall:
    """A call in a reply. The arguments are an object, or a text that a test wants to be broken JSON."""

    name: str
    arguments: object = attrs.field(factory=dict)


@attrs.frozen
class ModelReply:
    """A model's reply: a text, or calls of tools."""

    content: str = ""
    calls: tuple[WrittenCall, ...] = ()


def response_format(tools: Sequence[Tool]) -> JsonObject:
    """Return the `response_format` of a request: one call of a tool, or an answer in words."""
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


def with_tool_list(messages: Sequence[ChatMessage], tools: Iterable[Tool]) -> list[ChatMessage]:
    """Return the messages with a list of the tools, and how to call them, in the first one."""
    listing = "\n".join([
        'Answer with one JSON object and nothing else: {"tool": NAME, "arguments": {..}}. The tools:',
        *(f"- {_signature(tool)}: {tool.about}" for tool in tools),
        f"- {_ANSWER}(text): say something to the user instead.",
    ])  # fmt: skip
    first, *rest = messages
    return [attrs.evolve(first, content=f"{first.content}\n\n{listing}"), *rest]


def _signature(tool: Tool) -> str:
    schema = tool.arguments_schema()
    required_names, properties = schema.get("required"), schema.get("properties")
    necessary = required_names if isinstance(required_names, list | tuple) else ()
    names = [name if name in necessary else f"{name}?" for name in properties] if isinstance(properties, dict) else []
    return f"{tool.name}({', '.join(names)})"


def as_texts(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Return messages of plain text: a call as the JSON that the model would write, its result as a message of the user."""
    texts: list[ChatMessage] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "tool":
            texts.append(ChatMessage("user", f"[result of {names.get(message.answers, 'a tool')}] {message.content}"))
            continue
        lines = [message.content] if message.content else []
        for call in message.calls:
            names[call.provider_id] = call.name
            lines.append(json.dumps({"tool": call.name, "arguments": call.arguments or {}}, ensure_ascii=False))
        texts.append(ChatMessage(message.role, "\n".join(lines)))
    return join_neighbours(texts, "\n", {"system", "user", "assistant"})  # small models were trained with turns


def read_reply(text: str) -> ModelReply | None:
    """Return the reply that a text holds, or None when it is not such JSON."""
    reply = parse_json(text)
    if not isinstance(reply, dict) or not isinstance(reply.get("tool"), str):
        return None
    value = reply.get("arguments")
    arguments = value if isinstance(value, dict) else {}
    if reply["tool"] == _ANSWER:
        return ModelReply(str(arguments.get("text") or ""))
    return ModelReply(calls=(WrittenCall(reply["tool"], arguments),))


# --- retries ---

Show = Callable[[str], object]
#: Asks once, within a number of seconds, and shows text as it comes. Raises GenerationError when there is no answer.
Once = Callable[[float, Show | None], Awaitable[StreamResult]]

#: For how many seconds a failing model is asked again; 0 means not at all.
VARIABLE = "DSA_RETRY_S"
_AGAIN_S, _LONGEST_S = 60.0, 3_600.0
_MOST_TRIES = 20
#: The retries after an answer that broke off. It is small: the provider may charge for each.
_MOST_BREAKS = 2
_SHORTEST_TRY_S = 1.0
RETRY_NOTE = "\n[the answer broke off; asking again]\n"


@attrs.frozen
class RetryLimits:
    """The time for retries, in seconds. `again_s` limits the waits after the first failure, including those that a server asks for; `whole_s` limits all tries together."""

    again_s: float = _AGAIN_S
    whole_s: float = math.inf

    @classmethod
    def of_environment(cls, whole_s: float) -> Self:
        """Return the limits that the environment sets. Raises ModelUnavailable for a value that is not a number of seconds."""
        setting = os.environ.get(VARIABLE, "")
        try:
            again_s = float(setting) if setting else _AGAIN_S
        except ValueError:
            again_s = math.nan
        if not 0 <= again_s <= _LONGEST_S:
            allowance = f"a number of seconds from 0 (no retries) to {_LONGEST_S:g}"
            raise ModelUnavailable(f"{VARIABLE} = {setting!r} is not {allowance}; the default is {_AGAIN_S:g}")
        return cls(again_s, whole_s)


async def ask_with_retries(once: Once, patience: RetryLimits, on_text: Show | None, on_wait: Show) -> StreamResult:
    """Return the first whole answer, or else the answer of the last try.

    Calls `on_wait` before each pause with the reason and the length of the pause. Raises GenerationError when the last try has no answer.
    """
    clock = asyncio.get_running_loop().time
    over_at = clock() + patience.whole_s
    retries = Retries(_MOST_TRIES if patience.again_s else 0, longest_pause_s=patience.again_s, most_s=patience.again_s)
    display = None if on_text is None else _RetryDisplay(on_text)
    first_failure_s = math.inf
    breaks = 0
    for failures in count():
        result: StreamResult | None = None
        try:
            result = await once(over_at - clock(), display)
            failure = failure_in(result)
        except GenerationError as error:
            failure = error
        if result is not None and (failure is None or breaks == _MOST_BREAKS):
            return result
        assert failure is not None, "a try without an answer has a failure"
        breaks += result is not None
        now = clock()
        first_failure_s = min(first_failure_s, now)
        pause_s = retries.pause_s(failure, failures, now - first_failure_s)
        if pause_s is None or now + pause_s + _SHORTEST_TRY_S > over_at:
            if result is not None:
                return result
            raise retries.last(failure, failures + 1, now - first_failure_s) from failure.__cause__
        why = str(failure).rstrip()
        on_wait(f"{why if why.endswith('.') else f'{why}.'} Trying again in {pause_s:.3g} s.")
        await asyncio.sleep(pause_s)
        if display is not None:
            display.again()
    raise AssertionError("count() never ends")


def failure_in(result: StreamResult) -> GenerationError | None:
    """Return why an answer broke off, or None when another try would not help."""
    error = result.error
    if error is None or error.code not in {"interrupted", "provider_error"}:
        return None
    reason = "interrupted" if error.code == "interrupted" else reason_of(error.status, error.message)
    return GenerationError(str(error), reason)


class _RetryDisplay:
    """A display of an answer's text, which says where the text starts again."""

    def __init__(self, on_text: Show) -> None:
        self._on_text, self._has_begun = on_text, False

    def __call__(self, text: str) -> None:
        self._has_begun = True
        self._on_text(text)

    def again(self) -> None:
        """Say that the text so far is not the answer."""
        if self._has_begun:
            self._on_text(RETRY_NOTE)
        self._has_begun = False


# --- models ---

_SCRIPT_PREFIX = "scripted:"
_FIRST_S = 120.0
#: The limit of an answer in bytes: the largest, the smallest, and the part for each token. A token comes in a chunk of about 300 bytes.
_MOST_BYTES, _LEAST_BYTES, _TOKEN_BYTES = 16 << 20, 1 << 20, 2_048


class Model(Protocol):
    """A model that answers messages."""

    async def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], /, *, number: int, on_text: Show | None
    ) -> StreamResult:
        """Return the answer. Calls `on_text` with text that can be shown; `number` is the count of earlier answers in the conversation.

        Raises GenerationError when there is no answer.
        """

    async def aclose(self) -> None:
        """Close the connections; call it before the event loop ends."""


@attrs.frozen
class ModelOptions:
    """Options of requests to a model. None leaves an option to the provider.

    `json_mode` is for models without tool calls: they fill in a JSON schema, and the server has to enforce it. `whole_s` limits an answer with all its
    tries, in seconds. It has to be less than the time limit of the effect that asks, or the effect loses the answer. `on_wait` gets the reason and the
    length of each pause before a retry. `window_tokens` is the room for request and answer together, for Ollama; None means as much as each request
    needs. `api_base` is another address for a provider of LiteLLM.
    """

    seed: int = 0
    temperature: float | None = None
    max_tokens: int | None = None
    json_mode: bool = False
    whole_s: float = 280.0
    on_wait: Show = lambda _text: None
    window_tokens: int | None = None
    api_base: str = ""


def model_of(name: str, options: ModelOptions | None = None) -> Model:
    """Return the model of a name, in the form that `dsa run --model` takes.

    Raises ModelUnavailable for the local model without JSON mode, which cannot call tools and makes up its answers, and for JSON mode with a model that does
    not have it. Raises DocumentError for a script that cannot be read.
    """
    options = options or ModelOptions()
    if name.startswith(_SCRIPT_PREFIX):
        return _Script(Path(name.removeprefix(_SCRIPT_PREFIX)))
    if name in {"", "local"}:
        if not options.json_mode:
            raise ModelUnavailable(
                "the local model cannot call tools, and they are needed here; "
                "name another model: http://HOST/v1#MODEL, a LiteLLM name, or scripted:FILE"
            )
        address, key = server_address()
        return _InJson(_Server(f"{address}/v1#local", options, key))
    if name.startswith(SCHEMES):
        return _InJson(_Server(name, options)) if options.json_mode else _Server(name, options)
    if options.json_mode:
        raise ModelUnavailable("JSON mode needs a server that speaks the OpenAI protocol: --model http://HOST/v1#MODEL")
    return _LiteLLM(name, options)


class _Server:
    """A server that speaks the OpenAI protocol, or Ollama's own."""

    def __init__(self, name: str, options: ModelOptions, key: str = "") -> None:
        self._name, self._key, self._options = name, key, options
        self._settings = ServerSettings(options.temperature, options.max_tokens, window_tokens=options.window_tokens)
        self._patience = RetryLimits.of_environment(options.whole_s)
        self._client = self._client_within(options.whole_s, keeps_connection=True)

    def _client_within(self, whole_s: float, *, keeps_connection: bool = False) -> ChatClient:
        first_s = min(_FIRST_S, whole_s)
        limits = StreamLimits(first_s=first_s, whole_s=whole_s, most_bytes=most_bytes(self._options.max_tokens))
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
        settings = attrs.evolve(self._settings, seed=derive_seed(self._options.seed, "", number, ""), more=more)
        first_clients = iter([self._client])  # later tries open connections of their own, with the time that is left

        async def once(left_s: float, display: Show | None) -> StreamResult:
            client = next(first_clients, None) or self._client_within(round(left_s))
            result = await client.ask(*as_openai(messages, tools), settings, display)
            if result.error is not None and result.error.code == "provider_error" and not result.content:
                raise client.failure(result.error)
            return result

        result = await ask_with_retries(once, self._patience, on_text, self._options.on_wait)
        return result if result.model else attrs.evolve(result, model=self._client.name)


def most_bytes(max_tokens: int | None) -> int:
    """Return the limit in bytes of an answer of `max_tokens` tokens, each sent in a chunk of its own. None means the largest limit."""
    return _MOST_BYTES if max_tokens is None else min(_LEAST_BYTES + max_tokens * _TOKEN_BYTES, _MOST_BYTES)


class _InJson:
    """A model without tool calls, which writes its calls as JSON (`json_mode`)."""

    def __init__(self, server: _Server) -> None:
        self._server = server

    async def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], *, number: int, on_text: Show | None
    ) -> StreamResult:
        if not tools:
            return await self._server.ask(as_texts(messages), (), number=number, on_text=on_text)
        more = {"response_format": response_format(tools)}
        requests = with_tool_list(as_texts(messages), tools)
        result = await self._server.ask_with(more, requests, (), number=number, on_text=None)
        reply = read_reply(result.content)
        if result.error is not None or reply is None:
            return result
        answer = _reconcile(chunks_of(reply, number), tools, on_text)
        return attrs.evolve(answer, usage=result.usage, model=result.model)

    async def aclose(self) -> None:
        await self._server.aclose()


class _LiteLLM:
    """Any provider that LiteLLM knows."""

    def __init__(self, name: str, options: ModelOptions) -> None:
        self._name, self._options = name, options
        self._patience = RetryLimits.of_environment(options.whole_s)
        self._generator_within(options.whole_s)  # so that a fault in the settings is noticed now

    def _generator_within(self, left_s: float) -> LiteLLMGenerator:
        options = self._options
        temperature = 0.7 if options.temperature is None else options.temperature
        timeout_s = min(_FIRST_S, left_s)
        return LiteLLMGenerator(
            self._name,
            temperature=temperature,
            max_tokens=options.max_tokens,
            timeout_s=timeout_s,
            api_base=options.api_base,
        )

    async def ask(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool], *, number: int, on_text: Show | None
    ) -> StreamResult:
        seed = derive_seed(self._options.seed, "", number, "")

        async def once(left_s: float, display: Show | None) -> StreamResult:
            request, functions = as_openai(messages, tools)
            return await self._generator_within(left_s).converse(request, seed=seed, tools=functions, on_text=display)

        return await ask_with_retries(once, self._patience, on_text, self._options.on_wait)

    async def aclose(self) -> None:
        """Do nothing: no connection stays open."""


class _Script:
    """The answers of a file, in order. A resumed conversation goes on with the next one.

    Each answer is a fenced block: a text, or JSON with `content` and `tool_calls` (`name`, `arguments`).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._replies = parse_script(path.read_text(encoding="utf-8-sig"))[""]
        except (OSError, UnicodeDecodeError) as error:
            raise DocumentError(str(path), f"the script cannot be read: {error}") from error
        if not self._replies:
            raise DocumentError(str(path), "the script has no replies: write each as a fenced block (```)")

    async def ask(
        self, _messages: Sequence[ChatMessage], tools: Sequence[Tool], *, number: int, on_text: Show | None
    ) -> StreamResult:
        if number >= len(self._replies):
            message = f"{self._path} has no reply left: all {len(self._replies)} are used; add a fenced block."
            raise GenerationError(message, "exhausted")
        reply = self._replies[number]
        answer = self._read(reply, number)
        return attrs.evolve(_reconcile(chunks_of(answer, number), tools, on_text), model="scripted")

    def _read(self, reply: str, number: int) -> ModelReply:
        """Return a reply: JSON with `tool_calls`, or a text. Raises DocumentError for invalid calls."""
        value = parse_json(reply)
        if not isinstance(value, dict) or not isinstance(value.get("tool_calls"), list):
            return ModelReply(reply.strip())
        try:
            return read_record(ModelReply, {"content": value.get("content") or "", "calls": value["tool_calls"]})
        except ValueError as error:
            raise DocumentError(str(self._path), f"reply {number + 1} of the script cannot be read: {error}") from error

    async def aclose(self) -> None:
        """Do nothing: no connection stays open."""


def as_openai(messages: Iterable[ChatMessage], tools: Iterable[Tool]) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return messages and tools in OpenAI's form."""
    return [message.as_openai for message in messages], [tool.as_openai for tool in tools]


def _reconcile(chunks: Iterable[JsonObject], tools: Iterable[Tool], on_text: Show | None) -> StreamResult:
    reconciler = StreamReconciler([tool.as_openai for tool in tools])
    for chunk in chunks:
        text = reconciler.feed(chunk)
        if text and on_text:
            on_text(text)
    return reconciler.finish()


def chunks_of(reply: ModelReply, number: int) -> list[JsonObject]:
    """Return a reply as the chunks that a server would stream. The ids of calls contain `number`."""
    if not reply.calls:
        return [_chunk({"role": "assistant", "content": reply.content}), _chunk({}, "stop")]
    calls = [
        {
            "index": at,
            "id": f"call_{number}_{at}",
            "type": "function",
            "function": {"name": call.name, "arguments": _text(call.arguments)},
        }
        for at, call in enumerate(reply.calls)
    ]
    content = [_chunk({"role": "assistant", "content": reply.content})] if reply.content else []
    return [*content, _chunk({"tool_calls": calls}), _chunk({}, "tool_calls")]


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "created": int(time.time())}
