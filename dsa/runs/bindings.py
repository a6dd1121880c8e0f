"""Bindings of a table: the policies, guards and generators behind its names, found and checked before the first event.

`bind` takes a machine and where to look, and returns `Bindings`. A module from a file is imported, with the modules beside it; nothing else in this
package runs users' code to read it. `misfits` checks whether what a module gives can do its work: kinds of objects, async functions, arguments.
It calls nothing. A policy that is called from outside is a run of the shipped machine `policy`: `request` makes the data that the run begins with,
`perform` is its effect, and `policy_steps` returns the steps that the policy gave.
"""

import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from dsa.checks.table_faults import require_sound
from dsa.data_use import DEFAULT_GENERATOR, GENERATING_EFFECT
from dsa.declarations import Guard, without_index
from dsa.edge.binding import Bindings, effect_names
from dsa.edge.plugins import installed_points
from dsa.edge.processes import environment_secrets
from dsa.errors import BindingError, Span
from dsa.expr import guards_read
from dsa.generators.generator_kinds import NestedBuilder, build_generator
from dsa.guards.guard_kinds import GeneratorOf, build_guard
from dsa.machine import Machine, sleeping_effects
from dsa.runtime.content import GeneratorInterface, GuardInterface
from dsa.runtime.ledger import EventEntry
from dsa.runtime.policy.call_tree import POLICY, CallNode, calls_of
from dsa.runtime.policy.invocation import ReplayReport, replay_calls
from dsa.runtime.policy.policies import (
    Action,
    AnsweringPolicy,
    Payload,
    Policy,
    PolicyContext,
    Step,
    answering,
    event_step,
)
from dsa.runtime.policy.policy_registry import Registry
from dsa.runtime.run import Run
from dsa.runtime.secrets import SecretOptions
from dsa.text import nearest


def misfits(machine: Machine, bindings: Bindings) -> Iterator[BindingError]:
    """Yield an error for each object that cannot do the work of its name: a class instead of an object, a `def` instead of an `async def`, other arguments."""
    for name, policy in bindings.effects.items():
        yield from _policy_misfits(f"the effect '{name}'", policy)
    for name, guard in bindings.guards.items():
        yield from _guard_misfits(machine, name, guard)
    for name, generator in bindings.generators.items():
        if not isinstance(generator, GeneratorInterface):
            yield BindingError(
                f"the generator '{name}' is bound to {kind_of_object(generator)}, not to a GeneratorInterface object"
            )
        else:
            yield from _argument_misfits(f"the generator '{name}'", generator.generate, ("context", "template"), ())


def kind_of_object(value: object) -> str:
    """Return the kind of an object in words, such as `int` or `the class Grounded itself`."""
    return f"the class {value.__name__} itself" if isinstance(value, type) else type(value).__name__


def _policy_misfits(owner: str, policy: object) -> Iterator[BindingError]:
    function = policy.policy if isinstance(policy, AnsweringPolicy) else policy
    if not callable(function) or isinstance(function, type):
        yield BindingError(f"{owner} is bound to {kind_of_object(policy)}, not to an async function")
    elif _is_plain(function):
        yield BindingError(
            f"{owner} is bound to {_callable_name(function)}, which is not an async function", None, "write `async def`"
        )
    else:
        yield from _argument_misfits(owner, function, ("action", "context"), ())


def _is_plain(policy: Callable[..., Any]) -> bool:
    """Return whether a function is certainly not asynchronous: a `def` that wraps nothing and is not annotated as awaitable."""
    while isinstance(policy, partial):
        policy = policy.func
    function = policy if inspect.isfunction(policy) or inspect.ismethod(policy) else type(policy).__call__
    if not (inspect.isfunction(function) or inspect.ismethod(function)) or inspect.iscoroutinefunction(function):
        return False
    returns = str(getattr(function, "__annotations__", {}).get("return", ""))
    return not (hasattr(function, "__wrapped__") or "Awaitable" in returns or "Coroutine" in returns)


