"""Runs of commands: where the program is found, what it can write and reach, and what the result says."""

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import attrs
import pytest
from conftest import NOT_TESTED
from each_row import each_row

from dsa.edge.sandbox.command_sandbox import (
    BOUNDS,
    KEPT_FROM,
    ShellCommand,
    StopSwitch,
    probe_commands,
    run_command,
    stop,
    visible_paths,
)
from dsa.edge.sandbox.host_proxy import serve_proxy
from dsa.errors import ToolError
from machines.coding.tools import command_runner
from machines.coding.tools.command_runner import python, run
from machines.coding.tools.program_rules import Rules

CODE = Rules(code=True)


@pytest.fixture
def workspace(tmp_path):
    if why := probe_commands().fault:
        assert "promises" not in why
        pytest.skip(f"{NOT_TESTED} in the sandbox for commands: {why}")
    return tmp_path


# -- running ----------------------------------------------------------------------------------------------------------


def test_script_imports_its_neighbours_and_writes_the_workspace(workspace):
    (workspace / "src").mkdir()
    (workspace / "src/main.py").write_text(
        "import near, os, sys\nopen('out.txt', 'w').write(near.x)\nprint(os.getcwd(), sys.argv[1:], sys.stdin.read(), file=sys.stderr)\nsys.exit(3)"
    )
    (workspace / "src/near.py").write_text("x = 'near'")
    ran = run(("python", "main.py", "a"), root=workspace, cwd="src", stdin="given")
    assert (ran.code, ran.signal, ran.end_reason, ran.timed_out, ran.omitted_count, ran.removed_paths) == (
        3,
        "",
        "exited",
        False,
        0,
        (),
    )
    assert ran.output == f"{workspace}/src ['a'] given\n"
    assert (ran.rung, ran.features) == ("bubblewrap", KEPT_FROM)
    written = workspace / "src/out.txt"
    assert (written.read_text(), written.stat().st_uid) == ("near", os.geteuid())
    assert sorted(each.name for each in (workspace / "src").iterdir()) == ["main.py", "near.py", "out.txt"]


def test_pytest_and_ruff_work_on_the_workspace(workspace):
    (workspace / "tests").mkdir()
    (workspace / "game.py").write_text("def best():\n    return 'rock'\n")
    (workspace / "tests/test_game.py").write_text(
        "from game import best\n\n\ndef test_best(tmp_path):\n    assert best() == 'paper'\n"
    )
    for argv in (("pytest", "-q"), ("python", "-m", "pytest", "-q")):
        ran = run(argv, root=workspace)
        assert (ran.code, "1 failed" in ran.output, "assert 'rock' == 'paper'" in ran.output) == (1, True, True), (
            ran.output
        )
    for argv in (("ruff", "check", "."), ("python", "-m", "ruff", "check", ".")):
        assert run(argv, root=workspace).code == 0
    assert sorted(each.name for each in workspace.rglob("*")) == ["game.py", "test_game.py", "tests"]


def test_modules_of_the_workspace_can_be_run(workspace):
    (workspace / "own").mkdir()
    (workspace / "own/__main__.py").write_text("import sys, near; print(near.x, sys.argv[1:])")
    (workspace / "near.py").write_text("x = 'near'")
    assert run(("python", "-m", "own", "a"), root=workspace).output == "near ['a']\n"
    assert run(("python", "-m", "coverage"), root=workspace, rules=Rules(modules=("coverage",))).output.startswith(
        "python: there is no module"
    )


def test_command_has_its_own_environment(workspace, monkeypatch):
    monkeypatch.setenv("API_KEY", "s3cret")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    (workspace / "x.py").write_text(
        "import json, os, sys\nprint(json.dumps([dict(os.environ), sys.flags.hash_randomization, os.listdir('/proc/self/fd')]))"
    )
    environment, randomised, files = json.loads(run(("python", "x.py"), root=workspace).output)
    assert files == ["0", "1", "2", "3"]  # the last one is open for listing them
    assert "s3cret" not in environment.values()
    assert environment["HOME"] == "/tmp"
    assert not {"API_KEY", "PYTHONHASHSEED"} & set(environment)
    assert randomised == 1


