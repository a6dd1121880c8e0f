"""Tell of a model's code whether it is Python, and when two texts are the same code. Nothing is run."""

import ast
import warnings

_MOST_CODE = 100_000  # a syntax tree takes some hundred times the memory of its text
_MOST_LINE = 200
_UNREADABLE = "the code holds characters that no source file may hold"


def is_empty(code: str) -> bool:
    """Tell whether there is no code at all: nothing, white space, comments."""
    return all(not line.strip() or line.strip().startswith("#") for line in code.splitlines())


def compiles(code: str) -> str | None:
    """Give the syntax error in one line, with the number of its line; None when there is none."""
    fault = syntax_fault(code)
    return fault[0] if fault else None


def normal_code(code: str) -> str:
    """Give a text that is equal for code that differs only in how it is written: comments, blank lines, indentation, quotes.

    What is no Python is equal to itself alone, but for white space around it. The text is for comparing, not for reading.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant):
                node.kind = None  # u'' is ''
        return ast.dump(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code.strip()


def syntax_fault(code: str) -> tuple[str, int | None] | None:
    """Give the syntax error in one line, and the number of its line, from 1, where it has one; None when there is no error."""
    if len(code) > _MOST_CODE:
        return f"the code is too long: {len(code)} characters, and at most {_MOST_CODE} are read", None
    if "\0" in code:
        return _UNREADABLE, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is no syntax error
            compile(code, "<code>", "exec", dont_inherit=True)
    except SyntaxError as error:
        lines = code.splitlines()
        at = error.lineno if error.lineno and error.lineno <= len(lines) else None
        line = lines[at - 1].strip()[:_MOST_LINE] if at else ""
        return (f"line {at}: " if at else "") + error.msg + (f": {line}" if line else ""), at
    except ValueError:  # a lone surrogate
        return _UNREADABLE, None
    except (RecursionError, MemoryError):
        return "the code is nested too deeply to be read", None
    return None
