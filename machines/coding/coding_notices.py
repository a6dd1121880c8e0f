"""What the coding machine says where nothing is done: refused calls, reminders, what became of a subtask, how the work has ended.

Each effect gives one step with a text for people, the reason by its name (`REASONS`), and what follows from it: results of calls that were not made
(`results`), a note to the model (`note`), how the subtask stands (`subtask`). `work.py` reads them from the ledger.
"""

from typing import Literal

from dsa.runtime.policy.policies import Action, Policy, PolicyContext, Step
from machines.coding.coding_resources import CodingResources, resources_in
from machines.coding.coding_work import Work
from machines.coding.task_plan import CodingCall, Denial, WorkNotice
from machines.tool_use.records import JsonObject, read_record
from machines.tool_use.tool_call import LEFT_OUT, ModelAnswer, ToolResult, refused
from machines.tool_use.transcript import results_told

_ANOTHER_WAY = "Take another way."


def read(context: PolicyContext) -> tuple[CodingResources, Work]:
    """Return what the run works with, and the work."""
    agent = resources_in(context.config, context.run.run_id)
    return agent, agent.work(context.run)


def _call_in(action: Action) -> CodingCall:
    """Return the call that has led here; an empty one where something else has."""
    data = action.payload["data"]
    return read_record(CodingCall, data if isinstance(data, dict) else {})


def _message_in(action: Action) -> str:
    """Return what an error step says that has led here."""
    data = action.payload["data"]
    return str(data.get("message") or "") if isinstance(data, dict) else ""


def _told(action: Action, notice: WorkNotice) -> list[Step]:
    return [notice.as_step(action.policy)]


def _results(work: Work, reason: str, why: str) -> list[ToolResult]:
    """Answer every call that waits."""
    return [refused(call_id, reason, why) for call_id in work.transcript.waiting()]


def _results_behind(work: Work, result: ToolResult, why: str) -> dict[str, JsonObject]:
    """Answer a call, if it is one that has led here, and every call behind it, which is left out."""
    left_out = _results(work, LEFT_OUT, why)
    return results_told(*(result if each.call_id == result.call_id else each for each in left_out))


# -- tasks ----------------------------------------------------------------------------------------------------------------


async def use_fallback(action: Action, context: PolicyContext) -> list[Step]:
    """Take the goal itself as the one task."""
    _, work = read(context)
    why = "; ".join(work.plan_faults)
    return _told(action, WorkNotice("plan_replaced", f"the goal is the task: {why}" if why else work.goal, tasks=True))


async def complete_subtask(action: Action, context: PolicyContext) -> list[Step]:
    """Write down that the active subtask is completed; calls behind that one are not made."""
    return _closed(action, context, "completed", "subtask_completed")


async def fail_subtask(action: Action, context: PolicyContext) -> list[Step]:
    """Write down that the active subtask was given up, by the model or for want of rounds."""
    return _closed(action, context, "failed", "subtask_failed")


def _closed(action: Action, context: PolicyContext, status: Literal["completed", "failed"], reason: str) -> list[Step]:
    _, work = read(context)
    call = _call_in(action)
    said = call.reason or ("done" if status == "completed" else "its rounds were used up")
    why = "the subtask was closed before this call: ask again if it is still wanted"
    results = _results_behind(work, ToolResult(call.call_id, {"status": f"subtask {status}"}), why)
    return _told(action, WorkNotice(reason, said, results=results, drops=True, subtask=status))


# -- calls that do not happen -----------------------------------------------------------------------------------------------


async def refuse_call(action: Action, context: PolicyContext) -> list[Step]:
    """Return why a call does not happen, and that another way is wanted."""
    _, work = read(context)
    data = action.payload["data"]
    is_call = isinstance(data, dict) and "call_id" in data
    call = _call_in(action) if is_call else work.call or CodingCall()
    denial = None if is_call else read_record(Denial, data if isinstance(data, dict) else {})
    reason, why, is_blocked = _why(call, denial)
    results = results_told(refused(call.call_id, reason, f"{why}. {_ANOTHER_WAY}"))
    return _told(action, WorkNotice(reason, why, results=results, blocked=is_blocked))


def _why(call: CodingCall, denial: Denial | None) -> tuple[str, str, bool]:
    """Return the reason, the words, and whether the call counts as blocked."""
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


