"""LiteLLM's errors as a few errors of ours: one sentence each, and what to do.

LiteLLM has dozens of classes, and may map the same failure of two providers to two of them, so the whole chain of causes is read.
`ProviderName.translate` takes an exception and returns a GenerationError with one of the reasons of docs/how-to/models.md. Messages never contain a secret.
"""

import json
import re
import time
from typing import Any

import attrs

from dsa.edge.http_stream import MOST_ANSWER_BYTES
from dsa.edge.model_server import (
    is_used_up,
    message_in,
    reason_of,
    said_to_wait_s,
    with_words,
    without_secrets,
)
from dsa.runtime.generation import GenerationError, ServerFault, Usage

#: The code of the error for an answer with too many bytes. It is raised inside LiteLLM, and is among the causes of what LiteLLM raises.
ANSWER_TOO_LARGE = "AnswerTooLarge"
_MOST_DETAIL = 200
_MOST_CAUSES = 20
_PAYMENT, _GAVE_UP = 402, 408
_NO_PROVIDER = "LLM Provider NOT provided"
#: The messages of providers' clients that have no key to send, and the variable in which they look for it.
_NO_KEY = re.compile(
    r"missing (?:credentials|[\w ]*api[ _]key)|no (?:\w+ )?api[ _]key|api_key client option must be set", re.IGNORECASE
)
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN)\b")
#: The messages of LiteLLM for an answer without content.
_NO_ANSWER = re.compile(r"invalid response (?:from LLM endpoint|object)|provider returned (?:'choices'|a response with no 'choices')|got unexpected response|unable to get json response", re.IGNORECASE)  # fmt: skip
#: The classes that it raises when an answer does not have what it looks for.
_READ_ERRORS = frozenset({"KeyError", "TypeError", "AttributeError", "IndexError", "ValidationError"})
_CONNECTION = frozenset({"TransportError", "OSError"})
#: The classes that it raises for a stream that broke off, for any cause.
_STREAM_ERRORS = frozenset({"MidStreamFallbackError"})
_WRAPPER = re.compile(r"^(?:litellm\.)?(?:\w+(?:Error|Exception)?: )*(?:\w+Exception - )?|\.? Handle with `[^`]*`\.?$")
_BAD_ADDRESS = frozenset({"UnsupportedProtocol", "InvalidURL"})


@attrs.frozen
class ProviderName:
    """For messages: which model was asked, at which address, where the address comes from (the option or variable), and for how long."""

    model: str
    address: str
    given_by: str
    timeout_s: float

    def error(self, reason: str, usage: Usage | None = None, why: str = "") -> GenerationError:
        """Return the error for an unusable answer that took `usage`; for a malformed one with its provider's words."""
        code = "bad_answer" if reason in {"no_text", "nothing", "malformed", "too_large"} else reason
        message = self._sentence(reason) + (f" ({why})" if reason == "malformed" else "")
        return GenerationError(f"{message}.", code, usage)

    def without_key(self, variable: str) -> GenerationError:
        """Return the error for a missing key."""
        message = f"{self.model} needs a key, but none is set; set {variable} in the environment."
        return GenerationError(message, "authentication")

    def translate(self, error: Exception) -> GenerationError:
        """Return the error for what LiteLLM raised, with the server's words if there are any."""
        if _NO_PROVIDER in str(error):
            hint = "write the model as provider/model, such as openai/gpt-4o-mini, or write local or scripted:FILE"
            return GenerationError(f"LiteLLM does not know a provider for '{self.model}'; {hint}.", "not_found")
        causes = _causes(error)
        names = {name for cause in causes for name in _names(cause)}
        if ANSWER_TOO_LARGE in names:
            return self.error("too_large")
        status, words = _refusal(causes)
        if status is None and (fault := self._own_fault(causes, names)):
            return fault
        reason = _reason(names, status, words, causes)
        detail = _message_detail(words or (_plain(error) if reason == "failed" else ""))
        wait_s = _wait_s(causes)
        used_up = reason == "rate_limit" and is_used_up(" ".join([words, *sorted(names)]), wait_s)
        sentence = "used_up" if used_up else "gave_up" if status == _GAVE_UP else reason
        message = with_words(self._sentence(sentence), detail)
        answer = ServerFault(status, detail, wait_s, again=not used_up)
        return GenerationError(message, reason, server=answer)

    def _own_fault(self, causes: list[BaseException], names: set[str]) -> GenerationError | None:
        """Return the error for a request that was never sent: without a key, or to an address that is not valid."""
        text = " ".join(map(str, causes))
        if _NO_KEY.search(text):
            return self.without_key(next(iter(_VARIABLE.findall(text)), "the provider's own variable"))
        if names & _BAD_ADDRESS:
            return GenerationError(f"{self._sentence('no_address')}.", "unreachable", server=ServerFault(again=False))
        return None

    def _sentence(self, reason: str) -> str:
        return _SENTENCES[reason].format(
            model=self.model,
            where=without_secrets(self.address or "its provider"),
            given_by=self.given_by or "the provider's variable for its address",
            timeout_s=f"{self.timeout_s:g}",
            most=f"{MOST_ANSWER_BYTES:,}",
        )


