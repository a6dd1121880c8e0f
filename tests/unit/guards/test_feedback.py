from hypothesis import given, settings
from hypothesis import strategies as st

from dsa.guards.feedback import MOST_CHARACTERS, MOST_LINES, bound_text, clip, clip_middle, together

texts = st.text(max_size=3000) | st.lists(st.text(max_size=400), max_size=30).map("\n".join)


def fits(text):
    return len(text) <= MOST_CHARACTERS and len(text.split("\n")) <= MOST_LINES


def test_short_text_is_not_cut():
    assert clip("abc") == clip_middle("abc") == "abc"
    assert bound_text("a\n  b\n\nc") == "a\n  b\n\nc"
    assert bound_text("\n\na\r\nb\n") == "a\nb"


def test_clipped_text_is_one_printable_line_with_an_ellipsis():
    assert clip("a\n\x1b[2J\ud800b") == "a [2J b"
    assert clip("x" * 200, 10) == "xxxxxxxxxx..."
    assert clip("\n" * 10_000_000 + "x", 10) == " ..."
    assert clip_middle("a" * 100 + "is wrong", 20) == "aaaaaaaaaa...aais wrong"


def test_first_and_last_lines_of_a_long_text_remain():
    lines = bound_text("\n".join(str(n) for n in range(1000))).split("\n")
    assert (lines[0], lines[-1], len(lines)) == ("0", "999", MOST_LINES)
    assert "... (some text is left out)" in lines


def test_end_can_be_passed_separately_from_the_beginning():
    said = bound_text("first\nsecond", "torn\nlast\n").split("\n")
    assert said == ["first", "second", "... (some text is left out)", "torn", "last"]


@settings(max_examples=40)
@given(texts, texts)
def test_bounded_text_fits_the_limits(text, end):
    assert fits(bound_text(text))
    assert fits(bound_text(text, end))


@settings(max_examples=40)
@given(st.lists(texts, max_size=30))
def test_joined_feedback_fits_the_limits(parts):
    assert fits(together(parts))


def test_joined_feedback_has_every_part():
    said = together([f"{name}: " + "\n".join([f"line of {name}"] * 50) for name in "abcd"])
    assert [f"{name}: line of {name}" in said for name in "abcd"] == [True] * 4
