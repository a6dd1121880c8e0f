"""`dsa new`: the starter documents are machines, and no file is written over."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa.cli.main import program


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments))


@pytest.mark.parametrize(
    ("options", "findings"), [((), "1 warning"), (("--steps",), "0 warnings")], ids=["rows", "steps"]
)
def test_starter_document_is_a_valid_machine(options: tuple[str, ...], findings: str, tmp_path: Path, monkeypatch):
    """The starter of rows has rows that no scenario takes yet, and a warning says so."""
    monkeypatch.chdir(tmp_path)
    assert run("new", *options, "review").exit_code == 0
    checked = run("check", "review.md")
    assert checked.exit_code == 0, checked.output
    assert findings in checked.output


def test_starter_document_replaces_no_file(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("review.md").write_text("mine", encoding="utf-8")
    assert run("new", "review").exit_code == 2
    assert Path("review.md").read_text(encoding="utf-8") == "mine"
