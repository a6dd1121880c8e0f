"""A guard that asks a person to decide: the output for people and programs, before and after the decision."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dsa.cli.main import program

STEPS = """# rev
## Steps
| step | guard | rmax |
| - | - | - |
| code | syntax, review | 1 |
"""
REPLIES = "```\nx = (\n```\n```\nx = 1\n```\n```\nx = 2\n```\n"


def dsa(*arguments: str):
    return CliRunner().invoke(program, list(arguments))


@pytest.fixture
def waiting(tmp_path, monkeypatch) -> tuple[str, Path]:
    """Run to the review of the second attempt; return what was printed, and the run's folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rev.md").write_text(STEPS)
    (tmp_path / "replies.md").write_text(REPLIES)
    done = dsa("run", "rev.md", "a number", "--model", "scripted:replies.md")
    assert done.exit_code == 3, done.output
    (folder,) = (tmp_path / ".dsa").glob("*-rev-*")
    return done.output, folder


def test_run_says_that_it_waits_for_a_review(waiting):
    printed, folder = waiting
    lines = printed.splitlines()
    assert [line.split()[3] for line in lines[:2]] == ["rejected", "review"]
    assert lines[2].startswith("waiting for review in escalated.code for: ")
    assert "(2 made, 1 rejected, all kept)" in printed
    assert "fatal" not in printed
    assert f"to judge  {folder.relative_to(Path.cwd())}/code-2-review.py: review: A person" in printed
    assert (folder / "code-2-review.py").exists()


def test_timeline_and_provenance_call_the_verdict_a_review(waiting):
    told = dsa("show", "last").output
    assert "code attempt 2: review (code.review): review: A person must review this." in told
    assert "review  attempt 2 of code waits for a person" in told
    assert "review: review: A person must review this." in dsa("show", "last", "--provenance").output


def test_json_calls_the_verdict_a_review(waiting):
    found = json.loads(dsa("show", "last", "--json").output)
    assert [each["verdict"] for each in found["attempts"]] == ["failed", "review"]
    assert found["to_judge"].endswith("code-2-review.py: review: A person must review this.")


def test_table_reads_a_review_as_a_fatal_verdict(waiting):
    """A review changes the output for people, but not the row that is taken."""
    entries = [json.loads(line) for line in dsa("show", "last", "--jsonl").output.splitlines()]
    (said,) = [entry for entry in entries if entry["kind"] == "verdict" and entry["attempt"] == 2]
    assert said["judgements"] == [
        {"guard": "code", "outcome": "fatal", "feedback": said["judgements"][0]["feedback"], "review": True}
    ]
    assert "verdict code.fatal" in dsa("show", "last").output


@pytest.mark.parametrize(
    ("event", "attempts"), [("approved", ["failed", "review"]), ("rejected", ["failed", "review", "failed"])]
)
def test_decided_review_no_longer_waits(waiting, event, attempts):
    decided = dsa("send", "last", event)
    assert decided.output.splitlines()[-1].startswith("totals"), decided.output
    assert "waiting for review" not in decided.output
    found = json.loads(dsa("show", "last", "--json").output)
    assert [each["verdict"] for each in found["attempts"]] == attempts
    assert (found["kind"], found["to_judge"]) == ("finished", None)
    assert "waits for a person" not in dsa("show", "last").output


def test_fatal_guard_without_a_review_is_shown_as_fatal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rev.md").write_text(STEPS.replace("review |", "forbidden |"))
    (tmp_path / "replies.md").write_text("```\neval(x)\n```\n")
    done = dsa("run", "rev.md", "a number", "--model", "scripted:replies.md")
    assert done.output.splitlines()[0].split()[3] == "fatal", done.output
    assert "waiting in escalated.code for" in done.output
