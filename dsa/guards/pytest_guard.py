"""Guards of tests: code judged by tests that pytest runs in the sandbox, and tests judged before there is code.

`TestGuard` and `TDDTestGuard` take tests, given or written by an earlier step. Code and tests share a process there, so code that is written to do so can
forge a pass: a pass is labelled `trust: cooperative`. `hardened` makes forging harder and finds tests that test nothing. If that is not
enough, `dsa.guards.cases` keeps the expected values out of the process.

`NewTestsGuard` judges whether a text has tests that pytest can collect, and that fail as long as there is no code. Their process reports on itself:
the guard is for models that make mistakes, not for tests that try to deceive it.

`read_report` reads what a run of tests reported; an incomplete report is not believed. `kind_of_tests` and the functions beside it
tell from the syntax whether a text tests anything, and what it takes for granted; they run nothing.
"""

import ast
import builtins
import functools
import importlib.util
import json
import signal
import symtable
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Self

import attrs

from dsa.edge.sandbox import Bounds, Confinement, SandboxError, SandboxOutcome, SandboxProgram, run_confined
from dsa.errors import install_hint
from dsa.guards.code import extract_code, syntax_fault
from dsa.guards.feedback import bound_text, clip
from dsa.runtime.content import Artifact, GuardInterface, GuardResult
from dsa.text import plural

_MOST_DETAILED = 3
_MOST_LISTED = 10


@attrs.frozen
class TestReport:
    """The part of a report that could be read. It `is_whole` if each collected test is there once, in order (none if they are only collected), then the end.

    `faults` has what was reported about each test that did not pass; `reason` says why the report is incomplete.
    """

    test_names: tuple[str, ...] = ()
    done_names: tuple[str, ...] = ()
    faults: dict[str, dict[str, object]] = attrs.field(factory=dict)
    is_collected: bool = False
    is_over: bool = False
    is_whole: bool = False
    reason: str = ""

    @property
    def has_tests(self) -> bool:
        """Return whether tests were found, whatever their outcome."""
        return self.is_collected and bool(self.test_names)

    @property
    def impossible_tests(self) -> dict[str, dict[str, object]]:
        """The tests that no code can pass, with what was reported: a fixture that does not exist, a mark that skips."""
        return {name: fault for name, fault in self.faults.items() if fault.get("by") == "tests"}

    @property
    def all_passed(self) -> bool:
        """Return whether there were tests and all of them passed."""
        return bool(self.test_names) and not self.faults

    def feedback(self, *, show_expected: bool) -> str:
        """Return what is wrong, within some hundred characters; empty if every test passed."""
        lines = [] if self.is_whole else [self.reason]
        if self.is_whole and not self.test_names:
            lines.append("There is no test to run.")
        if self.faults:
            lines.append(f"{len(self.faults)} of {len(self.test_names)} tests failed:")
            lines += failure_lines(self.faults, show_expected=show_expected)
        return bound_text("\n".join(lines))


def failure_lines(faults: Mapping[str, dict[str, object]], *, show_expected: bool = False) -> list[str]:
    """Return how the first tests failed, one line each; name the others."""
    lines = [_failure_line(name, fault, show_expected=show_expected) for name, fault in faults.items()][:_MOST_DETAILED]
    if others := list(faults)[_MOST_DETAILED:]:
        more = len(others) - _MOST_LISTED
        names = ", ".join(map(clip, others[:_MOST_LISTED]))
        lines.append(f"also {names}" + (f" and {more} more" if more > 0 else ""))
    return lines


def read_report(outcome: SandboxOutcome, bounds: Bounds, *, runs: bool = True) -> TestReport:
    """Read the records of one run, or of collecting. The `reason` is why it was stopped, or what is wrong with its records."""
    report = TestReport()
    for record in records(outcome.results):
        report = _add_record(report, record)
        if report.reason:
            return report
    expected_names = report.test_names if runs else ()
    if report.is_over and report.is_collected and report.done_names == expected_names and outcome.end != "flooded":
        return attrs.evolve(report, is_whole=True)
    return attrs.evolve(report, reason=f"The tests did not finish{_at(report)}: {_stop_reason(outcome, bounds)}")


