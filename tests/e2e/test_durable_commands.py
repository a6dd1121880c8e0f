"""Runs that outlive their process, with real processes: killed, held, interrupted, shown, and sent the events that they wait for."""

import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from stored_runs import recorded, write_shop

from dsa.lang import loads
from dsa.runtime.ledger import ResultEntry

PROGRAM = [sys.executable, "-c", "from dsa.cli.main import main; main()"]

#: Records each call before it answers; in the second call the process is killed or interrupted.
MODEL = """
import os, signal, threading
from pathlib import Path
from dsa.runtime.content import Artifact, GeneratorInterface

class Model(GeneratorInterface):
    def generate(self, context, template=None):
        with open("calls.txt", "a") as file:
            file.write("x")
            file.flush()
            os.fsync(file.fileno())
        calls = len(Path("calls.txt").read_text())
        if calls == 2:
            os.kill(os.getpid(), signal.SIGNAL)
            threading.Event().wait()
        return Artifact("def add(a, b): return a - b" if calls == 1 else "def add(a, b): return a + b")

generators = {"llm": Model()}
"""
PERSON = """
from dsa.runtime.content import Artifact, GeneratorInterface, GuardInterface, GuardResult

class Model(GeneratorInterface):
    def generate(self, context, template=None):
        return Artifact(f"# {context.step}")

class Guard(GuardInterface):
    def validate(self, artifact, **dependencies):
        return GuardResult(artifact.step == "g_impl", "a person is to look", artifact.step != "g_impl")

generators = {"llm": Model()}
guards = dict.fromkeys(("g_test", "g_impl"), Guard())
"""


@pytest.mark.parametrize(("how", "code"), [("SIGKILL", -signal.SIGKILL), ("SIGINT", 130), ("SIGTERM", 130)])
def test_run_cut_off_during_a_model_call_can_be_finished(dsa, tmp_path, how, code):
    (tmp_path / "mine.py").write_text(MODEL.replace("SIGNAL", how))
    done = dsa("run", "dual_state", "--with", "mine.py")
    assert done.returncode == code, done.stderr
    (run,) = (path.name for path in (tmp_path / ".dsa").glob("*-dual_state-*"))
    if code == 130:
        assert f"saved in .dsa/{run}; `dsa resume {run}` continues the run" in done.stderr
    stands = "interrupted" if code == 130 else "cut off"
    assert re.search(rf"^{run} .* generating +{stands} ", dsa("runs").stdout, re.MULTILINE)
    told = dsa("show", "last").stdout
    assert "to do   query_llm 3/2, which was under way: it is performed again\n" in told
    before = recorded(tmp_path / ".dsa", run).entries

    done = dsa("resume", *re.search(r"go on +dsa resume (\S+)\n", told).groups())
    assert done.returncode == 0, done.stderr
    first, second, *_ = done.stdout.splitlines()
    assert first == "going on with query_llm 3/2, which was under way: it is performed again"
    assert second.split()[:4] == ["g", "attempt", "2", "passed"]
    assert (tmp_path / "calls.txt").read_text() == "xxx", "the call in doubt alone is made again"
    after = recorded(tmp_path / ".dsa", run).entries
    assert after[: len(before)] == before[:]
    keys = [entry.key for entry in after if isinstance(entry, ResultEntry)]
    assert len(keys) == len(set(keys))

    told = dsa("show", "last").stdout
    story = [
        "1 +[0-9.]+ s  specification",
        "g attempt 1: rejected",
        "resumed by .*: query_llm 3/2, which was under way",
        "g attempt 2: passed",
        "finished: succeeded",
    ]
    assert re.search(".*".join(story), told, re.DOTALL), told
    assert re.search(r"^g 1 .* rejected.*\n`- g 2 .* passed$", dsa("show", "last", "--provenance").stdout, re.MULTILINE)
    assert dsa("replay", "last").returncode == 0
    assert dsa("resume", "last").stdout == f"run {run} is finished: succeeded\n"


def test_run_waiting_for_a_person_continues_with_their_answer(dsa, tmp_path):
    (tmp_path / "mine.py").write_text(PERSON)
    done = dsa("run", "workflow", "add", "--with", "mine.py", "--runs", "here")
    assert done.returncode == 3
    (command,) = re.findall(r"^next +dsa (send .*) \[DATA\]$", done.stdout, re.MULTILINE)
    done = dsa(*shlex.split(command.replace("EVENT", "approved")))
    assert done.returncode == 0, done.stderr
    assert "succeeded\n" in done.stdout
    told = dsa("show", "last", "--runs", "here").stdout
    assert re.search(r"approved +line 8: escalated.g_test -> generating.g_impl, sigma.g_test = true", told)
    section = dsa("show", "last", "--runs", "here", "--as-scenario").stdout
    (tmp_path / "spec.md").write_text(f"# spec\n\nMachine: workflow\n\n{section}")
    checked = dsa("check", "spec.md")
    assert checked.returncode == 0, checked.stdout
    assert "1 of 1 scenarios pass" in checked.stdout


