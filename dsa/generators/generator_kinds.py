"""The kinds of generators, and the generator that a name in a machine stands for.

Takes a name, a machine, the model from the command line and the user's own generators; returns a
GeneratorInterface. Every mistake is a BindingError with its line. It generates nothing.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from dsa.declarations import Generator
from dsa.edge.model_server import SCHEMES
from dsa.edge.plugins import Packages
from dsa.errors import BindingError, DocumentError, Span
from dsa.generators.compatible_server import OpenAICompatibleGenerator
from dsa.generators.local_model import LocalGenerator
from dsa.generators.model_options import LOCAL, SCRIPT_PREFIX, require_model_name
from dsa.generators.provider import LiteLLMGenerator
from dsa.generators.substitutes import CommandGenerator, load_script
from dsa.machine import Machine
from dsa.runtime.content import ComponentKind, GeneratorInterface, kind_of
from dsa.text import closest

_Build = TypeVar("_Build", bound=Callable[..., GeneratorInterface])

#: Every kind by its name, except those from installed packages. Arguments named `asked_model` and `seed` come
#: from the command line, `count_tokens` from Python only, `nested` and `document_folder` from the code that binds machines.
KINDS: dict[str, ComponentKind] = {}

_SUPPLIABLE = frozenset({"asked_model", "seed", "count_tokens", "nested", "document_folder"})
#: Builds the generator that runs the machine in a file, relative to a folder, and returns the artifact of a step.
NestedBuilder = Callable[[str, str, Path], GeneratorInterface]
#: The kinds from installed packages.
PACKAGES = Packages("dsa.generators", "generator", _SUPPLIABLE)
#: The names of our kinds, which are reserved.
OWN: frozenset[str] = frozenset()


def register(kind: str) -> Callable[[_Build], _Build]:
    """Make a class or function available as a kind of generator: its arguments are the options.

    Arguments `seed` (of the run), `asked_model` (what `--model` says) and `document_folder` (a Path; files in options are
    relative to it) are supplied. Raises TypeError for an argument that a table cannot set, ValueError for one of our names.
    """

    def add(build: _Build) -> _Build:
        if kind in OWN:
            raise ValueError(f"'{kind}' is one of dsa's own kinds: register yours under another name")
        KINDS[kind] = kind_of(kind, build, _SUPPLIABLE)
        return build

    return add


register("local")(LocalGenerator)
register("litellm")(LiteLLMGenerator)
register("openai_compatible")(OpenAICompatibleGenerator)
register("command")(CommandGenerator)


@register("scripted")
def _script_generator(document_folder: Path, file: str) -> GeneratorInterface:
    """Return the fenced blocks of a Markdown file, in order; its path is relative to the document's folder."""
    try:
        return load_script(document_folder / file)
    except DocumentError as error:
        raise ValueError(str(error)) from error


@register("llm")
def _llm(
    asked_model: str,
    seed: int,
    document_folder: Path,
    model: str = "",
    temperature: float = 0.7,
    max_tokens: int | None = None,
    signature: str = "",
    api_base: str = "",
    timeout_s: float = 120.0,
    retries: int = 0,
    max_prompt_tokens: int | None = None,
) -> GeneratorInterface:
    """Ask the model of `--model` (local, scripted:FILE, http://HOST/v1#MODEL, or a LiteLLM name), unless the option `model` names another.

    `signature` matters to the local model only, `timeout_s` and `retries` to the two kinds of servers only, `api_base` to LiteLLM's only.
    """
    is_own = bool(model)
    model = model or asked_model
    require_model_name(model)
    if model.startswith(SCRIPT_PREFIX):
        script = model.removeprefix(SCRIPT_PREFIX)
        return _script_generator(document_folder, script) if is_own else load_script(script)
    numbers: dict[str, Any] = {"seed": seed, "temperature": temperature, "max_prompt_tokens": max_prompt_tokens}
    if max_tokens is not None:
        numbers["max_tokens"] = max_tokens
    if model == LOCAL:
        return LocalGenerator(signature=signature, **numbers)
    if model.startswith(SCHEMES):
        if api_base:
            raise ValueError(
                f"api_base = {api_base} can be used only with a LiteLLM name, but the model {model} is given by its address"
            )
        return OpenAICompatibleGenerator(model, timeout_s=timeout_s, retries=retries, **numbers)
    return LiteLLMGenerator(model, api_base=api_base, timeout_s=timeout_s, retries=retries, **numbers)


@register("machine")
def _machine(nested: NestedBuilder, document_folder: Path, file: str, step: str = "") -> GeneratorInterface:
    """Run the machine in `file` for each artifact; `step` is the step whose artifact is wanted, by default the last one. The path is relative to the document's folder."""
    return nested(file, step, document_folder)


OWN = frozenset(KINDS)


def build_generator(
    name: str,
    machine: Machine,
    *,
    model: str = "local",
    seed: int | None = None,
    extra: Mapping[str, GeneratorInterface] | None = None,
    nested: NestedBuilder | None = None,
    folder: Path | None = None,
) -> GeneratorInterface:
    """Build the generator of a name: a declared generator, or a kind.

    `extra` has the user's own generators, by generator name or by kind. A row without `is` has the kind of the
    same name, or else is an `llm`. `nested` builds those that run a machine. `folder` is the document's, to which
    files in options are relative; by default the working folder. Raises BindingError; DocumentError if the script of `model` cannot be read.
    """
    extra = extra or {}
    rows = {row.name: row for row in machine.generators}
    row = rows.get(name, Generator(name))
    for key in (name, row.kind):
        if key in extra:
            if row.options:
                raise BindingError(f"generator {name} is bound to your own object, which takes no options", row.span)
            return extra[key]
    kind = _kind_of(row, is_declared=name in rows)
    if kind is None:
        missing = f"generator {name} is of kind '{row.kind}', which" if row.kind else f"generator {name}"
        hint = closest(row.kind or name, {*KINDS, *PACKAGES.names(), *extra, *rows} - {name})
        raise BindingError(f"{missing} is not bound to anything", row.span or _named_at(name, machine), hint)
    supply = {"asked_model": model, "seed": seed or 0, "count_tokens": None, "nested": nested or _no_machine}
    return _build(kind, row, supply | {"document_folder": folder or Path()})


def _named_at(name: str, machine: Machine) -> Span | None:
    """Return the first step that names a generator."""
    return next((step.span for step in machine.steps if step.generator == name), None)


def _no_machine(file: str, _step: str, _folder: Path) -> GeneratorInterface:
    raise ValueError(f"the machine {file} cannot be run here")


def _kind_of(row: Generator, *, is_declared: bool) -> ComponentKind | None:
    """Return the kind that a row names, or else the kind of its own name, or else, if it is declared, `llm`."""
    name = row.kind or row.name
    try:
        return KINDS.get(name) or PACKAGES.find(name) or (KINDS["llm"] if is_declared and not row.kind else None)
    except BindingError as error:
        raise BindingError(str(error), row.span) from error


def _build(kind: ComponentKind, row: Generator, supply: dict[str, Any]) -> GeneratorInterface:
    owner = f"generator {row.name}"
    arguments = kind.arguments(row.options, owner, row.span)
    try:
        generator = kind.build(**{name: supply[name] for name in kind.supplied_arguments}, **arguments)
    except ValueError as error:
        raise BindingError(f"{owner}: {error}", row.span) from error
    if not isinstance(generator, GeneratorInterface):
        type_name = type(generator).__name__
        raise BindingError(
            f"the kind '{kind.name}' must build a GeneratorInterface, but built an object of type {type_name}", row.span
        )
    return generator
