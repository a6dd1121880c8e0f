"""Model servers: their addresses, their errors, and when another try is worth it.

An `Endpoint` is an address and the name under which the server there knows a model, written `http://HOST/v1#MODEL`. Nothing here opens a connection.

What a server answers, or the network raises, becomes a GenerationError with one of the reasons in docs/how-to/models.md: one sentence, and what to
do. It never contains a secret. `Retries` says which failures are worth another try, after which pause.
"""

import ipaddress
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs

from dsa.edge.processes import environment_secrets
from dsa.runtime.generation import GenerationError, ServerFault
from dsa.runtime.secrets import is_secret_name

#: What a model's name begins with when it is an address.
SCHEMES = ("http://", "https://")
#: The variable with the key of a host; the key goes to that host only, and over https only.
_KEYS = {"api.openai.com": "OPENAI_API_KEY", "openrouter.ai": "OPENROUTER_API_KEY"}
#: The variable with the key for any other address.
ANY_KEY = "DSA_API_KEY"
_HOW = "write http://HOST:PORT/v1#MODEL, such as http://127.0.0.1:11434/v1#qwen2.5-coder"


@attrs.frozen
class Endpoint:
    """An address without its last part, and a model. `native` says that it is Ollama's own protocol."""

    base: str
    model: str
    query: str = ""
    native: bool = False

    @property
    def url(self) -> str:
        """The address that requests go to."""
        path = "/chat" if self.native else "/chat/completions"
        return f"{self.base}{path}{'?' if self.query else ''}{self.query}"

    @property
    def name(self) -> str:
        """The model as it is written: the address and the name."""
        return f"{self.base}{'?' if self.query else ''}{self.query}#{self.model}"

    @property
    def on_this_machine(self) -> bool:
        """Whether the address is of this machine, so that no proxy is used."""
        host = urlsplit(self.base).hostname or ""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")
        return address.is_loopback or address.is_unspecified

    @property
    def wants_key(self) -> bool:
        """Whether this host is known to require a key."""
        parts = urlsplit(self.base)
        return parts.scheme == "https" and parts.hostname in _KEYS

    def key(self, variable: str, environment: Mapping[str, str]) -> tuple[str, str]:
        """Return the variable that has the key, and the key, empty for none.

        This is the given variable, or else the host's own (over https only), or else DSA_API_KEY.
        """
        parts = urlsplit(self.base)
        own = _KEYS.get(parts.hostname or "")
        variable_name = variable or own or ANY_KEY
        is_withheld = not variable and own is not None and parts.scheme != "https"
        return variable_name, "" if is_withheld else environment.get(variable_name, "").strip()


def read_endpoint(text: str) -> Endpoint:
    """Read an address with a model. Raises ValueError for an invalid address, and for one with a password."""
    address, _, model = text.partition("#")
    try:
        parts = urlsplit(address)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"this is not an address of a server: {_HOW}") from error
    if parts.username or parts.password or any(is_secret_name(name) for name, _ in parse_qsl(parts.query)):
        raise ValueError(
            "an address must not hold a password or a key: put it into a variable, and write the name of the variable"
        )
    if not address.startswith(SCHEMES) or not host or any(character.isspace() for character in text.strip()):
        raise ValueError(f"'{text}' is not an address of a server: {_HOW}")
    if not model.strip():
        raise ValueError(f"'{text}' does not name a model: {_HOW}")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    base = f"{parts.scheme}://{parts.netloc}{path or '/v1'}"
    return Endpoint(base, model.strip(), parts.query, native=path.endswith("/api"))


