"""Events for a run that another process holds: they go to its inbox, and their sender gets their outcome."""

import asyncio
import json
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from forked import DSA

from dsa import open_runs
from dsa.runtime.ledger import EventEntry
from dsa.semantics import Occurrence

PROGRAM = Path(sys.executable).with_name("dsa")
TALK = """# talk

## Events
| event    | from    |
| -------- | ------- |
| go       | outside |
| approved | outside |
| denied   | outside |
| heard    | listen  |

## States
| state   | kind    |
| ------- | ------- |
| idle    | initial |
| asking  |         |
| closing |         |
| granted | final   |

## Transitions
| source  | event    | effects | target  |
| ------- | -------- | ------- | ------- |
| idle    | go       | listen  | asking  |
| asking  | heard    |         | =       |
| asking  | approved |         | closing |
| closing | heard    |         | granted |
"""
#: The effect ends when its process reads a line; `deaf` blocks the event loop of the process until then.
BINDINGS = """
import asyncio, dsa

@dsa.answering("heard")
async def listen(action, context):
    print("listening", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, input)
    return [dsa.event_step("listen", "heard")]

@dsa.answering("heard")
async def deaf(action, context):
    print("listening", flush=True)
    input()
    return [dsa.event_step("listen", "heard")]

effects = {"listen": POLICY}
"""


