"""The SQL tool of the chat machine: data files become read-only tables."""

from machines.chat.sql.data_files import TableInfo
from machines.chat.sql.query import LoadError, QueryIntent, SqlError, TimeScope
from machines.chat.sql.sql_database import SqlDatabase, SqlResult
from machines.chat.sql.statements import for_spreadsheets, normal_sql

__all__ = [
    "LoadError",
    "QueryIntent",
    "SqlDatabase",
    "SqlError",
    "SqlResult",
    "TableInfo",
    "TimeScope",
    "compiles",
    "for_spreadsheets",
    "normal_sql",
]  # fmt: skip


def compiles(sql: str, database: SqlDatabase) -> str | None:
    """Return the parser's error in one line, or None. Nothing runs, and tables and columns are not checked."""
    try:
        database.parse(sql)
    except SqlError as error:
        return " ".join(str(error).split())
    return None
