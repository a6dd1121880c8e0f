"""Which secrets there are: the values of variables whose names say that they are keys, and what a user names.

Takes the variables of an environment, gives `Secrets`. Pure: it is handed the variables, and reads no file.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import unquote

import attrs

from dsa.errors import DsaError
from dsa.runtime.patterns import Pattern
from dsa.runtime.secrets import SHAPES, Secrets, Shape, marker

#: Values of variables that are found by their names have at least so many characters, those that a user names at least so many.
SHORTEST_FOUND, SHORTEST_NAMED = 8, 4
#: The last words of names such as OPENAI_API_KEY, HF_TOKEN, AWS_SECRET_ACCESS_KEY, WATSONX_APIKEY, CIRCLE_OIDC_TOKEN_V2.
_SECRET_NAME = re.compile(
    r"(?:(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|JWT|(?:^|_)(?:PASS|PAT|AUTH))S?"
    r"(?:_(?:PEM|JSON|BASE64|B64|BEDROCK|[VX]?[0-9]+))?|SECRET_ID|WEBHOOK_URL)$",
    re.IGNORECASE,
)
_HEADERS_NAME = re.compile(r"HEADERS$", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@")


class SecretError(DsaError):
    """Raised for a secret that cannot be looked for, and for one that stands where it cannot be taken out."""


@attrs.frozen
class Chosen:
    """What a user says about secrets, beside what is found by names.

    `names` of variables, regular expressions, and `spared`: names of variables and shapes that are no secrets.
    """

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()

    def __or__(self, other: "Chosen") -> "Chosen":
        """Give both together, each thing once."""
        if not self or not other:
            return self or other
        return Chosen(
            tuple(dict.fromkeys(self.names + other.names)),
            tuple(dict.fromkeys(self.patterns + other.patterns)),
            tuple(dict.fromkeys(self.spared + other.spared)),
        )

    def __bool__(self) -> bool:
        return bool(self.names or self.patterns or self.spared)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable's name says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def secrets_in(environment: Mapping[str, str], chosen: Chosen | None = None) -> Secrets:
    """Give the secrets of an environment. SecretError for a value that is too short, and for what is no regular expression.

    A variable that is named and not there is passed over: its value cannot get anywhere from here.
    """
    chosen = chosen or Chosen()
    values = dict(_found(environment))
    for name in chosen.names:
        if name in environment:
            values[name] = _named(name, environment[name])
    shapes = [*SHAPES, *_shapes(chosen.patterns)]
    return Secrets(
        {name: value for name, value in values.items() if name.partition(".")[0] not in chosen.spared},
        [shape for shape in shapes if shape.name not in chosen.spared],
    )


def _found(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Give the values that are secrets by their variables' names, or by what they look like."""
    for name, value in environment.items():
        if _HEADERS_NAME.search(name):
            parts = _in_headers(name, value)
        elif is_secret_name(name):
            parts = [(name, value.strip()), *_in_json(name, value)]
        else:
            parts = [(name, password) for password in _PASSWORD_IN_URL.findall(value)] if "://" in value else []
        yield from ((part, text) for part, text in parts if len(text) >= SHORTEST_FOUND)


def _in_headers(name: str, value: str) -> list[tuple[str, str]]:
    """Give the values of headers, as OTEL_EXPORTER_OTLP_HEADERS has them: `key=value,key=value`; of `Bearer x`, x."""
    headers = (part.partition("=") for part in value.split(","))
    return [(f"{name}.{key.strip()}", unquote(text).strip().rpartition(" ")[2]) for key, _, text in headers]


def _in_json(name: str, value: str) -> Iterator[tuple[str, str]]:
    """Give the secrets within a value that is a JSON object, as the credentials of a service account are."""
    if value.lstrip().startswith("{"):
        try:
            fields = json.loads(value)
        except (ValueError, RecursionError):
            return
        for key, text in fields.items():
            if isinstance(text, str) and is_secret_name(key):
                yield f"{name}.{key}", text.strip()


def _named(name: str, value: str) -> str:
    value = value.strip()
    if len(value) < SHORTEST_NAMED or value in marker(name):
        few = f"has {len(value)} characters" if len(value) < SHORTEST_NAMED else "is a part of its own marker"
        raise SecretError(f"the value of {name} {few}: texts would not survive that it is taken out of them")
    return value


def _shapes(patterns: Iterable[str]) -> Iterator[Shape]:
    for number, pattern in enumerate(patterns, start=1):
        try:
            searched = Pattern(pattern)
        except ValueError as fault:
            raise SecretError(str(fault)) from fault
        yield Shape(f"pattern-{number}", searched)
