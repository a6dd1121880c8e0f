"""What tests of the file tools ask: how a call was refused, what a file is, and what is in a folder."""

import hashlib

import pytest

from dsa.errors import ToolError
from machines.coding.tools import file_arguments as given
from machines.coding.tools.file_view import digest_of
from machines.coding.tools.workspace import Workspace
from machines.tool_use.records import as_data


class FileTools(Workspace):
    """A workspace whose tools are called by their names, with JSON, and give JSON."""

    def apply(self, tool, arguments, planned=()):
        return as_data(super().apply(given.read(tool, arguments), planned))

    def plan(self, tool, arguments):
        return super().plan(given.read(tool, arguments))

    def diff(self, tool, arguments):
        return super().diff(given.read(tool, arguments))

    def fault(self, tool, arguments):
        try:
            return super().fault(given.read(tool, arguments))
        except ToolError as error:  # no call of a tool: a fault of the path is one, whatever else there is
            return str(error) if error.code == "bad_path" else ""

    def fileno(self):
        return self._beneath.fileno()

    def digest(self, path):
        return digest_of(self._beneath, self._file_parts(path))

    def list_dir(self, path="."):
        return self.apply("list_dir", {"path": path})

    def read_file(self, path, max_bytes=65_536, offset=0):
        return self.apply("read_file", {"path": path, "max_bytes": max_bytes, "offset": offset})

    def search(self, pattern, path=".", glob=None, *, is_regex=False, max_results=100):
        asked = {"pattern": pattern, "path": path, "glob": glob, "is_regex": is_regex, "max_results": max_results}
        return self.apply("search", asked)

    def write_file(self, path, content, *, create_dirs=True):
        return self.apply("write_file", {"path": path, "content": content, "create_dirs": create_dirs})

    def write_files(self, files, *, create_dirs=True):
        return self.apply("write_files", {"files": list(files), "create_dirs": create_dirs})

    def edit(self, path, old, new, all=False):  # noqa: A002, FBT002  (models say so)
        return self.apply("edit", {"path": path, "old": old, "new": new, "all": all})


def refused(call, *arguments, **options):
    with pytest.raises(ToolError) as error:
        call(*arguments, **options)
    return error.value.code, str(error.value)


def given_or_refused(call, *arguments, **options):
    """Return what a call gives and None, or None and its ToolError."""
    try:
        return call(*arguments, **options), None
    except ToolError as error:
        return None, error


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def contents(folder):
    """Return every file below a folder with its bytes, those that are being written too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def prepared(folder):
    (folder / "sub").mkdir(parents=True)
    (folder / "one.py").write_text("old 1")
    (folder / "sub" / "three.py").write_text("old 3")
