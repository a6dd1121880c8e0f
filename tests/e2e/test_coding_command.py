"""`dsa code` as it is typed: exit codes, leave that is asked for, settings, what cannot be used, what is printed for programs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DSA = str(Path(sys.executable).with_name("dsa"))
PLAN = '[{"description": "Do it", "subtasks": ["write_file a.txt"]}]'


def block(reply):
    return f"```\n{reply if isinstance(reply, str) else json.dumps(reply)}\n```\n\n"


def calls(*pairs):
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in pairs]}


WRITE = calls(("write_file", {"path": "a.txt", "content": "one\n"}))
DONE = calls(("mark_subtask_complete", {"success": True}))
FAILED = calls(("mark_subtask_complete", {"success": False, "reason": "no"}))


@pytest.fixture
def code(tmp_path):
    """Type the command in a folder with a script; gives what came of it."""
    (tmp_path / "work").mkdir()

    def run(*arguments, script=(PLAN, WRITE, DONE), command="code", said=""):
        if command == "code":
            (tmp_path / "script.md").write_text("".join(map(block, script)))
        more = ["--model", "scripted:script.md", "-w", "work"] if command == "code" else []
        typed = [DSA, command, *arguments, *more]
        return subprocess.run(typed, cwd=tmp_path, input=said, capture_output=True, text=True, check=False, timeout=120)

    return run


def test_it_prints_one_object_for_programs(code, tmp_path):
    done = code("Do it", "--mode", "full-auto", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["state"], told["rounds"], told["files"]) == (0, "goal_complete", 2, ["a.txt"])
    assert told["tasks"] == [{"description": "Do it", "subtasks": [{"description": "write_file a.txt", "status": "completed", "reason": "done", "done": 1}]}]  # fmt: skip
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("script", "arguments", "exit_code", "state"),
    [
        ((PLAN, WRITE, DONE), (), 0, "goal_complete"),
        ((PLAN, "It is done.", "It is done."), (), 0, "answered"),
        ((PLAN, WRITE, WRITE, WRITE, WRITE, WRITE), (), 1, "blocked"),
        ((PLAN, WRITE), ("--param", "max_rounds=1"), 1, "rounds_exhausted"),
        ((PLAN, FAILED), (), 3, "escalated"),
        ((PLAN, WRITE), (), 3, "escalated"),
        ((WRITE, DONE, DONE, DONE), ("--template", "script"), 0, "goal_complete"),
    ],
)
def test_the_exit_code_says_how_it_ended(code, script, arguments, exit_code, state):
    done = code("Do it", "--mode", "full-auto", *arguments, script=script)
    assert (done.returncode, done.stdout.splitlines()[-1].split(": ")[1].split(";")[0]) == (exit_code, state), done.stdout + done.stderr  # fmt: skip


def test_where_nobody_is_asked_it_waits_and_goes_on_with_leave(code, tmp_path):
    done = code("Do it")
    assert done.returncode == 3
    assert "+one" in done.stdout
    assert "leave is asked for write_file:" in done.stdout
    assert not (tmp_path / "work" / "a.txt").exists()
    sent = code("last", "permitted", command="send")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"


def test_leave_that_is_denied_is_told_to_the_model(code, tmp_path):
    assert code("Do it", script=(PLAN, WRITE, FAILED)).returncode == 3
    assert code("last", "denied", command="send").returncode == 3
    shown = code("last", "--counters", command="show").stdout
    assert "not_approved" in shown
    assert not (tmp_path / "work" / "a.txt").exists()


def test_a_mode_that_only_reads_changes_nothing(code, tmp_path):
    look = calls(("list_dir", {}))
    done = code(
        "Look", "--mode", "read-only", script=(PLAN, WRITE, calls(("run_cmd", {"cmd": ["python", "a.py"]})), look, DONE)
    )
    assert done.returncode == 0
    assert done.stdout.count("[not_approved]") == 2
    assert [path.name for path in (tmp_path / "work").iterdir() if not path.name.startswith((".agent", "agent"))] == []


def test_settings_of_a_file_hold_and_the_command_line_goes_before_them(code, tmp_path):
    (tmp_path / "dsa.toml").write_text('[code]\nmode = "read-only"\nmax_rounds = 1\nprotected = ["a.*"]\n')
    assert "rounds_exhausted" in code("Do it").stdout
    protected = code("Do it", "--mode", "full-auto", "--param", "max_rounds=3", "--fresh", script=(PLAN, WRITE, FAILED))
    assert "path_outside_workspace" in protected.stdout
    assert not (tmp_path / "work" / "a.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "settings", "says"),
    [
        ((), "", "say a GOAL, or --resume RUN"),
        (("Do it", "--resume", "last"), "", "say a GOAL, or --resume RUN"),
        (("Do it", "--template", "nope"), "", "there is no template 'nope'; there are: script, package, fix"),
        (("Do it", "--param", "max_rounds=0"), "", "max_rounds"),
        (("Do it", "--param", "rounds=3"), "", "rounds"),
        (("Do it", "--budget", "dollars=3"), "", "is no budget"),
        (("Do it", "--network", "http://x/y"), "", "x/y"),
        (("Do it",), "[code]\nmodus = 'ask'\n", "there is no setting 'modus': did you mean mode?"),
        (("Do it",), "[code]\nmode = 'yolo'\n", "mode = 'yolo' is none of ask, auto-edit"),
        (("Do it",), "[code]\nseed = 'x'\n", "seed = 'x' is to be of the kind int"),
        (("Do it",), "[code]\nprotected = [3]\n", "protected is to be a list of texts"),
        (("Do it",), "[code.commands]\nshell = true\n", "'shell' is no rule for commands"),
        (("Do it",), "[code.templates.x]\n", "templates.x has no tasks"),
        (("Do it",), "[code\n", "the configuration cannot be read"),
        (("--resume", "last"), "", "no run is kept here"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(code, tmp_path, arguments, settings, says):
    if settings:
        (tmp_path / "dsa.toml").write_text(settings)
    done = code(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_workspace_that_is_not_there_is_named(tmp_path):
    typed = [DSA, "code", "Do it", "-w", "gone", "--model", "scripted:x.md"]
    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "there is no such folder to work in" in done.stderr) == (2, True)


def test_a_script_that_is_not_there_is_named_and_nothing_is_kept(tmp_path):
    (tmp_path / "work").mkdir()
    typed = [DSA, "code", "Do it", "-w", "work", "--model", "scripted:gone.md"]
    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "the script cannot be read" in done.stderr) == (2, True)
    assert list((tmp_path / "work").iterdir()) == []


def test_the_same_goal_is_taken_up_unless_it_is_to_be_fresh(code):
    assert code("Do it").returncode == 3  # it waits for leave
    again = code("Do it", "--json")
    told = json.loads(again.stdout)
    assert (again.returncode, told["state"], told["asks"]["tool"]) == (3, "approving", "write_file")
    fresh = code("Do it", "--fresh", "--mode", "full-auto", "--json")
    assert json.loads(fresh.stdout)["run"] != told["run"]


def test_undo_says_what_it_did_and_what_it_left(code, tmp_path):
    assert code("Do it", "--mode", "full-auto").returncode == 0
    assert "+one" in code("last", "--diff", command="show").stdout
    undone = code("last", command="undo")
    assert (undone.returncode, undone.stdout) == (0, "removed: a.txt\n")
    assert not (tmp_path / "work" / "a.txt").exists()
    assert code("Do it", "--mode", "full-auto").returncode == 0
    (tmp_path / "work" / "a.txt").write_text("mine\n")
    left = code("last", command="undo")
    assert (left.returncode, left.stdout.startswith("left alone: a.txt (")) == (1, True)


def test_other_runs_have_no_diff_and_no_undo(code, tmp_path):
    (tmp_path / "numbers.csv").write_text("a\n1\n")
    (tmp_path / "s.md").write_text("```\nYes.\n```\n")
    done = [DSA, "chat", "numbers.csv", "--model", "scripted:s.md", "--ask", "x"]
    assert subprocess.run(done, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    for command, arguments in (("show", ("last", "--diff")), ("undo", ("last",))):
        refused = code(*arguments, command=command)
        assert refused.returncode == 2, refused.stdout + refused.stderr
        assert "coding" in refused.stderr or "dsa code" in refused.stderr


def test_settings_in_a_project_file_of_the_workspace_have_to_be_named(code, tmp_path):
    """An agent may have written them, and they start programs."""
    (tmp_path / "work" / "pyproject.toml").write_text('[tool.dsa.code]\nmode = "full-auto"\n')
    (tmp_path / "script.md").write_text("".join(map(block, (PLAN, WRITE, DONE))))
    typed = [DSA, "code", "Do it", "--model", "scripted:../script.md"]
    done = subprocess.run(typed, cwd=tmp_path / "work", capture_output=True, text=True, check=False)
    assert (done.returncode, "say --config pyproject.toml" in done.stderr) == (2, True)
    named = subprocess.run([*typed, "--config", "pyproject.toml"], cwd=tmp_path / "work", capture_output=True, text=True, check=False)  # fmt: skip
    assert named.returncode == 0, named.stderr


def test_what_leave_is_asked_for_is_shown_whole_also_when_it_was_taken_up(code):
    long = "".join(f"line {number}\n" for number in range(300)) + "the last line\n"
    script = (PLAN, calls(("write_file", {"path": "a.txt", "content": long})), FAILED)
    for _ in range(2):  # the second time it is taken up
        done = code("Do it", script=script)
        assert "+the last line" in done.stdout
    told = code("last", "denied", "call it c.txt", command="send")
    assert told.returncode == 3
    assert "call it c.txt" in code("last", "--json", command="show").stdout
