import json
import os
import tempfile
from pathlib import Path

import pytest
from conftest import NOT_TESTED

from dsa.edge.sandbox import RUNGS, Bounds, Confinement, SandboxError, SandboxProgram, choose_rung, probe, run_confined

REPORT = SandboxProgram("import os\ndef run(payload, fd):\n    os.write(fd, payload.encode())")


def program(body):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return SandboxProgram(f"import os, sys, json, time, signal, resource, errno\ndef run(payload, fd):\n{lines}")


@pytest.fixture(params=RUNGS)
def rung(request):
    """Return each rung that this machine has."""
    if probe(request.param).fault:
        pytest.skip(f"{NOT_TESTED} on the sandbox's rung '{request.param}': {probe(request.param).fault}")
    return Confinement(rung=request.param)


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The directory in which the working directories are made."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def reported(body, bounds=None, confinement=None):
    outcome = run_confined(program(body), "", bounds, confinement)
    assert outcome.results, outcome
    return json.loads(outcome.results)


def test_outcome_has_the_results_the_end_and_the_confinement(rung):
    outcome = run_confined(REPORT, "héllo \ud800 ok".replace("\ud800", ""), None, rung)
    assert (outcome.end, outcome.code, outcome.results.decode()) == ("exited", 0, "héllo  ok")
    assert outcome.rung == rung.rung
    assert outcome.features == probe(rung.rung).features


def test_prints_are_separate_from_the_results(rung):
    body = "print('out', flush=True)\nos.write(2, b'err')\nos.write(fd, b'result')"
    outcome = run_confined(program(body), "", None, rung)
    assert outcome.results == b"result"
    assert sorted(outcome.output.split()) == [b"err", b"out"]


def test_exit_status_and_signal_are_reported(rung):
    assert run_confined(program("os._exit(7)"), "", None, rung).code == 7
    outcome = run_confined(program("import ctypes\nctypes.string_at(0)"), "", None, rung)
    assert (outcome.end, outcome.code) == ("signalled", 11)


def test_failing_program_shows_its_traceback(rung):
    outcome = run_confined(SandboxProgram("def run(payload, fd):\n    1 / 0"), "", None, rung)
    assert outcome.code == 1
    assert b"ZeroDivisionError" in outcome.output


def test_program_sees_no_environment_input_site_packages_or_open_files(rung, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret")
    body = (
        "opened = []\nfor n in range(3, 256):\n"
        "    try: opened += [n] if n != fd and not os.path.isdir(f'/proc/self/fd/{n}') and os.fstat(n) else []\n"
        "    except OSError: pass\n"
        "ours = [name for name in sys.modules if name.startswith('dsa')]\n"
        "os.write(fd, json.dumps([dict(os.environ), sys.stdin.read(), 'site' in sys.modules, opened, ours]).encode())"
    )
    with tempfile.TemporaryFile() as held:
        os.set_inheritable(held.fileno(), True)  # noqa: FBT003  # its signature
        environment, read, site, opened, ours = reported(body, None, rung)
    assert (environment, read, site, opened, ours) == ({}, "", False, [], [])


def test_working_directory_is_empty_and_removed_afterwards(rung, scratch):
    for _ in range(2):
        found = reported("open('a', 'w').write('x')\nos.write(fd, json.dumps(os.listdir()).encode())", None, rung)
        assert found == ["a"]
    assert list(scratch.iterdir()) == []


def test_directories_of_any_depth_and_mode_are_removed(rung, scratch):
    body = (
        "for n in range(1200):\n    os.mkdir('d')\n    open('f', 'w').close()\n    os.symlink('/', 's')\n    os.chdir('d')\n"
        "os.mkdir('closed')\nos.mkdir('closed/in')\nos.chmod('closed/in', 0)\nos.chmod('closed', 0)\n"
        "os.write(fd, b'true')"
    )
    assert reported(body, Bounds(disk_files=10_000), rung) is True
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("bounds", "body", "ended"),
    [
        (Bounds(timeout_s=0.3), "time.sleep(60)", "timeout"),
        (Bounds(cpu_s=1), "while True: pass", "signalled"),
        (Bounds(), "while True: os.write(fd, b'x' * 4096)", "flooded"),
    ],
)
def test_endless_program_is_stopped(rung, bounds, body, ended):
    outcome = run_confined(program(body), "", bounds, rung)
    assert outcome.end == ended
    assert len(outcome.results) <= bounds.result_bytes + 1


def test_output_is_read_to_its_end_but_only_both_ends_are_stored(rung):
    body = "for _ in range(1000): os.write(1, b'x' * 10_000)\nos.write(1, b'end')\nos.write(fd, b'done')"
    outcome = run_confined(program(body), "", None, rung)
    assert (outcome.results, len(outcome.output), len(outcome.tail)) == (b"done", 64 * 1024, 64 * 1024)
    assert outcome.tail.endswith(b"xxend")


