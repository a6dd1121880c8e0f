import pytest
from each_row import each_row

from dsa.edge.sandbox import SandboxError, ladder
from dsa.guards import pytest_guard
from dsa.guards.pytest_guard import TDDTestGuard, TestGuard
from dsa.runtime.content import Artifact

ADD = "def add(a, b):\n    return a + b\n"
TESTS = "from solution import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"


def judge(code, tests=TESTS, **options):
    return TestGuard(tests, **options).validate(Artifact(code))


@pytest.mark.parametrize("hardened", [False, True])
def test_code_that_passes_is_labelled_cooperative(hardened):
    result = judge(f"Here:\n```python\n{ADD}```", hardened=hardened)
    assert result.passed
    assert result.feedback == f"1 test passed (trust: cooperative{', hardened' if hardened else ''})."


def test_feedback_names_test_and_result_but_not_the_expected_value():
    result = judge("def add(a, b):\n    return a * b", "def test_add():\n    assert add(2, 700) == 702\n")
    assert (result.passed, result.fatal) == (False, False)
    assert result.feedback == "1 of 1 tests failed:\ntest_add: add(2, 700) gave 1400 (line 2 of the tests)"


def test_feedback_shows_the_assertion_when_asked():
    result = judge("def add(a, b):\n    return 0", show_expected=True)
    assert result.feedback.splitlines()[1] == "test_add: assert add(1, 2) == 3 gave 0 (line 4 of the tests)"


@each_row(
    ("test", "said"),
    [
        ("def test_it():\n    assert 3 == add(1, 1)", "test_it: add(1, 1) gave 1 (line 2 of the tests)"),
        ("def test_it():\n    x = add(1, 1)\n    assert x == 3", "test_it: x gave 1 (line 3 of the tests)"),
        ("def test_it():\n    assert not add(1, 1)", "test_it: not add(1, 1) does not hold (line 2 of the tests)"),
        ("def test_it():\n    assert 0 < add(1, 1) < 1", "test_it: failed (line 2 of the tests)"),
        ("def test_it():\n    assert add(1, 1) == 2, 'one and one'", "test_it: add(1, 1) gave 1, one and one (line 2 of the tests)"),
        ("def test_it():\n    add(1)", "test_it: TypeError: add() missing 1 required positional argument: 'b' (line 2 of the tests)"),
        (
            "import pytest\ndef test_it():\n    with pytest.raises(ValueError):\n        add(1, 1)",
            "test_it: Failed: DID NOT RAISE ValueError (line 3 of the tests)",
        ),
        ("import pytest\ndef test_it():\n    pytest.skip()", "test_it: was skipped"),
        ("class TestAdd:\n    def test_it(self):\n        assert add(1, 1) == 2", "TestAdd.test_it: add(1, 1) gave 1 (line 3 of the tests)"),
        ("import unittest\nclass A(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(add(1, 1), 2)", "A.test_it: AssertionError: 1 != 2"),
        ("import pytest\n@pytest.fixture\ndef x():\n    return add()\ndef test_it(x):\n    pass", "test_it: TypeError: add() missing 2"),
    ],
)  # fmt: skip
def test_feedback_explains_how_a_test_failed(test, said):
    assert said in judge("def add(a, b):\n    return a * b", test).feedback


def test_feedback_shows_three_tests_and_names_the_others():
    tests = "import pytest\n@pytest.mark.parametrize('n', range(30))\ndef test_n(n):\n    assert add(n, n) == -1\n"
    lines = judge(ADD, tests).feedback.splitlines()
    assert lines[0] == "30 of 30 tests failed:"
    assert lines[4].startswith("also test_n[3], test_n[4], ")
    assert lines[4].endswith(" and 17 more")


@pytest.mark.parametrize(
    "names", ["from solution import add", "from adder import add", "import adder\nadd = adder.add", "", '"""Words."""\nfrom __future__ import annotations'],
)  # fmt: skip
def test_tests_reach_the_code_by_any_module_name_or_none(names):
    assert judge(ADD, f"{names}\ndef test_add():\n    assert add(1, 2) == 3\n").passed


def test_installed_module_is_not_mistaken_for_the_code():
    result = judge(ADD, "from math import add\ndef test_add(): pass")
    assert "cannot import name 'add' from 'math'" in result.feedback
    assert result.fatal, "no code can add a function to math"


