"""What stands behind the names of the coding machine's table: policies, and guards.

The guards judge whether a call may happen, whether tasks can be worked at, whether a subtask is over. What they need to know of the workspace and of
what went before stands in the event, put there by `next_call` and `decompose`.
"""

from collections.abc import Callable

from dsa.runtime.content import GuardInterface
from dsa.runtime.policies import Policy
from machines.coding.parts import work_apart
from machines.coding.policies import advance, ask_approval, ask_model, decompose, next_call, probe, run_tool
from machines.coding.telling import telling
from machines.talking.function_guard import PASSED, FunctionGuard, Said, Verdict, failed_for


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
    return failed_for(completion["lacks"])


guards: dict[str, GuardInterface] = {
    "concrete": FunctionGuard(_concrete),
    "inside_workspace": FunctionGuard(_named("inside_workspace")),
    "command_allowed": FunctionGuard(_named("command_allowed")),
    "not_looping": FunctionGuard(_not_looping),
    "approved": FunctionGuard(_approved),
    "has_evidence": FunctionGuard(_has_evidence),
}
#: A budget of the whole run stops only these: what an answer of the model has asked for is still done, and the work pauses.
spenders = ("decompose", "ask_model", "work_apart")
effects: dict[str, Policy] = {
    "decompose": decompose,
    "probe": probe,
    "ask_model": ask_model,
    "next_call": next_call,
    "run_tool": run_tool,
    "advance": advance,
    "work_apart": work_apart,
    "ask_approval": ask_approval,
    **telling,
}
