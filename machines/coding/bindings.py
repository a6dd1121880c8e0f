"""Bindings of the coding machine: the policies and guards of its table.

The guards judge whether a call may happen, whether tasks are concrete, whether a subtask is complete. They read only the event, where `next_call` and
`decompose` put the facts of the workspace and of earlier calls.
"""

from collections.abc import Mapping

import attrs

from dsa.expr import Outcome
from dsa.runtime.content import GuardInterface
from dsa.runtime.policy.policies import Policy
from machines.coding.coding_resources import settings_of, workspace_fault
from machines.coding.coding_tools import Level
from machines.coding.policies import (
    advance,
    ask_approval,
    ask_model,
    decompose,
    next_call,
    notice_effects,
    probe,
    run_tool,
)
from machines.coding.subtask_runs import work_apart
from machines.coding.task_plan import CodingCall, Leave, Task
from machines.tool_use.tool_agent import PASSED, FunctionGuard, Verdict, verdict_for


@attrs.frozen
class _Plan:
    """Tasks from the model or a template, and their faults."""

    tasks: tuple[Task, ...] = ()
    faults: tuple[str, ...] = ()


def _concrete(plan: _Plan) -> Verdict:
    return ("failed", "; ".join(plan.faults)) if plan.faults or not plan.tasks else PASSED


def _inside_workspace(call: CodingCall) -> Verdict:
    return verdict_for(call.faults.inside_workspace)


def _has_allowed_command(call: CodingCall) -> Verdict:
    return verdict_for(call.faults.command_allowed)


_BY_LEVEL: dict[Level, Outcome] = {"fine": "passed", "remind": "passed", "block": "failed", "end": "fatal"}
_BY_LEAVE: dict[Leave, Outcome] = {"yes": "passed", "ask": "failed", "never": "fatal"}


def _not_looping(call: CodingCall) -> Verdict:
    assert call.round is not None, "next_call sets it"
    return _BY_LEVEL[call.round.level], call.round.why if call.round.level in {"block", "end"} else ""


def _has_approval(call: CodingCall) -> Verdict:
    assert call.approval is not None, "next_call sets it"
    return _BY_LEAVE[call.approval.leave], call.approval.why


def _can_run_beside(call: CodingCall) -> Verdict:
    """Pass a call that only looks, if all others pass it: beside calls that run it is not judged by each of them."""
    judgements = (judge(call) for judge in (_not_looping, _inside_workspace, _has_allowed_command, _has_approval))
    against = [why for outcome, why in judgements if outcome != "passed"]
    return ("failed", against[0]) if against else verdict_for(call.alone)


def _has_evidence(completion: CodingCall) -> Verdict:
    return verdict_for(completion.lacks)


guards: dict[str, GuardInterface] = {
    "concrete": FunctionGuard(_Plan, _concrete),
    "inside_workspace": FunctionGuard(CodingCall, _inside_workspace),
    "command_allowed": FunctionGuard(CodingCall, _has_allowed_command),
    "not_looping": FunctionGuard(CodingCall, _not_looping),
    "approved": FunctionGuard(CodingCall, _has_approval),
    "beside": FunctionGuard(CodingCall, _can_run_beside),
    "has_evidence": FunctionGuard(CodingCall, _has_evidence),
}
#: A budget of the whole run stops only these effects: the calls of an answer are still made, then the work pauses.
spenders = ("decompose", "ask_model", "work_apart")


def fault_of_settings(config: Mapping[str, object]) -> str:
    """Return why a run cannot continue now, or an empty text: without its workspace every tool would fail, and end the work."""
    return workspace_fault(settings_of(config))


effects: dict[str, Policy] = {
    "decompose": decompose,
    "probe": probe,
    "ask_model": ask_model,
    "next_call": next_call,
    "run_tool": run_tool,
    "advance": advance,
    "work_apart": work_apart,
    "ask_approval": ask_approval,
    **notice_effects,
}
