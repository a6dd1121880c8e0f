"""A goal broken into tasks and subtasks (seed 003, task decomposition): read from what a model says, checked, or taken from a template.

Takes texts, gives tasks and what is the matter with them. Whether they are good enough the guard `concrete` says, by the faults. Pure.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from machines.coding.calls import TOOLS
from machines.tool_use.texts import short

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
    """Give tasks as they stand in an event, or in a template: objects with `description` and `subtasks`."""
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
    """Say what is the matter with tasks; nothing where they can be worked at."""
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
    """Give the tasks of a goal that nobody could break up: itself."""
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
