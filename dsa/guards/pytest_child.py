"""The sandbox's side of `dsa.guards.pytest_guard`: runs pytest over tests and code and reports the outcome of each test.

Its text is run by `dsa.edge.sandbox`, in the process that also runs the untrusted code. It reports one JSON list per line:
`["collected", ids]` or `["unloadable", text]`; for each test `[id, outcome, faults]`, where a fault is a dict of short texts; `["end"]`.
"""

import ast
import builtins
import contextlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

_WRITE, _DUMPS = os.write, json.dumps
_MOST_TEXT = 160
_MOST_TRIED = 100
_TESTS, _PLAIN = "test_it.py", "plain_test_it"
_OPTIONS = (
    "-c", os.devnull, "--rootdir=.", "--confcutdir=.", "--noconftest", "--import-mode=importlib", "--capture=no", "-p", "no:cacheprovider", "-p", "no:terminal",
    "-p", "no:faulthandler", "-p", "no:logging", "-p", "no:doctest", "-p", "no:junitxml", "-p", "no:pastebin", "-p", "no:stepwise", "-p", "no:setuponly", "-p", "no:setupplan",
)  # fmt: skip
#: Modules that are never the code when tests import them, installed or not.
_OF_OTHERS = frozenset({
    "PIL", "aiohttp", "attr", "attrs", "bs4", "cv2", "dateutil", "ddt", "django", "faker", "fastapi", "flask", "freezegun", "hypothesis", "httpx", "matplotlib",
    "mock", "nose", "numpy", "pandas", "parameterized", "psycopg2", "pydantic", "pytest_asyncio", "pytest_mock", "pytz", "redis", "requests", "requests_mock",
    "responses", "scipy", "sklearn", "sqlalchemy", "sympy", "testfixtures", "torch", "tqdm", "yaml",
})  # fmt: skip
#: The one test of a text of plain asserts: loading it.
_LOAD_TEST = f"""import pytest
pytest.register_assert_rewrite("{_PLAIN}")
def test_asserts(): import {_PLAIN}
"""
#: A stand-in for the code: it has every name, and everything done with one gives such a name again, and fails once tests run.
_STAND_IN = """
import abc as _dsa_abc, dis as _dsa_dis, sys as _dsa_sys

class NotWritten(Exception): pass

class _dsa_any(_dsa_abc.ABCMeta):
    fails = False
    def __getattr__(cls, name):
        if name.startswith("__") or name == "pytestmark": raise AttributeError(name)
        return cls
    def __bool__(cls): return True
    def __hash__(cls): return id(cls)
    def __eq__(cls, other): return cls is other or not _dsa_any.fails
    def __ne__(cls, other): return cls is not other or not _dsa_any.fails
    def __iter__(cls):
        _dsa_require()
        frame = _dsa_sys._getframe(1)
        code, at = frame.f_code.co_code, frame.f_lasti
        is_unpacked = _dsa_dis.opname[code[at]] in ("UNPACK_SEQUENCE", "UNPACK_EX")
        return iter([cls] * code[at + 1] if is_unpacked else ())
    def __call__(cls, *given, **_):
        _dsa_require()
        is_decorator = len(given) == 1 and type(given[0]) is type(_dsa_require)
        return given[0] if is_decorator else cls

def _dsa_require():
    if _dsa_any.fails: raise NotWritten("the code is not written yet")

def _dsa_add(name, value):
    def do(cls, *_):
        _dsa_require()
        return cls if value is None else value
    setattr(_dsa_any, name, do)

for _dsa_name in "getitem setitem delitem enter add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor neg pos abs invert round".split():
    _dsa_add(f"__{_dsa_name}__", None)
    _dsa_add(f"__r{_dsa_name}__", None)
for _dsa_name, _dsa_value in {"len": 0, "index": 0, "int": 0, "float": 0.0, "format": "", "exit": False, "contains": True, "lt": True, "le": True, "gt": True, "ge": True}.items():
    _dsa_add(f"__{_dsa_name}__", _dsa_value)

def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    made = globals()[name] = _dsa_any(name, (), {"__init_subclass__": classmethod(lambda cls, **_: None)})
    return made
"""
#: Replaces every function of the code by one that fails; added after the code.
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
    """Do the job: `payload` is JSON with `code`, `tests`, `names` (names of the code that the tests do not bind), `is_plain`, `module` and `mode`.

    `run` and `break` (each function fails) run tests over the code; `unequal` compares its results with an object that equals nothing; `collect`
    and `absent` work without code, and `absent` still runs the tests.
    """
    job = json.loads(payload)
    mode, module = job["mode"], job["module"]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    without = f"{_STAND_IN}\n__all__ = {job['names']!r}"
    code = {"collect": without, "absent": without, "break": job["code"] + _BREAK}.get(mode, job["code"])
    Path(f"{module}.py").write_text(code, encoding="utf-8", errors="replace")
    text, inserted_line = _with_names(job["tests"], module)
    recorder = _TestRecorder(result_fd, job, inserted_line)
    if mode == "unequal":
        text = _with_looks(text)
        vars(builtins)[_COMPARE] = recorder.compare
    if job["is_plain"]:
        Path(f"{_PLAIN}.py").write_text(text, encoding="utf-8", errors="replace")
    Path(_TESTS).write_text(_LOAD_TEST if job["is_plain"] else text, encoding="utf-8", errors="replace")
    try:
        _alias(job["tests"], module)
        pytest.main([*_OPTIONS, _TESTS], plugins=[recorder])
    except BaseException as error:  # noqa: BLE001  # SystemExit too
        recorder.unloadable(_error_text(error))
        return
    recorder.end()


