"""The guards of the coding machine: whether a call may happen, whether tasks can be worked at, whether a subtask is over.

They judge what an event brings, and nothing else: equal events get equal verdicts, in a replay too. What they need to know of the workspace and
of what went before stands in the event, put there by `next_call` and `decompose`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from dsa.runtime.content import Artifact, GuardInterface, GuardResult

Said = Mapping[str, Any]


class Judging(GuardInterface):
    """A guard made of a function that gives the verdict and the reason: `passed`, `failed` or `fatal`."""

    blocks = False

    def __init__(self, judge: Callable[[Said], tuple[str, str]]) -> None:
        self._judge = judge

    def validate(self, artifact: Artifact, **_dependencies: Artifact) -> GuardResult:
        """Judge the data of an event."""
        said = json.loads(artifact.content)
        verdict, why = self._judge(said if isinstance(said, dict) else {})
        return GuardResult(passed=verdict == "passed", feedback=why, fatal=verdict == "fatal")


def _concrete(plan: Said) -> tuple[str, str]:
    faults = list(plan.get("faults") or ())
    return ("failed", "; ".join(faults)) if faults or not plan.get("tasks") else ("passed", "")


def _named(fault: str) -> Callable[[Said], tuple[str, str]]:
    """Judge by one of the faults that a call was found to have."""

    def judge(call: Said) -> tuple[str, str]:
        why = call["faults"][fault]
        return ("failed", why) if why else ("passed", "")

    return judge


def _not_looping(call: Said) -> tuple[str, str]:
    found = call["round"]
    verdicts = {"fine": "passed", "remind": "passed", "block": "failed", "end": "fatal"}
    return verdicts[found["level"]], found["why"] if found["level"] in {"block", "end"} else ""


def _approved(call: Said) -> tuple[str, str]:
    verdicts = {"yes": "passed", "ask": "failed", "never": "fatal"}
    return verdicts[call["approval"]["is"]], call["approval"]["why"]


def _has_evidence(completion: Said) -> tuple[str, str]:
    if completion["results"]:
        return "passed", ""
    return "failed", "no tool has given a result in this subtask"


guards: dict[str, GuardInterface] = {
    "concrete": Judging(_concrete),
    "inside_workspace": Judging(_named("inside_workspace")),
    "command_allowed": Judging(_named("command_allowed")),
    "not_looping": Judging(_not_looping),
    "approved": Judging(_approved),
    "has_evidence": Judging(_has_evidence),
}
