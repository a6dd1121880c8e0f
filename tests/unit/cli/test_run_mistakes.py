"""`dsa run`: the folder that file names are relative to, and mistakes that are reported before a run starts."""

from pathlib import Path

import pytest
from stored_runs import dsa

WRITING = """# writing

## Guards
| guard  | is     | options         |
| ------ | ------ | --------------- |
| form   | json   | schema = s.json |
| person | review |                 |

## Steps
| step | guard        | rmax | task |
| ---- | ------------ | ---- | ---- |
| a    | form, person | 3    | x    |
"""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two folders, each with a schema; the document is in the first, and the test works there."""
    for name, kind in (("a", "integer"), ("b", "string")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "s.json").write_text(f'{{"type": "{kind}"}}')
    (tmp_path / "a" / "g.md").write_text(WRITING)
    (tmp_path / "a" / "r.md").write_text("```\n3\n```\n\n```\n4\n```\n\n```\n5\n```\n")
    monkeypatch.chdir(tmp_path / "a")
    return tmp_path


def test_run_answered_from_another_folder_uses_the_same_files(folders, monkeypatch):
    assert dsa("run", "g.md", "--model", "scripted:r.md").exit_code == 3
    monkeypatch.chdir(folders / "b")
    answered = dsa("send", "last", "rejected", "more", "--runs", "../a/.dsa", "--json")
    assert answered.exit_code == 3, answered.output
    assert answered.stdout.count('"review"') == 2, (
        "the person is asked about both attempts: the first guard passed both"
    )
    (folders / "b" / "s.json").unlink()
    assert dsa("run", "../a/g.md", "--model", "scripted:../a/r.md").exit_code == 3


def test_missing_schema_is_reported_with_its_line_and_path(folders, monkeypatch):
    (folders / "a" / "s.json").unlink()
    monkeypatch.chdir(folders / "b")
    told = dsa("run", "../a/g.md", "--model", "scripted:../a/r.md")
    assert told.exit_code != 0
    assert f"g.md:6:3: guard form: the schema {Path('../a/s.json')} cannot be read: No such file or directory" in str(
        told.exception
    ), "not the one in the working folder"


@pytest.mark.parametrize(
    "verb", [("run", "g.md"), ("run", "--policy", "search_agent", "x"), ("resume", "last"), ("demo",)]
)
@pytest.mark.parametrize("model", ["", "scriped:x.md", "scripted:", "127.0.0.1:18977/v1#m", "htp://127.0.0.1/v1#m"])
def test_invalid_model_is_refused_before_a_run_starts(folders, verb, model):
    result = dsa(*verb, "--model", model)
    assert result.exit_code == 2
    assert "Invalid value for '--model': " in result.stderr
    assert "http://" in result.stderr or "scripted:" in result.stderr, "the message says what is allowed"
    assert not (folders / "a" / ".dsa").exists()


def test_unused_names_of_bindings_are_reported_on_standard_error(folders):
    (folders / "a" / "bindings.py").write_text(
        "gaurds = {}\nasync def other(action, context): ...\neffects = {'other': other}"
    )
    result = dsa("run", "g.md", "--model", "scripted:r.md", "--json")
    assert result.exit_code == 3
    assert result.stderr.splitlines()[:2] == [
        "bindings.py has `gaurds`, which nothing reads; did you mean `guards`?",
        "bindings.py defines the effect 'other', which is not in any table; it is not used",
    ]
