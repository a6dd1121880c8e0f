"""The configuration of `dsa code`, from one file: `dsa.toml`, or `[tool.dsa]` of `pyproject.toml`.

The result is the settings for the policies; options of the command line override them. An unknown name is an error, which lists the known ones. The file is
read at the start of the work, so later edits by an agent have no effect.

    [code]
    model = "http://127.0.0.1:8000/v1#my-model"    mode = "auto-edit"       temperature = 0.2
    context_tokens = 16000                          commit = true            network = ["example.org"]
    protected = ["tests/acceptance/*"]              polling = ["git_status", "python status.py"]
    parallel = 3                                    budget = ["usd=1"]
    [code.commands.programs.make]
    arguments = ["test", "lint"]
    [code.mcp.words]
    command = ["python", "words.py"]
    [[code.templates.notes]]
    description = "Write notes"
    subtasks = ["write_file notes.md about {goal}"]
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import attrs

from dsa.edge.document_files import load
from dsa.edge.sandbox.host_proxy import places
from dsa.errors import DocumentError
from dsa.generators.model_options import LOCAL, require_model_name
from dsa.runs.setup import absolute_script
from dsa.runtime.costs import read_limit
from dsa.runtime.generation import ModelUnavailable
from dsa.text import closest, nearest
from machines.coding.coding_resources import MODES, CodingSettings, polled_command
from machines.coding.coding_tools import COMPLETE, TOOLS
from machines.coding.task_plan import Task, faults_of, tasks_from
from machines.coding.tools.mcp_results import prefix
from machines.coding.tools.mcp_tools import McpServer
from machines.coding.tools.program_rules import Rules
from machines.coding.tools.workspace_boundary import PathPattern
from machines.tool_use.records import JsonObject, as_data
from machines.tool_use.transcript import LEAST_TOKENS

TEMPERATURE = 0.2
_MACHINE = Path(__file__).with_name("machine.md")
_NAMES: dict[str, tuple[type, ...]] = {
    "model": (str,), "mode": (str,), "seed": (int,), "temperature": (int, float), "max_tokens": (int,), "context_tokens": (int,),
    "json_mode": (bool,), "commit": (bool,), "test_first": (bool,), "unconfined": (bool,), "network": (list,), "protected": (list,), "polling": (list,),
    "budget": (list,), "parallel": (int,), "commands": (dict,), "mcp": (dict,), "templates": (dict,), "max_rounds": (int,), "max_turns": (int,), "max_calls": (int,),
}  # fmt: skip
PARAMETERS = ("max_rounds", "max_turns", "max_calls")
MOST_PARALLEL = 8
_KINDS: dict[type, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list of texts", dict: "a table",
}  # fmt: skip
_OF_TASK = ("description", "subtasks", "independent")
_GOAL, _PLACEHOLDER = "{goal}", re.compile(r"\{\w+\}")
#: The ranges of numbers.
_RANGES: dict[str, tuple[float, float]] = {
    "max_rounds": (1, inf), "max_turns": (1, inf), "max_calls": (1, inf),
    "temperature": (0, 2), "max_tokens": (1, inf), "context_tokens": (LEAST_TOKENS, inf), "parallel": (1, MOST_PARALLEL),
}  # fmt: skip
_LOOK_TOOLS = tuple(tool.name for tool in TOOLS if tool.kind == "looking" and tool.name != COMPLETE)


@attrs.frozen
class CodeConfiguration:
    """The content of a file, or the options of the command line: settings, parameters of the machine, and tasks of templates by name."""

    settings: CodingSettings = attrs.field(factory=CodingSettings)
    parameters: Mapping[str, int] = attrs.field(factory=dict)
    templates: Mapping[str, tuple[Task, ...]] = attrs.field(factory=dict)


def default_model() -> str:
    """Return the default model (seed 003): Ollama's, from OLLAMA_MODEL and OLLAMA_HOST."""
    host = os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
    address = host if "://" in host else f"http://{host}"
    return f"{address}/api#{os.environ.get('OLLAMA_MODEL') or 'gpt-oss:20b'}"


