"""`dsa chat` as it is typed: what it refuses, what it prints for programs, its lines that begin with a slash."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DSA = str(Path(sys.executable).with_name("dsa"))
SCRIPT = """
```
{"tool_calls": [{"name": "run_sql", "arguments": {"query": "SELECT a, b FROM numbers ORDER BY a"}}]}
```

```
Two rows.
```
"""


@pytest.fixture
def chat(tmp_path):
    """Run the command in a folder with data and a script."""
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "script.md").write_text(SCRIPT)

    def run(*arguments, said=""):
        command = [DSA, "chat", *arguments]
        return subprocess.run(command, cwd=tmp_path, input=said, capture_output=True, text=True, check=False)

    return run


def test_it_prints_one_object_a_turn_for_programs(chat):
    done = chat("numbers.csv", "--model", "scripted:script.md", "--ask", "What is there?", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["state"], told["answer"]) == (0, "resting.completed", "Two rows.")
    assert [(call["status"], call["rescues"]) for call in told["calls"]] == [("done", ["alias"])]
    assert told["counters"]["rescues"] == {"alias": 1}


def test_a_line_that_begins_with_a_slash_is_for_the_program(chat, tmp_path):
    said = "/artifacts\nWhat is there?\n/artifacts\n/state\n/branch 7\n/branch\n/export out\n/nope\n/end\n"
    done = chat("numbers.csv", "--model", "scripted:script.md", said=said)
    assert done.returncode == 0, done.stderr
    for shown in (
        "nothing was made yet",
        "a1    numbers_",
        "guided = false",
        "0 to 1, not '7'",
        "up to the end of turn 1",
        "there is no /nope",
    ):
        assert shown in done.stdout
    assert done.stdout.rstrip().endswith("ended")
    assert "Two rows." in (tmp_path / "out" / "conversation.md").read_text()
    assert len([*(tmp_path / "out").glob("numbers_*.csv")]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("gone.csv", "--model", "scripted:script.md", "--ask", "x"), 2, "gone.csv: is not there"),
        (("numbers.csv", "--ask", "x"), 1, "the local model can call no tools"),
        (("numbers.csv", "--model", "scripted:gone.md", "--ask", "x"), 2, "the script cannot be read"),
        (("--resume", "last", "--ask", "x"), 2, "no run is kept here"),
        (("numbers.csv", "--resume", "last"), 2, "--resume goes on as the conversation was begun"),
        (("--model", "scripted:script.md", "--param", "max_rounds=0", "--ask", "x"), 2, "max_rounds"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_in_a_sentence(chat, arguments, code, said):
    done = chat(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_budget_holds_and_is_kept(chat):
    spent = chat(
        "numbers.csv", "--model", "scripted:script.md", "--budget", "ask_model.calls=1", "--ask", "What is there?"
    )
    assert spent.returncode == 1
    assert "budget" in spent.stdout
    again = chat("--resume", "last", "--ask", "And now?")
    assert (again.returncode, "budget" in again.stdout) == (1, True)
    wrong = chat("numbers.csv", "--model", "scripted:script.md", "--budget", "dollars=1", "--ask", "x")
    assert (wrong.returncode, "is no budget" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [("--ask", " "), ("--json",)])
def test_nothing_to_say_is_no_turn(chat, arguments):
    done = chat("numbers.csv", "--model", "scripted:script.md", *arguments)
    assert (done.returncode, "say something" in done.stderr) == (2, True)


def test_a_turn_that_fails_says_why_to_people_and_to_programs(chat):
    address = "http://127.0.0.1:1/v1#m"
    told = json.loads(chat("numbers.csv", "--model", address, "--ask", "x", "--json").stdout)
    assert "check that the server runs and that the address is right" in told["why"]
    shown = chat("numbers.csv", "--model", address, "--ask", "x")
    assert shown.returncode == 1
    assert shown.stdout.count("check that the server runs and that the address is right") == 1
    assert "/retry" in shown.stdout


def test_what_was_loaded_is_shown(chat):
    done = chat("numbers.csv", "--model", "scripted:script.md", "--ask", "What is there?")
    assert "table numbers (numbers.csv): 2 rows; a BIGINT, b BIGINT" in done.stdout


def test_what_was_shown_can_be_shown_again(chat, tmp_path):
    done = chat("numbers.csv", "--model", "scripted:script.md", "--ask", "What is there?")
    shown = [DSA, "show", "last", "--transcript"]
    again = subprocess.run(shown, cwd=tmp_path, capture_output=True, text=True, check=False)
    _tables, *lines, _how = done.stdout.splitlines()
    assert (again.returncode, again.stdout.splitlines()) == (0, lines)
    assert lines[0] == "> What is there?"


def test_what_is_sent_is_answered_on_the_screen(chat, tmp_path):
    (tmp_path / "two.md").write_text("```\nOne.\n```\n```\nTwo.\n```\n")
    assert chat("numbers.csv", "--model", "scripted:two.md", "--ask", "x").returncode == 0
    typed = [DSA, "send", "last", "message", "And then?"]
    sent = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert [line for line in sent.stdout.splitlines() if "->" not in line][:2] == ["> And then?", "Two."]
    assert "One." not in sent.stdout


def test_an_export_overwrites_nothing(chat, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "conversation.md").write_text("precious")
    done = chat("numbers.csv", "--model", "scripted:script.md", said="What is there?\n/export mine\n/export new\n")
    assert "nothing was written: conversation.md is in mine already" in done.stdout
    assert (tmp_path / "mine" / "conversation.md").read_text() == "precious"
    assert len(list((tmp_path / "new").iterdir())) == 2


def test_an_empty_script_is_named(chat, tmp_path):
    (tmp_path / "empty.md").write_text(" \n")
    done = chat("numbers.csv", "--model", "scripted:empty.md", "--ask", "x")
    assert (done.returncode, "the script has no reply" in done.stderr) == (2, True)
