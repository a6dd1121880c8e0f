import pytest
from each_row import each_row

from dsa.edge.sandbox import SandboxError
from dsa.guards.guard_kinds import build_guard
from dsa.guards.pytest_guard import NewTestsGuard, TestGuard
from dsa.lang import loads
from dsa.runtime.content import Artifact

ADD = "def add(a, b):\n    return a + b\n"


def judge(tests, **options):
    return NewTestsGuard(**options).validate(Artifact(tests))


PASSING = {
    "a function": "from solution import add\ndef test_add():\n    assert add(1, 2) == 3",
    "any module": "from calc import add\ndef test_add():\n    assert add(1, 2) == 3",
    "a module in a package": "import pkg.calc\nfrom pkg.calc import add\ndef test_add():\n    assert add(1, 2) == pkg.calc.add(2, 1)",
    "a module in the code's": "from solution.errors import Bad\nfrom solution import add\ndef test_add():\n    assert add(1, 2) == 3",
    "no import": "def test_add():\n    assert add(1, 2) == 3",
    "asserts alone": "assert add(1, 2) == 3\nassert add(0, 0) == 0",
    "asserts in a function": "def check(a, b, c):\n    assert add(a, b) == c\nfor n in (1, 2):\n    check(n, n, 2 * n)",
    "a class": "class TestAdd:\n    def test_it(self):\n        assert add(1, 2) == 3",
    "unittest": "import unittest\nclass Adds(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(add(1, 2), 3)",
    "a helper that asserts": "def check(a, b):\n    assert a == b\ndef test_add():\n    check(add(1, 2), 3)",
    "a fixture, and raises": "import pytest\nfrom stack import Empty, Stack\n@pytest.fixture\ndef stack():\n    return Stack()\ndef test_pop(stack):\n    with pytest.raises(Empty):\n        stack.pop()",
    "a mock": "from unittest.mock import patch\nimport weather\n@patch('weather.requests.get')\ndef test_it(get):\n    assert weather.temperature('x') == 3",
    "mixed with one that is always true": "def test_true():\n    assert True\ndef test_add():\n    assert add(1, 2) == 3",
    "xfail": "import pytest\n@pytest.mark.xfail\ndef test_add():\n    assert add(1, 2) == 3",
}  # fmt: skip
#: Uses of the code while the tests are only collected.
AT_THE_TOP = {
    "parameters": "@pytest.mark.parametrize('n', [add(1, 2), add.LIMIT])",
    "parameters that the code gives": "@pytest.mark.parametrize(('n', 'm'), CASES)",
    "a range": "@pytest.mark.parametrize('n', range(LIMIT))",
    "constants": "N = add(1, 2) + LIMIT * 2 - len(NAMES)\nNAME = f'{LIMIT:>3} of {NAMES[0]!r}'",
    "a pair": "A, (B, *C) = pair()",
    "a loop": "for name in NAMES:\n    print(name)",
    "an assert beside tests": "assert LIMIT == 3 and LIMIT > 2 and 'x' in NAMES",
    "a base class": "import abc\nclass Fake(Base, abc.ABC, size=3):\n    inner: LIMIT | None = None",
    "a decorator": "@traced\ndef helper():\n    return 1",
    "with": "with opened(1) as file:\n    TEXT = file.read()[3:]",
}


@each_row("name", PASSING)
def test_tests_that_only_the_code_can_satisfy_pass(name):
    result = judge(PASSING[name])
    assert (result.passed, result.fatal) == (True, False), result.feedback


@each_row("name", AT_THE_TOP)
def test_tests_may_use_the_code_while_they_are_collected(name):
    top = AT_THE_TOP[name]
    arguments = (
        "n=0, m=0" if top.startswith("for") or not top.startswith("@pytest") else "n, m" if "'m'" in top else "n"
    )
    result = judge(f"import pytest\nfrom calc import *\n{top}\ndef test_add({arguments}):\n    assert add(1, 2) == 3\n")
    assert result.passed, result.feedback


def test_passing_feedback_counts_the_tests_that_need_the_code():
    result = judge(PASSING["mixed with one that is always true"])
    assert result.feedback == "2 tests, of which 1 fails without the code."