def test_run_held_by_another_process_is_refused_until_taken_over(dsa, tmp_path):
    write_shop(tmp_path)
    assert dsa("run", "shop.md").returncode == 3
    with subprocess.Popen(
        [*PROGRAM, "send", "last", "order"],
        cwd=tmp_path,
        env={**os.environ, "HOLD": "pay"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "holding\n"
        held = rf"held by process {holder.pid} on "
        assert re.search(held, dsa("runs").stdout)
        assert re.search(
            f"now      under way, {held}.*\nstate    paying\npending  pay 1/2\n", dsa("show", "last").stdout
        )
        done = dsa("resume", "last")
        assert done.returncode == 1
        assert re.search(
            f"{held}.*: that process is alive and goes on with the run; --take takes over the run", done.stderr
        )
        done = dsa("send", "last", "more")  # the other process takes it from the run's inbox
        assert (done.returncode, "more in paying was refused: invalid_state" in done.stderr) == (1, True)
        assert dsa("resume", "last", "--take").returncode == 3, "what the other one has under way is in doubt now"
        done = dsa("send", "last", "paid", "--answers", "1/2")
        assert "waiting in resting for: more" in done.stdout
        _, said = holder.communicate("\n", timeout=60)
        assert holder.returncode == 1
        assert "was taken over by another process; nothing was written" in said
    assert (tmp_path / "done.txt").read_text().split() == ["log", "pay", "mail", "log"]
    assert dsa("send", "last", "more").returncode == 0
    assert dsa("replay", "last").returncode == 0


def test_output_is_the_same_in_every_process(dsa, tmp_path):
    write_shop(tmp_path)
    assert dsa("run", "shop.md").returncode == 3
    assert dsa("send", "last", "order", '{"text": "tea"}', KILL="mail").returncode == -signal.SIGKILL
    (tmp_path / "mine.py").write_text(PERSON)
    assert dsa("run", "workflow", "add", "--with", "mine.py", "--runs", ".dsa").returncode == 3
    commands = [
        [command, run, *options]
        for run in ("shop", "workflow")
        for command, *options in [
            ["show"],
            ["show", "--percepts"],
            ["show", "--as-scenario"],
            ["show", "--provenance"],
            ["show", "--jsonl"],
            ["replay"],
            ["replay", "--json"],
        ]
    ]
    commands += [
        ["runs"],
        ["runs", "--json"],
        ["replay", "shop", "--against", "workflow", "--json"],
        ["replay", "workflow", "--against", "workflow"],
    ]
    script = (
        "from dsa.cli.main import program\n"
        f"for arguments in {commands!r}:\n"
        "    try:\n"
        "        program(arguments, standalone_mode=False)\n"
        "    except SystemExit as ended:\n"
        "        print('exit', ended.code)\n"
    )
    printed = set()
    for seed in ("0", "1", "2", "3", "12345"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        printed.add(done.stdout)
    assert len(printed) == 1
    text = printed.pop().decode()
    assert text.count("sha256") == 4
    assert "in doubt: mail 2/1 (line 31)" in text


def test_output_survives_a_closed_pipe_and_any_character(dsa, tmp_path):
    write_shop(tmp_path)
    dsa("run", "shop.md")
    dsa("send", "last", "order", "grüner Tee ✓")
    assert "gr\\xfcner Tee \\u2713" in dsa("show", "last", PYTHONIOENCODING="ascii").stdout
    assert "grüner Tee ✓" in dsa("show", "last", PYTHONIOENCODING="utf-8").stdout
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        for command in (["show", "last"], ["show", "last", "--jsonl"], ["runs"], ["replay", "last"]):
            done = subprocess.run(
                [*PROGRAM, *command], cwd=tmp_path, stdout=gone, stderr=subprocess.PIPE, check=False, timeout=120
            )
            assert (done.returncode, done.stderr) == (0, b"")


def test_mistake_gives_a_sentence_and_exit_code_2(dsa, tmp_path):
    write_shop(tmp_path)
    done = dsa("show", "last")
    assert (done.returncode, done.stderr) == (
        2,
        ".dsa: no run is stored here; `dsa run FILE` stores its run in .dsa, or in the folder DIR of --runs DIR\n",
    )
    dsa("run", "shop.md")
    for arguments, said in [
        (["show", "nope"], "no run 'nope' in .dsa; the newest: "),
        (["send", "last", "paid"], "'paid' does not come from outside"),
        (["resume", "last", "--retry", "1/1"], "is not in doubt; the effects and calls in doubt are: none"),
        (["resume", "last", "--with", "nowhere.py"], "nowhere.py"),
        (["replay", "last", "--against", "nowhere.md"], "nowhere.md: there is no such file"),
    ]:
        done = dsa(*arguments)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
    assert loads((next((tmp_path / ".dsa").glob("*-shop-*")) / "machine.md").read_text()).name == "shop"
