"""`dsa run` with faults of its environment: the real program with pipes, signals and encodings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked import DSA
from stored_runs import ledger_of

from dsa.cli.command_line import parse_parameters
from dsa.edge.document_files import load, locate, read_text
from dsa.lang import digest, loads
from dsa.runtime.run import replay
from dsa.text import printable

PROGRAM = [sys.executable, "-c", "from dsa.cli.main import main; main()"]
GOOD = "```python\ndef add(a, b):\n    return a + b\n```\n"
BAD = "```python\ndef add(a, b):\n    return a - b\n```\n"

INTERRUPTED = """
import os, signal, threading
from dsa.runtime.content import Artifact, GeneratorInterface

class PressesCtrlC(GeneratorInterface):
    asked = 0
    def generate(self, context, template=None):
        self.asked += 1
        if self.asked == 1:
            return Artifact("def add(a, b): return 0")
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait()

generators = {"llm": PressesCtrlC()}
"""

STRANGE = r"""
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult

class Writes(GeneratorInterface):
    def generate(self, context, template=None):
        return Artifact("x = '\x1b[2J \udce9 \u2713'")

class Judges(GuardInterface):
    asked = 0
    def validate(self, artifact, **dependencies):
        self.asked += 1
        return GuardResult(self.asked > 1, "no \ud800 \x1b]0;title\x07 \u2713")

