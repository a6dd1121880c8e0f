import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsa.edge.sandbox import Bounds, SandboxError, SandboxProgram, best, close_all, run_confined, sandbox_runner

REPORT = SandboxProgram("import os\ndef run(payload, fd):\n    os.write(fd, payload.encode())")
WARM = pytest.mark.skipif(
    not {"own processes", "own user"} & best().features, reason="no process is kept warm on this rung"
)


def gone(process):
    """Wait until a process has ended."""
    give_up = time.monotonic() + 20
    while Path(f"/proc/{process}").exists() and "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]:
        assert time.monotonic() < give_up
        os.sched_yield()
    return True


@WARM
def test_calls_are_forked_from_one_process():
    run_confined(REPORT, "a")
    with sandbox_runner.zygote(best().name) as first:
        pass
    run_confined(REPORT, "b")
    with sandbox_runner.zygote(best().name) as second:
        assert first is second


def test_threads_get_their_own_results():
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda n: run_confined(REPORT, f"{n}").results, range(60)))
    assert found == [str(n).encode() for n in range(60)]


@WARM
def test_killed_process_is_started_again():
    run_confined(REPORT, "a")
    with sandbox_runner.zygote(best().name) as found:
        os.killpg(found.process.pid, signal.SIGKILL)
        found.process.wait()
    assert run_confined(REPORT, "b").results == b"b"


def test_new_process_is_started_after_closing_all():
    close_all()
    assert run_confined(REPORT, "a").results == b"a"


@WARM
def test_prepared_state_is_present_and_fresh_in_each_call():
    text = (
        "import sys, os\ndef run(payload, fd):\n    sys.prepared.append(payload)\n"
        "    os.write(fd, f\"{sys.prepared} {'kept' in globals()}\".encode())"
    )
    prepared = SandboxProgram(text, prepare="import sys\nkept = sys.prepared = ['once']")
    found = [run_confined(prepared, each).results for each in "ab"]
    assert found == [b"['once', 'a'] False", b"['once', 'b'] False"]
    with pytest.raises(SandboxError, match="division by zero"):
        run_confined(SandboxProgram(text, prepare="1 / 0"), "a")
    with pytest.raises(SyntaxError):
        SandboxProgram(text, prepare="1 /")


def test_hashes_are_equal_in_every_process_with_the_same_seed():
    text = "import os\ndef run(payload, fd):\n    os.write(fd, str(hash('a')).encode())"
    found = []
    for seed in (0, 0, 1, None):
        close_all()
        found.append(run_confined(SandboxProgram(text, hash_seed=seed), "").results)
    assert found[0] == found[1]
    assert len(set(found)) == 3
    with pytest.raises(ValueError, match="hash_seed = -1 is not a valid seed"):
        SandboxProgram(text, hash_seed=-1)


def test_preloaded_modules_are_fresh_in_each_call():
    counts = SandboxProgram(
        "import sys, os\ndef run(payload, fd):\n    had = 'colorsys' in sys.modules\n    import colorsys\n"
        "    colorsys.n = getattr(colorsys, 'n', 0) + 1\n    os.write(fd, f'{had} {colorsys.n}'.encode())",
        ("colorsys",),
    )
    assert {run_confined(counts, "").results for _ in range(3)} <= {b"True 1", b"False 1"}


@WARM
def test_fork_of_this_process_gets_its_own_warm_process():
    run_confined(REPORT, "a")
    good = False
    with sandbox_runner.zygote(best().name) as ours:
        pass
    child = os.fork()
    if child == 0:
        try:
            good = run_confined(REPORT, "child").results == b"child"
            with sandbox_runner.zygote(best().name) as other:
                good = good and other.process.pid != ours.process.pid
            close_all()
        finally:
            os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert run_confined(REPORT, "b").results == b"b"


@WARM
def test_fork_of_this_process_does_not_keep_the_warm_process_alive():
    run_confined(REPORT, "a")
    with sandbox_runner.zygote(best().name) as ours:
        pass
    waits, ends = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ends)
        os.read(waits, 1)
        os._exit(0)
    close_all()
    os.close(ends)
    os.close(waits)
    os.waitpid(child, 0)
    assert ours.process.returncode == 0  # it saw the end, and was not killed


@pytest.mark.parametrize(
    "ends", ["os.kill(os.getpid(), 9)", "threading.Thread(target=call).start(); time.sleep(1); os._exit(1)", "pass"]
)
def test_sandbox_processes_do_not_outlive_the_caller(ends):
    code = (
        "import os, threading, time\nfrom dsa.edge.sandbox import *\nfrom dsa.edge.sandbox import sandbox_runner\n"
        "def call(): run_confined(SandboxProgram('import time\\ndef run(p, f): time.sleep(600)'), '', Bounds(timeout_s=600))\n"
        "run_confined(SandboxProgram('def run(p, f): pass'), '')\n"
        "print(*(found.process.pid for found in sandbox_runner._warm.values()), flush=True)\n" + ends
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    assert all(gone(process) for process in done.stdout.split())


@WARM
@pytest.mark.parametrize(
    ("body", "timeout_s", "ended"),
    [("while True: time.sleep(1)", 1, "timeout"), ("while True: os.write(fd, b'x' * 4096)", 60, "flooded")],
)
def test_call_that_is_cut_off_does_not_disturb_the_others(body, timeout_s, ended):
    slow = SandboxProgram("import os, time\ndef run(payload, fd):\n    time.sleep(0.5)\n    os.write(fd, b'slow')")
    hang = SandboxProgram(f"import os, time\ndef run(payload, fd):\n    {body}")
    run_confined(REPORT, "")
    with sandbox_runner.zygote(best().name) as before, ThreadPoolExecutor(2) as threads:
        first = threads.submit(run_confined, slow, "")
        outcome = run_confined(hang, "", Bounds(timeout_s=timeout_s, cpu_s=timeout_s))
        assert (outcome.end, outcome.cpu_s < 30) == (ended, True)
        assert first.result().results == b"slow"
        assert before.is_there()
