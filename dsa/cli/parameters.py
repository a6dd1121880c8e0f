"""`--param NAME=VALUE`, as several commands take it."""

import re
from collections.abc import Iterable

import click

from dsa.expr import Value

_NUMBER = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 100


def parse_parameters(given: Iterable[str]) -> dict[str, Value]:
    """Read `rmax=5`, `strict=true`, `mode=fast`. Raises click.UsageError for what is not of this form."""
    values: dict[str, Value] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            msg = f"--param {text}: write NAME=VALUE, such as rmax=5"
            raise click.UsageError(msg)
        if _NUMBER.fullmatch(value.strip()) and len(value) > _MOST_DIGITS:
            msg = f"--param {name}: a number of more than {_MOST_DIGITS} digits is too large"
            raise click.UsageError(msg)
        values[name.strip()] = _value(value.strip())
    return values


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if _NUMBER.fullmatch(text) else text
