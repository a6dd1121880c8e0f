"""Guards that run a tool over a text in the sandbox: a command of your own, the linter ruff, the type checker mypy.

`ToolProgram` runs a command and returns how it ended and what it printed; the caller decides what an exit status means.

`CommandGuard` passes a text if the program ends with 0. A program that runs what a model wrote takes its exit status from there, so a
pass is labelled `trust: cooperative`; one that only reads it, like a linter, decides for itself.

`RuffGuard` and `MypyGuard` read code and run nothing of it. They read only the configuration and plugins that they get here, and
comments in the code cannot switch off a rule: those that would silence mypy are faults.
"""

import ast
import errno
import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import attrs

from dsa.edge.sandbox import Bounds, Confinement, SandboxError, SandboxOutcome, SandboxProgram, run_confined
from dsa.errors import BindingError, DsaError, install_hint
from dsa.guards.code import comments, extract_code, extract_fenced, syntax_fault
from dsa.guards.feedback import bound_text, clip
from dsa.guards.pytest_guard import TRUST
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

#: The folders where systems have the programs that others start: these can be run in the sandbox, but not changed.
_USUAL = ("/usr/bin", "/bin")
_NOT_RUN, _LOAD_ERROR = 127, ": error while loading shared libraries: "
_HINTS = {
    errno.EACCES: "the sandbox's user may not read the program, or may not enter a folder above it: install the program where all users can read it",
    errno.ENOENT: "its interpreter, or a library that it is linked to, is not visible in the sandbox: add the files or folders to the option `read`",
    errno.ENOEXEC: "it is not a program for this machine, or it is a script without a first line #!",
    errno.ENOMEM: "it needs more memory than it gets",
    errno.EPERM: "this system does not allow the program to run in the sandbox",
}


@attrs.frozen
class ToolProgram:
    """A program with its arguments, and what it can see there besides the system's shared libraries and programs.

    `links` are files and folders by their names in the program's working folder; elsewhere they have the same paths as here.
    """

    program: str
    arguments: tuple[str, ...]
    links: Mapping[str, str] = attrs.field(factory=dict)
    visible_paths: tuple[str, ...] = ()
    environment: Mapping[str, str] = attrs.field(factory=dict)

    def run(self, text: str, file: str, bounds: Bounds, confinement: Confinement) -> SandboxOutcome:
        """Run it with the text in a file of that name in its working folder, or, without a name, on its standard input.

        Raises SandboxError if it cannot be confined as required, or cannot be started there.
        """
        payload = {
            "program": self.program, "arguments": [self.program, *self.arguments], "file": file, "text": text,
            "shown": dict(self.links), "environment": dict(self.environment),
        }  # fmt: skip
        outcome = run_confined(_program(self._visible()), json.dumps(payload), bounds, confinement)
        prefix = f"{self.program}{_LOAD_ERROR}".encode()
        # The system's loader writes this: the program has not run at all.
        if outcome.code == _NOT_RUN and outcome.output.startswith(prefix):
            message = clip(outcome.output.removeprefix(f"{self.program}: ".encode()).decode("utf-8", "replace"))
            raise SandboxError(_unstartable(self.program, outcome.rung, errno.ENOENT, message))
        if not outcome.results:
            return outcome
        match _parse(outcome.results):
            case {"signal": int(number)}:
                return attrs.evolve(outcome, end="signalled", code=number)
            case {"unstarted": [int(number), str(message)]}:
                raise SandboxError(_unstartable(self.program, outcome.rung, number, message))
        return attrs.evolve(outcome, end="lost")  # the code wrote there

    def _visible(self) -> tuple[str, ...]:
        usual = tuple(path for path in _USUAL if Path(path).is_dir())
        return tuple(dict.fromkeys((*usual, self.program, *self.visible_paths, *self.links.values())))


def find_program(name: str, folder: Path | None = None) -> str:
    """Return the real path of a program: a file relative to a folder or to the working folder, or, for a name without a slash, one from PATH.

    `python` is the one that runs this. Raises BindingError if there is none.
    """
    program = os.path.join(folder or "", name) if "/" in name else name  # noqa: PTH118  (keeps a slash, where PATH is not asked)
    path = sys.executable if name in ("python", "python3") else shutil.which(program)
    if path is None:
        raise BindingError(f"there is no program '{program}': write its path, or install it in a folder of PATH")
    return os.path.realpath(path)


def find_tool(name: str, extra: str) -> str:
    """Return the real path of a program from a package: beside this Python, else from PATH. Raises BindingError, which names the extra."""
    path = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if path is None:
        raise BindingError(f"{name} is not installed: {install_hint(extra)}")
    return os.path.realpath(path)


