"""Judge code by tests that pytest runs in the sandbox.

Takes tests, given or written by an earlier step; gives guards. Code and tests share a process there, so code that is made for it can
forge a pass: what passes is labelled `trust: cooperative`. `hardened` makes forging harder and finds tests that test nothing. Where that
is not enough, `dsa.guards.cases` keeps what is expected out of the process.
"""

import ast
import functools
import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from dsa.edge.sandbox import Bounds, Confinement, Program, SandboxError, run_confined
from dsa.errors import install_hint
from dsa.guards.code import extract_code, syntax_fault
from dsa.guards.tested_report import Report, read_report
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

_LONGEST_S = 86_400
_MEMORY_BYTES = 1 << 30
_RESULT_BYTES = 1 << 20
#: What pytest would import when it starts.
_PRELOAD = (
    "pytest", "_pytest.assertion.rewrite", "_pytest.python", "_pytest.python_api", "_pytest.unittest", "_pytest.skipping", "_pytest.legacypath",
    "_pytest.recwarn", "_pytest.monkeypatch", "_pytest.tmpdir", "_pytest.reports", "_pytest.debugging", "_pytest.setuponly",
    "_pytest.helpconfig", "_pytest.pytester", "_pytest.threadexception", "_pytest.unraisableexception", "_pytest.warnings",
    "dataclasses", "decimal", "enum", "fractions", "functools", "heapq", "itertools", "json", "math", "random", "re", "statistics",
    "string", "typing",
)  # fmt: skip
_Mode = Literal["run", "collect", "break"]
TRUST = "trust: cooperative"


class TestGuard(GuardInterface):
    """Pass code that passes tests run by pytest, given as text or as the artifact that the step uses as `test`.

    Tests import the code as the module `module`, or under any name that no installed module has, or just use its names. The
    feedback names failed tests and what the code gave, never what was expected unless `show_expected`. `hardened` asks for exactly the
    tests that were found without the code running, and for failures when every function of the code is replaced by one that fails.
    `require` and `rung` are the sandbox's. A pass is labelled `trust: cooperative`. ValueError for options that mean nothing, and for
    given tests that are no Python: those of a step may come later, and are judged with the code.
    """

    __test__ = False  # pytest would take it for tests

    def __init__(
        self,
        test_code: str | None = None,
        *,
        module: str = "solution",
        timeout_s: float = 30,
        hardened: bool = False,
        show_expected: bool = False,
        require: tuple[str, ...] = (),
        rung: str = "",
    ) -> None:
        if not module.isidentifier() or importlib.util.find_spec(module) is not None:
            raise ValueError(f"'{module}' can be no module of the code: it is no name, or one that is installed")
        if not 0 < timeout_s <= _LONGEST_S:
            raise ValueError(f"timeout_s = {timeout_s:g} is no time limit: more than 0 s, at most {_LONGEST_S} s")
        if test_code is not None:
            _require_python(test_code)
        self._test_code, self._module = test_code, module
        self._hardened, self._show_expected = hardened, show_expected
        self._confinement = Confinement(require, rung)
        self._bounds = Bounds(
            timeout_s, cpu_s=round(timeout_s) + 1, memory_bytes=_MEMORY_BYTES, result_bytes=_RESULT_BYTES
        )

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Judge the code. Raises SandboxError where it cannot be confined as is required, or where pytest is not installed."""
        used = dependencies.get("test")
        tests = extract_code(used.content) if used else self._test_code
        if not tests or not tests.strip():
            return GuardResult(
                passed=False, feedback="There are no tests: none are given, and the step uses nothing as 'test'."
            )
        return self.judged(extract_code(artifact.content), tests)

    def judged(self, code: str, tests: str) -> GuardResult:
        """Judge code by tests, both plain Python."""
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        if fault := syntax_fault(tests):
            return GuardResult(passed=False, feedback=f"The tests cannot be run. {fault}")
        modes: tuple[_Mode, ...] = ("run", "collect", "break") if self._hardened else ("run",)
        with ThreadPoolExecutor(len(modes)) as threads:
            reports = dict(zip(modes, threads.map(lambda mode: self._report(mode, code, tests), modes), strict=True))
        feedback = reports["run"].feedback(show_expected=self._show_expected)
        if not feedback and self._hardened:
            feedback = _suspicion(reports["run"], reports["collect"], reports["break"], code)
        if feedback:
            return GuardResult(passed=False, feedback=feedback)
        count = len(reports["run"].collected)
        label = f"{TRUST}{', hardened' if self._hardened else ''}"
        return GuardResult(passed=True, feedback=f"{count} test{'s' if count > 1 else ''} passed ({label}).")

    def _report(self, mode: _Mode, code: str, tests: str) -> Report:
        payload = json.dumps({"code": code, "tests": tests, "module": self._module, "mode": mode})
        outcome = run_confined(program(), payload, self._bounds, self._confinement)
        return read_report(outcome, self._bounds, runs=mode != "collect")


class TDDTestGuard(TestGuard):
    """Pass code that passes the tests which an earlier step wrote, and which this step uses as `test`.

    Without that dependency, or without test functions in it, the code has failed, and the feedback says so.
    """

    def __init__(
        self,
        *,
        module: str = "solution",
        timeout_s: float = 30,
        hardened: bool = False,
        show_expected: bool = False,
        require: tuple[str, ...] = (),
        rung: str = "",
    ) -> None:
        super().__init__(
            None,
            module=module,
            timeout_s=timeout_s,
            hardened=hardened,
            show_expected=show_expected,
            require=require,
            rung=rung,
        )

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Judge the code by the tests that the step uses. Raises as TestGuard does."""
        used = dependencies.get("test")
        if used is None:
            return GuardResult(passed=False, feedback="There are no tests: the step uses nothing as 'test'.")
        tests = extract_code(used.content)
        if not syntax_fault(tests) and not _has_tests(tests):
            return GuardResult(passed=False, feedback="The tests define no function test_...().")
        return self.judged(extract_code(artifact.content), tests)


def _require_python(tests: str) -> None:
    """Raise ValueError for tests that nobody can run: whoever gave them is to know, and not the model."""
    fault = syntax_fault(tests, "the code of the tests") if tests.strip() else "the tests are empty"
    if fault:
        raise ValueError(fault.rstrip("."))


def _has_tests(tests: str) -> bool:
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
        for node in ast.walk(ast.parse(tests))
    )


def _suspicion(done: Report, collected: Report, broken: Report, code: str) -> str:
    """Tell why a pass is not believed; empty when it is."""
    if not collected.is_whole:
        return f"The tests cannot be collected without the code, as the hardened mode must: {collected.reason}"
    if done.collected != collected.collected:
        return "The code changed which tests there are."
    if _defines_functions(code) and broken.is_whole and broken.all_passed:
        return (
            "The tests pass even when every function of the code is replaced by one that fails: "
            "either they test nothing, or the code meddles with them."
        )
    return ""


def _defines_functions(code: str) -> bool:
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(ast.parse(code)))


@functools.cache
def program() -> Program:
    """Give the program that runs there, with the folder that pytest is installed in."""
    found = importlib.util.find_spec("pytest")
    if found is None or found.origin is None:
        raise SandboxError(f"pytest is not installed: {install_hint('test')}", ("pytest",))
    text = Path(__file__).with_name("tested_child.py").read_text(encoding="utf-8")
    names = tuple(name for name in _PRELOAD if name.partition(".")[0] != "_pytest" or importlib.util.find_spec(name))
    return Program(text, names, (str(Path(found.origin).resolve().parent.parent),))
