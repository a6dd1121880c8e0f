"""What a model asks to be run: as a list of arguments, and whether the rules allow it.

Takes what stands in the call, gives the arguments, or the rule that refuses them and what to send instead. There is no shell: a text that
needs one is refused, for what a list of allowed programs would keep out comes in by `;`, `|`, `$()` or a line break. Nothing is run here.

What a command may not change in the workspace: the history, the settings, the records of the one who runs it, and what patterns name.

Takes the workspace and patterns, gives what is to be shown without leave to write; afterwards what has come that they cover is removed, at any
depth, and links are as they were. So is what git would take for a repository, and what no diff shows. It does not know how a command is run.

What a command has printed, as text for a model: its beginning and its end, without codes for terminals, without secrets.

Takes bytes and a function that leaves secrets out, gives texts. Pure.

Run a command that the rules allow: in the sandbox, where the workspace can be written, and nothing else of this machine is there.

Takes arguments, gives `FinishedCommand`. Programs are found outside of the workspace: one of the same name that was put there is never run, and what it
puts beside Python's own modules does not hide them from `python -m` and pytest. Rules are judged again here.

One call at a time in a workspace: what a call has changed is seen by what lies there before and after it, so nobody else may change it meanwhile.

Takes a folder, holds it for its caller: against the other parts of a run, and against runs of other processes. It is the folder itself that is locked;
a process that dies lets go of it.
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
from dsa.edge.file_locks import try_lock
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
from dsa.runtime.speech import is_unicode
from machines.coding.tools.planted_files import SETTINGS, looked
from machines.coding.tools.program_rules import CHECKS, Rules, WorkingFolder, is_allowed, other_fault, python_start
from machines.coding.tools.workspace_boundary import ROOT
from machines.coding.tools.workspace_paths import Protection, WorkspaceToolError, shown_path
from machines.tool_use.records import list_in

_MOST_ARGUMENTS = 256
_MOST_CHARACTERS = 100_000
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_OPERATORS = re.compile(r"\|\||&&|;|\||&|\n")
#: An argument that is nothing else than what a shell would take out of a command.
_OPERATOR = re.compile(r"(?:\d*|&)(?:>>?|<{1,3}|>\||<>)(?:&(?:\d+|-)?|/dev/null)?|\|[|&]?|&&?|;;?")
#: What a character outside of quotes would be to a shell.
_SPECIAL = {
    "\n": "a line break", ";": "';'", "&": "'&'", "|": "a pipe", "<": "a redirection", ">": "a redirection", "(": "a subshell",
    ")": "a subshell", "$": "'$'", "`": "a backquote", "*": "a glob", "?": "a glob", "[": "a glob", "#": "a comment", "~": "'~'", "{": "braces",
    "!": "'!'",
}  # fmt: skip
_WORD_START = frozenset("#~!")
_INSTEAD = {
    "a redirection": "what it writes to its output and errors comes back by itself, `stdin` gives it an input, write_file writes a file",
    "a pipe": "its whole output comes back, the first and last 8 kB of it if it is long; run the first command alone",
    "'$'": "there are no variables here; write the value itself",
    "a backquote": "run the inner command first, then write what it gave",
    "a glob": "name the files or their folder, or put the text in quotes",
    "a comment": "leave it out",
    "'~'": "paths are relative to the workspace",
    "braces": "write each argument out, or put the text in quotes",
}
_SHELLS = frozenset({
    "sh", "bash", "zsh", "dash", "ksh", "fish", "cmd", "powershell", "pwsh", "env", "sudo", "xargs", "nohup", "timeout",
})  # fmt: skip
#: What other tools do.
_OTHER_TOOLS = {
    "cat": "read_file", "head": "read_file", "tail": "read_file", "less": "read_file", "ls": "list_dir", "find": "list_dir",
    "tree": "list_dir", "echo": "write_file", "printf": "write_file", "touch": "write_file", "tee": "write_file",
    "mkdir": "write_file, which makes the folders of a file", "git": "the git tools",
}  # fmt: skip


def asked(cmd: str | Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of a command, its program first. Raises ToolError `shell_syntax`, `bad_command` or `empty_command`."""
    if isinstance(cmd, str):
        found = list_in(cmd)
        argv = _split(cmd.strip()) if found is None else found
        _refuse_operators(found or ())
    else:
        argv = list(cmd)
        _refuse_operators(argv)
    if not all(isinstance(each, str) for each in argv):
        raise WorkspaceToolError("bad_command", 'a command is a list of texts, as ["python", "main.py"]')
    if not argv or not argv[0].strip():
        raise WorkspaceToolError("empty_command", 'there is no command; give a list, as ["pytest", "-q"]')
    if len(argv) > _MOST_ARGUMENTS or sum(map(len, argv)) > _MOST_CHARACTERS:
        raise WorkspaceToolError(
            "bad_command",
            f"a command has at most {_MOST_ARGUMENTS} arguments and {_MOST_CHARACTERS} characters; put more into a file",
        )
    if any("\x00" in each or not is_unicode(each) for each in argv):
        raise WorkspaceToolError(
            "bad_command", "an argument has a character that no command can be given (NUL, or half of a surrogate pair)"
        )
    return tuple(argv)


