"""`dsa run` and `dsa demo` as people use them; only the model is scripted."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from stored_runs import ledger_of

from dsa.cli.demo import command as demo
from dsa.cli.run import command as run
from dsa.cli.run import default_specification
from dsa.edge.document_files import load
from dsa.lang import loads
from dsa.runtime.ledger import ResultEntry
from dsa.runtime.run import replay

GOOD, BAD = "def add(a, b):\n    return a + b\n", "def add(a, b):\n    return a - b\n"


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    """Run a command in an empty folder, with a script of these texts as its model."""
    monkeypatch.chdir(tmp_path)

    def call(command, *arguments, texts=(), script=None):
        script = script or "".join(f"```python\n{text}```\n" for text in texts)
        (tmp_path / "script.md").write_text(script)
        return CliRunner().invoke(command, [*arguments, "--model", "scripted:script.md"])

    return call


def directory(tmp_path):
    (only,) = (tmp_path / ".dsa").glob("*-*-*")
    return only


def test_successful_run_prints_and_stores_its_attempts_and_result(invoke, tmp_path):
    result = invoke(run, "dual_state", texts=[BAD, GOOD])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split()[:4] == ["g", "attempt", "1", "rejected"]
    assert lines[0].endswith("add(2, 3) gave -1")
    assert lines[1].split()[:4] == ["g", "attempt", "2", "passed"]
    assert lines[2] == "succeeded"
    assert GOOD in result.output
    assert "2 made, 1 rejected" in result.output
    assert "2 model calls, tokens unknown" in result.output
    kept = directory(tmp_path)
    assert {path.name for path in kept.iterdir()} >= {"machine.md", "g-1-rejected.py", "g-2-passed.py"}
    assert (kept / "final.py").read_text() == GOOD
    assert "<svg" in (kept / "diagram.svg").read_text()
    machine = loads((kept / "machine.md").read_text())
    assert replay(machine, ledger_of(kept)).outcome == "succeeded"


def test_run_that_exhausts_its_retries_fails_without_a_result(invoke, tmp_path):
    result = invoke(run, "dual_state", "--param", "rmax=1", texts=[BAD, BAD, GOOD])
    assert result.exit_code == 1
    assert "failed at g after 2 attempts" in result.output
    assert not list(directory(tmp_path).glob("final*"))
    assert len(list(directory(tmp_path).glob("*-rejected.py"))) == 2


TWO = """# two
## Steps
| step | guard | rmax |
| - | - | - |
| first | syntax | 0 |
| second | syntax | 0 |

Result: first
"""


def test_final_file_is_the_result_named_by_the_document(invoke, tmp_path):
    (tmp_path / "two.md").write_text(TWO)
    result = invoke(run, "two.md", "two texts", texts=["a = 1\n", "b = 2\n"])
    assert result.exit_code == 0, result.output
    kept = directory(tmp_path)
    assert (kept / "final.py").read_text() == "a = 1\n"
    assert "a = 1" in result.output
    assert {path.name: path.read_text() for path in (kept / "steps").iterdir()} == {
        "first.py": "a = 1\n", "second.py": "b = 2\n",
    }  # fmt: skip


def test_failed_run_stores_passed_steps_and_has_no_result(invoke, tmp_path):
    (tmp_path / "two.md").write_text(TWO)
    result = invoke(run, "two.md", "two texts", texts=["a = 1\n", "b = (\n"])
    assert result.exit_code == 1
    assert "a = 1" not in result.output
    kept = directory(tmp_path)
    assert not list(kept.glob("final*"))
    assert [path.name for path in (kept / "steps").iterdir()] == ["first.py"]


FATAL = """
from dsa.runtime.content import GuardInterface, GuardResult
class Never(GuardInterface):
    def validate(self, artifact, **dependencies):
        return GuardResult(False, "never this", fatal=True)
