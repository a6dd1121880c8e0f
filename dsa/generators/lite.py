"""Generate with any provider that LiteLLM knows, or any server that speaks the OpenAI protocol.

Takes a model name (`openai/gpt-4o-mini`, `ollama_chat/qwen2.5-coder`, ..), gives artifacts with their usage. LiteLLM
takes seconds to import, so it is imported on the first call. Providers' errors come out as GenerationError, each one
sentence and what to do.
"""

import logging
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from dsa.errors import GenerationError, ModelUnavailable
from dsa.generators.bounds import require_bounds
from dsa.generators.seeds import derive_seed
from dsa.runtime.content import Artifact, Context, GeneratorInterface, PromptTemplate, Usage
from dsa.runtime.prompt import render
from dsa.runtime.secret_names import secrets_in

_API_BASE_VARIABLES = ("OPENAI_API_BASE", "OPENAI_BASE_URL")
_MOST_DETAIL = 200
#: Some providers take the key in the address, `?key=..`; and an address may name a user, `//user:password@`.
_SECRET_IN_URL = re.compile(r"([?&](?:key|api[-_]?key|token|access_token)=|//(?=[^/\s@]*@))[^&\s'\"@]+", re.IGNORECASE)
_NO_PROVIDER = "LLM Provider NOT provided"