def fault(argv: Sequence[str], rules: Rules, workspace_root: Path, cwd: str = ".") -> str:
    """Return which rule refuses a command, and what is allowed instead; empty when none does."""
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
        return f"the whole command stands in one argument; send {json.dumps(words)}"
    if plain in _SHELLS:
        return f"'{plain}' is not run: there is no shell here; send the program and its arguments as a list"
    if plain == "cd":
        return "'cd' is no program; say where to run a command with `cwd`"
    if "/" in name and plain in rules.names:
        return f"programs are called by their names: send {json.dumps([plain, *arguments])[:200]}"
    if plain in _OTHER_TOOLS:
        return f"'{plain}' is not run; use {_OTHER_TOOLS[plain]}"
    if plain.startswith("pip"):
        return "pip is switched off: use what is installed"
    return f"'{name[:80]}' is no program that may be run"


# -- texts ------------------------------------------------------------------------------------------------------------


def _split(text: str) -> list[str]:
    """Split a text that needs no shell."""
    if what := _shell_syntax(text):
        raise WorkspaceToolError(
            "shell_syntax",
            f"there is no shell here, and the command has {what} outside of quotes: {_advice(text, what)}",
        )
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise WorkspaceToolError(
            "shell_syntax", f"the command cannot be split ({error}); send it as a list of arguments"
        ) from error
    if argv and _ASSIGNMENT.match(text):
        rest = argv[next((n for n, word in enumerate(argv) if not _ASSIGNMENT.match(word)), len(argv)) :]
        raise WorkspaceToolError(
            "shell_syntax", f"a command cannot set variables of its environment; send {json.dumps(rest)}"
        )
    return argv


def _refuse_operators(argv: Sequence[object]) -> None:
    """Raise ToolError where an item of a list is a shell's operator: the program would get it as a text, and nobody would be told."""
    words = [each for each in argv if isinstance(each, str)]
    meant = next((each for each in words if _OPERATOR.fullmatch(each)), "")
    if meant:
        text = " ".join(each if _OPERATOR.fullmatch(each) else shlex.quote(each) for each in words)
        what = _shell_syntax(text)
        raise WorkspaceToolError(
            "shell_syntax",
            f"there is no shell here, and the list has {what} as an argument, '{meant}': {_advice(text, what)}; where the program is to be "
            "given that text, write the command as one text with quotes around it",
        )


def _shell_syntax(text: str) -> str:
    """Name the first thing that only a shell would understand; empty when there is none."""
    quote, before, word = "", " ", ""
    signs = iter(text)
    for sign in signs:
        if sign == "\\" and quote != "'":
            escaped = next(signs, "")
            if escaped == "\n":
                return "a line break"
            word += escaped
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
    """Return whether a shell would read more into a character than itself; the brackets of a test's name are left in peace."""
    if sign in _WORD_START:
        return before.isspace() or (sign == "~" and before in "=:")
    return not (sign in "[*?" and "::" in word)


def _advice(text: str, what: str) -> str:
    """Return what to send instead, in the form of arguments."""
    parts = [_words(part) for part in _OPERATORS.split(text)]
    parts = [part for part in parts if part]
    if len(parts) > 1 and parts[0][0] == "cd" and len(parts[0]) == 2:  # noqa: PLR2004  # `cd` and where to
        return f"send {json.dumps(parts[1])} with cwd {json.dumps(parts[0][1])}"
    if what in _INSTEAD:
        return f"{_INSTEAD[what]}; a command is a list, as {json.dumps(parts[0] if parts else ['python', 'main.py'])}"
    if len(parts) > 1:
        return f"make {len(parts)} calls, one after the other: {', then '.join(json.dumps(part) for part in parts)}"
    return f"send a list of arguments, as {json.dumps(parts[0] if parts else ['python', 'main.py'])}"


