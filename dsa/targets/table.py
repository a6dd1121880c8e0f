"""A machine's transitions as a Markdown table in canonical layout, as GitHub renders it.

Takes a machine, gives text; the same machine gives the same text.
"""

from dsa.machine import Machine
from dsa.tables import COLUMNS, escaped, table_lines, transition_cells


def table(machine: Machine) -> str:
    """Write the transitions as an aligned table of `COLUMNS`, one row each in table order, ending in a newline."""
    rows = [[escaped(text) for text in transition_cells(row).values()] for row in machine.transitions]
    return "\n".join(table_lines(COLUMNS, rows)) + "\n"