def _guard_misfits(machine: Machine, name: str, guard: object) -> Iterator[BindingError]:
    if not isinstance(guard, GuardInterface):
        yield BindingError(f"the guard '{name}' is bound to {kind_of_object(guard)}, not to a GuardInterface object")
        return
    for owner, names, span in _guard_requests(machine, name):
        yield from _argument_misfits(owner, guard.validate, ("artifact",), names, span)


def _guard_requests(machine: Machine, name: str) -> Iterator[tuple[str, tuple[str, ...], Span | None]]:
    """Yield the calls of a guard, by its name or its kind: the caller, the names of the data and artifacts, and the place in the table."""
    rows = [row for row in machine.guards if name in (row.name, row.kind)] or [Guard(name)]
    for row in rows:
        data = tuple(argument for argument, _ in row.uses)
        steps = [step for step in machine.steps if {row.name, name} & {*step.guards, step.name}]
        for step in steps:
            yield (
                f"the guard '{row.name}' of step {step.name}",
                (*data, *(artifact for artifact, _ in step.uses)),
                row.span or step.span,
            )
        if not steps:
            yield f"the guard '{row.name}'", data, row.span


def _argument_misfits(
    owner: str,
    function: Callable[..., Any],
    positional: tuple[str, ...],
    keywords: tuple[str, ...],
    span: Span | None = None,
) -> Iterator[BindingError]:
    """Yield an error for a function that cannot be called with these arguments. A function without a readable signature is not checked."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*positional, **dict.fromkeys(keywords))
    except TypeError as fault:
        arguments = ", ".join((*positional, *(f"{name}=.." for name in keywords)))
        yield BindingError(
            f"{owner} is bound to {_callable_name(function)}, which takes {signature} but is called with ({arguments}): {fault}",
            span,
        )


def _callable_name(function: object) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    return f"`{name}`" + (f" (line {code.co_firstlineno})" if code is not None else "")


#: The effect of the machine.
PERFORM = "perform"
#: The key of the only effect of a run of the machine.
_KEY = "1/1"


def request(policy: str, payload: Payload, actions: Iterable[str], seed: Iterable[Step] = ()) -> dict[str, Any]:
    """Return the data that a run of the machine begins with. `actions` are the policies that it may call, `seed` the first steps of its own ledger.

    The field `about` is a short text for lists of runs.
    """
    text = payload.get("text")
    about = f"{policy}: {text}" if isinstance(text, str) else policy
    steps = [step.to_json() for step in seed]
    return {"policy": policy, "payload": dict(payload), "actions": sorted(actions), "seed": steps, "about": about}


@answering("gave", "gave_error")
async def perform(action: Action, context: PolicyContext) -> list[Step]:
    """Call the policy that the run is for. Error steps are a result, too; an exception is not."""
    call, seed = _request_in(action.payload["data"])
    steps = await context.call(call, seed=seed)
    event = "gave_error" if steps and steps[-1].payload.get("error") is True else "gave"
    return [event_step(PERFORM, event, data={"steps": [step.to_json() for step in steps]})]


def _request_in(data: object) -> tuple[Action, list[Step]]:
    """Read the data that a run began with. Raises TypeError for data that `request` would not return."""
    if not isinstance(data, dict) or not isinstance(data.get("policy"), str):
        raise TypeError(
            'the data of a policy\'s run must be {"policy": NAME, "payload": OBJECT, "actions": [NAME, ..], "seed": [STEP, ..]}'
        )
    actions = frozenset(data.get("actions") or ())
    return Action(data["policy"], data.get("payload") or {}, actions), [Step(**step) for step in data.get("seed") or ()]


def require_policy(data: object, binding: Bindings) -> None:
    """Raise BindingError if a run asks for a policy that does not exist, and TypeError for data that does not ask for one."""
    if binding.effects.get(PERFORM) is perform and data is not None:
        binding.policies[_request_in(data)[0].policy]


def policy_steps(run: Run) -> tuple[dict[str, Any], ...] | None:
    """Return the steps of a run's policy; None before it has finished, and for a run of another machine."""
    if run.machine.name != POLICY or not run.is_finished:
        return None
    last = [entry for entry in run.ledger if isinstance(entry, EventEntry) and entry.event.startswith("gave")][-1]
    return tuple(last.data["steps"])