def records(results: bytes) -> Iterator[list[Any]]:
    """Yield the JSON lists that a child wrote, one per line; an empty one for any other line."""
    for line in results.split(b"\n")[:-1]:  # a line without a line end was cut off
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = []
        yield record if isinstance(record, list) else []


def _add_record(report: TestReport, record: list[Any]) -> TestReport:
    """Add the one record that may come next; any other means that the code wrote it."""
    match record:
        case _ if report.is_over:
            pass
        case ["collected", [*names]] if not report.is_collected and all(isinstance(name, str) for name in names):
            if len(set(names)) == len(names):
                return attrs.evolve(report, test_names=tuple(names), is_collected=True)
        case ["unloadable", str(text)] if not report.is_collected:
            return attrs.evolve(report, reason=f"The tests cannot be loaded: {clip(text)}")
        case [str(name), "passed" | "failed" | "skipped" as outcome, [*faults]] if _is_next(report, name):
            first = faults[0] if faults and isinstance(faults[0], dict) else {}
            fault = {} if outcome == "passed" else {name: {**first, "outcome": outcome}}
            return attrs.evolve(report, done_names=(*report.done_names, name), faults=report.faults | fault)
        case ["end"]:
            return attrs.evolve(report, is_over=True)
    return attrs.evolve(report, reason="The code wrote to the channel of the results.", is_over=False)


def _is_next(report: TestReport, name: str) -> bool:
    return report.test_names[len(report.done_names) : len(report.done_names) + 1] == (name,)


def _at(report: TestReport) -> str:
    if len(report.done_names) < len(report.test_names):
        return f" (at {clip(report.test_names[len(report.done_names)])})"
    return "" if report.is_collected else " (while they were loaded)"


def _stop_reason(outcome: SandboxOutcome, bounds: Bounds) -> str:
    if outcome.end == "flooded":
        return f"the report is larger than {bounds.result_bytes // 1024} kB."
    if outcome.end == "timeout":
        return f"they took more than {bounds.timeout_s:g} s."
    if outcome.end == "signalled":
        names = {number.value: number.name for number in signal.Signals}
        return (
            f"the process was killed ({names.get(outcome.code, outcome.code)}), because it crashed or exceeded a limit."
        )
    return "the process ended too early."


def _failure_line(name: str, fault: dict[str, object], *, show_expected: bool) -> str:
    """Return in one line how a test failed: what the code gave, and, only with `show_expected`, what was expected."""
    line = fault.get("line")
    place = f" (line {line} of the tests)" if line and isinstance(line, int) else ""
    texts = {key: clip(value) for key, value in fault.items() if isinstance(value, str)}
    if "raised" in texts:
        return f"{clip(name)}: {texts['raised']}{place}"
    if "computed" in texts:
        assertion = f"assert {texts['assertion']}" if show_expected and "assertion" in texts else texts["computed"]
        message = f", {texts['message']}" if texts.get("message") else ""
        return f"{clip(name)}: {assertion} {'gave ' + texts['gave'] if 'gave' in texts else 'does not hold'}{message}{place}"
    return f"{clip(name)}: {'was skipped' if texts['outcome'] == 'skipped' else 'failed'}{place}"


#: Functions or classes that pytest collects · asserts that run when the text is loaded · neither
Kind = Literal["tests", "asserts", "none"]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
#: The functions that assert something, besides all that begin with `assert`.
_ASSERTION_NAMES = frozenset({"raises", "warns", "deprecated_call", "fail"})
#: Modules that are often used and not imported. A module of any other name may be an object of the code.
_OFTEN_FORGOTTEN = frozenset({"asyncio", "itertools", "json", "math", "os", "pytest", "random", "re", "sys", "time", "unittest"})  # fmt: skip


def kind_of_tests(text: str) -> Kind:
    """Return which kind of tests a text is. Asserts count only if no tests are defined: besides tests they only guard the loading."""
    body = ast.parse(text).body
    if _tests(body):
        return "tests"
    statements = [node for node in _statements(body) if not isinstance(node, _DEFINITIONS)]
    return "asserts" if _assert_something(statements, text) else "none"


