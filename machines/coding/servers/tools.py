"""The tools that a server lists, as a model may see them: names that every provider takes, descriptions with an end.

Takes what a server has listed, gives `ForeignTool`. What a server says of its tools is a claim of the server. Pure.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import attrs

from machines.coding.servers.server import Approve, Server
from machines.coding.tools import output
from machines.coding.tools.errors import ToolError
from machines.tool_use.records import JsonObject

#: How many tools of one server may be used: more fill a prompt before anything is asked.
MOST_TOOLS = 100
_LONGEST_NAME, _LONGEST_DESCRIPTION, _LONGEST_SCHEMA = 64, 2_000, 20_000
_ODD_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_PLAIN_SERVER = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
_SHOWN_NAMES = 20


@attrs.frozen
class ForeignTool:
    """A tool of a server. `name` is how models call it, `tool` how its server does; `schema` is the JSON schema of its arguments.

    `reads_only` and `is_idempotent` (a second call changes nothing more) are what the server says of it. `approve` is the server's setting.
    """

    name: str
    server: str
    tool: str
    description: str
    schema: JsonObject
    reads_only: bool
    is_idempotent: bool
    approve: Approve | None


@attrs.frozen
class ListedTool:
    """A tool as a server lists it; nobody has looked at its `schema`."""

    name: str
    description: str
    schema: object
    reads_only: bool
    is_idempotent: bool


def read_tool(said: JsonObject) -> ListedTool:
    """Return a tool of a list. The package mcp has looked at the form of the list before."""
    hints = said.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    reads_only = hints.get("readOnlyHint") is True
    is_idempotent = reads_only or hints.get("idempotentHint") is True
    about = str(said.get("description") or said.get("title") or "")
    return ListedTool(str(said["name"]), about, said.get("inputSchema"), reads_only, is_idempotent)


def prefix(server: str) -> str:
    """Give how the names of a server's tools begin."""
    return f"{_ODD_IN_A_NAME.sub('_', server)[: _LONGEST_NAME // 3]}__"


def fitted(server: str, tool: str) -> str:
    """Give the name of a tool for models: `SERVER__TOOL`, of at most 64 letters, digits, `_` and `-`.

    What has to be altered for that ends in a digest of both names, so that it stays apart from others, and is the same every time.
    """
    made = prefix(server) + _ODD_IN_A_NAME.sub("_", tool)
    is_as_it_was = _PLAIN_SERVER.fullmatch(server) and made == f"{server}__{tool}"
    if is_as_it_was and len(made) <= _LONGEST_NAME:
        return made
    digest = sha256(f"{server}\0{tool}".encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{made[: _LONGEST_NAME - 9]}_{digest}"


def tools_of(name: str, server: Server, listed: Sequence[ListedTool]) -> tuple[ForeignTool, ...]:
    """Give the tools that may be used, in the server's order. Raises ToolError `bad_tools`."""
    known = Counter(each.name for each in listed)
    wanted = known.keys() if server.tools is None else set(server.tools)
    if missing := sorted(wanted - known.keys()):
        raise _bad(name, f"has no tool '{one_line(missing[0])}', which its `tools` name; it has: {shown_names(known)}")
    used = [each for each in listed if each.name in wanted]
    if len(used) > MOST_TOOLS:
        raise _bad(name, f"lists {len(used):,} tools, and {MOST_TOOLS} may be used; {_CHOOSE}")
    if twice := [each for each, count in known.items() if count > 1 and each in wanted]:
        raise _bad(name, f"lists two tools of the name '{one_line(twice[0])}'; {_CHOOSE}")
    return tuple(_tool(name, server, each) for each in used)


def check_apart(tools: Sequence[ForeignTool]) -> None:
    """Raise ToolError `bad_tools` where two tools have one name for models."""
    first: dict[str, ForeignTool] = {}
    for each in tools:
        other = first.setdefault(each.name, each)
        if other is not each:
            both = f"'{one_line(other.tool)}' of '{other.server}' and '{one_line(each.tool)}'"
            raise _bad(each.server, f"has a tool that cannot be told from another: {both} are both {each.name}")


_CHOOSE = 'name those to be used in its settings: tools = ["..", ".."]'


def _tool(name: str, server: Server, listed: ListedTool) -> ForeignTool:
    schema, odd = listed.schema, f"has a tool '{one_line(listed.name)}' whose"
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise _bad(name, f"{odd} `inputSchema` is no schema of an object; {_CHOOSE}")
    size = len(json.dumps(schema))
    if size > _LONGEST_SCHEMA:
        raise _bad(name, f"{odd} `inputSchema` has {size:,} characters, and {_LONGEST_SCHEMA:,} are allowed; {_CHOOSE}")
    return ForeignTool(
        fitted(name, listed.name), name, listed.name, _shortened(listed.description), schema,
        listed.reads_only, listed.is_idempotent, server.approve,
    )  # fmt: skip


def _shortened(description: str) -> str:
    text = _plain(description).strip()
    return text if len(text) <= _LONGEST_DESCRIPTION else f"{text[:_LONGEST_DESCRIPTION]} [..]"


def one_line(text: str, longest: int = 100) -> str:
    """Give what somebody else wrote as a short line without control characters."""
    line = " ".join(_plain(text).split())
    return line if len(line) <= longest else f"{line[:longest]}.."


def _plain(text: str) -> str:
    return output.shown(text.encode(errors="replace"), b"", 0, str)[0]


def shown_names(names: Iterable[str]) -> str:
    """Give names as an error has them: some, and how many more there are."""
    some = [one_line(name) for name in sorted(names)]
    more = f", and {len(some) - _SHOWN_NAMES:,} more" if len(some) > _SHOWN_NAMES else ""
    return (", ".join(some[:_SHOWN_NAMES]) or "none") + more


def _bad(server: str, what: str) -> ToolError:
    return ToolError("bad_tools", f"the MCP server '{server}' {what}")
