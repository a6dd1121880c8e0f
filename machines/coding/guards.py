"""The guards of the coding machine: whether a call may happen, whether tasks can be worked at, whether a subtask is over.

What they need to know of the workspace and of what went before stands in the event, put there by `next_call` and `decompose`.
"""

from collections.abc import Callable

from dsa.runtime.content import GuardInterface
from machines.talking.judging import PASSED, Judging, Said, Verdict, failed_for


def _concrete(plan: Said) -> Verdict:
    faults = list(plan.get("faults") or ())
    return ("failed", "; ".join(faults)) if faults or not plan.get("tasks") else PASSED


def _named(fault: str) -> Callable[[Said], Verdict]:
    """Judge by one of the faults that a call was found to have."""
    return lambda call: failed_for(call["faults"][fault])


def _not_looping(call: Said) -> Verdict:
    found = call["round"]
    verdicts = {"fine": "passed", "remind": "passed", "block": "failed", "end": "fatal"}
    return verdicts[found["level"]], found["why"] if found["level"] in {"block", "end"} else ""


def _approved(call: Said) -> Verdict:
    verdicts = {"yes": "passed", "ask": "failed", "never": "fatal"}
    return verdicts[call["approval"]["is"]], call["approval"]["why"]


def _has_evidence(completion: Said) -> Verdict:
    return failed_for("" if completion["results"] else "no tool has given a result in this subtask")


guards: dict[str, GuardInterface] = {
    "concrete": Judging(_concrete),
    "inside_workspace": Judging(_named("inside_workspace")),
    "command_allowed": Judging(_named("command_allowed")),
    "not_looping": Judging(_not_looping),
    "approved": Judging(_approved),
    "has_evidence": Judging(_has_evidence),
}
