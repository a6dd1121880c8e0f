"""Names of tables: from names of files, so that they need no quotes in SQL."""

import re
from collections.abc import Container
from functools import cache


def identifier(name: str) -> str:
    """Give a name that SQL takes without quotes: small letters, digits and underscores; `order` becomes `order_data`."""
    found = re.sub(r"\W+", "_", name.lower()).strip("_")[:60] or "data"
    if found[0].isdigit():
        found = f"t_{found}"
    return f"{found}_data" if found in _reserved() else found


@cache
def _reserved() -> frozenset[str]:
    """Give the words that are no names without quotes: DuckDB's reserved ones, and those that name a type or function."""
    import duckdb

    asked = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    with duckdb.connect() as connection:
        return frozenset(row[0] for row in connection.execute(asked).fetchall())


def unique(name: str, taken: Container[str], *, instead: str = "") -> str:
    """Give a name that is not taken: itself, the one to take instead, or that with a number."""
    base = instead or name
    numbered = (f"{base}_{number}" for number in range(2, 1_000_000))
    return next(found for found in (name, base, *numbered) if found not in taken) if name in taken else name