def answer_text(steps: Iterable[Mapping[str, Any]]) -> str:
    """Return the last text among steps, or else the payload of the last step as JSON; "" for no steps."""
    payloads = [step["payload"] for step in steps]
    texts = [payload["text"] for payload in payloads if isinstance(payload.get("text"), str)]
    last = payloads[-1] if payloads else {}
    if texts and last.get("error") is not True:
        return str(texts[-1])
    return json.dumps(last, ensure_ascii=False, indent=2) if payloads else ""


def calls_of_policy(run: Run) -> tuple[CallNode, ...]:
    """Return the calls of a run of the machine, in the order of their paths; none for a run of another machine."""
    return calls_of(run.ledger, _KEY) if run.machine.name == POLICY else ()


async def replay_policy(run: Run, policies: Registry, config: Mapping[str, Any]) -> ReplayReport:
    """Replay the calls of policies in a run, without effects on the world. Raises what `replay_calls` does."""
    action, seed = _request_in(run.specification)
    return await replay_calls(run.ledger, policies, action, seed=seed, run_id=run.run_id, key=_KEY, config=config)


ENTRY_POINTS = "dsa.bindings"
BINDINGS_FILE = "bindings.py"
#: A source of definitions: a module, or bindings.
Names = ModuleType | Bindings
#: The beginning of the name of a module that was read from a file.
FROM_FILE = "dsa_bindings_"
DEFAULT_MODEL = "local"


def bind(
    machine: Machine,
    *,
    path: Path | None = None,
    module: str | Path | ModuleType | Bindings | None = None,
    model: str = DEFAULT_MODEL,
    seed: int | None = None,
    secret_options: SecretOptions | None = None,
    machines: NestedBuilder | None = None,
    config: Mapping[str, Any] | None = None,
) -> Bindings:
    """Bind every name of the machine. Raises one BindingError that lists all faults, MachineError, ModelUnavailable, DsaError for a secret.

    `path` is the machine's document: files that options name are relative to its folder, or without it to the working folder. `module` is a module, the name or
    file of one, or a Bindings for some of the names; without it `bindings.py` beside `path` is used. Names that it does not define come from the
    entry points of the group `dsa.bindings` (the dual-state agent's are there). `secret_options` and the module's `secret_names` add to the secrets
    that are found by their names. `machines` makes generators that are machines. Policies can read `config`, model and seed. Faults are names that
    cannot be bound, modules that cannot be imported, objects that cannot do the work of their names, names close to one that the machine uses, and
    settings that the module refuses (`fault_of_settings`).
    """
    require_sound(machine)
    modules = tuple(_modules(machine.name, path, module))
    definitions = _merge(modules)
    effects = _effects_of(machine, definitions)
    misnamings, notes = _own_misnamings(modules, path, module, machine)
    faults = [*map(str, misfits(machine, definitions)), *effect_faults(machine, effects), *misnamings]
    folder = None if path is None else _folder(path)
    sources: dict[str, Any] = {"extra": definitions.generators, "nested": machines, "folder": folder}
    generator_of: GeneratorOf = partial(build_generator, machine=machine, model=model, seed=seed, **sources)
    guards = _guards(machine, lambda name: build_guard(name, machine, definitions.guards, generator_of, folder), faults)
    generators = {**definitions.generators, **_generators(machine, generator_of, faults)}
    full_config = {**(config or {}), "model": model, "seed": seed}
    if faults := [*faults, *_settings_faults(modules, full_config)]:
        raise BindingError("\n".join(faults))
    secrets = environment_secrets(_secret_names(modules) | (secret_options or SecretOptions()))
    spenders = _spenders(modules, machine)
    return Bindings(effects, guards, generators, secrets, definitions.policies, full_config, tuple(notes), spenders)


