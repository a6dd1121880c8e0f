"""Options that several commands take: `--param NAME=VALUE`, `--max-states N`, `--time-limit S`, and choices."""

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import click
from click.decorators import FC

from dsa.expr import Value
from dsa.runtime.json_text import canonical_value
from dsa.words import closest

_NUMBER = re.compile(r"-?[0-9]+")
_MOST_DIGITS = 100


class _Seconds(click.FloatRange):
    """A number of seconds from 0. A limit that is not a number would never be met."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401  (click's signature)
        """Read the number."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is not a number of seconds; write one such as 2.5", param, ctx)
        return seconds


SECONDS = _Seconds(min=0)


class Word(click.Choice):  # type: ignore[type-arg]  # it has none before click 8.2
    """One of some words; of another word it says which was probably meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401  (click's signature)
        """Read the word."""
        if value not in self.choices:
            self.fail(f"there is no '{value}'; {closest(value, self.choices)}", param, ctx)
        return str(value)


def param_option(said: str) -> Callable[[FC], FC]:
    """Return `--param NAME=VALUE`, which may be given several times; `said` is its help."""
    return click.option("--param", "parameters", multiple=True, metavar="NAME=VALUE", help=said)


def max_states_option(default: int, what: str = "search") -> Callable[[FC], FC]:
    """Return `--max-states N`; `what` is stopped there."""
    said = f"Stop each {what} after so many configurations."
    return click.option("--max-states", type=click.IntRange(min=1), default=default, show_default=True, help=said)


def parse_parameters(given: Iterable[str], option: str = "--param") -> dict[str, Value]:
    """Read `rmax=5`, `strict=true`, `mode=fast`, each once. Raises click.UsageError for what is not of this form."""
    values: dict[str, Value] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise click.UsageError(f"{option} {text}: write NAME=VALUE, such as rmax=5")
        if _NUMBER.fullmatch(value.strip()) and len(value) > _MOST_DIGITS:
            raise click.UsageError(f"{option} {name}: a number of more than {_MOST_DIGITS} digits is too large")
        if name.strip() in values:
            raise click.UsageError(f"{option} {name.strip()} is given twice; give it one value")
        values[name.strip()] = _value(value.strip())
    return values


def _value(text: str) -> Value:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if _NUMBER.fullmatch(text) else text


def read_data(written: str, option: str = "--data") -> Any:  # noqa: ANN401  (JSON)
    """Read what an event brings: JSON, or a text; what begins as an object, a list or a string of JSON has to be one.

    Raises click.UsageError for what is neither.
    """
    require_text(written, option)
    try:
        read = json.loads(written, parse_constant=_refuse, parse_float=_in_range)
        canonical_value(read)  # what is nested too deep is refused here, before anybody looks for secrets in it
    except _RangeError as fault:
        if written.lstrip().startswith(("{", "[")) or written.strip() == fault.written:
            raise click.UsageError(f"{option}: {fault}") from fault
        return written
    except (ValueError, RecursionError) as fault:
        if written.lstrip().startswith(("{", "[", '"')):
            why = "it is nested too deeply" if isinstance(fault, RecursionError) else fault
            raise click.UsageError(f"{option} begins as JSON and is not valid: {why}") from fault
        return written
    return read


class _RangeError(ValueError):
    """Raised for a number that would be read as infinity."""

    def __init__(self, written: str) -> None:
        self.written = written
        shown = written if len(written) <= _MOST_DIGITS else f"{written[:_MOST_DIGITS]}.."
        super().__init__(
            f"the number {shown} is out of range, for none is above 1.8e308; write it as a text, in quotes"
        )


def _in_range(written: str) -> float:
    number = float(written)
    if math.isinf(number):
        raise _RangeError(written)
    return number


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def require_text(given: str, what: str) -> str:
    """Return what stands on the command line. Raises UsageError for bytes that are not characters."""
    try:
        given.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise click.UsageError(f"{what} is not UTF-8 text") from fault
    return given
