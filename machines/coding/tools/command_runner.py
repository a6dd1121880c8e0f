"""Commands: their arguments, their run in the sandbox, and their output for a model.

`read_command` takes the command in a model's call, and returns its arguments. There is no shell: a text that needs one is refused, because `;`, `|`, `$()`
or a line break would start programs that the list of allowed programs excludes. `fault` names the rule that refuses the arguments, with an alternative.

`run` runs a command in the sandbox, where the workspace is writable and the rest of the machine is missing, and returns a `FinishedCommand`. It checks the
rules again. Programs are looked up outside of the workspace, and modules in the workspace do not hide Python's own from `python -m` and pytest.

`ProtectedState` covers the files that a command must not change: the history, the settings, the records for people, and the files that patterns name. Its
`mount_paths` are mounted read-only. `restore` removes protected files that are new, at any depth, and restores links; it also removes what git would take for a
repository, and files that no diff shows.

`shortened_output` returns the start and the end of an output without terminal codes and secrets.

`alone` holds the folder of a workspace against the other parts of a run and against other processes, because the changes of a call are those between a mark
before it and one after it. The system releases the lock of a dead process.
"""

import json
import os
import re
import select
import shlex
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import dropwhile, takewhile
from pathlib import Path

import attrs

import dsa
import machines
from dsa.edge.files import try_lock
from dsa.edge.sandbox.command_sandbox import (
    BOUNDS,
    KEPT_FROM,
    CommandEnd,
    How,
    ShellCommand,
    StopSwitch,
    probe_commands,
    run_command,
    visible_paths,
)
from dsa.edge.sandbox.host_proxy import serve_proxy
from dsa.edge.sandbox.rungs import Bounds, SandboxError, Visible
from dsa.edge.sandbox.sandbox_runner import flatten
from dsa.errors import ToolError
from dsa.text import is_unicode
from machines.coding.tools.planted_files import SETTINGS, scan_planted
from machines.coding.tools.program_rules import CHECKS, Rules, WorkingFolder, is_allowed, other_fault, python_start
from machines.coding.tools.workspace_boundary import ROOT, Protection, shown_path
from machines.tool_use.records import list_in

_MOST_ARGUMENTS = 256
_MOST_CHARACTERS = 100_000
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_OPERATORS = re.compile(r"\|\||&&|;|\||&|\n")
#: An argument that a shell would interpret.
_OPERATOR = re.compile(r"(?:\d*|&)(?:>>?|<{1,3}|>\||<>)(?:&(?:\d+|-)?|/dev/null)?|\|[|&]?|&&?|;;?")
#: The meaning of characters outside of quotes for a shell.
_SPECIAL = {
    "\n": "a line break", ";": "';'", "&": "'&'", "|": "a pipe", "<": "a redirection", ">": "a redirection", "(": "a subshell",
    ")": "a subshell", "$": "'$'", "`": "a backquote", "*": "a glob", "?": "a glob", "[": "a glob", "#": "a comment", "~": "'~'", "{": "braces",
    "!": "'!'",
}  # fmt: skip
_WORD_START = frozenset("#~!")
_INSTEAD = {
    "a redirection": "output and errors are returned anyway, `stdin` is the input, and write_file writes a file",
    "a pipe": "the output is returned, or its first and last 8 kB if it is long; run the first command alone",
    "'$'": "there are no variables here; write the value itself",
    "a backquote": "run the inner command first, then write its output",
    "a glob": "name the files or their folder, or put the text in quotes",
    "a comment": "leave it out",
    "'~'": "paths are relative to the workspace",
    "braces": "write each argument out, or put the text in quotes",
}
_SHELLS = frozenset({
    "sh", "bash", "zsh", "dash", "ksh", "fish", "cmd", "powershell", "pwsh", "env", "sudo", "xargs", "nohup", "timeout",
})  # fmt: skip
#: The tools to use instead of programs.
_OTHER_TOOLS = {
    "cat": "read_file", "head": "read_file", "tail": "read_file", "less": "read_file", "ls": "list_dir", "find": "list_dir",
    "tree": "list_dir", "echo": "write_file", "printf": "write_file", "touch": "write_file", "tee": "write_file",
    "mkdir": "write_file, which makes the folders of a file", "git": "the git tools",
}  # fmt: skip