_MOST_DETAIL = 200
_TOO_LONG = re.compile(
    r"context[_ ](?:length|size|window|limit)|maximum (?:context|model length|prompt length)|too many (?:input )?tokens|exceed_context"
    r"|(?:prompt|input|conversation) is too long|prompt too long|token count\b.{0,40}\bexceeds|reduce the length of|range of input length"
    r"|inputs?\W{0,3} (?:tokens \+|must have less than \d+ tokens)",
    re.IGNORECASE,
)
_CONTENT_FILTER = re.compile(
    r"content[_ ](?:filter|policy|management policy)|ResponsibleAIPolicyViolation", re.IGNORECASE
)
#: Messages about a quota that is used up for days; and about one that is renewed soon.
_USED_UP = re.compile(
    r"insufficient[_ ](?:quota|credits?|balance|funds)|exceeded your current quota|(?:usage|daily|weekly|monthly|spend(?:ing)?)[_ ]limit"
    r"|credit balance|out of credits|billing[_ ](?:hard[_ ]limit|cycle)",
    re.IGNORECASE,
)
_BACK_SOON = re.compile(
    r"\b(?:try again|retry|resets?|available) (?:in|after|at)\b|per[_ ](?:second|minute)|retryDelay", re.IGNORECASE
)
_SECRET_IN_URL = re.compile(r"([?&](?:key|api[-_]?key|token|access_token)=|//(?=[^/\s@]*@))[^&\s'\"@]+", re.IGNORECASE)
_BEARER = re.compile(r"(Bearer\s+)\S+", re.IGNORECASE)
_PAYMENT, _TOO_LARGE = 402, 413
_REASONS = {
    400: "failed", 401: "authentication", 403: "authentication", 404: "not_found", _PAYMENT: "rate_limit", 408: "timeout",
    425: "server_error", 429: "rate_limit",
}  # fmt: skip
#: Reasons by code, for servers that send a code where others send a status.
_CODES = (
    (re.compile(r"rate_?limit|quota|too_many_requests|resource_exhausted", re.IGNORECASE), "rate_limit"),
    (re.compile(r"authenti|api_?key|permission|unauthorized|forbidden", re.IGNORECASE), "authentication"),
    (re.compile(r"not_?found", re.IGNORECASE), "not_found"),
    (re.compile(r"invalid_?(?:request|argument|parameter)|bad_?request", re.IGNORECASE), "failed"),
)
#: A payment is due, or the server cannot do this at all: another try would end the same way.
_THE_SAME_AGAIN = frozenset({_PAYMENT, 501, 505})
_SERVER_ERRORS, _CLIENT_ERRORS, _REDIRECTIONS = 500, 400, 300
_SENTENCES = {
    "context_too_long": "The prompt is longer than {model} can read; shorten the task or use a model with a larger context",
    "authentication": "{where} refused the key for {model}; set it in the environment ({variable})",
    "content_filter": "A content filter at {where} stopped {model}; reword the task or use another model",
    "rate_limit": "{model} at {where} is over its rate limit or quota; wait, or use another model or key",
    "used_up": "The quota of {model} at {where} is used up; check your account there, or use another model or key",
    "not_found": "{where} does not know the model {model}, or is not the address of an OpenAI-compatible server; check both",
    "timeout": "{model} at {where} gave up waiting; try again, or use a faster model",
    "server_error": "The server of {model} at {where} failed; try again later",
    "failed": "{model} at {where} could not answer",
}


def without_secrets(text: str) -> str:
    """Remove from a text the environment's secrets, and what looks like one in an address or a header."""
    return _BEARER.sub(r"\1***", _SECRET_IN_URL.sub(r"\1***", environment_secrets().text(text)))


@attrs.frozen
class ServerName:
    """A model and its server, for messages. `variable` is the environment variable with the key."""

    model: str
    where: str
    variable: str
    key: str = attrs.field(default="", repr=False)

    def clean(self, text: str) -> str:
        """Return a text on one line, shortened, without what may be a secret."""
        text = " ".join(text.split())
        if self.key:
            text = text.replace(self.key, "***")
        return without_secrets(text)[:_MOST_DETAIL]

    def sentence(self, reason: str) -> str:
        """Return the sentence for a reason."""
        return _SENTENCES[reason].format(model=self.model, where=self.where, variable=self.variable)

    def error(self, reason: str, sentence: str) -> GenerationError:
        """Return an error of one sentence."""
        return GenerationError(sentence.format(model=self.model, where=self.where), reason)


def refusal(server: ServerName, status: int, body: bytes, wait_s: float | None = None) -> GenerationError:
    """Return the error for an answer with a status other than 200."""
    detail = server.clean(message_in(body))
    reason = reason_of(status, f"{detail} {_code_in(body)}")
    if _REDIRECTIONS <= status < _CLIENT_ERRORS:
        sentence = f"{server.where} redirects (status {status}); write the address that it redirects to"
        return GenerationError(sentence, "bad_answer", server=ServerFault(status))
    used_up = reason == "rate_limit" and is_used_up(body.decode("utf-8", "replace"), wait_s)
    message = server.sentence("used_up" if used_up else reason)
    fault = ServerFault(status, detail, wait_s, again=not used_up)
    return GenerationError(with_words(message, detail, status), reason, server=fault)


def is_used_up(text: str, wait_s: float | None) -> bool:
    """Return whether a server's answer says that a quota is used up for long, so that another try soon would fail too."""
    return wait_s is None and bool(_USED_UP.search(text)) and not _BACK_SOON.search(text)


def said_to_wait_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Return how long a server asks to wait, according to its headers, at a time of the clock; None if it does not ask.

    `Retry-After` is seconds or a date (RFC 9110); several servers send fractions of a second. `Retry-After-Ms` is OpenAI's and Azure's.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = str(headers.get(name) or "").strip()
        if _FRACTION.fullmatch(value):
            return float(value) * unit_s
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now_s)


_FRACTION = re.compile(r"\d{1,12}(?:\.\d{0,12})?|\.\d{1,12}")


def refusal_within(server: ServerName, chunk: Mapping[str, Any]) -> GenerationError | None:
    """Return the error in an answer with a good status; None if there is none."""
    error = chunk.get("error")
    if not error or chunk.get("choices") or chunk.get("message"):
        return None
    fields = error if isinstance(error, Mapping) else {}
    codes = [fields[name] for name in ("code", "status", "type") if isinstance(fields.get(name), int | str)]
    text = json.dumps(dict(chunk), default=str)
    detail = server.clean(message_in(text.encode("utf-8", "replace")))
    reasons = [reason_of(code, detail) for code in codes] or [reason_of(None, detail)]
    reason = next((reason for reason in reasons if reason != "server_error"), "server_error")
    used_up = reason == "rate_limit" and is_used_up(text, None)
    sentence = server.sentence("used_up" if used_up else reason)
    status = next((int(code) for code in codes if str(code).isdecimal()), None)
    fault = ServerFault(status, detail, again=not used_up)
    return GenerationError(with_words(sentence, detail), reason, server=fault)


