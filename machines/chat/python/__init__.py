"""The Python tool of the chat machine: a model's code on the latest table, in the sandbox. It is independent of machine, ledger and policies."""

from machines.chat.python.interpreter import (
    CODES,
    REQUIRED_FEATURES,
    FrameSource,
    Interpreter,
    MadeFile,
    PythonResult,
    compiles,
    is_empty,
    normal_code,
)

__all__ = [
    "CODES", "REQUIRED_FEATURES", "FrameSource", "Interpreter", "MadeFile", "PythonResult", "compiles", "is_empty", "normal_code",
]  # fmt: skip