def _unstartable(program: str, rung: str, number: int, reason: str) -> str:
    """Return why a program was not started, and what to do."""
    hint = f"; {_HINTS[number]}" if number in _HINTS else ""
    return f"{Path(program).name} cannot be started in the sandbox '{rung}': {reason}{hint}"


def _parse(results: bytes) -> object:
    try:
        return json.loads(results)
    except (ValueError, RecursionError):
        return None


@functools.cache
def _program(visible: tuple[str, ...]) -> SandboxProgram:
    return SandboxProgram(Path(__file__).with_name("tool_child.py").read_text(encoding="utf-8"), ("pathlib",), visible)


_LONGEST_S = 86_400
_PYTHON = frozenset({"python", "py", "python3"})
_MEBIBYTE = 1 << 20
_MOST_TEXT = 4_000_000


class CommandGuard(GuardInterface):
    """Pass a text if your own program, run on it in the sandbox, ends with 0; the feedback is the beginning and the end of its output.

    `command` is split as a shell does, and no shell is started. The text is in the file `file` of the program's working folder, or on its standard
    input; `fence` takes the content of the first fence in that language. `read` names files and folders that the program can see, a relative one under
    its name in the working folder too. Relative ones, and a program with a slash, are relative to `document_folder`, or to the working folder.
    `require` and `rung` are the sandbox's. Raises ValueError for invalid options, BindingError if there is no such program.
    """

    def __init__(
        self,
        command: str,
        *,
        file: str = "",
        fence: str = "",
        timeout_s: float = 30,
        memory_mb: int = 1024,
        read: tuple[str, ...] = (),
        require: tuple[str, ...] = (),
        rung: str = "",
        document_folder: Path | None = None,
    ) -> None:
        folder = document_folder or Path()
        words = shlex.split(command)
        if not words:
            raise ValueError("the command is empty")
        if not 0 < timeout_s <= _LONGEST_S:
            raise ValueError(
                f"timeout_s = {timeout_s:g} is not a valid time limit: it must be more than 0 s and at most {_LONGEST_S} s"
            )
        if memory_mb < 1:
            raise ValueError(f"memory_mb = {memory_mb} is too little: it must be at least 1")
        self._name, self._file, self._fence = words[0], _inside(file), fence.lower()
        links = {
            path: os.path.realpath(folder / path) for path in read if not Path(path).is_absolute() and _inside(path)
        }
        if any(PurePosixPath(file).is_relative_to(path) for path in links):
            raise ValueError(
                f"the file '{file}' cannot be written there: it would be in a folder that the option `read` lists, which the guard's program may only read"
            )
        if missing := [folder / path for path in read if not (folder / path).exists()]:
            raise ValueError(f"there is no file or folder '{missing[0]}' to read")
        visible_paths = tuple(path for path in read if path not in links)
        self._tool = ToolProgram(find_program(words[0], folder), tuple(words[1:]), links, visible_paths)
        self._confinement = Confinement(require, rung)
        self._bounds = Bounds(
            timeout_s, cpu_s=max(1, round(timeout_s)), memory_bytes=memory_mb * _MEBIBYTE, file_bytes=16 * _MEBIBYTE,
            disk_bytes=64 * _MEBIBYTE, open_files=256, processes=64,
        )  # fmt: skip

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Run the program over the text. Raises SandboxError if it cannot be confined as required, or cannot be started."""
        text = self._text_of(artifact.content)
        if len(text) > _MOST_TEXT:
            return _failed(f"The text is too long: {len(text)} characters; at most {_MOST_TEXT} are judged.")
        try:
            text.encode()
        except UnicodeEncodeError:
            return _failed("The text has characters that are not allowed in a file.")
        outcome = self._tool.run(text, self._file, self._bounds, self._confinement)
        if outcome.end == "exited" and outcome.code == 0:
            return GuardResult(passed=True, feedback=f"{self._name} ended with 0 ({TRUST}).")
        return _failed(f"{self._name} {self._end(outcome)}\n{_output_text(outcome)}")

    def _text_of(self, text: str) -> str:
        if not self._fence:
            return text
        return extract_code(text) if self._fence in _PYTHON else extract_fenced(text, self._fence)

    def _end(self, outcome: SandboxOutcome) -> str:
        if outcome.end == "exited":
            return f"ended with {outcome.code}."
        if outcome.end == "timeout":
            return f"did not end within {self._bounds.timeout_s:g} s."
        if outcome.end == "signalled" and outcome.cpu_s > self._bounds.cpu_s - 0.5:
            return f"used more than {self._bounds.cpu_s} s of processor time."
        if outcome.end == "signalled":
            names = {number.value: number.name for number in signal.Signals}
            return f"was killed ({names.get(outcome.code, outcome.code)}), because it crashed or exceeded a limit."
        return "was lost."


def _inside(path: str) -> str:
    """Return a path in the working folder unchanged; raise ValueError for any other."""
    if path and (Path(path).is_absolute() or ".." in PurePosixPath(path).parts or PurePosixPath(path).name == ""):
        raise ValueError(f"'{path}' is not in the folder in which this guard's program runs")
    return path


def _output_text(outcome: SandboxOutcome) -> str:
    return bound_text(outcome.output.decode("utf-8", "replace"), outcome.tail.decode("utf-8", "replace"))


def _failed(feedback: str) -> GuardResult:
    return GuardResult(passed=False, feedback=bound_text(feedback))


_FILE = "solution.py"
_FAULT = re.compile(rf"^{re.escape(_FILE)}:(\d+):\d+: (?P<rule>\S+) (?:\[[*-]\] )?(?P<what>.*)$", re.MULTILINE)
_ISORT = re.compile(r"#\s*isort\s*:")  # comments that --ignore-noqa does not cover
_MOST_FAULTS = 5
_USAGE = 2  # its exit status when it cannot work
_CHECK_S = 30
_MOST_SAID = 300


class RuffGuard(GuardInterface):
    """Pass code in which ruff finds nothing; the feedback names the first faults by line and rule.

    `select` and `ignore` are ruff's rules, by default its usual ones; `line_length` also checks the length of lines (E501). Configuration
    files are not read, and comments such as `# noqa` switch nothing off. It runs in the sandbox; `require` and `rung` are the sandbox's. Raises ValueError for
    rules that ruff does not know, BindingError if ruff is not installed.
    """

    def __init__(
        self,
        *,
        select: tuple[str, ...] = (),
        ignore: tuple[str, ...] = (),
        line_length: int | None = None,
        timeout_s: float = 10,
        require: tuple[str, ...] = (),
        rung: str = "",
    ) -> None:
        rules = ["--select", ",".join(select)] if select else []
        rules += ["--ignore", ",".join((*ignore, "INP001"))]  # a single text is not in a package
        if line_length is not None:
            rules += ["--line-length", str(line_length), "--extend-select", "E501"]
        arguments = (
            "check", "--isolated", "--no-cache", "--ignore-noqa", "--no-fix", "--output-format=concise", *rules, "--stdin-filename", _FILE, "-",
        )  # fmt: skip
        if not timeout_s > 0:
            raise ValueError(f"timeout_s = {timeout_s:g} is not a valid time limit: it must be more than 0 s")
        program = find_tool("ruff", "lint")
        _require_known(program, arguments)
        self._tool = ToolProgram(
            program, arguments, visible_paths=(program.rpartition("/")[0],), environment={"RAYON_NUM_THREADS": "1"}
        )
        self._bounds = Bounds(timeout_s, cpu_s=round(timeout_s) + 1, memory_bytes=1 << 30)
        self._confinement = Confinement(require, rung)

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the code. Raises SandboxError if it cannot be confined as required, DsaError if ruff itself fails."""
        code = extract_code(artifact.content)
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        if lines := [line for line, text in comments(code) if _ISORT.match(text)]:
            return GuardResult(
                passed=False, feedback=f"line {lines[0]}: a comment must not switch off the sorting of imports."
            )
        outcome = self._tool.run(code, "", self._bounds, self._confinement)
        feedback = self._faults(outcome)
        return GuardResult(passed=not feedback, feedback=feedback)

    def _faults(self, outcome: SandboxOutcome) -> str:
        if outcome.end == "timeout":
            return f"ruff did not finish with the code within {self._bounds.timeout_s:g} s."
        text = outcome.output.decode("utf-8", "replace")
        faults = [f"line {match[1]}: {clip(match['rule'] + ' ' + match['what'])}" for match in _FAULT.finditer(text)]
        if outcome.end == "exited" and outcome.code == 0:
            return ""
        if outcome.end != "exited" or outcome.code == _USAGE or not faults:
            raise _fault(f"ruff failed ({outcome.end}, {outcome.code}): {clip(text)}")
        more = "and more" if outcome.tail else f"and {len(faults) - _MOST_FAULTS} more"
        return bound_text("\n".join(faults[:_MOST_FAULTS] + ([more] if len(faults) > _MOST_FAULTS else [])))


