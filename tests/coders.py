"""Goals for tests of the coding machine, and models that play a part: each turn is derived from the messages it receives.

A player looks for the goal, the active subtask, the probe and the results of its own calls; when one is missing it stops cooperating and says
what it lacks, so that no test can pass with a blind model.
"""

import asyncio
import json
import re
from contextlib import contextmanager

import attrs
from chat_server import Said, playing

from dsa.runs.runs import open_runs
from dsa.runs.setup import Options
from machines.coding.coding_resources import settings_of
from machines.coding.work_session import Agent, WorkStart
from machines.tool_use.machine_session import SessionListeners

LOST = "LOST"


@attrs.define
class View:
    """What a model sees: its goal and subtask, files, the probe, and the calls of the last exchanges with their results."""

    goal: str
    task: str
    subtask: str
    files: str
    state: dict
    done: list
    notes: list
    blocked: bool

    def gave(self, tool):
        """Return the results of a tool in the last exchanges, oldest first."""
        return [result for name, _, result in self.done if name == tool]


def viewed(body):
    """Read a request. ValueError names what is missing."""
    told = body["messages"][1]["content"]
    found = {}
    for name in ("GOAL", "CURRENT TASK", "ACTIVE SUBTASK", "FILES CREATED", "STATE"):
        line = re.search(rf"^{name}: (.+)$", told, re.MULTILINE)
        if line is None:
            raise ValueError(f"no line {name}")
        found[name] = line[1]
    calls, done = {}, []
    _, _, behind = told.partition("\nSTATE: ")[2].partition("\n\n")  # notes that came before the first answer
    notes = [behind] if behind else []
    for message in body["messages"][2:]:
        for call in message.get("tool_calls") or ():
            calls[call["id"]] = call["function"]
        if message["role"] == "tool":
            function = calls[message["tool_call_id"]]
            done.append((function["name"], json.loads(function["arguments"]), json.loads(message["content"])))
        elif message["role"] == "user":
            notes.append(message["content"])
    state = json.loads(found["STATE"])
    if set(state) != {"files_written", "files_exist", "files_missing", "commands_run", "recent_errors"}:
        raise ValueError(f"the probe has {sorted(state)}")
    subtask, files = found["ACTIVE SUBTASK"], found["FILES CREATED"]
    return View(found["GOAL"], found["CURRENT TASK"], subtask, files, state, done, notes, "BLOCKED" in told)


def call(name, **arguments):
    """Ask for one call."""
    return Said(calls=((name, arguments),))


def complete(*, success=True, reason=""):
    """Return that the subtask is over."""
    return call("mark_subtask_complete", success=success, reason=reason)


