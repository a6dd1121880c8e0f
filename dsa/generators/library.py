"""The kinds of generators there are, and the generator that a machine means by a name.

Takes a name, a machine, the model that the command line asks for and the user's own generators, gives a
GeneratorInterface; every mistake is a BindingError with its line. It generates nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from dsa.declarations import Generator
from dsa.edge.http.endpoint import SCHEMES
from dsa.errors import BindingError
from dsa.generators.compatible import OpenAICompatibleGenerator
from dsa.generators.lite import LiteLLMGenerator
from dsa.generators.local import LocalGenerator
from dsa.generators.programs import CommandGenerator
from dsa.generators.scripted import load_script
from dsa.machine import Machine
from dsa.runtime.content import GeneratorInterface
from dsa.runtime.kinds import Kind, closest, kind_of

_Build = TypeVar("_Build", bound=Callable[..., GeneratorInterface])

#: Every kind by its name. Arguments named `asked_model` and `seed` come from the command line.
KINDS: dict[str, Kind] = {}

_SUPPLIABLE = frozenset({"asked_model", "seed"})
#: What `--model` begins with when a script follows.
SCRIPTED = "scripted:"


def register(kind: str) -> Callable[[_Build], _Build]:
    """Make a class or function available as a kind of generator: its arguments are the options.

    Arguments `seed` (of the run) and `asked_model` (what `--model` says) are supplied. TypeError for an argument
    that no table can give.
    """

    def add(build: _Build) -> _Build:
        KINDS[kind] = kind_of(kind, build, _SUPPLIABLE)
        return build

    return add


register("local")(LocalGenerator)
register("litellm")(LiteLLMGenerator)
register("openai_compatible")(OpenAICompatibleGenerator)
register("command")(CommandGenerator)


@register("scripted")
def _scripted(file: str) -> GeneratorInterface:
    """Give the fenced blocks of a Markdown file, in order."""
    return load_script(file)


@register("llm")
def _llm(
    asked_model: str,
    seed: int,
    model: str = "",
    temperature: float = 0.7,
    max_tokens: int | None = None,
    signature: str = "",
    api_base: str = "",
    timeout_s: float = 120.0,
) -> GeneratorInterface:
    """Ask the model that `--model` names (local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name), unless the option `model` does.

    `signature` matters to the local model only, `timeout_s` to the two kinds of servers only, `api_base` to LiteLLM's only.
    """
    model = model or asked_model
    if model.startswith(SCRIPTED):
        return load_script(model.removeprefix(SCRIPTED))
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    if model == "local":
        return LocalGenerator(seed=seed, signature=signature, temperature=temperature, **limit)
    if model.startswith(SCHEMES):
        return OpenAICompatibleGenerator(
            model, seed=seed, temperature=temperature, max_tokens=max_tokens, timeout_s=timeout_s
        )
    return LiteLLMGenerator(model, seed=seed, temperature=temperature, api_base=api_base, timeout_s=timeout_s, **limit)


def build_generator(
    name: str,
    machine: Machine,
    *,
    model: str = "local",
    seed: int | None = None,
    extra: Mapping[str, GeneratorInterface] | None = None,
) -> GeneratorInterface:
    """Build the generator of a name: a declared generator, or a kind.

    `extra` has the user's own generators, by generator name or by kind. A row without `is` is of the kind it is
    named after, or else an `llm`. Without `seed` it is 0. Raises BindingError; DocumentError for a script that cannot be read.
    """
    extra = extra or {}
    declared = {row.name: row for row in machine.generators}
    row = declared.get(name, Generator(name))
    for known in (name, row.kind):
        if known in extra:
            if row.options:
                raise BindingError(f"generator {name} is bound to an object of yours, which takes no options", row.span)
            return extra[known]
    kind = KINDS.get(row.kind or (name if name in KINDS or name not in declared else "llm"))
    if kind is None:
        missing = f"generator {name} is of kind '{row.kind}', which" if row.kind else f"generator {name}"
        hint = closest(row.kind or name, {*KINDS, *extra, *declared} - {name})
        raise BindingError(f"{missing} is not bound to anything", row.span, hint)
    return _made(kind, row, {"asked_model": model, "seed": seed or 0})


def _made(kind: Kind, row: Generator, supply: dict[str, Any]) -> GeneratorInterface:
    owner = f"generator {row.name}"
    arguments = kind.arguments(row.options, owner, row.span)
    try:
        generator = kind.build(**{name: supply[name] for name in kind.supplied}, **arguments)
    except ValueError as error:
        raise BindingError(f"{owner}: {error}", row.span) from error
    if not isinstance(generator, GeneratorInterface):
        raise BindingError(
            f"kind {kind.name} built {type(generator).__name__}, which is no GeneratorInterface", row.span
        )
    return generator