async def question(action: Action, context: PolicyContext) -> list[Step]:
    """Ask what shows that the subtask is completed; calls behind that one are not made, so that the model sees the question first."""
    _, work = read(context)
    call = _call_in(action)
    lacks = call.lacks or "no result of a tool fits this subtask"
    why = f"{lacks}: what shows that it is done? Do it with a tool, or say again that it is done"
    behind = "a question came before this call: answer it, and ask again if the call is still wanted"
    results = _results_behind(work, refused(call.call_id, "no_evidence", why), behind)
    return _told(action, WorkNotice("no_evidence", lacks, results=results, drops=True))


async def drop_calls(action: Action, context: PolicyContext) -> list[Step]:
    """Answer every call that waits: it was not made."""
    _, work = read(context)
    results = _results(work, LEFT_OUT, "not made: too many calls at once, or the work ends here")
    if not results:
        return []
    text = f"{len(results)} call{'s' * (len(results) != 1)} left out"
    return _told(action, WorkNotice(LEFT_OUT, text, results=results_told(*results), drops=True))


async def nudge(action: Action, _context: PolicyContext) -> list[Step]:
    """Tell the model to call a tool."""
    note = (
        "[You have called no tool. Call one now; mark_subtask_complete when the subtask is over, with what there is to say as its reason: success=true when "
        "it is done, success=false when it cannot be. An answer without a call ends the work here, as not done.]"
    )
    return _told(action, WorkNotice("no_call", "the model spoke and called no tool", note))


async def note_cut_off(action: Action, _context: PolicyContext) -> list[Step]:
    """Tell the model that its answer cannot be used."""
    answer = read_record(ModelAnswer, action.payload["data"])
    return _told(action, WorkNotice("answer_cut_off", answer.why, answer.note))


# -- how the work ends --------------------------------------------------------------------------------------------------------


async def note_cancelled(action: Action, context: PolicyContext) -> list[Step]:
    """Answer the calls of work that the user has stopped."""
    return _ended(action, context, "stopped", "the user stopped")


async def report_done(action: Action, context: PolicyContext) -> list[Step]:
    """Return that every subtask was completed, and of which of them only the model says so."""
    _, work = read(context)
    by_word = f"every subtask was called completed, and no result shows it of: {'; '.join(work.unshown)}"
    return _ended(action, context, "goal_complete", by_word if work.unshown else "Goal achieved")


async def report_answer(action: Action, context: PolicyContext) -> list[Step]:
    """Return what the model has answered."""
    answer = read_record(ModelAnswer, action.payload["data"])
    return _ended(action, context, "answered", answer.content.strip())


async def report_limit(action: Action, context: PolicyContext) -> list[Step]:
    """Return that the rounds are used up, and what is left."""
    _, work = read(context)
    left = [each.description for _, _, each in work.places if each.status in {"waiting", "in_progress"}]
    return _ended(action, context, "rounds_exhausted", f"the rounds are used up; left: {'; '.join(left) or 'nothing'}")


async def report_loop(action: Action, context: PolicyContext) -> list[Step]:
    """Return which call went round too often."""
    _, work = read(context)
    call = _call_in(action)
    why = "" if call.round is None else call.round.why
    results = _results_behind(work, refused(call.call_id, "loop_ended", why), "not made: the work ends before it")
    return _told(action, WorkNotice("loop_ended", why, results=results, drops=True))


async def report_failed(action: Action, context: PolicyContext) -> list[Step]:
    """Return which subtasks were not completed."""
    _, work = read(context)
    failed = [f"{each.description} ({each.reason})" for _, _, each in work.places if each.status == "failed"]
    return _ended(action, context, "some_failed", f"not completed: {'; '.join(failed)}")


async def report_error(action: Action, context: PolicyContext) -> list[Step]:
    """Return what failed."""
    return _ended(action, context, "failed", _message_in(action) or "it failed")


async def report_fault(action: Action, _context: PolicyContext) -> list[Step]:
    """Return what failed; it can be tried again."""
    return _told(action, WorkNotice("paused", _message_in(action) or "it failed"))


def _ended(action: Action, context: PolicyContext, reason: str, text: str) -> list[Step]:
    _, work = read(context)
    results = results_told(*_results(work, "interrupted", text))
    return _told(action, WorkNotice(reason, text, results=results, drops=True))


telling: dict[str, Policy] = {
    policy.__name__: policy
    for policy in (
        use_fallback, complete_subtask, fail_subtask, refuse_call, question, drop_calls, nudge, note_cut_off, note_cancelled, report_done,
        report_answer, report_limit, report_loop, report_failed, report_error, report_fault,
    )
}  # fmt: skip
