"""A row as the texts of its cells, and texts as aligned lines or a Markdown table: what every writer of tables shares.

Takes a `Transition`, gives plain text as it stands in a cell, not escaped for any format; takes cells, gives lines.
"""

from collections.abc import Iterable, Iterator, Sequence

from dsa.declarations import Assign, Revoke, State, Transition
from dsa.expr import TRUE, Arithmetic, Name, Or, unparse

COLUMNS = ("source", "event", "if", "update", "effects", "target")


def transition_cells(row: Transition) -> dict[str, str]:
    """Give the text of each of `COLUMNS`, in that order; a cell with nothing to say is empty."""
    return {
        "source": row.source,
        "event": row.event,
        "if": condition_text(row),
        "update": "; ".join(update_texts(row)),
        "effects": ", ".join(effect_texts(row)),
        "target": row.target,
    }


def state_kind(state: State) -> str:
    """Write the `kind` cell of a state."""
    end = "" if state.end is None else f"end when {unparse(state.end)}"
    return ", ".join(filter(None, (state.kind, end)))


def condition_text(row: Transition) -> str:
    """Write the `if` cell: nothing, a condition, `else`, or `else and` a condition."""
    if not row.is_else:
        return "" if row.condition == TRUE else unparse(row.condition)
    if row.condition == TRUE:
        return "else"
    # `and` binds more tightly than `or`: of all conditions only a disjunction needs parentheses here.
    condition = f"({unparse(row.condition)})" if isinstance(row.condition, Or) else unparse(row.condition)
    return f"else and {condition}"


def update_texts(row: Transition) -> tuple[str, ...]:
    """Write each update: `x = 1`, `x += 1` for `x = x + 1`, `x -= 1` for `x = x - 1`, `revoke x`."""
    return tuple(_update_text(update) for update in row.updates)


def _update_text(update: Assign | Revoke) -> str:
    name = update.variable
    if isinstance(update, Revoke):
        return f"revoke {name}"
    match update.value:
        case Arithmetic("+" | "-" as sign, Name(left), right) if left == name:
            return f"{name} {sign}= {unparse(right)}"
        case value:
            return f"{name} = {unparse(value)}"


def effect_texts(row: Transition) -> tuple[str, ...]:
    """Write each effect: its name, `cancel E` or `cancel`."""
    return tuple(str(item) for item in row.effects)


def escaped(text: str) -> str:
    r"""Write a text so that it stays in its cell: `|` becomes `\|`."""
    return text.replace("|", "\\|")


def aligned(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return rows as lines with aligned columns; columns without any text are left out."""
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width).rstrip()


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Give the lines of a table, columns padded to the widest cell; texts must be escaped already."""
    widths = [max(3, *(len(row[place]) for row in (header, *rows))) for place in range(len(header))]
    rule = ["-" * width for width in widths]
    return [_line(cells, widths) for cells in (header, rule, *rows)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