def import_kinds(module: str | None = None) -> None:
    """Import a module by name or file, and those of the entry points, so that their kinds of guards and generators are registered.

    Raises BindingError for a module that cannot be imported.
    """
    for _ in _modules("", None, module):
        pass


def _effects_of(machine: Machine, definitions: Bindings) -> dict[str, Policy]:
    """Return the policies of a machine's effects; one of a family has the policy of the name without index."""
    policies = definitions.effects
    names = ((name, name if name in policies else without_index(name)) for name, _ in effect_names(machine))
    return {name: policies[own] for name, own in names if own in policies}


def handlers_of(machine: Machine) -> dict[str, Policy]:
    """Return the policies of a machine's effects from the entry points, if there is a valid one for every effect; else none."""
    if machine.name == POLICY:
        return {}  # its effect calls a policy that the run names
    definitions = _merge(tuple(_modules(machine.name, None, None)))
    effects = _effects_of(machine, definitions)
    return {} if effect_faults(machine, effects) else effects


def effect_faults(machine: Machine, effects: Mapping[str, Policy]) -> list[str]:
    """Return a fault for each effect without a policy, and for each policy's answer that the machine does not declare."""
    faults = []
    for name, span in effect_names(machine):
        policy = effects.get(name)
        if policy is None:
            faults.append(f"{_place(span)}the effect '{name}' has no policy: add one to `effects` of {BINDINGS_FILE}")
        elif isinstance(policy, AnsweringPolicy):
            events = machine.answers.get(name, ())
            unknown = sorted(policy.answers.difference(events, map(without_index, events)))
            faults.extend(
                f"{_place(span)}the code of '{name}' can return the event '{event}', but the document does not say so: add a row for '{event}' to the Events table, with {name} in the column 'from' "
                f"(so far, the events from {name} are: {', '.join(events) if events else 'none'})"
                for event in unknown
            )
    return faults


def _place(span: Span | None) -> str:
    return f"{span}: " if span else ""


def _guards(machine: Machine, build: Callable[[str], GuardInterface], faults: list[str]) -> dict[str, GuardInterface]:
    """Build the guards that a machine reads; add errors to the faults."""
    guards = {}
    for name, span in _read_guards(machine).items():
        try:
            guards[name] = build(name)
        except BindingError as error:
            faults.append(str(error) if error.span else f"{_place(span)}{error}")
    return guards


def _generators(machine: Machine, build: GeneratorOf, faults: list[str]) -> dict[str, GeneratorInterface]:
    """Build the generators that a machine uses; add errors to the faults."""
    generators = {}
    for name in _generators_needed(machine):
        try:
            generators[name] = build(name)
        except BindingError as error:
            faults.append(str(error))
    return generators


def _read_guards(machine: Machine) -> dict[str, Span | None]:
    """Return the guards that rows read, with the places of their declarations."""
    read = {guard for row in machine.transitions for guard in guards_read(row.condition)}
    return {guard.name: guard.span for guard in machine.guards if guard.name in read}


def _generators_needed(machine: Machine) -> tuple[str, ...]:
    if not any(name == GENERATING_EFFECT for name, _ in effect_names(machine)):
        return ()
    if machine.steps:
        return tuple(dict.fromkeys(step.generator for step in machine.steps))
    return (generator_name(machine, ""),)


def generator_name(machine: Machine, step: str) -> str:
    """Return the name of a step's generator: its own, else the machine's only one, else `llm`."""
    declaration = machine.step_named.get(step)
    generator = None if declaration is None else declaration.generator
    if generator is None and len(machine.generators) == 1:
        generator = machine.generators[0].name
    return generator or DEFAULT_GENERATOR


