"""A generator that is a whole machine: its runs have their own ledgers, and a crash in one of them loses and repeats nothing."""

import json
import os
import re
import signal
import subprocess

import pytest
from forked import DSA
from stored_runs import recorded

from dsa.runs.place import PART_OF, open_artifacts
from dsa.runtime.ledger import ArtifactEntry, MachineEntry, ResultEntry

OUTER = """# tale

## Generators
| generator | is      | options                      |
| --------- | ------- | ---------------------------- |
| writer    | machine | file = work/inner.md OPTIONS |

## Guards
| guard | judges | is    | options           |
| ----- | ------ | ----- | ----------------- |
| long  | told   | regex | pattern = epilogue |

## Steps
| step | generator | guard | rmax | task                    |
| ---- | --------- | ----- | ---- | ----------------------- |
| told | writer    | long  | 2    | A tale of {specification} |
"""

INNER = """# drafting

## Steps
| step  | requires | guard | uses          | rmax | task                          |
| ----- | -------- | ----- | ------------- | ---- | ----------------------------- |
| plot  |          | good  |               | 2    | The plot of: {specification}  |
| prose | plot     | good  | plot = plot   | 2    | The prose of: {specification} |
"""

BINDINGS = """
import os, signal
from pathlib import Path

from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult, Usage


def calls_made(what):
    with open("called.txt", "a") as file:
        file.write(f"{what}\\n")
        file.flush()
        os.fsync(file.fileno())


class Model(GeneratorInterface):
    def generate(self, context, template=None):
        number = len(Path("called.txt").read_text().splitlines()) if Path("called.txt").exists() else 0
        calls_made(f"{context.step} {context.key.rpartition('/')[0].rpartition('+')[2]}")
        if str(number) == os.environ.get("KILL_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
        again = "epilogue" in context.specification or "rejected" in context.specification
        text = f"{context.step} {'with an epilogue' if again else ''}"
        return Artifact(f"{'bad' if os.environ.get('ALL_BAD') else 'good'} {text}", usage=Usage("pen", 0.5, 10, 20, 0.25))


class Guard(GuardInterface):
    blocks = False

    def validate(self, artifact, **dependencies):
        return GuardResult(passed="good" in artifact.content, feedback="not good", fatal="fatal" in artifact.content)


generators = {"llm": Model()}
guards = {"good": Guard()}
"""


class Folder:
    def __init__(self, path):
        self.path = path
        (path / "work").mkdir()
        (path / "outer.md").write_text(OUTER.replace("OPTIONS", ""))
        (path / "work" / "inner.md").write_text(INNER)
        (path / "work" / "bindings.py").write_text(BINDINGS)

    def dsa(self, *arguments, code=0, **environment):
        done = subprocess.run(
            [*DSA, *arguments],
            cwd=self.path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    @property
    def calls_made(self):
        return (self.path / "called.txt").read_text().splitlines()

    @property
    def runs(self):
        """Return the stored entries: those of the run, and those of its parts by the suffix of their ids."""
        names = sorted(path.name for path in (self.path / ".dsa").glob("*-tale-*"))
        parts = {name.partition(PART_OF)[2]: recorded(self.path / ".dsa", name).entries for name in names}
        return parts.pop(""), parts


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_machine_generates_the_text_of_a_step(folder):
    said = folder.dsa("run", "outer.md", "two cats")
    assert "succeeded\n" in said
    assert folder.calls_made == ["plot 1.1/1", "prose 1.1/3", "plot 3.2/1", "prose 3.2/3"], (
        "each call has a key of its own"
    )
    outer, parts = folder.runs
    made = [entry for entry in outer if isinstance(entry, ArtifactEntry)]
    assert [entry.author for entry in made] == ["writer"] * 2, "the first tale had no epilogue"
    assert list(parts) == ["1.1", "3.2"]
    assert [(e.model, e.prompt_tokens, e.completion_tokens, e.cost_usd) for e in made] == [("pen", 20, 40, 0.5)] * 2
    for entries in parts.values():
        first, *rest = entries
        assert isinstance(first, MachineEntry)
        assert first.name == "drafting"
        assert [entry.step for entry in rest if isinstance(entry, ArtifactEntry)] == ["plot", "prose"]
    assert next((folder.path / ".dsa").glob("*/final.txt")).read_text() == "good prose with an epilogue\n"


def test_runs_of_parts_can_be_shown_and_last_means_the_whole(folder):
    folder.dsa("run", "outer.md", "two cats")
    told = folder.dsa("show", "last")
    assert "told attempt 2: passed" in told
    (name,) = (path.name for path in (folder.path / ".dsa").glob("*+1.1"))
    part = folder.dsa("show", name)
    assert "prose attempt 1: passed" in part
    assert json.loads(folder.dsa("show", name, "--jsonl").splitlines()[0])["started"]["for"].endswith("/1/1")
    folder.dsa("replay", name)
    folder.dsa("replay", "last")
    assert re.search(r"^\S+\+1\.1 .*succeeded", folder.dsa("runs"), re.MULTILINE)


def test_artifact_of_a_part_keeps_its_id_in_the_whole(folder):
    folder.dsa("run", "outer.md", "two cats")
    outer, parts = folder.runs
    made = [entry for entry in outer if isinstance(entry, ArtifactEntry)]
    prose = [[e for e in entries if isinstance(e, ArtifactEntry)][-1] for entries in parts.values()]
    assert [entry.artifact_id for entry in made] == [entry.artifact_id for entry in prose]
    assert [(entry.step, entry.attempt) for entry in made] == [("told", 1), ("told", 2)]
    names = sorted(path.name for path in (folder.path / ".dsa").glob("*-tale-*"))
    for run, entry in zip(names, [made[-1], *prose], strict=True):
        kept = open_artifacts(folder.path / ".dsa", run).get_artifact(entry.artifact_id)
        assert (kept.content.split()[:2], kept.step) == (["good", "prose"], entry.step)
    assert made[1].parents == (made[0].artifact_id,)
    assert f"artifact {names[2]}/" in folder.dsa("show", "last", "--provenance"), "the part is named"


@pytest.mark.parametrize("kill_at", ["0", "1", "2", "3"])
def test_crash_in_a_part_repeats_only_the_call_that_was_cut_off(folder, kill_at):
    folder.dsa("run", "outer.md", "two cats", code=-signal.SIGKILL, KILL_AT=kill_at)
    before = folder.calls_made
    assert len(before) == int(kill_at) + 1
    assert "succeeded\n" in folder.dsa("resume", "last")
    assert len(folder.calls_made) == 5, "four calls are needed; the one that was cut off is made again"
    assert folder.calls_made[: len(before)] == before
    assert folder.calls_made[len(before)] == before[-1]
    outer, parts = folder.runs
    assert list(parts) == ["1.1", "3.2"], "the part that was cut off has gone on: no other was begun"
    for entries in (outer, *parts.values()):
        keys = [entry.key for entry in entries if isinstance(entry, ResultEntry)]
        assert len(keys) == len(set(keys))


def test_machine_without_a_result_is_a_failure_of_the_generator(folder):
    said = folder.dsa("run", "outer.md", "two cats", code=1, ALL_BAD="yes")
    assert re.search(r"stopped: query_llm .*the machine drafting \(run \S+\+1\.1\) ended in failed", said)
    assert "succeeded\n" in folder.dsa("resume", "last"), "it is worked out anew"
    assert list(folder.runs[1]) == ["1.1", "1.1.2", "3.2"]


def test_waiting_part_is_answered_and_the_whole_continues(folder):
    (folder.path / "work" / "bindings.py").write_text(
        BINDINGS.replace(
            '"good" in artifact.content', '"good" in artifact.content and artifact.step != "prose"'
        ).replace('"fatal" in artifact.content', 'artifact.step == "prose"')
    )
    said = folder.dsa("run", "outer.md", "an epilogue", code=3)
    assert re.search(r"^waiting in \S+ for: .*approved", said, re.MULTILINE), said
    (place,) = re.search(r"dsa send '?(\S+\+1\.1@\d+)'? EVENT", said).groups()
    called = folder.calls_made
    assert "succeeded\n" in folder.dsa("send", place, "approved")
    assert folder.calls_made == called, "what was approved is what is used: nothing is asked again"
    assert list(folder.runs[1]) == ["1.1"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("; step = epilogue", "the machine drafting has no step 'epilogue'; its steps are: plot, prose"),
        ("2", "no such file"),
        ("; depth = 3", "depth"),
    ],
)
def test_impossible_options_are_reported_before_anything_runs(folder, options, said):
    (folder.path / "outer.md").write_text(OUTER.replace(" OPTIONS", options))
    told = folder.dsa("run", "outer.md", "two cats", code=2)
    assert said in told.lower() or said in told
    assert "line 6" in told or ":6" in told
    assert not (folder.path / "called.txt").exists()


