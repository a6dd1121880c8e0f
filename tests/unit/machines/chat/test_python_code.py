import pytest
from each_row import each_row

from machines.chat.interpreter import compiles, is_empty, normal_code

PLAIN = "def f(x):\n    if x:\n        return 'a'\n    return \"b\"\nf(1)\n"


@each_row(
    "same",
    [
        "# a comment\n" + PLAIN,
        PLAIN.replace("    ", "\t"),
        PLAIN.replace("    ", " "),
        PLAIN.replace("\n", "\n\n"),
        PLAIN.replace("'", '"'),
        PLAIN.replace("'a'", "u'a'"),
        PLAIN.replace("f(1)", "f( 1 )  # here"),
        PLAIN.replace("f(1)", "(f(1));"),
        PLAIN.replace("\n", "\r\n"),
    ],
)
def test_code_that_differs_only_in_style_is_equal(same):
    assert normal_code(same) == normal_code(PLAIN)


@pytest.mark.parametrize(
    "other",
    [
        PLAIN.replace("1", "2"),
        PLAIN.replace("'a'", "'A'"),
        PLAIN.replace("'a'", "b'a'"),
        PLAIN + "f(1)",
        "'''doc'''\n" + PLAIN,
    ],
)
def test_code_that_does_something_else_differs(other):
    assert normal_code(other) != normal_code(PLAIN)


def test_docstrings_and_types_of_numbers_make_a_difference():
    assert normal_code("x = 1") != normal_code("x = 1.0")
    assert normal_code("x = True") != normal_code("x = 1")
    assert normal_code("'''a  b'''") != normal_code("'''a b'''")


def test_invalid_python_equals_only_itself():
    assert normal_code(" x = = 1\n") == normal_code("x = = 1")
    assert normal_code("x = = 1") != normal_code("x = = 2")


@pytest.mark.parametrize("code", ["", " \n\t", "# only\n  # this", "\n#\n"])
def test_comments_and_blank_lines_are_empty_code(code):
    assert is_empty(code)


@pytest.mark.parametrize("code", ["1", "pass", "'text'", "x = (", "# a\nb"])
def test_anything_but_comments_is_code(code):
    assert not is_empty(code)


@each_row(
    ("code", "said"),
    [
        ("x = 1\ny = = 2", "line 2: invalid syntax: y = = 2"),
        ("if x:\nprint(1)", "line 2: expected an indented block after 'if' statement on line 1: print(1)"),
        ("return 1", "line 1: 'return' outside function: return 1"),
        ("a\0b", "the code has characters that are not allowed in source files"),
        ("x = '\ud800'", "the code has characters that are not allowed in source files"),
        ("(" * 5000 + ")" * 5000, "line 1: too many nested parentheses"),
        ("-" * 50_000 + "1", "the code is nested too deep"),
        ("1\n" * 60_000, "the code is too long: 120000 characters; write at most 100000"),
    ],
)
def test_syntax_error_is_one_line(code, said):
    told = compiles(code)
    assert told.startswith(said)
    assert "\n" not in told


@pytest.mark.parametrize("code", ["x = 1", r"'\d'", "1 is 1", "", "# x"])
def test_code_that_compiles_has_no_error(code):
    assert compiles(code) is None