def test_result_says_what_ended_the_command(workspace):
    def ended(code, **more):
        ran = run(("python", "-c", code), root=workspace, rules=CODE, **more)
        return ran.code, ran.signal, ran.end_reason

    assert ended("import os; os.abort()") == (None, "SIGABRT", "exited")
    assert ended("import os; os.kill(os.getpid(), 40)") == (None, "signal 40", "exited")
    assert ended("import time; time.sleep(99)", timeout_s=0.3) == (None, "SIGTERM", "timeout")
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)"
    assert ended(deaf, timeout_s=0.5) == (None, "", "timeout")
    tidy = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); time.sleep(99)"
    assert ended(tidy, timeout_s=0.5) == (7, "", "timeout")


def test_command_can_be_stopped_from_another_thread(workspace):
    os.mkfifo(workspace / "started")

    def stops(stopped: StopSwitch):
        (workspace / "started").read_bytes()
        stopped.set()

    with stop() as stopped:
        thread = threading.Thread(target=stops, args=(stopped,))
        thread.start()
        code = "import time; open('started', 'w').close(); time.sleep(99)"
        ran = run(("python", "-c", code), root=workspace, rules=CODE, stop=stopped)
        assert (ran.end_reason, ran.code, ran.signal) == ("stopped", None, "SIGTERM")
        thread.join()
        assert (
            run(("python", "-c", "import time; time.sleep(99)"), root=workspace, rules=CODE, stop=stopped).end_reason
            == "stopped"
        )


def test_long_output_keeps_its_beginning_and_its_end(workspace):
    code = "import sys; print('first'); print('x' * 99_999); print('last', file=sys.stderr)"
    ran = run(("python", "-c", code), root=workspace, rules=CODE)
    assert ran.output.startswith("first\nxxx")
    assert ran.output.endswith("xxx\nlast\n")
    assert ran.omitted_count == 6 + 100_000 + 5 - 2 * command_runner.SHOWN_CHARS
    assert f"[.. {ran.omitted_count:,} characters are left out ..]" in ran.output


def test_huge_output_is_held_only_at_its_beginning_and_end(workspace):
    command = ShellCommand(
        ("/usr/bin/head", "-c", "5000000", "/dev/zero"), str(workspace), str(workspace), {}, visible_paths("/usr")
    )
    ended = run_command(command, attrs.evolve(BOUNDS, output_bytes=1_000))
    assert (len(ended.head), len(ended.tail), ended.bytes_between) == (1_000, 1_000, 4_998_000)


SMALL_DISK = attrs.evolve(BOUNDS, disk_bytes=40 << 20, memory_bytes=1 << 30)


