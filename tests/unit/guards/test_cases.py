import pytest
from each_row import each_row

from dsa.declarations import Case
from dsa.guards.cases import CasesGuard
from dsa.runtime.content import Artifact


def judge(code, *cases, **options):
    return CasesGuard(cases, **options).validate(Artifact(content=code))


def test_code_that_returns_every_expected_value_passes():
    code = "Sure:\n```python\ndef add(a, b):\n    return a + b\n```"
    assert judge(code, Case("add(2, 3)", "5"), ("add('a', 'b')", "'ab'"), ("add([1], [2])", [1, 2])).passed


@each_row(
    ("gives", "expected"),
    [
        ("True", "1"),
        ("1", "True"),
        ("1.0", "1"),
        ("1", "1.0"),
        ("[1, 2]", "(1, 2)"),
        ("(1,)", "1"),
        ("[True]", "[1]"),
        ("{1: 'a'}", "{True: 'a'}"),
        ("{'a': [1.0]}", "{'a': [1]}"),
        ("{1}", "{1.0}"),
        ("b'a'", "'a'"),
        ("frozenset({1})", "{1}"),
        ("float('nan')", "1e999"),
    ],
)
def test_values_of_other_types_are_wrong(gives, expected):
    assert not judge(f"def f(): return {gives}", Case("f()", expected)).passed


@each_row(
    "literal",
    [
        "None",
        "...",
        "-3",
        "0.1",
        "1e999",
        "-1e999",
        "'\\ud800\\n'",
        "b'\\x00'",
        "()",
        "(1,)",
        "set()",
        "{1, 2}",
        "1j",
        "{'b': [1, (2, {})], 'a': None}",
        "[[[]]]",
        f"{10**60}",
        f"-{10**30}",
        "'é€'",
    ],
)
def test_every_literal_is_equal_to_itself(literal):
    result = judge(f"def f(): return {literal}", Case("f()", literal))
    assert result.passed, result.feedback


def test_dictionaries_are_equal_in_any_order():
    assert judge("def f(): return {'a': 1, 'b': 2}", ("f()", {"b": 2, "a": 1})).passed


def test_integers_too_long_for_decimal_are_compared():
    code = "def f(n): return 10 ** n"
    assert judge(code, ("f(6000)", 10**6000)).passed
    assert not judge(code, ("f(6000)", 10**6000 + 1)).passed


def test_feedback_names_call_and_result_but_not_the_expected_value():
    result = judge("def f(n): return n - 1", ("f(1)", 777), ("f(2)", 1))
    assert result.feedback == "1 of 2 calls failed:\nf(1) gave 0"


def test_feedback_shows_the_expected_value_when_asked():
    assert judge("def f(n): return n", ("f(1)", 777), show_expected=True).feedback == (
        "The call failed:\nf(1) gave 1, expected 777"
    )


def test_feedback_names_the_exception_with_its_line():
    code = "def f(n):\n    x = 1\n    return x // n"
    assert judge(code, ("f(0)", 1)).feedback == (
        "The call failed:\nf(0) raised ZeroDivisionError: integer division or modulo by zero (line 3)"
    )


def test_feedback_shows_three_calls_and_names_the_others():
    result = judge("def f(n): return 0", *((f"f({n})", n) for n in range(1, 31)))
    assert result.feedback.splitlines() == [
        "30 of 30 calls failed:",
        "f(1) gave 0",
        "f(2) gave 0",
        "f(3) gave 0",
        "also f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13) and 17 more",
    ]


def test_feedback_is_bounded_and_printable():
    result = judge("def f(): raise ValueError('\\x1b[31m\\n' + 'a' * 50_000)", *[("f()", 1)] * 40)
    assert len(result.feedback) < 1500
    assert "\x1b" not in result.feedback


@each_row(
    ("code", "feedback"),
    [
        ("def g(): pass", "The call failed:\nf() raised NameError: name 'f' is not defined"),
        ("import nowhere", "The code cannot be loaded: ModuleNotFoundError: No module named 'nowhere' (line 1)"),
        ("\n1 / 0", "The code cannot be loaded: ZeroDivisionError: division by zero (line 2)"),
        ("return 1", "The code cannot be loaded: SyntaxError: 'return' outside function (line 1)"),
        ("def f(: pass", "The code has a syntax error in line 1: invalid syntax."),
        ("", "There is no code in the answer."),
        ("def f(): return object()", "The call failed:\nf() gave an object of type object, which is not a plain value"),
        ("def f(): yield 1", "The call failed:\nf() gave an object of type generator, which is not a plain value"),
        ("def f(): pass", "The call failed:\nf() gave None"),
    ],
)
def test_feedback_explains_why_code_cannot_be_judged_by_value(code, feedback):
    result = judge(code, ("f()", 1))
    assert (result.passed, result.fatal, result.feedback) == (False, False, feedback)


def test_code_can_use_the_standard_library_and_has_its_own_module():
    code = """
from __future__ import annotations
import re, math, json, collections, datetime, itertools, functools, decimal, typing
from dataclasses import dataclass

@dataclass
class Point:
    x: int
    y: typing.ClassVar[int] = 2

def f():
    return [Point(1).x, math.gcd(12, 18), re.sub('a', 'b', 'aa'), str(decimal.Decimal('1.10'))]

if __name__ == '__main__':
    raise SystemExit(1)
"""
    result = judge(code, ("f()", [1, 6, "bb", "1.10"]))
    assert result.passed, result.feedback


def test_calls_share_the_state_of_the_code():
    code = "seen = []\ndef f(x):\n    seen.append(x)\n    return list(seen)"
    assert judge(code, ("f(1)", [1]), ("f(2)", [1, 2])).passed


@pytest.mark.parametrize(
    "cases",
    [[], [("f(", 1)], [("x = 1", 1)], [Case("f()", "g()")], [Case("f()", "")], [("f()", "unquoted text")]],
)
def test_invalid_cases_are_refused(cases):
    with pytest.raises(ValueError, match=r"case|expression|literal"):
        CasesGuard(cases)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 1e9])
def test_invalid_time_limit_is_refused(timeout_s):
    with pytest.raises(ValueError, match="timeout_s"):
        CasesGuard([("f()", "1")], timeout_s=timeout_s)
