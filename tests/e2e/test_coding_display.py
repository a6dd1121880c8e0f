"""Calls on the screen and in `agent_ledger.log`: time-outs, signals, commits, results of servers, calls that were not made."""

import io
import json
import re
import subprocess
from pathlib import Path

import attrs
import forked
import pytest
from chat_server import Said
from coders import acting, agent_at, call, complete, forgetful, resumed, tasks, worked
from rich.console import Console
from stored_runs import dsa

from dsa.runtime.ledger import EventEntry, RowEntry
from dsa.runtime.timeline import Moment
from machines.coding.coding_display import CodingDisplay
from machines.coding.workspace_view import LONGEST
from machines.tool_use.records import one_line

SERVER = str(Path(__file__).parent.parent / "mcp_server.py")
PLAN = tasks(("Do it", "list_dir what there is"))


def at_once(*calls, then=()):
    """Play a model that makes these calls in one answer, then completes, with further calls after that."""
    answers = iter([Said(calls=calls), Said(calls=(("mark_subtask_complete", {"success": True}), *then))])
    return lambda _view: next(answers)


def shown(tmp_path, act, **config):
    """Work, and return the screen, the ledger for people and the state."""
    file = io.StringIO()
    display = CodingDisplay(Console(file=file, width=200, color_system=None))
    with agent_at(tmp_path, "Do it", acting(PLAN, act), on_moment=display.on_moment, **config) as (agent, _):
        worked(agent)
        assert agent.state == "goal_complete"
    lines = (tmp_path / "workspace" / "agent_ledger.log").read_text().splitlines(keepends=True)
    return file.getvalue(), "".join(line for line in lines if not line.startswith("SUBTASK"))


def workspace_of(tmp_path, **files):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name, text in files.items():
        (workspace / f"{name}.py").write_text(text)
    return workspace


@pytest.mark.parametrize(
    ("program", "screen", "line"),
    [
        ("import time; print('begun', flush=True); time.sleep(99)", "  begun\n  timed out\n", "timed out"),
        ("import os; os.kill(os.getpid(), 9)", "  ended by SIGKILL\n", "ended by SIGKILL"),
        ("import sys; sys.exit(3)", "  rc=3\n", "rc=3"),
        ("print('fine')", "  fine\n", "rc=0"),
    ],
)
def test_end_of_a_command_is_shown_and_logged(tmp_path, program, screen, line):
    workspace_of(tmp_path, x=program)
    told, log = shown(tmp_path, at_once(("run_cmd", {"cmd": ["python", "x.py"], "timeout_sec": 1})))
    assert f"run_cmd  python x.py\n{screen}round 2" in told
    assert log == f"CMD python x.py -> {line}\n"


def test_token_count_continues_after_a_resume(tmp_path):
    plan, files = acting(PLAN, at_once(("list_dir", {}))), [io.StringIO(), io.StringIO()]
    first, then = (CodingDisplay(Console(file=file, width=200, color_system=None)) for file in files)

    def costs(body, number):
        return attrs.evolve(plan(body, number), tokens=617)

    budget = ["ask_model.calls=1"]
    with agent_at(tmp_path, "Do it", costs, budget=budget, on_moment=first.on_moment) as (agent, played):
        assert worked(agent).paused_for
        again = {"model": played.model, "budget": ["ask_model.calls=9"], "on_moment": then.on_moment}
        with resumed(tmp_path / "runs", agent.run_id, **again) as other:
            worked(other)
            assert other.state == "goal_complete"
    before, behind = ([line for line in file.getvalue().splitlines() if line.startswith("round")] for file in files)
    told = [re.sub(r"\d+\.\d s", "T s", line) for line in (*before, *behind)]
    rounds = ["round 1 of 24, T s, 617 tokens so far", *["round 2 of 24, T s, 1,234 tokens so far"] * 2]
    assert told == rounds  # the round in which the budget was spent starts again


