"""How tasks, subtasks and calls stand, and why something was not done as the model asked.

What stands so is for `Work` to say: here are its words.
"""

from typing import Literal

import attrs

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