def _words(text: str) -> list[str]:
    """Return the plain words at the beginning of a part of a command, up to what only a shell understands."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    plain = list(takewhile(lambda word: not set(word) & set("<>$`(){}*?#~"), words))
    return list(dropwhile(_ASSIGNMENT.match, plain))


_CLEANING_S = 10.0
_MOST_TOLD = 50


class ProtectedState:
    """What is protected in a workspace, as it is before a command. Raises ValueError for a pattern that names nothing in it."""

    def __init__(self, root: Path, patterns: Iterable[str]) -> None:
        self._root, self._protection = root, Protection.of(patterns)
        self._links: dict[Path, str] = {}
        self._absent: list[Path] = []
        kept: set[str] = set()
        for name in self._protection.plain_names:
            kept |= self._looked_at(Path(os.path.normpath(root / name)))
        with looked(str(root), self._protection) as self._sight:
            bare = [shape.folder for shape in self._sight.shapes.values() if shape.is_repository]
            inside = (f"{folder}/{name}" for folder in bare for name in SETTINGS)
            for found in (*self._sight.named, *inside):
                kept |= self._looked_at(Path(found))
        self.kept = tuple(sorted(kept))
        self.changed: tuple[str, ...] = ()
        # A command begins to write much later than the system's clock for files is behind.
        self._since_ns = time.time_ns()

    def _looked_at(self, path: Path) -> set[str]:
        """Note what is there; return what can be mounted."""
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

    def restored(self) -> tuple[str, ...]:
        """Remove what is protected and was made, what makes a folder a repository, and what no diff shows; set links as they were.

        Names what was changed so, of very much the first. `changed` then names the folders of installed programs that are not as they were.
        """
        changed = [path for path in self._absent if not self._link_in(path.parent) and os.path.lexists(path)]
        for path in changed:
            _removed(path)
        for link, target in self._links.items():
            if self._link_in(link.parent) or (link.is_symlink() and str(link.readlink()) == target):
                continue
            if os.path.lexists(link):
                _removed(link)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
            changed.append(link)
        return _told([str(path.relative_to(self._root)) for path in (*changed, *self._planted_removed())])

    def _planted_removed(self) -> list[Path]:
        with looked(str(self._root), self._protection, self._since_ns) as sight:
            own = {str(link) for link in self._links}
            planted = [Path(path) for path in sight.planted_since(self._sight) if path not in own]
            for path in planted:
                with suppress(FileNotFoundError):  # somebody else has taken it away
                    _removed(path)
        self.changed = _told(sorted(str(Path(folder).relative_to(self._root)) for folder in sight.changed))
        return planted


def _told(paths: Sequence[str]) -> tuple[str, ...]:
    more = len(paths) - _MOST_TOLD
    return (*map(shown_path, paths[:_MOST_TOLD]), *([f"and {more:,} more"] if more > 0 else []))


def _removed(path: Path) -> None:
    """Remove a file, a link or a folder, however deep and closed it is, also from a closed folder. Raises OSError."""
    above = stat.S_IMODE(path.parent.stat().st_mode)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        path.parent.chmod(above | stat.S_IRWXU)
    try:
        _removed_from_open(path)
    finally:
        if stat.S_IMODE(path.parent.stat().st_mode) != above:
            path.parent.chmod(above)


def _removed_from_open(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    path.chmod(0o700)
    flatten(path, time.monotonic() + _CLEANING_S)
    shutil.rmtree(path)


#: How much of the beginning and of the end is given, in characters; what is read is more, so that no secret is cut before it is found.
KEPT = 8_000
_CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\|\x9c|\Z)|[ -/]*[0-~]?)"  # CSI; OSC, DCS, SOS, PM, APC; the others
    r"|\x9b[0-?]*[ -/]*[@-~]|[\x9d\x90\x98\x9e\x9f].*?(?:\x07|\x1b\\|\x9c|\Z)",  # the same as one character
    re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def shortened_output(head: bytes, tail: bytes, bytes_between: int, redact: Callable[[str], str]) -> tuple[str, int]:
    """Return the text of an output, and how many characters and bytes of it were left out."""
    if not bytes_between:
        whole = redact(_plain(head + tail))
        if len(whole) <= 2 * KEPT:
            return whole, 0
        return _joined(whole[:KEPT], whole[-KEPT:], len(whole) - 2 * KEPT)
    first, last = redact(_plain(head)), redact(_plain(tail))
    left_out = bytes_between + max(0, len(first) - KEPT) + max(0, len(last) - KEPT)
    return _joined(first[:KEPT], last[-KEPT:], left_out)


def _joined(first: str, last: str, left_out: int) -> tuple[str, int]:
    return f"{first}\n[.. {left_out:,} characters are left out ..]\n{last}", left_out


def _plain(output: bytes) -> str:
    """Decode, with a mark for what is no UTF-8, and leave out what only a terminal understands."""
    text = _CODES.sub("", output.decode(errors="replace"))
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


#: Imports the program before the folder in which it runs is looked at; the folder then comes after Python's own modules.
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
    """How a command ended, and what it printed: output and errors in their order, `omitted` characters and bytes of it left out.

    `code` is its exit status, or None where a signal (`signal`, as SIGTERM) or the sandbox (`ended`) ended it. `removed` names what it had
    made of what is protected or no diff shows, `changed` folders of installed programs that it has changed. `features` are what it was kept from; none on the rung `none`.
    """

    code: int | None
    signal: str
    output: str
    omitted: int
    seconds: float
    ended: How
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    rung: str
    features: frozenset[str]

    @property
    def timed_out(self) -> bool:
        """Whether it was ended at its time limit."""
        return self.ended == "timeout"


def run(
    argv: Sequence[str], *, root: Path, cwd: str = ".", stdin: str | None = None, timeout_s: float = 60.0, protected: Sequence[str] = (),
    network: Sequence[str] = (), rules: Rules | None = None, redact: Callable[[str], str] = str, unconfined: bool = False,
    stop: StopSwitch | None = None, bounds: Bounds = BOUNDS,
) -> FinishedCommand:  # fmt: skip
    """Run a command in a workspace, at most `timeout_s` long; `network` names the hosts that it may reach, as NAME or NAME:PORT.

    `protected` are patterns of what it may not write, as for `Workspace`.

    Raises ToolError `refused` by the rules, `bad_cwd`, `no_program`, and `no_sandbox` where this machine cannot confine it; with `unconfined`
    it is then run all the same, with this user's rights. Whatever was started is gone when this returns or raises.
    """
    rules, root = rules or Rules(), Path(os.path.realpath(root))
    folder = _folder(root, cwd)
    if why := fault(argv, rules, root, cwd):
        raise WorkspaceToolError("refused", why)
    command = _resolved(argv, root, folder)
    if not unconfined and (lacking := probe_commands().fault):
        raise WorkspaceToolError(
            "no_sandbox", f"no command can be run here: the sandbox for commands is not there: {lacking}"
        )
    before = ProtectedState(root, protected)
    try:
        with serve_proxy(network) if network and not unconfined else _nothing() as hosts:
            asked = ShellCommand(
                command, str(root), str(folder), _environment(root), _visible(root, with_network=bool(hosts)), before.kept,
                (stdin or "").encode(), hosts, is_confined=not unconfined,
            )  # fmt: skip
            ended = run_command(asked, attrs.evolve(bounds, timeout_s=timeout_s), switch=stop)
    except SandboxError as error:
        raise WorkspaceToolError("no_sandbox", f"no command can be run here: {error}") from error
    finally:
        removed = before.restored()
    kept_from = frozenset[str]() if unconfined else KEPT_FROM - ({"no network"} if network else set())
    return _ran(ended, (removed, before.changed), redact, kept_from)


def _ran(
    ended: CommandEnd,
    left: tuple[tuple[str, ...], tuple[str, ...]],
    redact: Callable[[str], str],
    features: frozenset[str],
) -> FinishedCommand:
    text, omitted = shortened_output(ended.head, ended.tail, ended.bytes_between, redact)
    status = ended.status
    name = signal.Signals(-status).name if status is not None and -status in set(signal.Signals) else ""
    name = f"signal {-status}" if not name and status is not None and status < 0 else name
    code = status if status is not None and status >= 0 else None
    rung = "bubblewrap" if features else "none"
    return FinishedCommand(code, name, text, omitted, ended.seconds, ended.how, *left, rung, features)


@contextmanager
def _nothing() -> Iterator[str]:
    yield ""


def _folder(root: Path, cwd: str) -> Path:
    """Return the folder to run in. Raises ToolError `bad_cwd`."""
    if "\x00" in cwd:
        raise WorkspaceToolError("bad_cwd", "`cwd` has a character that no path has (NUL)")
    if root.parent == root or not root.is_dir():
        raise ValueError(f"{root} is no folder that can be a workspace")
    folder = Path(os.path.realpath(root / cwd))
    if not folder.is_relative_to(root):
        raise WorkspaceToolError(
            "bad_cwd", f"`cwd` = '{cwd[:200]}' leads out of the workspace; give a folder relative to its root"
        )
    if not os.path.isdir(folder):  # noqa: PTH112  (that of a Path raises for a name that is too long)
        raise WorkspaceToolError("bad_cwd", f"`cwd` = '{cwd[:200]}' is no folder of the workspace")
    return folder


# -- programs ---------------------------------------------------------------------------------------------------------


def python() -> str:
    """Return the path of this Python, in its virtual environment if it has one."""
    return str(Path(os.path.realpath(Path(sys.executable).parent), Path(sys.executable).name))


def _packages(root: Path) -> list[str]:
    """Return the folders of packages that this Python finds only because it was told to."""
    own = (os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
    parent = str(Path(dsa.__file__).parent.parent)
    ours = [parent] if parent in os.environ.get("PYTHONPATH", "").split(os.pathsep) else []
    known = [os.path.realpath(path) for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    told = [path for path in known if not any(Path(path).is_relative_to(prefix) for prefix in own)]
    return [*dict.fromkeys((*told, *ours)), *([str(root / _PACKAGES)] if (root / _PACKAGES).is_dir() else [])]


def _path(root: Path) -> list[str]:
    """Return the folders in which programs are found: this Python's and the system's, and none that the workspace could fill."""
    beside = [str(Path(path).parents[2] / "bin") for path in _packages(root) if Path(path).name == "site-packages"]
    folders = dict.fromkeys((str(Path(python()).parent), *beside, *_SYSTEM_PATH))
    own = os.path.realpath(sys.prefix)
    return [
        each
        for each in folders
        if not Path(os.path.realpath(each)).is_relative_to(root) or Path(each).is_relative_to(own)
    ]


def _resolved(argv: Sequence[str], root: Path, folder: Path) -> tuple[str, ...]:
    """Return what is really started. Raises ToolError `no_program`."""
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
    found = _found(name, root)
    if found is None:
        raise WorkspaceToolError("no_program", f"{name} is allowed, but not installed on this machine")
    return (found, *arguments)


def _found(name: str, root: Path) -> str | None:
    return shutil.which(name, path=os.pathsep.join(_path(root)))


def not_installed(rules: Rules, root: Path) -> tuple[str, ...]:
    """Name the programs that the settings allow and this machine does not have."""
    return tuple(name for name in rules.programs if _found(name, root) is None)


def _as_module(
    options: Sequence[str], module: str, arguments: Sequence[str], root: Path, folder: Path
) -> tuple[str, ...]:
    """Return the command that runs a module, with what pytest and pip are told in addition."""
    more: list[str] = []
    if module == "pytest" and not any(each.startswith(_CACHE_OPTIONS) for each in arguments):
        more = ["-p", "no:cacheprovider"]
    elif module == "pip":
        arguments = [*arguments, *_PIP, "--target", str(root / _PACKAGES)]
    return (python(), "-P", "-s", *options, "-c", _AS_MODULE, module, str(folder), *more, *arguments)


def _environment(root: Path) -> Mapping[str, str]:
    """Return all that a command gets of an environment."""
    packages = _packages(root)
    return {
        **_ENVIRONMENT,
        "PATH": os.pathsep.join(_path(root)),
        **({"PYTHONPATH": os.pathsep.join(packages)} if packages else {}),
    }


def _visible(root: Path, *, with_network: bool) -> Visible:
    """Return what a command sees of this machine."""
    ours = [str(Path(package.__file__ or "").parent) for package in (dsa, machines)]  # pytest loads a plugin of ours
    parent = str(Path(ours[0]).parent)
    packages = [path for path in (*_packages(root), *ours) if path != parent and not Path(path).is_relative_to(root)]
    beside = [folder for folder in _path(root) if not folder.startswith(("/usr/", "/bin", "/sbin"))]
    certificates = _CERTIFICATES if with_network else ()
    paths = ("/usr", "/bin", "/sbin", "/etc/alternatives", sys.prefix, python(), *packages, *beside, *certificates)
    real = [os.path.realpath(Path(python()).resolve().parent)]
    return visible_paths(*(path for path in (*paths, *real) if Path(path).exists()))


#: How long a call waits for others, in seconds: as long as the longest command.
WAIT_S = 600.0
_LOOK_S = 0.05
_BUSY = "somebody else is changing the workspace: another run, or another part of this one"


@contextmanager
def alone(workspace: Path, stop: StopSwitch, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold a workspace. Raises ToolError `workspace_busy` when somebody else holds it for too long, or the caller is stopped meanwhile."""
    opened = os.open(workspace, ROOT)
    try:
        until = time.monotonic() + wait_s
        while not try_lock(opened):
            stopped, _, _ = select.select([stop], [], [], _LOOK_S)
            if stopped or time.monotonic() > until:
                raise WorkspaceToolError("workspace_busy", _BUSY)
        yield
    finally:
        os.close(opened)
