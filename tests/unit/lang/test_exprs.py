import pytest
from each_row import each_row

from dsa.expr import unparse
from dsa.lang.expression_parser import KEYWORDS, ExpressionParser, UnreadableError
from dsa.lang.markdown import Cell


def read(text, rule=ExpressionParser.expression):
    parser = ExpressionParser(Cell(text, "m.md", 1, 1, text))
    value = rule(parser)
    parser.end()
    return value


@each_row(
    ("text", "expected"),
    [
        ("a or b and not c", "a or b and not c"),
        ("(a or b) and c", "(a or b) and c"),
        ("not (a and b)", "not (a and b)"),
        ("not a == b", "not a == b"),
        ("(not a) == b", "(not a) == b"),
        ("1 < x<=3", "1 < x <= 3"),
        ("x - 1 - 2", "x - 1 - 2"),
        ("x - (1 - 2)", "x - (1 - 2)"),
        ("x + 1 * 2", "x + 1 * 2"),
        ("(x + 1) * 2", "(x + 1) * 2"),
        ("-x", "-x"),
        ("- 3", "-3"),
        ("-(3)", "-(3)"),
        ("--x", "--x"),
        ("x in {a,b}", "x in {a, b}"),
        ("x not in {1}", "not x in {1}"),
        ("true in {(a or b), false}", "true in {(a or b), false}"),
        ("`x > 1`", "x > 1"),
        ("pending query_llm", "pending query_llm"),
        ("review.draft", "review.draft"),
        ("((x))", "x"),
        ("x\u00a0>\t1", "x > 1"),
    ],
)
def test_expression_is_read_with_the_precedence_of_python(text, expected):
    assert unparse(read(text)) == expected
    assert read(expected) == read(text)


@each_row(
    ("text", "start", "end", "word"),
    [
        ("x && y", 2, 4, "&&"),
        ("x || y", 2, 4, "||"),
        ("x = 1", 2, 3, "="),
        ("x ! y", 2, 3, "!"),
        ("x / 2", 2, 3, "/"),
        ("x == 'a'", 5, 6, "'"),
        ("x [1]", 2, 3, "["),
        ("x y", 2, 3, "y"),
        ("x > ", 4, 5, "nothing"),
        ("", 0, 1, "nothing"),
        ("(x", 2, 3, ")"),
        ("x)", 1, 2, ")"),
        ("x in a", 5, 6, "{"),
        ("x in {}", 6, 7, "}"),
        ("1.5 < x", 0, 3, "whole number"),
        ("1234567890123456789", 0, 19, "18 digits"),
        ("else and x", 0, 4, "else"),
        ("x > and", 4, 7, "and"),
        ("é", 0, 1, "é"),
        ("٣ > x", 0, 1, "٣"),
        ("x > 1²", 5, 6, "²"),
    ],
)
def test_unreadable_expression_is_marked_at_its_place(text, start, end, word):
    with pytest.raises(UnreadableError) as caught:
        read(text)
    assert (caught.value.start, caught.value.end) == (start, end)
    assert word in caught.value.message


@each_row("word", sorted(KEYWORDS - {"true", "false", "pending", "not"}))
def test_reserved_word_is_refused_as_a_name(word):
    with pytest.raises(UnreadableError):
        read(f"x > {word}")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 61 + "x" + ")" * 61,
        "not " * 61 + "x",
        "-" * 62 + "x",
        "x" + " + 1" * 101,
        "x" + " * 1" * 101,
        "(" * 50 + "x" + (" + 1" * 150 + ")") * 50,
        "x" * 201,
    ],
)
def test_expression_that_is_too_deep_or_too_long_is_refused(text):
    with pytest.raises(UnreadableError, match=r"at most|nested"):
        read(text)


def test_deepest_accepted_tree_can_be_walked():
    text = "(" * 60 + "x" + " + 1)" * 60 + " + 1" * 40
    assert read(unparse(read(text))) == read(text)
    wide = " and ".join(["x > 1"] * 5_000)
    assert unparse(read(wide)) == wide


def test_every_node_has_its_place():
    expr = read("a and  bc > 1")
    assert (expr.span.column, expr.span.end) == (1, 14)
    compare = expr.operands[1]
    assert (compare.span.column, compare.span.end) == (8, 14)
    assert (compare.first.span.column, compare.first.span.end) == (8, 10)


@pytest.mark.parametrize("text", ["1 + 1", "(1)", "--1", "-x"])
def test_literal_must_be_a_single_value(text):
    with pytest.raises(UnreadableError):
        read(text, ExpressionParser.literal)


def test_literal_may_have_a_sign():
    assert unparse(read("-3", ExpressionParser.literal)) == "-3"