@each_row(
    ("code", "tests", "said"),
    [
        ("def add(:", TESTS, "The code has a syntax error in line 1: invalid syntax."),
        ("1 / 0", TESTS, "The tests cannot be loaded: ZeroDivisionError: division by zero"),
        ("x = 1", TESTS, "The tests cannot be loaded: ImportError: cannot import name 'add' from 'solution'"),
        ("import sys\nsys.exit(0)", TESTS, "The tests cannot be loaded: SystemExit: 0"),
        ("import os\nos._exit(0)", TESTS, "The tests did not finish (while they were loaded): the process ended too early."),
        ("import os\ndef add(a, b): os._exit(0)", TESTS, "The tests did not finish (at test_add): the process ended too early."),
        ("import pytest\ndef add(a, b): pytest.exit('done', 0)", TESTS, "The tests did not finish (at test_add)"),
        ("def add(a, b):\n    while True: pass", TESTS, "The tests did not finish (at test_add): they took more than 1 s."),
        ("import pytest\ndef add(a, b): pytest.skip()", TESTS, "test_add: was skipped"),
        ("import pytest\ndef add(a, b): pytest.xfail()", TESTS, "test_add: was skipped"),
        ("def add(a, b): return 'x' * 10_000_000", TESTS, "test_add: add(1, 2) gave 'xxx"),
        ("import ctypes\ndef add(a, b): ctypes.string_at(0)", TESTS, "the process was killed (SIGSEGV)"),
        (
            ("import os\ndef add(a, b):\n    for n in range(3, 64):\n        try: os.write(n, b'[\"test_more\", \"passed\", []]\\n')\n"
            "        except OSError: pass\n    return a + b"),
            f"{TESTS}\ndef test_more(): pass", "wrote to the channel",
        ),
        ("import os\nfor n in range(3, 64):\n    try: os.write(n, b'[\"end\"]\\n')\n    except OSError: pass\n" + ADD, TESTS, "wrote to the channel"),
    ],
)  # fmt: skip
def test_broken_or_cheating_code_fails_with_a_reason(code, tests, said):
    result = judge(code, tests, timeout_s=1 if "while" in code else 30)
    assert (result.passed, result.fatal) == (False, False)
    assert said in result.feedback
    assert len(result.feedback) < 1500