generators = {"llm": Writes()}
guards = {"g": Judges()}
"""


@pytest.fixture
def dsa(tmp_path):
    """Run the program in an empty folder, with a script that fails once and then succeeds."""
    (tmp_path / "script.md").write_text(BAD + GOOD)

    def run(*arguments, **more):
        environment = {**os.environ, **more.pop("env", {})}
        return subprocess.run(
            [*DSA, "run", *arguments], cwd=tmp_path, env=environment, check=False, timeout=120, **more
        )

    return run


def captured(dsa, *arguments, **more):
    done = dsa(*arguments, capture_output=True, **more)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


SCRIPTED = ("--model", "scripted:script.md")
FAILING = {
    "missing file": (["nowhere.md"], 2, "unreadable"),
    "missing file argument": ([], 2, "unreadable"),
    "invalid number": (["dual_state", "--seed", "x"], 2, "unreadable"),
    "unknown option": (["dual_state", "--sed", "1"], 2, "unreadable"),
    "outside its domain": (["dual_state", "--param", "rmax=--5"], 2, "unreadable"),
    "too many digits": (["dual_state", "--param", f"rmax={'9' * 5000}"], 2, "unreadable"),
    "file in place of a folder": (["dual_state", *SCRIPTED, "--runs", "script.md"], 2, "unreadable"),
    "empty module": (["dual_state", *SCRIPTED, "--with", ""], 2, "unreadable"),
    "missing specification": (["workflow", *SCRIPTED], 2, "unreadable"),
    "blank specification": (["workflow", " \n", *SCRIPTED], 2, "unreadable"),
    "unexpected specification": (["examples/jugs", "fill them"], 2, "unreadable"),
    "bytes that are not UTF-8": (["dual_state", b"\xff", *SCRIPTED], 2, "unreadable"),
    "exhausted script": (["katas/katas", *SCRIPTED], 1, "stopped"),
    "waiting for an event": (["examples/jugs"], 3, "waiting"),
}


@pytest.mark.parametrize(("arguments", "code", "kind"), FAILING.values(), ids=FAILING)
def test_json_output_is_one_object_even_without_a_result(dsa, arguments, code, kind):
    done = captured(dsa, *arguments, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["exit_code"], told["kind"]) == (code, code, kind)
    if code == 2:
        assert told["failure"]["message"]
        assert done.stderr


@pytest.mark.parametrize("json_wanted", [False, True])
def test_ctrl_c_stores_finished_work_and_exits_with_130(dsa, tmp_path, json_wanted):
    (tmp_path / "mine.py").write_text(INTERRUPTED)
    done = captured(dsa, "dual_state", "--with", "mine.py", *(["--json"] if json_wanted else []))
    assert done.returncode == 130
    (kept,) = (tmp_path / ".dsa").glob("*-*-*")
    assert f"interrupted; what was done so far is saved in .dsa/{kept.name}" in done.stderr.decode()
    ledger = ledger_of(kept)
    assert replay(loads((kept / "machine.md").read_text()), ledger).step("g").attempts == 1
    assert (kept / "g-1-rejected.py").exists()
    if json_wanted:
        told = json.loads(done.stdout)
        assert (told["kind"], told["directory"]) == ("interrupted", f".dsa/{kept.name}")


@pytest.mark.parametrize(("rmax", "code", "outcome"), [(0, 1, "failed"), (1, 0, "succeeded")])
@pytest.mark.parametrize("arguments", [[], ["--json"], ["--quiet"]])
def test_closed_output_pipe_changes_nothing(dsa, tmp_path, arguments, rmax, code, outcome):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = dsa("dual_state", "--param", f"rmax={rmax}", *SCRIPTED, *arguments, stdout=gone, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (code, b"")
    (kept,) = (tmp_path / ".dsa").glob("*-*-*")
    assert replay(load("dual_state").at(rmax=rmax), ledger_of(kept)).outcome == outcome
    assert (kept / "diagram.svg").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(("arguments", "codes"), [([], {0: 1, 1: 2}), (["--json"], {0: 1, 1: 2})], ids=["text", "json"])
@pytest.mark.parametrize("rmax", [0, 1], ids=["failed", "succeeded"])
def test_failure_to_print_is_reported(dsa, tmp_path, arguments, rmax, codes):
    with Path("/dev/full").open("w") as full:
        done = dsa("dual_state", "--param", f"rmax={rmax}", *SCRIPTED, *arguments, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == codes[rmax]
    assert done.stderr.decode().splitlines()[-1].endswith("No space left on device")
    (kept,) = (tmp_path / ".dsa").glob("*-*-*")
    assert (kept / "diagram.svg").exists()


def test_run_works_without_standard_output(dsa, tmp_path):
    """A shell closes standard output: `dsa run ... >&-`."""
    (tmp_path / "script.md").write_text(BAD)
    command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, "run", "dual_state", "--param", "rmax=0", *SCRIPTED]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("chat", "t.csv", "--model", "scripted:script.md"), 0, "/help lists the commands"),
        (("code", "Do", "-w", ".", "--mode", "ask", "--template", "fix", "--model", "scripted:calls.md"), 3, "to allow this call: dsa send"),
    ],
    ids=["chat", "code"],
)  # fmt: skip
def test_interactive_commands_work_without_standard_input(tmp_path, arguments, code, told):
    """A service closes standard input, as `<&-` does."""
    (tmp_path / "t.csv").write_text("a\n1\n")
    (tmp_path / "script.md").write_text("```\nYes.\n```\n")
    call = {"tool_calls": [{"name": "write_file", "arguments": {"path": "a", "content": "b"}}]}
    (tmp_path / "calls.md").write_text(f"```\n{json.dumps(call)}\n```\n")
    command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *PROGRAM, *arguments]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (code, "")
    assert told in done.stdout


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_any_character_can_be_shown(dsa, tmp_path, encoding):
    (tmp_path / "mine.py").write_text(STRANGE)
    done = captured(dsa, "dual_state", "--with", "mine.py", env={"PYTHONIOENCODING": encoding})
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert b"\x07" not in done.stdout
    assert b"no \\ud800 \\x1b]0;title\\x07 " in done.stdout


def test_control_characters_are_shown_as_escapes():
    assert printable("a\tb\nc\x1b[31m\r\x9b\u202e\udfff é ✓") == "a\tb\nc\\x1b[31m\\r\\x9b\\u202e\\udfff é ✓"


def test_spec_runs_the_machine_it_names(dsa, tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "m.md").write_text(read_text(locate("dual_state")))
    (tmp_path / "here" / "bindings.py").write_text("beside = True\nprint('bindings of the machine')\n")
    (tmp_path / "spec.md").write_text("# spec\n\nMachine: here/m.md\n\n## Properties\n- always retries <= rmax\n")
    done = captured(dsa, "spec.md", "--param", "rmax=1", *SCRIPTED)
    assert done.returncode == 0, done.stderr
    assert b"bindings of the machine" in done.stdout
    (kept,) = (tmp_path / ".dsa").glob("*-*-*")
    text = (kept / "machine.md").read_text()
    assert text == (tmp_path / "here" / "m.md").read_text()
    first = ledger_of(kept)[0]
    assert first.digest == digest(loads(text).at(dict(first.parameters)))


def test_simultaneous_runs_in_one_folder_do_not_interfere(dsa, tmp_path):
    folder = tmp_path / "bücher und mehr"
    processes = [
        subprocess.Popen(
            [*PROGRAM, "run", "dual_state", *SCRIPTED, "--runs", folder.name], cwd=tmp_path, stdout=subprocess.DEVNULL
        )
        for _ in range(3)
    ]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    machine = load("dual_state")
    outcomes = [replay(machine, ledger_of(run)).outcome for run in folder.glob("*-*-*")]
    assert outcomes == ["succeeded"] * 3


def test_parameters_of_any_form_are_parsed():
    assert parse_parameters(["a=-5", "b = true", "c=--5", "d=٣", "e=1_0"]) == {
        "a": -5, "b": True, "c": "--5", "d": "٣", "e": "1_0",
    }  # fmt: skip
