"""Calls as they are written for people."""

from machines.coding.coding_work import WorkCall
from machines.coding.task_plan import CodingCall
from machines.coding.workspace_view import arguments_text, log_lines, outcome_of, remarks_on


def test_arguments_of_a_command_are_quoted():
    """Otherwise an argument with a pipe in it would look like a pipe."""
    about = CodingCall(call_id="c1", tool="run_cmd", argv=("sh", "-c", "echo 1 | x", "a b", "c"))
    assert arguments_text(about) == "sh -c 'echo 1 | x' 'a b' c"
    called = WorkCall("c1", "run_cmd", "p1", "done", {"rc": 0, "output": ""}, about=about)
    assert log_lines(called) == ["CMD sh -c 'echo 1 | x' 'a b' c -> rc=0"]


def test_removed_files_and_changes_that_undo_cannot_restore_are_reported():
    assert remarks_on(outcome_of({"rc": 0, "put_back": ["sub/dsa.toml"], "not_kept": [".venv"]})) == [
        "protected from commands, so restored or removed afterwards: sub/dsa.toml",
        "changed, but dsa undo cannot undo these changes: .venv",
    ]
