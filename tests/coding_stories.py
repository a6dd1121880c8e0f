"""Runs that together take every row of the coding machine, as text: what the model says, what the user does, which bounds hold, what fails."""

import asyncio
import json
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import attrs
from chat_server import Said, playing
from coders import call, complete, config_of, tasks
from row_stories import HANGS, Hanging, InOrder, as_text, lived, with_faults

from dsa.edge.document_files import load, locate
from dsa.runs.bindings import bind
from dsa.semantics import Occurrence
from machines.coding.coding_resources import RESOURCES, resources_in


@attrs.frozen
class Story:
    """What is said in turn (HANGS: no answer comes), what the user does, bounds, the mode, effects that fail.

    A user's `stopped` comes at the moment when the model hangs. `wrong` are effects that answer with what they never would.
    """

    said: tuple
    does: tuple = ("goal",)
    bounds: tuple = ()
    mode: str = "full-auto"
    broken: frozenset = frozenset()
    stopped: str = ""
    parallel: int = 1
    wrong: tuple = ()


def planned(*subtasks):
    """Answer with a plan of one task."""
    return Said(json.dumps(tasks(("Do it", *subtasks))))


def calls(*pairs):
    """Ask for several calls at once."""
    return Said(calls=pairs)


def both(*before):
    """Answer with subtasks that need nothing of one another, behind others."""
    plan = tasks(("Do both", "write_file a.txt", "write_file b.txt"))
    plan[0]["independent"] = True
    return Said(json.dumps([*tasks(*(("Do it", each) for each in before)), *plan]))


