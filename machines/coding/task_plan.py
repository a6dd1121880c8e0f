"""A goal broken into tasks and subtasks (seed 003, task decomposition): read from what a model says, checked, or taken from a template.

Takes texts, gives tasks and what is the matter with them. Whether they are good enough the guard `concrete` says, by the faults. Pure.

How tasks, subtasks and calls stand, and why something was not done as the model asked.

What stands so is for `Work` to say: here are its words.

What the events of the coding machine bring, as records of their data: a goal, tasks, a call as it is meant, what came of it, what parts have done.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from machines.coding.coding_tools import TOOLS, Did, Kind, Round, digest_of, tool_of
from machines.coding.tools.workspace import FileEdit
from machines.tool_use.records import JsonObject, short
from machines.tool_use.tool_call import CallFault, ModelAnswer
from machines.tool_use.transcript import Notice

MOST_TASKS, MOST_SUBTASKS, LONGEST = 3, 8, 400
#: Words with which something begins that is thought, not done; each may still name a tool or a file.
_ABSTRACT = frozenset({
    "analyse", "analyze", "choose", "consider", "decide", "define", "design", "determine", "discuss", "evaluate", "explore", "figure",
    "identify", "learn", "plan", "research", "review", "select", "think", "understand",
})  # fmt: skip
_CONCRETE = re.compile(
    rf"\b(?:{'|'.join(tool.name for tool in TOOLS)})\b"
    r"|[\w-]+\.[A-Za-z]{1,5}\b|[\w.-]+/[\w.-]+"
    r"|\b(?:python|pytest|ruff|mypy|pip|make|npm|cargo|git)\b"
)


@attrs.frozen
class Task:
    """What is to be reached, and the subtasks that lead there, in order; `independent`: they need nothing of one another."""

    description: str
    subtasks: tuple[str, ...]
    independent: bool = False


def read_plan(text: str) -> tuple[tuple[Task, ...], list[str]]:
    """Read tasks from what a model says, and say what is the matter with them. Without JSON there are none."""
    said = _json_in(text)
    if isinstance(said, Mapping):
        said = next((said[name] for name in ("tasks", "plan", "goal") if isinstance(said.get(name), list)), [said])
    if not isinstance(said, list):
        return (), ["there is no JSON list of tasks in the answer"]
    tasks = tuple(filter(None, map(_task, said)))
    return tasks, faults_of(tasks)


def tasks_from(said: object) -> tuple[Task, ...]:
    """Return tasks as they stand in an event, or in a template: objects with `description` and `subtasks`."""
    return tuple(filter(None, map(_task, said))) if isinstance(said, list) else ()


def _json_in(text: str) -> Any:  # noqa: ANN401  (JSON)
    """Find the JSON in a text: all of it, in a fence, or from its first bracket on."""
    fenced = re.findall(r"```\w*+[^\S\n]*+\n(.*?)```", text, re.DOTALL)
    starts = [found.start() for found in re.finditer(r"[\[{]", text)][:20]
    for part in (text, *fenced, *(text[start:] for start in starts)):
        try:
            return json.JSONDecoder().raw_decode(part.strip())[0]
        except (ValueError, RecursionError):
            continue
    return None


def _task(said: object) -> Task | None:
    if isinstance(said, str):
        return Task(short(said, LONGEST), (short(said, LONGEST),)) if said.strip() else None
    if not isinstance(said, Mapping):
        return None
    described = next((said[name] for name in ("description", "task", "title", "name") if said.get(name)), "")
    inner: list[object] = next(
        (said[name] for name in ("subtasks", "steps", "actions") if isinstance(said.get(name), list)), []
    )
    subtasks = tuple(filter(None, map(_subtask, inner)))
    return Task(short(str(described), LONGEST), subtasks, said.get("independent") is True)


def _subtask(said: object) -> str:
    if isinstance(said, Mapping):
        said = next((said[name] for name in ("description", "subtask", "action", "title") if said.get(name)), "")
    return short(said, LONGEST) if isinstance(said, str) else ""


def faults_of(tasks: Sequence[Task]) -> list[str]:
    """Return what is the matter with tasks; nothing where they can be worked at."""
    faults = []
    if not tasks:
        faults.append("there are no tasks")
    if len(tasks) > MOST_TASKS:
        faults.append(f"there are {len(tasks)} tasks: at most {MOST_TASKS}")
    for number, task in enumerate(tasks, 1):
        if not task.description:
            faults.append(f"task {number} has no description")
        if not task.subtasks:
            faults.append(f"task {number} has no subtasks")
        if len(task.subtasks) > MOST_SUBTASKS:
            faults.append(f"task {number} has {len(task.subtasks)} subtasks: at most {MOST_SUBTASKS}")
        faults += [
            f"'{subtask}' needs no tool: say what to write, edit or run"
            for subtask in task.subtasks
            if _is_abstract(subtask)
        ]
    return faults


def _is_abstract(subtask: str) -> bool:
    first = re.sub(r"[^a-z]", "", subtask.lower().partition(" ")[0])
    return first in _ABSTRACT and not _CONCRETE.search(subtask)


def fallback(goal: str) -> tuple[Task, ...]:
    """Return the tasks of a goal that nobody could break up: itself."""
    return (Task(short(goal, LONGEST), (short(goal, LONGEST),)),)


DECOMPOSE = (
    "Break the user's goal into 1 to 3 tasks. Each task has subtasks, each of them one concrete action that needs a tool "
    "(write_file, edit, run_cmd, ..) and names files and commands. No decisions, no thinking steps. Answer with JSON alone:\n"
    '[{"description": "Create game script", "subtasks": ["write_file rps_game.py with the game logic"]}, '
    '{"description": "Test the game", "subtasks": ["run_cmd python rps_game.py"]}]'
)
INDEPENDENT = (
    '\nWhere the subtasks of a task need nothing of one another and touch different files, say so: {"description": .., "independent": true, '
    '"subtasks": [..]}. They are worked at together then, each by somebody who sees nothing of the others.'
)
#: Tasks of common goals (`--template`); {goal} stands for what the user has said.
TEMPLATES: dict[str, tuple[Task, ...]] = {
    "script": (
        Task("Write the script", ("write_file the script for: {goal}",)),
        Task("Try the script", ("run_cmd the script and read what it prints",)),
    ),
    "package": (
        Task("Write the package", ("write_files of a package for: {goal}",)),
        Task("Test it", ("write_file tests/test_package.py with tests of it", "run_cmd pytest and mend what fails")),
        Task("Check it", ("run_cmd ruff check . and mend what it finds",)),
    ),
    "fix": (
        Task("Show the fault", ("run_cmd pytest, or the program, to see: {goal}",)),
        Task("Mend it", ("edit the file at fault", "run_cmd pytest again: the fault is gone")),
    ),
}


def template(name: str, goal: str, own: Mapping[str, tuple[Task, ...]] | None = None) -> tuple[Task, ...]:
    """Return the tasks of a template; `own` are further ones, of a configuration file. KeyError for one that is not there."""
    known = {**TEMPLATES, **(own or {})}
    return tuple(
        Task(
            task.description.replace("{goal}", goal),
            tuple(part.replace("{goal}", goal) for part in task.subtasks),
            task.independent,
        )
        for task in known[name]
    )


Status = Literal["waiting", "in_progress", "apart", "completed", "failed"]

#: Why something was not done as the model asked, as it stands in payloads, logs and counters.
REASONS: dict[str, str] = {
    "plan_replaced": "The model's tasks could not be worked at twice; the goal itself is the task.",
    "call_looping": "A call would go round in circles.",
    "path_outside_workspace": "A call would touch what lies outside, or is protected.",
    "command_not_allowed": "A command is not on the list, or not with these arguments.",
    "not_approved": "The mode, or the user, does not let a call happen.",
    "unknown_tool": "A call was of no tool, or could not be read.",
    "too_many_calls": "Calls were left out: an answer has so many at most.",
    "no_evidence": "A subtask was called completed although no result of a tool fitted it.",
    "no_call": "The model spoke and called no tool.",
    "answer_cut_off": "An answer broke off, was empty, or had a call in its text; the model was asked again.",
    "interrupted": "A call was cut off: nobody knows what came of it.",
    "subtask_completed": "The model has completed a subtask.",
    "subtask_failed": "The model has given a subtask up, or its rounds were used up.",
    "stopped": "The user stopped.",
    "goal_complete": "Every subtask was completed.",
    "answered": "The model gave an answer instead of completing the subtask.",
    "rounds_exhausted": "The rounds were used up.",
    "loop_ended": "A call went round too often.",
    "some_failed": "Not every subtask was completed.",
    "failed": "A tool or a check failed.",
    "paused": "The model could not be asked; it can be tried again.",
}


@attrs.define
class Subtask:
    """One concrete action, and where it stands; `done` counts the results that tools gave in it, `shown` says that one of them shows that it is completed."""

    description: str
    status: Status = "waiting"
    reason: str = ""
    done: int = 0
    shown: bool = False


@attrs.define
class Chapter:
    """A task as it stands."""

    description: str
    subtasks: list[Subtask]
    independent: bool = False


@attrs.frozen
class Goal:
    """A goal, with tasks where a template has given them; `about` names the part of which it is the goal."""

    text: str
    about: str = ""
    tasks: tuple[Task, ...] | None = None


@attrs.frozen
class Decomposition(ModelAnswer):
    """The model's answer to a goal: tasks, and what is the matter with them."""

    tasks: tuple[Task, ...] = ()
    faults: tuple[str, ...] = ()