guards = {"g": Never(), "g_test": Never(), "tests": Never()}
"""


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ("dual_state", "escalated at g after 1 attempt"),
        ("workflow", "waiting in escalated.g_test for: aborted, amended, approved, granted, rejected"),
    ],
)
def test_fatal_verdict_needs_a_person(invoke, tmp_path, machine, said):
    (tmp_path / "mine.py").write_text(FATAL)
    result = invoke(run, machine, "add", "--with", "mine.py", texts=[GOOD])
    assert result.exit_code == 3
    assert said in result.output
    assert [path.name for path in directory(tmp_path).glob("g*.py")] in (["g-1-fatal.py"], ["g_test-1-fatal.py"])


def test_failing_model_gives_one_sentence_and_loses_nothing(invoke, tmp_path):
    result = invoke(run, "dual_state", texts=[BAD])
    assert result.exit_code == 1
    line = next(row.span.line for row in load("dual_state").transitions if "query_llm" in map(str, row.effects))
    again = [row.span.line for row in load("dual_state").transitions if "query_llm" in map(str, row.effects)][-1]
    assert line != again
    (stopped,) = (text for text in result.output.splitlines() if text.startswith("stopped"))
    assert stopped.startswith(f"stopped: query_llm (line {again}) failed: script.md has no reply left")
    assert "Traceback" not in result.output
    kept = directory(tmp_path)
    assert (kept / "g-1-rejected.py").exists()
    assert isinstance(ledger_of(kept)[-1], ResultEntry)


def test_json_output_is_one_object_and_nothing_else(invoke):
    result = invoke(run, "dual_state", "--json", texts=[BAD, GOOD])
    told = json.loads(result.output)
    assert (told["outcome"], told["exit_code"], told["values"]["satisfied"]) == ("succeeded", 0, True)
    assert [(a["step"], a["attempt"], a["verdict"]) for a in told["attempts"]] == [
        ("g", 1, "failed"),
        ("g", 2, "passed"),
    ]
    assert told["accepted"] == {"g": GOOD}
    assert told["totals"]["calls"] == 2


def test_quiet_prints_no_progress(invoke):
    result = invoke(run, "dual_state", "--quiet", texts=[GOOD])
    assert result.output.startswith("succeeded\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.md"], "nowhere.md: there is no such file"),
        (["dual_state", "--param", "rmax=-1"], "rmax = -1 is outside its domain"),
        (["dual_state", "--param", "retries=1"], "no parameter 'retries'"),
        (["dual_state", "--param", "rmax"], "write NAME=VALUE"),
        (["dual_state", "--with", "nowhere.py"], "nowhere.py"),
        (["dual_state", "--model", "scripted:nowhere.md"], "nowhere.md"),
        (["workflow"], "needs a SPECIFICATION"),
        (["broken.md"], "broken.md:1:1: error DSA"),
    ],
)
def test_unusable_arguments_give_a_message_and_exit_code_2(tmp_path, arguments, said):
    """This runs the real program, because `main` turns errors into messages."""
    (tmp_path / "broken.md").write_text("nothing here")
    program = [sys.executable, "-c", "from dsa.cli.main import main; main()", "run", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / ".dsa").exists()


def test_default_specification_follows_from_the_cases():
    assert default_specification(load("dual_state")) == "Write Python code so that these calls work: add(2, 3)"
    assert default_specification(load("katas/katas")) == ""


KATAS = """
## add
```python
def add(a, b): return a + b
```
## parity
```python
def is_even(n): return n % 2 == 0
```
## reverse
```python
def reverse_text(text): return text[::-1]
```
## mirror
```python
def is_palindrome(text): return True
```
```python
def is_palindrome(text): return text == text[::-1]
```
## largest
```python
def largest(numbers): return max(numbers)
```
## factorial
```python
def factorial(n): return n * factorial(n - 1) if n else 1
```
## fibonacci
```python
def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
```
## edit_distance
"""
WRONG = "```python\ndef edit_distance(a, b): return 0\n```\n"
RIGHT = """```python
def edit_distance(a, b):
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return edit_distance(a[1:], b[1:])
    return 1 + min(edit_distance(a[1:], b), edit_distance(a, b[1:]), edit_distance(a[1:], b[1:]))
```
"""


def test_demo_announces_how_each_document_ends_and_both_do(invoke, tmp_path):
    result = invoke(demo, script=KATAS + WRONG * 3)
    assert result.exit_code == 0, result.output
    assert "the expected outcome is: succeeded" in result.output
    assert "the expected outcome is: failed" in result.output
    assert "failed at edit_distance after 3 attempts" in result.output
    first, second = sorted((tmp_path / ".dsa").glob("*-*-*"), key=lambda path: "exhausted" in path.name)
    assert len(list(first.glob("*-passed.py"))) == 7
    assert len(list(second.glob("*-rejected.py"))) == 3


def test_demo_fails_if_a_document_ends_differently(invoke):
    result = invoke(demo, script=KATAS + WRONG + RIGHT)
    assert result.exit_code == 1
    assert "expected: failed; it ended: succeeded" in result.output