def read_command(cmd: str | Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a command, its program first. Raises ToolError `shell_syntax`, `bad_command` or `empty_command`."""
    if isinstance(cmd, str):
        items = list_in(cmd)
        argv = _split(cmd.strip()) if items is None else items
        _refuse_operators(items or ())
    else:
        argv = list(cmd)
        _refuse_operators(argv)
    if not all(isinstance(each, str) for each in argv):
        raise ToolError('a command must be a list of texts, such as ["python", "main.py"]', code="bad_command")
    if not argv or not argv[0].strip():
        raise ToolError('there is no command; give a list, such as ["pytest", "-q"]', code="empty_command")
    if len(argv) > _MOST_ARGUMENTS or sum(map(len, argv)) > _MOST_CHARACTERS:
        raise ToolError(
            f"a command can have at most {_MOST_ARGUMENTS} arguments and {_MOST_CHARACTERS} characters; put longer texts into a file",
            code="bad_command",
        )
    if any("\x00" in each or not is_unicode(each) for each in argv):
        raise ToolError(
            "an argument has a character that no command can receive (NUL, or half of a surrogate pair)",
            code="bad_command",
        )
    return tuple(argv)


def fault(argv: Sequence[str], rules: Rules, workspace_root: Path, cwd: str = ".") -> str:
    """Return the rule that refuses a command, with what is allowed instead, or an empty text."""
    name, *arguments = argv
    place = WorkingFolder(workspace_root, cwd)
    if name in CHECKS and is_allowed(name, rules):
        return CHECKS[name](arguments, rules, place)
    if name in rules.programs:
        return other_fault(name, arguments, rules, place)
    return f"{_unknown(name, arguments, rules)}; allowed programs: {', '.join(rules.names)}"


def _unknown(name: str, arguments: Sequence[str], rules: Rules) -> str:
    plain = Path(name).name
    if not arguments and len(words := name.split()) > 1:
        return f"the whole command is in one argument; send {json.dumps(words)}"
    if plain in _SHELLS:
        return f"'{plain}' is not run: there is no shell here; send the program and its arguments as a list"
    if plain == "cd":
        return "'cd' is not a program; set the folder with `cwd`"
    if "/" in name and plain in rules.names:
        return f"programs are called by their names: send {json.dumps([plain, *arguments])[:200]}"
    if plain in _OTHER_TOOLS:
        return f"'{plain}' is not run; use {_OTHER_TOOLS[plain]}"
    if plain.startswith("pip"):
        return "pip is switched off: use the installed packages"
    return f"'{name[:80]}' is not an allowed program"


# -- texts ------------------------------------------------------------------------------------------------------------


def _split(text: str) -> list[str]:
    """Split a text that needs no shell."""
    if what := _shell_syntax(text):
        raise ToolError(
            f"there is no shell here, and the command has {what} outside of quotes: {_advice(text, what)}",
            code="shell_syntax",
        )
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise ToolError(
            f"the command cannot be split ({error}); send it as a list of arguments", code="shell_syntax"
        ) from error
    if argv and _ASSIGNMENT.match(text):
        rest = argv[next((n for n, word in enumerate(argv) if not _ASSIGNMENT.match(word)), len(argv)) :]
        raise ToolError(
            f"a command cannot set variables of its environment; send {json.dumps(rest)}", code="shell_syntax"
        )
    return argv


def _refuse_operators(argv: Sequence[object]) -> None:
    """Raise ToolError for a shell operator in a list: the program would silently receive it as a text."""
    words = [each for each in argv if isinstance(each, str)]
    operator = next((each for each in words if _OPERATOR.fullmatch(each)), "")
    if operator:
        text = " ".join(each if _OPERATOR.fullmatch(each) else shlex.quote(each) for each in words)
        what = _shell_syntax(text)
        raise ToolError(
            f"there is no shell here, and the list has {what} as an argument, '{operator}': {_advice(text, what)}; if the program needs that "
            "text, write the whole command as one text, with this argument in quotes",
            code="shell_syntax",
        )


def _shell_syntax(text: str) -> str:
    """Return the first part of a text that needs a shell, or an empty text."""
    quote, before, word = "", " ", ""
    signs = iter(text)
    for sign in signs:
        if sign == "\\" and quote != "'":
            next_sign = next(signs, "")
            if next_sign == "\n":
                return "a line break"
            word += next_sign
        elif quote:
            if quote == '"' and sign in "$`":
                return _SPECIAL[sign]
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in _SPECIAL and _means_something(sign, before, word):
            return _SPECIAL[sign]
        word = "" if sign.isspace() and not quote else word + sign
        before = sign
    return ""


def _means_something(sign: str, before: str, word: str) -> bool:
    """Return whether a character is special for a shell; the brackets of a test's name are not."""
    if sign in _WORD_START:
        return before.isspace() or (sign == "~" and before in "=:")
    return not (sign in "[*?" and "::" in word)


def _advice(text: str, what: str) -> str:
    """Return a command to send instead, as arguments."""
    parts = [_words(part) for part in _OPERATORS.split(text)]
    parts = [part for part in parts if part]
    if len(parts) > 1 and parts[0][0] == "cd" and len(parts[0]) == 2:  # noqa: PLR2004  # `cd` and its folder
        return f"send {json.dumps(parts[1])} with cwd {json.dumps(parts[0][1])}"
    if what in _INSTEAD:
        return (
            f"{_INSTEAD[what]}; a command is a list, such as {json.dumps(parts[0] if parts else ['python', 'main.py'])}"
        )
    if len(parts) > 1:
        return f"make {len(parts)} calls, one after the other: {', then '.join(json.dumps(part) for part in parts)}"
    return f"send a list of arguments, such as {json.dumps(parts[0] if parts else ['python', 'main.py'])}"


def _words(text: str) -> list[str]:
    """Return the plain words at the start of a part of a command."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    plain = list(takewhile(lambda word: not set(word) & set("<>$`(){}*?#~"), words))
    return list(dropwhile(_ASSIGNMENT.match, plain))


_CLEANING_S = 10.0
_MOST_TOLD = 50


class ProtectedState:
    """The protected files of a workspace before a command. Raises ValueError for a pattern that names nothing in it."""

    def __init__(self, root: Path, patterns: Iterable[str]) -> None:
        self._root, self._protection = root, Protection.of(patterns)
        self._links: dict[Path, str] = {}
        self._absent: list[Path] = []
        paths: set[str] = set()
        for name in self._protection.plain_names:
            paths |= self._record_path(Path(os.path.normpath(root / name)))
        with scan_planted(str(root), self._protection) as self._sight:
            bare = [shape.folder for shape in self._sight.shapes.values() if shape.is_repository]
            inside = (f"{folder}/{name}" for folder in bare for name in SETTINGS)
            for path in (*self._sight.protected_numbers, *inside):
                paths |= self._record_path(Path(path))
        self.mount_paths = tuple(sorted(paths))
        self.changed_folders: tuple[str, ...] = ()
        # A command starts writing later than the resolution of the file system's clock.
        self._since_ns = time.time_ns()

    def _record_path(self, path: Path) -> set[str]:
        """Record the state of a path; return the paths to mount."""
        if link := self._link_in(path):
            self._links[link] = str(link.readlink())
            real = Path(os.path.realpath(path))
            inside = real.is_relative_to(self._root) and real != self._root and real.exists()
            return {str(real)} if inside else set()
        if not os.path.lexists(path):
            self._absent.append(path)
            return set()
        return {str(path)}

    def _link_in(self, path: Path) -> Path | None:
        """Return the first symbolic link on the way to a path."""
        way = [path, *path.parents]
        inside = (each for each in reversed(way) if each.is_relative_to(self._root) and each != self._root)
        return next((each for each in inside if each.is_symlink()), None)

    def restore(self) -> tuple[str, ...]:
        """Remove new protected files, new repositories, and files that no diff shows; restore links.

        Returns the paths of these files, at most the first ones. Afterwards `changed_folders` has the folders of installed programs that have changed.
        """
        changed_paths = [path for path in self._absent if not self._link_in(path.parent) and os.path.lexists(path)]
        for path in changed_paths:
            _remove(path)
        for link, target in self._links.items():
            if self._link_in(link.parent) or (link.is_symlink() and str(link.readlink()) == target):
                continue
            if os.path.lexists(link):
                _remove(link)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
            changed_paths.append(link)
        return _shown_paths([str(path.relative_to(self._root)) for path in (*changed_paths, *self._remove_planted())])

    def _remove_planted(self) -> list[Path]:
        with scan_planted(str(self._root), self._protection, self._since_ns) as sight:
            own = {str(link) for link in self._links}
            planted_paths = [Path(path) for path in sight.planted_since(self._sight) if path not in own]
            for path in planted_paths:
                with suppress(FileNotFoundError):  # another process has removed it
                    _remove(path)
        self.changed_folders = _shown_paths(
            sorted(str(Path(folder).relative_to(self._root)) for folder in sight.changed_folders)
        )
        return planted_paths


def _shown_paths(paths: Sequence[str]) -> tuple[str, ...]:
    more = len(paths) - _MOST_TOLD
    return (*map(shown_path, paths[:_MOST_TOLD]), *([f"and {more:,} more"] if more > 0 else []))


def _remove(path: Path) -> None:
    """Remove a file, a link or a folder, however deep, also with closed folders in it or above it. Raises OSError."""
    above = stat.S_IMODE(path.parent.stat().st_mode)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        path.parent.chmod(above | stat.S_IRWXU)
    try:
        _remove_from_open(path)
    finally:
        if stat.S_IMODE(path.parent.stat().st_mode) != above:
            path.parent.chmod(above)


def _remove_from_open(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    path.chmod(0o700)
    flatten(path, time.monotonic() + _CLEANING_S)
    shutil.rmtree(path)


#: The characters of the start and of the end that are returned. More is read, so that no secret is cut before it is found.
SHOWN_CHARS = 8_000
_CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\|\x9c|\Z)|[ -/]*[0-~]?)"  # CSI; OSC, DCS, SOS, PM, APC; the others
    r"|\x9b[0-?]*[ -/]*[@-~]|[\x9d\x90\x98\x9e\x9f].*?(?:\x07|\x1b\\|\x9c|\Z)",  # the same as one character
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def shortened_output(head: bytes, tail: bytes, bytes_between: int, redact: Callable[[str], str]) -> tuple[str, int]:
    """Return the text of an output, and the number of omitted characters and bytes."""
    if not bytes_between:
        whole = redact(_plain(head + tail))
        if len(whole) <= 2 * SHOWN_CHARS:
            return whole, 0
        return _join(whole[:SHOWN_CHARS], whole[-SHOWN_CHARS:], len(whole) - 2 * SHOWN_CHARS)
    first, last = redact(_plain(head)), redact(_plain(tail))
    left_out = bytes_between + max(0, len(first) - SHOWN_CHARS) + max(0, len(last) - SHOWN_CHARS)
    return _join(first[:SHOWN_CHARS], last[-SHOWN_CHARS:], left_out)


def _join(first: str, last: str, left_out: int) -> tuple[str, int]:
    return f"{first}\n[.. {left_out:,} characters are left out ..]\n{last}", left_out


def _plain(output: bytes) -> str:
    """Decode an output without terminal codes; bytes that are not UTF-8 become a mark."""
    text = _CODES.sub("", output.decode(errors="replace"))
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


#: Imports the module before its folder is on the path; the folder then comes after Python's own modules.
_AS_MODULE = """\
import importlib.util, runpy, sys
name, top = sys.argv[1], sys.argv[1].partition(".")[0]
del sys.argv[1]
try:
    importlib.import_module(top)
except ModuleNotFoundError as error:
    if error.name != top:
        raise
library = sys.modules["os"].__file__.rpartition("/")[0]
own = [place for place, path in enumerate(sys.path) if path.startswith(library) and not path.endswith("-packages")]
sys.path.insert(max(own) + 1, sys.argv.pop(1))
if importlib.util.find_spec(top) is None:
    sys.exit(f"python: there is no module named {name}")
runpy.run_module(name, run_name="__main__", alter_sys=True)
"""
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
_CERTIFICATES = ("/etc/ssl", "/etc/pki", "/etc/ca-certificates")
_PACKAGES = ".packages"  # where pip installs to, in the workspace
_PIP = (
    "--isolated", "--no-compile", "--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input",
    "--root-user-action", "ignore",
)  # fmt: skip
_CACHE_OPTIONS = (
    "--lf", "--ff", "--nf", "--sw", "--last-failed", "--failed-first", "--new-first", "--stepwise", "--cache",
)  # fmt: skip
_ENVIRONMENT = {
    "HOME": "/tmp", "TMPDIR": "/tmp", "USER": "sandbox", "LOGNAME": "sandbox", "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1",  # noqa: S108  # its own
    "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1", "PYTHONUNBUFFERED": "1", "PIP_CONFIG_FILE": "/dev/null", "RUFF_NO_CACHE": "true",
    "MYPY_CACHE_DIR": "/tmp/mypy", "COVERAGE_FILE": "/tmp/coverage",  # noqa: S108
}  # fmt: skip


@attrs.frozen
class FinishedCommand:
    """The end of a command, and its output: stdout and stderr in their order, without `omitted_count` characters and bytes.

    `code` is its exit status, or None when a signal (`signal`, such as SIGTERM) or the sandbox (`end_reason`) ended it. `removed_paths` are protected or hidden files
    that it had made, `changed_folders` folders of installed programs that it has changed. `features` are the limits of its sandbox, none on the rung `none`.
    """

    code: int | None
    signal: str
    output: str
    omitted_count: int
    seconds: float
    end_reason: How
    removed_paths: tuple[str, ...]
    changed_folders: tuple[str, ...]
    rung: str
    features: frozenset[str]

    @property
    def timed_out(self) -> bool:
        """Whether it reached its time limit."""
        return self.end_reason == "timeout"


def run(
    argv: Sequence[str], *, root: Path, cwd: str = ".", stdin: str | None = None, timeout_s: float = 60.0, protected_patterns: Sequence[str] = (),
    network: Sequence[str] = (), rules: Rules | None = None, redact: Callable[[str], str] = str, is_unconfined: bool = False,
    stop: StopSwitch | None = None, bounds: Bounds = BOUNDS,
) -> FinishedCommand:  # fmt: skip
    """Run a command in a workspace, for at most `timeout_s`; `network` names the hosts that it may reach, as NAME or NAME:PORT.

    `protected_patterns` name files that it may not write, as in `Workspace`.

    Raises ToolError `refused` by the rules, `bad_cwd`, `no_program`, and `no_sandbox` when this machine cannot confine it; with `is_unconfined` it then
    runs with this user's rights. No process of the command is left at the end.
    """
    rules, root = rules or Rules(), Path(os.path.realpath(root))
    folder = _folder(root, cwd)
    if why := fault(argv, rules, root, cwd):
        raise ToolError(why, code="refused")
    command = _resolve(argv, root, folder)
    if not is_unconfined and (sandbox_fault := probe_commands().fault):
        raise ToolError(
            f"no command can run here, because the sandbox for commands is missing: {sandbox_fault}", code="no_sandbox"
        )
    before = ProtectedState(root, protected_patterns)
    try:
        with serve_proxy(network) if network and not is_unconfined else _nothing() as hosts:
            shell_command = ShellCommand(
                command, str(root), str(folder), _environment(root), _visible(root, with_network=bool(hosts)), before.mount_paths,
                (stdin or "").encode(), hosts, is_confined=not is_unconfined,
            )  # fmt: skip
            end = run_command(shell_command, attrs.evolve(bounds, timeout_s=timeout_s), switch=stop)
    except SandboxError as error:
        raise ToolError(f"no command can run here: {error}", code="no_sandbox") from error
    finally:
        removed_paths = before.restore()
    kept_from = frozenset[str]() if is_unconfined else KEPT_FROM - ({"no network"} if network else set())
    return _finished_command(end, (removed_paths, before.changed_folders), redact, kept_from)


def _finished_command(
    end: CommandEnd,
    left: tuple[tuple[str, ...], tuple[str, ...]],
    redact: Callable[[str], str],
    features: frozenset[str],
) -> FinishedCommand:
    text, omitted_count = shortened_output(end.head, end.tail, end.bytes_between, redact)
    status = end.status
    name = signal.Signals(-status).name if status is not None and -status in set(signal.Signals) else ""
    name = f"signal {-status}" if not name and status is not None and status < 0 else name
    code = status if status is not None and status >= 0 else None
    rung = "bubblewrap" if features else "none"
    return FinishedCommand(code, name, text, omitted_count, end.seconds, end.how, *left, rung, features)


@contextmanager
def _nothing() -> Iterator[str]:
    yield ""


def _folder(root: Path, cwd: str) -> Path:
    """Return the folder to run in. Raises ToolError `bad_cwd`."""
    if "\x00" in cwd:
        raise ToolError("`cwd` has a character that no path can have (NUL)", code="bad_cwd")
    if root.parent == root or not root.is_dir():
        raise ValueError(f"{root} is not a folder that can be a workspace")
    folder = Path(os.path.realpath(root / cwd))
    if not folder.is_relative_to(root):
        raise ToolError(
            f"`cwd` = '{cwd[:200]}' leads out of the workspace; name a folder relative to its root", code="bad_cwd"
        )
    if not os.path.isdir(folder):  # noqa: PTH112  (that of a Path raises for a name that is too long)
        raise ToolError(f"`cwd` = '{cwd[:200]}' is not a folder of the workspace", code="bad_cwd")
    return folder


# -- programs ---------------------------------------------------------------------------------------------------------


def python() -> str:
    """Return the path of this Python, in its virtual environment if it has one."""
    return str(Path(os.path.realpath(Path(sys.executable).parent), Path(sys.executable).name))


def _packages(root: Path) -> list[str]:
    """Return the folders of packages that this Python finds only through settings."""
    own = (os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
    parent = str(Path(dsa.__file__).parent.parent)
    ours = [parent] if parent in os.environ.get("PYTHONPATH", "").split(os.pathsep) else []
    package_folders = [
        os.path.realpath(path) for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}
    ]
    extra_folders = [path for path in package_folders if not any(Path(path).is_relative_to(prefix) for prefix in own)]
    return [*dict.fromkeys((*extra_folders, *ours)), *([str(root / _PACKAGES)] if (root / _PACKAGES).is_dir() else [])]


def _path(root: Path) -> list[str]:
    """Return the folders of programs: this Python's and the system's, and none in the workspace."""
    beside = [str(Path(path).parents[2] / "bin") for path in _packages(root) if Path(path).name == "site-packages"]
    folders = dict.fromkeys((str(Path(python()).parent), *beside, *_SYSTEM_PATH))
    own = os.path.realpath(sys.prefix)
    return [
        each
        for each in folders
        if not Path(os.path.realpath(each)).is_relative_to(root) or Path(each).is_relative_to(own)
    ]


def _resolve(argv: Sequence[str], root: Path, folder: Path) -> tuple[str, ...]:
    """Return the command to start. Raises ToolError `no_program`."""
    name, *arguments = argv
    if name in {"pytest", "py.test", "pip", "pip3"}:
        return _as_module((), {"py": "pytest", "pi": "pip"}[name[:2]], arguments, root, folder)
    if name in {"python", "python3"}:
        start = python_start(arguments)
        if start.kind == "module" and start.what != "ruff":
            return _as_module(start.options, start.what, start.arguments, root, folder)
        if start.kind != "module":
            return (python(), "-s", *arguments)
        name, arguments = "ruff", list(start.arguments)
    path = _find(name, root)
    if path is None:
        raise ToolError(f"{name} is allowed, but not installed on this machine", code="no_program")
    return (path, *arguments)


def _find(name: str, root: Path) -> str | None:
    return shutil.which(name, path=os.pathsep.join(_path(root)))


def not_installed(rules: Rules, root: Path) -> tuple[str, ...]:
    """Return the programs that the settings allow and this machine does not have."""
    return tuple(name for name in rules.programs if _find(name, root) is None)


def _as_module(
    options: Sequence[str], module: str, arguments: Sequence[str], root: Path, folder: Path
) -> tuple[str, ...]:
    """Return the command that runs a module, with further arguments for pytest and pip."""
    more: list[str] = []
    if module == "pytest" and not any(each.startswith(_CACHE_OPTIONS) for each in arguments):
        more = ["-p", "no:cacheprovider"]
    elif module == "pip":
        arguments = [*arguments, *_PIP, "--target", str(root / _PACKAGES)]
    return (python(), "-P", "-s", *options, "-c", _AS_MODULE, module, str(folder), *more, *arguments)


def _environment(root: Path) -> Mapping[str, str]:
    """Return the environment of a command."""
    packages = _packages(root)
    return {
        **_ENVIRONMENT,
        "PATH": os.pathsep.join(_path(root)),
        **({"PYTHONPATH": os.pathsep.join(packages)} if packages else {}),
    }


def _visible(root: Path, *, with_network: bool) -> Visible:
    """Return the files of this machine that a command sees."""
    ours = [str(Path(package.__file__ or "").parent) for package in (dsa, machines)]  # pytest loads a plugin of ours
    parent = str(Path(ours[0]).parent)
    packages = [path for path in (*_packages(root), *ours) if path != parent and not Path(path).is_relative_to(root)]
    beside = [folder for folder in _path(root) if not folder.startswith(("/usr/", "/bin", "/sbin"))]
    certificates = _CERTIFICATES if with_network else ()
    paths = ("/usr", "/bin", "/sbin", "/etc/alternatives", sys.prefix, python(), *packages, *beside, *certificates)
    real = [os.path.realpath(Path(python()).resolve().parent)]
    return visible_paths(*(path for path in (*paths, *real) if Path(path).exists()))


#: How long a call waits for others, in seconds: the limit of a command.
WAIT_S = 600.0
_LOOK_S = 0.05
_BUSY = "the workspace is in use by another run, or by another part of this run"


@contextmanager
def alone(workspace: Path, stop: StopSwitch, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold a workspace. Raises ToolError `workspace_busy` when another caller holds it for too long, or this one is stopped meanwhile."""
    descriptor = os.open(workspace, ROOT)
    try:
        until = time.monotonic() + wait_s
        while not try_lock(descriptor):
            readable, _, _ = select.select([stop], [], [], _LOOK_S)
            if readable or time.monotonic() > until:
                raise ToolError(_BUSY, code="workspace_busy")
        yield
    finally:
        os.close(descriptor)