def _with_names(tests: str, module: str) -> tuple[str, int]:
    """Return the tests with all names of the code imported on a line of its own, and the number of that line."""
    at = 0
    for node in ast.parse(tests).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        at = node.end_lineno or 0
    lines = tests.split("\n")
    return "\n".join([*lines[:at], f"from {module} import *", *lines[at:]]), at + 1


def _alias(tests: str, module: str) -> None:
    """Let tests import the code under any name: a module that cannot be found is the code."""
    imports = set()
    for node in ast.walk(ast.parse(tests)):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imports.add(node.module)
    tops = {name.partition(".")[0] for name in imports} - _OF_OTHERS
    unknown = {top for top in tops if top == module or importlib.util.find_spec(top) is None}
    for name in sorted(name for name in imports - {module} if name.partition(".")[0] in unknown):
        sys.modules[name] = importlib.import_module(module)
        _put_into_package(name)


def _put_into_package(name: str) -> None:
    """Let a module with dots in its name be found in the packages that the name implies."""
    package, _, inner = name.rpartition(".")
    if package:
        setattr(sys.modules.setdefault(package, ModuleType(package)), inner, sys.modules[name])
        _put_into_package(package)


_COMPARE = "_dsa_compare"


def _with_looks(tests: str) -> str:
    """Replace each `assert L == R` and `self.assertEqual(L, R)` by a check, which never fails, for objects that equal everything."""
    tree = ast.parse(tests)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, field, None), list):
                block[:] = [_look(each) or each for each in block]
    return ast.unparse(ast.fix_missing_locations(tree))


def _look(node: ast.stmt) -> ast.stmt | None:
    """Return the check of both sides of a comparison, or of the only side that calls something; `mock.ANY` is meant to equal everything."""
    match node:
        case ast.Assert(ast.Compare(left, [ast.Eq()], [right])):
            pass
        case ast.Expr(ast.Call(ast.Attribute(attr="assertEqual"), [left, right, *_])):
            pass
        case _:
            return None
    if any("ANY" in {getattr(n, "id", ""), getattr(n, "attr", "")} for n in ast.walk(node)):
        return None
    calls = [any(isinstance(n, ast.Call) for n in ast.walk(side)) for side in (left, right)]
    flags: list[ast.expr] = [ast.Constant(value=is_called or calls[0] == calls[1]) for is_called in calls]
    return ast.Expr(ast.Call(ast.Name(_COMPARE, ast.Load()), [left, right, *flags], []))


