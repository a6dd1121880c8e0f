"""The shipped dual_state, with faults planted in its text."""

from pathlib import Path

import pytest

from dsa.checks.report import check
from dsa.lang import loads

TEXT = (Path(__file__).parents[3] / "machines" / "dual_state" / "machine.md").read_text(encoding="utf-8")


def line_of(text, part):
    """Return the number of the one line that has `part`."""
    (line,) = [number for number, line in enumerate(text.split("\n"), 1) if part in line]
    return line


@pytest.fixture
def plant():
    """Return a function that replaces parts of dual_state's text and gives the text and its findings by code."""

    def planted(*changes, text=TEXT, **options):
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        report = check(loads(text, "machine.md"), **options)
        return text, {finding.code: finding for finding in reversed(report.diagnostics)}

    return planted