def test_cost_count_continues_after_a_resume():
    usage = {"prompt_tokens": 1_000, "completion_tokens": 234, "cost_usd": 0.5}
    file = io.StringIO()
    display = CodingDisplay(Console(file=file, width=200, color_system=None))
    answered = (EventEntry(1, "asked", data={"usage": usage}), RowEntry(1, "working.thinking", "working.calling"))
    probed = (
        EventEntry(2, "probed", data={}),
        RowEntry(1, "working.probing", "working.thinking", changed=(("rounds", 2),)),
    )
    for number, (entry, is_new) in enumerate(
        [*((each, False) for each in answered), *((each, True) for each in probed)], 1
    ):
        display.on_moment(Moment("r", number, entry), is_new)
    assert file.getvalue() == "round 2, 0.0 s, 1,234 tokens, $0.50 so far\n"


def test_commit_and_git_output_are_shown_and_the_commit_is_logged(tmp_path):
    workspace = workspace_of(tmp_path)
    for command in (("init", "-q"), ("config", "user.name", "A"), ("config", "user.email", "a@example.org")):
        subprocess.run(["git", *command], cwd=workspace, check=True)
    act = at_once(
        ("write_file", {"path": "a.txt", "content": "a\n"}),
        ("git_commit", {"message": "Say a"}),
        ("git_log", {}),
        ("write_file", {"path": "b.txt", "content": "b\n"}),
        ("git_status", {}),
    )
    told, log = shown(tmp_path, act, commit=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=workspace, capture_output=True, text=True, check=True)
    commit = head.stdout[:12]
    assert f"\n  commit {commit}: a.txt\n" in told
    assert f"\n  {commit} Say a\n" in told
    assert "\n  untracked: b.txt\n" in told
    assert log.splitlines() == ["WRITE a.txt", f"COMMIT {commit} Say a", "WRITE b.txt"]


def test_later_commit_contains_what_changed_since(tmp_path):
    workspace = workspace_of(tmp_path, old="1\n", rm="import os\nos.remove('gone.py')\n", gone="1\n")
    for command in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=A", "-c", "user.email=a@b.c", "commit", "-qm", "0"),
    ):
        subprocess.run(["git", *command], cwd=workspace, check=True)
    act = at_once(
        ("write_file", {"path": "a.py", "content": "a\n"}),
        ("git_commit", {"message": "one"}),
        ("write_file", {"path": "b.py", "content": "b\n"}),
        ("edit", {"path": "old.py", "old": "1", "new": "2"}),
        ("run_cmd", {"cmd": ["python", "rm.py"]}),
        ("git_commit", {"message": "two"}),
        ("git_commit", {"message": "three"}),
    )
    told, _ = shown(tmp_path, act, commit=True)
    assert re.findall(r"commit \w{12}: (.*)", told) == ["a.py", "b.py, gone.py, old.py"]
    assert told.count("nothing_to_commit: nothing has changed in the files that this run has written") == 1
    status = subprocess.run(["git", "status", "--short"], cwd=workspace, capture_output=True, text=True, check=True)
    assert [line for line in status.stdout.splitlines() if "agent_" not in line] == []


def test_run_without_changes_does_not_commit_files_of_the_user(tmp_path):
    workspace = workspace_of(tmp_path, mine="not to be committed yet\n")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    act = at_once(("list_dir", {}), ("git_commit", {"message": "all of it"}))
    told, _ = shown(tmp_path, act, commit=True)
    assert "nothing_to_commit: this run has not changed any file" in told
    status = subprocess.run(["git", "status", "--short"], cwd=workspace, capture_output=True, text=True, check=True)
    assert "?? mine.py" in status.stdout.splitlines()


def test_server_tool_results_are_shown_and_calls_logged_unless_read_only(tmp_path):
    workspace_of(tmp_path)
    act = at_once(("words__lookup", {"key": "dsa"}), ("words__word_count", {"text": "a b c"}))
    mcp = {
        "words": {
            "command": [*forked.SCRIPT, SERVER],
            "env": forked.variables(forked.MCP),
            "approve": "always",
        }
    }
    told, log = shown(tmp_path, act, mcp=mcp)
    assert 'words__lookup  {"key": "dsa"}\n  a framework of state machines\n' in told
    assert "  3\n" in told
    assert log == 'CALL words__lookup {"key": "dsa"}\n'


def test_polled_read_only_call_is_not_logged(tmp_path):
    workspace_of(tmp_path)
    _, log = shown(tmp_path, at_once(("list_dir", {})), polling=["list_dir"])
    assert log == ""


