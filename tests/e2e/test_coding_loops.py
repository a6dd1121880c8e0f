"""Calls that repeat in loops, through the real dispatch: patterns that have to end, and legitimate ones that have to pass."""

import io
import itertools
import json

import pytest
from chat_server import Said
from coders import acting, agent_at, call, complete, forgetful, tasks, worked
from rich.console import Console

from machines.coding.coding_display import CodingDisplay

PLAN = tasks(("Do it", "write_file what is wanted"))
PARTS = {f"f{number}.txt": f"{number}\n" for number in range(12)}


def again(*said, ids=None):
    """Play a model that repeats these answers for ever."""
    turns = itertools.cycle(said)
    return lambda _view: next(turns)


def guessing(view):
    """Edit a missing text, a different one each time."""
    return call("edit", path="f1.txt", old=f"no such text {len(view.state['recent_errors'])} {len(view.done)}", new="x")


def in_turn(*said):
    """Play a model that gives these answers, and then says that it is done."""
    turns = iter(said)
    return lambda _view: next(turns, complete())


def write(content, path="a.txt", **more):
    return call("write_file", path=path, content=content, **more)


def write_files(paths):
    return call("write_files", files=[{"path": path, "content": "x\n"} for path in paths])


def read(path, **more):
    return call("read_file", path=path, **more)


def run(*argv):
    return call("run_cmd", cmd=list(argv))


FAILS, PASSES = run("python", "fails.py"), run("python", "passes.py")
FAILING = tuple(f"fails{number}.py" for number in range(6))
FILES = {
    **dict.fromkeys(FAILING, "import nothing_of_the_kind\n"),
    "fails.py": "raise SystemExit('it is broken')\n",
    "passes.py": "print('fine')\n",
    **PARTS,
}
SIX = tuple(f"f{number}.txt" for number in range(6))
#: By name: the answers that repeat, and how many tool calls have happened when the work ends.
CIRCLES = {
    "the same file written": (again(write("one\n")), 2),
    "the same file written in different ways": (
        again(
            write("one\n"),
            call("write_file", file="./a.txt", text="one\n"),
            call("createFile", filename="a.txt", contents="one\n"),
            call("write_file", path="a.txt", content=["one", ""], create_dirs=False),
        ),
        2,
    ),
    "the same call many times at once, with new ids": (
        again(Said(calls=(("write_file", {"path": "a.txt", "content": "one\n"}),) * 6)),
        2,
    ),
    "a command that fails": (again(FAILS), 2),
    "a command that succeeds": (again(PASSES), 2),
    "a command written in different ways": (
        again(
            run("python", "passes.py"),
            call("run_cmd", cmd="python passes.py"),
            call("bash", command="python  passes.py", timeout=5),
            call("run_cmd", cmd='["python", "passes.py"]', cwd="./"),
        ),
        2,
    ),
    "a file that is read and stays the same": (again(read("f1.txt")), 2),
    "two contents written alternately": (again(write("one\n"), write("two\n")), 3),
    "three files read in turn": (again(read("f1.txt"), read("f2.txt"), read("f3.txt")), 5),
    "an edit that fails in the same way": (guessing, 3),
    "a write, and a command that changes nothing": (again(write("one\n"), PASSES), 3),
    "a path outside the workspace": (again(read("../secret")), 0),
    "the same files written in different ways": (
        again(
            write_files(("a.txt", "b.txt")),
            write_files(("./././a.txt", "b.txt")),
            write_files(("b.txt", "c/../a.txt")),
            call("write_files", files={"./b.txt": "x\n", "a.txt": "x\n"}),
        ),
        2,
    ),
    "six files written in each answer": (
        again(Said(calls=tuple(("write_file", {"path": name, "content": "x\n"}) for name in SIX))), 12,
    ),
    "six files read in each answer": (again(Said(calls=tuple(("read_file", {"path": name}) for name in SIX))), 12),
}  # fmt: skip
LEGITIMATE = {
    "tests between edits": [
        step for number in range(5) for step in (PASSES, call("edit", path=f"f{number}.txt", old=str(number), new="x"))
    ],
    "a declared poll": [call("git_status")] * 6,
    "a file that grows is read again": [
        step for number in range(5) for step in (write("x\n" * number, "log.txt"), read("log.txt"))
    ],
    "a folder is listed while files are added": [
        step for number in range(5) for step in (write("x\n", f"new{number}.txt"), call("list_dir", path="."))
    ],
    "a file is read in parts": [read("f1.txt", offset=number) for number in range(6)],
    "a command is run again after a missing file is added": [
        run("python", "late.py"), write("print('now')\n", "late.py"), run("python", "late.py"), write("print('then')\n", "late.py"),
        run("python", "late.py"),
    ],
    "the same file is read twice": [read("f1.txt"), read("f1.txt"), read("f2.txt")],
}  # fmt: skip


