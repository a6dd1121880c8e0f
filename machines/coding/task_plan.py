"""The task plan: a goal in tasks and subtasks (seed 003, task decomposition), and the records in the events of the coding machine. Pure.

A plan comes from a model's answer or from a template. `faults_of` checks it, and the guard `concrete` judges the faults. The records are the data of events:
a goal, tasks, a call as the agent reads it, its result, and the work of parts. `Work` computes the status of tasks, subtasks and calls.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import attrs

from machines.coding.coding_tools import TOOLS, CallAction, Kind, Round, digest_of, tool_of
from machines.coding.tools.workspace import FileEdit
from machines.tool_use.records import JsonObject, one_line
from machines.tool_use.tool_call import CallFault, ModelAnswer
from machines.tool_use.transcript import Notice

MOST_TASKS, MOST_SUBTASKS, LONGEST = 3, 8, 400
#: First words of subtasks that are thoughts, not actions, unless they name a tool or a file.
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
    """A task with its subtasks in order. `independent` says that the subtasks do not need each other."""

    description: str
    subtasks: tuple[str, ...]
    independent: bool = False


def read_plan(text: str) -> tuple[tuple[Task, ...], list[str]]:
    """Return the tasks in a model's answer, and their faults; no tasks when it has no JSON."""
    value = _json_in(text)
    if isinstance(value, Mapping):
        value = next((value[name] for name in ("tasks", "plan", "goal") if isinstance(value.get(name), list)), [value])
    if not isinstance(value, list):
        return (), ["the answer has no JSON list of tasks"]
    tasks = tuple(filter(None, map(_task, value)))
    return tasks, faults_of(tasks)


def tasks_from(value: object) -> tuple[Task, ...]:
    """Return the tasks in an event or a template: objects with `description` and `subtasks`."""
    return tuple(filter(None, map(_task, value))) if isinstance(value, list) else ()


def _json_in(text: str) -> Any:  # noqa: ANN401  (JSON)
    """Return the JSON in a text: the whole text, a code fence, or from a bracket on; None when there is none."""
    bodies = re.findall(r"```\w*+[^\S\n]*+\n(.*?)```", text, re.DOTALL)
    starts = [match.start() for match in re.finditer(r"[\[{]", text)][:20]
    for part in (text, *bodies, *(text[start:] for start in starts)):
        try:
            return json.JSONDecoder().raw_decode(part.strip())[0]
        except (ValueError, RecursionError):
            continue
    return None


def _task(value: object) -> Task | None:
    if isinstance(value, str):
        return Task(one_line(value, LONGEST), (one_line(value, LONGEST),)) if value.strip() else None
    if not isinstance(value, Mapping):
        return None
    description = next((value[name] for name in ("description", "task", "title", "name") if value.get(name)), "")
    inner: list[object] = next(
        (value[name] for name in ("subtasks", "steps", "actions") if isinstance(value.get(name), list)), []
    )
    subtasks = tuple(filter(None, map(_subtask, inner)))
    return Task(one_line(str(description), LONGEST), subtasks, value.get("independent") is True)


def _subtask(value: object) -> str:
    if isinstance(value, Mapping):
        value = next((value[name] for name in ("description", "subtask", "action", "title") if value.get(name)), "")
    return one_line(value, LONGEST) if isinstance(value, str) else ""


def faults_of(tasks: Sequence[Task]) -> list[str]:
    """Return the faults of tasks, an empty list when they are fine."""
    faults = []
    if not tasks:
        faults.append("there are no tasks")
    if len(tasks) > MOST_TASKS:
        faults.append(f"there are {len(tasks)} tasks; write at most {MOST_TASKS}")
    for number, task in enumerate(tasks, 1):
        if not task.description:
            faults.append(f"task {number} has no description")
        if not task.subtasks:
            faults.append(f"task {number} has no subtasks")
        if len(task.subtasks) > MOST_SUBTASKS:
            faults.append(f"task {number} has {len(task.subtasks)} subtasks; write at most {MOST_SUBTASKS}")
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
    """Return the goal as its only task, when the model's plan cannot be used."""
    return (Task(one_line(goal, LONGEST), (one_line(goal, LONGEST),)),)


