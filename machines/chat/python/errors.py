"""What can go wrong when code of a model is run, as one error with a stable code."""

from dsa.errors import DsaError

#: Every code, and what it says.
CODES = {
    "python_error": "The code raised an exception.",
    "python_syntax_error": "The code is no Python, or there is none.",
    "python_timeout": "The code used up its time, or its processor time.",
    "python_memory": "The code asked for more memory than it may have.",
    "python_killed": "The code's process ended before the code did: by itself, by a crash, or by a signal.",
    "too_many_files": "The code left more files than are kept.",
    "files_too_large": "The code's files are larger, in all, than what is kept.",
    "bad_file": "The code left something that cannot be kept: a link, a device, a file that is not what its name says.",
    "bad_table": "The table cannot be made into a DataFrame.",
    "bad_result": "What came out of the sandbox is no report of ours.",
    "no_sandbox": "This machine cannot confine code as it must be confined; nothing was run.",
    "not_installed": "A package that the code is promised is not installed; nothing was run.",
}


class PythonError(DsaError):
    """Raised when code gives no result. `code` is one of CODES; the message is for the model that wrote the code.

    `output` is what was printed until then, `line` the line of the code at fault, from 1, where there is one.
    """

    def __init__(self, code: str, message: str, *, output: str = "", line: int | None = None) -> None:
        self.code = code
        self.output = output
        self.line = line
        super().__init__(message)
