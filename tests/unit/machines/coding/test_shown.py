"""How calls are written for people."""

from machines.coding.shown import arguments_shown, log_lines
from machines.coding.standing import Called


def test_arguments_of_a_command_are_told_apart():
    """Else an argument that only looks like a pipe would pass for one."""
    about = {"arguments": {}, "argv": ["sh", "-c", "echo 1 | x", "a b", "c"]}
    assert arguments_shown(about) == "sh -c 'echo 1 | x' 'a b' c"
    called = Called("c1", "run_cmd", "p1", about, "done", {"rc": 0, "output": ""})
    assert log_lines(called) == ["CMD sh -c 'echo 1 | x' 'a b' c -> rc=0"]
