"""Commands that attack: each is refused or contained, with a reason, a plain one works afterwards, and nothing is left running.

Processes, files and sockets are real. As root and as an ordinary user.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import ordinary_user
import pytest
from attacked_commands import ATTACKS, marked
from conftest import NOT_TESTED
from each_row import each_row

from dsa.edge.sandbox.command_sandbox import probe_commands
from dsa.errors import ToolError
from machines.coding.tools.command_runner import fault, read_command, run
from machines.coding.tools.program_rules import Rules

REPOSITORY = Path(__file__).parents[2]
SYNTAX = [
    "pytest; rm -rf /", "pytest && rm -rf .", "pytest || true", "pytest & python x.py", "pytest | tee out", "pytest |& cat", "python x.py > out",
    "python x.py >> out", "python x.py 2>&1", "python x.py < in", "python x.py << EOF\nx\nEOF", "python $(cat x)", "python `cat x`", 'python "$(cat x)"',
    'python "`cat x`"', "python $HOME/x.py", 'python "${X}"', "python x.py\nrm -rf .", "python x.py\r\nrm x", "python \\\nx.py", "python *.py", "python x?.py",
    "python x[12].py", "python {x,y}.py", "(python x.py)", "FOO=1 python x.py", "cd src && pytest", "python ~/x.py", "python x.py # all of them", "! pytest",
    "python <(cat x)", "python x.py 2>/dev/null", "pytest -q;", "echo $'a\\nb'", "pytest 'a' 'b", 'pytest "a', "python x.py \\",
]  # fmt: skip
REFUSED = [
    ["bash", "-c", "id"], ["sh", "x.sh"], ["env", "python", "x.py"], ["sudo", "pytest"], ["xargs", "rm"], ["./x.py"], ["/usr/bin/python3", "x.py"],
    ["venv/bin/python", "x.py"], ["perl", "-e", "1"], ["node", "x.js"], ["curl", "http://127.0.0.1"], ["git", "push"], ["rm", "-rf", "."], ["cd", "src"],
    ["python"], ["python", "-"], ["python", "-c", "1"], ["python", "-c1"], ["python", "-Bc", "1"], ["python", "-uBc1"], ["python", "-i", "x.py"],
    ["python", "-ix.py"], ["python", "-m", "pip", "install", "x"], ["python", "-mpip", "install", "x"], ["python", "-Bm", "pip"], ["python", "-m", "venv", "x"],
    ["python", "-m", "http.server"], ["python", "-m", "timeit", "-n1", "-r1", "import os"], ["python", "/dev/stdin"], ["python", "-u", "//dev/./stdin"],
    ["python", "/dev/fd/0"], ["python", "/proc/self/fd/0"], ["python", "/dev/null"], ["python", "x.py", "/etc/passwd"], ["python", "x.py", "-f/etc/passwd"],
    ["python", "x.py", "~/x"], ["python", "x.py", "link.py"], ["python", "x.py", "/no-such-folder/../etc/passwd"], ["python", "-m", "pdb", "x.py"], ["python", "-m", "ensurepip"], ["python", "-m"], ["python", "-X", "dev"], ["python", "../x.py"],
    ["python", "/etc/x.py"], ["python", "~/x.py"], ["python", "x.py", "../../etc/passwd"], ["python", "x.py", "--out=/etc/x"], ["python", "-m", "pytest", "-p", "evil"],
    ["pytest", "-p", "evil"], ["pytest", "-pevil"], ["pytest", "-qpevil"], ["pytest", "-p=evil"], ["pytest", "-o", "addopts=-p evil"], ["pytest", "-oaddopts=x"],
    ["pytest", "--override-ini=x=y"], ["pytest", "--rootdir=/"], ["pytest", "--rootdir", ".."], ["pytest", "-c", "/etc/x.ini"], ["pytest", "-c../x.ini"],
    ["pytest", "-qc/etc/x.ini"], ["pytest", "--confcutdir=/"], ["pytest", "--basetemp=."], ["pytest", "--pdb"], ["pytest", "@arguments.txt"], ["pytest", "/tmp"],
    ["pytest", "../test_x.py::test_a"], ["pytest", "--junitxml=/tmp/x"], ["pytest", "--tx", "ssh=host"], ["pytest", "-f"], ["ruff"], ["ruff", "server"],
    ["ruff", "check", "/etc"], ["ruff", "check", "--config", "/etc/ruff.toml"], ["ruff", "check", "--config", "extend='/etc/x'"],
    ["ruff", "check", "--config=../x.toml"], ["ruff", "check", "--watch"], ["ruff", "check", "-w"], ["ruff", "format", ".."], ["pip", "install", "x"], ["pip3", "list"],
]  # fmt: skip
PIP_REFUSED = [
    ["pip"], ["pip", "list"], ["pip", "download", "x"], ["pip", "install", "."], ["pip", "install", "-e", "."], ["pip", "install", "./x"],
    ["pip", "install", "git+https://example.org/x"], ["pip", "install", "https://example.org/x.whl"], ["pip", "install", "x", "@", "https://example.org/x"],
    ["pip", "install", "-r", "requirements.txt"], ["pip", "install", "--index-url=http://example.org", "x"], ["pip", "install", "-i", "http://example.org", "x"],
    ["pip", "install", "--extra-index-url", "http://example.org", "x"], ["pip", "install", "--target=/usr", "x"], ["pip", "install", "--no-binary=:all:", "x"],
    ["pip", "install", "--only-binary=:none:", "x"], ["pip", "install", "x.tar.gz"], ["pip", "install", "x.zip"], ["pip", "install", "-f", "/etc", "x"],
    ["pip", "install", "--find-links=http://example.org", "x"], ["pip", "--python", "x", "install", "x"], ["pip", "install", "-qe", "."],
]  # fmt: skip


@each_row("text", SYNTAX)
def test_shell_syntax_is_refused_with_an_alternative(text):
    with pytest.raises(ToolError) as refused:
        read_command(text)
    assert refused.value.code == "shell_syntax"
    assert "[" in str(refused.value) or "list of arguments" in str(refused.value)


@each_row("argv", REFUSED, ids=" ".join)
def test_command_that_no_rule_allows_is_refused_with_a_reason(argv, tmp_path):
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    assert len(fault(argv, Rules(), tmp_path)) > 20


@each_row("argv", PIP_REFUSED, ids=" ".join)
def test_pip_only_installs_wheels_of_packages_by_name(argv, tmp_path):
    assert fault(argv, Rules(pip=True), tmp_path) != ""


#: Attacks whose end depends on the user: on rights, on limits for each user, on the processes that signals reach.
OF_A_USER = ("a script", "a daemon", "fills the disk", "memory", "processes and threads", "kills all it can", "in the place of what is protected")  # fmt: skip


@pytest.mark.parametrize(
    ("user", "names"),
    [
        pytest.param("root", tuple(ATTACKS), id="root"),
        pytest.param("user", OF_A_USER, id="user"),
        pytest.param("user", tuple(ATTACKS), id="user-all", marks=pytest.mark.full),
    ],
)
def test_attacks_are_contained_and_leave_nothing(user, names, figures):
    _needs_sandbox()
    environment = {"SECRET": "s3cret-in-the-environment"}
    said = json.loads(ordinary_user.run("attacked_commands.py", *names, is_root=user == "root", env=environment))
    assert said["faults"] == []
    figures("attacks by commands", user, tried=said["tried"])
    assert said["tried"] == len(names)


RUNS = """
import sys
from pathlib import Path
from machines.coding.tools.command_runner import run
try:
    run(("python", "waits.py", sys.argv[2]), root=Path(sys.argv[1]), is_unconfined=len(sys.argv) > 3)
