"""The sandbox's side of `dsa.guards.tested`: run pytest over tests and code, report what became of each test.

Its text is run by `dsa.edge.sandbox`, in the process that also runs the untrusted code. It reports one JSON list a line:
`["collected", ids]` or `["unloadable", text]`; for each test `[id, outcome, faults]`, where a fault is a dict of short texts; `["end"]`.
"""

import ast
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

_WRITE, _DUMPS = os.write, json.dumps
_MOST_TEXT = 160
_TESTS = "test_it.py"
_OPTIONS = (
    "-c", os.devnull, "--rootdir=.", "--confcutdir=.", "--noconftest", "--import-mode=importlib", "--capture=no", "-p", "no:cacheprovider", "-p", "no:terminal",
    "-p", "no:faulthandler", "-p", "no:logging", "-p", "no:doctest", "-p", "no:junitxml", "-p", "no:pastebin", "-p", "no:stepwise",
)  # fmt: skip

#: What stands in for the code while tests are only collected: every name is a class of which nothing is known.
_STAND_IN = """
class _Any(type):
    def __getattr__(cls, name): return cls
    def __call__(cls, *_, **__): return cls
    def __iter__(cls): return iter(())
"""
#: Replaces every function of the code by one that fails; put after it.
_BREAK = """

def _dsa_break():
    class Broken(Exception): pass
    def broken(*_, **__): raise Broken("replaced, to see the tests fail")
    def is_own(value): return getattr(value, "__module__", None) == __name__
    for name, value in list(globals().items()):
        if isinstance(value, type) and is_own(value):
            for inner, method in list(vars(value).items()):
                if not inner.startswith("__") and (callable(method) or isinstance(method, (staticmethod, classmethod, property))):
                    setattr(value, inner, broken)
        elif callable(value) and is_own(value) and value is not _dsa_break:
            globals()[name] = broken
_dsa_break()
"""


def run(payload: str, result_fd: int) -> None:
    """Do the job: `payload` is JSON with `code`, `tests`, `module` and `mode` (run, collect, break)."""
    job = json.loads(payload)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    code = {"run": job["code"], "break": job["code"] + _BREAK, "collect": _stand_in(job["code"])}[job["mode"]]
    Path(f"{job['module']}.py").write_text(code, encoding="utf-8", errors="replace")
    text, shifted = _with_names(job["tests"], job["module"])
    Path(_TESTS).write_text(text, encoding="utf-8", errors="replace")
    recorder = _Recorder(result_fd, job["tests"], shifted, collect_only=job["mode"] == "collect")
    try:
        _alias(job["tests"], job["module"])
        pytest.main([*_OPTIONS, _TESTS], plugins=[recorder])
    except BaseException as error:  # noqa: BLE001  # SystemExit too
        recorder.unloadable(_explained(error))
        return
    recorder.end()


def _stand_in(code: str) -> str:
    """Give a module with the names that the code defines at its top, and nothing behind them."""
    names = set()
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return _STAND_IN + "".join(f"\nclass {name}(metaclass=_Any): pass" for name in sorted(names))


def _with_names(tests: str, module: str) -> tuple[str, int]:
    """Give the tests with all names of the code imported on a line of its own, and the number of that line."""
    at = 0
    for node in ast.parse(tests).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        at = node.end_lineno or 0
    lines = tests.split("\n")
    return "\n".join([*lines[:at], f"from {module} import *", *lines[at:]]), at + 1


def _alias(tests: str, module: str) -> None:
    """Let tests import the code by whatever name they know it: a module that is nowhere to be found is the code."""
    wanted = set()
    for node in ast.walk(ast.parse(tests)):
        if isinstance(node, ast.Import):
            wanted |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted.add(node.module)
    for name in sorted(wanted - {module}):
        if "." not in name and importlib.util.find_spec(name) is None:
            sys.modules[name] = importlib.import_module(module)


