"""`dsa code`, and `dsa resume` of its runs, at a real terminal: permission is requested there, and granted, denied, or left open."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked import DSA as FORKED

DSA = str(Path(sys.executable).with_name("dsa"))
SCRIPT = """
```
[{"description": "Do it", "subtasks": ["write_file a.txt"]}]
```

```
{"tool_calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "one\\n"}}]}
```

```
{"tool_calls": [{"name": "mark_subtask_complete", "arguments": {"success": true}}]}
```
"""
CTRL_C, CTRL_D = "\x03", "\x04"


@pytest.fixture
def typed(tmp_path):
    """Run a command in its own terminal, and type when the question comes; return the output and the exit code."""
    (tmp_path / "script.md").write_text(SCRIPT)
    (tmp_path / "work").mkdir()

    def run(answer, *arguments):
        ours, theirs = pty.openpty()
        program = [DSA] if answer == CTRL_C else FORKED  # the process to interrupt needs its own terminal
        command = [*program, *(arguments or ("code", "Do it", "-w", "work", "--model", "scripted:script.md"))]
        files = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        own = {"start_new_session": True, "preexec_fn": _terminal}  # the only way to get its own terminal
        with subprocess.Popen(command, cwd=tmp_path, **files, **own) as process:
            os.close(theirs)
            try:
                shown = _shown_until(ours, "or your reason against it: ")
                time.sleep(
                    0.2
                )  # Python handles no signal between the prompt and its wait for keys; no person types as fast
                os.write(ours, answer.encode())
                shown += _shown_until(ours, None)
                return shown, process.wait(30)
            finally:
                process.kill()
                os.close(ours)

    return run


def _terminal():
    """Make standard input the terminal of the session: Ctrl-C is a signal then."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _shown_until(terminal, wanted):
    """Read the output until it contains a text, or to the end."""
    shown, deadline = "", time.monotonic() + 60
    while (wanted is None or wanted not in shown) and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            try:
                piece = os.read(terminal, 4096)
            except OSError:  # the other side is closed
                break
            shown += piece.decode(errors="replace")
    return shown


@pytest.mark.parametrize(
    ("answer", "code", "says", "is_written"),
    [
        ("y\n", 0, "goal_complete", True),
        ("ALWAYS\n", 0, "goal_complete", True),
        ("n\n", 3, "[not_approved] the user does not want this call", False),
        ("not today\n", 3, "[not_approved] not today", False),
        ("s\n", 1, ": cancelled; ", False),
        ("Stop\n", 1, ": cancelled; ", False),
        ("?\ny\n", 0, "goal_complete", True),
        (CTRL_D, 3, "or answer here: dsa code --resume", False),
        (CTRL_C, 130, "or answer here: dsa code --resume", False),
    ],
)
def test_permission_is_requested_at_the_terminal(typed, tmp_path, answer, code, says, is_written):
    shown, ended = typed(answer)
    assert "+one" in shown
    assert (ended, says in shown, "Traceback" in shown) == (code, True, False), shown
    assert (tmp_path / "work" / "a.txt").exists() == is_written
    asked = 2 if "?" in answer else 1
    assert (shown.count("or your reason against it: "), "always: make the call, and allow similar calls" in shown) == (
        asked,
        asked == 2,
    )
    assert re.search(r"^[0-9T]+-coding-\w+: ", shown, re.MULTILINE), shown


@pytest.mark.parametrize(
    ("answer", "code", "says", "is_written"),
    [("y\n", 0, "goal_complete", True), ("not today\n", 3, "[not_approved] not today", False), (CTRL_D, 3, "or answer here", False)],
)  # fmt: skip
def test_resume_requests_permission_like_the_command(typed, tmp_path, answer, code, says, is_written):
    typed(CTRL_D)
    shown, ended = typed(answer, "resume", "last")
    assert "goal: Do it" in shown
    assert "+one" in shown
    assert (ended, says in shown, "Traceback" in shown) == (code, True, False), shown
    assert (tmp_path / "work" / "a.txt").exists() == is_written
    log = tmp_path / "work" / "agent_ledger.log"
    assert ("WRITE a.txt" in log.read_text()) == is_written
