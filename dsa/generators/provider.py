"""The generator of any provider that LiteLLM knows, or any server that speaks the OpenAI protocol.

It takes a model name (`openai/gpt-4o-mini`, `ollama_chat/qwen2.5-coder`, ..) and returns artifacts with their usage, at once or piece by piece,
called or awaited. LiteLLM fills in what a provider did not say (0 tokens, or tokens that it counted itself; `stop` for a stream that just
ended; the name of the model in the request); in a `StreamResult` what is not known is None. LiteLLM takes seconds to import, so it is imported on the
first call. Providers' errors become GenerationError: one sentence, and what to do.
"""

import asyncio
import inspect
import logging
import os
import re
import sys
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import attrs

from dsa.edge.http_stream import MOST_ANSWER_BYTES
from dsa.edge.model_server import MAYBE_CHARGED, Retries
from dsa.errors import DsaError
from dsa.generators.model_options import require_bounds, run_blocking, seed_for
from dsa.generators.provider_errors import ANSWER_TOO_LARGE, ProviderName
from dsa.generators.streams import StreamError, StreamReconciler, StreamResult
from dsa.generators.streams.reconciliation import plain_reason
from dsa.generators.streams.stream_result import count_in
from dsa.runtime.content import Artifact, AsyncGeneratorInterface, Context, PromptTemplate, messages_of
from dsa.runtime.generation import GenerationError, ModelUnavailable, TokenBudget, Usage


def read_whole(reply: Any, model: str, tools: Sequence[Mapping[str, Any]] = ()) -> StreamResult:  # noqa: ANN401  # litellm's own type
    """Read an answer that came in one piece from `model`, in LiteLLM's name for it; its `usage` has only what is known."""
    reconciler = StreamReconciler(list(tools))
    reconciler.feed(reply)
    result = reconciler.finish()
    if not getattr(reply, "choices", None):  # it is empty, and complete
        result = attrs.evolve(result, error=None, finish_reason="stop")
    counts = _counts(getattr(reply, "usage", None))
    response_model = str(getattr(reply, "model", None) or "")
    cost_usd = getattr(reply, "_hidden_params", {}).get("response_cost") if counts[0] else None
    is_own_word = response_model == model and "/" in model  # with the provider's name before it, it is LiteLLM's
    return attrs.evolve(result, usage=_usage(counts, cost_usd), model="" if is_own_word else response_model)


def read_stream(litellm: Any, stream: Any, reconciler: StreamReconciler, model: str) -> StreamResult:  # noqa: ANN401  # litellm's own types
    """Read a stream that has ended. The model that answered is not known: LiteLLM writes the model of the request into each chunk."""
    chunks, finish = getattr(stream, "chunks", ()), stream.received_finish_reason
    if finish is not None and plain_reason(finish) not in {"stop", "tool_calls"}:  # the last chunk may say `stop`
        reconciler.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    result = attrs.evolve(reconciler.finish(), model="")
    if finish is None and result.error is None:  # the last chunk says `stop` though the provider did not
        message = "the stream ended without a finish reason"
        result = attrs.evolve(result, error=StreamError("interrupted", message), finish_reason=None)
    if not any(getattr(chunk, "usage", None) for chunk in chunks):
        return attrs.evolve(result, usage=None)
    whole = litellm.stream_chunk_builder(chunks=list(chunks))
    counts = _counts(whole.usage)
    return attrs.evolve(result, usage=_usage(counts, _cost(litellm, whole, model) if counts[0] else None))


def _usage(counts: tuple[int | None, int | None], cost_usd: float | None) -> dict[str, object]:
    return {"prompt_tokens": counts[0], "completion_tokens": counts[1], "cost": cost_usd}


#: Why an answer with an error is not complete, by the code of the error.
_FAULTS = {"truncated": "cut_off", "filtered": "content_filter", "malformed": "malformed"}


def fault_of(result: StreamResult) -> str | None:
    """Return the reason why this is not a complete answer in words; None if it is one."""
    if result.error is not None:
        text = result.content or result.reasoning or result.finish_reason
        return _FAULTS.get(result.error.code, "interrupted") if text else "nothing"
    faults = {"length": "cut_off", "content_filter": "content_filter"}
    return faults.get(result.finish_reason or "") or (None if result.content else "no_text")