# -- where bindings come from ---------------------------------------------------------------------------------------


def _folder(path: Path) -> Path:
    """Return the folder of a document, as an absolute or a relative path, whichever is shorter."""
    whole = path.parent.absolute()
    return Path(min(str(whole), os.path.relpath(whole), key=len))


def _own_misnamings(
    modules: tuple[Names, ...], path: Path | None, module: str | Path | ModuleType | Bindings | None, machine: Machine
) -> tuple[list[str], list[str]]:
    """Return the faults and the notes about the names of the user's own module. Installed packages are not checked: they are for many machines."""
    if module is None and (path is None or not (path.parent / BINDINGS_FILE).is_file()):
        return [], []
    own, *others = modules
    file = _file(own)
    if any(file and (other := _file(each)) and os.path.samefile(other, file) for each in others):  # noqa: PTH121
        return [], []
    return _misnamings(own, machine)


def _modules(machine: str, path: Path | None, module: str | Path | ModuleType | Bindings | None) -> Iterator[Names]:
    """Return the modules to look in, the nearest first."""
    if isinstance(module, Bindings | ModuleType):
        yield module
    elif isinstance(module, str | Path):
        yield _module_named(str(module))
    elif module is not None:
        raise BindingError(
            f"bindings cannot be of type {type(module).__name__}; pass a module, a module's name or file, or dsa.Bindings(..)"
        )
    elif path is not None and (beside := path.parent / BINDINGS_FILE).is_file():
        yield _module_beside(beside)
    if machine == POLICY:
        yield Bindings({PERFORM: perform})
    for point in sorted(installed_points(ENTRY_POINTS), key=lambda point: (point.name != machine, point.name)):
        yield _import(point.module)


def _module_beside(file: Path) -> ModuleType:
    """Import the module beside a document: that of a shipped machine by its name, once; another one from its file, whenever it is needed."""
    package = importlib.util.find_spec("machines")
    folder = file.resolve().parent
    homes = [] if package is None else [Path(each).resolve() for each in package.submodule_search_locations or ()]
    return _import(f"machines.{folder.name}.{file.stem}") if folder.parent in homes else _from_file(file)


def _module_named(module: str) -> ModuleType:
    if module.endswith(".py"):
        return _from_file(Path(module))
    if not all(part.isidentifier() for part in module.split(".")):
        raise BindingError(f"'{module}' is not the name of a module; write a module's name or a .py file")
    return _import(module)


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise BindingError(f"there is no module '{module}'; write a module's name or a .py file") from error
        raise BindingError(f"the module '{module}' cannot be imported: {_import_error_text(error)}") from error


class _SourceLoader(SourceFileLoader):
    """A loader that always reads the source: Python's cached bytecode counts as fresh for a file that was changed within a second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _from_file(path: Path) -> ModuleType:
    name = f"{FROM_FILE}{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    if spec is None or spec.loader is None or not path.is_file():
        raise BindingError(f"{path}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and attrs look their module up
    beside = str(path.parent.absolute())
    if beside not in sys.path:
        sys.path.append(beside)  # as for a program: it can import modules beside it, even later in its functions
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit in the module would end the program without an error
        del sys.modules[name]
        raise BindingError(
            f"{_line_in(path, error)}: this file cannot be imported: {_import_error_text(error)}"
        ) from error
    return module


def _import_error_text(error: BaseException) -> str:
    """Return an exception of an import in one line, without secrets."""
    text = environment_secrets().text(error.msg if isinstance(error, SyntaxError) else str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line_in(path: Path, error: BaseException) -> str:
    """Return a file with the last of its lines in an error's traceback, if there is one."""
    names = {str(path), str(path.absolute())}
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename in names]
    if isinstance(error, SyntaxError) and error.filename in names:
        lines.append(error.lineno)
    return f"{path}:{lines[-1]}" if lines and lines[-1] else str(path)


