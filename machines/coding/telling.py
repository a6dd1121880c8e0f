"""What the coding machine says where nothing is done: refused calls, reminders, what became of a subtask, how the work has ended.

Each effect gives one step with a text for people, the reason by its name (`REASONS`), and what follows from it: results of calls that were not made
(`results`), a note to the model (`note`), how the subtask stands (`subtask`). `work.py` reads them from the ledger.
"""

from collections.abc import Mapping
from typing import Any

from dsa.runtime.policies import Action, Policy, PolicyContext, Step, text_step
from machines.coding.resources import Resources, resources_in
from machines.coding.work import Work
from machines.talking.answers import note_on, refused

_ANOTHER_WAY = "Take another way."


def read(action: Action, context: PolicyContext) -> tuple[Resources, Work, dict[str, Any]]:
    """Give what the run works with, the work, and the data of the event that led here."""
    agent = resources_in(context.config, context.run.run_id)
    data = action.payload["data"]
    return agent, agent.work(context.run), data if isinstance(data, dict) else {}


def _told(action: Action, reason: str, text: str, **more: object) -> list[Step]:
    return [text_step(action.policy, text, about={"reason": reason, **more})]


def _results(work: Work, reason: str, why: str) -> dict[str, Any]:
    """Answer every call that waits."""
    return {call_id: refused(reason, why) for call_id in work.waiting()}


def _results_behind(work: Work, data: Mapping[str, Any], result: Mapping[str, Any], why: str) -> dict[str, Any]:
    """Answer a call, if it is one that has led here, and every call behind it, which is left out."""
    results = _results(work, "too_many_calls", why)
    return {call_id: dict(result) if call_id == data.get("call_id") else left for call_id, left in results.items()}


# -- tasks ----------------------------------------------------------------------------------------------------------------


async def use_fallback(action: Action, context: PolicyContext) -> list[Step]:
    """Take the goal itself as the one task."""
    _, work, data = read(action, context)
    why = "; ".join(data.get("faults") or ())
    return _told(action, "plan_replaced", f"the goal is the task: {why}" if why else work.goal, tasks=True)


async def complete_subtask(action: Action, context: PolicyContext) -> list[Step]:
    """Write down that the active subtask is completed; calls behind that one are not made."""
    return _closed(action, context, "completed", "subtask_completed")


async def fail_subtask(action: Action, context: PolicyContext) -> list[Step]:
    """Write down that the active subtask was given up, by the model or for want of rounds."""
    return _closed(action, context, "failed", "subtask_failed")


def _closed(action: Action, context: PolicyContext, status: str, reason: str) -> list[Step]:
    _, work, data = read(action, context)
    said = str(data.get("reason") or "") or ("done" if status == "completed" else "its rounds were used up")
    why = "the subtask was closed before this call: ask again if it is still wanted"
    results = _results_behind(work, data, {"status": f"subtask {status}"}, why)
    return _told(action, reason, said, subtask=status, results=results, drops=True)


# -- calls that do not happen -----------------------------------------------------------------------------------------------


async def refuse_call(action: Action, context: PolicyContext) -> list[Step]:
    """Say why a call does not happen, and that another way is wanted."""
    _, work, data = read(action, context)
    call = data if "call_id" in data else dict(work.current.about) if work.current else {}
    reason, why, is_blocked = _why(call, data)
    result = refused(reason, f"{why}. {_ANOTHER_WAY}")
    return _told(action, reason, why, results={call.get("call_id", ""): result}, blocked=is_blocked)