def _counts(usage: Any) -> tuple[int | None, int | None]:  # noqa: ANN401  # litellm's own type
    """Return the counts of prompt and answer. A prompt of 0 tokens is LiteLLM's way to say that it was not counted."""
    prompt, completion = (count_in(getattr(usage, name, None)) for name in ("prompt_tokens", "completion_tokens"))
    return (prompt, completion) if prompt else (None, None)


def _cost(litellm: Any, whole: Any, model: str) -> float | None:  # noqa: ANN401  # litellm's own types
    """Return the cost by LiteLLM's price list; None for a model that is not on it, which LiteLLM reports by many exceptions."""
    try:
        return float(litellm.completion_cost(completion_response=whole, model=model))
    except Exception:  # noqa: BLE001  # on any error the price is not known
        return None


# -- the generator ----------------------------------------------------------------------------------------------------


#: The agent program's (seed 000).
DEFAULT_MODEL = "ollama/qwen2.5-coder:7b"
_API_BASE_VARIABLES = ("OPENAI_API_BASE", "OPENAI_BASE_URL")
_Show = Callable[[str], object]
_Request = dict[str, object]
_T = TypeVar("_T")


class LiteLLMGenerator(AsyncGeneratorInterface):
    """Send the prompt as one user message, or, if it has a text for `system`, as messages with roles; the artifact's content is the complete reply, unchanged.

    `api_base` is the address of an OpenAI-compatible server (default: OPENAI_API_BASE, OPENAI_BASE_URL); keys come
    from the provider's own variables. Providers without seeds ignore `seed`. `timeout_s` is for one try, `retries` are further tries after
    failures that may pass. `max_prompt_tokens` limits the prompt, counted by `count_tokens`, or else as LiteLLM counts for the model.
    Raises ValueError for numbers that make no sense.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        seed: int = 0,
        temperature: float = 0.7,
        max_tokens: int | None = None,
        api_base: str = "",
        timeout_s: float = 120.0,
        retries: int = 0,
        max_prompt_tokens: int | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        require_bounds(temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s)
        self._model = model
        self._seed = seed
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._api_base = api_base
        self._timeout_s = timeout_s
        self._retries = Retries(retries)
        self._budget = _budget(model, max_prompt_tokens, count_tokens)

    def generate(
        self, context: Context, template: PromptTemplate | None = None, on_text: _Show | None = None
    ) -> Artifact:
        """Ask the model; `on_text` is called with each piece of text as it comes.

        Raises ModelUnavailable without litellm, GenerationError for a prompt that is too long, before anything is sent, and if no complete answer came.
        """
        return run_blocking(lambda: _alone(self.agenerate(context, template, on_text)))

    async def agenerate(
        self, context: Context, template: PromptTemplate | None = None, on_text: _Show | None = None
    ) -> Artifact:
        """Do the same in a running event loop. If it is cancelled, it closes the connection."""
        await asyncio.to_thread(_litellm)
        start_s = time.monotonic()
        request, tries = self._request_for(context, template), _Tries(self._retries, on_text)
        while True:
            try:
                return self._artifact(await self._try(request, tries), start_s, tries)
            except GenerationError as error:
                pause_s = tries.pause_after(error)
            await asyncio.sleep(pause_s)

    def complete(
        self, messages: Sequence[Mapping[str, Any]], *, seed: int, tools: Sequence[Mapping[str, Any]] = ()
    ) -> StreamResult:
        """Send messages and tools in OpenAI's format, once, and return the complete answer as the reconciler reads it. Raises what `generate` raises."""
        request = self._request(messages, seed) | (_with_tools(tools) if tools else {})
        reply = run_blocking(lambda: _alone(self._complete(request)))
        return read_whole(reply, self._model, tools)

    async def converse(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        seed: int,
        tools: Sequence[Mapping[str, Any]] = (),
        on_text: _Show | None = None,
    ) -> StreamResult:
        """Send messages and tools in OpenAI's format, once, and return what was streamed as the reconciler reads it.

        What LiteLLM's own stream has lost cannot be recovered; whether it ended is read from what LiteLLM keeps beside it. Raises what `generate` raises if
        nothing came.
        """
        await asyncio.to_thread(_litellm)
        request = self._request(messages, seed) | (_with_tools(tools) if tools else {})
        return await self._converse(request, tools, on_text)

    def _require_key(self) -> None:
        """Raise GenerationError if the provider's key is certainly missing: some providers' clients send the request without it, and fail in other ways."""
        if self._base()[0]:
            return
        missing = list(_litellm().validate_environment(model=self._model).get("missing_keys") or [])
        if (
            len(missing) == 1
            and _KEY.fullmatch(missing[0])
            and not any(_is_like(name, missing[0]) for name in os.environ)
        ):
            raise self._who.without_key(missing[0])

    # -- one try ----------------------------------------------------------------------------------------------------

    async def _complete(self, request: _Request) -> Any:  # noqa: ANN401  # litellm's own type
        with self._translate_errors(_Tries(Retries(), None)):
            self._require_key()
            async with asyncio.timeout(self._timeout_s):
                forget_clients_of_ended_loops(_litellm())
                return await _litellm().acompletion(**request)

    async def _converse(
        self, request: _Request, tools: Sequence[Mapping[str, Any]], on_text: _Show | None
    ) -> StreamResult:
        litellm, tries = _litellm(), _Tries(Retries(), on_text)
        forget_clients_of_ended_loops(litellm)
        with self._translate_errors(tries):
            self._require_key()
            async with asyncio.timeout(self._timeout_s):
                result = await self._stream(request, tries, tools)
        return attrs.evolve(result, model=self._model)

    async def _try(self, request: _Request, tries: "_Tries") -> StreamResult:
        litellm = _litellm()
        forget_clients_of_ended_loops(litellm)
        with self._translate_errors(tries):
            self._require_key()
            async with asyncio.timeout(self._timeout_s):
                if tries.on_text is None:
                    return read_whole(await litellm.acompletion(**request), self._model)
                return await self._stream(request, tries)

    async def _stream(
        self, request: _Request, tries: "_Tries", tools: Sequence[Mapping[str, Any]] = ()
    ) -> StreamResult:
        stream, reconciler = await _litellm().acompletion(**request, **_STREAM_OPTIONS), StreamReconciler(list(tools))
        try:
            async for chunk in stream:
                tries.show(reconciler.feed(chunk))
        finally:
            await stream.aclose()
        return read_stream(_litellm(), stream, reconciler, self._model)

    @contextmanager
    def _translate_errors(self, tries: "_Tries") -> Iterator[None]:
        """Raise LiteLLM's errors as ours; what `on_text` raises passes through."""
        try:
            yield
        except GenerationError:
            raise
        except Exception as error:
            if error is tries.show_error:
                raise
            raise self._who.translate(error) from error

    # -- request and reply ------------------------------------------------------------------------------------------

    def _request_for(self, context: Context, template: PromptTemplate | None) -> _Request:
        messages = messages_of(template, context, self._budget)
        return self._request(messages, seed_for(self._seed, context, messages))

    def _request(self, messages: Sequence[Mapping[str, Any]], seed: int) -> _Request:
        request: _Request = {
            "model": self._model,
            "messages": list(messages),
            "temperature": self._temperature,
            "seed": seed,
            "timeout": self._timeout_s,
            "num_retries": 0,  # LiteLLM's own retries would not be counted
            "max_retries": 0,
            "drop_params": True,  # a provider without seeds gets none
        }
        if self._max_tokens is not None:
            request["max_tokens"] = self._max_tokens
        if self._base()[0]:
            request["api_base"] = self._base()[0]
            if "OPENAI_API_KEY" not in os.environ and self._model.startswith("openai/"):
                request["api_key"] = "none"  # a local server needs no key, but the client must send one
        return request

    def _base(self) -> tuple[str, str]:
        """Return the address of the request and where it comes from; two empty texts for the provider's own."""
        if self._api_base:
            return self._api_base, "api_base"
        names = _API_BASE_VARIABLES if self._model.startswith("openai/") else ()
        return next(((os.environ[name], name) for name in names if os.environ.get(name)), ("", ""))

    @property
    def _who(self) -> ProviderName:
        return ProviderName(self._model, *self._base(), self._timeout_s)

    def _artifact(self, result: StreamResult, start_s: float, tries: "_Tries") -> Artifact:
        token_usage = result.usage or {}
        usage = Usage(
            model=self._model,
            seconds=time.monotonic() - start_s,
            prompt_tokens=token_usage.get("prompt_tokens"),
            completion_tokens=token_usage.get("completion_tokens"),
            cost_usd=None if MAYBE_CHARGED & set(tries.failed) else token_usage.get("cost"),
            response_model=result.model,
            retried=tuple(tries.failed),
        )
        if (fault := fault_of(result)) is not None:
            raise self._who.error(fault, usage, str(result.error.message) if result.error else "")
        return Artifact(content=result.content, usage=usage)


