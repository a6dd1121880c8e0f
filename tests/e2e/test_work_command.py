"""`dsa work`: runs that were cut off, whose timers are due, or that have messages, with one worker or several."""

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from forked import DSA

import dsa
from dsa.edge.event_loop import MonotonicClock
from dsa.semantics import Occurrence
from machines.chat.chat_session import RESOURCES, ChatStart
from machines.tool_use.machine_session import begin_run

PROGRAM = Path(sys.executable).with_name("dsa")
REFUND = """# refund

## Events
| event    | from    |
| -------- | ------- |
| asked    | outside |
| approved | outside |
| paid     | pay     |

## Effects
| effect | kind     | in doubt |
| ------ | -------- | -------- |
| pay    | actuator | retry    |

## States
| state    | kind    |
| -------- | ------- |
| idle     | initial |
| asking   |         |
| paying   |         |
| refunded | final   |
| lapsed   | final   |

## Transitions
| source | event        | effects | target   |
| ------ | ------------ | ------- | -------- |
| idle   | asked        |         | asking   |
| asking | approved     | pay     | paying   |
| asking | after {wait} |         | lapsed   |
| paying | paid         |         | refunded |
"""
#: The environment variable DOING of its process selects what the effect does.
BINDINGS = """
import asyncio, os, dsa

@dsa.answering("paid")
async def pay(action, context):
    doing = os.environ.get("DOING", "")
    with open("paid.txt", "a") as file:
        file.write(context.key.partition("/")[0] + "\\n")
    if doing == "dies":
        os._exit(9)
    if doing == "waits":
        print("paying", flush=True)
        await asyncio.sleep(600)
    await asyncio.sleep(0.01)
    return [dsa.event_step("pay", "paid")]

effects = {"pay": pay}
"""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Write the agent into a folder; return a function that starts runs which wait for a person, and returns their ids."""
    monkeypatch.chdir(tmp_path)
    Path("bindings.py").write_text(BINDINGS, encoding="utf-8")

    def begin(count, wait="24h"):
        Path("refund.md").write_text(REFUND.format(wait=wait), encoding="utf-8")

        async def begun():
            async with dsa.open_runs(".dsa") as runs:
                handles = [
                    await runs.start("refund.md", {"about": str(n)}, bindings="bindings.py") for n in range(count)
                ]
                for handle in handles:
                    await handle.rest()
                    await handle.let_go()
            return [handle.id for handle in handles]

        return asyncio.run(begun())

    return begin


def post(*runs):
    """Post an approval to the inbox of each run."""
    with dsa.open_runs(".dsa") as opened:
        for run in runs:
            opened.post(run, Occurrence("approved"), "1")


def work(*words, doing=""):
    return subprocess.run(
        [*DSA, "work", *words], capture_output=True, text=True, check=False, env={**os.environ, "DOING": doing}
    )


def worker(*words, doing=""):
    return subprocess.Popen(
        [PROGRAM, "work", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DOING": doing},
    )


def status_counts():
    """Return the number of runs by outcome or status."""
    with dsa.open_runs(".dsa") as runs:
        found = asyncio.run(runs.list())
    return Counter(each.summary.outcome or each.status for each in found)


def until(state):
    """Wait until the runs have these outcomes or statuses."""
    deadline_s = time.monotonic() + 60
    while status_counts() != state:
        assert time.monotonic() < deadline_s, status_counts()
        time.sleep(0.02)


def test_worker_continues_due_runs_and_leaves_the_rest(desk):
    waiting, approved = desk(2)
    (overdue,) = desk(1, wait="1ms")
    post(approved)
    done = work("--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted([f"{approved}  refunded", f"{overdue}  lapsed"])
    assert status_counts() == {"refunded": 1, "lapsed": 1, "waiting": 1}
    assert work("--once").stdout == ""
    assert waiting not in Path("paid.txt").read_text(encoding="utf-8")


def test_answer_posted_in_time_comes_before_an_overdue_timer(desk):
    in_time, too_late = desk(2, wait="2s")
    post(in_time)
    with dsa.open_runs(".dsa") as runs:
        while runs.summary(too_late).at(runs.now_ms()).status != "due":
            time.sleep(0.02)
        answer = runs.post(too_late, Occurrence("approved"), "1")
    assert sorted(work("--once").stdout.splitlines()) == sorted([f"{in_time}  refunded", f"{too_late}  lapsed"])
    with dsa.open_runs(".dsa") as runs:
        assert runs.delivery(answer).reason == "finished"


def test_worker_prints_a_report_for_each_run(desk):
    (run,) = desk(1)
    post(run)
    (line,) = work("--once", "--json").stdout.splitlines()
    told = json.loads(line)
    assert (told["run"], told["kind"], told["outcome"], told["exit_code"]) == (run, "finished", "refunded", 0)


def test_worker_chooses_runs_by_machine(desk):
    (run,) = desk(1)
    post(run)
    assert work("--once", "--machine", "other").stdout == ""
    assert work("--once", "--machine", "refund", "--quiet").stdout == ""
    assert status_counts() == {"refunded": 1}


def test_worker_continues_cut_off_runs_but_not_interrupted_ones(desk):
    cut, stopped = desk(2)
    for run, sign in ((cut, signal.SIGKILL), (stopped, signal.SIGINT)):
        with subprocess.Popen(
            [PROGRAM, "send", run, "approved", "--quiet"], stdout=subprocess.PIPE, env={**os.environ, "DOING": "waits"}
        ) as process:
            assert process.stdout.readline() == b"paying\n"
            process.send_signal(sign)
    assert status_counts() == {"cut off": 1, "interrupted": 1}
    post(stopped)
    assert work("--once").stdout == f"{cut}  refunded\n"
    assert status_counts() == {"refunded": 1, "interrupted": 1}
    assert subprocess.run([*DSA, "resume", stopped, "--quiet"], capture_output=True, check=False).returncode == 0


def test_worker_releases_its_runs_on_sigterm(desk):
    (run,) = desk(1)
    with worker(doing="waits") as process:
        post(run)
        assert process.stdout.readline() == "paying\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 130
    assert status_counts() == {"cut off": 1}
    assert work("--once").stdout == f"{run}  refunded\n"


def test_run_that_kills_its_process_each_time_is_stopped(desk):
    (run,) = desk(1)
    post(run)
    for _ in range(4):
        assert work("--once", doing="dies").returncode == 9
    done = work("--once", doing="dies")
    assert (done.returncode, done.stderr) == (1, f"{run}  not taken up: stopped: resumed 3 times without a result\n")
    assert status_counts() == {"stopped": 1}
    assert work("--once").stdout == ""
    assert len(Path("paid.txt").read_text(encoding="utf-8").splitlines()) == 4
    assert subprocess.run([*DSA, "resume", run, "--quiet"], capture_output=True, check=False).returncode == 0


def test_worker_reads_modules_only_in_its_folders(desk, tmp_path):
    (run,) = desk(1)
    post(run)
    (tmp_path / "elsewhere").mkdir()
    refused = work("elsewhere", "--once")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert (
        refused.stderr
        == f"{run}  not taken up: {tmp_path / 'refund.md'} is outside the folders that this worker may read\n"
    )
    assert status_counts() == {"due": 1}
    assert work("elsewhere", ".", "--once").stdout == f"{run}  refunded\n"


def test_every_run_is_done_once_even_if_a_worker_is_killed(desk):
    runs, chance = desk(60), random.Random(7)
    post(*runs)
    with worker() as first:
        time.sleep(chance.uniform(0.4, 1.2))
        first.kill()
    with worker() as second, worker() as third:
        until({"refunded": 60})
        second.terminate()
        third.terminate()
    paid = Counter(Path("paid.txt").read_text(encoding="utf-8").split())
    assert set(paid) == set(runs)
    with dsa.open_runs(".dsa") as opened:
        for run in runs:
            results = [entry for entry in opened.entries(run) if type(entry).__name__ == "ResultEntry"]
            assert len(results) == 1
    assert sum(paid.values()) <= 60 + 16  # effects under way in the killed worker were repeated, as `in doubt` says


#: A worker whose clock is ahead by the milliseconds in its first argument.
WORKER = """
import asyncio, sys, dsa
from dsa.edge.event_loop import MonotonicClock

