"""How calls are written for people."""

from machines.coding.shown import arguments_shown, log_lines, remarks_on
from machines.coding.standing import Called


def test_arguments_of_a_command_are_told_apart():
    """Else an argument that only looks like a pipe would pass for one."""
    about = {"arguments": {}, "argv": ["sh", "-c", "echo 1 | x", "a b", "c"]}
    assert arguments_shown(about) == "sh -c 'echo 1 | x' 'a b' c"
    called = Called("c1", "run_cmd", "p1", about, "done", {"rc": 0, "output": ""})
    assert log_lines(called) == ["CMD sh -c 'echo 1 | x' 'a b' c -> rc=0"]


def test_what_was_taken_away_and_what_no_undo_puts_back_is_told():
    assert remarks_on({"rc": 0, "put_back": ["sub/dsa.toml"], "not_kept": [".venv"]}) == [
        "not for a command to write, and put back or taken away: sub/dsa.toml",
        "changed, and not undone by dsa undo: .venv",
    ]