class _Unequal:
    """Equals nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return id(self)


def _hollow_copies(value: object, left: int = 20) -> Iterator[object]:
    """Yield an object that equals nothing in place of a value; for lists, tuples and dicts, also in place of each item, one after the other."""
    if left and value and isinstance(value, list | tuple) and type(value) in {list, tuple}:
        for at, each in enumerate(value):
            for hollow in _hollow_copies(each, left - 1):
                yield type(value)([*value[:at], hollow, *value[at + 1 :]])
    elif left and value and isinstance(value, dict) and type(value) is dict:
        for key, each in value.items():
            for hollow in _hollow_copies(each, left - 1):
                yield {**value, key: hollow}
    else:
        yield _Unequal()


def _equals(value: object, other: object) -> bool:
    """Return whether a value says that it equals another one; if it raises anything, it does not."""
    with contextlib.suppress(BaseException):
        return bool(value == other)
    return False


class _TestRecorder:
    """A plugin that records the outcome of each test, and reports it when the test is over."""

    def __init__(self, result_fd: int, job: dict[str, Any], inserted_line: int) -> None:
        self._fd = result_fd
        self._inserted_line = inserted_line
        self._asserts = {n.lineno: n for n in ast.walk(ast.parse(job["tests"])) if isinstance(n, ast.Assert)}
        self._mode, self._module = job["mode"], job["module"]
        self._looks: list[bool] = []
        self._faults: list[dict[str, Any]] = []
        self._outcome = "passed"
        self._gave = ""
        self._is_over = False

    def unloadable(self, text: str) -> None:
        """Report that the tests cannot be loaded."""
        if not self._is_over:
            self._is_over = True
            self._report(["unloadable", text])

    def end(self) -> None:
        """Report the end."""
        if not self._is_over:
            self._report(["end"])

    def pytest_configure(self, config: Any) -> None:  # noqa: ANN401  # pytest's
        """Show an error in one line: finding its source takes as long as everything else in a test that fails."""
        config.option.tbstyle = "line"

    def pytest_collectreport(self, report: Any) -> None:  # noqa: ANN401  # pytest's
        """Record a module that could not be loaded."""
        if report.failed:
            self.unloadable(_crash(report.longrepr))

    def pytest_collection_finish(self, session: Any) -> None:  # noqa: ANN401
        """Report which tests there are, or why the search for them ended."""
        if (error := sys.exc_info()[1]) is not None:
            self.unloadable(_error_text(error))
        elif not self._is_over:
            names = [item.nodeid.split("::", 1)[1].replace("::", ".") for item in session.items]
            self._report(["collected", names])

    def pytest_runtestloop(self) -> bool | None:
        """Run nothing if tests are only collected; from here on the stand-in for the code fails."""
        if self._mode == "absent":
            vars(importlib.import_module(self._module))["_dsa_any"].fails = True
        return True if self._mode == "collect" or self._is_over else None

    def compare(self, left: object, right: object, *flags: bool) -> None:
        """Record whether a side of a comparison, or a part of it, equals an object that equals nothing."""
        sides = [side for side, is_looked in zip(((left, right), (right, left)), flags, strict=True) if is_looked]
        pairs = (
            (value, each)
            for value, other in sides
            for each in (_Unequal(), *islice(_hollow_copies(other), _MOST_TRIED))
        )
        self._looks.append(any(_equals(value, each) for value, each in pairs))

    def pytest_assertrepr_compare(self, left: object, right: object) -> None:
        """Keep both sides of a comparison; the side that calls something is the one of interest."""
        self._gave = _DUMPS([_value_text(left), _value_text(right)])

    def pytest_exception_interact(self, node: Any, call: Any) -> None:  # noqa: ANN401
        """Record where and how a test failed."""
        if not hasattr(node, "cls") or call.excinfo is None:
            return
        error = call.excinfo.value
        if isinstance(error, pytest.FixtureLookupError):
            self._faults.append({"raised": f"there is no fixture '{error.argname}'", "by": "tests"})
            return
        if inspect.iscoroutinefunction(getattr(node, "obj", None)) and _message(error).startswith("async def"):
            self._faults.append(
                {
                    "raised": "it is an async def, which is not run: call asyncio.run(..) in a plain function",
                    "by": "tests",
                }
            )
            return
        line = next((e.lineno + 1 for e in reversed(call.excinfo.traceback) if str(e.path).endswith(_TESTS)), 0)
        line -= line > self._inserted_line
        assertion = self._asserts.get(line)
        if isinstance(error, AssertionError) and assertion is not None:
            message = _message(error).partition("\nassert ")[0] if assertion.msg else ""
            self._faults.append({"line": line, "message": message, **self._sides(assertion.test)})
        else:
            self._faults.append({"line": line, "raised": _error_text(error)})

    def _sides(self, test: ast.expr) -> dict[str, str]:
        """Return the assertion, the part of it that is computed, and its result."""
        texts = {"assertion": ast.unparse(test)[:_MOST_TEXT]}
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and self._gave:
            calls = [any(isinstance(n, ast.Call) for n in ast.walk(side)) for side in (test.left, test.comparators[0])]
            which = 1 if calls == [False, True] else 0
            texts["computed"] = ast.unparse((test.left, test.comparators[0])[which])[:_MOST_TEXT]
            texts["gave"] = json.loads(self._gave)[which]
        elif not isinstance(test, ast.Compare):
            texts["computed"] = texts["assertion"]
        return texts

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record why a test was skipped: because of a mark, whatever the code is, or because of what the code gave."""
        report = yield
        if report.outcome == "skipped":
            reasons = [str(mark.kwargs.get("reason", "")) for mark in item.iter_markers("skip")]
            is_marked = bool(reasons) or item.get_closest_marker("skipif") is not None
            if hasattr(report, "wasxfail") or any(reason.startswith("got empty parameter set") for reason in reasons):
                self._faults.append({"by": "code"})
            elif is_marked or any(hasattr(getattr(item, each, None), "__unittest_skip__") for each in ("obj", "cls")):
                self._faults.append({"by": "tests"})
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:  # noqa: ANN401
        """Report the outcome of a test, after its last phase."""
        if report.outcome != "passed":
            self._outcome = report.outcome
        if report.when == "teardown":
            name = report.nodeid.split("::", 1)[1].replace("::", ".")
            if self._mode == "unequal":
                self._outcome = "skipped" if not self._looks else "passed" if any(self._looks) else "failed"
            self._report([name, self._outcome, self._faults[:1]])
            self._faults, self._outcome, self._gave, self._looks = [], "passed", "", []

    def _report(self, record: list[Any]) -> None:
        line = (_DUMPS(record) + "\n").encode()
        while line:
            line = line[_WRITE(self._fd, line) :]


def _value_text(value: object) -> str:
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


def _error_text(error: BaseException) -> str:
    message = _message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
