"""How a run ended, and for what it waits, in one line each: from the command line, over a machine with timers and failures."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from kept_runs import dsa

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
    """Write the machine with a waiting time; begin a run that waits for nothing yet."""
    monkeypatch.chdir(tmp_path)
    Path("bindings.py").write_text(BINDINGS, encoding="utf-8")

    def begun(wait):
        Path("sale.md").write_text(SALE.format(wait=wait), encoding="utf-8")
        done = dsa("run", "sale.md")
        assert done.output.splitlines()[0] == "waiting in idle for: go"

    return begun


def test_a_timer_that_ended_a_run_is_named(sale):
    sale("50ms")
    lines = dsa("send", "last", "go").output.splitlines()
    assert lines[0].startswith("waiting in asking for: approved, denied; after 50ms is due 20")
    assert lines[1] == "failed by after 50ms of asking (line 26)"


@pytest.fixture
def asking(sale):
    """A run that somebody left while it waited for a person."""
    sale("10m")
    with subprocess.Popen([*PROGRAM, "send", "last", "go"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("waiting in asking for: approved, denied; after 10m is due ")
        (folder,) = Path(".dsa").glob("*-sale-*")
        with open_runs(
            ".dsa"
        ) as runs:  # what is printed is durable; that nothing but the timer is left is written next
            while process.poll() is None and runs.summary(folder.name).summary.status != "waiting":
                pass
        process.kill()


def test_a_run_that_was_left_while_it_waited_says_for_what(asking):
    assert "cut off while it waited for: approved, denied, after 10m" in dsa("runs").output
    told = dsa("show", "last").output
    assert re.search(r"^send +dsa send \S+ EVENT \[DATA\]$", told, re.MULTILINE), told


def test_an_event_that_ended_a_run_is_named(asking):
    assert dsa("send", "last", "denied").output.splitlines()[0] == "failed by denied (line 25)"


def test_an_effect_that_ended_a_run_is_named_with_its_error(asking):
    first = dsa("send", "last", "approved").output.splitlines()[0]
    assert first == "failed by pay.failed (line 28): the bank says no"
