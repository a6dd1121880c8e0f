"""Bindings of the coding machine: the policies and guards of its table.

Each policy reads the work from the ledger, does one thing, and answers with one event. None decides what happens next: the guards judge whether a call may
happen, whether tasks are concrete, whether a subtask is complete, and the table says what follows. Guards read only the event, where `next_call` and
`decompose` put the facts of the workspace and of earlier calls.

Notices are effects too: refused calls, reminders, the end of a subtask, the end of the work. Each returns one step with a text for people, the name of the
reason (`task_plan.REASONS`), and the consequences: the results of calls that were not made (`results`), a note to the model (`note`), the status of the subtask
(`subtask`). `coding_work.py` reads them from the ledger.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Literal, TypeVar

import attrs

from dsa.edge.event_loop import in_thread, run_function
from dsa.edge.sandbox.command_sandbox import StopSwitch
from dsa.expr import Outcome
from dsa.generators.streams import StreamResult
from dsa.runs.child_runs import runs_for_parts
from dsa.runtime.content import GuardInterface
from dsa.runtime.generation import GenerationError
from dsa.runtime.policy.policies import Action, Policy, PolicyContext, Step, answering, event_step, text_step
from dsa.runtime.speech import as_unicode
from dsa.text import plural
from machines.coding.coding_resources import (
    CodingResources,
    messages_for,
    resources_and_work,
    settings_of,
    workspace_fault,
)
from machines.coding.coding_tools import (
    COMPLETE,
    CallAction,
    Kind,
    Level,
    WorkspaceTool,
    key_of,
    reminder_of,
    round_beside,
    tool_of,
)
from machines.coding.coding_work import Work, missing_evidence
from machines.coding.subtask_runs import work_apart
from machines.coding.task_plan import (
    DECOMPOSE,
    INDEPENDENT,
    Apart,
    Approval,
    CodingCall,
    Decomposition,
    Denial,
    Goal,
    Leave,
    Look,
    Task,
    WorkNotice,
    action_of,
    read_plan,
    tasks_from,
)
from machines.coding.workspace_view import actions_beside, arguments_text
from machines.tool_use.records import JsonObject, as_data, one_line, read_record
from machines.tool_use.tool_agent import PASSED, FunctionGuard, Verdict, verdict_for
from machines.tool_use.tool_call import (
    LEFT_OUT,
    ModelAnswer,
    ToolCall,
    ToolRequest,
    ToolResult,
    answer_of,
    fault_result,
    read_call,
)
from machines.tool_use.transcript import ChatMessage, ask_within, first_room, result_contents, room_of

_ANOTHER_WAY = "Try something else."


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


# --- notices: tasks ---


async def use_fallback(action: Action, context: PolicyContext) -> list[Step]:
    """Use the goal itself as the only task."""
    _, work = resources_and_work(context)
    why = "; ".join(work.plan_faults)
    return _notice(
        action,
        WorkNotice("plan_replaced", f"the goal itself is the only task: {why}" if why else work.goal, tasks=True),
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


# --- notices: calls that are not made ---


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
        return "not_approved", denial.why or "the user does not want this call", True
    if call.round is not None and call.round.level in {"block", "end"}:
        return "call_looping", call.round.why, True
    if call.faults.inside_workspace:
        return "path_outside_workspace", call.faults.inside_workspace, True
    if call.faults.command_allowed:
        return "command_not_allowed", call.faults.command_allowed, True
    return "not_approved", call.approval.why if call.approval else "", True


async def hold_call(_action: Action, _context: PolicyContext) -> list[Step]:
    """Leave the call first in the queue: it must not run beside the calls that are running."""
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
    return _notice(action, WorkNotice("no_call", "the model replied without calling a tool", note))


async def note_cut_off(action: Action, _context: PolicyContext) -> list[Step]:
    """Send the model a note that its answer cannot be used."""
    answer = read_record(ModelAnswer, action.payload["data"])
    return _notice(action, WorkNotice("answer_cut_off", answer.why, answer.note))


# --- notices: the end of the work ---


async def note_cancelled(action: Action, context: PolicyContext) -> list[Step]:
    """Report that the user stopped the work."""
    return _end_work(action, context, "stopped", "the user stopped the work")


async def report_done(action: Action, context: PolicyContext) -> list[Step]:
    """Report that every subtask is completed, and which of them have no evidence."""
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
        action, context, "rounds_exhausted", f"the rounds are used up; subtasks left: {'; '.join(left) or 'nothing'}"
    )


async def report_loop(action: Action, context: PolicyContext) -> list[Step]:
    """Report the call that repeated too often."""
    _, work = resources_and_work(context)
    call = _call_in(action)
    why = "" if call.round is None else call.round.why
    results = _results_after(
        work, fault_result(call.call_id, "loop_ended", why), "not made: the work ended before this call"
    )
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

T = TypeVar("T")


def read_goal(data: object) -> object:
    """Return a goal as it is recorded: `text`, `tasks` of a template, `about` of a part. Raises ValueError for anything else."""
    value = data if isinstance(data, dict) else {"text": data}
    text, about, tasks = value.get("text"), value.get("about"), value.get("tasks")
    if not isinstance(text, str) or not text.strip():
        raise ValueError('a goal must be a text or {"text": TEXT}, and must not be empty')
    goal = Goal(text, about if isinstance(about, str) else "", None if tasks is None else tasks_from(tasks))
    return as_unicode(as_data(goal))


def read_permission(data: object) -> object:
    """Return the data of `permitted`: `always`, or nothing. Raises ValueError for anything else."""
    value = {"always": True} if data == "always" else data or {}
    if not isinstance(value, dict) or set(value) - {"always"} or not isinstance(value.get("always", False), bool):
        raise ValueError('the data of `permitted` must be empty, or always: {"always": true}')
    return value


def read_denial(data: object) -> object:
    """Return the data of `denied`: a text as `why`, or nothing. Raises ValueError for anything else."""
    value = {"why": data} if isinstance(data, str) else data or {}
    if not isinstance(value, dict) or set(value) - {"why"} or not isinstance(value.get("why", ""), str):
        raise ValueError('the data of `denied` must be empty, or the reason: a text, or {"why": TEXT}')
    return as_unicode(value)


# --- the model ---


@answering(
    "decomposed",
    reads={"goal": read_goal, "planned": read_goal, "permitted": read_permission, "denied": read_denial},
)
async def decompose(action: Action, context: PolicyContext) -> list[Step]:
    """Ask the model for tasks, and check them. Raises GenerationError when the model does not answer."""
    agent, work = resources_and_work(context)
    instructions = DECOMPOSE + INDEPENDENT if agent.parallel > 1 else DECOMPOSE
    parts = [work.goal, f"The workspace contains: {await in_thread(agent.toolbox.contents)}."]
    if work.plan_faults:
        parts.append(f"Your last answer could not be used: {'; '.join(work.plan_faults)}. Answer again.")
    messages = [ChatMessage("system", instructions), ChatMessage("user", "\n\n".join(parts))]
    result = _whole(await agent.model.ask(messages, (), number=work.transcript.answers, on_text=None))
    _, answer = answer_of(result, work.transcript.free_id)
    tasks, faults = read_plan(answer.content)
    plan = Decomposition(**attrs.asdict(answer, recurse=False), tasks=tasks, faults=tuple(faults))
    return [event_step(action.policy, "decomposed", data=as_unicode(as_data(plan)))]


@answering("asked", "said", "cut_off")
async def ask_model(action: Action, context: PolicyContext) -> list[Step]:
    """Send the state of the work and the last exchanges, and answer with the result. Raises GenerationError when the model does not answer."""
    agent, work = resources_and_work(context)
    tools = tuple((await _tools(agent)).values())
    transcript = work.transcript

    async def ask(messages: list[ChatMessage]) -> StreamResult:
        return await agent.model.ask(messages, tools, number=transcript.answers, on_text=agent.listen)

    def messages_within(chars: int) -> list[ChatMessage]:
        return messages_for(work, context_chars=chars, test_first=agent.is_test_first, files=agent.files_before)

    room = first_room(transcript.room, agent.context_chars, agent.model_name)
    beside = sum(tool.size for tool in tools)
    result, used_chars = await ask_within(ask, messages_within, room, beside=beside, notice=agent.tell)
    kind, answer = answer_of(_whole(result), transcript.free_id, tools, misplaced_count=transcript.misplaced_count)
    answer = attrs.evolve(answer, room=room_of(used_chars, agent.context_chars, agent.model_name))
    return [event_step(action.policy, kind, data=as_data(answer))]


async def _tools(agent: CodingResources) -> Mapping[str, WorkspaceTool]:
    """Return the tools; MCP servers list theirs once."""
    return await run_function(lambda: agent.toolbox.tools, blocks=not agent.toolbox.is_listed)


def _whole(result: StreamResult) -> StreamResult:
    """Return an answer. Raises GenerationError when the connection broke off at every try, which is not the model's fault."""
    if result.error is not None and result.error.code in _CONNECTION_ERRORS:
        raise GenerationError(str(result.error), "interrupted")
    return result


