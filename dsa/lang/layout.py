"""Rows of texts to the lines of an aligned Markdown table. Used by everything that writes tables in this package's documents."""

from collections.abc import Sequence


def escaped(text: str) -> str:
    r"""Write a text so that it stays in its cell: `|` becomes `\|`."""
    return text.replace("|", "\\|")


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Give the lines of a table, columns padded to the widest cell; texts must be escaped already."""
    widths = [max(3, *(len(row[place]) for row in (header, *rows))) for place in range(len(header))]
    rule = ["-" * width for width in widths]
    return [_line(cells, widths) for cells in (header, rule, *rows)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