def test_arguments_of_server_tools_are_shown_unchanged_under_any_name(tmp_path):
    workspace_of(tmp_path)
    given = [{"files": ["a.txt", "b.txt"]}, {"path": ["a.txt"]}, {"path": 5}, {"files": {"a": 1}}, {"cmd": "x" * 200}, {"files": "a"}]  # fmt: skip
    calls = [("words__lookup", {"key": "dsa", **each}) for each in given]
    mcp = {
        "words": {
            "command": [*forked.SCRIPT, SERVER],
            "env": forked.variables(forked.MCP),
            "approve": "always",
        }
    }
    told, log = shown(tmp_path, at_once(*calls), mcp=mcp)
    lines = [f"words__lookup  {one_line(json.dumps(each, sort_keys=True), LONGEST)}" for _, each in calls]
    assert [line for line in told.splitlines() if line.startswith("words__lookup")] == lines
    assert [line.startswith('CALL words__lookup {"') for line in log.splitlines()] == [True] * len(calls)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pattern": "def "}, '"def "'),
        ({"pattern": "x  y", "path": "src", "glob": "*.py"}, '"x y" in src *.py'),
    ],
)
def test_search_pattern_is_shown(tmp_path, given, words):
    workspace_of(tmp_path)
    told, _ = shown(tmp_path, at_once(("search", given), ("list_dir", {})))
    assert f"search  {words}\n" in told


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 call after it was not made"), (2, "2 calls after it were not made")]
)
def test_calls_after_a_completion_are_reported_as_not_made(tmp_path, count, words):
    workspace_of(tmp_path)
    behind = [("write_file", {"path": f"{number}.txt", "content": "x"}) for number in range(count)]
    told, _ = shown(tmp_path, at_once(("list_dir", {}), then=behind))
    assert f"subtask completed: done\n  {words}\n" in told
    assert list((tmp_path / "workspace").glob("*.txt")) == []


def test_completion_without_later_calls_mentions_none(tmp_path):
    workspace_of(tmp_path)
    told, _ = shown(tmp_path, lambda view: complete() if view.done else call("list_dir"))
    assert " after it w" not in told


def test_list_of_runs_shows_the_subtask_of_each_part(tmp_path):
    plan = tasks(("Both", "write_file a.txt", "write_file b.txt"))
    plan[0]["independent"] = True
    with agent_at(tmp_path, "Do it", forgetful(plan, lambda _: complete(success=False)), parallel=2) as (agent, _):
        worked(agent)
    told = sorted(each["about"] for each in json.loads(dsa("runs", "--json", "--runs", str(tmp_path / "runs")).stdout))
    assert told == ["Do it", "write_file a.txt", "write_file b.txt"]


def test_shortened_result_says_how_much_is_missing_and_how_to_get_it(tmp_path):
    """This holds for each tool with a limit on its result, and for old results that are shortened to make room."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "long.txt").write_text("needle\n" * 20_000)
    (workspace / "many").mkdir()
    for number in range(250):
        (workspace / "many" / f"{number:03}").touch()
    (workspace / "talk.py").write_text("print('x' * 50_000)\n")
    asked = (
        ("read_file", {"path": "long.txt"}),
        ("list_dir", {"path": "many"}),
        ("search", {"pattern": "needle"}),
        ("run_cmd", {"cmd": ["python", "talk.py"]}),
    )
    answers = iter([Said(calls=asked), *[call("read_file", path="long.txt", offset=n) for n in (1, 2)], complete()])
    plan = tasks(("Do", "list_dir ."))
    with agent_at(tmp_path, "do it", acting(plan, lambda _: next(answers)), context_tokens=60_000) as (agent, played):
        worked(agent)
    first, last = (
        [json.loads(m["content"]) for m in played.requests[n]["messages"] if m["role"] == "tool"][:4] for n in (2, -1)
    )
    read, listed, searched, ran = first
    assert (read["truncated"], read["next_offset"]) == (True, 65_536)
    assert "continue with offset=65536" in read["result"]
    assert "50 more are not shown: continue with offset=200" in listed["result"]
    assert "at least 9,900 more are not shown: narrow path, glob or pattern" in searched["result"]
    assert (
        ran["left_out"]
        == "34,001 characters of the output are left out: let the command print less, or print into a file and read the file"
    )
    short = [each for each in last if "shortened" in each]
    assert short
    assert all("characters left out: call again for them" in each["shortened"] for each in short)
