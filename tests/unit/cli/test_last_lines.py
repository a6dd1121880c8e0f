"""The lines that say how a run ended and what it waits for, on a machine with timers and failures."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stored_runs import dsa

from dsa import open_runs

PROGRAM = [sys.executable, "-u", "-c", "from dsa.cli.main import main; main()"]
SALE = """# sale

## Events
| event    | from    |
| -------- | ------- |
| go       | outside |
| approved | outside |
| denied   | outside |
| paid     | pay     |

## States
| state     | kind    |
| --------- | ------- |
| idle      | initial |
| asking    |         |
| paying    |         |
| succeeded | final   |
| failed    | final   |

## Transitions
| source | event        | effects | target    |
| ------ | ------------ | ------- | --------- |
| idle   | go           |         | asking    |
| asking | approved     | pay     | paying    |
| asking | denied       |         | failed    |
| asking | after {wait} |         | failed    |
| paying | paid         |         | succeeded |
| paying | pay.failed   |         | failed    |
"""
BINDINGS = """
async def pay(action, context):
    raise RuntimeError("the bank says no")

effects = {"pay": pay}
"""


@pytest.fixture
def sale(tmp_path, monkeypatch):
    """Return a function that writes the machine with a waiting time and starts a run."""
    monkeypatch.chdir(tmp_path)
    Path("bindings.py").write_text(BINDINGS, encoding="utf-8")

    def begun(wait):
        Path("sale.md").write_text(SALE.format(wait=wait), encoding="utf-8")
        done = dsa("run", "sale.md")
        assert done.output.splitlines()[0] == "waiting in idle for: go"

    return begun


def test_timer_that_ended_a_run_is_named(sale):
    sale("50ms")
    lines = dsa("send", "last", "go").output.splitlines()
    assert lines[0].startswith("waiting in asking for: approved, denied; after 50ms is due 20")
    assert lines[1] == "failed by after 50ms of asking (line 26)"


@pytest.fixture
def asking(sale):
    """A run that waits for a person and for a timer that is due much later; no process holds it."""
    sale("10m")
    done = dsa("send", "last", "go")
    assert done.exit_code == 3
    lines = done.output.splitlines()
    assert [line for line in lines if line.startswith("waiting")] == ["waiting in asking for: approved, denied"]
    assert [line for line in lines if re.fullmatch(r"due +\d{4}-.* UTC", line)], done.output
    assert re.fullmatch(r"next +dsa send \S+@1 EVENT \[DATA\]", lines[-1])


def test_run_that_waits_holds_no_process(asking):
    assert "waiting for: approved, denied, after 10m" in dsa("runs").output
    told = dsa("show", "last").output
    assert re.search(r"^send +dsa send \S+@1 EVENT \[DATA\]$", told, re.MULTILINE), told
    assert re.search(r"^timer +after 10m of asking, due ", told, re.MULTILINE), told


def test_wait_option_waits_until_the_timer_is_due(sale):
    sale("2s")
    assert dsa("send", "last", "go", "--wait", "1s").exit_code == 3
    assert dsa("resume", "last", "--wait", "3s").output.splitlines()[0] == "failed by after 2s of asking (line 26)"
    refused = dsa("resume", "last", "--wait", "soon")
    assert (refused.exit_code, "'soon' is not a duration; write 0s, 90s, 15m, 24h or 2d" in refused.stderr) == (2, True)


def test_interrupted_run_is_listed_as_interrupted(sale):
    sale("10m")
    with subprocess.Popen(
        [*PROGRAM, "send", "last", "go", "--wait", "1h"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().startswith("waiting in asking for: ")
        (folder,) = Path(".dsa").glob("*-sale-*")
        with open_runs(".dsa") as runs:  # the line is printed before the status is stored
            while process.poll() is None and runs.summary(folder.name).summary.status != "waiting":
                pass
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    for words in ([], ["--status", "interrupted"]):
        assert dsa("runs", *words).output.splitlines()[-1].split()[-1] == "interrupted"


def test_event_that_ended_a_run_is_named(asking):
    assert dsa("send", "last", "denied").output.splitlines()[0] == "failed by denied (line 25)"


def test_effect_that_ended_a_run_is_named_with_its_error(asking):
    first = dsa("send", "last", "approved").output.splitlines()[0]
    assert first == "failed by pay.failed (line 28): the bank says no"