# --- calls ---


@answering("tool_call", "completion", "giving_up", "unknown_call", "no_more_calls", is_eager=True)
async def next_call(action: Action, context: PolicyContext) -> list[Step]:
    """Read the first call of the queue, with its effects and its loop judgement."""
    agent, work = resources_and_work(context)
    queue = work.transcript.queue
    if not queue:
        return [event_step(action.policy, "no_more_calls")]
    tools = await _tools(agent)
    try:
        event, call = await _read_queued(queue[0], agent, work, tools, await _others(agent, work, context.run.run_id))
    except (OSError, ValueError, OverflowError, TypeError) as error:  # no call of a model may end the run
        fault = one_line(f"the call of {queue[0].name} cannot be read: {error}", _LONGEST_FAULT)
        event, call = "unknown_call", as_unicode(as_data(CodingCall(call_id=queue[0].id, fault=fault)))
    return [event_step(action.policy, event, data=call)]


async def _read_queued(
    queued_call: ToolCall,
    agent: CodingResources,
    work: Work,
    tools: Mapping[str, WorkspaceTool],
    others: Sequence[CallAction],
) -> tuple[str, dict[str, object]]:
    """Return the event of a queued call, and its data with the effects that the call would have. Raises what the look raises."""
    call = read_call(queued_call, tools)
    if call.tool is None:
        return "unknown_call", as_data(CodingCall(call_id=call.call_id, rescues=call.rescues, fault=call.fault))
    if call.tool.name == COMPLETE:
        return "completion" if call.arguments["success"] else "giving_up", as_data(_completion(call, work))
    look = await in_thread(partial(agent.toolbox.look_at, call))
    key = key_of(call.tool.name, key_arguments(call, look, agent.toolbox.workspace.known_as))
    is_polling = agent.polls(look.argv)
    tool = tool_of(call.tool.name, look.argv)
    action = CallAction(key, tool, call.tool.kind, answer=work.transcript.answers, polled=is_polling)
    judgement, is_certain = round_beside(action, tuple(work.past), others, work.unread_actions)
    approval = agent.approval(call.tool.needs, look.asks, work.permissions)
    if approval.leave == "ask" and look.cannot is not None:
        approval = Approval("yes", "the call cannot work, and changes nothing")
    read_as = CodingCall(
        **attrs.asdict(look, recurse=False),
        call_id=call.call_id,
        tool=call.tool.name,
        rescues=call.rescues,
        kind=call.tool.kind,
        arguments=call.arguments,
        key=key,
        round=judgement,
        approval=approval,
        polled=is_polling,
        alone=_why_alone(call.tool.kind, is_certain=is_certain),
        files=tuple(work.changes) if call.tool.name == "git_commit" else (),
    )
    return "tool_call", as_data(read_as)