class _Recorder:
    """A plugin that notes what becomes of each test, and reports it when the test is over."""

    def __init__(self, result_fd: int, tests: str, shifted: int, *, collect_only: bool) -> None:
        self._fd = result_fd
        self._shifted = shifted
        self._asserts = {n.lineno: n for n in ast.walk(ast.parse(tests)) if isinstance(n, ast.Assert)}
        self._collect_only = collect_only
        self._faults: list[dict[str, Any]] = []
        self._outcome = "passed"
        self._gave = ""
        self._is_over = False

    def unloadable(self, text: str) -> None:
        """Tell that there is nothing to be run."""
        if not self._is_over:
            self._is_over = True
            self._report(["unloadable", text])

    def end(self) -> None:
        """Tell that all is over."""
        if not self._is_over:
            self._report(["end"])

    def pytest_collectreport(self, report: Any) -> None:  # noqa: ANN401  # pytest's
        """Take note of a module that could not be loaded."""
        if report.failed:
            self.unloadable(_crash(report.longrepr))

    def pytest_collection_finish(self, session: Any) -> None:  # noqa: ANN401
        """Tell which tests there are, or what ended the search for them."""
        if (error := sys.exc_info()[1]) is not None:
            self.unloadable(_explained(error))
        elif not self._is_over:
            names = [item.nodeid.split("::", 1)[1].replace("::", ".") for item in session.items]
            self._report(["collected", names])

    def pytest_runtestloop(self) -> bool | None:
        """Run nothing when tests are only collected."""
        return True if self._collect_only or self._is_over else None

    def pytest_assertrepr_compare(self, left: object, right: object) -> None:
        """Keep what both sides of a comparison were; the side that calls something is the one of interest."""
        self._gave = _DUMPS([_shown(left), _shown(right)])

    def pytest_exception_interact(self, node: Any, call: Any) -> None:  # noqa: ANN401
        """Note where and how a test failed."""
        if not hasattr(node, "cls") or call.excinfo is None:
            return
        line = next((e.lineno + 1 for e in reversed(call.excinfo.traceback) if str(e.path).endswith(_TESTS)), 0)
        line -= line > self._shifted
        found = self._asserts.get(line)
        if isinstance(call.excinfo.value, AssertionError) and found is not None:
            message = _message(call.excinfo.value).partition("\nassert ")[0] if found.msg else ""
            self._faults.append({"line": line, "message": message, **self._sides(found.test)})
        else:
            self._faults.append({"line": line, "raised": _explained(call.excinfo.value)})

    def _sides(self, test: ast.expr) -> dict[str, str]:
        """Give the assertion, the part of it that is computed, and what that gave."""
        said = {"assertion": ast.unparse(test)[:_MOST_TEXT]}
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and self._gave:
            calls = [any(isinstance(n, ast.Call) for n in ast.walk(side)) for side in (test.left, test.comparators[0])]
            which = 1 if calls == [False, True] else 0
            said["computed"] = ast.unparse((test.left, test.comparators[0])[which])[:_MOST_TEXT]
            said["gave"] = json.loads(self._gave)[which]
        elif not isinstance(test, ast.Compare):
            said["computed"] = said["assertion"]
        return said

    def pytest_runtest_logreport(self, report: Any) -> None:  # noqa: ANN401
        """Tell what became of a test, after its last phase."""
        if report.outcome != "passed":
            self._outcome = report.outcome
        if report.when == "teardown":
            name = report.nodeid.split("::", 1)[1].replace("::", ".")
            self._report([name, self._outcome, self._faults[:1]])
            self._faults, self._outcome, self._gave = [], "passed", ""

    def _report(self, record: list[Any]) -> None:
        line = (_DUMPS(record) + "\n").encode()
        while line:
            line = line[_WRITE(self._fd, line) :]


def _shown(value: object) -> str:
    try:
        return repr(value)[:_MOST_TEXT]
    except BaseException:  # noqa: BLE001  # it may lie in wait
        return f"an object of type {type(value).__name__}"


def _crash(longrepr: Any) -> str:  # noqa: ANN401  # of many kinds
    lines = [line[2:] for line in str(longrepr).splitlines() if line.startswith("E ")]
    return (lines[-1].strip() if lines else str(longrepr).strip()[-_MOST_TEXT:])[:_MOST_TEXT]


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_TEXT]
    except BaseException:  # noqa: BLE001  # a message may lie in wait too
        return ""


def _explained(error: BaseException) -> str:
    message = _message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
