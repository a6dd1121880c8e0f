"""The Python tool of the chat machine: a model's code over the latest table, in the sandbox. It knows nothing of machine, ledger and policies."""

from machines.chat.python.code import compiles, is_empty, normal_code
from machines.chat.python.errors import CODES, PythonError
from machines.chat.python.files import MadeFile
from machines.chat.python.interpreter import REQUIRED, FrameSource, Interpreter
from machines.chat.python.report import PythonResult

__all__ = [
    "CODES", "REQUIRED", "FrameSource", "Interpreter", "MadeFile", "PythonError", "PythonResult", "compiles", "is_empty", "normal_code",
]  # fmt: skip
