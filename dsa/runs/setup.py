"""Setups: a document with everything that a run of it needs, bound before anything is recorded.

`MachineDocument` is a machine with its text and its file. `Options` say how a run is started or resumed. `setup_of` makes a `RunSetup` of both, for
a new run; `resumed_options` and `present_settings` are for a run that is resumed.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from dsa.data_use import SPECIFICATION
from dsa.declarations import OUTSIDE
from dsa.edge.binding import Bindings, effect_names
from dsa.edge.document_files import load, locate, read_text
from dsa.expr import Value
from dsa.generators.generator_kinds import NestedBuilder
from dsa.generators.substitutes import ScriptedGenerator
from dsa.immutable import immutable
from dsa.lang import digest, dumps, loads, machine_of
from dsa.machine import Machine
from dsa.runs.bindings import DEFAULT_MODEL, FROM_FILE, bind
from dsa.runtime.costs import BudgetLimit, read_limit
from dsa.runtime.ledger import ArtifactEntry, Entry, MachineEntry
from dsa.runtime.secrets import SecretOptions
from dsa.semantics import Occurrence, accepted_events


@attrs.frozen
class MachineDocument:
    """A machine, the text that it was read from, and its file, if there is one."""

    machine: Machine
    text: str
    path: Path | None = None


def document_of(file: str | Path | Machine) -> MachineDocument:
    """Return a document: from a file, a shipped machine by its name, a spec about a machine, or a machine itself.

    Raises DocumentError and MachineError.
    """
    if isinstance(file, Machine):
        document: MachineDocument | None = file.worked_out.get("document")
        if document is None:
            text = dumps(file)  # the run keeps this text, and the lines of rows refer to it
            document = file.worked_out["document"] = MachineDocument(
                loads(text, file.name).at(dict(file.constants)), text
            )
        return document
    path = locate(str(file))
    reference = machine_of(read_text(path), str(file))
    machine_path = path if reference is None else locate(reference[0], path.parent)
    text = read_text(machine_path)
    name = str(file) if machine_path == path else str(machine_path)
    return MachineDocument(_machine_of(name, text, Path.cwd()), text, machine_path)


@lru_cache(maxsize=8)
def _machine_of(name: str, _text: str, _folder: Path) -> Machine:
    """Return the machine in a file that has this text: agents start runs of the same few documents again and again.

    The folder is part of the key because the places of rows name the file relative to it.
    """
    return load(name)


def takes_specification(machine: Machine) -> bool:
    """Return whether the machine waits for the event `specification`."""
    event = machine.event_named.get(SPECIFICATION)
    return event is not None and event.origin == OUTSIDE


def first_event(machine: Machine, data: object) -> tuple[Occurrence, ...]:
    """Return the events that a run is started with: one event with the data, or none without data.

    The event is `specification` if the machine takes it, else the only event from outside that has a row in the initial state.
    Raises ValueError for data if there is no such event.
    """
    if takes_specification(machine):
        return (Occurrence(SPECIFICATION, data="" if data is None else data),)
    if data is None:
        return ()
    state = machine.entry_leaf(machine.initial)
    outside = [name for name in accepted_events(machine, state) if _is_outside(machine, name)]
    if len(outside) == 1:
        return (Occurrence(outside[0], data=data),)
    why = f"several events may come first ({', '.join(outside)})" if outside else "no event from outside may come first"
    raise ValueError(f"{machine.name} cannot be started with data: {why}; start it without data, then send an event")


def _is_outside(machine: Machine, name: str) -> bool:
    event = machine.event_named.get(name)
    return event is not None and event.origin == OUTSIDE


#: A function that binds a machine, from the settings that its run was started with.
Binder = Callable[[Machine, Mapping[str, Any]], Bindings]
#: A source of bindings: a module, the name or file of one, a `Bindings` for some of the names, or a function that binds all.
Source = str | Path | ModuleType | Bindings | Binder
SCRIPT_PREFIX = "scripted:"


@attrs.frozen(field_transformer=immutable)
class Options:
    """The options for starting or resuming a run. None and empty values mean: as in the document, or as at the start.

    `bindings` is a module, the name or file of one, a Bindings, or a function of machine and settings. `parameters` are set by name. `budget` has limits
    such as `calls=20` and `llm.tokens=4000`. `secret_options` add to the secrets that are found by their names. Policies can read `config`.
    """

    bindings: Source | None = None
    model: str | None = None
    seed: int | None = None
    parameters: Mapping[str, Value] = attrs.field(factory=dict)
    budget: Sequence[str] = ()
    secret_options: SecretOptions = attrs.field(factory=SecretOptions)
    config: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class RunSetup:
    """A machine with its text, bindings and limits. `settings` say how it is bound; the first entry of a new run keeps them.

    `source` is set if no other process could find the bindings: this process needs it when it resumes the run.
    """

    machine: Machine
    binding: Bindings
    text: str = ""
    digest: str = ""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    limits: tuple[BudgetLimit, ...] = ()
    source: Source | None = None


def setup_of(
    document: MachineDocument, options: Options, machines: NestedBuilder, config: Mapping[str, Any] | None = None
) -> RunSetup:
    """Bind a document's names, and return the setup for a run of it. Policies can read `config` and that of the options; `config` is not recorded.

    Raises BindingError, ModelUnavailable, ParameterError, DsaError for a secret.
    """
    machine = document.machine.at(dict(options.parameters)) if options.parameters else document.machine
    limits = limits_of(machine, options.budget)
    settings: dict[str, object] = {
        "file": None if document.path is None else str(document.path.absolute()),
        "module": _absolute(options.bindings),
        "model": absolute_script(options.model or DEFAULT_MODEL),
        "seed": options.seed or 0,
        "budget": list(options.budget),
    }
    if options.secret_options:
        settings["secrets"] = attrs.asdict(options.secret_options)
    if options.config:
        settings["config"] = dict(options.config)
    full_options = attrs.evolve(options, config={**options.config, **(config or {})})
    binding = bindings_for(machine, full_options, document.path, machines, settings)
    source = None if isinstance(options.bindings, str | Path) else options.bindings
    return RunSetup(machine, binding, document.text, digest(machine), settings, limits, source)


def bindings_for(
    machine: Machine,
    options: Options,
    path: Path | None,
    machines: NestedBuilder,
    settings: Mapping[str, Any],
) -> Bindings:
    """Bind every name of a machine. Policies can read the budget and the options' `config`. Raises BindingError and ModelUnavailable."""
    model, seed = options.model or DEFAULT_MODEL, options.seed or 0
    config = {**options.config, "budget": list(options.budget)}
    if callable(options.bindings):
        return options.bindings(machine, {**settings, "model": model, "seed": seed, "config": config})
    return bind(
        machine,
        path=path,
        module=options.bindings,
        model=model,
        seed=seed,
        secret_options=options.secret_options,
        machines=machines,
        config=config,
    )


