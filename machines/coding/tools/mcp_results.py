"""MCP data: the configuration of servers, the tools that they list, and the results of calls. Pure.

`McpServer` reads the table of a server in a TOML file. `tools_of` turns a server's list into `ForeignTool`s with names that every provider accepts and
descriptions of limited length; the facts about a tool are claims of its server. `result_of` turns the answer to a call into a result for a model, of limited
length and without secrets.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Literal, Self, TypeGuard, get_args

import attrs

from dsa.errors import ParameterError, ToolError
from dsa.runtime.speech import each_text
from machines.coding.tools import command_runner
from machines.tool_use.records import JsonObject, read_record

Approve = Literal["ask", "always", "never"]
_SETTINGS = ("command", "env", "cwd", "timeout_s", "start_s", "tools", "approve")
_SECONDS = ("timeout_s", "start_s")
_LONGEST_S = 3_600.0


@attrs.frozen
class McpServer:
    """A server that is started as a process.

    `command` is the program with its arguments. `env` is its environment beside PATH, HOME and LANG; an empty `cwd` is the current folder. `timeout_s` limits
    each call, `start_s` the start. `tools` are the names of the tools that may be used (None: all). `approve` says whether a person is asked first, whatever the
    mode of a run is (None: the mode decides).
    """

    command: tuple[str, ...] = attrs.field(converter=tuple)
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    cwd: str = ""
    timeout_s: float = 60.0
    tools: tuple[str, ...] | None = attrs.field(default=None, converter=attrs.converters.optional(tuple))
    approve: Approve | None = None
    start_s: float = 20.0

    @classmethod
    def from_mapping(cls, name: str, table: object) -> Self:
        """Read the table `[mcp.NAME]`. Raises ParameterError."""
        where = f"[mcp.{name}]"
        if not isinstance(table, Mapping):
            raise ParameterError(f'{where} must be a table with `command = ["PROGRAM", "ARGUMENT", ..]`')
        if unknown := sorted(set(table) - set(_SETTINGS)):
            raise ParameterError(f"{where} has no setting `{unknown[0]}`; the settings are: {', '.join(_SETTINGS)}")
        if fault := _fault(table):
            raise ParameterError(f"{where}: {fault}")
        return read_record(cls, table)


def _fault(table: JsonObject) -> str:
    """Return what is wrong with a table of known settings, or an empty text."""
    env, command = table.get("env", {}), table.get("command")
    if not _are_texts(command) or not command or not command[0]:
        return '`command` must be a list of texts, the program first, such as ["uvx", "some-server"]'
    if not isinstance(env, Mapping) or not all(_is_text(each) for pair in env.items() for each in pair):
        return '`env` must be a table of texts, such as { API_TOKEN = ".." }'
    if any(not name or "=" in name for name in env):
        return "`env` has a name that no variable can have: it is empty, or has a `=`"
    if not _is_text(table.get("cwd", "")):
        return "`cwd` must be a text, the path of a folder"
    if odd := [name for name in _SECONDS if not _is_time(table.get(name, 1.0))]:
        return f"`{odd[0]}` must be a number of seconds, above 0 and up to {_LONGEST_S:g}"
    if table.get("tools") is not None and not _are_texts(table["tools"]):
        return "`tools` must be a list of names of tools"
    if table.get("approve", "ask") not in get_args(Approve):
        return f"`approve` must be one of: {', '.join(get_args(Approve))}"
    return ""


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST_S


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\x00" not in value


def _are_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


#: The most tools of one server: more of them fill a prompt.
MOST_TOOLS = 100
_LONGEST_NAME, _LONGEST_DESCRIPTION, _LONGEST_SCHEMA = 64, 2_000, 20_000
_ODD_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_PLAIN_SERVER = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
_SHOWN_NAMES = 20


@attrs.frozen
class ForeignTool:
    """A tool of a server. Models call it by `name`, its server by `tool`; `schema` is the JSON schema of its arguments.

    `reads_only` and `is_idempotent` (a second call changes nothing more) are the server's claims. `approve` is the setting of the server.
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
    """A tool in a server's list; its `schema` is not checked yet."""

    name: str
    description: str
    schema: object
    reads_only: bool
    is_idempotent: bool


def read_tool(entry: JsonObject) -> ListedTool:
    """Return the tool in an entry of a list. The package mcp has checked the form of the list."""
    hints = entry.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    reads_only = hints.get("readOnlyHint") is True
    is_idempotent = reads_only or hints.get("idempotentHint") is True
    about = str(entry.get("description") or entry.get("title") or "")
    return ListedTool(str(entry["name"]), about, entry.get("inputSchema"), reads_only, is_idempotent)


