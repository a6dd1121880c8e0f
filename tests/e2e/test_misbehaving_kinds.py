"""A guard or generator that raises, hangs, prints 1 GB or returns nonsense: recorded, handled by the table, nothing lost.

These tests use `dsa run`, the real driver and the ledger on disk. Anything that would remain in this process (an endless loop, a gigabyte) is
done in a separate one.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from misbehaving import HANDLED, UNHANDLED, document, module
from results import results_of
from stored_runs import dsa, ledger_of

from dsa.guards.feedback import MOST_CHARACTERS
from dsa.lang import loads
from dsa.runtime.run import replay

PROGRAM = [sys.executable, "-c", "from dsa.cli.main import main; main()"]
RAISED = {
    "ValueError": "ValueError: not today",
    "SystemExit": "the call raised SystemExit: not today",
    "GeneratorExit": "the call raised GeneratorExit: not today",
    "CancelledError": "the call raised CancelledError: not today",
    "StopIteration": "the call raised StopIteration: not today",
    "OddError": "the call raised OddError: not today",
    "MuteError": "the call raised MuteError",
    "RecursionError": "RecursionError: maximum recursion depth exceeded",
    "MemoryError": "MemoryError",
    "group": "ExceptionGroup: not today",
    "unprintable": "ValueError: not ",
}
NO_VERDICT = {
    "None": "guard g gave None, not a GuardResult",
    "True": "guard g gave bool, not a GuardResult",
    "text": "guard g gave str, not a GuardResult",
    "class": "not a GuardResult",
    "coroutine": "guard g gave Event, not a GuardResult",
    "passed as int": "is not a verdict",
    "passed and fatal": "cannot be passed and fatal at once",
    "no feedback": "is not a verdict",
    "bytes as feedback": "TypeError",
}
NO_ARTIFACT = {
    "None": "None",
    "True": "bool",
    "text": "str",
    "class": "",
    "coroutine": "Event",
    "content None": "",
    "content bytes": "",
    "seconds NaN": "",
    "seconds infinite": "",
    "cost NaN": "",
    "tokens as text": "",
    "usage as text": "",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(text, **options):
    """Run a machine with the module in the folder, if there is one; return the output of `--json`."""
    Path("trial.md").write_text(document(text, **options))
    bound = ["--with", "mine.py"] if Path("mine.py").exists() else []
    done = dsa("run", "trial.md", "write it", "--json", *bound)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return json.loads(done.stdout)


def replayed(told):
    """Return the run as replayed from its ledger, and the entries, after the program has verified it too."""
    directory = Path(told["directory"])
    verified = dsa("replay", directory.name)
    assert verified.exit_code == 0, verified.output
    entries = ledger_of(directory)
    return replay(loads((directory / "machine.md").read_text(encoding="utf-8")), entries), entries


def failures(entries, effect):
    """Return the failures of an effect in the ledger."""
    payloads = [step["payload"] for entry in results_of(entries, effect) for step in entry.steps]
    return [f"{payload['code']}: {payload['message']}" for payload in payloads if payload.get("error")]


def require_handled(told, state, effect, said):
    """Check that the failure is in the ledger, its row was taken, `dsa show` reports it, and the run replays."""
    assert (told["kind"], told["outcome"]) == ("finished", state)
    again, entries = replayed(told)
    assert again.configuration.state == state
    (failure,) = failures(entries, effect)
    assert said in failure
    shown = dsa("show", "last").output
    assert f"{effect} {'1' if effect == 'query_llm' else '2'}/1 failed: " in shown
    assert f"-> {state}" in shown
    assert "\x1b" not in shown
    return again


def ways(*tables):
    """Return each way with its message, alternately in a thread or in place; the other case is marked `full`."""
    return [
        pytest.param(way, said, blocks, id=f"{way}-{'blocks' if blocks else 'in place'}", marks=[] if is_tried else [pytest.mark.full])
        for place, (way, said) in enumerate(item for table in tables for item in table.items())
        for blocks in (True, False)
        for is_tried in [blocks == (place % 2 == 0)]
    ]  # fmt: skip


@pytest.mark.parametrize(("way", "said", "blocks"), ways(RAISED, NO_VERDICT))
def test_guard_without_a_verdict_is_handled_by_its_row(folder, way, said, blocks):
    (folder / "mine.py").write_text(module("guard", way, blocks=blocks))
    again = require_handled(run(HANDLED), "unjudged", "execute_guard", said)
    assert again.step("g").attempts == 1
    assert again.step("g").accepted is None


@pytest.mark.parametrize(("way", "said", "blocks"), ways(NO_ARTIFACT, RAISED))
def test_generator_without_an_artifact_is_handled_by_its_row(folder, way, said, blocks):
    (folder / "mine.py").write_text(module("generator", way, blocks=blocks))
    again = require_handled(run(HANDLED), "unwritten", "query_llm", said)
    assert again.step("g").attempts == 0


@pytest.mark.parametrize(
    ("role", "state", "effect"), [("guard", "unjudged", "execute_guard"), ("generator", "unwritten", "query_llm")]
)
def test_keyboard_interrupt_raised_by_a_kind_is_handled_by_its_row(folder, role, state, effect):
    (folder / "mine.py").write_text(module(role, "KeyboardInterrupt"))
    require_handled(run(HANDLED), state, effect, "the call raised KeyboardInterrupt: not today")


@pytest.mark.parametrize(
    ("role", "state", "effect"), [("guard", "unjudged", "execute_guard"), ("generator", "unwritten", "query_llm")]
)
def test_hanging_kind_is_abandoned_at_its_time_limit(folder, role, state, effect):
    (folder / "mine.py").write_text(module(role, "hangs"))
    require_handled(run(HANDLED, limit="200ms"), state, effect, "no answer within 0.2 s, its time limit")


@pytest.mark.parametrize(
    ("role", "way", "state"),
    [
        ("guard", "odd feedback", "rejected"),
        ("generator", "odd content", "succeeded"),
        ("generator", "empty content", "succeeded"),
        ("generator", "ids of its own", "succeeded"),
    ],
)
def test_unusual_text_is_stored_unchanged(folder, role, way, state):
    (folder / "mine.py").write_text(module(role, way))
    told = run(HANDLED)
    assert told["outcome"] == state
    again, _ = replayed(told)
    shown = dsa("show", "last").output
    assert "\x1b" not in shown
    assert again.step("g").attempts == 1
    if way == "odd feedback":
        assert list(again.step("g").history)[-1].feedback == "no \ud800 \0 \x1b[2J"


@pytest.mark.parametrize("way", ["ValueError", "SystemExit", "MuteError", "None"])
def test_failure_without_a_row_stops_the_run_which_can_be_resumed(folder, way):
    (folder / "mine.py").write_text(module("guard", way))
    stopped = run(UNHANDLED)
    assert (stopped["kind"], stopped["exit_code"]) == ("stopped", 1)
    assert stopped["failure"]["what"] == "execute_guard"
    before, _ = replayed(stopped)
    (folder / "mine.py").write_text(module("guard", "fine"))
    told = json.loads(dsa("resume", "last", "--with", "mine.py", "--json").stdout)
    assert (told["kind"], told["outcome"]) == ("finished", "succeeded")
    again, _ = replayed(told)
    assert again.step("g").attempts == before.step("g").attempts == 1


# -- in a separate process--------------------------------------------------------------------------------------------


def measured(*arguments):
    """Run the program; return its output, its exit code, and the peak memory of it and its children in MB."""
    with Path("told").open("wb") as out, Path("said").open("wb") as err:
        process = subprocess.Popen([*PROGRAM, *arguments], stdout=out, stderr=err)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Path("told").read_text(), process.returncode, usage.ru_maxrss / 1024


@pytest.fixture(scope="module")
def usual_mb(tmp_path_factory):
    """The peak memory in MB of a run with a normal guard and generator."""
    home = Path.cwd()
    try:
        os.chdir(tmp_path_factory.mktemp("usual"))
        Path("mine.py").write_text(module("guard", "fine"))
        Path("trial.md").write_text(document(HANDLED))
        return measured("run", "trial.md", "x", "--json", "--with", "mine.py")[2]
    finally:
        os.chdir(home)


@pytest.mark.parametrize(("role", "state"), [("guard", "unjudged"), ("generator", "unwritten")])
def test_endless_loop_is_abandoned_and_the_program_ends(folder, role, state):
    (folder / "mine.py").write_text(module(role, "spins"))
    (folder / "trial.md").write_text(document(HANDLED, limit="300ms"))
    told, code, _ = measured("run", "trial.md", "x", "--json", "--with", "mine.py")
    assert (code, json.loads(told)["outcome"]) == (0, state)
    replayed(json.loads(told))


@pytest.mark.parametrize("role", ["guard", "generator"])
def test_code_that_prints_a_gigabyte_takes_no_extra_memory(folder, role, usual_mb):
    (folder / "mine.py").write_text(module(role, "floods"))
    (folder / "trial.md").write_text(document(HANDLED))
    command = [*PROGRAM, "run", "trial.md", "x", "--quiet", "--with", "mine.py"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert usage.ru_maxrss / 1024 < usual_mb + 30
    assert "finished: succeeded" in dsa("show", "last").output


FLOOD = "head -c 268435456 /dev/zero"


def run_bounded(script, **options):
    """Run a machine whose program is a script, in a separate process if it floods; return the output of `--json`, and the peak memory in MB."""
    if FLOOD not in script:
        return run(HANDLED, **options), 0
    Path("trial.md").write_text(document(HANDLED, **options))
    told, code, most_mb = measured("run", "trial.md", "x", "--json", "--with", "mine.py")
    assert code == 0, Path("said").read_text()
    return json.loads(told), most_mb


GENERATORS = {
    "exits": ("echo not today >&2; exit 3", "sh ended with 3: not today"),
    "is killed": ("kill -KILL $$", "sh was killed by signal 9"),
    "hangs": ("sleep 600 & sleep 600", "sh was stopped after 1 s."),
    "writes without limit": (FLOOD, "sh wrote more than 1,000,000 bytes."),
    "complains without limit": (f"{FLOOD} >&2; echo not today >&2; exit 1", "not today"),
    "writes invalid UTF-8": ("printf '\\377'", "sh wrote text that is not UTF-8 (byte 0)."),
    "writes nothing": ("true", "sh wrote nothing."),
}


@pytest.mark.parametrize(("script", "said"), GENERATORS.values(), ids=GENERATORS)
def test_program_that_generates_nothing_is_handled_by_its_row(folder, script, said, usual_mb):
    (folder / "mine.py").write_text(module("guard", "fine"))
    (folder / "tool.sh").write_text(f"{script}\n")
    options = f"command = sh tool.sh; timeout_s = {1 if 'sleep' in script else 60}"
    told, most_mb = run_bounded(script, generator=f"command | {options}")
    require_handled(told, "unwritten", "query_llm", said)
    assert most_mb < usual_mb + 30


def test_program_that_cannot_be_started_is_handled_by_its_row(folder):
    (folder / "mine.py").write_text(module("guard", "fine"))
    (folder / "tool").write_text("#!/nonesuch-interpreter\n")
    (folder / "tool").chmod(0o755)
    told = run(HANDLED, generator="command | command = ./tool")
    require_handled(told, "unwritten", "query_llm", "tool cannot be started: No such file or directory")


def test_missing_program_is_reported_before_anything_runs(folder):
    (folder / "mine.py").write_text(module("guard", "fine"))
    (folder / "trial.md").write_text(document(HANDLED, generator="command | command = nonesuch-program"))
    error = dsa("run", "trial.md", "write it", "--with", "mine.py").exception
    assert "generator writer: there is no program 'nonesuch-program'" in str(error)
    assert not (folder / ".dsa").exists()


GUARDS = {
    "exits": ("echo not today; exit 3", "sh ended with 3.\nnot today"),
    "is killed": ("kill -KILL $$", "sh was killed (SIGKILL)"),
    "hangs": ("sleep 600 & sleep 600", "sh did not end within 1 s."),
    "prints without limit": (f"{FLOOD}; echo; echo not today; exit 1", "\nnot today"),
    "complains without limit": (f"({FLOOD}; echo; echo not today) >&2; exit 1", "\nnot today"),
}


@pytest.mark.parametrize(("script", "said"), GUARDS.values(), ids=GUARDS)
def test_failing_guard_program_rejects_the_text_within_bounds(folder, script, said, usual_mb):
    (folder / "mine.py").write_text(module("generator", "fine"))
    (folder / "tool.sh").write_text(f"{script}\n")
    options = f"command = sh tool.sh; read = tool.sh; timeout_s = {1 if 'sleep' in script else 60}"
    told, most_mb = run_bounded(script, guard=f"command | {options}")
    again, _ = replayed(told)
    assert again.configuration.state == "rejected"
    feedback = list(again.step("g").history)[-1].feedback
    assert said in feedback
    assert len(feedback) <= MOST_CHARACTERS
    assert most_mb < usual_mb + 30