def acting(plan, act):
    """Play a model that breaks a goal into `plan`, and then does what `act` makes of what it sees.

    It remembers the ids of its last calls: their results have to be in the next request.
    """
    asked = []

    def player(body, number):
        if not body.get("tools"):
            return Said(plan if isinstance(plan, str) else json.dumps(plan))
        answered = {message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"}
        if asked and not asked[-1] <= answered:
            return Said(f"{LOST}: no results of {sorted(asked[-1] - answered)}")
        try:
            said = act(viewed(body))
        except ValueError as error:
            return Said(f"{LOST}: {error}")
        ids = said.ids or tuple(f"call_{number}_{at}" for at in range(len(said.calls)))
        if ids:
            asked.append(set(ids))
        return attrs.evolve(said, ids=ids)

    return player


def forgetful(plan, act):
    """Play a model whose answers may be lost on the way to a process that is killed: it does not expect the results of what it has asked for."""

    def player(body, number):
        return acting(plan, act)(body, number)

    return player


def tasks(*each):
    """Return a plan: pairs of a description and its subtasks."""
    return [{"description": description, "subtasks": list(subtasks)} for description, *subtasks in each]


# -- the goals of the seed ------------------------------------------------------------------------------------------------

HELLO = "Write a hello world script"
HELLO_PLAN = tasks(("Create hello_world.py", "write_file hello_world.py with print statement"))


def hello(view):
    """Write the script, then say that it is there."""
    if "hello_world.py" not in view.state["files_exist"]:
        return call("write_file", path="hello_world.py", content="print('Hello, World!')\n")
    return complete() if view.gave("write_file") else Said(f"{LOST}: no result")


GAME = """import random
choice = input("rock, paper or scissors? ").strip()
other = random.choice(["rock", "paper", "scissors"])
beats = {"rock": "scissors", "paper": "rock", "scissors": "paper"}
print("draw" if choice == other else "you win" if beats[choice] == other else "you lose")
"""
ROCK = "Make a rock-paper-scissors game"
ROCK_PLAN = tasks(
    ("Create game script", "write_file rps_game.py with the game logic"),
    ("Test the game", "run_cmd python rps_game.py with stdin"),
)


def rock(view):
    """Write the game; play it, first without an input, then with one."""
    if view.subtask.startswith("write_file"):
        if "rps_game.py" in view.state["files_exist"]:
            return complete(reason="the game is written")
        return call("write_file", path="rps_game.py", content=GAME)
    ran = view.gave("run_cmd")
    if not ran:
        return call("run_cmd", cmd=["python", "rps_game.py"])
    if ran[-1]["rc"] != 0:
        assert "EOFError" in ran[-1]["output"]
        return call("run_cmd", cmd="python rps_game.py", stdin="rock\n")
    return complete(reason=ran[-1]["output"].split("?")[-1].strip())


PACKAGE = "Make a package mathx with add and mean, with tests"
PACKAGE_PLAN = tasks(
    ("Write the package", "write_files mathx/__init__.py and tests/test_mathx.py"),
    ("Test it", "run_cmd pytest and fix what fails"),
    ("Check it", "run_cmd ruff check . and fix what it finds"),
)
MATHX = '''"""A little arithmetic."""

import os


def add(a, b):
    return a + b


def mean(values):
    return sum(values) / 2
'''
TESTS = """from mathx import add, mean


def test_add():
    assert add(2, 3) == 5


def test_mean():
    assert mean([1, 2, 6]) == 3
"""


def package(view):
    """Write a package with two faults; find and fix one with pytest, the other with ruff."""
    ran = view.gave("run_cmd")
    if view.subtask.startswith("write_files"):
        if "mathx/__init__.py" in view.state["files_exist"]:
            return complete()
        files = [{"path": "mathx/__init__.py", "content": MATHX}, {"path": "tests/test_mathx.py", "content": TESTS}]
        return call("write_files", files=files)
    program, old, new = (
        (["python", "-m", "pytest", "-q"], "sum(values) / 2", "sum(values) / len(values)")
        if "pytest" in view.subtask
        else (["ruff", "check", "."], "import os\n\n\n", "")
    )
    mine = [result for name, given, result in view.done if name == "run_cmd" and given["cmd"] == program]
    if not mine or (mine[-1]["rc"] and view.done[-1][0] == "edit"):
        return call("run_cmd", cmd=program)
    if mine[-1]["rc"]:
        assert ran
        return call("edit", path="mathx/__init__.py", old=old, new=new)
    return complete(reason="it passes")


# -- holding an agent -----------------------------------------------------------------------------------------------------


def config_of(model, workspace, **more):
    """Return the settings of a run that needs no leave."""
    return {"model": model, "seed": 0, "mode": "full-auto", "workspace": str(workspace), **more}


@contextmanager
def resumed(runs, run_id, **how):
    """Take a run up that is kept in a folder."""
    said = {name: how.pop(name) for name in ("model", "budget") if name in how}
    listeners = SessionListeners(how.pop("on_moment", None))
    with open_runs(runs) as opened, Agent.resume(run_id, opened, listeners, options=Options(**said), **how) as agent:
        yield agent


def recorded(runs, run_id):
    """Return the entries of a run that is kept in a folder."""
    with open_runs(runs, must_exist=True) as opened:
        return opened.stored_run(run_id).entries


@contextmanager
def agent_at(
    tmp_path, goal, player, *, plan=(), parameters=None, module=None, on_moment=None, notice=lambda _: None, **config
):
    """Begin with a played model; gives the agent, and what the server has seen."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True, parents=True)
    with playing(player) as played:
        known = settings_of(config_of(played.model, workspace, **config))
        settings = WorkStart(goal, known, plan, parameters or {}, module)
        with (
            open_runs(tmp_path / "runs") as runs,
            Agent.begin(settings, runs, SessionListeners(on_moment, notice=notice)) as agent,
        ):
            yield agent, played
    assert played.faults == []


def worked(agent):
    """Work until it rests, and return the work."""
    asyncio.run(agent.go_on())
    return agent.work
