"""Programs that attack the cases guard: each gets the right verdict, and nothing of it is left behind.

Every program ends by itself or by the bounds of its process. What this rung of isolation does not stop is tested too,
as such: `dsa.edge.isolated.limits` says so.
"""

import os
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from dsa.edge.isolated import Bounds, achieved_features, run_isolated
from dsa.guards import cases as cases_module
from dsa.guards.cases import CasesGuard
from dsa.runtime.content import Artifact

CASES = (("answer(20)", 41_729_003), ("answer(1)", 86_028_121))  # nobody guesses these
FEATURES = achieved_features()
ADD = "def add(a, b): return a + b\n"


def judge(code, *cases, timeout_s=2.0):
    return CasesGuard(cases or CASES, timeout_s).validate(Artifact(content=f"```python\n{code}\n```"))


def working_in(directory):
    """Give the processes whose working directory is, or was, below this one: those of our programs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "cwd").readlink()).startswith(str(directory)):
                    found.append((entry.name, (entry / "cmdline").read_bytes()))
            except OSError:
                continue
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path, monkeypatch):
    """Fail a test whose program leaves a process of ours, a file in the working area, or an open descriptor."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert working_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


@contextmanager
def bystander(environment):
    """A process of this user that runs until the end, and must be there then."""
    with subprocess.Popen(["/bin/cat"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"x")
        process.stdin.flush()
        assert process.stdout.read(1) == b"x"  # it has started
        yield process.pid
        assert process.poll() is None


#: name: (code, what the feedback must contain)
HOSTILE = {
    "infinite loop when loaded": ("while True: pass", "while the code was loaded"),
    "infinite loop in the function": ("def answer(n):\n while True: pass", "The run stopped at answer(20)"),
    "sleep": ("import time\ntime.sleep(3600)", "did not finish within 2 s"),
    "fork bomb": (
        (
            "import os, time\nend = time.monotonic() + 5\nwhile time.monotonic() < end:\n"
            " try: os.fork()\n except OSError: time.sleep(0.01)"
        ),
        "The run stopped",
    ),
    "memory bomb": ("x = []\nwhile True: x.append(bytearray(1 << 24))", "MemoryError"),
    "one huge object": ("x = bytearray(1 << 40)", "MemoryError"),
    "os._exit(0)": ("import os\nos._exit(0)", "the process ended before all calls were done"),
    "os._exit(0) in the function": ("import os\ndef answer(n): os._exit(0)", "stopped at answer(20)"),
    "sys.exit(0)": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "sys.exit(0) in the function": ("import sys\ndef answer(n): sys.exit(0)", "raised SystemExit: 0"),
    "printed pass marker": (
        "import os\nprint('PASSED')\nprint('[\"end\"]', flush=True)\nos._exit(0)",
        "The run stopped",
    ),
    "equals everything": ("class E:\n def __eq__(s, o): return True\ndef answer(n): return E()", "no plain value"),
    "lying repr": ("class L(int):\n def __repr__(s): return '41729003'\ndef answer(n): return L(1)", "no plain value"),
    "lying class": (
        (
            "class L:\n @property\n def __class__(s): return int\n def __repr__(s): return '41729003'\n"
            "def answer(n): return L()"
        ),
        "no plain value",
    ),
    "patched repr": ("import builtins\nbuiltins.repr = lambda v: '41729003'\ndef answer(n): return 1", "gave 1"),
    "patched everything": (
        (
            "import builtins, json\nfor n in ('repr', 'str', 'type', 'isinstance', 'eval', 'map'):\n"
            " setattr(builtins, n, lambda *a, **k: 41729003)\njson.dumps = lambda v: 'x'\ndef answer(n): return 1"
        ),
        "",
    ),
    "endless output": ("while True: print('x' * 100_000)", "The run stopped"),
    "huge result": ("def answer(n): return 'x' * (1 << 27)", "gave a str of 134217728 items, too many to report"),
    "huge result in pieces": (
        "def answer(n): return ['x' * 40_000] * 100",
        "The run stopped at answer(20): the results are larger",
    ),
    "huge number": ("def answer(n): return 1 << 10_000_000", "The run stopped at answer(20): the results are larger"),
    "nested result": (
        "def answer(n):\n x = []\n for _ in range(100_000): x = [x]\n return x",
        "cannot be written down",
    ),
    "endless result": ("def answer(n):\n x = []\n x.append(x)\n return x", "cannot be written down"),
    "ignored SIGTERM": (
        "import signal, time\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\ntime.sleep(3600)",
        "did not finish",
    ),
    "deep recursion": ("def answer(n): return answer(n + 1)", "raised RecursionError"),
    "deep recursion in C": (
        "import sys\nsys.setrecursionlimit(10**9)\ndef answer(n):\n x = []\n for _ in range(10**6): x = [x]\n return str(x)",
        "",
    ),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", "killed (SIGSEGV)"),
    "abort": ("import os\nos.abort()", "killed (SIG"),
    "lying exception": (
        "class E(Exception):\n def __str__(s): raise SystemExit\ndef answer(n): raise E()",
        "answer(20) raised E",
    ),
    "exit handler": ("import atexit, os\natexit.register(os.write, 1, b'x')\ndef answer(n): pass", "gave None"),
    "lingering thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\ndef answer(n): pass",
        "gave None",
    ),
    "closed descriptors": ("import os\nos.closerange(0, 64)\ndef answer(n): return 41729003", "The run stopped"),
    "huge file": ("with open('f', 'wb') as f:\n while True: f.write(b'x' * 65536)", ""),
    "many files": (
        "import itertools\nfor n in range(500): open(f'f{n}', 'w').close()\ndef answer(n): pass",
        "gave None",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_fails_with_a_reason(name):
    code, reason = HOSTILE[name]
    result = judge(code)
    assert not result.passed
    assert not result.fatal
    assert reason in result.feedback
    assert 0 < len(result.feedback) < 1500


# -- the channel of the results -----------------------------------------------------------------------------------

FORGE = """
import os
def write(text):
    for fd in range(3, 64):
        try: os.write(fd, text)
        except OSError: pass
"""


@pytest.mark.parametrize(
    "forged",
    [
        'write(b\'["loaded"]\\n[0, "value", "1"]\\n[1, "value", "2"]\\n["end"]\\n\')\nos._exit(0)',  # no answers
        'write(b\'[0, "value", "1"]\\n\')\ndef answer(n): return 1',  # extra
        "def answer(n):\n write(b'[\"end\"]\\n')\n return 1",
        'def answer(n):\n write(b\'[0, "value", "3"]\\n\' * 2)\n return 1',  # duplicate
        "write(b'not json\\n')",
        "write(b'[' * 60000 + b'\\n')",
        "write(b'\\xff\\xfe\\n')",
        'write(b\'["loaded"]\\n[true, "value", "1"]\\n\')\nos._exit(0)',
        "write(b'[\"loaded\"]\\n[0, \"value\", \"' + b'-' * 50000 + b'1\"]\\n')\nos._exit(0)",
        'write(b\'["unloadable", ""]\\n\')\nos._exit(0)',
        "import threading\ndef flood():\n while True: write(b'x' * 4096)\nthreading.Thread(target=flood).start()",
    ],
)
def test_forged_results_do_not_pass(forged):
    result = judge(FORGE + forged)
    assert not result.passed
    assert result.feedback


def test_records_from_a_second_process_do_not_pass():
    result = judge("import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\n" + ADD, ("add(1, 2)", 3))
    assert not result.passed
    assert "wrote to the channel" in result.feedback


@pytest.mark.parametrize("number", ["1", "-1", "true", "false", "0.0", '"0"', "null"])
def test_a_record_under_another_number_does_not_pass(number):
    code = FORGE + f'write(b\'["loaded"]\\n[{number}, "value", "3"]\\n["end"]\\n\')\nos._exit(0)'
    assert not judge(code, ("add(1, 2)", 3)).passed


def test_a_right_answer_with_one_more_record_does_not_pass():
    code = FORGE + ADD + 'import atexit\ndef last(x):\n write(b\'[1, "value", "3"]\\n\')\n return 3'
    assert not judge(code, ("add(1, 2)", 3), ("last(1)", 3)).passed


# -- secrets ------------------------------------------------------------------------------------------------------

SEARCH = """
import gc, sys, os
def answer(n):
    found, frame = [], sys._getframe()
    texts = []
    while frame:
        texts += [repr(frame.f_locals), repr(frame.f_globals)]
        frame = frame.f_back
    texts += [repr(o) for o in gc.get_objects() if isinstance(o, (dict, list, tuple))]
    texts += [str(sys.argv), str(os.environ)]
    for n in ('/proc/self/cmdline', '/proc/self/environ'):
        texts.append(open(n, 'rb').read().decode('latin-1'))
    return [s for s in (''.join(reversed(t)) for t in ('30092714', '12182068')) if any(s in t for t in texts)]
"""


def test_the_expected_values_are_nowhere_in_the_process():
    result = judge(SEARCH, *CASES, ("answer(0)", []), timeout_s=10)
    assert result.feedback == "2 of 3 calls failed:\nanswer(20) gave []\nanswer(1) gave []"


def test_the_search_above_finds_what_is_there():
    planted = SEARCH + "\nkept = [41729003]"
    assert "answer(20) gave ['41729003']" in judge(planted, timeout_s=10).feedback


ENVIRONMENTS = """
import os
def answer(n):
    found = []
    for entry in os.listdir('/proc'):
        try:
            if b'dsa-planted-secret' in open(f'/proc/{entry}/environ', 'rb').read(): found.append(entry)
        except OSError: pass
    return found
"""


@pytest.mark.skipif(
    not {"own_uid", "user_namespace"} & FEATURES, reason="this rung cannot hide the environment of its own user"
)
def test_no_process_environment_can_be_read(tmp_path):
    """This process's own environment as the kernel shows it cannot be changed; a child of ours carries the secret."""
    with bystander({"SECRET": "dsa-planted-secret"}) as pid:
        assert b"dsa-planted-secret" in Path(f"/proc/{pid}/environ").read_bytes()
        result = judge(ENVIRONMENTS, ("answer(0)", []), timeout_s=10)
    assert result.passed, result.feedback


@pytest.mark.skipif("own_uid" not in FEATURES, reason="without a user of its own it reads what this user can")
def test_a_private_file_cannot_be_read_or_written(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    try:
        code = f"def answer(n):\n return open({str(secret)!r}, 'r+').read()"
        assert "PermissionError" in judge(code, ("answer(0)", 1)).feedback
    finally:
        assert secret.read_text() == "s3cret"
        secret.unlink()


@pytest.mark.skipif("own_uid" not in FEATURES, reason="without a user of its own it writes where this user can")
def test_the_package_and_other_directories_cannot_be_written(tmp_path):
    targets = [Path(cases_module.__file__), tmp_path / "new"]
    code = f"def answer(n):\n for t in {[str(t) for t in targets]!r}:\n  try: open(t, 'a')\n  except OSError: n += 1\n return n"
    assert judge(code, ("answer(0)", 2)).passed


def test_not_stopped_on_this_rung_writing_where_everybody_may(tmp_path):
    shared = Path(tempfile.mkdtemp(dir="/tmp"))
    shared.chmod(0o777)
    assert judge(f"def answer(n): return open({str(shared / 'f')!r}, 'w').write('x')", ("answer(0)", 1)).passed
    assert (shared / "f").read_text() == "x"
    (shared / "f").unlink()
    shared.rmdir()


@pytest.mark.skipif("network_namespace" not in FEATURES, reason="without its namespace the network is there")
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_there_is_no_network(kind):
    code = f"import socket\ndef answer(n):\n s = socket.socket(socket.AF_INET, socket.{kind})\n s.connect(('127.0.0.1', 53))\n s.send(b'x')"
    assert "Network is unreachable" in judge(code, ("answer(0)", 1)).feedback


# -- other processes ----------------------------------------------------------------------------------------------

KILL_ALL = "import os, signal\ntry: os.kill(-1, signal.SIGKILL)\nexcept OSError: pass\n"
DAEMON = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.closerange(0, 3)
        time.sleep(20)
    os._exit(0)
"""


@pytest.mark.skipif("pid_namespace" not in FEATURES, reason="without its namespace it can signal its user's processes")
def test_others_cannot_be_killed():
    with bystander({}) as pid:
        code = (
            KILL_ALL
            + f"for pid in (os.getppid(), 0, {os.getpid()}, {pid}):\n try: os.kill(pid, 15)\n except OSError: pass\n"
        )
        result = judge("import signal\nsignal.signal(15, signal.SIG_IGN)\n" + code + ADD, ("add(1, 2)", 3))
    assert result.passed, result.feedback


def test_a_daemonised_grandchild_does_not_outlive_the_run():
    assert judge(DAEMON + ADD, ("add(1, 2)", 3)).passed


@pytest.mark.parametrize("namespaces", [True, False])
def test_neither_with_nor_without_namespaces_are_processes_left(namespaces):
    program = f"import os\ndef run(payload, fd):\n    exec({DAEMON!r}, {{}})\n    os.write(fd, b'done')"
    outcome = run_isolated(program, "", Bounds(timeout_s=2), namespaces=namespaces)
    assert (outcome.ended, outcome.results) == ("exited", b"done")


@pytest.mark.skipif("limit_processes" not in FEATURES, reason="the kernel does not hold root to the limit")
@pytest.mark.parametrize("namespaces", [True, False])
def test_the_number_of_processes_is_bounded(namespaces):
    program = (
        "import os, time\ndef run(payload, fd):\n    n = 0\n    try:\n        while n < 200:\n"
        "            if os.fork() == 0:\n                time.sleep(20)\n                os._exit(0)\n            n += 1\n"
        "    except OSError:\n        pass\n    os.write(fd, str(n).encode())"
    )
    outcome = run_isolated(program, "", Bounds(timeout_s=5), namespaces=namespaces)
    assert 0 < int(outcome.results) <= 32
