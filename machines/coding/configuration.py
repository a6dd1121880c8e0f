"""The settings of `dsa code`, from one file: `dsa.toml`, or `[tool.dsa]` of `pyproject.toml`.

Takes a file's text, gives what the policies read; what the command line says goes before it. An unknown name is an error, with what there is. The
file is read when the work begins: what an agent writes into it later changes nothing.

    [code]
    model = "http://127.0.0.1:8000/v1#my-model"    mode = "auto-edit"       temperature = 0.2
    context_tokens = 16000                          commit = true            network = ["example.org"]
    protected = ["tests/acceptance/*"]              polling = ["git_status"] budget = ["usd=1"]
    [code.commands.programs.make]
    arguments = ["test", "lint"]
    [code.mcp.words]
    command = ["python", "words.py"]
    [[code.templates.notes]]
    description = "Write notes"
    subtasks = ["write_file notes.md about {goal}"]
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsa.edge.sandbox.hosts import places
from dsa.errors import DocumentError
from machines.coding.plan import tasks_from
from machines.coding.resources import MODES
from machines.coding.servers.foreign import Server
from machines.coding.tools.programs import Rules

TEMPERATURE = 0.2
_NAMES: dict[str, tuple[type, ...]] = {
    "model": (str,), "mode": (str,), "seed": (int,), "temperature": (int, float), "max_tokens": (int,), "context_tokens": (int,),
    "json_mode": (bool,), "commit": (bool,), "test_first": (bool,), "unconfined": (bool,), "network": (list,), "protected": (list,), "polling": (list,),
    "budget": (list,), "commands": (dict,), "mcp": (dict,), "templates": (dict,), "max_rounds": (int,), "max_turns": (int,), "max_calls": (int,),
}  # fmt: skip
PARAMETERS = ("max_rounds", "max_turns", "max_calls")


def default_model() -> str:
    """Give the model that is asked when nobody names one (seed 003): Ollama's, by OLLAMA_MODEL and OLLAMA_HOST."""
    host = os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
    address = host if "://" in host else f"http://{host}"
    return f"{address}/api#{os.environ.get('OLLAMA_MODEL') or 'gpt-oss:20b'}"


def read_configuration(folder: Path, named: Path | None = None, workspace: Path | None = None) -> dict[str, Any]:
    """Read the settings that hold in a folder; none where there is no file.

    `pyproject.toml` of the workspace may have been written by an agent, and settings start programs: it has to be named. (`dsa.toml` is never
    written by one.) Raises DocumentError.
    """
    if named is not None:
        return _read(named, named.name == "pyproject.toml")
    for path, is_project in ((folder / "dsa.toml", False), (folder / "pyproject.toml", True)):
        if path.is_file() and (found := _read(path, is_project)):
            if is_project and workspace is not None and path.resolve().is_relative_to(workspace.resolve()):
                raise DocumentError(
                    str(path),
                    "it lies in the workspace, where an agent may have written [tool.dsa]: say --config pyproject.toml, or use dsa.toml",
                )
            return found
    return {}


def _read(path: Path, is_project: bool) -> dict[str, Any]:  # noqa: FBT001  (which of two files)
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DocumentError(str(path), f"the configuration cannot be read: {error}") from error
    table = said.get("tool", {}).get("dsa", {}) if is_project else said
    code = table.get("code", {}) if isinstance(table, Mapping) else {}
    try:
        return checked(code)
    except ValueError as error:
        raise DocumentError(str(path), f"[{'tool.dsa.' if is_project else ''}code]: {error}") from error


def checked(code: object) -> dict[str, Any]:
    """Give settings that mean something. Raises ValueError, naming what would."""
    if not isinstance(code, Mapping):
        raise ValueError("it is no table")  # noqa: TRY004  (a file's value)
    for name, value in code.items():
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, n=1)
            raise ValueError(
                f"there is no setting '{name}'{f': did you mean {near[0]}?' if near else ''}; there are: {', '.join(_NAMES)}"
            )
        is_truth = isinstance(value, bool)
        if not isinstance(value, _NAMES[name]) or (is_truth and bool not in _NAMES[name]):
            raise ValueError(
                f"{name} = {value!r} is to be of the kind {' or '.join(each.__name__ for each in _NAMES[name])}"
            )
        if isinstance(value, list) and not all(isinstance(each, str) for each in value):
            raise ValueError(f"{name} is to be a list of texts")
    if code.get("mode", MODES[0]) not in MODES:
        raise ValueError(f"mode = '{code['mode']}' is none of {', '.join(MODES)}")
    for host in code.get("network", ()):
        places(host)
    Rules.from_mapping(code.get("commands", {}))
    for name, server in code.get("mcp", {}).items():
        Server.from_mapping(name, server)
    for name, tasks in code.get("templates", {}).items():
        if not tasks_from(tasks):
            raise ValueError(f"templates.{name} has no tasks: each has a description and subtasks")
    return dict(code)
