"""Where a model is: an address and the name under which the server there knows it, written `http://HOST/v1#MODEL`.

Takes texts and variables, gives `Endpoint`. It opens no connection.
"""

import ipaddress
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

import attrs

from dsa.runtime.secret_names import is_secret_name

#: What a model's name begins with when it is an address.
SCHEMES = ("http://", "https://")
#: Where the key of a host stands; it goes to that host only, and over https only.
_KEYS = {"api.openai.com": "OPENAI_API_KEY", "openrouter.ai": "OPENROUTER_API_KEY"}
#: Where the key for any other address stands.
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
        """Where requests go."""
        path = "/chat" if self.native else "/chat/completions"
        return f"{self.base}{path}{'?' if self.query else ''}{self.query}"

    @property
    def name(self) -> str:
        """The model as it is asked for: the address and the name."""
        return f"{self.base}{'?' if self.query else ''}{self.query}#{self.model}"

    @property
    def on_this_machine(self) -> bool:
        """Whether the address is of this machine: then no proxy is asked."""
        host = urlsplit(self.base).hostname or ""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")
        return address.is_loopback or address.is_unspecified

    @property
    def wants_key(self) -> bool:
        """Whether it is known that nobody is answered here without a key."""
        parts = urlsplit(self.base)
        return parts.scheme == "https" and parts.hostname in _KEYS

    def key(self, variable: str, environment: Mapping[str, str]) -> tuple[str, str]:
        """Give the variable that has the key, and the key, empty for none.

        It is the variable that is named, else the host's own (over https only), else DSA_API_KEY.
        """
        parts = urlsplit(self.base)
        own = _KEYS.get(parts.hostname or "")
        chosen = variable or own or ANY_KEY
        guarded = not variable and own is not None and parts.scheme != "https"
        return chosen, "" if guarded else environment.get(chosen, "").strip()


def read_endpoint(text: str) -> Endpoint:
    """Read an address with a model. ValueError for what is none, and for one that holds a password."""
    address, _, model = text.partition("#")
    try:
        parts = urlsplit(address)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"this is no address of a server: {_HOW}") from error
    if parts.username or parts.password or any(is_secret_name(name) for name, _ in parse_qsl(parts.query)):
        raise ValueError("an address must not hold a password or a key: put it into a variable, and name that")
    if not address.startswith(SCHEMES) or not host or any(character.isspace() for character in text.strip()):
        raise ValueError(f"'{text}' is no address of a server: {_HOW}")
    if not model.strip():
        raise ValueError(f"'{text}' names no model: {_HOW}")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    base = f"{parts.scheme}://{parts.netloc}{path or '/v1'}"
    return Endpoint(base, model.strip(), parts.query, native=path.endswith("/api"))