@attrs.frozen
class Permission:
    """What is said with leave: whether it holds for all calls of the kind."""

    always: bool = False


@attrs.frozen
class Denial:
    """Why a call is not to happen; empty where nothing was said."""

    why: str = ""


# -- calls ----------------------------------------------------------------------------------------------------------------


@attrs.frozen
class CallFaults:
    """What is wrong with a call, by the guard that judges it; empty where nothing is."""

    inside_workspace: str = ""
    command_allowed: str = ""


#: It may happen · the user is asked first · it may not
Leave = Literal["yes", "ask", "never"]


@attrs.frozen
class Approval:
    """Whether a call may happen in the mode of the run, and why not."""

    leave: Leave
    why: str = ""


@attrs.frozen
class Look:
    """What was found of a call before it is made.

    `asks` is what leave is asked for; `planned` what it would change, or `cannot` why it cannot be done. `argv` is its command, `named` the files that this executes, with
    the SHA-256 of each.
    """

    faults: CallFaults = CallFaults()
    asks: str = ""
    planned: tuple[FileEdit, ...] = ()
    cannot: CallFault | None = None
    argv: tuple[str, ...] = ()
    named: Mapping[str, str | None] = attrs.field(factory=dict)


@attrs.frozen
class CodingCall(Look):
    """A call as it is meant. `fault` says why it is of no tool, whose name is empty then.

    `key` is what it is known by, `round` how far round it goes, `approval` whether it may happen. `polled`: its command is declared as polling. `files` are those that a commit
    takes. A completion has `subtask`, its `reason`, how many `results` the tools have given, and what it `lacks`.
    """

    call_id: str = ""
    tool: str = ""
    rescues: tuple[str, ...] = ()
    fault: str = ""
    kind: Kind = "looking"
    arguments: JsonObject = attrs.field(factory=dict)
    key: str = ""
    round: Round | None = None
    approval: Approval | None = None
    polled: bool = False
    files: tuple[str, ...] = ()
    subtask: str = ""
    reason: str = ""
    results: int = 0
    lacks: str = ""


