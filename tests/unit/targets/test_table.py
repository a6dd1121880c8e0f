"""The Markdown table of the transitions."""

from dsa.trace import table


def test_the_columns_are_aligned_and_there_is_a_line_for_each_row(review):
    lines = table(review).splitlines()
    assert len(lines) == 2 + len(review.transitions)
    assert {len(line) for line in lines} == {len(lines[0])}
    assert set(lines[1]) == {"|", "-", " "}
