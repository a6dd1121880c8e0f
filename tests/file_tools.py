"""What tests of the file tools ask: how a call was refused, what a file is, and what is in a folder."""

import hashlib

import pytest

from machines.coding.tools.errors import ToolError


def refused(call, *arguments, **options):
    with pytest.raises(ToolError) as error:
        call(*arguments, **options)
    return error.value.code, str(error.value)


def given_or_refused(call, *arguments, **options):
    """Give what a call gives and None, or None and its ToolError."""
    try:
        return call(*arguments, **options), None
    except ToolError as error:
        return None, error


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def contents(folder):
    """Give every file below a folder with its bytes, those that are being written too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def prepared(folder):
    (folder / "sub").mkdir(parents=True)
    (folder / "one.py").write_text("old 1")
    (folder / "sub" / "three.py").write_text("old 3")