def begun(tmp_path, act, plan=PLAN, **config):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name, text in FILES.items():
        (workspace / name).write_text(text)
    bounds = {"max_rounds": 24, "max_turns": 24}
    return agent_at(tmp_path, "do it", acting(plan, act), parameters=bounds, **config)


@pytest.mark.parametrize("name", CIRCLES)
def test_repeating_calls_are_blocked_and_then_end_the_work(tmp_path, name):
    act, most = CIRCLES[name]
    with begun(tmp_path, act) as (agent, _):
        work = worked(agent)
    assert agent.state == "blocked"
    assert sum(work.tools.values()) == most
    refusals = sum(each.status not in {"done", "failed"} for each in work.calls)
    assert refusals >= 1
    assert work.reasons["loop_ended"] == 1
    assert agent.values["rounds"] <= 12
    told = json.loads((tmp_path / "workspace" / ".agent_context" / "loops.json").read_text())
    assert told[-1]["level"] == "end"


def test_answers_without_calls_get_one_reminder(tmp_path):
    with begun(tmp_path, again(Said("I am thinking."))) as (agent, played):
        work = worked(agent)
    assert (agent.state, work.reasons["no_call"], agent.values["rounds"]) == ("answered", 1, 2)
    assert "mark_subtask_complete" in played.requests[-1]["messages"][-1]["content"]


def test_second_equal_call_gets_a_note_and_the_third_is_blocked(tmp_path):
    with begun(tmp_path, in_turn(write("one\n"), write("one\n"), write("one\n"))) as (agent, played):
        worked(agent)
    results = [json.loads(m["content"]) for m in played.requests[-1]["messages"] if m["role"] == "tool"]
    assert "note" not in results[0]
    assert "2 times" in results[1]["note"]
    assert results[2]["error"]["code"] == "call_looping"
    assert "Try something else" in results[2]["error"]["message"]
    assert "BLOCKED" in played.requests[-1]["messages"][1]["content"]
    assert agent.state == "goal_complete"


def test_call_that_ends_the_work_says_so_and_later_calls_are_skipped(tmp_path):
    same = Said(calls=(("write_file", {"path": "a.txt", "content": "one\n"}),) * 7)
    told = Console(file=io.StringIO(), width=500)
    with begun(tmp_path, again(same), on_moment=CodingDisplay(told).on_moment) as (agent, _):
        work = worked(agent)
    ended = ["done", "done", "call_looping", "call_looping", "loop_ended", "too_many_calls", "too_many_calls"]
    assert [each.status for each in work.calls] == ended
    assert [each.result["error"]["code"] for each in work.calls[2:]] == ended[2:]
    assert (work.reasons["loop_ended"], work.reasons["too_many_calls"], work.transcript.open_ids()) == (1, 0, ())
    log = (tmp_path / "workspace" / "agent_ledger.log").read_text().splitlines()
    assert log[-3:] == [
        "TRIED write_file a.txt (loop_ended)",
        *['TRIED write_file {"content": "one\\n", "path": "a.txt"} (too_many_calls)'] * 2,
    ]
    assert "2 calls after it were not made" in told.file.getvalue()
    rounds = json.loads((tmp_path / "workspace" / ".agent_context" / "loops.json").read_text())
    assert [(each["times"], each["why"].split(" with ")[0]) for each in rounds] == [
        (times, f"this is call {times} of write_file") for times in range(2, 6)
    ]


TICKS = "import time\nprint('progress', time.monotonic_ns())\n"


@pytest.mark.parametrize("polling", [(), ("python ticks.py",), ("python other.py",)])
def test_command_with_changing_outcomes_is_not_called_the_same_and_may_be_polled(tmp_path, polling):
    with begun(tmp_path, in_turn(*[run("python", "ticks.py")] * 8), polling=list(polling)) as (agent, played):
        (tmp_path / "workspace" / "ticks.py").write_text(TICKS)
        work = worked(agent)
    sent = json.dumps([request["messages"] for request in played.requests])
    assert "same outcome" not in sent
    assert ("with a different outcome" in sent) == (polling != ("python ticks.py",))
    made = [each.status for each in work.calls].count("done")
    assert (agent.state, made) == (("goal_complete", 8) if polling == ("python ticks.py",) else ("blocked", 2))