class Off(MonotonicClock):
    def wall_ms(self):
        return super().wall_ms() + int(sys.argv[1])

async def main():
    async with dsa.open_runs(".dsa", clock=Off()) as runs:
        print("ready", flush=True)
        async for _ in dsa.Worker(runs).take_up(once=False):
            pass

asyncio.run(main())
"""


def off_worker(ahead_ms):
    return subprocess.Popen([sys.executable, "-c", WORKER, str(ahead_ms)], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("count", "seed"), [(40, 0), *(pytest.param(200, seed, marks=pytest.mark.full) for seed in (1, 2, 3))]
)
def test_workers_with_clocks_a_minute_apart_do_every_run_once(desk, count, seed):
    """Half of the runs have a message, the others an overdue timer; one of three workers is killed at a random time."""
    approved, chance = desk(count // 2), random.Random(seed)
    desk(count - count // 2, wait="1s")
    post(*approved)
    workers = [off_worker(ahead_ms) for ahead_ms in (0, 60_000, -60_000)]
    try:
        for each in workers:
            assert each.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.5 + count / 100))
        workers[chance.randrange(3)].kill()
        until({"refunded": count // 2, "lapsed": count - count // 2})
    finally:
        for each in workers:
            each.kill()
            each.wait()
            each.stdout.close()
    with dsa.open_runs(".dsa") as opened:
        for run in [each.run for each in asyncio.run(opened.list())]:
            events = [entry.event for entry in opened.entries(run) if type(entry).__name__ == "EventEntry"]
            assert events in (["asked", "approved", "paid"], ["asked", "after 1s"]), run


def test_show_reports_what_only_the_store_knows(desk):
    (overdue,) = desk(1, wait="1s")
    (posted,) = desk(1)
    post(posted)
    (stopped,) = desk(1)
    with subprocess.Popen(
        [PROGRAM, "send", stopped, "approved", "--quiet"], stdout=subprocess.PIPE, env={**os.environ, "DOING": "waits"}
    ) as process:
        assert process.stdout.readline() == b"paying\n"
        process.send_signal(signal.SIGINT)
    time.sleep(1)
    for run, word, told in (
        (overdue, "due", "due: after 1s"),
        (posted, "due", "due: a message is in its inbox"),
        (stopped, "interrupted", "interrupted"),
    ):
        shown = subprocess.run([*DSA, "show", run], capture_output=True, text=True, check=False).stdout
        assert re.search(rf"^now +{told}", shown, re.MULTILINE), shown
        assert (
            json.loads(
                subprocess.run([*DSA, "show", run, "--json"], capture_output=True, text=True, check=False).stdout
            )["kind"]
            == word
        )


def test_durations_are_shown_as_written_and_respelling_keeps_the_timer(desk):
    (run,) = desk(1, wait="1440m")
    assert "after 1440m" in dsa_says("runs", code=0)
    respelled = Path("refund.md").read_text(encoding="utf-8").replace("1440m", "24h")
    Path("respelled.md").write_text(respelled, encoding="utf-8")
    Path("changed.md").write_text(respelled + "| paying | pay.failed   |         | lapsed   |\n", encoding="utf-8")
    assert "no changes; behaviour EQUAL" in dsa_says("diff", "refund.md", "respelled.md", code=0)
    dsa_says("replay", run, "--against", "changed.md", code=0)
    due_ms = json.loads(dsa_says("show", run, "--json", code=0))["due_ms"]
    dsa_says("resume", run, "--machine", "changed.md", "--wait", "0s", code=3)
    assert json.loads(dsa_says("show", run, "--json", code=0))["due_ms"] == due_ms, "it was not started again"
    assert "goes on under" in dsa_says("show", run, code=0)
    asyncio.run(taken_up_tomorrow())
    assert "asking -> lapsed" in dsa_says("show", run, code=0)
    dsa_says("replay", run, code=0)


class Tomorrow(MonotonicClock):
    def wall_ms(self):
        return super().wall_ms() + 25 * 3_600_000


async def taken_up_tomorrow():
    async with dsa.open_runs(".dsa", clock=Tomorrow()) as runs:
        assert [each.fault async for each in dsa.Worker(runs).take_up()] == [""]


def dsa_says(*words, code):
    done = subprocess.run([*DSA, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def data_processes(folder: Path) -> list[str]:
    """Return the ids of the child processes of this process that work below a folder."""
    children = " ".join(each.read_text() for each in Path("/proc/self/task").glob("*/children")).split()
    return [each for each in children if os.path.realpath(f"/proc/{each}/cwd").startswith(str(folder))]


@pytest.mark.limit(60)
def test_worker_closes_the_data_of_a_resting_conversation(tmp_path: Path):
    """A worker answers in many conversations, one after the other, so it must not keep their data open."""
    (tmp_path / "rents.csv").write_text("city,rent\nBern,20\nUri,10\n")
    call = '{"tool_calls": [{"name": "run_sql", "arguments": {"sql": "select max(rent) as r from rents"}}]}'
    (tmp_path / "script.md").write_text(f"```\n{call}\n```\n\n```\nIt is 20.\n```\n\n" * 2)
    start = ChatStart(f"scripted:{tmp_path / 'script.md'}", (tmp_path / "rents.csv",))
    processes = list[list[str]]()

    def look(_moment, _is_new):
        processes.append(data_processes(tmp_path))

    async def whole():
        async with dsa.open_runs(tmp_path / "runs") as runs:
            handle = begin_run(runs, "chat", start.options())
            await handle.drive(Occurrence("message", data={"text": "What is the highest rent?"}))
            RESOURCES.release_run(handle.config, handle.id)
            assert data_processes(tmp_path) == []
            runs.post(handle.id, Occurrence("message", data={"text": "And without Uri?"}))
            worker = runs.worker(on_moment=look)
            return [taken async for taken in worker.take_up(once=True)]

    (taken,) = asyncio.run(whole())
    assert (taken.fault, taken.rest.run.configuration.state) == ("", "resting.completed")
    assert any(processes)
    assert data_processes(tmp_path) == []
