"""The settings of a coding run: what policies read of how it was begun, and what `[code]` of a file and the command line say of it.

A setting that nobody has said is None. What a run is begun with is JSON in its ledger, and read by `settings_of` alone.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from dsa.errors import BindingError
from dsa.runtime.journal import Recorded
from dsa.runtime.ledger import MachineEntry
from machines.tool_use.records import JsonObject, read_record


def _texts(given: Any) -> tuple[str, ...] | None:  # noqa: ANN401  (a list of JSON)
    return None if given is None else tuple(given)


@attrs.frozen
class CodingSettings:
    """How a goal is worked at. `commands` are rules of programs and `mcp` servers, as their own modules read them.

    Of a part are `part_of`, the run of the whole; `allowed`, what was let happen in it; and `files_before`, what had been written before.
    """

    temperature: float | None = None
    seed: int | None = None
    mode: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    context_tokens: int | None = None
    json_mode: bool | None = None
    commit: bool | None = None
    test_first: bool | None = None
    unconfined: bool | None = None
    network: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    protected: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    polling: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    budget: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    parallel: int | None = None
    commands: JsonObject | None = None
    mcp: Mapping[str, JsonObject] | None = None
    workspace: str = ""
    part_of: str | None = None
    allowed: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)
    files_before: tuple[str, ...] | None = attrs.field(default=None, converter=_texts)

    def over(self, other: "CodingSettings") -> "CodingSettings":
        """Return these, and those of the other where these say nothing."""
        return attrs.evolve(other, **dict(self.items()))

    def items(self) -> Iterator[tuple[str, Any]]:
        """Give what somebody has said, by its name."""
        for field in attrs.fields(type(self)):
            if (value := getattr(self, field.name)) != field.default:
                yield field.name, value


def settings_of(config: object) -> CodingSettings:
    """Return the settings that stand in what a run was begun with. Raises BindingError for what means nothing."""
    try:
        return read_record(CodingSettings, config)
    except ValueError as error:
        raise BindingError(f"the settings of the run cannot be read: {error}") from error


def workspace_fault(settings: CodingSettings) -> str:
    """Return why nobody can go on in the workspace now; nothing where it is there, or none is set."""
    workspace = settings.workspace
    if not workspace or Path(workspace).is_dir():
        return ""
    return f"{workspace}: the run's workspace is gone; the run stays as it is until the folder is back"


def settings_recorded(recorded: Recorded) -> CodingSettings:
    """Return the settings that a run was begun with, its budget among them; of one without any, none."""
    first = recorded.entries[0]
    started = dict(first.started) if isinstance(first, MachineEntry) else {}
    return settings_of({**(started.get("config") or {}), "budget": started.get("budget")})
