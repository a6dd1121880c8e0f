"""`--certificate` of check and prove, and `dsa verify`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dsa.cli.main import program
from dsa.errors import DocumentError


def dsa(*arguments: str) -> Result:
    return CliRunner().invoke(program, list(arguments))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", ["prove", "check"])
def test_what_is_written_is_accepted_for_that_document_alone(command):
    made = dsa(command, "workflow", "--certificate", "out.json")
    claims = json.loads(Path("out.json").read_text(encoding="utf-8"))["claims"]
    assert f"out.json: {len(claims)} claims; `dsa verify out.json` reads them" in made.stderr
    accepted = dsa("verify", "out.json", "workflow")
    assert accepted.exit_code == 0
    assert accepted.stdout == dsa("verify", "out.json").stdout
    assert len(accepted.stdout.splitlines()) == 1 + len(claims)
    other = dsa("verify", "out.json", "dual_state")
    assert (other.exit_code, other.stdout) == (1, "")
    assert other.stderr.startswith("out.json: refused: it is about another machine than dual_state")


def test_what_is_not_certified_is_said():
    Path("m.md").write_text("# m\n\n## Transitions\n| source | event | target |\n|---|---|---|\n| a | go | a |\n\n"
                            "## Properties\n- always a\n- never a\n- a with probability >= 0.5\n", encoding="utf-8")  # fmt: skip
    made = dsa("check", "m.md", "--certificate", "out.json")
    assert "out.json: not certified: never a: it is VIOLATED" in made.stderr
    assert "out.json: not certified: a with probability >= 0.5: " in made.stderr
    assert [line.split(":")[0] for line in dsa("verify", "out.json").stdout.splitlines()[1:]] == [
        "no fault",
        "always a",
    ]


def test_a_certificate_is_of_one_machine():
    refused = dsa("check", "dual_state", "workflow", "--certificate", "out.json")
    assert refused.exit_code == 2
    assert "--certificate takes one FILE" in refused.stderr
    assert not Path("out.json").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"machine": "", "digest": "", "claims": []}', "1", '"x"'])
def test_what_is_no_certificate_is_refused_without_a_traceback(text):
    Path("out.json").write_text(text, encoding="utf-8")
    refused = dsa("verify", "out.json")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("out.json: refused: ")
    assert len(refused.stderr.splitlines()) == 1


def test_unreadable_files_are_no_refusals():
    Path("out.json").write_text("{}", encoding="utf-8")
    for arguments in ["nothing.json"], ["out.json", "nothing.md"]:
        assert isinstance(dsa("verify", *arguments).exception, DocumentError)  # `main` makes a message and exit 2 of it