@each_row(
    ("tests", "said"),
    [
        ("def test_add(:", "The code has a syntax error in line 1: invalid syntax."),
        ("", "There is no code in the answer."),
        ("# Tests for add: it should add two numbers.", "There is no test in the answer. Write functions test_..()"),
        (ADD, "There is no test in the answer. It defines add instead, but that is the task of the next step."),
        ("x = 1\nif __name__ == '__main__':\n    assert add(1, 2) == 3", "There is no test in the answer."),
        ("def check():\n    assert add(1, 2) == 3", "There is no test in the answer. It defines check instead"),
        ("def test_add():\n    add(1, 2)", "The tests assert nothing"),
        ("def test_add():\n    pass\ndef unused():\n    assert add(1, 2) == 3", "The tests assert nothing"),
        ("def test_add():\n    with pytest.raises(ValueError):\n        add(1)", "The tests use pytest and do not import it."),
        ("class TestAdd:\n    def __init__(self): pass\n    def test_it(self):\n        assert add(1, 2) == 3", "pytest finds no test in the answer"),
        ("import numpy_financial, sympy\ndef test_add():\n    assert add(1, 2) == 3", "ModuleNotFoundError: No module named 'sympy'.\nUse only Python's library"),
        ("from math import add\ndef test_add():\n    assert add(1, 2) == 3", "cannot import name 'add' from 'math'"),
        ("from .solution import add\ndef test_add():\n    assert add(1, 2) == 3", "attempted relative import"),
        ("def test_add(mocker):\n    assert add(1, 2) == 3", "No code can pass these tests:\ntest_add: there is no fixture 'mocker'"),
        ("async def test_add():\n    assert await add(1, 2) == 3", "test_add: it is an async def, which is not run"),
        ("import pytest\n@pytest.mark.skip\ndef test_add():\n    assert add(1, 2) == 3", "a skipped test does not count as passed:\ntest_add: was skipped"),
        ("import pytest\ndef test_add():\n    pytest.skip('later')\n    assert add(1, 2) == 3", "test_add: was skipped"),
        ("def test_add():\n    assert True", "The tests pass without the code"),
        (f"{ADD}def test_add():\n    assert add(1, 2) == 3", "call it in the tests, and assert what it returns. Do not define add in the tests, if that is the code under test."),
        ("import pytest\nfrom calc import add\ndef test_add():\n    with pytest.raises(Exception):\n        add('a')", "although every call of the code fails"),
        ("from math import sqrt\ndef test_it():\n    assert sqrt(4) == 2", "The tests pass without the code"),
        ("from calc import add\ndef test_it():\n    assert callable(add)", "The tests pass without the code"),
        ("import os\nos._exit(0)\ndef test_add():\n    assert add(1, 2) == 3", "The tests did not finish (while they were loaded)"),
        ("import time\ntime.sleep(60)\ndef test_add():\n    assert add(1, 2) == 3", "they took more than 1 s."),
    ],
)  # fmt: skip
def test_useless_tests_are_rejected_with_a_reason(tests, said):
    result = judge(tests, timeout_s=1 if "sleep" in tests else 30)
    assert (result.passed, result.fatal) == (False, False)
    assert said in result.feedback


def test_feedback_names_the_configured_module():
    assert (
        "import the code under test from stack"
        in judge("import sympy\ndef test_it():\n    assert push()", module="stack").feedback
    )


@pytest.mark.parametrize("name", ["a module in a package", "a module in the code's", "asserts alone", "unittest"])
def test_code_is_judged_by_the_accepted_tests(name):
    code = f"{ADD}class Bad(Exception): pass\n"
    assert TestGuard(PASSING[name]).validate(Artifact(code)).passed
    assert "tests failed" in TestGuard(PASSING[name]).validate(Artifact(code.replace("+", "-"))).feedback


@pytest.mark.parametrize("options", [{"module": "a-b"}, {"module": "json"}, {"timeout_s": 0}, {"require": ("x",)}])
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match=r"module|time limit|feature"):
        NewTestsGuard(**options)


def test_missing_required_feature_raises_an_error():
    with pytest.raises(SandboxError, match="own file tree"):
        judge(PASSING["a function"], rung="limits", require=("own file tree",))


def test_kind_are_tests_takes_options():
    table = (
        "# m\n\n## Guards\n| guard | is | options |\n| - | - | - |\n| g | are_tests | module = stack; timeout_s = 5 |\n"
    )
    table += "\n## Steps\n| step | guard | task |\n| - | - | - |\n| t | g | Write tests |\n"
    assert "from stack" in build_guard("t", loads(table)).validate(Artifact("def test_it():\n    assert True")).feedback