@attrs.frozen
class CodingResult:
    """What came of a call: `result` for the model, or `seen` where a note was put beside that.

    `error` is what went wrong in a line, `fault` the same for calls that went wrong in the same way; `ran` is a command and its exit code. `before` and `after` are marks of the
    workspace's history, `changes` the files between them, `made` those of them that were not there before; `unkept` says what the history lacks.
    """

    call_id: str
    result: JsonObject
    error: str = ""
    fault: str = ""
    ran: str = ""
    changes: tuple[FileEdit, ...] = ()
    made: tuple[str, ...] = ()
    usage: JsonObject = attrs.field(factory=dict)
    unkept: str = ""
    before: str = ""
    after: str = ""
    seen: JsonObject | None = None


def did_of(call: CodingCall, came: CodingResult, at_ms: int = 0, answer: int = 0) -> Did:
    """Return an action as the detector of circles remembers it."""
    changed = any(change.before != change.after for change in came.changes)
    result = digest_of(came.result if came.seen is None else came.seen)
    tool = tool_of(call.tool, call.argv)
    return Did(call.key, tool, call.kind, result, changed, came.fault, at_ms=at_ms, answer=answer, polled=call.polled)


@attrs.frozen
class Probe:
    """Facts about the workspace, none of them about a goal."""

    files_written: tuple[str, ...]
    files_exist: tuple[str, ...]
    files_missing: tuple[str, ...]
    commands_run: tuple[str, ...]
    recent_errors: tuple[str, ...]


# -- parts ----------------------------------------------------------------------------------------------------------------


@attrs.frozen
class FileChange:
    """Files that a call has changed, between two marks of the workspace's history, and when; `made` are those that were not there."""

    before: str
    after: str
    changes: tuple[FileEdit, ...]
    made: tuple[str, ...] = ()
    at_ms: int = 0


@attrs.frozen
class PartCall:
    """A call of a part, as the whole remembers it: texts are cut."""

    call_id: str
    tool: str
    provider_id: str
    status: str
    result: JsonObject | None = None
    asked: JsonObject = attrs.field(factory=dict)
    about: CodingCall | None = None


@attrs.frozen
class PartDone:
    """What a part has done whose subtask has this place, in the run of this name. `asked` counts the answers of the model."""

    place: str
    run: str
    status: Status
    reason: str = ""
    done: int = 0
    shown: bool = False
    reasons: Mapping[str, int] = attrs.field(factory=dict)
    rescues: Mapping[str, int] = attrs.field(factory=dict)
    tools: Mapping[str, int] = attrs.field(factory=dict)
    blocked: Mapping[str, str] = attrs.field(factory=dict)
    commands: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    asked: int = 0
    moves: tuple[FileChange, ...] = ()
    past: tuple[Did, ...] = ()
    calls: tuple[PartCall, ...] = ()


@attrs.frozen
class PartsDone:
    """What all parts of a task have done, a note to the model, and what they took."""

    parts: tuple[PartDone, ...]
    note: str
    usage: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen
class Apart:
    """The places of subtasks that are worked at together."""

    places: tuple[str, ...]


# -- notices --------------------------------------------------------------------------------------------------------------


@attrs.frozen
class WorkNotice(Notice):
    """A notice. `subtask` is how the active one stands now; `tasks`: the goal itself is the task; `blocked`: the call is not to be tried again."""

    subtask: Literal["", "completed", "failed"] = ""
    tasks: bool = False
    blocked: bool = False
