"""A gallery: a server with a machine and a run of every kind, and a browser, for tests of every page.

`PAGES` has an address for each page and each of its states that a person may see: empty, with long texts, in doubt, with errors.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
from coding_typed import DONE, PLAN, block, calls
from payments import payment
from pipe_browser import CHROMIUM, Browser, browser
from web_server import LEAVE, Outline, WebServer, web_server

PEERS = Path(sys.prefix) / "peers"
AXE = Path(os.environ.get("AXE", PEERS / "node_modules" / "axe-core" / "axe.min.js"))
BROKEN = LEAVE.replace(
    "| asking | approved |             |           | granted |", "| asking | approved | asks > | | grant |"
)
CLAIMS = "# claims\n\nWhat `leave` must do.\n\nMachine: leave.md\n\n## Properties\n- always asks < days\n"
DIES = "import os, dsa\n\n@dsa.answering('paid')\nasync def pay(action, context):\n    os._exit(9)\n\neffects = {'pay': pay}\n"
SALES = "town,month,crates\n" + "".join(
    f"{town},{month},{number * month}\n"
    for number, town in enumerate(("Bergen", "Oslo", "Tromsø"), 3)
    for month in range(1, 7)
)
SUMS = "SELECT town, sum(crates) AS crates FROM sales GROUP BY town ORDER BY town"
PLOT = "df.plot.bar(x='town', y='crates')\nplt.savefig('crates.png')"
CHAT = (
    calls(("run_sql", {"sql": SUMS})),
    calls(("run_sql", {"sql": SUMS.lower()})),
    calls(("run_python", {"code": PLOT})),
    calls(("run_sql", {"sql": "SELECT price FROM sales"})),
    "Tromsø sold most: 105 crates in six months. There are no prices in these data.",
)
TESTS = {"cmd": ["python", "-m", "unittest", "--verbose"]}
CODE = (PLAN, calls(("write_file", {"path": "sizes.py", "content": "CRATE = 12\n"}), ("run_cmd", TESTS)), DONE)
REPLIES = ("def add(a, b): return a - b", "def add(a, b): return a + b")
#: The pages and their states: an address with the names of runs in braces, and the words to wait for.
PAGES = {
    "machines": ("/", "leave.md"),
    "machine": ("/machines/0", "1 of 2 properties is VIOLATED"),
    "machine that is broken": ("/machines/1", "not a machine"),
    "machine that is gone": ("/machines/4", "there is no such file"),
    "machine of the chat": ("/machines/5", "What was explored"),
    "spec": ("/machines/6", "leave.md:31"),
    "explorer": ("/machines/0/explore?do=asked&do=again", "The way here: 2 steps"),
    "explorer that cannot go on": ("/machines/0/explore?do=asked&do=asked", "asked"),
    "odds": ("/machines/2/odds?pass.g=0.4&vary=rmax", "probability of success"),
    "odds with a mistake": ("/machines/2/odds?pass.g=often", "is not a number"),
    "runs": ("/runs", "in doubt"),
    "runs, none chosen": ("/runs?status=damaged", "No run matches"),
    "run that waits": ("/runs/{leave}", "Send approved"),
    "run with long texts": ("/runs/{long}", "Long words"),
    "run in doubt": ("/runs/{pay}", "What happened?"),
    "run that has finished": ("/runs/{dual_state}", "finished"),
    "explorer of a run": ("/runs/{leave}/explore", "The way here"),
    "attempts": ("/runs/{dual_state}/attempts", "Changes from"),
    "no attempts": ("/runs/{leave}/attempts", "has generated nothing"),
    "conversation": ("/runs/{chat}", "Tromsø sold most"),
    "coding run": ("/runs/{coding}", "needs permission"),
    "changes of a coding run": ("/runs/{coding}/changes", "Changes of"),
    "start of a run": ("/runs/new?machine=0", "days"),
    "start of a run of a broken document": ("/runs/new?machine=1", "is currently not a machine"),
    "start of a conversation": ("/runs/begin/chat", "Your first message"),
    "start of work on code": ("/runs/begin/coding", "The folder to work in"),
    "no such page": ("/nowhere", "There is nothing at this address"),
    "no such run": ("/runs/nothing", "No such run"),
}


@attrs.frozen
class Gallery:
    """The server, its browser, and the runs by the names of their machines, `long` and `leave` among them."""

    server: WebServer
    tab: Browser
    folder: Path
    runs: dict[str, str]

    def visit(self, name: str) -> None:
        """Go to a page, and wait until its words are visible."""
        path, words = PAGES[name]
        self.tab.visit(self.server.base + path.format(**self.runs))
        self.tab.until_it_reads(words)

    def let_in(self) -> None:
        """Give the browser access."""
        self.server.client.get(self.server.address)
        self.tab.visit(Outline(self.server.client.post("/invitation").text).values("aria-label", "Address")[0])


def typed(folder: Path, *arguments: str, runs: str | None = ".dsa") -> subprocess.CompletedProcess[str]:
    """Run a command of `dsa` in a folder."""
    command = [sys.executable, "-m", "dsa", *arguments, *(() if runs is None else ("--runs", str(folder / runs)))]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def lived(folder: Path) -> None:
    """Make a run of each kind: one that is killed in the middle of an effect, one with two attempts, a conversation, and work on code that asks for permission."""
    for name, text in (("leave.md", LEAVE), ("broken.md", BROKEN), ("sales.csv", SALES), ("claims.md", CLAIMS)):
        (folder / name).write_text(text)
    for name, script in (("replies", REPLIES), ("chat", CHAT), ("code", CODE)):
        (folder / f"{name}.script.md").write_text("".join(map(block, script)))
    for name in ("work", "bank"):
        (folder / name).mkdir()
    (folder / "work" / "README.md").write_text("Sizes of crates.\n")
    (folder / "bank" / "pay.md").write_text(payment())
    (folder / "bank" / "bindings.py").write_text(DIES)
    lives = (
        ("run", "bank/pay.md", "--data", "20"),
        ("run", "dual_state", "--model", "scripted:replies.script.md"),
        ("chat", "sales.csv", "--model", "scripted:chat.script.md", "--ask", "Which town sold most? Show me."),
        ("code", "Say how large a crate is", "--model", "scripted:code.script.md", "-w", "work"),
    )
    done: list[subprocess.CompletedProcess[str]] = []
    threads = [threading.Thread(target=lambda life=life: done.append(typed(folder, *life))) for life in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.returncode for each in done) == [0, 0, 3, 9], [each.stdout + each.stderr for each in done]


@contextmanager
def gallery(folder: Path) -> Iterator[Gallery]:
    """Open the gallery in a folder. Skips the test without a browser."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    lived(folder)
    files = ("leave.md", "broken.md", "dual_state", "bank/pay.md", "gone.md", "chat", "claims.md")
    (folder / "gone.md").write_text(LEAVE)
    with web_server(folder, *files) as server, browser(folder / "profile") as tab:
        (folder / "gone.md").unlink()
        here = Gallery(server, tab, folder, {})
        here.let_in()
        long = server.start("Long words " + "without-a-place-to-break" * 30 + " and many others" * 40).rpartition("/")[
            2
        ]
        leave = server.start("Two days by the sea").rpartition("/")[2]
        addresses = [values.get("href") or "" for _, values in server.page("/runs").elements]
        runs = [each.rpartition("/")[2] for each in addresses if each.startswith("/runs/2")]
        here.runs.update({each.split("-")[1]: each for each in runs} | {"long": long, "leave": leave})
        yield here


def axe_faults(tab: Browser) -> list[str]:
    """Return the serious and critical faults that axe-core finds in the page, with their elements."""
    if not AXE.exists():
        pytest.skip("axe-core is not here: run tests/set_up_peers.py, or set AXE to its axe.min.js")
    tab.evaluate(AXE.read_text(encoding="utf-8") + "; 0")
    answer = tab.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then((all) => JSON.stringify(all.violations))"
    )
    return [
        f"{each['impact']}: {each['id']}: {node['target']}: {node['failureSummary']}"
        for each in json.loads(answer)
        for node in each["nodes"]
        if each["impact"] in {"serious", "critical"}
    ]
