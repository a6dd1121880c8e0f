"""Judge code by the type checker mypy, which reads it and runs nothing of it.

Takes options, gives a guard. No configuration and no plugin is read; comments that would silence mypy are faults.
"""

import ast
import functools
import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

from dsa.edge.sandbox import Bounds, Confinement, Outcome, Program, run_confined
from dsa.errors import install_hint
from dsa.guards.code import comments, extract_code, syntax_fault
from dsa.guards.feedback import bounded, clip
from dsa.guards.tool import ToolFailedError, ToolMissingError
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

_FILE = "solution.py"
_ERROR = re.compile(rf"^{re.escape(_FILE)}:(\d+): error: (.*)$", re.MULTILINE)
_IGNORE = re.compile(r"#\s*type\s*:\s*ignore\b")
_SETTING = re.compile(r"#\s*mypy\s*:")
_UNCHECKED = frozenset({"no_type_check", "no_type_check_decorator"})
_PRELOAD = ("mypy.api", "mypy.main", "mypy.build", "mypy.checker", "mypy.fastparse", "mypy.semanal_main")
_MOST_FAULTS = 5
_MOST_PRINTED = 30_000
_FOUND = 1  # its exit status when it has found something


class MypyGuard(GuardInterface):
    """Pass code in which mypy finds nothing; the feedback names the first faults by line.

    `strict` is mypy's. Modules that are not in the standard library are taken as they come (`Any`); functions without annotations are checked too.
    Neither configuration nor plugins are read. What would silence it (`# type: ignore`, `# mypy: ..`, `no_type_check`) is a fault, unless
    `allow_ignores`. Runs in the sandbox, whose `require` and `rung` are. ToolMissingError where mypy is not installed.
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
            raise ValueError(f"timeout_s = {timeout_s:g} is no time limit")
        self._program = program()
        self._options = ["--strict"] if strict else []
        self._allow_ignores = allow_ignores
        self._bounds = Bounds(
            timeout_s, cpu_s=round(timeout_s) + 1, memory_bytes=1 << 30, open_files=256, result_bytes=1 << 18
        )
        self._confinement = Confinement(require, rung)

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:  # noqa: ARG002  # the interface
        """Judge the code. Raises SandboxError where it cannot be confined as is required, ToolFailedError when mypy itself fails."""
        code = extract_code(artifact.content)
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        faults = [] if self._allow_ignores else sorted(_silencers(code))
        if not faults:
            payload = {"code": code, "file": _FILE, "options": self._options, "most": _MOST_PRINTED}
            outcome = run_confined(self._program, json.dumps(payload), self._bounds, self._confinement)
            if outcome.ended == "timeout":
                within = f"{self._bounds.timeout_s:g} s"
                return GuardResult(passed=False, feedback=f"mypy did not finish with the code within {within}.")
            faults = faults_in(outcome)
        said = [f"line {line}: {clip(what)}" for line, what in faults[:_MOST_FAULTS]]
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        return GuardResult(passed=not faults, feedback=bounded("\n".join(said + more)))


def _silencers(code: str) -> Iterator[tuple[int, str]]:
    """Give the places where code switches its type checker off."""
    for line, text in comments(code):
        if _IGNORE.search(text):
            yield line, "`# type: ignore` is not allowed: mend what it hides."
    for line, text in enumerate(code.split("\n"), start=1):  # mypy reads these in strings too
        if _SETTING.match(text.lstrip()):
            yield line, "`# mypy:` is not allowed: the code does not set up its type checker."
    for node in ast.walk(ast.parse(code)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else {name}
        if isinstance(node, ast.Attribute | ast.Name | ast.ImportFrom) and names & _UNCHECKED:
            yield node.lineno, "`no_type_check` is not allowed: mend what it hides."


def faults_in(outcome: Outcome) -> list[tuple[int, str]]:
    """Give the lines with what mypy says of them. Raises ToolFailedError for what is no report on the code."""
    try:
        status, printed, complaints = json.loads(outcome.results)
    except ValueError:
        printed = outcome.output.decode("utf-8", "replace")
        raise ToolFailedError(f"mypy failed ({outcome.ended}, {outcome.code}): {clip(printed[-300:])}") from None
    found = [(int(line), what) for line, what in _ERROR.findall(printed)]
    if status and not found:
        raise ToolFailedError(f"mypy failed ({status}): {clip(complaints or printed)}")
    return found if status >= _FOUND else []


@functools.cache
def program() -> Program:
    """Give the program that runs there, with the folder that mypy is installed in. Raises ToolMissingError."""
    found = importlib.util.find_spec("mypy")
    if found is None or found.origin is None:
        raise ToolMissingError(f"mypy is not installed: {install_hint('lint')}")
    text = Path(__file__).with_name("mypy_child.py").read_text(encoding="utf-8")
    return Program(text, _PRELOAD, (str(Path(found.origin).resolve().parent.parent),))
