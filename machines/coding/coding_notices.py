"""Notices of the coding machine: refused calls, reminders, the end of a subtask, the end of the work.

Each effect returns one step with a text for people, the name of the reason (`REASONS`), and the consequences: the results of calls that were not made
(`results`), a note to the model (`note`), the status of the subtask (`subtask`). `coding_work.py` reads them from the ledger.
"""

from typing import Literal

from dsa.runtime.policy.policies import Action, Policy, PolicyContext, Step
from dsa.text import plural
from machines.coding.coding_resources import CodingResources, resources_in
from machines.coding.coding_work import Work
from machines.coding.task_plan import CodingCall, Denial, WorkNotice
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.tool_call import LEFT_OUT, ModelAnswer, ToolResult, fault_result
from machines.tool_use.transcript import result_contents

_ANOTHER_WAY = "Try something else."


def resources_and_work(context: PolicyContext) -> tuple[CodingResources, Work]:
    """Return the resources of the run, and the work."""
    agent = resources_in(context.config, context.run.run_id)
    return agent, agent.work(context.run)


def _call_in(action: Action) -> CodingCall:
    """Return the call of an action, or an empty one when the action has no call."""
    data = action.payload["data"]
    return read_record(CodingCall, data if isinstance(data, dict) else {})


def _message_in(action: Action) -> str:
    """Return the message of the error behind an action."""
    data = action.payload["data"]
    return str(data.get("message") or "") if isinstance(data, dict) else ""


def _notice(action: Action, notice: WorkNotice) -> list[Step]:
    return [notice.as_step(action.policy)]


def _results(work: Work, reason: str, why: str) -> list[ToolResult]:
    """Return fault results for all open calls."""
    return [fault_result(call_id, reason, why) for call_id in work.transcript.open_ids()]


def _results_after(work: Work, result: ToolResult, why: str) -> dict[str, JsonObject]:
    """Return the result of a call, if there is one, and fault results for the calls after it, which are left out."""
    open_results = _results(work, LEFT_OUT, why)
    return result_contents(*(result if each.call_id == result.call_id else each for each in open_results))


# --- tasks ---


async def use_fallback(action: Action, context: PolicyContext) -> list[Step]:
    """Use the goal itself as the only task."""
    _, work = resources_and_work(context)
    why = "; ".join(work.plan_faults)
    return _notice(
        action, WorkNotice("plan_replaced", f"the goal is the task: {why}" if why else work.goal, tasks=True)
    )


async def complete_subtask(action: Action, context: PolicyContext) -> list[Step]:
    """Record that the active subtask is completed; calls after that one are not made."""
    return _end_subtask(action, context, "completed", "subtask_completed")


async def fail_subtask(action: Action, context: PolicyContext) -> list[Step]:
    """Record that the active subtask failed: the model gave up, or there are no rounds left."""
    return _end_subtask(action, context, "failed", "subtask_failed")


def _end_subtask(
    action: Action, context: PolicyContext, status: Literal["completed", "failed"], reason: str
) -> list[Step]:
    _, work = resources_and_work(context)
    call = _call_in(action)
    text = call.reason or ("done" if status == "completed" else "its rounds are used up")
    why = "the subtask ended before this call: call it again if you still need it"
    results = _results_after(work, ToolResult(call.call_id, {"status": f"subtask {status}"}), why)
    return _notice(action, WorkNotice(reason, text, results=results, drops=True, subtask=status))


# --- calls that are not made ---


async def refuse_call(action: Action, context: PolicyContext) -> list[Step]:
    """Answer a call that is not made with the reason, and ask for something else."""
    _, work = resources_and_work(context)
    data = action.payload["data"]
    is_call = isinstance(data, dict) and "call_id" in data
    call = _call_in(action) if is_call else work.call or CodingCall()
    denial = None if is_call else read_record(Denial, data if isinstance(data, dict) else {})
    reason, why, is_blocked = _why(call, denial)
    results = result_contents(fault_result(call.call_id, reason, f"{why}. {_ANOTHER_WAY}"))
    return _notice(action, WorkNotice(reason, why, results=results, blocked=is_blocked))


def _why(call: CodingCall, denial: Denial | None) -> tuple[str, str, bool]:
    """Return the reason, its explanation, and whether the call counts as blocked."""
    if not call.tool:
        return "unknown_tool", call.fault or "no such tool", False
    if denial is not None:
        return "not_approved", denial.why or "the user does not want it", True
    if call.round is not None and call.round.level in {"block", "end"}:
        return "call_looping", call.round.why, True
    if call.faults.inside_workspace:
        return "path_outside_workspace", call.faults.inside_workspace, True
    if call.faults.command_allowed:
        return "command_not_allowed", call.faults.command_allowed, True
    return "not_approved", call.approval.why if call.approval else "", True


