"""How an MCP server is started and what of it may be used, as a user configures it. Takes the table of a TOML file, gives `Server`. Pure."""

from collections.abc import Mapping, Sequence
from typing import Literal, Self, TypeGuard, get_args

import attrs

from dsa.errors import ParameterError
from machines.tool_use.records import JsonObject, read_record

Approve = Literal["ask", "always", "never"]
_SETTINGS = ("command", "env", "cwd", "timeout_s", "start_s", "tools", "approve")
_SECONDS = ("timeout_s", "start_s")
_LONGEST_S = 3_600.0


@attrs.frozen
class Server:
    """A server that is started as a process.

    `command` is the program with its arguments; `env` what its environment has beside PATH, HOME and LANG; an empty `cwd` is the current folder.
    `timeout_s` bounds each call, `start_s` its start, which everybody waits for. `tools` are the names that may be used (None: all). `approve` says
    whether a person is asked first, whatever the mode of a run is (None: the mode says it).
    """

    command: tuple[str, ...] = attrs.field(converter=tuple)
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    cwd: str = ""
    timeout_s: float = 60.0
    tools: tuple[str, ...] | None = attrs.field(default=None, converter=attrs.converters.optional(tuple))
    approve: Approve | None = None
    start_s: float = 20.0

    @classmethod
    def from_mapping(cls, name: str, said: object) -> Self:
        """Read the table `[mcp.NAME]`. Raises ParameterError."""
        where = f"[mcp.{name}]"
        if not isinstance(said, Mapping):
            raise ParameterError(f'{where} is a table with `command = ["PROGRAM", "ARGUMENT", ..]`')
        if unknown := sorted(set(said) - set(_SETTINGS)):
            raise ParameterError(f"{where} has no setting `{unknown[0]}`; there are: {', '.join(_SETTINGS)}")
        if fault := _fault(said):
            raise ParameterError(f"{where}: {fault}")
        return read_record(cls, said)


def _fault(said: JsonObject) -> str:
    """Say what is wrong with a table whose settings are all known; nothing where nothing is."""
    env, command = said.get("env", {}), said.get("command")
    if not _are_texts(command) or not command or not command[0]:
        return '`command` is needed: a list of texts, the program first, such as ["uvx", "some-server"]'
    if not isinstance(env, Mapping) or not all(_is_text(each) for pair in env.items() for each in pair):
        return '`env` is a table of texts, such as { API_TOKEN = ".." }'
    if any(not name or "=" in name for name in env):
        return "`env` has a name that no variable can have: it is empty, or has a `=`"
    if not _is_text(said.get("cwd", "")):
        return "`cwd` is a folder, as a text"
    if odd := [name for name in _SECONDS if not _is_time(said.get(name, 1.0))]:
        return f"`{odd[0]}` is a number of seconds, above 0 and up to {_LONGEST_S:g}"
    if said.get("tools") is not None and not _are_texts(said["tools"]):
        return "`tools` is a list of names of tools"
    if said.get("approve", "ask") not in get_args(Approve):
        return f"`approve` is one of: {', '.join(get_args(Approve))}"
    return ""


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST_S


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\x00" not in value


def _are_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(map(_is_text, value))
