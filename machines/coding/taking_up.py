"""What the command line says of a run that is taken up: it keeps the settings that it was begun with.

Takes the options that were said and what the run's ledger begins with, names those that are others. The model and the budget may be others: they
are no matter of these.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from dsa.expr import Value
from dsa.runs.setup import absolute_script
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import EventEntry, MachineEntry
from machines.coding.configuration import PARAMETERS
from machines.coding.plan import Task
from machines.coding.session import NAME

#: Options that stand under their own names in what a run is begun with.
_OPTIONS = ("mode", "seed", "parallel", "network", "json_mode", "test_first", "workspace")


@attrs.frozen
class Begun:
    """With what a run was begun: its settings, the budget among them, its bounds, its goal, and its tasks where a template gave them."""

    config: Mapping[str, Any]
    parameters: Mapping[str, Value]
    goal: str
    tasks: Sequence[Any]


def begun_of(recorded: Recorded) -> Begun | None:
    """Give with what a run of the coding machine was begun; None for any other."""
    first = recorded.entries[0]
    if not isinstance(first, MachineEntry) or first.name != NAME:
        return None
    said: Any = next((entry.data for entry in recorded.entries if isinstance(entry, EventEntry)), None)
    given = said if isinstance(said, Mapping) else {}
    started = dict(first.started)
    config = {**started.get("config", {}), "budget": started.get("budget")}
    return Begun(config, dict(first.parameters), given.get("text", ""), given.get("tasks") or ())


def fault_of(begun: Begun, said: Mapping[str, Any], settings: Mapping[str, Any], tasks: Sequence[Task]) -> str:
    """Say which option is another one than the run was begun with; empty when none is.

    `said` are the options of the command line that were said, `settings` those of the file that it names, `tasks` those of the template.
    """
    for option, value in _others(begun, said, settings):
        return f"{option} cannot be changed for a run that was begun: it has {_shown(value)}; --fresh begins anew"
    if "named" in said and [task.to_json() for task in tasks] != list(begun.tasks):
        return "--template cannot be changed for a run that was begun: it has other tasks; --fresh begins anew"
    return ""


def _others(begun: Begun, said: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give each option that is another one, and what the run has."""
    bounds = said.get("parameters", {})
    for name in _OPTIONS:
        if name in said and not _is_same(said[name], has := _had(begun, name)):
            yield f"--{name.replace('_', '-')}", has
    for name, value in bounds.items():
        if (has := _had(begun, name)) != value:
            yield f"--param {name}", has
    for name, value in settings.items():
        if name in said or name in bounds or name == "templates":
            continue
        if not _is_same(absolute_script(value) if name == "model" else value, has := _had(begun, name)):
            yield f"{name} of --config", has


def _had(begun: Begun, name: str) -> Any:  # noqa: ANN401  (JSON)
    if name in PARAMETERS:
        return begun.parameters.get(name)
    return begun.config.get(name, 1 if name == "parallel" else None)


def _is_same(value: Any, has: Any) -> bool:  # noqa: ANN401  (an option's value, and JSON)
    """Tell whether a setting is what the run has; what is off, or empty, is as what it never had."""
    return ((list(value) if isinstance(value, tuple) else value) or None) == (has or None)


def _shown(value: Any) -> str:  # noqa: ANN401  (JSON)
    if isinstance(value, bool) or value in (None, [], ""):
        return "it" if value is True else "none"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
