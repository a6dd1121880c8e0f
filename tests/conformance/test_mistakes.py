"""Every document in `specs/mistakes/` is reported exactly as its `.txt` says, and every diagnostic code has one.

`UPDATE_GOLDEN=1 pytest tests/conformance/test_mistakes.py` rewrites the `.txt` files; review the difference.
"""

import os
import re
from pathlib import Path

import pytest

from dsa.checks.report import check
from dsa.edge.document_files import read_document
from dsa.errors import CODES, Diagnostic

FOLDER = Path(__file__).parents[2] / "specs" / "mistakes"
DOCUMENTS = sorted(path.name for path in FOLDER.glob("*.md") if path.name != "README.md")


_LIMIT = re.compile(r"^Checked with: --max-states (\d+)$", re.MULTILINE)


def reported(name: str) -> tuple[Diagnostic, ...]:
    """Return everything that is found in a document, as a person in its folder would see it."""
    reading = read_document(name)
    if reading.machine is None:
        return reading.diagnostics
    limit = _LIMIT.search(Path(name).read_text(encoding="utf-8"))
    report = check(reading.machine, max_states=int(limit[1])) if limit else check(reading.machine)
    return reading.diagnostics + report.diagnostics


@pytest.mark.parametrize("name", DOCUMENTS)
def test_faulty_document_gives_exactly_the_expected_report(name: str, monkeypatch):
    monkeypatch.chdir(FOLDER)
    text = "\n".join(finding.render() for finding in reported(name)) + "\n"
    golden = FOLDER / f"{Path(name).stem}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert text.strip(), "a document without a mistake does not belong here"


def test_every_code_has_a_document():
    shown = {code for path in FOLDER.glob("*.txt") for code in re.findall(r"DSA\d{3}", path.read_text("utf-8"))}
    assert sorted(set(CODES) - shown) == []


def test_every_expected_report_has_its_document():
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(Path(name).stem for name in DOCUMENTS)
