"""The SQL tool of the chat machine: data files become read-only tables."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from machines.chat.sql.data_files import TableInfo
    from machines.chat.sql.query import QueryIntent, TimeScope
    from machines.chat.sql.sql_database import SqlDatabase, SqlResult, compiles
    from machines.chat.sql.statements import for_spreadsheets, normal_sql

#: The public names by module. A module is imported at first use: the processes that read data are in this package, and begin sooner without the others.
_NAMES = {
    "data_files": ("TableInfo",),
    "query": ("QueryIntent", "TimeScope"),
    "sql_database": ("SqlDatabase", "SqlResult", "compiles"),
    "statements": ("for_spreadsheets", "normal_sql"),
}
_HOME = {name: f"machines.chat.sql.{module}" for module, names in _NAMES.items() for name in names}

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


def __getattr__(name: str) -> Any:  # noqa: ANN401  (a module's names are of any type)
    if name not in _HOME:
        raise AttributeError(f"module 'machines.chat.sql' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