def _file(module: Names) -> str | None:
    return None if isinstance(module, Bindings) else getattr(module, "__file__", None)


def _where(module: Names) -> str:
    """Return the name of a module for a message."""
    return "the bindings" if isinstance(module, Bindings) else _file(module) or module.__name__


def _secret_names(modules: Iterable[Names]) -> SecretOptions:
    """Return the variables that modules declare as secrets. Raises BindingError for anything but a list of names."""
    names: list[str] = []
    for module in modules:
        value = getattr(module, "secret_names", ())
        if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
            where = _where(module)
            raise BindingError(f"{where}: `secret_names` is not a list of the names of environment variables")
        names += value
    return SecretOptions(tuple(names))


def _spenders(modules: Sequence[Names], machine: Machine) -> frozenset[str] | None:
    """Return the effects that a budget of the whole run stops, from the nearest module; None if it names none. Raises BindingError for other names."""
    if not modules or (value := getattr(modules[0], "spenders", None)) is None:
        return None
    if not isinstance(value, list | tuple | frozenset) or not set(value) <= set(machine.answers):
        where = _where(modules[0])
        raise BindingError(
            f"{where}: `spenders` may list only the effects that have answers, which are: {', '.join(machine.answers)}"
        )
    return frozenset(value)


def _settings_faults(modules: Sequence[Names], config: Mapping[str, Any]) -> list[str]:
    """Return why the nearest module refuses these settings; nothing if it accepts them."""
    fault_of = getattr(modules[0], _FAULT_OF_SETTINGS, None) if modules else None
    if fault_of is None:
        return []
    if not callable(fault_of):
        return [f"{_where(modules[0])}: `{_FAULT_OF_SETTINGS}` is {kind_of_object(fault_of)}, not a function"]
    fault = fault_of(config)
    return [fault] if fault else []


def _merge(modules: Iterable[Names]) -> Bindings:
    """Merge the definitions of modules; the first that defines a name wins. Raises BindingError for definitions of the wrong type."""
    definitions: dict[str, dict[str, Any]] = {"effects": {}, "guards": {}, "generators": {}}
    policies = Registry()
    for module in modules:
        for kind, names in definitions.items():
            definitions[kind] = {**_definition(module, kind, Mapping, "a dictionary with names as keys"), **names}
        policies = policies.union(_definition(module, "policies", Registry, "a Registry"))
    return Bindings(definitions["effects"], definitions["guards"], definitions["generators"], policies=policies)


def _definition(module: Names, kind: str, expected_type: type[Any], description: str) -> Any:  # noqa: ANN401  (as `kind` says)
    """Return a module's definitions of a kind, or an empty object."""
    value = getattr(module, kind, None)
    if value is None:
        return Registry() if expected_type is Registry else {}
    if not isinstance(value, expected_type):
        raise BindingError(f"{_where(module)}: `{kind}` is {kind_of_object(value)}, not {description}")
    return value


# -- names of a module that a machine cannot use ----------------------------------------------------------------------
# A name that is close to a name of the machine, for which the module has nothing, is a fault: otherwise something else
# would do its work. Any other name may be for another document, so there is only a note.

_FAULT_OF_SETTINGS = "fault_of_settings"
#: The names that a module of bindings may define, and their types.
_ATTRIBUTES: dict[str, tuple[type, ...]] = {
    "effects": (Mapping,),
    "guards": (Mapping,),
    "generators": (Mapping,),
    "policies": (Mapping, Registry),
    "secret_names": (list, tuple),
    "spenders": (list, tuple),
    _FAULT_OF_SETTINGS: (FunctionType,),
}
_NEAR = 0.75
_RUNS_MACHINE = "machine"