def asserts_anything(text: str) -> bool:
    """Return whether the tests that a text defines assert something, directly or through its helpers and fixtures."""
    return _assert_something(_tests(ast.parse(text).body), text)


def own_names(text: str) -> tuple[str, ...]:
    """Return the functions and classes at the top of a text that are neither tests nor decorated, as fixtures are."""
    body = ast.parse(text).body
    tests = _tests(body)
    nodes = (node for node in body if isinstance(node, _DEFINITIONS) and node not in tests and not node.decorator_list)
    return tuple(node.name for node in nodes)


def missing_names(text: str) -> frozenset[str]:
    """Return the names that a text uses but does not bind: those of the code, in tests that do not import it. Empty if it does not compile."""
    try:
        tables = [symtable.symtable(text, "the tests", "exec")]
    except (SyntaxError, RecursionError):  # running it reports the error
        return frozenset()
    for table in tables:
        tables += table.get_children()
    symbols = [(table.get_type() == "module", symbol) for table in tables for symbol in table.get_symbols()]
    bound_names = {
        symbol.get_name()
        for at_top, symbol in symbols
        if (at_top or symbol.is_declared_global())
        and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace())
    }
    used_names = {symbol.get_name() for _, symbol in symbols if symbol.is_global() and symbol.is_referenced()}
    return frozenset(
        name for name in used_names - bound_names if not hasattr(builtins, name) and not name.startswith("__")
    )


