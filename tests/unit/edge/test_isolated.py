import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from dsa.edge.isolated import Bounds, achieved_features, limits, run_isolated

REPORT = "import os\ndef run(payload, fd):\n    os.write(fd, payload.encode())"


def program(body):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"import os, sys, json, time, signal, resource\ndef run(payload, fd):\n{lines}"


def reported(body, bounds=None, **options):
    outcome = run_isolated(program(body), "", bounds, **options)
    return json.loads(outcome.results)


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The directory in which the working directories are made."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_gives_what_was_reported_and_how_it_ended():
    outcome = run_isolated(REPORT, "héllo")
    assert (outcome.ended, outcome.code, outcome.results.decode()) == ("exited", 0, "héllo")


def test_prints_are_kept_apart_from_the_report():
    outcome = run_isolated(program("print('out', flush=True)\nos.write(2, b'err')\nos.write(fd, b'result')"), "")
    assert outcome.results == b"result"
    assert sorted(outcome.output.split()) == [b"err", b"out"]


def test_the_exit_status_and_the_signal_are_told():
    assert run_isolated(program("os._exit(7)"), "").code == 7
    outcome = run_isolated(program("import ctypes\nctypes.string_at(0)"), "")
    assert (outcome.ended, outcome.code) == ("signalled", 11)


def test_a_program_of_ours_that_fails_shows_its_traceback():
    outcome = run_isolated("def run(payload, fd):\n    1 / 0", "")
    assert outcome.code == 1
    assert b"ZeroDivisionError" in outcome.output


def test_sees_no_environment_no_input_no_site_packages_and_no_other_file(monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret")
    body = (
        "inherited = [int(n) for n in os.listdir('/proc/self/fd')]\n"
        "targets = {os.path.realpath(f'/proc/self/fd/{n}') for n in inherited if os.path.exists(f'/proc/self/fd/{n}')}\n"
        "files = [t for t in targets if os.path.isfile(t)]\n"
        "os.write(fd, json.dumps([dict(os.environ), sys.stdin.read(), 'site' in sys.modules, files]).encode())"
    )
    with tempfile.TemporaryFile() as held:
        os.set_inheritable(held.fileno(), True)  # noqa: FBT003  # its signature
        environment, read, site, files = reported(body)
    assert "SECRET" not in environment
    assert (read, site, files) == ("", False, [])


def test_works_in_a_directory_that_is_removed(scratch):
    assert reported("open('a', 'w').write('x')\nos.write(fd, json.dumps(os.listdir()).encode())") == ["a"]
    assert list(scratch.iterdir()) == []


def test_removes_directories_of_any_depth_and_mode(scratch):
    body = (
        "for n in range(1200):\n    os.mkdir('d')\n    open('f', 'w').close()\n    os.symlink('/', 's')\n    os.chdir('d')\n"
        "os.mkdir('closed')\nos.mkdir('closed/in')\nos.chmod('closed/in', 0)\nos.chmod('closed', 0)\n"
        "os.write(fd, b'true')"
    )
    assert reported(body) is True
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("bounds", "body", "ended"),
    [
        (Bounds(timeout_s=0.3), "time.sleep(60)", "timeout"),
        (Bounds(cpu_s=1), "while True: pass", "signalled"),
        (Bounds(), "while True: os.write(fd, b'x' * 4096)", "flooded"),
    ],
)
def test_stops_what_goes_on(bounds, body, ended):
    outcome = run_isolated(program(body), "", bounds)
    assert outcome.ended == ended
    assert len(outcome.results) <= bounds.result_bytes + 1


def test_output_is_read_to_its_end_but_not_kept():
    outcome = run_isolated(program("for _ in range(1000): os.write(1, b'x' * 10_000)\nos.write(fd, b'done')"), "")
    assert (outcome.results, len(outcome.output)) == (b"done", 64 * 1024)


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
    ],
)
def test_limits_hold(body, error):
    inner = "\n".join(f"    {line}" for line in body.splitlines())
    tried = f"try:\n{inner}\n    os.write(fd, b'\"no error\"')\nexcept Exception as e:\n    os.write(fd, json.dumps(type(e).__name__).encode())"
    assert reported(tried) == error


@pytest.mark.skipif("own_uid" not in achieved_features(), reason="only root can give the process a user of its own")
def test_as_root_the_process_has_a_user_of_its_own_and_still_its_library():
    body = "import decimal, xml.dom, json.tool\n'é'.encode('cp1252')\nos.write(fd, json.dumps(os.getresuid()).encode())"
    assert len(set(reported(body))) == 1
    assert reported(body)[0] > 0


@pytest.mark.skipif("pid_namespace" not in achieved_features(), reason="the kernel permits no namespaces")
def test_with_namespaces_it_is_alone_and_has_no_network():
    body = (
        "import socket\nerror = ''\n"
        "try: socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError as e: error = e.errno\n"
        "os.write(fd, json.dumps([os.getpid(), error]).encode())"
    )
    assert reported(body) == [1, 101]  # ENETUNREACH: not even a loopback


@pytest.mark.parametrize("namespaces", [True, False])
def test_nothing_is_left_behind(namespaces, scratch):
    body = (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "        time.sleep(600)\n    os._exit(0)\n"
        "os.write(fd, json.dumps(True).encode())"
    )
    assert reported(body, namespaces=namespaces) is True
    assert _working_in(scratch) == []


def test_a_watching_process_that_was_stopped_is_killed(scratch):
    body = "os.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(600)"
    outcome = run_isolated(program(body), "", Bounds(timeout_s=0.2), namespaces=False)
    assert (outcome.ended, outcome.features) == ("timeout", frozenset())
    give_up = time.monotonic() + 5
    while _working_in(scratch) and time.monotonic() < give_up:  # killed, perhaps not yet gone
        os.sched_yield()
    assert _working_in(scratch) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_what_root_can_have_is_achieved():
    command = ["unshare", "--fork", "--pid", "--net", "--ipc", "true"]
    permitted = shutil.which("unshare") and subprocess.run(command, check=False, capture_output=True).returncode == 0
    assert "own_uid" in achieved_features()
    assert ("pid_namespace" in achieved_features()) == bool(permitted)


def test_features_are_reported_as_achieved():
    assert {"limit_cpu", "limit_memory", "limit_file_size"} <= achieved_features()
    without = run_isolated(REPORT, "", namespaces=False).features
    assert not {"pid_namespace", "network_namespace", "user_namespace"} & without


def test_tells_what_cannot_be_stopped():
    best = limits({"pid_namespace", "network_namespace", "own_uid", "limit_processes"})
    assert len(limits()) > len(limits({"network_namespace"})) > len(best) > 0
    assert any("network" in sentence for sentence in limits())
    assert not any("network" in sentence for sentence in best)


def _working_in(directory):
    """Give the processes whose working directory is, or was, below this one: those of our programs."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "cwd").readlink()).startswith(str(directory)):
                    found.append(entry.name)
            except OSError:
                continue
    return found