def prefix(server: str) -> str:
    """Return the prefix of the names of a server's tools."""
    return f"{_ODD_IN_A_NAME.sub('_', server)[: _LONGEST_NAME // 3]}__"


def tool_name(server: str, tool: str) -> str:
    """Return the name of a tool for models: `SERVER__TOOL`, of at most 64 letters, digits, `_` and `-`.

    A name that has to be altered ends in a digest of both names, so that it is unique, and the same every time.
    """
    name = prefix(server) + _ODD_IN_A_NAME.sub("_", tool)
    is_as_it_was = _PLAIN_SERVER.fullmatch(server) and name == f"{server}__{tool}"
    if is_as_it_was and len(name) <= _LONGEST_NAME:
        return name
    digest = sha256(f"{server}\0{tool}".encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{name[: _LONGEST_NAME - 9]}_{digest}"


def tools_of(name: str, server: McpServer, listed_tools: Sequence[ListedTool]) -> tuple[ForeignTool, ...]:
    """Return the tools that may be used, in the server's order. Raises ToolError `bad_tools`."""
    counts = Counter(each.name for each in listed_tools)
    names = counts.keys() if server.tools is None else set(server.tools)
    if missing := sorted(names - counts.keys()):
        raise _bad(
            name,
            f"has no tool '{one_line(missing[0])}', which its setting `tools` names; it has: {shown_names(counts)}",
        )
    tools = [each for each in listed_tools if each.name in names]
    if len(tools) > MOST_TOOLS:
        raise _bad(name, f"lists {len(tools):,} tools, but at most {MOST_TOOLS} may be used; {_CHOOSE}")
    if twice := [each for each, count in counts.items() if count > 1 and each in names]:
        raise _bad(name, f"lists two tools named '{one_line(twice[0])}'; {_CHOOSE}")
    return tuple(_tool(name, server, each) for each in tools)


def check_apart(tools: Sequence[ForeignTool]) -> None:
    """Raise ToolError `bad_tools` when two tools have the same name for models."""
    first: dict[str, ForeignTool] = {}
    for each in tools:
        other = first.setdefault(each.name, each)
        if other is not each:
            both = f"'{one_line(other.tool)}' of '{other.server}' and '{one_line(each.tool)}'"
            raise _bad(each.server, f"has a tool whose name is not unique: {both} both become {each.name}")


_CHOOSE = 'in its settings, name the tools to use: tools = ["..", ".."]'


def _tool(name: str, server: McpServer, listed_tool: ListedTool) -> ForeignTool:
    schema, odd = listed_tool.schema, f"has a tool '{one_line(listed_tool.name)}' whose"
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise _bad(name, f"{odd} `inputSchema` is not the schema of an object; {_CHOOSE}")
    size = len(json.dumps(schema))
    if size > _LONGEST_SCHEMA:
        raise _bad(
            name, f"{odd} `inputSchema` has {size:,} characters, but at most {_LONGEST_SCHEMA:,} are allowed; {_CHOOSE}"
        )
    return ForeignTool(
        tool_name(name, listed_tool.name), name, listed_tool.name, _short_description(listed_tool.description), schema,
        listed_tool.reads_only, listed_tool.is_idempotent, server.approve,
    )  # fmt: skip


def _short_description(description: str) -> str:
    text = _plain(description).strip()
    return text if len(text) <= _LONGEST_DESCRIPTION else f"{text[:_LONGEST_DESCRIPTION]} [..]"


def one_line(text: str, longest: int = 100) -> str:
    """Return a foreign text as a short line without control characters."""
    line = " ".join(_plain(text).split())
    return line if len(line) <= longest else f"{line[:longest]}.."


def _plain(text: str) -> str:
    return command_runner.shortened_output(text.encode(errors="replace"), b"", 0, str)[0]


def shown_names(names: Iterable[str]) -> str:
    """Return names for an error: the first ones, and the number of the others."""
    some = [one_line(name) for name in sorted(names)]
    more = f", and {len(some) - _SHOWN_NAMES:,} more" if len(some) > _SHOWN_NAMES else ""
    return (", ".join(some[:_SHOWN_NAMES]) or "none") + more


def _bad(server: str, what: str) -> ToolError:
    return ToolError(f"the MCP server '{server}' {what}", code="bad_tools")


Redact = Callable[[str], str]
_LONGEST_STRUCTURED = 2 * command_runner.SHOWN_CHARS
_MOST_ATTACHMENTS, _LONGEST_URI = 20, 500


@attrs.frozen
class Block:
    """A piece of an answer. `kind` is text, image, audio, resource or resource_link; `data` is Base64, or None."""

    kind: str
    text: str = ""
    data: str | None = None
    media_type: str = ""
    uri: str = ""


@attrs.frozen
class ServerAnswer:
    """An answer to a call. `asks` marks a question to the caller. `restart_reason` says why the server was restarted before the call."""

    blocks: tuple[Block, ...] = ()
    structured_content: object = None
    is_error: bool = False
    asks: bool = False
    restart_reason: str = ""


def read_answer(message: JsonObject) -> ServerAnswer:
    """Return the answer in a message. The package mcp has checked its form."""
    content = message.get("content")
    blocks = tuple(map(_block, content)) if isinstance(content, list) else ()
    asks = message.get("resultType") == "input_required"
    return ServerAnswer(blocks, message.get("structuredContent"), message.get("isError") is True, asks)


def _block(block: JsonObject) -> Block:
    inner = block.get("resource")
    inner = inner if isinstance(inner, Mapping) else block
    data = inner.get("data", inner.get("blob"))
    text, media_type, uri = (_text(inner.get(name)) for name in ("text", "mimeType", "uri"))
    return Block(str(block["type"]), text, data if isinstance(data, str) else None, media_type, uri)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


@attrs.frozen
class Attachment:
    """A piece of a result that the model does not see: an image, audio or a file by its kind, a link by its address."""

    kind: str
    type: str
    uri: str | None = None
    size_bytes: int | None = None


@attrs.frozen
class ServerResult:
    """The result of a call for a model. The omitted parts are counted: characters of the text and of the structured value, attachments."""

    text: str
    structured: object = None
    structured_omitted: int = 0
    omitted: int = 0
    attachments: tuple[Attachment, ...] = ()
    attachments_omitted: int = 0
    restarted: str = ""
    left_out: str = ""


def result_of(answer: ServerAnswer, redact: Redact) -> ServerResult:
    """Return the result of a call.

    Raises ToolError `tool_error` with the text when the tool says that it failed, `bad_result` when a value is not valid JSON.
    """
    texts = [each.text for each in answer.blocks if each.kind in {"text", "resource"} and each.text]
    text, omitted_count = command_runner.shortened_output("\n".join(texts).encode(errors="replace"), b"", 0, redact)
    if answer.is_error:
        raise ToolError(text.strip() or "the tool failed without giving a reason", code="tool_error")
    structured_value, structured_omitted = _structured_value(answer.structured_content, redact)
    attachments = [each for each in (_attachment(block, redact) for block in answer.blocks) if each is not None]
    beyond = max(0, len(attachments) - _MOST_ATTACHMENTS)
    return ServerResult(
        text, structured_value, structured_omitted, omitted_count, tuple(attachments[:_MOST_ATTACHMENTS]), beyond,
        redact(answer.restart_reason), _left_out(omitted_count, structured_omitted, beyond),
    )  # fmt: skip


def _left_out(text: int, structured_size: int, attachments: int) -> str:
    """Return a sentence about the omitted parts, or an empty text."""
    left = [
        (text, "characters of the text are left out"),
        (structured_size, "characters of a structured value are left out"),
        (attachments, "attachments are not listed"),
    ]
    phrases = [f"{count:,} {what}" for count, what in left if count]
    return f"{', '.join(phrases)}: ask the tool for less" if phrases else ""


def _attachment(block: Block, redact: Redact) -> Attachment | None:
    """Return the attachment in a block; None for a text."""
    kind, size = redact(one_line(block.media_type)), None if block.data is None else _size_bytes(block.data)
    uri = redact(one_line(block.uri, _LONGEST_URI))
    match block.kind:
        case "image" | "audio":
            return Attachment(block.kind, kind, size_bytes=size)
        case "resource_link":
            return Attachment("link", kind, uri)
        case "resource" if size is not None:
            return Attachment("blob", kind, uri, size)
    return None


def _size_bytes(base64: str) -> int:
    return len(base64.rstrip("=")) * 3 // 4


def _structured_value(value: object, redact: Redact) -> tuple[object, int]:
    """Return a structured value and 0; or None and its characters when there are too many."""
    if value is None:
        return None, 0
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if len(text) > _LONGEST_STRUCTURED:
            return None, len(text)
        return each_text(json.loads(text.encode(errors="replace")), redact, with_names=True), 0
    except (ValueError, RecursionError) as error:
        message = "the tool returned a structured value that is not valid JSON, or is nested too deep"
        raise ToolError(message, code="bad_result") from error
