"""The sandbox's side of `dsa.guards.tool_guards`: starts another program, with the text in a file or on standard input.

Its text is run by `dsa.edge.sandbox`. This process ends with the program's exit status. It reports only what an exit status cannot tell: the signal
that killed the program, or why it could not be started. So a forged report cannot make anything pass.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn


def run(payload: str, result_fd: int) -> None:
    """Do the job: `payload` is JSON with `program`, `arguments`, `file`, `text`, `shown` and `environment`.

    The program is a child of this process, which may be the first of its namespace: that one ignores most signals.
    """
    job = json.loads(payload)
    os.set_inheritable(result_fd, False)  # noqa: FBT003  # its signature
    child = os.fork()
    if child == 0:
        _become(job, result_fd)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        os.write(result_fd, json.dumps({"signal": -code}).encode())
    os._exit(abs(code))


def _become(job: dict[str, Any], result_fd: int) -> NoReturn:
    home = os.getcwd()  # noqa: PTH109
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "TMPDIR": home, "LC_ALL": "C.UTF-8"}
    try:
        _hand_over(job["file"], job["text"])
        for name, target in job["shown"].items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).symlink_to(target)
        os.execve(_reachable(job["program"]), job["arguments"], environment | job["environment"])  # noqa: S606  # no shell is wanted
    except OSError as error:
        os.write(result_fd, json.dumps({"unstarted": [error.errno, error.strerror]}).encode())
    os._exit(1)


def _hand_over(file: str, text: str) -> None:
    """Write the text to its file, or put it on standard input."""
    name = Path(file or ".input")
    name.parent.mkdir(parents=True, exist_ok=True)
    name.write_text(text, encoding="utf-8", newline="")
    if not file:
        os.dup2(os.open(name, os.O_RDONLY), 0)
        name.unlink()


def _reachable(program: str) -> str:
    """Return the program's path; if its folders cannot be entered, a path through a folder that is already open."""
    if os.access(program, os.X_OK):
        return program
    candidates = [f"{folder}/{os.path.basename(program)}" for folder in sys.path]  # noqa: PTH119
    return next((path for path in candidates if os.access(path, os.X_OK)), program)
