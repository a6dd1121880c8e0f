"""The Markdown table of the transitions."""

from dsa.trace import table


def test_table_has_aligned_columns_and_a_line_for_each_row(review):
    lines = table(review).splitlines()
    assert len(lines) == 2 + len(review.transitions)
    assert {len(line) for line in lines} == {len(lines[0])}
    assert set(lines[1]) == {"|", "-", " "}
