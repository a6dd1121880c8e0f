"""Clients for servers that speak the OpenAI protocol, or Ollama's own: OpenAI, OpenRouter, llama.cpp, vLLM, Ollama.

`ChatClient` takes `http://HOST/v1#MODEL` and holds whole conversations with tools; `OpenAICompatibleGenerator` gives artifacts with their usage.
`openai_body` and `ollama_body` make the JSON of a request from messages and tools in OpenAI's form. `dsa.generators.streams` assembles the
stream of a server; errors on the way become GenerationError.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import attrs

from dsa.edge.http_stream import ModelServer, StreamLimits
from dsa.edge.model_server import MAYBE_CHARGED, Retries, read_endpoint, reason_of
from dsa.generators.model_options import require_bounds, run_blocking, seed_for
from dsa.generators.streams import StreamError, StreamReconciler, StreamResult
from dsa.immutable import immutable
from dsa.runtime.content import Artifact, AsyncGeneratorInterface, Context, PromptTemplate, messages_of
from dsa.runtime.generation import GenerationError, TokenBudget, Usage

#: Parameters that some servers refuse, and their other names, if any: the request is sent again without them.
REFUSABLE: dict[str, str | None] = {
    "stream_options": None, "seed": None, "temperature": None, "max_tokens": "max_completion_tokens",
}  # fmt: skip


#: The smallest window that is requested from Ollama. Without a request it may use this size, and silently cut off the beginning of a longer prompt.
_SMALLEST_WINDOW = 4_096
_CHARS_PER_TOKEN, _ANSWER_TOKENS = 3, 4_096


@attrs.frozen(field_transformer=immutable)
class ServerSettings:
    """How the model should write. `more` goes into the body unchanged (`tool_choice`, `response_format`, ..).

    `window_tokens` is the room for request and answer together, in Ollama's own protocol; None means as much as this request needs.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    more: Mapping[str, Any] = attrs.field(factory=dict)
    window_tokens: int | None = None


def openai_body(
    model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: ServerSettings
) -> dict[str, object]:
    """Return the body for `/chat/completions`; it also requests the counts of tokens."""
    body: dict[str, object] = {"model": model, "messages": _as_dicts(messages), "stream": True}
    body["stream_options"] = {"include_usage": True}
    if tools:
        body["tools"] = _as_dicts(tools)
    numbers = {"temperature": settings.temperature, "max_tokens": settings.max_tokens, "seed": settings.seed}
    return body | {name: value for name, value in numbers.items() if value is not None} | dict(settings.more)


def _as_dicts(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    return [part if isinstance(part, dict) else dict(part) for part in parts]


def ollama_body(
    model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], settings: ServerSettings
) -> dict[str, object]:
    """Return the body for Ollama's `/api/chat`.

    There numbers are options, arguments of calls are objects, a result has its tool's name, a schema is the `format`, and a prompt
    is cut to the server's own window unless the request asks for a larger one.
    """
    body: dict[str, object] = {"model": model, "messages": _for_ollama(messages), "stream": True}
    if tools:
        body["tools"] = _as_dicts(tools)
    more = dict(settings.more)
    schema = (more.pop("response_format", None) or {}).get("json_schema", {}).get("schema")
    if schema is not None:
        body["format"] = schema
    numbers = {
        "temperature": settings.temperature,
        "num_predict": settings.max_tokens,
        "seed": settings.seed,
        "num_ctx": settings.window_tokens or _window_for(body, settings.max_tokens),
    }
    return body | {"options": {name: value for name, value in numbers.items() if value is not None}} | more


