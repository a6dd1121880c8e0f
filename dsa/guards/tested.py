"""Judge code by tests that pytest runs in the sandbox.

Takes tests, given or written by an earlier step; gives guards. Code and tests share a process there, so code that is made for it can
forge a pass: what passes is labelled `trust: cooperative`. `hardened` makes forging harder and finds tests that test nothing. Where that
is not enough, `dsa.guards.cases` keeps what is expected out of the process.
"""

import ast
import functools
import importlib.util
import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Self

import attrs

from dsa.edge.sandbox import Bounds, Confinement, Program, SandboxError, run_confined
from dsa.errors import install_hint
from dsa.guards.assertions import kind_of_tests, missing_names
from dsa.guards.code import extract_code, syntax_fault
from dsa.guards.feedback import bounded, clip
from dsa.guards.tested_report import Report, read_report, told
from dsa.runtime.content import Artifact, GuardInterface, GuardResult

_LONGEST_S = 86_400
_MEMORY_BYTES = 1 << 30
_RESULT_BYTES = 1 << 20
#: What pytest would import when it starts.
_PRELOAD = (
    "pytest", "_pytest.assertion.rewrite", "_pytest.python", "_pytest.python_api", "_pytest.unittest", "_pytest.skipping", "_pytest.legacypath",
    "_pytest.recwarn", "_pytest.monkeypatch", "_pytest.tmpdir", "_pytest.reports", "_pytest.debugging", "_pytest.subtests",
    "_pytest.helpconfig", "_pytest.threadexception", "_pytest.unraisableexception", "_pytest.warnings", "_pytest._argcomplete", "pdb", "readline",
    "dataclasses", "decimal", "enum", "fractions", "functools", "heapq", "itertools", "json", "math", "random", "re", "statistics",
    "string", "typing",
)  # fmt: skip
#: What runs: tests over the code, as it is, with functions that fail, with what equals nothing; or tests without code, only collected or run.
Mode = Literal["run", "break", "unequal", "collect", "absent"]
TRUST = "trust: cooperative"


@attrs.frozen
class SandboxedTests:
    """Runs tests in the sandbox, over code that they know as `module`, for `timeout_s` seconds. ValueError for what means nothing."""

    module: str
    bounds: Bounds
    confinement: Confinement

    @classmethod
    def checked(cls, module: str, timeout_s: float, require: tuple[str, ...], rung: str) -> Self:
        """Return them, with `require` and `rung` of the sandbox."""
        if not module.isidentifier() or importlib.util.find_spec(module) is not None:
            raise ValueError(f"'{module}' can be no module of the code: it is no name, or one that is installed")
        if not 0 < timeout_s <= _LONGEST_S:
            raise ValueError(f"timeout_s = {timeout_s:g} is no time limit: more than 0 s, at most {_LONGEST_S} s")
        bounds = Bounds(timeout_s, cpu_s=round(timeout_s) + 1, memory_bytes=_MEMORY_BYTES, result_bytes=_RESULT_BYTES)
        return cls(module, bounds, Confinement(require, rung))

    def report(self, mode: Mode, tests: str, code: str = "") -> Report:
        """Run them. Raises SandboxError where they cannot be confined as is required, or where pytest is not installed."""
        job = {"code": code, "tests": tests, "names": sorted(missing_names(tests)), "module": self.module, "mode": mode}
        payload = json.dumps({**job, "is_plain": kind_of_tests(tests) == "asserts"})
        outcome = run_confined(program(), payload, self.bounds, self.confinement)
        return read_report(outcome, self.bounds, runs=mode != "collect")