async def _others(agent: CodingResources, work: Work, run_id: str) -> tuple[CallAction, ...]:
    """Return the actions of parts: of this run's earlier ones, and, in a part, of those beside it."""
    runs, whole = runs_for_parts(), agent.settings.part_of
    if runs is None or not whole:
        return (*work.past_apart, *agent.others())
    return (*work.past_apart, *await in_thread(partial(actions_beside, runs, whole, run_id)))


def _why_alone(kind: Kind, *, is_certain: bool) -> str:
    """Return why a call does not run beside calls that look, or an empty text."""
    if kind != "looking":
        return "the call does more than read"
    return "" if is_certain else "whether this call repeats another one depends on results that have not arrived yet"


def key_arguments(call: ToolRequest[WorkspaceTool], look: Look, normal_path: Callable[[str], str]) -> JsonObject:
    """Return the normalised arguments of a call, for its key: one spelling of command and paths (`normal_path`), one order of files.

    The arguments of an MCP tool stay unchanged, because their meaning is unknown.
    """
    if call.tool is not None and call.tool.schema is not None:
        return call.arguments
    arguments = {name: value for name, value in call.arguments.items() if name not in _NO_DIFFERENCE}
    if look.argv:
        arguments["cmd"] = list(look.argv)
    files = arguments.get("files")
    if isinstance(files, list):
        by_name = [{**file, "path": normal_path(file["path"])} for file in files]
        arguments["files"] = sorted(by_name, key=itemgetter("path", "content"))
    return arguments | {name: normal_path(str(arguments[name])) for name in _PATHS if arguments.get(name)}


_LONGEST_FAULT = 300
#: Errors of an answer that come from the connection or the provider.
_CONNECTION_ERRORS = frozenset({"interrupted", "provider_error"})
#: Arguments that do not make a call different.
_NO_DIFFERENCE = frozenset({"timeout_sec", "create_dirs"})
_PATHS = ("path", "cwd", "tests_path")


