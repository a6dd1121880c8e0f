"""Kinds of guards and generators: a name for a class, and the options that a table may give it.

Takes a class or function and reads its signature; gives a `Kind` that turns the texts of an options cell into
arguments. It knows neither guards nor generators: `dsa.guards.library` and `dsa.generators.library` list theirs.
"""

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from dsa.errors import BindingError, Span
from dsa.words import closest

#: What an option may be, and how a message calls it.
_TYPES: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple[str, ...]: "names separated by commas",
}


@attrs.frozen
class Option:
    """One option of a kind; `default` is `attrs.NOTHING` when the table must give it."""

    name: str
    type: Any
    default: object = attrs.NOTHING

    @property
    def form(self) -> str:
        """Say what it may be: `a number`."""
        return _TYPES[self.type]

    @property
    def is_required(self) -> bool:
        """Tell whether the table must give it."""
        return self.default is attrs.NOTHING

    def parse(self, text: str) -> object:
        """Read the text of a cell; ValueError when it is not of the option's type."""
        if self.type is bool:
            return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
        if self.type == tuple[str, ...]:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return self.type(text)


@attrs.frozen
class Kind:
    """A name for what can be built. `supplied` are the arguments that come from elsewhere than the options cell.

    `description` is the first paragraph of its docstring, in one line.
    """

    name: str
    build: Callable[..., Any]
    options: tuple[Option, ...]
    supplied: frozenset[str]
    description: str

    def arguments(self, given: Iterable[tuple[str, str]], owner: str, span: Span | None) -> dict[str, object]:
        """Turn an options cell into arguments. Raises BindingError for unknown, missing and ill-typed options."""
        known = {option.name: option for option in self.options}
        arguments: dict[str, object] = {}
        for name, text in given:
            if name not in known:
                raise BindingError(
                    f"{owner} is of kind {self.name}, which has no option '{name}'", span, closest(name, known)
                )
            arguments[name] = _parsed(known[name], text, owner, span)
        for option in self.options:
            if option.is_required and option.name not in arguments:
                form = f"{option.name} = {option.form}"
                raise BindingError(
                    f"{owner} is of kind {self.name}, which needs the option '{option.name}'", span, form
                )
        return arguments


def kind_of(name: str, build: Callable[..., Any], suppliable: frozenset[str]) -> Kind:
    """Read a kind off a class or function: every named argument is an option unless it is among `suppliable`.

    TypeError when an argument has a type that no options cell can give.
    """
    described = build.__init__ if inspect.isclass(build) else build
    hints = typing.get_type_hints(described)
    options, supplied = [], []
    for parameter in inspect.signature(build).parameters.values():
        if parameter.name in suppliable:
            supplied.append(parameter.name)
        else:
            options.append(_option(parameter, hints.get(parameter.name, str), name))
    description = " ".join((inspect.getdoc(build) or "").partition("\n\n")[0].split())
    return Kind(name, build, tuple(options), frozenset(supplied), description)


def _option(parameter: inspect.Parameter, hint: Any, kind: str) -> Option:  # noqa: ANN401  # a type hint
    if isinstance(hint, types.UnionType):
        hint = _without_none(typing.get_args(hint))
    if hint not in _TYPES or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise TypeError(
            f"argument '{parameter.name}' of kind {kind} can be no option: it is none of: {'; '.join(_TYPES.values())}"
        )
    return Option(parameter.name, hint, attrs.NOTHING if parameter.default is parameter.empty else parameter.default)


def _without_none(parts: Sequence[Any]) -> Any:  # noqa: ANN401  # a type hint
    kept = [part for part in parts if part is not type(None)]
    return kept[0] if len(kept) == 1 else tuple(kept)


def _parsed(option: Option, text: str, owner: str, span: Span | None) -> object:
    try:
        return option.parse(text.strip())
    except (ValueError, KeyError):
        raise BindingError(f"option '{option.name}' of {owner} is '{text}', not {option.form}", span) from None
