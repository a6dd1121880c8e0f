"""What the SQL tool raises: each with a code that programs read, and a message that a language model can act on."""

from pathlib import Path

from dsa.errors import DsaError
from machines.tool_use.texts import on_one_line

#: Every code of a SqlError, and when it is raised.
CODES: dict[str, str] = {
    "empty_sql": "There is no statement: nothing, white space, or comments only.",
    "several_statements": "There are several statements.",
    "not_a_query": "The statement is none that only reads.",
    "not_allowed": "The query reads what is no loaded table: files, the network, settings and places of this machine.",
    "sql_error": "DuckDB cannot read or run the query; the message is DuckDB's.",
    "sql_timeout": "The query was still running at its time limit, and was ended.",
    "sql_too_large": "The SQL, what the query needs in memory, or its result is too large.",
    "sql_interrupted": "The query was ended by `Database.interrupt`.",
}


class SqlError(DsaError):
    """Raised when a query is refused or fails. `code` is one of CODES."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class LoadError(DsaError):
    """Raised when a source of data cannot be loaded. `source` is the file, `reason` what is wrong with it."""

    code = "load_error"

    def __init__(self, source: Path | str, reason: str) -> None:
        self.source = on_one_line(str(source))
        self.reason = reason
        super().__init__(f"{self.source}: {reason}")