class TestGuard(GuardInterface):
    """Pass code that passes tests, given as text or as the artifact that the step uses as `test`: functions and classes as pytest finds them, or plain asserts.

    Tests import the code as the module `module`, or under any name that no installed module has, or just use its names. A text without tests whose
    asserts run when it is loaded is one test, as seed 000 has it. The feedback names failed tests and what the code gave, never what was expected
    unless `show_expected`. `require` and `rung` are the sandbox's. A pass is labelled `trust: cooperative`. ValueError for options that mean
    nothing, and for given tests that are no Python, or test nothing: those of a step may come later.

    `hardened` asks for exactly the tests that were found without the code running, for failures when every function of the code is replaced
    by one that fails, and that no side of an `assert L == R` (or `self.assertEqual`) equals what equals nothing, whole or within lists, tuples and dicts. What it
    cannot notice: objects of the code that equal everything of some type only (all ints), or in some other comparison; code that knows it is watched.

    The verdict is fatal where no code could pass: there are no tests, or nothing in them tests; they cannot be loaded whatever the code is; or all that fail
    want what is not there (a fixture), or are skipped by a mark. A failed verdict would spend every retry of this step on code that may be right, and an error
    would stop the run at the same tests each time that it is resumed. After a fatal one a person decides.
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
        self._tests = SandboxedTests.checked(module, timeout_s, require, rung)
        if test_code is not None and (fault := _fault_of(test_code)):
            raise ValueError(fault.rstrip("."))
        self._test_code = test_code
        self._hardened, self._show_expected = hardened, show_expected

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Judge the code. Raises SandboxError where it cannot be confined as is required, or where pytest is not installed."""
        used = dependencies.get("test")
        tests = extract_code(used.content) if used else self._test_code
        if tests is None:
            return _unusable("There are no tests: none are given, and the step uses nothing as 'test'.")
        return self.judged(extract_code(artifact.content), tests)

    def judged(self, code: str, tests: str) -> GuardResult:
        """Judge code by tests, both plain Python."""
        if fault := _fault_of(tests):
            return _unusable(f"{fault[0].upper()}{fault[1:]}")
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        modes: tuple[Mode, ...] = ("run", "collect", "break", "unequal") if self._hardened else ("run",)
        with ThreadPoolExecutor(len(modes)) as threads:
            found = threads.map(lambda mode: self._tests.report(mode, tests, code), modes)
            reports = dict(zip(modes, found, strict=True))
        done = reports["run"]
        if fault := self._fault_of_tests(done, tests):
            return _unusable(fault)
        feedback = done.feedback(show_expected=self._show_expected)
        if not feedback and self._hardened:
            feedback = _suspicion(reports, code)
        if feedback:
            return GuardResult(passed=False, feedback=feedback)
        label = f"{TRUST}{', hardened' if self._hardened else ''}"
        return GuardResult(passed=True, feedback=f"{counted(done.collected)} passed ({label}).")

    def _fault_of_tests(self, done: Report, tests: str) -> str:
        """Say what is wrong with tests whatever the code is; empty where the code has a part in it."""
        if done.is_whole and done.faults and done.barred == done.faults:
            return "\n".join(["No code passes these tests:", *told(done.faults)])
        if done.has_tests:
            return ""
        alone = self._tests.report("collect", tests)
        return "" if alone.has_tests or alone.reason != done.reason else alone.feedback(show_expected=False)


class TDDTestGuard(TestGuard):
    """Pass code that passes the tests which an earlier step wrote, and which this step uses as `test`.

    Otherwise as TestGuard. Without that dependency, or where it tests nothing, the verdict is fatal: the fault is none of the code.
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


def counted(tests: Collection[str]) -> str:
    """Return `1 test`, or `2 tests`."""
    return f"{len(tests)} test{'' if len(tests) == 1 else 's'}"


def _unusable(why: str) -> GuardResult:
    """Return the verdict where the tests are at fault."""
    return GuardResult(
        passed=False, fatal=True, feedback=bounded(f"{why}\nThe fault is in the tests: nothing is said of the code.")
    )


def _fault_of(tests: str) -> str:
    """Say why a text can judge nothing; empty where it may."""
    if not tests.strip():
        return "the tests are empty"
    if fault := syntax_fault(tests, "the code of the tests"):
        return fault
    kind = kind_of_tests(tests)
    return "" if kind != "none" else "the tests define no test, and assert nothing when they are loaded."


def _suspicion(reports: Mapping[Mode, Report], code: str) -> str:
    """Tell why a pass is not believed; empty when it is."""
    done, collected, broken, unequal = (reports[mode] for mode in ("run", "collect", "break", "unequal"))
    if not collected.is_whole:
        return f"The tests cannot be collected without the code, as the hardened mode must: {collected.reason}"
    if done.collected != collected.collected:
        return "The code changed which tests there are."
    if _defines_functions(code) and broken.is_whole and broken.all_passed:
        return (
            "The tests pass even when every function of the code is replaced by one that fails: "
            "either they test nothing, or the code meddles with them."
        )
    if passed := [name for name in unequal.done if name not in unequal.faults]:
        return bounded(
            f"{clip(passed[0])}: what the code gives equals everything, even what equals nothing: that is not believed."
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