except KeyboardInterrupt:
    print("interrupted")
"""
WAITS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("started", "w").close()
elif len(sys.argv) > 2:
    sys.exit(3)
time.sleep(600)
"""


@pytest.fixture
def marker():
    """A mark by which processes are found; those that a failed test has left are ended."""
    made = f"marker-{uuid.uuid4().hex}"
    yield made
    for pid in marked(made):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("arguments", [[], ["unconfined"]], ids=["confined", "unconfined"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_command_does_not_outlive_the_process_that_runs_it(number, arguments, marker, tmp_path):
    if not arguments:
        _needs_sandbox()
    (tmp_path / "waits.py").write_text(WAITS)
    os.mkfifo(tmp_path / "started")
    asking = subprocess.Popen(
        [sys.executable, "-c", RUNS, tmp_path, marker, *arguments], stdout=subprocess.PIPE, cwd=REPOSITORY, text=True
    )
    with asking:
        try:
            (tmp_path / "started").read_bytes()  # until it has started
            left = [os.pidfd_open(pid) for pid in marked(marker) if pid != asking.pid]
            asking.send_signal(number)
            said, _ = asking.communicate(timeout=30)
        finally:
            asking.kill()
    assert len(left) >= 3
    assert said == ("interrupted\n" if number == signal.SIGINT else "")
    _wait_for_the_end(left)
    assert marked(marker) == []


def _wait_for_the_end(processes):
    poll = select.poll()
    for each in processes:
        poll.register(each, select.POLLIN)
    deadline = time.monotonic() + 30
    while processes and time.monotonic() < deadline:
        for each, _ in poll.poll(30_000):
            poll.unregister(each)
            processes.remove(each)
            os.close(each)
    assert processes == []


def test_unconfined_commands_leave_no_process(marker, tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    ran = run(("python", "waits.py", marker, "ends"), root=tmp_path, is_unconfined=True)
    assert (ran.code, ran.end_reason, ran.rung, ran.features) == (3, "exited", "none", frozenset())
    assert marked(marker) == []
    ran = run(("python", "waits.py", marker), root=tmp_path, is_unconfined=True, timeout_s=0.5)
    assert (ran.code, ran.timed_out) == (None, True)
    assert marked(marker) == []


def _needs_sandbox():
    if why := probe_commands().fault:
        assert "promises" not in why
        pytest.skip(f"{NOT_TESTED} in the sandbox for commands: {why}")


def test_command_does_not_run_without_a_sandbox(tmp_path):
    """Bubblewrap is not found on an empty path. The answer is cached, so the test runs in another process."""
    (tmp_path / "x.py").write_text("open('made', 'w')")
    code = RUNS.replace(
        "except KeyboardInterrupt:\n    print", "except Exception as error:\n    print(error.code, error)\n    print"
    )
    (tmp_path / "waits.py").write_text("open('made', 'w')")
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path, "x"], env={"PATH": "/nonexistent"}, cwd=REPOSITORY, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert done.stdout.startswith("no_sandbox ")
    assert "apt install bubblewrap" in done.stdout
    assert not (tmp_path / "made").exists()