@pytest.fixture
def held(tmp_path):
    """Start a run in another process, which holds it in the middle of an effect."""
    processes = []

    def begin(policy):
        (tmp_path / "talk.md").write_text(TALK, encoding="utf-8")
        (tmp_path / "bindings.py").write_text(BINDINGS.replace("POLICY", policy), encoding="utf-8")
        process = subprocess.Popen(
            [PROGRAM, "run", "talk.md", "--data", '"x"', "--json"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip
        processes.append(process)
        assert process.stdout.readline() == "listening\n"
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def send(tmp_path):
    def call(*words):
        return subprocess.run([*DSA, "send", *words], capture_output=True, text=True, cwd=tmp_path, check=False)

    return call


def test_posted_event_is_taken_by_holder(held, send, tmp_path):
    holder = held("listen")
    done = send("last", "approved", '"by ann"')
    assert (done.returncode, done.stdout, done.stderr) == (0, "approved was taken: the run is in closing\n", "")
    told = json.loads(holder.communicate("now\n", timeout=60)[0])
    assert (told["outcome"], told["refused"]) == ("granted", [])
    with open_runs(tmp_path / ".dsa") as runs:
        taken = [entry for entry in runs.entries(told["run"]) if isinstance(entry, EventEntry) and entry.key is None]
    assert [(entry.event, entry.at) for entry in taken] == [("go", None), ("approved", "1")]


def test_posted_event_is_refused_by_holder(held, send):
    held("listen")
    done = send("last", "denied")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "denied in asking was refused: invalid_state (no row for denied here); accepted there: approved, heard\n"
    )
    told = json.loads(send("last", "denied", "--json").stdout)
    assert (told["exit_code"], told["kind"], told["posted"]) == (1, "under way", None)
    assert [(each["event"], each["reason"]) for each in told["refused"]] == [("denied", "invalid_state")]


def test_event_that_holder_does_not_take_waits_in_inbox(held, send, tmp_path):
    holder = held("deaf")
    done = send("last", "approved", "--timeout", "500ms")
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith("approved is posted but not taken yet, because process ")
    told = json.loads(send("last", "approved", "--timeout", "0s", "--json").stdout)
    assert told["exit_code"] == 3
    with open_runs(tmp_path / ".dsa") as runs:
        assert runs.delivery(told["posted"]) is None
    ended = json.loads(holder.communicate("now\n", timeout=60)[0])
    assert (ended["run"], ended["state"]) == (told["run"], "closing")  # the first event was taken when its turn came
    with open_runs(tmp_path / ".dsa") as runs:
        assert runs.delivery(told["posted"]).reason == "late"


TWICE = """# twice

## Events
| event    | from    |
| -------- | ------- |
| go       | outside |
| approved | outside |

## States
| state  | kind    |
| ------ | ------- |
| idle   | initial |
| first  |         |
| second |         |
| done   | final   |

## Transitions
| source | event    | target |
| ------ | -------- | ------ |
| idle   | go       | first  |
| first  | approved | second |
| second | approved | done   |
"""
SENDER = """
import asyncio, sys, dsa

async def main():
    async with dsa.open_runs(".dsa") as runs:
        print("ready", flush=True)
        input()
        for run in sys.argv[1:]:
            became = await runs.send(run, "approved", at="1", patience_s=60)
            became = became.delivery if isinstance(became, dsa.Posted) else became
            print(getattr(became, "reason", "") or "taken", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.full)])
def test_one_of_two_simultaneous_answers_is_taken_and_the_other_is_late(tmp_path, count):
    (tmp_path / "twice.md").write_text(TWICE, encoding="utf-8")

    async def begun():
        async with open_runs(tmp_path / ".dsa") as runs:
            handles = [await runs.start(str(tmp_path / "twice.md"), "x") for _ in range(count)]
            for handle in handles:
                await handle.rest()
        return [handle.id for handle in handles]

    ids = asyncio.run(begun())
    senders = [
        subprocess.Popen(
            [sys.executable, "-c", SENDER, *ids], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [each.stdout.readline() for each in senders] == ["ready\n"] * 2
    for each in senders:
        each.stdin.write("\n")
        each.stdin.flush()
    said = [each.communicate(timeout=120)[0].splitlines() for each in senders]
    assert [sorted(pair) for pair in zip(*said, strict=True)] == [["late", "taken"]] * count
    with open_runs(tmp_path / ".dsa") as runs:
        assert {runs.get(run).run.configuration.state for run in ids} == {"second"}


HOLDER = """
import asyncio, sys, dsa

async def main():
    async with dsa.open_runs(".dsa") as runs:
        handles = [await runs.start("talk.md", "x", bindings="slow.py") for _ in range(int(sys.argv[1]))]
        print(*(handle.id for handle in handles), flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""
SLOW = """
import asyncio, pathlib, dsa

@dsa.answering("heard")
async def listen(action, context):
    while not pathlib.Path("over").exists():
        await asyncio.sleep(0.05)
    return [dsa.event_step("listen", "heard")]

effects = {"listen": listen}
"""


@pytest.mark.parametrize(("count", "times"), [(20, 2), pytest.param(25, 16, marks=pytest.mark.full)])
def test_holder_killed_while_messages_arrive_loses_none_and_takes_none_twice(tmp_path, count, times):
    """The holder is killed at any moment between the posting of a message and the commit that takes it; another process continues."""
    (tmp_path / "talk.md").write_text(TALK, encoding="utf-8")
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    chance, posted, taken_before = random.Random(count), {}, 0
    for _ in range(times):
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(count)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        ) as holder:
            ids = holder.stdout.readline().split()
            killer = threading.Timer(chance.uniform(0.005, 0.1), holder.kill)
            killer.start()
            with open_runs(tmp_path / ".dsa") as runs:
                posted |= {run: runs.post(run, Occurrence("approved"), "1") for run in ids}
            killer.join()
        with open_runs(tmp_path / ".dsa") as runs:
            taken_before += sum(runs.delivery(posted[run]) is not None for run in ids)
    (tmp_path / "over").touch()
    done = subprocess.run(
        [*DSA, "work", "--once", "--quiet"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    with open_runs(tmp_path / ".dsa") as runs:
        for run, message in posted.items():
            events = [entry.event for entry in runs.entries(run) if isinstance(entry, EventEntry)]
            assert (events.count("approved"), runs.get(run).run.outcome) == (1, "granted"), events
            assert runs.delivery(message).reason == ""
    assert times == 2 or 0 < taken_before < len(posted), (
        "the holder was killed before it took any, or after it took all"
    )