def test_output_that_fits_is_complete(rung):
    bounds = Bounds(output_bytes=10)
    parts = [
        run_confined(program(f"os.write(1, b'{text}')"), "", bounds, rung) for text in ("0123456789", "0123456789ab")
    ]
    assert [(part.output, part.tail) for part in parts] == [(b"0123456789", b""), (b"0123456789", b"ab")]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("bytearray(1 << 30)", "MemoryError"),
        (
            "f = open('big', 'wb')\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nf.write(b'x' * (2 << 20))\nf.flush()",
            "OSError",
        ),
        ("kept = [os.dup(fd) for _ in range(100)]", "OSError"),
        ("resource.setrlimit(resource.RLIMIT_AS, (-1, -1))", "ValueError"),
        ("for _ in range(200):\n    if os.fork() == 0: signal.pause()", "BlockingIOError"),
    ],
)
def test_limits_hold(rung, body, error):
    inner = "\n".join(f"    {line}" for line in body.splitlines())
    tried = f"try:\n{inner}\n    os.write(fd, b'\"no error\"')\nexcept Exception as e:\n    os.write(fd, json.dumps(type(e).__name__).encode())"
    assert reported(tried, None, rung) == error


def test_bounded_disk_refuses_more_than_its_size(rung):
    if "bounded disk" not in probe(rung.rung).features:
        pytest.skip("this rung has no disk of its own")
    body = (
        "total = 0\ntry:\n    for n in range(99): total += open(f'f{n}', 'wb', 0).write(b'x' * 100_000)\n"
        "except OSError as e: os.write(fd, json.dumps([errno.errorcode[e.errno], total]).encode())"
    )
    error, total = reported(body, Bounds(disk_bytes=1 << 20), rung)
    assert error == "ENOSPC"
    assert 900_000 < total <= 1 << 20


def test_library_is_available_and_cannot_be_written(rung):
    body = (
        "import decimal, xml.dom, tabnanny\n'é'.encode('cp1252')\nopened = []\n"
        "for path in (os.__file__, '/dev/sda', '/tmp/../etc/shadow'):\n    try: opened.append(open(path, 'r+b'))\n    except OSError: pass\n"
        "os.write(fd, json.dumps([len(opened), os.getresuid()]).encode())"
    )
    if os.geteuid() != 0 and rung.rung == "limits":
        pytest.skip("this user may own the library")
    opened, users = reported(body, None, rung)
    assert (opened, len(set(users))) == (0, 1)
    assert users[0] > 0


def test_changes_of_one_call_are_invisible_to_the_next(rung):
    changed = "import builtins, math\nbuiltins.left = math.left = 1\nsys.modules['left'] = sys\nos.write(fd, b'true')"
    look = "import math\nos.write(fd, json.dumps([hasattr(math, 'left'), 'left' in globals()['__builtins__'], 'left' in sys.modules]).encode())"
    assert reported(changed, None, rung) is True
    assert reported(look, None, rung) == [False, False, False]


def test_daemon_does_not_outlive_the_call(rung):
    body = (
        "there, here = os.pipe()\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "        os.close(there)\n        time.sleep(600)\n    os._exit(0)\n"
        "os.write(fd, json.dumps(os.stat('/proc/self/ns/pid').st_ino if os.path.exists('/proc/self') else 0).encode())"
    )
    before = _tasks()
    reported(body, None, rung)
    assert [task for task in _tasks() - before if "sleep" in task] == []


def _tasks():
    found = set()
    for each in Path("/proc").glob("[0-9]*/comm"):
        try:
            found.add(f"{each.parent.name} {each.read_text()}")
        except OSError:
            continue
    return found


def test_stopped_watcher_is_killed_with_the_call(scratch):
    body = "os.kill(os.getppid(), signal.SIGSTOP)\nos.write(fd, json.dumps([os.getpid(), os.getppid()]).encode())\ntime.sleep(600)"
    outcome = run_confined(program(body), "", Bounds(timeout_s=0.2), Confinement(rung="limits"))
    assert outcome.end == "timeout"
    for process in json.loads(outcome.results):
        while _state(process) not in "ZX":  # killed, perhaps not yet gone
            os.sched_yield()
    assert run_confined(REPORT, "again", None, Confinement(rung="limits")).results == b"again"


def _state(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def test_missing_features_are_refused_before_anything_is_started(rung):
    have = probe(rung.rung).features
    assert run_confined(REPORT, "x", None, Confinement(have, rung.rung)).results == b"x"
    for lacking in {"own file tree", "no network", "own processes"} - have:
        with pytest.raises(SandboxError, match=f"'{rung.rung}' lacks required features: {lacking}") as refused:
            choose_rung(Confinement({lacking}, rung.rung))
        assert refused.value.missing == (lacking,)


def test_invalid_python_is_refused_at_construction():
    with pytest.raises(SyntaxError):
        SandboxProgram("def run(")
