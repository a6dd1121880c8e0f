"""The arguments of the file tools: a class for each tool, and `read`, which makes one from JSON. Pure.

An unknown argument, or one of the wrong type, raises ToolError `bad_arguments`.
"""

from collections.abc import Mapping
from itertools import combinations

import attrs

from dsa.errors import ToolError
from machines.coding.tools.file_view import LEAST_READ, MOST_READ, MOST_RESULTS
from machines.coding.tools.workspace_boundary import path_text
from machines.tool_use.records import JsonObject

LARGEST_FILE = 1_000_000
_MOST_FILES = 100
_FARTHEST = 1 << 62


@attrs.frozen
class ListDir:
    """A folder to list, without the first `offset` names."""

    path: str = "."
    offset: int = 0


@attrs.frozen
class ReadFile:
    """A file to read, `max_bytes` of it from byte `offset` on."""

    path: str
    max_bytes: int = 65_536
    offset: int = 0


@attrs.frozen
class Search:
    """A search in the files beneath `path` whose names match `glob`."""

    pattern: str
    path: str = "."
    glob: str = ""
    is_regex: bool = False
    max_results: int = 100


@attrs.frozen
class NewFile:
    """A file to write, whole."""

    path: str
    content: str


@attrs.frozen
class WriteFile:
    """One file to write; without `create_dirs` its folder must exist."""

    path: str
    content: str
    create_dirs: bool = True

    @property
    def files(self) -> tuple[NewFile, ...]:
        """The file."""
        return (NewFile(self.path, self.content),)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that it writes."""
        return (self.path,)


@attrs.frozen
class WriteFiles:
    """Several files to write: all or none."""

    files: tuple[NewFile, ...]
    create_dirs: bool = True

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that it writes."""
        return tuple(each.path for each in self.files)


@attrs.frozen
class Edit:
    """A text to replace in a file: `all` of its occurrences or the only one."""

    path: str
    old: str
    new: str
    all: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that it writes."""
        return (self.path,)


WriteCall = WriteFile | WriteFiles | Edit
FileCall = ListDir | ReadFile | Search | WriteCall
#: The file tools by their names.
FILE_TOOLS: dict[str, type[FileCall]] = {
    "list_dir": ListDir,
    "read_file": ReadFile,
    "search": Search,
    "write_file": WriteFile,
    "write_files": WriteFiles,
    "edit": Edit,
}


def read(tool: str, arguments: JsonObject) -> FileCall:
    """Return the call of a file tool. Raises ToolError `unknown_tool`, `bad_arguments`, `bad_path`.

    A number out of range becomes the nearest one in range.
    """
    kind = FILE_TOOLS.get(tool)
    if kind is None:
        raise ToolError(
            f"there is no file tool '{tool}'; the file tools are: {', '.join(FILE_TOOLS)}", code="unknown_tool"
        )
    names = [each.name for each in attrs.fields(kind)]
    if unknown := [name for name in arguments if name not in names]:
        raise ToolError(f"{tool} has no argument '{unknown[0]}'; it has: {', '.join(names)}", code="bad_arguments")
    reader = _Arguments(arguments)
    match tool:
        case "list_dir":
            return ListDir(reader.path("."), reader.number("offset", 0, 0, _FARTHEST))
        case "read_file":
            most = reader.number("max_bytes", 65_536, LEAST_READ, MOST_READ)
            return ReadFile(reader.path(), most, reader.number("offset", 0, 0, _FARTHEST))
        case "search":
            most = reader.number("max_results", 100, 1, MOST_RESULTS)
            is_regex = reader.flag("is_regex", default=False)
            return Search(reader.text("pattern"), reader.path("."), reader.text("glob", ""), is_regex, most)
        case "write_file":
            return WriteFile(reader.path(), reader.text("content"), reader.flag("create_dirs", default=True))
        case "write_files":
            return WriteFiles(reader.files(), reader.flag("create_dirs", default=True))
        case "edit":
            return Edit(reader.path(), reader.text("old"), reader.text("new"), reader.flag("all", default=False))
    raise AssertionError(f"nothing reads the arguments of {tool}")


@attrs.frozen
class _Arguments:
    """The arguments in a call, read by type. Raises ToolError."""

    values: JsonObject

    def text(self, name: str, default: str | None = None) -> str:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, str):
            raise ToolError(f"'{name}' is missing, or is not a text", code="bad_arguments")
        return value

    def path(self, default: str | None = None) -> str:
        value = self.values.get("path")
        value = default if value is None else value
        if not isinstance(value, str):
            raise ToolError("a path is needed, such as 'src/app.py'", code="bad_path")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise ToolError(f"'{name}' must be true or false", code="bad_arguments")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ToolError(f"'{name}' must be a whole number from {least} to {most}", code="bad_arguments")
        return max(least, min(value, most))

    def files(self) -> tuple[NewFile, ...]:
        value = self.values.get("files")
        form = "'files' must be a list of objects, each with 'path' and 'content'"
        if not isinstance(value, list | tuple) or not value:
            raise ToolError(form, code="bad_arguments")
        if not all(isinstance(each, Mapping) and set(each) == {"path", "content"} for each in value):
            raise ToolError(form, code="bad_arguments")
        entries = map(_Arguments, value)
        return tuple(NewFile(each.path(), each.text("content")) for each in entries)


def encode(content: str, path: str) -> bytes:
    """Return the text of a file as bytes. Raises ToolError `bad_arguments`, `too_large`."""
    try:
        data = content.encode()
    except UnicodeEncodeError as error:
        bad = f"the content of '{path}' has half a character (a lone surrogate) at char {error.start}"
        raise ToolError(bad, code="bad_arguments") from error
    if len(data) > LARGEST_FILE:
        large = f"'{path}' would have {len(data)} bytes, but a file may have at most {LARGEST_FILE}: write several smaller files"
        raise ToolError(large, code="too_large")
    return data


def refuse_overlap(paths: list[tuple[str, ...]]) -> None:
    """Raise ToolError for too many files, for a repeated one, and for one that would also be a folder."""
    if len(paths) > _MOST_FILES:
        many = f"the call has {len(paths)} files, but can write only {_MOST_FILES}: write the rest in another call"
        raise ToolError(many, code="too_large")
    for one, other in combinations(sorted(paths), 2):
        if one == other:
            raise ToolError(f"'{path_text(one)}' is in the list twice: name each file once", code="bad_arguments")
        if other[: len(one)] == one:
            raise ToolError(
                f"'{path_text(one)}' cannot be both a file and the folder of '{path_text(other)}'", code="bad_arguments"
            )