def test_writes_of_other_processes_are_not_counted_against_a_command(workspace, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    def others():
        for number in range(70):
            (elsewhere / f"other{number}").write_bytes(b"x" * 1_000_000)

    code = "import time; open('mine', 'wb').write(b'x' * 20_000_000); time.sleep(3); print('done')"
    thread = threading.Timer(0.7, others)
    thread.start()
    ran = run(("python", "-c", code), root=workspace, rules=CODE, bounds=SMALL_DISK)
    thread.join()
    assert (ran.end_reason, ran.code, ran.output) == ("exited", 0, "done\n")


WRITING = {
    "files": "open(f'f{n}', 'wb').write(x)",
    "one file": "open('f', 'ab').write(x)",
    "old times": "open(f'f{n}', 'wb').write(x); os.utime(f'f{n}', (0, 0))",
    "unreadable folders": "os.mkdir(f'd{n}'); open(f'd{n}/f', 'wb').write(x); os.chmod(f'd{n}', 0o300)",
    "files without a name": "f = open('f', 'wb'); os.unlink('f'); f.write(x); f.flush(); kept.append(f)",
}  # fmt: skip


@pytest.mark.parametrize("way", WRITING)
def test_command_that_writes_too_much_is_stopped(workspace, way):
    code = (
        f"import os, time\nkept, x = [], b'x' * 1_000_000\nfor n in range(100):\n    {WRITING[way]}; time.sleep(0.02)\n"
    )
    ran = run(("python", "-c", code), root=workspace, rules=CODE, bounds=SMALL_DISK)
    assert (ran.end_reason, ran.code) == ("disk", None), ran.output


def test_command_is_stopped_when_disk_space_vanishes_without_a_trace(workspace):
    """The scan does not find mapped files without a name, so it cannot say who took the space."""
    code = """
import ctypes, os, time
map_of = ctypes.CDLL(None).mmap
for n in range(300):
    f = open("f", "w+b"); os.unlink("f"); f.write(b"x" * 1_000_000); f.flush()
    map_of(0, 1_000_000, 1, 1, f.fileno(), 0); f.close()
    time.sleep(0.02)
"""
    ran = run(("python", "-c", code), root=workspace, rules=CODE, bounds=SMALL_DISK)
    assert (ran.end_reason, ran.code) == ("disk", None), ran.output


@each_row(
    ("raw", "text"),
    [
        (b"\x1b[31mred\x1b[0m", "red"), (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"), (b"a\x1bPq\x1b\\b\x1b(Bc\x1b7d", "abcd"), (b"10%\r20%\r\nend", "10%\n20%\nend"),
        (b"a\x00\x08\x7fb\tc", "ab\tc"), ("\x9b31mé\x9d0;t\x9cx".encode(), "éx"), (b"\xff\xfea", "\ufffd\ufffda"), (b"\x1b]0;unclosed", ""), (b"x\x1b", "x"),
    ],
)  # fmt: skip
def test_terminal_codes_are_removed(raw, text):
    assert command_runner.shortened_output(raw, b"", 0, str) == (text, 0)


def test_secrets_are_removed_even_where_the_output_is_cut():
    secret = "k" * 500

    def redact(text):
        return text.replace(secret, "[secret]")

    for before in (command_runner.SHOWN_CHARS - 250, command_runner.SHOWN_CHARS - 10, 5):
        raw = b"a" * before + secret.encode() + b"b" * 900_000
        head, rest = raw[: 9 << 10], raw[9 << 10 :]
        text, _ = command_runner.shortened_output(head, rest[-(9 << 10) :], len(rest) - (9 << 10), redact)
        assert "kk" not in text
    raw = b"b" * 900_000 + secret.encode() + b"a" * (command_runner.SHOWN_CHARS - 250)
    assert "kk" not in command_runner.shortened_output(raw[: 9 << 10], raw[-(9 << 10) :], 1, redact)[0]
    assert "kk" not in command_runner.shortened_output(b"\x1b[1m".join((b"k" * 250, b"k" * 250)), b"", 0, redact)[0]


def test_protected_paths_cannot_be_written_or_created(workspace):
    (workspace / ".git").mkdir()
    (workspace / ".git/config").write_text("x")
    (workspace / "link").symlink_to("here.txt")
    (workspace / "here.txt").write_text("x")
    code = """
import os
for attempt in ("open('.git/config', 'w')", "open('here.txt', 'w')", "os.rename('.git', 'x')"):
    try: eval(attempt)
    except OSError: print('no')
os.unlink('link'); os.symlink('/etc/passwd', 'link'); os.mkdir('.dsa'); open('.dsa/x', 'w'); open('agent_ledger.log', 'w'); open('other', 'w')
"""
    ran = run(("python", "-c", code), root=workspace, rules=CODE, protected_patterns=("link", "not/there"))
    assert (ran.output, sorted(ran.removed_paths)) == ("no\n" * 3, [".dsa", "agent_ledger.log", "link"])
    assert sorted(each.name for each in workspace.iterdir()) == [".git", "here.txt", "link", "other"]
    assert str((workspace / "link").readlink()) == "here.txt"
    for name in ("../x", "~/x", "."):
        with pytest.raises(ValueError, match=r"is not a pattern|leads out of the workspace"):
            run(("python", "-c", "1"), root=workspace, rules=CODE, protected_patterns=(name,))


@pytest.mark.parametrize("cwd", ["..", "/", "missing", "link", "file", "a\0b"])
def test_folder_outside_the_workspace_or_missing_is_refused(cwd, workspace):
    (workspace / "link").symlink_to("/etc")
    (workspace / "file").write_text("")
    with pytest.raises(ToolError) as refused:
        run(("pytest",), root=workspace, cwd=cwd)
    assert refused.value.code == "bad_cwd"


def test_run_applies_the_rules_itself(workspace):
    with pytest.raises(ToolError) as refused:
        run(("python", "-c", "1"), root=workspace)
    assert refused.value.code == "refused"
    with pytest.raises(ToolError) as missing:
        run(("no-such-program",), root=workspace, rules=Rules(programs={"no-such-program": None}))
    assert missing.value.code == "no_program"


def test_virtual_environment_in_the_workspace_runs_but_cannot_be_changed(workspace):
    """The virtual environment of the running Python is visible in the workspace, but read-only."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", workspace / ".venv"], check=True)
    code = f"""
import sys
sys.path += {[*sys.path, str(Path(__file__).parents[4])]!r}
from pathlib import Path
from machines.coding.tools.program_rules import Rules
from machines.coding.tools.command_runner import run
ran = run(("python", "-c", "import sys; print(sys.prefix); open(sys.prefix + '/bin/made', 'w')"), root=Path({str(workspace)!r}), rules=Rules(code=True))
print(ran.output)
"""
    said = subprocess.run(
        [workspace / ".venv/bin/python", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert f"{workspace}/.venv\n" in said
    assert "Read-only file system" in said
    assert python() != str(workspace / ".venv/bin/python")


def test_pip_installs_a_wheel_into_the_workspace(workspace):
    (workspace / "wheels").mkdir()
    with zipfile.ZipFile(workspace / "wheels/tiny_x-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_x.py", "y = 'installed'")
        wheel.writestr("tiny_x-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny_x\nVersion: 1.0\n")
        wheel.writestr(
            "tiny_x-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("tiny_x-1.0.dist-info/RECORD", "")
    rules = Rules(pip=True, code=True)
    ran = run(("pip", "install", "-q", "--no-index", "--find-links", "wheels", "tiny_x"), root=workspace, rules=rules)
    assert ran.code == 0, ran.output
    assert run(("python", "-c", "import tiny_x; print(tiny_x.y)"), root=workspace, rules=rules).output == "installed\n"


# -- network ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def server():
    """A server that answers with the host name it was asked for."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = f"{self.path} {', '.join(self.headers.get_all('Host'))}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening.server_address[1]
        listening.shutdown()
        thread.join()


FETCH = """
import sys, urllib.request
for url in sys.argv[1:]:
    try: print(urllib.request.urlopen(url, timeout=5).read().decode())
    except urllib.error.HTTPError as error: print(error.code, error.read().decode().strip())
    except OSError as error: print('no', type(error).__name__)
"""


def test_only_named_hosts_can_be_reached(workspace, server):
    (workspace / "fetch.py").write_text(FETCH)
    urls = [
        f"http://localhost:{server}/a?b",
        f"http://127.0.0.1:{server}/",
        f"http://LOCALHOST.:{server}/c",
        "http://localhost:1/",
        "http://other:80/",
    ]
    ran = run(("python", "fetch.py", *urls), root=workspace, network=(f"localhost:{server}",))
    only = f"cannot be reached from here; allowed hosts: localhost:{server}"
    assert ran.output.splitlines() == [
        f"/a?b localhost:{server}", f"403 127.0.0.1:{server} {only}", f"/c localhost.:{server}", f"403 localhost:1 {only}", f"403 other:80 {only}",
    ]  # fmt: skip
    assert "no network" not in ran.features
    assert run(("python", "fetch.py", urls[0]), root=workspace).output == "no URLError\n"


def test_proxy_connects_only_to_named_hosts(server):
    def asked(request):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(path)
            one.sendall(f"{request}\r\n\r\n".encode())
            return b"".join(iter(lambda: one.recv(4_096), b""))

    def connected(target):
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(path)
            one.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: localhost:{server}\r\n\r\n".encode())
            said = one.recv(4_096)
            if b" 200 " in said:
                one.sendall(b"GET /x HTTP/1.0\r\nHost: y\r\n\r\n")
                while piece := one.recv(4_096):
                    said += piece
            return said

    with serve_proxy([f"localhost:{server}"]) as path:
        assert connected(f"localhost:{server}").endswith(b"/x y")
        for target in (
            f"127.0.0.1:{server}",
            f"2130706433:{server}",
            "localhost:80",
            f"localhost.evil.example:{server}",
            f"[::1]:{server}",
        ):
            assert connected(target).startswith(b"HTTP/1.1 403 "), target
        assert asked(f"GET http://localhost:{server}/z HTTP/1.0\r\nHost: other").endswith(
            f"/z localhost:{server}".encode()
        )
        for nonsense in ("localhost", "localhost:x"):
            assert connected(nonsense) == b""
    assert not Path(path).exists()


@each_row("host", ["", "*", "*.example.org", "a/b", "http://a", "a:0", "a:99999", "a:b", "u@a"])
def test_invalid_host_is_reported(host):
    with pytest.raises(ValueError, match="is not a host"), serve_proxy([host]):
        pass


def test_limits_are_those_of_the_call(workspace):
    small = attrs.evolve(BOUNDS, file_bytes=1_000, open_files=20)
    code = "import resource as r; print(r.getrlimit(r.RLIMIT_FSIZE), r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE))"
    assert (
        run(("python", "-c", code), root=workspace, rules=CODE, bounds=small).output == "(1000, 1000) (20, 20) (0, 0)\n"
    )