class LiteLLMGenerator(GeneratorInterface):
    """Send the rendered prompt as one user message; the artifact's content is the reply as it came.

    `api_base` is the address of an OpenAI-compatible server (default: OPENAI_API_BASE, OPENAI_BASE_URL); keys come
    from the provider's own variables. Providers without seeds ignore `seed`. ValueError for numbers that mean nothing.
    """

    def __init__(
        self,
        model: str,
        *,
        seed: int = 0,
        temperature: float = 0.7,
        max_tokens: int | None = None,
        api_base: str = "",
        timeout_s: float = 120.0,
    ) -> None:
        require_bounds(temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s)
        self._model = model
        self._seed = seed
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._api_base = api_base
        self._timeout_s = timeout_s

    def generate(self, context: Context, template: PromptTemplate | None = None) -> Artifact:
        """Ask the model. Raises ModelUnavailable without litellm, GenerationError when no usable answer came."""
        prompt = render(template, context)
        seed = derive_seed(self._seed, context.step, len(context.feedback_history) + 1, prompt)
        started = time.monotonic()
        reply = self.complete([{"role": "user", "content": prompt}], seed=seed)
        return self._artifact(reply, time.monotonic() - started)

    def complete(
        self, messages: Sequence[Mapping[str, Any]], *, seed: int, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Any:  # noqa: ANN401  # litellm's own type
        """Send messages and tools in OpenAI's format, give LiteLLM's reply as it came. Raises what `generate` raises."""
        litellm = _litellm()
        request = self._request(messages, seed) | (_with_tools(tools) if tools else {})
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its classes warn of each other as they are first used
                return litellm.completion(**request)
        except Exception as error:
            raise self._explained(error) from error

    def _request(self, messages: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": list(messages),
            "temperature": self._temperature,
            "seed": seed,
            "timeout": self._timeout_s,
            "num_retries": 0,  # attempts are the table's business
            "max_retries": 0,
            "drop_params": True,  # a provider without seeds is used without
        }
        if self._max_tokens is not None:
            request["max_tokens"] = self._max_tokens
        if self._base():
            request["api_base"] = self._base()
            if "OPENAI_API_KEY" not in os.environ and self._model.startswith("openai/"):
                request["api_key"] = "none"  # a local server wants no key; the client wants one to send
        return request

    def _base(self) -> str:
        given = (os.environ[name] for name in _API_BASE_VARIABLES if os.environ.get(name))
        return self._api_base or (next(given, "") if self._model.startswith("openai/") else "")

    def _artifact(self, reply: Any, seconds: float) -> Artifact:  # noqa: ANN401  # litellm's own type
        try:
            choice = reply.choices[0]
            content = choice.message.content
        except (AttributeError, IndexError, TypeError):
            content = None
        if not isinstance(content, str):
            raise GenerationError(
                f"{self._model} gave an answer without text; try again or use another model.", "bad_answer"
            )
        usage = getattr(reply, "usage", None)
        return Artifact(
            content=content,
            usage=Usage(
                model=self._model,
                seconds=seconds,
                prompt_tokens=getattr(usage, "prompt_tokens", None),
                completion_tokens=getattr(usage, "completion_tokens", None),
                cost_usd=getattr(reply, "_hidden_params", {}).get("response_cost"),
                response_model=str(getattr(reply, "model", None) or ""),
            ),
        )

    def _explained(self, error: Exception) -> GenerationError:
        """Give one of few errors for the many of LiteLLM, looking at what caused it where its own class is vague."""
        if _NO_PROVIDER in str(error):
            known = "write it as provider/model, such as openai/gpt-4o-mini, or say local or scripted:FILE"
            return GenerationError(f"LiteLLM knows no provider for '{self._model}'; {known}.", "not_found")
        names = _class_names(error)
        where = self._base() or "its provider"
        for wanted, reason, sentence in _EXPLANATIONS:
            if names & wanted:
                message = sentence.format(model=self._model, where=_redacted(where), timeout_s=f"{self._timeout_s:g}")
                return GenerationError(message, reason)
        detail = _redacted(" ".join(str(error).split()))[:_MOST_DETAIL]
        return GenerationError(f"{self._model} could not answer: {detail}", "failed")


#: Class names in an error's chain of causes, the reason, and the sentence; the first that applies.
_EXPLANATIONS: tuple[tuple[frozenset[str], str, str], ...] = (
    (
        frozenset({"ContextWindowExceededError", "context_length_exceeded"}),
        "context_too_long",
        "The prompt is longer than {model} can read; shorten the task or use a model with a larger context.",
    ),
    (
        frozenset({"AuthenticationError", "PermissionDeniedError"}),
        "authentication",
        "{model} refused the key; set the provider's key in the environment (OPENAI_API_KEY and the like).",
    ),
    (
        frozenset({"RateLimitError"}),
        "rate_limit",
        "{model} is over its rate limit or quota; wait, or use another model or key.",
    ),
    (
        frozenset({"Timeout", "APITimeoutError", "TimeoutException", "ReadTimeout", "ConnectTimeout"}),
        "timeout",
        "{model} did not answer within {timeout_s} s; raise timeout_s or use a faster model.",
    ),
    (
        frozenset({"ConnectError", "ConnectionRefusedError", "ClientConnectorError"}),
        "unreachable",
        "{model} cannot be reached at {where}; check that the server runs and that the address is right.",
    ),
    (
        frozenset({"NotFoundError"}),
        "not_found",
        "{where} does not know the model {model}; check its name.",
    ),
    (
        frozenset({"JSONDecodeError", "APIResponseValidationError", "JSONSchemaValidationError"}),
        "bad_answer",
        "{where} gave an answer for {model} that is none of the OpenAI protocol; check the address.",
    ),
    (
        frozenset({"InternalServerError", "ServiceUnavailableError", "BadGatewayError"}),
        "server_error",
        "The server of {model} failed; try again later.",
    ),
    (
        frozenset({"APIConnectionError"}),
        "unreachable",
        "{model} cannot be reached at {where}; check that the server runs and that the address is right.",
    ),
)


def _with_tools(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Give the part of a request that offers tools, to a provider that has none as well: better an error than no tool.

    Without the third argument LiteLLM imports its MCP gateway, which needs packages that it does not come with.
    """
    return {"tools": list(tools), "allowed_openai_params": ["tools"], "_skip_mcp_handler": True}


def _redacted(text: str) -> str:
    """Take out what looks like a secret: messages go to the screen and into the ledger."""
    return _SECRET_IN_URL.sub(r"\1***", secrets_in(os.environ).text(text))


def _class_names(error: BaseException) -> set[str]:
    """Give the names of the classes of an error and of all that caused it, and their codes."""
    names: set[str] = set()
    seen: BaseException | None = error
    for _ in range(20):
        if seen is None:
            break
        names |= {kind.__name__ for kind in type(seen).__mro__} | {str(getattr(seen, "code", ""))}
        seen = seen.__cause__ or seen.__context__
    return names


@cache
def _litellm() -> Any:  # noqa: ANN401  # litellm's types are not followed
    """Import LiteLLM quietly, without fetching its price list from the network."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import litellm
    except ImportError as error:
        raise ModelUnavailable(
            "Models other than the local one need the package litellm, which cannot be imported; "
            "run: pip install litellm"
        ) from error
    litellm.suppress_debug_info = True
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    return litellm