CHEATS = {
    "meddles with pytest": (
        "import _pytest.runner as r\nr.call_and_report.__code__ = r.call_and_report.__code__\n"
        "import _pytest.python as p\np.Function.runtest = lambda self: None\n" + ADD.replace("+", "-")
    ),
    "takes the failing test away": (
        "import _pytest.python as p\nold = p.PyCollector._genfunctions\n"
        "p.PyCollector._genfunctions = lambda s, n, o: iter(()) if n == 'test_two' else old(s, n, o)\n"
        + ADD.replace("+", "-")
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_hardened_mode_finds_cheats_that_plain_mode_misses(name):
    tests = "def test_one(): assert add(0, 0) == 0\ndef test_two(): assert add(1, 2) == 3\n"
    assert judge(CHEATS[name], tests).passed
    result = judge(CHEATS[name], tests, hardened=True)
    assert not result.passed
    assert {"meddles with pytest": "pass even when every", "takes the failing test away": "changed the list of tests"}[
        name
    ] in result.feedback


def test_tests_that_test_nothing_are_found_when_hardened():
    vain = "def test_it():\n    assert True\n"
    assert judge(ADD, vain).passed
    assert "the tests test nothing" in judge(ADD, vain, hardened=True).feedback


def test_hardened_tests_may_use_the_code_while_they_are_collected():
    tests = "import pytest\nfrom solution import add, LIMIT, Box\nN = add(1, 1)\n@pytest.mark.parametrize('n', [1, 2])\ndef test_n(n):\n    assert add(n, 0) == n\n    assert Box().x() == LIMIT"
    code = ADD + "LIMIT = 3\nclass Box:\n    def x(self): return 3\n"
    result = judge(code, tests, hardened=True)
    assert result.passed, result.feedback


def test_tests_that_the_step_uses_take_precedence():
    used = Artifact("```python\ndef test_it():\n    assert add(1, 1) == 3\n```")
    assert not TestGuard(TESTS).validate(Artifact(ADD), test=used).passed


@pytest.mark.parametrize("guard", [TestGuard(), TDDTestGuard()])
def test_person_decides_when_tests_are_missing(guard):
    result = guard.validate(Artifact(ADD), other=Artifact(TESTS))
    assert (result.passed, result.fatal) == (False, True)
    assert result.feedback.startswith("There are no tests: ")


def test_code_is_judged_by_the_tests_of_an_earlier_step():
    guard = TDDTestGuard()
    assert guard.validate(Artifact(ADD), test=Artifact(f"Tests:\n```python\n{TESTS}```")).passed


#: Tests of an earlier step that no code passes.
FOR_NO_CODE = {
    "x = 1": "The text defines no test, and asserts nothing when it is loaded.",
    "": "The tests are empty",
    "def test(:": "The code of the tests has a syntax error in line 1: invalid syntax.",
    "import sympy\n" + TESTS: "The tests cannot be loaded: ModuleNotFoundError: No module named 'sympy'",
    "class TestAdd:\n    def __init__(self): pass\n    def test_it(self): assert add(1, 1)": "There is no test to run.",
    "def test_add(mocker):\n    assert add(1, 2) == 3": "No code can pass these tests:\ntest_add: there is no fixture 'mocker'",
    "async def test_add():\n    assert add(1, 2) == 3": "No code can pass these tests:\ntest_add: it is an async def",
    "import pytest\n@pytest.mark.skip(reason='later')\ndef test_add():\n    assert add(1, 2) == 3": "test_add: was skipped",
    "import unittest\n@unittest.skip('later')\nclass Adds(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(add(1, 2), 3)": "Adds.test_it: was skipped",
}  # fmt: skip


@each_row(("code", "tests"), [(ADD, tests) for tests in FOR_NO_CODE] + [("def add(:", "x = 1"), ("1 / 0", "x = 1")])
def test_code_is_not_blamed_for_tests_that_no_code_passes(code, tests):
    result = TDDTestGuard().validate(Artifact(code), test=Artifact(tests))
    assert (result.passed, result.fatal) == (False, True), result.feedback
    assert FOR_NO_CODE[tests] in result.feedback
    assert result.feedback.endswith("\nThe fault is in the tests; this verdict says nothing about the code.")


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        ("def add(a, b):\n    return 0", f"{TESTS}def test_more(mocker): pass"),
        ("import pytest\ndef add(a, b): pytest.skip()", TESTS),
        ("import sympy\n" + ADD, TESTS),
        ("def add(a, b):\n    return []", "import pytest\n@pytest.mark.parametrize('n', add(1, 2))\ndef test_it(n):\n    assert n"),
    ],
)  # fmt: skip
def test_code_fails_where_it_is_partly_to_blame(code, tests):
    result = TDDTestGuard().validate(Artifact(code), test=Artifact(tests))
    assert (result.passed, result.fatal) == (False, False), result.feedback


PLAIN = "# what is wanted\nassert add(0, 0) == 0\nassert add(2, 700) == 702, 'a sum'\n"


@pytest.mark.parametrize("hardened", [False, True])
@pytest.mark.parametrize("names", ["", "from solution import add\n", "import adder\nadd = adder.add\n"])
def test_plain_asserts_are_one_test(names, hardened):
    assert judge(ADD, names + PLAIN, hardened=hardened).feedback.startswith("1 test passed")
    assert TDDTestGuard(hardened=hardened).validate(Artifact(ADD), test=Artifact(names + PLAIN)).passed


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def add(a, b):\n    return a * b", "test_asserts: add(2, 700) gave 1400, a sum (line 3 of the tests)"),
        ("def add(a):\n    return a", "test_asserts: TypeError: add() takes 1 positional argument but 2 were given (line 2 of the tests)"),
        ("def sub(a):\n    return a", "test_asserts: NameError: name 'add' is not defined (line 2 of the tests)"),
    ],
)  # fmt: skip
def test_feedback_names_the_plain_assert_and_its_result(code, said):
    for result in (judge(code, PLAIN), TDDTestGuard().validate(Artifact(code), test=Artifact(PLAIN))):
        assert result.feedback == f"1 of 1 tests failed:\n{said}"
        assert not result.fatal


#: Returns objects that equal everything that the tests compare them with.
AGREES = """
class Any(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def add(a, b): return Any(7)
def each(n): return [n, {"a": (Any(7),)}]
"""


