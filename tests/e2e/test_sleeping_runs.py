"""Runs that sleep, with real processes: killed with -9, continued by workers, and shown."""

import asyncio
import json
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
from dsa.runtime.ledger import EventEntry, ResultEntry

PROGRAM = Path(sys.executable).with_name("dsa")
REMIND = """# remind

## Events
| event    | from     |
| -------- | -------- |
| asked    | outside  |
| approved | outside  |
| day_over | wait_day |
| too_late | wait_end |

## Effects
| effect   | is    | options         |
| -------- | ----- | --------------- |
| wait_day | sleep | for = {day}     |
| wait_end | sleep | for = {end}     |
| remind   |       |                 |

## States
| state    | kind    |
| -------- | ------- |
| idle     | initial |
| open     |         |
| accepted | final   |
| refused  | final   |

## Transitions
| source | event    | effects            | target   |
| ------ | -------- | ------------------ | -------- |
| idle   | asked    | wait_day, wait_end | open     |
| open   | day_over | remind             | =        |
| open   | too_late |                    | refused  |
| open   | approved |                    | accepted |
"""
BINDINGS = """

async def remind(action, context):
    with open("reminded.txt", "a") as file:
        file.write(context.key.partition("/")[0] + "\\n")
    return []

effects = {"remind": remind}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the agent into a folder, with these durations, and work there."""
    monkeypatch.chdir(tmp_path)
    Path("bindings.py").write_text(BINDINGS, encoding="utf-8")

    def written(day, end):
        Path("remind.md").write_text(REMIND.format(day=day, end=end), encoding="utf-8")

    return written


def typed(*words, code=0):
    done = subprocess.run([*DSA, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def begin():
    """Start a run that sleeps, and return its id."""
    run = json.loads(typed("run", "remind.md", "--json", code=3))["run"]
    assert json.loads(typed("send", run, "asked", "--wait", "0s", "--json", code=3))["kind"] == "waiting"
    return run


def times_of(run):
    """Return the events of a run, each with the milliseconds since it was asked."""
    with dsa.open_runs(".dsa") as runs:
        events = [entry for entry in runs.entries(run) if isinstance(entry, EventEntry)]
    return [(event.event, event.at_ms - events[0].at_ms) for event in events]


def until_due(run):
    with dsa.open_runs(".dsa") as runs:
        while runs.summary(run).at(runs.now_ms()).status != "due":
            time.sleep(0.02)


def test_sleeping_run_is_not_held_and_shows_its_end_time(write):
    write("24h", "3d")
    run = begin()
    (line,) = json.loads(typed("runs", "--json"))
    assert (line["kind"], line["holder"], line["how"]) == ("waiting", None, "waiting for: approved, day_over, too_late")
    shown = typed("show", run)
    (day,) = re.findall(r"^sleep +wait_day 1/1, until (\S+ \S+) UTC$", shown, re.MULTILINE)
    (end,) = re.findall(r"^sleep +wait_end 1/2, until (\S+ \S+) UTC$", shown, re.MULTILINE)
    assert day < end
    assert "to do" not in shown
    told = json.loads(typed("show", run, "--json"))
    assert told["due_ms"] == line["due_ms"]
    assert "every entry is the same when it is derived again" in typed("replay", run)
    assert typed("work", "--once") == ""
    assert "accepted" in typed("send", run, "approved")


def test_killed_process_does_not_restart_the_sleep(write):
    write("2s", "1h")
    run = begin()
    with dsa.open_runs(".dsa") as runs:
        due_ms = runs.summary(run).summary.due_ms
        with subprocess.Popen([PROGRAM, "resume", run, "--wait", "60s"], stdout=subprocess.DEVNULL) as process:
            while runs.summary(run).holder is None:
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert runs.summary(run).summary.due_ms == due_ms
    until_due(run)
    assert "waiting in open" in typed("work", "--once")
    _, (event, after_ms) = times_of(run)
    assert (event, after_ms >= 2000) == ("day_over", True)
    assert Path("reminded.txt").read_text(encoding="utf-8").splitlines() == [run]


def test_message_posted_before_the_end_of_a_sleep_comes_first(write):
    write("24h", "1s")
    in_time, too_late = begin(), begin()
    with dsa.open_runs(".dsa") as runs:
        runs.post(in_time, dsa.Occurrence("approved"), "1")
    until_due(too_late)
    with dsa.open_runs(".dsa") as runs:
        runs.post(too_late, dsa.Occurrence("approved"), "1")
    assert sorted(typed("work", "--once").splitlines()) == sorted([f"{in_time}  accepted", f"{too_late}  refused"])


def test_every_sleep_ends_once_even_if_a_worker_is_killed(write):
    write("100ms", "400ms")

    async def begun():
        async with dsa.open_runs(".dsa") as runs:
            for _ in range(30):
                run = await runs.start("remind.md", bindings="bindings.py")
                await runs.send(run.id, "asked")
                await run.let_go()

    asyncio.run(begun())
    workers = [subprocess.Popen([PROGRAM, "work"], stdout=subprocess.DEVNULL) for _ in range(3)]
    time.sleep(0.8)
    workers[0].kill()
    deadline_s = time.monotonic() + 60
    with dsa.open_runs(".dsa") as runs:
        while {each.summary.outcome for each in asyncio.run(runs.list())} != {"refused"}:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        for worker in workers:
            worker.terminate()
            worker.wait()
        for run in (each.run for each in asyncio.run(runs.list())):
            entries = runs.entries(run)
            assert [name for name, _ in times_of(run)] == ["asked", "day_over", "too_late"]
            results = Counter(entry.key for entry in entries if isinstance(entry, ResultEntry))
            assert (results["1/1"], results["1/2"]) == (1, 1)


def test_command_waits_for_a_sleep_that_is_due_soon(write):
    write("100ms", "300ms")
    told = typed("run", "remind.md", code=3)
    run = re.search(r"^run +(\S+)$", told, re.MULTILINE)[1].rpartition("/")[2]
    said = typed("send", run, "asked", "--wait", "60s")
    assert re.search(r"^waiting in open for: approved; day_over is due \S+ \S+ UTC$", said, re.MULTILINE)
    assert "refused" in said
