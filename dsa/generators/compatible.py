"""Generate with any server that speaks the OpenAI protocol, or Ollama's own: OpenAI, OpenRouter, llama.cpp, vLLM, Ollama.

Takes `http://HOST/v1#MODEL`, gives artifacts with their usage, or whole conversations with tools. What a server streams is put
together by `dsa.generators.streams`; what goes wrong on the way comes out as GenerationError.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import attrs

from dsa.edge.http.endpoint import read_endpoint
from dsa.edge.http.failures import ServerError, reason_of
from dsa.edge.http.streaming import Limits, Server
from dsa.errors import GenerationError
from dsa.generators.bounds import require_bounds
from dsa.generators.requests import REFUSABLE, Settings, ollama_body, openai_body, without_refused
from dsa.generators.seeds import derive_seed
from dsa.generators.streams import StreamError, StreamReconciler, StreamResult
from dsa.runtime.content import Artifact, Context, GeneratorInterface, PromptTemplate, Usage
from dsa.runtime.prompt import render

_BAD_REQUEST = frozenset({400, 422})
_Show = Callable[[str], object]


class ChatClient:
    """Talk with one model at one address.

    `model` is `http://HOST/v1#MODEL`; with a path that ends in `/api` it is Ollama's own protocol. The key is taken from the
    variable `key_variable`, else from the host's own (OPENAI_API_KEY, OPENROUTER_API_KEY), else from DSA_API_KEY.
    ValueError for what is no address. Safe to use from several threads and tasks at once.
    """

    def __init__(self, model: str, *, key_variable: str = "", limits: Limits | None = None) -> None:
        self._server = Server(read_endpoint(model), key_variable=key_variable, limits=limits)
        self.name = self._server.endpoint.name

    async def ask(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        settings: Settings | None = None,
        on_text: _Show | None = None,
    ) -> StreamResult:
        """Send messages and tools in OpenAI's form and give what came; `on_text` is called with text as it can be shown.

        Raises GenerationError when nothing came. What broke off later is a result with an error: its text is kept, and none of
        its calls is executable.
        """
        write = ollama_body if self._server.endpoint.native else openai_body
        body = write(self._server.endpoint.model, messages, tools, settings or Settings())
        for _ in REFUSABLE:
            try:
                return await self._ask(body, tools, on_text)
            except ServerError as error:
                smaller = without_refused(body, error.detail) if error.status in _BAD_REQUEST else None
                if smaller is None:
                    raise
                body = smaller
        return await self._ask(body, tools, on_text)

    def ask_and_wait(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        settings: Settings | None = None,
        on_text: _Show | None = None,
    ) -> StreamResult:
        """Do the same in a thread's own time; inside a running event loop too, which stands still meanwhile."""
        return _awaited(lambda: asyncio.run(self.ask(messages, tools, settings, on_text)))

    async def _ask(
        self, body: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], on_text: _Show | None
    ) -> StreamResult:
        reconciler = StreamReconciler(tools)
        begun = False
        try:
            async with aclosing(self._server.chunks(body)) as chunks:
                async for chunk in chunks:
                    begun = True
                    if (text := reconciler.feed(chunk)) and on_text:
                        on_text(text)
        except GenerationError as error:
            if not begun:
                raise
            codes = {"timeout": "timeout", "bad_answer": "bad_chunk"}
            reconciler.fail(codes.get(error.reason, "interrupted"), str(error))
        result = reconciler.finish()
        if result.error is None:
            return result
        return attrs.evolve(
            result, error=attrs.evolve(result.error, message=self._server.asked.clean(result.error.message))
        )

    def failure(self, error: StreamError) -> GenerationError:
        """Give the error of a stream as GenerationError, for those who want the whole answer or none."""
        asked = self._server.asked
        if error.code == "provider_error":
            reason = reason_of(error.status, error.message)
            return GenerationError(f"{asked.model} at {asked.where} broke off with an error: {error.message}", reason)
        reasons = {"timeout": "timeout", "bad_chunk": "bad_answer"}
        told = f"The answer of {asked.model} at {asked.where} is not whole: {error.message}"
        return GenerationError(told, reasons.get(error.code, "interrupted"))


class OpenAICompatibleGenerator(GeneratorInterface):
    """Send the rendered prompt as one user message; the artifact's content is the reply as it came, when it came whole.

    `model`, `key_variable` as for ChatClient. `timeout_s` is for the whole answer, `silence_s` for the longest wait in the
    middle of it, `retries` for further tries while nothing has come. ValueError for numbers that mean nothing.
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
    ) -> None:
        require_bounds(temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s)
        require_bounds(temperature=temperature, max_tokens=max_tokens, timeout_s=silence_s)
        if retries < 0:
            raise ValueError(f"retries = {retries} is too few: at least 0")
        limits = Limits(
            connect_s=min(10.0, timeout_s), first_s=timeout_s, silence_s=silence_s, whole_s=timeout_s, retries=retries
        )
        self._client = ChatClient(model, key_variable=key_variable, limits=limits)
        self._seed = seed
        self._temperature = temperature
        self._max_tokens = max_tokens

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Ask the model. Raises ModelUnavailable without httpx, GenerationError when no whole answer came."""
        prompt = render(template, context)
        seed = derive_seed(self._seed, context.step, len(context.feedback_history) + 1, prompt)
        started = time.monotonic()
        settings = Settings(self._temperature, self._max_tokens, seed)
        result = self._client.ask_and_wait([{"role": "user", "content": prompt}], settings=settings)
        if result.error is not None:
            raise self._client.failure(result.error)
        if not result.content:
            told = f"{self._client.name} gave an answer without text; try again or use another model."
            raise GenerationError(told, "bad_answer")
        return Artifact(content=result.content, usage=self._usage(result, time.monotonic() - started))

    def _usage(self, result: StreamResult, seconds: float) -> Usage:
        counts = {name: _count(result, name) for name in ("prompt_tokens", "completion_tokens")}
        return Usage(model=self._client.name, seconds=seconds, response_model=result.model, **counts)


def _count(result: StreamResult, name: str) -> int | None:
    value = (result.usage or {}).get(name)
    return value if isinstance(value, int) else None


def _awaited(call: Callable[[], StreamResult]) -> StreamResult:
    """Call what runs an event loop of its own, in a thread of its own where one runs already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    results: list[StreamResult] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  (handed to the caller, whatever it is)
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
