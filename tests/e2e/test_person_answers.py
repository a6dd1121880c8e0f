"""Answers of a person to an escalation, through `dsa send`, with the process killed in the middle of the effects that follow, and resumed.

A fatal verdict has escalated the first step of the shipped workflow. The process that receives the answer is killed while it
performs the effects of the answer; another one finishes the run. Generator and guard record their calls in a file that they sync themselves.
"""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from forked import DSA
from results import results_of
from stored_runs import recorded

from dsa.runs.place import open_artifacts
from dsa.runtime.ledger import ArtifactEntry, EventEntry, ResultEntry, RowEntry

PROGRAM = [sys.executable, "-c", "from dsa.cli.main import main; main()"]

#: Generates texts by step and attempt; a text with `awful` is fatal. A call that finds a file `hold` prints so and waits to be killed.
MINE = """
import os, threading
from pathlib import Path

from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult
from dsa.runtime.policy.policies import text_step


def calls_made(what):
    with open("called.txt", "a") as file:
        file.write(f"{what}\\n")
        file.flush()
        os.fsync(file.fileno())
    if Path("hold").exists():
        Path("held").touch()
        threading.Event().wait()


class Model(GeneratorInterface):
    def generate(self, context, template=None):
        used = ", ".join(f"{name}: {artifact.content}" for name, artifact in context.dependencies.items())
        said = " | ".join(feedback for _, feedback in context.feedback_history)
        calls_made(f"generate {context.step} with ({used}) after ({said})")
        first = context.step == "g_test" and not Path("asked").exists()
        Path("asked").touch()
        return Artifact("awful tests" if first else f"good {context.step}")


class Guard(GuardInterface):
    def validate(self, artifact, **dependencies):
        calls_made(f"judge {artifact.content}")
        fatal = "awful" in artifact.content
        return GuardResult(passed=not fatal, feedback="a person has to look" if fatal else "", fatal=fatal)


async def reply_failure(action, context):
    calls_made("reply_failure")
    return [text_step("reply_failure", "nothing came of it")]


generators = {"llm": Model()}
guards = dict.fromkeys(("g_test", "g_impl"), Guard())
effects = {"reply_failure": reply_failure}
"""