def _window_for(body: Mapping[str, Any], max_tokens: int | None) -> int:
    """Return the window that a request and its answer need, in powers of two: for a different window Ollama loads the model again."""
    tokens = len(json.dumps(body, ensure_ascii=False)) // _CHARS_PER_TOKEN + (max_tokens or _ANSWER_TOKENS)
    return _SMALLEST_WINDOW << max(0, (tokens - 1) // _SMALLEST_WINDOW).bit_length()


def _for_ollama(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    names: dict[str, str] = {}
    converted_messages = []
    for message in messages:
        one = dict(message) | {"content": message.get("content") or ""}
        if calls := message.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in calls}
            one["tool_calls"] = [_call_for_ollama(call) for call in calls]
        if message.get("tool_call_id") in names:
            one["tool_name"] = names[message["tool_call_id"]]
        converted_messages.append(one)
    return converted_messages


def _call_for_ollama(call: Mapping[str, Any]) -> dict[str, object]:
    function = call["function"]
    return {
        "id": call["id"],
        "function": {"name": function["name"], "arguments": json.loads(function["arguments"] or "{}")},
    }


def without_refused(body: Mapping[str, Any], refusal: str) -> dict[str, object] | None:
    """Return the body without the parameter that a refusal names, or with its other name; None if it does not name one."""
    for name, other_name in REFUSABLE.items():
        if name in body and name in refusal:
            rest = {key: value for key, value in body.items() if key != name}
            return rest | {other_name: body[name]} if other_name else rest
    return None


_BAD_REQUEST = frozenset({400, 422})
#: Reasons of errors by the codes of streams.
_REASONS = {
    "timeout": "timeout", "bad_chunk": "bad_answer", "truncated": "cut_off", "filtered": "content_filter", "malformed": "bad_answer",
    "unknown_end": "bad_answer",
}  # fmt: skip
_Show = Callable[[str], object]


class ChatClient:
    """Talk with one model at one address.

    `model` is `http://HOST/v1#MODEL`; with a path that ends in `/api` it is Ollama's own protocol. The key is `key`, or else taken from the
    variable `key_variable`, from the host's own (OPENAI_API_KEY, OPENROUTER_API_KEY), or from DSA_API_KEY.
    Raises ValueError for an address that is not valid. Safe to use from several threads and tasks at once. `keeps_connection` as for `ModelServer`.
    """

    def __init__(
        self,
        model: str,
        *,
        key: str = "",
        key_variable: str = "",
        limits: StreamLimits | None = None,
        keeps_connection: bool = False,
    ) -> None:
        endpoint = read_endpoint(model)
        self._server = ModelServer(
            endpoint, key=key, key_variable=key_variable, limits=limits, keeps_connection=keeps_connection
        )
        self.name = self._server.endpoint.name

    async def aclose(self) -> None:
        """Close the connection that is kept on the running loop, before that ends."""
        await self._server.aclose()

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        settings: ServerSettings | None = None,
        on_text: _Show | None = None,
        on_retry: _Show | None = None,
    ) -> StreamResult:
        """Send messages and tools in OpenAI's form and return the result; `on_text` is called with text as soon as it can be shown.

        `on_retry` is called with the reason of each try that another one follows. Raises GenerationError if nothing came. A stream that broke off later is a result with an
        error: its text is kept, and none of its calls is executable.
        """
        write = ollama_body if self._server.endpoint.native else openai_body
        body = write(self._server.endpoint.model, messages, tools, settings or ServerSettings())
        for _ in REFUSABLE:
            try:
                return await self._ask(body, tools, on_text, on_retry)
            except GenerationError as error:
                smaller = without_refused(body, error.server.detail) if error.server.status in _BAD_REQUEST else None
                if smaller is None:
                    raise
                body = smaller
        return await self._ask(body, tools, on_text, on_retry)

    def ask_and_wait(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        settings: ServerSettings | None = None,
        on_text: _Show | None = None,
        on_retry: _Show | None = None,
    ) -> StreamResult:
        """Do the same and block the thread; if it is called inside a running event loop, the loop stops in the meantime."""
        return run_blocking(lambda: self.ask(messages, tools, settings, on_text, on_retry))

    async def _ask(
        self, body: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], on_text: _Show | None, on_retry: _Show | None
    ) -> StreamResult:
        reconciler = StreamReconciler(tools)
        has_begun = False
        try:
            async with aclosing(self._server.chunks(body, on_retry)) as chunks:
                async for chunk in chunks:
                    has_begun = True
                    if (text := reconciler.feed(chunk)) and on_text:
                        on_text(text)
        except GenerationError as error:
            if not has_begun:
                raise
            codes = {"timeout": "timeout", "bad_answer": "bad_chunk"}
            reconciler.fail(codes.get(error.reason, "interrupted"), str(error))
        result = reconciler.finish()
        if result.error is None:
            return result
        message = self._server.name.clean(result.error.message)
        return attrs.evolve(result, error=attrs.evolve(result.error, message=message))

    def failure(self, error: StreamError, usage: Usage | None = None) -> GenerationError:
        """Return the error of a stream as GenerationError, for callers who want all of the answer or nothing."""
        server = self._server.name
        if error.code == "provider_error":
            reason = reason_of(error.status, error.message)
            message = f"{server.model} at {server.where} broke off with an error: {error.message}"
            return GenerationError(message, reason, usage)
        message = f"The answer of {server.model} at {server.where} is not complete: {error.message}"
        return GenerationError(message, _REASONS.get(error.code, "interrupted"), usage)


