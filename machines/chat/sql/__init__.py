"""The SQL tool of the chat machine: data files become read-only tables."""

from dsa.errors import ToolError
from machines.chat.sql.data_files import TableInfo
from machines.chat.sql.query import QueryIntent, TimeScope
from machines.chat.sql.sql_database import SqlDatabase, SqlResult
from machines.chat.sql.statements import for_spreadsheets, normal_sql

__all__ = [
    "QueryIntent",
    "SqlDatabase",
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
    except ToolError as error:
        return " ".join(str(error).split())
    return None