class World:
    """A folder with a run that waits for a person, and the program to continue it."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "mine.py").write_text(MINE)
        done = self.dsa("run", "workflow", "add", "--with", "mine.py", code=3)
        assert "waiting in escalated.g_test for: aborted, amended, approved, granted, rejected" in done
        self.before = self.calls_made

    def dsa(self, *arguments, code=0):
        done = subprocess.run(
            [*DSA, *arguments], cwd=self.folder, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    @property
    def calls_made(self):
        return (self.folder / "called.txt").read_text().splitlines()

    def killed_after(self, *arguments):
        """Send the answer of a person, and kill the process during the effects that follow."""
        (self.folder / "hold").touch()
        with subprocess.Popen([*PROGRAM, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL) as process:
            end = time.monotonic() + 60
            while not (self.folder / "held").exists() and time.monotonic() < end and process.poll() is None:
                time.sleep(0.01)
            assert (self.folder / "held").exists(), "it does what the answer asks for"
            process.send_signal(signal.SIGKILL)
            assert process.wait(60) == -signal.SIGKILL
        (self.folder / "hold").unlink()

    @property
    def entries(self):
        (run,) = (path.name for path in (self.folder / ".dsa").glob("*-workflow-*"))
        return recorded(self.folder / ".dsa", run).entries

    def content(self, artifact_id):
        (run,) = (path.name for path in (self.folder / ".dsa").glob("*-workflow-*"))
        return open_artifacts(self.folder / ".dsa", run).get_artifact(artifact_id).content


#: Each answer: the sent words, the calls repeated after the kill, the later calls, the outcome of the run, and the text accepted for the first step.
WRITTEN = "written by hand"
GOOD_IMPL = ["generate g_impl with (test: {tests}) after ()", "judge good g_impl"]
ANSWERS = {
    "approved": (("approved",), [], GOOD_IMPL, "succeeded", "awful tests"),
    "rejected": (
        ("rejected", "these test nothing"),
        ["generate g_test with () after (a person has to look | these test nothing)"],
        ["judge good g_test", *GOOD_IMPL],
        "succeeded",
        "good g_test",
    ),
    "amended": (
        ("amended", "--data", json.dumps({"content": WRITTEN})),
        [f"judge {WRITTEN}"],
        GOOD_IMPL,
        "succeeded",
        WRITTEN,
    ),
    "granted": (
        ("granted",),
        ["generate g_test with () after (a person has to look)"],
        ["judge good g_test", *GOOD_IMPL],
        "succeeded",
        "good g_test",
    ),
}


@pytest.mark.parametrize("event", ANSWERS)
def test_answer_survives_a_killed_process(tmp_path, event):
    sent, again, after, outcome, tests = ANSWERS[event]
    world = World(tmp_path)
    world.killed_after("send", "last", *sent)
    after = [line.format(tests=tests) for line in after]
    first = again or after[:1]
    assert world.calls_made == [*world.before, *first]
    assert [e.event for e in world.entries if isinstance(e, EventEntry)][-1] == event, "it is recorded, once"

    assert f"\n{outcome}\n" in f"\n{world.dsa('resume', 'last')}"
    assert world.calls_made == [*world.before, *first, *again, *after], (
        "what was under way is done again, and nothing else"
    )
    entries = world.entries
    events = [entry.event for entry in entries if isinstance(entry, EventEntry)]
    assert events.count(event) == 1
    keys = [entry.key for entry in entries if isinstance(entry, ResultEntry)]
    assert len(keys) == len(set(keys)), "each effect has one result"
    accepted = dict(pair for entry in entries if isinstance(entry, RowEntry) for pair in entry.accepted)
    assert world.content(accepted["g_test"]) == tests, "exactly what was approved is what is used"
    told = world.dsa("show", "last")
    assert event in told
    assert "was under way" in told
    assert f"finished: {outcome}" in told
    world.dsa("replay", "last")


def test_amended_artifact_has_the_person_as_author(tmp_path):
    world = World(tmp_path)
    world.killed_after("send", "last", "amended", "--data", json.dumps({"content": WRITTEN}))
    world.dsa("resume", "last")
    mine = [entry for entry in world.entries if isinstance(entry, ArtifactEntry) and entry.author == "person"]
    assert {world.content(entry.artifact_id) for entry in mine} == {WRITTEN}
    (first,) = (
        e for e in world.entries if isinstance(e, ArtifactEntry) and world.content(e.artifact_id) == "awful tests"
    )
    assert mine[0].parents == (first.artifact_id,), "it amends what was turned down"


def test_abort_survives_a_killed_process(tmp_path):
    world = World(tmp_path)
    world.killed_after("send", "last", "aborted")
    assert world.calls_made == [*world.before, "reply_failure"]
    assert "failed by aborted" in world.dsa("resume", "last", code=1)
    assert world.calls_made == [*world.before, *["reply_failure"] * 2], (
        "the table calls it no actuator, so the user is told again"
    )
    entries = world.entries
    assert [entry.event for entry in entries if isinstance(entry, EventEntry)].count("aborted") == 1
    assert len(results_of(entries, "reply_failure")) == 1
    assert "finished: failed" in world.dsa("show", "last")
    world.dsa("replay", "last")


def test_amendment_may_be_plain_text(tmp_path):
    world = World(tmp_path)
    assert "succeeded" in world.dsa("send", "last", "amended", WRITTEN)
    accepted = dict(pair for entry in world.entries if isinstance(entry, RowEntry) for pair in entry.accepted)
    assert world.content(accepted["g_test"]) == WRITTEN


def test_amendment_without_text_is_refused_and_changes_nothing(tmp_path):
    world = World(tmp_path)
    before = list(world.entries)
    for data in [(), ("",), ("--data", '{"content": 3}'), ("--data", "3"), ("--data", '{"text": "x"}')]:
        done = subprocess.run(
            [*DSA, "send", "last", "amended", *data], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )  # fmt: skip
        assert done.returncode == 2, data
        assert "'amended' cannot be taken: the data must be the new text" in done.stderr, data
        assert list(world.entries) == before, data
    assert "succeeded" in world.dsa("send", "last", "approved")


def test_person_is_shown_the_artifact_to_judge(tmp_path):
    done = World(tmp_path).dsa("resume", "last", code=3)
    (place,) = (line.split(maxsplit=2)[2] for line in done.splitlines() if line.startswith("to judge"))
    file, why = place.split(": ", 1)
    assert (tmp_path / file).read_text() == "awful tests"
    assert why == "a person has to look"
    assert "\nawful tests\n" in done


def test_excess_grant_changes_nothing(tmp_path):
    world = World(tmp_path)
    (tmp_path / "asked").unlink()
    world.dsa("send", "last", "granted", code=3)
    before = world.calls_made
    assert "waiting in escalated.g_test" in world.dsa("send", "last", "granted", code=3)
    assert world.calls_made == before, "no attempt is made"


def test_unknown_answer_is_refused_and_the_run_still_waits(tmp_path):
    world = World(tmp_path)
    done = subprocess.run(
        [*DSA, "send", "last", "aproved"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode not in {0, 3}
    assert "did you mean 'approved'?" in done.stderr
    assert os.linesep.join(world.calls_made) == os.linesep.join(world.before)
    assert "waiting in escalated.g_test" in world.dsa("show", "last") or "escalated.g_test" in world.dsa("runs")