def test_machine_cannot_be_part_of_itself(folder):
    itself = OUTER.replace("OPTIONS", "").replace("# tale", "# tail").replace("work/inner.md", "inner.md")
    (folder.path / "work" / "inner.md").write_text(itself)
    told = folder.dsa("run", "outer.md", "two cats", code=2)
    assert re.search(r"outer\.md:6:3: .*work/inner\.md:6:3: .*work/inner\.md would be a part of itself", told)
    assert "would be a part of itself" in folder.dsa("run", "work/inner.md", "two cats", code=2)


def test_each_fault_of_a_part_names_its_document_and_its_line(folder):
    rows = (
        "\n## Guards\n| guard | is |\n| - | - |\n| good | gut |\n\n## Generators\n| generator | options |\n| - | - |\n"
    )
    (folder.path / "work" / "inner.md").write_text(INNER + rows + "| llm | heat = 1 |\n")
    (folder.path / "work" / "bindings.py").write_text("guards = {'plot': 3}")
    told = folder.dsa("run", "outer.md", "two cats", code=2).splitlines()
    faults = [line for line in told if not line.startswith(" ")]
    begun = [
        "outer.md:6:3: generator writer: work/inner.md: the guard 'plot'",
        "work/inner.md:12:",
        "work/inner.md:17:",
    ]
    assert [line for line, begin in zip(faults, begun, strict=True) if not line.startswith(begin)] == []
    assert "<text>" not in "".join(told)


def test_inner_machine_is_found_relative_to_the_outer_document(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "work").mkdir()
    (elsewhere / "work" / "inner.md").write_text("# decoy\n")
    folder.dsa("run", "outer.md", "an epilogue", code=1, ALL_BAD="yes")
    root, outer = folder.path / ".dsa", folder.path / "outer.md"
    (folder.path / "called.txt").rename(elsewhere / "called.txt")
    there = Folder.__new__(Folder)
    there.path = elsewhere
    assert "succeeded\n" in there.dsa("resume", "last", "--runs", str(root))
    assert "succeeded\n" in there.dsa("run", str(outer), "an epilogue")
    outer.rename(elsewhere / "outer.md")
    (elsewhere / "work" / "inner.md").unlink()
    told = folder.dsa("run", str(elsewhere / "outer.md"), "two cats", code=2)
    place = min(
        str(elsewhere / "work" / "inner.md"), os.path.relpath(elsewhere / "work" / "inner.md", folder.path), key=len
    )
    assert f"{place}: there is no such file, and no shipped machine of that name" in told, (
        "not the one in the working folder"
    )
