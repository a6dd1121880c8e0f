"""What is asked for: model, tasks, arms, samples; and the folder that keeps it, which goes on only with what it was begun with.

Takes choices, gives a `Plan`; writes `settings.json`.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import attrs
from benchmarks.tasks.arms import Arm
from benchmarks.tasks.models import Model
from benchmarks.tasks.oracles import calls_of
from benchmarks.tasks.tasks import Task

SETTINGS, RESULTS, CALLS, REPORT, ACCEPTED = "settings.json", "results.csv", "calls.jsonl", "report.md", "accepted"


class SettingsError(ValueError):
    """Raised when a folder holds what was made otherwise; the message says what differs."""


@attrs.frozen
class Plan:
    """What is to be measured, and where it is kept. `prompt` names one of PROMPTS, `shared` is whether equal calls are made once."""

    model: Model
    tasks: tuple[Task, ...]
    arms: tuple[Arm, ...]
    samples: int
    seed: int
    prompt: str
    shared: bool
    folder: Path

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(task.name for task in self.tasks)

    def most_calls(self) -> int:
        """Return the number of calls that one sample of each task needs at most."""
        best = [arm.attempts for arm in self.arms if not arm.feedback]
        guarded = [arm.attempts for arm in self.arms if arm.feedback]
        if not self.shared:
            attempts = sum(best) + sum(guarded)
        else:
            attempts = 1 + sum(max(each) - 1 for each in (best, guarded) if each)
        return attempts * sum(len(task.steps) for task in self.tasks)


def settle(plan: Plan) -> None:
    """Make the folder, or see that it was begun in the same way; more samples, arms and tasks may be added.

    Raises SettingsError; OSError where it cannot be made.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    path = plan.folder / SETTINGS
    wanted = {"model": plan.model.name, "seed": plan.seed, "prompt": plan.prompt, "shared": plan.shared}
    known = _read(path)
    digests = known.pop("tasks", {})
    differing = [
        f"{name} was {known[name]}, and is {wanted[name]} now"
        for name in wanted
        if name in known and known[name] != wanted[name]
    ]
    now = {task.name: digest_of(task, plan.model) for task in plan.tasks}
    differing += [
        f"the document, the oracle or the script of {name} has changed"
        for name in now
        if digests.get(name, now[name]) != now[name]
    ]
    if differing:
        raise SettingsError(
            f"{plan.folder} was begun otherwise: {'; '.join(differing)}. Take another folder with --out"
        )
    written = json.dumps({**wanted, "tasks": {**digests, **now}}, indent=2) + "\n"
    replacing = path.with_suffix(".new")
    replacing.write_text(written, encoding="utf-8")
    os.replace(replacing, path)  # noqa: PTH105  (a kill leaves the one or the other)


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    if not isinstance(known, dict) or not isinstance(known.get("tasks", {}), dict):
        raise SettingsError(f"{path} holds no settings of this benchmark")
    return known


def digest_of(task: Task, model: Model) -> str:
    """Return a digest of all that decides about a task's rows: its document, what its oracle asks, the script where there is one."""
    return hashlib.sha256(f"{task.text}\n{calls_of(task.name)!r}\n{model.script(task.name)}".encode()).hexdigest()[:16]