def read_configuration(folder: Path, file: Path | None = None, workspace: Path | None = None) -> CodeConfiguration:
    """Return the configuration of a folder, empty when it has no file.

    An agent may have written the workspace's `pyproject.toml`, and settings start programs, so that file needs --config. (No agent can write
    `dsa.toml`.) Raises DocumentError.
    """
    if file is not None:
        return _read(file, file.name == "pyproject.toml")
    for path, is_project in ((folder / "dsa.toml", False), (folder / "pyproject.toml", True)):
        if path.is_file() and (configuration := _read(path, is_project)) != CodeConfiguration():
            if is_project and workspace is not None and path.resolve().is_relative_to(workspace.resolve()):
                raise DocumentError(
                    str(path),
                    "this file is in the workspace, so an agent may have written [tool.dsa]: to use it, add --config pyproject.toml, or use dsa.toml instead",
                )
            return configuration
    return CodeConfiguration()


def settings_to_start(choices: CodingSettings, file: CodeConfiguration, workspace: Path) -> CodingSettings:
    """Return the settings of new work in a folder: those that a person has chosen, then those of a file, then the defaults.

    Raises ValueError for a setting that is not valid, ModelUnavailable for a model that cannot call tools.
    """
    defaults = CodingSettings(TEMPERATURE, 0, MODES[0], default_model(), workspace=str(workspace))
    settings = configuration_from(as_data(choices)).settings.over(file.settings).over(defaults)
    settings = attrs.evolve(settings, model=absolute_script(settings.model or ""))
    if settings.model == LOCAL and not settings.json_mode:
        raise ModelUnavailable(
            "the local model cannot call tools: add --json-mode, so that it fills in a schema instead, or name another model with --model"
        )
    return settings


def _read(path: Path, is_project: bool) -> CodeConfiguration:  # noqa: FBT001  (which of two files)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DocumentError(str(path), f"the configuration cannot be read: {error}") from error
    section: Any = content.get("tool", {}) if is_project else {"dsa": content}
    table = section.get("dsa", {}) if isinstance(section, Mapping) else {}
    try:
        _require_code_alone(table, "tool.dsa." if is_project else "")
        return configuration_from(table.get("code", {}))
    except ValueError as error:
        raise DocumentError(str(path), f"[{'tool.dsa.' if is_project else ''}code]: {error}") from error


def _require_code_alone(table: object, before: str) -> None:
    """Raise ValueError for settings outside [code], which would have no effect."""
    if not isinstance(table, Mapping):
        raise ValueError("the settings must be a table")  # noqa: TRY004  (a file's value)
    for name, value in table.items():
        if name != "code":
            what = f"the table [{name}]" if isinstance(value, Mapping) else f"{name} = {value!r}"
            belongs = "code.commands.programs" if name == "programs" else f"code.{name}"
            is_known = name == "programs" or (name in _NAMES and isinstance(value, Mapping))
            hint = f"write [{before}{belongs}]" if is_known else f"write all settings in [{before}code]"
            raise ValueError(f"{what} is outside [{before}code] and has no effect: {hint}")


def configuration_from(code: object) -> CodeConfiguration:
    """Return the configuration from JSON-like settings. Raises ValueError for an invalid one, with the allowed values."""
    if not isinstance(code, Mapping):
        raise ValueError("the settings must be a table")  # noqa: TRY004  (a file's value)
    for name, value in code.items():
        _require_kind(name, value)
        least, most = _RANGES.get(name, (-inf, inf))
        if name in _RANGES and not least <= value <= most:
            raise ValueError(
                f"{name} = {value!r} must be {f'{least:g} to {most:g}' if most < inf else f'{least:g} or more'}"
            )
    settings = CodingSettings(**{name: value for name, value in code.items() if name not in {*PARAMETERS, "templates"}})
    if settings.model is not None:
        require_model_name(settings.model)
    if settings.mode is not None and settings.mode not in MODES:
        raise ValueError(f"mode = '{settings.mode}' is not a mode; {closest(settings.mode, MODES)}")
    _require_lists(settings)
    rules = Rules.from_mapping(settings.commands or {})
    for name, server in (settings.mcp or {}).items():
        McpServer.from_mapping(name, server)
    _require_polling(settings, rules)
    tasks = {name: _tasks(name, template) for name, template in code.get("templates", {}).items()}
    return CodeConfiguration(settings, {name: code[name] for name in PARAMETERS if name in code}, tasks)


