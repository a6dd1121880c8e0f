import os
import sys
import time
from pathlib import Path

import pytest

from dsa.edge.processes import run_program
from dsa.errors import DsaError


def python(source, given=b"", *, timeout_s=20.0, most_bytes=1_000_000):
    return run_program([sys.executable, "-c", source], given, timeout_s=timeout_s, most_bytes=most_bytes)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"


def test_input_and_output_may_exceed_the_pipe_buffers():
    given = os.urandom(700_000)
    ran = python("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", given)
    assert (ran.end, ran.code, ran.output == given[::-1], ran.complaints) == ("ended", 0, True, b"")


def test_program_may_leave_its_input_unread():
    assert python("print('done')", b"x" * 1_000_000).output == b"done\n"


def test_failure_is_reported_with_the_end_of_stderr():
    ran = python("import sys; sys.stderr.write('y' * 100_000 + 'the last words'); sys.exit(3)")
    assert (ran.end, ran.code, len(ran.complaints)) == ("ended", 3, 4_096)
    assert ran.complaints.endswith(b"the last words")


def test_signal_of_a_killed_program_is_reported():
    assert python("import os; os.kill(os.getpid(), 9)").code == -9


def test_program_that_writes_too_much_is_killed_and_the_rest_is_dropped():
    ran = python("while True: print('z' * 1000)", most_bytes=5_000)
    assert (ran.end, len(ran.output)) == ("flooded", 5_000)


@pytest.mark.parametrize("source", ["", "import sys; sys.stdout.close(); sys.stderr.close(); "], ids=["open", "closed"])
def test_time_limit_ends_a_program_and_its_children(source):
    began = "import subprocess, sys, time; "
    child = "child = subprocess.Popen(['sleep', '100']); print(child.pid, flush=True); "
    begun_s = time.monotonic()
    ran = python(f"{began}{child}{source}time.sleep(100)", timeout_s=1.5)
    assert (ran.end, time.monotonic() - begun_s < 15) == ("timeout", True)
    deadline_s = time.monotonic() + 10
    while is_alive(int(ran.output)) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not is_alive(int(ran.output))


@pytest.mark.parametrize("command", [["no-such-program"], ["/"], ["a\0b"]], ids=["missing", "folder", "null"])
def test_program_that_cannot_be_started_is_reported(command):
    with pytest.raises(DsaError, match="cannot be started: "):
        run_program(command, b"", timeout_s=1.0, most_bytes=1)
