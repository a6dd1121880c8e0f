"""How calls are written for people."""

from machines.coding.coding_work import WorkCall
from machines.coding.task_plan import CodingCall
from machines.coding.workspace_view import arguments_text, log_lines, outcome_of, remarks_on


def test_arguments_of_a_command_are_told_apart():
    """Else an argument that only looks like a pipe would pass for one."""
    about = CodingCall(call_id="c1", tool="run_cmd", argv=("sh", "-c", "echo 1 | x", "a b", "c"))
    assert arguments_text(about) == "sh -c 'echo 1 | x' 'a b' c"
    called = WorkCall("c1", "run_cmd", "p1", "done", {"rc": 0, "output": ""}, about=about)
    assert log_lines(called) == ["CMD sh -c 'echo 1 | x' 'a b' c -> rc=0"]


def test_what_was_taken_away_and_what_no_undo_puts_back_is_told():
    assert remarks_on(outcome_of({"rc": 0, "put_back": ["sub/dsa.toml"], "not_kept": [".venv"]})) == [
        "protected from commands, and restored or removed: sub/dsa.toml",
        "changed, but dsa undo cannot restore it: .venv",
    ]