def forgotten_imports(text: str) -> tuple[str, ...]:
    """Return the modules that a text uses as `module.name` and does not import."""
    missing = missing_names(text) & _OFTEN_FORGOTTEN
    nodes = ast.walk(ast.parse(text))
    used_names = {n.value.id for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
    return tuple(sorted(used_names & missing))


# -- what pytest collects -----------------------------------------------------------------------------------------------


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield what runs when a module is loaded, without the bodies of functions and classes and what only a program runs."""
    for node in body:
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            yield from _statements(node.orelse)
            continue
        yield node
        if isinstance(node, _DEFINITIONS):
            continue
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, field, ()))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(part.body)


def _tests(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Return the functions and classes at the top that pytest collects tests from."""
    tests: list[ast.stmt] = []
    test_cases, with_tests = {"TestCase", "IsolatedAsyncioTestCase"}, set[str]()
    for node in _statements(body):
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test"):
            tests.append(node)
        elif isinstance(node, ast.ClassDef):
            bases = {_last_name(base) for base in node.bases}
            if bases & test_cases:
                test_cases.add(node.name)
            if bases & with_tests or any(isinstance(n, _FUNCTIONS) and n.name.startswith("test") for n in node.body):
                with_tests.add(node.name)
            if node.name in with_tests and (node.name.startswith("Test") or node.name in test_cases):
                tests.append(node)
    return tests


# -- what asserts -------------------------------------------------------------------------------------------------------


def _assert_something(starts: Iterable[ast.stmt], text: str) -> bool:
    """Return whether statements assert something, or name a function or class of the text that does."""
    definitions: dict[str, list[ast.stmt]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DEFINITIONS):
            definitions.setdefault(node.name, []).append(node)
    left = list(starts)
    while left:
        for node in ast.walk(left.pop()):
            if _is_assertion(node):
                return True
            left += definitions.pop(_function_name(node), ())
    return False


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = _last_name(node.func)
        return name.lower().startswith("assert") or name in _ASSERTION_NAMES
    if isinstance(node, ast.Raise) and node.exc is not None:
        return _last_name(node.exc.func if isinstance(node.exc, ast.Call) else node.exc) == "AssertionError"
    return isinstance(node, ast.Assert)


def _function_name(node: ast.AST) -> str:
    """Return the function name in a node, or that of an argument, which is a fixture."""
    return node.arg if isinstance(node, ast.arg) else _last_name(node)


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


_LONGEST_S = 86_400
_MEMORY_BYTES = 1 << 30
_RESULT_BYTES = 1 << 20
#: The modules that pytest would import when it starts.
_PRELOAD = (
    "pytest", "_pytest.assertion.rewrite", "_pytest.python", "_pytest.python_api", "_pytest.unittest", "_pytest.skipping", "_pytest.legacypath",
    "_pytest.recwarn", "_pytest.monkeypatch", "_pytest.tmpdir", "_pytest.reports", "_pytest.debugging", "_pytest.subtests",
    "_pytest.helpconfig", "_pytest.threadexception", "_pytest.unraisableexception", "_pytest.warnings", "_pytest._argcomplete", "pdb", "readline",
    "dataclasses", "decimal", "enum", "fractions", "functools", "heapq", "itertools", "json", "math", "random", "re", "statistics",
    "string", "typing",
)  # fmt: skip
#: What runs: tests over the unchanged code, with functions that fail, or with an object that equals nothing; or tests without code, only collected or run.
Mode = Literal["run", "break", "unequal", "collect", "absent"]
TRUST = "trust: cooperative"


@attrs.frozen
class SandboxedTests:
    """Runs tests in the sandbox, over code that they know as `module`, for `timeout_s` seconds. Raises ValueError for invalid options."""

    module: str
    bounds: Bounds
    confinement: Confinement

    @classmethod
    def create(cls, module: str, timeout_s: float, require: tuple[str, ...], rung: str) -> Self:
        """Return them, with `require` and `rung` of the sandbox."""
        if not module.isidentifier() or importlib.util.find_spec(module) is not None:
            raise ValueError(
                f"the module of the code cannot be called '{module}': this is not a valid name, or an installed module already has this name"
            )
        if not 0 < timeout_s <= _LONGEST_S:
            raise ValueError(
                f"timeout_s = {timeout_s:g} is not a valid time limit: it must be more than 0 s and at most {_LONGEST_S} s"
            )
        bounds = Bounds(timeout_s, cpu_s=round(timeout_s) + 1, memory_bytes=_MEMORY_BYTES, result_bytes=_RESULT_BYTES)
        return cls(module, bounds, Confinement(require, rung))

    def report(self, mode: Mode, tests: str, code: str = "") -> TestReport:
        """Run them. Raises SandboxError if they cannot be confined as required, or pytest is not installed."""
        job = {"code": code, "tests": tests, "names": sorted(missing_names(tests)), "module": self.module, "mode": mode}
        payload = json.dumps({**job, "is_plain": kind_of_tests(tests) == "asserts"})
        outcome = run_confined(program(), payload, self.bounds, self.confinement)
        return read_report(outcome, self.bounds, runs=mode != "collect")


class TestGuard(GuardInterface):
    """Pass code that passes tests, given as text or as the artifact that the step uses as `test`: functions and classes as pytest finds them, or plain asserts.

    Tests import the code as the module `module`, or under any name that no installed module has, or just use its names. A text without tests whose
    asserts run when it is loaded is one test, as in seed 000. The feedback names failed tests and what the code gave, never what was expected
    unless `show_expected`. `require` and `rung` are the sandbox's. A pass is labelled `trust: cooperative`. Raises ValueError for invalid
    options, and for given tests that are not Python, or test nothing: those of a step may come later.

    `hardened` requires that exactly the tests run that are found without the code, that some fail when every function of the code is replaced
    by one that fails, and that no side of an `assert L == R` (or `self.assertEqual`), or item in its lists, tuples and dicts, equals an object that equals nothing.
    It does not notice objects of the code that equal everything of one type only (all ints) or in some other comparison, or code that knows it is watched.

    The verdict is fatal if no code could pass: there are no tests, or they test nothing; they cannot be loaded whatever the code is; or all that fail
    need something that does not exist (a fixture), or are skipped by a mark. A failed verdict would spend every retry of this step on code that may be right, and an
    error would stop the run at the same tests each time it is resumed. After a fatal one a person decides.
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
        self._tests = SandboxedTests.create(module, timeout_s, require, rung)
        if test_code is not None and (fault := _fault_of(test_code)):
            raise ValueError(fault.rstrip("."))
        self._test_code = test_code
        self._is_hardened, self._show_expected = hardened, show_expected

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        """Judge the code. Raises SandboxError if it cannot be confined as required, or pytest is not installed."""
        dependency = dependencies.get("test")
        tests = extract_code(dependency.content) if dependency else self._test_code
        if tests is None:
            return _unusable("There are no tests: the guard was given none, and the step uses nothing as 'test'.")
        return self.judge(extract_code(artifact.content), tests)

    def judge(self, code: str, tests: str) -> GuardResult:
        """Judge code by tests, both plain Python."""
        if fault := _fault_of(tests):
            return _unusable(f"{fault[0].upper()}{fault[1:]}")
        if fault := syntax_fault(code):
            return GuardResult(passed=False, feedback=fault)
        modes: tuple[Mode, ...] = ("run", "collect", "break", "unequal") if self._is_hardened else ("run",)
        with ThreadPoolExecutor(len(modes)) as threads:
            results = threads.map(lambda mode: self._tests.report(mode, tests, code), modes)
            reports = dict(zip(modes, results, strict=True))
        report = reports["run"]
        if fault := self._fault_of_tests(report, tests):
            return _unusable(fault)
        feedback = report.feedback(show_expected=self._show_expected)
        if not feedback and self._is_hardened:
            feedback = _suspicion(reports, code)
        if feedback:
            return GuardResult(passed=False, feedback=feedback)
        label = f"{TRUST}{', hardened' if self._is_hardened else ''}"
        return GuardResult(passed=True, feedback=f"{plural(len(report.test_names), 'test')} passed ({label}).")

    def _fault_of_tests(self, report: TestReport, tests: str) -> str:
        """Return what is wrong with tests whatever the code is; empty if the code may be at fault."""
        if report.is_whole and report.faults and report.impossible_tests == report.faults:
            return "\n".join(["No code can pass these tests:", *failure_lines(report.faults)])
        if report.has_tests:
            return ""
        alone = self._tests.report("collect", tests)
        return "" if alone.has_tests or alone.reason != report.reason else alone.feedback(show_expected=False)


class TDDTestGuard(TestGuard):
    """Pass code that passes the tests which an earlier step wrote, and which this step uses as `test`.

    Otherwise as TestGuard. Without that dependency, or if the tests test nothing, the verdict is fatal: the code is not at fault.
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


def _unusable(why: str) -> GuardResult:
    """Return the verdict if the tests are at fault."""
    return GuardResult(
        passed=False,
        fatal=True,
        feedback=bound_text(f"{why}\nThe fault is in the tests; this verdict says nothing about the code."),
    )


def _fault_of(tests: str) -> str:
    """Return why a text cannot judge anything; empty if it can."""
    if not tests.strip():
        return "the tests are empty"
    if fault := syntax_fault(tests, "the code of the tests"):
        return fault
    kind = kind_of_tests(tests)
    return "" if kind != "none" else "the text defines no test, and asserts nothing when it is loaded."


def _suspicion(reports: Mapping[Mode, TestReport], code: str) -> str:
    """Return why a pass is not believed; empty if it is."""
    report, collect_report, break_report, unequal_report = (
        reports[mode] for mode in ("run", "collect", "break", "unequal")
    )
    if not collect_report.is_whole:
        return (
            f"The tests cannot be collected without the code, which the hardened mode requires: {collect_report.reason}"
        )
    if report.test_names != collect_report.test_names:
        return "The code changed the list of tests."
    if _defines_functions(code) and break_report.is_whole and break_report.all_passed:
        return (
            "The tests pass even when every function of the code is replaced by one that fails, so "
            "either the tests test nothing, or the code manipulates them."
        )
    if suspects := [name for name in unequal_report.done_names if name not in unequal_report.faults]:
        return bound_text(
            f"{clip(suspects[0])}: what the code returns is equal to every object, even to one that equals nothing, so this pass does not count."
        )
    return ""


def _defines_functions(code: str) -> bool:
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(ast.parse(code)))