def _require_known(program: str, arguments: tuple[str, ...]) -> None:
    """Let ruff read its arguments, with nothing to check; raise ValueError if they are wrong."""
    process = subprocess.run(  # noqa: S603  # ruff itself, without the artifact
        [program, *arguments], input=b"", capture_output=True, check=False, timeout=_CHECK_S, env={}
    )
    if process.returncode == _USAGE:
        message = " ".join(process.stderr.decode("utf-8", "replace").split())
        raise ValueError(f"ruff does not accept these options: {clip(message, _MOST_SAID)}")


_ERROR = re.compile(rf"^{re.escape(_FILE)}:(\d+): error: (.*)$", re.MULTILINE)
_IGNORE = re.compile(r"#\s*type\s*:\s*ignore\b")
_SETTING = re.compile(r"#\s*mypy\s*:")
_SILENCER_NAMES = frozenset({"no_type_check", "no_type_check_decorator"})
_PRELOAD = ("mypy.api", "mypy.main", "mypy.build", "mypy.checker", "mypy.fastparse", "mypy.semanal_main")

_MOST_PRINTED = 30_000
_HAS_FAULTS = 1  # its exit status if it has found something


class MypyGuard(GuardInterface):
    """Pass code in which mypy finds nothing; the feedback names the first faults by line.

    `strict` is mypy's. Modules that are not in the standard library count as `Any`; functions without annotations are checked too.
    Neither configuration nor plugins are read. What would silence it (`# type: ignore`, `# mypy: ..`, `no_type_check`) is a fault, unless
    `allow_ignores`. It runs in the sandbox; `require` and `rung` are the sandbox's. Raises BindingError if mypy is not installed.
    """

    def __init__(
        self,
        *,
        strict: bool = False,
        allow_ignores: bool = False,
        timeout_s: float = 60,
        require: tuple[str, ...] = (),
        rung: str = "",
    ) -> None:
        if not timeout_s > 0:
            raise ValueError(f"timeout_s = {timeout_s:g} is not a valid time limit: it must be more than 0 s")
        self._program = program()
        self._options = ["--strict"] if strict else []
        self._allow_ignores = allow_ignores
        self._bounds = Bounds(
            timeout_s, cpu_s=round(timeout_s) + 1, memory_bytes=1 << 30, open_files=256, result_bytes=1 << 18
        )
        self._confinement = Confinement(require, rung)

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the code. Raises SandboxError if it cannot be confined as required, DsaError if mypy itself fails."""
        code = extract_code(artifact.content)
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        faults = [] if self._allow_ignores else sorted(_silencers(code))
        if not faults:
            payload = {"code": code, "file": _FILE, "options": self._options, "most": _MOST_PRINTED}
            outcome = run_confined(self._program, json.dumps(payload), self._bounds, self._confinement)
            if outcome.end == "timeout":
                within = f"{self._bounds.timeout_s:g} s"
                return GuardResult(passed=False, feedback=f"mypy did not finish with the code within {within}.")
            faults = faults_in(outcome)
        lines = [f"line {line}: {clip(what)}" for line, what in faults[:_MOST_FAULTS]]
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        return GuardResult(passed=not faults, feedback=bound_text("\n".join(lines + more)))


def _silencers(code: str) -> Iterator[tuple[int, str]]:
    """Yield the places where code switches its type checker off."""
    for line, text in comments(code):
        if _IGNORE.search(text):
            yield line, "`# type: ignore` is not allowed: fix what it hides."
    for line, text in enumerate(code.split("\n"), start=1):  # mypy reads these in strings too
        if _SETTING.match(text.lstrip()):
            yield line, "`# mypy:` is not allowed: code may not configure its type checker."
    for node in ast.walk(ast.parse(code)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else {name}
        if isinstance(node, ast.Attribute | ast.Name | ast.ImportFrom) and names & _SILENCER_NAMES:
            yield node.lineno, "`no_type_check` is not allowed: fix what it hides."


def _fault(message: str) -> DsaError:
    """Return the error for a tool that failed through its own fault, which says nothing about the text."""
    return DsaError(message, code="ToolFailedError")


def faults_in(outcome: SandboxOutcome) -> list[tuple[int, str]]:
    """Return the lines with what mypy says about them. Raises DsaError for output that is not a report on the code."""
    try:
        status, output, complaints = json.loads(outcome.results)
    except ValueError:
        output = outcome.output.decode("utf-8", "replace")
        raise _fault(f"mypy failed ({outcome.end}, {outcome.code}): {clip(output[-300:])}") from None
    faults = [(int(line), what) for line, what in _ERROR.findall(output)]
    if status and not faults:
        raise _fault(f"mypy failed ({status}): {clip(complaints or output)}")
    return faults if status >= _HAS_FAULTS else []


@functools.cache
def program() -> SandboxProgram:
    """Return the program that runs there, with the folder that mypy is installed in. Raises BindingError."""
    spec = importlib.util.find_spec("mypy")
    if spec is None or spec.origin is None:
        raise BindingError(f"mypy is not installed: {install_hint('lint')}")
    text = Path(__file__).with_name("mypy_child.py").read_text(encoding="utf-8")
    return SandboxProgram(text, _PRELOAD, (str(Path(spec.origin).resolve().parent.parent),))