class OpenAICompatibleGenerator(AsyncGeneratorInterface):
    """Send the prompt as one user message, or, if it has a text for `system`, as messages with roles; the artifact's content is the complete reply, unchanged.

    `model`, `key_variable` as for ChatClient. `timeout_s` is for the whole answer of one try, `silence_s` for the longest wait in the
    middle of it, `retries` for further tries while nothing has come. `max_prompt_tokens` limits the prompt, counted by `count_tokens`, or else
    as one token for each byte, since the server's tokenizer is not known. Raises ValueError for numbers that make no sense.
    """

    def __init__(
        self,
        model: str,
        *,
        seed: int = 0,
        temperature: float = 0.7,
        max_tokens: int | None = None,
        key_variable: str = "",
        timeout_s: float = 120.0,
        silence_s: float = 60.0,
        retries: int = 0,
        max_prompt_tokens: int | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        require_bounds(temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s)
        require_bounds(temperature=temperature, max_tokens=max_tokens, timeout_s=silence_s)
        tries = Retries(retries)
        connect_s = min(10.0, timeout_s)
        limits = StreamLimits(connect_s, first_s=timeout_s, silence_s=silence_s, whole_s=timeout_s, retries=tries.most)
        self._client = ChatClient(model, key_variable=key_variable, limits=limits)
        self._seed = seed
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._budget = budget_of(max_prompt_tokens, count_tokens)

    def generate(
        self, context: Context, template: PromptTemplate | None = None, on_text: _Show | None = None
    ) -> Artifact:
        """Ask the model; `on_text` is called with each piece of text as it comes.

        Raises ModelUnavailable without httpx, GenerationError for a prompt that is too long, before anything is sent, and if no complete answer came.
        """
        return run_blocking(lambda: self.agenerate(context, template, on_text))

    async def agenerate(
        self, context: Context, template: PromptTemplate | None = None, on_text: _Show | None = None
    ) -> Artifact:
        """Do the same in a running event loop. If it is cancelled, it closes the connection."""
        messages = messages_of(template, context, self._budget)
        seed = seed_for(self._seed, context, messages)
        start_s, failed = time.monotonic(), list[str]()
        settings = ServerSettings(self._temperature, self._max_tokens, seed)
        result = await self._client.ask(messages, (), settings, on_text, failed.append)
        usage = self._usage(result, time.monotonic() - start_s, failed)
        self._require_whole(result, usage)
        return Artifact(content=result.content, usage=usage)

    def _require_whole(self, result: StreamResult, usage: Usage) -> None:
        name = self._client.name
        if result.error is not None:
            raise self._client.failure(result.error, usage)
        if result.finish_reason == "length":
            message = f"The answer of {name} was cut off at its limit of tokens; raise max_tokens, or ask for less."
            raise GenerationError(message, "cut_off", usage)
        if result.finish_reason == "content_filter":
            message = f"A content filter stopped {name}; reword the task or use another model."
            raise GenerationError(message, "content_filter", usage)
        if not result.content:
            what = "only its reasoning, without an answer" if result.reasoning else "an answer without text"
            message = f"{name} gave {what}; try again or use another model."
            raise GenerationError(message, "bad_answer", usage)

    def _usage(self, result: StreamResult, seconds: float, failed: Sequence[str]) -> Usage:
        return Usage(
            model=self._client.name,
            seconds=seconds,
            prompt_tokens=result.count("prompt_tokens"),
            completion_tokens=result.count("completion_tokens"),
            cost_usd=None if MAYBE_CHARGED & set(failed) else result.cost_usd,
            response_model=result.model,
            retried=tuple(failed),
        )


def budget_of(most: int | None, count: Callable[[str], int] | None) -> TokenBudget | None:
    """Return the budget for an option and a function; None if there is no budget. Without a function each byte counts as a token."""
    if most is None:
        return None
    return TokenBudget(most) if count is None else TokenBudget(most, count, "by the function count_tokens")