_SENTENCES = {
    "context_too_long": "The prompt is longer than {model} can read; set max_prompt_tokens, shorten the task or use a model with a larger context",
    "content_filter": "A content filter stopped {model}; reword the task or use another model",
    "authentication": "{model} refused the key; set the provider's key in the environment (OPENAI_API_KEY and the like)",
    "rate_limit": "{model} is over its rate limit or quota; wait, or use another model or key",
    "used_up": "The quota of {model} is used up; check your account at the provider, or use another model or key",
    "timeout": "{model} did not answer within {timeout_s} s; raise timeout_s or use a faster model",
    "gave_up": "{where} gave up waiting for {model}; try again or use a faster model",
    "unreachable": "{model} cannot be reached at {where}; check that the server runs and that the address is right",
    "not_found": "{where} does not know the model {model}; check its name",
    "bad_answer": "{where} gave an answer for {model} that does not follow the OpenAI protocol; check the address",
    "interrupted": "The answer of {model} broke off before it was complete; try again",
    "server_error": "The server of {model} failed; try again later",
    "cut_off": "The answer of {model} was cut off at its limit of tokens; raise max_tokens, or ask for less",
    "nothing": "{where} did not give an answer for {model}; check the address",
    "no_address": "'{where}' is not an address for {model}; write it as http://HOST:PORT/v1 or https://.. (the address comes from {given_by})",
    "failed": "{model} could not answer",
    "too_large": "{model} does not stop: its answer has more than {most} bytes, and was cut off there; set max_tokens",
    "malformed": "{model} gave an answer that its provider calls malformed; try again or use another model",
    "no_text": "{model} gave an answer without text; try again or use another model",
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
    (_CONNECTION, "unreachable"),
)  # fmt: skip


def _reason(names: set[str], status: int | None, words: str, causes: list[BaseException]) -> str:
    """Return the reason for the answer of a server, or for the end of the connection."""
    if status == _PAYMENT:  # LiteLLM has several classes for it
        return reason_of(status, words)
    if status is not None and (reason := reason_of(status, words)) == "context_too_long":
        return reason
    for class_names, reason in _REASONS:
        if names & class_names and not (reason == "bad_answer" and status):
            break
    else:
        reason = "failed" if status is None else reason_of(status, words)
    if reason == "bad_answer" and any(_ends_too_soon(cause) for cause in causes):
        return "interrupted"
    if reason in {"server_error", "unreachable", "failed"} and status is None and not words:
        if _unread(names, causes):
            return "bad_answer"
        if names & _STREAM_ERRORS:
            return "interrupted"
    return reason


def _unread(names: set[str], causes: list[BaseException]) -> bool:
    """Return whether something came that LiteLLM could not read as an answer."""
    return bool(names & _READ_ERRORS and not names & _CONNECTION) or any(
        _NO_ANSWER.search(str(cause)) for cause in causes
    )


def _ends_too_soon(error: BaseException) -> bool:
    """Return whether an answer is the beginning of some JSON: a server that does not send a length may close in the middle."""
    if not isinstance(error, json.JSONDecodeError) or not error.doc.lstrip().startswith(("{", "[")):
        return False
    return error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")


def _refusal(causes: list[BaseException]) -> tuple[int | None, str]:
    """Return the status with which a server refused (None if none did) and what it said. LiteLLM also makes responses of its own, which no server sent."""
    bodies = [getattr(cause, "body", None) for cause in causes]
    words = next((message_in(_body_bytes(body)) for body in bodies if body), "")
    for cause in causes:
        if type(cause).__name__ == "HTTPStatusError":
            response: Any = getattr(cause, "response", None)
            return response.status_code, words or message_in(_content(response))
    return None, words


def _body_bytes(body: object) -> bytes:
    """Return the body that OpenAI's client has parsed, as bytes."""
    return (body if isinstance(body, str) else json.dumps(body, default=str)).encode("utf-8", "replace")


def _content(response: Any) -> bytes:  # noqa: ANN401  # httpx's own type, imported late
    """Return the bytes of an answer; empty for a stream that was not read to its end."""
    try:
        return bytes(response.content)
    except RuntimeError:  # httpx's StreamError
        return b""


def _message_detail(text: str) -> str:
    """Return the beginning of a text for a message, on one line, without secrets."""
    return without_secrets(" ".join(text.split()))[:_MOST_DETAIL]


def _plain(error: Exception) -> str:
    """Return an error's words without what LiteLLM adds around them."""
    return _WRAPPER.sub("", str(error).partition("Traceback (most recent")[0])


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and all its causes; LiteLLM keeps the error that broke off a stream in a field."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < _MOST_CAUSES:
        causes.append(cause)
        original = getattr(cause, "original_exception", None)
        cause = original if isinstance(original, BaseException) else cause.__cause__ or cause.__context__
    return causes


def _names(error: BaseException) -> set[str]:
    """Return the names of an error's classes, and its code."""
    return {kind.__name__ for kind in type(error).__mro__} | {str(getattr(error, "code", ""))}


def _wait_s(causes: list[BaseException]) -> float | None:
    """Return how many seconds the provider asks to wait (`Retry-After`), if it does."""
    headers = (getattr(getattr(cause, "response", None), "headers", None) for cause in causes)
    waits = (said_to_wait_s(each, time.time()) for each in headers if each is not None)
    return next((wait_s for wait_s in waits if wait_s is not None), None)