async def hold_call(_action: Action, _context: PolicyContext) -> list[Step]:
    """Leave the call where it is, first in the queue: calls run that it must not run beside."""
    return []


async def question(action: Action, context: PolicyContext) -> list[Step]:
    """Ask for evidence that the subtask is completed. Calls after that one are not made, so that the model sees the question first."""
    _, work = resources_and_work(context)
    call = _call_in(action)
    lacks = call.lacks or "no tool result matches this subtask"
    why = f"{lacks}: what proves that it is done? Do it with a tool, or repeat that it is done"
    after = "there is a question before this call: answer it, then call again if you still need it"
    results = _results_after(work, fault_result(call.call_id, "no_evidence", why), after)
    return _notice(action, WorkNotice("no_evidence", lacks, results=results, drops=True))


async def drop_calls(action: Action, context: PolicyContext) -> list[Step]:
    """Answer the waiting calls, which are not made."""
    _, work = resources_and_work(context)
    results = _results(work, LEFT_OUT, "not made: too many calls at once, or the work ends here")
    if not results:
        return []
    text = f"{plural(len(results), 'call')} left out"
    return _notice(action, WorkNotice(LEFT_OUT, text, results=result_contents(*results), drops=True))


async def nudge(action: Action, _context: PolicyContext) -> list[Step]:
    """Ask the model to call a tool."""
    note = (
        "[You did not call a tool. Call one now. When the subtask is over, call mark_subtask_complete with your answer as its reason: success=true when "
        "it is done, success=false when it cannot be done. An answer without a call ends the work here, as not done.]"
    )
    return _notice(action, WorkNotice("no_call", "the model spoke and called no tool", note))


async def note_cut_off(action: Action, _context: PolicyContext) -> list[Step]:
    """Send the model a note that its answer cannot be used."""
    answer = read_record(ModelAnswer, action.payload["data"])
    return _notice(action, WorkNotice("answer_cut_off", answer.why, answer.note))


# --- the end of the work ---


async def note_cancelled(action: Action, context: PolicyContext) -> list[Step]:
    """Report that the user stopped the work."""
    return _end_work(action, context, "stopped", "the user stopped")


async def report_done(action: Action, context: PolicyContext) -> list[Step]:
    """Report that every subtask is completed, and the ones without evidence."""
    _, work = resources_and_work(context)
    by_word = f"the model completed every subtask, but no result proves it for: {'; '.join(work.unshown)}"
    return _end_work(action, context, "goal_complete", by_word if work.unshown else "Goal achieved")


async def report_answer(action: Action, context: PolicyContext) -> list[Step]:
    """Report the model's answer."""
    answer = read_record(ModelAnswer, action.payload["data"])
    return _end_work(action, context, "answered", answer.content.strip())


async def report_limit(action: Action, context: PolicyContext) -> list[Step]:
    """Report that the rounds are used up, and the subtasks that are left."""
    _, work = resources_and_work(context)
    left = [each.description for _, _, each in work.places if each.status in {"waiting", "in_progress"}]
    return _end_work(
        action, context, "rounds_exhausted", f"the rounds are used up; left: {'; '.join(left) or 'nothing'}"
    )


async def report_loop(action: Action, context: PolicyContext) -> list[Step]:
    """Report the call that repeated too often."""
    _, work = resources_and_work(context)
    call = _call_in(action)
    why = "" if call.round is None else call.round.why
    results = _results_after(work, fault_result(call.call_id, "loop_ended", why), "not made: the work ends before it")
    return _notice(action, WorkNotice("loop_ended", why, results=results, drops=True))


async def report_failed(action: Action, context: PolicyContext) -> list[Step]:
    """Report the subtasks that were not completed."""
    _, work = resources_and_work(context)
    texts = [f"{each.description} ({each.reason})" for _, _, each in work.places if each.status == "failed"]
    return _end_work(action, context, "some_failed", f"not completed: {'; '.join(texts)}")


async def report_error(action: Action, context: PolicyContext) -> list[Step]:
    """Report a failure."""
    return _end_work(action, context, "failed", _message_in(action) or "it failed")


async def report_fault(action: Action, _context: PolicyContext) -> list[Step]:
    """Report a failure that can be tried again."""
    return _notice(action, WorkNotice("paused", _message_in(action) or "it failed"))


def _end_work(action: Action, context: PolicyContext, reason: str, text: str) -> list[Step]:
    _, work = resources_and_work(context)
    results = result_contents(*_results(work, "interrupted", text))
    return _notice(action, WorkNotice(reason, text, results=results, drops=True))


notice_effects: dict[str, Policy] = {
    policy.__name__: policy
    for policy in (
        use_fallback, complete_subtask, fail_subtask, refuse_call, hold_call, question, drop_calls, nudge, note_cut_off, note_cancelled, report_done,
        report_answer, report_limit, report_loop, report_failed, report_error, report_fault,
    )
}  # fmt: skip