@functools.cache
def program() -> SandboxProgram:
    """Return the program that runs there, with the folder that pytest is installed in."""
    spec = importlib.util.find_spec("pytest")
    if spec is None or spec.origin is None:
        raise SandboxError(f"pytest is not installed: {install_hint('test')}", ("pytest",))
    text = Path(__file__).with_name("pytest_child.py").read_text(encoding="utf-8")
    names = tuple(name for name in _PRELOAD if name.partition(".")[0] != "_pytest" or importlib.util.find_spec(name))
    return SandboxProgram(text, names, (str(Path(spec.origin).resolve().parent.parent),))


_MOST_NAMED = 5


class NewTestsGuard(GuardInterface):
    """Pass tests for code that is not written yet: pytest collects them, they assert something, and at least one fails without the code.

    Without the code means: each name that they import from a module that is not installed, or use without binding it, exists, and every
    call of it fails. While tests are only collected nothing fails, so they may use the code for their parameters and constants. `module` is the
    code's name in the feedback; tests may use another. `require` and `rung` are the sandbox's. Raises ValueError for invalid options.

    It cannot know whether the tests are right, or that a module that is neither installed nor widely known is not the code.
    """

    def __init__(
        self,
        *,
        module: str = "solution",
        timeout_s: float = 30,
        require: tuple[str, ...] = (),
        rung: str = "",
    ) -> None:
        self._module = module
        self._tests = SandboxedTests.create(module, timeout_s, require, rung)

    def validate(self, artifact: Artifact, **_inputs: Artifact) -> GuardResult:
        """Judge the tests. Raises SandboxError if they cannot be confined as required, or pytest is not installed."""
        tests = extract_code(artifact.content)
        if fault := syntax_fault(tests) or self._fault_of_text(tests):
            return GuardResult(passed=False, feedback=fault)
        report = self._tests.report("absent", tests)
        if fault := self._fault_of_report(report, tests):
            return GuardResult(passed=False, feedback=bound_text(fault))
        failure_count = len(report.faults)
        feedback = f"{plural(len(report.test_names), 'test')}, of which {failure_count} fail{'s' if failure_count == 1 else ''} without the code."
        return GuardResult(passed=True, feedback=feedback)

    def _fault_of_text(self, tests: str) -> str:
        """Return what the text of the tests lacks; empty if it lacks nothing."""
        kind = kind_of_tests(tests)
        if kind == "none":
            own = own_names(tests)
            instead = f" It defines {_join_names(own)} instead, but that is the task of the next step." if own else ""
            return f"There is no test in the answer.{instead} Write functions test_..() that call the code and assert what it returns."
        if kind == "tests" and not asserts_anything(tests):
            return "The tests assert nothing: let each test assert what the code returns (assert, pytest.raises, self.assertEqual)."
        if modules := forgotten_imports(tests):
            return f"The tests use {_join_names(modules)} and do not import {'it' if len(modules) == 1 else 'them'}."
        return ""

    def _fault_of_report(self, report: TestReport, tests: str) -> str:
        """Return why tests that ran without the code are useless for it; empty if they are useful."""
        if not report.is_whole:
            is_import = "ImportError" in report.reason or "ModuleNotFoundError" in report.reason
            hint = f".\nUse only Python's library and pytest; import the code under test from {self._module}."
            return f"{report.reason}{hint if is_import else ''}"
        if not report.test_names:
            return "pytest finds no test in the answer: write functions test_..(), or classes Test.. without __init__."
        skips = {
            name: each
            for name, each in report.faults.items()
            if each["outcome"] == "skipped" and each.get("by") != "code"
        }
        if impossible_tests := report.impossible_tests | skips:
            why = "No code can pass these tests" + ("; a skipped test does not count as passed" if skips else "")
            return "\n".join([f"{why}:", *failure_lines(impossible_tests)])
        if report.all_passed:
            own = own_names(tests)
            leave = f" Do not define {_join_names(own)} in the tests, if that is the code under test." if own else ""
            return (
                "The tests pass without the code, although every call of the code fails then, so they do not test the code. "
                f"Import the code under test from {self._module}, call it in the tests, and assert what it returns.{leave}"
            )
        return ""


def _join_names(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMED
    return clip(", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else ""))
