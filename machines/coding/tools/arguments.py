"""The arguments of the file tools, as they must be. Pure: JSON values in, typed values out, ToolError `bad_arguments` for others."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from machines.coding.tools.errors import ToolError
from machines.coding.tools.paths import named

LARGEST_FILE = 1_000_000
_MOST_FILES = 100
#: The file tools, each with its arguments.
FILE_TOOLS: dict[str, tuple[str, ...]] = {
    "list_dir": ("path", "offset"),
    "read_file": ("path", "max_bytes", "offset"),
    "search": ("pattern", "path", "glob", "is_regex", "max_results"),
    "write_file": ("path", "content", "create_dirs"),
    "write_files": ("files", "create_dirs"),
    "edit": ("path", "old", "new", "all"),
}
WRITING = ("write_file", "write_files", "edit")


def checked(tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the arguments, when they are some of the tool's. Raises ToolError, `unknown_tool` too."""
    known = FILE_TOOLS.get(tool)
    if known is None:
        raise ToolError("unknown_tool", f"there is no file tool '{tool}'; there are: {', '.join(FILE_TOOLS)}")
    unknown = [name for name in arguments if name not in known]
    if unknown:
        text = f"{tool} has no argument '{unknown[0]}'; it has: {', '.join(known)}"
        raise ToolError("bad_arguments", text)
    return arguments


def text(arguments: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Give an argument that is a text."""
    value = arguments.get(name, default)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise ToolError("bad_arguments", f"'{name}' is a text and is needed")
    return value


def flag(arguments: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """Give an argument that is true or false."""
    value = arguments.get(name, default)
    if not isinstance(value, bool):
        raise ToolError("bad_arguments", f"'{name}' is true or false")
    return value


def number(arguments: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    """Give an argument that is a whole number; one that is out of range is taken as the nearest that is not."""
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ToolError("bad_arguments", f"'{name}' is a whole number, from {least} to {most}")
    return max(least, min(value, most))


def encoded(content: str, path: str) -> bytes:
    """Give the bytes of a file's text. Raises ToolError, `too_large` too."""
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        bad = f"the content of '{path}' has half a character (a lone surrogate) at char {error.start}"
        raise ToolError("bad_arguments", bad) from error
    if len(data) > LARGEST_FILE:
        large = f"'{path}' would have {len(data)} bytes; a file may have {LARGEST_FILE}: write several smaller ones"
        raise ToolError("too_large", large)
    return data


def files(arguments: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give the files of a `write_files`, each with `path` and `content`."""
    given = arguments.get("files")
    form = "'files' is a list of objects, each with 'path' and 'content'"
    if not isinstance(given, list) or not given:
        raise ToolError("bad_arguments", form)
    if len(given) > _MOST_FILES:
        raise ToolError(
            "too_large", f"{len(given)} files at once; {_MOST_FILES} can be written: call it again for the rest"
        )
    for file in given:
        if not isinstance(file, Mapping) or set(file) != {"path", "content"}:
            raise ToolError("bad_arguments", form)
    return given


def refuse_overlap(paths: list[tuple[str, ...]]) -> None:
    """Raise ToolError where a file is named twice, or would have to be a folder too."""
    for one, other in combinations(sorted(paths), 2):
        if one == other:
            raise ToolError("bad_arguments", f"'{named(one)}' is there twice: give each file once")
        if other[: len(one)] == one:
            raise ToolError("bad_arguments", f"'{named(one)}' cannot be a file and the folder of '{named(other)}'")