def _misnamings(module: Names, machine: Machine) -> tuple[list[str], list[str]]:
    """Return the faults and the notes about a module's names. The names that a machine inside this one uses are not known here."""
    file = _file(module)
    where = min(file, os.path.relpath(file), key=len) if file else _where(module)
    faults, notes = [], [] if isinstance(module, Bindings) else _attributes(module, where)
    sleeps = {*sleeping_effects(machine), *map(without_index, sleeping_effects(machine))}
    for name in sorted(sleeps.intersection(getattr(module, "effects", None) or {})):
        notes.append(
            f"{where} defines the effect '{name}', which is a sleep in the table and needs no policy; this definition is not used"
        )
    for attribute, (usable, candidates) in _names_used(machine).items():
        definitions = getattr(module, attribute, None) or {}
        for name in sorted(str(each) for each in definitions if each not in usable):
            message = f"{where} defines the {attribute.removesuffix('s')} '{name}', which is not in any table"
            candidate = _nearest(name, candidates - set(definitions))
            if candidate is not None:
                faults.append(f"{message}; did you mean '{candidate}'?{_otherwise(attribute, candidate)}")
            elif not _has_parts(machine) and not _is_named_beside(name, file):
                notes.append(f"{message}; it is not used")
    return faults, notes


def _is_named_beside(name: str, file: str | None) -> bool:
    """Return whether a document beside a module has the name: one module may be for all documents of its folder."""
    beside = Path(file).parent.glob("*.md") if file else ()
    word = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.])")
    return any(word.search(each.read_text(encoding="utf-8", errors="replace")) for each in beside)


def _names_used(machine: Machine) -> dict[str, tuple[set[str], set[str]]]:
    """Return, by attribute of a module, the names that the machine can use, and those that it uses without declaring what they are."""
    effects = {*machine.effect_named, *map(without_index, machine.effect_named)}
    options = {guard.name: dict(guard.options) for guard in machine.guards}
    parts = {part.strip() for each in options.values() for part in each.get("of", "").split(",")} - {""}
    read = {guard for row in machine.transitions for guard in guards_read(row.condition)}
    guards = {name for step in machine.steps for name in step.guards} | parts | read
    judges = {each["by"].strip() for each in options.values() if "by" in each}
    generators = {step.generator for step in machine.steps} | judges | {row.name for row in machine.generators}
    return {
        "effects": (effects, effects),
        "guards": (
            guards | {name for row in machine.guards for name in (row.name, row.kind)},
            guards - {row.name for row in machine.guards if row.kind},
        ),
        "generators": (
            generators | {row.kind for row in machine.generators} | {DEFAULT_GENERATOR},
            generators - {row.name for row in machine.generators if row.kind},
        ),
    }


def _has_parts(machine: Machine) -> bool:
    """Return whether some generator is a machine itself: the module may be for that machine too."""
    return any(_RUNS_MACHINE in (row.kind, row.name) for row in machine.generators)


def _nearest(name: str, names: set[str]) -> str | None:
    """Return the name that was probably meant. Names that differ only in their numbers are siblings, not mistakes."""
    others = (each for each in names if _without_digits(each) != _without_digits(name))
    return nearest(name, others, _NEAR)


def _without_digits(name: str) -> str:
    return "".join(character for character in name if not character.isdigit())


def _otherwise(attribute: str, name: str) -> str:
    if attribute == "effects":
        return ""
    return f"\n        hint: if not, write the kind of '{name}' in the column `is` of a table {attribute.capitalize()}"


def _attributes(module: ModuleType, where: str) -> list[str]:
    """Return a note for each name of a module that looks like a misspelt attribute."""
    notes = []
    for name, value in vars(module).items():
        missing = [
            attribute
            for attribute, types in _ATTRIBUTES.items()
            if not hasattr(module, attribute) and isinstance(value, types)
        ]
        candidate = None if name.startswith("_") else nearest(name, missing, _NEAR)
        if candidate is not None and name not in _ATTRIBUTES:
            notes.append(f"{where} has `{name}`, which nothing reads; did you mean `{candidate}`?")
    return notes
