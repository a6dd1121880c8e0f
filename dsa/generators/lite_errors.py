"""What LiteLLM raises, as few errors, each one sentence and what to do.

LiteLLM has dozens of classes, and maps the same failure of two providers to two of them: so the whole chain of causes is looked at. Takes
an exception, gives GenerationError with one of the reasons of docs/how-to/models.md. No secret gets into any.
"""

import math
import os
import re

import attrs

from dsa.edge.http.failures import ServerError
from dsa.errors import GenerationError
from dsa.runtime.secret_names import secrets_in

_MOST_DETAIL = 200
_MOST_CAUSES = 20
#: Some providers take the key in the address, `?key=..`; and an address may name a user, `//user:password@`.
_SECRET_IN_URL = re.compile(r"([?&](?:key|api[-_]?key|token|access_token)=|//(?=[^/\s@]*@))[^&\s'\"@]+", re.IGNORECASE)
_NO_PROVIDER = "LLM Provider NOT provided"


@attrs.frozen
class Asked:
    """Who was asked, and for how long: for messages."""

    model: str
    where: str
    timeout_s: float

    def error(self, reason: str) -> GenerationError:
        """Give the error of a reason that needs no more said."""
        return GenerationError(self._sentence(reason), "bad_answer" if reason == "no_text" else reason)

    def explained(self, error: Exception) -> GenerationError:
        """Give the error for what LiteLLM raised. One of a provider that asks to wait is a ServerError with `wait_s`."""
        causes = _causes(error)
        if _NO_PROVIDER in str(error):
            known = "write it as provider/model, such as openai/gpt-4o-mini, or say local or scripted:FILE"
            return GenerationError(f"LiteLLM knows no provider for '{self.model}'; {known}.", "not_found")
        names = {name for cause in causes for name in _names(cause)}
        for wanted, reason in _REASONS:
            if names & wanted:
                return ServerError(self._sentence(reason), reason, wait_s=_wait_s(causes))
        detail = _redacted(" ".join(str(error).split()))[:_MOST_DETAIL]
        return GenerationError(f"{self.model} could not answer: {detail}", "failed")

    def _sentence(self, reason: str) -> str:
        return _SENTENCES[reason].format(
            model=self.model, where=_redacted(self.where or "its provider"), timeout_s=f"{self.timeout_s:g}"
        )


_SENTENCES = {
    "context_too_long": "The prompt is longer than {model} can read; set max_prompt_tokens, shorten the task or use a model with a larger context.",
    "content_filter": "A content filter stopped {model}; reword the task or use another model.",
    "authentication": "{model} refused the key; set the provider's key in the environment (OPENAI_API_KEY and the like).",
    "rate_limit": "{model} is over its rate limit or quota; wait, or use another model or key.",
    "timeout": "{model} did not answer within {timeout_s} s; raise timeout_s or use a faster model.",
    "unreachable": "{model} cannot be reached at {where}; check that the server runs and that the address is right.",
    "not_found": "{where} does not know the model {model}; check its name.",
    "bad_answer": "{where} gave an answer for {model} that is none of the OpenAI protocol; check the address.",
    "interrupted": "The answer of {model} broke off before it was whole; try again.",
    "server_error": "The server of {model} failed; try again later.",
    "cut_off": "The answer of {model} was cut off at its limit of tokens; raise max_tokens, or ask for less.",
    "no_text": "{model} gave an answer without text; try again or use another model.",
}
#: Names of classes in an error's chain of causes, and codes; the first that applies.
_REASONS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"ContextWindowExceededError", "context_length_exceeded"}), "context_too_long"),
    (frozenset({"ContentPolicyViolationError", "content_filter", "content_policy_violation"}), "content_filter"),
    (frozenset({"AuthenticationError", "PermissionDeniedError"}), "authentication"),
    (frozenset({"RateLimitError"}), "rate_limit"),
    (frozenset({"Timeout", "APITimeoutError", "TimeoutException", "ReadTimeout", "ConnectTimeout", "TimeoutError"}), "timeout"),
    (frozenset({"ConnectError", "ConnectionRefusedError", "ClientConnectorError"}), "unreachable"),
    (frozenset({"RemoteProtocolError", "ReadError", "ClientPayloadError", "ServerDisconnectedError"}), "interrupted"),
    (frozenset({"NotFoundError"}), "not_found"),
    (frozenset({"JSONDecodeError", "APIResponseValidationError", "JSONSchemaValidationError"}), "bad_answer"),
    (frozenset({"InternalServerError", "ServiceUnavailableError", "BadGatewayError"}), "server_error"),
    (frozenset({"APIConnectionError"}), "unreachable"),
)  # fmt: skip


def _redacted(text: str) -> str:
    """Take out what looks like a secret: messages go to the screen and into the ledger."""
    return _SECRET_IN_URL.sub(r"\1***", secrets_in(os.environ).text(text))


def _causes(error: BaseException) -> list[BaseException]:
    """Give an error and all that caused it."""
    found: list[BaseException] = []
    seen: BaseException | None = error
    while seen is not None and len(found) < _MOST_CAUSES:
        found.append(seen)
        seen = seen.__cause__ or seen.__context__
    return found


def _names(error: BaseException) -> set[str]:
    """Give the names of an error's classes, and its code."""
    return {kind.__name__ for kind in type(error).__mro__} | {str(getattr(error, "code", ""))}


def _wait_s(causes: list[BaseException]) -> float | None:
    """Give how many seconds the provider asks to wait (`Retry-After`), when it does."""
    for cause in causes:
        headers = getattr(getattr(cause, "response", None), "headers", None)
        asked = str(headers.get("retry-after", "")) if headers is not None else ""
        if asked.replace(".", "", 1).isdecimal() and math.isfinite(float(asked)):
            return float(asked)
    return None