def with_words(sentence: str, detail: str, status: int | None = None) -> str:
    """End a sentence with what the server said, or its status when it said nothing."""
    if detail:
        return f"{sentence}; it said: {detail.rstrip('.')}."
    return f"{sentence}." if status is None else f"{sentence} (status {status})."


def reason_of(status: object, detail: str) -> str:
    """Return the reason for a status, or for a code in its place, and the server's message."""
    number = int(status) if isinstance(status, int) or (isinstance(status, str) and status.isdecimal()) else None
    if (number is None or number in {400, _TOO_LARGE, 422, 500}) and _TOO_LONG.search(f"{detail} {status}"):
        return "context_too_long"
    if (number is None or number in {400, 403, 422}) and _CONTENT_FILTER.search(f"{detail} {status}"):
        return "content_filter"
    if number is None:
        return next((reason for words, reason in _CODES if words.search(str(status))), "server_error")
    if number == _TOO_LARGE:
        return "context_too_long"
    return _REASONS.get(number, "server_error" if number >= _SERVER_ERRORS else "failed")


def _code_in(body: bytes) -> str:
    """Return the code of OpenAI's `error.code`, if there is one: it may say what the message does not."""
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = content.get("error") if isinstance(content, Mapping) else None
    return str(error.get("code") or "") if isinstance(error, Mapping) else ""


def message_in(body: bytes) -> str:
    """Return the error message in an answer: OpenAI's `error.message`, others' `error`, `detail`, `message`, or the text."""
    text = body.decode("utf-8", "replace")
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return "" if "<html" in text[:1000].lower() or "<!doctype" in text[:1000].lower() else text
    content = content[0] if isinstance(content, list) and content else content
    for key in ("error", "detail", "message"):
        if isinstance(content, Mapping) and content.get(key):
            content = content[key]
    if isinstance(content, Mapping):
        content = content.get("message") or content.get("code") or ""
    return content if isinstance(content, str) else json.dumps(content)


#: Reasons that may be gone a little later. A refused key, a prompt that is too long, a filter and a cut-off answer are not.
WORTH_ANOTHER_TRY = frozenset({"rate_limit", "timeout", "server_error", "unreachable", "interrupted"})
#: After these it is not known whether the provider charges for what it had begun.
MAYBE_CHARGED = frozenset({"timeout", "interrupted"})


@attrs.frozen
class Retries:
    """How many further tries there may be, after a pause that doubles or that the provider asks for.

    A provider that asks for more than `longest_pause_s` is not tried again, and none is `most_s` after the first failure. Raises ValueError
    for a negative number of tries.
    """

    most: int = 0
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    most_s: float = math.inf

    def __attrs_post_init__(self) -> None:
        """Raise ValueError for a negative number of tries."""
        if self.most < 0:
            raise ValueError(f"retries = {self.most} is too few: it must be at least 0")

    def pause_s(self, error: GenerationError, failed: int, since_s: float = 0.0) -> float | None:
        """Return how long to wait before the next try, after `failed` earlier failures, the first `since_s` ago; None if there is no next try."""
        asked_s = error.server.wait_s
        left_s = self.most_s - since_s
        if not self._left(error, failed) or left_s <= 0 or self._too_long(asked_s, since_s):
            return None
        return min(self.first_pause_s * 2.0**failed, self.longest_pause_s, left_s) if asked_s is None else asked_s

    def last(self, error: GenerationError, tries: int, since_s: float = 0.0) -> GenerationError:
        """Add to the error of the last try how many tries there were, and whether the server's wish to wait ended them. Return the error."""
        sentences = [str(error)]
        if tries > 1:
            sentences.append(f"The request was tried {tries} times.")
        asked_s = error.server.wait_s
        if asked_s is not None and self._left(error, tries - 1) and self._too_long(asked_s, since_s):
            in_all = " in all" if self.most_s <= self.longest_pause_s else ""
            longest = f"the longest allowed wait is {min(self.longest_pause_s, self.most_s):g} s{in_all}"
            sentences.append(f"There was no further try: the server asks to wait {asked_s:g} s, but {longest}.")
        error.args = (" ".join(sentences),)
        return error

    def _left(self, error: GenerationError, failed: int) -> bool:
        """Return whether there is a try left and it may help."""
        may_help = error.server.again and error.server.status not in _THE_SAME_AGAIN
        return failed < self.most and error.reason in WORTH_ANOTHER_TRY and may_help

    def _too_long(self, asked_s: float | None, since_s: float) -> bool:
        return asked_s is not None and asked_s > min(self.longest_pause_s, self.most_s - since_s)
