"""A goal of ten rounds whose actions cannot be repeated unnoticed, and a process that works at it and is killed after a number of ledger entries.

`python tests/coding_chaos.py RUNS WORKSPACE MODEL COUNT WHICH [RUN]` works at one of the `GOALS`; COUNT 0: until the end.
"""

import asyncio
import os
import signal
import sys
from functools import partial

from chat_server import Said
from coders import call, complete, config_of, tasks

from dsa.runs.runs import open_runs
from machines.coding.coding_resources import settings_of
from machines.coding.work_session import Agent, WorkStart
from machines.tool_use.machine_session import SessionListeners

GOAL = "Count to three, a line each, and say so in notes.md"
PLAN = tasks(
    ("Count", "write_file step.py, run_cmd it for 1 and 2"),
    ("Go on", "edit step.py, run_cmd it for 3", "write_file notes.md"),
)
STEP = """import sys
with open("done.txt", "a") as file:
    file.write(f"{sys.argv[1]}\\n")
"""
#: Several calls that only look, in one answer: they run side by side.
LOOKS = Said(calls=(("list_dir", {}), ("search", {"pattern": "sys"}), ("read_file", {"path": "done.txt"})))


def counting(view):
    """Count by a program that appends a line; what was cut off is looked at before it is done again."""
    last = view.done[-1] if view.done else ("", {}, {})
    ran = [each.split()[-1 - 2] for each in view.state["commands_run"] if each.endswith("-> rc=0")]
    seen = _seen(view)
    if last[2].get("error", {}).get("code") == "interrupted" and last[0] == "run_cmd":
        return LOOKS
    wanted = ("1", "2") if "1 and 2" in view.subtask else ("3",)
    if view.subtask == "write_file notes.md":
        return (
            complete()
            if "notes.md" in view.state["files_exist"]
            else call("write_file", path="notes.md", content="three lines\n")
        )
    if "step.py" not in view.state["files_exist"]:
        return call("write_file", path="step.py", content=STEP)
    if wanted == ("3",) and not any(name == "edit" and "result" in result for name, _, result in view.done):
        return call("edit", path="step.py", old="import sys\n", new="import sys  # edited\n")
    left = [number for number in wanted if number not in ran and number not in seen]
    if left:
        return call("run_cmd", cmd=["python", "step.py", left[0]])
    if last[0] != "read_file":
        return LOOKS
    return complete()


def _seen(view):
    """Read which lines the file had when it was looked at last."""
    texts = [
        result.get("content", "") for name, _, result in view.done if name == "read_file" and "error" not in result
    ]
    return texts[-1].split() if texts else []


TOGETHER = tasks(
    ("Begin", "write_file step.py"), ("Count", *(f"run_cmd python step.py {name}" for name in "ab")), ("End", "write_file notes.md")
)  # fmt: skip
TOGETHER[1]["independent"] = True
EACH = STEP.replace('"done.txt"', 'f"{sys.argv[1]}.txt"')


def counting_together(view):
    """Write the program, have two others run it, each once, write the notes."""
    if view.subtask.startswith("run_cmd"):
        name = view.subtask[-1]
        if not view.done:
            return call("run_cmd", cmd=["python", "step.py", name])
        if view.done[-1][2].get("error", {}).get("code") == "interrupted":
            return call("read_file", path=f"{name}.txt")
        if "error" in view.done[-1][2]:  # it was killed before it had begun
            return call("run_cmd", cmd=["python", "step.py", name], timeout_sec=30 + len(view.done))
        return complete()
    path = view.subtask.split()[-1]
    if path in view.state["files_exist"]:
        return complete()
    return call("write_file", path=path, content=EACH if path == "step.py" else "both counted\n")


#: A goal, its plan, what plays the model, settings.
GOALS = {"alone": (GOAL, PLAN, counting, {}), "together": ("Count with two others", TOGETHER, counting_together, {"parallel": 2})}  # fmt: skip


def main(runs, workspace, model, count, which, *run_id):
    """Work, and be killed after `count` entries that are durable, those of parts included."""
    left = int(count)

    def on_moment(_moment, is_new):
        nonlocal left
        left -= is_new
        if left == 0 and is_new:
            os.kill(os.getpid(), signal.SIGKILL)

    goal, _, _, config = GOALS[which]
    settings = WorkStart(goal, settings_of(config_of(model, workspace, **config)))
    with open_runs(runs) as opened:
        begin = partial(Agent.resume, *run_id) if run_id else partial(Agent.begin, settings)
        with begin(opened, SessionListeners(on_moment)) as agent:
            asyncio.run(agent.go_on())
            print(agent.state, agent.values["rounds"])


if __name__ == "__main__":
    main(*sys.argv[1:])