def resumed_options(
    first: MachineEntry, now: Options, source: Source | None = None, config: Mapping[str, Any] | None = None
) -> Options:
    """Return the options that a run was started with, as changed by the options of `now`.

    `source` binds the run if neither names bindings. Policies can read `config` and that of the options.
    """
    settings = dict(first.started)
    before = SecretOptions(**{name: tuple(names) for name, names in (settings.get("secrets") or {}).items()})
    return Options(
        now.bindings or source or settings.get("module"),
        now.model or settings.get("model"),
        settings.get("seed") if now.seed is None else now.seed,
        {},
        now.budget or settings.get("budget") or (),
        before | now.secret_options,
        {**(settings.get("config") or {}), **now.config, **(config or {})},
    )


def present_settings(settings: Mapping[str, Any], now: Options) -> dict[str, object]:
    """Return the settings that a run was started with, with the current module, model and budget; None for what cannot be named."""
    model = now.model and absolute_script(now.model)
    return {**settings, "module": _absolute(now.bindings), "model": model, "budget": list(now.budget)}


def skip_replies(binding: Bindings, entries: Iterable[Entry]) -> None:
    """Let scripts continue after the replies that they gave to a run."""
    scripts = {name: each for name, each in binding.generators.items() if isinstance(each, ScriptedGenerator)}
    for entry in entries if scripts else ():
        if isinstance(entry, ArtifactEntry) and entry.author in scripts:
            scripts[entry.author].skip(entry.step)


def limits_of(machine: Machine, budget: Sequence[str]) -> tuple[BudgetLimit, ...]:
    """Read a run's budget. Raises ParameterError."""
    effects = [name for name, _ in effect_names(machine)] if budget else []
    return tuple(read_limit(text, effects) for text in budget)


def _absolute(bindings: Source | None) -> str | None:
    """Return the name of a module, valid in any working folder; None for bindings that another process cannot find."""
    if isinstance(bindings, ModuleType):
        bindings = _importable_name(bindings)
    if not isinstance(bindings, str | Path):
        return None
    name = str(bindings)
    return str(Path(name).absolute()) if name.endswith(".py") else name


def _importable_name(module: ModuleType) -> str | None:
    """Return the name or file by which another process finds a module; None for one that was made in this process."""
    file = getattr(module, "__file__", None)
    in_process = module.__name__.startswith(FROM_FILE) or module.__name__ == "__main__"
    if sys.modules.get(module.__name__) is module and module.__spec__ is not None and not in_process:
        return module.__name__
    return file if file and file.endswith(".py") else None


def absolute_script(model: str) -> str:
    """Return a model's name, valid in any working folder."""
    prefix, _, file = model.partition(SCRIPT_PREFIX)
    return model if prefix or not file else f"{SCRIPT_PREFIX}{Path(file).absolute()}"