def _completion(call: ToolRequest[WorkspaceTool], work: Work) -> CodingCall:
    """Return the call that ends the active subtask, with the number of its tool results and the missing evidence."""
    subtask = work.active[1] if work.active else None
    return CodingCall(
        call_id=call.call_id,
        tool=COMPLETE,
        rescues=call.rescues,
        arguments=call.arguments,
        reason=str(call.arguments.get("reason", "")),
        subtask="" if subtask is None else subtask.description,
        lacks="" if subtask is None else missing_evidence(subtask.description, work.evidence),
        results=0 if subtask is None else subtask.done,
    )


@answering("tool_done", "tool_failed")
async def run_tool(action: Action, context: PolicyContext) -> list[Step]:
    """Make the call that the effect is for. A fault in it is a result for the model; only our own faults raise.

    A command that was running when the run was interrupted does not run again: its effects are unknown, and the result says so.
    """
    agent, work = resources_and_work(context)
    effect, _, _ = context.key.rpartition("/")  # the rest is the number of the try
    call = work.calls_by_key[effect].about
    assert call is not None, "the table runs a tool only for a call"
    if call.kind == "running" and effect in work.doubts:
        outcome = await _stoppable(lambda stop: agent.toolbox.interrupted_call(call, effect, stop))
    else:
        agent.toolbox.model, agent.toolbox.answer_count = agent.model, work.transcript.answers
        was_asked = action.payload["event"] == "permitted"
        outcome = await _stoppable(lambda stop: agent.toolbox.do(call, key=effect, stop=stop, was_asked=was_asked))
    result = outcome.result
    others = await _others(agent, work, context.run.run_id)
    reminder = reminder_of(action_of(call, result), tuple(work.past), others)
    if reminder:
        result = attrs.evolve(result, seen=result.result, result={**result.result, "note": reminder})
    event = "tool_done" if outcome.is_done else "tool_failed"
    return [event_step(action.policy, event, data=as_unicode(as_data(result)))]


#: The time for a stopped call to clean up, in seconds: protected files that it left, and the mark after it.
_ORDER_S = 10.0


async def _stoppable(do: Callable[[StopSwitch], T]) -> T:
    """Run a function in a thread. Cancelling the caller sets its stop switch, and waits a moment for its end."""
    loop = asyncio.get_running_loop()
    stop, lock, end = StopSwitch(), threading.Lock(), loop.create_future()
    over = threading.Event()

    def run_and_signal() -> T:
        try:
            return do(stop)
        finally:
            with lock:
                over.set()
                stop.close()
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(end.set_result, None)

    try:
        return await in_thread(run_and_signal)
    except asyncio.CancelledError:
        with lock:
            if not over.is_set():
                stop.set()
        await _wait_for(end, loop.time() + _ORDER_S)
        raise


async def _wait_for(end: "asyncio.Future[None]", until_s: float) -> None:
    """Wait for a future, and ignore further cancellations: a closing loop cancels all tasks again."""
    loop = asyncio.get_running_loop()
    while not end.done() and loop.time() < until_s:
        with suppress(asyncio.CancelledError):
            await asyncio.wait([end], timeout=until_s - loop.time())


# --- around the calls ---


@answering("probed")
async def probe(action: Action, context: PolicyContext) -> list[Step]:
    """Answer with facts about written files and commands."""
    agent, work = resources_and_work(context)
    look = partial(agent.toolbox.probe, tuple(work.files_written), tuple(work.commands), tuple(work.errors))
    return [event_step(action.policy, "probed", data=as_data(await in_thread(look)))]


@answering("next_subtask", "apart", "none_left", is_eager=True)
async def advance(action: Action, context: PolicyContext) -> list[Step]:
    """Answer with the next subtask, or several that can run at the same time, or none."""
    agent, work = resources_and_work(context)
    places = work.independent_next() if agent.parallel > 1 else []
    if len(places) > 1:
        return [event_step(action.policy, "apart", data=as_data(Apart(tuple(places))))]
    return [event_step(action.policy, "none_left" if work.next_waiting is None else "next_subtask")]


async def ask_approval(action: Action, context: PolicyContext) -> list[Step]:
    """Ask for permission, with the changes that the call would make."""
    agent, work = resources_and_work(context)
    call = work.call
    assert call is not None, "permission is needed for a call"
    about = {"asks": call.asks, "diff": await in_thread(partial(agent.toolbox.preview, call))}
    return [text_step(action.policy, f"allow {call.tool} {arguments_text(call)}?", about=about)]


# --- guards ---


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
    """Pass a call that only looks, and that all other guards pass: beside running calls, the table asks only this guard."""
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
