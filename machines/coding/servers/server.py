"""How an MCP server is started and what of it may be used, as a user configures it. Takes the table of a TOML file, gives `Server`. Pure."""

from collections.abc import Mapping
from typing import Any, Literal, Self, get_args

import attrs

from dsa.errors import ParameterError

Approve = Literal["ask", "always", "never"]
_SETTINGS = ("command", "env", "cwd", "timeout_s", "tools", "approve")
_LONGEST_S = 3_600.0


@attrs.frozen
class Server:
    """A server that is started as a process.

    `command` is the program with its arguments; `env` what its environment has beside PATH, HOME and LANG; an empty `cwd` is the current folder.
    `timeout_s` bounds its start, and each call. `tools` are the names that may be used (None: all). `approve` says whether a person is asked first.
    """

    command: tuple[str, ...] = attrs.field(converter=tuple)
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    cwd: str = ""
    timeout_s: float = 60.0
    tools: tuple[str, ...] | None = attrs.field(default=None, converter=attrs.converters.optional(tuple))
    approve: Approve = "ask"

    @classmethod
    def from_mapping(cls, name: str, said: Mapping[str, Any]) -> Self:
        """Read the table `[mcp.NAME]`. Raises ParameterError."""
        where = f"[mcp.{name}]"
        if not isinstance(said, Mapping):
            raise ParameterError(f'{where} is a table with `command = ["PROGRAM", "ARGUMENT", ..]`')
        if unknown := sorted(set(said) - set(_SETTINGS)):
            raise ParameterError(f"{where} has no setting `{unknown[0]}`; there are: {', '.join(_SETTINGS)}")
        if fault := _fault(said):
            raise ParameterError(f"{where}: {fault}")
        return cls(**said)


def _fault(said: Mapping[str, Any]) -> str:
    """Say what is wrong with a table whose settings are all known; nothing where nothing is."""
    env, timeout_s = said.get("env", {}), said.get("timeout_s", 1.0)
    if not _are_texts(said.get("command")) or not all(said["command"][:1]) or not said["command"]:
        return '`command` is needed: a list of texts, the program first, such as ["uvx", "some-server"]'
    if not isinstance(env, Mapping) or not all(_is_text(each) for pair in env.items() for each in pair):
        return '`env` is a table of texts, such as { API_TOKEN = ".." }'
    if any(not name or "=" in name for name in env):
        return "`env` has a name that no variable can have: it is empty, or has a `=`"
    if not _is_text(said.get("cwd", "")):
        return "`cwd` is a folder, as a text"
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if not is_number or not 0 < timeout_s <= _LONGEST_S:
        return f"`timeout_s` is a number of seconds, above 0 and up to {_LONGEST_S:g}"
    if said.get("tools") is not None and not _are_texts(said["tools"]):
        return "`tools` is a list of names of tools"
    if said.get("approve", "ask") not in get_args(Approve):
        return f"`approve` is one of: {', '.join(get_args(Approve))}"
    return ""


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\x00" not in value


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))