DECOMPOSE = (
    "Break the user's goal into 1 to 3 tasks. Each task has subtasks, each of them one concrete action that needs a tool "
    "(write_file, edit, run_cmd, ..) and names files and commands. No decisions, no thinking steps. Answer with JSON alone:\n"
    '[{"description": "Create game script", "subtasks": ["write_file rps_game.py with the game logic"]}, '
    '{"description": "Test the game", "subtasks": ["run_cmd python rps_game.py"]}]'
)
INDEPENDENT = (
    '\nIf the subtasks of a task do not need each other and touch different files, write {"description": .., "independent": true, '
    '"subtasks": [..]}. Then they run at the same time, each by an agent that does not see the others.'
)
#: Tasks of common goals (`--template`); {goal} is the user's goal.
TEMPLATES: dict[str, tuple[Task, ...]] = {
    "script": (
        Task("Write the script", ("write_file the script for: {goal}",)),
        Task("Try the script", ("run_cmd the script and read what it prints",)),
    ),
    "package": (
        Task("Write the package", ("write_files of a package for: {goal}",)),
        Task("Test it", ("write_file tests/test_package.py with tests of it", "run_cmd pytest and fix what fails")),
        Task("Check it", ("run_cmd ruff check . and fix what it finds",)),
    ),
    "fix": (
        Task("Show the fault", ("run_cmd pytest, or the program, to see: {goal}",)),
        Task("Fix it", ("edit the file at fault", "run_cmd pytest again: the fault is gone")),
    ),
}


def template(name: str, goal: str, own: Mapping[str, tuple[Task, ...]] | None = None) -> tuple[Task, ...]:
    """Return the tasks of a template; `own` has those of a configuration file. Raises KeyError for an unknown one."""
    templates = {**TEMPLATES, **(own or {})}
    return tuple(
        Task(
            task.description.replace("{goal}", goal),
            tuple(part.replace("{goal}", goal) for part in task.subtasks),
            task.independent,
        )
        for task in templates[name]
    )


Status = Literal["waiting", "in_progress", "apart", "completed", "failed"]

#: Reasons of notices, under their names in payloads, logs and counters.
REASONS: dict[str, str] = {
    "plan_replaced": "The model sent unusable tasks twice, so the goal itself is the only task.",
    "call_looping": "A call repeats earlier ones without effect.",
    "path_outside_workspace": "A call would touch a path outside the workspace, or a protected one.",
    "command_not_allowed": "A command is not allowed, or not with these arguments.",
    "not_approved": "The mode or the user does not allow a call.",
    "unknown_tool": "A call did not name a tool, or could not be read.",
    "too_many_calls": "Calls were left out: the answer reached its limit of calls.",
    "no_evidence": "The model completed a subtask although no tool result matches it.",
    "no_call": "The model replied without calling a tool.",
    "answer_cut_off": "An answer broke off, was empty, or had a call in its text; the model was asked again.",
    "interrupted": "A call was interrupted: its effects are unknown.",
    "subtask_completed": "The model has completed a subtask.",
    "subtask_failed": "The model gave up a subtask, or its rounds were used up.",
    "stopped": "The user stopped.",
    "goal_complete": "Every subtask was completed.",
    "answered": "The model gave an answer instead of completing the subtask.",
    "rounds_exhausted": "The rounds were used up.",
    "loop_ended": "A call was repeated too often.",
    "some_failed": "Not every subtask was completed.",
    "failed": "A tool or a check failed.",
    "paused": "The model did not answer; the request can be tried again.",
}
#: What people read for a call with one of these names as its status, in a word or two. Those that are `refused` were not made.
BADGES: dict[str, str] = {
    **dict.fromkeys(
        (
            "call_looping",
            "path_outside_workspace",
            "command_not_allowed",
            "not_approved",
            "unknown_tool",
            "loop_ended",
        ),
        "refused",
    ),
    "no_evidence": "sent back",
    "too_many_calls": "left out",
    "subtask_completed": "subtask completed",
    "subtask_failed": "subtask failed",
    "interrupted": "no result",
}
#: The names of notices about calls that were not made.
NOT_MADE = frozenset(reason for reason, word in BADGES.items() if word in {"refused", "sent back", "left out"})


@attrs.define
class Subtask:
    """A concrete action and its status. `done` counts its tool results; `shown` says that one of them is evidence for its completion."""

    description: str
    status: Status = "waiting"
    reason: str = ""
    done: int = 0
    shown: bool = False


@attrs.define
class Chapter:
    """A task and the status of its subtasks."""

    description: str
    subtasks: list[Subtask]
    independent: bool = False


@attrs.frozen
class Goal:
    """A goal, with the tasks of a template if there is one; a part has its subtask in `about`."""

    text: str
    about: str = ""
    tasks: tuple[Task, ...] | None = None


