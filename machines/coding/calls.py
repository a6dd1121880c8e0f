"""The tools of the coding machine as a model sees them.

What a model asks of them is read by `machines.tool_use.reading`; what they do is in `toolbox.py`.
"""

from collections.abc import Iterable

import attrs

from machines.coding.loops import Kind
from machines.tool_use import reading
from machines.tool_use.kinds import COMMAND, CONTENT, FILES, LIMIT, PATH_NAMES, TEXT, TRUTH
from machines.tool_use.tool import Parameter, Tool

#: Every kind of thing that is mended, with what it means to a reader.
RESCUES = {
    name: reading.RESCUES[name] for name in ("tool_name", "alias", "nested", "text", "number", "truth", "list", "fence")
}
COMPLETE = "mark_subtask_complete"


@attrs.frozen
class WorkspaceTool(Tool):
    """A tool of the workspace. `kind` is what it does to it; `needs` is look, edit or run, which the mode has to permit, or ask or never, whatever the mode is."""

    kind: Kind = attrs.field(kw_only=True)
    needs: str = attrs.field(kw_only=True)


_CONTENT_NAMES = ("text", "contents", "data", "body", "code", "source")
_WHERE = Parameter("path", TEXT, "path in the workspace", required=True, aliases=PATH_NAMES[1:])
_HERE = Parameter(
    "path", TEXT, "folder in the workspace", default=".", aliases=("dir", "directory", "folder", *PATH_NAMES[1:3])
)
_FOLDERS = Parameter("create_dirs", TRUTH, "make folders that are missing", default=True, aliases=("mkdir", "parents"))


def _tool(
    name: str, kind: Kind, needs: str, about: str, parameters: Iterable[Parameter], names: str = ""
) -> WorkspaceTool:
    return WorkspaceTool(name, about, tuple(parameters), frozenset(names.split()), kind=kind, needs=needs)


#: The seed's five tools, and those that models want beside them.
TOOLS: tuple[WorkspaceTool, ...] = (
    _tool("list_dir", "looking", "look", "List a folder.", (
        _HERE, Parameter("offset", LIMIT, "names to leave out at the beginning", 0, least=0, most=1 << 40, aliases=("start",)),
    ), "ls listfiles listdirectory dir"),
    _tool("read_file", "looking", "look", "Read a text file.", (
        _WHERE,
        Parameter("max_bytes", LIMIT, "how much of it", 65_536, least=1, most=1_000_000, aliases=("limit", "bytes")),
        Parameter("offset", LIMIT, "bytes to leave out at the beginning", 0, least=0, most=1 << 40, aliases=("start",)),
    ), "cat openfile viewfile view readfiles"),
    _tool("search", "looking", "look", "Find a text in the files of the workspace.", (
        Parameter("pattern", TEXT, "what to find", required=True, aliases=("query", "text", "regex")),
        _HERE,
        Parameter("glob", TEXT, "only files of such names, as *.py"),
        Parameter("is_regex", TRUTH, "the pattern is a regular expression", default=False, aliases=("regexp",)),
    ), "grep find searchfiles rg"),
    _tool("write_file", "changing", "edit", "Write a file, whole; what was in it is replaced.", (
        _WHERE, Parameter("content", CONTENT, "all of the file", required=True, aliases=_CONTENT_NAMES), _FOLDERS,
    ), "createfile savefile write writetofile"),
    _tool("write_files", "changing", "edit", "Write several files: all of them or none.", (
        Parameter("files", FILES, "the files, whole", required=True, aliases=("paths", "contents")), _FOLDERS,
    ), "createfiles savefiles"),
    _tool("edit", "changing", "edit", "Replace a text in a file by another one; it must be there once, exactly.", (
        _WHERE,
        Parameter("old", TEXT, "the text to replace", required=True, aliases=("old_str", "old_string", "old_text", "find")),
        Parameter("new", TEXT, "what to put there", required=True, aliases=("new_str", "new_string", "new_text", "replace")),
        Parameter("all", TRUTH, "replace it wherever it is", default=False, aliases=("replace_all",)),
    ), "editfile strreplace replaceinfile applyedit"),
    _tool("write_tested", "changing", "edit", "Write a Python module, tests first: tests are written, then code until it passes them.", (
        _WHERE,
        Parameter("tests_path", TEXT, "where the tests go, as tests/test_NAME.py", required=True, aliases=("test_path", "tests", "test_file")),
        Parameter("specification", TEXT, "what the module is to do, exactly", required=True, aliases=("spec", "task", "description")),
    )),
    _tool("run_cmd", "running", "run", "Run a program of the list, without a shell.", (
        Parameter("cmd", COMMAND, 'program and arguments, as ["python", "main.py"]', required=True, aliases=("command", "argv", "args", "cmdline")),
        Parameter("stdin", TEXT, "what it reads on standard input", aliases=("input", "standard_input")),
        Parameter("timeout_sec", LIMIT, "seconds it may take", 60, least=1, most=600, aliases=("timeout", "timeout_s", "seconds")),
        Parameter("cwd", TEXT, "folder to run it in", default=".", aliases=("workdir", "working_dir")),
    ), "bash shell exec execute runcommand runbash terminal runshell"),
    _tool("git_status", "looking", "look", "What git says has changed.", ()),
    _tool("git_diff", "looking", "look", "What has changed in files that git knows, since it was staged or committed.", (
        Parameter("path", TEXT, "only this file or folder", aliases=PATH_NAMES[1:3]),
        Parameter("staged", TRUTH, "what was staged since the last commit", default=False, aliases=("cached",)),
    )),
    _tool("git_log", "looking", "look", "The last commits.", (
        Parameter("count", LIMIT, "how many", 10, least=1, most=100, aliases=("n", "limit", "max_count")),
        Parameter("path", TEXT, "only those of this file or folder", aliases=PATH_NAMES[1:3]),
    )),
    _tool("git_commit", "running", "run", "Commit what has changed.", (
        Parameter("message", TEXT, "what the commit says", required=True, aliases=("msg",)),
    )),
    _tool(COMPLETE, "looking", "look", "Say that the active subtask is over. Call it as soon as that is so.", (
        Parameter("success", TRUTH, "whether it was done", required=True, aliases=("completed", "done", "ok")),
        Parameter("reason", TEXT, "why, in a sentence", default="", aliases=("message", "summary", "why")),
    ), "marksubtaskcompleted subtaskcomplete completesubtask marktaskcomplete markcomplete"),
)  # fmt: skip