ONE, TWO = planned("write_file a.txt"), planned("write_file a.txt", "write_file b.txt")
NO_PLAN, ABSTRACT = Said("I shall think about it."), planned("Think about it")
WRITE = call("write_file", path="a.txt", content="one\n")
LOOK = call("list_dir", path=".")
GIVE_UP = complete(success=False, reason="it cannot be done")
LOOKING, NOTHING = ("list_dir", {"path": "."}), ("sing", {})
READING, SEARCHING = ("read_file", {"path": "a.txt"}), ("search", {"pattern": "one"})
WRITING, LEADING_OUT = ("write_file", {"path": "a.txt", "content": "one\n"}), ("read_file", {"path": "../secret"})
COMPLETING, GIVING_UP = (("mark_subtask_complete", {"success": is_done}) for is_done in (True, False))
WORDS = Said("It is done.")
OUT, SHELL = call("read_file", path="../secret"), call("run_cmd", cmd="ls | wc")
SAME = (WRITE,) * 5
FAILS = Said("no", status=400)
STORIES = {
    "one subtask": Story((ONE, WRITE, complete())),
    "two subtasks": Story((TWO, WRITE, complete(), call("write_file", path="b.txt", content="two\n"), complete())),
    "the user has the tasks": Story((WRITE, complete()), ("planned",)),
    "the user's list has no tasks": Story((), ("planned nothing",)),
    "a plan that cannot be used, then one": Story((ABSTRACT, ONE, WRITE, complete())),
    "no plan at all": Story((NO_PLAN, NO_PLAN, WRITE, complete())),
    "leave is given": Story((ONE, WRITE, complete()), ("goal", "permitted"), mode="ask"),
    "nobody is asked for an edit that cannot be made": Story((ONE, call("edit", path="a.txt", old="x", new="y"), GIVE_UP), mode="ask"),
    "leave is not given": Story((ONE, WRITE, GIVE_UP), ("goal", "denied"), mode="ask"),
    "the user stops at a question": Story((ONE, WRITE), ("goal", "stopped"), mode="ask"),
    "the user stops the plan": Story((HANGS,), stopped="stopped"),
    "the user stops the work": Story((ONE, LOOK, HANGS), stopped="stopped"),
    "one subtask fails": Story((TWO, GIVE_UP, call("write_file", path="b.txt", content="two\n"), complete())),
    "the rounds of a subtask are used up": Story((TWO, LOOK, WRITE, complete()), bounds=(("max_turns", 1),)),
    "the rounds are used up": Story((ONE, LOOK, WRITE), bounds=(("max_rounds", 2),)),
    "the rounds are used up with the plan": Story((TWO, WRITE, complete()), bounds=(("max_rounds", 2),)),
    "words, then a call": Story((ONE, WORDS, WRITE, WORDS, complete())),
    "words, and words again": Story((ONE, WORDS, WORDS)),
    "an answer that is cut off": Story((ONE, Said("It is", finish="length"), WRITE, complete())),
    "the same again and again": Story((ONE, *SAME)),
    "the same again, then something else": Story((ONE, WRITE, WRITE, WRITE, complete())),
    "too many calls": Story((ONE, calls(LOOKING, LOOKING), WRITE, complete()), bounds=(("max_calls", 1),)),
    "too many calls of nothing": Story((ONE, calls(LOOKING, NOTHING), WRITE, complete()), bounds=(("max_calls", 1),)),
    "a call of nothing": Story((ONE, calls(NOTHING), WRITE, complete())),
    "a path that leads out": Story((ONE, OUT, WRITE, complete())),
    "a command with a pipe": Story((ONE, SHELL, WRITE, complete())),
    "a mode that only reads": Story((planned("list_dir ."), WRITE, LOOK, complete()), mode="read-only"),
    "a call that fails": Story((ONE, call("read_file", path="a.txt"), WRITE, complete())),
    "completed without a result": Story((ONE, complete(), complete())),
    "completed without a result, then done": Story((ONE, complete(), WRITE, complete())),
    "completed without a result in each subtask": Story((TWO, complete(), complete(), complete(), complete())),
    "the model fails at the plan": Story((FAILS, ONE, WRITE, complete()), ("goal", "again")),
    "the model fails": Story((ONE, WRITE, FAILS, complete()), ("goal", "again")),
    "the model fails, and the user stops": Story((ONE, WRITE, FAILS), ("goal", "stopped")),
    "two at once": Story((both(),), parallel=2),
    "two at once behind another": Story((both("write_file the first"), WRITE, complete()), parallel=2),
    "two at once, which fail": Story((both(), GIVE_UP, GIVE_UP), parallel=2),
    "two at once, and the model fails": Story((both(), FAILS, FAILS), ("goal", "again"), parallel=2),
    "no round for two at once": Story((both("write_file the first"), WRITE, complete()), bounds=(("max_rounds", 2),), parallel=2),
    "looks side by side": Story((ONE, calls(LOOKING, READING, SEARCHING), WRITE, complete())),
    "looks, then an edit and a look": Story((ONE, calls(LOOKING, READING, WRITING, LOOKING), complete())),
    "the same look twice at once": Story((ONE, calls(LOOKING, LOOKING, READING), WRITE, complete())),
    "a look, then it is completed": Story((planned("list_dir ."), calls(LOOKING, COMPLETING))),
    "a look, then the model gives up": Story((ONE, calls(LOOKING, GIVING_UP))),
    "a look, and a call of nothing": Story((ONE, calls(LOOKING, NOTHING, READING), WRITE, complete())),
    "a look, and a path that leads out": Story((ONE, calls(LOOKING, LEADING_OUT, READING), WRITE, complete())),
    "a look, and leave for an edit": Story((ONE, calls(LOOKING, WRITING), complete()), ("goal", "permitted"), mode="ask"),
    "one of two looks fails by itself": Story((ONE, calls(LOOKING, READING)), broken=frozenset({"run_tool"})),
    "nothing to begin with": Story((ONE,), wrong=(("advance", "none_left"),)),
    "the probe fails": Story((ONE,), broken=frozenset({"probe"})),
    "a call cannot be read by us": Story((ONE, WRITE), broken=frozenset({"next_call"})),
    "a tool fails by itself": Story((ONE, WRITE), broken=frozenset({"run_tool"})),
    "the next subtask cannot be found": Story((ONE, WRITE, complete()), broken=frozenset({"advance"})),
}  # fmt: skip


def _occurrence(event):
    match event:
        case "goal":
            return Occurrence("goal", data={"text": "Write a.txt"})
        case "planned":
            return Occurrence("planned", data={"text": "Write a.txt", "tasks": tasks(("Do it", "write_file a.txt"))})
        case "planned nothing":
            return Occurrence("planned", data={"text": "Write a.txt", "tasks": []})
    return Occurrence(event)


def play(machine, told, folder):
    """Play a story on a machine, in a workspace of its own, and return how it ended."""
    machine = machine.at(**dict(told.bounds)) if told.bounds else machine
    workspace, runs = (Path(mkdtemp(dir=folder)) for _ in range(2))
    player = Hanging(told.said, complete())
    with playing(player) as played:
        config = config_of(played.model, workspace, mode=told.mode, parallel=told.parallel)
        config |= {"runs": str(runs), "budget": []}
        binding = bind(machine, path=locate("coding"), model=played.model, seed=0, config=config)
        order = InOrder(("run_tool",), "next_call")
        binding = order.bound(with_faults(binding, told.broken, dict(told.wrong)))
        (runs / "r").mkdir()
        agent = resources_in(binding.config, "r")
        try:
            does = map(_occurrence, told.does)
            return asyncio.run(lived(machine, binding, does, player, told.stopped, order)), played
        finally:
            RESOURCES.release(agent)


def told(machine, name, folder):
    """Tell a story."""
    return as_text(lambda: play(machine, STORIES[name], folder))


@cache
def shipped():
    """The coding machine."""
    return load("coding")