def _require_kind(name: str, value: object) -> None:
    """Raise ValueError for an unknown setting, or a value of the wrong type."""
    if name not in _NAMES:
        raise ValueError(f"there is no setting '{name}'; {closest(name, _NAMES)}")
    is_truth = isinstance(value, bool)
    if not isinstance(value, _NAMES[name]) or (is_truth and bool not in _NAMES[name]):
        kinds = " or ".join(dict.fromkeys(_KINDS[each] for each in _NAMES[name]))
        raise ValueError(f"{name} = {_as_toml(value)} must be {kinds}")
    if isinstance(value, list) and not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} must be a list of texts")


def _as_toml(value: object) -> str:
    """Return a value as in TOML."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _require_lists(settings: CodingSettings) -> None:
    for name in ("network", "protected", "polling", "budget"):
        texts = getattr(settings, name) or ()
        if not all(each.strip() for each in texts):
            raise ValueError(f"{name} = {list(texts)!r} contains an empty text")
    _require_each("protected", settings.protected, PathPattern)
    _require_each("network", settings.network, places)
    if settings.budget is not None:
        _require_each("budget", settings.budget, partial(read_limit, effects=load(str(_MACHINE)).answers))


def _require_each(name: str, texts: Sequence[str] | None, parse: Callable[[str], object]) -> None:
    """Raise ValueError with the whole setting for a text that cannot be read."""
    for each in texts or ():
        try:
            parse(each)
        except ValueError as error:
            raise ValueError(f"{name} = {list(texts or ())!r}: {error}") from error


def _require_polling(settings: CodingSettings, rules: Rules) -> None:
    """Raise ValueError for an entry that is neither a tool that only looks nor a command.

    The history does not record the changes of a polling tool; it does record those of a command.
    """
    foreign, entries = tuple(map(prefix, settings.mcp or {})), settings.polling or ()
    _require_each("polling", entries, polled_command)
    for text in entries:
        if text in _LOOK_TOOLS or (foreign and text.startswith(foreign)) or polled_command(text)[0] in rules.names:
            continue
        raise ValueError(
            f"polling = {list(entries)!r}: '{text}' is unknown; use a read-only tool ({', '.join(_LOOK_TOOLS)}), "
            f"SERVER__TOOL of a server in [code.mcp], or a command of one of these programs: {', '.join(rules.names)}"
        )


def _tasks(name: str, value: object) -> tuple[Task, ...]:
    """Return the tasks of a template. Raises ValueError for an invalid one."""
    for task in value if isinstance(value, list) else ():
        if isinstance(task, Mapping):
            _require_task(f"templates.{name}", task)
    tasks = tasks_from(value)
    if not tasks:
        raise ValueError(f"templates.{name} has no tasks: write a description and subtasks for each")
    faults = faults_of(tasks)
    if isinstance(value, list) and len(tasks) < len(value):
        faults = [f"{len(value) - len(tasks)} of its {len(value)} tasks are not valid", *faults]
    if faults:
        raise ValueError(f"templates.{name}: {'; '.join(faults)}")
    return tasks


def _require_task(name: str, task: JsonObject) -> None:
    """Raise ValueError for an unknown name in a task, and for subtasks that are not a list."""
    if odd := sorted(set(task) - set(_OF_TASK)):
        raise ValueError(f"{name} has '{odd[0]}'; {closest(odd[0], _OF_TASK)}")
    subtasks = task.get("subtasks", [])
    if not isinstance(subtasks, list):
        raise ValueError(f"{name}: subtasks must be a list of texts")  # noqa: TRY004  (a file's value)
    texts = [str(task.get("description", "")), *map(str, subtasks)]
    for placeholder in (word for text in texts for word in _PLACEHOLDER.findall(text)):
        if placeholder != _GOAL and nearest(placeholder, [_GOAL]):
            raise ValueError(f"{name} has {placeholder}, which is not replaced: did you mean {_GOAL}?")