@each_row(
    "tests",
    [
        "def test_it():\n    assert add(1, 2) == 3",
        "def test_it():\n    assert 3 == add(1, 2)",
        "def test_it():\n    found = add(1, 2)\n    assert 1 == 1\n    if found:\n        assert found == 3",
        "def test_it():\n    assert each(1) == [1, {'a': (3,)}]",
        "class TestIt:\n    def test_it(self):\n        assert add(1, 2) == 3",
        "import unittest\nclass It(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(add(1, 2), 3)",
        "def check(a, b):\n    assert a == b\ndef test_it():\n    check(add(1, 2), 3)",
        "assert add(1, 2) == 3",
        "from unittest.mock import ANY\ndef test_one():\n    assert add(1, 2) == ANY\ndef test_it():\n    assert add(1, 2) == 3",
    ],
)
def test_code_whose_objects_equal_everything_is_noticed_when_hardened(tests):
    assert judge(AGREES, tests).passed
    result = judge(AGREES, tests, hardened=True)
    assert not result.passed
    assert "is equal to every object, even to one that equals nothing" in result.feedback


@pytest.mark.parametrize(
    ("code", "tests"),
    [
        (ADD, "from unittest.mock import ANY\ndef test_it():\n    found = add(1, 2)\n    assert found == ANY"),
        (ADD, "import pytest\ndef test_it():\n    assert add(0.1, 0.2) == pytest.approx(0.3)"),
        ("def none(n): return [[]] * n", "def test_it():\n    assert none(0) == []\n    assert none(1) == [[]]\n    assert {} == dict(none(0))"),
        ("class P:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return self.x == other.x\ndef point(x): return P(x)", "def test_it():\n    assert P(1) == point(1)"),
    ],
)  # fmt: skip
def test_honest_comparisons_are_accepted_when_hardened(code, tests):
    result = judge(code, tests, hardened=True)
    assert result.passed, result.feedback


def test_code_whose_objects_equal_only_numbers_is_not_noticed():
    code = AGREES.replace("return True", "return isinstance(other, int)")
    assert judge(code, hardened=True).passed, "the guard says so: it may notice it one day"


@pytest.mark.parametrize(
    "options", [{"module": "a-b"}, {"module": "json"}, {"timeout_s": 0}, {"require": ("x",)}, {"rung": "x"}]
)
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match=r"module|time limit|required|rung"):
        TestGuard(TESTS, **options)


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ("def test_x(:\n    pass", "the code of the tests has a syntax error in line 1: invalid syntax"),
        ("x = 1\n\x00", "the code of the tests "),
        (" \n", "the tests are empty"),
        ("x = 1", "the text defines no test, and asserts nothing when it is loaded"),
        ("def check():\n    assert add(1, 2) == 3", "the text defines no test, and asserts nothing"),
        ("if __name__ == '__main__':\n    assert add(1, 2) == 3", "the text defines no test, and asserts nothing"),
    ],
)
def test_invalid_or_empty_tests_are_refused(tests, message):
    with pytest.raises(ValueError, match=message):
        TestGuard(tests)


def test_missing_pytest_is_reported_with_the_install_command(monkeypatch):
    pytest_guard.program.cache_clear()
    find = pytest_guard.importlib.util.find_spec
    monkeypatch.setattr(
        pytest_guard.importlib.util, "find_spec", lambda name, *rest: None if name == "pytest" else find(name, *rest)
    )
    with pytest.raises(SandboxError, match=r"pip install '\.\[test\]'"):
        judge(ADD)
    pytest_guard.program.cache_clear()


def test_missing_required_feature_raises_an_error():
    with pytest.raises(SandboxError, match="own file tree"):
        judge(ADD, rung="limits", require=("own file tree",))


RUNGS = ("bubblewrap", "namespaces", "landlock", "limits")


@pytest.mark.parametrize("rung", RUNGS)
def test_tests_run_on_every_rung_that_this_machine_has(rung):
    if fault := next(each.fault for each in ladder() if each.name == rung):
        pytest.skip(f"NOT TESTED whether tests run on the rung '{rung}': {fault}")
    assert judge(ADD, rung=rung).passed
    assert judge("def add(a, b):\n    return a - b\n", rung=rung).feedback.startswith("1 of 1 tests failed:")