def test_polled_command_with_an_unchanging_outcome_is_blocked(tmp_path):
    with begun(tmp_path, again(PASSES), polling=["python passes.py"]) as (agent, played):
        work = worked(agent)
    assert (agent.state, work.tools["run_cmd done"]) == ("blocked", 10)
    sent = json.dumps([request["messages"] for request in played.requests])
    assert "You have now made exactly this call 2 times, with the same outcome." in sent


@pytest.mark.parametrize("name", LEGITIMATE)
def test_calls_that_make_progress_pass(tmp_path, name):
    config = {"polling": ["git_status"]} if "poll" in name else {}
    with begun(tmp_path, in_turn(*LEGITIMATE[name]), **config) as (agent, _):
        work = worked(agent)
    assert work.blocked_calls == {}
    assert agent.state == "goal_complete"
    assert sum(work.tools.values()) == len(LEGITIMATE[name])


def test_calls_of_one_answer_are_not_refused_for_errors_the_model_has_not_seen(tmp_path):
    at_once = Said(calls=tuple(("run_cmd", {"cmd": ["python", name]}) for name in FAILING))
    with begun(tmp_path, in_turn(at_once, FAILS)) as (agent, played):
        work = worked(agent)
    assert [each.status for each in work.calls] == ["done"] * 7 + ["subtask_completed"]
    assert len(set(work.errors[:6])) == 6
    assert {error.partition(":")[2] for error in work.errors[:6]} == {
        " ModuleNotFoundError: No module named 'nothing_of_the_kind'"
    }
    assert (agent.state, work.blocked_calls, len(played.requests)) == ("goal_complete", {}, 4)


def test_repeated_error_is_blocked_but_does_not_end_the_work(tmp_path):
    """Another program may show the cause, and so may any other call that only reads."""
    programs = [run("python", name) for name in FAILING]
    with begun(tmp_path, in_turn(*programs, run("ruff", "check", "fails0.py"), FAILS)) as (agent, _):
        work = worked(agent)
    assert [each.status for each in work.calls] == [
        *["done"] * 3, *["call_looping"] * 3, "done", "done", "subtask_completed",
    ]  # fmt: skip
    assert agent.state == "goal_complete"


def test_later_subtask_may_read_the_same_file_again(tmp_path):
    looks = [read("f1.txt"), read("f1.txt"), *map(read, sorted(PARTS)[2:])]
    plan = tasks(("Do it", "read_file f1.txt", "read_file f1.txt"))
    with begun(tmp_path, in_turn(*looks, read("f1.txt"), complete(), read("f1.txt")), plan=plan) as (agent, _):
        work = worked(agent)
    assert [each.status for each in work.calls[len(looks) :]] == [
        "call_looping", "subtask_completed", "done", "subtask_completed",
    ]  # fmt: skip
    assert agent.state == "goal_complete"


# -- the same in parts of a run --------------------------------------------------------------------------------------------


def beside(act):
    """Let one part act, and another one list the folder."""

    def each(view):
        if view.subtask == "list_dir .":
            return complete() if view.gave("list_dir") else call("list_dir", path=".")
        return act(view)

    return each


def begun_in_parts(tmp_path, act, **config):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    for name, text in FILES.items():
        (workspace / name).write_text(text)
    plan = tasks(("Do both", "write_file what is wanted", "list_dir ."))
    plan[0]["independent"] = True
    bounds = {"max_rounds": 60, "max_turns": 30}
    return agent_at(tmp_path, "do it", forgetful(plan, beside(act)), parameters=bounds, parallel=2, **config)


@pytest.mark.parametrize("name", CIRCLES)
def test_repeating_calls_of_a_part_end_that_part(tmp_path, name):
    act, most = CIRCLES[name]
    with begun_in_parts(tmp_path, act) as (agent, _):
        work = worked(agent)
    subtasks = [(each.status, each.reason) for each in work.chapters[0].subtasks]
    assert subtasks == [("failed", "it repeated calls without effect"), ("completed", "done")]
    assert agent.state == "escalated"
    assert sum(work.tools.values()) == most + 1  # the call of the other part


@pytest.mark.parametrize("name", LEGITIMATE)
def test_calls_that_make_progress_pass_in_a_part(tmp_path, name):
    config = {"polling": ["git_status"]} if "poll" in name else {}
    with begun_in_parts(tmp_path, in_turn(*LEGITIMATE[name]), **config) as (agent, _):
        work = worked(agent)
    assert work.blocked_calls == {}
    assert agent.state == "goal_complete"
    assert sum(work.tools.values()) == len(LEGITIMATE[name]) + 1