_KEY = re.compile(r"[A-Z0-9_]+_(?:KEY|TOKEN)")


def _is_like(variable: str, key: str) -> bool:
    """Return whether a variable may be another name for a key: several providers have two (COHERE_API_KEY, CO_API_KEY)."""
    return variable[:2] == key[:2] and _KEY.fullmatch(variable) is not None


async def _alone(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Await the only coroutine of an event loop, and close its connections."""
    try:
        return await coroutine
    finally:
        if "litellm" in sys.modules:
            await _close_clients(_litellm())


_STREAM_OPTIONS: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


@attrs.define(eq=False)
class _Tries:
    """The tries of one call: why the earlier ones failed, and whether some of the answer has been shown."""

    retries: Retries
    on_text: _Show | None
    failed: list[str] = attrs.field(factory=list)
    show_error: Exception | None = None
    _has_shown: bool = False

    def show(self, text: str) -> None:
        """Show a piece of text."""
        if text and self.on_text:
            self._has_shown = True
            try:
                self.on_text(text)
            except Exception as error:
                self.show_error = error
                raise

    def pause_after(self, error: GenerationError) -> float:
        """Return how long to wait before the next try. Raises the error if there is none: nothing is shown twice."""
        if self._has_shown:
            raise error
        pause_s = self.retries.pause_s(error, len(self.failed))
        if pause_s is None:
            raise self.retries.last(error, len(self.failed) + 1) from error.__cause__
        self.failed.append(error.reason)
        return pause_s


def _budget(model: str, most: int | None, count: Callable[[str], int] | None) -> TokenBudget | None:
    if most is None:
        return None
    if count is not None:
        return TokenBudget(most, count, "by the function count_tokens")

    def count_text(text: str) -> int:
        return int(_litellm().token_counter(model=model, messages=[{"role": "user", "content": text}]))

    return TokenBudget(most, count_text, f"by LiteLLM for {model}")


def _with_tools(tools: Sequence[Mapping[str, Any]]) -> _Request:
    """Return the part of a request that offers tools, even to a provider without tools: an error is better than a missing tool.

    Without the third argument LiteLLM imports its MCP gateway, which needs packages that LiteLLM does not install.
    """
    return {"tools": list(tools), "allowed_openai_params": ["tools"], "_skip_mcp_handler": True}


def _litellm() -> Any:  # noqa: ANN401  # litellm's types are not followed
    """Return LiteLLM, without the warnings that its users cannot fix: they appear when its classes are first used."""
    litellm = _import_litellm()
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"litellm\b")
    warnings.filterwarnings(
        "ignore", ".*(`ReadOnly` qualifier|Pydantic serializer warnings)", UserWarning, r"pydantic\b"
    )
    return litellm


@cache
def _import_litellm() -> Any:  # noqa: ANN401  # litellm's types are not followed
    """Import LiteLLM quietly, without fetching its price list or a tokenizer from the network."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import litellm
            from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler
    except ImportError as error:
        raise ModelUnavailable(
            "Models other than the local one need the package litellm, which cannot be imported; "
            "run: pip install litellm"
        ) from error
    _bound_answers(AsyncHTTPHandler)
    litellm.suppress_debug_info = True
    litellm.disable_aiohttp_transport = True  # it refuses an address with a user's name, which httpx accepts
    if litellm.disable_hf_tokenizer_download is None:
        litellm.disable_hf_tokenizer_download = True
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    return litellm


# -- the limit on what is read -----------------------------------------------------------------------------------------
# LiteLLM reads a whole answer, a line of a stream and the body of a refusal for as long as a server writes. It makes all its connections by two functions.


def _bound_answers(handler: Any) -> None:  # noqa: ANN401  # litellm's types are not followed
    """Limit the answers of all connections that LiteLLM's `AsyncHTTPHandler` makes. Raises AttributeError for a LiteLLM that makes them in another way."""
    make_transport, make_mounts = handler.create_async_transport, handler.create_httpx_proxy_mounts

    def direct(**how: Any) -> Any:  # noqa: ANN401  # the same
        import httpx

        transport = make_transport(**how)
        if transport is None:  # httpx would make its own
            context, options = how.get("ssl_context"), {name: how[name] for name in ("cert", "limits") if name in how}
            verify = how.get("ssl_verify") is not False if context is None else context
            transport = httpx.AsyncHTTPTransport(verify=verify, **options)
        return _bound_transport(transport)

    def through_proxies(*arguments: Any, **how: Any) -> Any:  # noqa: ANN401  # the same
        mounts = make_mounts(*arguments, **how)
        return mounts and {name: each and _bound_transport(each) for name, each in mounts.items()}

    handler.create_async_transport, handler.create_httpx_proxy_mounts = (
        staticmethod(direct),
        staticmethod(through_proxies),
    )


def _bound_transport(transport: Any) -> Any:  # noqa: ANN401  # httpx's own type, imported late
    """Limit the answers of a transport of httpx, compressed or not."""
    ask = transport.handle_async_request

    async def ask_within_bound(request: Any) -> Any:  # noqa: ANN401  # the same
        import httpx

        response = await ask(request)
        headers = [pair for pair in response.headers.raw if pair[0].lower() not in _OF_PACKED]
        stream = _bounded_stream()(response)
        return httpx.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)

    transport.handle_async_request = ask_within_bound
    return transport