def _why(call: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[str, str, bool]:
    """Give the reason, the words, and whether the call counts as blocked."""
    if not call.get("tool"):
        return "unknown_tool", str(call.get("fault") or "no such tool"), False
    if data is not call and "call_id" not in data:
        return "not_approved", str(data.get("why") or "the user does not want it"), True
    if call["round"]["level"] in {"block", "end"}:
        return "call_looping", call["round"]["why"], True
    for guard, reason in (("inside_workspace", "path_outside_workspace"), ("command_allowed", "command_not_allowed")):
        if call["faults"][guard]:
            return reason, call["faults"][guard], True
    return "not_approved", call["approval"]["why"], True


async def question(action: Action, context: PolicyContext) -> list[Step]:
    """Ask what shows that the subtask is completed; calls behind that one are not made, so that the model sees the question first."""
    _, work, data = read(action, context)
    lacks = data.get("lacks") or "no result of a tool fits this subtask"
    why = f"{lacks}: what shows that it is done? Do it with a tool, or say again that it is done"
    behind = "a question came before this call: answer it, and ask again if the call is still wanted"
    results = _results_behind(work, data, refused("no_evidence", why), behind)
    return _told(action, "no_evidence", lacks, results=results, drops=True)


async def drop_calls(action: Action, context: PolicyContext) -> list[Step]:
    """Answer every call that waits: it was not made."""
    _, work, _ = read(action, context)
    results = _results(work, "too_many_calls", "not made: too many calls at once, or the work ends here")
    if not results:
        return []
    text = f"{len(results)} call{'s' * (len(results) != 1)} left out"
    return _told(action, "too_many_calls", text, results=results, drops=True)


async def nudge(action: Action, _context: PolicyContext) -> list[Step]:
    """Tell the model to call a tool."""
    note = (
        "[You have called no tool. Call one now; mark_subtask_complete when the subtask is over, with what there is to say as its reason: success=true when "
        "it is done, success=false when it cannot be. An answer without a call ends the work here, as not done.]"
    )
    return _told(action, "no_call", "the model spoke and called no tool", note=note)


async def note_cut_off(action: Action, context: PolicyContext) -> list[Step]:
    """Tell the model that its answer cannot be used."""
    _, _, data = read(action, context)
    return _told(action, "answer_cut_off", str(data.get("why")), note=note_on(data))


# -- how the work ends --------------------------------------------------------------------------------------------------------


async def note_cancelled(action: Action, context: PolicyContext) -> list[Step]:
    """Answer the calls of work that the user has stopped."""
    return _ended(action, context, "stopped", "the user stopped")


async def report_done(action: Action, context: PolicyContext) -> list[Step]:
    """Say that every subtask was completed, and of which of them only the model says so."""
    _, work, _ = read(action, context)
    by_word = f"every subtask was called completed, and no result shows it of: {'; '.join(work.unshown)}"
    return _ended(action, context, "goal_complete", by_word if work.unshown else "Goal achieved")


async def report_answer(action: Action, context: PolicyContext) -> list[Step]:
    """Say what the model has answered."""
    _, _, data = read(action, context)
    return _ended(action, context, "answered", str(data.get("content") or "").strip())


async def report_limit(action: Action, context: PolicyContext) -> list[Step]:
    """Say that the rounds are used up, and what is left."""
    _, work, _ = read(action, context)
    left = [each.description for _, _, each in work.places if each.status in {"waiting", "in_progress"}]
    return _ended(action, context, "rounds_exhausted", f"the rounds are used up; left: {'; '.join(left) or 'nothing'}")


async def report_loop(action: Action, context: PolicyContext) -> list[Step]:
    """Say which call went round too often."""
    _, work, data = read(action, context)
    why = data["round"]["why"]
    results = _results_behind(work, data, refused("loop_ended", why), "not made: the work ends before it")
    return _told(action, "loop_ended", why, results=results, drops=True)


async def report_failed(action: Action, context: PolicyContext) -> list[Step]:
    """Say which subtasks were not completed."""
    _, work, _ = read(action, context)
    failed = [f"{each.description} ({each.reason})" for _, _, each in work.places if each.status == "failed"]
    return _ended(action, context, "some_failed", f"not completed: {'; '.join(failed)}")


async def report_error(action: Action, context: PolicyContext) -> list[Step]:
    """Say what failed."""
    _, _, data = read(action, context)
    why = data.get("message") or "; ".join(data.get("faults") or ()) or "it failed"
    return _ended(action, context, "failed", str(why))


async def report_fault(action: Action, context: PolicyContext) -> list[Step]:
    """Say what failed; it can be tried again."""
    _, _, data = read(action, context)
    return _told(action, "paused", str(data.get("message") or "it failed"))


def _ended(action: Action, context: PolicyContext, reason: str, text: str) -> list[Step]:
    _, work, _ = read(action, context)
    return _told(action, reason, text, results=_results(work, "interrupted", text), drops=True)


telling: dict[str, Policy] = {
    policy.__name__: policy
    for policy in (
        use_fallback, complete_subtask, fail_subtask, refuse_call, question, drop_calls, nudge, note_cut_off, note_cancelled, report_done,
        report_answer, report_limit, report_loop, report_failed, report_error, report_fault,
    )
}  # fmt: skip