@attrs.frozen
class Decomposition(ModelAnswer):
    """The model's answer to a goal: tasks and their faults."""

    tasks: tuple[Task, ...] = ()
    faults: tuple[str, ...] = ()


@attrs.frozen
class Permission:
    """A permission; `always` includes all calls of the same kind."""

    always: bool = False


@attrs.frozen
class Denial:
    """A denial, with a reason or without."""

    why: str = ""


# --- calls ---


@attrs.frozen
class CallFaults:
    """The faults of a call, by the guard that judges them; empty texts for none."""

    inside_workspace: str = ""
    command_allowed: str = ""


#: The call may happen · needs permission · must not happen.
Leave = Literal["yes", "ask", "never"]


@attrs.frozen
class Approval:
    """Whether a call may happen in the mode of the run, and why not."""

    leave: Leave
    why: str = ""


@attrs.frozen
class Look:
    """The facts of a call before it is made.

    `asks` is the kind of permission that it needs; `planned` are its changes, or `cannot` says why it cannot work. `argv` is its command, and `named` are the
    files that the command executes, each with its SHA-256.
    """

    faults: CallFaults = CallFaults()
    asks: str = ""
    planned: tuple[FileEdit, ...] = ()
    cannot: CallFault | None = None
    argv: tuple[str, ...] = ()
    named: Mapping[str, str | None] = attrs.field(factory=dict)


@attrs.frozen
class CodingCall(Look):
    """A call as the agent reads it. An unknown tool has an empty name and a `fault`.

    Equal calls have equal keys; `round` is the loop judgement, `approval` says whether it may happen, `polled` marks a polling command. `alone` says why it does
    not run beside calls that only look, and is empty when it may. `files` are those of a commit.
    The end of a subtask has `subtask`, its `reason`, the number of tool `results`, and the evidence that it `lacks`.
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
    alone: str = ""
    files: tuple[str, ...] = ()
    subtask: str = ""
    reason: str = ""
    results: int = 0
    lacks: str = ""


@attrs.frozen
class CodingResult:
    """The result of a call: `result` is for the model; `seen` is the result without the note that was added to it.

    `error` is the failure in a line, `fault` its kind, which is equal for equal failures; `ran` is a command and its exit code. `before` and `after` are marks
    of the workspace's history, `changes` the files changed between them, `made` the new ones; `unkept` says what the history lacks.
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


def action_of(call: CodingCall, result_record: CodingResult, at_ms: int = 0, answer: int = 0) -> CallAction:
    """Return a call as an action for the loop detection."""
    has_changed = any(change.before != change.after for change in result_record.changes)
    result = digest_of(result_record.result if result_record.seen is None else result_record.seen)
    tool = tool_of(call.tool, call.argv)
    return CallAction(
        call.key,
        tool,
        call.kind,
        result,
        has_changed,
        result_record.fault,
        at_ms=at_ms,
        answer=answer,
        polled=call.polled,
    )


@attrs.frozen
class Probe:
    """Facts about the workspace, which do not depend on a goal."""

    files_written: tuple[str, ...]
    files_exist: tuple[str, ...]
    files_missing: tuple[str, ...]
    commands_run: tuple[str, ...]
    recent_errors: tuple[str, ...]


# --- parts ---


@attrs.frozen
class FileChange:
    """The files that a call changed, between two marks of the workspace's history, and the time; `made` are the new ones."""

    before: str
    after: str
    changes: tuple[FileEdit, ...]
    made: tuple[str, ...] = ()
    at_ms: int = 0


@attrs.frozen
class PartCall:
    """A call of a part in the ledger of the whole run, with shortened texts."""

    call_id: str
    tool: str
    provider_id: str
    status: str
    result: JsonObject | None = None
    asked: JsonObject = attrs.field(factory=dict)
    about: CodingCall | None = None


@attrs.frozen
class PartDone:
    """The work of a part: the place of its subtask, its run, and the results. `asked` counts the model's answers."""

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
    past: tuple[CallAction, ...] = ()
    calls: tuple[PartCall, ...] = ()


@attrs.frozen
class PartsDone:
    """The work of all parts of a task, a note to the model, and their usage."""

    parts: tuple[PartDone, ...]
    note: str
    usage: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen
class Apart:
    """The places of subtasks that run at the same time."""

    places: tuple[str, ...]


# --- notices ---


@attrs.frozen
class WorkNotice(Notice):
    """A notice. `subtask` is the new status of the active one; `tasks` makes the goal the only task; `blocked` forbids another try of the call."""

    subtask: Literal["", "completed", "failed"] = ""
    tasks: bool = False
    blocked: bool = False