_OF_PACKED = frozenset({b"content-encoding", b"content-length"})


@cache
def _bounded_stream() -> Any:  # noqa: ANN401  # a class of httpx's, imported late
    import httpx

    class BoundedStream(httpx.AsyncByteStream):
        """The bytes of an answer, up to the limit."""

        def __init__(self, response: httpx.Response) -> None:
            self._response = response

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size_bytes = 0
            async for piece in self._response.aiter_bytes():
                size_bytes += len(piece)
                if size_bytes > MOST_ANSWER_BYTES:
                    raise DsaError(f"the answer has more than {MOST_ANSWER_BYTES:,} bytes", code=ANSWER_TOO_LARGE)
                yield piece

        async def aclose(self) -> None:
            await self._response.aclose()

    return BoundedStream


_LOOPS: "weakref.WeakValueDictionary[int, asyncio.AbstractEventLoop]" = weakref.WeakValueDictionary()


def forget_clients_of_ended_loops(litellm: Any) -> None:  # noqa: ANN401  # litellm has no types of its own here
    """Drop the clients of another loop that had the number of this one, and the one client that all loops share.

    LiteLLM (1.106.2) knows loops by a number that a later one may have again; a client of a loop that has ended fails in the next one
    (`Event loop is closed`).
    """
    # Anthropic's streams use the shared one; it is made again, and then kept by loop.
    vars(litellm).pop("module_level_aclient", None)
    loop = asyncio.get_running_loop()
    if _LOOPS.get(id(loop)) is not loop:
        _take_clients(litellm.in_memory_llm_clients_cache)
        _LOOPS[id(loop)] = loop


async def _close_clients(litellm: Any) -> None:  # noqa: ANN401  # litellm has no types of its own here
    """Close the clients of this loop, which is about to end."""
    for client in _take_clients(litellm.in_memory_llm_clients_cache):
        result = client.close()
        if inspect.isawaitable(result):
            await result


def _take_clients(cache: Any) -> list[Any]:  # noqa: ANN401  # litellm's own types
    """Remove the clients of the running loop, whose names end as LiteLLM ends them."""
    own = cache.update_cache_key_with_event_loop("")
    names = [name for name in list(cache.cache_dict) if str(name).endswith(own)]
    for name in names:
        cache.ttl_dict.pop(name, None)
    return [client for name in names if (client := cache.cache_dict.pop(name, None)) is not None]
